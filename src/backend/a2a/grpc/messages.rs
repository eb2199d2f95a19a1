//! The messages of `lf.a2a.v1.A2AService` and their JSON, with only the fields that the bridge
//! writes or reads.
//!
//! Source: a2a.proto of A2A 1.0; the JSON is that of protobuf (ProtoJSON), as in A2A's other
//! bindings. Must not: know how messages travel.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use prost::Message as _;
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use serde_json::value::to_raw_value;

use crate::backend::a2a::failure::{A2aFailure, A2aResult};
use crate::backend::a2a::interface::Generation;
use crate::backend::a2a::link::MAX_REPLY;
use crate::backend::a2a::wire;
use crate::backend::a2a::wire::{Operation, ReplyMode};
use crate::backend::{CallError, NotRead};

pub(super) const SERVICE: &str = "lf.a2a.v1.A2AService";

/// `Role`.
const ROLE_USER: i32 = 1;

/// `TaskState` by number.
const STATES: &str = include_str!("messages/states.txt");

#[derive(Clone, PartialEq, prost::Message)]
struct SendMessageRequest {
    #[prost(string, tag = "1")]
    tenant: String,
    #[prost(message, optional, tag = "2")]
    message: Option<Message>,
    #[prost(message, optional, tag = "3")]
    configuration: Option<SendMessageConfiguration>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct SendMessageConfiguration {
    #[prost(string, repeated, tag = "1")]
    accepted_output_modes: Vec<String>,
    #[prost(int32, optional, tag = "3")]
    history_length: Option<i32>,
    #[prost(bool, tag = "4")]
    return_immediately: bool,
}

/// `GetTaskRequest`, and `CancelTaskRequest` and `SubscribeToTaskRequest` without the length: they
/// begin with the same fields.
#[derive(Clone, PartialEq, prost::Message)]
struct TaskRequest {
    #[prost(string, tag = "1")]
    tenant: String,
    #[prost(string, tag = "2")]
    id: String,
    #[prost(int32, optional, tag = "3")]
    history_length: Option<i32>,
}

/// `StreamResponse`, and `SendMessageResponse`, which begins with the same fields.
#[derive(Clone, PartialEq, prost::Message)]
struct Response {
    #[prost(oneof = "Payload", tags = "1, 2, 3, 4")]
    payload: Option<Payload>,
}

#[derive(Clone, PartialEq, prost::Oneof, Serialize)]
#[serde(rename_all = "camelCase")]
enum Payload {
    #[prost(message, tag = "1")]
    Task(Task),
    #[prost(message, tag = "2")]
    Message(Message),
    #[prost(message, tag = "3")]
    StatusUpdate(StatusUpdate),
    #[prost(message, tag = "4")]
    ArtifactUpdate(ArtifactUpdate),
}

/// `TaskStatusUpdateEvent`.
#[derive(Clone, PartialEq, prost::Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct StatusUpdate {
    #[prost(string, tag = "1")]
    task_id: String,
    #[prost(string, tag = "2")]
    context_id: String,
    #[prost(message, optional, tag = "3")]
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<TaskStatus>,
}

/// `TaskArtifactUpdateEvent`.
#[derive(Clone, PartialEq, prost::Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct ArtifactUpdate {
    #[prost(string, tag = "1")]
    task_id: String,
    #[prost(string, tag = "2")]
    context_id: String,
    #[prost(message, optional, tag = "3")]
    #[serde(skip_serializing_if = "Option::is_none")]
    artifact: Option<Artifact>,
    #[prost(bool, tag = "4")]
    append: bool,
    #[prost(bool, tag = "5")]
    last_chunk: bool,
}

#[derive(Clone, PartialEq, prost::Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct Task {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(string, tag = "2")]
    context_id: String,
    #[prost(message, optional, tag = "3")]
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<TaskStatus>,
    #[prost(message, repeated, tag = "4")]
    artifacts: Vec<Artifact>,
    #[prost(message, repeated, tag = "5")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    history: Vec<Message>,
}

#[derive(Clone, PartialEq, prost::Message, Serialize)]
struct TaskStatus {
    #[prost(int32, tag = "1")]
    #[serde(serialize_with = "state")]
    state: i32,
    #[prost(message, optional, tag = "2")]
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<Message>,
}

#[derive(Clone, PartialEq, prost::Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct Message {
    #[prost(string, tag = "1")]
    message_id: String,
    #[prost(string, tag = "2")]
    context_id: String,
    #[prost(string, tag = "3")]
    task_id: String,
    #[prost(int32, tag = "4")]
    #[serde(serialize_with = "role")]
    role: i32,
    #[prost(message, repeated, tag = "5")]
    parts: Vec<Part>,
}

#[derive(Clone, PartialEq, prost::Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct Part {
    #[prost(oneof = "Content", tags = "1, 2, 3, 4")]
    #[serde(flatten)]
    content: Option<Content>,
    #[prost(string, tag = "6")]
    #[serde(skip_serializing_if = "String::is_empty")]
    filename: String,
    #[prost(string, tag = "7")]
    #[serde(skip_serializing_if = "String::is_empty")]
    media_type: String,
}

#[derive(Clone, PartialEq, prost::Oneof, Serialize)]
#[serde(rename_all = "camelCase")]
enum Content {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(bytes = "bytes", tag = "2")]
    #[serde(serialize_with = "base64")]
    Raw(Bytes),
    #[prost(string, tag = "3")]
    Url(String),
    #[prost(message, tag = "4")]
    Data(Value),
}

#[derive(Clone, PartialEq, prost::Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct Artifact {
    #[prost(string, tag = "1")]
    artifact_id: String,
    #[prost(message, repeated, tag = "4")]
    parts: Vec<Part>,
}

/// `google.protobuf.Value`: JSON, whose numbers are all doubles.
#[derive(Clone, PartialEq, prost::Message)]
struct Value {
    #[prost(oneof = "Kind", tags = "1, 2, 3, 4, 5, 6")]
    kind: Option<Kind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Kind {
    #[prost(int32, tag = "1")]
    Null(i32),
    #[prost(double, tag = "2")]
    Number(f64),
    #[prost(string, tag = "3")]
    String(String),
    #[prost(bool, tag = "4")]
    Bool(bool),
    #[prost(message, tag = "5")]
    Struct(Struct),
    #[prost(message, tag = "6")]
    List(List),
}

/// On the wire, a map is a list of its entries. Read as a list, it keeps its order.
#[derive(Clone, PartialEq, prost::Message)]
struct Struct {
    #[prost(message, repeated, tag = "1")]
    fields: Vec<Field>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Field {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<Value>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct List {
    #[prost(message, repeated, tag = "1")]
    values: Vec<Value>,
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        /// Doubles, the only numbers of protobuf's JSON, are exact for all integers up to here.
        const EXACT: f64 = 9_007_199_254_740_992.0;
        match &self.kind {
            None | Some(Kind::Null(_)) => serializer.serialize_unit(),
            Some(Kind::Number(number)) if number.fract() == 0.0 && number.abs() <= EXACT => {
                // An agent's 12 must reach the model as 12, not as 12.0.
                #[expect(clippy::cast_possible_truncation, reason = "it is whole and small")]
                serializer.serialize_i64(*number as i64)
            }
            Some(Kind::Number(number)) => serializer.serialize_f64(*number),
            Some(Kind::String(text)) => serializer.serialize_str(text),
            Some(Kind::Bool(bool)) => serializer.serialize_bool(*bool),
            Some(Kind::Struct(Struct { fields })) => {
                let mut object = serializer.serialize_map(Some(fields.len()))?;
                for Field { key, value } in fields {
                    object.serialize_entry(key, value)?;
                }
                object.end()
            }
            Some(Kind::List(list)) => list.values.serialize(serializer),
        }
    }
}

fn base64<S: Serializer>(bytes: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&BASE64_STANDARD.encode(bytes))
}

/// Tells what a user has said in a history from what the agent has.
fn role<S: Serializer>(role: &i32, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(if *role == ROLE_USER { "ROLE_USER" } else { "ROLE_AGENT" })
}

/// A state that is newer than this code stays a number.
fn state<S: Serializer>(state: &i32, serializer: S) -> Result<S::Ok, S::Error> {
    match usize::try_from(*state).ok().and_then(|state| STATES.lines().nth(state)) {
        Some(name) => serializer.serialize_str(name),
        None => serializer.serialize_i32(*state),
    }
}

pub(super) fn encode(operation: Operation<'_>, tenant: Option<&str>) -> Vec<u8> {
    let tenant = tenant.unwrap_or_default().to_owned();
    let history_length = wire::history_length(Generation::V10);
    let task_request = |id: &str, history_length| {
        TaskRequest { tenant: tenant.clone(), id: id.to_owned(), history_length }.encode_to_vec()
    };
    match operation {
        Operation::Send(message, reply) => {
            send(tenant, message, reply == ReplyMode::AtOnce).encode_to_vec()
        }
        Operation::Stream(message) => send(tenant, message, false).encode_to_vec(),
        Operation::GetTask(id) => task_request(id, Some(history_length)),
        Operation::GetHistory(id) => task_request(id, Some(wire::LONG_HISTORY)),
        Operation::CancelTask(id) | Operation::Subscribe(id) => task_request(id, None),
    }
}

fn send(tenant: String, sent: wire::Message<'_>, return_immediately: bool) -> SendMessageRequest {
    let text = Content::Text(sent.text.to_owned());
    let message = Message {
        message_id: sent.id.to_owned(),
        context_id: sent.context.unwrap_or_default().to_owned(),
        task_id: sent.task.unwrap_or_default().to_owned(),
        role: ROLE_USER,
        parts: vec![Part { content: Some(text), ..Part::default() }],
    };
    let configuration = SendMessageConfiguration {
        accepted_output_modes: sent.output_modes.to_vec(),
        history_length: Some(wire::history_length(Generation::V10)),
        return_immediately,
    };
    SendMessageRequest { tenant, message: Some(message), configuration: Some(configuration) }
}

/// The result of `operation` in its message, as JSON.
pub(super) fn decode(operation: Operation<'_>, message: Bytes) -> A2aResult {
    if operation.message().is_some() {
        return decode_event(message);
    }
    json(&Task::decode(message).map_err(not_protobuf)?)
}

/// A message of a stream, as JSON.
pub(super) fn decode_event(message: Bytes) -> A2aResult {
    let payload = Response::decode(message).map_err(not_protobuf)?.payload;
    let why = "its reply is neither a message nor a task";
    json(&payload.ok_or_else(|| A2aFailure::unclear(why))?)
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn not_protobuf(error: prost::DecodeError) -> A2aFailure {
    A2aFailure::unclear(format!("a message of its reply is no protobuf of A2A 1.0 ({error})"))
}

/// Checks the size again: JSON may be several times as long as protobuf.
fn json<T: Serialize>(value: &T) -> A2aResult {
    let json = to_raw_value(value).expect("structs of texts, numbers and lists are always JSON");
    let size = json.get().len();
    if size > MAX_REPLY {
        let size = Some(size as u64);
        return Err(CallError::NotRead(NotRead::TooLarge { limit: MAX_REPLY, size }).into());
    }
    Ok(json)
}

#[cfg(test)]
mod tests;
