//! The two seams between the supervisor and a protocol: [`Dial`] makes a connection, [`Peer`] is
//! one. MCP, A2A and local tools implement them; the supervisor's tests do, too.
//!
//! Must not: retry, back off or time out; the supervisor and the caller do that by dropping the
//! future, so every future here must be safe to drop at any await.

use std::{fmt, sync::Arc};

use futures_util::future::BoxFuture;
use serde_json::value::RawValue;
use tokio::sync::Notify;

use super::program::hiding::Exposure;
use crate::{
    budget::NoRoom,
    http_client::BodyError,
    model::{
        answer::{Answer, codes::STORAGE_UNAVAILABLE},
        call::CallRequest,
        card::signature::Algorithm,
        catalog::{Catalog, Identity},
        rights::Permission,
        routes::Route,
        trace::Trace,
    },
};

/// Knows how to reach one peer.
pub trait Dial: Send + Sync + fmt::Debug + 'static {
    /// Connects and does the protocol's handshake. Dropping the future gives up and leaves
    /// nothing behind.
    fn dial(&self) -> BoxFuture<'_, Result<Arc<dyn Peer>, PeerError>>;

    /// The transport's name for status pages: `stdio`, `streamable-http`, `sse`, `jsonrpc`,
    /// `http-json`, `http`, `command`. It may change when the peer turns out to speak another.
    fn transport(&self) -> &'static str;

    /// Why the program that is started can read files of the bridge's own, if it can and that is
    /// known by now.
    fn exposure(&self) -> Option<Exposure> {
        None
    }
}

/// One live connection to a peer.
pub trait Peer: Send + Sync + fmt::Debug + 'static {
    /// What the handshake told.
    fn about(&self) -> About;

    /// Asks for the whole catalog.
    fn resolve(&self) -> BoxFuture<'_, Result<Arc<Catalog>, PeerError>>;

    /// Ends when the peer has said that its catalog changed since the last time this ended.
    /// Pends for ever where a peer cannot say so.
    fn changed(&self) -> BoxFuture<'_, ()>;

    /// Ends when the connection is lost for good, with one sentence on why. The supervisor then
    /// dials again. Pends for ever for a peer without a connection.
    fn closed(&self) -> BoxFuture<'_, PeerError>;

    /// Makes one call. Dropping the future tells the peer that the call is cancelled, where the
    /// protocol has a way to.
    fn call(&self, call: ToolCall) -> BoxFuture<'_, Result<Answer, CallError>>;

    /// Asks for the outcome of work that an earlier call started, which ended without one: the
    /// bridge was restarted. Nothing is started anew; where the peer does not know the work any
    /// more, or cannot be asked, that is [`CallError::Lost`].
    ///
    /// The default is a peer whose calls never name a [`Handle`].
    fn resume(&self, handle: Handle, call: ToolCall) -> BoxFuture<'_, Result<Answer, CallError>> {
        drop((handle, call));
        Box::pin(async { Err(CallError::Lost("the call cannot be asked for".to_owned())) })
    }

    /// Ends the connection in the protocol's own way, within a few seconds, children included.
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// What the handshake told about a peer.
#[derive(Debug, Clone, Default)]
pub struct About {
    /// The protocol revision in use, such as `2025-11-25` or `1.0`.
    pub protocol_version: Option<String>,
    /// MCP's `Implementation` of the server, verbatim.
    pub server_info: Option<Arc<RawValue>>,
    /// Whether an agent's card is signed, where the operator has named keys.
    pub signature: Option<Arc<Verdict>>,
}

/// Whether a card is signed by one of the operator's keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Valid {
        algorithm: Algorithm,
        /// The `kid` of the key, if it has one.
        key: Option<String>,
    },
    /// It is not, and why.
    Invalid(String),
}

/// One call, with all that a peer needs to make it.
#[derive(Debug, Clone)]
pub struct ToolCall {
    pub request: Arc<CallRequest>,
    /// The trace that it belongs to, which is told to the peer; `None` where the app told none.
    pub trace: Option<Arc<Trace>>,
    /// Where the peer says that the call is getting on.
    pub progress: Progress,
    /// Where it is written down how far the call is.
    pub recorder: Arc<dyn Recorder>,
}

/// What a peer calls the work that a call has started, such as a task: enough to ask for it after
/// a restart. Made and read by the peer's own protocol, kept by others as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handle(pub String);

/// Writes down how far a call is, so that a crash loses nothing and repeats nothing.
pub trait Recorder: Send + Sync + fmt::Debug {
    /// The call is about to reach `peer`, and must not before this has ended well.
    fn dispatching(&self, peer: Option<&Identity>) -> BoxFuture<'_, Result<(), NotRecorded>>;

    /// The dispatch that was told of last was not made.
    fn not_dispatched(&self) {}

    /// The peer has named the work that the call started.
    fn named(&self, handle: &Handle);

    /// Whether the call, if it is dropped now, is only left: the bridge goes down, and will ask for
    /// the work by its handle afterwards. It is not to be cancelled then.
    fn is_left(&self) -> bool {
        false
    }
}

/// Says whether a call may be made, as the bridge is configured at the moment of asking.
pub trait PermissionCheck: Send + Sync + fmt::Debug {
    fn now(&self, route: &Route) -> Permission;
}

/// It was not written down that a call is made, so it must not be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotRecorded {
    #[error("the journal cannot be written")]
    Unwritable,
    #[error("the answers of the app's calls that wait for MANTYX take all of its room")]
    NoShare,
}

impl NotRecorded {
    /// For the model that wanted the call of `what`.
    pub fn for_model(self, what: &str) -> String {
        match self {
            Self::Unwritable => format!(
                "{STORAGE_UNAVAILABLE}: the bridge cannot write its journal, so the call to \
                 `{what}` was not made. Do without it or try again later."
            ),
            Self::NoShare => format!(
                "The app's calls hold as many bytes of arguments and answers as they may, so the \
                 call to `{what}` was not made. Try again when MANTYX has taken some of the answers."
            ),
        }
    }
}

/// The signs of life of one call: the peer that makes it gives them, and whoever waits for it
/// waits longer. Signs between two looks count as one.
#[derive(Debug, Clone, Default)]
pub struct Progress(Arc<Notify>);

impl Progress {
    /// The peer has said that it is still working on the call.
    pub fn touch(&self) {
        self.0.notify_one();
    }

    /// Ends when the call was touched since this last ended.
    pub async fn touched(&self) {
        self.0.notified().await;
    }
}

/// A connection could not be made, was lost, or did not give a catalog.
///
/// The message is for operators: it may name addresses and commands, never a secret.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{text}")]
pub struct PeerError {
    pub text: String,
    /// The peer wants another authorization (HTTP 401 or 403): trying again soon is of no use, and
    /// may lock an account.
    pub refused: bool,
}

impl PeerError {
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), refused: false }
    }
}

/// A call that brought no answer of the tool. What the model is told is made of the variant alone.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CallError {
    /// Nothing was sent: the tool did not run.
    #[error("not sent: {0}")]
    NotSent(String),
    /// The connection broke after the request was written: the tool may have run.
    #[error("connection lost: {0}")]
    Lost(String),
    /// The peer refused the request in its protocol's own words (a JSON-RPC error, an HTTP
    /// status). The text may be shown to the model.
    #[error("refused: {0}")]
    Refused(String),
    /// The peer's reply is not what its protocol says.
    #[error("unreadable reply: {0}")]
    Unreadable(String),
    /// The peer has answered, with more than the bridge takes.
    #[error("reply not read: {0}")]
    NotRead(#[from] NotRead),
}

/// Why a reply was not read to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotRead {
    /// One reply may not be so large.
    #[error("it has {}, and at most {} are read", size_of(*.size, *.limit), mib(*.limit as u64))]
    TooLarge {
        limit: usize,
        /// `None` where the peer did not say, and nobody has counted.
        size: Option<u64>,
    },
    /// All replies that are being read are too large together.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
}

impl NotRead {
    /// What `error` is, unless the body broke off.
    pub fn of(error: &BodyError) -> Option<Self> {
        match error {
            BodyError::TooLarge { limit, size } => {
                Some(Self::TooLarge { limit: *limit, size: *size })
            }
            BodyError::NoRoom(no_room) => Some(Self::NoRoom(*no_room)),
            BodyError::Broken(_) => None,
        }
    }
}

fn size_of(size: Option<u64>, limit: usize) -> String {
    size.map_or_else(|| format!("more than {}", mib(limit as u64)), mib)
}

/// `bytes` as people write it; never less than it is.
fn mib(bytes: u64) -> String {
    let tenths = bytes.saturating_mul(10).div_ceil(1 << 20);
    match tenths % 10 {
        0 => format!("{} MiB", tenths / 10),
        tenth => format!("{}.{tenth} MiB", tenths / 10),
    }
}
