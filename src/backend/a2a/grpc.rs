//! gRPC, as far as A2A 1.0 needs it: one message to the agent, and the messages and the status that
//! come back. HTTP/2 and TLS are the HTTP client's.
//!
//! Must not: ask twice, or read what is inside a result: `messages` makes the JSON of it that the
//! other bindings have on the wire, and `backend::a2a::result` reads that.

mod messages;
mod status;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http::{
    HeaderMap, HeaderValue, Method, StatusCode,
    header::{ACCEPT, CONTENT_TYPE, TE},
};
use http_body_util::BodyExt as _;
use reqwest::{Response, ResponseBuilderExt as _};
use serde_json::value::RawValue;

use super::{
    failure::A2aFailure,
    interface::Endpoint,
    wire::{Operation, Request},
};
use crate::{
    backend::peer::NotRead,
    budget::{Budget, CHUNKS, Held},
    error_chain::error_chain,
};

/// The largest message, in bytes. JSON has a file's bytes in base64, which must fit into a reply.
const MAX_MESSAGE: usize = 8 * 1024 * 1024;
/// What stands before every message: whether it is compressed, and its length.
const PREFIX: usize = 5;
const MEDIA_TYPE: &str = "application/grpc";

/// The request that asks `operation` of the agent at `endpoint`.
pub(super) fn encode(endpoint: &Endpoint, operation: Operation<'_>) -> Request {
    let message = messages::encode(operation, endpoint.tenant.as_deref());
    let mut body = BytesMut::with_capacity(PREFIX + message.len());
    body.put_u8(0);
    body.put_u32(message.len().try_into().expect("arguments of 4 GiB are never let in"));
    body.put_slice(&message);
    let mut url = endpoint.url.clone();
    {
        let mut segments = url.path_segments_mut().expect("an http URL has a path");
        segments.pop_if_empty().extend([messages::SERVICE, messages::method(operation)]);
    }
    Request { method: Method::POST, url, body: Some(body.freeze()) }
}

/// Adds what makes a request one of gRPC.
pub(super) fn mark(headers: &mut HeaderMap) {
    headers.remove(ACCEPT);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    // Servers use it to find proxies that lose the status.
    headers.insert(TE, HeaderValue::from_static("trailers"));
}

/// Whether it is the answer of a gRPC server, and not of a proxy before it.
pub(super) fn is_reply(response: &Response) -> bool {
    let content_type = response.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    response.status() == StatusCode::OK
        && content_type.is_some_and(|value| value.starts_with(MEDIA_TYPE.as_bytes()))
}

/// The same response, with HTTP's status where gRPC's says that the token was refused.
pub(super) fn with_status_of_tokens(response: Response) -> Response {
    if !status::is_unauthenticated(response.headers()) {
        return response;
    }
    let refused = http::Response::builder().status(StatusCode::UNAUTHORIZED);
    let mut refused = refused
        .url(response.url().clone())
        .body(reqwest::Body::default())
        .expect("it has a status and a URL, both well formed");
    *refused.headers_mut() = response.headers().clone();
    refused.into()
}

/// Reads the one result of a response.
pub(super) async fn result(
    response: Response,
    operation: Operation<'_>,
) -> Result<Box<RawValue>, A2aFailure> {
    let mut messages = Messages::new(response);
    let unreadable = |why: &str| A2aFailure::Unreadable(why.to_owned());
    let message =
        messages.next().await?.ok_or_else(|| unreadable("the response has no message"))?;
    // The status comes last, and may still be a refusal.
    if messages.next().await?.is_some() {
        return Err(unreadable("the response has more than one message"));
    }
    messages::decode(operation, message)
}

/// The events of one response.
pub(super) struct Events(Messages);

impl Events {
    pub(super) fn new(response: Response) -> Self {
        Self(Messages::new(response))
    }

    /// The next event; `None` at the end that the agent means as one.
    pub(super) async fn next(&mut self) -> Result<Option<Box<RawValue>>, A2aFailure> {
        self.0.next().await?.map(messages::decode_event).transpose()
    }
}

/// The messages of one response, and its status behind them.
struct Messages {
    head: HeaderMap,
    body: reqwest::Body,
    buffer: BytesMut,
    /// For a message that is there in part.
    held: Held,
}

impl Messages {
    fn new(response: Response) -> Self {
        let (head, body) = http::Response::from(response).into_parts();
        Self {
            head: head.headers,
            body,
            buffer: BytesMut::new(),
            held: Budget::of_process().hold(),
        }
    }

    /// The next message; `None` after the last one of a call that went well.
    async fn next(&mut self) -> Result<Option<Bytes>, A2aFailure> {
        loop {
            if let Some(message) = take(&mut self.buffer)? {
                return Ok(Some(message));
            }
            // Here, as the message that was paid for may be gone, and nothing come for long.
            self.held.follow(self.buffer.len());
            let frame = match self.body.frame().await {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => {
                    return Err(A2aFailure::Lost(error_chain(&error.without_url())));
                }
                // A response without a message has its status in the head.
                None => return self.end(&self.head),
            };
            match frame.into_data() {
                Ok(data) => self.buffer.extend_from_slice(&data),
                Err(frame) => {
                    if let Ok(trailers) = frame.into_trailers() {
                        return self.end(&trailers);
                    }
                }
            }
        }
    }

    fn end(&self, trailers: &HeaderMap) -> Result<Option<Bytes>, A2aFailure> {
        let broken_off = || A2aFailure::Lost("the response broke off".to_owned());
        status::read(trailers).ok_or_else(broken_off)??;
        if self.buffer.is_empty() { Ok(None) } else { Err(broken_off()) }
    }
}

/// Takes the first message out of `buffer`, if it is there as a whole.
fn take(buffer: &mut BytesMut) -> Result<Option<Bytes>, A2aFailure> {
    let Some((&[compressed, ref length @ ..], rest)) = buffer.split_first_chunk::<PREFIX>() else {
        return Ok(None);
    };
    if compressed != 0 {
        // Nobody has asked for that.
        return Err(A2aFailure::Unreadable("a message is compressed".to_owned()));
    }
    let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
    if length > MAX_MESSAGE {
        let (limit, size) = (MAX_MESSAGE, Some(length as u64));
        return Err(A2aFailure::NotRead(NotRead::TooLarge { limit, size }));
    }
    if rest.len() < length {
        return Ok(None);
    }
    buffer.advance(PREFIX);
    let message = buffer.split_to(length).freeze();
    if length > CHUNKS {
        // What follows would keep the memory of this one.
        *buffer = BytesMut::from(buffer.as_ref());
    }
    Ok(Some(message))
}

#[cfg(test)]
mod tests;
