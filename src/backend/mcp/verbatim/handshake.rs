//! Keeps a server's description of itself from its handshake, verbatim, and makes a form of the
//! handshake that rmcp can always read.
//!
//! Must not: choose a revision; rmcp does.

use std::sync::Arc;

use rmcp::model::{ErrorCode, ErrorData, JsonRpcMessage, RequestId, ServerJsonRpcMessage};
use serde_json::json;
use serde_json::value::RawValue;

use crate::model::Members;

/// Where a server of revision 2026-07-28 puts its `Implementation`.
const SERVER_INFO_KEY: &str = "io.modelcontextprotocol/serverInfo";

/// Which of the two handshakes a response belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Up to 2025-11-25.
    Initialize,
    /// `server/discover`, from 2026-07-28 on.
    Discover,
}

/// The data of the latest handshake of a connection.
#[derive(Debug, Default)]
pub(in crate::backend::mcp) struct Handshake {
    /// The server's `Implementation`, verbatim.
    pub(in crate::backend::mcp) server_info: Option<Arc<RawValue>>,
    /// The revision, if the handshake fixes it.
    pub(in crate::backend::mcp) protocol_version: Option<String>,
    /// Whether the caller can ask for a tool call as a task (2025-11-25).
    pub(in crate::backend::mcp) takes_tasks: bool,
    /// Whether the connection is in use. Another handshake then means that the server has forgotten
    /// the connection.
    pub(in crate::backend::mcp) established: bool,
    /// There was a handshake since then.
    pub(super) repeated: bool,
    /// The body with which an HTTP server refused the latest message, until then.
    pub(super) refusal: Option<String>,
}

impl Handshake {
    /// Reads the response `text` with this `id` and `result`; returns the message for rmcp.
    pub(super) fn take(
        &mut self,
        kind: Kind,
        text: &str,
        id: i64,
        result: Option<&RawValue>,
    ) -> ServerJsonRpcMessage {
        let Some(members) = result.and_then(|result| Members::read(result.get()).ok()) else {
            return match serde_json::from_str(text) {
                Ok(error @ JsonRpcMessage::Error(_)) => error,
                _ => not_understood(id),
            };
        };
        let stand_in = match kind {
            Kind::Initialize => {
                let Some(version) = members.string("protocolVersion") else {
                    return refused(id, NO_REVISION);
                };
                self.server_info = stated(&members, "serverInfo");
                self.protocol_version = Some(version.clone());
                self.takes_tasks = takes_tasks(&members);
                json!({
                    "protocolVersion": version,
                    "capabilities": capabilities(&members),
                    "serverInfo": { "name": "unknown", "version": "unknown" },
                })
            }
            Kind::Discover => {
                let versions = members.get("supportedVersions").map(RawValue::get);
                let Some(Ok(versions)) = versions.map(serde_json::from_str::<Vec<String>>) else {
                    // Some servers answer any method with some result. This one does not know
                    // `server/discover`.
                    return not_understood(id);
                };
                let meta = members.object("_meta");
                let in_meta = meta.and_then(|meta| stated(&meta, SERVER_INFO_KEY));
                self.server_info = in_meta.or_else(|| stated(&members, "serverInfo"));
                self.protocol_version = None;
                // From this revision on, the server itself decides to make a task.
                self.takes_tasks = false;
                json!({
                    "resultType": "complete",
                    "supportedVersions": versions,
                    "capabilities": capabilities(&members),
                    "ttlMs": 0,
                    "cacheScope": "private",
                })
            }
        };
        self.repeated |= self.established;
        let stand_in = json!({ "jsonrpc": "2.0", "id": id, "result": stand_in });
        serde_json::from_value(stand_in).unwrap_or_else(|_| not_understood(id))
    }
}

/// The value under `key`, verbatim; `null` counts as left out.
fn stated(members: &Members<'_>, key: &str) -> Option<Arc<RawValue>> {
    let value = members.get(key).filter(|value| value.get() != "null")?;
    Some(value.to_owned().into())
}

/// The capabilities that matter here.
fn capabilities(result: &Members<'_>) -> serde_json::Value {
    let Some(capabilities) = result.object("capabilities") else { return json!({}) };
    let known = ["tools", "resources", "prompts", "completions"].into_iter().filter_map(|name| {
        let one = capabilities.object(name)?;
        let changes = one.get("listChanged").is_some_and(|value| value.get() == "true");
        Some((name.to_owned(), json!({ "listChanged": changes })))
    });
    known.collect::<serde_json::Map<_, _>>().into()
}

/// Whether `result` has the capability `tasks.requests.tools.call`.
fn takes_tasks(result: &Members<'_>) -> bool {
    let mut found = result.get("capabilities");
    for key in ["tasks", "requests", "tools", "call"] {
        found = found.and_then(|raw| Members::read(raw.get()).ok()?.get(key));
    }
    found.is_some_and(|call| !matches!(call.get(), "null" | "false"))
}

/// The error that stands for an answer to `initialize` without a revision.
const NO_REVISION: &str = "the answer says no revision";

/// Whether `error` stands for an answer to `initialize` without a revision.
pub(in crate::backend::mcp) fn says_no_revision(error: &ErrorData) -> bool {
    error.message == NO_REVISION
}

fn not_understood(id: i64) -> ServerJsonRpcMessage {
    refused(id, "the server answered the handshake with something else")
}

fn refused(id: i64, why: &'static str) -> ServerJsonRpcMessage {
    let error = ErrorData::new(ErrorCode::METHOD_NOT_FOUND, why, None);
    JsonRpcMessage::error(error, Some(RequestId::Number(id)))
}
