//! Tells of changes of the backends.
//!
//! Must not: know what a change is.

use std::sync::Arc;

use tokio::sync::watch;

use super::All;

/// Ends a wait when a reload has replaced the backends.
#[derive(Debug)]
pub struct BackendChanges(watch::Receiver<Arc<All>>);

impl BackendChanges {
    pub(super) fn new(all: watch::Receiver<Arc<All>>) -> Self {
        Self(all)
    }

    /// Ends with the next change; `false` if there will be none.
    pub async fn next(&mut self) -> bool {
        self.0.changed().await.is_ok()
    }
}
