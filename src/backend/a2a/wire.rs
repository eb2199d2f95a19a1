//! The requests of the four wires (0.3 and 1.0, JSON-RPC and HTTP+JSON) and their envelopes.
//!
//! Must not: do IO, or read the content of a result (`backend::a2a::result` does).

use std::borrow::Cow;

use a2a::error_code;
use bytes::Bytes;
use http::{Method, StatusCode};
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
    let of = endpoint.generation;
    let method = match of {
        Generation::V10 => operation.method(),
        Generation::V03 => operation.method_0_3(),
    };
    let mut params = match operation {
        Operation::Send(message, reply) => send(endpoint, message, reply),
        Operation::GetTask(id) => json!({"id": id, "historyLength": history_length(of)}),
        Operation::CancelTask(id) => json!({"id": id}),
    };
    set_tenant(&mut params, endpoint);
    let [id, method] = [id, method].map(Value::from);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{method},"params":{params}}}"#)
}

fn http_json(endpoint: &Endpoint, operation: Operation<'_>) -> Request {
    let (method, path, body): (_, [Cow<'_, str>; 2], _) = match operation {
        Operation::Send(message, reply) => {
            let mut body = send(endpoint, message, reply);
            set_tenant(&mut body, endpoint);
            (Method::POST, ["message:send".into(), "".into()], Some(body.to_string()))
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

/// The request that sends a message.
fn send(endpoint: &Endpoint, sent: Message<'_>, reply: Reply) -> Value {
    let of = endpoint.generation;
    let text = sent.text;
    let mut message = match (of, endpoint.binding) {
        (Generation::V10, _) => json!({"role": "ROLE_USER", "parts": [{"text": text}]}),
        // The JSON form of 0.3's protobuf messages differs from the JSON of its JSON-RPC binding.
        (Generation::V03, A2aBinding::HttpJson) => {
            json!({"role": "ROLE_USER", "content": [{"text": text}]})
        }
        (Generation::V03, _) => {
            let part = json!({"kind": "text", "text": text});
            json!({"kind": "message", "role": "user", "parts": [part]})
        }
    };
    message["messageId"] = sent.id.into();
    for (key, id) in [("contextId", sent.context), ("taskId", sent.task)] {
        if let Some(id) = id {
            message[key] = id.into();
        }
    }
    let at_once = reply == Reply::AtOnce;
    let mut configuration = match of {
        Generation::V10 => json!({"returnImmediately": at_once}),
        Generation::V03 => json!({"acceptedOutputModes": ["text/plain"], "blocking": !at_once}),
    };
    configuration["historyLength"] = history_length(of).into();
    json!({"message": message, "configuration": configuration})
}

/// Names the tenant in a body of A2A 1.0, which 0.3 does not know.
fn set_tenant(body: &mut Value, endpoint: &Endpoint) {
    if let (Generation::V10, Some(tenant)) = (endpoint.generation, &endpoint.tenant) {
        body["tenant"] = tenant.as_str().into();
    }
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
        (A2aBinding::Grpc, _) => Err(A2aFailure::unreadable("the response is not a gRPC response")),
        (A2aBinding::HttpJson, Ok(_)) => raw(text),
        (A2aBinding::JsonRpc, Ok(_)) => {
            let why = "the JSON-RPC response has neither `result` nor `error`";
            Err(A2aFailure::unreadable(why))
        }
        (_, Err(error)) => {
            Err(A2aFailure::unreadable(format!("the response is not a JSON object ({error})")))
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

fn present<'a>(members: &Members<'a>, key: &str) -> Option<&'a str> {
    members.get(key).map(RawValue::get).filter(|value| *value != "null")
}

fn raw(text: &str) -> Exchanged {
    RawValue::from_string(text.to_owned())
        .map_err(|error| A2aFailure::unreadable(format!("the response is not JSON ({error})")))
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
    // The caller must see "no such task" and "not cancelable" alike in both bindings.
    let code = code.or(match status {
        StatusCode::NOT_FOUND if by_agent => Some(i64::from(error_code::TASK_NOT_FOUND)),
        StatusCode::CONFLICT if by_agent => Some(i64::from(error_code::TASK_NOT_CANCELABLE)),
        _ => None,
    });
    let message = body.and_then(|body| {
        let own = ["message", "detail", "error"].iter().find_map(|key| body.string(key));
        let nested = || string_member(body.get("error")?.get(), "message");
        nested().or(own)
    });
    let reason = status.canonical_reason().unwrap_or_default();
    let mut text = format!("HTTP {} {reason}", status.as_u16());
    if let Some(message) = message {
        text.extend([": ", &message]);
    }
    if code.is_none() && http_client::leaves_outcome_open(status) {
        return A2aFailure::lost(cut(&text));
    }
    A2aFailure::Refused { code, status, text: cut(&text), pause: None }
}

/// At most [`MAX_ERROR_TEXT`] bytes of `text`, in one line.
pub(super) fn cut(text: &str) -> String {
    visible::line(text, MAX_ERROR_TEXT)
}

#[cfg(test)]
mod tests;
