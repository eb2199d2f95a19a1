//! The Streamable HTTP client under rmcp's transport. It sends one POST for each message, reads
//! JSON or an event stream as the reply, and opens the standing GET stream of a session.
//!
//! Must not: follow a redirect to another origin (the headers carry secrets), read a body without a
//! limit, or retry a request whose first try may have run.

// The type in the signatures of rmcp's trait.
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use parking_lot::Mutex;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, ErrorCode, ErrorData, JsonRpcMessage,
    RequestId,
};
use rmcp::transport::DynamicTransportError;
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use serde_json::value::RawValue;
use sse_stream::Sse;
use tokio::time::{Instant, sleep, sleep_until};

use super::LIMIT;
use super::verbatim::{ConnectionState, Incoming, RawRequest, number, only_reads, raw_request_of};
use crate::backend::ErrorReply;
use crate::error_chain::error_chain;
use crate::http_client;
use crate::http_client::BodyError;
use crate::model::{BackendName, Members};

mod answers;
mod events;
mod failure;
mod pause;
mod reply;
mod request;
mod session;

pub(super) use answers::encoding;
pub(super) use events::{MAX_FAILURES, Next, Source, Streams, message};
use events::{Role, StreamKind, events};
pub(super) use failure::HttpFailure;
pub(super) use reply::{ERROR_LIMIT, refusal, skip};
pub(super) use request::{Body, Endpoint};
pub(super) use session::says_no_session;
use session::{Verdict, verdict};

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub(super) const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
const JSON_OR_EVENTS: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");

type Answered<T> = Result<T, StreamableHttpError<HttpFailure>>;

/// The client of one connection.
#[derive(Debug, Clone)]
pub(super) struct Http {
    pub(super) backend: BackendName,
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) state: Arc<ConnectionState>,
    pub(super) streams: Arc<Mutex<Streams>>,
    /// An answer has left it in doubt whether the server still knows the session.
    pub(super) is_doubtful: Arc<AtomicBool>,
}

// rmcp brings no `authorization`, as its configuration has none: the endpoint adds the tokens.
impl StreamableHttpClient for Http {
    type Error = HttpFailure;

    async fn post_message(
        &self,
        _uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        _authorization: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Answered<StreamableHttpPostResponse> {
        let raw_request = raw_request_of(&message);
        let mut headers = self.headers_with(session.as_deref(), headers)?;
        headers.insert(ACCEPT, JSON_OR_EVENTS);
        headers.insert(CONTENT_TYPE, JSON);
        let is_request = matches!(message, JsonRpcMessage::Request(_));
        let in_session = session.is_some();
        if let Some(why) = self.why_not(&raw_request, is_request && in_session, &headers).await {
            return Err(why);
        }
        let body = self.state.outgoing(&message)?;
        let body = Body { bytes: body.into(), only_reads: only_reads(&message) };
        headers.extend(raw_request.headers.iter().filter_map(param_header));
        raw_request.set_written(true);
        let was_paused = self.endpoint.pause().is_some();
        let sent = self.endpoint.request(Method::POST, &self.endpoint.url, headers, body);
        let outcome = match sent.await {
            Ok(response) => self.read_reply(&message, in_session, response).await,
            Err(HttpFailure::NoSession(_)) => Err(StreamableHttpError::SessionExpired),
            Err(failure) => {
                raw_request.set_written(!failure.is_unsent());
                if raw_request.is_call() && !was_paused && self.endpoint.pause().is_some() {
                    // A refresh, which sends nothing now, shows the pause to operators.
                    self.state.changed.notify_one();
                }
                Err(StreamableHttpError::Client(failure))
            }
        };
        match &outcome {
            // The server did not process the request; rmcp begins a new session, and sends it
            // again.
            Err(StreamableHttpError::SessionExpired) => raw_request.without_session(),
            Err(StreamableHttpError::Client(failure)) => failure.tell(&raw_request),
            _ => (),
        }
        outcome
    }

    async fn delete_session(
        &self,
        _uri: Arc<str>,
        session: Arc<str>,
        _authorization: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Answered<()> {
        let headers = self.headers_with(Some(&session), headers)?;
        let url = &self.endpoint.url;
        let response = self.endpoint.request(Method::DELETE, url, headers, Body::default());
        let response = response.await.map_err(StreamableHttpError::Client)?;
        if response.status() == StatusCode::METHOD_NOT_ALLOWED {
            return Err(StreamableHttpError::ServerDoesNotSupportDeleteSession);
        }
        // The session is gone either way.
        Ok(())
    }

    async fn get_stream(
        &self,
        _uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event_id: Option<String>,
        _authorization: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Answered<BoxStream<'static, Result<Sse, SseError>>> {
        let kind = self.streams.lock().kind(last_event_id.as_deref());
        let wait = self.streams.lock().next_wait(kind, Instant::now());
        sleep(wait).await;
        let left_open = match kind {
            StreamKind::Standing => self.streams.lock().left_open.take(),
            StreamKind::Resumed => None,
        };
        let left_open = left_open.map(|response| self.stream(StreamKind::Standing, response));
        if !self.state.listens && kind == StreamKind::Standing {
            return left_open.ok_or(StreamableHttpError::ServerDoesNotSupportSse);
        }
        let mut headers = self.headers_with(session.as_deref(), headers)?;
        headers.insert(ACCEPT, EVENTS);
        if let Some(id) = &last_event_id {
            headers.insert(LAST_EVENT_ID, header_value(id)?);
        }
        let response = self.open_stream(headers).await.map_err(|failure| {
            let is_lost = matches!(failure, HttpFailure::NoSession(_));
            if is_lost || self.streams.lock().failed(kind) {
                self.state.lose(format!("the server is gone: {failure}"));
            }
            StreamableHttpError::Client(failure)
        })?;
        let status = response.status();
        if !status.is_success() || !is_events(&response) {
            let is_refused = status.is_client_error() && session.is_some();
            if is_refused && self.streams.lock().was_opened(StreamKind::Standing) {
                self.state.lose(format!("the server ended the session (HTTP {status})"));
                return Err(StreamableHttpError::SessionExpired);
            }
            // The standing stream is optional for a server.
            return left_open.ok_or(StreamableHttpError::ServerDoesNotSupportSse);
        }
        self.streams.lock().opened(kind);
        let opened = self.stream(kind, response);
        Ok(match left_open {
            Some(left_open) => events::with(opened, left_open).boxed(),
            None => opened,
        })
    }
}

impl Http {
    fn stream(
        &self,
        kind: StreamKind,
        response: reqwest::Response,
    ) -> BoxStream<'static, Result<Sse, SseError>> {
        events(Role::Stream(self.clone(), kind), Arc::clone(&self.state), response).boxed()
    }

    /// Sends a GET for a stream, and again after each pause that the server asks for.
    async fn open_stream(&self, headers: HeaderMap) -> Result<reqwest::Response, HttpFailure> {
        loop {
            let url = &self.endpoint.url;
            let sent = self.endpoint.request(Method::GET, url, headers.clone(), Body::default());
            match sent.await {
                Err(HttpFailure::Paused(pause)) => sleep_until(pause.end).await,
                outcome => return outcome,
            }
        }
    }

    /// Why the request must not be sent as it stands: its session is found to be lost, or the call
    /// would be sent for the second time and is no longer permitted.
    async fn why_not(
        &self,
        raw_request: &RawRequest,
        in_session: bool,
        headers: &HeaderMap,
    ) -> Option<StreamableHttpError<HttpFailure>> {
        if raw_request.lost_sessions() > 0 && !raw_request.is_permitted().await {
            let why = "it is no longer permitted".to_owned();
            return Some(StreamableHttpError::Client(HttpFailure::NotSent(why, None)));
        }
        let is_doubtful = in_session && self.is_doubtful.swap(false, Ordering::Relaxed);
        if is_doubtful && !self.knows_session(headers).await {
            raw_request.without_session();
            return Some(StreamableHttpError::SessionExpired);
        }
        None
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

    /// Reads the answer to a POST.
    async fn read_reply(
        &self,
        message: &ClientJsonRpcMessage,
        in_session: bool,
        response: reqwest::Response,
    ) -> Answered<StreamableHttpPostResponse> {
        let id = match message {
            JsonRpcMessage::Request(request) => Some(request.id.clone()),
            _ => None,
        };
        let status = response.status();
        let session = response.headers().get(SESSION);
        let session = session.and_then(|value| value.to_str().ok()).map(str::to_owned);
        if self.ignores(message, status) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if !status.is_success() {
            let body = refusal(response).await;
            self.state.note_refusal(&body);
            if in_session && self.is_lost(status, &body, id.as_ref()) {
                return Err(StreamableHttpError::SessionExpired);
            }
            return match self.refused(message, status, &body) {
                Some(message) => Ok(StreamableHttpPostResponse::Json(message, session)),
                None => Err(StreamableHttpError::Client(HttpFailure::Status(status))),
            };
        }
        let has_body = !matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT);
        let Some(id) = id.filter(|_| has_body) else {
            // The answer, if one is due, comes on another stream.
            if is_events(&response) && is_initialized(message) {
                self.streams.lock().left_open = Some(response);
            } else {
                skip(response).await;
            }
            return Ok(StreamableHttpPostResponse::Accepted);
        };
        if let Some(encoding) = encoding(response.headers()) {
            return Err(StreamableHttpError::Client(HttpFailure::Encoded(status, encoding)));
        }
        if is_events(&response) {
            return self.read_events(message, id, in_session, session, response).await;
        }
        let is_page = http_client::media_type(response.headers()).eq_ignore_ascii_case("text/html");
        let body = reply::value(response, LIMIT).await;
        let body = body.map_err(|error| {
            StreamableHttpError::Client(match error {
                BodyError::NotRead(why) => HttpFailure::NotRead(why),
                broken @ BodyError::Broken(_) => HttpFailure::Lost(error_chain(&broken), None),
            })
        })?;
        self.state.has_room().await;
        let body = String::from_utf8_lossy(&body);
        if in_session && self.is_lost(status, &body, Some(&id)) {
            return Err(StreamableHttpError::SessionExpired);
        }
        match self.state.answer_to(&id, &body) {
            Incoming::Message(message) => Ok(StreamableHttpPostResponse::Json(*message, session)),
            Incoming::Ignored(why) => Err(invalid(&format!("HTTP {status}: {why}"))),
            Incoming::Garbage if is_page => {
                Err(StreamableHttpError::Client(HttpFailure::Page(status)))
            }
            Incoming::Garbage => {
                Err(invalid(&format!("HTTP {status} with a body that is no JSON-RPC message")))
            }
        }
    }

    /// Whether the server refuses a notification that it need not understand. Nothing depends on
    /// `notifications/initialized`: without this, a server that answers it with 501 would never be
    /// reached, though it has answered `initialize`.
    pub(super) fn ignores(&self, message: &ClientJsonRpcMessage, status: StatusCode) -> bool {
        let JsonRpcMessage::Notification(notification) = message else { return false };
        let is_initialized =
            matches!(notification.notification, ClientNotification::InitializedNotification(_));
        let unauthorized = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        if !is_initialized || status.is_success() || unauthorized {
            return false;
        }
        if self.state.oddities.refused(status) {
            tracing::warn!(
                backend = %self.backend,
                "the server answers `notifications/initialized` with HTTP {status}: ignored"
            );
        }
        true
    }

    /// The event stream that answers the request `id`.
    async fn read_events(
        &self,
        message: &ClientJsonRpcMessage,
        id: RequestId,
        in_session: bool,
        session: Option<String>,
        response: reqwest::Response,
    ) -> Answered<StreamableHttpPostResponse> {
        let mut source = Source::new(response);
        let is_handshake = matches!(
            message,
            JsonRpcMessage::Request(request) if matches!(
                request.request,
                ClientRequest::InitializeRequest(_) | ClientRequest::DiscoverRequest(_)
            )
        );
        // rmcp would wait for an answer that comes on no such stream.
        if is_handshake && source.begins_with_endpoint().await {
            return Err(StreamableHttpError::Client(HttpFailure::Older));
        }
        let role = Role::Answer { id, http: in_session.then(|| self.clone()), has_begun: false };
        let events = events::from(role, Arc::clone(&self.state), source);
        Ok(StreamableHttpPostResponse::Sse(events.boxed(), session))
    }

    /// Whether an answer in a session says that the server did not run the request, as it does not
    /// know the session. If the answer merely leaves that in doubt, the next request asks first.
    fn is_lost(&self, status: StatusCode, body: &str, id: Option<&RequestId>) -> bool {
        // A result may be large, and an error that says this is short.
        if body.len() > ERROR_LIMIT {
            return false;
        }
        match verdict(status, body, id.and_then(number)) {
            Verdict::Holds => false,
            Verdict::Doubtful => {
                self.is_doubtful.store(true, Ordering::Relaxed);
                false
            }
            Verdict::Lost => true,
        }
    }

    /// The JSON-RPC error in the body of a failed request. Many servers leave out the id there.
    /// rmcp drops errors without an id and would wait for ever, so the id is added.
    fn refused(
        &self,
        message: &ClientJsonRpcMessage,
        status: StatusCode,
        body: &str,
    ) -> Option<rmcp::model::ServerJsonRpcMessage> {
        let JsonRpcMessage::Request(request) = message else { return None };
        // The body may repeat the configured headers, which are secrets, so it goes no further.
        if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return None;
        }
        let is_discover = matches!(request.request, ClientRequest::DiscoverRequest(_));
        let error = match error_in(body) {
            Some(error) => {
                self.state.forget(&request.id);
                raw_request_of(message).settle(Ok(Err(error.clone())));
                // A server lists the revisions that it speaks there.
                let data = error.data.and_then(|data| serde_json::from_str(data.get()).ok());
                ErrorData::new(ErrorCode(error.code), error.message, data)
            }
            // A server of an older revision may answer `server/discover` with any client error;
            // rmcp then goes on with `initialize`.
            None if is_discover && status.is_client_error() => {
                ErrorData::invalid_request(format!("HTTP {status}"), None)
            }
            None => return None,
        };
        Some(JsonRpcMessage::error(error, Some(request.id.clone())))
    }

    /// The configured headers, overridden by those of the protocol.
    fn headers_with(
        &self,
        session: Option<&str>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Answered<HeaderMap> {
        let mut all = self.endpoint.headers.clone();
        all.extend(headers);
        if let Some(session) = session {
            all.insert(SESSION, header_value(session)?);
        }
        Ok(all)
    }
}

fn is_initialized(message: &ClientJsonRpcMessage) -> bool {
    matches!(
        message,
        JsonRpcMessage::Notification(notification)
            if matches!(
                notification.notification,
                ClientNotification::InitializedNotification(_)
            )
    )
}

/// An argument as a header: its name is a token, and its value plain text.
fn param_header((name, value): &(String, String)) -> Option<(HeaderName, HeaderValue)> {
    Some((HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?))
}

fn header_value(text: &str) -> Answered<HeaderValue> {
    HeaderValue::from_str(text)
        .map_err(|_invalid| invalid("the server sent an id that no header can carry"))
}

/// The failure of an HTTP transport behind `error`, if it is one.
pub(super) fn failure_of(error: &DynamicTransportError) -> Option<&HttpFailure> {
    match error.error.downcast_ref::<StreamableHttpError<HttpFailure>>() {
        Some(StreamableHttpError::Client(failure)) => Some(failure),
        Some(_) => None,
        None => error.error.downcast_ref(),
    }
}

/// The text of a transport's error, without rmcp's words around it.
pub(super) fn words(error: &DynamicTransportError) -> String {
    failure_of(error).map_or_else(|| error_chain(error.error.as_ref()), HttpFailure::to_string)
}

pub(super) fn is_events(response: &reqwest::Response) -> bool {
    http_client::media_type(response.headers()).eq_ignore_ascii_case("text/event-stream")
}

/// The JSON-RPC error in `body`.
fn error_in(body: &str) -> Option<ErrorReply> {
    let error = Members::read(body).ok()?.object("error")?;
    let code = serde_json::from_str(error.get("code")?.get()).ok()?;
    let message = error.string("message").unwrap_or_default();
    Some(ErrorReply { code, message, data: error.get("data").map(RawValue::to_owned) })
}

fn invalid(why: &str) -> StreamableHttpError<HttpFailure> {
    StreamableHttpError::Client(HttpFailure::Unreadable(why.to_owned()))
}

#[cfg(test)]
pub(super) mod tests;
