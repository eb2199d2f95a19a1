//! Other runtimes of agents, beside MANTYX: listens for their calls, has each made once, and posts
//! its answer until the runtime has it.
//!
//! A runtime has the rights of an app. A call is on disk before it is made, with what the runtime
//! is told if the bridge crashes meanwhile; its answer is on disk until the runtime has taken it.
//!
//! Must not: know how a call is made, or make one whose id the runtime has used before.

mod claude;
mod hsafa;
mod link;

use std::{
    collections::BTreeMap,
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::{HeaderMap, Method, StatusCode};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use self::link::{Link, LinkError};
use crate::{
    backend::peer::NotRecorded,
    backoff::Backoff,
    budget::Budget,
    config::{Runtime as Configured, RuntimeLink, Wire},
    journal::record::{RequestKey, RequestRecord},
    metrics::Counter,
    model::{
        answer::Answer,
        call::CallingRun,
        catalog::hex,
        event::Call,
        ids::AppName,
        offer::{Offer, Route},
        pending, runtime_call,
    },
    runs::{Runs, calls::CalledBy, idempotency::NotAnswered},
};

/// The most calls of one runtime that are made, or whose answers wait to be posted. Beyond that, the
/// runtime's stream is not read.
const AT_ONCE: usize = 256;
/// A connection that lasted for longer was no failed attempt.
const LIVED: Duration = Duration::from_secs(5);
/// How long a gap in a stream that replays nothing is reported.
const GAP_SHOWN: Duration = Duration::from_secs(60 * 60);

/// The configured runtimes.
#[derive(Debug)]
pub struct Runtimes {
    runs: Arc<Runs>,
    running: Mutex<BTreeMap<AppName, Running>>,
}

#[derive(Debug)]
struct Running {
    link: RuntimeLink,
    runtime: Arc<Runtime>,
    stop: CancellationToken,
}

/// One runtime.
#[derive(Debug)]
pub struct Runtime {
    pub name: AppName,
    pub wire: Wire,
    /// A reload may replace it.
    link: Mutex<Arc<Link>>,
    runs: Arc<Runs>,
    turns: Arc<Semaphore>,
    health: Mutex<Health>,
    /// Answers that the runtime has refused for good.
    pub refused: Counter,
}

/// Whether a runtime can be heard.
#[derive(Debug, Clone)]
pub struct Health {
    pub state: State,
    pub since: SystemTime,
    pub last_error: Option<String>,
    /// The last time in which the runtime could not be heard, of a wire that replays nothing.
    pub gap: Option<(SystemTime, SystemTime)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Connecting,
    Ready,
    Down,
}

impl State {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Ready => "ready",
            Self::Down => "down",
        }
    }
}

/// A call that a runtime asks for.
struct Asked {
    call: Call,
    /// What the call belongs to: its calls of an agent are one conversation.
    run: String,
    /// The path that takes its answer.
    post_to: String,
    /// The headers for that path, if not those of the link.
    headers: Option<HeaderMap>,
}

impl Runtimes {
    pub fn new(runs: Arc<Runs>) -> Self {
        Self { runs, running: Mutex::default() }
    }

    /// Listens to the `configured` runtimes, and to no others. A runtime whose link has not changed
    /// keeps its connection.
    pub fn set(&self, configured: Vec<Configured>) {
        let mut running = self.running.lock();
        let mut before = std::mem::take(&mut *running);
        for Configured { app, link } in configured {
            let known = before.remove(&app.name);
            let run = match known {
                Some(same) if same.link == link => same,
                Some(Running { runtime, stop, .. }) if runtime.wire == link.wire => {
                    stop.cancel();
                    // Its answers that are being posted take the new way.
                    *runtime.link.lock() = Arc::new(Link::new(&link, app.name.clone()));
                    self.listen(runtime, link)
                }
                other => {
                    if let Some(other) = other {
                        other.stop.cancel();
                    }
                    let runtime = self.begin(app.name.clone(), &link);
                    self.listen(runtime, link)
                }
            };
            running.insert(app.name, run);
        }
        before.into_values().for_each(|gone| gone.stop.cancel());
    }

    /// All of them, by name.
    pub fn all(&self) -> Vec<Arc<Runtime>> {
        self.running.lock().values().map(|one| Arc::clone(&one.runtime)).collect()
    }

    fn begin(&self, name: AppName, link: &RuntimeLink) -> Arc<Runtime> {
        let runs = Arc::clone(&self.runs);
        let health = Health {
            state: State::Connecting,
            since: SystemTime::now(),
            last_error: None,
            gap: None,
        };
        let runtime = Arc::new(Runtime {
            link: Mutex::new(Arc::new(Link::new(link, name.clone()))),
            wire: link.wire.clone(),
            name,
            turns: Arc::new(Semaphore::new(AT_ONCE)),
            health: Mutex::new(health),
            refused: Counter::default(),
            runs,
        });
        runtime.post_unposted();
        runtime
    }

    fn listen(&self, runtime: Arc<Runtime>, link: RuntimeLink) -> Running {
        let stop = self.runs.draining().child_token();
        self.runs.calls.spawn(&runtime.name, Arc::clone(&runtime).run(stop.clone()));
        Running { link, runtime, stop }
    }
}

impl Runtime {
    pub fn health(&self) -> Health {
        let mut health = self.health.lock().clone();
        health.gap = health.gap.filter(|(_, end)| end.elapsed().is_ok_and(|ago| ago < GAP_SHOWN));
        health
    }

    fn link(&self) -> Arc<Link> {
        Arc::clone(&self.link.lock())
    }

    /// How many of its calls are made, or wait for the runtime to take their answers.
    pub fn open_calls(&self) -> usize {
        AT_ONCE - self.turns.available_permits()
    }

    /// The tools that it may use now.
    pub fn offer(&self) -> Arc<Offer> {
        let calls = &self.runs.calls;
        let rights = calls.app(&self.name).map(|app| Arc::clone(&app.rights));
        rights.map_or_else(
            || Arc::new(Offer::empty()),
            |rights| calls.backends.registry.offer().seen_by(&rights),
        )
    }

    /// Listens until `stop`, and connects again after each failure.
    async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut backoff = Backoff::for_connections();
        loop {
            let begun = Instant::now();
            let listening = AssertUnwindSafe(self.listen(&stop)).catch_unwind();
            let ended = tokio::select! {
                () = stop.cancelled() => return,
                ended = listening => ended,
            };
            let why = ended.unwrap_or_else(|_panic| LinkError::Unreadable("it panicked".into()));
            self.is_down(&why);
            if begun.elapsed() > LIVED {
                backoff.reset();
            }
            let wait = backoff.next_wait().max(why.retry_after());
            if stop.run_until_cancelled(sleep(wait)).await.is_none() {
                return;
            }
        }
    }

    async fn listen(self: &Arc<Self>, stop: &CancellationToken) -> LinkError {
        let never = match &self.wire {
            Wire::HsafaV3 { .. } => hsafa::listen_v3(self).await,
            Wire::HsafaV7 { base, skill } => hsafa::listen_v7(self, base, skill).await,
            Wire::Claude { environment } => claude::listen(self, environment, stop).await,
        };
        let Err(why) = never;
        why
    }

    fn is_ready(&self) {
        let mut health = self.health.lock();
        if health.state == State::Ready {
            return;
        }
        let now = SystemTime::now();
        if health.state == State::Down && matches!(self.wire, Wire::HsafaV3 { .. }) {
            health.gap = Some((health.since, now));
            let seconds = now.duration_since(health.since).unwrap_or_default().as_secs();
            warn!(runtime = %self.name, seconds, "calls that were announced meanwhile are lost");
        }
        info!(runtime = %self.name, wire = self.wire.as_str(), "connected");
        *health = Health { state: State::Ready, since: now, last_error: None, gap: health.gap };
    }

    fn is_down(&self, error: &LinkError) {
        let mut health = self.health.lock();
        warn!(runtime = %self.name, %error, "the runtime cannot be heard; trying again");
        if health.state != State::Down {
            (health.state, health.since) = (State::Down, SystemTime::now());
        }
        health.last_error = Some(error.to_string());
    }

    /// Waits until another call may be taken.
    async fn turn(&self) -> OwnedSemaphorePermit {
        Arc::clone(&self.turns).acquire_owned().await.expect("it is never closed")
    }

    /// Reports an event that the bridge cannot read.
    fn unreadable(&self, why: &str) {
        warn!(runtime = %self.name, why, "an event cannot be read, and is skipped");
    }

    /// Has a call made and its answer posted, in a task of the daemon. A call whose id is known is
    /// not made again, and its answer is posted once.
    /// Without a `route`, the bridge has no such tool.
    fn take(self: &Arc<Self>, asked: Asked, route: Option<Route>, turn: OwnedSemaphorePermit) {
        let Asked { call, run, post_to, headers } = asked;
        let workspace = self.name.as_str().into();
        let run = CallingRun { workspace, run: run.as_str().into(), session: None };
        let key: RequestKey = (self.name.clone(), call.tool_use.as_str().to_owned());
        if self.runs.calls.knows(&key) {
            return debug!(runtime = %self.name, call = key.1, "the call is known already");
        }
        let digest = hex(&Sha256::digest(format!("{}\n{}", call.name, call.args.get())));
        let lost = self.body(&call, &pending::lost(&call.name));
        let record = RequestRecord {
            answer: serde_json::from_str(&lost).ok(),
            post_to: Some(post_to.clone()),
            ..RequestRecord::new(digest)
        };
        let (made, posted) = (Arc::clone(self), Arc::clone(self));
        let unwritable =
            self.body(&call, &Answer::Error(NotRecorded::Unwritable.for_model(&call.name)));
        let work = async move { Ok(made.make(route, call, run).await) };
        let answer = self.runs.calls.once(key.clone(), record, work);
        self.runs.calls.spawn(&self.name, async move {
            let body = match answer.await {
                Ok(body) => body,
                Err(NotAnswered::Unwritable) => unwritable.into(),
                Err(_) => lost.into(),
            };
            posted.post(key, &post_to, headers.as_ref(), body).await;
            drop(turn);
        });
    }

    /// Makes a call, and returns what its answer is posted as.
    async fn make(&self, route: Option<Route>, call: Call, run: CallingRun) -> Bytes {
        let Some(route) = route else {
            let why = format!("The bridge has no tool `{}`.", call.name);
            return self.body(&call, &Answer::Error(why)).into();
        };
        let hold = || Budget::of_process().hold_for(Some(self.name.clone()));
        let mut arguments = hold();
        if let Err(no_room) = arguments.resize(call.args.get().len()).await {
            let why = format!("The call was not made: {no_room}. Try again later.");
            return self.body(&call, &Answer::Error(why)).into();
        }
        let by = CalledBy { run: Some(run), client: None };
        let calls = &self.runs.calls;
        let trace = self.runs.traces().context(None);
        let made = calls.call_by_hand(&self.name, &route, call.clone(), &trace, by).await;
        let mut held = hold();
        // Once for the answer, and once for what it is posted as.
        match held.resize(2 * made.answer.json_len()).await {
            Ok(()) => held.pay_for(self.body(&call, &made.answer).into_bytes()),
            Err(no_room) => {
                let why = format!("The tool has run; {no_room}, its result is lost.");
                self.body(&call, &Answer::Error(why)).into()
            }
        }
    }

    fn body(&self, call: &Call, answer: &Answer) -> String {
        let id = call.tool_use.as_str();
        match &self.wire {
            Wire::HsafaV3 { .. } => runtime_call::hsafa_v3(id, answer),
            Wire::HsafaV7 { .. } => runtime_call::hsafa_v7(answer),
            Wire::Claude { .. } => runtime_call::claude(id, answer),
        }
    }

    /// Posts the answers that an earlier process has left.
    fn post_unposted(self: &Arc<Self>) {
        for (key, path, body) in self.runs.calls.unposted(&self.name) {
            let runtime = Arc::clone(self);
            self.runs.calls.spawn(&self.name, async move {
                let _turn = runtime.turn().await;
                runtime.post(key, &path, None, body).await;
            });
        }
    }

    /// Posts an answer until the runtime has taken it or refuses it for good. If the daemon stops
    /// before, the next process posts it.
    async fn post(&self, key: RequestKey, path: &str, headers: Option<&HeaderMap>, body: Bytes) {
        let mut backoff = Backoff::for_connections();
        loop {
            let link = self.link();
            let headers = headers.unwrap_or(&link.headers);
            let request = link.request(Method::POST, link.at(path), headers);
            let request = request.header(http::header::CONTENT_TYPE, "application/json");
            let error = match link.ask(request.body(body.clone())).await {
                Ok(_taken) => return self.runs.calls.posted(key),
                Err(error) => error,
            };
            if error.status().is_some_and(is_final) {
                self.refused.inc();
                error!(runtime = %self.name, call = key.1, %error, "the runtime refuses the answer");
                return self.runs.calls.posted(key);
            }
            warn!(runtime = %self.name, call = key.1, %error, "the answer is posted again later");
            let wait = backoff.next_wait().max(error.retry_after());
            if self.runs.draining().run_until_cancelled(sleep(wait)).await.is_none() {
                return;
            }
        }
    }
}

/// Asks a runtime for what shows whether it takes the credential; `None` for a wire without such a
/// request. It takes no call from the bridge that serves the runtime.
///
/// # Errors
///
/// What the runtime answers instead.
pub async fn probe(name: &AppName, config: &RuntimeLink) -> Option<Result<(), String>> {
    let link = Link::new(config, name.clone());
    let asked = match &config.wire {
        // Every listener gets every call, so this one takes none away.
        Wire::HsafaV3 { .. } => link.open(link.url(hsafa::STREAM), &link.headers).await.map(drop),
        Wire::HsafaV7 { .. } => return None,
        Wire::Claude { environment } => claude::list(&link, environment).await,
    };
    Some(asked.map_err(|error| error.to_string()))
}

/// Whether a post that was answered so is never taken: the call is unknown, has its result, or its
/// result is not acceptable.
fn is_final(status: StatusCode) -> bool {
    const PASSING: [StatusCode; 4] = [
        StatusCode::UNAUTHORIZED,
        StatusCode::REQUEST_TIMEOUT,
        StatusCode::TOO_EARLY,
        StatusCode::TOO_MANY_REQUESTS,
    ];
    status.is_client_error() && !PASSING.contains(&status)
}
