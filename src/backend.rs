//! What answers tool calls: the peers and the tasks that keep them connected and resolved.
//!
//! Must not: know runs, apps or MANTYX. A call comes in as a [`model::offer::Route`] with its
//! arguments and leaves as an answer.
//!
//! [`model::offer::Route`]: crate::model::offer::Route

pub mod a2a;
mod auth;
pub mod calls;
pub mod circuit_breaker;
pub mod demand;
mod diagnosis;
pub mod local;
mod log;
pub mod mcp;
pub mod outcome;
pub mod peer;
pub mod program;
pub mod readiness;
pub mod registry;
pub mod seat;
pub mod supervisor;
pub mod switch;
mod trust;
pub mod turns;

pub use self::diagnosis::Remark;
pub use self::log::LiveRedaction;
pub use self::outcome::{CallOutcome, Source};
pub use self::peer::{
    A2aClient, A2aWire, About, AgentError, AgentEvent, AgentResult, CallError, Called, Dial,
    ErrorReply, Generation, Handle, MAX_QUESTION, McpClient, Modes, NotRead, NotRecorded, Peer,
    PeerError, PeerErrorKind, Progress, Question, Recorder, RelayOperation, RelayReply,
    RelayRequest, Reply, RequestedPause, Signature, StartLog, TASK_SILENCE, ToolCall,
};
use crate::http_client::address;

#[cfg(test)]
pub(crate) mod fake;
