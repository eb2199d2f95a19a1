//! Errors of the front in the words of A2A, and the forms of errors and results in each wire. Pure.
//!
//! Must not: change what an agent says.

use ::a2a::{error_code, error_reason};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::backend::calls::relay::NotRelayed;
use crate::backend::{AgentError, Generation};
use crate::config::A2aBinding;
use crate::model::Ending;
use crate::model::form::without_lone_surrogates;
use crate::model::json::one_line;

/// An error that the bridge itself answers. The journal keeps it: a repeated message gets it again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FrontError {
    /// JSON-RPC's.
    pub code: i32,
    /// HTTP+JSON's.
    pub status: u16,
    pub message: String,
}

impl FrontError {
    fn new(code: i32, status: StatusCode, message: impl Into<String>) -> Self {
        Self { code, status: status.as_u16(), message: message.into() }
    }

    /// There is no such task or conversation of the app.
    pub(super) fn not_found() -> Self {
        Self::new(error_code::TASK_NOT_FOUND, StatusCode::NOT_FOUND, "Task not found")
    }

    pub(super) fn invalid_params(why: impl Into<String>) -> Self {
        Self::new(error_code::INVALID_PARAMS, StatusCode::BAD_REQUEST, why)
    }

    pub(super) fn invalid_request(why: impl Into<String>) -> Self {
        Self::new(error_code::INVALID_REQUEST, StatusCode::BAD_REQUEST, why)
    }

    pub(super) fn not_json(why: impl Into<String>) -> Self {
        Self::new(error_code::PARSE_ERROR, StatusCode::BAD_REQUEST, why)
    }

    pub(super) fn no_method(method: &str) -> Self {
        let why = format!("The bridge has no method `{method}` of A2A 0.3 or 1.0.");
        Self::new(error_code::METHOD_NOT_FOUND, StatusCode::NOT_FOUND, why)
    }

    /// A2A 0.3 has a list of tasks over gRPC, and over HTTP+JSON where a server likes; over
    /// JSON-RPC it has none.
    pub(super) fn no_list(binding: A2aBinding) -> Self {
        let why = "The bridge lists no tasks in A2A 0.3, whose agents have no list over JSON-RPC. Ask \
                   for each task by its id, or use `ListTasks` of A2A 1.0 if the agent's card has it.";
        match binding {
            A2aBinding::HttpJson => {
                Self::new(error_code::UNSUPPORTED_OPERATION, StatusCode::NOT_IMPLEMENTED, why)
            }
            A2aBinding::JsonRpc | A2aBinding::Grpc => {
                Self::new(error_code::METHOD_NOT_FOUND, StatusCode::NOT_FOUND, why)
            }
        }
    }

    /// The agent has no interface whose messages are JSON.
    pub(super) fn grpc_alone() -> Self {
        let why = "This agent speaks gRPC alone, and the bridge relays no gRPC: it has no interface \
                   for clients of A2A here. Agent runs use it as a tool.";
        Self::new(error_code::UNSUPPORTED_OPERATION, StatusCode::BAD_REQUEST, why)
    }

    pub(super) fn no_push() -> Self {
        let why = "The bridge passes no push notification on: an agent would send them past the \
                   bridge's rights and audit log. Read the stream, or ask for the task.";
        Self::new(error_code::PUSH_NOTIFICATION_NOT_SUPPORTED, StatusCode::BAD_REQUEST, why)
    }

    pub(super) fn no_extended_card() -> Self {
        let why = "The bridge has no extended card of this agent.";
        Self::new(error_code::EXTENDED_CARD_NOT_CONFIGURED, StatusCode::BAD_REQUEST, why)
    }

    /// The agent does not speak the client's version over this binding.
    pub(super) fn other_version(generation: Generation) -> Self {
        let why = "The agent has no interface of this version of A2A over this binding; its card \
                   names those that it has.";
        match generation {
            // Clients of 0.3 do not know the code of 1.0.
            Generation::V03 => Self::new(error_code::METHOD_NOT_FOUND, StatusCode::NOT_FOUND, why),
            Generation::V10 => {
                Self::new(error_code::VERSION_NOT_SUPPORTED, StatusCode::BAD_REQUEST, why)
            }
        }
    }

    pub(super) fn internal(why: impl Into<String>) -> Self {
        Self::new(error_code::INTERNAL_ERROR, StatusCode::INTERNAL_SERVER_ERROR, why)
    }

    /// The bridge cannot do it at the moment.
    pub(super) fn busy(why: impl Into<String>) -> Self {
        Self::new(error_code::INTERNAL_ERROR, StatusCode::SERVICE_UNAVAILABLE, why)
    }

    /// The agent's reply is about something else than what it was asked for.
    pub(super) fn other_task() -> Self {
        let why = "The agent has answered about another task than the one that it was asked for.";
        Self::new(error_code::INVALID_AGENT_RESPONSE, StatusCode::BAD_GATEWAY, why)
    }

    /// A call or a request that ended so, without an answer of the agent.
    pub(super) fn ended(ending: Ending, why: &str) -> Self {
        let (code, status) = match ending {
            Ending::Denied | Ending::NotApproved | Ending::Withdrawn => {
                (error_code::INVALID_REQUEST, StatusCode::FORBIDDEN)
            }
            Ending::InputInvalid => (error_code::INVALID_PARAMS, StatusCode::BAD_REQUEST),
            Ending::OverQuota => (error_code::INVALID_REQUEST, StatusCode::TOO_MANY_REQUESTS),
            Ending::Unavailable | Ending::BreakerOpen | Ending::Busy | Ending::Storage => {
                (error_code::INTERNAL_ERROR, StatusCode::SERVICE_UNAVAILABLE)
            }
            Ending::TimedOut => (error_code::INTERNAL_ERROR, StatusCode::GATEWAY_TIMEOUT),
            _ => (error_code::INTERNAL_ERROR, StatusCode::BAD_GATEWAY),
        };
        Self::new(code, status, why)
    }

    pub(super) fn not_relayed(failure: &NotRelayed) -> Self {
        Self::ended(failure.ending, &failure.why)
    }

    fn http_status(&self) -> StatusCode {
        StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

/// How answers to a client are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ReplyForm {
    /// With the id of the request, as JSON.
    JsonRpc {
        id: String,
    },
    HttpJson(Generation),
}

impl ReplyForm {
    /// A result on one line: a line end would end an event in its middle.
    pub(super) fn result(&self, json: &str) -> Vec<u8> {
        let json = without_lone_surrogates(json);
        one_line(match self {
            Self::JsonRpc { id } => {
                format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{json}}}")
            }
            Self::HttpJson(_) => json.into_owned(),
        })
    }

    /// The agent's own error, and the status of the response.
    pub(super) fn agent_error(&self, error: &AgentError) -> (StatusCode, Vec<u8>) {
        let json = without_lone_surrogates(error.json.get());
        match self {
            Self::JsonRpc { id } => {
                let text = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{json}}}");
                (StatusCode::OK, one_line(text))
            }
            Self::HttpJson(_) => (error.status, one_line(json.into_owned())),
        }
    }

    /// An error of the bridge, and the status of the response.
    pub(super) fn error(&self, error: &FrontError) -> (StatusCode, Vec<u8>) {
        let FrontError { code, message, .. } = error;
        let status = error.http_status();
        match self {
            Self::JsonRpc { id } => {
                let error = json!({ "code": code, "message": message });
                let text = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{error}}}");
                (StatusCode::OK, text.into_bytes())
            }
            // As a2a-js writes it; a2a-sdk writes the message alone.
            Self::HttpJson(Generation::V03) => {
                (status, json!({ "code": code, "message": message }).to_string().into_bytes())
            }
            Self::HttpJson(Generation::V10) => {
                let details = json!([{
                    "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                    "reason": error_reason(*code),
                    "domain": "a2a-protocol.org",
                }]);
                let error = json!({
                    "code": status.as_u16(),
                    "status": grpc_status(status),
                    "message": message,
                    "details": details,
                });
                (status, json!({ "error": error }).to_string().into_bytes())
            }
        }
    }
}

/// The name of `google.rpc.Code` for a status.
fn grpc_status(status: StatusCode) -> &'static str {
    match status.as_u16() {
        400 => "INVALID_ARGUMENT",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        429 => "RESOURCE_EXHAUSTED",
        503 => "UNAVAILABLE",
        504 => "DEADLINE_EXCEEDED",
        _ => "INTERNAL",
    }
}

#[cfg(test)]
mod tests {
    //! What errors look like in each wire.

    use serde_json::Value;
    use serde_json::value::RawValue;

    use super::*;

    fn forms() -> [ReplyForm; 3] {
        [
            ReplyForm::JsonRpc { id: "\"7\"".to_owned() },
            ReplyForm::HttpJson(Generation::V03),
            ReplyForm::HttpJson(Generation::V10),
        ]
    }

    #[test]
    fn error_of_the_bridge_has_the_form_of_its_wire() {
        let [rpc, old, new] = forms().map(|form| {
            let (status, text) = form.error(&FrontError::not_found());
            let json: Value = serde_json::from_slice(&text).expect("JSON");
            (status.as_u16(), json)
        });
        assert_eq!(
            (rpc.0, &rpc.1["id"], &rpc.1["error"]["code"]),
            (200, &json!("7"), &json!(-32001))
        );
        assert_eq!(
            (old.0, &old.1["code"], &old.1["message"]),
            (404, &json!(-32001), &json!("Task not found"))
        );
        assert_eq!((new.0, &new.1["error"]["status"]), (404, &json!("NOT_FOUND")));
        assert_eq!(new.1["error"]["details"][0]["reason"], "TASK_NOT_FOUND");
    }

    #[test]
    fn error_of_the_agent_passes_as_it_came() {
        let json =
            RawValue::from_string(r#"{"code":-32001,"data":[1.0]}"#.to_owned()).expect("JSON");
        let error = AgentError { status: StatusCode::NOT_FOUND, json, is_refusal: true };
        let [rpc, old, new] = forms().map(|form| {
            let (status, text) = form.agent_error(&error);
            (status.as_u16(), String::from_utf8(text).expect("text"))
        });
        let own = error.json.get().to_owned();
        assert_eq!(rpc, (200, format!(r#"{{"jsonrpc":"2.0","id":"7","error":{own}}}"#)));
        assert_eq!(old, (404, own.clone()));
        assert_eq!(new, (404, own));
    }

    #[test]
    fn result_is_one_line() {
        let [rpc, old, _] =
            forms().map(|form| String::from_utf8(form.result("{\n\"a\":1.0}")).expect("text"));
        assert_eq!(rpc, r#"{"jsonrpc":"2.0","id":"7","result":{ "a":1.0}}"#);
        assert_eq!(old, r#"{ "a":1.0}"#);
    }
}
