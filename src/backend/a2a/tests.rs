//! The A2A backend against an agent that does what a test says.

use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use serde_json::json;
use url::Url;

use super::*;
use crate::backend::fake::{request, request_of, tool_call};
use crate::error_chain::error_chain;
use crate::fake_http::{Agent, Reply, Seen, hurried};
use crate::http_client;
use crate::model::Answer;
use crate::model::call::CallRequest;
use crate::model::catalog::Content;
use crate::model::trace::Trace;

mod resume;
mod streams;
mod talks;
mod trouble;

fn dialer(card: CardSource) -> A2aDialer {
    dialer_of(card, Conversations::default())
}

fn dialer_of(card: CardSource, conversations: Conversations) -> A2aDialer {
    let name = BackendName::parse("hr").unwrap();
    A2aDialer::new(name, &config(card), http_client::new(), conversations)
}

fn config(card: CardSource) -> A2a {
    let mut token = HeaderValue::from_static("Bearer hunter2");
    token.set_sensitive(true);
    A2a {
        card,
        headers: HeaderMap::from_iter([(http::header::AUTHORIZATION, token)]),
        description: None,
        binding: None,
        allow_hosts: Vec::new(),
        blocking: false,
        signers: None,
        oauth: None,
        tls: None,
    }
}

async fn dial(agent: &Agent) -> Arc<dyn Peer> {
    dialer(CardSource::Base((agent.url.clone()).into())).dial().await.unwrap()
}

async fn dial_error(card: CardSource) -> String {
    error_chain(&dialer(card).dial().await.unwrap_err())
}

fn call(arguments: &serde_json::Value) -> ToolCall {
    tool_call(request_of("r", None, "", &arguments.to_string()))
}

fn hello() -> ToolCall {
    call(&json!({"message": "hello"}))
}

/// A 1.0 card with one JSON-RPC interface at the agent's `/rpc`.
fn card() -> String {
    r#"{"name":"HR","big":1e400,"supportedInterfaces":[{"url":"/rpc","protocolBinding":"JSONRPC","protocolVersion":"1.0"}]}"#.to_owned()
}

/// An agent that serves [`card`] and answers each JSON-RPC method as `answer` says.
async fn json_rpc(answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Agent {
    Agent::start(move |seen| match seen.path.as_str() {
        "/.well-known/agent-card.json" => Reply::json(card()),
        "/rpc" => answer(seen),
        _ => Reply::status(404),
    })
    .await
}

fn method(seen: &Seen) -> String {
    let body: serde_json::Value = serde_json::from_str(&seen.body).unwrap_or_default();
    body["method"].as_str().unwrap_or_default().to_owned()
}

/// How often the agent was asked for `wanted`.
fn count(agent: &Agent, wanted: &str) -> usize {
    agent.seen().iter().filter(|seen| method(seen) == wanted).count()
}

fn refusal(code: i32) -> String {
    json!({"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": "no"}}).to_string()
}

fn result(result: &serde_json::Value) -> Reply {
    Reply::json(json!({"jsonrpc": "2.0", "id": 1, "result": result}).to_string())
}

fn task(state: &str, artifact: &str) -> serde_json::Value {
    json!({"id": "t1", "status": {"state": state}, "artifacts": [{"parts": [{"text": artifact}]}]})
}

fn ok(text: &str) -> Answer {
    Answer::text(text)
}

#[tokio::test]
async fn the_card_is_kept_byte_for_byte_and_the_headers_go_with_everything() {
    let agent = json_rpc(|_| result(&json!({"message": {"parts": [{"text": "hi"}]}}))).await;
    let dialer = dialer(CardSource::Base((agent.url.clone()).into()));
    assert_eq!(dialer.transport(), "a2a");
    let peer = dialer.dial().await.unwrap();
    assert_eq!(dialer.transport(), "jsonrpc");
    assert_eq!(peer.about().protocol_version.as_deref(), Some("1.0"));
    let catalog = peer.resolve().await.unwrap();
    let Content::A2a { card: kept } = catalog.content() else { panic!("{catalog:?}") };
    assert_eq!(kept.get(), card());
    assert_eq!(peer.call(hello()).await.unwrap().answer, ok("hi"));

    let seen = agent.seen();
    assert!(seen.iter().all(|seen| seen.header("authorization") == "Bearer hunter2"));
    let sent = seen.last().unwrap();
    assert_eq!(sent.header("a2a-version"), "1.0");
    assert!(sent.body.contains(r#""text":"hello""#), "{}", sent.body);
}

#[tokio::test]
async fn an_unchanged_card_is_the_same_catalog() {
    let agent = Agent::start(|_| Reply::json(card())).await;
    let peer = dial(&agent).await;
    let first = peer.resolve().await.unwrap();
    assert!(Arc::ptr_eq(&first, &peer.resolve().await.unwrap()));
}

#[tokio::test]
async fn a_changed_card_takes_effect_and_a_bad_one_does_not() {
    let moved = card().replace("/rpc", "/moved");
    let cards = [card(), moved.clone(), "{}".to_owned()];
    let fetches = std::sync::atomic::AtomicUsize::new(0);
    let agent = Agent::start(move |seen| match seen.path.as_str() {
        "/moved" => result(&json!({"message": {"parts": [{"text": "moved"}]}})),
        _ => {
            let fetch = fetches.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            Reply::json(cards[fetch].clone())
        }
    })
    .await;
    let peer = dial(&agent).await;
    let catalog = peer.resolve().await.unwrap();
    assert!(matches!(catalog.content(), Content::A2a { card } if card.get() == moved));
    let error = error_chain(&peer.resolve().await.unwrap_err());
    assert!(error.contains("no `name`"), "{error}");
    assert_eq!(peer.call(hello()).await.unwrap().answer, ok("moved"));
}

#[tokio::test]
async fn the_older_well_known_path_is_tried_below_the_base() {
    let agent = Agent::start(|seen| match seen.path.as_str() {
        "/agents/hr/.well-known/agent.json" => Reply::json(card()),
        _ => Reply::status(404),
    })
    .await;
    let base = agent.url.join("agents/hr/").unwrap();
    assert!(dialer(CardSource::Base((base).into())).dial().await.is_ok());
    let error = dial_error(CardSource::Base((agent.url.clone()).into())).await;
    assert!(
        error.contains("/.well-known/agent-card.json") && error.contains("`card_url`"),
        "{error}"
    );
}

#[tokio::test]
async fn cards_that_cannot_be_used_say_why() {
    let agent = Agent::start(|seen| match seen.path.as_str() {
        "/moved" => Reply::status(302).with("location", "https://elsewhere.test/card?k=1"),
        "/secret" => Reply::status(401),
        "/html" => Reply::json("<html>".to_owned()),
        "/huge" => Reply::json("x".repeat(card_fetch::MAX_CARD + 1)),
        "/other" => Reply::json(card().replace("\"/rpc", "\"http://127.0.0.1:1/rpc")),
        _ => Reply::status(404),
    })
    .await;
    for (path, expected) in [
        ("moved", "https://elsewhere.test/card?…"),
        ("secret", "set `auth` or `headers`"),
        ("html", "JSON"),
        ("huge", "larger than 1 MiB"),
        ("other", "`127.0.0.1:1` to the agent's `allow_hosts`"),
        ("absent", "correct `card_url`"),
    ] {
        let error = dial_error(CardSource::Url((agent.url.join(path).unwrap()).into())).await;
        assert!(error.contains(expected) && !error.contains("hunter2"), "{path}: {error}");
    }
    let error =
        dial_error(CardSource::Url((Url::parse("http://169.254.169.254/").unwrap()).into())).await;
    assert!(error.contains("link-local"), "{error}");
}

#[tokio::test]
async fn a_card_file_may_name_any_host() {
    let agent = json_rpc(|_| result(&json!({"message": {"parts": [{"text": "hi"}]}}))).await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("card.json");
    let url = format!("\"{}rpc", agent.url);
    std::fs::write(&path, format!("\u{feff}{}", card().replace("\"/rpc", &url))).unwrap();
    let peer = dialer(CardSource::File(path)).dial().await.unwrap();
    assert_eq!(peer.call(hello()).await.unwrap().answer, ok("hi"));
    let error = dial_error(CardSource::File(PathBuf::from("/absent/card.json"))).await;
    assert!(error.contains("/absent/card.json"), "{error}");
    // A pipe without a writer would block a thread, and so the end of the daemon.
    let pipe = directory.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, 0o600.into()).unwrap();
    let error = dial_error(CardSource::File(pipe)).await;
    assert!(error.contains("not a regular file"), "{error}");
}

#[tokio::test]
async fn wrong_arguments_are_refused_before_anything_is_sent() {
    let agent = json_rpc(|_| panic!("nothing must be sent")).await;
    let peer = dial(&agent).await;
    for arguments in [json!({}), json!({"message": 5}), json!({"message": " "})] {
        let error = peer.call(call(&arguments)).await.unwrap_err();
        assert!(matches!(&error, CallError::Refused(why) if why.contains("message")), "{error}");
    }
    assert_eq!(agent.seen().len(), 1);
}

#[tokio::test]
async fn failures_are_told_apart() {
    let refusal = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"overloaded"}}"#;
    let agent = json_rpc(move |_| Reply::json(refusal.to_owned())).await;
    let error = dial(&agent).await.call(hello()).await.unwrap_err();
    assert!(matches!(&error, CallError::Refused(why) if why == "A2A error -32603: overloaded"));

    let agent = json_rpc(|_| Reply::json("<html>".to_owned())).await;
    let error = dial(&agent).await.call(hello()).await.unwrap_err();
    assert!(matches!(error, CallError::Unclear { .. }), "{error}");

    let agent = json_rpc(|_| Reply::hang_up()).await;
    let peer = dial(&agent).await;
    let error = peer.call(hello()).await.unwrap_err();
    assert!(matches!(error, CallError::Lost(_)), "{error}");
    agent.stop().await;
    let error = peer.call(hello()).await.unwrap_err();
    assert!(matches!(&error, CallError::NotSent(why) if !why.contains("hunter2")), "{error}");
}

#[tokio::test]
async fn an_unfinished_task_is_asked_for_until_it_ends() {
    let looks = std::sync::atomic::AtomicUsize::new(0);
    let agent = json_rpc(move |seen| {
        if seen.body.contains("SendMessage") {
            return result(&json!({"task": task("TASK_STATE_SUBMITTED", "")}));
        }
        assert!(seen.body.contains("GetTask") && seen.body.contains("\"t1\""), "{}", seen.body);
        match looks.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
            0 => Reply::status(503),
            _ => result(&task("TASK_STATE_COMPLETED", "done")),
        }
    })
    .await;
    let peer = dial(&agent).await;
    assert_eq!(peer.call(hello()).await.unwrap().answer, ok("done"));
    peer.close().await;
    assert!(!agent.seen().iter().any(|seen| seen.body.contains("CancelTask")));
}

#[tokio::test]
async fn a_dropped_call_cancels_its_task() {
    let agent = json_rpc(|_| result(&json!({"task": task("TASK_STATE_WORKING", "")}))).await;
    let peer = dial(&agent).await;
    let dropped = tokio::time::timeout(Duration::from_millis(400), peer.call(hello())).await;
    assert!(dropped.is_err());
    peer.close().await;
    let seen = agent.seen();
    let last = seen.last().unwrap();
    assert!(last.body.contains("CancelTask") && last.body.contains("\"t1\""), "{}", last.body);
}

#[tokio::test]
async fn a_task_that_the_agent_forgot_may_have_run() {
    let agent = json_rpc(|seen| {
        if seen.body.contains("SendMessage") {
            return result(&json!({"task": task("TASK_STATE_WORKING", "")}));
        }
        let error = json!({"code": -32001, "message": "task not found"});
        Reply::json(json!({"jsonrpc": "2.0", "id": 1, "error": error}).to_string())
    })
    .await;
    let peer = dial(&agent).await;
    let called = peer.call(hello());
    let error = hurried(|| count(&agent, "GetTask") > 0, called).await.unwrap_err();
    assert!(error.to_string().contains("no longer knows the task"), "{error}");
}

#[tokio::test]
async fn a_repeated_call_has_the_same_message_id() {
    let agent = json_rpc(|_| result(&json!({"message": {"parts": []}}))).await;
    let peer = dial(&agent).await;
    let asked = request_of("r", None, "", r#"{"message": "hello"}"#);
    let other = tool_call(CallRequest { tool_use: "v".into(), ..asked });
    for call in [hello(), hello(), other] {
        assert_eq!(
            peer.call(call).await.unwrap().answer,
            ok("[the agent replied with an empty message]")
        );
    }
    let ids: Vec<String> = agent.seen()[1..]
        .iter()
        .map(|seen| {
            let body: serde_json::Value = serde_json::from_str(&seen.body).unwrap();
            body["params"]["message"]["messageId"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(ids[0], ids[1]);
    assert_ne!(ids[1], ids[2]);
}

#[tokio::test]
async fn the_bundled_agent_answers() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = Url::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
    let stop = tokio_util::sync::CancellationToken::new();
    let served = crate::demo::a2a_agent::serve(listener, stop.clone());
    let asked = async {
        let peer = dialer(CardSource::Base((url).into())).dial().await.unwrap();
        let first = peer.resolve().await.unwrap();
        assert!(Arc::ptr_eq(&first, &peer.resolve().await.unwrap()));
        let answer = peer.call(call(&json!({"message": "When does PTO reset?"}))).await;
        assert!(
            matches!(answer.unwrap().answer, Answer::Result { text, .. } if text.starts_with("PTO resets"))
        );
        stop.cancel();
    };
    let (served, ()) = tokio::join!(served, asked);
    served.unwrap();
}

#[tokio::test]
async fn a_message_carries_its_trace_and_nothing_else_does() {
    let agent = json_rpc(|_| result(&task("completed", "done"))).await;
    let peer = dial(&agent).await;
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let trace = Trace::read(&[parent], &["a=1"]).map(Arc::new);
    peer.call(ToolCall { trace, ..hello() }).await.unwrap();
    peer.call(hello()).await.unwrap();
    let told: Vec<(String, String)> = agent
        .seen()
        .iter()
        .filter(|seen| seen.path == "/rpc")
        .map(|seen| (seen.header("traceparent").to_owned(), seen.header("tracestate").to_owned()))
        .collect();
    assert_eq!(told, [(parent.to_owned(), "a=1".to_owned()), (String::new(), String::new())]);
}
