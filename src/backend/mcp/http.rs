//! The Streamable HTTP client under rmcp's transport. It sends one POST for each message, reads
//! JSON or an event stream as the reply, and opens the standing GET stream of a session.
//!
//! Must not: follow a redirect to another origin (the headers carry secrets), read a body without
//! a limit, or retry a request whose first try may have run.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use parking_lot::Mutex;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, ErrorCode, ErrorData, JsonRpcMessage,
};
use rmcp::transport::DynamicTransportError;
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use serde_json::value::RawValue;
use sse_stream::Sse;
use tokio::time::{Instant, sleep};

use super::LIMIT;
use super::verbatim::{ConnectionState, Incoming, RawRequest, only_reads, raw_request_of};
use crate::backend::{CallError, ErrorReply, NotRead, PeerErrorKind};
use crate::error_chain::error_chain;
use crate::http_client;
use crate::http_client::BodyError;
use crate::model::{BackendName, Members};
use crate::oauth::TokenError;

mod answers;
mod events;
mod request;

pub(super) use events::{MOST_FAILURES, Next, Source, Standing, message};
use events::{Role, events};
pub(super) use request::{Body, Endpoint};

/// The longest error body that is read.
pub(super) const ERROR_LIMIT: usize = 64 * 1024;

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub(super) const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
const JSON_OR_EVENTS: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");

type Answered<T> = Result<T, StreamableHttpError<HttpFailure>>;

/// A failure between the server and the bridge; the text is for operators.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum HttpFailure {
    /// No server has run the request.
    #[error("{0}")]
    NotSent(String, Option<&'static str>),
    /// The request or the response was lost on the way.
    #[error("{0}")]
    Lost(String, Option<&'static str>),
    /// The request was not sent because there is no token, or the server refused a new token.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The response cannot be read.
    #[error("{0}")]
    Unreadable(String),
    /// A web page in the place of a message.
    #[error("HTTP {_0} with a web page, where an MCP server has JSON")]
    Page(StatusCode),
    #[error("the reply is not read: {0}")]
    NotRead(NotRead),
    /// The server, or a gateway before it, refused the request.
    #[error("HTTP {}{}", .0, answers::hint(*.0))]
    Status(StatusCode),
}

/// The client of one connection.
#[derive(Debug, Clone)]
pub(super) struct Http {
    pub(super) backend: BackendName,
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) state: Arc<ConnectionState>,
    pub(super) standing: Arc<Mutex<Standing>>,
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
        let body = self.state.outgoing(&message)?;
        let mut headers = self.headers_with(session.as_deref(), headers)?;
        headers.insert(ACCEPT, JSON_OR_EVENTS);
        headers.insert(CONTENT_TYPE, JSON);

        let raw_request = raw_request_of(&message);
        let body = Body { bytes: body.into(), only_reads: only_reads(&message) };
        headers.extend(raw_request.headers.iter().filter_map(param_header));
        raw_request.set_written(true);
        let sent = self.endpoint.request(Method::POST, &self.endpoint.url, headers, body);
        let outcome = match sent.await {
            Ok(response) => self.read_reply(&message, session.is_some(), response).await,
            Err(failure) => {
                raw_request.set_written(!failure.is_unsent());
                Err(StreamableHttpError::Client(failure))
            }
        };
        match &outcome {
            // The server did not process the request; rmcp sends it again.
            Err(StreamableHttpError::SessionExpired) => raw_request.set_written(false),
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
        let wait = self.standing.lock().next_wait(Instant::now());
        sleep(wait).await;
        let mut headers = self.headers_with(session.as_deref(), headers)?;
        headers.insert(ACCEPT, EVENTS);
        if let Some(id) = &last_event_id {
            headers.insert(LAST_EVENT_ID, header_value(id)?);
        }
        let url = &self.endpoint.url;
        let response = self.endpoint.request(Method::GET, url, headers, Body::default());
        let response = response.await.map_err(|failure| {
            if self.standing.lock().failed() {
                self.state.lose(format!("the server is gone: {failure}"));
            }
            StreamableHttpError::Client(failure)
        })?;
        let status = response.status();
        if !status.is_success() || !is_events(&response) {
            if self.standing.lock().opened.is_some()
                && session.is_some()
                && status.is_client_error()
            {
                self.state.lose(format!("the server ended the session (HTTP {status})"));
                return Err(StreamableHttpError::SessionExpired);
            }
            // The standing stream is optional for a server.
            return Err(StreamableHttpError::ServerDoesNotSupportSse);
        }
        self.standing.lock().opened();
        Ok(events(Role::Standing(self.clone()), Arc::clone(&self.state), response).boxed())
    }
}

impl Http {
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
            let body = http_client::body(response, ERROR_LIMIT).await.unwrap_or_default();
            let body = String::from_utf8_lossy(&body);
            self.state.note_refusal(&body);
            if in_session && is_session_error(status, &body) {
                return Err(StreamableHttpError::SessionExpired);
            }
            return match self.refused(message, status, &body) {
                Some(message) => Ok(StreamableHttpPostResponse::Json(message, session)),
                None => Err(StreamableHttpError::Client(HttpFailure::Status(status))),
            };
        }
        let has_body = !matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT);
        let Some(id) = id.filter(|_| has_body) else {
            // The answer, if one is due, comes on another stream. Read to the end, so that the
            // connection can be used again.
            let _whole = http_client::body(response, ERROR_LIMIT).await.is_ok();
            return Ok(StreamableHttpPostResponse::Accepted);
        };
        if is_events(&response) {
            let events = events(Role::Answer(id), Arc::clone(&self.state), response);
            return Ok(StreamableHttpPostResponse::Sse(events.boxed(), session));
        }
        let is_page = http_client::media_type(response.headers()).eq_ignore_ascii_case("text/html");
        let body = http_client::body(response, LIMIT).await;
        let body = body.map_err(|error| {
            StreamableHttpError::Client(match error {
                BodyError::NotRead(why) => HttpFailure::NotRead(why),
                broken @ BodyError::Broken(_) => HttpFailure::Lost(error_chain(&broken), None),
            })
        })?;
        self.state.has_room().await;
        match self.state.incoming(&String::from_utf8_lossy(&body)) {
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
            // A server of an older revision may answer `server/discover` with any client error; rmcp
            // then goes on with `initialize`.
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

/// Whether the server does not know the session. The specification wants 404; servers on the
/// TypeScript SDK answer 400 and an error without an id after a restart.
fn is_session_error(status: StatusCode, body: &str) -> bool {
    match status {
        StatusCode::NOT_FOUND => true,
        StatusCode::BAD_REQUEST => {
            let without_id = Members::read(body)
                .is_ok_and(|body| body.get("id").is_none_or(|id| id.get() == "null"));
            without_id
                && error_in(body).is_some_and(|ErrorReply { code, message, .. }| {
                    let text = message.to_lowercase();
                    code == -32000 || text.contains("session") || text.contains("initialized")
                })
        }
        _ => false,
    }
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

impl HttpFailure {
    /// Whether it is certain that no server has run the request.
    pub(super) fn is_unsent(&self) -> bool {
        matches!(self, Self::NotSent(..) | Self::Token(_))
    }

    /// Whether the failure comes from a server, which might accept another request.
    pub(super) fn is_by_server(&self) -> bool {
        self.kind() == PeerErrorKind::Protocol
    }

    pub(super) fn kind(&self) -> PeerErrorKind {
        match self {
            Self::NotSent(..) | Self::Lost(..) => PeerErrorKind::Connect,
            Self::Token(error) => error.into(),
            Self::Status(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                PeerErrorKind::Unauthorized
            }
            Self::Unreadable(_) | Self::Page(_) | Self::NotRead(_) | Self::Status(_) => {
                PeerErrorKind::Protocol
            }
        }
    }

    /// What to do about it, if the failure says that.
    pub(super) fn cure(&self) -> Option<&'static str> {
        match self {
            Self::NotSent(_, cure) | Self::Lost(_, cure) => *cure,
            Self::Page(_) => Some(answers::PAGE_CURE),
            Self::Status(status) => answers::cure(*status),
            Self::Token(_) | Self::Unreadable(_) | Self::NotRead(_) => None,
        }
    }

    /// Whether the failure is the answer of a server with the older HTTP+SSE transport to the
    /// first POST of Streamable HTTP, by the specification.
    pub(super) fn may_be_older(&self) -> bool {
        let Self::Status(status) = self else { return false };
        matches!(
            *status,
            StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED
        )
    }

    /// Notes the failure in the request, and ends the request if the failure is an answer.
    pub(super) fn tell(&self, raw_request: &RawRequest) {
        raw_request.failure.get_or_init(|| self.kind());
        raw_request.settle(Err(match self {
            Self::Unreadable(why) => CallError::Unreadable(why.clone()),
            Self::NotRead(why) => CallError::NotRead(*why),
            // The connection was merely lost.
            Self::NotSent(..) | Self::Lost(..) | Self::Token(_) => return,
            Self::Status(status) if http_client::leaves_outcome_open(*status) => return,
            Self::Page(_) => CallError::Unreadable(self.to_string()),
            // Without the body, which may hold text that is not meant for the model.
            Self::Status(status) => CallError::Refused(format!("HTTP {status}")),
        }));
    }
}

#[cfg(test)]
pub(super) mod tests;
