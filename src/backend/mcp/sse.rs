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
use tokio::time::timeout;
use url::Url;

use super::http as streamable;
use super::http::{Body, EVENTS, Endpoint, HttpFailure, JSON, Next, Source};
use super::rpc::{Message, OpenRequest, Rpc};
use super::transport::SendFailure;
use crate::http_client::address;
use crate::model::mcp::method;

/// How long the stream may take to name the address for messages; a server names it at once.
const ADDRESS_PATIENCE: Duration = Duration::from_secs(10);

/// How long a POST may take. Some servers answer it only when the tool has run, so this is longer
/// than any call may take. It ends POSTs whose calls are gone.
const POST_TIMEOUT: Duration = Duration::from_secs(300);

/// How many addresses are tried in place of the one that the stream names.
const MAX_PREFIXES: usize = 4;

/// The way to the server of one connection.
pub(super) struct Sse(Arc<Place>);

/// Where the messages of a connection go.
struct Place {
    endpoint: Arc<Endpoint>,
    /// The address of the stream.
    stream: Url,
    /// The address that the stream names for messages, or the one at which they were taken.
    messages: Mutex<Url>,
}

impl Sse {
    /// Opens the stream, which [`read`] reads, and waits for the address to send messages to.
    pub(super) async fn open(endpoint: Arc<Endpoint>) -> Result<(Self, Source), HttpFailure> {
        let named = timeout(ADDRESS_PATIENCE, Self::address(endpoint)).await;
        let (place, events) = named.unwrap_or_else(|_late| Err(no_address()))?;
        Ok((Self(Arc::new(place)), events))
    }

    async fn address(endpoint: Arc<Endpoint>) -> Result<(Place, Source), HttpFailure> {
        let mut headers = endpoint.headers.clone();
        headers.insert(ACCEPT, EVENTS);
        let sent = endpoint.request(Method::GET, &endpoint.url, headers, Body::default());
        let response = sent.await?;
        if !response.status().is_success() {
            return Err(HttpFailure::Status(response.status()));
        }
        if let Some(encoding) = crate::http_client::encoding(response.headers()) {
            return Err(HttpFailure::Encoded(response.status(), encoding));
        }
        if !streamable::is_events(&response) {
            let is_page = crate::http_client::media_type(response.headers())
                .eq_ignore_ascii_case("text/html");
            return Err(if is_page {
                HttpFailure::Page(response.status())
            } else {
                HttpFailure::Unreadable("it answers with no event stream".to_owned())
            });
        }
        // The address after redirects, all of which stay on the origin.
        let stream = response.url().clone();
        let mut events = Source::reading_past(response);
        loop {
            match events.next().await {
                Next::Frame(frame) => {
                    let fields = frame.fields();
                    if fields.event.as_deref() == Some("endpoint") {
                        let address = fields.data.unwrap_or_default();
                        let messages = Mutex::new(own_address(&stream, address.trim())?);
                        return Ok((Place { endpoint, stream, messages }, events));
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

    /// Sends `message`. A task does it, which outlives the call: the response may come before the
    /// POST ends, and some servers take a POST that is cut off for the end of their client.
    pub(super) async fn send(&self, rpc: &Arc<Rpc>, message: Message) -> Result<(), SendFailure> {
        let Message { text, method, request } = message;
        let post =
            Post { bytes: text.into(), request, is_first: method == Some(method::INITIALIZE) };
        let place = Arc::clone(&self.0);
        let carrier = Arc::clone(rpc);
        let task = rpc.spawn(async move {
            timeout(POST_TIMEOUT, post.send(&carrier, &place)).await.unwrap_or_else(|_late| {
                Err(HttpFailure::Lost("the server did not take a message".to_owned(), None))
            })
        });
        let outcome = match task {
            Some(task) => task.await.ok().flatten(),
            None => None,
        };
        match outcome {
            Some(Err(HttpFailure::Status(status))) if streamable::ignores(rpc, method, status) => {
                Ok(())
            }
            Some(outcome) => outcome.map_err(SendFailure::Http),
            None => Err(SendFailure::Cut),
        }
    }
}

/// Reads the stream of a connection until either side ends it.
pub(super) async fn read(rpc: Arc<Rpc>, mut events: Source) {
    let why = rpc.ended.run_until_cancelled(read_all(&rpc, &mut events)).await;
    if let Some(why) = why {
        rpc.lose(why);
        rpc.end();
    }
}

/// Reads the stream to its end, and says how it ended.
async fn read_all(rpc: &Arc<Rpc>, events: &mut Source) -> String {
    loop {
        rpc.wait_for_room().await;
        match events.next().await {
            Next::Frame(frame) => streamable::take_message(frame.fields(), rpc, None),
            Next::NotRead(why, id) => {
                tracing::warn!(backend = %rpc.backend, "an event is not read: {why}");
                if !id.is_some_and(|id| rpc.not_read(&id, why)) {
                    return format!("the server sent an event that is not read: {why}");
                }
            }
            Next::Broken(error) => return format!("its event stream broke: {error}"),
            Next::End => return "the server ended its event stream".to_owned(),
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

/// A message for the server.
struct Post {
    bytes: Bytes,
    request: Option<Arc<OpenRequest>>,
    /// It begins the connection, and has no effect.
    is_first: bool,
}

impl Post {
    /// Sends the message. Its answer comes on the stream, so a POST that ends without an answer of
    /// its own is no failure: only the stream says whether the server is still there.
    async fn send(&self, rpc: &Rpc, place: &Place) -> Result<(), HttpFailure> {
        let named = place.messages.lock().clone();
        self.set_written(true);
        let response = match self.post(place, &named).await {
            Ok(response) => response,
            Err(HttpFailure::Lost(why, _)) => {
                tracing::debug!(backend = %rpc.backend, "a POST ended without an answer: {why}");
                return Ok(());
            }
            Err(failure) => {
                self.set_written(!failure.is_unsent());
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
        rpc.note_refusal(&body);
        if self.is_first && is_nothing_there(status) {
            return self.send_below_prefix(rpc, place, &named, status).await;
        }
        if streamable::says_no_session(status, &body) {
            rpc.lose(format!("the server has forgotten the connection (HTTP {status})"));
            if let Some(request) = &self.request {
                request.without_session();
            }
            return Err(HttpFailure::NoSession(status));
        }
        Err(HttpFailure::Status(status))
    }

    fn set_written(&self, written: bool) {
        if let Some(request) = &self.request {
            request.set_written(written);
        }
    }

    async fn post(&self, place: &Place, address: &Url) -> Result<reqwest::Response, HttpFailure> {
        let mut headers = place.endpoint.headers.clone();
        headers.insert(CONTENT_TYPE, JSON);
        let only_reads = self.request.as_ref().is_some_and(|request| request.only_reads());
        let body = Body { bytes: self.bytes.clone(), only_reads };
        place.endpoint.request(Method::POST, address, headers, body).await
    }

    /// Sends the first message to the addresses that `named` may stand for, where a gateway removes
    /// the beginning of paths and leaves the stream's content as it is. The server does not know
    /// the beginning, so the address that it names leads nowhere. The first message has no effect,
    /// and all addresses are on the server's own origin.
    async fn send_below_prefix(
        &self,
        rpc: &Rpc,
        place: &Place,
        named: &Url,
        status: StatusCode,
    ) -> Result<(), HttpFailure> {
        let candidates = below_prefixes(&place.stream, named);
        for candidate in &candidates {
            let response = self.post(place, candidate).await?;
            if !response.status().is_success() {
                continue;
            }
            streamable::skip(response).await;
            tracing::warn!(
                backend = %rpc.backend,
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
