//! What a server says of itself in a handshake: its own description, verbatim, and the few things
//! that matter here, whatever else stands beside them.
//!
//! Must not: choose a revision.

use std::sync::Arc;

use rmcp::model::{ProtocolVersion, ServerCapabilities};
use serde_json::json;
use serde_json::value::RawValue;

use crate::model::mcp::meta;
use crate::model::{Instructions, Members};

/// The data of the latest handshake of a connection.
#[derive(Debug, Default)]
pub(in crate::backend::mcp) struct Handshake {
    /// The server's `Implementation`, verbatim.
    pub(in crate::backend::mcp) server_info: Option<Arc<RawValue>>,
    /// What the server tells models about its tools as a whole.
    pub(in crate::backend::mcp) instructions: Instructions,
    /// The revision, if the handshake fixes it.
    pub(in crate::backend::mcp) protocol_version: Option<String>,
    /// Whether the caller can ask for a tool call as a task (2025-11-25).
    pub(in crate::backend::mcp) takes_tasks: bool,
    /// The body with which an HTTP server refused the latest message, until the handshake is done.
    pub(super) refusal: Option<String>,
    /// The server has sent back a request of the handshake.
    pub(super) echoes: bool,
}

/// What a handshake has agreed on.
#[derive(Debug, Clone)]
pub(in crate::backend::mcp) struct ServerInfo {
    pub(in crate::backend::mcp) protocol_version: ProtocolVersion,
    pub(in crate::backend::mcp) capabilities: ServerCapabilities,
}

/// Why the result of a handshake's request is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::backend::mcp) enum NoHandshake {
    /// The answer to `initialize` says no revision.
    Revision,
    /// It is the answer to another question.
    Form,
}

impl ServerInfo {
    /// Whether the server says so when a list of its changes.
    pub(in crate::backend::mcp) fn tells_changes(&self) -> bool {
        let ServerCapabilities { tools, resources, prompts, .. } = &self.capabilities;
        let of_tools = tools.as_ref().and_then(|tools| tools.list_changed);
        let of_resources = resources.as_ref().and_then(|resources| resources.list_changed);
        let of_prompts = prompts.as_ref().and_then(|prompts| prompts.list_changed);
        [of_tools, of_resources, of_prompts].contains(&Some(true))
    }
}

impl Handshake {
    /// Takes the result of `initialize`.
    pub(in crate::backend::mcp) fn initialized(
        &mut self,
        result: &RawValue,
    ) -> Result<ServerInfo, NoHandshake> {
        let members = Members::read(result.get()).map_err(|_no_object| NoHandshake::Form)?;
        let version = members.string("protocolVersion").ok_or(NoHandshake::Revision)?;
        self.server_info = verbatim(&members, "serverInfo");
        self.instructions = Instructions::read(members.get("instructions"));
        self.takes_tasks = takes_tasks(&members);
        self.protocol_version = Some(version.clone());
        let protocol_version = serde_json::from_value(version.into());
        Ok(ServerInfo {
            protocol_version: protocol_version.map_err(|_other| NoHandshake::Form)?,
            capabilities: capabilities(&members),
        })
    }

    /// Takes the result of `server/discover`: the revisions that the server has, and its
    /// capabilities.
    pub(in crate::backend::mcp) fn discovered(
        &mut self,
        result: &RawValue,
    ) -> Result<(Vec<ProtocolVersion>, ServerCapabilities), NoHandshake> {
        let members = Members::read(result.get()).map_err(|_no_object| NoHandshake::Form)?;
        // Some servers answer any method with some result. They do not know `server/discover`.
        let versions = members
            .get("supportedVersions")
            .and_then(|versions| serde_json::from_str(versions.get()).ok())
            .ok_or(NoHandshake::Form)?;
        let meta = members.object("_meta");
        let in_meta = meta.and_then(|meta| verbatim(&meta, meta::SERVER_INFO));
        self.server_info = in_meta.or_else(|| verbatim(&members, "serverInfo"));
        self.instructions = Instructions::read(members.get("instructions"));
        self.protocol_version = None;
        // From this revision on, the server itself decides to make a task.
        self.takes_tasks = false;
        Ok((versions, capabilities(&members)))
    }
}

/// The value under `key`; `null` counts as left out.
fn verbatim(members: &Members<'_>, key: &str) -> Option<Arc<RawValue>> {
    let value = members.get(key).filter(|value| value.get() != "null")?;
    Some(value.to_owned().into())
}

/// The capabilities that matter here. rmcp's type refuses all of them for one number out of range
/// in one that does not.
fn capabilities(result: &Members<'_>) -> ServerCapabilities {
    let Some(capabilities) = result.object("capabilities") else {
        return ServerCapabilities::default();
    };
    let mut readable = json!({});
    for name in ["tools", "resources", "prompts", "completions"] {
        if let Some(capability) = capabilities.object(name) {
            let changes = capability.get("listChanged").is_some_and(|value| value.get() == "true");
            readable[name] = json!({ "listChanged": changes });
        }
    }
    serde_json::from_value(readable).unwrap_or_default()
}

/// Whether `result` has the capability `tasks.requests.tools.call`.
fn takes_tasks(result: &Members<'_>) -> bool {
    let mut capability = result.get("capabilities");
    for key in ["tasks", "requests", "tools", "call"] {
        capability = capability.and_then(|raw| Members::read(raw.get()).ok()?.get(key));
    }
    capability.is_some_and(|call| !matches!(call.get(), "null" | "false"))
}
