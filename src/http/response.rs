//! Reads bodies within limits, and builds all answers in one form.
//!
//! An error is `{"error","message"}`, MANTYX's own form (agent-runs-protocol §10). Below `/api/`,
//! an error that only the bridge makes has its sentence in `error` and its code in `code`: MANTYX's
//! clients show `error` to people.
//!
//! Must not: decide what an answer says.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use http::header::IntoHeaderName;
use http::{HeaderValue, Response, StatusCode, header};
use http_body::{Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, BodyStream, Full, StreamBody};
use serde::Serialize;
use serde_json::Value;
use tokio::time::{Instant, Sleep, sleep_until};

use super::auth::AuthRefusal;
use super::error_code::Code;
use crate::budget::{self, Buffer, NoRoom};

/// The body of every answer.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;
/// A handler's answer, or a value on the way to it. `Err` is a refusal, or another answer that
/// comes early; callers get both alike.
pub type HandlerResult<T = Response<Body>> = Result<T, Response<Body>>;
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A body that can be read here.
pub trait Source: http_body::Body<Data = Bytes, Error: fmt::Display> + Unpin {}

impl<B: http_body::Body<Data = Bytes, Error: fmt::Display> + Unpin> Source for B {}

/// How long a sender may pause in the middle of a body.
const BODY_PAUSE: Duration = Duration::from_secs(30);
/// The least average rate of a body in bytes a second, over the length of a pause. Every network
/// that apps run in is faster.
const BODY_RATE: u64 = 16 << 10;

/// A body could not be read.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReadError {
    #[error("The body is larger than {limit} bytes, which is all that the bridge takes here.")]
    TooLarge { limit: usize },
    #[error(
        "The body paused for more than {} s, or came more slowly than {} KiB a second.",
        BODY_PAUSE.as_secs(), BODY_RATE >> 10
    )]
    TooSlow,
    #[error("The body broke off: {0}")]
    Broken(String),
    /// A reload removed the app, or changed its token, user or certificate, while the body arrived.
    #[error("The app is not let in any more.")]
    NotLetIn,
    /// The target was found to be another app's while the body arrived.
    #[error("There is no such run or session.")]
    NotFound,
    #[error("{NoRoom}; try again soon.")]
    NoRoom,
    #[error("The form did not come within {} s.", .0.as_secs())]
    FormTooSlow(Duration),
    #[error("The bridge reads as many forms at once as it may; try again soon.")]
    TooManyForms,
}

impl From<ReadError> for Response<Body> {
    fn from(why: ReadError) -> Self {
        let code = match why {
            ReadError::TooLarge { .. } => Code::BodyTooLarge,
            ReadError::TooSlow | ReadError::FormTooSlow(_) => Code::BodyTooSlow,
            ReadError::Broken(_) => Code::InvalidRequest,
            ReadError::NotLetIn => return not_let_in(),
            ReadError::NotFound => Code::NotFound,
            ReadError::NoRoom | ReadError::TooManyForms => {
                return retry_after(error(Code::Busy, &why.to_string()), budget::RETRY_AFTER);
            }
        };
        error(code, &why.to_string())
    }
}

/// A body whose sender has to keep sending: neither long pauses nor single bytes now and then are
/// allowed. Without this, a slow sender could hold memory for hours.
#[derive(Debug)]
pub struct Paced<B, C = fn() -> Result<(), ReadError>> {
    body: B,
    late: Pin<Box<Sleep>>,
    check: C,
}

impl<B> Paced<B> {
    pub fn new(body: B) -> Self {
        Self::with_check(body, || Ok(()))
    }
}

impl<B, C> Paced<B, C> {
    /// A body that breaks off with the error of `check`, which is called for every frame and at the
    /// end.
    pub fn with_check(body: B, check: C) -> Self {
        Self { body, late: Box::pin(sleep_until(Instant::now() + BODY_PAUSE)), check }
    }

    /// Extends the deadline for `bytes` more, to at most one pause from now. Otherwise a sender
    /// could earn an hour of silence with one fast burst.
    fn note(&mut self, bytes: usize) {
        let earned = Duration::from_micros(bytes as u64 * 1_000_000 / BODY_RATE);
        let late = (self.late.deadline() + earned).min(Instant::now() + BODY_PAUSE);
        self.late.as_mut().reset(late);
    }
}

impl<B: Source, C: Fn() -> Result<(), ReadError> + Unpin> http_body::Body for Paced<B, C> {
    type Data = Bytes;
    type Error = ReadError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ReadError>>> {
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
            return self.late.as_mut().poll(cx).map(|()| Some(Err(ReadError::TooSlow)));
        };
        if let Some(data) = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()) {
            self.note(data.len());
        }
        if let Err(error) = (self.check)() {
            return Poll::Ready(Some(Err(error)));
        }
        Poll::Ready(frame.map(|frame| frame.map_err(|error| ReadError::Broken(error.to_string()))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Reads a body of at most `limit` bytes.
pub async fn read(body: impl Source, limit: usize) -> Result<Bytes, ReadError> {
    let declared = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if declared > limit {
        return Err(ReadError::TooLarge { limit });
    }
    collect(body, limit, Buffer::new(declared)).await
}

/// Like [`read`], for a short answer that must not be lost: it does not wait for room in the
/// budget.
pub async fn read_anyway(body: impl Source, limit: usize) -> Result<Bytes, ReadError> {
    collect(body, limit, Buffer::insisting()).await
}

async fn collect(body: impl Source, limit: usize, mut whole: Buffer) -> Result<Bytes, ReadError> {
    let mut body = Paced::new(body);
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        if whole.len() + data.len() > limit {
            return Err(ReadError::TooLarge { limit });
        }
        if whole.push(&data).await.is_err() {
            let came = whole.len() + data.len();
            drop(whole);
            read_past(body, limit - came).await?;
            return Err(ReadError::NoRoom);
        }
    }
    Ok(whole.into_bytes())
}

/// Reads and discards the rest of a body, at most `limit` bytes. Most senders read the answer only
/// after they have sent everything. They would take a connection that closes before that for a
/// broken one, and never see the error.
async fn read_past(mut body: Paced<impl Source>, limit: usize) -> Result<(), ReadError> {
    let mut remaining = limit;
    while let Some(frame) = body.frame().await {
        let length = frame?.into_data().map_or(0, |data| data.len());
        remaining = remaining.checked_sub(length).ok_or(ReadError::TooLarge { limit })?;
    }
    Ok(())
}

/// A body of known length.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never: Infallible| match never {}).boxed_unsync()
}

/// A body that is streamed in pieces.
pub fn streamed(pieces: impl Stream<Item = Bytes> + Send + 'static) -> Body {
    let frames = pieces.map(|bytes| Ok::<_, BoxError>(Frame::data(bytes)));
    StreamBody::new(frames).boxed_unsync()
}

/// A body that ends early when `end` resolves, for a stream whose reader may lose the right to it.
/// A body of known length is short, and passes unchanged.
pub fn until(body: Body, end: impl Future<Output = ()> + Send + 'static) -> Body {
    if http_body::Body::size_hint(&body).exact().is_some() {
        return body;
    }
    StreamBody::new(BodyStream::new(body).take_until(Box::pin(end))).boxed_unsync()
}

/// A body that holds `guard` until it was sent, or its client has gone.
pub fn holding(body: Body, guard: impl Send + 'static) -> Body {
    // No error is changed; the closure owns the guard for as long as the body lives.
    let guarded = body.map_err(move |error| {
        let _guard = &guard;
        error
    });
    guarded.boxed_unsync()
}

/// An event stream.
pub fn events(pieces: impl Stream<Item = Bytes> + Send + 'static) -> Response<Body> {
    let mut response = Response::new(streamed(pieces));
    let headers = response.headers_mut();
    let text = HeaderValue::from_static;
    headers.insert(header::CONTENT_TYPE, text("text/event-stream; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, text("no-cache, no-transform"));
    // nginx and others would hold events back.
    headers.insert("x-accel-buffering", text("no"));
    response
}

/// An answer in this media type.
pub fn text(media_type: &'static str, text: impl Into<Bytes>) -> Response<Body> {
    let media_type = HeaderValue::from_static(media_type);
    with_header(Response::new(full(text)), header::CONTENT_TYPE, media_type)
}

/// On an answer whose bytes are counted until its client has read them.
#[derive(Debug, Clone)]
struct CountedBody;

/// Marks an answer whose bytes are counted for its app, so that no layer above counts them twice.
pub fn counted(mut response: Response<Body>) -> Response<Body> {
    response.extensions_mut().insert(CountedBody);
    response
}

pub fn is_counted(response: &Response<Body>) -> bool {
    response.extensions().get::<CountedBody>().is_some()
}

/// An answer in JSON text.
pub fn json_text(json: impl Into<Bytes>) -> Response<Body> {
    text("application/json", json)
}

/// An answer in JSON.
pub fn json(value: &impl Serialize) -> Response<Body> {
    json_text(serde_json::to_vec(value).expect("the bridge's own answers can be written"))
}

/// The contents of an error, kept beside the answer so that the error can be written again in
/// MANTYX's form.
#[derive(Debug, Clone)]
struct ErrorParts {
    code: Code,
    message: String,
    /// An object with further members.
    more: Value,
}

/// An error: a code for programs and a sentence for people.
pub fn error(code: Code, message: &str) -> Response<Body> {
    error_with(code, message, serde_json::json!({}))
}

/// An error with further members, such as `candidates`.
pub fn error_with(code: Code, message: &str, more: Value) -> Response<Body> {
    let mut body = more.clone();
    body["error"] = code.as_str().into();
    body["message"] = message.into();
    let mut response = with_status(json(&body), code.status());
    response.extensions_mut().insert(ErrorParts { code, message: message.to_owned(), more });
    response
}

/// Rewrites an error for clients of MANTYX, on a proxied route. Answers that are no error of the
/// bridge's stay as they are, and so do errors that MANTYX makes in the same words.
pub fn as_mantyx_does(mut response: Response<Body>) -> Response<Body> {
    let parts = response.extensions_mut().remove::<ErrorParts>();
    let Some(ErrorParts { code, message, more }) = parts.filter(|parts| !parts.code.is_mantyxs())
    else {
        return response;
    };
    let mut body = more;
    body["error"] = message.into();
    body["code"] = code.as_str().into();
    body["hint"] = code.hint().into();
    *response.body_mut() = json(&body).into_body();
    response
}

/// 401 for an app that has lost its access meanwhile: the same answer as to a wrong token.
pub fn not_let_in() -> Response<Body> {
    let refusal = AuthRefusal::WrongToken;
    challenged(error(refusal.kinds().1, &refusal.to_string()))
}

/// Adds the header that says how to authenticate.
pub fn challenged(response: Response<Body>) -> Response<Body> {
    let challenge = HeaderValue::from_static("Bearer realm=\"mantyx-bridge\"");
    with_header(response, header::WWW_AUTHENTICATE, challenge)
}

/// Adds the header that says in how many seconds the request may be sent again.
pub fn retry_after(response: Response<Body>, seconds: u64) -> Response<Body> {
    with_header(response, header::RETRY_AFTER, seconds.into())
}

/// Gives an answer another status than its error's usual one.
pub fn with_status(mut response: Response<Body>, status: StatusCode) -> Response<Body> {
    *response.status_mut() = status;
    response
}

pub fn with_header(
    mut response: Response<Body>,
    name: impl IntoHeaderName,
    value: HeaderValue,
) -> Response<Body> {
    response.headers_mut().insert(name, value);
    response
}

/// 405, with the methods that the route allows.
pub fn wrong_method(allow: &'static str) -> Response<Body> {
    let message = format!("This route takes {allow} only.");
    let refusal = error(Code::MethodNotAllowed, &message);
    with_header(refusal, header::ALLOW, HeaderValue::from_static(allow))
}

#[cfg(test)]
mod tests {
    //! The two forms of an error; bodies that come slowly, in paused time.

    use futures_util::stream;
    use tokio::time::sleep;

    use super::*;

    async fn check(code: Code, own: Value, proxied: Value) {
        let error = || error_with(code, "It is so.", serde_json::json!({ "x": 1 }));
        let value = async |response: Response<Body>| {
            let text = read(response.into_body(), 1 << 10).await.unwrap();
            serde_json::from_slice::<Value>(&text).unwrap()
        };
        assert_eq!(value(error()).await, own);
        assert_eq!(value(as_mantyx_does(error())).await, proxied);
    }

    #[tokio::test]
    async fn below_api_the_sentence_stands_where_clients_of_mantyx_look() {
        let own = serde_json::json!({ "error": "busy", "message": "It is so.", "x": 1 });
        let hint = Code::Busy.hint();
        let proxied =
            serde_json::json!({ "error": "It is so.", "code": "busy", "hint": hint, "x": 1 });
        check(Code::Busy, own, proxied).await;
        let own = serde_json::json!({ "error": "not_found", "message": "It is so.", "x": 1 });
        check(Code::NotFound, own.clone(), own).await;
    }

    /// Reads a body of `count` pieces of `size` bytes, one every `every` seconds; what came of it,
    /// and after how many seconds.
    async fn read_slowly(count: usize, size: usize, every: u64) -> (Result<usize, String>, u64) {
        let pieces = stream::unfold(0, move |at| async move {
            sleep(Duration::from_secs(every)).await;
            (at < count).then(|| (Bytes::from(vec![0; size]), at + 1))
        });
        let begun = Instant::now();
        let read = read(streamed(Box::pin(pieces)), 1 << 30).await;
        let came = read.map(|bytes| bytes.len()).map_err(|error| error.to_string());
        (came, begun.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_body_is_given_up() {
        let slow = ReadError::TooSlow.to_string();
        assert_eq!(read_slowly(1, 1, 31).await, (Err(slow.clone()), 30), "a pause");
        assert_eq!(read_slowly(100, 1, 10).await, (Err(slow.clone()), 30), "a byte now and then");
        assert_eq!(read_slowly(9, 16 << 10, 20).await, (Err(slow), 31), "too little in time");
    }

    /// What is there already is no reason to wait for a byte now and then.
    #[tokio::test(start_paused = true)]
    async fn a_body_that_came_fast_and_then_trickles_is_given_up() {
        let pieces = stream::unfold(0, |at| async move {
            sleep(Duration::from_secs(if at == 0 { 0 } else { 12 })).await;
            Some((Bytes::from(vec![0; if at == 0 { 60 << 20 } else { 1 }]), at + 1))
        });
        let begun = Instant::now();
        let read = read(streamed(Box::pin(pieces)), 64 << 20).await;
        assert!(matches!(read, Err(ReadError::TooSlow)));
        assert_eq!(begun.elapsed().as_secs(), 30);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_of_a_slow_network_is_read() {
        assert_eq!(read_slowly(9, 320 << 10, 20).await, (Ok(9 * (320 << 10)), 200));
    }
}
