//! How many calls wait for a backend's connection. Its supervisor connects sooner while any does.
//!
//! Must not: connect.

use std::sync::Arc;

use tokio::sync::watch;

/// The calls that wait for one backend's connection. Reloads keep it with the supervisor.
#[derive(Debug, Clone)]
pub struct Demand {
    waiting: Arc<watch::Sender<usize>>,
}

impl Default for Demand {
    fn default() -> Self {
        Self { waiting: Arc::new(watch::Sender::new(0)) }
    }
}

/// Counts as one call until it is dropped.
#[derive(Debug)]
pub struct WaitingCall {
    demand: Demand,
}

impl Demand {
    /// Counts a call that waits from now on.
    pub fn wait(&self) -> WaitingCall {
        self.waiting.send_modify(|count| *count += 1);
        WaitingCall { demand: self.clone() }
    }

    /// Whether a call waits now.
    pub fn is_wanted(&self) -> bool {
        *self.waiting.borrow() > 0
    }

    /// Ends once a call waits.
    pub async fn wanted(&self) {
        // The sender belongs to `self`, so waiting cannot fail.
        drop(self.waiting.subscribe().wait_for(|count| *count > 0).await);
    }
}

impl Drop for WaitingCall {
    fn drop(&mut self) {
        self.demand.waiting.send_modify(|count| *count -= 1);
    }
}
