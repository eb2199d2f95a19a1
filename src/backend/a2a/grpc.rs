//! gRPC, as far as A2A 1.0 needs it: sends one message to the agent, and reads the messages and the
//! status of the response. The HTTP client does HTTP/2 and TLS.
//!
//! Must not: repeat a request, or read the content of a result: `messages` converts it to the JSON
//! of the other bindings, and `backend::a2a::result` reads that.

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
/// The length of the prefix of a message: a flag for compression, and the message's length.
const PREFIX: usize = 5;
const MEDIA_TYPE: &str = "application/grpc";

/// The request for `operation` to the agent at `endpoint`.
pub(super) fn encode(endpoint: &Endpoint, operation: Operation<'_>) -> Request {
    let message = messages::encode(operation, endpoint.tenant.as_deref());
    let mut body = BytesMut::with_capacity(PREFIX + message.len());
    body.put_u8(0);
    body.put_u32(message.len().try_into().expect("arguments of 4 GiB are never let in"));
    body.put_slice(&message);
    let mut url = endpoint.url.clone();
    {
        let mut segments = url.path_segments_mut().expect("an http URL has a path");
        segments.pop_if_empty().extend([messages::SERVICE, operation.method()]);
    }
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

/// The same response, with HTTP status 401 if its gRPC status says that the token was refused.
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
    // The status comes last. It may be a refusal, even after a message.
    if messages.next().await?.is_some() {
        return Err(unreadable("the response has more than one message"));
    }
    messages::decode(operation, message)
}

/// The messages of one response, and then its status.
pub(super) struct Messages {
    head: HeaderMap,
    body: reqwest::Body,
    buffer: BytesMut,
    /// The memory of an incomplete message.
    held: Held,
}

impl Messages {
    pub(super) fn new(response: Response) -> Self {
        let (head, body) = http::Response::from(response).into_parts();
        Self {
            head: head.headers,
            body,
            buffer: BytesMut::new(),
            held: Budget::of_process().hold(),
        }
    }

    /// The next event; `None` after a complete stream.
    pub(super) async fn next_event(&mut self) -> Result<Option<Box<RawValue>>, A2aFailure> {
        self.next().await?.map(messages::decode_event).transpose()
    }

    /// The next message; `None` after the last one of a successful call.
    async fn next(&mut self) -> Result<Option<Bytes>, A2aFailure> {
        loop {
            if let Some(message) = take(&mut self.buffer)? {
                return Ok(Some(message));
            }
            // Before the wait for a frame: the last message has left the buffer, and its memory
            // must not count while nothing comes.
            self.held.follow(self.buffer.len());
            let frame = match self.body.frame().await {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => {
                    return Err(A2aFailure::Lost(error_chain(&error.without_url())));
                }
                // Without a message, the head has the status.
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

/// Takes the first message out of `buffer`, if it is complete.
fn take(buffer: &mut BytesMut) -> Result<Option<Bytes>, A2aFailure> {
    let Some((&[compressed, ref length @ ..], rest)) = buffer.split_first_chunk::<PREFIX>() else {
        return Ok(None);
    };
    if compressed != 0 {
        // The request did not allow that.
        return Err(A2aFailure::Unreadable("a message is compressed".to_owned()));
    }
    let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
    if length > MAX_MESSAGE {
        let size = Some(length as u64);
        return Err(A2aFailure::NotRead(NotRead::TooLarge { limit: MAX_MESSAGE, size }));
    }
    if rest.len() < length {
        return Ok(None);
    }
    buffer.advance(PREFIX);
    let message = buffer.split_to(length).freeze();
    if length > CHUNKS {
        // Copies the rest: it would keep the memory of this message.
        *buffer = BytesMut::from(buffer.as_ref());
    }
    Ok(Some(message))
}

#[cfg(test)]
mod tests;
