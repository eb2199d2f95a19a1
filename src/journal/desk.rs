//! Who writes the journal's file: a caller itself, while nothing else is written, or the thread.
//!
//! A commit that the thread writes wakes two threads, which on an idle machine costs more than the
//! sync. So a caller that waits for its changes writes them, and all that were given before, if the
//! disk is fast and there is little to write. If others gave changes meanwhile, the thread writes
//! those, as one batch.
//!
//! Must not: let a caller wait for the lock, or compact the file while the lock is held.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, Thread};
use std::time::Duration;

use parking_lot::Mutex;

use super::batch::{Batch, Job};
use super::store::Store;
use super::writer::Writer;
use super::{RETRY, store};

/// A disk whose last sync took longer than this would block the runtime's thread.
pub(super) const FAST: Duration = Duration::from_millis(2);
/// How long changes without a waiting caller are held back, so that they share the sync of a
/// commit. The work that a crash takes with them is repeated: an answer that MANTYX has taken is
/// posted to it once more.
const HOLD_BACK: Duration = Duration::from_millis(10);
/// The most bytes, about, that a caller writes.
const LITTLE: usize = 64 << 10;

/// The file's writer and its queue.
#[derive(derive_more::Debug)]
pub(super) struct Desk {
    /// `None` once the journal is closed.
    #[debug(skip)]
    side: Mutex<Option<Side>>,
    /// How many jobs were given and not taken yet.
    open: AtomicUsize,
    /// The thread has nothing to do, and no time at which it looks.
    is_asleep: AtomicBool,
    /// The thread is not to wait for a caller that comes by.
    is_urgent: AtomicBool,
    stops: AtomicBool,
    thread: Mutex<Option<Thread>>,
    /// The longest sync of a disk for which callers write.
    fast: Duration,
}

struct Side {
    writer: Writer,
    jobs: mpsc::Receiver<Job>,
}

impl Desk {
    pub(super) fn new(writer: Writer, jobs: mpsc::Receiver<Job>, fast: Duration) -> Self {
        Self {
            side: Mutex::new(Some(Side { writer, jobs })),
            open: AtomicUsize::new(0),
            is_asleep: AtomicBool::new(false),
            is_urgent: AtomicBool::new(false),
            stops: AtomicBool::new(false),
            thread: Mutex::new(None),
            fast,
        }
    }

    /// A job is about to be given.
    pub(super) fn expect(&self) {
        self.open.fetch_add(1, Ordering::SeqCst);
    }

    /// Has the thread write what was given without a caller that waits, after [`HOLD_BACK`].
    pub(super) fn soon(&self) {
        if self.is_asleep.swap(false, Ordering::SeqCst) {
            self.unpark();
        }
    }

    /// Has what was given written now, by the caller or the thread.
    ///
    /// A caller never waits for the lock: that would block the runtime's thread for as long as a
    /// sync takes. After it has written, it looks once more for jobs that came meanwhile. Their
    /// callers may have found the lock taken, and without the wake nothing would write them.
    pub(super) fn now(&self) {
        // A caller that holds the lock may not have seen this job. The thread may be about to wait.
        let Some(mut guard) = self.side.try_lock() else { return self.wake() };
        let Some(side) = &mut *guard else { return };
        if side.writer.last_sync() < self.fast && side.writer.queued() <= LITTLE {
            let batch = self.gather(side);
            side.writer.take(batch);
        }
        let needs_compaction = side.writer.is_too_large();
        drop(guard);
        if needs_compaction || self.open.load(Ordering::SeqCst) > 0 {
            self.wake();
        }
    }

    /// All that was given, as far as it fits into one batch.
    fn gather(&self, side: &Side) -> Batch {
        let mut batch = Batch::default();
        while !batch.is_full() {
            let Ok(job) = side.jobs.try_recv() else { break };
            self.open.fetch_sub(1, Ordering::SeqCst);
            batch.add(job);
        }
        batch
    }

    /// Writes what callers do not, until [`Self::stop`]. Blocks the thread.
    ///
    /// `stops` is read before the queue is emptied: what was given before the stop is then in one
    /// of the batches below.
    pub(super) fn run(self: &Arc<Self>) {
        *self.thread.lock() = Some(thread::current());
        let mut idle = true;
        loop {
            if idle {
                self.sleep();
            }
            // A caller that comes by may write it before.
            if !self.is_urgent.swap(false, Ordering::SeqCst) {
                thread::park_timeout(HOLD_BACK);
            }
            let stops = self.stops.load(Ordering::SeqCst);
            idle = self.open.load(Ordering::SeqCst) == 0;
            let mut guard = self.side.lock();
            let Some(side) = &mut *guard else { return };
            loop {
                let batch = self.gather(side);
                let was_full = batch.is_full();
                side.writer.take(batch);
                if !was_full {
                    break;
                }
            }
            if stops {
                side.writer.close();
                // This drops the lock on the file, too.
                *guard = None;
                return;
            }
            self.compact(&mut side.writer);
        }
    }

    /// Makes the file smaller, if it is too large. Another thread writes the new file, so that
    /// commits continue meanwhile.
    fn compact(self: &Arc<Self>, writer: &mut Writer) {
        if !writer.is_too_large() {
            return;
        }
        let Some((path, state)) = writer.begin_compaction() else { return writer.look_at_size() };
        let desk = Arc::clone(self);
        let spawned = thread::Builder::new().name("compaction".to_owned()).spawn(move || {
            let new_file = Store::beside(&path, state);
            // The lock is free again when this is dropped.
            let _old = match &mut *desk.side.lock() {
                Some(side) => side.writer.end_compaction(new_file),
                None => {
                    store::remove_compacted(&path);
                    None
                }
            };
        });
        if let Err(error) = spawned {
            writer.end_compaction(Err(error.into()));
        }
    }

    /// Waits until something is given, or it is time to look at the disk. The flag is set before
    /// the queue is looked at: a job that comes in between sees the flag and wakes the thread.
    fn sleep(&self) {
        self.is_asleep.store(true, Ordering::SeqCst);
        if self.open.load(Ordering::SeqCst) == 0 && !self.is_urgent.load(Ordering::SeqCst) {
            thread::park_timeout(RETRY);
        }
        self.is_asleep.store(false, Ordering::SeqCst);
    }

    /// Ends the thread once it has written all that was given.
    pub(super) fn stop(&self) {
        self.stops.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// Has the thread write at once.
    fn wake(&self) {
        self.is_urgent.store(true, Ordering::SeqCst);
        self.unpark();
    }

    fn unpark(&self) {
        if let Some(thread) = &*self.thread.lock() {
            thread.unpark();
        }
    }
}
