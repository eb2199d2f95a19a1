//! Messages and the ends of responses, without a network.

use std::io;

use bytes::Bytes;
use futures_util::stream;
use http_body::Frame;
use http_body_util::StreamBody;
use serde_json::value::RawValue;
use url::Url;

use super::*;
use crate::backend::a2a::interface::Generation;
use crate::config::A2aBinding;

const HI: &str = r#"{"message":{"messageId":"","contextId":"","taskId":"","role":"ROLE_AGENT","parts":[{"text":"hi"}]}}"#;
/// The same, as it travels.
const HI_SENT: &[u8] = b"\0\0\0\0\x08\x12\x06\x2a\x04\x0a\x02hi";

/// Why a response that has no end is lost.
const BROKEN_OFF: &str = "the response broke off";

type Sent = Result<Frame<Bytes>, io::Error>;

fn data(bytes: &[u8]) -> Sent {
    Ok(Frame::data(Bytes::copy_from_slice(bytes)))
}

fn fields(status: &str) -> HeaderMap {
    HeaderMap::from_iter([("grpc-status".parse().unwrap(), status.parse().unwrap())])
}

fn end(status: &str) -> Sent {
    Ok(Frame::trailers(fields(status)))
}

fn broken() -> Sent {
    Err(io::Error::other("the test breaks it"))
}

fn response(head: HeaderMap, frames: Vec<Sent>) -> Response {
    let mut response =
        http::Response::new(reqwest::Body::wrap(StreamBody::new(stream::iter(frames))));
    *response.headers_mut() = head;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc+proto"));
    response.into()
}

fn endpoint(url: &str) -> Endpoint {
    Endpoint {
        url: Url::parse(url).unwrap(),
        binding: A2aBinding::Grpc,
        generation: Generation::V10,
        version: "1.0".to_owned(),
        tenant: None,
    }
}

#[test]
fn a_request_is_one_message_to_the_method() {
    for (url, expected) in [
        ("http://a:1", "http://a:1/lf.a2a.v1.A2AService/GetTask"),
        ("https://a/below/", "https://a/below/lf.a2a.v1.A2AService/GetTask"),
    ] {
        let Request { method, url, body } = encode(&endpoint(url), Operation::GetTask("t"));
        assert_eq!((method, url.as_str()), (Method::POST, expected));
        assert_eq!(body.unwrap(), &b"\0\0\0\0\x05\x12\x01t\x18\0"[..]);
    }
}

#[tokio::test]
async fn a_message_may_be_cut_anywhere() {
    for size in 1..=HI_SENT.len() {
        let mut frames: Vec<Sent> = HI_SENT.chunks(size).map(data).collect();
        frames.push(end("0"));
        let read = result(response(HeaderMap::new(), frames), sending()).await;
        assert_eq!(read.unwrap().get(), HI, "{size}");
    }
}

#[tokio::test]
async fn reply_that_breaks_off_is_lost() {
    let failure =
        async |frames| result(response(HeaderMap::new(), frames), sending()).await.unwrap_err();
    for (frames, expected) in [
        (vec![data(HI_SENT)], BROKEN_OFF),
        (vec![data(HI_SENT), Ok(Frame::trailers(HeaderMap::new()))], BROKEN_OFF),
        (vec![data(&HI_SENT[..9]), end("0")], BROKEN_OFF),
        (vec![data(HI_SENT), end("14")], "gRPC status UNAVAILABLE"),
    ] {
        assert_eq!(failure(frames).await, lost(expected));
    }
    let failure = failure(vec![data(HI_SENT), broken()]).await;
    assert!(
        matches!(&failure, A2aFailure::Call(CallError::Lost(why)) if why.ends_with("the test breaks it"))
    );
}

fn sending() -> Operation<'static> {
    use crate::backend::a2a::wire::{Message, ReplyMode};
    let message =
        Message { text: "hi", id: "m", context: None, task: None, output_modes: &[], trace: None };
    Operation::Send(message, ReplyMode::WhenDone)
}

fn lost(why: &str) -> A2aFailure {
    A2aFailure::lost(why)
}

#[tokio::test]
async fn a_result_is_one_message_and_a_success() {
    let unreadable = |why: &str| A2aFailure::unclear(why);
    let refused = A2aFailure::Refused {
        code: None,
        status: StatusCode::INTERNAL_SERVER_ERROR,
        text: "gRPC status INTERNAL".to_owned(),
        pause: None,
    };
    for (head, frames, expected) in [
        (HeaderMap::new(), vec![data(HI_SENT), end("0")], Ok(HI)),
        (HeaderMap::new(), vec![data(HI_SENT), end("13")], Err(refused.clone())),
        (HeaderMap::new(), vec![end("13")], Err(refused.clone())),
        // Without a message, the status may be in the head.
        (fields("13"), vec![], Err(refused)),
        (fields("0"), vec![], Err(unreadable("its response has no message"))),
        (HeaderMap::new(), vec![], Err(lost(BROKEN_OFF))),
        (
            HeaderMap::new(),
            vec![data(HI_SENT), data(HI_SENT), end("0")],
            Err(unreadable("its response has more than one message")),
        ),
        (
            HeaderMap::new(),
            vec![data(b"\x01\0\0\0\0"), end("0")],
            Err(unreadable("its response is compressed, which the bridge has not asked for")),
        ),
        // It is refused by its length, before it has come.
        (
            HeaderMap::new(),
            vec![data(b"\0\0\x80\0\x01")],
            Err(CallError::NotRead(NotRead::TooLarge { limit: 8_388_608, size: Some(8_388_609) })
                .into()),
        ),
    ] {
        let what = format!("{head:?} {frames:?}");
        let result = result(response(head, frames), sending()).await;
        assert_eq!(result.as_deref().map(RawValue::get).map_err(Clone::clone), expected, "{what}");
    }
}

/// All results of a stream, and why it ends.
async fn results(head: HeaderMap, frames: Vec<Sent>) -> (Vec<String>, Option<A2aFailure>) {
    let mut messages = Messages::new(response(head, frames));
    let mut results = Vec::new();
    loop {
        match messages.next().await {
            Ok(Some(result)) => results.push(result.get().to_owned()),
            Ok(None) => return (results, None),
            Err(failure) => return (results, Some(failure)),
        }
    }
}

#[tokio::test]
async fn stream_may_be_cut_anywhere_and_ends_with_its_status() {
    let two = [HI_SENT, HI_SENT].concat();
    let his = vec![HI.to_owned(), HI.to_owned()];
    for size in 1..=two.len() {
        let mut frames: Vec<Sent> = two.chunks(size).map(data).collect();
        frames.push(end("0"));
        assert_eq!(results(HeaderMap::new(), frames).await, (his.clone(), None), "{size}");
    }
    for (frames, expected) in [
        (vec![data(&two)], lost(BROKEN_OFF)),
        (vec![data(&two), data(b"\0\0"), end("0")], lost(BROKEN_OFF)),
        (vec![data(&two), end("14")], lost("gRPC status UNAVAILABLE")),
    ] {
        let what = format!("{frames:?}");
        assert_eq!(
            results(HeaderMap::new(), frames).await,
            (his.clone(), Some(expected)),
            "{what}"
        );
    }
    // A refusal has no message, and its status in the head.
    let (none, refusal) = results(fields("12"), vec![]).await;
    assert!(none.is_empty() && refusal.unwrap().rejects_streaming(true));
}

#[test]
fn a_refused_token_is_http_s_401() {
    let refused = with_status_of_tokens(response(fields("16"), vec![]));
    assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
    let other = with_status_of_tokens(response(fields("7"), vec![]));
    assert_eq!(other.status(), StatusCode::OK);
}

#[test]
fn a_reply_of_a_proxy_is_none_of_grpc() {
    assert!(is_reply(&response(HeaderMap::new(), vec![])));
    let page = http::Response::builder().header(CONTENT_TYPE, "text/html").body("").unwrap();
    assert!(!is_reply(&page.into()));
    let failed = http::Response::builder().status(502).header(CONTENT_TYPE, MEDIA_TYPE);
    assert!(!is_reply(&failed.body("").unwrap().into()));
}
