//! How many bytes of requests and answers are held in memory at once, over all apps, backends and
//! runs: each limit of one body is harmless, and ten bodies at their limit would be more than the
//! memory that the service may have (`MemoryMax` of the unit).
//!
//! Bytes are paid for as they come, so that whoever announces much and sends little takes nothing
//! from others. Where there is no room, a reader waits, and its sender with it: nothing is read from
//! the connection meanwhile. One of the waiting gets through, by room that is kept for it, so that
//! bodies that are there in part cannot block each other. Small bodies have room of their own.
//!
//! Must not: know what is held.

use std::{
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    sync::{Notify, OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};

const MIB: usize = 1 << 20;

/// The room for all. With the one below, and as much again for what the allocator does not give
/// back, it fits into the unit's 512 MiB, beside the logs of runs (64 MiB) and the rest.
const ROOM: usize = 112 * MIB;
/// The room for the one body that is read on where all of that is taken: of the largest body, a spec
/// with attachments, and what the reader needs beside it.
const LAST: usize = 72 * MIB;
/// The room for bodies of at most [`SMALL`] bytes, when all else is taken. It is counted on its own:
/// many small bodies cannot take the room for the last large one.
const ROOM_OF_SMALL: usize = 8 * MIB;
const SMALL: usize = 64 << 10;

/// What a stream may have of something that is there in part without paying for it.
pub const CHUNKS: usize = 64 << 10;

/// How long a reader waits for room.
const PATIENCE: Duration = Duration::from_secs(5);
/// What an app is told to wait before it tries again, in seconds.
pub const RETRY_AFTER: u64 = 2;

/// All room is taken, and stayed so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the bridge holds as many bytes of requests and answers as it may")]
pub struct NoRoom;

/// Room for bytes.
#[derive(Debug)]
pub struct Budget {
    room: usize,
    used: Mutex<Used>,
    freed: Notify,
    /// Who has it may use [`LAST`].
    last: Arc<Semaphore>,
}

/// How many bytes are held.
#[derive(Debug, Default)]
struct Used {
    /// Of the room for all, and of [`LAST`].
    of_all: usize,
    /// Of [`ROOM_OF_SMALL`].
    of_small: usize,
}

/// The part of a budget that one holder has taken; given back when it is dropped.
#[derive(Debug)]
pub struct Held {
    budget: Arc<Budget>,
    bytes: usize,
    /// They are of [`ROOM_OF_SMALL`].
    is_small: bool,
    last: Option<OwnedSemaphorePermit>,
}

/// Bytes that were paid for.
struct Paid {
    bytes: Vec<u8>,
    _held: Held,
}

impl AsRef<[u8]> for Paid {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Budget {
    fn new(room: usize) -> Arc<Self> {
        Arc::new(Self {
            room,
            used: Mutex::default(),
            freed: Notify::new(),
            last: Arc::new(Semaphore::new(1)),
        })
    }

    /// That of the process. There is one, as there is one memory; a test may have its own.
    pub fn of_process() -> Arc<Self> {
        static BUDGET: LazyLock<Arc<Budget>> = LazyLock::new(|| Budget::new(ROOM));
        #[cfg(test)]
        if let Ok(budget) = tests::BUDGET.try_with(Arc::clone) {
            return budget;
        }
        Arc::clone(&BUDGET)
    }

    /// Nothing yet.
    pub fn hold(self: &Arc<Self>) -> Held {
        Held { budget: Arc::clone(self), bytes: 0, is_small: false, last: None }
    }

    /// How many bytes are held.
    pub fn used(&self) -> usize {
        let used = self.lock();
        used.of_all + used.of_small
    }

    fn lock(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Used {
    /// Those of the room for small bodies, or those of the other.
    fn of(&mut self, is_small: bool) -> &mut usize {
        if is_small { &mut self.of_small } else { &mut self.of_all }
    }
}

impl Held {
    /// Takes what is missing to `bytes`, or gives back what is too much.
    pub async fn resize(&mut self, bytes: usize) -> Result<(), NoRoom> {
        if self.try_resize(bytes) {
            return Ok(());
        }
        let budget = Arc::clone(&self.budget);
        let by = Instant::now() + PATIENCE;
        loop {
            // Registered before the look, so that nothing that is freed in between is missed.
            let freed = budget.freed.notified();
            if self.try_resize(bytes) {
                return Ok(());
            }
            if self.last.is_none() && bytes > SMALL {
                self.last = Arc::clone(&budget.last).try_acquire_owned().ok();
                if self.last.is_some() {
                    continue;
                }
            }
            timeout_at(by, freed).await.map_err(|_elapsed| NoRoom)?;
        }
    }

    fn try_resize(&mut self, bytes: usize) -> bool {
        let budget = Arc::clone(&self.budget);
        let mut used = budget.lock();
        let is_small = if bytes <= self.bytes {
            self.is_small
        } else {
            let beside = |is_small: bool, all: usize| {
                if is_small == self.is_small { all - self.bytes } else { all }
            };
            let room = budget.room + if self.last.is_some() { LAST } else { 0 };
            let is_small = beside(false, used.of_all) + bytes > room;
            let fits = bytes <= SMALL && beside(true, used.of_small) + bytes <= ROOM_OF_SMALL;
            if is_small && !fits {
                return false;
            }
            is_small
        };
        let frees = bytes < self.bytes || is_small != self.is_small;
        self.count(&mut used, bytes, is_small);
        // It is another's turn as soon as this one does not need it any more.
        let is_spare = bytes == 0 || used.of_all <= budget.room;
        drop(used);
        let spare = self.last.take_if(|_| is_spare);
        if frees || spare.is_some() {
            drop(spare);
            budget.freed.notify_waiters();
        }
        true
    }

    /// It has `bytes` from now on.
    fn count(&mut self, used: &mut Used, bytes: usize, is_small: bool) {
        *used.of(self.is_small) -= self.bytes;
        *used.of(is_small) += bytes;
        (self.bytes, self.is_small) = (bytes, is_small);
    }

    /// Takes what is missing to `bytes` where there is no room, too: for what must not be lost.
    /// Others wait for it.
    pub fn insist(&mut self, bytes: usize) {
        if bytes > self.bytes {
            let budget = Arc::clone(&self.budget);
            self.count(&mut budget.lock(), bytes, false);
        }
    }

    /// Holds `bytes` from now on, whatever room there is: for a buffer whose own limit is small, and
    /// which cannot wait. What is usual for a stream is not counted.
    pub fn follow(&mut self, bytes: usize) {
        let counted = counted(bytes);
        if counted > self.bytes {
            self.insist(counted);
        } else if counted < self.bytes {
            // To give back is always possible.
            let _given_back = self.try_resize(counted);
        }
    }

    /// The same for a buffer that can wait for room.
    pub async fn keep_up(&mut self, bytes: usize) -> Result<(), NoRoom> {
        self.resize(counted(bytes)).await
    }

    /// `bytes`, which are paid for until the last part of them is gone.
    pub fn pay_for(self, bytes: Vec<u8>) -> Bytes {
        if bytes.is_empty() { Bytes::new() } else { Bytes::from_owner(Paid { bytes, _held: self }) }
    }
}

/// What of `bytes` is counted of a stream.
fn counted(bytes: usize) -> usize {
    if bytes > CHUNKS { bytes } else { 0 }
}

#[cfg(test)]
impl Held {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        *self.budget.lock().of(self.is_small) -= self.bytes;
        drop(self.last.take());
        self.budget.freed.notify_waiters();
    }
}

/// Bytes that come piece by piece, and are paid for before there is a place for them.
#[derive(Debug)]
pub struct Buffer {
    bytes: Vec<u8>,
    held: Held,
    /// How many are to come in all, as far as is known.
    expected: usize,
    insists: bool,
}

/// The first step in which a buffer grows, and the largest.
const FIRST_STEP: usize = 16 << 10;
const LARGEST_STEP: usize = 4 * MIB;

impl Buffer {
    /// One of the process's budget.
    pub fn new(expected: usize) -> Self {
        Self { bytes: Vec::new(), held: Budget::of_process().hold(), expected, insists: false }
    }

    /// One for what must not be lost, and is known to be short.
    pub fn insisting() -> Self {
        Self { insists: true, ..Self::new(0) }
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Adds `piece`.
    pub async fn push(&mut self, piece: &[u8]) -> Result<(), NoRoom> {
        let needed = self.bytes.len() + piece.len();
        if needed > self.bytes.capacity() {
            let step = needed.clamp(FIRST_STEP, LARGEST_STEP);
            // Where the end is known, no further.
            let end = if self.expected >= needed { self.expected } else { usize::MAX };
            let capacity = (self.bytes.len() + step).max(needed).min(end);
            if self.insists {
                self.held.insist(capacity);
            } else {
                self.held.resize(capacity).await?;
            }
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
        self.bytes.extend_from_slice(piece);
        Ok(())
    }

    /// All of them. They are paid for until the last part of them is gone.
    pub fn into_bytes(self) -> Bytes {
        self.held.pay_for(self.bytes)
    }
}

#[cfg(test)]
pub(crate) mod tests;
