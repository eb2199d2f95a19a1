//! The journal: what must outlive the process. A run, each stage of its calls, and sessions are on
//! disk before anything is done that relies on them.
//!
//! One thread writes. It takes all changes that wait, writes them as one, and tells those who wait
//! for it: the more calls there are, the more share one sync. Changes are written in the order in
//! which they were given, so what is on disk is always how things stood at some moment.
//!
//! Where the disk fails, nothing new is recorded and so no call is made; what was not waited for is
//! kept, and written first when the disk is back.
//!
//! Must not: know what a record is for.

mod frames;
#[cfg(fuzzing)]
pub mod fuzzing;
mod live;
pub mod record;
mod store;

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{self, RecvTimeoutError},
    },
    thread::{self, JoinHandle},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::{sync::oneshot, time::Instant};
use tracing::{error, info, warn};

pub use self::store::StoreError;
use self::{
    record::{Change, Kept, Millis, Slot},
    store::Store,
};
use crate::metrics;

/// The most changes that are written as one, and about the most bytes.
const BATCH: usize = 1_000;
const BATCH_BYTES: usize = 1 << 20;
/// The most changes that nobody waits for that are kept while the disk fails.
const BACKLOG: usize = 10_000;
/// How long what nobody waits for may be held back. What a crash takes with it is done again: an
/// answer that MANTYX has taken is sent to it once more.
const SOON: Duration = Duration::from_millis(1);
/// How often a file that failed is tried again.
const RETRY: Duration = Duration::from_secs(2);
/// The largest file. Beyond it, ended runs are forgotten; if that does not help, no calls are made.
const MAX_SIZE: u64 = 64 << 20;
/// How often room is made in a file that is too large.
const ROOM_EVERY: Duration = Duration::from_secs(3);

/// The journal. Dropping it ends its thread after what was given to it.
#[derive(Debug)]
pub struct Journal {
    jobs: mpsc::Sender<Job>,
    health: Arc<Mutex<Health>>,
    metrics: Arc<metrics::Journal>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

/// How the journal is doing.
#[derive(Debug, Clone, Default)]
pub struct Health {
    /// For operators: why nothing can be written at the moment.
    pub error: Option<String>,
    /// The size of the file.
    pub bytes: u64,
}

/// The changes could not be written, and will not be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the journal cannot be written")]
pub struct NotWritten;

/// The journal cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot use the journal {path}")]
pub struct OpenError {
    path: PathBuf,
    source: StoreError,
}

enum Job {
    Write { changes: Vec<Change>, done: Option<oneshot::Sender<Result<(), NotWritten>>> },
    Stop,
}

impl Journal {
    /// Opens the journal at `path`, and reads what it has. A damaged file is set aside and told.
    ///
    /// # Errors
    ///
    /// Another bridge has it open, a later version wrote it, or it cannot be read. One that cannot be
    /// written is tried again, as later on.
    pub fn open(path: &Path) -> Result<(Self, Kept), OpenError> {
        Self::open_bounded(path, MAX_SIZE)
    }

    fn open_bounded(path: &Path, max_size: u64) -> Result<(Self, Kept), OpenError> {
        let failed = |source| OpenError { path: path.to_owned(), source };
        let lock = store::lock(path).map_err(failed)?;
        let (kept, store) = match Store::open(path) {
            Err(StoreError::Damaged(why)) => {
                let aside = set_aside(path).map_err(|error| failed(error.into()))?;
                error!(
                    why, aside = %aside.display(),
                    "the journal is damaged and was set aside; the runs in it are not taken up, \
                     and calls that were under way stay unanswered"
                );
                Store::open(path)
            }
            opened => opened,
        }
        .map_err(failed)?;
        let health = Arc::new(Mutex::new(Health::default()));
        let metrics: Arc<metrics::Journal> = Arc::default();
        let (jobs, given) = mpsc::channel();
        let mut writer = Writer {
            path: path.to_owned(),
            store: None,
            health: Arc::clone(&health),
            metrics: Arc::clone(&metrics),
            backlog: Vec::new(),
            max_size,
            room_made: None,
            _lock: lock,
        };
        writer.begin(store);
        let thread = thread::Builder::new()
            .name("journal".to_owned())
            .spawn(move || writer.run(&given))
            .map_err(|error| failed(error.into()))?;
        Ok((Self { jobs, health, metrics, writer: Mutex::new(Some(thread)) }, kept))
    }

    /// Has `changes` written some time soon, after all that were given before.
    pub fn write(&self, changes: Vec<Change>) {
        // Without a receiver the daemon has stopped.
        drop(self.jobs.send(Job::Write { changes, done: None }));
    }

    /// Writes `changes`; when it returns, they are on disk, and so is all that was given before.
    pub async fn commit(&self, changes: Vec<Change>) -> Result<(), NotWritten> {
        let (done, written) = oneshot::channel();
        let job = Job::Write { changes, done: Some(done) };
        self.jobs.send(job).map_err(|_stopped| NotWritten)?;
        written.await.unwrap_or(Err(NotWritten))
    }

    /// Whether the thread lives; known when it comes by. A disk that fails does not end it.
    pub async fn lives(&self) -> bool {
        let (done, passed) = oneshot::channel();
        let job = Job::Write { changes: Vec::new(), done: Some(done) };
        self.jobs.send(job).is_ok() && passed.await.is_ok()
    }

    /// What is counted of its writes.
    pub fn metrics(&self) -> &metrics::Journal {
        &self.metrics
    }

    pub fn health(&self) -> Health {
        lock(&self.health).clone()
    }

    /// Whether there is room and the disk works, so that something new may be begun.
    pub fn is_open(&self) -> bool {
        lock(&self.health).error.is_none()
    }

    /// Writes what was given, and ends. Blocks the thread.
    pub fn close(&self) {
        drop(self.jobs.send(Job::Stop));
        if let Some(writer) = lock(&self.writer).take()
            && writer.join().is_err()
        {
            error!("the journal's thread panicked");
        }
    }
}

/// The wall clock.
pub fn now() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(Millis::MAX)
}

/// The wall clock's reading as a time.
pub fn time(at: Millis) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(at)
}

fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let aside = path.with_extension(format!("damaged-{}", now()));
    fs::rename(path, &aside)?;
    Ok(aside)
}

/// The thread's side.
struct Writer {
    path: PathBuf,
    /// `None` while the disk fails.
    store: Option<Store>,
    health: Arc<Mutex<Health>>,
    metrics: Arc<metrics::Journal>,
    /// What could not be written and nobody waits for.
    backlog: Vec<Change>,
    max_size: u64,
    /// When room was last made.
    room_made: Option<Instant>,
    _lock: File,
}

impl Writer {
    fn run(mut self, given: &mpsc::Receiver<Job>) {
        loop {
            let Batch { changes, waiting, stop, .. } = match gather(given) {
                Ok(batch) => batch,
                Err(Disconnected) => return,
            };
            let written = self.write(&changes);
            if written.is_err() {
                self.keep(changes, &waiting);
            }
            for done in waiting.into_iter().filter_map(|(_, done)| done) {
                // Who does not wait any more does not mind.
                done.send(written).ok();
            }
            if stop {
                return;
            }
            self.look_at_size();
        }
    }

    fn begin(&mut self, store: Result<Store, StoreError>) {
        match store {
            Ok(store) => self.store = Some(store),
            Err(error) => self.fail(&error),
        }
        self.look_at_size();
    }

    /// Writes what is left over and then `changes`.
    fn write(&mut self, changes: &[Change]) -> Result<(), NotWritten> {
        if self.store.is_none() && !self.reopen() {
            return Err(NotWritten);
        }
        let Some(store) = &mut self.store else { return Err(NotWritten) };
        if changes.is_empty() && self.backlog.is_empty() {
            return Ok(());
        }
        let begun = Instant::now();
        match store.apply(self.backlog.iter().chain(changes)) {
            Ok(()) => {
                self.metrics.commits.observe(begun.elapsed());
                self.backlog.clear();
                Ok(())
            }
            Err(error) => {
                self.fail(&error);
                Err(NotWritten)
            }
        }
    }

    /// Keeps those of `changes` that nobody waits for.
    fn keep(&mut self, changes: Vec<Change>, waiting: &[Waiting]) {
        let mut changes = changes.into_iter();
        for (range, done) in waiting {
            let own = changes.by_ref().take(range.len());
            match done {
                Some(_) => own.for_each(drop),
                None => self.backlog.extend(own),
            }
        }
        if self.backlog.len() > BACKLOG {
            let over = self.backlog.len() - BACKLOG;
            error!(over, "the journal could not be written for long; changes are lost");
            self.backlog.drain(..over);
        }
    }

    fn fail(&mut self, error: &StoreError) {
        let why = crate::http_client::chain(error);
        error!(why, "the journal cannot be written; no calls are made until it can");
        lock(&self.health).error = Some(why);
        self.metrics.errors.inc();
        self.store = None;
    }

    fn reopen(&mut self) -> bool {
        match Store::renew(&self.path) {
            Ok(store) => {
                info!("the journal can be written again");
                *lock(&self.health) = Health { error: None, bytes: store.size() };
                self.store = Some(store);
                true
            }
            Err(error) => {
                let why = crate::http_client::chain(&error);
                lock(&self.health).error = Some(why);
                self.metrics.errors.inc();
                false
            }
        }
    }

    fn look_at_size(&mut self) {
        let Some(store) = &self.store else { return };
        let due = self.room_made.is_none_or(|at| at.elapsed() > ROOM_EVERY);
        if store.is_wasteful() || (store.size() > self.max_size && due) {
            self.room_made = Some(Instant::now());
            if let Err(error) = self.make_room() {
                return self.fail(&error);
            }
        }
        let bytes = self.store.as_ref().map_or(0, Store::size);
        let full = (bytes > self.max_size).then(|| format!("the journal is full: {bytes} bytes"));
        *lock(&self.health) = Health { error: full, bytes };
    }

    /// Gives back the room of what is not kept any more; if that is not enough, forgets ended runs,
    /// the older half first.
    fn make_room(&mut self) -> Result<(), StoreError> {
        loop {
            let mut store = Store::renew(&self.path)?;
            let bytes = store.size();
            let forget =
                if bytes > self.max_size { self.older_half_of_the_ended()? } else { Vec::new() };
            if forget.is_empty() {
                if bytes > self.max_size {
                    warn!(bytes, "the journal is full; no calls are made until answers are posted");
                }
                self.store = Some(store);
                return Ok(());
            }
            info!(runs = forget.len(), "the journal is large; ended runs are forgotten");
            store.apply(forget.iter())?;
        }
    }

    fn older_half_of_the_ended(&self) -> Result<Vec<Change>, StoreError> {
        let kept = store::read(&self.path)?;
        let ended = kept.runs.iter().filter_map(|run| Some((run.record.ended_at?, run.slot)));
        let mut ended: Vec<(Millis, Slot)> = ended.collect();
        ended.sort_unstable();
        ended.truncate(ended.len().div_ceil(2));
        Ok(ended.into_iter().map(|(_, slot)| Change::ForgetRun(slot)).collect())
    }
}

/// What is written at once.
#[derive(Default)]
struct Batch {
    changes: Vec<Change>,
    waiting: Vec<Waiting>,
    weight: usize,
    stop: bool,
}

impl Batch {
    fn add(&mut self, job: Job) {
        match job {
            Job::Stop => self.stop = true,
            Job::Write { changes, done } => {
                let first = self.changes.len();
                self.waiting.push((first..first + changes.len(), done));
                self.weight += changes.iter().map(Change::weight).sum::<usize>();
                self.changes.extend(changes);
            }
        }
    }

    fn is_full(&self) -> bool {
        self.stop || self.changes.len() >= BATCH || self.weight >= BATCH_BYTES
    }

    fn is_waited_for(&self) -> bool {
        self.waiting.iter().any(|(_, done)| done.is_some())
    }
}

/// Waits for something to do, and takes all that there is; nothing after a while. What nobody waits
/// for is held back for a moment, as it can share the sync of what somebody does.
fn gather(given: &mpsc::Receiver<Job>) -> Result<Batch, Disconnected> {
    let mut batch = Batch::default();
    let mut next = match given.recv_timeout(RETRY) {
        Ok(job) => Some(job),
        Err(RecvTimeoutError::Timeout) => None,
        Err(RecvTimeoutError::Disconnected) => return Err(Disconnected),
    };
    let until = Instant::now() + SOON;
    while let Some(job) = next {
        batch.add(job);
        if batch.is_full() {
            break;
        }
        next = if batch.is_waited_for() {
            given.try_recv().ok()
        } else {
            given.recv_timeout(until.saturating_duration_since(Instant::now())).ok()
        };
    }
    Ok(batch)
}

/// Whoever gave something to do is gone.
struct Disconnected;

/// The changes that somebody gave at once, and whether he waits.
type Waiting = (std::ops::Range<usize>, Option<oneshot::Sender<Result<(), NotWritten>>>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
