//! A backend's live connection, and who uses it.
//!
//! Must not: decide when a connection ends; the supervisor and the registry do.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::backend::Peer;
use crate::model::Identity;

/// A live connection, with a count of the calls that use it.
#[derive(Debug, Clone)]
pub struct Connection {
    pub peer: Arc<dyn Peer>,
    pub(super) users: TaskTracker,
    last_use: Arc<LastUse>,
}

/// When a connection was last used.
#[derive(Debug)]
struct LastUse {
    /// When the last use has ended, or the connection was made.
    at: Mutex<Instant>,
    ended: Notify,
}

/// Notes the end of a use when it is dropped.
#[derive(Debug)]
struct EndOfUse(Arc<LastUse>);

impl Drop for EndOfUse {
    fn drop(&mut self) {
        *self.0.at.lock() = Instant::now();
        self.0.ended.notify_one();
    }
}

/// A connection in use. The supervisor closes it only after this is dropped, unless the connection
/// breaks or the daemon stops.
#[derive(Debug)]
pub struct InUse {
    pub peer: Arc<dyn Peer>,
    /// The peer's identity; `None` for a local tool.
    pub identity: Option<Identity>,
    // In this order: the end is noted when the use counts no more.
    _counted: TaskTrackerToken,
    _end: EndOfUse,
}

impl Connection {
    pub fn new(peer: Arc<dyn Peer>) -> Self {
        let last_use = LastUse { at: Mutex::new(Instant::now()), ended: Notify::new() };
        Self { peer, users: TaskTracker::new(), last_use: Arc::new(last_use) }
    }

    /// Waits until nothing has used the connection for `time`. A call may come in right after this:
    /// [`super::Registry::retire`] decides.
    pub async fn idle_for(&self, time: Duration) {
        loop {
            let due = *self.last_use.at.lock() + time;
            if !self.users.is_empty() {
                self.last_use.ended.notified().await;
            } else if Instant::now() < due {
                sleep_until(due).await;
            } else {
                return;
            }
        }
    }

    /// Waits until no call uses the connection. Take it off the registry first: otherwise new calls
    /// keep it in use.
    pub async fn unused(&self) {
        self.users.close();
        self.users.wait().await;
    }

    /// The connection, counted as in use. Call it under the registry's lock.
    pub(super) fn in_use(&self, identity: Option<Identity>) -> InUse {
        InUse {
            peer: Arc::clone(&self.peer),
            identity,
            _counted: self.users.token(),
            _end: EndOfUse(Arc::clone(&self.last_use)),
        }
    }
}
