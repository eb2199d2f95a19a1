//! Agents that would not answer a call, and what the operator is told of each.

use serde_json::{Value, json};

use crate::backend::a2a::A2aDialer;
use crate::backend::a2a::tests::{dialer_with, result};
use crate::backend::readiness::{Occasion, Readiness};
use crate::backend::{Dial as _, Peer, PeerErrorKind};
use crate::config::{A2a, CardSource, Target};
use crate::error_chain::error_chain;
use crate::fake_http::{Agent, Reply, Seen, StreamEnd};

type MakeReply = fn() -> Reply;

/// What became of the question.
struct Told {
    kind: Option<PeerErrorKind>,
    /// The error, or the answer.
    text: String,
    cure: String,
}

async fn ask(dialer: &A2aDialer, config: &A2a) -> Told {
    let peer = dialer.dial().await.unwrap_or_else(|error| panic!("{}", error_chain(&error)));
    judged(peer.as_ref(), config, Occasion::Doubt).await
}

async fn judged(peer: &dyn Peer, config: &A2a, occasion: Occasion) -> Told {
    peer.probe(occasion).await;
    match peer.health().unwrap().readiness() {
        Readiness::Unknown => panic!("it was asked"),
        Readiness::Answers(answer) => {
            Told { kind: None, text: answer.to_owned(), cure: String::new() }
        }
        Readiness::Fails(failure) => Told {
            kind: Some(failure.kind),
            text: error_chain(&failure),
            cure: failure.cure(&Target::A2a(config.clone())),
        },
    }
}

fn card(url: &str, version: &str) -> Value {
    let interface = json!({"url": url, "protocolBinding": "JSONRPC", "protocolVersion": version});
    json!({"name": "HR", "supportedInterfaces": [interface]})
}

/// An agent that serves `card` and answers the rest as `answer` says.
async fn agent(card: Value, answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Agent {
    Agent::start(move |seen| match seen.path.as_str() {
        "/.well-known/agent-card.json" => Reply::json(card.to_string()),
        _ => answer(seen),
    })
    .await
}

fn config(agent: &Agent) -> A2a {
    A2a::new(CardSource::Base(agent.url.clone().into()))
}

async fn told(agent: &Agent) -> Told {
    let config = config(agent);
    ask(&dialer_with(&config), &config).await
}

fn error(code: i32, message: &str) -> Reply {
    let error = json!({"code": code, "message": message});
    Reply::json(json!({"jsonrpc": "2.0", "id": "1", "error": error}).to_string())
}

fn method(seen: &Seen) -> String {
    let body: Value = serde_json::from_str(&seen.body).unwrap_or_default();
    body["method"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn agent_without_the_task_is_well_and_was_asked_once_without_effect() {
    let agent = agent(card("/rpc", "1.0"), |_| error(-32001, "Task not found")).await;
    let told = told(&agent).await;
    assert_eq!((told.kind, told.text.contains("no such task")), (None, true), "{}", told.text);
    let asked: Vec<String> =
        agent.seen().iter().filter(|seen| seen.path == "/rpc").map(method).collect();
    assert_eq!(asked, ["GetTask"]);
}

#[tokio::test]
async fn agent_that_streams_whatever_it_is_asked_is_judged_by_its_first_event() {
    for (code, expected) in [(-32001, None), (-32009, Some(PeerErrorKind::Protocol))] {
        let agent = agent(card("/rpc", "1.0"), move |_| {
            let error = json!({"code": code, "message": "only 0.9"});
            let event = json!({"jsonrpc": "2.0", "id": "1", "error": error});
            Reply::event_bytes(format!("data: {event}\n\n").as_bytes(), StreamEnd::Open)
        })
        .await;
        let told = told(&agent).await;
        assert_eq!(told.kind, expected, "{}", told.text);
    }
}

#[tokio::test]
async fn agent_that_takes_one_media_type_alone_is_well() {
    let agent = agent(card("/rpc", "1.0"), |seen| match seen.header("content-type") {
        "application/a2a+json" => error(-32001, "no such task"),
        _ => Reply::status(415),
    })
    .await;
    let told = told(&agent).await;
    assert_eq!(told.kind, None, "{}", told.text);
}

#[tokio::test]
async fn agent_that_keeps_no_tasks_is_well_and_is_asked_once_from_then_on() {
    let agent = agent(card("/rpc", "1.0"), |_| error(-32601, "no")).await;
    let config = config(&agent);
    let peer = dialer_with(&config).dial().await.unwrap();
    for (occasion, questions) in [(Occasion::Doubt, 2), (Occasion::Idle, 3)] {
        let told = judged(peer.as_ref(), &config, occasion).await;
        assert!(told.kind.is_none() && told.text.contains("keeps no tasks"), "{}", told.text);
        assert_eq!(agent.seen().iter().filter(|seen| seen.path == "/rpc").count(), questions);
    }
}

#[tokio::test]
async fn agent_of_another_version_than_its_card_says_is_told() {
    for (says, speaks) in [("1.0", "tasks/get"), ("0.3.0", "GetTask")] {
        let agent = agent(card("/rpc", says), move |seen| {
            if method(seen) == speaks { error(-32001, "no such task") } else { error(-32601, "no") }
        })
        .await;
        let told = told(&agent).await;
        assert_eq!(told.kind, Some(PeerErrorKind::Protocol));
        assert!(told.text.contains(&format!("does not speak A2A {says}")), "{}", told.text);
    }
}

#[tokio::test]
async fn refused_credential_is_told_with_the_cards_own_schemes() {
    let mut card = card("/rpc", "1.0");
    card["securitySchemes"] =
        json!({"k": {"apiKeySecurityScheme": {"location": "header", "name": "X-Key"}}});
    let agent = agent(card, |_| Reply::status(401)).await;
    let told = told(&agent).await;
    assert_eq!(told.kind, Some(PeerErrorKind::Unauthorized));
    assert!(told.text.contains("HTTP 401"), "{}", told.text);
    assert!(told.cure.contains("headers: {X-Key: "), "{}", told.cure);
}

#[tokio::test]
async fn server_in_place_of_the_agent_is_told() {
    let replies: [(MakeReply, &str, &str); 6] = [
        (|| Reply::json("<html>log in</html>".to_owned()), "web page", "endpoint"),
        (|| Reply::status(404), "nothing at this path (HTTP 404)", "endpoint"),
        (
            || Reply::status(302).with("location", "https://sso.test/login?k=1"),
            "https://sso.test/login?…",
            "endpoint",
        ),
        (|| Reply::status(503), "HTTP 503", "gateway"),
        (|| error(-32008, "urn:x is required"), "urn:x is required", "extensions"),
        (|| error(-32009, "only 0.9"), "only 0.9", "transport"),
    ];
    for (reply, expected, cure) in replies {
        let agent = agent(card("/rpc", "1.0"), move |_| reply()).await;
        let told = told(&agent).await;
        assert!(told.kind.is_some() && told.text.contains(expected), "{}", told.text);
        assert!(told.cure.contains(cure), "{expected}: {}", told.cure);
    }
}

#[tokio::test]
async fn address_that_nothing_listens_at_is_told_with_a_way_out() {
    let agent = agent(card("http://127.0.0.1:1/rpc", "1.0"), |_| Reply::status(500)).await;
    let config = A2a { allow_hosts: vec!["127.0.0.1".to_owned()], ..config(&agent) };
    let told = ask(&dialer_with(&config), &config).await;
    assert_eq!(told.kind, Some(PeerErrorKind::Connect));
    assert!(told.text.contains("http://127.0.0.1:1/rpc"), "{}", told.text);
    assert!(told.cure.contains("`endpoint`"), "{}", told.cure);
}

#[tokio::test]
async fn name_that_does_not_resolve_is_told_with_a_way_out() {
    // No label may be so long, so that no name server is asked.
    let host = format!("{}.test", "a".repeat(64));
    let agent = agent(card(&format!("http://{host}/rpc"), "1.0"), |_| Reply::status(500)).await;
    let config = A2a { allow_hosts: vec![host], ..config(&agent) };
    let told = ask(&dialer_with(&config), &config).await;
    assert_eq!(told.kind, Some(PeerErrorKind::Connect));
    let all = format!("{} {}", told.text, told.cure);
    assert!(told.cure.contains("only the agent's own network knows"), "{all}");
}

#[tokio::test]
async fn dead_first_interface_gives_way_to_the_next_and_is_told() {
    let second = json!({"url": "/v2", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"});
    let mut card = card("http://127.0.0.1:1/rpc", "1.0");
    card["supportedInterfaces"].as_array_mut().unwrap().push(second);
    let agent = agent(card, |seen| match method(seen).as_str() {
        "SendMessage" => result(&json!({"message": {"parts": [{"text": "hi"}]}})),
        _ => error(-32001, "no such task"),
    })
    .await;
    let config = A2a { allow_hosts: vec!["127.0.0.1".to_owned()], ..config(&agent) };
    let dialer = dialer_with(&config);
    let told = ask(&dialer, &config).await;
    assert_eq!(told.kind, None, "{}", told.text);
    let remark = dialer.remark().unwrap().with_quote();
    assert!(remark.message.contains("http://127.0.0.1:1/rpc"), "{}", remark.message);
    assert!(remark.message.contains("/v2"), "{}", remark.message);
}

#[tokio::test]
async fn required_extension_that_is_not_configured_is_told_and_a_configured_one_is_sent() {
    let mut card = card("/rpc", "1.0");
    card["capabilities"] = json!({"extensions": [{"uri": "urn:x", "required": true}]});
    let agent = agent(card, |_| error(-32001, "no such task")).await;
    let bare = config(&agent);
    let dialer = dialer_with(&bare);
    assert_eq!(ask(&dialer, &bare).await.kind, None);
    let remark = dialer.remark().unwrap();
    assert!(!remark.message.contains("urn:x"), "apps do not read the card's words");
    assert!(remark.with_quote().message.contains("urn:x"));

    let named = A2a { extensions: vec!["urn:x".to_owned(), "urn:y".to_owned()], ..bare };
    let dialer = dialer_with(&named);
    assert_eq!(ask(&dialer, &named).await.kind, None);
    assert_eq!(dialer.remark(), None);
    let last = agent.seen().pop().unwrap();
    assert_eq!(last.header("a2a-extensions"), "urn:x, urn:y");
}

#[tokio::test]
async fn extensions_of_0_3_have_a_header_of_their_own() {
    let card = json!({"name": "HR", "protocolVersion": "0.3.0", "url": "/rpc"});
    let agent = agent(card, |_| error(-32001, "no such task")).await;
    let config = A2a { extensions: vec!["urn:x".to_owned()], ..config(&agent) };
    assert_eq!(ask(&dialer_with(&config), &config).await.kind, None);
    let last = agent.seen().pop().unwrap();
    assert_eq!((last.header("x-a2a-extensions"), last.header("a2a-version")), ("urn:x", ""));
}

#[tokio::test]
async fn idle_agent_gets_one_request_whatever_it_answers() {
    let replies: [fn(&Seen) -> Reply; 4] = [
        |_| Reply::status(404),
        |_| Reply::status(401),
        |_| error(-32601, "no"),
        |seen| if method(seen) == "GetTask" { error(-32601, "no") } else { error(-32001, "") },
    ];
    for reply in replies {
        let agent = agent(card("/rpc", "1.0"), reply).await;
        let peer = dialer_with(&config(&agent)).dial().await.unwrap();
        peer.probe(Occasion::Doubt).await;
        let requests = agent.seen().len();
        peer.probe(Occasion::Idle).await;
        assert_eq!(agent.seen().len(), requests + 1);
    }
}
