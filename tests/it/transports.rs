//! The ways to an MCP server beside stdio and Streamable HTTP on a port, and calls that tell of
//! their progress, all of them with real servers.

use serde_json::Value;
use tempfile::TempDir;

use crate::{frames::Script, harness::Harness, peers, wait};

/// A bridge with the one server `one`, whose entry has these keys.
async fn with(keys: &str, rest: &str) -> Harness {
    let rig = Harness::bare(&format!("mcp:\n  one: {{{keys}}}\n{rest}")).await;
    rig.bridge.wait_backend("one", "ready").await;
    rig
}

async fn call(rig: &Harness, id: &str, tool: &str, args: &str) -> Value {
    rig.run(Script::one_call(id, "one", tool, args)).await;
    rig.mantyx.answer(id).await
}

#[tokio::test]
async fn a_typescript_server_over_the_older_transport() {
    let server = peers::everything_sse().await;
    for transport in ["", ", transport: sse"] {
        let rig = with(&format!("url: \"{}/sse\"{transport}", server.url()), "").await;
        let backend = rig.bridge.backend("one").await;
        assert_eq!(backend["transport"], "sse", "{backend}");
        let echo = call(&rig, "tu_1", "one_echo", r#"{"message":"hé"}"#).await;
        assert_eq!(echo["result"], "Echo: hé");
    }
}

#[tokio::test]
async fn a_server_of_the_older_transport_that_is_killed_comes_back() {
    let mut server = peers::everything_sse().await;
    let rig = with(&format!("url: \"{}/sse\"", server.url()), "").await;
    let long = "one_trigger_long_running_operation";
    rig.run(Script::one_call("tu_1", "one", long, r#"{"duration":60}"#)).await;
    wait::soon("the call should be under way", async || {
        (rig.bridge.backend("one").await["callsInFlight"] == 1).then_some(())
    })
    .await;
    // A call that began later has been answered: the first one has reached the server.
    call(&rig, "tu_0", "one_echo", r#"{"message":"a"}"#).await;
    server.kill9();
    let answer = rig.mantyx.answer("tu_1").await;
    let error = answer["error"].as_str().expect("an error");
    assert!(error.contains("OUTCOME_UNKNOWN"), "what the model has to know: {error}");
    server.restart().await;
    rig.bridge.wait_backend("one", "ready").await;
    let echo = call(&rig, "tu_2", "one_echo", r#"{"message":"a"}"#).await;
    assert_eq!(echo["result"], "Echo: a");
}

#[tokio::test]
async fn a_python_server_on_a_unix_socket() {
    let dir = TempDir::new().expect("the temporary directory is writable");
    let socket = dir.path().join("mcp.sock");
    struct Case {
        args: &'static [&'static str],
        transport: &'static str,
        path: &'static str,
    }
    for Case { args, transport, path } in [
        Case { args: &[], transport: "streamable-http", path: "" },
        Case { args: &["--sse"], transport: "sse", path: ":/sse" },
    ] {
        let _server = peers::mcp_uds(&socket, args).await;
        let rig = with(&format!("url: \"unix:{}{path}\"", socket.display()), "").await;
        let backend = rig.bridge.backend("one").await;
        assert_eq!(backend["transport"], transport, "{backend}");
        assert_eq!(call(&rig, "tu_1", "one_add", r#"{"a":2,"b":3}"#).await["result"], "5");
    }
}

#[tokio::test]
async fn a_missing_socket_is_named_to_the_operator() {
    let rig = Harness::bare("mcp:\n  one: {url: \"unix:no/such.sock\"}\n").await;
    let backend = rig.bridge.wait_backend("one", "down").await;
    let error = backend["lastError"].as_str().expect("a reason");
    assert!(error.contains("no/such.sock") && error.contains("No such file"), "{error}");
}

/// A backend that may be silent for 2 s, and a call of 5 s that is not.
async fn progress(keys: &str, tool: &str, args: &str, expected: &str) {
    let rig = with(&format!("{keys}, call_timeout: 2s"), "").await;
    let answer = call(&rig, "tu_1", tool, args).await;
    let result = answer["result"].as_str();
    assert!(result.is_some_and(|result| result.contains(expected)), "{keys}: {answer}");
}

#[tokio::test]
async fn a_call_that_gets_on_may_take_longer_than_its_backends_timeout() {
    let dir = TempDir::new().expect("the temporary directory is writable");
    let socket = dir.path().join("mcp.sock");
    let (http, sse) = (peers::everything_http().await, peers::everything_sse().await);
    let _uds = peers::mcp_uds(&socket, &[]).await;
    let long = "one_trigger_long_running_operation";
    let (args, done) = (r#"{"duration":5,"steps":25}"#, "completed. Duration: 5 seconds");
    let stdio = peers::everything_stdio();
    let stdio = stdio.trim_start_matches('{').trim_end_matches('}');
    let urls = [format!("{}/mcp", http.url()), format!("{}/sse", sse.url())];
    let [http, sse] = urls.map(|url| format!("url: \"{url}\""));
    let uds = format!("url: \"unix:{}\"", socket.display());
    tokio::join!(
        progress(stdio, long, args, done),
        progress(&http, long, args, done),
        progress(&sse, long, args, done),
        progress(&uds, "one_work", r#"{"seconds":5}"#, "worked"),
    );
}

#[tokio::test]
async fn progress_for_ever_is_no_life_for_ever() {
    let server = peers::hostile_mcp(&[]);
    let keys = server.trim_start_matches('{').trim_end_matches('}');
    let rig = with(&format!("{keys}, call_timeout: 1s"), "calls: {timeout: 3s}\n").await;
    let answer = call(&rig, "tu_1", "one_progress", "{}").await;
    let error = answer["error"].as_str().expect("an error");
    assert!(error.contains("OUTCOME_UNKNOWN") && error.contains("3 s"), "{error}");
    assert_eq!(call(&rig, "tu_2", "one_string_id", "{}").await["result"], "same to you");
}
