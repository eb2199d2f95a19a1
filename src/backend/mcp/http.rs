//! The Streamable HTTP client under rmcp's transport. It sends one POST for each message, reads
//! JSON or an event stream as the reply, and opens the standing GET stream of a session.
//!
//! Must not: follow a redirect to another origin (the headers carry secrets), read a body without
//! a limit, or retry a request whose first try may have run.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorCode, ErrorData, JsonRpcMessage, RequestId,
};
use rmcp::transport::DynamicTransportError;
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::Sse;

use super::LIMIT;
use super::verbatim::{ConnectionState, Incoming, RawRequest, only_reads, raw_request_of};
use crate::backend::{CallError, NotRead, PeerErrorKind};
use crate::error_chain::error_chain;
use crate::http_client;
use crate::model::BackendName;
use crate::oauth::TokenError;

mod events;
mod reply;
mod request;

pub(super) use events::{MOST_FAILURES, Next, Source, Standing, message};
pub(super) use reply::{failed, is_events};
pub(super) use request::{Body, Endpoint, SendError};

use reply::{Reply, is_session_error};

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
    /// The request or the response was lost on the way.
    #[error("{0}")]
    Lost(String),
    /// The request was not sent because there is no token, or the server refused a new token.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The response cannot be read.
    #[error("{0}")]
    Unreadable(String),
    #[error("the reply is not read: {0}")]
    NotRead(NotRead),
    /// The server, or a gateway before it, refused the request.
    #[error("{text}")]
    Status { status: StatusCode, text: String },
}

/// The client of one connection.
#[derive(Debug, Clone)]
pub(super) struct Http {
    pub(super) backend: BackendName,
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) state: Arc<ConnectionState>,
    pub(super) standing: Arc<Standing>,
}

impl StreamableHttpClient for Http {
    type Error = HttpFailure;

    async fn post_message(
        &self,
        _uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        authorization: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Answered<StreamableHttpPostResponse> {
        let body = self.state.outgoing(&message)?;
        let mut headers = self.headers_with(session.as_deref(), authorization, headers)?;
        headers.insert(ACCEPT, JSON_OR_EVENTS);
        headers.insert(CONTENT_TYPE, JSON);

        let raw_request = raw_request_of(&message);
        let body = Body { bytes: body.into(), only_reads: only_reads(&message) };
        if let Some(raw_request) = &raw_request {
            headers.extend(raw_request.headers.iter().filter_map(param_header));
            raw_request.set_written(true);
        }
        let response = match self.request(Method::POST, headers, body).await {
            Ok(response) => response,
            Err(error) => {
                if let Some(raw_request) = &raw_request {
                    error.failure.tell(raw_request);
                    if error.nothing_sent {
                        raw_request.set_written(false);
                    }
                }
                return Err(StreamableHttpError::Client(error.failure));
            }
        };
        let outcome = self.read_reply(&message, session.is_some(), response).await;
        if let Err(error) = &outcome
            && let Some(raw_request) = &raw_request
        {
            if matches!(error, StreamableHttpError::SessionExpired) {
                // The server did not process the request; rmcp sends it again.
                raw_request.set_written(false);
            } else if let StreamableHttpError::Client(failure) = error {
                failure.tell(raw_request);
            }
        }
        outcome
    }

    async fn delete_session(
        &self,
        _uri: Arc<str>,
        session: Arc<str>,
        authorization: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Answered<()> {
        let headers = self.headers_with(Some(&session), authorization, headers)?;
        let response = self.request(Method::DELETE, headers, Body::default()).await;
        let status = response.map_err(|error| StreamableHttpError::Client(error.failure))?.status();
        match status {
            StatusCode::METHOD_NOT_ALLOWED => {
                Err(StreamableHttpError::ServerDoesNotSupportDeleteSession)
            }
            // The session is gone either way.
            _ => Ok(()),
        }
    }

    async fn get_stream(
        &self,
        _uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event_id: Option<String>,
        authorization: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Answered<BoxStream<'static, Result<Sse, SseError>>> {
        self.standing.pace().await;
        let mut headers = self.headers_with(session.as_deref(), authorization, headers)?;
        headers.insert(ACCEPT, EVENTS);
        if let Some(id) = &last_event_id {
            headers.insert(LAST_EVENT_ID, header_value(id)?);
        }
        let response = match self.request(Method::GET, headers, Body::default()).await {
            Ok(response) => response,
            Err(error) => {
                if self.standing.failed() {
                    self.state.lose(format!("the server is gone: {}", error.failure));
                }
                return Err(StreamableHttpError::Client(error.failure));
            }
        };
        let status = response.status();
        if !status.is_success() || !is_events(&response) {
            if self.standing.is_opened() && session.is_some() && status.is_client_error() {
                self.state.lose(format!("the server ended the session (HTTP {status})"));
                return Err(StreamableHttpError::SessionExpired);
            }
            // The standing stream is optional for a server.
            return Err(StreamableHttpError::ServerDoesNotSupportSse);
        }
        self.standing.opened();
        Ok(events::standing(self.clone(), response).boxed())
    }
}

impl Http {
    async fn request(
        &self,
        method: Method,
        headers: HeaderMap,
        body: Body,
    ) -> Result<reqwest::Response, SendError> {
        self.endpoint.request(method, &self.endpoint.url, headers, body).await
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
        match reply::classify(&response, id.is_some()) {
            Reply::Accepted => {
                // Read to the end, so that the connection can be used again.
                let _whole = http_client::body(response, ERROR_LIMIT).await.is_ok();
                Ok(StreamableHttpPostResponse::Accepted)
            }
            Reply::Events => {
                let id = id.unwrap_or(RequestId::Number(0));
                let events = events::of_request(Arc::clone(&self.state), id, response);
                Ok(StreamableHttpPostResponse::Sse(events.boxed(), session))
            }
            Reply::Json => {
                let body = http_client::body(response, LIMIT)
                    .await
                    .map_err(|error| reply::body_failed(&error))?;
                self.state.has_room().await;
                self.read_message(&String::from_utf8_lossy(&body), status, session)
            }
            Reply::Failed => {
                let body = http_client::body(response, ERROR_LIMIT).await;
                let body = body.map(|body| String::from_utf8_lossy(&body).into_owned());
                let body = body.unwrap_or_default();
                if in_session && is_session_error(status, &body) {
                    return Err(StreamableHttpError::SessionExpired);
                }
                match self.refused(message, status, &body) {
                    Some(message) => Ok(StreamableHttpPostResponse::Json(message, session)),
                    None => Err(StreamableHttpError::Client(failed(status))),
                }
            }
        }
    }

    fn read_message(
        &self,
        text: &str,
        status: StatusCode,
        session: Option<String>,
    ) -> Answered<StreamableHttpPostResponse> {
        match self.state.incoming(text) {
            Incoming::Message(message) => Ok(StreamableHttpPostResponse::Json(*message, session)),
            Incoming::Ignored(why) => Err(reply::invalid(&format!("HTTP {status}: {why}"))),
            Incoming::Garbage => Err(reply::invalid(&format!(
                "HTTP {status} with a body that is no JSON-RPC message"
            ))),
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
        if let Some((code, text, data)) = reply::error_in(body) {
            self.state.forget(&request.id);
            if let Some(raw_request) = raw_request_of(message) {
                raw_request.refuse(code, &text, data);
            }
            // A server lists the revisions that it speaks there.
            let data = data.filter(|_| is_discover);
            let data = data.and_then(|data| serde_json::from_str(data.get()).ok());
            let error = ErrorData::new(ErrorCode(code), text, data);
            return Some(JsonRpcMessage::error(error, Some(request.id.clone())));
        }
        // A server of an older revision may answer `server/discover` with any client error; rmcp
        // then goes on with `initialize`.
        if is_discover && status.is_client_error() {
            let error = ErrorData::invalid_request(format!("HTTP {status}"), None);
            return Some(JsonRpcMessage::error(error, Some(request.id.clone())));
        }
        None
    }

    /// The configured headers, overridden by those of the protocol.
    fn headers_with(
        &self,
        session: Option<&str>,
        authorization: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Answered<HeaderMap> {
        let mut all = self.endpoint.headers.clone();
        all.extend(headers);
        if let Some(token) = authorization {
            let mut value = header_value(&format!("Bearer {token}"))?;
            value.set_sensitive(true);
            all.insert(AUTHORIZATION, value);
        }
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
        .map_err(|_invalid| reply::invalid("the server sent an id that no header can carry"))
}

/// The text of a transport's error, without rmcp's words around it.
pub(super) fn words(error: &DynamicTransportError) -> String {
    match error.error.downcast_ref::<StreamableHttpError<HttpFailure>>() {
        Some(StreamableHttpError::Client(failure)) => failure.to_string(),
        _ => error_chain(error.error.as_ref()),
    }
}

impl HttpFailure {
    /// Whether the failure comes from a server, which might accept another request.
    pub(super) fn is_by_server(&self) -> bool {
        self.kind() == PeerErrorKind::Protocol
    }

    pub(super) fn kind(&self) -> PeerErrorKind {
        match self {
            Self::Lost(_) => PeerErrorKind::Connect,
            Self::Token(error) => error.into(),
            Self::Status { status: StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, .. } => {
                PeerErrorKind::Unauthorized
            }
            Self::Unreadable(_) | Self::NotRead(_) | Self::Status { .. } => PeerErrorKind::Protocol,
        }
    }

    /// Whether the failure is the answer of a server with the older HTTP+SSE transport to the
    /// first POST of Streamable HTTP, by the specification.
    pub(super) fn may_be_older(&self) -> bool {
        let Self::Status { status, .. } = self else { return false };
        matches!(
            *status,
            StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED
        )
    }

    /// Notes the failure in the request, and ends the request if the failure is an answer.
    pub(super) fn tell(&self, raw_request: &RawRequest) {
        raw_request.fail(self.kind());
        if let Some(error) = self.call_error() {
            raw_request.settle(Err(error));
        }
    }

    /// The error of the call whose request failed; `None` if the connection was merely lost.
    fn call_error(&self) -> Option<CallError> {
        match self {
            Self::Unreadable(why) => Some(CallError::Unreadable(why.clone())),
            Self::NotRead(why) => Some(CallError::NotRead(*why)),
            Self::Status { status, .. } if http_client::leaves_outcome_open(*status) => None,
            Self::Lost(_) | Self::Token(_) => None,
            // Without the body, which may hold text that is not meant for the model.
            Self::Status { status, .. } => Some(CallError::Refused(format!("HTTP {status}"))),
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
