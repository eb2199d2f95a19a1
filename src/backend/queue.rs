//! An admission queue: how many calls run at once, and how many may wait.
//!
//! The first calls of the queue wait even if it stands still, since a tool may take minutes. Calls
//! behind them wait only while the queue moves, and are rejected as soon as it stands still. So a
//! burst of quick calls gets through, and a stalled backend's calls are rejected instead of queued.
//!
//! Must not: know to which backend or app the permits belong.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep_until};
use tokio_util::task::TaskTracker;

/// How many calls may wait while the queue stands still.
const ALWAYS_WAIT: usize = 32;
/// A queue stands still if no waiting call has got a permit for this long (linkerd's fail-fast
/// timeout).
pub const STANDSTILL: Duration = Duration::from_secs(3);
/// How many calls may wait at most.
const MAX_WAITING: usize = 4_096;

/// The queue of one backend, or of one app.
#[derive(Debug)]
pub struct AdmissionQueue {
    permits: Semaphore,
    /// Counts the calls that wait.
    waiting: TaskTracker,
    /// When a waiting call last got a permit, or the first call began to wait.
    moved: Mutex<Instant>,
}

/// Why a call got no permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejected {
    /// No permit was free in time.
    Late,
    /// Too many calls wait.
    QueueFull,
}

/// Permits one call; released on drop.
pub type Permit<'a> = SemaphorePermit<'a>;

impl AdmissionQueue {
    /// A queue that lets `at_once` calls run.
    pub fn new(at_once: usize) -> Self {
        let moved = Mutex::new(Instant::now());
        Self { permits: Semaphore::new(at_once), waiting: TaskTracker::new(), moved }
    }

    /// Waits for a permit until `by`. If too many calls wait, returns [`Rejected::QueueFull`].
    pub async fn acquire(&self, by: Instant) -> Result<Permit<'_>, Rejected> {
        if let Ok(permit) = self.permits.try_acquire() {
            return Ok(permit);
        }
        let ahead = self.waiting.len();
        if ahead >= MAX_WAITING || (ahead >= ALWAYS_WAIT && self.stands_still()) {
            return Err(Rejected::QueueFull);
        }
        if ahead < ALWAYS_WAIT {
            return self.acquire_for_begun(by).await;
        }
        self.wait(by, self.too_long()).await
    }

    /// Waits for a permit until `by`, for work that was begun before, such as a task to be polled.
    /// A long queue does not reject such work, as its result would be lost.
    pub async fn acquire_for_begun(&self, by: Instant) -> Result<Permit<'_>, Rejected> {
        self.wait(by, std::future::pending()).await
    }

    /// Waits for a permit until `by` or `stalled`.
    async fn wait(
        &self,
        by: Instant,
        stalled: impl Future<Output = ()>,
    ) -> Result<Permit<'_>, Rejected> {
        if self.waiting.is_empty() {
            *self.moved.lock() = Instant::now();
        }
        let _counted = self.waiting.token();
        tokio::select! {
            biased;
            permit = self.permits.acquire() => {
                *self.moved.lock() = Instant::now();
                // The semaphore is never closed.
                permit.map_err(|_closed| Rejected::Late)
            }
            () = sleep_until(by) => Err(Rejected::Late),
            () = stalled => Err(Rejected::QueueFull),
        }
    }

    /// Returns once the queue stands still and more than [`ALWAYS_WAIT`] calls wait.
    async fn too_long(&self) {
        loop {
            let still = *self.moved.lock() + STANDSTILL;
            sleep_until(still.max(Instant::now() + STANDSTILL / 16)).await;
            if self.stands_still() && self.waiting.len() > ALWAYS_WAIT {
                return;
            }
        }
    }

    fn stands_still(&self) -> bool {
        self.moved.lock().elapsed() >= STANDSTILL
    }
}

#[cfg(test)]
mod tests;
