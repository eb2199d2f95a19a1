//! Limits how many bytes of requests and answers are in memory at once, over all apps, backends and
//! runs. Each limit of one body is harmless, but ten bodies at their limit would need more memory
//! than the service may have (`MemoryMax` of the unit).
//!
//! Bytes are counted as they arrive, so that a sender who announces much and sends little takes
//! nothing from others. Without room, a reader waits, and its sender with it: the bridge does not
//! read from the connection meanwhile. Room is reserved for one of the waiting bodies ([`LAST`]),
//! so that incomplete bodies cannot block each other for ever. Small bodies have room of their own.
//! No app holds more than it leaves to others ([`for_app`]).
//!
//! Must not: know what is held.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::model::AppName;
use crate::model::maps::HashMap;

const MIB: usize = 1 << 20;

/// The room for all bodies, in bytes. With the one below, and as much again for memory that the
/// allocator does not return, it fits into the unit's 512 MiB, beside the logs of runs (64 MiB) and
/// the rest.
const ROOM: usize = 112 * MIB;
/// The reserved room for one body when `ROOM`, or the share of its app, is full. It fits the
/// largest body, a spec with attachments, and the copies that its reader needs. It is counted
/// separately.
const LAST: usize = 72 * MIB;
/// The room for bodies of at most [`SMALL`] bytes when all other room is full. It is counted
/// separately, so that many small bodies cannot take the room of the last large one.
const ROOM_OF_SMALL: usize = 8 * MIB;
const SMALL: usize = 64 << 10;

/// The bytes of an incomplete item that a stream may hold without counting them.
pub const CHUNKS: usize = 64 << 10;

/// How long a reader waits for room.
const PATIENCE: Duration = Duration::from_secs(5);
/// The `Retry-After` for an app that got no room, in seconds.
pub const RETRY_AFTER: u64 = 2;

/// There was no room, and none became free in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the bridge holds as many bytes of requests and answers as it may")]
pub struct NoRoom;

/// Room for bytes.
#[derive(Debug)]
pub struct Budget {
    room: usize,
    used: Mutex<Used>,
    freed: Notify,
    /// Its holder may use [`LAST`].
    last: Arc<Semaphore>,
}

/// The room that bytes are counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// [`ROOM`].
    All,
    /// [`ROOM_OF_SMALL`].
    Small,
    /// [`LAST`].
    Last,
}

/// The bytes that are held, by [`Part`].
type Counts = [usize; 3];

#[derive(Debug, Default)]
struct Used {
    counts: Counts,
    /// The bytes that are held for each app.
    by_app: HashMap<AppName, Counts>,
    /// The last refusal for lack of room, and the state at that time.
    last_refusal: Option<(Instant, Shortage)>,
}

/// The state of the budget when there was no room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortage {
    /// How many bytes were held.
    pub used: usize,
    /// The app with the most held bytes, and their number.
    pub most: Option<(AppName, usize)>,
}

tokio::task_local! {
    static APP: AppName;
}

/// Runs `work`, and counts its bytes for `app`. Bytes that another task holds on its behalf count
/// for no app.
pub fn for_app<F: Future>(app: AppName, work: F) -> impl Future<Output = F::Output> {
    APP.scope(app, Box::pin(work))
}

/// The share of a budget that one holder has taken; returned on drop.
#[derive(Debug)]
pub struct Held {
    budget: Arc<Budget>,
    /// The app that the bytes count for, if any.
    app: Option<AppName>,
    bytes: usize,
    part: Part,
    last: Option<OwnedSemaphorePermit>,
}

/// Bytes that are counted in a budget.
struct Paid {
    bytes: Bytes,
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

    /// The budget of the process. There is one, as there is one memory; a test may have its own.
    pub fn of_process() -> Arc<Self> {
        static BUDGET: LazyLock<Arc<Budget>> = LazyLock::new(|| Budget::new(ROOM));
        #[cfg(test)]
        if let Some(budget) = tests::of_test() {
            return budget;
        }
        Arc::clone(&BUDGET)
    }

    /// A holder without bytes, for the app of the present task.
    pub fn hold(self: &Arc<Self>) -> Held {
        self.hold_for(APP.try_with(AppName::clone).ok())
    }

    /// A holder without bytes, for `app`.
    pub fn hold_for(self: &Arc<Self>, app: Option<AppName>) -> Held {
        Held { budget: Arc::clone(self), app, bytes: 0, part: Part::All, last: None }
    }

    /// The state at the last refusal for lack of room, if that was within `time`.
    pub fn shortage(&self, time: Duration) -> Option<Shortage> {
        let used = self.used.lock();
        let (at, shortage) = used.last_refusal.as_ref()?;
        if at.elapsed() < time { Some(shortage.clone()) } else { None }
    }
}

impl Used {
    fn note_refusal(&mut self) {
        let sums = self.by_app.iter().map(|(app, counts)| (app.clone(), counts.iter().sum()));
        let most = sums.max_by_key(|(_, bytes)| *bytes);
        let used = self.counts.iter().sum();
        self.last_refusal = Some((Instant::now(), Shortage { used, most }));
    }
}

impl Held {
    /// Grows or shrinks the share to `bytes`; waits for room if it has to.
    pub async fn resize(&mut self, bytes: usize) -> Result<(), NoRoom> {
        let budget = Arc::clone(&self.budget);
        let by = Instant::now() + PATIENCE;
        loop {
            // Registered before the check, so that no release in between is missed.
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
                budget.used.lock().note_refusal();
                return Err(NoRoom);
            }
        }
    }

    /// Changes the share without a wait; `false` if there is no room.
    pub fn try_resize(&mut self, bytes: usize) -> bool {
        let budget = Arc::clone(&self.budget);
        let mut used = budget.used.lock();
        let Some(part) = self.part_for(&used, bytes) else { return false };
        let frees = bytes < self.bytes || part != self.part;
        self.count(&mut used, bytes, part);
        drop(used);
        // The reserved room is passed on as soon as this holder no longer needs it.
        let spare = self.last.take_if(|_| part != Part::Last);
        if frees || spare.is_some() {
            drop(spare);
            budget.freed.notify_waiters();
        }
        true
    }

    /// The room that can hold `bytes` for this holder, if any.
    fn part_for(&self, used: &Used, bytes: usize) -> Option<Part> {
        let with =
            |part, all: usize| bytes + if part == self.part { all - self.bytes } else { all };
        let all = with(Part::All, used.counts[Part::All as usize]);
        // An app may hold as much as it leaves free for others: with more apps, each has less.
        let of_app = self.app.as_ref().map_or(0, |app| {
            with(Part::All, used.by_app.get(app).map_or(0, |counts| counts[Part::All as usize]))
        });
        if bytes == 0 || all + of_app <= self.budget.room {
            Some(Part::All)
        } else if bytes <= self.bytes && self.part != Part::Small {
            Some(self.part)
        } else if bytes <= SMALL
            && with(Part::Small, used.counts[Part::Small as usize]) <= ROOM_OF_SMALL
        {
            Some(Part::Small)
        } else if self.last.is_some() && bytes <= LAST && all <= self.budget.room + LAST {
            // Bytes that had to be held beyond `ROOM` reduce this room.
            Some(Part::Last)
        } else {
            None
        }
    }

    /// Records that it holds `bytes` of `part`.
    fn count(&mut self, used: &mut Used, bytes: usize, part: Part) {
        let (old, new) = ((self.part as usize, self.bytes), (part as usize, bytes));
        used.counts[old.0] -= old.1;
        used.counts[new.0] += new.1;
        if let Some(app) = &self.app {
            let app_counts = used.by_app.entry(app.clone()).or_default();
            app_counts[old.0] -= old.1;
            app_counts[new.0] += new.1;
            if *app_counts == Counts::default() {
                used.by_app.remove(app);
            }
        }
        (self.bytes, self.part) = (bytes, part);
    }

    /// Grows the share to `bytes` even without room, for data that must not be lost. Others wait
    /// for room instead.
    pub fn insist(&mut self, bytes: usize) {
        if bytes > self.bytes {
            let budget = Arc::clone(&self.budget);
            self.count(&mut budget.used.lock(), bytes, Part::All);
            if let Some(spare) = self.last.take() {
                drop(spare);
                budget.freed.notify_waiters();
            }
        }
    }

    /// Sets the share to `bytes`, whatever room there is: for a buffer with a small limit of its
    /// own, which cannot wait. The first [`CHUNKS`] bytes of a stream are not counted.
    pub fn follow(&mut self, bytes: usize) {
        let share = counted(bytes);
        if share > self.bytes {
            self.insist(share);
        } else if share < self.bytes {
            // Shrinking always succeeds.
            let _fits = self.try_resize(share);
        }
    }

    /// Like [`Self::follow`], for a buffer that can wait for room.
    pub async fn keep_up(&mut self, bytes: usize) -> Result<(), NoRoom> {
        self.resize(counted(bytes)).await
    }

    /// Takes the whole share; `self` keeps none.
    pub fn take(&mut self) -> Self {
        let new = self.budget.hold_for(self.app.clone());
        std::mem::replace(self, new)
    }

    /// `bytes`, which stay counted until their last part is dropped.
    pub fn pay_for(self, bytes: impl Into<Bytes>) -> Bytes {
        let bytes = bytes.into();
        if bytes.is_empty() { Bytes::new() } else { Bytes::from_owner(Paid { bytes, _held: self }) }
    }
}

/// The part of a stream's `bytes` that is counted.
fn counted(bytes: usize) -> usize {
    if bytes > CHUNKS { bytes } else { 0 }
}

impl Drop for Held {
    fn drop(&mut self) {
        let budget = Arc::clone(&self.budget);
        self.count(&mut budget.used.lock(), 0, Part::All);
        drop(self.last.take());
        budget.freed.notify_waiters();
    }
}

/// A growing buffer whose bytes are counted before they are stored.
#[derive(Debug)]
pub struct Buffer {
    bytes: Vec<u8>,
    held: Held,
    /// The expected total, as far as it is known.
    expected: usize,
    insists: bool,
}

/// The smallest and the largest step in which a buffer grows.
const FIRST_STEP: usize = 16 << 10;
const LARGEST_STEP: usize = 4 * MIB;

impl Buffer {
    /// A buffer in the process's budget.
    pub fn new(expected: usize) -> Self {
        Self { bytes: Vec::new(), held: Budget::of_process().hold(), expected, insists: false }
    }

    /// A buffer for data that must not be lost, and is known to be short.
    pub fn insisting() -> Self {
        Self { insists: true, ..Self::new(0) }
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Adds `piece`.
    pub async fn push(&mut self, piece: &[u8]) -> Result<(), NoRoom> {
        let needed = self.bytes.len() + piece.len();
        if needed > self.bytes.capacity() {
            let step = needed.clamp(FIRST_STEP, LARGEST_STEP);
            // If the expected end is known, the buffer does not grow beyond it.
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

    /// All bytes. They stay counted until their last part is dropped.
    pub fn into_bytes(self) -> Bytes {
        self.held.pay_for(self.bytes)
    }
}

#[cfg(test)]
pub(crate) mod tests;
