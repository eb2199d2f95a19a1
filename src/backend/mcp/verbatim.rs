//! Carries arguments and results past rmcp, verbatim. rmcp's own types drop unknown fields, refuse
//! a whole message for one number out of range, and rewrite the rest. So the transports keep the
//! text of results here and give rmcp a stand-in that it can always read. They also put the text of
//! arguments into rmcp's requests.
//!
//! Must not: do IO, or know which transport carries a message.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, ErrorCode, ErrorData, GetExtensions,
    GetMeta, JsonRpcMessage, ProgressToken, RequestId, ServerJsonRpcMessage, ServerResult,
};
use serde_json::value::RawValue;
use serde_json::{json, to_string};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::oddities::Oddities;
use super::questions::Inputs;
use crate::backend::peer::ReadPermission;
use crate::backend::{
    Called, ErrorReply, LiveRedaction, PeerErrorKind, Progress, Reply, RequestedPause,
};
use crate::model::json::one_line;
use crate::model::maps::HashMap;
use crate::model::{CallRequest, Members, member, string_member};

mod calls;
mod discovery;
mod endings;
mod handshake;

use calls::encode_call;
use discovery::Discovery;
pub(super) use handshake::{Handshake, says_no_revision};

/// How many questions of a server wait at a time.
const MAX_QUESTIONS: usize = 64;
/// How long a server may ask for a request that was given up: longer than any call may take.
const STRAYS_ASK: Duration = Duration::from_secs(600);
const PROGRESS: &str = "notifications/progress";
const ELICIT: &str = "elicitation/create";
const TOKEN: &str = "progressToken";
/// Of how many bytes responses may wait for their calls before another one is read.
const MAX_UNTAKEN: usize = 16 << 20;

/// One request whose result is kept as text.
#[derive(derive_more::Debug, Default)]
pub(super) struct RawRequest {
    /// It lists what the server offers, so no user is behind it.
    is_list: bool,
    /// The call whose arguments replace those of rmcp's request.
    call: Option<Arc<CallRequest>>,
    /// The arguments that go along as HTTP headers: names and values.
    pub(super) headers: Vec<(String, String)>,
    /// Asks the server to run the call as a task (2025-11-25) and to keep it for this many
    /// milliseconds.
    pub(super) task_ttl: Option<u64>,
    /// The answers to the server's questions, if it has asked some.
    inputs: Option<Inputs>,
    /// Whether it may be sent, if it only reads for a client.
    #[debug(skip)]
    read_permission: Option<ReadPermission>,
    /// Touched when the server reports progress of the request.
    progress: Progress,
    /// The progress token by which the server names the request in its notifications.
    token: OnceLock<i64>,
    /// rmcp does not know the request.
    is_direct: AtomicBool,
    /// Told when a request that rmcp does not know ends.
    ended: Notify,
    /// Whether the server may have received the request.
    written: AtomicBool,
    /// How the transport failed; only the first failure counts.
    pub(super) failure: OnceLock<PeerErrorKind>,
    /// The pause that the server has asked for instead of an answer.
    pub(super) pause: OnceLock<RequestedPause>,
    /// How often the server refused it, as it did not know the session.
    lost_sessions: AtomicUsize,
    outcome: Mutex<Option<Called<Reply>>>,
    /// Counts the outcome until it is taken.
    untaken: Mutex<Option<Untaken>>,
}

/// The bytes of a response that was read, and whose outcome was not taken yet; and where they
/// count.
#[derive(Debug)]
struct Untaken(usize, watch::Sender<usize>);

impl Drop for Untaken {
    fn drop(&mut self) {
        self.1.send_modify(|all| *all -= self.0);
    }
}

/// Ties an [`RawRequest`] to a request, in its extensions.
#[derive(Debug, Clone)]
pub(super) struct Marker(pub(super) Arc<RawRequest>);

/// The state of one connection, shared by its transport and the code that makes its calls.
#[derive(Debug, Default)]
pub(super) struct ConnectionState {
    /// The expected responses, by the id of the request. rmcp numbers its requests.
    waiting: Mutex<HashMap<i64, Waiting>>,
    /// The parameters of the questions that the server has asked, verbatim, by their request.
    questions: Mutex<HashMap<RequestId, Box<RawValue>>>,
    /// The results for questions that rmcp is about to answer, which go to the server verbatim.
    answers: Mutex<HashMap<RequestId, Box<RawValue>>>,
    /// The requests that were given up, and since when. The server may still work on them.
    strays: Mutex<HashMap<i64, Instant>>,
    /// The requests that were answered with a task. Their progress goes on.
    tasks: Mutex<Vec<Weak<RawRequest>>>,
    /// Whether the bridge opens a stream for what the server says unasked.
    pub(super) listens: bool,
    /// What is removed from what the server writes into the log.
    pub(super) redact: LiveRedaction,
    /// What the server said in the latest handshake.
    pub(super) handshake: Mutex<Handshake>,
    /// The answer to `server/discover` that came after the one to `initialize`.
    discovery: Discovery,
    /// The server's tools may differ from those that were last listed.
    pub(super) changed: Notify,
    /// Ends rmcp's side.
    pub(super) stop: CancellationToken,
    /// rmcp's side has ended.
    pub(super) ended: CancellationToken,
    /// How many calls went past rmcp.
    direct: AtomicI64,
    /// Why the connection has become unusable, if it has.
    lost: watch::Sender<Option<String>>,
    /// The bytes of the responses whose outcomes were not taken yet.
    untaken: watch::Sender<usize>,
    /// What the server does that MCP does not have.
    pub(super) oddities: Arc<Oddities>,
}

#[derive(Debug)]
enum Waiting {
    Raw(Arc<RawRequest>),
    Handshake(handshake::Kind),
    /// rmcp sent the request by itself and reads the response with its own types.
    Typed,
}

impl Waiting {
    fn raw(&self) -> Option<&Arc<RawRequest>> {
        if let Self::Raw(raw_request) = self { Some(raw_request) } else { None }
    }
}

/// How to treat a message of the server.
#[derive(Debug)]
pub(super) enum Incoming {
    /// rmcp gets this.
    Message(Box<ServerJsonRpcMessage>),
    /// The message answers no request that still waits, or has no content; the text says which.
    Ignored(&'static str),
    /// The text is no JSON-RPC message.
    Garbage,
}

impl RawRequest {
    /// One that only reads; of the bridge itself if it is for a list.
    pub(super) fn reading(method: &str) -> Arc<Self> {
        Arc::new(Self { is_list: method.ends_with("/list"), ..Self::default() })
    }

    /// One that only reads, for an MCP client that may do so with `permission`.
    pub(super) fn reading_for_client(permission: ReadPermission) -> Arc<Self> {
        Arc::new(Self { read_permission: Some(permission), ..Self::default() })
    }

    /// A tool call; with `task_ttl` it asks for a task.
    pub(super) fn of_call(
        call: Arc<CallRequest>,
        headers: Vec<(String, String)>,
        progress: Progress,
        task_ttl: Option<u64>,
        inputs: Option<Inputs>,
    ) -> Arc<Self> {
        Arc::new(Self { call: Some(call), headers, task_ttl, progress, inputs, ..Self::default() })
    }

    /// Notes whether the server may have received the request.
    pub(super) fn set_written(&self, written: bool) {
        self.written.store(written, Ordering::Release);
    }

    pub(super) fn is_written(&self) -> bool {
        self.written.load(Ordering::Acquire)
    }

    /// Notes that the server did not run the request, as it does not know the session.
    pub(super) fn without_session(&self) {
        self.set_written(false);
        self.lost_sessions.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn lost_sessions(&self) -> usize {
        self.lost_sessions.load(Ordering::Relaxed)
    }

    /// Whether its call, or its read for a client, may still be sent.
    pub(super) async fn is_permitted(&self) -> bool {
        match &self.read_permission {
            Some(permission) => permission().is_ok(),
            None => self.progress.is_permitted().await,
        }
    }

    /// Ends the request; only the first end counts.
    pub(super) fn settle(&self, outcome: Called<Reply>) {
        self.outcome.lock().get_or_insert(outcome);
        self.ended.notify_one();
    }

    pub(super) fn is_call(&self) -> bool {
        self.call.is_some()
    }

    /// How many bytes its arguments take.
    pub(super) fn size(&self) -> usize {
        self.call.as_ref().map_or(0, |call| call.arguments.get().len())
    }

    /// Ends when the request has, if rmcp does not know it.
    pub(super) async fn ended(&self) {
        self.ended.notified().await;
    }

    /// The message that tells rmcp of the end of the request `id`, if rmcp knows it.
    fn told(&self, message: impl FnOnce() -> ServerJsonRpcMessage) -> Incoming {
        match self.is_direct.load(Ordering::Relaxed) {
            true => Incoming::Ignored("its call has it"),
            false => Incoming::Message(Box::new(message())),
        }
    }

    /// Takes the outcome of the request; `None` if there is none yet, or if it was taken before.
    pub(super) fn take_outcome(&self) -> Option<Called<Reply>> {
        drop(self.untaken.lock().take());
        self.outcome.lock().take()
    }
}

impl ConnectionState {
    pub(super) fn new(redact: &LiveRedaction, listens: bool) -> Arc<Self> {
        Arc::new(Self { redact: redact.clone(), listens, ..Self::default() })
    }

    /// A line of the server for the log.
    pub(super) fn line(&self, bytes: &[u8]) -> String {
        self.redact.removal().line(bytes, 0)
    }

    /// The text of a message for the server, on one line. If it is a request, notes that its
    /// response is expected.
    pub(super) fn outgoing(
        &self,
        message: &ClientJsonRpcMessage,
    ) -> Result<Vec<u8>, serde_json::Error> {
        let message = &*self.in_revision(message);
        match message {
            JsonRpcMessage::Request(request) => {
                if let Some(id) = number(&request.id) {
                    self.expect(id, &request.request);
                }
                if let ClientRequest::CallToolRequest(call) = &request.request
                    && let Some(Marker(raw_request)) = request.request.extensions().get()
                {
                    let meta = request.request.get_meta();
                    return encode_call(&request.id, meta, &call.params.name, raw_request);
                }
            }
            JsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) =
                    &notification.notification
                    && let Some(id) = cancelled.params.request_id.as_ref()
                {
                    self.forget(id);
                }
            }
            JsonRpcMessage::Response(response) => {
                if let Some(answer) = self.answers.lock().remove(&response.id) {
                    let id = to_string(&response.id)?;
                    let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{answer}}}"#);
                    return Ok(one_line(text));
                }
            }
            JsonRpcMessage::Error(_) => (),
        }
        serde_json::to_vec(message)
    }

    /// Ends when the outcomes of earlier responses leave room for another. Without that, many large
    /// ones would be there at once: they come faster than the calls make their answers of them.
    pub(super) async fn has_room(&self) {
        if *self.untaken.borrow() >= MAX_UNTAKEN {
            // The sender lives as long as `self`.
            self.untaken.subscribe().wait_for(|all| *all < MAX_UNTAKEN).await.ok();
        }
    }

    /// Handles a message of the server.
    pub(super) fn incoming(&self, text: &str) -> Incoming {
        let Some(envelope) = Envelope::read(text) else { return Incoming::Garbage };
        if let Some(method) = &envelope.method {
            match &**method {
                PROGRESS => {
                    self.progressed(text);
                    return Incoming::Ignored("it tells of progress");
                }
                ELICIT => self.asked(&envelope, text),
                _ => (),
            }
            return envelope.request(text, method);
        }
        match envelope.id.as_ref().and_then(number) {
            Some(id) => self.response(&envelope, id, text),
            None => self.without_id(&envelope),
        }
    }

    /// Handles a response to the request `id`.
    fn response(&self, envelope: &Envelope<'_>, id: i64, text: &str) -> Incoming {
        let Some(waiting) = self.waiting.lock().remove(&id) else {
            if self.take_late_discovery(id, text, envelope.result) {
                return Incoming::Ignored("it changes the revision");
            }
            if self.strays.lock().remove(&id).is_none() {
                self.oddities.strayed(id);
            }
            return Incoming::Ignored("it answers no request that is waited for");
        };
        let message = match waiting {
            Waiting::Raw(raw_request) => {
                self.untaken.send_modify(|all| *all += text.len());
                *raw_request.untaken.lock() = Some(Untaken(text.len(), self.untaken.clone()));
                return envelope.settle(id, &raw_request);
            }
            Waiting::Handshake(kind) => {
                let mut handshake = self.handshake.lock();
                let message = handshake.take(kind, text, id, envelope.result);
                if std::mem::take(&mut handshake.repeated) {
                    // The server lost its state, and may have restarted as another version with
                    // other tools.
                    self.changed.notify_one();
                }
                message
            }
            Waiting::Typed => serde_json::from_str(text)
                .unwrap_or_else(|error| unreadable(id, &format!("the reply is invalid: {error}"))),
        };
        Incoming::Message(Box::new(message))
    }

    /// Stops expecting a response to `id`.
    pub(super) fn forget(&self, id: &RequestId) {
        let Some(id) = number(id) else { return };
        if let Some(Waiting::Raw(_)) = self.waiting.lock().remove(&id) {
            let mut strays = self.strays.lock();
            strays.retain(|_, since| since.elapsed() < STRAYS_ASK);
            strays.insert(id, Instant::now());
        }
    }

    /// Notes that `raw_request` was answered with a task, of whose progress the server may tell.
    pub(super) fn goes_on(&self, raw_request: &Arc<RawRequest>) {
        let mut tasks = self.tasks.lock();
        tasks.retain(|task| task.strong_count() > 0);
        tasks.push(Arc::downgrade(raw_request));
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

    /// Keeps a question of the server until rmcp hands it over.
    fn asked(&self, envelope: &Envelope<'_>, text: &str) {
        if let (Some(id), Some(params)) = (&envelope.id, member(text, "params")) {
            keep(&self.questions, id.clone(), params.to_owned());
        }
    }

    /// Has the question that the server has asked with the request `id` answered with `result`, in
    /// place of rmcp's own form of it.
    pub(super) fn answers_with(&self, id: RequestId, result: Box<RawValue>) {
        keep(&self.answers, id, result);
    }

    /// Takes the question that the server has asked with the request `id`, and the progress of the
    /// call that it belongs to. A question does not name its call, so there is none while the
    /// server works on several, or may still work on one that was given up: it would reach the
    /// wrong person.
    pub(super) fn take_question(&self, id: &RequestId) -> Option<(Progress, Box<RawValue>)> {
        let params = self.questions.lock().remove(id)?;
        if self.has_strays() {
            return None;
        }
        let waiting = self.waiting.lock();
        let mut requests = waiting.values().filter_map(Waiting::raw).filter(|one| !one.is_list);
        let only = requests.next().filter(|_| requests.next().is_none())?;
        only.call.is_some().then(|| (only.progress.clone(), params))
    }

    /// Touches the call that a notification of progress is about. The rest of the notification is
    /// not read: it is only passed on, and its content may be malformed.
    fn progressed(&self, text: &str) {
        let Some(params) = member(text, "params") else { return };
        let token = member(params.get(), TOKEN);
        let token = token.and_then(|token| serde_json::from_str::<ProgressToken>(token.get()).ok());
        let Some(about) = token.and_then(|token| number(&token.0)) else { return };
        let mut requests: Vec<_> = self.tasks.lock().iter().filter_map(Weak::upgrade).collect();
        requests.extend(self.waiting.lock().values().filter_map(Waiting::raw).cloned());
        for raw_request in requests.iter().filter(|one| one.token.get() == Some(&about)) {
            raw_request.progress.report(params);
        }
    }

    fn expect(&self, id: i64, request: &ClientRequest) {
        let mut waiting = self.waiting.lock();
        let kind = match request {
            ClientRequest::InitializeRequest(_) => Waiting::Handshake(handshake::Kind::Initialize),
            ClientRequest::DiscoverRequest(_) => Waiting::Handshake(handshake::Kind::Discover),
            _ => match request.extensions().get::<Marker>() {
                Some(Marker(raw_request)) => {
                    let token = request.get_meta().get_progress_token();
                    if let Some(token) = token.as_ref().and_then(|token| number(&token.0)) {
                        raw_request.token.get_or_init(|| token);
                    }
                    Waiting::Raw(Arc::clone(raw_request))
                }
                None => Waiting::Typed,
            },
        };
        waiting.insert(id, kind);
    }
}

/// The parts of a JSON-RPC message, each still unparsed.
struct Envelope<'a> {
    id: Option<RequestId>,
    /// It has an id that no request of the bridge's can have.
    has_odd_id: bool,
    method: Option<String>,
    result: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
}

impl<'a> Envelope<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let members = Members::read(text).ok()?;
        let is_there = |value: &&RawValue| value.get() != "null";
        let raw_id = members.get("id").filter(is_there);
        let id: Option<RequestId> = raw_id.and_then(|id| serde_json::from_str(id.get()).ok());
        let has_odd_id = raw_id.is_some() && id.as_ref().and_then(number).is_none();
        let method = members.string("method");
        let result = members.get("result");
        // Older libraries write `"error": null` beside a result.
        let error = members.get("error").filter(is_there);
        let says_something = method.is_some() || result.is_some() || error.is_some();
        says_something.then_some(Self { id, has_odd_id, method, result, error })
    }

    /// A request or a notification of the server.
    fn request(&self, text: &str, method: &str) -> Incoming {
        if method != ELICIT
            && let Ok(message) = serde_json::from_str(text)
        {
            return Incoming::Message(Box::new(message));
        }
        // rmcp cannot read the parameters. Drop them: rmcp then refuses a request, and still
        // understands the notifications that matter here. Those of a question are kept aside, and
        // rmcp gets some that it can always read.
        let mut bare = json!({ "jsonrpc": "2.0", "method": method });
        if let Some(id) = &self.id {
            bare["id"] = json!(id);
            if method == ELICIT {
                bare["params"] = json!({ "mode": "url", "message": "", "url": "" });
            }
        }
        match serde_json::from_value(bare) {
            Ok(message) => Incoming::Message(Box::new(message)),
            Err(_) => Incoming::Ignored("its method cannot be understood"),
        }
    }

    /// Puts the outcome into `raw_request`, and tells rmcp that the request ended, if rmcp knows
    /// it.
    fn settle(&self, id: i64, raw_request: &RawRequest) -> Incoming {
        if let Some(error) = self.error {
            raw_request.settle(Ok(Err(error_of(error))));
        } else if let Some(result) = self.result {
            raw_request.settle(Ok(Ok(result.to_owned())));
        }
        let response = || JsonRpcMessage::response(ServerResult::empty(()), RequestId::Number(id));
        raw_request.told(response)
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

/// Keeps `text` until rmcp comes for it. If there are too many, rmcp comes for none of them.
fn keep(kept: &Mutex<HashMap<RequestId, Box<RawValue>>>, id: RequestId, text: Box<RawValue>) {
    let mut kept = kept.lock();
    if kept.len() == MAX_QUESTIONS {
        kept.clear();
    }
    kept.insert(id, text);
}

/// The request that a message carries; without one, a request that is of no use to anyone.
pub(super) fn raw_request_of(message: &ClientJsonRpcMessage) -> Arc<RawRequest> {
    let JsonRpcMessage::Request(request) = message else { return Arc::default() };
    let marker = request.request.extensions().get::<Marker>();
    marker.map(|marker| Arc::clone(&marker.0)).unwrap_or_default()
}

/// Whether the message only reads from the server, so that it may be sent twice.
pub(super) fn only_reads(message: &ClientJsonRpcMessage) -> bool {
    let JsonRpcMessage::Request(request) = message else { return false };
    // All custom ones only read: lists, contents, prompts, completions, states and results of
    // tasks.
    matches!(
        &request.request,
        ClientRequest::PingRequest(_)
            | ClientRequest::DiscoverRequest(_)
            | ClientRequest::CustomRequest(_)
    )
}

/// The id of a response as rmcp's number: some servers answer `"7"` to `7`.
pub(super) fn number(id: &RequestId) -> Option<i64> {
    match id {
        RequestId::Number(number) => Some(*number),
        RequestId::String(text) => text.parse().ok(),
    }
}

fn unreadable(id: i64, why: &str) -> ServerJsonRpcMessage {
    let error = ErrorData::internal_error(why.to_owned(), None);
    JsonRpcMessage::error(error, Some(RequestId::Number(id)))
}

#[cfg(test)]
pub(super) mod tests;
