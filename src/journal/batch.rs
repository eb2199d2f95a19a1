//! The jobs of the journal's thread, and how it gathers them into one write.
//!
//! Must not: write.

use std::ops::Range;
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
    /// `regained`: how often this replica had got runs from others by then ([`Group::regained`]).
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
    pub(super) groups: Vec<Group>,
    pub(super) weight: usize,
    pub(super) stop: bool,
}

impl Batch {
    pub(super) fn add(&mut self, job: Job) {
        match job {
            Job::Stop => self.stop = true,
            Job::Write { changes, waiter, regained } => {
                let first = self.changes.len();
                let range = first..first + changes.len();
                self.groups.push(Group { range, waiter, regained });
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
/// caller waits for are held back for [`SOON`], so that they can share the sync of a commit.
/// `None`: all senders are gone.
///
/// A caller that waits is never held back: every call would take that much longer, twice.
pub(super) fn gather(jobs: &mpsc::Receiver<Job>) -> Option<Batch> {
    let mut batch = Batch::default();
    let mut next = match jobs.recv_timeout(RETRY) {
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
        next = if batch.groups.iter().any(|group| group.waiter.waits()) {
            jobs.try_recv().ok()
        } else {
            jobs.recv_timeout(until.saturating_duration_since(Instant::now())).ok()
        };
    }
    Some(batch)
}

/// The changes of one job in a batch. They are written together or not at all.
pub(super) struct Group {
    /// Their places in [`Batch::changes`].
    pub(super) range: Range<usize>,
    pub(super) waiter: Waiter,
    /// How often this replica had got runs from others when they were given.
    pub(super) regained: u64,
}

/// The caller that waits for changes to be written.
#[derive(Debug)]
pub(super) enum Waiter {
    /// Gets whether the changes were written. Changes that were not are dropped: the caller takes
    /// back what it was about to do.
    Commit(oneshot::Sender<Result<(), NotWritten>>),
    /// The sender, if there is one, is used when the disk has written the changes or failed. The
    /// journal keeps what could not be written, and writes it later: what they record has happened.
    Keep(Option<oneshot::Sender<()>>),
    /// As [`Self::Keep`]; gets whether the answer or the request among the changes is the first of
    /// its key.
    First(oneshot::Sender<bool>),
    /// Gets the kept answer to this call from the writer of a file. A database is asked without its
    /// writer.
    Answer(CallKey, oneshot::Sender<Option<Bytes>>),
}

impl Waiter {
    fn waits(&self) -> bool {
        !matches!(self, Self::Keep(None))
    }
}
