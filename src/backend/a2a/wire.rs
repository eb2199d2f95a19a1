//! The requests of the four wires (0.3 and 1.0, JSON-RPC and HTTP+JSON) and their envelopes.
//!
//! Must not: do IO, or read the content of a result (`backend::a2a::result` does).

use std::borrow::Cow;

use a2a::error_code;
use bytes::Bytes;
use http::{Method, StatusCode};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use url::Url;

use super::failure::{A2aFailure, Exchanged};
use super::interface::{Endpoint, Generation};
use crate::config::A2aBinding;
use crate::http_client;
use crate::model::{Members, Trace, string_member, visible};

/// A request to an agent.
#[derive(Debug, Clone, Copy)]
pub(super) enum Operation<'a> {
    Send(Message<'a>, Reply),
    /// The state of a task.
    GetTask(&'a str),
    CancelTask(&'a str),
}

impl Operation<'_> {
    /// Whether the agent only reports a state, and changes nothing.
    pub(super) fn only_reads(self) -> bool {
        matches!(self, Self::GetTask(_))
    }

    /// The method of 1.0, in JSON-RPC and gRPC alike.
    pub(super) fn method(self) -> &'static str {
        match self {
            Self::Send(..) => a2a::methods::SEND_MESSAGE,
            Self::GetTask(_) => a2a::methods::GET_TASK,
            Self::CancelTask(_) => a2a::methods::CANCEL_TASK,
        }
    }

    /// The method in the JSON-RPC binding of 0.3.
    fn method_0_3(self) -> &'static str {
        match self {
            Self::Send(..) => "message/send",
            Self::GetTask(_) => "tasks/get",
            Self::CancelTask(_) => "tasks/cancel",
        }
    }
}

/// A message to the agent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Message<'a> {
    pub text: &'a str,
    pub id: &'a str,
    /// The conversation and the task that it continues.
    pub context: Option<&'a str>,
    pub task: Option<&'a str>,
    /// Its trace, which is sent beside it.
    pub trace: Option<&'a Trace>,
}

/// How the agent should reply to a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reply {
    /// With the task once it is done or waits.
    WhenDone,
    /// With a message, or with the task as soon as there is one.
    AtOnce,
}

/// One HTTP request, without the headers that are the same for all.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub method: Method,
    pub url: Url,
    pub body: Option<Bytes>,
}

/// How many messages of a task's history an agent should send: the bridge reads none, and a history
/// may be large. Agents on a2a-sdk 0.3 take 0 for all of them.
pub(super) fn history_length(of: Generation) -> i32 {
    match of {
        Generation::V10 => 0,
        Generation::V03 => 1,
    }
}

/// How much text of a peer's error is passed on, in bytes.
const MAX_ERROR_TEXT: usize = 1024;

/// The request for `operation` to the agent at `endpoint`; `id` is JSON-RPC's.
pub(super) fn encode(endpoint: &Endpoint, operation: Operation<'_>, id: &str) -> Request {
    match endpoint.binding {
        A2aBinding::JsonRpc => {
            let body = json_rpc(endpoint, operation, id);
            Request { method: Method::POST, url: endpoint.url.clone(), body: Some(body.into()) }
        }
        A2aBinding::HttpJson => http_json(endpoint, operation),
        A2aBinding::Grpc => super::grpc::encode(endpoint, operation),
    }
}

fn json_rpc(endpoint: &Endpoint, operation: Operation<'_>, id: &str) -> String {
    let method = match endpoint.generation {
        Generation::V10 => operation.method(),
        Generation::V03 => operation.method_0_3(),
    };
    let tenant = || endpoint.tenant.clone().filter(|_| endpoint.generation == Generation::V10);
    let params = match (operation, endpoint.generation) {
        (Operation::Send(message, reply), Generation::V10) => {
            text_of(&send_1_0(message, reply, endpoint.tenant.clone()))
        }
        (Operation::Send(message, reply), Generation::V03) => {
            let body = json!({
                "kind": "message",
                "role": "user",
                "parts": [{"kind": "text", "text": message.text}],
            });
            send_0_3(body, message, reply)
        }
        (Operation::GetTask(id), of) => {
            let history_length = Some(history_length(of));
            text_of(&a2a::GetTaskRequest { id: id.to_owned(), history_length, tenant: tenant() })
        }
        (Operation::CancelTask(id), _) => {
            let tenant = tenant();
            text_of(&a2a::CancelTaskRequest { id: id.to_owned(), metadata: None, tenant })
        }
    };
    let id = text_of(id);
    let method = text_of(method);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{method},"params":{params}}}"#)
}

fn http_json(endpoint: &Endpoint, operation: Operation<'_>) -> Request {
    let (method, path, body): (_, [Cow<'_, str>; 2], _) = match operation {
        Operation::Send(message, reply) => {
            let body = match endpoint.generation {
                Generation::V10 => text_of(&send_1_0(message, reply, endpoint.tenant.clone())),
                // The 0.3 binding is the JSON form of its protobuf messages, which differs from
                // the JSON of its JSON-RPC binding.
                Generation::V03 => {
                    let body = json!({"role": "ROLE_USER", "content": [{"text": message.text}]});
                    send_0_3(body, message, reply)
                }
            };
            (Method::POST, ["message:send".into(), "".into()], Some(body))
        }
        Operation::GetTask(id) => (Method::GET, ["tasks".into(), id.into()], None),
        Operation::CancelTask(id) => {
            let path = ["tasks".into(), format!("{id}:cancel").into()];
            (Method::POST, path, Some("{}".to_owned()))
        }
    };
    let mut url = endpoint.url.clone();
    {
        let mut segments = url.path_segments_mut().expect("an http URL has a path");
        segments.pop_if_empty();
        match endpoint.generation {
            Generation::V03 => _ = segments.push("v1"),
            Generation::V10 => _ = segments.extend(endpoint.tenant.as_deref()),
        }
        segments.extend(path.iter().filter(|segment| !segment.is_empty()));
    }
    if let Operation::GetTask(_) = operation {
        let length = history_length(endpoint.generation);
        url.query_pairs_mut().append_pair("historyLength", &length.to_string());
    }
    Request { method, url, body: body.map(Bytes::from) }
}

fn send_1_0(sent: Message<'_>, reply: Reply, tenant: Option<String>) -> a2a::SendMessageRequest {
    let mut message = a2a::Message::new(a2a::Role::User, vec![a2a::Part::text(sent.text)]);
    message.message_id = sent.id.to_owned();
    message.context_id = sent.context.map(str::to_owned);
    message.task_id = sent.task.map(str::to_owned);
    let configuration = a2a::SendMessageConfiguration {
        accepted_output_modes: None,
        task_push_notification_config: None,
        history_length: Some(history_length(Generation::V10)),
        return_immediately: Some(reply == Reply::AtOnce),
    };
    a2a::SendMessageRequest { message, configuration: Some(configuration), metadata: None, tenant }
}

/// `body` has the members that differ between the bindings.
fn send_0_3(mut body: Value, message: Message<'_>, reply: Reply) -> String {
    body["messageId"] = message.id.into();
    if let Some(context) = message.context {
        body["contextId"] = context.into();
    }
    if let Some(task) = message.task {
        body["taskId"] = task.into();
    }
    let blocking = reply == Reply::WhenDone;
    let configuration = json!({
        "acceptedOutputModes": ["text/plain"],
        "blocking": blocking,
        "historyLength": history_length(Generation::V03),
    });
    json!({"message": body, "configuration": configuration}).to_string()
}

fn text_of<T: Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).expect("strings and structs of strings are always JSON")
}

/// The result in the body of a response, or the agent's refusal.
pub(super) fn decode(binding: A2aBinding, status: StatusCode, body: &[u8]) -> Exchanged {
    // The text of these two may repeat the bridge's own headers, and with them a secret.
    if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
        return Err(http_refusal(binding, status, None));
    }
    let text = std::str::from_utf8(body).unwrap_or_default();
    let members = Members::read(text);
    if let (A2aBinding::JsonRpc, Ok(members)) = (binding, &members) {
        // A JSON-RPC error counts whatever the HTTP status: agents answer 200, 400 and 500.
        if let Some(error) = present(members, "error").and_then(|e| Members::read(e).ok()) {
            return Err(refused(&error, status));
        }
        if let (true, Some(result)) = (status.is_success(), present(members, "result")) {
            return raw(result);
        }
    }
    if !status.is_success() {
        return Err(http_refusal(binding, status, members.ok()));
    }
    match (binding, members) {
        (A2aBinding::Grpc, _) => {
            Err(A2aFailure::Unreadable("the response is not a gRPC response".to_owned()))
        }
        (A2aBinding::HttpJson, Ok(_)) => raw(text),
        (A2aBinding::JsonRpc, Ok(_)) => Err(A2aFailure::Unreadable(
            "the JSON-RPC response has neither `result` nor `error`".to_owned(),
        )),
        (_, Err(error)) => {
            Err(A2aFailure::Unreadable(format!("the response is not a JSON object ({error})")))
        }
    }
}

/// The code of the `ErrorInfo` among the details of a `google.rpc.Status`: several errors of 1.0
/// share one HTTP status.
fn reason(error: &Members<'_>) -> Option<i64> {
    let details = error.array("details")?;
    let reasons = details.iter().filter_map(|detail| string_member(detail.get(), "reason"));
    reasons.filter_map(|reason| a2a::reason_to_error_code(&reason)).map(i64::from).next()
}

/// The JSON-RPC code for a status: the caller must see "no such task" and "not cancelable" alike
/// in both bindings.
fn code_of(status: StatusCode) -> Option<i64> {
    match status {
        StatusCode::NOT_FOUND => Some(i64::from(error_code::TASK_NOT_FOUND)),
        StatusCode::CONFLICT => Some(i64::from(error_code::TASK_NOT_CANCELABLE)),
        _ => None,
    }
}

fn present<'a>(members: &Members<'a>, key: &str) -> Option<&'a str> {
    members.get(key).map(RawValue::get).filter(|value| *value != "null")
}

fn raw(text: &str) -> Exchanged {
    RawValue::from_string(text.to_owned())
        .map_err(|error| A2aFailure::Unreadable(format!("the response is not JSON ({error})")))
}

/// A JSON-RPC error, or the `google.rpc.Status` in an HTTP+JSON body.
fn refused(error: &Members<'_>, status: StatusCode) -> A2aFailure {
    let code = error.get("code").and_then(|code| serde_json::from_str::<i64>(code.get()).ok());
    let message = error.string("message").unwrap_or_else(|| "no message".to_owned());
    let code_text = code.map_or_else(|| "without a code".to_owned(), |code| code.to_string());
    let text = cut(&format!("A2A error {code_text}: {message}"));
    A2aFailure::Refused { code, status, text, pause: None }
}

/// An HTTP status other than a success, with the message in its body: A2A 1.0 has it in
/// `error.message`, A2A 0.3 in `message`, common frameworks in `detail`.
fn http_refusal(binding: A2aBinding, status: StatusCode, body: Option<Members<'_>>) -> A2aFailure {
    let error = body.as_ref().and_then(|body| body.object("error"));
    // A page, or a status in another binding, is a gateway's: the task may well be there.
    let by_agent = binding == A2aBinding::HttpJson && body.is_some();
    let code = error.and_then(|error| reason(&error));
    let code = code.or_else(|| code_of(status).filter(|_| by_agent));
    let message = body.and_then(|body| {
        let own = ["message", "detail", "error"].iter().find_map(|key| body.string(key));
        let nested = || string_member(body.get("error")?.get(), "message");
        nested().or(own)
    });
    let reason = status.canonical_reason().unwrap_or_default();
    let text = match message {
        Some(message) => format!("HTTP {} {reason}: {message}", status.as_u16()),
        None => format!("HTTP {} {reason}", status.as_u16()),
    };
    if code.is_none() && http_client::leaves_outcome_open(status) {
        return A2aFailure::Lost(cut(&text));
    }
    A2aFailure::Refused { code, status, text: cut(&text), pause: None }
}

/// At most [`MAX_ERROR_TEXT`] bytes of `text`, in one line.
pub(super) fn cut(text: &str) -> String {
    visible::line(text, MAX_ERROR_TEXT)
}

#[cfg(test)]
mod tests;
