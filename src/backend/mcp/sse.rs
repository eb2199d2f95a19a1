//! The older HTTP transport (2024-11-05). One GET opens an event stream that carries everything the
//! server sends. Each message to the server is a POST to the address that the stream names first.
//!
//! Must not: reconnect (the supervisor dials again), or send anything to another origin than the
//! configured one, whatever address the stream names.

use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, StatusCode};
use rmcp::RoleClient;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::time::timeout;
use url::Url;

use super::http as streamable;
use super::http::{Body, EVENTS, Endpoint, Http, HttpFailure, JSON, Next, Source};
use super::verbatim::{RawRequest, only_reads, raw_request_of};
use crate::backend::{address, error_text};
use crate::http_client;

/// How long the stream may take to name the address for messages; a server names it at once.
const ADDRESS_PATIENCE: Duration = Duration::from_secs(10);

/// How long a POST may take. Some servers answer it only when the tool has run, so this is longer
/// than any call may take. It ends POSTs whose calls are gone.
const POST_TIMEOUT: Duration = Duration::from_secs(300);

/// One connection, seen by rmcp as a transport.
pub(super) struct Sse {
    http: Http,
    /// Where messages go.
    messages: Url,
    /// `None` once it has ended.
    events: Option<Source>,
}

impl Sse {
    /// Opens the stream and waits for the address to send messages to.
    pub(super) async fn open(http: Http) -> Result<Self, HttpFailure> {
        let named = timeout(ADDRESS_PATIENCE, Self::address(&http.endpoint)).await;
        let (events, messages) = named.unwrap_or_else(|_late| Err(no_address()))?;
        Ok(Self { http, messages, events: Some(events) })
    }

    async fn address(endpoint: &Endpoint) -> Result<(Source, Url), HttpFailure> {
        let mut headers = endpoint.headers.clone();
        headers.insert(ACCEPT, EVENTS);
        let sent = endpoint.request(Method::GET, &endpoint.url, headers, Body::default());
        let response = sent.await?;
        if !response.status().is_success() {
            return Err(HttpFailure::Status(response.status()));
        }
        if !streamable::is_events(&response) {
            let is_page =
                http_client::media_type(response.headers()).eq_ignore_ascii_case("text/html");
            return Err(match is_page {
                true => HttpFailure::Page(response.status()),
                false => HttpFailure::Unreadable("it answers with no event stream".to_owned()),
            });
        }
        // The address after redirects, all of which stay on the origin.
        let base = response.url().clone();
        let mut events = Source::reading_past(response);
        loop {
            match events.next().await {
                Next::Frame(frame) => {
                    let fields = frame.fields();
                    if fields.event.as_deref() == Some("endpoint") {
                        let address = fields.data.unwrap_or_default();
                        return Ok((events, own_address(&base, address.trim())?));
                    }
                }
                Next::Broken(error) => {
                    return Err(HttpFailure::Lost(
                        format!("its event stream broke: {error}"),
                        None,
                    ));
                }
                Next::End | Next::NotRead(..) => return Err(no_address()),
            }
        }
    }
}

fn no_address() -> HttpFailure {
    HttpFailure::Unreadable("its event stream names no address for messages".to_owned())
}

/// The address that a stream at `base` names, if the configured headers may be sent there.
fn own_address(base: &Url, named: &str) -> Result<Url, HttpFailure> {
    let named = base.join(named).ok().filter(|named| address::is_own(base, named));
    named.ok_or_else(|| HttpFailure::Unreadable(error_text("foreign_address", &[])))
}

impl Transport<RoleClient> for Sse {
    type Error = HttpFailure;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), HttpFailure>> + Send + 'static {
        let text = self.http.state.outgoing(&message);
        let raw_request = raw_request_of(&message);
        let only_reads = only_reads(&message);
        let (http, messages) = (self.http.clone(), self.messages.clone());
        async move {
            let text = text.map_err(|error| HttpFailure::Unreadable(error.to_string()))?;
            let body = Body { bytes: text.into(), only_reads };
            let post = post(&http, &messages, body, &raw_request);
            let posted = timeout(POST_TIMEOUT, post).await.unwrap_or_else(|_late| {
                Err(HttpFailure::Lost("the server did not take a message".to_owned(), None))
            });
            match posted {
                Err(HttpFailure::Status(status)) if http.ignores(&message, status) => Ok(()),
                posted => posted,
            }
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let Http { backend, state, .. } = &self.http;
        loop {
            state.has_room().await;
            let why = match self.events.as_mut()?.next().await {
                Next::Frame(frame) => match streamable::message(frame.fields(), state) {
                    Some(message) => return Some(message),
                    None => continue,
                },
                Next::NotRead(why, id) => {
                    tracing::warn!(%backend, "an event is not read: {why}");
                    match id.and_then(|id| state.not_read(&id, why)) {
                        Some(end) => return Some(end),
                        None => format!("the server sent an event that is not read: {why}"),
                    }
                }
                Next::Broken(error) => format!("its event stream broke: {error}"),
                Next::End => "the server ended its event stream".to_owned(),
            };
            state.lose(why);
            self.events = None;
        }
    }

    async fn close(&mut self) -> Result<(), HttpFailure> {
        self.events = None;
        Ok(())
    }
}

/// Sends the message in `body` to the server.
async fn post(
    http: &Http,
    messages: &Url,
    body: Body,
    raw_request: &RawRequest,
) -> Result<(), HttpFailure> {
    let mut headers = http.endpoint.headers.clone();
    headers.insert(CONTENT_TYPE, JSON);
    raw_request.set_written(true);
    let sent = http.endpoint.request(Method::POST, messages, headers, body).await;
    let response = sent.inspect_err(|failure| raw_request.set_written(!failure.is_unsent()))?;
    let status = response.status();
    // Read to the end, so that the connection can be reused. The answer is not in this body: it
    // comes on the stream.
    let body = http_client::body(response, streamable::ERROR_LIMIT).await.unwrap_or_default();
    if status.is_success() {
        return Ok(());
    }
    let failure = HttpFailure::Status(status);
    let body = String::from_utf8_lossy(&body);
    http.state.note_refusal(&body);
    if is_unknown_session(status, &body) {
        http.state.lose(format!("the server has forgotten the connection (HTTP {status})"));
        // The server did not process the message.
        raw_request.set_written(false);
    } else {
        failure.tell(raw_request);
    }
    Err(failure)
}

/// Whether the server knows no connection behind the address for messages: it was restarted, or
/// has let the stream go without saying so.
fn is_unknown_session(status: StatusCode, body: &str) -> bool {
    match status {
        StatusCode::NOT_FOUND | StatusCode::GONE => true,
        StatusCode::BAD_REQUEST => body.to_lowercase().contains("session"),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
