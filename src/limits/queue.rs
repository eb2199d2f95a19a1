//! An admission queue: how many calls run at once, how many may wait, and who is next.
//!
//! Apps take turns: of those that wait, the app that was served the longest ago is next. So an app
//! with hundreds of waiting calls delays another app's by one call, not by all of them.
//!
//! The first calls of an app wait even if the queue stands still, since a tool may take minutes.
//! Calls behind them wait only while the queue moves, and are rejected as soon as it stands still.
//! So a burst of quick calls gets through, and a stalled backend's calls are rejected instead of
//! queued.
//!
//! Must not: know to which backend or limit the permits belong.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use crate::model::AppName;
use crate::model::maps::HashMap;

/// How many calls of an app may wait while the queue stands still.
const ALWAYS_WAIT: usize = 32;
/// A queue stands still if no waiting call has got a permit for this long (linkerd's fail-fast
/// timeout).
pub const STANDSTILL: Duration = Duration::from_secs(3);
/// How many calls of an app may wait at most.
const MAX_WAITING: usize = 4_096;

/// The queue of one backend, of one app, or of all backends.
#[derive(Debug, Clone)]
pub struct AdmissionQueue(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// The permits that no call has. If there are any, no call waits.
    free: usize,
    /// The apps with waiting calls, the next first.
    apps: VecDeque<AppName>,
    /// The waiting calls of each of them, by their order of arrival.
    waiting: HashMap<AppName, BTreeMap<u64, oneshot::Sender<Permit>>>,
    last: u64,
    /// When a waiting call last got a permit, or the first call began to wait.
    moved: Instant,
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
#[derive(Debug)]
pub struct Permit {
    /// `None` while it is passed on.
    queue: Option<AdmissionQueue>,
}

/// A waiting call. Its drop leaves the queue.
struct Waiting<'a> {
    queue: &'a AdmissionQueue,
    app: &'a AppName,
    id: u64,
    permit: oneshot::Receiver<Permit>,
}

impl AdmissionQueue {
    /// A queue that lets `at_once` calls run.
    pub fn new(at_once: usize) -> Self {
        Self(Arc::new(Mutex::new(State {
            free: at_once,
            apps: VecDeque::new(),
            waiting: HashMap::default(),
            last: 0,
            moved: Instant::now(),
        })))
    }

    /// Waits for a permit for a call of `app` until `by`. If too many of its calls wait, returns
    /// [`Rejected::QueueFull`].
    pub async fn acquire(&self, app: &AppName, by: Instant) -> Result<Permit, Rejected> {
        let ahead = self.waiting_of(app);
        if ahead >= MAX_WAITING || (ahead >= ALWAYS_WAIT && self.stands_still()) {
            return Err(Rejected::QueueFull);
        }
        if ahead < ALWAYS_WAIT {
            return self.acquire_unbounded(app, by).await;
        }
        self.wait(app, by, self.too_long(app)).await
    }

    /// Waits for a permit until `by`, for work that was begun before, such as a task to be polled.
    /// A long queue does not reject such work, as its result would be lost.
    pub async fn acquire_unbounded(&self, app: &AppName, by: Instant) -> Result<Permit, Rejected> {
        self.wait(app, by, std::future::pending()).await
    }

    /// Waits for a permit until `by` or `stalled`.
    async fn wait(
        &self,
        app: &AppName,
        by: Instant,
        stalled: impl Future<Output = ()>,
    ) -> Result<Permit, Rejected> {
        let mut waiting = match self.join(app) {
            Ok(permit) => return Ok(permit),
            Err(waiting) => waiting,
        };
        tokio::select! {
            biased;
            // The sender is in the queue until `waiting` is dropped.
            permit = &mut waiting.permit => permit.map_err(|_gone| Rejected::Late),
            () = sleep_until(by) => Err(Rejected::Late),
            () = stalled => Err(Rejected::QueueFull),
        }
    }

    /// A permit if one is free, or else a place in the queue.
    fn join<'a>(&'a self, app: &'a AppName) -> Result<Permit, Waiting<'a>> {
        let mut state = self.0.lock();
        if state.free > 0 {
            state.free -= 1;
            return Ok(Permit { queue: Some(self.clone()) });
        }
        if state.apps.is_empty() {
            state.moved = Instant::now();
        }
        let (sender, permit) = oneshot::channel();
        state.last += 1;
        let id = state.last;
        if !state.waiting.contains_key(app) {
            state.apps.push_back(app.clone());
        }
        state.waiting.entry(app.clone()).or_default().insert(id, sender);
        Err(Waiting { queue: self, app, id, permit })
    }

    /// Returns once the queue stands still and more than [`ALWAYS_WAIT`] calls of `app` wait.
    async fn too_long(&self, app: &AppName) {
        loop {
            let still = self.0.lock().moved + STANDSTILL;
            sleep_until(still.max(Instant::now() + STANDSTILL / 16)).await;
            if self.stands_still() && self.waiting_of(app) > ALWAYS_WAIT {
                return;
            }
        }
    }

    fn stands_still(&self) -> bool {
        self.0.lock().moved.elapsed() >= STANDSTILL
    }

    fn waiting_of(&self, app: &AppName) -> usize {
        self.0.lock().waiting.get(app).map_or(0, BTreeMap::len)
    }
}

impl State {
    /// The call that gets the next permit. If none waits, the permit is free.
    fn next(&mut self) -> Option<oneshot::Sender<Permit>> {
        while let Some(app) = self.apps.pop_front() {
            let Some(mut calls) = self.waiting.remove(&app) else { continue };
            let Some((_, first)) = calls.pop_first() else { continue };
            if !calls.is_empty() {
                self.apps.push_back(app.clone());
                self.waiting.insert(app, calls);
            }
            self.moved = Instant::now();
            return Some(first);
        }
        self.free += 1;
        None
    }

    /// Removes a call that waits no longer.
    fn leave(&mut self, app: &AppName, id: u64) {
        let Some(calls) = self.waiting.get_mut(app) else { return };
        calls.remove(&id);
        if calls.is_empty() {
            self.waiting.remove(app);
            self.apps.retain(|other| other != app);
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.queue.0.lock().leave(self.app, self.id);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some(queue) = self.queue.take() else { return };
        loop {
            let Some(next) = queue.0.lock().next() else { return };
            match next.send(Self { queue: Some(queue.clone()) }) {
                Ok(()) => return,
                // That call has just given up. Its permit is the one that is passed on here.
                Err(mut unsent) => unsent.queue = None,
            }
        }
    }
}

#[cfg(test)]
mod tests;
