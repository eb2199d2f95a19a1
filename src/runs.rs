//! The runs that the bridge drives, and the sessions that they come from.
//!
//! A run enters here when MANTYX has accepted it with tools of the bridge in it, or when an app
//! hands it over. `driver` reads its stream and has `answering` answer its calls; `log` keeps its
//! recent events; `app_stream` serves them to apps; `history` remembers the calls.
//!
//! Must not: inject, route HTTP, or know what kind of backend answers.

mod access;
mod answer;
pub mod app_stream;
pub mod approvals;
mod call_observer;
mod call_recorder;
pub mod calls;
pub mod changes;
mod credential;
mod driven;
mod driver;
mod forgetting;
pub mod history;
pub mod log;
pub mod long_calls;
mod mask;
mod owners;
mod permission_check;
mod restore;
mod settings;
mod shares;
mod whose;

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::{Instant, timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{info, warn};

pub use self::{
    access::{Access, Failure},
    driven::{DrivenRun, Phase, RunKey},
    whose::Thing,
};
use self::{
    answer::Task,
    call_recorder::CallRecorder,
    calls::Calls,
    changes::Changes,
    log::Room,
    owners::{Claims, How, Owned, Owners},
};
use crate::{
    budget,
    journal::{
        self, Journal,
        record::{Change, KeptRun, Millis, SessionRecord, Slot},
    },
    metrics,
    model::{
        ids::{AppName, SessionId, Workspace},
        spec::{Selection, Table},
    },
    traces::{Context, Traces},
    upstream::{Authority, Upstream},
};

/// How long the events of an ended run are kept for an app that has not read them yet. Later ones
/// are fetched from MANTYX.
const KEEP_EVENTS: Duration = Duration::from_secs(10 * 60);
/// How long it is remembered which names of an ended run were the bridge's.
const KEEP_ENDED: Duration = Duration::from_secs(24 * 60 * 60);
/// The most runs and, separately, sessions of one app that are remembered; the oldest go first.
const KEEP_COUNT: usize = 10_000;
/// About how much of the journal is for what is kept beside open calls and ended runs: owners, sessions
/// and the results of long calls, of all apps together. If the journal is full, no call is made.
const KEEP_BESIDE: usize = journal::MAX_SIZE / 2;
/// The part of that for sessions.
const KEEP_SESSION_BYTES: usize = KEEP_BESIDE / 4;
/// The most bytes of answers that MANTYX did not know what to do with, over all runs; each app has an
/// equal share. They are answers of open calls, of whose room they leave some.
const KEEP_UNWANTED: usize = journal::MAX_SIZE / 8;

/// What is remembered of a session.
#[derive(Debug)]
pub struct Session {
    pub app: AppName,
    /// The `tools` that the app itself gave, as text.
    pub tools: Option<Bytes>,
    pub selection: Selection,
    /// What the bridge put into it.
    pub table: Arc<Table>,
    created_at: Millis,
    created: Instant,
}

impl Session {
    /// About how much of the journal it takes.
    fn size(&self) -> usize {
        const RECORD: usize = 500;
        RECORD + self.tools.as_ref().map_or(0, Bytes::len) + self.table.size()
    }

    /// The session as it is to be kept.
    fn changes(&self, workspace: &Workspace, id: &SessionId) -> Vec<Change> {
        let (table, routes) = self.table.stored();
        let tools = self.tools.as_ref().and_then(|tools| serde_json::from_slice(tools).ok());
        let selection = match &self.selection {
            Selection::All => None,
            Selection::Named(names) => Some(names.clone()),
        };
        let (app, created_at) = (self.app.to_string(), self.created_at);
        let record = SessionRecord { app, tools, selection, table, created_at };
        let key = (workspace.to_string(), id.to_string());
        vec![Change::Routes(routes.clone()), Change::Session(key, record)]
    }
}

/// All runs and sessions.
#[derive(Debug)]
pub struct Runs {
    pub calls: Arc<Calls>,
    upstream: Arc<Upstream>,
    changes: Changes,
    journal: Arc<Journal>,
    metrics: metrics::Runs,
    traces: Traces,
    /// The next run's number in the journal.
    next_slot: AtomicU64,
    tracker: TaskTracker,
    /// For the events of all runs.
    room: Room,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    runs: HashMap<RunKey, Arc<DrivenRun>>,
    sessions: HashMap<(Workspace, SessionId), Arc<Session>>,
    /// Runs of an earlier process that need their app's own credential to be driven on.
    asleep: HashMap<RunKey, KeptRun>,
    owners: Owners,
    claims: Claims,
    swept: Option<Instant>,
}

/// A run is not driven on behalf of who asked.
#[derive(Debug)]
pub enum NotStarted {
    /// It is driven already, and goes on as it is.
    Driven(Arc<DrivenRun>),
    /// It is another app's, or an agent run of an eval.
    Taken,
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
    /// The bridge may have driven it, and what it knew is lost: what is in its log without an answer
    /// may have been called.
    pub past_is_lost: bool,
    /// Where in a trace the request was that created it, or handed it over.
    pub trace: Context,
}

impl Runs {
    /// No runs yet; `calls` are made for them.
    pub fn new(upstream: Arc<Upstream>, calls: Arc<Calls>, traces: Traces) -> Self {
        Self {
            upstream,
            changes: calls.changes.clone(),
            journal: Arc::clone(&calls.journal),
            metrics: metrics::Runs::default(),
            traces,
            next_slot: AtomicU64::new(1),
            tracker: calls.tracker.clone(),
            room: Room::default(),
            inner: Mutex::default(),
            calls,
        }
    }

    /// Starts to drive a run, which is in the journal when this returns, and whose it is.
    ///
    /// # Errors
    ///
    /// The run has a driver, or belongs to another app.
    pub async fn start(self: &Arc<Self>, new: NewRun) -> Result<Arc<DrivenRun>, NotStarted> {
        let new = self.for_its_creator(new);
        let (run, owner) = {
            let mut inner = self.lock();
            self.sweep(&mut inner);
            // In one piece with the run's own entry: of two that hand over the same run at once, one
            // gets a driver.
            if let Some(run) = inner.runs.get(&new.key) {
                if run.key.run.as_str() != new.key.run.as_str() {
                    warn!(
                        run = %new.key.run, known = %run.key.run,
                        "MANTYX has two runs whose ids differ in letter case alone, which count as one \
                         run here; the calls of this one are not answered"
                    );
                }
                return Err(NotStarted::Driven(Arc::clone(run)));
            }
            let how = if new.has_past { How::Attached } else { How::Created };
            let owned = Owned::Run(new.key.clone());
            let changes = inner.own(owned, &new.app, how).map_err(|_told| NotStarted::Taken)?;
            let key = new.key.clone();
            let slot = Slot(self.next_slot.fetch_add(1, Ordering::Relaxed));
            let run = Arc::new(DrivenRun::new(slot, new, &self.room));
            inner.runs.insert(key, Arc::clone(&run));
            (run, changes)
        };
        // Apart, so that damage to one record does not cost the other. The owner comes first: there is
        // no run without one.
        self.journal.write(owner);
        self.journal.write(run.changes());
        info!(run = %run.key.run, app = %run.app, "driving");
        self.drive(&run, Vec::new());
        self.settled().await;
        Ok(run)
    }

    fn drive(self: &Arc<Self>, run: &Arc<DrivenRun>, left: Vec<(Arc<CallRecorder>, Task)>) {
        self.spawn_driver(run, left, false);
    }

    fn spawn_driver(
        self: &Arc<Self>,
        run: &Arc<DrivenRun>,
        left: Vec<(Arc<CallRecorder>, Task)>,
        is_revived: bool,
    ) {
        self.metrics.started.inc();
        self.tell(run);
        let driven = driver::drive(Arc::clone(self), Arc::clone(run), left, is_revived);
        self.tracker.spawn(budget::for_app(run.app.clone(), driven));
    }

    /// Waits until all that was given to the journal is on disk. Where it cannot be, the run goes
    /// on, and its calls are not made until it is: the journal keeps what it was given.
    async fn settled(&self) {
        self.journal.commit(Vec::new()).await.ok();
    }

    pub fn get(&self, key: &RunKey) -> Option<Arc<DrivenRun>> {
        self.lock().runs.get(key).cloned()
    }

    /// The runs of `app`, or of all apps, in no order.
    pub fn of_app(&self, app: Option<&AppName>) -> Vec<Arc<DrivenRun>> {
        let is_seen = |run: &&Arc<DrivenRun>| app.is_none_or(|app| run.app == *app);
        self.lock().runs.values().filter(is_seen).cloned().collect()
    }

    /// Drives a run again that was given up, if `run` was: the same one, so that no call of it is made
    /// a second time. Calls are held until its past has been read, as others may have answered them.
    ///
    /// `false`: the run is not known any more, or another has taken its place. Nothing is done then.
    pub fn revive(self: &Arc<Self>, run: &Arc<DrivenRun>) -> bool {
        {
            // Under the lock under which runs are given up and forgotten: what is written last of the
            // run is what was decided last.
            let inner = self.lock();
            if !inner.runs.get(&run.key).is_some_and(|known| Arc::ptr_eq(known, run)) {
                return false;
            }
            if !run.revive() {
                return true;
            }
            self.journal.write(run.changes());
        }
        info!(run = %run.key.run, app = %run.app, "driving again a run that was given up");
        self.spawn_driver(run, Vec::new(), true);
        true
    }

    /// Gives `run` up: its stream cannot be read. Another driver may take it up from here on.
    fn give_up(&self, run: &DrivenRun) {
        let _decides = self.lock();
        run.log.end();
        run.give_up();
        self.journal.write(run.changes());
    }

    /// MANTYX does not know the call of `entry`. Where it does not show the run's stream either, that
    /// may be its fault: the answer, of `size` bytes, stays in the journal until MANTYX does. `false`:
    /// the answer is not wanted, or the app has no room for it.
    fn keep_unwanted(&self, run: &DrivenRun, entry: &Arc<CallRecorder>, size: usize) -> bool {
        let kept =
            |run: &Arc<DrivenRun>| run.unwanted().values().map(|(_, size)| size).sum::<usize>();
        let held: usize = self.of_app(Some(&run.app)).iter().map(kept).sum();
        let share = KEEP_UNWANTED / self.calls.settings().apps.len().max(1);
        if held + size > share {
            warn!(
                app = %run.app, run = %run.key.run, toolUseId = %entry.key().tool_use,
                "MANTYX does not know the run, and the app has {share} bytes of such answers; this \
                 one is dropped"
            );
            return false;
        }
        run.keep_unwanted(entry, size)
    }

    /// Cancels the calls of `run`, also those that go on from before the run was taken up. Of an eval,
    /// `key` may be an agent run, whose calls alone are cancelled.
    pub fn cancel_calls(&self, run: &DrivenRun, key: &RunKey) {
        run.cancel_calls(key);
        self.calls.long.cancel_of(key);
    }

    /// The runs of `app`, or of all apps, whose streams cannot be opened, and why.
    pub fn failing(&self, app: Option<&AppName>) -> Vec<(RunKey, Arc<Failure>)> {
        let inner = self.lock();
        let driven = inner
            .runs
            .values()
            .filter(|run| app.is_none_or(|app| run.app == *app) && !run.has_ended());
        let failing = driven.filter_map(|run| {
            let failure = run.access().failure().cloned()?;
            Some((run.key.clone(), failure))
        });
        failing.collect()
    }

    /// How many runs are being driven now.
    pub fn driven(&self) -> usize {
        self.lock().runs.values().filter(|run| !run.has_ended()).count()
    }

    /// The runs of `session`, also those that have ended: a call of theirs may go on.
    pub fn of_session(&self, workspace: &Workspace, session: &SessionId) -> Vec<Arc<DrivenRun>> {
        let wanted = |run: &&Arc<DrivenRun>| {
            run.key.workspace == *workspace && run.session.as_ref() == Some(session)
        };
        self.lock().runs.values().filter(wanted).cloned().collect()
    }

    /// Remembers a session, which is in the journal when this returns.
    pub async fn remember_session(
        &self,
        workspace: Workspace,
        id: SessionId,
        app: AppName,
        given: (Option<Bytes>, Selection, Table),
    ) {
        let (tools, selection, table) = given;
        let session = Session {
            app,
            tools,
            selection,
            table: Arc::new(table),
            created_at: journal::now(),
            created: Instant::now(),
        };
        let mut changes = session.changes(&workspace, &id);
        {
            let mut inner = self.lock();
            self.sweep(&mut inner);
            let owned = Owned::Session(workspace.clone(), id.clone());
            let Ok(owner) = inner.own(owned, &session.app, How::Created) else { return };
            changes.extend(owner);
            inner.sessions.insert((workspace, id), Arc::new(session));
            changes.extend(inner.make_room_for_sessions());
        }
        self.journal.write(changes);
        self.settled().await;
    }

    pub fn session(&self, workspace: &Workspace, id: &SessionId) -> Option<Arc<Session>> {
        self.lock().sessions.get(&(workspace.clone(), id.clone())).cloned()
    }

    pub fn forget_session(&self, workspace: &Workspace, id: &SessionId) {
        self.calls.forget_session(workspace, id);
        let known = self.lock().sessions.remove_entry(&(workspace.clone(), id.clone()));
        // The journal knows it as it was spelled first.
        if let Some(((workspace, id), _)) = known {
            let key = (workspace.to_string(), id.to_string());
            self.journal.write(vec![Change::ForgetSession(key)]);
        }
    }

    /// Where runs and calls are kept.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// What is counted of runs and of apps' streams.
    pub fn metrics(&self) -> &metrics::Runs {
        &self.metrics
    }

    /// Where spans go.
    pub fn traces(&self) -> &Traces {
        &self.traces
    }

    /// What changes of runs, calls and questions.
    pub fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Tells of a change of `run`.
    fn tell(&self, run: &DrivenRun) {
        self.changes.tell(|| changes::Change::Run(run.app.clone(), run.key.clone()));
    }

    pub fn upstream(&self) -> &Arc<Upstream> {
        &self.upstream
    }

    /// Cancelled when the daemon is going down.
    pub fn draining(&self) -> &CancellationToken {
        &self.calls.drain
    }

    /// Takes no new calls, and waits until those in flight have been answered and posted.
    pub async fn drain(&self) {
        self.calls.drain.cancel();
        self.tracker.close();
        self.tracker.wait().await;
    }

    /// Does not wait any longer for the work that peers have named: the next process asks for it.
    /// Ends when nothing else runs, or after `within`.
    pub async fn leave(&self, within: Duration) {
        self.calls.leave.cancel();
        self.tracker.close();
        timeout(within, self.tracker.wait()).await.ok();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }
}

#[cfg(test)]
mod tests;
