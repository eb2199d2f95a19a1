//! Listens for changes of a server's tools, resources and prompts in revision 2026-07-28, which reports them on a stream
//! that the client has to subscribe to.
//!
//! Must not: read the catalog.

use std::{sync::Arc, time::Duration};

use rmcp::{
    RoleClient,
    model::{ErrorCode, ServerNotification, SubscriptionFilter},
    service::{Peer, ServiceError, Subscription},
};
use tokio::time::{Instant, sleep};

use super::{http, verbatim::ConnectionState};
use crate::model::ids::BackendName;

const SHORTEST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// If a stream lived this long, its end does not count as a failure.
const LIVED: Duration = Duration::from_secs(10);

/// Listens for as long as the connection lives.
pub(super) async fn for_changes(
    backend: BackendName,
    peer: Peer<RoleClient>,
    state: Arc<ConnectionState>,
) {
    let mut waits = Waits::default();
    let mut first = true;
    while !peer.is_transport_closed() {
        let start = Instant::now();
        let filter = SubscriptionFilter::builder()
            .tools_list_changed()
            .resources_list_changed()
            .prompts_list_changed()
            .build();
        match peer.listen(filter).await {
            Ok(mut subscription) => {
                if !first {
                    // A change between the two streams would be lost, so refresh.
                    state.changed.notify_one();
                }
                first = false;
                follow(&backend, &mut subscription, &state).await;
            }
            Err(ServiceError::McpError(error)) if error.code == ErrorCode::METHOD_NOT_FOUND => {
                tracing::debug!(%backend, "the server has no subscriptions; only the timer refreshes");
                return;
            }
            Err(ServiceError::TransportSend(error)) => {
                tracing::debug!(%backend, "cannot listen for changes: {}", http::words(&error));
            }
            Err(error) => tracing::debug!(%backend, "cannot listen for changes: {error}"),
        }
        sleep(waits.after(start.elapsed(), rand::random())).await;
    }
}

async fn follow(backend: &BackendName, subscription: &mut Subscription, state: &ConnectionState) {
    loop {
        match subscription.next().await {
            Ok(Some(
                ServerNotification::ToolListChangedNotification(_)
                | ServerNotification::ResourceListChangedNotification(_)
                | ServerNotification::PromptListChangedNotification(_),
            )) => state.changed.notify_one(),
            Ok(Some(_)) => (),
            Ok(None) => {
                tracing::debug!(%backend, end = ?subscription.end(), "the subscription ended");
                return;
            }
            Err(error) => {
                tracing::debug!(%backend, "the subscription broke: {error}");
                return;
            }
        }
    }
}

/// The waits between attempts.
#[derive(Debug, Default)]
struct Waits {
    failures: u32,
}

impl Waits {
    /// The wait after a stream that lived for `lived`; `draw` is a random number in 0..1.
    fn after(&mut self, lived: Duration, draw: f64) -> Duration {
        if lived >= LIVED {
            self.failures = 0;
        }
        let most = SHORTEST_WAIT.saturating_mul(1 << self.failures.min(16)).min(LONGEST_WAIT);
        self.failures += 1;
        // Never zero: otherwise the bridge would reconnect without pause to a server that ends
        // every stream.
        SHORTEST_WAIT.mul_f64(0.5).max(most.mul_f64(draw))
    }
}

#[cfg(test)]
mod tests;
