//! gRPC, as far as the bridge needs it: sends one message to the agent, and reads the message and
//! the status of the response. The HTTP client does HTTP/2 and TLS.
//!
//! Must not: repeat a request, or read the content of a result: `messages` converts it to the JSON
//! of the other bindings, and `backend::a2a::result` reads that.

mod messages;
mod status;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::header::{ACCEPT, CONTENT_TYPE, TE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body_util::BodyExt as _;
use reqwest::{Response, ResponseBuilderExt as _};
use serde_json::value::RawValue;

use super::failure::{A2aFailure, A2aResult};
use super::interface::Endpoint;
use super::wire::{Operation, Request};
use crate::backend::{CallError, NotRead};
use crate::budget::{Budget, Held};
use crate::error_chain::error_chain;

/// The largest message, in bytes. JSON has a file's bytes in base64, which must fit into a reply.
const MAX_MESSAGE: usize = 8 * 1024 * 1024;
/// The length of the prefix of a message: a flag for compression, and the message's length.
const PREFIX: usize = 5;
const MEDIA_TYPE: &str = "application/grpc";

/// The messages of a response, one after the other.
#[derive(Debug)]
pub(super) struct Messages {
    body: reqwest::Body,
    /// What has come and was not returned.
    bytes: BytesMut,
    held: Held,
    trailers: HeaderMap,
    has_ended: bool,
}

/// The request for `operation` to the agent at `endpoint`.
pub(super) fn encode(endpoint: &Endpoint, operation: Operation<'_>) -> Request {
    let message = messages::encode(operation, endpoint.tenant.as_deref());
    let mut body = BytesMut::with_capacity(PREFIX + message.len());
    body.put_u8(0);
    body.put_u32(message.len().try_into().expect("arguments of 4 GiB are never let in"));
    body.put_slice(&message);
    let mut url = endpoint.url.clone();
    let path = [messages::SERVICE, operation.method()];
    url.path_segments_mut().expect("an http URL has a path").pop_if_empty().extend(path);
    Request { method: Method::POST, url, body: Some(body.freeze()) }
}

/// Adds the headers of a gRPC request.
pub(super) fn mark(headers: &mut HeaderMap) {
    headers.remove(ACCEPT);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    // Servers detect by it proxies that would lose the trailers, and with them the status.
    headers.insert(TE, HeaderValue::from_static("trailers"));
}

/// Whether the response is from a gRPC server, and not from a proxy in front of it.
pub(super) fn is_reply(response: &Response) -> bool {
    let content_type = response.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    response.status() == StatusCode::OK
        && content_type.is_some_and(|value| value.starts_with(MEDIA_TYPE.as_bytes()))
}

/// `response`, with HTTP status 401 if its gRPC status says that the token was refused.
pub(super) fn with_status_of_tokens(response: Response) -> Response {
    if !status::is_unauthenticated(response.headers()) {
        return response;
    }
    let mut unauthorized = http::Response::builder()
        .status(StatusCode::UNAUTHORIZED)
        .url(response.url().clone())
        .body(reqwest::Body::default())
        .expect("it has a status and a URL, both well formed");
    *unauthorized.headers_mut() = response.headers().clone();
    unauthorized.into()
}

/// Reads the one result of a response.
pub(super) async fn result(response: Response, operation: Operation<'_>) -> A2aResult {
    let mut messages = Messages::new(response);
    let message = messages.message().await?;
    let _held = messages.held.take();
    // The status comes last. It may be a refusal, even after a message.
    let has_more = messages.message().await?.is_some();
    match message {
        None => Err(A2aFailure::unclear("its response has no message")),
        Some(_) if has_more => Err(A2aFailure::unclear("its response has more than one message")),
        Some(message) => messages::decode(operation, message),
    }
}

impl Messages {
    pub(super) fn new(response: Response) -> Self {
        let (head, body) = http::Response::from(response).into_parts();
        let held = Budget::of_process().hold();
        Self { body, bytes: BytesMut::new(), held, trailers: head.headers, has_ended: false }
    }

    /// The next result; `None` at the end of a stream that is complete.
    pub(super) async fn next(&mut self) -> A2aResult<Option<Box<RawValue>>> {
        let Some(message) = self.message().await? else { return Ok(None) };
        let event = messages::decode_event(message)?;
        self.held.follow(self.bytes.len());
        Ok(Some(event))
    }

    /// The next message, which stays counted in `held`; `None` at the end of a response that is
    /// complete.
    async fn message(&mut self) -> A2aResult<Option<Bytes>> {
        loop {
            // The messages behind the first one are looked at in their turn.
            check(self.bytes.get(..PREFIX).unwrap_or_default())?;
            if let Some(end) = length(&self.bytes).map(|length| PREFIX + length)
                && end <= self.bytes.len()
            {
                let message = self.bytes.split_to(end).split_off(PREFIX).freeze();
                return Ok(Some(message));
            }
            if self.has_ended {
                let broken_off = || A2aFailure::lost("the response broke off");
                status::read(&self.trailers).ok_or_else(broken_off)??;
                return if self.bytes.is_empty() { Ok(None) } else { Err(broken_off()) };
            }
            match self.body.frame().await {
                None => self.has_ended = true,
                Some(frame) => {
                    let frame = frame
                        .map_err(|error| A2aFailure::lost(error_chain(&error.without_url())))?;
                    match frame.into_data() {
                        Ok(data) => self.bytes.extend_from_slice(&data),
                        Err(frame) => {
                            if let Ok(last) = frame.into_trailers() {
                                self.trailers = last;
                            }
                        }
                    }
                }
            }
            self.held.follow(self.bytes.len());
        }
    }
}

/// The length of the message in `bytes`; `None` until its prefix is there.
fn length(bytes: &[u8]) -> Option<usize> {
    let (&[_compressed, ref length @ ..], _) = bytes.split_first_chunk::<PREFIX>()?;
    Some(usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX))
}

/// Refuses a message by its prefix, before all of it has come.
fn check(bytes: &[u8]) -> A2aResult<()> {
    if bytes.first().is_some_and(|compressed| *compressed != 0) {
        // The request did not allow that.
        return Err(A2aFailure::unclear(
            "its response is compressed, which the bridge has not asked for",
        ));
    }
    let length = length(bytes).unwrap_or_default();
    if length > MAX_MESSAGE {
        let size = Some(length as u64);
        return Err(CallError::NotRead(NotRead::TooLarge { limit: MAX_MESSAGE, size }).into());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
