//! Makes one call: finds the backend, waits its turn, bounds the time, and puts every failure into
//! a sentence that a model can act on.
//!
//! Must not: know runs or MANTYX, or put an address, a path or a secret into an answer.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};

use serde_json::value::RawValue;
use tokio::{
    sync::{Semaphore, mpsc, oneshot},
    time::{Instant, sleep_until, timeout_at},
};
use tracing::{debug, info, warn};

use super::{
    board::{Board, Phase},
    breaker::{Look, Shut, Sign},
    gate::{Gate, Pass},
    peer::{CallError, Handle, NotRecorded, Origin, Peer, Progress, ToolCall, Witness},
    supervisor::Ask,
};
use crate::{
    metrics,
    model::{
        answer::Answer,
        ending::{Ending, Made},
        ids::BackendName,
        offer::{Route, Target},
        schema::{InputSchema, Verdict},
        trace::Trace,
    },
};

/// How long a call waits for a backend that is just connecting, before it is answered with an
/// error.
const CONNECT_PATIENCE: Duration = Duration::from_secs(3);
/// The longest that a call waits for its turn: half of the time that a call has which nobody lets
/// go on.
const TURN_PATIENCE: Duration = Duration::from_secs(145);

/// The same, where the first attempt to connect has not ended yet: after a restart, calls come
/// before connections do.
const START_PATIENCE: Duration = Duration::from_secs(15);

/// All backends, as seen by whoever has a call to make.
#[derive(Debug)]
pub struct Backends {
    pub board: Arc<Board>,
    lanes: BTreeMap<BackendName, Lane>,
    /// Bounds the calls of all backends together.
    permits: Semaphore,
}

/// What is needed to make calls to one backend.
#[derive(Debug)]
pub struct Lane {
    /// `/readyz` waits for it.
    pub required: bool,
    limits: CallLimits,
    permits: Semaphore,
    /// Keeps calls from a backend that keeps failing.
    gate: Arc<Gate>,
    /// To the supervisor.
    asks: mpsc::Sender<Ask>,
    in_flight: AtomicUsize,
    last_call: Mutex<Option<LastCall>>,
    metrics: Arc<metrics::Calls>,
}

/// The times of one backend's calls.
#[derive(Debug, Clone, Copy)]
pub struct CallLimits {
    /// How long a call may go without a sign of life, waiting for a turn included. Without
    /// progress, it is the longest that a call may take.
    pub idle: Duration,
    /// After how long a call should go on without anybody who waits for it.
    pub pending_after: Option<Duration>,
}

/// One call that somebody wants made.
#[derive(Debug)]
pub struct Wanted {
    /// The arguments, verbatim: a JSON object.
    pub arguments: Box<RawValue>,
    /// Which call of which run this is; `None` for calls by hand.
    pub origin: Option<Origin>,
    /// The trace that it belongs to.
    pub trace: Option<Arc<Trace>>,
    /// Told of every step before it is taken; `None` for calls by hand.
    pub witness: Option<Arc<dyn Witness>>,
    /// The work that this call has started before; it is asked for, and nothing is started anew.
    pub handle: Option<Handle>,
    /// When it must be answered, whatever the backend's own timeout is and however well it gets on.
    pub deadline: Instant,
}

/// How the last call to a backend ended.
#[derive(Debug, Clone, Copy)]
pub struct LastCall {
    pub at: SystemTime,
    /// Whether the peer gave an answer, be it an error of its tool.
    pub answered: bool,
}

/// A call that waits in line or runs; counts itself out when it is dropped.
struct InFlight<'a>(&'a AtomicUsize);

impl Lane {
    /// A lane for `concurrency` calls at once.
    pub fn new(
        required: bool,
        limits: CallLimits,
        concurrency: usize,
        gate: Arc<Gate>,
        asks: mpsc::Sender<Ask>,
    ) -> Self {
        Self {
            required,
            limits,
            permits: Semaphore::new(concurrency),
            gate,
            asks,
            in_flight: AtomicUsize::new(0),
            last_call: Mutex::new(None),
            metrics: Arc::default(),
        }
    }

    /// Where its calls are counted.
    pub fn metrics(&self) -> &Arc<metrics::Calls> {
        &self.metrics
    }

    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// How the breaker stands that keeps calls from a backend which keeps failing.
    pub fn breaker(&self) -> Look {
        self.gate.look()
    }

    pub fn last_call(&self) -> Option<LastCall> {
        *self.last_call.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Backends {
    /// `lanes` has one entry for every backend on `board`.
    pub fn new(
        board: Arc<Board>,
        lanes: BTreeMap<BackendName, Lane>,
        max_concurrent: usize,
    ) -> Self {
        Self { board, lanes, permits: Semaphore::new(max_concurrent) }
    }

    /// After how long a call to `name` should go on without anybody who waits for it.
    pub fn pending_after(&self, name: &BackendName) -> Option<Duration> {
        self.lanes.get(name)?.limits.pending_after
    }

    /// Where the calls to `name` are counted.
    pub fn metrics(&self, name: &BackendName) -> Option<&Arc<metrics::Calls>> {
        self.lanes.get(name).map(Lane::metrics)
    }

    pub fn lanes(&self) -> impl Iterator<Item = (&BackendName, &Lane)> {
        self.lanes.iter()
    }

    /// Makes the call that `route` leads to. Always gives an answer: within the backend's timeout,
    /// which begins anew with every sign of progress, and by the call's own deadline.
    ///
    /// Dropping the future cancels the call at the peer.
    pub async fn call(&self, route: &Route, wanted: Wanted) -> Made {
        let name = &route.backend;
        let unavailable = |why: String| Made::failed(Ending::Unavailable, why);
        let (tool, input) = match &route.target {
            Target::Tool { name, input } => (Arc::clone(name), input.as_deref()),
            Target::Stub => return unavailable(self.why_unavailable(name)),
            Target::Results => return unavailable(format!("`{name}` is no backend's tool.")),
        };
        let Some(lane) = self.lanes.get(name) else {
            return unavailable(format!("`{name}` is not configured any more."));
        };
        // Before the call waits for a turn: a mistake is told at once, and takes nobody's.
        if let Some(mistakes) = input.and_then(|input| mistakes(name, &tool, input, &wanted)) {
            let answer = Answer::Error(mistakes).within_limits();
            return Made { answer, ending: Ending::InputInvalid };
        }
        lane.in_flight.fetch_add(1, Ordering::Relaxed);
        let _in_flight = InFlight(&lane.in_flight);

        let limits = Limits::new(lane.limits.idle, wanted.deadline);
        let outcome = self.call_in_turn(route, lane, &tool, wanted, limits).await;
        if let Err(failure @ Failure::Shut(_)) = &outcome {
            debug!(backend = %name, %failure, "a call was not made");
            return Made::failed(failure.ending(), failure.for_model(name));
        }
        let last = LastCall { at: SystemTime::now(), answered: sign(&outcome) == Sign::Alive };
        *lane.last_call.lock().unwrap_or_else(PoisonError::into_inner) = Some(last);
        let made = match outcome {
            Ok(answer) => Made::from(answer),
            Err(failure) => {
                warn!(backend = %name, %failure, "a call failed");
                Made::failed(failure.ending(), failure.for_model(name))
            }
        };
        Made { answer: made.answer.within_limits(), ..made }
    }

    /// Makes the call when it is its turn, if the backend is one that is called at all.
    async fn call_in_turn(
        &self,
        route: &Route,
        lane: &Lane,
        tool: &Arc<str>,
        wanted: Wanted,
        limits: Limits,
    ) -> Result<Answer, Failure> {
        // To ask for what was started before is no call.
        let admit = || wanted.handle.is_none().then(|| lane.gate.admit()).transpose();
        let pass = admit().map_err(Failure::Shut)?;
        let turn = async {
            // In this order everywhere, so that a backend with a long queue takes no place of all.
            let own = lane.permits.acquire().await;
            (own, self.permits.acquire().await)
        };
        let turn = timeout_at(limits.turn_by(), turn).await;
        lane.metrics.turn.observe(limits.waited());
        let _permits = turn.map_err(|_elapsed| match wanted.handle {
            None => Failure::NoTurn(limits.waited()),
            Some(_) => Failure::Call(CallError::Lost("no turn to ask for it".to_owned())),
        })?;
        let pass = pass.map(Pass::renew).transpose().map_err(Failure::Shut)?;
        let outcome = self.call_now(route, tool, wanted, limits).await;
        if let Some(pass) = pass {
            pass.end(sign(&outcome));
        }
        outcome
    }

    /// Makes the call, and once more where its connection broke and it may be made twice.
    async fn call_now(
        &self,
        route: &Route,
        tool: &Arc<str>,
        wanted: Wanted,
        limits: Limits,
    ) -> Result<Answer, Failure> {
        let name = &route.backend;
        let attempt = |peer: Arc<dyn Peer>, handle: Option<Handle>| {
            let call = ToolCall {
                tool: Arc::clone(tool),
                arguments: wanted.arguments.clone(),
                origin: wanted.origin.clone(),
                trace: wanted.trace.clone(),
                progress: Progress::default(),
                witness: wanted.witness.clone(),
            };
            attempt(peer, call, handle, limits)
        };
        let peer = match wanted.handle {
            None => self.connected(name, None).await?,
            // What has begun is worth the wait, and is never "not made".
            Some(_) => self
                .connected_by(name, None, limits.first_end())
                .await
                .ok_or_else(|| Failure::Call(CallError::Lost("not connected".to_owned())))?,
        };
        let first = attempt(peer, wanted.handle.clone()).await;
        let why = match first {
            Err(Failure::Call(CallError::Lost(why))) if route.repeatable && limits.have_time() => {
                why
            }
            outcome => return outcome,
        };
        // What does no more the second time is done again, once, like after a crash.
        info!(backend = %name, why, "the connection broke; the call may be made twice and is");
        let again = async {
            let peer = self.connected(name, None).await?;
            match attempt(Arc::clone(&peer), None).await {
                // It was the broken one; its supervisor has yet to see that.
                Err(Failure::Call(CallError::NotSent(_))) => {
                    attempt(self.connected(name, Some(&peer)).await?, None).await
                }
                outcome => outcome,
            }
        };
        match again.await {
            // The first one may have taken effect all the same.
            Err(failure) if failure.is_of_no_call() => Err(Failure::Call(CallError::Lost(why))),
            outcome => outcome,
        }
    }

    /// The live connection, other than `broken`; waits a little for one that is about to be.
    async fn connected(
        &self,
        name: &BackendName,
        broken: Option<&Arc<dyn Peer>>,
    ) -> Result<Arc<dyn Peer>, Failure> {
        let known = self.board.snapshot(name.as_str());
        let patience = match known.map(|known| known.phase) {
            Some(Phase::Connecting) => START_PATIENCE,
            _ => CONNECT_PATIENCE,
        };
        let by = Instant::now() + patience;
        self.connected_by(name, broken, by).await.ok_or(Failure::NotConnected)
    }

    /// The same, waiting until `by`.
    async fn connected_by(
        &self,
        name: &BackendName,
        broken: Option<&Arc<dyn Peer>>,
        by: Instant,
    ) -> Option<Arc<dyn Peer>> {
        let is_broken = |peer: &Arc<dyn Peer>| broken.is_some_and(|old| Arc::ptr_eq(old, peer));
        let live = |board: &Board| {
            let peer = board.snapshot(name.as_str())?.peer?;
            (!is_broken(&peer)).then_some(peer)
        };
        if let Some(peer) = live(&self.board) {
            return Some(peer);
        }
        debug!(backend = %name, "a call waits for the connection");
        timeout_at(by, self.board.wait_for(live)).await.ok()
    }

    fn why_unavailable(&self, name: &BackendName) -> String {
        let known = self.board.snapshot(name.as_str());
        match known.map(|known| known.phase) {
            Some(Phase::Ready | Phase::Degraded) => format!(
                "The tools of `{name}` were not available when this run started, and are now; \
                 they can be used in the next run."
            ),
            Some(Phase::Connecting | Phase::Down) | None => format!(
                "The tools of `{name}` are not available: the bridge has not reached it since it \
                 started. It keeps trying; they can be used in a later run."
            ),
        }
    }

    /// Refreshes `name` now and waits until that has been tried. `None`: there is no such backend.
    pub async fn refresh(&self, name: &str) -> Option<()> {
        let lane = self.lanes.get(name)?;
        let (done, wait) = oneshot::channel();
        if lane.asks.send(done).await.is_ok() {
            // An error means that the supervisor stopped; the daemon is going down.
            drop(wait.await);
        }
        Some(())
    }
}

/// Makes the call once, or asks for the outcome of what `handle` names.
async fn attempt(
    peer: Arc<dyn Peer>,
    call: ToolCall,
    handle: Option<Handle>,
    limits: Limits,
) -> Result<Answer, Failure> {
    let progress = call.progress.clone();
    let mut outcome = match handle {
        Some(handle) => peer.resume(handle, call),
        None => {
            if let Some(witness) = &call.witness {
                witness.dispatching().await?;
            }
            peer.call(call)
        }
    };
    let mut silent_until = std::pin::pin!(sleep_until(limits.first_end()));
    loop {
        tokio::select! {
            // An answer that is there counts, however late this task looks at it.
            biased;
            outcome = &mut outcome => return outcome.map_err(Failure::Call),
            () = &mut silent_until => return Err(Failure::TimedOut(limits.waited())),
            () = progress.touched() => silent_until.as_mut().reset(limits.next_end()),
        }
    }
}

/// What the outcome of a call says about the backend.
fn sign(outcome: &Result<Answer, Failure>) -> Sign {
    match outcome {
        Ok(_) | Err(Failure::Call(CallError::Refused(_))) => Sign::Alive,
        Err(
            Failure::NotConnected
            | Failure::TimedOut(_)
            | Failure::Call(CallError::NotSent(_) | CallError::Lost(_) | CallError::Unreadable(_)),
        ) => Sign::Failed,
        Err(Failure::Shut(_) | Failure::NoTurn(_) | Failure::NotRecorded(_)) => Sign::None,
    }
}

/// What is wrong with the arguments, if they can be checked at all.
fn mistakes(
    backend: &BackendName,
    tool: &str,
    input: &InputSchema,
    wanted: &Wanted,
) -> Option<String> {
    match input.check(wanted.arguments.get()) {
        Verdict::Valid => None,
        Verdict::Invalid(mistakes) => {
            info!(%backend, tool, "a call was refused: its arguments are not what the tool takes");
            Some(mistakes)
        }
        Verdict::Unchecked { why, news: true } => {
            warn!(%backend, tool, why, "arguments of the tool cannot be checked");
            None
        }
        Verdict::Unchecked { why, news: false } => {
            debug!(%backend, tool, why, "arguments are not checked");
            None
        }
    }
}

/// How long one call may take.
#[derive(Debug, Clone, Copy)]
struct Limits {
    start: Instant,
    /// The longest silence.
    idle: Duration,
    /// The end, whatever is heard until then.
    deadline: Instant,
}

impl Limits {
    fn new(idle: Duration, deadline: Instant) -> Self {
        Self { start: Instant::now(), idle, deadline }
    }

    /// The end of a call that is never heard of.
    fn first_end(&self) -> Instant {
        self.deadline.min(self.start + self.idle)
    }

    /// The end of a call that was just heard of.
    fn next_end(&self) -> Instant {
        self.deadline.min(Instant::now() + self.idle)
    }

    /// Half of the time is for waiting, so that a call which gets its turn has time to run.
    fn turn_by(&self) -> Instant {
        let half = self.first_end().saturating_duration_since(self.start) / 2;
        self.start + half.min(TURN_PATIENCE)
    }

    /// Whether a call may still begin.
    fn have_time(&self) -> bool {
        Instant::now() < self.first_end()
    }

    fn waited(&self) -> Duration {
        self.start.elapsed()
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Why there is no answer of the tool. `Display` is for the log.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("the backend keeps failing")]
    Shut(Shut),
    #[error("too many calls are running")]
    NoTurn(Duration),
    #[error("not connected")]
    NotConnected,
    #[error("timed out after {0:.0?}")]
    TimedOut(Duration),
    #[error(transparent)]
    NotRecorded(#[from] NotRecorded),
    #[error(transparent)]
    Call(CallError),
}

impl Failure {
    /// Whether nothing was sent, so that the tool did not run.
    fn is_of_no_call(&self) -> bool {
        match self {
            Self::Shut(_) | Self::NoTurn(_) | Self::NotConnected | Self::NotRecorded(_) => true,
            Self::Call(error) => matches!(error, CallError::NotSent(_)),
            Self::TimedOut(_) => false,
        }
    }

    fn ending(&self) -> Ending {
        match self {
            Self::Shut(_) => Ending::BreakerOpen,
            Self::NoTurn(_) => Ending::Busy,
            Self::NotConnected | Self::Call(CallError::NotSent(_)) => Ending::Unavailable,
            Self::TimedOut(_) => Ending::TimedOut,
            Self::NotRecorded(_) => Ending::Storage,
            Self::Call(CallError::Lost(_)) => Ending::ConnectionLost,
            Self::Call(CallError::Refused(_)) => Ending::Refused,
            Self::Call(CallError::Unreadable(_)) => Ending::Unreadable,
        }
    }

    fn for_model(&self, name: &BackendName) -> String {
        let within = |waited: &Duration| format!("{:.0} s", waited.as_secs_f64().max(1.0));
        match self {
            Self::Shut(Shut::For(wait)) => format!(
                "`{name}` keeps failing, so the call was not made. It is tried again in {:.0} s; \
                 wait that long, or do without it.",
                wait.as_secs_f64().ceil()
            ),
            Self::Shut(Shut::WhileProbing) => format!(
                "`{name}` keeps failing, so the call was not made. Another call is finding out \
                 whether it works again; try again in a few seconds, or do without it."
            ),
            Self::NoTurn(waited) => format!(
                "`{name}` is busy with other calls, and this one got no turn within {}. It was not \
                 made; try again later.",
                within(waited)
            ),
            Self::NotConnected | Self::Call(CallError::NotSent(_)) => format!(
                "`{name}` cannot be reached at the moment. The call was not made; try again later \
                 or do without it."
            ),
            Self::NotRecorded(NotRecorded) => format!(
                "bridge_storage_unavailable: the bridge cannot write its journal, so the call to \
                 `{name}` was not made. Do without it or try again later."
            ),
            Self::TimedOut(waited) => format!(
                "OUTCOME_UNKNOWN: `{name}` gave no answer within {}, and the call was cancelled. It may or may not \
                 have taken effect; check before you repeat it.",
                within(waited)
            ),
            Self::Call(CallError::Lost(_)) => format!(
                "OUTCOME_UNKNOWN: the connection to `{name}` broke during the call. It may or may not have taken \
                 effect; check before you repeat it."
            ),
            Self::Call(CallError::Unreadable(_)) => format!(
                "`{name}` gave an answer that cannot be read. The call has probably taken effect; \
                 check before you repeat it."
            ),
            Self::Call(CallError::Refused(words)) => words.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
