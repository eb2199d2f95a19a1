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
    sync::{Semaphore, mpsc, oneshot, watch},
    time::{Instant, sleep_until, timeout, timeout_at},
};
use tracing::{debug, info, warn};

use super::{
    board::{Board, InUse, Phase},
    peer::{CallError, Dial, Handle, NotRecorded, Origin, Progress, ToolCall, Witness},
    supervisor::Ask,
};
use crate::model::{
    answer::Answer,
    ids::BackendName,
    offer::{Route, Target},
    schema::{InputSchema, Verdict},
};

/// How long a call waits for a backend that is just connecting, before it is answered with an
/// error.
const CONNECT_PATIENCE: Duration = Duration::from_secs(3);
/// The longest that a call waits for its turn: half of the time that a call has which nobody lets
/// go on.
const TURN_PATIENCE: Duration = Duration::from_secs(145);

/// All backends, as seen by whoever has a call to make.
#[derive(Debug)]
pub struct Backends {
    pub board: Arc<Board>,
    /// Replaced whole by a reload; a call keeps what it began with.
    all: watch::Sender<Arc<All>>,
}

/// The lanes of all backends.
pub type Lanes = BTreeMap<BackendName, Arc<Lane>>;

#[derive(Debug)]
struct All {
    lanes: Arc<Lanes>,
    max_concurrent: usize,
    /// Bounds the calls of all backends together.
    permits: Arc<Semaphore>,
}

/// What is needed to make calls to one backend.
#[derive(Debug)]
pub struct Lane {
    pub rules: LaneRules,
    /// Says by which transport the backend is reached.
    pub dial: Arc<dyn Dial>,
    permits: Arc<Semaphore>,
    /// To the supervisor.
    asks: mpsc::Sender<Ask>,
    traffic: Arc<Traffic>,
}

/// What the configuration says of one backend's calls.
#[derive(Debug, Clone, Copy)]
pub struct LaneRules {
    /// `/readyz` waits for it.
    pub required: bool,
    pub limits: CallLimits,
    /// Calls that it is given at once.
    pub concurrency: usize,
}

/// The calls of one backend, over reloads.
#[derive(Debug, Default)]
struct Traffic {
    in_flight: AtomicUsize,
    last_call: Mutex<Option<LastCall>>,
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
    /// A lane to the supervisor that listens to `asks`.
    pub fn new(rules: LaneRules, dial: Arc<dyn Dial>, asks: mpsc::Sender<Ask>) -> Self {
        let permits = Arc::new(Semaphore::new(rules.concurrency));
        Self { rules, dial, permits, asks, traffic: Arc::default() }
    }

    /// The lane to the same supervisor under other rules.
    pub fn under(&self, rules: LaneRules) -> Self {
        let mut lane = Self::new(rules, Arc::clone(&self.dial), self.asks.clone()).after(self);
        if rules.concurrency == self.rules.concurrency {
            lane.permits = Arc::clone(&self.permits);
        }
        lane
    }

    /// The lane that comes in the place of `earlier`, whose calls are counted on.
    pub fn after(mut self, earlier: &Self) -> Self {
        self.traffic = Arc::clone(&earlier.traffic);
        self
    }

    pub fn in_flight(&self) -> usize {
        self.traffic.in_flight.load(Ordering::Relaxed)
    }

    pub fn last_call(&self) -> Option<LastCall> {
        *self.traffic.last_call.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl All {
    fn new(lanes: Lanes, max_concurrent: usize) -> Self {
        let permits = Arc::new(Semaphore::new(max_concurrent));
        Self { lanes: Arc::new(lanes), max_concurrent, permits }
    }
}

impl Backends {
    /// No backends yet.
    pub fn new(board: Arc<Board>) -> Self {
        Self { board, all: watch::Sender::new(Arc::new(All::new(Lanes::new(), 0))) }
    }

    /// Makes these the backends: one lane for every backend that is about to be on the board.
    pub fn set(&self, lanes: Lanes, max_concurrent: usize) {
        let mut all = All::new(lanes, max_concurrent);
        let before = self.all();
        if before.max_concurrent == max_concurrent {
            all.permits = Arc::clone(&before.permits);
        }
        self.all.send_replace(Arc::new(all));
    }

    fn all(&self) -> Arc<All> {
        Arc::clone(&self.all.borrow())
    }

    /// After how long a call to `name` should go on without anybody who waits for it.
    pub fn pending_after(&self, name: &BackendName) -> Option<Duration> {
        self.all().lanes.get(name)?.rules.limits.pending_after
    }

    pub fn lanes(&self) -> Arc<Lanes> {
        Arc::clone(&self.all().lanes)
    }

    /// Makes the call that `route` leads to. Always gives an answer: within the backend's timeout,
    /// which begins anew with every sign of progress, and by the call's own deadline.
    ///
    /// Dropping the future cancels the call at the peer.
    pub async fn call(&self, route: &Route, wanted: Wanted) -> Answer {
        let name = &route.backend;
        let all = self.all();
        let lane = match all.lanes.get(name) {
            _ if route.target == Target::Results => {
                return Answer::Error(format!("`{name}` is no backend's tool."));
            }
            None => return Answer::Error(Failure::Removed.for_model(name)),
            Some(lane) => lane,
        };
        let Target::Tool { name: tool, input } = &route.target else {
            return Answer::Error(self.why_unavailable(name));
        };
        let (tool, input) = (Arc::clone(tool), input.as_deref());
        // Before the call waits for a turn: a mistake is told at once, and takes nobody's.
        if let Some(mistakes) = input.and_then(|input| mistakes(name, &tool, input, &wanted)) {
            return Answer::Error(mistakes).within_limits();
        }
        lane.traffic.in_flight.fetch_add(1, Ordering::Relaxed);
        let _in_flight = InFlight(&lane.traffic.in_flight);

        let limits = Limits::new(lane.rules.limits.idle, wanted.deadline);
        let permits = [&*lane.permits, &*all.permits];
        let outcome = self.call_in_turn(route, permits, &tool, wanted, limits).await;
        let answered = matches!(outcome, Ok(_) | Err(Failure::Call(CallError::Refused(_))));
        let last = LastCall { at: SystemTime::now(), answered };
        *lane.traffic.last_call.lock().unwrap_or_else(PoisonError::into_inner) = Some(last);
        let answer = match outcome {
            Ok(answer) => answer,
            Err(failure) => {
                warn!(backend = %name, %failure, "a call got no answer of its tool");
                Answer::Error(failure.for_model(name))
            }
        };
        answer.within_limits()
    }

    async fn call_in_turn(
        &self,
        route: &Route,
        [own, of_all]: [&Semaphore; 2],
        tool: &Arc<str>,
        wanted: Wanted,
        limits: Limits,
    ) -> Result<Answer, Failure> {
        let turn = async {
            // In this order everywhere, so that a backend with a long queue takes no place of all.
            let own = own.acquire().await;
            (own, of_all.acquire().await)
        };
        let turn = timeout_at(limits.turn_by(), turn).await;
        let _permits = turn.map_err(|_elapsed| Failure::NoTurn(limits.waited()))?;
        let attempt = |wanted: &Wanted| {
            let call = ToolCall {
                tool: Arc::clone(tool),
                arguments: wanted.arguments.clone(),
                origin: wanted.origin.clone(),
                progress: Progress::default(),
                witness: wanted.witness.clone(),
            };
            self.attempt(&route.backend, call, wanted.handle.clone(), limits)
        };
        match attempt(&wanted).await {
            // What has no effect may be done again, once, like after a crash.
            Err(Failure::Call(CallError::Lost(why))) if route.repeatable => {
                info!(backend = %route.backend, why, "the connection broke; the call only reads and is made again");
                attempt(&Wanted { handle: None, ..wanted }).await
            }
            outcome => outcome,
        }
    }

    /// Makes the call once, or asks for the outcome of what `handle` names.
    async fn attempt(
        &self,
        name: &BackendName,
        call: ToolCall,
        handle: Option<Handle>,
        limits: Limits,
    ) -> Result<Answer, Failure> {
        let in_use = self.connected(name).await?;
        let peer = &in_use.peer;
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

    /// The live connection; waits a little for one that is about to be.
    async fn connected(&self, name: &BackendName) -> Result<InUse, Failure> {
        let live = |board: &Board| match board.connection(name) {
            Some(connection) => Some(Ok(connection)),
            None => (!board.has(name)).then_some(Err(Failure::Removed)),
        };
        if let Some(connection) = live(&self.board) {
            return connection;
        }
        debug!(backend = %name, "a call waits for the connection");
        let waited = timeout(CONNECT_PATIENCE, self.board.wait_for(live)).await;
        waited.unwrap_or(Err(Failure::NotConnected))
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
        let lane = Arc::clone(self.all().lanes.get(name)?);
        let (done, wait) = oneshot::channel();
        if lane.asks.send(done).await.is_ok() {
            // An error means that the supervisor stopped; the daemon is going down.
            drop(wait.await);
        }
        Some(())
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
    #[error("too many calls are running")]
    NoTurn(Duration),
    #[error("not connected")]
    NotConnected,
    #[error("the backend was removed from the configuration")]
    Removed,
    #[error("timed out after {0:.0?}")]
    TimedOut(Duration),
    #[error(transparent)]
    NotRecorded(#[from] NotRecorded),
    #[error(transparent)]
    Call(CallError),
}

impl Failure {
    fn for_model(&self, name: &BackendName) -> String {
        let within = |waited: &Duration| format!("{:.0} s", waited.as_secs_f64().max(1.0));
        match self {
            Self::NoTurn(waited) => format!(
                "`{name}` is busy with other calls, and this one got no turn within {}. It was not \
                 made; try again later.",
                within(waited)
            ),
            Self::NotConnected | Self::Call(CallError::NotSent(_)) => format!(
                "`{name}` cannot be reached at the moment. The call was not made; try again later \
                 or do without it."
            ),
            Self::Removed => {
                format!(
                    "`{name}` is not configured any more. The call was not made; do without it."
                )
            }
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
