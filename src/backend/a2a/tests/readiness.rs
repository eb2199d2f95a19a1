//! Streams at endpoints that redirect or cannot be reached, and what calls and questions say of an
//! endpoint: neither counts as the other.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::streams::{begun, methods, stream, streamer, whole};
use super::*;
use crate::backend::readiness::{Occasion, Readiness, Vitals};
use crate::fake_http::StreamEnd;

fn vitals(peer: &Arc<dyn Peer>) -> Vitals {
    peer.health().unwrap().subscribe().borrow().clone()
}

#[tokio::test]
async fn redirected_stream_is_read_where_the_redirect_leads() {
    let agent = streamer(|seen| match seen.path.as_str() {
        "/rpc" => Reply::status(307).with("location", "/rpc/"),
        _ => stream(&whole(), StreamEnd::Closed),
    })
    .await;
    assert_eq!(dial(&agent).await.call(hello()).await.unwrap().answer, ok("done"));
    assert_eq!(methods(&agent), ["SendStreamingMessage"; 2]);
    let last = agent.seen().pop().unwrap();
    assert_eq!(last.path, "/rpc/");
    assert!(last.header("accept").starts_with("text/event-stream"), "{}", last.header("accept"));
}

#[tokio::test]
async fn message_for_a_stream_goes_to_the_next_interface_if_no_byte_was_sent() {
    let interface =
        |url: &str| json!({"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"});
    let interfaces = [interface("http://127.0.0.1:1/rpc"), interface("/second")];
    let card = json!({
        "name": "HR", "capabilities": {"streaming": true}, "supportedInterfaces": interfaces,
    });
    let agent = Agent::start(move |seen| match seen.path.as_str() {
        "/.well-known/agent-card.json" => Reply::json(card.to_string()),
        _ => stream(&whole(), StreamEnd::Closed),
    })
    .await;
    let card = CardSource::Base(agent.url.clone().into());
    let entry = A2a { allow_hosts: vec!["127.0.0.1".to_owned()], ..A2a::new(card) };
    let peer = dialer_with(&entry).dial().await.unwrap();
    assert_eq!(peer.call(hello()).await.unwrap().answer, ok("done"));
    assert_eq!(methods(&agent), ["SendStreamingMessage"]);
}

#[tokio::test]
async fn agent_that_was_away_for_a_moment_is_sent_streams_again() {
    let requests = AtomicUsize::new(0);
    let agent = streamer(move |_| match requests.fetch_add(1, Ordering::SeqCst) {
        0 | 1 => Reply::status(404),
        _ => stream(&whole(), StreamEnd::Closed),
    })
    .await;
    let peer = dial(&agent).await;
    let error = peer.call(hello()).await.unwrap_err();
    assert!(matches!(error, CallError::Denied(_)), "{error:?}");
    assert_eq!(peer.call(hello()).await.unwrap().answer, ok("done"));
    assert_eq!(methods(&agent), ["SendStreamingMessage", "SendMessage", "SendStreamingMessage"]);
}

#[tokio::test]
async fn look_at_a_task_after_a_break_is_no_judgement_of_the_endpoint() {
    let agent = streamer(|seen| match method(seen).as_str() {
        "SendStreamingMessage" => stream(&begun(), StreamEnd::Broken),
        _ => Reply::json(refusal(-32602)),
    })
    .await;
    let peer = dial(&agent).await;
    let error = peer.call(hello()).await.unwrap_err();
    assert!(matches!(error, CallError::Unclear { .. }), "{error:?}");
    assert_eq!(count(&agent, "GetTask"), 1);
    let vitals = vitals(&peer);
    assert!(matches!(vitals.readiness, Readiness::Unknown), "{vitals:?}");
    assert_eq!((vitals.answered_at, vitals.doubts), (None, 1));
}

#[tokio::test]
async fn answer_to_the_question_of_an_endpoint_is_no_call() {
    let agent = streamer(|_| Reply::json(refusal(-32001))).await;
    let peer = dial(&agent).await;
    peer.probe(Occasion::Doubt).await;
    let vitals = vitals(&peer);
    assert!(matches!(vitals.readiness, Readiness::Answers(_)), "{vitals:?}");
    assert_eq!((vitals.answered_at, vitals.doubts), (None, 0));
    assert_eq!(methods(&agent), ["GetTask"]);
}
