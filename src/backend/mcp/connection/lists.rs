//! Reads whole lists of a server: all pages, as far as the server has the list.
//!
//! Must not: look into an item.

use rmcp::model::{CustomRequest, RequestMetaObject};
use serde_json::json;

use super::Connection;
use crate::backend::mcp::http;
use crate::backend::mcp::pages::{List, Next, Pages};
use crate::backend::mcp::verbatim::RawRequest;
use crate::backend::{CallError, Called, PeerError, PeerErrorKind, Reply};
use crate::model::catalog::{Cut, Fault};

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
            let raw_request = RawRequest::reading(method);
            let request = CustomRequest::new(method, Some(params));
            let page = self.send_raw(request, &raw_request, RequestMetaObject::new()).await;
            // The server has written an empty cursor on its last page.
            let is_after_last = is_doubtful && matches!(page, Ok(Err(_)));
            if is_after_last || self.has_no_such_list(method, &page) {
                return Ok(List { ttl: pages.ttl, items: pages.items, cut: None });
            }
            let page = page.and_then(|page| Ok(page?)).map_err(|error| {
                if let Some(pause) = raw_request.pause.get() {
                    return http::HttpFailure::Paused(*pause).peer_error();
                }
                let kind = raw_request.failure.get().copied().unwrap_or(match error {
                    CallError::NotSent(_) | CallError::NoSession(_) | CallError::Lost(_) => {
                        PeerErrorKind::Connect
                    }
                    _ => PeerErrorKind::Protocol,
                });
                PeerError::new(kind, format!("{method} failed")).because(error)
            })?;
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

    /// Whether the server has refused a list that it need not have: `resources` does not promise
    /// templates, and without `tools` there are none. Otherwise the backend would never be ready,
    /// or its resources would be missing.
    fn has_no_such_list(&self, method: &str, page: &Called<Reply>) -> bool {
        let promises_tools =
            || self.peer.peer_info().is_some_and(|info| info.capabilities.tools.is_some());
        matches!(page, Ok(Err(error)) if error.is_unknown_method())
            && (method != "tools/list" || !promises_tools())
    }
}
