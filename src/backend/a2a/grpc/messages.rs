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

use crate::backend::a2a::failure::{A2aFailure, Exchanged};
use crate::backend::a2a::interface::Generation;
use crate::backend::a2a::link::MAX_REPLY;
use crate::backend::a2a::wire;
use crate::backend::a2a::wire::{Operation, Reply};
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
    #[prost(int32, optional, tag = "3")]
    history_length: Option<i32>,
    #[prost(bool, tag = "4")]
    return_immediately: bool,
}

/// `GetTaskRequest`, and `CancelTaskRequest` without the length: they begin with the same fields.
#[derive(Clone, PartialEq, prost::Message)]
struct TaskRequest {
    #[prost(string, tag = "1")]
    tenant: String,
    #[prost(string, tag = "2")]
    id: String,
    #[prost(int32, optional, tag = "3")]
    history_length: Option<i32>,
}

/// `SendMessageResponse`.
#[derive(Clone, PartialEq, prost::Message)]
struct Response {
    #[prost(oneof = "Payload", tags = "1, 2")]
    payload: Option<Payload>,
}

#[derive(Clone, PartialEq, prost::Oneof, Serialize)]
#[serde(rename_all = "camelCase")]
enum Payload {
    #[prost(message, tag = "1")]
    Task(Task),
    #[prost(message, tag = "2")]
    Message(Message),
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
    #[serde(skip)]
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

/// A state that is newer than this code stays a number.
fn state<S: Serializer>(state: &i32, serializer: S) -> Result<S::Ok, S::Error> {
    match usize::try_from(*state).ok().and_then(|state| STATES.lines().nth(state)) {
        Some(name) => serializer.serialize_str(name),
        None => serializer.serialize_i32(*state),
    }
}

pub(super) fn encode(operation: Operation<'_>, tenant: Option<&str>) -> Vec<u8> {
    let tenant = tenant.unwrap_or_default().to_owned();
    let history_length = Some(wire::history_length(Generation::V10));
    match operation {
        Operation::Send(sent, reply) => {
            let text = Content::Text(sent.text.to_owned());
            let message = Message {
                message_id: sent.id.to_owned(),
                context_id: sent.context.unwrap_or_default().to_owned(),
                task_id: sent.task.unwrap_or_default().to_owned(),
                role: ROLE_USER,
                parts: vec![Part { content: Some(text), ..Part::default() }],
            };
            let return_immediately = reply == Reply::AtOnce;
            let configuration =
                Some(SendMessageConfiguration { history_length, return_immediately });
            SendMessageRequest { tenant, message: Some(message), configuration }.encode_to_vec()
        }
        Operation::GetTask(id) | Operation::CancelTask(id) => {
            let history_length = history_length.filter(|_| operation.only_reads());
            TaskRequest { tenant, id: id.to_owned(), history_length }.encode_to_vec()
        }
    }
}

/// The result of `operation` in its message, as JSON.
pub(super) fn decode(operation: Operation<'_>, message: Bytes) -> Exchanged {
    let unreadable = |why: prost::DecodeError| {
        A2aFailure::unreadable(format!("a message is no protobuf of A2A 1.0 ({why})"))
    };
    if !matches!(operation, Operation::Send(..)) {
        return json(&Task::decode(message).map_err(unreadable)?);
    }
    let reply = Response::decode(message).map_err(unreadable)?.payload;
    let why = "the reply is neither a message nor a task";
    json(&reply.ok_or_else(|| A2aFailure::unreadable(why))?)
}

/// Checks the size again: JSON may be several times as long as protobuf.
fn json<T: Serialize>(value: &T) -> Exchanged {
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
