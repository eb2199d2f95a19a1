//! The runs that the bridge drives, and the sessions that they come from.
//!
//! A run enters here when MANTYX has accepted it with tools of the bridge in it. `driver` reads its
//! stream and answers its calls; `log` keeps its recent events; `app_stream` serves them to apps.
//!
//! Must not: inject, route HTTP, or know what kind of backend answers.

pub mod app_stream;
mod driver;
pub mod log;
mod mask;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::info;

use self::log::EventLog;
use crate::{
    backend::{
        calls::{Backends, Wanted},
        peer::Origin,
    },
    config::App,
    model::{
        answer::Answer,
        ids::{AppName, RunId, SessionId, ToolUseId},
        offer::Route,
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

/// What identifies a run: ids are only known to be unique within their workspace.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RunKey {
    /// The workspace's slug as it stands in paths.
    pub workspace: Arc<str>,
    pub run: RunId,
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
    /// Cancels the calls in flight.
    cancel: CancellationToken,
    ended: Mutex<Option<Instant>>,
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
    /// The longest that a call may take.
    call_within: Duration,
    /// The calls that an app may have running at once, where it has a limit.
    turns: HashMap<AppName, Semaphore>,
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
}

impl DrivenRun {
    /// The path of the run, below which its stream and its results stand.
    pub fn path(&self) -> String {
        format!("/api/v1/workspaces/{}/agent-runs/{}", self.key.workspace, self.key.run)
    }

    /// Whether the bridge answers `tool_use`.
    pub fn owns(&self, tool_use: &ToolUseId) -> bool {
        self.state().owns(tool_use)
    }

    /// Cancels the calls in flight; their answers say so.
    pub fn cancel_calls(&self) {
        self.cancel.cancel();
    }

    pub fn has_ended(&self) -> bool {
        self.ended_at().is_some()
    }

    fn ended_at(&self) -> Option<Instant> {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_ended(&self) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.get_or_insert_with(Instant::now);
    }

    fn state(&self) -> MutexGuard<'_, Run> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Runs {
    /// Runs of `apps`, whose calls are answered within `call_within`.
    pub fn new(
        upstream: Arc<Upstream>,
        backends: Arc<Backends>,
        call_within: Duration,
        apps: &[App],
    ) -> Self {
        let limited =
            |app: &App| Some((app.name.clone(), Semaphore::new(app.max_concurrent_calls?)));
        Self {
            turns: apps.iter().filter_map(limited).collect(),
            upstream,
            backends,
            call_within,
            tracker: TaskTracker::new(),
            drain: CancellationToken::new(),
            inner: Mutex::default(),
        }
    }

    /// Starts to drive a run. A run that is driven already goes on as it is.
    pub fn start(self: &Arc<Self>, new: NewRun) -> Arc<DrivenRun> {
        let run = {
            let mut inner = self.lock();
            inner.sweep(Instant::now());
            if let Some(run) = inner.runs.get(&new.key) {
                return Arc::clone(run);
            }
            let NewRun { key, app, session, authority, table } = new;
            let run = Arc::new(DrivenRun {
                key: key.clone(),
                app,
                session,
                authority,
                log: EventLog::new(),
                state: Mutex::new(Run::new(Arc::clone(&table))),
                table,
                cancel: CancellationToken::new(),
                ended: Mutex::new(None),
            });
            inner.runs.insert(key, Arc::clone(&run));
            run
        };
        info!(run = %run.key.run, app = %run.app, "driving");
        let driver = driver::drive(Arc::clone(self), Arc::clone(&run));
        self.tracker.spawn(driver);
        run
    }

    pub fn get(&self, key: &RunKey) -> Option<Arc<DrivenRun>> {
        self.lock().runs.get(key).cloned()
    }

    fn forget(&self, key: &RunKey) {
        self.lock().runs.remove(key);
    }

    /// How many runs are being driven now.
    pub fn driven(&self) -> usize {
        self.lock().runs.values().filter(|run| !run.has_ended()).count()
    }

    /// The runs of `session` that are being driven now.
    pub fn of_session(&self, workspace: &str, session: &SessionId) -> Vec<Arc<DrivenRun>> {
        let wanted = |run: &&Arc<DrivenRun>| {
            run.key.workspace.as_ref() == workspace
                && run.session.as_ref() == Some(session)
                && !run.has_ended()
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
        self.lock().sessions.remove(&(Arc::clone(workspace), id.clone()));
    }

    /// Makes one call on behalf of `app`, when it is the app's turn.
    pub async fn call(
        &self,
        app: &AppName,
        route: &Route,
        arguments: Box<RawValue>,
        origin: Option<Origin>,
    ) -> Answer {
        let deadline = Instant::now() + self.call_within;
        let patience = self.call_within / 4;
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
        self.backends.call(route, Wanted { arguments, origin, deadline }).await
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
            |run: &DrivenRun| run.ended_at().map(|ended| now.saturating_duration_since(ended));
        self.runs.retain(|_, run| age(run).is_none_or(|age| age < KEEP_ENDED));
        for run in self.runs.values() {
            if age(run).is_some_and(|age| age > KEEP_EVENTS) {
                run.log.forget();
            }
        }
        let mut ended: Vec<(Instant, RunKey)> =
            self.runs.values().filter_map(|run| Some((run.ended_at()?, run.key.clone()))).collect();
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
