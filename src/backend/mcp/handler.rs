//! Handles requests and notifications of a server: answers a ping, hands a question for the user to
//! the MCP client that has made the call, or to a person, refuses every other request, and notes a
//! changed catalog.
//!
//! Must not: ask a model anything.

#![expect(
    deprecated,
    reason = "2026-07-28 deprecates roots and logging; servers of older revisions have them"
)]

use std::sync::Arc;

use rmcp::model::{
    ClientCapabilities, ClientConfig, ElicitResult, ElicitationCapability, ErrorCode,
    ExtensionCapabilities, FormElicitationCapability, Implementation, JsonObject,
    LoggingMessageNotificationParam, ProtocolVersion, RequestId, RequestMetaObject,
    TASKS_EXTENSION_ID, UrlElicitationCapability,
};
use serde_json::value::RawValue;

use super::rpc::Rpc;
use crate::model::mcp::method;

/// The result of a question without an answer.
const NO_ANSWER: &str = r#"{"action":"cancel"}"#;

/// What the bridge tells servers about itself.
pub(super) fn config() -> ClientConfig {
    let mut info = Implementation::new("mantyx-bridge", env!("CARGO_PKG_VERSION"));
    info.title = Some("MANTYX bridge".to_owned());
    // A server may turn a call into a task. Its questions for the user get an answer, if only that
    // no person has decided.
    let mut capabilities = ClientCapabilities::default();
    capabilities.elicitation = Some(
        ElicitationCapability::new()
            .with_form(FormElicitationCapability::default())
            .with_url(UrlElicitationCapability::default()),
    );
    let tasks = (TASKS_EXTENSION_ID.to_owned(), JsonObject::new());
    capabilities.extensions = Some(ExtensionCapabilities::from([tasks]));
    ClientConfig::new(capabilities, info)
        .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
}

/// What each request of revision 2026-07-28 says about the bridge.
pub(super) fn request_context() -> RequestMetaObject {
    let ClientConfig { capabilities, client_info, .. } = config();
    let revision = ProtocolVersion::V_2026_07_28;
    RequestMetaObject::with_client_context(revision, client_info, capabilities)
}

/// Logs the message of a server that these parameters hold.
pub(super) fn log(rpc: &Rpc, params: Option<&RawValue>) {
    let message = params.and_then(|params| {
        serde_json::from_str::<LoggingMessageNotificationParam>(params.get()).ok()
    });
    let Some(message) = message else { return };
    let data = rpc.line(message.data.to_string().as_bytes());
    let backend = &rpc.backend;
    tracing::debug!(%backend, severity = ?message.level, "the server logs: {data}");
}

/// Answers the server's request `id`. It may come before the handshake is done, which some servers
/// end only when they have their answer.
pub(super) fn answer(rpc: &Arc<Rpc>, id: &RequestId, method: &str, params: Option<&RawValue>) {
    let is_established = rpc.info().is_some();
    match method {
        "ping" => rpc.respond(id, Ok("{}")),
        method::INITIALIZE | method::DISCOVER if !is_established => rpc.echoed(),
        _ if !is_established => {
            rpc.respond(id, Err((ErrorCode::METHOD_NOT_FOUND, "the handshake is not done")));
        }
        method::ELICIT => put_question(rpc, id, params),
        _ => {
            let line = rpc.line(method.as_bytes());
            tracing::debug!(backend = %rpc.backend, "refused the server's request {line}");
            rpc.respond(id, Err((ErrorCode::METHOD_NOT_FOUND, method)));
        }
    }
}

/// Puts a question of the server to whom its call is for, in a task, and responds with the answer
/// as it is. A server may withdraw the question: then it wants no response.
fn put_question(rpc: &Arc<Rpc>, id: &RequestId, params: Option<&RawValue>) {
    let (Some(progress), Some(params)) = (rpc.call_in_question(), params) else {
        return rpc.respond(id, Ok(NO_ANSWER));
    };
    let Some(withdrawn) = rpc.open_question(id) else {
        return rpc.respond(id, Ok(NO_ANSWER));
    };
    let (carrier, id, params) = (Arc::clone(rpc), id.clone(), params.to_owned());
    rpc.spawn(async move {
        let question = progress.ask(None, id.to_string(), params);
        let answer = withdrawn.run_until_cancelled(question).await.flatten();
        if carrier.end_question(&id) {
            let text = answer.as_ref().map_or(NO_ANSWER, |answer| answer.get());
            let is_readable = serde_json::from_str::<ElicitResult>(text).is_ok();
            carrier.respond(&id, Ok(if is_readable { text } else { NO_ANSWER }));
        }
    });
}
