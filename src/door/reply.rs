//! Bodies in, bodies out: reading within limits, and answers in one shape.
//!
//! Every error is `{"error","message"}`, MANTYX's own shape (agent-runs-protocol §10), so that its
//! clients show the bridge's errors as they show MANTYX's.
//!
//! Must not: decide what an answer says.

use std::{
    collections::VecDeque,
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt as _};
use http::{HeaderValue, Response, StatusCode, header};
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use serde::Serialize;
use serde_json::Value;
use tokio::time::timeout;

use super::code::Code;

/// The body of every answer.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// How long a sender may pause in the middle of a body.
const BODY_PAUSE: Duration = Duration::from_secs(30);

/// A body could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("The body is larger than {limit} bytes, which is all that the bridge takes here.")]
    TooLarge { limit: usize },
    #[error("The body paused for more than {} s.", BODY_PAUSE.as_secs())]
    TooSlow,
    #[error("The body broke off: {0}")]
    Broken(String),
}

impl ReadError {
    pub fn reply(&self) -> Response<Body> {
        let (status, code) = match self {
            Self::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, Code::BodyTooLarge),
            Self::TooSlow => (StatusCode::REQUEST_TIMEOUT, Code::BodyTooSlow),
            Self::Broken(_) => (StatusCode::BAD_REQUEST, Code::InvalidRequest),
        };
        error(status, code, &self.to_string())
    }
}

/// Reads a body of at most `limit` bytes.
pub async fn read<B>(mut body: B, limit: usize) -> Result<Bytes, ReadError>
where
    B: http_body::Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let declared = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if declared > limit {
        return Err(ReadError::TooLarge { limit });
    }
    let mut whole = BytesMut::new();
    loop {
        let frame =
            timeout(BODY_PAUSE, body.frame()).await.map_err(|_elapsed| ReadError::TooSlow)?;
        let Some(frame) = frame else { return Ok(whole.freeze()) };
        let frame = frame.map_err(|error| ReadError::Broken(error.to_string()))?;
        let Ok(data) = frame.into_data() else { continue };
        if whole.len() + data.len() > limit {
            return Err(ReadError::TooLarge { limit });
        }
        if whole.is_empty() {
            whole.reserve(declared.max(data.len()));
        }
        whole.extend_from_slice(&data);
    }
}

/// A body of known bytes.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never: Infallible| match never {}).boxed_unsync()
}

/// A body that comes piece by piece.
pub fn streamed(pieces: impl Stream<Item = Bytes> + Send + 'static) -> Body {
    let frames = pieces.map(|bytes| Ok::<_, BoxError>(Frame::data(bytes)));
    StreamBody::new(frames).boxed_unsync()
}

/// An event stream.
pub fn events(pieces: impl Stream<Item = Bytes> + Send + 'static) -> Response<Body> {
    let mut response = Response::new(streamed(pieces));
    let headers = response.headers_mut();
    let text = HeaderValue::from_static;
    headers.insert(header::CONTENT_TYPE, text("text/event-stream; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, text("no-cache, no-transform"));
    response
}

/// A body of known bytes in several pieces, with its length.
#[derive(Debug)]
pub struct Pieces(VecDeque<Bytes>);

impl Pieces {
    pub fn new(pieces: Vec<Bytes>) -> Self {
        Self(pieces.into_iter().filter(|piece| !piece.is_empty()).collect())
    }
}

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.iter().map(|piece| piece.len() as u64).sum())
    }
}

/// An answer in JSON text.
pub fn json_text(status: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(full(text));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// An answer in JSON.
pub fn json(status: StatusCode, value: &impl Serialize) -> Response<Body> {
    let text = serde_json::to_vec(value).expect("the bridge's own answers can be written");
    json_text(status, text)
}

/// An error: a code for programs and a sentence for people.
pub fn error(status: StatusCode, code: Code, message: &str) -> Response<Body> {
    json(status, &serde_json::json!({ "error": code.as_str(), "message": message }))
}

/// An error with further members, such as `candidates`.
pub fn error_with(
    status: StatusCode,
    code: Code,
    message: &str,
    (key, value): (&str, Value),
) -> Response<Body> {
    let mut body = serde_json::json!({ "error": code.as_str(), "message": message });
    if let Value::Object(members) = &mut body {
        members.insert(key.to_owned(), value);
    }
    json(status, &body)
}

/// 405, with the methods that the route has.
pub fn wrong_method(allow: &'static str) -> Response<Body> {
    let message = format!("This route takes {allow} only.");
    let mut response = error(StatusCode::METHOD_NOT_ALLOWED, Code::MethodNotAllowed, &message);
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allow));
    response
}
