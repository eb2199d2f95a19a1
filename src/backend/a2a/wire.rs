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

use super::failure::{A2aFailure, A2aResult};
use super::interface::{Endpoint, Generation};
use crate::config::A2aBinding;
use crate::http_client;
use crate::model::{Members, Trace, string_member, visible};

/// A request to an agent.
#[derive(Debug, Clone, Copy)]
pub(super) enum Operation<'a> {
    Send(Message<'a>, ReplyMode),
    /// A message whose reply is a stream of what becomes of it.
    Stream(Message<'a>),
    /// The state of a task.
    GetTask(&'a str),
    /// The same, with the messages of its history.
    GetHistory(&'a str),
    CancelTask(&'a str),
    /// A stream of what becomes of a task from now on.
    Subscribe(&'a str),
}

/// How the bridge reads the response to an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answers {
    /// One result.
    One,
    /// A stream of results.
    Many,
}

impl<'a> Operation<'a> {
    /// Whether the agent only reports a state, and changes nothing.
    pub(super) fn only_reads(self) -> bool {
        matches!(self, Self::GetTask(_) | Self::GetHistory(_) | Self::Subscribe(_))
    }

    pub(super) fn answers(self) -> Answers {
        match self {
            Self::Stream(_) | Self::Subscribe(_) => Answers::Many,
            Self::Send(..) | Self::GetTask(_) | Self::GetHistory(_) | Self::CancelTask(_) => {
                Answers::One
            }
        }
    }

    /// The message that it sends, if it sends one.
    pub(super) fn message(self) -> Option<Message<'a>> {
        match self {
            Self::Send(message, _) | Self::Stream(message) => Some(message),
            _ => None,
        }
    }

    /// The method of 1.0, in JSON-RPC and gRPC alike.
    pub(super) fn method(self) -> &'static str {
        match self {
            Self::Send(..) => a2a::methods::SEND_MESSAGE,
            Self::Stream(_) => a2a::methods::SEND_STREAMING_MESSAGE,
            Self::GetTask(_) | Self::GetHistory(_) => a2a::methods::GET_TASK,
            Self::CancelTask(_) => a2a::methods::CANCEL_TASK,
            Self::Subscribe(_) => a2a::methods::SUBSCRIBE_TO_TASK,
        }
    }

    /// The method in the JSON-RPC binding of 0.3.
    fn method_0_3(self) -> &'static str {
        match self {
            Self::Send(..) => "message/send",
            Self::Stream(_) => "message/stream",
            Self::GetTask(_) | Self::GetHistory(_) => "tasks/get",
            Self::CancelTask(_) => "tasks/cancel",
            Self::Subscribe(_) => "tasks/resubscribe",
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
    /// The media types that the reply may have, as the card names them; empty if it names none.
    pub output_modes: &'a [String],
    /// Its trace, which is sent beside it.
    pub trace: Option<&'a Trace>,
}

/// How the agent should reply to a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReplyMode {
    /// With the task once it is done or waits.
    WhenDone,
    /// With a message, or with the task as soon as there is one.
    AtOnce,
}

/// One HTTP request, without the headers that are the same for all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    pub method: Method,
    pub url: Url,
    pub body: Option<Bytes>,
}

/// How many messages of a task's history an agent should send with a reply: a history may be large,
/// and the bridge asks for it only if the reply has no content. Agents on a2a-sdk 0.3 take 0 for
/// all messages.
pub(super) fn history_length(generation: Generation) -> i32 {
    match generation {
        Generation::V10 => 0,
        Generation::V03 => 1,
    }
}

/// How many messages of its history a task is asked for whose reply has no content.
pub(super) const LONG_HISTORY: i32 = 100;

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
    let generation = endpoint.generation;
    let method = match generation {
        Generation::V10 => operation.method(),
        Generation::V03 => operation.method_0_3(),
    };
    let mut params = match operation {
        Operation::Send(message, reply) => send(endpoint, message, Some(reply)),
        Operation::Stream(message) => send(endpoint, message, None),
        Operation::GetTask(id) => json!({"id": id, "historyLength": history_length(generation)}),
        Operation::GetHistory(id) => json!({"id": id, "historyLength": LONG_HISTORY}),
        Operation::CancelTask(id) | Operation::Subscribe(id) => json!({"id": id}),
    };
    set_tenant(&mut params, endpoint);
    let [id, method] = [id, method].map(Value::from);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{method},"params":{params}}}"#)
}

fn http_json(endpoint: &Endpoint, operation: Operation<'_>) -> Request {
    let (method, path): (_, [Cow<'_, str>; 2]) = match operation {
        Operation::Send(..) => (Method::POST, ["message:send".into(), "".into()]),
        Operation::Stream(_) => (Method::POST, ["message:stream".into(), "".into()]),
        Operation::GetTask(id) | Operation::GetHistory(id) => {
            (Method::GET, ["tasks".into(), id.into()])
        }
        Operation::CancelTask(id) => {
            (Method::POST, ["tasks".into(), format!("{id}:cancel").into()])
        }
        Operation::Subscribe(id) => {
            // Servers of both versions take GET, and those of 0.3 nothing else.
            (Method::GET, ["tasks".into(), format!("{id}:subscribe").into()])
        }
    };
    let json = match operation {
        Operation::Send(message, reply) => Some(send(endpoint, message, Some(reply))),
        Operation::Stream(message) => Some(send(endpoint, message, None)),
        Operation::CancelTask(_) => Some(json!({})),
        Operation::GetTask(_) | Operation::GetHistory(_) | Operation::Subscribe(_) => None,
    };
    let body = json.map(|mut body| {
        if operation.message().is_some() {
            set_tenant(&mut body, endpoint);
        }
        Bytes::from(body.to_string())
    });
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
    let history = match operation {
        Operation::GetTask(_) => Some(history_length(endpoint.generation)),
        Operation::GetHistory(_) => Some(LONG_HISTORY),
        _ => None,
    };
    if let Some(length) = history {
        url.query_pairs_mut().append_pair("historyLength", &length.to_string());
    }
    Request { method, url, body }
}

/// The request that sends a message. `reply` is `None` if the reply is a stream.
fn send(endpoint: &Endpoint, sent: Message<'_>, reply: Option<ReplyMode>) -> Value {
    let generation = endpoint.generation;
    let text = sent.text;
    let mut message = match (generation, endpoint.binding) {
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
    let mut configuration = json!({"historyLength": history_length(generation)});
    if !sent.output_modes.is_empty() {
        configuration["acceptedOutputModes"] = sent.output_modes.into();
    }
    if let Some(reply) = reply {
        let at_once = reply == ReplyMode::AtOnce;
        match generation {
            Generation::V10 => configuration["returnImmediately"] = at_once.into(),
            Generation::V03 => configuration["blocking"] = (!at_once).into(),
        }
    }
    json!({"message": message, "configuration": configuration})
}

/// Names the tenant in a body of A2A 1.0, which 0.3 does not know.
fn set_tenant(body: &mut Value, endpoint: &Endpoint) {
    if let (Generation::V10, Some(tenant)) = (endpoint.generation, &endpoint.tenant) {
        body["tenant"] = tenant.as_str().into();
    }
}

/// The result in the body of a response, or the agent's refusal.
pub(super) fn decode(binding: A2aBinding, status: StatusCode, body: &[u8]) -> A2aResult {
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
        (A2aBinding::Grpc, _) => Err(A2aFailure::unclear("its response is none of gRPC")),
        (A2aBinding::HttpJson, Ok(_)) => raw(text),
        (A2aBinding::JsonRpc, Ok(_)) => {
            let why = "its JSON-RPC response has neither `result` nor `error`";
            Err(A2aFailure::unclear(why))
        }
        (_, Err(error)) => {
            Err(A2aFailure::unclear(format!("its response is not a JSON object ({error})")))
        }
    }
}

/// The result in an event of a streamed reply, or the agent's error in the place of one.
pub(super) fn decode_event(binding: A2aBinding, data: &str) -> A2aResult {
    if binding != A2aBinding::HttpJson {
        return decode(binding, StatusCode::OK, data.as_bytes());
    }
    // In this binding, an error has the form that it has in a body.
    let error = Members::read(data).ok().and_then(|event| event.object("error"));
    let Some(error) = error else { return decode(binding, StatusCode::OK, data.as_bytes()) };
    let status = error
        .get("code")
        .and_then(|code| serde_json::from_str(code.get()).ok())
        .and_then(|code| StatusCode::from_u16(code).ok())
        .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let message = error.string("message").unwrap_or_else(|| "no message".to_owned());
    let text = cut(&format!("A2A error {}: {message}", status.as_u16()));
    Err(A2aFailure::Refused { code: reason(&error), status, text, pause: None })
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

fn raw(text: &str) -> A2aResult {
    RawValue::from_string(text.to_owned())
        .map_err(|error| A2aFailure::unclear(format!("its response is not JSON ({error})")))
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
