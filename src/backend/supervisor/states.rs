//! What the supervisor tells the registry and the log about its backend.
//!
//! Must not: wait for anything but the peer's features.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};
use tracing::{debug, info, warn};

use super::{Outage, Reason, Supervisor};
use crate::backend::registry::{Connection, Phase, StartStage};
use crate::backend::{Peer, PeerError, PeerErrorKind};
use crate::clock;
use crate::error_chain::error_chain;
use crate::model::Catalog;

impl Supervisor {
    /// Notes how far the program's start is. A backend whose last start has failed stays `down`
    /// meanwhile: one that never starts must not look as if it were about to.
    pub(super) fn starting(&self, stage: StartStage, outage: &Outage) {
        let start_failed = outage.start_failed;
        self.registry.note(&self.lease, |snapshot| {
            snapshot.start = Some(stage);
            if !start_failed {
                snapshot.phase = Phase::Starting;
            }
        });
    }

    /// Notes that the program does not run until it is needed.
    pub(super) fn rests(&self) {
        self.registry.write(&self.lease, |snapshot| {
            if snapshot.phase != Phase::Idle {
                snapshot.becomes_idle();
            }
        });
        info!(backend = %self.lease.name, "idle: its next call starts it");
    }

    /// Notes that the backend has no connection, as the operator has asked for it.
    pub(super) fn switched(&self, phase: Phase) {
        self.registry.write(&self.lease, |known| known.disconnects_as(phase));
    }

    pub(super) fn ready(
        &self,
        connection: &Connection,
        catalog: Arc<Catalog>,
        reason: Reason,
        wait: Duration,
        outage: &mut Outage,
    ) {
        let now = clock::now();
        let tools = catalog.tool_count();
        let about = connection.peer.about();
        let revision = about.protocol_version.clone();
        let mut recovered = false;
        let mut new_catalog = false;
        self.registry.write(&self.lease, |snapshot| {
            let digest = snapshot.catalog.as_ref().map(|catalog| catalog.digest());
            new_catalog = digest != Some(catalog.digest());
            recovered = snapshot.phase != Phase::Ready;
            snapshot.phase = Phase::Ready;
            snapshot.connection = Some(connection.clone());
            snapshot.start = None;
            snapshot.on_demand = false;
            snapshot.about = about;
            snapshot.catalog = Some(catalog);
            snapshot.last_refresh = Some(now);
            snapshot.next_refresh = Some(now + wait);
            snapshot.last_error = None;
            snapshot.last_failure = None;
            snapshot.connections += u64::from(reason == Reason::Connected);
        });
        if new_catalog || (recovered && outage.tells_recovery()) {
            info!(backend = %self.lease.name, tools, revision, reason = reason.as_str(), "ready");
        } else {
            debug!(backend = %self.lease.name, tools, reason = reason.as_str(), "refreshed, nothing new");
        }
    }

    /// Asks for what the peer offers beside its tools, after them: it must not delay them. After a
    /// failure, the last ones stay. The log tells of the first failure alone.
    pub(super) async fn features(&self, peer: &dyn Peer, patience: Duration, outage: &mut Outage) {
        let error = match timeout(patience, peer.features()).await {
            Ok(Ok(features)) => {
                outage.features_told = false;
                self.registry.write(&self.lease, |snapshot| snapshot.features = Arc::new(features));
                return;
            }
            Ok(Err(error)) => self.words(&error),
            Err(_elapsed) => format!("no answer within {patience:?}"),
        };
        if outage.features_told {
            debug!(backend = %self.lease.name, error, "resources and prompts were not listed");
        } else {
            warn!(backend = %self.lease.name, error, "resources and prompts were not listed");
        }
        outage.features_told = true;
    }

    pub(super) fn degraded(
        &self,
        connection: &Connection,
        failure: &PeerError,
        wait: Duration,
        outage: &mut Outage,
    ) {
        let error = self.words(failure);
        let cure = failure.own_cure();
        match outage.refresh_failed(Instant::now()) {
            Some(failures) => {
                warn!(backend = %self.lease.name, error, cure, failures, "refresh failed; the last good catalog stays");
            }
            None => debug!(backend = %self.lease.name, error, "refresh failed again"),
        }
        self.registry.write(&self.lease, |snapshot| {
            snapshot.phase = Phase::Degraded;
            snapshot.connection = Some(connection.clone());
            snapshot.start = None;
            snapshot.on_demand = false;
            snapshot.about = connection.peer.about();
            snapshot.next_refresh = Some(clock::now() + wait);
            snapshot.last_error = Some(error);
            snapshot.last_failure = Some(failure.clone());
            snapshot.failures += 1;
        });
    }

    /// `error` for operators; it may repeat what the peer has said.
    pub(super) fn words(&self, error: &PeerError) -> String {
        let text = error_chain(error);
        self.redact.removal().text(text, &mut 0)
    }

    /// Notes that there is no connection. The log tells of it less and less often.
    pub(super) fn down(&self, failure: &PeerError, outage: &mut Outage) {
        let error = self.words(failure);
        self.registry.write(&self.lease, |snapshot| {
            snapshot.phase = Phase::Down;
            snapshot.connection = None;
            snapshot.start = None;
            snapshot.on_demand = false;
            snapshot.next_refresh = None;
            snapshot.last_error = Some(error.clone());
            snapshot.last_failure = Some(failure.clone());
            snapshot.failures += 1;
        });
        match outage.told_failures() {
            Some(_) if failure.kind == PeerErrorKind::Unresolved => {
                warn!(backend = %self.lease.name, error, "down, until what its entry refers to is there");
            }
            Some(failures) => {
                let cure = failure.own_cure();
                warn!(backend = %self.lease.name, error, cure, failures, "down; the bridge keeps trying to connect");
            }
            None => debug!(backend = %self.lease.name, error, "still down"),
        }
    }
}
