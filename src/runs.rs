//! The runs that the bridge drives, and the sessions that they come from.
//!
//! A run enters here when MANTYX has accepted it with tools of the bridge in it, or when an app
//! hands it over. `driver` reads its stream and has `answering` answer its calls; `log` keeps its
//! recent events; `app_stream` serves them to apps; `history` remembers the calls.
//!
//! Must not: inject, route HTTP, or know what kind of backend answers.

mod answering;
pub mod app_stream;
mod driver;
pub mod history;
pub mod log;
mod mask;
pub mod pending;

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::info;

use self::{
    history::{Begun, History},
    log::EventLog,
    pending::{InHand, LongCalls},
};
use crate::{
    backend::{
        calls::{Backends, Wanted},
        peer::Origin,
    },
    config::{App, Calls},
    model::{
        answer::Answer,
        event::Call,
        ids::{AppName, RunId, RunKind, SessionId, ToolUseId},
        offer::{Route, Target},
        run::Run,
        spec::{Selection, Table},
    },
    upstream::{Authority, Upstream},
};

/// How long the events of an ended run are kept for an app that has not read them yet. Later ones
/// are fetched from MANTYX.
const KEEP_EVENTS: Duration = Duration::from_secs(10 * 60);
/// How long it is remembered which names of an ended run were the bridge's.
const KEEP_ENDED: Duration = Duration::from_secs(24 * 60 * 60);
/// The most runs and, separately, sessions that are remembered; the oldest go first.
const KEEP_COUNT: usize = 10_000;

/// What identifies a run: ids are only known to be unique within their workspace and kind.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RunKey {
    /// The workspace's slug as it stands in paths.
    pub workspace: Arc<str>,
    pub kind: RunKind,
    pub run: RunId,
}

impl RunKey {
    /// The path of the run.
    pub fn path(&self) -> String {
        let Self { workspace, kind, run } = self;
        format!("/api/v1/workspaces/{workspace}/{}/{run}", kind.collection())
    }

    /// The path of its event stream.
    pub fn stream_path(&self) -> String {
        format!("{}/stream", self.path())
    }

    /// Where the results of calls go that `asked_by`, the run itself or an agent run of this eval,
    /// waits for.
    fn results_path(&self, asked_by: &RunId) -> String {
        let workspace = Arc::clone(&self.workspace);
        let asked = Self { workspace, kind: RunKind::Agent, run: asked_by.clone() };
        format!("{}/tool-results", asked.path())
    }
}

/// A run that is driven, or was until it ended.
#[derive(Debug)]
pub struct DrivenRun {
    pub key: RunKey,
    pub app: AppName,
    pub session: Option<SessionId>,
    pub authority: Authority,
    pub log: EventLog,
    pub table: Arc<Table>,
    state: Mutex<Run>,
    /// Cancels all that its calls have begun.
    stop: CancellationToken,
    /// Cancels the calls that are waited for; a child of `stop`.
    cancel: CancellationToken,
    in_flight: AtomicUsize,
    started_at: SystemTime,
    ended: Mutex<Option<Ended>>,
}

#[derive(Debug, Clone, Copy)]
struct Ended {
    at: Instant,
    told: SystemTime,
}

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Its past is being read, and no call is made yet.
    Attaching,
    Driven,
    Ended,
}

/// What is remembered of a session.
#[derive(Debug)]
pub struct Session {
    pub app: AppName,
    /// The `tools` that the app itself gave, as text.
    pub tools: Option<Bytes>,
    pub selection: Selection,
    /// What the bridge put into it.
    pub table: Arc<Table>,
    created: Instant,
}

/// All runs and sessions.
#[derive(Debug)]
pub struct Runs {
    upstream: Arc<Upstream>,
    backends: Arc<Backends>,
    calls: Calls,
    /// The calls that an app may have running at once, where it has a limit.
    turns: HashMap<AppName, Semaphore>,
    history: Arc<History>,
    long_calls: LongCalls,
    tracker: TaskTracker,
    /// Drivers take no new calls, finish those in flight, and end.
    drain: CancellationToken,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    runs: HashMap<RunKey, Arc<DrivenRun>>,
    sessions: HashMap<(Arc<str>, SessionId), Arc<Session>>,
    swept: Option<Instant>,
}

/// A run that is to be driven.
#[derive(Debug)]
pub struct NewRun {
    pub key: RunKey,
    pub app: AppName,
    pub session: Option<SessionId>,
    pub authority: Authority,
    pub table: Arc<Table>,
    /// Others have fed it so far: what is in its log may have been answered.
    pub has_past: bool,
}

/// Whose model a call is made for. The call counts as in flight until this is dropped.
#[derive(Debug)]
pub struct AskedBy {
    driven: Arc<DrivenRun>,
    /// The agent run: the driven one itself or, of an eval, one of its own.
    pub run: RunId,
}

impl Drop for AskedBy {
    fn drop(&mut self) {
        self.driven.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl DrivenRun {
    /// Whether the bridge answers `tool_use` of `agent_run`: of the run itself or, in an eval, of
    /// one of its agent runs.
    pub fn owns(&self, agent_run: &RunId, tool_use: &ToolUseId) -> bool {
        self.state().owns(agent_run, tool_use)
    }

    /// How far the run is.
    pub fn phase(&self) -> Phase {
        if self.has_ended() {
            Phase::Ended
        } else if self.state().has_past() {
            Phase::Attaching
        } else {
            Phase::Driven
        }
    }

    pub fn started_at(&self) -> SystemTime {
        self.started_at
    }

    pub fn ended_at(&self) -> Option<SystemTime> {
        self.ended().map(|ended| ended.told)
    }

    /// The last event that was read of it; 0 where its events have no number.
    pub fn last_seq(&self) -> u64 {
        self.state().last_seq()
    }

    /// How many calls of the bridge's it has brought.
    pub fn calls(&self) -> usize {
        self.state().calls()
    }

    /// How many calls are in flight, those that go on after a first answer among them.
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    fn begin(self: &Arc<Self>, call: &Call) -> Arc<AskedBy> {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        Arc::new(AskedBy { driven: Arc::clone(self), run: self.asked_by(call) })
    }

    /// The agent run that waits for the answer of `call`.
    fn asked_by(&self, call: &Call) -> RunId {
        match (self.key.kind, &call.agent_run) {
            (RunKind::Eval, Some(agent_run)) => agent_run.clone(),
            _ => self.key.run.clone(),
        }
    }

    /// Cancels the calls in flight; their answers say so.
    pub fn cancel_calls(&self) {
        self.stop.cancel();
    }

    /// Cancels the calls whose answers can reach nobody any more, as the run has ended.
    fn end_calls(&self) {
        // What goes on can be fetched by a later run of the session.
        if self.session.is_some() { &self.cancel } else { &self.stop }.cancel();
    }

    pub fn has_ended(&self) -> bool {
        self.ended().is_some()
    }

    fn ended(&self) -> Option<Ended> {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_ended(&self) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.get_or_insert_with(|| Ended { at: Instant::now(), told: SystemTime::now() });
    }

    fn state(&self) -> MutexGuard<'_, Run> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Runs {
    /// Runs of `apps`, whose calls have these limits.
    pub fn new(
        upstream: Arc<Upstream>,
        backends: Arc<Backends>,
        calls: &Calls,
        apps: &[App],
    ) -> Self {
        let limited =
            |app: &App| Some((app.name.clone(), Semaphore::new(app.max_concurrent_calls?)));
        Self {
            turns: apps.iter().filter_map(limited).collect(),
            upstream,
            backends,
            calls: calls.clone(),
            history: Arc::default(),
            long_calls: LongCalls::default(),
            tracker: TaskTracker::new(),
            drain: CancellationToken::new(),
            inner: Mutex::default(),
        }
    }

    /// Starts to drive a run. The error is a run that is driven already; it goes on as it is.
    pub fn start(self: &Arc<Self>, new: NewRun) -> Result<Arc<DrivenRun>, Arc<DrivenRun>> {
        let run = {
            let mut inner = self.lock();
            inner.sweep(Instant::now());
            if let Some(run) = inner.runs.get(&new.key) {
                return Err(Arc::clone(run));
            }
            let NewRun { key, app, session, authority, table, has_past } = new;
            let begin = if has_past { Run::with_past } else { Run::new };
            let state = begin(key.kind, Arc::clone(&table));
            let stop = CancellationToken::new();
            let run = Arc::new(DrivenRun {
                key: key.clone(),
                app,
                session,
                authority,
                log: EventLog::new(),
                state: Mutex::new(state),
                table,
                cancel: stop.child_token(),
                stop,
                in_flight: AtomicUsize::new(0),
                started_at: SystemTime::now(),
                ended: Mutex::new(None),
            });
            inner.runs.insert(key, Arc::clone(&run));
            run
        };
        info!(run = %run.key.run, app = %run.app, "driving");
        let driver = driver::drive(Arc::clone(self), Arc::clone(&run));
        self.tracker.spawn(driver);
        Ok(run)
    }

    pub fn get(&self, key: &RunKey) -> Option<Arc<DrivenRun>> {
        self.lock().runs.get(key).cloned()
    }

    /// The eval whose calls of the agent run `key` the bridge answers.
    pub fn eval_of(&self, key: &RunKey) -> Option<Arc<DrivenRun>> {
        let asked = |eval: &&Arc<DrivenRun>| {
            eval.key.kind == RunKind::Eval
                && eval.key.workspace == key.workspace
                && eval.state().has_calls_of(&key.run)
        };
        self.lock().runs.values().find(asked).cloned()
    }

    /// The runs of `app`, in no order.
    pub fn of_app(&self, app: &AppName) -> Vec<Arc<DrivenRun>> {
        self.lock().runs.values().filter(|run| run.app == *app).cloned().collect()
    }

    fn forget(&self, key: &RunKey) {
        self.lock().runs.remove(key);
    }

    /// How many runs are being driven now.
    pub fn driven(&self) -> usize {
        self.lock().runs.values().filter(|run| !run.has_ended()).count()
    }

    /// The runs of `session`, also those that have ended: a call of theirs may go on.
    pub fn of_session(&self, workspace: &str, session: &SessionId) -> Vec<Arc<DrivenRun>> {
        let wanted = |run: &&Arc<DrivenRun>| {
            run.key.workspace.as_ref() == workspace && run.session.as_ref() == Some(session)
        };
        self.lock().runs.values().filter(wanted).cloned().collect()
    }

    pub fn remember_session(
        &self,
        workspace: Arc<str>,
        id: SessionId,
        app: AppName,
        given: (Option<Bytes>, Selection, Table),
    ) {
        let (tools, selection, table) = given;
        let session =
            Session { app, tools, selection, table: Arc::new(table), created: Instant::now() };
        let mut inner = self.lock();
        inner.sweep(Instant::now());
        inner.sessions.insert((workspace, id), Arc::new(session));
    }

    pub fn session(&self, workspace: &Arc<str>, id: &SessionId) -> Option<Arc<Session>> {
        self.lock().sessions.get(&(Arc::clone(workspace), id.clone())).cloned()
    }

    pub fn forget_session(&self, workspace: &Arc<str>, id: &SessionId) {
        self.forget_calls_of_session(workspace, id);
        self.lock().sessions.remove(&(Arc::clone(workspace), id.clone()));
    }

    /// Makes one call on behalf of `app`, when it is the app's turn; `asked_by` is the agent run
    /// that waits for it. One that takes long is answered before it has ended, and goes on.
    pub async fn call(
        self: &Arc<Self>,
        app: &AppName,
        route: &Route,
        call: Call,
        asked_by: Option<Arc<AskedBy>>,
    ) -> Answer {
        let Call { tool_use, name, args, .. } = call;
        let begun = self.history.begin(Begun {
            app: app.clone(),
            run: asked_by.as_ref().map(|by| by.run.clone()),
            tool_use: tool_use.clone(),
            name: name.clone(),
            backend: route.backend.clone(),
        });
        let patience = self.patience(route, asked_by.as_deref());
        let (runs, app, route) = (Arc::clone(self), app.clone(), route.clone());
        let in_hand = InHand { app: app.clone(), tool: name, begun, asked_by: asked_by.clone() };
        let pends = patience.is_some();
        let making = async move {
            if route.target == Target::Results {
                return runs.result_of(&app, args.get(), asked_by.as_deref()).await;
            }
            let origin = asked_by.map(|by| Origin {
                run: by.run.clone(),
                session: by.driven.session.clone(),
                tool_use,
            });
            let within = if pends { runs.calls.pending_timeout } else { runs.calls.timeout };
            runs.call_in_turn(&app, &route, within, args, origin).await
        };
        self.answer_in_time(making, in_hand, patience).await
    }

    async fn call_in_turn(
        &self,
        app: &AppName,
        route: &Route,
        within: Duration,
        arguments: Box<RawValue>,
        origin: Option<Origin>,
    ) -> Answer {
        let deadline = Instant::now() + within;
        let patience = self.calls.timeout / 4;
        let turn = async {
            match self.turns.get(app) {
                Some(turns) => turns.acquire().await.ok(),
                None => None,
            }
        };
        let Ok(_turn) = timeout(patience, turn).await else {
            return Answer::Error(format!(
                "The app has as many calls running as it may, and this one got no turn within \
                 {:.0} s. It was not made; try again later.",
                patience.as_secs_f64()
            ));
        };
        self.backends
            .call(route, Wanted { arguments, origin, witness: None, handle: None, deadline })
            .await
    }

    /// What was called and is being called.
    pub fn history(&self) -> &History {
        &self.history
    }

    pub fn upstream(&self) -> &Arc<Upstream> {
        &self.upstream
    }

    pub fn backends(&self) -> &Arc<Backends> {
        &self.backends
    }

    /// Cancelled when the daemon is going down.
    pub fn draining(&self) -> &CancellationToken {
        &self.drain
    }

    /// Takes no new calls, and waits until those in flight have been answered and posted.
    pub async fn drain(&self) {
        self.drain.cancel();
        self.tracker.close();
        self.tracker.wait().await;
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Forgets what has outlived its use; at most every few seconds, as it looks at everything.
    fn sweep(&mut self, now: Instant) {
        const EVERY: Duration = Duration::from_secs(10);
        if self.swept.is_some_and(|swept| now < swept + EVERY) {
            return;
        }
        self.swept = Some(now);
        let age =
            |run: &DrivenRun| run.ended().map(|ended| now.saturating_duration_since(ended.at));
        self.runs
            .retain(|_, run| run.in_flight() > 0 || age(run).is_none_or(|age| age < KEEP_ENDED));
        for run in self.runs.values() {
            if age(run).is_some_and(|age| age > KEEP_EVENTS) {
                run.log.forget();
            }
        }
        let idle = self.runs.values().filter(|run| run.in_flight() == 0);
        let mut ended: Vec<(Instant, RunKey)> =
            idle.filter_map(|run| Some((run.ended()?.at, run.key.clone()))).collect();
        if ended.len() > KEEP_COUNT {
            ended.sort_by_key(|(at, _)| *at);
            for (_, key) in ended.iter().take(ended.len() - KEEP_COUNT) {
                self.runs.remove(key);
            }
        }
        if self.sessions.len() > KEEP_COUNT {
            let mut by_age: Vec<_> =
                self.sessions.iter().map(|(key, session)| (session.created, key.clone())).collect();
            by_age.sort_by_key(|(created, _)| *created);
            for (_, key) in by_age.iter().take(by_age.len() - KEEP_COUNT) {
                self.sessions.remove(key);
            }
        }
    }
}
