//! The two interfaces between the supervisor and a protocol: [`Dial`] makes a connection, [`Peer`]
//! is one. MCP, A2A and local tools implement them; the supervisor's tests do, too.
//!
//! Must not: retry, back off or time out. The supervisor and the caller do that by dropping the
//! future, so every future here must be safe to drop at any await.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::diagnosis::Remark;
use super::log::Redactor;
use super::outcome::CallOutcome;
use super::program::hiding::Exposure;
use super::readiness::{Health, Occasion};
use crate::config::Target;
use crate::http_client::BodyError;
use crate::model::mcp::error_code;
use crate::model::redaction::Part;
use crate::model::rights::CallRefusal;
use crate::model::sentences;
use crate::model::{Answer, CallRequest, Catalog, Ending, Features, Identity, Permission, Trace};
use crate::tasks::in_place_if_large;
use crate::{error_chain, http_client};

mod client;
mod cures;
mod progress;
mod relay;

pub use client::{McpClient, Modes, Question};
pub use progress::{MAX_QUESTION, Progress, TASK_SILENCE};
pub use relay::{
    A2aClient, A2aWire, AgentError, AgentEvent, AgentResult, Generation, RelayOperation,
    RelayReply, RelayRequest,
};

pub use crate::http_client::NotRead;

/// How much of a program's start the log tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartLog {
    /// Its start, its stderr and its end.
    Full,
    /// Nothing above debug until the start has succeeded: the last start has failed, and so the log
    /// has said all of it before.
    Quiet,
}

/// Knows how to reach one peer.
#[async_trait]
pub trait Dial: Send + Sync + fmt::Debug + 'static {
    /// Connects and does the protocol's handshake. Dropping the future gives up: no connection
    /// stays behind, and a program is being ended ([`Self::processes_ended`]).
    async fn dial(&self) -> Result<Arc<dyn Peer>, PeerError>;

    /// Says how much the log tells of the starts from now on.
    fn log_starts(&self, _log: StartLog) {}

    /// Waits until no process is left of attempts that have failed or were given up.
    async fn processes_ended(&self) {}

    /// The transport's name for status pages: `stdio`, `streamable-http`, `sse`, `jsonrpc`,
    /// `http-json`, `http`, `command`. It may change if the peer turns out to speak another one.
    fn transport(&self) -> &'static str;

    /// Why the started program can read files of the bridge, if it can. `None` also while that is
    /// not known yet.
    fn exposure(&self) -> Option<Exposure> {
        None
    }

    /// Ends when the peer's login has changed since the last time this ended, or since the dialer
    /// was made. Stays pending for a peer without one.
    async fn login_changed(&self) {
        std::future::pending::<()>().await;
    }

    /// The error of an attempt, or of a refresh, that took too long: `what` with what the peer has
    /// done meanwhile, as far as that is known.
    fn overdue(&self, what: String) -> PeerError {
        PeerError::new(PeerErrorKind::Timeout, what)
    }

    /// What is odd about a peer that works, or about a program that starts, if something is.
    fn remark(&self) -> Option<Remark> {
        None
    }

    /// The last lines that the program which was started last has written to stderr.
    fn stderr(&self) -> Vec<String> {
        Vec::new()
    }
}

/// One live connection to a peer.
#[async_trait]
pub trait Peer: Send + Sync + fmt::Debug + 'static {
    /// What the peer said in the handshake.
    fn about(&self) -> About;

    /// Asks for the whole catalog.
    async fn resolve(&self) -> Result<Arc<Catalog>, PeerError>;

    /// Asks for what an MCP server offers beside its tools. The default is for a peer that has only
    /// tools.
    async fn features(&self) -> Result<Features, PeerError> {
        Ok(Features::default())
    }

    /// Sends an MCP server a request that only reads. Dropping the future cancels it.
    ///
    /// `permission` is asked before the request is sent for a second time, to a server that had
    /// lost the session: the new session takes a while.
    async fn ask(
        &self,
        method: &'static str,
        _params: Value,
        _permission: ReadPermission,
    ) -> Called<Reply> {
        Err(CallError::NotSent(format!("{method}: it is no MCP server")))
    }

    /// For how long the last catalog holds, as the peer has said (MCP 2026-07-28, `ttlMs`).
    fn ttl(&self) -> Option<Duration> {
        None
    }

    /// Ends when the peer has said that its catalog changed since the last time this ended. Stays
    /// pending if the peer cannot say so.
    async fn changed(&self) {
        std::future::pending::<()>().await;
    }

    /// Ends when the connection is lost for good, with one sentence on why. The supervisor then
    /// dials again. Stays pending for a peer without a connection.
    async fn closed(&self) -> PeerError {
        std::future::pending().await
    }

    /// Whether the connection has been lost for good, as [`Self::closed`] tells. The supervisor may
    /// not have noticed yet.
    fn has_ended(&self) -> bool {
        false
    }

    /// Whether calls would be answered, as far as that is known; `None` for a peer that gives its
    /// catalog where it takes its calls.
    fn health(&self) -> Option<&Health> {
        None
    }

    /// Asks the endpoint of calls something without effect, and writes into [`Self::health`] what
    /// that shows.
    async fn probe(&self, _occasion: Occasion) {}

    /// The wires in which clients of A2A may speak to the agent; none for another peer.
    fn wires(&self) -> Vec<A2aWire> {
        Vec::new()
    }

    /// Whether a call of the bridge, and no client of A2A, has begun the conversation `context`.
    fn has_conversation(&self, _context: &str) -> bool {
        false
    }

    /// Sends an agent the request of a client about a task that the agent has.
    async fn relay(&self, _request: &RelayRequest) -> Called<RelayReply> {
        Err(CallError::NotSent("it is no agent".to_owned()))
    }

    /// Makes one call. Dropping the future cancels the call at the peer, if the protocol can.
    async fn call(&self, call: ToolCall) -> Called<CallOutcome>;

    /// Asks for the outcome of work that an earlier call started, after a restart of the bridge.
    /// The peer must not start the work again. If it no longer knows the work, or cannot be asked,
    /// the error is [`CallError::Lost`] or [`CallError::Unclear`].
    ///
    /// The default is for a peer whose calls never name a [`Handle`].
    async fn resume(&self, _handle: Handle, _call: ToolCall) -> Called<CallOutcome> {
        Err(CallError::Lost("the call cannot be asked for".to_owned()))
    }

    /// Ends the connection in the protocol's own way, within a few seconds, children included.
    async fn close(&self);
}

/// The result of a request to an MCP server, or its JSON-RPC error.
pub type Reply = Result<Box<RawValue>, ErrorReply>;

/// A JSON-RPC error of an MCP server.
#[derive(Debug, Clone, derive_more::Display)]
#[display("{message} (JSON-RPC error {code})")]
pub struct ErrorReply {
    pub code: i32,
    pub message: String,
    pub data: Option<Box<RawValue>>,
}

impl PartialEq for ErrorReply {
    fn eq(&self, other: &Self) -> bool {
        let data = self.data.as_deref().map(RawValue::get);
        (self.code, &self.message) == (other.code, &other.message)
            && data == other.data.as_deref().map(RawValue::get)
    }
}

impl Eq for ErrorReply {}

impl ErrorReply {
    pub fn is_unknown_method(&self) -> bool {
        self.code == error_code::METHOD_NOT_FOUND
    }

    /// Replaces what matches in it, and secrets: a server may repeat the token that it refuses.
    pub(super) fn redact(&mut self, redactor: &Redactor, count: &mut u64) {
        let data_size = self.data.as_ref().map_or(0, |data| data.get().len());
        in_place_if_large(self.message.len() + data_size, || self.redact_all(redactor, count));
    }

    fn redact_all(&mut self, redactor: &Redactor, count: &mut u64) {
        let Redactor { secrets, redact, .. } = redactor;
        self.message = redactor.text(std::mem::take(&mut self.message), count);
        let Some(data) = self.data.take() else { return };
        let redacted = redact.in_json(&data, Part::Params, count).unwrap_or(data);
        let text = Box::<str>::from(redacted).into_string();
        // A number that is replaced by a text leaves a place without valid JSON.
        self.data = RawValue::from_string(secrets.hide(text)).ok();
    }
}

/// What a peer said about itself in the handshake.
#[derive(Debug, Clone, Default)]
pub struct About {
    /// The protocol revision in use, such as `2025-11-25` or `1.0`.
    pub protocol_version: Option<String>,
    /// MCP's `Implementation` of the server, verbatim.
    pub server_info: Option<Arc<RawValue>>,
    /// Whether an agent's card is signed; `None` if the operator has configured no keys.
    pub signature: Option<Arc<Signature>>,
}

/// Whether an Agent Card is signed by one of the keys of its backend's `signature`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Signature {
    pub valid: bool,
    pub algorithm: Option<String>,
    /// The `kid` of the key, if it has one.
    pub key: Option<String>,
    /// Why it counts as not signed.
    pub error: Option<String>,
}

/// One call, with everything that a peer needs to make it.
#[derive(Debug, Clone)]
pub struct ToolCall {
    pub request: Arc<CallRequest>,
    /// The trace of the call, which goes to the peer; `None` if the app sent none.
    pub trace: Option<Arc<Trace>>,
    /// Touched by the peer when the call makes progress.
    pub progress: Progress,
    /// Records how far the call got.
    pub recorder: Arc<dyn Recorder>,
}

/// A peer's name for the work that a call has started, such as a task: enough to ask for the
/// outcome after a restart. Only the peer's own protocol makes and reads it; other parts store it
/// unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handle(pub String);

/// Records how far a call got, so that a crash of the bridge loses no call and repeats none.
pub trait Recorder: Send + Sync + fmt::Debug {
    /// Records that the call is about to be sent to `peer`, or once more to the peer that has it
    /// already, and that the work it may have been given a name for is over. Send it only after
    /// this has succeeded: otherwise a call could take effect that the journal does not know, and
    /// be made twice.
    fn dispatching(&self, peer: Option<&Identity>) -> BoxFuture<'_, Result<(), NotRecorded>>;

    /// Takes back the last [`Self::dispatching`]: the call was not sent.
    fn not_dispatched(&self) {}

    /// Records the peer's name for the work that the call started.
    fn named(&self, handle: &Handle);

    /// Notes that an agent has `call` in the conversation `context`, which belongs to the call's
    /// app from now on.
    fn in_conversation(&self, _call: &CallRequest, _context: &str) {}

    /// Shows people what the peer has said of its work last.
    fn progressed(&self, _text: &str) {}

    /// Whether the call, if it is dropped now, goes on at the peer: the bridge is stopping, and
    /// will ask for the work by its handle after the restart. Do not cancel such a call.
    fn is_left(&self) -> bool {
        false
    }
}

/// Whether a request that only reads may be sent, by the configuration at the moment of asking.
pub type ReadPermission = Arc<dyn Fn() -> Result<(), CallRefusal> + Send + Sync>;

/// Says whether a call may be made, by the configuration at the moment of asking.
pub trait PermissionCheck: Send + Sync + fmt::Debug {
    fn now(&self, call: &CallRequest) -> Permission;

    /// Prepares the answer of [`Self::now`] in the background, if it takes long. Without that,
    /// rules on large arguments would hold up the async thread that makes the call.
    fn prepare<'a>(&'a self, _call: &'a Arc<CallRequest>) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Counts a call that is dispatched now with the quotas of its app and its backend; the model's
    /// answer if one of them is used up.
    fn count(&self, _call: &CallRequest) -> Result<(), String> {
        Ok(())
    }
}

/// The dispatch of a call could not be recorded, so the call must not be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotRecorded {
    #[error("the journal cannot be written")]
    Unwritable,
    #[error("the answers of the app's calls that wait for MANTYX take all of its room")]
    NoShare,
    /// Another replica has the request that the call is of, or may have it.
    #[error("another replica has the request")]
    Elsewhere,
}

impl NotRecorded {
    /// The answer for the model that wanted to call `what`.
    pub fn for_model(self, what: &str) -> String {
        match self {
            Self::Unwritable => sentences::journal_unwritable(what),
            Self::NoShare => sentences::app_bytes_exhausted(what),
            Self::Elsewhere => sentences::request_elsewhere(what),
        }
    }
}

/// A pause that a peer has asked for with `Retry-After`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestedPause {
    pub end: Instant,
    /// The status with which it did.
    pub status: StatusCode,
}

impl RequestedPause {
    pub fn left(self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }
}

/// A connection could not be made, was lost, or did not give a catalog.
///
/// The message is for operators: it may name addresses and commands, never a secret. `Display`
/// gives it without its cause; [`crate::error_chain::error_chain`] gives both.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{text}")]
pub struct PeerError {
    pub kind: PeerErrorKind,
    text: String,
    #[source]
    cause: Option<Arc<dyn Error + Send + Sync>>,
    cure: Option<Cow<'static, str>>,
    /// The cause in the bridge's own words, without a path.
    plain_cause: Option<String>,
    /// The peer has asked for a pause, and nothing is sent to it before its end.
    pause: Option<RequestedPause>,
}

/// The kind of a failure of a peer, as far as the remedy depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerErrorKind {
    /// The program cannot be started, or has ended.
    Program,
    /// The peer cannot be reached, or the connection broke.
    Connect,
    /// The peer wants another authorization (HTTP 401 or 403): trying again soon is of no use, and
    /// may lock an account.
    Unauthorized,
    /// The authorization server gives no token for the peer.
    NoToken,
    /// The peer answers, but not as its protocol requires.
    Protocol,
    /// The Agent Card is not signed by a configured key.
    Unsigned,
    Timeout,
    /// What its entry in the configuration refers to is missing, or cannot be used.
    Unresolved,
}

/// Reaches nothing, as the configuration does not say how.
#[derive(Debug)]
pub struct Unresolved(pub String);

#[async_trait]
impl Dial for Unresolved {
    async fn dial(&self) -> Result<Arc<dyn Peer>, PeerError> {
        Err(PeerError::new(PeerErrorKind::Unresolved, &*self.0))
    }

    fn transport(&self) -> &'static str {
        "none"
    }
}

impl PeerError {
    pub fn new(kind: PeerErrorKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into(), cause: None, cure: None, plain_cause: None, pause: None }
    }

    /// This error, with what to do about it, where the failed connection says that.
    pub fn with_cure(self, cure: Option<Cow<'static, str>>) -> Self {
        Self { cure, ..self }
    }

    /// This error, with what to do about its cause.
    pub fn cured(self, cure: String) -> Self {
        Self { cure: Some(cure.into()), ..self }
    }

    /// This error, with a cause that apps may be told.
    pub fn with_plain_cause(self, cause: String) -> Self {
        Self { plain_cause: Some(cause), ..self }
    }

    /// What an app is told: the bridge's own words, and nothing of the peer's, of the file system
    /// or of an address.
    pub fn for_apps(&self) -> String {
        let what = match self.kind {
            PeerErrorKind::Program => "Its program does not start, or has ended",
            PeerErrorKind::Connect => "It cannot be reached, or the connection broke",
            PeerErrorKind::Unauthorized => "It refuses the credential that the bridge shows",
            PeerErrorKind::NoToken => "There is no token for it",
            PeerErrorKind::Protocol => "It does not answer as its protocol requires",
            PeerErrorKind::Unsigned => "Its card is not signed by a configured key",
            PeerErrorKind::Timeout => "It did not answer in time",
            PeerErrorKind::Unresolved => {
                "Its entry in the configuration refers to something that is missing"
            }
        };
        match &self.plain_cause {
            Some(cause) => format!("{what}: {cause}."),
            None => format!("{what}."),
        }
    }

    /// This failure in other words, with the same cure.
    pub fn reworded(&self, text: String) -> Self {
        let cure = self.own_cure().map(|cure| Cow::Owned(cure.to_owned()));
        let plain_cause = self.plain_cause.clone();
        Self { kind: self.kind, text, cause: None, cure, plain_cause, pause: self.pause }
    }

    /// What to do about it, where the failure itself says that.
    pub fn own_cure(&self) -> Option<&str> {
        match (&self.cure, self.kind) {
            (Some(cure), _) => Some(cure.as_ref()),
            (None, PeerErrorKind::Connect) => error_chain::cure(self.cause.as_deref()?),
            (None, _) => None,
        }
    }

    /// This error with `more` behind its text.
    pub fn with_more(self, more: &str) -> Self {
        Self { text: format!("{}; {more}", self.text), ..self }
    }

    /// This error, where the peer has asked for a pause.
    pub fn with_pause(self, pause: Option<RequestedPause>) -> Self {
        Self { pause, ..self }
    }

    /// The pause that the peer has asked for, if it is not over.
    pub fn open_pause(&self) -> Option<RequestedPause> {
        self.pause.filter(|pause| pause.end > Instant::now())
    }

    /// How long the peer wants no requests from now on.
    pub fn pause(&self) -> Duration {
        self.pause.map_or(Duration::ZERO, RequestedPause::left)
    }

    /// What an operator does about it, where the backend is reached as `target` says.
    pub fn cure(&self, target: &Target) -> String {
        match self.own_cure() {
            Some(cure) => cure.to_owned(),
            None => cures::generic(self.kind, target),
        }
    }

    pub fn because(self, cause: impl Error + Send + Sync + 'static) -> Self {
        Self { cause: Some(Arc::new(cause)), ..self }
    }
}

/// What a call brings: an answer of the tool, or a value on the way to it.
pub type Called<T = Answer> = Result<T, CallError>;

/// A call that brought no answer of the tool. The text for the model depends on the variant alone,
/// and on the payload of `Refused`, `Unclear` and `NotRead`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// Nothing was sent: the tool did not run.
    #[error("not sent: {0}")]
    NotSent(String),
    /// The server did not run the request, as it has forgotten the session. A new connection has a
    /// new one.
    #[error("not run: {0}")]
    NoSession(String),
    /// The connection broke after the request was written: the tool may have run.
    #[error("connection lost: {0}")]
    Lost(String),
    /// The peer refused the request by its protocol (a JSON-RPC error, an HTTP status). The model
    /// may see the text.
    #[error("refused: {0}")]
    Refused(String),
    /// What stands before the peer has refused the request (HTTP 401, a redirect, no such path):
    /// the peer itself has not answered. The model may see the text.
    #[error("refused: {0}")]
    Denied(String),
    /// An MCP server has refused the call with an `error` that means something to the MCP client
    /// that has made it; `why` is that in words.
    #[error("refused: {why}")]
    RefusedWith { why: String, error: ErrorReply },
    /// The peer's reply does not follow its protocol.
    #[error("unreadable reply: {0}")]
    Unreadable(String),
    /// The peer has the request, and did not say what became of it. The model may see `why`, which
    /// continues a sentence whose subject is the peer.
    #[error("outcome not known: {why}")]
    Unclear { why: String, ending: Ending },
    /// The peer has answered with more than the bridge reads.
    #[error("reply not read: {0}")]
    NotRead(#[from] NotRead),
}

impl CallError {
    /// What a call gets in the `pause` that the peer has asked for.
    pub fn paused(pause: RequestedPause) -> Self {
        let seconds = pause.left().as_secs_f64().ceil().max(1.0);
        let why = match pause.status {
            StatusCode::TOO_MANY_REQUESTS => "has had too many requests",
            _ => "takes no requests at the moment",
        };
        let status = pause.status.as_u16();
        Self::Refused(format!(
            "The server {why} (HTTP {status}), and takes the next one in {seconds} s. \
             The call was not made; make it again then, or do without it."
        ))
    }
}

impl From<ErrorReply> for CallError {
    fn from(error: ErrorReply) -> Self {
        Self::Refused(error.to_string())
    }
}

/// There was no answer to an HTTP request.
impl From<reqwest::Error> for CallError {
    fn from(error: reqwest::Error) -> Self {
        match http_client::why_no_answer(error) {
            (true, text) => Self::NotSent(text),
            (false, text) => Self::Lost(text),
        }
    }
}

impl From<BodyError> for CallError {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::NotRead(why) => why.into(),
            broken @ BodyError::Broken(_) => Self::Lost(error_chain::error_chain(&broken)),
        }
    }
}
