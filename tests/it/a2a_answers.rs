//! What comes back of agents on the SDKs in the field: answers in each of their places, and agents
//! that fail. tests/peers has the agents.

use std::{path::PathBuf, sync::Arc, time::Duration};

use mantyx_bridge::internals::{A2aBinding, Answer, CallError, Peer};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use crate::{
    a2a_peers::{self as a2a, Agent},
    harness::Harness,
    mcp_server::Client,
    peers::fetch,
    wait,
};

/// A call that is told at once takes less. The machine of the tests may be busy.
const AT_ONCE: Duration = Duration::from_secs(5);

const JSON_RPC: A2aBinding = A2aBinding::JsonRpc;
const HTTP_JSON: A2aBinding = A2aBinding::HttpJson;

/// An agent of an SDK, and the bindings that it has.
struct Case {
    name: &'static str,
    agent: Agent,
    bindings: &'static [A2aBinding],
}

impl Case {
    async fn python(
        name: &'static str,
        python: PathBuf,
        script: &str,
        arguments: &[&str],
        bindings: &'static [A2aBinding],
    ) -> Self {
        Self { name, agent: a2a::start(python, script, arguments).await, bindings }
    }

    async fn v02() -> Self {
        let python = fetch::python_v02();
        Self::python("a2a-sdk 0.2", python, "a2a_v03_agent.py", &[], &[JSON_RPC]).await
    }

    async fn v03() -> Self {
        let (python, bindings) = (fetch::python_v03(), &[JSON_RPC, HTTP_JSON]);
        Self::python("a2a-sdk 0.3", python, "a2a_v03_agent.py", &[], bindings).await
    }

    async fn v1() -> Self {
        let arguments = ["--bindings", "jsonrpc,http+json,grpc"];
        let (python, bindings) = (fetch::python(), &[JSON_RPC, HTTP_JSON, A2aBinding::Grpc]);
        Self::python("a2a-sdk 1.3", python, "a2a_v1_agent.py", &arguments, bindings).await
    }

    /// Those that do not stream.
    async fn mute() -> [Self; 2] {
        let arguments = ["--no-streaming"];
        let (v03, v1) = (fetch::python_v03(), fetch::python());
        let bindings = &[JSON_RPC, HTTP_JSON];
        [
            Self::python("0.3, no stream", v03, "a2a_v03_agent.py", &arguments, bindings).await,
            Self::python("1.3, no stream", v1, "a2a_v1_agent.py", &arguments, bindings).await,
        ]
    }

    async fn node(name: &'static str, modules: PathBuf, version: &str) -> Self {
        let modules = modules.display().to_string();
        let agent = a2a::start(fetch::node(), "a2a_js_agent.mjs", &[&modules, version]).await;
        Self { name, agent, bindings: &[JSON_RPC] }
    }

    async fn js() -> [Self; 2] {
        [
            Self::node("a2a-js 0.3", fetch::a2a_node_v03(), "0.3").await,
            Self::node("a2a-js 1.3", fetch::a2a_node_v1(), "1.0").await,
        ]
    }

    /// A peer for each binding, with what tells it apart.
    async fn peers(&self) -> Vec<(String, Arc<dyn Peer>)> {
        let mut peers = Vec::new();
        for &binding in self.bindings {
            let what = format!("{} over {binding:?}", self.name);
            peers.push((what, a2a::dial(&self.agent, Some(binding)).await));
        }
        peers
    }
}

/// The outcome of a call that is told at once.
async fn at_once(what: &str, peer: &Arc<dyn Peer>, message: &str) -> Result<Answer, CallError> {
    let called = timeout(AT_ONCE, a2a::call(peer, message)).await;
    called.unwrap_or_else(|_late| panic!("{what}: {message} is not told at once"))
}

/// The text of a result, and the names of its files.
async fn told(what: &str, peer: &Arc<dyn Peer>, message: &str) -> (String, Vec<String>) {
    match at_once(what, peer, message).await {
        Ok(Answer::Result { text, files }) => {
            (text, files.iter().map(|file| file.filename().to_owned()).collect())
        }
        other => panic!("{what}: {message}: {other:?}"),
    }
}

#[tokio::test]
async fn executor_that_throws_is_told_at_once() {
    let [js03, js1] = Case::js().await;
    for case in [Case::v1().await, js03, js1] {
        for (what, peer) in case.peers().await {
            let outcome = at_once(&what, &peer, "break").await;
            let Ok(Answer::Error(text)) = outcome else { panic!("{what}: {outcome:?}") };
            // Over HTTP+JSON, the SDK does not say why.
            assert!(text.contains("fails") || text.contains("500"), "{what}: {text}");
        }
    }
    for case in [Case::v02().await, Case::v03().await, Case::v1().await] {
        for (what, peer) in case.peers().await {
            at_once(&what, &peer, "throw").await.expect_err(&what);
        }
    }
}

#[tokio::test]
async fn executor_that_throws_without_a_word_is_found_out_or_waited_for() {
    for case in [Case::v02().await, Case::v03().await] {
        let peer = a2a::dial(&case.agent, None).await;
        let called = timeout(Duration::from_secs(30), a2a::call(&peer, "break")).await;
        let error = called.expect("it is found out").expect_err(case.name);
        assert!(matches!(error, CallError::Unclear { .. }), "{}: {error}", case.name);
        // The SDK tells it to a message that waits for its reply.
        let peer = a2a::dial_blocking(&case.agent).await;
        let error = at_once(case.name, &peer, "break").await.expect_err(case.name);
        assert!(error.to_string().contains("-32603"), "{}: {error}", case.name);
    }
}

#[tokio::test]
async fn answer_without_an_artifact_comes_back() {
    let [js03, js1] = Case::js().await;
    let [mute_v03, mute_v1] = Case::mute().await;
    let python = [Case::v02().await, Case::v03().await, Case::v1().await, mute_v03, mute_v1];
    for case in python.into_iter().chain([js03, js1]) {
        for (what, peer) in case.peers().await {
            assert_eq!(told(&what, &peer, "words").await.0, "the answer is 42", "{what}");
        }
    }
}

#[tokio::test]
async fn all_of_a_task_comes_back() {
    let [mute_v03, mute_v1] = Case::mute().await;
    for case in [Case::v02().await, Case::v03().await, Case::v1().await, mute_v03, mute_v1] {
        for (what, peer) in case.peers().await {
            let (draft, files) = told(&what, &peer, "draft").await;
            assert!(
                draft.starts_with("Dear all\n[file a.csv text/csv, 1 byte: "),
                "{what}: {draft}"
            );
            assert!(draft.contains("]\nSend it?\n[the agent waits for input"), "{what}: {draft}");
            assert_eq!(files, ["a.csv"], "{what}");
            let (remark, files) = told(&what, &peer, "remark").await;
            assert!(remark.ends_with("attached]\nAnything else?"), "{what}: {remark}");
            assert_eq!(files, ["a.csv"], "{what}");
            let half = at_once(&what, &peer, "half").await.unwrap();
            let Answer::Error(half) = half else { panic!("{what}: {half:?}") };
            assert!(half.starts_with("no paper\n") && half.ends_with("4711"), "{what}: {half}");
            assert_eq!(told(&what, &peer, "title").await.0, "Title\nParagraph one.", "{what}");
            let (inline, files) = told(&what, &peer, "inline").await;
            assert_eq!(inline, "[file a.csv text/csv, 1 byte: attached]", "{what}");
            assert_eq!(files, ["a.csv"], "{what}");
            let (empty, _) = told(&what, &peer, "empty").await;
            assert!(empty.contains("gave no answer"), "{what}: {empty}");
        }
    }
}

#[tokio::test]
async fn javascript_agents_stream_their_artifacts() {
    for case in Case::js().await {
        for (what, peer) in case.peers().await {
            assert_eq!(a2a::result(&peer, "msg hi").await, "hi", "{what}");
            assert_eq!(a2a::result(&peer, "task report").await, "report", "{what}");
            assert_eq!(a2a::result(&peer, "chunks").await, "one two three", "{what}");
            let start = Instant::now();
            assert_eq!(a2a::result(&peer, "end").await, "end", "{what}");
            let waited = start.elapsed();
            assert!(waited < Duration::from_millis(1500), "{what}: {waited:?}");
        }
    }
}

#[tokio::test]
async fn agent_that_only_streams_is_called() {
    let mut agent = a2a::start(fetch::python_agno(), "a2a_agno_agent.py", &[]).await;
    agent.url = agent.url.join("a2a/agents/test/").unwrap();
    let peer = a2a::dial(&agent, None).await;
    assert_eq!(a2a::result(&peer, "hello").await, "you said: hello");
    let failed = a2a::result(&peer, "throw").await;
    assert!(failed.contains("gave no answer"), "{failed}");
}

/// What an agent says of its work reaches an MCP client that asked for it, and the operator.
#[tokio::test]
async fn progress_of_an_agent_reaches_clients_and_the_operator() {
    let arguments = ["--card", "1.0"];
    let agent = a2a::start(fetch::python(), "a2a_v1_agent.py", &arguments).await;
    let rig = Harness::bare(&format!("a2a:\n  hr: {{url: \"{}\"}}\n", agent.url)).await;
    rig.bridge.wait_backend("hr", "ready").await;
    let client = Client::with_session(&rig.bridge).await;
    let params = json!({
        "name": "hr", "arguments": {"message": "steps 20"}, "_meta": {"progressToken": "p"},
    });
    let call = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params});
    let called = client.post(&call.to_string()).answer(rig.bridge.addr());
    let operator = rig.bridge.operator();
    let shown = wait::soon("the operator should see what the agent says", async || {
        let calls = rig.bridge.api("GET", "/v1/calls", None).await.expect(200);
        let number = calls["calls"][0]["number"].as_u64()?;
        let request = rig.bridge.request("GET", &format!("/v1/calls/{number}"));
        let request = request.header("X-Bridge-Operator", &operator);
        let texts = request.answer(rig.bridge.addr()).await.expect(200);
        (texts["progress"] == "working" && texts["answer"] == "").then_some(())
    });
    let (answer, ()) = tokio::join!(called, shown);
    let text = answer.text();
    let events: Vec<Value> = text
        .lines()
        .filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok())
        .collect();
    let (last, progress) = events.split_last().expect("there are events");
    assert_eq!(last["result"]["content"][0]["text"], "worked 20", "{text}");
    let mut numbers = Vec::new();
    for one in progress {
        assert_eq!(one["method"], "notifications/progress", "{one}");
        assert_eq!(one["params"]["progressToken"], "p", "{one}");
        numbers.push(one["params"]["progress"].as_u64().expect("a number"));
    }
    assert!(numbers.len() >= 10 && numbers.is_sorted(), "{numbers:?}");
    assert_eq!(progress[0]["params"]["message"], "working");
}

/// How long after the end of a task the answer comes.
#[tokio::test]
async fn end_of_a_task_is_told_at_once() {
    for case in [Case::v03().await, Case::v1().await] {
        for (what, peer) in case.peers().await {
            let start = Instant::now();
            assert_eq!(a2a::result(&peer, "long 20").await, "worked 20", "{what}");
            let late = start.elapsed().saturating_sub(Duration::from_secs(2));
            // Polls would be up to 0.3 s late by then.
            println!("{what}: {late:?}");
            assert!(late < Duration::from_secs(1), "{what}: {late:?}");
        }
    }
}
