//! Tells MCP clients that a list has changed: on the stream of a session (`GET /mcp`), or on that
//! of `subscriptions/listen` (2026-07-28).
//!
//! Must not: send a list.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::Response;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::selection::Selection;
use super::sessions::{ClientLists, Session};
use super::{Api, App, Body, Client, Request, notification, response};
use crate::model::mcp::notification::ACKNOWLEDGED;
use crate::model::words::{Words as _, words};
use crate::model::{AppName, member};

/// How often the rights of the app are looked at, which a reload may change without a change of any
/// backend; also how often an idle stream shows that it lives.
const LOOK: Duration = Duration::from_secs(15);

words! {
    /// A list whose changes a client is told of.
    #[derive(Hash)]
    pub enum List {
        Tools = "tools",
        Resources = "resources",
        Prompts = "prompts",
    }
}

impl List {
    /// The member of a subscription's filter that asks for it.
    fn filter(self) -> String {
        format!("{}ListChanged", self.as_str())
    }

    /// The digest of what `app` sees within `selection`.
    pub(super) fn digest(self, api: &Api, app: &App, selection: &Selection) -> String {
        let features = || api.features_within(app, selection);
        match self {
            Self::Tools => api.offer_within(app, selection).digest_of_all().to_owned(),
            Self::Resources => features().digest_of_resources().to_string(),
            Self::Prompts => features().digest_of_prompts().to_string(),
        }
    }
}

/// The stream of one client.
struct Feed {
    api: Api,
    app: AppName,
    selection: Selection,
    registry: watch::Receiver<u64>,
    lists: Vec<List>,
    client_lists: Arc<ClientLists>,
    /// The parameters of every notification: they name the subscription, if the stream is one.
    params: String,
    /// Sent before anything is waited for.
    events: VecDeque<Bytes>,
    end: CancellationToken,
    /// Tells the session that the stream has ended.
    _ends: DropGuard,
}

impl Client<'_> {
    /// The stream of a session's notifications.
    pub(super) fn session_stream(&self, session: &Session) -> Response<Body> {
        let mut feed = self.feed(session.begin_stream());
        feed.client_lists = Arc::clone(&session.lists);
        // A change since the client's last look would be missed otherwise.
        feed.look();
        feed.respond()
    }

    /// Answers `subscriptions/listen`: confirms what the bridge can tell of, and then tells it.
    pub(super) fn listen(&self, request: &Request<'_>) -> Response<Body> {
        let filter = request.get("notifications").map_or("{}", |filter| filter.get());
        let mut feed = self.feed(CancellationToken::new());
        feed.lists.retain(|list| {
            member(filter, &list.filter()).is_some_and(|value| value.get() == "true")
        });
        let agreed_filter: serde_json::Map<_, _> =
            feed.lists.iter().map(|list| (list.filter(), true.into())).collect();
        let meta =
            format!("\"_meta\":{{\"io.modelcontextprotocol/subscriptionId\":{}}}", request.id);
        let params = format!("{{{meta},\"notifications\":{}}}", json!(agreed_filter));
        let confirmation = notification(ACKNOWLEDGED, &params);
        feed.params = format!("{{{meta}}}");
        feed.look();
        feed.events.push_front(super::event(&confirmation));
        feed.respond()
    }

    fn feed(&self, end: CancellationToken) -> Feed {
        Feed {
            registry: self.api.backends().registry.version(),
            api: self.api.clone(),
            app: self.caller.app.name.clone(),
            selection: self.selection.clone(),
            lists: List::ALL.to_vec(),
            client_lists: Arc::default(),
            params: "{}".to_owned(),
            events: VecDeque::new(),
            _ends: end.clone().drop_guard(),
            end,
        }
    }
}

impl Feed {
    fn respond(self) -> Response<Body> {
        response::events(stream::unfold(self, |mut feed| async move {
            Some((feed.next().await?, feed))
        }))
    }

    /// Writes a notification for each list of which the client has an older state. `None` if the
    /// app has been removed.
    fn look(&mut self) -> Option<()> {
        let app = self.api.runs.calls.app(&self.app)?;
        for list in &self.lists {
            if self.client_lists.learn(*list, &list.digest(&self.api, &app, &self.selection)) {
                let method = format!("notifications/{}/list_changed", list.as_str());
                self.events.push_back(super::event(&notification(&method, &self.params)));
            }
        }
        Some(())
    }

    /// The next piece of the stream; `None` when the daemon shuts down or the session ends.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            let idle = tokio::select! {
                () = self.api.runs.draining().cancelled() => return None,
                () = self.end.cancelled() => return None,
                version = self.registry.changed() => {
                    version.ok()?;
                    false
                }
                () = sleep(LOOK) => true,
            };
            self.look()?;
            if idle && self.events.is_empty() {
                return Some(Bytes::from_static(super::PING));
            }
        }
    }
}
