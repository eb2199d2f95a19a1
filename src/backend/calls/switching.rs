//! Disables, enables and restarts a backend for the operator, by the switch that its supervisor
//! reads.
//!
//! Must not: connect, or remember anything: a restart of the bridge enables all backends.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::Backends;
use crate::backend::registry::{Phase, Snapshot};
use crate::model::BackendName;

/// How long a request waits until a supervisor has taken over what the operator wants: it may be
/// writing to the registry, or in a start that it gives up.
const SWITCH_PATIENCE: Duration = Duration::from_secs(10);

impl Backends {
    /// Ends the connection of `name` until the operator enables it or the bridge restarts, and
    /// waits until the supervisor has done so, but no longer than [`SWITCH_PATIENCE`].
    pub async fn disable(&self, name: &BackendName) {
        let Some(backend) = self.all().handles.get(name).cloned() else { return };
        backend.switch.turn_off();
        self.wait_until_switched(name, |known| known.phase == Phase::Disabled).await;
    }

    /// Has `name` connected again, and waits for the first attempt as [`Self::refresh`] does.
    pub async fn enable(&self, name: &BackendName) {
        let Some(backend) = self.all().handles.get(name).cloned() else { return };
        backend.switch.turn_on();
        self.wait_until_switched(name, |known| known.phase != Phase::Disabled).await;
        self.refresh(name.as_str()).await;
    }

    /// Ends the connection of `name` and has a new one made. Waits until the earlier one is no
    /// longer used, but no longer than [`SWITCH_PATIENCE`].
    pub async fn restart(&self, name: &BackendName) {
        let Some(backend) = self.all().handles.get(name).cloned() else { return };
        let before = self.registry.snapshot(name.as_str()).and_then(|known| known.connection);
        backend.switch.restart();
        self.wait_until_switched(name, |known| match (&known.connection, &before) {
            (Some(now), Some(before)) => !Arc::ptr_eq(&now.peer, &before.peer),
            _ => true,
        })
        .await;
    }

    async fn wait_until_switched(&self, name: &BackendName, is_done: impl Fn(&Snapshot) -> bool) {
        let switched = self.registry.wait_for(|registry| {
            let is_done = registry.snapshot(name.as_str()).as_ref().is_none_or(&is_done);
            if is_done { Some(()) } else { None }
        });
        drop(timeout(SWITCH_PATIENCE, switched).await);
    }
}
