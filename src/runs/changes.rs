//! What has just changed of runs, calls and questions, told to whoever looks on. What it is now, they look up.
//!
//! Must not: hold anything up. Whoever is slow misses changes, and is told so.

use tokio::sync::broadcast;

use super::RunKey;
use crate::model::ids::{AppName, ApprovalId};

/// So many changes wait for one who is slow.
const WAITING: usize = 1024;

/// One change, and the app that it is of.
#[derive(Debug, Clone)]
pub enum Change {
    /// The run is driven, or has ended.
    Run(AppName, RunKey),
    /// The call of this number in the history has begun, goes on, or has ended.
    Call(AppName, u64),
    /// A person is asked this, or is not any more.
    Approval(AppName, ApprovalId),
}

/// Where changes are told.
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
    /// Tells of a change; that nobody looks on is no matter.
    pub(super) fn tell(&self, change: impl FnOnce() -> Change) {
        if self.0.receiver_count() > 0 {
            self.0.send(change()).ok();
        }
    }

    /// All changes from now on.
    pub fn subscribe(&self) -> broadcast::Receiver<Change> {
        self.0.subscribe()
    }
}
