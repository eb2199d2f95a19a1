//! What a client of A2A sends to an agent through the bridge, and what comes back: both in the
//! client's own wire, which is the agent's as well.
//!
//! Must not: read what a message or a result says.

use futures_util::stream::BoxStream;
use http::StatusCode;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::CallError;
use crate::backend::log::Redactor;
use crate::config::A2aBinding;
use crate::model::redaction::Part;
use crate::tasks::in_place_if_large;

/// The two wire formats of A2A, which do not understand each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Generation {
    V03,
    V10,
}

/// How a client and an agent speak to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct A2aWire {
    pub binding: A2aBinding,
    pub generation: Generation,
}

/// A request of a client.
#[derive(Debug, Clone)]
pub struct RelayRequest {
    pub wire: A2aWire,
    pub operation: RelayOperation,
}

/// What the client asks for. Parameters are JSON objects, in the form of the client's wire.
#[derive(Debug, Clone)]
pub enum RelayOperation {
    Send(Box<RawValue>),
    /// A message whose reply is a stream.
    Stream(Box<RawValue>),
    GetTask {
        task: String,
        history_length: Option<i64>,
    },
    CancelTask {
        task: String,
        metadata: Option<Box<RawValue>>,
    },
    /// A stream of what becomes of a task from now on.
    Subscribe {
        task: String,
    },
}

/// One answer of the agent, or one event of its stream.
#[derive(Debug, Clone)]
pub enum AgentEvent {
    Result(AgentResult),
    Error(AgentError),
}

/// A result, and what it is about.
#[derive(Debug, Clone)]
pub struct AgentResult {
    pub json: Box<RawValue>,
    pub task: Option<String>,
    pub context: Option<String>,
    /// The task has ended, or waits for its client; a message without a task is the end as well.
    pub is_settled: bool,
    /// The state of the task, if this says it.
    pub state: Option<String>,
}

/// The agent's own error: the `error` of JSON-RPC, or the body of HTTP+JSON.
#[derive(Debug, Clone)]
pub struct AgentError {
    /// The status of HTTP+JSON.
    pub status: StatusCode,
    pub json: Box<RawValue>,
    /// The agent has refused the request: nothing has run.
    pub is_refusal: bool,
}

impl AgentEvent {
    /// What the agent says, without what `redact` removes from it. Ids stay: with another id, the
    /// client could not ask for its task. An error is also without secrets, as a server may repeat
    /// the token that it refuses.
    pub(in crate::backend) fn without_secrets(self, redactor: &Redactor) -> Self {
        let mut count = 0;
        let mut redacted = |json: &RawValue, part| {
            in_place_if_large(json.get().len(), || redactor.redact.in_json(json, part, &mut count))
        };
        let reply = match self {
            Self::Result(result) => {
                let json = redacted(&result.json, Part::AgentResult).unwrap_or(result.json);
                Self::Result(AgentResult { json, ..result })
            }
            Self::Error(error) => {
                let json = redacted(&error.json, Part::Result).unwrap_or(error.json);
                let text = redactor.secrets.hide(Box::<str>::from(json).into_string());
                // A number that is replaced by a text leaves a place without valid JSON.
                let json =
                    RawValue::from_string(text).unwrap_or_else(|_| RawValue::NULL.to_owned());
                Self::Error(AgentError { json, ..error })
            }
        };
        redactor.redacted.inc_by(count);
        reply
    }
}

/// The reply to a request.
#[derive(derive_more::Debug)]
pub enum RelayReply {
    One(AgentEvent),
    #[debug("Events")]
    Events(BoxStream<'static, Result<AgentEvent, CallError>>),
}

/// The client that has sent a message by a call: what it sends, and what takes the events.
#[derive(Debug)]
pub struct A2aClient {
    pub request: RelayRequest,
    pub events: mpsc::Sender<AgentEvent>,
    /// Cancelled when the client has hung up and its app can ask for the task. The call then gives
    /// its permits back, and only reads on.
    pub hung_up: CancellationToken,
}
