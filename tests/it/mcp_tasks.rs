//! Calls that are MCP tasks, with a TypeScript server of 2025-11-25, whose tasks belong to a
//! session, and a Python server of 2026-07-28, whose tasks belong to nobody.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::future::BoxFuture;
use http::HeaderMap;
use mantyx_bridge::internals::{
    Answer, BackendName, CallError, CallRequest, Dial as _, Handle, HttpTransport, Identity, Mcp,
    NotRecorded, Peer, Progress, Recorder, RefKind, Route, Target, ToolCall, mcp, new_client,
};
use serde_json::{Value, value::RawValue};
use tokio::time::timeout;

use crate::{frames::Script, harness::Harness, peers, wait};

const REPORT: &str = "# Research Report: tea";

async fn with(keys: &str, rest: &str) -> Harness {
    let rig = Harness::bare(&format!("mcp:\n  one: {keys}\n{rest}")).await;
    rig.bridge.wait_backend("one", "ready").await;
    rig
}

#[tokio::test]
async fn a_typescript_tool_that_must_be_a_task() {
    let (http, sse) = (peers::everything_http().await, peers::everything_sse().await);
    let stdio = peers::everything_stdio();
    let http = format!("{{url: \"{}/mcp\"}}", http.url());
    let sse = format!("{{url: \"{}/sse\"}}", sse.url());
    let report = async |entry: &str| {
        // It works for 4 s and is asked every second: each answer is a sign of life.
        let rig = with(&peers::with(entry, "call_timeout: 3s"), "").await;
        let answer = rig.call("one", "one_simulate_research_query", r#"{"topic":"tea"}"#).await;
        assert!(answer["result"].as_str().is_some_and(|it| it.starts_with(REPORT)), "{answer}");
    };
    tokio::join!(report(&stdio), report(&http), report(&sse));
}

#[tokio::test]
async fn a_python_server_that_makes_a_task_of_a_call() {
    let server = peers::mcp_tasks().await;
    let rig = with(&format!("{{url: \"{}/mcp\", call_timeout: 1s}}", server.url()), "").await;
    assert_eq!(rig.bridge.backend("one").await["protocolVersion"], "2026-07-28");
    let answer = rig.call("one", "one_research", r#"{"seconds":2}"#).await;
    assert_eq!(answer["result"], "report 1");
}

#[tokio::test]
async fn a_task_that_takes_too_long_is_cancelled() {
    let server = peers::mcp_tasks().await;
    let url = format!("{}/mcp", server.url());
    let rig = with(&format!("{{url: \"{url}\"}}"), "calls: {timeout: 2s}\n").await;
    let answer = rig.call("one", "one_research", r#"{"seconds":60}"#).await;
    let error = answer["error"].as_str().expect("an error");
    assert!(error.contains("OUTCOME_UNKNOWN") && error.contains("2 s"), "{error}");
    let peer = connect(&url).await;
    wait::soon("the task should be cancelled", async || {
        (overview(&peer).await[0]["status"] == "cancelled").then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_running_task_is_taken_up_by_a_fresh_connection() {
    let server = peers::mcp_tasks().await;
    let url = format!("{}/mcp", server.url());
    let first = connect(&url).await;
    let (call, names) = order("research", r#"{"seconds":1.5}"#);
    let mut running = first.call(call);
    let handle = tokio::select! {
        answer = &mut running => panic!("it is not done yet: {answer:?}"),
        handle = names.handle() => handle,
    };
    // As in a crash, nobody looks at it any more, and nobody cancels it.
    let second = connect(&url).await;
    let (resumed, _names) = order("research", r#"{"seconds":60}"#);
    let answer = timeout(Duration::from_secs(30), second.resume(handle.clone(), resumed)).await;
    assert_eq!(answer.expect("in time").expect("an answer").answer, Answer::text("report 1"));
    let seen = overview(&second).await;
    assert_eq!(seen.as_array().map(Vec::len), Some(1), "nothing was started: {seen}");
    let asked = seen[0]["asked"].as_u64().expect("a number");
    assert!((2..=9).contains(&asked), "at the server's interval of 0.2 s: {asked}");

    // The outcome can be had again, and with the server, the task is gone.
    let (again, _names) = order("research", "{}");
    let again = second.resume(handle.clone(), again).await;
    assert_eq!(again.expect("an answer").answer, Answer::text("report 1"));
    let other = peers::mcp_tasks().await;
    let other = connect(&format!("{}/mcp", other.url())).await;
    let (unknown, _names) = order("research", "{}");
    let lost = other.resume(handle, unknown).await;
    assert!(matches!(&lost, Err(CallError::Lost(why)) if why.contains("not found")), "{lost:?}");
    assert_eq!(overview(&other).await, Value::Array(Vec::new()), "nothing was started");
}

#[tokio::test]
async fn a_task_outlives_the_bridge() {
    let server = peers::mcp_tasks().await;
    let url = format!("{}/mcp", server.url());
    let mut rig = with(&format!("{{url: \"{url}\"}}"), "").await;
    rig.run(Script::one_call("tu_1", "one", "one_research", r#"{"seconds":4}"#)).await;
    let peer = connect(&url).await;
    // The name of the task is on its way to the disk before the task is first asked for.
    wait::soon("the task should be followed", async || {
        (overview(&peer).await[0]["asked"].as_u64() >= Some(3)).then_some(())
    })
    .await;
    rig.bridge.kill9();
    rig.bridge.restart().await;
    assert_eq!(rig.mantyx.answer("tu_1").await["result"], "report 1");
    let seen = overview(&peer).await;
    assert_eq!(seen.as_array().map(Vec::len), Some(1), "nothing was started anew: {seen}");
}

#[tokio::test]
async fn a_task_of_a_session_is_known_in_that_session_alone() {
    let server = peers::everything_http().await;
    let url = format!("{}/mcp", server.url());
    let (first, second) = (connect(&url).await, connect(&url).await);
    let (call, names) = order("simulate-research-query", r#"{"topic":"tea"}"#);
    let mut running = first.call(call);
    let handle = tokio::select! {
        answer = &mut running => panic!("it is not done yet: {answer:?}"),
        handle = names.handle() => handle,
    };
    let (elsewhere, _names) = order("simulate-research-query", "{}");
    let lost = second.resume(handle.clone(), elsewhere).await;
    assert!(matches!(lost, Err(CallError::Lost(_))), "{lost:?}");
    let (here, _names) = order("simulate-research-query", "{}");
    for outcome in <[_; 2]>::from(tokio::join!(running, first.resume(handle, here))) {
        let answer = outcome.expect("an answer").answer;
        let Answer::Result { text, .. } = answer else { panic!("{answer:?}") };
        assert!(text.starts_with(REPORT), "{text}");
    }
}

/// A connection to the server at `url` whose tools have been listed.
async fn connect(url: &str) -> Arc<dyn Peer> {
    let url: url::Url = url.parse().expect("a URL");
    let config = Mcp::Http {
        url: url.into(),
        headers: HeaderMap::new(),
        oauth: None,
        tls: None,
        socket: None,
        transport: HttpTransport::Streamable,
        listen: true,
        sessions: false,
    };
    let name = BackendName::parse("one").expect("a name");
    let peer = mcp::dialer(&name, &config, None, new_client()).dial().await;
    let peer = peer.expect("a connection");
    peer.resolve().await.expect("a catalog");
    peer
}

/// What the Python server knows of its tasks.
async fn overview(peer: &Arc<dyn Peer>) -> Value {
    let (call, _names) = order("overview", "{}");
    let answer = peer.call(call).await.expect("an answer").answer;
    let Answer::Result { text, .. } = answer else { panic!("a text") };
    serde_json::from_str(&text).expect("JSON")
}

fn order(tool: &str, arguments: &str) -> (ToolCall, Arc<Names>) {
    let names = Arc::<Names>::default();
    (tool_call(tool, arguments, Arc::clone(&names) as _), names)
}

/// A call by hand as a peer gets it.
pub(crate) fn tool_call(tool: &str, arguments: &str, recorder: Arc<dyn Recorder>) -> ToolCall {
    let target = Target::Tool { name: tool.into(), input: None };
    let backend = BackendName::parse("one").expect("a name");
    let kind = RefKind::McpLocal;
    let route = Route { backend, kind, target, repeatable: false, destructive: false };
    let request = CallRequest {
        app: "a".into(),
        run: None,
        tool_use: "by hand".into(),
        name: tool.to_owned(),
        route,
        arguments: RawValue::from_string(arguments.to_owned()).expect("JSON"),
    };
    let (request, progress) = (Arc::new(request), Progress::default());
    ToolCall { request, trace: None, progress, recorder }
}

/// Remembers what the peer named.
#[derive(Debug, Default)]
pub(crate) struct Names(Mutex<Option<Handle>>);

impl Recorder for Names {
    fn dispatching(&self, _: Option<&Identity>) -> BoxFuture<'_, Result<(), NotRecorded>> {
        Box::pin(async { Ok(()) })
    }

    fn named(&self, handle: &Handle) {
        *self.0.lock().expect("no test panics in between") = Some(handle.clone());
    }
}

impl Names {
    async fn handle(&self) -> Handle {
        wait::soon("the work should get a name", async || {
            self.0.lock().expect("no test panics in between").clone()
        })
        .await
    }
}
