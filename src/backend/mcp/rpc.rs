//! The JSON-RPC side of one connection: the bridge's open requests by id, and what the server
//! sends.
//!
//! A caller sends its request and waits in its own task. One task reads what the server sends (with
//! Streamable HTTP, the caller reads the reply to its own request), and settles the open request
//! that a response names, with the text as it came: types would drop unknown fields and refuse a
//! whole message for one number out of range. What needs no caller, such as the answer to a
//! server's question, runs in tasks that end with the connection.
//!
//! Must not: know which transport carries a message.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use rmcp::model::{ErrorCode, ErrorData, ProgressToken, RequestId, RequestMetaObject};
use serde_json::value::RawValue;
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::handler;
use super::oddities::Oddities;
use super::transport::{SendFailure, Transport};
use crate::backend::{CallError, Called, ErrorReply, LiveRedaction, Reply};
use crate::model::maps::HashMap;
use crate::model::{BackendName, member, string_member};

mod discovery;
mod incoming;
mod message;
mod open_request;
mod server_info;

use discovery::Discovery;
pub(super) use incoming::Incoming;
pub(super) use message::{Message, members, without_meta};
use open_request::Untaken;
pub(super) use open_request::{Kind, OpenRequest};
pub(super) use server_info::{Handshake, NoHandshake, ServerInfo};

/// The id of the first request. Servers that answer with an id of their own making, such as 0 or 1,
/// are found out by it. Some servers keep ids in 32 bits.
pub(super) const FIRST_ID: i64 = 2_000_000_000;

/// How many questions of a server wait at a time.
const MAX_QUESTIONS: usize = 64;
/// How many replies to a server, such as to its pings, may be on their way at a time.
const MAX_REPLIES: usize = 256;
/// How long a server may ask for a request that was given up: longer than any call may take.
const STRAYS_ASK: Duration = Duration::from_secs(600);
/// Of how many bytes responses may wait for their calls before another one is read.
const MAX_UNTAKEN: usize = 16 << 20;
/// How long the end of a connection waits for the cancellations of dropped calls to be sent.
const TELL_TIMEOUT: Duration = Duration::from_secs(1);
const CLOSED: &str = "the server closed the connection";

/// One connection, as its callers and the tasks that read it share it.
#[derive(derive_more::Debug)]
#[debug("Rpc({backend})")]
pub(super) struct Rpc {
    pub(super) backend: BackendName,
    transport: Transport,
    next_id: AtomicI64,
    /// The requests whose responses are waited for.
    open: Mutex<HashMap<i64, Arc<OpenRequest>>>,
    /// The requests that were given up, and since when. The server may still work on them.
    strays: Mutex<HashMap<i64, Instant>>,
    /// The requests that were answered with a task, of whose progress the server may still tell.
    tasks: Mutex<Vec<Weak<OpenRequest>>>,
    /// The server's questions that have no answer yet; cancelled if the server withdraws one.
    questions: Mutex<HashMap<RequestId, CancellationToken>>,
    /// How many messages the server has sent.
    messages: AtomicU64,
    /// Whether the bridge opens a stream for what the server says unasked.
    pub(super) listens: bool,
    /// What is removed from what the server writes into the log.
    pub(super) redact: LiveRedaction,
    /// What the server said in the latest handshake.
    pub(super) handshake: Mutex<Handshake>,
    /// What the handshake has agreed on, once the connection is in use.
    agreed: OnceLock<ServerInfo>,
    /// The answer to `server/discover` that came after the one to `initialize`.
    discovery: Discovery,
    /// The server's tools may differ from those that were last listed.
    pub(super) changed: Notify,
    /// The server has begun a subscription.
    pub(super) subscribed: Notify,
    /// No more responses come.
    pub(super) ended: CancellationToken,
    /// Why the connection has become unusable, if it has.
    lost: watch::Sender<Option<String>>,
    /// The bytes of the responses whose outcomes were not taken yet.
    untaken: watch::Sender<usize>,
    /// What the server does that MCP does not have.
    pub(super) oddities: Arc<Oddities>,
    /// Send what the server is still told when a caller has gone.
    cancellations: TaskTracker,
    /// Work that no caller waits for; it ends with the connection.
    aside: TaskTracker,
    /// A permit for each reply that may be on its way.
    replies: Arc<Semaphore>,
}

/// An open connection with the tasks that read from it, which end with it.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) rpc: Arc<Rpc>,
    pub(super) tasks: JoinSet<()>,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.rpc.ended.cancel();
    }
}

/// Why a request has no reply of the server.
#[derive(Debug)]
pub(super) enum Unanswered {
    /// What was read decides it.
    Known(CallError),
    /// The transport did not carry the request or its reply.
    Transport(SendFailure),
    /// The connection ended.
    Ended,
}

impl Rpc {
    pub(super) fn new(
        backend: BackendName,
        transport: Transport,
        redact: &LiveRedaction,
        listens: bool,
        oddities: Arc<Oddities>,
    ) -> Arc<Self> {
        Arc::new(Self {
            backend,
            transport,
            next_id: AtomicI64::new(FIRST_ID),
            open: Mutex::default(),
            strays: Mutex::default(),
            tasks: Mutex::default(),
            questions: Mutex::default(),
            messages: AtomicU64::new(0),
            listens,
            redact: redact.clone(),
            handshake: Mutex::default(),
            agreed: OnceLock::new(),
            discovery: Discovery::default(),
            changed: Notify::new(),
            subscribed: Notify::new(),
            ended: CancellationToken::new(),
            lost: watch::Sender::default(),
            untaken: watch::Sender::default(),
            oddities,
            cancellations: TaskTracker::new(),
            aside: TaskTracker::new(),
            replies: Arc::new(Semaphore::new(MAX_REPLIES)),
        })
    }

    /// Takes the connection into use, with what the handshake has agreed on.
    pub(super) fn establish(&self, info: ServerInfo) {
        // A connection is established once.
        let _first = self.agreed.set(info).is_ok();
        if self.ended.is_cancelled() {
            self.lose(CLOSED);
        }
    }

    /// What the server has said it is and can do; `None` before the handshake is done.
    pub(super) fn info(&self) -> Option<&ServerInfo> {
        self.discovered().or_else(|| self.agreed.get())
    }

    /// Whether the connection is of revision 2026-07-28, which has no `initialize`.
    pub(super) fn is_modern(&self) -> bool {
        self.info().is_some_and(|info| !info.protocol_version.has_initialize())
    }

    /// The id of another request.
    pub(super) fn next_id(&self) -> i64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Another request that only reads; of the bridge itself if it is for a list.
    pub(super) fn reading(&self, method: &'static str) -> OpenRequest {
        let kind = if method.ends_with("/list") { Kind::List } else { Kind::Read };
        OpenRequest::new(self.next_id(), method, kind)
    }

    /// The `_meta` of a request: its progress token, and since 2026-07-28 what `initialize` said
    /// once before.
    pub(super) fn meta(&self, request: &OpenRequest) -> RequestMetaObject {
        let mut meta =
            if self.is_modern() { handler::request_context() } else { RequestMetaObject::new() };
        meta.set_progress_token(ProgressToken(RequestId::Number(request.id)));
        meta
    }

    /// Sends a request and waits for the server's reply.
    pub(super) async fn ask(
        self: &Arc<Self>,
        request: &Arc<OpenRequest>,
        message: Message,
    ) -> Called<Reply> {
        let outcome = self.exchange(request, message).await;
        outcome.map_err(|unanswered| self.call_error(request, unanswered))
    }

    /// Sends a request and waits for the server's reply. If the caller goes away, the server is
    /// told by a task, and a late response goes to no other request.
    pub(super) async fn exchange(
        self: &Arc<Self>,
        request: &Arc<OpenRequest>,
        message: Message,
    ) -> Result<Reply, Unanswered> {
        if self.ended.is_cancelled() {
            return Err(Unanswered::Ended);
        }
        self.open(request);
        let mut pending = Pending { rpc: self, request, has_ended: false };
        let failure = self.send_and_wait(request, message).await;
        pending.has_ended = true;
        drop(pending);
        match (request.take_outcome(), failure) {
            (Some(outcome), _) => outcome.map_err(Unanswered::Known),
            (None, Some(failure)) => Err(Unanswered::Transport(failure)),
            (None, None) => Err(Unanswered::Ended),
        }
    }

    /// Sends a request, and waits until it has an outcome or the connection has ended, or until the
    /// transport has failed, whose failure is returned.
    async fn send_and_wait(
        self: &Arc<Self>,
        request: &OpenRequest,
        message: Message,
    ) -> Option<SendFailure> {
        let failure = async {
            match self.transport.send(self, message).await {
                // The response comes by another road.
                Ok(()) => std::future::pending().await,
                Err(failure) => failure,
            }
        };
        tokio::select! {
            biased;
            () = request.settled() => None,
            () = self.ended.cancelled() => None,
            failure = failure => Some(failure),
        }
    }

    /// Expects a response to `request` from now on.
    pub(super) fn open(&self, request: &Arc<OpenRequest>) {
        self.open.lock().insert(request.id, Arc::clone(request));
    }

    /// Stops expecting a response to the request `id`. The server may still work on it: a question
    /// that it asks then is not taken for one of another call.
    pub(super) fn forget(&self, id: i64) {
        let Some(request) = self.open.lock().remove(&id) else { return };
        if request.may_be_given_up() {
            let mut strays = self.strays.lock();
            strays.retain(|_, since| since.elapsed() < STRAYS_ASK);
            strays.insert(id, Instant::now());
        }
    }

    /// Sends a message that has no response.
    pub(super) async fn send(self: &Arc<Self>, message: Message) -> Result<(), SendFailure> {
        self.transport.send(self, message).await
    }

    /// Sends a request for whose answer no caller waits; it may take at most `within`.
    pub(super) fn ask_aside(
        self: &Arc<Self>,
        request: OpenRequest,
        members: &[&str],
        within: Duration,
    ) {
        let request = Arc::new(request);
        let message = Message::request(&request, Some(&self.meta(&request)), members);
        let rpc = Arc::clone(self);
        self.tell(async move {
            let _answer = timeout(within, rpc.exchange(&request, message)).await.is_ok();
        });
    }

    /// Answers the server's request `id`, in a task: the way to the server may be blocked.
    pub(super) fn respond(
        self: &Arc<Self>,
        id: &RequestId,
        outcome: Result<&str, (ErrorCode, &str)>,
    ) {
        let outcome = outcome.map_err(|(code, why)| ErrorData::new(code, why.to_owned(), None));
        let message = Message::response(id, outcome.as_ref().copied());
        let Ok(place) = Arc::clone(&self.replies).try_acquire_owned() else {
            tracing::debug!(backend = %self.backend, "the server does not take its replies");
            return;
        };
        let rpc = Arc::clone(self);
        self.spawn(async move {
            let _place = place;
            if let Err(failure) = rpc.send(message).await {
                let why = failure.words();
                tracing::debug!(backend = %rpc.backend, "a reply cannot be sent: {why}");
            }
        });
    }

    /// Runs `work` in a task that ends with the connection. `None` if there is no runtime to run
    /// it.
    pub(super) fn spawn<F>(&self, work: F) -> Option<JoinHandle<Option<F::Output>>>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let runtime = Handle::try_current().ok()?;
        let ended = self.ended.clone();
        let until_end = async move { ended.run_until_cancelled(work).await };
        Some(self.aside.spawn_on(until_end, &runtime))
    }

    /// Tells the server something in a task that the end of the connection waits for.
    fn tell(&self, telling: impl Future<Output = ()> + Send + 'static) {
        if let Ok(runtime) = Handle::try_current() {
            self.cancellations.spawn_on(telling, &runtime);
        }
    }

    /// Tells the server that the caller of the request `id` has gone.
    fn cancel(self: &Arc<Self>, id: i64) {
        let rpc = Arc::clone(self);
        self.tell(async move {
            // If the connection has ended, there is nothing to cancel.
            let _sent = rpc.send(Message::cancelled(id)).await.is_ok();
        });
    }

    /// Ends the connection: sends what the server is still to be told, settles open requests, and
    /// closes the transport.
    pub(super) async fn close(&self) {
        self.cancellations.close();
        if timeout(TELL_TIMEOUT, self.cancellations.wait()).await.is_err() {
            tracing::debug!(backend = %self.backend, "the server does not answer a cancellation");
        }
        self.ended.cancel();
        self.lose(CLOSED);
        self.transport.close().await;
    }

    /// Notes that the server has ended the connection. A handshake has its own words for that.
    pub(super) fn end(&self) {
        if self.agreed.get().is_some() {
            self.lose(CLOSED);
        }
        self.ended.cancel();
        // The handshake may have been done meanwhile.
        if self.agreed.get().is_some() {
            self.lose(CLOSED);
        }
    }

    /// Marks the connection as unusable; only the first reason counts.
    pub(super) fn lose(&self, why: impl Into<String>) {
        self.lost.send_if_modified(|lost| {
            let first = lost.is_none();
            lost.get_or_insert_with(|| why.into());
            first
        });
    }

    /// Ends when the connection has become unusable.
    pub(super) async fn lost(&self) -> String {
        let mut lost = self.lost.subscribe();
        // The sender lives as long as `self`, so there always is a reason.
        lost.wait_for(Option::is_some).await.ok().and_then(|why| why.clone()).unwrap_or_default()
    }

    /// Why the connection became unusable, if it has.
    pub(super) fn why_lost(&self) -> Option<String> {
        self.lost.borrow().clone()
    }

    /// A line of the server for the log.
    pub(super) fn line(&self, bytes: &[u8]) -> String {
        self.redact.redactor().line(bytes, 0)
    }

    /// Whether the server, a program, has read any message.
    pub(super) fn is_read(&self) -> bool {
        matches!(&self.transport, Transport::Pipe(pipe) if pipe.is_read())
    }

    /// How many messages the server has sent.
    pub(super) fn messages(&self) -> u64 {
        self.messages.load(Ordering::Relaxed)
    }

    /// Ends when the outcomes of earlier responses leave room for another. Without that, many large
    /// ones would be there at once: they come faster than the calls make their answers of them.
    pub(super) async fn wait_for_room(&self) {
        if *self.untaken.borrow() >= MAX_UNTAKEN {
            // The sender lives as long as `self`.
            self.untaken.subscribe().wait_for(|all| *all < MAX_UNTAKEN).await.ok();
        }
    }

    /// Notes that `request` was answered with a task, of whose progress the server may tell.
    pub(super) fn expect_progress(&self, request: &Arc<OpenRequest>) {
        let mut tasks = self.tasks.lock();
        tasks.retain(|task| task.strong_count() > 0);
        tasks.push(Arc::downgrade(request));
    }

    /// Notes the body of an HTTP refusal, which may say what a server would accept. It is not
    /// shown: servers repeat the headers that they refuse, and those are secrets.
    pub(super) fn note_refusal(&self, body: &str) {
        if self.agreed.get().is_none() {
            self.handshake.lock().refusal = Some(body.to_owned());
        }
    }

    pub(super) fn take_refusal(&self) -> Option<String> {
        self.handshake.lock().refusal.take()
    }

    /// Whether the server has sent back a request of the handshake.
    pub(super) fn echoes(&self) -> bool {
        self.handshake.lock().echoes
    }

    /// What a caller is told of a request without a reply. A request that the server may have
    /// received is lost, and not sent again.
    pub(super) fn call_error(&self, request: &OpenRequest, unanswered: Unanswered) -> CallError {
        let why = match unanswered {
            Unanswered::Known(error) => return error,
            Unanswered::Transport(failure) => match failure.call_error() {
                Some(error) => return error,
                None => failure.words(),
            },
            Unanswered::Ended => String::new(),
        };
        let why = if why.is_empty() { self.why_ended() } else { why };
        match (request.is_written(), request.lost_sessions()) {
            (true, _) => CallError::Lost(why),
            (false, 0) => CallError::NotSent(why),
            (false, lost_sessions) => self.without_session(lost_sessions, &why),
        }
    }

    fn why_ended(&self) -> String {
        self.why_lost().unwrap_or_else(|| "the connection to the server ended".to_owned())
    }

    /// The error of a request that the server did not run, as it does not know the session, where
    /// no other one could be begun. The connection is given up: otherwise the backend looks ready,
    /// and every call fails.
    fn without_session(&self, lost_sessions: usize, why: &str) -> CallError {
        if lost_sessions > 1 {
            let why = "the server forgets each new session at once; behind a load balancer, all \
                       requests of a session have to reach the same server";
            self.lose(why);
            return CallError::NotSent(why.to_owned());
        }
        let why = format!("the server has forgotten the session, and began no other one: {why}");
        self.lose(why.clone());
        CallError::NoSession(why)
    }
}

/// A request without an outcome. Its drop, with the caller's, has the server told.
struct Pending<'a> {
    rpc: &'a Arc<Rpc>,
    request: &'a OpenRequest,
    has_ended: bool,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.rpc.forget(self.request.id);
        if !self.has_ended && self.request.may_be_given_up() {
            self.rpc.cancel(self.request.id);
        }
    }
}

/// A JSON-RPC error, be it malformed.
pub(super) fn error_of(error: &RawValue) -> ErrorReply {
    let error = error.get();
    let code = member(error, "code").and_then(|code| serde_json::from_str(code.get()).ok());
    let message = string_member(error, "message");
    ErrorReply {
        code: code.unwrap_or(ErrorCode::INTERNAL_ERROR.0),
        message: message.unwrap_or_else(|| "an error without a message".to_owned()),
        data: member(error, "data").map(RawValue::to_owned),
    }
}

/// `error` in rmcp's form.
pub(super) fn error_data(error: ErrorReply) -> ErrorData {
    let data = error.data.and_then(|data| serde_json::from_str(data.get()).ok());
    ErrorData::new(ErrorCode(error.code), error.message, data)
}

/// The id of a response as a number: some servers answer `"7"` to `7`.
pub(super) fn number(id: &RequestId) -> Option<i64> {
    match id {
        RequestId::Number(number) => Some(*number),
        RequestId::String(text) => text.parse().ok(),
    }
}

#[cfg(test)]
pub(super) mod tests;
