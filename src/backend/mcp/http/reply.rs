//! Classifies the response to an HTTP request, as far as its head and a short body allow.
//!
//! Must not: do IO.

use http::StatusCode;
use rmcp::transport::streamable_http_client::StreamableHttpError;
use serde_json::value::RawValue;

use super::HttpFailure;
use crate::backend::{ErrorReply, NotRead};
use crate::error_chain::error_chain;
use crate::http_client;
use crate::http_client::BodyError;
use crate::model::Members;

pub(in crate::backend::mcp) fn is_events(response: &reqwest::Response) -> bool {
    http_client::media_type(response.headers()).eq_ignore_ascii_case("text/event-stream")
}

/// Whether the server does not know the session. The specification wants 404; servers on the
/// TypeScript SDK answer 400 and an error without an id after a restart.
pub(super) fn is_session_error(status: StatusCode, body: &str) -> bool {
    match status {
        StatusCode::NOT_FOUND => true,
        StatusCode::BAD_REQUEST => {
            let without_id = Members::read(body)
                .is_ok_and(|body| body.get("id").is_none_or(|id| id.get() == "null"));
            without_id
                && error_in(body).is_some_and(|ErrorReply { code, message, .. }| {
                    let text = message.to_lowercase();
                    code == -32000 || text.contains("session") || text.contains("initialized")
                })
        }
        _ => false,
    }
}

/// The JSON-RPC error in `body`.
pub(super) fn error_in(body: &str) -> Option<ErrorReply> {
    let error = Members::read(body).ok()?.object("error")?;
    let code = serde_json::from_str(error.get("code")?.get()).ok()?;
    let message = error.string("message").unwrap_or_default();
    Some(ErrorReply { code, message, data: error.get("data").map(RawValue::to_owned) })
}

/// The error for a status that carries no JSON-RPC message. The body is not shown: servers repeat
/// the headers that they refuse, and those are secrets.
pub(in crate::backend::mcp) fn failed(status: StatusCode) -> HttpFailure {
    let cure = match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            ": the server wants another authorization; set `auth` or `headers` in the configuration"
        }
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => {
            ": there is no MCP server at this `url`"
        }
        StatusCode::MISDIRECTED_REQUEST => {
            ": the server goes by another name; set `headers: {Host: NAME}` in the configuration"
        }
        _ => "",
    };
    HttpFailure::Status { status, text: format!("HTTP {status}{cure}") }
}

pub(super) fn body_failed(error: &BodyError) -> StreamableHttpError<HttpFailure> {
    let broken = || HttpFailure::Lost(error_chain(error));
    StreamableHttpError::Client(NotRead::of(error).map_or_else(broken, HttpFailure::NotRead))
}

pub(super) fn invalid(why: &str) -> StreamableHttpError<HttpFailure> {
    StreamableHttpError::Client(HttpFailure::Unreadable(why.to_owned()))
}
