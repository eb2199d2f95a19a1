//! Turns, and the line of those who wait for one: so many calls run at once, and no more wait than
//! have a prospect of a turn.
//!
//! A short line is waited in even where nothing moves: a tool may take its minutes. Whoever comes
//! behind it waits only while it moves, and is sent away as soon as it stands still, so that a burst
//! of quick calls gets through, and calls to what hangs are refused rather than piled up.
//!
//! Must not: know whose turns they are.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::{Instant, sleep_until},
};

/// So many wait even in a line that stands still.
const PATIENT: usize = 32;
/// A line stands still in which nobody has got a turn for so long (linkerd's fail-fast timeout).
pub const STANDSTILL: Duration = Duration::from_secs(3);
/// The most that wait at all.
const LONGEST: usize = 4_096;

/// The turns of one backend, or of one app.
#[derive(Debug)]
pub struct Line {
    turns: Semaphore,
    waiting: Mutex<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    count: usize,
    /// When somebody who waited last got a turn, or the line began.
    moved: Instant,
}

/// Why there is no turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoTurn {
    /// It did not come in time.
    Late,
    /// Too many others wait.
    Crowded,
}

/// Leave to go on, until it is dropped.
pub type Turn<'a> = SemaphorePermit<'a>;

/// The place in the line of one that waits.
struct Place<'a>(&'a Line);

impl Line {
    /// One in which so many have their turn at once.
    pub fn new(at_once: usize) -> Self {
        let waiting = Mutex::new(Waiting { count: 0, moved: Instant::now() });
        Self { turns: Semaphore::new(at_once), waiting }
    }

    /// Waits for a turn until `by`, if there is a prospect of one.
    pub async fn turn(&self, by: Instant) -> Result<Turn<'_>, NoTurn> {
        if let Ok(turn) = self.turns.try_acquire() {
            return Ok(turn);
        }
        let ahead = self.lock().count;
        if ahead >= LONGEST || (ahead >= PATIENT && self.stands_still()) {
            return Err(NoTurn::Crowded);
        }
        let crowded = async {
            if ahead < PATIENT {
                std::future::pending::<()>().await;
            }
            self.too_long().await;
        };
        let place = Place::take(self);
        tokio::select! {
            biased;
            turn = self.next(place) => turn,
            () = sleep_until(by) => Err(NoTurn::Late),
            () = crowded => Err(NoTurn::Crowded),
        }
    }

    /// The same for what has begun long ago, and is sent away for nobody.
    pub async fn turn_of_begun(&self, by: Instant) -> Result<Turn<'_>, NoTurn> {
        let place = Place::take(self);
        tokio::select! {
            biased;
            turn = self.next(place) => turn,
            () = sleep_until(by) => Err(NoTurn::Late),
        }
    }

    async fn next(&self, place: Place<'_>) -> Result<Turn<'_>, NoTurn> {
        // Nobody closes it.
        let turn = self.turns.acquire().await.map_err(|_closed| NoTurn::Late)?;
        self.lock().moved = Instant::now();
        drop(place);
        Ok(turn)
    }

    /// Waits until the line stands still with more in it than may wait then.
    async fn too_long(&self) {
        loop {
            let still = self.lock().moved + STANDSTILL;
            sleep_until(still.max(Instant::now() + STANDSTILL / 16)).await;
            if self.stands_still() && self.lock().count > PATIENT {
                return;
            }
        }
    }

    fn stands_still(&self) -> bool {
        self.lock().moved.elapsed() >= STANDSTILL
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a> Place<'a> {
    fn take(line: &'a Line) -> Self {
        let mut waiting = line.lock();
        if waiting.count == 0 {
            waiting.moved = Instant::now();
        }
        waiting.count += 1;
        Self(line)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.lock().count -= 1;
    }
}

#[cfg(test)]
mod tests;
