//! Announces that a run, a call or an approval has changed. Subscribers look up the new state
//! themselves.
//!
//! Must not: hold anything up. A subscriber that is slow misses changes, and gets their number.

use tokio::sync::broadcast;

use crate::model::{AppName, ApprovalId, RunKey};

/// How many changes wait for a slow subscriber.
const WAITING: usize = 1024;

/// One change, and the app that it is of.
#[derive(Debug, Clone)]
pub enum Change {
    /// The run has a driver, or has ended.
    Run(AppName, RunKey),
    /// The call with this number in the history has begun, continues as a long call, or has ended.
    Call(AppName, u64),
    /// A question was asked, or has ended.
    Approval(AppName, ApprovalId),
}

/// The channel of changes; clones share it.
#[derive(Debug, Clone)]
pub struct Changes(broadcast::Sender<Change>);

impl Default for Changes {
    fn default() -> Self {
        Self(broadcast::Sender::new(WAITING))
    }
}

impl Change {
    pub fn app(&self) -> &AppName {
        match self {
            Self::Run(app, _) | Self::Call(app, _) | Self::Approval(app, _) => app,
        }
    }
}

impl Changes {
    /// Announces a change, if there are subscribers.
    pub fn tell(&self, change: impl FnOnce() -> Change) {
        if self.0.receiver_count() > 0 {
            self.0.send(change()).ok();
        }
    }

    /// Receives all changes from now on.
    pub fn subscribe(&self) -> broadcast::Receiver<Change> {
        self.0.subscribe()
    }
}
