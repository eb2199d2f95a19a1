//! The tables, their row locks, and the transactions on them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::Chance;
use crate::journal::postgres::rows::{Id, Row, RowKey, Rows, call_of, id, id_of, kind, name};
use crate::journal::record::{Key, Slot};
use crate::model::RunKey;

#[derive(Debug, Clone)]
pub(super) struct ReplicaRow {
    pub(super) generation: i64,
    pub(super) session: i64,
    pub(super) host: String,
    pub(super) since: SystemTime,
    pub(super) backends: BTreeMap<String, String>,
}

#[derive(Debug, Clone)]
pub(super) struct RunRow {
    pub(super) name: Id,
    pub(super) owner: Option<Uuid>,
    pub(super) epoch: i64,
    pub(super) needs: Vec<String>,
    pub(super) is_over: bool,
    pub(super) waits: bool,
}

#[derive(Debug, Clone)]
pub(super) struct RecordRow {
    pub(super) key: RowKey,
    pub(super) kind: String,
    pub(super) run: Option<i64>,
    pub(super) holder: Option<Uuid>,
    pub(super) attempts: Option<i32>,
    pub(super) value: Bytes,
}

#[derive(Debug, Clone)]
pub(super) struct ApprovalRow {
    pub(super) holder: Uuid,
    pub(super) value: Vec<u8>,
    pub(super) deadline: SystemTime,
    pub(super) ended: Option<Vec<u8>>,
    pub(super) ended_at: Option<SystemTime>,
    pub(super) by_person: bool,
}

#[derive(Debug, Clone)]
pub(super) struct NoticeRow {
    pub(super) message: String,
    pub(super) holder: Uuid,
    pub(super) until: SystemTime,
    pub(super) told: bool,
}

/// What is committed. There is one group.
#[derive(Debug, Clone, Default)]
pub(super) struct Tables {
    pub(super) replicas: BTreeMap<Uuid, ReplicaRow>,
    pub(super) heartbeats: BTreeMap<Uuid, i64>,
    pub(super) runs: BTreeMap<i64, RunRow>,
    pub(super) records: BTreeMap<Id, RecordRow>,
    /// The runs that have claimed calls.
    pub(super) claims: BTreeMap<Id, i64>,
    pub(super) files: BTreeMap<String, (i64, String)>,
    pub(super) approvals: BTreeMap<String, ApprovalRow>,
    pub(super) notices: BTreeMap<String, NoticeRow>,
    /// What was cancelled, and when.
    pub(super) cancellations: BTreeMap<String, (Vec<u8>, SystemTime)>,
}

/// What is locked: a row, or the entry of a unique index that is not committed yet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lock {
    Replica(Uuid),
    Heartbeat(Uuid),
    Run(i64),
    Name(Id),
    Record(Id),
    Claim(Id),
    File(String),
    Approval(String),
    Notice(String),
    Cancellation(String),
}

#[derive(Debug, Default)]
struct Holders {
    shared: BTreeSet<u64>,
    exclusive: Option<u64>,
}

impl Holders {
    fn take(&mut self, tx: u64, is_exclusive: bool) -> bool {
        let is_free = self.exclusive.is_none_or(|holder| holder == tx)
            && (!is_exclusive || self.shared.iter().all(|holder| *holder == tx));
        if is_free && is_exclusive {
            self.exclusive = Some(tx);
        } else if is_free {
            self.shared.insert(tx);
        }
        is_free
    }
}

/// The server.
pub(crate) struct Server {
    inner: Mutex<Inner>,
    /// Locks were released.
    freed: Notify,
    pub(super) chance: Arc<dyn Chance>,
    /// Where its tasks run, whatever becomes of its clients.
    pub(super) runtime: Handle,
}

struct Inner {
    tables: Arc<Tables>,
    locks: BTreeMap<Lock, Holders>,
    next: u64,
    /// Cancelled when it goes down, with all of its connections.
    connections: CancellationToken,
    is_down: bool,
    /// Until when all statements stand still.
    stalled: Option<Instant>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Server")
    }
}

impl Server {
    /// A server whose tasks run in `runtime`.
    pub(crate) fn new(chance: Arc<dyn Chance>, runtime: Handle) -> Arc<Self> {
        let inner = Inner {
            tables: Arc::default(),
            locks: BTreeMap::new(),
            next: 0,
            connections: CancellationToken::new(),
            is_down: false,
            stalled: None,
        };
        Arc::new(Self { inner: Mutex::new(inner), freed: Notify::new(), chance, runtime })
    }

    /// Cuts all connections. What is not committed is lost.
    pub(crate) fn cut(&self) {
        let mut inner = self.inner.lock();
        let cut = std::mem::take(&mut inner.connections);
        drop(inner);
        cut.cancel();
    }

    /// Takes no connections until [`Self::start`].
    pub(crate) fn stop(&self) {
        self.inner.lock().is_down = true;
        self.cut();
    }

    pub(crate) fn start(&self) {
        self.inner.lock().is_down = false;
    }

    /// All statements stand still until then.
    pub(crate) fn stall(&self, until: Instant) {
        self.inner.lock().stalled = Some(until);
    }

    /// Whether what is committed has the run.
    pub(crate) fn knows_run(&self, run: &RunKey) -> bool {
        let (name, tables) = (name(run), Arc::clone(&self.inner.lock().tables));
        tables.runs.values().any(|run| run.name == name)
    }

    /// Whether what is committed says that the run was refused to its app.
    pub(crate) fn refuses_run(&self, run: &RunKey) -> bool {
        let (name, tables) = (name(run), Arc::clone(&self.inner.lock().tables));
        let slots = tables.runs.iter().filter(|(_, run)| run.name == name).map(|(slot, _)| *slot);
        slots.into_iter().any(|slot| {
            let id = id_of(&Key::Run(Slot(slot.unsigned_abs())));
            let record = tables.records.get(&id);
            record.is_some_and(|row| {
                String::from_utf8_lossy(&row.value).contains(r#""refused":true"#)
            })
        })
    }

    /// Whether what is committed has the session.
    pub(crate) fn knows_session(&self, workspace: &str, session: &str) -> bool {
        let id = id_of(&Key::Session((workspace.into(), session.into())));
        self.inner.lock().tables.records.contains_key(&id)
    }

    /// What ends a new connection; `None`: it takes none.
    pub(super) fn connect(&self) -> Option<CancellationToken> {
        let inner = self.inner.lock();
        (!inner.is_down).then(|| inner.connections.clone())
    }

    /// Waits for `wait`, and until the server does not stand still.
    pub(super) async fn works_after(&self, wait: Duration) {
        sleep(wait).await;
        loop {
            let until = self.inner.lock().stalled.take_if(|until| *until > Instant::now());
            let Some(until) = until else { return };
            self.inner.lock().stalled = Some(until);
            sleep_until(until).await;
        }
    }

    /// Begins a statement, with its snapshot.
    pub(super) fn begin(self: &Arc<Self>, of: usize, what: &'static str) -> Tx {
        let mut inner = self.inner.lock();
        inner.next += 1;
        let (id, snapshot) = (inner.next, Arc::clone(&inner.tables));
        drop(inner);
        let server = Arc::clone(self);
        Tx { server, id, of, what, snapshot, planning: Duration::ZERO, writes: Vec::new() }
    }
}

type Write = Box<dyn FnOnce(&mut Tables) + Send>;

/// A statement, which is a transaction. Dropping it aborts it.
pub(super) struct Tx {
    server: Arc<Server>,
    id: u64,
    of: usize,
    what: &'static str,
    pub(super) snapshot: Arc<Tables>,
    /// The time before its first lock.
    pub(super) planning: Duration,
    writes: Vec<Write>,
}

impl Drop for Tx {
    fn drop(&mut self) {
        let id = self.id;
        self.server.inner.lock().locks.retain(|_, holders| {
            holders.shared.remove(&id);
            holders.exclusive.take_if(|holder| *holder == id);
            !holders.shared.is_empty() || holders.exclusive.is_some()
        });
        self.server.freed.notify_waiters();
    }
}

impl Tx {
    /// What is committed now, as a statement sees a row that it has locked.
    pub(super) fn latest(&self) -> Arc<Tables> {
        Arc::clone(&self.server.inner.lock().tables)
    }

    /// Waits for the lock of a row.
    pub(super) async fn lock(&mut self, lock: Lock, is_exclusive: bool) {
        let planning = std::mem::take(&mut self.planning);
        if !planning.is_zero() {
            sleep(planning).await;
        }
        let mut waits = false;
        loop {
            let freed = self.server.freed.notified();
            if self.try_lock(lock.clone(), is_exclusive) {
                return;
            }
            if !std::mem::replace(&mut waits, true) {
                self.step(&format!("waits for {}", lock.kind()));
            }
            freed.await;
        }
    }

    pub(super) fn try_lock(&self, lock: Lock, is_exclusive: bool) -> bool {
        let mut inner = self.server.inner.lock();
        inner.locks.entry(lock).or_default().take(self.id, is_exclusive)
    }

    /// Whether another statement has changed or is about to change the row.
    pub(super) fn is_changing(&self, lock: &Lock) -> bool {
        let inner = self.server.inner.lock();
        let holder = inner.locks.get(lock).and_then(|holders| holders.exclusive);
        holder.is_some_and(|holder| holder != self.id)
    }

    /// Waits until some other statement has ended.
    pub(super) async fn wait(&mut self) {
        self.server.freed.notified().await;
    }

    pub(super) fn write(&mut self, write: impl FnOnce(&mut Tables) + Send + 'static) {
        self.writes.push(Box::new(write));
    }

    pub(super) fn now(&self) -> SystemTime {
        self.server.chance.now()
    }

    /// Notes something on the trace.
    pub(super) fn step(&self, what: &str) {
        self.server.chance.step(format!("database: {} of {} {what}", self.what, self.of));
    }

    pub(super) fn commit(mut self) {
        if self.writes.is_empty() {
            return;
        }
        let writes = std::mem::take(&mut self.writes);
        let mut inner = self.server.inner.lock();
        let tables = Arc::make_mut(&mut inner.tables);
        writes.into_iter().for_each(|write| write(tables));
        drop(inner);
        if !matches!(self.what, "beat" | "write_file") {
            self.step("is committed");
        }
    }
}

impl Lock {
    fn kind(&self) -> &'static str {
        match self {
            Self::Replica(_) => "a replica",
            Self::Heartbeat(_) => "a heartbeat",
            Self::Run(_) | Self::Name(_) => "a run",
            Self::Record(_) => "a record",
            Self::Claim(_) => "a claim",
            Self::File(_) => "a file",
            Self::Approval(_) => "an approval",
            Self::Notice(_) => "a notice",
            Self::Cancellation(_) => "a cancellation",
        }
    }
}

/// A row of `record` that a batch brings.
#[derive(Debug, Clone)]
pub(super) struct Given {
    pub(super) id: Id,
    pub(super) call: Id,
    pub(super) dispatches: bool,
    pub(super) claim: Option<Id>,
    pub(super) is_owners: bool,
    pub(super) row: RecordRow,
}

/// The values of a write.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// Its number, its name, what it needs, and the record of its owner.
    pub(super) begun: Vec<(i64, Id, Vec<String>, Option<Id>)>,
    pub(super) owned: Vec<(i64, i64)>,
    pub(super) released: BTreeSet<i64>,
    pub(super) ended: BTreeSet<i64>,
    pub(super) forgotten: BTreeSet<i64>,
    pub(super) gone: BTreeSet<Id>,
    pub(super) cleared: BTreeSet<i64>,
    pub(super) kept: Vec<Given>,
    pub(super) first: Vec<Given>,
}

pub(super) fn number(slot: u64) -> i64 {
    i64::try_from(slot).expect("slots are small")
}

impl Batch {
    pub(super) fn new(rows: &Rows) -> Self {
        let numbers = |slots: &BTreeSet<Slot>| slots.iter().map(|slot| number(slot.0)).collect();
        let given = |rows: &BTreeMap<RowKey, Row>| {
            let one = |(key, row): (&RowKey, &Row)| {
                Some(Given {
                    id: id(key),
                    call: id(&call_of(key)),
                    dispatches: row.attempts.is_some_and(|(_, dispatches)| dispatches),
                    claim: row.claim,
                    is_owners: row.from_owner_only,
                    row: RecordRow {
                        key: key.clone(),
                        kind: kind(key).to_owned(),
                        run: row.run.map(|slot| number(slot.0)),
                        holder: None,
                        attempts: row.attempts.map(|(count, _)| count),
                        value: row.value.clone()?.into(),
                    },
                })
            };
            let mut given: Vec<Given> = rows.iter().filter_map(one).collect();
            given.sort_by_key(|given| given.id);
            given
        };
        let needs = |needs: &str| match needs {
            "" => Vec::new(),
            needs => needs.split(',').map(str::to_owned).collect(),
        };
        let begun = rows.new_runs.iter();
        let gone = rows.records.iter().filter(|(_, row)| row.value.is_none());
        Self {
            begun: begun
                .map(|(slot, it)| (number(slot.0), it.name, needs(&it.needs), it.owner))
                .collect(),
            owned: rows.owned.iter().map(|(slot, epoch)| (number(slot.0), *epoch)).collect(),
            released: numbers(&rows.released),
            ended: numbers(&rows.ended),
            forgotten: numbers(&rows.forgotten),
            gone: gone.map(|(key, _)| id(key)).collect(),
            cleared: numbers(&rows.cleared),
            kept: given(&rows.records),
            first: given(&rows.first),
        }
    }
}
