//! The jobs of the journal's thread, and how it gathers them into one write.
//!
//! Must not: write.

use std::sync::mpsc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::record::{CallKey, Change};
use super::{NotWritten, RETRY, weight};

/// The most changes in one batch, and about the most bytes.
const BATCH: usize = 1_000;
pub(super) const BATCH_BYTES: usize = 1 << 20;
/// How long changes without a waiting caller may be held back. The work that a crash takes with
/// them is repeated: an answer that MANTYX has taken is posted to it once more.
pub(super) const SOON: Duration = Duration::from_millis(1);

/// What the thread is asked for.
pub(super) enum Job {
    /// `regained`: how often this replica had got runs from others by then.
    Write {
        changes: Vec<Change>,
        waiter: Waiter,
        regained: u64,
    },
    Stop,
}

/// The changes that are written at once.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) changes: Vec<Change>,
    pub(super) waiting: Vec<Waiting>,
    pub(super) weight: usize,
    pub(super) stop: bool,
}

impl Batch {
    pub(super) fn add(&mut self, job: Job) {
        match job {
            Job::Stop => self.stop = true,
            Job::Write { changes, waiter, regained } => {
                let first = self.changes.len();
                self.waiting.push((first..first + changes.len(), waiter, regained));
                self.weight += weight(&changes);
                self.changes.extend(changes);
            }
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.stop || self.changes.len() >= BATCH || self.weight >= BATCH_BYTES
    }
}

/// Waits for changes, and takes all that there are; an empty batch after [`RETRY`]. Changes that no
/// caller waits for are held back for [`SOON`], so that they can share the sync of a commit. `None`:
/// all senders are gone.
pub(super) fn gather(given: &mpsc::Receiver<Job>) -> Option<Batch> {
    let mut batch = Batch::default();
    let mut next = match given.recv_timeout(RETRY) {
        Ok(job) => Some(job),
        Err(RecvTimeoutError::Timeout) => None,
        Err(RecvTimeoutError::Disconnected) => return None,
    };
    let until = Instant::now() + SOON;
    while let Some(job) = next {
        batch.add(job);
        if batch.is_full() {
            break;
        }
        let is_waited_for = |(_, waiter, _): &Waiting| !matches!(waiter, Waiter::Kept(None));
        next = if batch.waiting.iter().any(is_waited_for) {
            given.try_recv().ok()
        } else {
            given.recv_timeout(until.saturating_duration_since(Instant::now())).ok()
        };
    }
    Some(batch)
}

/// The range of changes that were given together, who waits for them, and [`Job::Write`]'s count.
pub(super) type Waiting = (std::ops::Range<usize>, Waiter, u64);

/// The caller that waits for changes to be written.
#[derive(Debug)]
pub(super) enum Waiter {
    /// It is told whether they were written; otherwise they are dropped.
    Told(oneshot::Sender<Result<(), NotWritten>>),
    /// It, if there is one, is told when the disk has written them or failed. The journal keeps what
    /// it could not write.
    Kept(Option<oneshot::Sender<()>>),
    /// The same; it is told whether the answer or the request among the changes is the first of its key.
    First(oneshot::Sender<bool>),
    /// It gets the kept answer to this call from the writer of a file. A database is asked without its
    /// writer.
    Answer(CallKey, oneshot::Sender<Option<Bytes>>),
}
