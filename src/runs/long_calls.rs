//! Long calls: one that outlives its backend's `pending_after` is answered with an id and goes on
//! in a task of its own; what comes of it is kept here until the model asks.
//!
//! Must not: give anyone the result of a call that another run or session made, or keep results
//! without a bound.

mod kept;

use std::{
    collections::{HashMap, HashSet},
    panic::AssertUnwindSafe,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use futures_util::FutureExt as _;
use tokio::{
    sync::Notify,
    time::{Instant, timeout, timeout_at},
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

pub(super) use self::kept::Alone;
use self::kept::Work;
use super::{
    AskedBy, KEEP_BESIDE, Left, RunKey, Runs,
    call_observer::CallObserver,
    forgetting::{beyond, beyond_bytes},
};
use crate::{
    backend::peer::Origin,
    budget,
    journal::{self, Journal, clock, record::Millis},
    model::{
        answer::Answer,
        approval,
        ending::{Ending, Made},
        ids::{AppName, CallId, RunId, SessionId, Workspace},
        offer::{Route, Target},
        pending,
    },
};

/// How long a result is kept.
const KEEP: Duration = Duration::from_secs(24 * 60 * 60);
/// The most results that are kept of one app; the oldest go first.
const KEEP_COUNT: usize = 500;
/// About the most bytes that the results of all apps take in the journal; of the app whose results take
/// most, the oldest goes first.
const KEEP_BYTES: usize = KEEP_BESIDE / 4;

/// Who may fetch the result of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    pub app: AppName,
    pub of: Of,
}

/// What a call belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Of {
    /// All runs of a session.
    Session { workspace: Workspace, session: SessionId },
    /// One agent run: the driven one itself or, of an eval, one of its own.
    Run { driven: RunKey, agent_run: RunId },
    /// The calls that the app has made by hand.
    App,
}

/// What there is of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fetched {
    Running {
        /// The name that the model called.
        tool: String,
        /// Nothing has reached the tool yet.
        waits: bool,
    },
    Finished(Arc<Answer>),
    /// There is none, or it is another's.
    Unknown,
}

/// The calls that go on and the results of those that did.
#[derive(Debug, Default)]
pub struct LongCalls {
    calls: Mutex<HashMap<CallId, LongCall>>,
    finished: Notify,
    /// Where they are kept over a restart.
    journal: Option<Arc<Journal>>,
}

#[derive(Debug)]
struct LongCall {
    scope: Scope,
    /// The name that the model called.
    tool: String,
    /// How it can be asked for; `None` for one that is not kept.
    work: Option<Work>,
    finished: Option<Finished>,
    /// Cancels it.
    stop: CancellationToken,
    /// It was this process that took it to its tool for the first time.
    is_taken: bool,
}

#[derive(Debug)]
struct Finished {
    at: Instant,
    /// The same, by the wall clock.
    told: Millis,
    answer: Arc<Answer>,
    /// About how much of the journal it takes.
    size: usize,
}

impl Finished {
    fn new(told: Millis, answer: Answer) -> Self {
        const RECORD: usize = 500;
        // As the journal has it: control characters take six bytes there.
        let json = serde_json::to_vec(&answer).map_or(answer.size(), |json| json.len());
        Self { at: Instant::now(), told, size: RECORD + json, answer: Arc::new(answer) }
    }
}

impl Scope {
    fn new(app: &AppName, asked_by: Option<&AskedBy>) -> Self {
        let of = match asked_by {
            None => Of::App,
            Some(AskedBy { driven, run, .. }) => match driven.session.clone() {
                Some(session) => Of::Session { workspace: driven.key.workspace.clone(), session },
                None => Of::Run { driven: driven.key.clone(), agent_run: run.clone() },
            },
        };
        Self { app: app.clone(), of }
    }
}

impl Of {
    fn is_session(&self, of: &Workspace, id: &SessionId) -> bool {
        matches!(self, Self::Session { workspace, session } if workspace == of && session == id)
    }

    fn is_run(&self, key: &RunKey) -> bool {
        matches!(self, Self::Run { driven, .. } if driven == key)
    }
}

impl LongCalls {
    /// Long calls that are kept in `journal`.
    pub fn kept_in(journal: Arc<Journal>) -> Self {
        Self { journal: Some(journal), ..Self::default() }
    }

    /// A call of `tool` goes on.
    fn begin(
        &self,
        id: CallId,
        (scope, tool): (Scope, String),
        work: Option<Work>,
        stop: CancellationToken,
    ) {
        let call = LongCall { scope, tool, work, finished: None, stop, is_taken: false };
        self.write(&id, &call);
        self.lock().insert(id, call);
    }

    /// It has ended so. Nothing is kept where nobody could fetch it any more.
    fn finish(&self, id: &CallId, answer: Answer) {
        let mut calls = self.lock();
        let Some(call) = calls.get_mut(id) else { return };
        call.finished = Some(Finished::new(journal::now(), answer));
        if let Some(work) = &mut call.work {
            work.arguments = None;
        }
        self.write(id, call);
        self.erase(&make_room(&mut calls));
        drop(calls);
        self.finished.notify_waiters();
    }

    pub fn fetch(&self, id: &CallId, scope: &Scope) -> Fetched {
        match self.lock().get(id).filter(|call| call.scope == *scope) {
            None => Fetched::Unknown,
            Some(call @ LongCall { finished: None, tool, .. }) => {
                Fetched::Running { tool: tool.clone(), waits: call.waits() }
            }
            Some(LongCall { finished: Some(Finished { at, answer, .. }), .. }) => {
                if at.elapsed() < KEEP {
                    Fetched::Finished(Arc::clone(answer))
                } else {
                    Fetched::Unknown
                }
            }
        }
    }

    /// [`Self::fetch`], which waits until `deadline` for a call that runs.
    async fn fetch_by(&self, id: &CallId, scope: &Scope, deadline: Instant) -> Fetched {
        loop {
            // Before the look, so that what ends after it is heard.
            let mut news = pin!(self.finished.notified());
            news.as_mut().enable();
            match self.fetch(id, scope) {
                running @ Fetched::Running { .. } => {
                    if timeout_at(deadline, news).await.is_err() {
                        return running;
                    }
                }
                fetched => return fetched,
            }
        }
    }

    /// Cancels the calls that `run` began.
    pub(super) fn cancel_of(&self, run: &RunKey) {
        for call in self.lock().values().filter(|call| call.is_of(run)) {
            call.stop.cancel();
        }
    }

    /// Forgets the calls of whatever `is_over`: nobody can fetch them any more. Those that go on are
    /// cancelled, as nothing would be known of their effects.
    fn forget(&self, is_over: impl Fn(&Of) -> bool) {
        let mut over = Vec::new();
        self.lock().retain(|id, call| {
            let keep = !is_over(&call.scope.of);
            if !keep {
                call.stop.cancel();
                over.push(id.clone());
            }
            keep
        });
        self.erase(&over);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<CallId, LongCall>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Forgets what is too old or too much; what that was.
fn make_room(calls: &mut HashMap<CallId, LongCall>) -> Vec<CallId> {
    let finished = |(id, call): (&CallId, &LongCall)| {
        let Finished { at, size, .. } = call.finished.as_ref()?;
        Some((call.scope.app.clone(), *at, *size, id.clone()))
    };
    let all: Vec<_> = calls.iter().filter_map(finished).collect();
    let (old, kept): (Vec<_>, Vec<_>) = all.iter().partition(|(_, at, ..)| at.elapsed() >= KEEP);
    let mut gone: HashSet<&CallId> = old.into_iter().map(|(.., id)| id).collect();
    gone.extend(beyond(KEEP_COUNT, kept.iter().map(|(app, at, _, id)| (app, (*at, id)))));
    let kept = kept.into_iter().filter(|(.., id)| !gone.contains(id));
    let kept: Vec<_> = kept.map(|(app, at, size, id)| (app, (*at, *size, id))).collect();
    gone.extend(beyond_bytes(KEEP_BYTES, kept.into_iter()));
    calls.retain(|id, _| !gone.contains(id));
    gone.into_iter().cloned().collect()
}

/// When a call goes on, and how its run then asks for it.
#[derive(Debug)]
pub(super) struct Patience {
    after: Duration,
    /// The name of the tool that fetches results.
    fetch: String,
}

/// What belongs to a call that is being made.
#[derive(Debug)]
pub(super) struct InHand {
    pub app: AppName,
    /// The name that the model called.
    pub tool: String,
    pub route: Route,
    /// Which call of which run this is; `None` for a call by hand.
    pub origin: Option<Origin>,
    pub observer: Arc<CallObserver>,
    pub asked_by: Option<Arc<AskedBy>>,
    /// Where it is kept how far a call is that no run waits for, if it may go on.
    pub alone: Option<Arc<Alone>>,
}

impl InHand {
    /// It has ended so.
    fn ends(&self, made: Made) -> Made {
        self.observer.ends(made.ending);
        made
    }

    /// What came of making the call. A panic is an answer as well: without one, MANTYX would wait
    /// until the call times out, and the model would not learn whether the tool was reached.
    fn unless_panicked(&self, made: thread::Result<Result<Made, Left>>) -> Result<Made, Left> {
        made.unwrap_or_else(|_panic| {
            let (app, tool) = (&self.app, self.tool.as_str());
            error!(%app, tool, "a call panicked; it is answered with an error");
            Ok(Made::internal(tool, self.has_reached_tool()))
        })
    }

    /// The same, of a call that is waited for.
    fn ends_or_is_left(&self, made: Result<Made, Left>) -> Result<Made, Left> {
        match made {
            Ok(made) => Ok(self.ends(made)),
            Err(Left) if self.asked_by.is_some() => {
                self.observer.ends(Ending::Left);
                Err(Left)
            }
            Err(Left) => {
                Ok(self.ends(Made::failed(Ending::Cancelled, approval::going_down(&self.tool))))
            }
        }
    }

    /// Whether the tool may have been reached. Assumed where no record of the call says otherwise.
    fn has_reached_tool(&self) -> bool {
        match (&self.asked_by, &self.alone) {
            (Some(by), _) => by.recorder.has_reached_tool(),
            (None, Some(alone)) => alone.has_reached_tool(),
            (None, None) => true,
        }
    }

    /// What is needed to ask for the call, or to make it, after a restart.
    fn work(&self) -> Work {
        let (handle, peer, arguments) = match (&self.asked_by, &self.alone) {
            (Some(by), _) => (by.recorder.handle(), by.recorder.peer(), by.recorder.unreached()),
            (None, Some(alone)) => (alone.handle(), alone.peer(), alone.unreached()),
            (None, None) => (None, None, None),
        };
        Work {
            route: self.route.clone(),
            origin: self.origin.clone(),
            handle,
            peer,
            arguments,
            begun: clock::moment(),
        }
    }

    /// It goes on as `id`, and is kept as such.
    fn goes_on(&self, calls: &Arc<LongCalls>, id: &CallId) {
        let to = || (Arc::clone(calls), id.clone());
        match (&self.asked_by, &self.alone) {
            (Some(by), _) => by.recorder.goes_on(to()),
            (None, Some(alone)) => alone.goes_on(to()),
            (None, None) => {}
        }
    }
}

impl Runs {
    /// Whether the call may go on after a first answer: its backend has to be one for that, and
    /// whoever asked needs the tool to fetch its result with.
    pub(super) fn patience(&self, route: &Route, asked_by: Option<&AskedBy>) -> Option<Patience> {
        if !matches!(route.target, Target::Tool { .. }) {
            return None;
        }
        let mut after = self.backends.pending_after(&route.backend)?;
        if let Some(asked_by) = asked_by {
            // What an earlier process has waited counts.
            after = asked_by.recorder.left_of(after);
        }
        Some(Patience { after, fetch: self.fetch_tool(asked_by)? })
    }

    /// The name of the tool that fetches results, for whoever asks.
    fn fetch_tool(&self, asked_by: Option<&AskedBy>) -> Option<String> {
        match asked_by {
            Some(asked_by) => asked_by.driven.table.results().map(str::to_owned),
            None => {
                let offer = self.backends.registry.offer();
                Some(offer.results()?.names().next()?.to_string())
            }
        }
    }

    /// The answer of a call that is being made, if it comes in time; else that it goes on. Before
    /// that, dropping the future cancels the call.
    pub(super) async fn answer_in_time(
        self: &Arc<Self>,
        making: impl Future<Output = Result<Made, Left>> + Send + 'static,
        in_hand: InHand,
        patience: Option<Patience>,
    ) -> Result<Made, Left> {
        let mut making = Box::pin(AssertUnwindSafe(making).catch_unwind());
        let mut late = None;
        if let Some(Patience { after, fetch }) = patience {
            match timeout(after, &mut making).await {
                Ok(made) => return in_hand.ends_or_is_left(in_hand.unless_panicked(made)),
                // There is no later to fetch it.
                Err(_elapsed) if self.drain.is_cancelled() => {}
                Err(_elapsed) => late = new_id().map(|id| (id, fetch)),
            }
        }
        let Some((id, fetch)) = late else {
            let made = making.await;
            return in_hand.ends_or_is_left(in_hand.unless_panicked(made));
        };
        in_hand.observer.goes_on();
        info!(app = %in_hand.app, tool = in_hand.tool, call = %id, "the call goes on");
        let waits = in_hand.observer.is_waiting();
        let first = if waits { pending::waits } else { pending::goes_on };
        let first = first(&id, &in_hand.tool, &fetch);
        let scope = Scope::new(&in_hand.app, in_hand.asked_by.as_deref());
        let of_run = in_hand.asked_by.as_ref().map(|by| by.stop.child_token());
        let (stop, told) = (of_run.unwrap_or_default(), (scope, in_hand.tool.clone()));
        self.long_calls.begin(id.clone(), told, Some(in_hand.work()), stop.clone());
        in_hand.goes_on(&self.long_calls, &id);
        let app = in_hand.app.clone();
        let goes_on = Arc::clone(self).go_on(making, in_hand, id, stop);
        self.tracker.spawn(budget::for_app(app, goes_on));
        Ok(Made::from(first))
    }

    /// Makes the call to its end, or until its run is cancelled.
    async fn go_on(
        self: Arc<Self>,
        making: impl Future<Output = thread::Result<Result<Made, Left>>> + Send + 'static,
        in_hand: InHand,
        id: CallId,
        stop: CancellationToken,
    ) {
        let answer = tokio::select! {
            made = making => match in_hand.unless_panicked(made) {
                Ok(made) => in_hand.ends(made).answer,
                Err(Left) => {
                    in_hand.observer.ends(Ending::Left);
                    info!(call = %id, "left; a person is asked again after the restart");
                    return;
                }
            },
            () = stop.cancelled() => pending::cancelled(),
            () = self.left(&id) => {
                info!(call = %id, "left; it is asked for after the restart");
                return;
            }
        };
        let ok = matches!(answer, Answer::Result { .. });
        info!(app = %in_hand.app, tool = in_hand.tool, call = %id, ok, "the call has ended");
        drop(in_hand);
        self.long_calls.finish(&id, answer);
    }

    /// Ends when the bridge goes down and the call is better left.
    async fn left(&self, id: &CallId) {
        self.leave.cancelled().await;
        if !self.long_calls.has_name(id) {
            std::future::pending::<()>().await;
        }
    }

    /// What has become of the call that the model asks for.
    pub(super) async fn result_of(
        &self,
        app: &AppName,
        arguments: &str,
        asked_by: Option<&AskedBy>,
    ) -> Answer {
        let asked = match pending::read(arguments) {
            Ok(asked) => asked,
            Err(mistakes) => return Answer::Error(mistakes),
        };
        let scope = Scope::new(app, asked_by);
        let deadline = Instant::now() + asked.wait.min(self.settings().calls.timeout);
        let fetched = tokio::select! {
            fetched = self.long_calls.fetch_by(&asked.call, &scope, deadline) => fetched,
            () = self.drain.cancelled() => self.long_calls.fetch(&asked.call, &scope),
        };
        match fetched {
            Fetched::Running { tool, waits } => {
                let fetch = self.fetch_tool(asked_by);
                let still = if waits { pending::still_waits } else { pending::still_runs };
                still(&asked.call, &tool, fetch.as_deref().unwrap_or(pending::TOOL))
            }
            Fetched::Finished(answer) => Answer::clone(&answer),
            Fetched::Unknown => pending::unknown(),
        }
    }

    /// The run has ended: a call of it that goes on can be fetched by its session, if it has one.
    pub(super) fn forget_calls_of(&self, run: &RunKey) {
        self.long_calls.forget(|of| of.is_run(run));
    }

    /// The session is over.
    pub(super) fn forget_calls_of_session(&self, workspace: &Workspace, session: &SessionId) {
        self.long_calls.forget(|of| of.is_session(workspace, session));
    }
}

/// `None`: there is no randomness, so the call has to be waited for.
fn new_id() -> Option<CallId> {
    let mut random = [0; 8];
    match getrandom::fill(&mut random) {
        Ok(()) => Some(pending::call_id(random)),
        Err(error) => {
            warn!(%error, "no random bytes for the id of a call; it is waited for");
            None
        }
    }
}

#[cfg(test)]
mod tests;
