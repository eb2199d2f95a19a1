//! Tells MCP clients that their tools have changed: on the stream of a session (`GET /mcp`), or on
//! that of `subscriptions/listen` (2026-07-28).
//!
//! Must not: send the tools.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::stream;
use http::Response;
use tokio::{sync::watch, time::sleep};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    Client,
    message::Request,
    notification,
    sessions::{Known, Session},
};
use crate::{
    http::{
        api::Api,
        response::{self, Body},
    },
    model::{ids::AppName, json::member},
};

/// How often the rights of the app are looked at, which a reload may change without a change of any
/// backend; also how often an idle stream shows that it lives.
const LOOK: Duration = Duration::from_secs(15);
const CHANGED: &str = "notifications/tools/list_changed";

/// The stream of one client.
struct Feed {
    api: Api,
    app: AppName,
    registry: watch::Receiver<u64>,
    known: Arc<Known>,
    /// Names the subscription in every notification; `None` for a session's stream.
    subscription: Option<String>,
    /// Sent before all others.
    first: Option<Bytes>,
    end: CancellationToken,
    /// Tells the session that the stream has ended.
    _ends: DropGuard,
}

impl Client<'_> {
    /// The stream of a session's notifications.
    pub(super) fn session_stream(&self, session: &Session) -> Response<Body> {
        let known = Arc::clone(&session.known);
        // A change since the client's last look would be missed otherwise.
        let has_changed = known.learn(&self.api.offer(&self.caller.app));
        let first = has_changed.then(|| super::event(&notification(CHANGED, "{}")));
        self.feed(known, None, first, session.begin_stream())
    }

    /// Answers `subscriptions/listen`: confirms what the bridge can tell of, and then tells it.
    pub(super) fn listen(&self, request: &Request<'_>) -> Response<Body> {
        let wanted = request.get("notifications");
        let wants_tools = wanted
            .and_then(|filter| member(filter.get(), "toolsListChanged"))
            .is_some_and(|value| value.get() == "true");
        let agreed = if wants_tools { "{\"toolsListChanged\":true}" } else { "{}" };
        let params = format!("{{{},\"notifications\":{agreed}}}", subscription_meta(request.id));
        let confirmed = notification("notifications/subscriptions/acknowledged", &params);
        let first = Some(super::event(&confirmed));
        let known = Arc::<Known>::default();
        known.learn(&self.api.offer(&self.caller.app));
        self.feed(known, Some(request.id.to_owned()), first, CancellationToken::new())
    }

    fn feed(
        &self,
        known: Arc<Known>,
        subscription: Option<String>,
        first: Option<Bytes>,
        end: CancellationToken,
    ) -> Response<Body> {
        let feed = Feed {
            registry: self.api.backends().registry.version(),
            api: self.api.clone(),
            app: self.caller.app.name.clone(),
            known,
            subscription,
            first,
            _ends: end.clone().drop_guard(),
            end,
        };
        response::events(stream::unfold(feed, |mut feed| async move {
            Some((feed.next().await?, feed))
        }))
    }
}

impl Feed {
    /// The next piece of the stream; `None` when the daemon shuts down or the session ends.
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        let draining = self.api.runs.draining().clone();
        loop {
            let idle = tokio::select! {
                () = draining.cancelled() => return None,
                () = self.end.cancelled() => return None,
                changed = self.registry.changed() => {
                    changed.ok()?;
                    false
                }
                () = sleep(LOOK) => true,
            };
            // The app is gone if the list of apps has it no more.
            let app = self.api.runs.calls.app(&self.app)?;
            if self.known.learn(&self.api.offer(&app)) {
                let meta = self.subscription.as_deref().map(subscription_meta);
                let params = format!("{{{}}}", meta.unwrap_or_default());
                return Some(super::event(&notification(CHANGED, &params)));
            }
            if idle {
                return Some(Bytes::from_static(super::PING));
            }
        }
    }
}

fn subscription_meta(id: &str) -> String {
    format!("\"_meta\":{{\"io.modelcontextprotocol/subscriptionId\":{id}}}")
}
