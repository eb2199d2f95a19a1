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
    ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult, ElicitationAction,
    ElicitationCapability, ErrorCode, ExtensionCapabilities, FormElicitationCapability,
    Implementation, JsonObject, ListRootsResult, LoggingMessageNotificationParam, ProtocolVersion,
    RequestMetaObject, TASKS_EXTENSION_ID, UrlElicitationCapability,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ClientHandler, ErrorData, RoleClient};

use super::verbatim::ConnectionState;
use crate::model::BackendName;

/// The bridge's side of one connection.
pub(super) struct Handler {
    pub(super) backend: BackendName,
    pub(super) state: Arc<ConnectionState>,
}

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

/// Logs what a server has said in a message.
pub(super) fn log(
    backend: &BackendName,
    state: &ConnectionState,
    message: &LoggingMessageNotificationParam,
) {
    let data = message.data.to_string();
    let data = state.line(data.as_bytes());
    tracing::debug!(%backend, severity = ?message.level, "the server logs: {data}");
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        config()
    }

    async fn list_roots(
        &self,
        _context: RequestContext<RoleClient>,
    ) -> Result<ListRootsResult, ErrorData> {
        tracing::debug!(backend = %self.backend, "refused the server's request roots/list");
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "roots/list", None))
    }

    async fn create_elicitation(
        &self,
        _request: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let answer = match self.state.take_question(&context.id) {
            Some((progress, params)) => {
                let asked = progress.ask(None, context.id.to_string(), params);
                // The server has withdrawn it; the response is not sent.
                context.ct.run_until_cancelled(asked).await.flatten()
            }
            None => None,
        };
        let read = answer.as_ref().and_then(|answer| serde_json::from_str(answer.get()).ok());
        if let (Some(answer), true) = (answer, read.is_some()) {
            self.state.answers_with(context.id, answer);
        }
        Ok(read.unwrap_or_else(|| ElicitResult::new(ElicitationAction::Cancel)))
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.state.changed.notify_one();
    }

    async fn on_resource_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.state.changed.notify_one();
    }

    async fn on_prompt_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.state.changed.notify_one();
    }

    async fn on_logging_message(
        &self,
        message: LoggingMessageNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        log(&self.backend, &self.state, &message);
    }
}
