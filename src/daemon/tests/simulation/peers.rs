//! The MCP servers behind the bridge. What a call does there happens in the server's own time,
//! whether or not the bridge still waits for it; each effect is counted by the intent of the model
//! that wanted it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::world::{State, World};
use crate::backend::CallOutcome;
use crate::backend::peer::{
    About, CallError, Dial, Handle, Peer, PeerError, PeerErrorKind, Recorder, ToolCall,
};
use crate::model::answer::Answer;
use crate::model::call::CallRequest;
use crate::model::catalog::Catalog;

/// The tools of each server, as it lists them.
pub(super) const TOOLS: [(&str, &[&str]); 2] = [
    (
        "fs",
        &[
            r#"{"name":"write"}"#,
            r#"{"name":"read","annotations":{"readOnlyHint":true}}"#,
            r#"{"name":"ask"}"#,
            r#"{"name":"slow"}"#,
            r#"{"name":"survey"}"#,
        ],
    ),
    ("hr", &[r#"{"name":"file"}"#, r#"{"name":"task"}"#]),
];

#[derive(Default)]
pub(super) struct Peers {
    /// What every intent has led to.
    pub(super) jobs: BTreeMap<String, Job>,
    /// When `hr` was sent each call by which process, since its quota began to be counted.
    pub(super) sent: Vec<(usize, Duration)>,
}

impl Peers {
    /// Whether nothing is being worked on.
    pub(super) fn are_done(&self, now: Duration) -> bool {
        self.jobs.values().all(|job| job.effect_at.is_none() && job.done_at <= now)
    }
}

/// What a server does for one intent.
#[derive(Debug, Clone, Default)]
pub(super) struct Job {
    pub(super) tool: String,
    pub(super) effects: usize,
    /// When its effect happens, if that is still to come.
    effect_at: Option<Duration>,
    pub(super) done_at: Duration,
    /// The bridge has its name, and may ask for it later.
    is_named: bool,
    /// Its result is large.
    pub(super) is_large: bool,
    /// The process that has sent it last.
    by: usize,
}

#[derive(Debug)]
struct SimulatedDial {
    world: Shared,
    name: String,
}

#[derive(Debug)]
struct SimulatedPeer {
    world: Shared,
    name: String,
    /// When the connection breaks.
    until: Option<Instant>,
    lost: CancellationToken,
    /// A refresh has failed: after a few, the supervisor gives the connection up.
    is_failing: AtomicBool,
    in_flight: Arc<AtomicUsize>,
}

/// A call that the server works on, until this is dropped.
struct InFlight(Arc<AtomicUsize>);

impl InFlight {
    fn begin(peer: &SimulatedPeer) -> Self {
        peer.in_flight.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(&peer.in_flight))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Clone)]
struct Shared(Arc<World>);

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("World")
    }
}

pub(super) fn dial(world: Arc<World>, name: &str) -> Arc<dyn Dial> {
    Arc::new(SimulatedDial { world: Shared(world), name: name.to_owned() })
}

#[async_trait]
impl Dial for SimulatedDial {
    async fn dial(&self) -> Result<Arc<dyn Peer>, PeerError> {
        let world = &self.world.0;
        world.if_alive().await;
        let (fails, hangs) = {
            let mut state = world.state();
            (state.fault(80), state.fault(30))
        };
        world.pause(Duration::from_millis(if hangs { 60_000 } else { 30 })).await;
        if fails {
            world.step(format!("{}: cannot be reached", self.name));
            return Err(PeerError::new(PeerErrorKind::Connect, "it is away"));
        }
        let until = {
            let mut state = world.state();
            let breaks = state.fault(300);
            let within = state.wait(Duration::from_secs(600));
            breaks.then(|| Instant::now() + within)
        };
        let lost = CancellationToken::new();
        let (is_failing, in_flight) = Default::default();
        let (world, name) = (self.world.clone(), self.name.clone());
        let peer = SimulatedPeer { world, name, until, lost, is_failing, in_flight };
        Ok(Arc::new(peer) as Arc<dyn Peer>)
    }

    fn transport(&self) -> &'static str {
        "simulated"
    }
}

/// The intent of a call.
fn intent(request: &CallRequest) -> String {
    let arguments: Value = serde_json::from_str(request.arguments.get()).unwrap_or_default();
    arguments["intent"].as_str().unwrap_or("none").to_owned()
}

#[async_trait]
impl Peer for SimulatedPeer {
    fn about(&self) -> About {
        About::default()
    }

    async fn resolve(&self) -> Result<Arc<Catalog>, PeerError> {
        let world = &self.world.0;
        world.if_alive().await;
        let fails = world.state().fault(50);
        world.pause(Duration::from_millis(30)).await;
        if fails || self.lost.is_cancelled() {
            self.is_failing.store(true, Ordering::Relaxed);
            return Err(PeerError::new(PeerErrorKind::Connect, "it broke"));
        }
        let (_, tools) = TOOLS.iter().find(|(name, _)| *name == self.name).expect("it is known");
        let raw = |text: &&str| RawValue::from_string((*text).to_owned()).expect("JSON");
        Ok(Arc::new(Catalog::mcp(None, tools.iter().map(raw).collect()).0))
    }

    async fn closed(&self) -> PeerError {
        match self.until {
            Some(until) => sleep_until(until).await,
            None => std::future::pending().await,
        }
        self.world.0.step(format!("{}: the connection breaks", self.name));
        self.lost.cancel();
        PeerError::new(PeerErrorKind::Connect, "it broke")
    }

    async fn call(&self, call: ToolCall) -> Result<CallOutcome, CallError> {
        let _in_flight = InFlight::begin(self);
        let world = Arc::clone(&self.world.0);
        world.if_alive().await;
        let intent = intent(&call.request);
        let asked = world.state().now();
        world.may_freeze().await;
        let job = {
            let mut state = world.state();
            if self.lost.is_cancelled() || state.fault(20) {
                state.step(format!("{}: {intent} is not sent", self.name));
                return Err(CallError::NotSent("it is gone".to_owned()));
            }
            let job = state.sent(&self.name, &call.request, &intent, asked);
            if state.fault(5) {
                state.step(format!("{}: the call for {intent} panics", self.name));
                drop(state);
                // Without the hook, which would write to stderr.
                std::panic::resume_unwind(Box::new("the seed wants this"));
            }
            job
        };
        if job.is_named {
            world.pause(Duration::from_millis(50)).await;
            call.recorder.named(&Handle(intent.clone()));
        }
        let guard = Cancels {
            world: Arc::clone(&world),
            intent,
            recorder: Arc::clone(&call.recorder),
            done: false,
        };
        let guard = match call.request.tool() {
            "survey" => match self.ask(guard, &call).await {
                Ok(guard) => guard,
                Err(ended) => return ended.map(CallOutcome::from),
            },
            _ => guard,
        };
        self.wait_for(guard, &call).await.map(CallOutcome::from)
    }

    async fn resume(&self, handle: Handle, call: ToolCall) -> Result<CallOutcome, CallError> {
        let _in_flight = InFlight::begin(self);
        let world = Arc::clone(&self.world.0);
        world.if_alive().await;
        world.step(format!("{}: asked for {}", self.name, handle.0));
        world.pause(Duration::from_millis(50)).await;
        let guard =
            Cancels { world, intent: handle.0, recorder: Arc::clone(&call.recorder), done: false };
        self.wait_for(guard, &call).await.map(CallOutcome::from)
    }

    async fn close(&self) {
        let calls = self.in_flight.load(Ordering::Relaxed);
        let is_broken = self.lost.is_cancelled() || self.is_failing.load(Ordering::Relaxed);
        {
            let mut state = self.world.0.state();
            // The law of idle programs: none is ended while something uses it.
            if calls > 0 && !is_broken && !state.is_stopping() {
                state.breaks(format!("{} was ended in the middle of {calls} calls", self.name));
            }
        }
        self.lost.cancel();
    }
}

impl SimulatedPeer {
    /// Asks the user something, as the server does nothing without an answer.
    async fn ask(
        &self,
        mut guard: Cancels,
        call: &ToolCall,
    ) -> Result<Cancels, Result<Answer, CallError>> {
        let world = Arc::clone(&guard.world);
        let schema = r#"{"type":"object","properties":{"n":{"type":"integer","maximum":9}},
            "required":["n"]}"#;
        let intent = guard.intent.clone();
        let params = format!(r#"{{"message":"{intent}?","requestedSchema":{schema}}}"#);
        let params = RawValue::from_string(params).expect("JSON");
        let answer = tokio::select! {
            biased;
            answer = call.progress.ask(None, intent.clone(), params) => answer,
            () = self.lost.cancelled() => {
                world.if_alive().await;
                guard.done = true;
                return Err(Err(CallError::Lost("it broke".to_owned())));
            }
        };
        world.if_alive().await;
        let answer: Value = answer
            .and_then(|answer| serde_json::from_str(answer.get()).ok())
            .unwrap_or_else(|| serde_json::json!({"action": "cancel"}));
        let mut state = world.state();
        state.step(format!("{}: {intent} is answered with {answer}", self.name));
        if state.check_answer(&intent, &answer) {
            // The answer lets the call go on.
            state.check_dispatch(&self.name, &call.request, &intent);
            state.begin_job(&intent, Duration::from_secs(3));
            Ok(guard)
        } else {
            guard.done = true;
            Err(Ok(Answer::text(format!("{intent} was not answered"))))
        }
    }

    /// Waits for the work of a call.
    async fn wait_for(&self, mut guard: Cancels, call: &ToolCall) -> Result<Answer, CallError> {
        let world = Arc::clone(&guard.world);
        let (done_at, fails, breaks, touches, is_large) = {
            let mut state = world.state();
            let job = state.peers.jobs.get(&guard.intent).cloned();
            let Some(job) = job else { return Err(CallError::Lost("unknown".to_owned())) };
            let is_large = state.chance(30);
            // A call that may be repeated breaks often: it must not be made a third time.
            let breaks = if job.tool == "read" { 200 } else { 30 };
            if let Some(job) = state.peers.jobs.get_mut(&guard.intent) {
                job.is_large |= is_large;
            }
            (job.done_at, state.chance(100), state.fault(breaks), state.chance(300), is_large)
        };
        let left = |state: &State| done_at.saturating_sub(state.now());
        let broken = async {
            if breaks {
                world.pause(Duration::from_secs(60)).await;
            } else {
                self.lost.cancelled().await;
            }
        };
        let done = async {
            loop {
                let left = left(&world.state());
                if left.is_zero() {
                    return;
                }
                sleep(left.min(Duration::from_secs(10))).await;
                if touches {
                    call.progress.touch();
                }
            }
        };
        tokio::select! {
            biased;
            () = done => {
                world.if_alive().await;
                guard.done = true;
                let large = if is_large { ", with a large result" } else { "" };
                world.step(format!("{}: {} is done{large}", self.name, guard.intent));
                Ok(match fails {
                    true => Answer::Error(format!("{} has failed", guard.intent)),
                    false if is_large => {
                        Answer::text(format!("done {} {}", guard.intent, "x".repeat(200 << 10)))
                    }
                    false => Answer::text(format!("done {}", guard.intent)),
                })
            }
            () = broken => {
                world.if_alive().await;
                guard.done = true;
                world.step(format!("{}: the call for {} breaks", self.name, guard.intent));
                Err(CallError::Lost("it broke".to_owned()))
            }
        }
    }
}

/// Cancels the work if its call is dropped. The server may have done it all the same.
struct Cancels {
    world: Arc<World>,
    intent: String,
    recorder: Arc<dyn Recorder>,
    done: bool,
}

impl Drop for Cancels {
    fn drop(&mut self) {
        let mut state = self.world.state();
        if self.done || state.is_dead() {
            return;
        }
        let is_left = self.recorder.is_left();
        let too_late = state.chance(500);
        state.step(format!("the call for {} is dropped (left: {is_left})", self.intent));
        if let (false, false, Some(job)) =
            (is_left, too_late, state.peers.jobs.get_mut(&self.intent))
        {
            job.effect_at = None;
        }
    }
}

impl State {
    /// A call has been sent.
    fn sent(&mut self, backend: &str, request: &CallRequest, intent: &str, asked: Duration) -> Job {
        let tool = request.tool().to_owned();
        self.may_die(if tool == "read" { 80 } else { 20 });
        self.step(format!("{backend}: {tool} is sent for {intent} of {}", request.app));
        self.check_dispatch(backend, request, intent);
        self.check_refused(intent);
        if asked == self.now() && tool != "read" && self.mantyx.has_answer(intent) {
            self.breaks(format!("{tool} was sent for {intent}, which had its answer already"));
        }
        let takes_long = tool == "read" && self.chance(300);
        let most = match tool.as_str() {
            "slow" => Duration::from_secs(400),
            "file" | "task" => Duration::from_secs(200),
            _ if takes_long => Duration::from_secs(60),
            _ => Duration::from_secs(3),
        };
        self.check_quota(backend, asked);
        let by = self.at.unwrap_or_default();
        let is_named = tool == "task";
        let asks = tool == "survey";
        let job = self.peers.jobs.entry(intent.to_owned()).or_default();
        if job.effect_at.is_some() {
            // Sent twice, before the first one had its effect.
            job.effects += 1;
        }
        (job.tool, job.is_named, job.by) = (tool, is_named, by);
        if !asks {
            self.begin_job(intent, most);
        }
        self.peers.jobs[intent].clone()
    }

    /// The work for `intent` begins, and takes about `most`.
    fn begin_job(&mut self, intent: &str, most: Duration) {
        let is_slow = self.peers.jobs.get(intent).is_some_and(|job| job.tool == "slow");
        let first = match is_slow {
            true => most.mul_f64(self.below(1000) as f64 / 1000.0),
            false => self.wait(most),
        };
        let second = self.wait(Duration::from_secs(1));
        let now = self.now();
        let job = self.peers.jobs.get_mut(intent).expect("it was sent");
        (job.effect_at, job.done_at) = (Some(now + first), now + first + second);
    }

    /// The law of quotas: `hr` gets at most six calls a minute.
    fn check_quota(&mut self, backend: &str, now: Duration) {
        if backend != "hr" {
            return;
        }
        let by = self.at.unwrap_or_default();
        self.peers.sent.push((by, now));
        let sent = self.peers.sent.iter().filter(|(it, _)| *it == by);
        let recent = sent.filter(|(_, at)| now < *at + Duration::from_secs(60));
        if recent.count() > 6 {
            self.breaks("hr got more than six calls within a minute");
        }
    }

    /// Lets those effects happen whose time has come.
    fn settle_jobs(&mut self, now: Duration) {
        let mut due = Vec::new();
        for (intent, job) in &mut self.peers.jobs {
            if job.effect_at.is_some_and(|at| at <= now) {
                job.effect_at = None;
                job.effects += 1;
                due.push((intent.clone(), job.clone()));
            }
        }
        for (intent, job) in due {
            self.step(format!("EFFECT of {intent} ({})", job.tool));
            // A tool that only reads may be called twice, and no more often.
            let most = if job.tool == "read" { 2 } else { 1 };
            if job.effects > most {
                self.breaks(format!("{intent} ({}) had {} effects", job.tool, job.effects));
            }
        }
    }

    /// The process `at` has died. A server that was sent a call works on, or has noticed in time.
    pub(super) fn jobs_after_death(&mut self, at: usize) {
        let now = self.now();
        self.peers.sent.retain(|(by, _)| *by != at);
        let open: Vec<String> = self
            .peers
            .jobs
            .iter()
            .filter(|(_, job)| job.effect_at.is_some() && !job.is_named && job.by == at)
            .map(|(intent, _)| intent.clone())
            .collect();
        for intent in open {
            let works_on = self.chance(500);
            if let Some(job) = self.peers.jobs.get_mut(&intent) {
                job.effect_at = works_on.then_some(now);
            }
        }
        self.settle_jobs(now);
    }
}

/// Lets effects happen in their time.
pub(super) async fn work(world: Arc<World>, mut stop: watch::Receiver<bool>) {
    loop {
        let next = {
            let state = world.state();
            state
                .peers
                .jobs
                .values()
                .filter_map(|job| job.effect_at)
                .min()
                .map(|at| (at, state.now()))
        };
        let wait = next.map_or(Duration::from_millis(100), |(at, now)| at.saturating_sub(now));
        let wait = wait.clamp(Duration::from_micros(10), Duration::from_millis(100));
        tokio::select! {
            biased;
            _ = stop.changed() => return,
            () = sleep(wait) => {}
        }
        let mut state = world.state();
        let now = state.now();
        state.settle_jobs(now);
    }
}
