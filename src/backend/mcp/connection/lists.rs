//! Reads whole lists of a server: all pages, as far as the server has the list.
//!
//! Must not: look into an item.

use serde_json::json;
use serde_json::value::RawValue;

use super::Connection;
use crate::backend::mcp::http::HttpFailure;
use crate::backend::mcp::pages::{List, Next, Pages};
use crate::backend::mcp::rpc::{OpenRequest, Unanswered};
use crate::backend::mcp::transport::SendFailure;
use crate::backend::{CallError, PeerError, PeerErrorKind, Reply};
use crate::model::catalog::{Cut, Fault};
use crate::model::mcp::method;

impl Connection {
    /// All pages of a list.
    pub(super) async fn pages(
        &self,
        method: &'static str,
        list: &'static str,
    ) -> Result<List, PeerError> {
        let mut pages = Pages::new(list, !self.revision().has_initialize());
        let mut cursor: Option<String> = None;
        loop {
            let is_doubtful = cursor.as_ref().is_some_and(String::is_empty);
            let params = cursor.take().map_or(json!({}), |cursor| json!({ "cursor": cursor }));
            let (request, message) = self.reading(method, params, None);
            let reply = self.rpc().exchange(&request, message).await;
            // The server has written an empty cursor on its last page.
            let is_after_last = is_doubtful && matches!(reply, Ok(Err(_)));
            if is_after_last || self.has_no_such_list(method, &reply) {
                return Ok(List { ttl: pages.ttl, items: pages.items, cut: None });
            }
            let page = self.page(&request, reply)?;
            let added = pages.add(&page).map_err(|error| {
                let text = format!("its {method} {error}: not used");
                PeerError::new(PeerErrorKind::Protocol, text)
            });
            let (why, fault) = match added? {
                Next::Done => return Ok(List { ttl: pages.ttl, items: pages.items, cut: None }),
                Next::Page(next) => {
                    cursor = Some(next);
                    continue;
                }
                Next::Cut => ("is too long, or has no end; the rest is left out", Fault::Size),
                Next::BadCursor => {
                    ("has a `nextCursor` that is not a text; the rest is left out", Fault::Cursor)
                }
            };
            let cut = Some(Cut { why: format!("Its {method} {why}"), fault });
            return Ok(List { ttl: pages.ttl, items: pages.items, cut });
        }
    }

    /// The result of a page's request, or why the list cannot be read.
    fn page(
        &self,
        request: &OpenRequest,
        reply: Result<Reply, Unanswered>,
    ) -> Result<Box<RawValue>, PeerError> {
        let (kind, error) = match reply {
            Ok(Ok(page)) => return Ok(page),
            Ok(Err(error)) => (None, CallError::from(error)),
            Err(unanswered) => {
                if let Unanswered::Transport(SendFailure::Http(paused @ HttpFailure::Paused(_))) =
                    &unanswered
                {
                    return Err(paused.peer_error());
                }
                let kind = match &unanswered {
                    Unanswered::Transport(SendFailure::Http(failure)) => Some(failure.kind()),
                    _ => None,
                };
                (kind, self.rpc().call_error(request, unanswered))
            }
        };
        let usual_kind = match error {
            CallError::NotSent(_) | CallError::NoSession(_) | CallError::Lost(_) => {
                PeerErrorKind::Connect
            }
            _ => PeerErrorKind::Protocol,
        };
        Err(PeerError::new(kind.unwrap_or(usual_kind), format!("{} failed", request.method))
            .because(error))
    }

    /// Whether the server has refused a list that it need not have: `resources` does not promise
    /// templates, and without `tools` there are none. Otherwise the backend would never be ready,
    /// or its resources would be missing.
    fn has_no_such_list(&self, method: &str, page: &Result<Reply, Unanswered>) -> bool {
        let promises_tools =
            || self.rpc().info().is_some_and(|info| info.capabilities.tools.is_some());
        matches!(page, Ok(Err(error)) if error.is_unknown_method())
            && (method != method::LIST_TOOLS || !promises_tools())
    }
}
