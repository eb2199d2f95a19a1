//! Listens for changes of a server's tools, resources and prompts in revision 2026-07-28, which
//! reports them on a stream that the client has to subscribe to.
//!
//! Must not: read the catalog.

use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{ErrorCode, ServerNotification, SubscriptionFilter};
use rmcp::service::{Peer, ServiceError, Subscription};
use tokio::time::{Instant, sleep};

use super::http;
use super::verbatim::ConnectionState;
use crate::backoff::Backoff;
use crate::model::BackendName;

/// If a stream lived this long, its end does not count as a failure.
const LIVED: Duration = Duration::from_secs(10);

/// Listens for as long as the connection lives.
pub(super) async fn for_changes(
    backend: BackendName,
    peer: Peer<RoleClient>,
    state: Arc<ConnectionState>,
) {
    let mut backoff = Backoff::for_connections();
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
        if start.elapsed() >= LIVED {
            backoff.reset();
        }
        sleep(backoff.next_wait()).await;
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
                let end = subscription.end();
                return tracing::debug!(%backend, ?end, "the subscription ended");
            }
            Err(error) => return tracing::debug!(%backend, "the subscription broke: {error}"),
        }
    }
}
