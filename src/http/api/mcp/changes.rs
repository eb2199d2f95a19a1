//! Tells MCP clients that their tools have changed: on the stream of a session (`GET /mcp`), or on
//! that of `subscriptions/listen` (2026-07-28).
//!
//! Must not: send the tools.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::stream;
use http::Response;
use tokio::{sync::watch, time::sleep};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Client, Era, message::Request, notification, sessions::Session};
use crate::{
    http::{
        api::Api,
        response::{self, Body},
    },
    model::{ids::AppName, json::member, offer::Offer},
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
    /// The digest of the tools that the client knows.
    known: String,
    /// Names the subscription in every notification; `None` for a session's stream.
    subscription: Option<String>,
    /// Sent before all others.
    first: Option<Bytes>,
    session: Option<Arc<Session>>,
    end: CancellationToken,
    /// Tells the session that the stream has ended.
    _ends: DropGuard,
}

impl Client<'_> {
    /// The stream of a session's notifications.
    pub(super) fn session_stream(&self) -> Option<Response<Body>> {
        let Era::Session(session) = &self.era else { return None };
        Some(self.feed(None, None, session.begin_stream()))
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
        self.feed(Some(request.id.to_owned()), first, CancellationToken::new())
    }

    fn feed(
        &self,
        subscription: Option<String>,
        first: Option<Bytes>,
        end: CancellationToken,
    ) -> Response<Body> {
        let mut feed = Feed {
            registry: self.api.backends().registry.version(),
            api: self.api.clone(),
            app: self.caller.app.name.clone(),
            known: String::new(),
            subscription,
            first,
            session: match &self.era {
                Era::Session(session) => Some(Arc::clone(session)),
                Era::Stateless => None,
            },
            _ends: end.clone().drop_guard(),
            end,
        };
        feed.known = feed.digest().unwrap_or_default();
        // A change since the client's last look would be missed otherwise.
        if let Era::Session(session) = &self.era
            && session.knows(&feed.known)
        {
            feed.first = Some(super::event(&notification(CHANGED, "{}")));
        }
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
            let now = self.digest()?;
            if now != self.known {
                if let Some(session) = &self.session {
                    session.knows(&now);
                }
                self.known = now;
                let meta = self.subscription.as_deref().map(subscription_meta);
                let params = format!("{{{}}}", meta.unwrap_or_default());
                return Some(super::event(&notification(CHANGED, &params)));
            }
            if idle {
                return Some(Bytes::from_static(super::PING));
            }
        }
    }

    /// The digest of the app's tools; `None` if there is no such app any more.
    fn digest(&self) -> Option<String> {
        let app = self.api.runs.calls.app(&self.app)?;
        Some(digest(&self.api.offer(&app)))
    }
}

/// The digest of all tools of an offer.
pub(super) fn digest(offer: &Offer) -> String {
    let all: BTreeSet<_> = offer.backends().map(|(name, _)| name.clone()).collect();
    offer.digest(&all)
}

fn subscription_meta(id: &str) -> String {
    format!("\"_meta\":{{\"io.modelcontextprotocol/subscriptionId\":{id}}}")
}
