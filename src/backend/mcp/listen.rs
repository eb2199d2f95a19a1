//! Listens for changes of a server's tools, resources and prompts in revision 2026-07-28, which
//! reports them on a stream that the client has to subscribe to.
//!
//! Must not: read the catalog.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{ErrorCode, SubscriptionFilter};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::rpc::{Kind, Message, OpenRequest, Rpc, Unanswered, members};
use crate::backend::Reply;
use crate::backoff::Backoff;
use crate::model::mcp::method;

/// If a stream lived this long, its end does not count as a failure.
const LIVED: Duration = Duration::from_secs(10);

/// Listens for as long as the connection lives.
pub(super) async fn for_changes(rpc: Arc<Rpc>) {
    let backend = &rpc.backend;
    let mut backoff = Backoff::for_connections();
    while !rpc.ended.is_cancelled() {
        let start = Instant::now();
        match subscribe(&rpc).await {
            Ok(Err(error)) if error.code == ErrorCode::METHOD_NOT_FOUND.0 => {
                tracing::debug!(%backend, "the server has no subscriptions; only the timer refreshes");
                return;
            }
            Ok(Err(error)) => tracing::debug!(%backend, "cannot listen for changes: {error}"),
            Err(Unanswered::Transport(failure)) => {
                tracing::debug!(%backend, "cannot listen for changes: {}", failure.words());
            }
            end => tracing::debug!(%backend, ?end, "the subscription ended"),
        }
        if start.elapsed() >= LIVED {
            backoff.reset();
        }
        sleep(backoff.next_wait()).await;
    }
}

/// Subscribes, and follows the subscription to its end. Notifications of changes come to the
/// connection, as all do.
async fn subscribe(rpc: &Arc<Rpc>) -> Result<Reply, Unanswered> {
    let request = Arc::new(OpenRequest::new(rpc.next_id(), method::LISTEN, Kind::Aside));
    let filter = SubscriptionFilter::builder()
        .tools_list_changed()
        .resources_list_changed()
        .prompts_list_changed()
        .build();
    let params = members(&json!({ "notifications": filter }));
    let message = Message::request(&request, Some(&rpc.meta(&request)), &[&params]);
    let mut subscription = pin!(rpc.exchange(&request, message));
    loop {
        tokio::select! {
            biased;
            end = &mut subscription => return end,
            // A change since the catalog was read, before this stream began, would be lost.
            () = rpc.subscribed.notified() => rpc.changed.notify_one(),
        }
    }
}
