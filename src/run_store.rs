//! All runs and sessions that the bridge knows: which there are, whose they are, and what an
//! earlier process or another replica has left of them.
//!
//! A run enters here when MANTYX has accepted it with tools of the bridge in it, or when an app
//! attaches it. Its driver (`runs::driver`) asks here which calls it may make ([`Ownership`]).
//!
//! docs/design/runs.md says what it is not, and how it came about.
//!
//! Must not: read a stream, make a call, inject, or route HTTP.

mod agent_things;
mod cancellations;
mod credential;
mod elsewhere;
mod forgetting;
mod owners;
mod ownership;
mod refusal;
mod restore;
mod storage;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

pub use self::agent_things::Whose;
pub use self::owners::{AgentThing, How, Owned, OwnedKind};
use self::owners::{Claims, Owners};
pub use self::storage::{NotAttached, Obstacle};
use crate::calls::Calls;
use crate::journal::Journal;
use crate::journal::record::{Change, Key, Millis, SessionRecord, Slot, StoredRun};
use crate::model::maps::HashMap;
use crate::model::{AppName, RunKey, Selection, SessionId, Table, Workspace};
use crate::runs::answer::EarlierCalls;
use crate::runs::driver::{self, DriverEnd, Start};
use crate::runs::{DrivenRun, NewRun, Ownership, RunContext, StreamFailure};
use crate::traces::Traces;
use crate::upstream::Upstream;
use crate::{clock, random};

/// How long the log keeps the events of an ended run for an app that does not read them yet. After
/// that, the app's stream fetches them from MANTYX.
const KEEP_EVENTS: Duration = Duration::from_secs(60);
/// How long the bridge remembers which names of an ended run were its own.
const KEEP_ENDED: Duration = Duration::from_secs(24 * 60 * 60);
/// The most ended runs of one app that the bridge remembers; the oldest are forgotten first. Each
/// takes some 2 KiB of memory.
const KEEP_RUNS: usize = 2_000;
/// The most sessions of one app that the bridge remembers, and runs that wait for its credential.
const KEEP_COUNT: usize = 10_000;

/// What the bridge remembers of a session.
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
    /// About how many bytes of the journal the session takes.
    fn size(&self) -> usize {
        const RECORD: usize = 500;
        RECORD + self.tools.as_ref().map_or(0, Bytes::len) + self.table.size()
    }

    /// The session's record for the journal, with the routes that it refers to.
    fn changes(&self, workspace: &Workspace, id: &SessionId) -> Vec<Change> {
        let (table, routes) = self.table.stored();
        let tools = self.tools.as_ref().and_then(|tools| serde_json::from_slice(tools).ok());
        let selection = match &self.selection {
            Selection::All => None,
            Selection::Named(names) => Some(names.clone()),
        };
        let (app, created_at) = (self.app.clone(), self.created_at);
        let record = SessionRecord { app, tools, selection, table, created_at };
        let key = (workspace.clone(), id.clone());
        vec![Change::Routes(routes.clone()), Change::Session(key, record)]
    }
}

/// All runs and sessions.
#[derive(Debug)]
pub struct RunStore {
    pub calls: Arc<Calls>,
    pub upstream: Arc<Upstream>,
    /// What the drivers share.
    pub context: Arc<RunContext>,
    /// The next run's number in the journal.
    next_slot: AtomicU64,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    runs: HashMap<RunKey, Arc<DrivenRun>>,
    sessions: HashMap<(Workspace, SessionId), Arc<Session>>,
    /// Runs of an earlier process that the bridge can only drive with their app's own credential.
    awaiting_credential: HashMap<RunKey, StoredRun>,
    owners: Owners,
    claims: Claims,
}

/// Why [`RunStore::start`] did not start a driver.
#[derive(Debug)]
pub enum NotStarted {
    /// The run has a driver already, which continues.
    Driven(Arc<DrivenRun>),
    /// The run belongs to another app, or is an agent run of an eval.
    Taken,
    /// The disk fails, or the replicas' database is away: a restart would lose the run, or other
    /// replicas would not know of it. Its driver makes no call before it is written.
    NotKept(Arc<DrivenRun>),
}

impl RunStore {
    /// Starts without runs. `calls` makes the calls of the runs that follow.
    pub fn new(upstream: Arc<Upstream>, calls: Arc<Calls>, traces: Traces) -> Self {
        // Replicas share the numbers of runs, and cannot ask each other.
        let first_slot = match calls.journal.replica() {
            None => 1,
            Some(_) => random::uuid().as_u64_pair().0 >> 2,
        };
        Self {
            context: Arc::new(RunContext::new(Arc::clone(&upstream), Arc::clone(&calls), traces)),
            calls,
            upstream,
            next_slot: AtomicU64::new(first_slot),
            inner: Mutex::default(),
        }
    }

    /// Starts the driver of a run. When this returns, the journal has the run and its owner on
    /// disk.
    ///
    /// 1. The check for a driver, the owner and the run's entry are one step under the lock. If two
    ///    requests attach the same run at once, only one of them starts a driver.
    /// 2. The owner is written before the run, or with it. A run on disk without an owner could be
    ///    attached by another app after a restart.
    /// 3. The driver starts at once, and before the write is done: MANTYX has accepted the run and
    ///    waits for answers. Its calls wait for the journal themselves.
    /// 4. The app is answered after the write. An app that is told of a run may count on it over a
    ///    restart of the bridge.
    /// 5. Of two replicas that attach a run at once, the database gives both rows to one. The other
    ///    one drops the run again, and learns whose it is.
    ///
    /// # Errors
    ///
    /// The run has a driver already, or belongs to another app; or it is driven, and will only be
    /// written later.
    pub async fn start(self: &Arc<Self>, new: NewRun) -> Result<Arc<DrivenRun>, NotStarted> {
        let new = self.for_its_creator(new);
        let (run, owner) = {
            let mut inner = self.inner.lock();
            // Check and insert under one lock: if two requests attach the same run at once, only
            // one of them starts a driver.
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
            let Ok(changes) = inner.own(owned, &new.app, how) else {
                return Err(NotStarted::Taken);
            };
            let key = new.key.clone();
            let slot = Slot(self.next_slot.fetch_add(1, Ordering::Relaxed));
            let run = Arc::new(DrivenRun::new(slot, new, &self.context.log_room));
            inner.runs.insert(key, Arc::clone(&run));
            (run, changes)
        };
        if self.journal().replica().is_some() {
            // One write: of two replicas that attach a run at once, one has both rows.
            self.journal().write(owner.into_iter().chain(run.changes()).collect());
        } else {
            // Two writes, so that damage to one record does not cost the other. The owner comes
            // first: a run on disk must never lack an owner.
            self.journal().write(owner);
            self.journal().write(run.changes());
        }
        info!(
            name: "run_driver_started",
            run = %run.key.run, app = %run.app, "run driver started"
        );
        self.drive(&run, Vec::new(), Start::First);
        if !self.settled().await {
            return Err(NotStarted::NotKept(run));
        }
        if self.journal().has_lost(run.slot) {
            // Another replica was faster. The run may be another app's there.
            self.lose(&[run.slot]);
            self.inner.lock().owners.forget(&Owned::Run(run.key.clone()));
            let ids = [run.key.run.as_str().to_owned()];
            self.learn(&run.key.workspace, &ids, &run.credential.current()).await.ok();
            return Err(match self.get(&run.key) {
                Some(guest) if guest.app == run.app => NotStarted::Driven(guest),
                _ => NotStarted::Taken,
            });
        }
        Ok(run)
    }

    /// Starts a driver for `run`, in a task of the daemon. A run that its driver has given up stays
    /// known, so that none of its calls is ever made a second time.
    fn drive(self: &Arc<Self>, run: &Arc<DrivenRun>, earlier_calls: EarlierCalls, start: Start) {
        self.context.metrics.started.inc();
        self.context.tell(run);
        let (store, run) = (Arc::clone(self), Arc::clone(run));
        let app = run.app.clone();
        self.calls.spawn(&app, async move {
            let context = Arc::clone(&store.context);
            let ownership = Arc::clone(&store) as Arc<dyn Ownership>;
            let end =
                driver::drive(context, ownership, Arc::clone(&run), earlier_calls, start).await;
            if end == DriverEnd::GivenUp {
                store.give_up(&run);
                store.context.tell(&run);
            }
        });
    }

    /// Waits until the journal has on disk all changes that it was given. `false`: it has not, as
    /// the disk fails or the replicas' database is away. It writes them later.
    async fn settled(&self) -> bool {
        self.journal().keep(Vec::new()).await && !self.journal().disk_fails()
    }

    pub fn get(&self, key: &RunKey) -> Option<Arc<DrivenRun>> {
        self.inner.lock().runs.get(key).cloned()
    }

    /// The runs of `app`, or of all apps, in no order.
    pub fn of_app(&self, app: Option<&AppName>) -> Vec<Arc<DrivenRun>> {
        let inner = self.inner.lock();
        let own = inner.runs.values().filter(|run| !run.is_guest());
        own.filter(|run| app.is_none_or(|app| run.app == *app)).cloned().collect()
    }

    /// Starts a new driver for `run` if its last one gave up. The run's state is kept, so that no
    /// call is made a second time. The driver holds calls until it has read the run's past, as
    /// other clients may have answered them.
    ///
    /// `false`: the run is no longer known, or another has taken its place; this does nothing then.
    pub fn revive(self: &Arc<Self>, run: &Arc<DrivenRun>) -> bool {
        {
            // `give_up` and `forget` hold the same lock, so that the last record in the journal is
            // the last decision.
            let inner = self.inner.lock();
            if !inner.runs.get(&run.key).is_some_and(|known| Arc::ptr_eq(known, run)) {
                return false;
            }
            if !run.revive() {
                return true;
            }
            self.journal().write(run.changes());
        }
        info!(
            name: "run_driver_started_again",
            run = %run.key.run, app = %run.app, "run driver started again after it gave up"
        );
        self.drive(run, Vec::new(), Start::Revived);
        true
    }

    /// Gives `run` up, as its stream cannot be read. From here on, another driver may take it up.
    ///
    /// Under the lock of [`Self::revive`]. Otherwise an app that asks for the run at this moment
    /// could find it driven, and get a log that no driver fills.
    fn give_up(&self, run: &DrivenRun) {
        let _inner = self.inner.lock();
        run.log.end();
        run.give_up();
        self.journal().write(run.changes());
    }

    /// Cancels the calls of `run`, also long calls that began before this driver took the run up.
    /// In an eval, `key` may be one of its agent runs; then only that agent run's calls are
    /// cancelled.
    pub fn cancel_calls(&self, run: &DrivenRun, key: &RunKey) {
        run.cancel_calls(key);
        self.calls.long.cancel_of(key);
    }

    /// The runs of `app`, or of all apps, whose streams cannot be opened, and why.
    pub fn failing(&self, app: Option<&AppName>) -> Vec<(RunKey, Arc<StreamFailure>)> {
        let mut failing = Vec::new();
        for run in self.of_app(app) {
            if let Some(failure) = run.access().failure()
                && !run.has_ended()
            {
                failing.push((run.key.clone(), Arc::clone(failure)));
            }
        }
        failing
    }

    /// How many runs of `app`, or of all apps, are being driven now.
    pub fn driven(&self, app: Option<&AppName>) -> usize {
        let inner = self.inner.lock();
        let driven = inner.runs.values().filter(|run| !run.has_ended());
        driven.filter(|run| app.is_none_or(|app| run.app == *app)).count()
    }

    /// The runs of `session`, also those that have ended: one of their calls may still run.
    pub fn of_session(&self, workspace: &Workspace, session: &SessionId) -> Vec<Arc<DrivenRun>> {
        let inner = self.inner.lock();
        let in_workspace = inner.runs.values().filter(|run| run.key.workspace == *workspace);
        in_workspace.filter(|run| run.session.as_ref() == Some(session)).cloned().collect()
    }

    /// Remembers a session. When this returns `true`, the journal has it on disk.
    ///
    /// `false`: the store has forgotten it, and the caller has to end it at MANTYX. A restart would
    /// lose its tools, or other replicas would not know of it: to them, it would be any app's. A
    /// session without tools may be written later where the journal is a file.
    pub async fn remember_session(
        &self,
        (workspace, id): (Workspace, SessionId),
        app: AppName,
        given: (Option<Bytes>, Selection, Table),
    ) -> bool {
        let (tools, selection, table) = given;
        let session = Session {
            app,
            tools,
            selection,
            table: Arc::new(table),
            created_at: clock::millis(),
            created: Instant::now(),
        };
        let mut changes = session.changes(&workspace, &id);
        let must_be_kept = !session.table.is_empty() || self.journal().replica().is_some();
        let key = (workspace, id);
        {
            let mut inner = self.inner.lock();
            let owned = Owned::Session(key.0.clone(), key.1.clone());
            let Ok(owner) = inner.own(owned, &session.app, How::Created) else { return true };
            changes.extend(owner);
            inner.sessions.insert(key.clone(), Arc::new(session));
            changes.extend(inner.make_room_for_sessions());
        }
        self.journal().write(changes);
        if self.settled().await || !must_be_kept {
            return true;
        }
        self.forget_session(&key.0, &key.1);
        false
    }

    pub fn session(&self, workspace: &Workspace, id: &SessionId) -> Option<Arc<Session>> {
        self.inner.lock().sessions.get(&(workspace.clone(), id.clone())).cloned()
    }

    pub fn forget_session(&self, workspace: &Workspace, id: &SessionId) {
        self.calls.long.forget(|of| of.is_session(workspace, id));
        let entry = self.inner.lock().sessions.remove_entry(&(workspace.clone(), id.clone()));
        // The journal's key has the spelling of the first request.
        if let Some((key, _)) = entry {
            self.journal().write(vec![Change::Forget(Key::Session(key))]);
        }
    }

    /// The journal of runs and calls.
    pub fn journal(&self) -> &Journal {
        &self.calls.journal
    }

    /// Cancelled when the daemon shuts down.
    pub fn draining(&self) -> &CancellationToken {
        &self.calls.drain
    }

    /// Accepts no new calls, and waits until those in flight have been answered and posted.
    ///
    /// The token comes first: a task that looks at it after the tracker has closed would begin work
    /// for which the stop no longer waits.
    pub async fn drain(&self) {
        self.calls.drain.cancel();
        self.calls.tracker.close();
        self.calls.tracker.wait().await;
    }

    /// Answers the calls by hand that have not ended, while their clients are still connected.
    pub fn cut(&self) {
        self.calls.cut.cancel();
    }

    /// Stops waiting for work that peers have named, as the next process can ask for it. Returns
    /// when no other task runs, or after `within`. The journal closes right after: a call that is
    /// dispatched later would have no record, so recorders dispatch nothing from here on.
    pub async fn leave(&self, within: Duration) {
        self.calls.leave.cancel();
        self.calls.tracker.close();
        timeout(within, self.calls.tracker.wait()).await.ok();
    }
}

#[cfg(test)]
mod tests;
