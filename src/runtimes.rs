//! Runtimes of agents other than MANTYX: listens for their calls, has each made once, and posts its
//! answer until the runtime has it.
//!
//! A runtime has the rights of an app. A call is on disk before it is made, with what the runtime
//! is told if the bridge crashes meanwhile; its answer is on disk until the runtime has taken it.
//!
//! Must not: know how a call is made, or make one whose id the runtime has used before.

mod claude;
mod hsafa;
mod link;

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::{HeaderValue, Method, header};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use self::link::{Link, LinkError};
use crate::backend::{CallOutcome, NotRecorded};
use crate::backoff::Backoff;
use crate::budget::Budget;
use crate::calls::CalledBy;
use crate::calls::once::{NotAnswered, RequestStart};
use crate::clock;
use crate::config::{Runtime as Configured, RuntimeLink, Wire};
use crate::journal::record::{RequestKey, RequestRecord};
use crate::limits::ring::Ring;
use crate::metrics::Counter;
use crate::model::catalog::hex;
use crate::model::words::words;
use crate::model::{Answer, AppName, Call, CallingRun, Offer, Route, pending, runtime_call};
use crate::run_store::RunStore;

/// The most calls of one runtime that are made, or whose answers are posted for the first time.
/// Beyond that, the runtime's stream is not read.
const AT_ONCE: usize = 256;
/// The most answers that the runtime has not taken at once, and that are no longer counted there.
const WAITING: usize = 1_024;
/// The most paths with a credential of their own: more than the sessions that are served at once.
const CREDENTIALS: usize = 256;
/// A connection that lasted for longer was no failed attempt.
const LIVED: Duration = Duration::from_secs(5);
/// How long a gap in a stream that replays nothing is reported.
const GAP_SHOWN: Duration = Duration::from_secs(60 * 60);
/// The least time between two log lines about events that cannot be read.
const UNREADABLE: Duration = Duration::from_secs(1);

/// The configured runtimes.
#[derive(Debug)]
pub struct Runtimes {
    runs: Arc<RunStore>,
    running: Mutex<BTreeMap<AppName, Running>>,
    /// All that this process has had, by name and wire. Answers for one that bridge.yaml no longer
    /// has wait for its return.
    by_wire: Mutex<BTreeMap<(AppName, &'static str), Arc<Runtime>>>,
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
    /// A reload may replace it; `None` while bridge.yaml does not have the runtime.
    link: watch::Sender<Option<Arc<Link>>>,
    runs: Arc<RunStore>,
    turns: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
    health: Mutex<Health>,
    /// The credentials that replace the runtime's, each with its path that takes answers.
    credentials: Mutex<Ring<(String, HeaderValue), CREDENTIALS>>,
    /// When an event could not be read, as the log says.
    unreadable: Mutex<Option<Instant>>,
    /// Answers that the runtime has refused for good.
    pub refused: Counter,
}

/// Whether a runtime can be heard.
#[derive(Debug, Clone)]
pub struct Health {
    pub state: State,
    pub since: SystemTime,
    pub last_error: Option<String>,
    /// Until when it was heard, if it is not heard now.
    heard_until: Option<SystemTime>,
    /// The last time in which the runtime was not heard, of a wire that replays nothing.
    pub gap: Option<(SystemTime, SystemTime)>,
    /// Why the runtime has not taken an answer that waits.
    pub untaken: Option<String>,
}

words! {
    pub enum State {
        Connecting = "connecting",
        Ready = "ready",
        Down = "down",
    }
}

/// A call that a runtime asks for.
struct RuntimeCall {
    call: Call,
    /// What the call belongs to: its calls of an agent are one conversation.
    run: String,
    /// The path that takes its answer, below that of the link.
    post_to: String,
}

impl Runtimes {
    pub fn new(runs: Arc<RunStore>) -> Self {
        Self { runs, running: Mutex::default(), by_wire: Mutex::default() }
    }

    /// Listens to the `configured` runtimes, and to no others. A runtime whose link has not changed
    /// keeps its connection.
    pub fn set(&self, configured: Vec<Configured>) {
        let mut running = self.running.lock();
        let mut before = std::mem::take(&mut *running);
        for Configured { app, link } in configured {
            let run = match before.remove(&app.name) {
                Some(same) if same.link == link => same,
                other => {
                    other.iter().for_each(Running::end);
                    self.listen(&app.name, link)
                }
            };
            running.insert(app.name, run);
        }
        before.values().for_each(Running::end);
    }

    /// All of them, by name.
    pub fn all(&self) -> Vec<Arc<Runtime>> {
        self.running.lock().values().map(|one| Arc::clone(&one.runtime)).collect()
    }

    fn listen(&self, name: &AppName, link: RuntimeLink) -> Running {
        let new = Arc::new(Link::new(&link, name.clone()));
        let runtime = self.runtime(name, &new);
        let stop = self.runs.draining().child_token();
        runtime.link.send_replace(Some(Arc::clone(&new)));
        self.runs.calls.spawn(name, Arc::clone(&runtime).run(new, stop.clone()));
        Running { link, runtime, stop }
    }

    /// The runtime of this name and wire: the one that this process has had already, as answers
    /// wait in it for the runtime's return. A new one posts the answers that an earlier process has
    /// left.
    fn runtime(&self, name: &AppName, link: &Link) -> Arc<Runtime> {
        let mut by_wire = self.by_wire.lock();
        let entry = by_wire.entry((name.clone(), link.wire.as_str()));
        Arc::clone(entry.or_insert_with(|| {
            let runtime = Arc::new(Runtime::new(name.clone(), Arc::clone(&self.runs)));
            runtime.post_unposted(link);
            runtime
        }))
    }
}

impl Running {
    /// bridge.yaml no longer has the runtime, or has it with another link.
    fn end(&self) {
        self.stop.cancel();
        self.runtime.link.send_replace(None);
        self.runtime.credentials.lock().clear();
        self.runtime.health.lock().note_unheard(State::Connecting);
    }
}

impl Runtime {
    pub fn health(&self) -> Health {
        let mut health = self.health.lock().clone();
        health.gap = health.gap.filter(|(_, end)| end.elapsed().is_ok_and(|ago| ago < GAP_SHOWN));
        health
    }

    fn new(name: AppName, runs: Arc<RunStore>) -> Self {
        let health = Health {
            state: State::Connecting,
            since: clock::now(),
            last_error: None,
            heard_until: None,
            gap: None,
            untaken: None,
        };
        Self {
            name,
            link: watch::Sender::default(),
            turns: Arc::new(Semaphore::new(AT_ONCE)),
            waiting: Arc::new(Semaphore::new(WAITING)),
            health: Mutex::new(health),
            credentials: Mutex::default(),
            unreadable: Mutex::default(),
            refused: Counter::default(),
            runs,
        }
    }

    /// Its protocol, as bridge.yaml has it; `None` if that no longer has the runtime.
    pub fn wire(&self) -> Option<Wire> {
        self.link.borrow().as_ref().map(|link| link.wire.clone())
    }

    /// The number of its calls that are made, or wait for the runtime to take their answers.
    pub fn open_calls(&self) -> usize {
        AT_ONCE - self.turns.available_permits() + WAITING - self.waiting.available_permits()
    }

    /// The tools that it may use now.
    pub fn offer(&self) -> Arc<Offer> {
        self.runs.calls.offer(&self.name)
    }

    /// Listens until `stop`, and connects again after each failure.
    async fn run(self: Arc<Self>, link: Arc<Link>, stop: CancellationToken) {
        let mut backoff = Backoff::for_connections();
        loop {
            let started = Instant::now();
            let listening = AssertUnwindSafe(self.listen(&link, &stop)).catch_unwind();
            let Some(outcome) = stop.run_until_cancelled(listening).await else { return };
            let why = outcome.unwrap_or_else(|_panic| LinkError::Unreadable("it panicked".into()));
            self.note_down(&why);
            if started.elapsed() > LIVED {
                backoff.reset();
            }
            let wait = backoff.next_wait().max(why.retry_after());
            if stop.run_until_cancelled(sleep(wait)).await.is_none() {
                return;
            }
        }
    }

    async fn listen(self: &Arc<Self>, link: &Arc<Link>, stop: &CancellationToken) -> LinkError {
        let Err(why) = match &link.wire {
            Wire::HsafaV3 { .. } => hsafa::listen_v3(self, link).await,
            Wire::HsafaV7 { skill, .. } => hsafa::listen_v7(self, link, skill).await,
            Wire::Claude { environment } => claude::listen(self, link, environment, stop).await,
        };
        why
    }

    /// Notes that the runtime is heard. If its wire replays nothing, the time since it was last
    /// heard is a gap, in which calls may have been lost without a sign: the operator is told of
    /// it.
    fn note_ready(&self, link: &Link) {
        let mut health = self.health.lock();
        if health.state == State::Ready {
            return;
        }
        let now = clock::now();
        if let Some(since) = health.heard_until.take()
            && !matches!(link.wire, Wire::Claude { .. })
        {
            health.gap = Some((since, now));
            let seconds = now.duration_since(since).unwrap_or_default().as_secs_f64();
            warn!(runtime = %self.name, seconds, "calls that were announced meanwhile may be lost");
        }
        info!(runtime = %self.name, wire = link.wire.as_str(), "connected");
        (health.state, health.since, health.last_error) = (State::Ready, now, None);
    }

    fn note_down(&self, error: &LinkError) {
        warn!(runtime = %self.name, %error, "the runtime cannot be heard; trying again");
        let mut health = self.health.lock();
        health.note_unheard(State::Down);
        health.last_error = Some(error.to_string());
    }

    /// Reports an event that the bridge cannot read; of many in a second, one.
    fn unreadable(&self, why: &str) {
        let mut last = self.unreadable.lock();
        if last.is_none_or(|last| last.elapsed() > UNREADABLE) {
            *last = Some(Instant::now());
            warn!(runtime = %self.name, why, "an event cannot be read, and is skipped");
        }
    }

    /// Has a call made and its answer posted, in a task of the daemon. Waits until another call may
    /// be taken. Without a `route`, the bridge has no such tool.
    ///
    /// 1. The turn comes first: the runtime's stream is not read while too many calls are open.
    /// 2. The key of the call is its id and the path for its answer. A runtime sends a call again
    ///    after a break, and another worker may have got it in between. By the key, the call is
    ///    made once. If the content differs, the call is not made at all: one of the two would get
    ///    the answer of the other.
    /// 3. The record of the call is on disk before the call is made. It has the answer of a call
    ///    that was lost, which the next process posts after a crash.
    /// 4. The answer is posted from the same task, until the runtime has it.
    async fn take(self: &Arc<Self>, wire: &Wire, request: RuntimeCall, route: Option<Route>) {
        let turn = Arc::clone(&self.turns).acquire_owned().await.expect("it is never closed");
        let RuntimeCall { call, run, post_to } = request;
        let id = call.tool_use.as_str();
        // Two runs of a gateway may use the same id, but not for answers at one path.
        let key: RequestKey = (self.name.clone(), format!("{post_to} {id}"));
        let digest = hex(&Sha256::digest(format!("{}\n{}", call.name, call.args.get())));
        match self.runs.calls.digest_of(&key) {
            None => (),
            Some(earlier) if earlier == digest => {
                return debug!(runtime = %self.name, run, call = id, "the call is known already");
            }
            Some(_) => {
                return warn!(
                    runtime = %self.name, run, call = id, tool = call.name,
                    "a call is not made: another call had its id"
                );
            }
        }
        let workspace = self.name.as_str().into();
        let run = CallingRun { workspace, run: run.as_str().into(), session: None };
        let lost_body = body(wire, &call, &Answer::Error(pending::lost(&call.name)));
        let record = RequestRecord {
            answer: serde_json::from_str(&lost_body).ok(),
            post_to: Some(post_to.clone()),
            ..RequestRecord::new(digest)
        };
        let unwritable_body =
            body(wire, &call, &Answer::Error(NotRecorded::Unwritable.for_model(&call.name)));
        let wire = wire.clone();
        let maker = Arc::clone(self);
        let work = async move |start: Arc<RequestStart>| {
            // At once, and not with the dispatch: no runtime has to send a call again, so that
            // after a crash the record is all that is left to answer it by.
            start.begin().await.map_err(|_not_recorded| NotAnswered::Unwritable)?;
            Ok(maker.make(&wire, route, call, run).await)
        };
        let answer = self.runs.calls.once(key.clone(), record, work);
        let runtime = Arc::clone(self);
        self.runs.calls.spawn(&self.name, async move {
            let body = match answer.await {
                Ok(body) => body,
                Err(NotAnswered::Unwritable) => unwritable_body.into(),
                Err(NotAnswered::Elsewhere) => return,
                Err(_) => lost_body.into(),
            };
            runtime.post(key, &post_to, body, turn).await;
        });
    }

    /// Makes a call, and returns what its answer is posted as.
    async fn make(&self, wire: &Wire, route: Option<Route>, call: Call, run: CallingRun) -> Bytes {
        let error = |why| Bytes::from(body(wire, &call, &Answer::Error(why)));
        let Some(route) = route else {
            return error(format!("The bridge has no tool `{}`.", call.name));
        };
        let budget = Budget::of_process();
        let mut arguments_held = budget.hold_for(Some(self.name.clone()));
        if let Err(no_room) = arguments_held.resize(call.args.get().len()).await {
            return error(format!("The call was not made: {no_room}. Try again later."));
        }
        let by = CalledBy { run: Some(run), ..CalledBy::default() };
        let trace = self.runs.context.traces.context(None);
        let CallOutcome { answer, .. } =
            self.runs.calls.call_by_hand(&self.name, &route, call.clone(), &trace, by).await;
        let mut answer_held = budget.hold_for(Some(self.name.clone()));
        // Once for the answer, and once for what it is posted as.
        match answer_held.resize(2 * answer.json_len()).await {
            Ok(()) => answer_held.pay_for(body(wire, &call, &answer).into_bytes()),
            Err(no_room) => error(format!("The tool has run; {no_room}, its result is lost.")),
        }
    }

    /// Posts the answers that an earlier process has left for this wire.
    fn post_unposted(self: &Arc<Self>, link: &Link) {
        for (key, path, body) in self.runs.calls.unposted(&self.name) {
            if !path.starts_with(link.takes_answers_at()) {
                continue;
            }
            let runtime = Arc::clone(self);
            self.runs.calls.spawn(&self.name, async move {
                let place = Arc::clone(&runtime.waiting).acquire_owned().await;
                runtime.post(key, &path, body, place.expect("it is never closed")).await;
            });
        }
    }

    /// Posts an answer until the runtime has taken it or refuses it for good, or its record is
    /// forgotten. If the daemon stops before, the next process posts it.
    ///
    /// The answer of a call that could not be recorded has no record at all, and is posted by this
    /// process alone. After the first failure, the answer moves to the places of those that wait: a
    /// runtime that takes no answers must not keep its next calls from being made.
    async fn post(
        &self,
        key: RequestKey,
        path: &str,
        body: Bytes,
        mut place: OwnedSemaphorePermit,
    ) {
        let mut backoff = Backoff::for_connections();
        let mut links = self.link.subscribe();
        let draining = self.runs.draining();
        let has_record = || self.runs.calls.digest_of(&key).is_some();
        let recorded = has_record();
        while !recorded || has_record() {
            let link = match draining.run_until_cancelled(links.wait_for(Option::is_some)).await {
                Some(Ok(link)) => (*link).clone(),
                Some(Err(_)) | None => None,
            };
            let Some(link) = link else { return };
            let Err(error) = self.post_once(&link, path, body.clone()).await else {
                self.health.lock().untaken = None;
                return self.runs.calls.posted(key);
            };
            if link.refuses_for_good(&error) {
                self.refused.inc();
                self.health.lock().untaken = None;
                error!(runtime = %self.name, call = key.1, %error, "the runtime refuses the answer");
                return self.runs.calls.posted(key);
            }
            warn!(runtime = %self.name, call = key.1, %error, "the answer is posted again later");
            self.health.lock().untaken = Some(error.without_path());
            place = Arc::clone(&self.waiting).try_acquire_owned().unwrap_or(place);
            let wait = backoff.next_wait().max(error.retry_after());
            let later = timeout(wait, links.changed());
            if draining.run_until_cancelled(later).await.is_none() {
                return;
            }
        }
        drop(place);
    }

    /// Has the answers for `path` take this credential.
    fn authorize(&self, path: &str, credential: HeaderValue) {
        let mut credentials = self.credentials.lock();
        credentials.retain(|(at, _)| at != path);
        credentials.push((path.to_owned(), credential));
    }

    async fn post_once(&self, link: &Link, path: &str, body: Bytes) -> Result<Bytes, LinkError> {
        let mut headers = link.headers.clone();
        if let Some((_, credential)) = self.credentials.lock().iter().find(|(at, _)| at == path) {
            headers.insert(header::AUTHORIZATION, credential.clone());
        }
        let request = link.request(Method::POST, link.at(path), &headers);
        link.ask(request.header(header::CONTENT_TYPE, "application/json").body(body)).await
    }
}

impl Health {
    fn note_unheard(&mut self, state: State) {
        let now = clock::now();
        if self.state == State::Ready {
            self.heard_until = Some(now);
        }
        if self.state != state {
            (self.state, self.since) = (state, now);
        }
    }
}

/// What an answer is posted as.
fn body(wire: &Wire, call: &Call, answer: &Answer) -> String {
    let id = call.tool_use.as_str();
    match wire {
        Wire::HsafaV3 { .. } => runtime_call::hsafa_v3(id, answer),
        Wire::HsafaV7 { .. } => runtime_call::hsafa_v7(answer),
        Wire::Claude { .. } => runtime_call::claude(id, answer),
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
    let outcome = match &config.wire {
        // Every listener gets every call, so this one takes none away.
        Wire::HsafaV3 { .. } => link.open(link.url(hsafa::STREAM), &link.headers).await.map(drop),
        Wire::HsafaV7 { .. } => return None,
        Wire::Claude { environment } => claude::list(&link, environment).await,
    };
    Some(outcome.map_err(|error| error.to_string()))
}
