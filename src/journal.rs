//! The journal: the file of what must outlive the process. A run, each stage of its calls, and
//! sessions are on disk before the bridge does anything that relies on them.
//!
//! One caller or the journal's thread writes at a time ([`desk`]). It takes all changes that wait,
//! and writes them as one batch with one sync: the more calls there are, the more of them share one
//! sync. Changes are written in the order in which they were given, so that the file always shows
//! the state of some moment.
//!
//! If the disk fails, nothing new is recorded, so no call is made. Changes that no caller has to
//! take back are kept in memory, and written first when the disk works again.
//!
//! docs/design/journal.md says what it is not, and how it came about; docs/design/records.md, what
//! one version does with the records of another.
//!
//! Must not: know what a record is for.

mod batch;
mod desk;
mod frames;
#[cfg(fuzzing)]
pub mod fuzzing;
mod health;
mod live;
mod lock;
mod losses;
mod postgres;
#[cfg(test)]
pub(crate) use self::postgres::tests::simulated::{Chance, Fate, Server};
pub mod record;
mod reserve;
pub mod room;
mod store;
mod writer;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{io, thread};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::runtime;
use tokio::sync::mpsc::Receiver;
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::error;

use self::batch::{Job, Waiter};
use self::desk::{Desk, FAST};
pub use self::health::Health;
use self::health::{NOT_ASKED, QUEUE_BYTES, Shared};
use self::lock::Lock;
pub use self::postgres::{
    DatabaseError, Event, Keeper, Postgres, Replica, SharedApproval, SharedFile, probe,
};
use self::record::{
    CallKey, Change, ConversationRecord, LossRecord, RequestKey, RequestRecord, Slot, StoredRecords,
};
pub use self::store::StoreError;
use self::writer::Writer;
use crate::model::moment::Moment;
use crate::{clock, metrics};

/// About how many bytes a change takes beside the parts that may be large.
const CHANGE: usize = 256;
/// How long a caller waits for a database that is away.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often a caller looks whether a database that is away has come back.
const AGAIN: Duration = Duration::from_millis(200);
/// How often the thread tries again to write after a failure.
const RETRY: Duration = Duration::from_secs(2);
/// The size above which the journal forgets ended runs and conversations, in bytes. If that does
/// not help, no calls are made.
pub const MAX_SIZE: usize = 64 << 20;

/// The journal. Dropping it ends its thread after the changes that were given to it.
#[derive(Debug)]
pub struct Journal {
    jobs: mpsc::Sender<Job>,
    shared: Arc<Shared>,
    /// The latest wall-clock time that the file of an earlier process has.
    noted: AtomicU64,
    /// Gets what the file keeps, if that could not be read at the start.
    late: Mutex<Option<oneshot::Receiver<Box<StoredRecords>>>>,
    /// The conversations with agents that an earlier process has left in the file.
    conversations: Mutex<Vec<(String, ConversationRecord)>>,
    place: Place,
    writer: Mutex<Option<JoinHandle<()>>>,
    /// Of a replica; a file is locked by its writer.
    lock: Option<Lock>,
}

/// Where the records are.
#[derive(Debug)]
enum Place {
    /// Without a desk, a simulation writes.
    File(Option<Arc<Desk>>),
    Database(Arc<Replica>),
}

/// Which answer to a call is to be posted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeptAnswer {
    /// The one that was given: it is the call's first.
    First,
    /// This one, which the call has already; the replica that gave it may not post it.
    Superseded(Bytes),
    /// None: another replica posts one, or the next process does.
    NotOurs,
}

/// The changes were not written, and will not be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotWritten {
    #[error("the journal cannot be written")]
    Failed,
    /// Another driver has the run, or sends the call.
    #[error("another replica drives the run")]
    Taken,
}

/// Whether `change` refuses a call that the driver of another run may send.
fn is_claimed_refusal(change: &Change) -> bool {
    matches!(change, Change::Call(_, call) if call.claim_of_refusal().is_some())
}

fn weight(changes: &[Change]) -> usize {
    changes.iter().map(|change| CHANGE + change.weight()).sum()
}

impl Journal {
    /// Opens the journal at `path`, and reads its contents. `has_run`: the bridge has run here
    /// before, so a missing journal was lost.
    ///
    /// If the file is damaged, its intact records are used, calls count as dispatched, and the file
    /// is set aside; [`Self::lost`] says what was lost.
    ///
    /// # Errors
    ///
    /// Another bridge has the journal open, a later version wrote it, or something else than a file
    /// has its place. A disk that fails is no error: the thread tries again, as it does later on.
    /// What it then reads comes by [`Self::late`].
    pub fn open(path: &Path, has_run: bool) -> Result<(Self, StoredRecords), StoreError> {
        Self::open_bounded(path, has_run, reserve::size_limit(path))
    }

    fn open_bounded(
        path: &Path,
        has_run: bool,
        max_size: u64,
    ) -> Result<(Self, StoredRecords), StoreError> {
        let shared: Arc<Shared> = Arc::default();
        let (writer, past) = Writer::open(path, has_run, max_size, Arc::clone(&shared))?;
        let (jobs, queue) = mpsc::channel();
        let mut this = Self::new(jobs, shared, Place::File(None));
        let mut records = past.unwrap_or_else(|late| {
            *this.late.lock() = Some(late);
            // Numbers of runs that the file cannot have.
            StoredRecords { last_slot: clock::millis(), ..StoredRecords::default() }
        });
        this.take_in(&mut records);
        #[cfg(test)]
        if let Some(world) = crate::simulated::world() {
            crate::simulated::spawn_writer(writer.run_in(world, queue));
            return Ok((this, records));
        }
        let desk = Arc::new(Desk::new(writer, queue, FAST));
        this.place = Place::File(Some(Arc::clone(&desk)));
        this.writer = spawn(move || desk.run())?;
        Ok((this, records))
    }

    fn new(jobs: mpsc::Sender<Job>, shared: Arc<Shared>, place: Place) -> Self {
        Self {
            jobs,
            shared,
            noted: AtomicU64::new(0),
            late: Mutex::default(),
            conversations: Mutex::default(),
            place,
            writer: Mutex::default(),
            lock: None,
        }
    }

    /// Gets what an earlier process has left once the disk can be read, unless it could be at the
    /// start.
    pub fn late(&self) -> Option<oneshot::Receiver<Box<StoredRecords>>> {
        self.late.lock().take()
    }

    /// Takes its part of what an earlier process has left.
    pub fn take_in(&self, kept: &mut StoredRecords) {
        self.noted.store(kept.noted, Ordering::Relaxed);
        self.conversations.lock().append(&mut kept.conversations);
    }

    /// The journal that this process shares with its replicas, which work for the MANTYX at
    /// `upstream`. It has no record before its [`Keeper`] runs and [`Event::Joined`] has come.
    ///
    /// # Errors
    ///
    /// Another bridge holds the lock of the journal that would be at `path`, or the thread cannot
    /// start.
    pub fn replicated(
        settings: Postgres,
        upstream: String,
        path: &Path,
    ) -> Result<(Self, Keeper, Receiver<Event>), StoreError> {
        let lock = Some(Lock::take(path, false)?);
        let shared: Arc<Shared> = Arc::default();
        let (replica, events) = Replica::new(settings, upstream, Arc::clone(&shared));
        let (jobs, queue) = mpsc::channel();
        let writer = postgres::Writer::new(Arc::clone(&replica));
        let keeper = Keeper::new(Arc::clone(&replica));
        let place = Place::Database(replica);
        let mut this = Self::new(jobs, shared, place);
        this.lock = lock;
        #[cfg(test)]
        if let Some(world) = crate::simulated::world() {
            crate::simulated::spawn_writer(writer.run_in(world, queue));
            return Ok((this, keeper, events));
        }
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        this.writer = runtime.and_then(|runtime| spawn(move || writer.run(&runtime, &queue)))?;
        Ok((this, keeper, events))
    }

    /// How long ago a moment of this process or an earlier one was. `None`: not known, as the clock
    /// was put back meanwhile.
    pub fn since(&self, moment: Moment) -> Option<Duration> {
        moment.until(clock::moment(), self.noted.load(Ordering::Relaxed))
    }

    /// The conversations that an earlier process has left in the file, for those ids that begin
    /// with `agent`. Each is handed out once: the caller then has its latest state.
    pub fn take_conversations(&self, agent: &str) -> Vec<(String, ConversationRecord)> {
        self.conversations.lock().extract_if(.., |(id, _)| id.starts_with(agent)).collect()
    }

    /// What the journal has lost, unless that was long ago.
    pub fn lost(&self) -> Option<LossRecord> {
        let noted = self.noted.load(Ordering::Relaxed);
        self.health().lost.filter(|loss| loss.matters(clock::moment(), noted))
    }

    /// Takes a loss into account that the records of other replicas show. It is not written: each
    /// replica finds it by itself.
    pub fn heed_loss(&self, loss: LossRecord) {
        let mut health = self.shared.health.lock();
        let losses = health.lost.take().into_iter().chain([loss]);
        health.lost = losses.max_by_key(|loss| loss.at);
    }

    /// Notes a loss that is not damage to the file. `what` describes it for people.
    pub fn note_loss(&self, what: String) {
        let loss = LossRecord::now(what);
        self.shared.health.lock().lost = Some(loss.clone());
        self.write(vec![Change::Lost(loss)]);
    }

    /// Has `changes` written soon, after all that were given before, without waiting for it.
    pub fn write(&self, changes: Vec<Change>) {
        // Without a receiver, the daemon has stopped.
        self.give(changes, Waiter::Keep(None)).ok();
        if let Some(desk) = self.desk() {
            desk.soon();
        }
    }

    fn desk(&self) -> Option<&Desk> {
        match &self.place {
            Place::File(desk) => desk.as_deref(),
            Place::Database(_) => None,
        }
    }

    /// Has what was given written now, as the caller waits for it. Otherwise the thread would hold
    /// the changes back for some milliseconds.
    async fn write_now(&self) {
        Turn(self.desk()).take().await;
    }

    /// Queues `changes` for the writer. The order of these calls is the order in the file or the
    /// table. The count of [`Replica::regained`] is read here, not by the writer: by then, this
    /// replica may have lost the run and got it back, and a change of the driver before would count
    /// as one of today's.
    fn give(&self, changes: Vec<Change>, waiter: Waiter) -> Result<(), NotWritten> {
        let bytes = weight(&changes);
        self.shared.queue.add(bytes);
        #[cfg(test)]
        crate::simulated::world().iter().for_each(|world| world.disk_has_work());
        if let Some(desk) = self.desk() {
            desk.expect();
        }
        let regained = self.replica().map_or(0, Replica::regained);
        self.jobs.send(Job::Write { changes, waiter, regained }).map_err(|_stopped| {
            self.shared.queue.remove(bytes);
            NotWritten::Failed
        })
    }

    /// Waits while the thread's queue is full. Drivers can read runs faster than a slow disk
    /// writes, and each call may have arguments of megabytes: without this wait, the queue would
    /// take all memory.
    pub async fn wait_for_room(&self) {
        // `self` holds the sender, so that waiting cannot fail.
        drop(self.shared.queue.0.subscribe().wait_for(|queued| *queued < QUEUE_BYTES).await);
    }

    /// Writes `changes`, in the order in which this is called. When the future ends, they are on
    /// disk, with all changes that were given before.
    ///
    /// # Errors
    ///
    /// The changes were not written, and will not be.
    pub fn commit(
        &self,
        changes: Vec<Change>,
    ) -> impl Future<Output = Result<(), NotWritten>> + Send + use<'_> {
        let (done, outcome) = oneshot::channel();
        let queued = self.give(changes, Waiter::Commit(done));
        let turn = Turn(self.desk());
        async move {
            queued?;
            // Not before, as the caller may hold a lock until it waits.
            turn.take().await;
            self.patient(outcome).await.and_then(Result::ok).unwrap_or(Err(NotWritten::Failed))
        }
    }

    /// A database that is away may come back: its thread tries on, and the caller does not wait for
    /// ever. `None`: the caller has waited for long enough.
    ///
    /// A file has no such bound: its writer says that it failed, and a caller that gave up before
    /// would not know that its change is on disk.
    async fn patient<T>(&self, outcome: impl Future<Output = T>) -> Option<T> {
        match self.place {
            Place::File(..) => Some(outcome.await),
            Place::Database(_) => timeout(PATIENCE, outcome).await.ok(),
        }
    }

    /// [`Self::keep`] for the answer to the call `key`, for up to `within`. Says which answer is to
    /// be posted: MANTYX must not get two.
    ///
    /// A refusal that rests on a claim is not posted before the database has it: while the database
    /// is away, the driver of another run may send the call, and the model would hear that it was
    /// not made.
    ///
    /// Nothing is posted if the journal was closed before it had the answer: the next process
    /// answers the call by what the journal has.
    pub async fn keep_answer(
        &self,
        key: &CallKey,
        changes: Vec<Change>,
        within: Duration,
    ) -> KeptAnswer {
        let (done, is_first) = oneshot::channel();
        let needs_claim = changes.iter().any(is_claimed_refusal);
        // Without a receiver, `is_first` fails.
        self.give(changes, Waiter::First(done)).ok();
        let closing = &self.shared.closing;
        let Place::Database(replica) = &self.place else {
            self.write_now().await;
            let is_lost = is_first.await.is_err() && closing.is_cancelled();
            return if is_lost { KeptAnswer::NotOurs } else { KeptAnswer::First };
        };
        let deadline = Instant::now() + within;
        let first = match timeout(within, is_first).await {
            Ok(Ok(true)) => return KeptAnswer::First,
            Ok(Ok(false)) => timeout_at(deadline, replica.read_answer(key)).await.ok(),
            Ok(Err(_)) | Err(_) if needs_claim || closing.is_cancelled() => {
                return KeptAnswer::NotOurs;
            }
            Ok(Err(_)) | Err(_) => return KeptAnswer::First,
        };
        match first {
            // The replica that drives the run now posts that one.
            Some(Some(first)) if !first.is_empty() => KeptAnswer::Superseded(first),
            // MANTYX waits for none.
            Some(_) => KeptAnswer::NotOurs,
            None if needs_claim || closing.is_cancelled() || self.has_lost(key.slot) => {
                KeptAnswer::NotOurs
            }
            None => KeptAnswer::First,
        }
    }

    /// This process as a replica; `None`: the journal is a file.
    pub fn replica(&self) -> Option<&Replica> {
        match &self.place {
            Place::File(..) => None,
            Place::Database(replica) => Some(replica),
        }
    }

    /// Whether replicas share it, and their database does not answer.
    pub fn is_away(&self) -> bool {
        self.replica()
            .is_some_and(|replica| self.shared.health.lock().error.is_some() || !replica.is_heard())
    }

    /// Waits for a while for a database that is away; whether it answers.
    pub async fn wait_until_back(&self) -> bool {
        let back = async {
            while self.is_away() {
                sleep(AGAIN).await;
            }
        };
        timeout(PATIENCE, back).await.is_ok()
    }

    /// Whether another replica drives the run. Where the database does not say which answer to a
    /// call is the first, that of the driver here is then not posted: the other driver speaks for
    /// the call.
    pub fn has_lost(&self, run: Slot) -> bool {
        self.replica().is_some_and(|replica| replica.has_lost(run))
    }

    /// Records a new request with an `Idempotency-Key`. Returns the request that another replica
    /// has recorded under this key.
    ///
    /// # Errors
    ///
    /// It could not be written, and will not be.
    pub async fn begin(
        &self,
        key: &RequestKey,
        record: &RequestRecord,
    ) -> Result<Option<RequestRecord>, NotWritten> {
        let changes = vec![Change::Begin(key.clone(), record.clone())];
        let Place::Database(replica) = &self.place else {
            return self.commit(changes).await.map(|()| None);
        };
        let (done, is_first) = oneshot::channel();
        self.give(changes, Waiter::First(done))?;
        match self.patient(is_first).await {
            Some(Ok(true)) => Ok(None),
            Some(Ok(false)) => {
                let first = replica.request(key).await.ok().flatten().ok_or(NotWritten::Failed)?;
                // A write that was in doubt was repeated: it was this one.
                Ok(Some(first).filter(|first| first.nonce != record.nonce))
            }
            _ => Err(NotWritten::Failed),
        }
    }

    /// Waits until all changes that were given before are written, however long that takes, or the
    /// journal is closed.
    pub async fn flushed(&self) {
        let (done, settled) = oneshot::channel();
        if self.give(Vec::new(), Waiter::Keep(Some(done))).is_ok() {
            self.write_now().await;
            settled.await.ok();
        }
    }

    /// Whether a call may be sent now: no other process can have taken over its run. To be asked
    /// right before the sending: the lease may run out while a caller waits for anything.
    pub fn may_dispatch(&self) -> bool {
        self.replica().is_none_or(Replica::holds_lease)
    }

    /// Writes `changes`. When this returns, they are on disk, with all changes that were given
    /// before; or the disk fails, and the journal keeps them to write them when it works again.
    ///
    /// `false`: a database is away, and the caller has waited for long enough.
    pub async fn keep(&self, changes: Vec<Change>) -> bool {
        let (done, settled) = oneshot::channel();
        let queued = self.give(changes, Waiter::Keep(Some(done)));
        self.write_now().await;
        queued.is_err() || self.patient(settled).await.is_some()
    }

    /// The kept answer to this call. `None`: there is none, or it cannot be read.
    pub async fn answer(&self, key: &CallKey) -> Option<Bytes> {
        if let Place::Database(replica) = &self.place {
            return replica.answer(key).await;
        }
        // By then the writer has all changes that were given before.
        let (done, answer) = oneshot::channel();
        self.give(Vec::new(), Waiter::Answer(key.clone(), done)).ok()?;
        self.write_now().await;
        answer.await.ok()?
    }

    /// Whether the thread lives, and comes to what is given. A disk that fails does not end it.
    pub async fn writer_responds(&self) -> bool {
        if let Place::Database(_) = self.place {
            // The thread may be waiting for the database.
            return self.thread_runs();
        }
        let (done, passed) = oneshot::channel();
        let queued = self.give(Vec::new(), Waiter::Commit(done)).is_ok();
        self.write_now().await;
        queued && passed.await.is_ok() && (self.desk().is_none() || self.thread_runs())
    }

    fn thread_runs(&self) -> bool {
        self.writer.lock().as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// The metrics of its writes.
    pub fn metrics(&self) -> &metrics::Journal {
        &self.shared.metrics
    }

    pub fn health(&self) -> Health {
        self.shared.health.lock().clone()
    }

    /// Whether the disk works and the file has room, so that something new may begin. A commit to a
    /// database waits for it.
    pub fn is_open(&self) -> bool {
        self.replica().is_some() || self.shared.health.lock().error.is_none()
    }

    /// Whether the disk fails, so that a restart would lose what is given now. A commit to a
    /// database tells its own caller.
    pub fn disk_fails(&self) -> bool {
        let health = self.shared.health.lock();
        self.replica().is_none() && health.error.is_some() && !health.is_full
    }

    /// Writes all changes that were given, and ends the thread. Blocks the caller.
    pub fn close(&self) {
        self.shared.closing.cancel();
        match self.desk() {
            Some(desk) => desk.stop(),
            None => drop(self.jobs.send(Job::Stop)),
        }
        if let Some(writer) = self.writer.lock().take()
            && writer.join().is_err()
        {
            error!("the journal's thread panicked");
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        if let Some(desk) = self.desk() {
            desk.stop();
        }
    }
}

/// Has what was given written when this is dropped, also if the caller is: a change whose caller
/// was cancelled would otherwise wait for the next commit.
struct Turn<'a>(Option<&'a Desk>);

impl Turn<'_> {
    /// Other tasks that are ready give their changes first, so that they share the sync.
    async fn take(self) {
        if self.0.is_some() {
            yield_now().await;
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(desk) = self.0 {
            desk.now();
        }
    }
}

fn spawn(work: impl FnOnce() + Send + 'static) -> io::Result<Mutex<Option<JoinHandle<()>>>> {
    Ok(Mutex::new(Some(thread::Builder::new().name("journal".to_owned()).spawn(work)?)))
}

#[cfg(test)]
mod tests;
