//! The older HTTP transport (2024-11-05). One GET opens an event stream that carries everything the
//! server sends. Each message to the server is a POST to the address that the stream names first.
//!
//! Must not: reconnect (the supervisor dials again), or send anything to another origin than the
//! configured one, whatever address the stream names.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, StatusCode};
use parking_lot::Mutex;
use rmcp::RoleClient;
use rmcp::model::{ClientRequest, JsonRpcMessage};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::time::timeout;
use url::Url;

use super::http as streamable;
use super::http::{Body, EVENTS, Endpoint, Http, HttpFailure, JSON, Next, Source};
use super::verbatim::{RawRequest, only_reads, raw_request_of};
use crate::backend::address;

/// How long the stream may take to name the address for messages; a server names it at once.
const ADDRESS_PATIENCE: Duration = Duration::from_secs(10);

/// How long a POST may take. Some servers answer it only when the tool has run, so this is longer
/// than any call may take. It ends POSTs whose calls are gone.
const POST_TIMEOUT: Duration = Duration::from_secs(300);

/// How many addresses are tried in place of the one that the stream names.
const MAX_PREFIXES: usize = 4;

/// One connection, seen by rmcp as a transport.
pub(super) struct Sse {
    http: Http,
    place: Arc<Place>,
    /// `None` once it has ended.
    events: Option<Source>,
}

/// Where the messages of a connection go.
struct Place {
    /// The address of the stream.
    stream: Url,
    /// The address that the stream names for messages, or the one at which they were taken.
    messages: Mutex<Url>,
}

impl Sse {
    /// Opens the stream and waits for the address to send messages to.
    pub(super) async fn open(http: Http) -> Result<Self, HttpFailure> {
        let named = timeout(ADDRESS_PATIENCE, Self::address(&http.endpoint)).await;
        let (events, place) = named.unwrap_or_else(|_late| Err(no_address()))?;
        Ok(Self { http, place: Arc::new(place), events: Some(events) })
    }

    async fn address(endpoint: &Endpoint) -> Result<(Source, Place), HttpFailure> {
        let mut headers = endpoint.headers.clone();
        headers.insert(ACCEPT, EVENTS);
        let sent = endpoint.request(Method::GET, &endpoint.url, headers, Body::default());
        let response = sent.await?;
        if !response.status().is_success() {
            return Err(HttpFailure::Status(response.status()));
        }
        if let Some(encoding) = streamable::encoding(response.headers()) {
            return Err(HttpFailure::Encoded(response.status(), encoding));
        }
        if !streamable::is_events(&response) {
            let is_page = crate::http_client::media_type(response.headers())
                .eq_ignore_ascii_case("text/html");
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
                        let messages = Mutex::new(own_address(&base, address.trim())?);
                        return Ok((events, Place { stream: base, messages }));
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
    named.ok_or_else(|| {
        let why = "its event stream names an address for messages that is not the server's own, \
                   which is not used";
        HttpFailure::Unreadable(why.to_owned())
    })
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
        let is_first = matches!(
            &message,
            JsonRpcMessage::Request(request)
                if matches!(request.request, ClientRequest::InitializeRequest(_))
        );
        let (http, place) = (self.http.clone(), Arc::clone(&self.place));
        async move {
            let text = text.map_err(|error| HttpFailure::Unreadable(error.to_string()))?;
            let body = Message { bytes: text.into(), only_reads, raw_request, is_first };
            let post = body.post(&http, &place);
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
                Next::Frame(frame) => match streamable::message(frame.fields(), state, None) {
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

/// A message for the server.
struct Message {
    bytes: Bytes,
    only_reads: bool,
    raw_request: Arc<RawRequest>,
    /// It begins the connection, and has no effect.
    is_first: bool,
}

impl Message {
    /// Sends the message. Its answer comes on the stream, so a POST that ends without an answer of
    /// its own is no failure: only the stream says whether the server is still there.
    async fn post(&self, http: &Http, place: &Place) -> Result<(), HttpFailure> {
        let named = place.messages.lock().clone();
        self.raw_request.set_written(true);
        let response = match self.send(http, &named).await {
            Ok(response) => response,
            Err(HttpFailure::Lost(why, _)) => {
                tracing::debug!(backend = %http.backend, "a POST ended without an answer: {why}");
                return Ok(());
            }
            Err(failure) => {
                self.raw_request.set_written(!failure.is_unsent());
                failure.tell(&self.raw_request);
                return Err(failure);
            }
        };
        let status = response.status();
        if status.is_success() {
            streamable::skip(response).await;
            return Ok(());
        }
        // The gateway no longer waits for the server, and the stream does.
        if matches!(status.as_u16(), 504 | 524) {
            return Ok(());
        }
        let body = streamable::refusal(response).await;
        http.state.note_refusal(&body);
        if self.is_first && is_nothing_there(status) {
            return self.post_below_prefix(http, place, &named, status).await;
        }
        if streamable::says_no_session(status, &body) {
            http.state.lose(format!("the server has forgotten the connection (HTTP {status})"));
            self.raw_request.without_session();
            return Err(HttpFailure::NoSession(status));
        }
        let failure = HttpFailure::Status(status);
        failure.tell(&self.raw_request);
        Err(failure)
    }

    async fn send(&self, http: &Http, address: &Url) -> Result<reqwest::Response, HttpFailure> {
        let mut headers = http.endpoint.headers.clone();
        headers.insert(CONTENT_TYPE, JSON);
        let body = Body { bytes: self.bytes.clone(), only_reads: self.only_reads };
        http.endpoint.request(Method::POST, address, headers, body).await
    }

    /// Sends the first message to the addresses that `named` may stand for, where a gateway removes
    /// the beginning of paths and leaves the stream's content as it is. The server does not know
    /// the beginning, so the address that it names leads nowhere. The first message has no effect,
    /// and all addresses are on the server's own origin.
    async fn post_below_prefix(
        &self,
        http: &Http,
        place: &Place,
        named: &Url,
        status: StatusCode,
    ) -> Result<(), HttpFailure> {
        let candidates = below_prefixes(&place.stream, named);
        for candidate in &candidates {
            let response = self.send(http, candidate).await?;
            if !response.status().is_success() {
                continue;
            }
            streamable::skip(response).await;
            tracing::warn!(
                backend = %http.backend,
                named = named.path(),
                used = candidate.path(),
                "{}", prefix_removed()
            );
            *place.messages.lock() = candidate.clone();
            return Ok(());
        }
        if candidates.is_empty() {
            return Err(HttpFailure::Status(status));
        }
        let (path, code) = (named.path(), status.as_u16());
        Err(HttpFailure::Unreadable(format!(
            "its event stream names {path} for messages, where there is nothing (HTTP {code}); {}",
            prefix_removed()
        )))
    }
}

/// What is said where a stream names an address without the beginning of the path.
fn prefix_removed() -> &'static str {
    "a gateway before the server seems to remove the beginning of the path: have it pass the whole \
     path on, or tell the server its path (`root_path`, or a setting of the like)"
}

/// Whether there is nothing at an address, so that nothing has run.
fn is_nothing_there(status: StatusCode) -> bool {
    matches!(status, StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::GONE)
}

/// The addresses with the path of `named` below the directories of `stream`, the deepest first.
fn below_prefixes(stream: &Url, named: &Url) -> Vec<Url> {
    let mut directory = stream.path();
    let mut candidates = Vec::new();
    while let Some((parent, _)) = directory.rsplit_once('/') {
        directory = parent;
        let is_below = named.path().strip_prefix(directory).is_some_and(|it| it.starts_with('/'));
        if directory.is_empty() || candidates.len() == MAX_PREFIXES {
            break;
        }
        if !is_below {
            let mut candidate = named.clone();
            candidate.set_path(&format!("{directory}{}", named.path()));
            candidates.push(candidate);
        }
    }
    candidates
}

#[cfg(test)]
mod tests;
