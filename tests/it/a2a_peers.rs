//! The A2A backend against agents on the official Python SDK, in both generations and over both
//! bindings.

use std::{path::PathBuf, process::Stdio, sync::Arc, time::Duration};

use http::HeaderMap;
use mantyx_bridge::{
    backend::{
        a2a::A2aDialer,
        peer::{CallError, Dial, Peer, Progress, ToolCall},
    },
    config::{A2a, A2aBinding, CardSource},
    http_client,
    model::{
        answer::Answer,
        catalog::{Catalog, Content},
        ids::BackendName,
    },
};
use serde_json::{json, value::RawValue};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::timeout,
};
use url::Url;

use crate::peers::fetch;

struct Agent {
    url: Url,
    lines: Lines<BufReader<ChildStdout>>,
    /// Killed when the test ends.
    _child: Child,
}

/// Starts a script of tests/peers.
async fn start(interpreter: PathBuf, script: &str, arguments: &[&str]) -> Agent {
    let mut child = Command::new(interpreter)
        .arg(format!("{}/tests/peers/{script}", env!("CARGO_MANIFEST_DIR")))
        .args(arguments)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let ready = timeout(Duration::from_secs(60), lines.next_line()).await.unwrap().unwrap();
    let url = ready.as_deref().and_then(|line| line.strip_prefix("READY ")).unwrap();
    Agent { url: Url::parse(url).unwrap(), lines, _child: child }
}

async fn dial(agent: &Agent, binding: Option<A2aBinding>) -> Arc<dyn Peer> {
    let config = A2a {
        card: CardSource::Base(agent.url.clone().into()),
        headers: HeaderMap::new(),
        description: None,
        binding,
        allow_hosts: Vec::new(),
    };
    let name = BackendName::parse("hr").unwrap();
    A2aDialer::new(name, &config, http_client::new()).dial().await.unwrap()
}

async fn call(peer: &Arc<dyn Peer>, message: &str) -> Result<Answer, CallError> {
    let arguments = RawValue::from_string(json!({"message": message}).to_string()).unwrap();
    peer.call(ToolCall { tool: "".into(), arguments, origin: None, progress: Progress::default() })
        .await
}

async fn result(peer: &Arc<dyn Peer>, message: &str) -> String {
    match call(peer, message).await {
        Ok(Answer::Result { text, files }) if files.is_empty() => text,
        other => panic!("{message}: {other:?}"),
    }
}

/// Everything that an agent of tests/peers does, over one binding.
async fn check(agent: &mut Agent, binding: A2aBinding, version: &str) {
    let peer = dial(agent, Some(binding)).await;
    assert_eq!(peer.about().protocol_version.as_deref(), Some(version));
    check_card(agent, &peer.resolve().await.unwrap()).await;
    for (message, expected) in [
        ("msg hello \u{e9}\u{1f642}", "hello \u{e9}\u{1f642}"),
        ("task report", "report"),
        ("long 5", "worked 5"),
        ("early 10", "worked 10"),
    ] {
        assert_eq!(result(&peer, message).await, expected);
    }
    assert!(result(&peer, "input").await.starts_with("Which day?\n[the agent waits for input"));
    let failed = call(&peer, "fail").await.unwrap();
    assert_eq!(failed, Answer::Error("it went wrong".to_owned()));
    check_files(call(&peer, "file").await.unwrap());
    check_cancel(agent, peer).await;
}

#[track_caller]
fn check_files(answer: Answer) {
    let Answer::Result { text: answer, files } = answer else { panic!("{answer:?}") };
    let (head, tail) = answer.split_once("\n[").unwrap();
    let (text, data) = head.split_once('\n').unwrap();
    assert_eq!(text, "see the report");
    let data: serde_json::Value = serde_json::from_str(data).unwrap();
    assert_eq!(data["days"].as_f64(), Some(12.0), "{answer}");
    assert_eq!(
        tail,
        "file report.pdf application/pdf, 12,345 bytes: attached]\n\
         [file application/pdf: http://files.test/r.pdf]"
    );
    let [file] = files.as_slice() else { panic!("{files:?}") };
    assert_eq!((file.filename(), file.mime_type()), ("report.pdf", "application/pdf"));
    // `x` 12,345 times, whatever the wire made of it.
    assert!(file.data() == "eHh4".repeat(4115), "{} bytes", file.data().len());
}

/// The agent hears that nobody waits for its task any more.
async fn check_cancel(agent: &mut Agent, peer: Arc<dyn Peer>) {
    let dropped = timeout(Duration::from_millis(600), call(&peer, "early 100")).await;
    assert!(dropped.is_err());
    peer.close().await;
    let line = timeout(Duration::from_secs(5), agent.lines.next_line()).await.unwrap().unwrap();
    assert!(line.unwrap().starts_with("CANCELLED "));
}

/// The card is the agent's, byte for byte.
async fn check_card(agent: &Agent, catalog: &Catalog) {
    let url = agent.url.join(".well-known/agent-card.json").unwrap();
    let served = http_client::new().get(url).send().await.unwrap();
    let served = http_client::body(served, 1 << 20).await.unwrap();
    let Content::A2a { card } = catalog.content() else { panic!("{catalog:?}") };
    assert_eq!(card.get().as_bytes(), served);
}

#[tokio::test]
async fn an_agent_of_1_0() {
    let mut agent = start(fetch::python(), "a2a_v1_agent.py", &["--card", "1.0"]).await;
    check(&mut agent, A2aBinding::JsonRpc, "1.0").await;
    check(&mut agent, A2aBinding::HttpJson, "1.0").await;
    // a2a-sdk 1.x tags its card: an unchanged one is not even sent again.
    let peer = dial(&agent, None).await;
    let first = peer.resolve().await.unwrap();
    assert!(Arc::ptr_eq(&first, &peer.resolve().await.unwrap()));
}

#[tokio::test]
async fn an_agent_of_1_0_that_serves_0_3() {
    let mut agent = start(fetch::python(), "a2a_v1_agent.py", &["--card", "0.3"]).await;
    check(&mut agent, A2aBinding::JsonRpc, "0.3").await;
    check(&mut agent, A2aBinding::HttpJson, "0.3").await;
}

#[tokio::test]
async fn an_agent_of_both_is_called_in_1_0() {
    let mut agent = start(fetch::python(), "a2a_v1_agent.py", &["--card", "both"]).await;
    check(&mut agent, A2aBinding::JsonRpc, "1.0").await;
    check(&mut agent, A2aBinding::HttpJson, "1.0").await;
}

#[tokio::test]
async fn an_agent_of_0_3() {
    let mut agent = start(fetch::python_v03(), "a2a_v03_agent.py", &[]).await;
    check(&mut agent, A2aBinding::JsonRpc, "0.3.0").await;
    check(&mut agent, A2aBinding::HttpJson, "0.3.0").await;
}
