//! How many bytes of requests and answers are held in memory at once, over all apps, backends and
//! runs: each limit of one body is harmless, and ten bodies at their limit would be more than the
//! memory that the service may have (`MemoryMax` of the unit).
//!
//! Bytes are paid for as they come, so that whoever announces much and sends little takes nothing
//! from others. Where there is no room, a reader waits, and its sender with it: nothing is read from
//! the connection meanwhile. One of the waiting gets through, by room that is kept for it, so that
//! bodies that are there in part cannot block each other. Small bodies have room of their own. No
//! app holds more than it leaves to others ([`for_app`]).
//!
//! Must not: know what is held.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
    time::Duration,
};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use tokio::{
    sync::{Notify, OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};

use crate::model::ids::AppName;

const MIB: usize = 1 << 20;

/// The room for all. With the one below, and as much again for what the allocator does not give
/// back, it fits into the unit's 512 MiB, beside the logs of runs (64 MiB) and the rest.
const ROOM: usize = 112 * MIB;
/// The room for the one body that is read on where all of that is taken, or all that one app may
/// have: of the largest body, a spec with attachments, and what the reader needs beside it. It is
/// counted on its own as well.
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

/// Of which room bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// [`ROOM`].
    All,
    /// [`ROOM_OF_SMALL`].
    Small,
    /// [`LAST`].
    Last,
}

/// How many bytes are held, of which room.
#[derive(Debug, Default)]
struct Counts {
    of_all: usize,
    of_small: usize,
    of_last: usize,
}

#[derive(Debug, Default)]
struct Used {
    counts: Counts,
    /// Those that are held for an app.
    by_app: HashMap<AppName, Counts>,
    /// When somebody was last refused for want of room, and how things stood.
    refused: Option<(Instant, Shortage)>,
}

/// How things stood when there was no room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortage {
    /// How many bytes were held.
    pub used: usize,
    /// The app for which most of them were held, and how many.
    pub most: Option<(AppName, usize)>,
}

tokio::task_local! {
    static APP: AppName;
}

/// Does `work`, and counts what it holds as held for `app`. What another task holds for it is nobody's.
pub fn for_app<F: Future>(app: AppName, work: F) -> impl Future<Output = F::Output> {
    APP.scope(app, Box::pin(work))
}

/// The part of a budget that one holder has taken; given back when it is dropped.
#[derive(Debug)]
pub struct Held {
    budget: Arc<Budget>,
    /// For whom, if for an app.
    app: Option<AppName>,
    bytes: usize,
    part: Part,
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
        self.hold_for(APP.try_with(AppName::clone).ok())
    }

    /// Nothing yet, for `app`.
    pub fn hold_for(self: &Arc<Self>, app: Option<AppName>) -> Held {
        Held { budget: Arc::clone(self), app, bytes: 0, part: Part::All, last: None }
    }

    /// How things stood when somebody was refused for want of room, where that was within `time`.
    pub fn shortage(&self, time: Duration) -> Option<Shortage> {
        let used = self.lock();
        let (at, shortage) = used.refused.as_ref()?;
        (at.elapsed() < time).then(|| shortage.clone())
    }

    /// How many bytes are held.
    pub fn used(&self) -> usize {
        self.lock().counts.sum()
    }

    fn lock(&self) -> MutexGuard<'_, Used> {
        self.used.lock()
    }
}

impl Counts {
    fn sum(&self) -> usize {
        self.of_all + self.of_small + self.of_last
    }

    fn of(&mut self, part: Part) -> &mut usize {
        match part {
            Part::All => &mut self.of_all,
            Part::Small => &mut self.of_small,
            Part::Last => &mut self.of_last,
        }
    }

    /// What was of one part is of another from now on.
    fn move_over(&mut self, (from, before): (Part, usize), (to, now): (Part, usize)) {
        *self.of(from) -= before;
        *self.of(to) += now;
    }
}

impl Used {
    fn note_refusal(&mut self) {
        let sums = self.by_app.iter().map(|(app, counts)| (app.clone(), counts.sum()));
        let most = sums.max_by_key(|(_, bytes)| *bytes);
        self.refused = Some((Instant::now(), Shortage { used: self.counts.sum(), most }));
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
            if self.last.is_none() && (SMALL + 1..=LAST).contains(&bytes) {
                self.last = Arc::clone(&budget.last).try_acquire_owned().ok();
                if self.last.is_some() {
                    continue;
                }
            }
            if timeout_at(by, freed).await.is_err() {
                budget.lock().note_refusal();
                return Err(NoRoom);
            }
        }
    }

    fn try_resize(&mut self, bytes: usize) -> bool {
        let budget = Arc::clone(&self.budget);
        let mut used = budget.lock();
        let Some(part) = self.part_for(&used, bytes) else { return false };
        let frees = bytes < self.bytes || part != self.part;
        self.count(&mut used, bytes, part);
        drop(used);
        // It is another's turn as soon as this one does not need it any more.
        let spare = self.last.take_if(|_| part != Part::Last);
        if frees || spare.is_some() {
            drop(spare);
            budget.freed.notify_waiters();
        }
        true
    }

    /// Where there is room for `bytes` of it.
    fn part_for(&self, used: &Used, bytes: usize) -> Option<Part> {
        let with =
            |part, all: usize| bytes + if part == self.part { all - self.bytes } else { all };
        let all = with(Part::All, used.counts.of_all);
        // Beside what an app holds stays as much for others: the more apps, the less has each.
        let of_app = self.app.as_ref().map_or(0, |app| {
            with(Part::All, used.by_app.get(app).map_or(0, |counts| counts.of_all))
        });
        if bytes == 0 || all + of_app <= self.budget.room {
            Some(Part::All)
        } else if bytes <= self.bytes && self.part != Part::Small {
            Some(self.part)
        } else if bytes <= SMALL && with(Part::Small, used.counts.of_small) <= ROOM_OF_SMALL {
            Some(Part::Small)
        } else {
            // What had to be held beyond the room for all is missing here.
            let fits = bytes <= LAST && all <= self.budget.room + LAST;
            (self.last.is_some() && fits).then_some(Part::Last)
        }
    }

    /// It has `bytes` from now on.
    fn count(&mut self, used: &mut Used, bytes: usize, part: Part) {
        let (before, now) = ((self.part, self.bytes), (part, bytes));
        used.counts.move_over(before, now);
        if let Some(app) = &self.app {
            let of_app = used.by_app.entry(app.clone()).or_default();
            of_app.move_over(before, now);
            if of_app.sum() == 0 {
                used.by_app.remove(app);
            }
        }
        (self.bytes, self.part) = (bytes, part);
    }

    /// Takes what is missing to `bytes` where there is no room, too: for what must not be lost.
    /// Others wait for it.
    pub fn insist(&mut self, bytes: usize) {
        if bytes > self.bytes {
            let budget = Arc::clone(&self.budget);
            self.count(&mut budget.lock(), bytes, Part::All);
            if let Some(spare) = self.last.take() {
                drop(spare);
                budget.freed.notify_waiters();
            }
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

    /// All that it has; it goes on with nothing.
    pub fn take(&mut self) -> Self {
        let new = self.budget.hold_for(self.app.clone());
        std::mem::replace(self, new)
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
        let budget = Arc::clone(&self.budget);
        self.count(&mut budget.lock(), 0, Part::All);
        drop(self.last.take());
        budget.freed.notify_waiters();
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
