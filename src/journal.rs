//! The journal: what must outlive the process. A run, each stage of its calls, and sessions are on
//! disk before anything is done that relies on them.
//!
//! One thread writes. It takes all changes that wait, writes them in one transaction, and tells
//! those who wait for it: the more calls there are, the more share one fsync. Changes are written in
//! the order in which they were given, so what is on disk is always how things stood at some moment.
//!
//! Where the disk fails, nothing new is recorded and so no call is made; what was not waited for is
//! kept, and written first when the disk is back.
//!
//! Must not: know what a record is for.

pub mod record;
mod store;

use std::{
    fs,
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
    record::{Change, Kept, Millis},
    store::Store,
};
use crate::metrics;

/// The most changes that one transaction takes.
const BATCH: usize = 1_000;
/// The most changes that nobody waits for that are kept while the disk fails.
const BACKLOG: usize = 10_000;
/// How often a file that failed is tried again.
const RETRY: Duration = Duration::from_secs(2);
/// The largest file. Beyond it, ended runs are forgotten; if that does not help, no calls are made.
const MAX_SIZE: u64 = 64 << 20;
/// How often room is looked for in a file that is too large.
const SHRINK_EVERY: Duration = Duration::from_secs(3);

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
    /// Another bridge has it open, a later version wrote it, or the disk refuses.
    pub fn open(path: &Path) -> Result<(Self, Kept), OpenError> {
        Self::open_bounded(path, MAX_SIZE)
    }

    fn open_bounded(path: &Path, max_size: u64) -> Result<(Self, Kept), OpenError> {
        let failed = |source| OpenError { path: path.to_owned(), source };
        let (store, kept) = match open(path) {
            Ok(opened) => opened,
            Err(StoreError::Damaged(why)) => {
                let aside = set_aside(path).map_err(|error| failed(error.into()))?;
                error!(
                    why, aside = %aside.display(),
                    "the journal is damaged and was set aside; the runs in it are not taken up, \
                     and calls that were under way stay unanswered"
                );
                open(path).map_err(failed)?
            }
            Err(error) => return Err(failed(error)),
        };
        let health = Arc::new(Mutex::new(Health { error: None, bytes: store.size() }));
        let metrics: Arc<metrics::Journal> = Arc::default();
        let (jobs, given) = mpsc::channel();
        let writer = Writer {
            path: path.to_owned(),
            store: Some(store),
            health: Arc::clone(&health),
            metrics: Arc::clone(&metrics),
            backlog: Vec::new(),
            max_size,
            shrunk: None,
        };
        let thread = thread::Builder::new()
            .name("journal".to_owned())
            .spawn(move || writer.run(&given))
            .map_err(|error| failed(redb::StorageError::Io(error).into()))?;
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

    /// What is counted of its transactions.
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

fn open(path: &Path) -> Result<(Store, Kept), StoreError> {
    // The store's reader may panic over a file that is damaged in a way that it did not expect.
    let opened = std::panic::catch_unwind(|| {
        let mut store = Store::open(path)?;
        let kept = store.read()?;
        store.tidy()?;
        Ok((store, kept))
    });
    opened.unwrap_or_else(|_panic| Err(StoreError::Damaged("reading it failed badly".to_owned())))
}

fn set_aside(path: &Path) -> Result<PathBuf, redb::StorageError> {
    let aside = path.with_extension(format!("damaged-{}", now()));
    fs::rename(path, &aside).map_err(redb::StorageError::Io)?;
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
    /// When room was last looked for.
    shrunk: Option<Instant>,
}

impl Writer {
    fn run(mut self, given: &mpsc::Receiver<Job>) {
        loop {
            let first = match given.recv_timeout(RETRY) {
                Ok(job) => Some(job),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let (mut changes, mut waiting, mut stop) = (Vec::new(), Vec::new(), false);
            let more = std::iter::from_fn(|| given.try_recv().ok());
            for job in first.into_iter().chain(more) {
                match job {
                    Job::Stop => stop = true,
                    Job::Write { changes: more, done } => {
                        waiting.push((changes.len()..changes.len() + more.len(), done));
                        changes.extend(more);
                    }
                }
                if stop || changes.len() >= BATCH {
                    break;
                }
            }
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
        }
    }

    /// Writes what is left over and then `changes`.
    fn write(&mut self, changes: &[Change]) -> Result<(), NotWritten> {
        if self.store.is_none() && !self.reopen() {
            return Err(NotWritten);
        }
        let Some(store) = &self.store else { return Err(NotWritten) };
        if changes.is_empty() && self.backlog.is_empty() {
            // A full file may have got room.
            self.look_at_size();
            return Ok(());
        }
        let mut all = std::mem::take(&mut self.backlog);
        let left = all.len();
        all.extend_from_slice(changes);
        let begun = Instant::now();
        match store.apply(&all) {
            Ok(()) => {
                self.metrics.commits.observe(begun.elapsed());
                self.look_at_size();
                Ok(())
            }
            Err(error) => {
                all.truncate(left);
                self.backlog = all;
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
        match Store::rewrite(&self.path) {
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
        let Some(store) = &mut self.store else { return };
        let mut bytes = store.size();
        let due = self.shrunk.is_none_or(|at| at.elapsed() > SHRINK_EVERY);
        if bytes > self.max_size && due {
            self.shrunk = Some(Instant::now());
            while bytes > self.max_size {
                match store.shrink() {
                    Ok(0) => break,
                    Ok(_) => bytes = store.size(),
                    Err(error) => return self.fail(&error),
                }
            }
            if bytes > self.max_size {
                warn!(bytes, "the journal is full; no calls are made until answers are posted");
            }
        }
        let full = (bytes > self.max_size).then(|| format!("the journal is full: {bytes} bytes"));
        *lock(&self.health) = Health { error: full, bytes };
    }
}

/// The changes that somebody gave at once, and whether he waits.
type Waiting = (std::ops::Range<usize>, Option<oneshot::Sender<Result<(), NotWritten>>>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
