//! Streamable HTTP: one POST for each message, whose reply is JSON or an event stream, and the
//! standing GET stream of a session.
//!
//! The caller of a request reads the reply to it, and takes up an event stream that breaks
//! (`events`). A request that the server did not run, as it has forgotten the session, is sent once
//! more in another session (`renewal`).
//!
//! Must not: follow a redirect to another origin (the headers carry secrets), read a body without a
//! limit, or retry a request whose first try may have run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use parking_lot::Mutex;
use rmcp::model::ErrorCode;
use serde_json::value::RawValue;
use tokio::runtime::Handle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::LIMIT;
use super::rpc::{Incoming, Kind, Message, OpenRequest, Rpc};
use super::transport::SendFailure;
use crate::backend::ErrorReply;
use crate::error_chain::error_chain;
use crate::http_client;
use crate::http_client::BodyError;
use crate::model::mcp;
use crate::model::mcp::{method, notification};
use crate::model::{Members, param_headers, string_member};

mod answers;
mod events;
mod failure;
mod pause;
mod renewal;
mod reply;
mod request;
mod session;
mod streams;

pub(super) use events::{Next, Source, take_message};
pub(super) use failure::HttpFailure;
use renewal::Renewal;
pub(super) use reply::{ERROR_LIMIT, refusal, skip};
pub(super) use request::{Body, Endpoint};
pub(super) use session::says_no_session;
use session::{Verdict, verdict};
use streams::Streams;

const SESSION: HeaderName = HeaderName::from_static(mcp::header::SESSION);
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const REVISION: HeaderName = HeaderName::from_static(mcp::header::REVISION);
const METHOD: HeaderName = HeaderName::from_static(mcp::header::METHOD);
const NAME: HeaderName = HeaderName::from_static(mcp::header::NAME);
const STATELESS: HeaderValue = HeaderValue::from_static(mcp::revision::STATELESS);

pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub(super) const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
const JSON_OR_EVENTS: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");

/// How long the POST of a reply or a cancellation may take, for which no caller waits.
const CONTROL_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the DELETE of a session may take.
const DELETE_TIMEOUT: Duration = Duration::from_secs(5);

/// The way to the server of one connection.
pub(super) struct Streamable {
    endpoint: Arc<Endpoint>,
    session: Mutex<Session>,
    renewal: Renewal,
    streams: Mutex<Streams>,
    /// How many answers have left it in doubt whether the server still knows the session, and how
    /// many of these doubts a `ping` has settled. A caller that goes away during its `ping` settles
    /// none.
    doubts: AtomicU64,
    settled_doubts: AtomicU64,
    /// Ends the session of a connection that is dropped.
    deletions: TaskTracker,
}

/// A session of the server, or none before and without `initialize`.
#[derive(Debug, Clone, Default)]
struct Session {
    id: Option<HeaderValue>,
    /// The revision that `initialize` has agreed on.
    revision: Option<HeaderValue>,
    /// Cancelled when another session takes its place.
    replaced: CancellationToken,
}

/// A message for the server.
struct Post {
    bytes: Bytes,
    method: Option<&'static str>,
    request: Option<Arc<OpenRequest>>,
}

/// Why a POST brought no response.
enum PostFailure {
    /// The server did not run the request, as it does not know the session.
    NoSession,
    Sent(SendFailure),
}

impl From<HttpFailure> for PostFailure {
    fn from(failure: HttpFailure) -> Self {
        Self::Sent(SendFailure::Http(failure))
    }
}

impl Streamable {
    pub(super) fn new(endpoint: Arc<Endpoint>) -> Arc<Self> {
        Arc::new(Self {
            endpoint,
            session: Mutex::default(),
            renewal: Renewal::default(),
            streams: Mutex::default(),
            doubts: AtomicU64::new(0),
            settled_doubts: AtomicU64::new(0),
            deletions: TaskTracker::new(),
        })
    }

    /// Sends `message`, and reads the reply to it. Ends without a failure while the response to a
    /// request may come on the standing stream.
    pub(super) async fn send(
        self: &Arc<Self>,
        rpc: &Arc<Rpc>,
        message: Message,
    ) -> Result<(), SendFailure> {
        let Message { text, method, request } = message;
        let post = Post { bytes: text.into(), method, request };
        let session = self.session.lock().clone();
        let Some(request) = post.request.clone() else {
            return self.send_control(rpc, post, &session).await;
        };
        let outcome = match self.post(rpc, &post, &session).await {
            Err(PostFailure::NoSession) => {
                let another = self.renewed(rpc, &session).await.map_err(SendFailure::NoSession)?;
                self.post(rpc, &post, &another).await
            }
            outcome => outcome,
        };
        let session_id = outcome.map_err(PostFailure::failure)?;
        if request.method == method::INITIALIZE {
            self.renewal.keep(&post.bytes);
            *self.session.lock() = Session::begun(session_id, &request);
        }
        Ok(())
    }

    /// Sends a message that has no response.
    async fn send_control(
        self: &Arc<Self>,
        rpc: &Arc<Rpc>,
        post: Post,
        session: &Session,
    ) -> Result<(), SendFailure> {
        if post.method == Some(notification::INITIALIZED) {
            self.post(rpc, &post, session).await.map_err(PostFailure::failure)?;
            self.listen(rpc, session);
            return Ok(());
        }
        if post.method == Some(notification::CANCELLED) && rpc.is_modern() {
            // The end of the POST has told the server.
            return Ok(());
        }
        let posted = timeout(CONTROL_TIMEOUT, self.post(rpc, &post, session)).await;
        posted
            .map_or(Err(SendFailure::Cut), |posted| posted.map_err(PostFailure::failure).map(drop))
    }

    /// Sends `post` in `session` and reads the reply. Returns the id of the session that the reply
    /// names.
    async fn post(
        &self,
        rpc: &Arc<Rpc>,
        post: &Post,
        session: &Session,
    ) -> Result<Option<HeaderValue>, PostFailure> {
        let mut headers = self.headers(rpc, post, session);
        headers.insert(ACCEPT, JSON_OR_EVENTS);
        headers.insert(CONTENT_TYPE, JSON);
        if let Some(request) = &post.request {
            self.check(request, session, &headers).await?;
            headers.extend(request.headers.iter().filter_map(param_header));
            request.set_written(true);
        }
        let only_reads = post.request.as_ref().is_some_and(|request| request.only_reads());
        let body = Body { bytes: post.bytes.clone(), only_reads };
        let was_paused = self.endpoint.pause().is_some();
        let url = &self.endpoint.url;
        let response = match self.endpoint.request(Method::POST, url, headers, body).await {
            Ok(response) => response,
            Err(HttpFailure::NoSession(_)) => return Err(post.without_session()),
            Err(failure) => {
                if let Some(request) = &post.request {
                    request.set_written(!failure.is_unsent());
                    let begins_pause = !was_paused && self.endpoint.pause().is_some();
                    if request.kind == Kind::Call && begins_pause {
                        // A refresh, which sends nothing now, shows the pause to operators.
                        rpc.changed.notify_one();
                    }
                }
                return Err(failure.into());
            }
        };
        self.read_reply(rpc, post, session, response).await
    }

    /// Whether the request may be sent as it stands: not if its session is found to be lost, nor if
    /// it would be sent for the second time and is no longer permitted.
    async fn check(
        &self,
        request: &OpenRequest,
        session: &Session,
        headers: &HeaderMap,
    ) -> Result<(), PostFailure> {
        if request.lost_sessions() > 0 && !request.is_permitted().await {
            let why = "it is no longer permitted".to_owned();
            return Err(HttpFailure::NotSent(why, None).into());
        }
        let doubts = self.doubts.load(Ordering::Relaxed);
        if session.id.is_none() || doubts == self.settled_doubts.load(Ordering::Relaxed) {
            return Ok(());
        }
        let is_known = self.knows_session(headers).await;
        self.settled_doubts.fetch_max(doubts, Ordering::Relaxed);
        if !is_known {
            request.without_session();
            return Err(PostFailure::NoSession);
        }
        Ok(())
    }

    /// Notes that the session may be lost: the next request asks first.
    fn doubt(&self) {
        self.doubts.fetch_add(1, Ordering::Relaxed);
    }

    /// Asks with a `ping` whether the server knows the session that `headers` name.
    async fn knows_session(&self, headers: &HeaderMap) -> bool {
        let ping = r#"{"jsonrpc":"2.0","id":"session","method":"ping"}"#;
        let body = Body { bytes: ping.into(), only_reads: true };
        let url = &self.endpoint.url;
        let response = match self.endpoint.request(Method::POST, url, headers.clone(), body).await {
            Ok(response) => response,
            Err(failure) => return !matches!(failure, HttpFailure::NoSession(_)),
        };
        let status = response.status();
        let answer = if is_events(&response) {
            events::first(response).await.unwrap_or_default()
        } else {
            refusal(response).await
        };
        verdict(status, &answer, None) == Verdict::Holds
    }

    /// Reads the reply to a POST.
    async fn read_reply(
        &self,
        rpc: &Arc<Rpc>,
        post: &Post,
        session: &Session,
        response: reqwest::Response,
    ) -> Result<Option<HeaderValue>, PostFailure> {
        let status = response.status();
        let session_id = response.headers().get(SESSION).cloned();
        if ignores(rpc, post.method, status) {
            return Ok(None);
        }
        if !status.is_success() {
            let body = refusal(response).await;
            rpc.note_refusal(&body);
            if self.is_lost(session, status, &body, post.id()) {
                return Err(post.without_session());
            }
            return match post.refusal(status, &body) {
                Some((request, error)) => {
                    rpc.forget(request.id);
                    request.settle(Ok(Err(error)));
                    Ok(None)
                }
                None => Err(HttpFailure::Status(status).into()),
            };
        }
        let has_body = !matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT);
        let Some(request) = post.request.as_ref().filter(|_| has_body) else {
            if is_events(&response) && post.method == Some(notification::INITIALIZED) {
                streams::read_left_open(rpc, response);
            } else {
                skip(response).await;
            }
            self.wait_for_stream(post, session).await?;
            return Ok(None);
        };
        if let Some(encoding) = http_client::encoding(response.headers()) {
            return Err(HttpFailure::Encoded(status, encoding).into());
        }
        if is_events(&response) {
            let mut source = Source::new(response);
            // Its answer would come on no such stream.
            if request.kind == Kind::Handshake && source.begins_with_endpoint().await {
                return Err(HttpFailure::Older.into());
            }
            self.read_answer(rpc, session, request, source).await?;
        } else {
            self.read_json(rpc, session, request, response).await?;
        }
        Ok(session_id)
    }

    /// Waits for the response to a request that the server has merely accepted: it comes on the
    /// standing stream, or never, if another session takes the place of this one.
    async fn wait_for_stream(&self, post: &Post, session: &Session) -> Result<(), PostFailure> {
        match &post.request {
            None => Ok(()),
            Some(request) if request.kind == Kind::Handshake => {
                Err(PostFailure::Sent(SendFailure::Cut))
            }
            Some(_) => {
                session.replaced.cancelled().await;
                let why = "the session was begun again before the response arrived".to_owned();
                Err(HttpFailure::Lost(why, None).into())
            }
        }
    }

    /// Reads a reply that is one JSON body.
    async fn read_json(
        &self,
        rpc: &Arc<Rpc>,
        session: &Session,
        request: &OpenRequest,
        response: reqwest::Response,
    ) -> Result<(), PostFailure> {
        let status = response.status();
        let is_page = http_client::media_type(response.headers()).eq_ignore_ascii_case("text/html");
        let body = reply::value(response, LIMIT).await.map_err(|error| match error {
            BodyError::NotRead(why) => HttpFailure::NotRead(why),
            broken @ BodyError::Broken(_) => HttpFailure::Lost(error_chain(&broken), None),
        })?;
        rpc.wait_for_room().await;
        let text = String::from_utf8_lossy(&body);
        if self.is_lost(session, status, &text, Some(request.id)) {
            request.without_session();
            return Err(PostFailure::NoSession);
        }
        let failure = match rpc.answer_to(request.id, &text) {
            Incoming::Taken => return Ok(()),
            Incoming::Garbage if is_page => HttpFailure::Page(status),
            Incoming::Garbage => {
                let why = format!("HTTP {status} with a body that is no JSON-RPC message");
                HttpFailure::Unreadable(why)
            }
            Incoming::Ignored(why) => HttpFailure::Unreadable(format!("HTTP {status}: {why}")),
        };
        Err(failure.into())
    }

    /// Whether an answer in a session says that the server did not run the request, as it does not
    /// know the session. If the answer merely leaves that in doubt, the next request asks first.
    fn is_lost(&self, session: &Session, status: StatusCode, body: &str, id: Option<i64>) -> bool {
        // A result may be large, and an error that says this is short.
        if session.id.is_none() || body.len() > ERROR_LIMIT {
            return false;
        }
        match verdict(status, body, id) {
            Verdict::Holds => false,
            Verdict::Doubtful => {
                self.doubt();
                false
            }
            Verdict::Lost => true,
        }
    }

    /// The configured headers, overridden by those of the protocol.
    fn headers(&self, rpc: &Rpc, post: &Post, session: &Session) -> HeaderMap {
        if post.method != Some(method::DISCOVER) && !rpc.is_modern() {
            return self.headers_in(session);
        }
        let mut headers = self.endpoint.headers.clone();
        headers.insert(REVISION, STATELESS);
        if let Some(method) = post.method {
            headers.insert(METHOD, HeaderValue::from_static(method));
        }
        let subject = post.request.as_ref().and_then(|request| request.subject.clone());
        if let Some(Ok(value)) = subject.map(param_headers::encoded).map(HeaderValue::try_from) {
            headers.insert(NAME, value);
        }
        headers
    }

    /// The headers of requests in `session`, whatever their message.
    fn headers_in(&self, session: &Session) -> HeaderMap {
        let mut headers = self.endpoint.headers.clone();
        for (name, value) in [(SESSION, &session.id), (REVISION, &session.revision)] {
            if let Some(value) = value {
                headers.insert(name, value.clone());
            }
        }
        headers
    }

    /// Ends the session.
    pub(super) async fn close(&self) {
        let session = std::mem::take(&mut *self.session.lock());
        if let Some(deletion) = self.deletion(&session) {
            deletion.await;
        }
    }

    /// The request that ends `session`, if it is one. It is of no account whether it succeeds: the
    /// session is gone either way.
    fn deletion(&self, session: &Session) -> Option<impl Future<Output = ()> + Send + use<>> {
        session.id.as_ref()?;
        let (endpoint, headers) = (Arc::clone(&self.endpoint), self.headers_in(session));
        Some(async move {
            let deleted = endpoint.request(Method::DELETE, &endpoint.url, headers, Body::default());
            if !matches!(timeout(DELETE_TIMEOUT, deleted).await, Ok(Ok(_))) {
                tracing::debug!("a session could not be ended");
            }
        })
    }
}

impl Drop for Streamable {
    fn drop(&mut self) {
        let session = std::mem::take(self.session.get_mut());
        if let (Some(deletion), Ok(runtime)) = (self.deletion(&session), Handle::try_current()) {
            self.deletions.spawn_on(deletion, &runtime);
        }
    }
}

impl Session {
    /// The session with this id that the answer to `initialize` has begun.
    fn begun(id: Option<HeaderValue>, initialize: &OpenRequest) -> Self {
        let revision = initialize
            .result_with(|result| string_member(result, "protocolVersion"))
            .and_then(|revision| HeaderValue::try_from(revision).ok());
        // An id that is no text can be in no header of ours.
        let id = id.filter(|id| id.to_str().is_ok());
        Self { id, revision, replaced: CancellationToken::new() }
    }
}

impl PostFailure {
    fn failure(self) -> SendFailure {
        match self {
            Self::NoSession => SendFailure::NoSession("the new one is forgotten, too".to_owned()),
            Self::Sent(failure) => failure,
        }
    }
}

impl Post {
    fn id(&self) -> Option<i64> {
        self.request.as_ref().map(|request| request.id)
    }

    /// Notes that the server did not run the request, as it does not know the session.
    fn without_session(&self) -> PostFailure {
        if let Some(request) = &self.request {
            request.without_session();
        }
        PostFailure::NoSession
    }

    /// The request, and the JSON-RPC error in the `body` of the answer that refuses it. Many
    /// servers leave out the id there, so that nothing else tells which request it is about.
    fn refusal(&self, status: StatusCode, body: &str) -> Option<(&OpenRequest, ErrorReply)> {
        let request = self.request.as_deref()?;
        // The body may repeat the configured headers, which are secrets, so it goes no further.
        if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return None;
        }
        if let Some(error) = error_in(body) {
            return Some((request, error));
        }
        if request.method != method::DISCOVER || !status.is_client_error() {
            return None;
        }
        // A server of an older revision may answer `server/discover` with any client error.
        let (code, message) = (ErrorCode::INVALID_REQUEST.0, format!("HTTP {status}"));
        Some((request, ErrorReply { code, message, data: None }))
    }
}

/// Whether the server refuses a notification that it need not understand. Nothing depends on
/// `notifications/initialized`: without this, a server that answers it with 501 would never be
/// reached, though it has answered `initialize`.
pub(super) fn ignores(rpc: &Rpc, method: Option<&str>, status: StatusCode) -> bool {
    let unauthorized = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
    if method != Some(notification::INITIALIZED) || status.is_success() || unauthorized {
        return false;
    }
    if rpc.oddities.refused(status) {
        tracing::warn!(
            backend = %rpc.backend,
            "the server answers `notifications/initialized` with HTTP {status}: ignored"
        );
    }
    true
}

/// An argument as a header: its name is a token, and its value plain text.
fn param_header((name, value): &(String, String)) -> Option<(HeaderName, HeaderValue)> {
    Some((HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?))
}

pub(super) fn is_events(response: &reqwest::Response) -> bool {
    http_client::is_event_stream(response.headers())
}

/// The JSON-RPC error in `body`.
fn error_in(body: &str) -> Option<ErrorReply> {
    let error = Members::read(body).ok()?.object("error")?;
    let code = serde_json::from_str(error.get("code")?.get()).ok()?;
    let message = error.string("message").unwrap_or_default();
    Some(ErrorReply { code, message, data: error.get("data").map(RawValue::to_owned) })
}

#[cfg(test)]
pub(super) mod tests;
