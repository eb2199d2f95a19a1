//! What the supervisor tells the registry and the log about its backend.
//!
//! Must not: wait for anything but the peer's features.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};
use tracing::{debug, info, warn};

use super::checkups::Checkups;
use super::{Outage, Reason, Supervisor};
use crate::backend::readiness::{Health, Readiness};
use crate::backend::registry::{Connection, Phase, Snapshot, StartStage};
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
        let readiness = connection.peer.health().map(Health::readiness);
        let mut recovered = false;
        let mut new_catalog = false;
        self.registry.write(&self.lease, |snapshot| {
            let digest = snapshot.catalog.as_ref().map(|catalog| catalog.digest());
            new_catalog = digest != Some(catalog.digest());
            recovered = snapshot.phase != Phase::Ready;
            self.judge(snapshot, readiness.as_ref());
            snapshot.connection = Some(connection.clone());
            snapshot.start = None;
            snapshot.on_demand = false;
            snapshot.about = about;
            snapshot.catalog = Some(catalog);
            snapshot.last_refresh = Some(now);
            snapshot.next_refresh = Some(now + wait);
            snapshot.connections += u64::from(reason == Reason::Connected);
        });
        let is_ready = matches!(readiness, None | Some(Readiness::Answers(_)));
        if is_ready && (new_catalog || (recovered && outage.tells_recovery())) {
            info!(backend = %self.lease.name, tools, revision, reason = reason.as_str(), "ready");
        } else {
            debug!(backend = %self.lease.name, tools, reason = reason.as_str(), "refreshed, nothing new");
        }
    }

    /// Gives `snapshot`, whose catalog is fresh, the phase that its endpoint deserves.
    fn judge(&self, snapshot: &mut Snapshot, readiness: Option<&Readiness>) {
        let (phase, failure) = match readiness {
            None | Some(Readiness::Answers(_)) => (Phase::Ready, None),
            Some(Readiness::Unknown) => (Phase::Connecting, None),
            Some(Readiness::Fails(failure)) => (Phase::Degraded, Some(failure)),
        };
        snapshot.phase = phase;
        snapshot.endpoint_in_doubt = phase != Phase::Ready;
        snapshot.last_error = failure.map(|failure| self.words(failure));
        snapshot.last_failure = failure.cloned();
    }

    /// Notes what is known of the endpoint by now, unless the last refresh has failed: that is the
    /// nearer trouble. The log tells of each trouble once, and of its end.
    pub(super) fn tell_readiness(&self, readiness: &Readiness, checkups: &mut Checkups) {
        let mut tools = None;
        self.registry.write(&self.lease, |snapshot| {
            if snapshot.endpoint_in_doubt || snapshot.phase == Phase::Ready {
                self.judge(snapshot, Some(readiness));
                tools = snapshot.catalog.as_ref().map(|catalog| catalog.tool_count());
            }
        });
        let backend = &self.lease.name;
        match readiness {
            Readiness::Unknown => {}
            Readiness::Answers(answer) => {
                if checkups.takes_news(None) {
                    info!(%backend, tools, answer, reason = Reason::Connected.as_str(), "ready");
                }
            }
            Readiness::Fails(failure) => {
                let error = self.words(failure);
                let cure = failure.own_cure();
                if checkups.takes_news(Some(&error)) {
                    warn!(%backend, error, cure, "its endpoint would not answer a call; calls are sent nevertheless");
                } else {
                    debug!(%backend, error, "its endpoint would still not answer a call");
                }
            }
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
            snapshot.endpoint_in_doubt = false;
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
        self.redact.redactor().text(text, &mut 0)
    }

    /// Notes that there is no connection. The log tells of it less and less often.
    pub(super) fn down(&self, failure: &PeerError, outage: &mut Outage) {
        let error = self.words(failure);
        self.registry.write(&self.lease, |snapshot| {
            snapshot.phase = Phase::Down;
            snapshot.endpoint_in_doubt = false;
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
