//! The official Python SDK, unmodified: an app that changes its base URL and its key and nothing
//! else. The runtime behind the bridge is the bridge's own sandbox.
//!
//! What the SDK does stands in `tests/sdk`; what must come of it stands here.

use std::process::Stdio;

use serde_json::Value;
use tokio::process::Command;

use crate::{bridge::Bridge, frames::Script, harness::ledger_in, mantyx::Mantyx, peers};

/// Fields drop in their order.
struct Sandbox {
    bridge: Bridge,
    _dir: tempfile::TempDir,
}

async fn sandbox() -> Sandbox {
    let dir = tempfile::TempDir::new().expect("the temporary directory is writable");
    let plain = peers::ledger(&ledger_in(&dir), &[]);
    let config = format!(
        "upstream: {{sandbox: true, workspace: acme}}\nmcp:\n  time: {}\n  plain: {plain}\n",
        peers::mcp_time()
    );
    let bridge = Bridge::ready(&config).await;
    bridge.wait_backend("time", "ready").await;
    bridge.wait_backend("plain", "ready").await;
    Sandbox { bridge, _dir: dir }
}

/// Runs a script with the address and the token of the bridge, and reads its last line.
pub(crate) async fn run(bridge: &Bridge, script: &str, args: &[&str]) -> Value {
    let mut command = peers::sdk(script);
    command.arg(bridge.url()).arg(bridge.token()).args(args);
    last_line(command, script).await
}

/// Runs a script with the address of a MANTYX, or of what stands in front of it.
pub(crate) async fn run_at(url: &str, script: &str) -> Value {
    let mut command = peers::sdk(script);
    command.arg(url);
    last_line(command, script).await
}

async fn last_line(mut command: Command, script: &str) -> Value {
    command.stdin(Stdio::null());
    let limit = std::time::Duration::from_secs(60);
    let output = tokio::time::timeout(limit, command.output()).await;
    let output = output.expect("the SDK should be done in time").expect("the interpreter runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script} failed: {errors}");
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(text.lines().last().unwrap_or_default())
        .unwrap_or_else(|error| panic!("{script} printed no JSON ({error}): {text}{errors}"))
}

pub(crate) fn of_type<'a>(events: &'a Value, kind: &str) -> Vec<&'a Value> {
    let events = events.as_array().expect("events");
    events.iter().filter(|event| event["type"] == kind).map(|event| &event["data"]).collect()
}

#[track_caller]
fn assert_in_order(events: &Value) {
    let seqs: Vec<_> =
        events.as_array().expect("events").iter().map(|e| e["seq"].as_u64()).collect();
    assert!(seqs.is_sorted_by(|a, b| a < b), "each event once and in order: {seqs:?}");
}

#[tokio::test]
async fn the_async_client_runs_its_own_tool_beside_the_bridges() {
    let sandbox = sandbox().await;
    let prompt = "add_numbers {\"a\": 2, \"b\": 3}\n\
                  time_convert_time {\"source_timezone\":\"UTC\",\"time\":\"12:00\",\"target_timezone\":\"Asia/Tokyo\"}\n\
                  plain_note {\"text\": \"from a run\"}\n\
                  good bye";
    let seen = run(&sandbox.bridge, "async_run.py", &[prompt]).await;
    assert_in_order(&seen["events"]);
    assert_eq!(seen["ownCalls"], serde_json::json!([{"a": 2, "b": 3}]), "its own tool ran once");
    let own = of_type(&seen["events"], "local_tool_call");
    assert_eq!(own.len(), 1, "the SDK is asked for its own tool alone: {own:?}");
    assert_eq!(own[0]["name"], "add_numbers");
    let answers = of_type(&seen["events"], "local_tool_result_in");
    let outputs: String = answers.iter().map(|data| data["output"].to_string()).collect();
    assert_eq!(answers.len(), 3, "one answer for each call: {outputs}");
    for expected in ["\"5\"", "T21:00:00+09:00", "noted: from a run"] {
        assert!(outputs.contains(expected), "{expected} among {outputs}");
    }
    assert!(seen["text"].as_str().is_some_and(|text| text.contains("good bye")), "{seen}");
}

#[tokio::test]
async fn the_sync_client_holds_a_session() {
    let sandbox = sandbox().await;
    let first = "plain_note {\"text\": \"one\"}";
    let second = "plain_note {\"text\": \"two\"}\nso be it";
    let seen = run(&sandbox.bridge, "sync_session.py", &[first, second]).await;
    assert!(seen["models"].as_u64() > Some(0), "the models are piped through: {seen}");
    for (message, expected) in [(0, "noted: one"), (1, "noted: two")] {
        let events = &seen["messages"][message]["events"];
        assert_in_order(events);
        assert!(of_type(events, "local_tool_call").is_empty(), "nothing for the SDK to answer");
        let answers = of_type(events, "local_tool_result_in");
        assert_eq!(answers.len(), 1, "{answers:?}");
        assert_eq!(answers[0]["output"], expected);
    }
    assert!(seen["history"].as_u64() >= Some(2), "the session remembers: {seen}");
}

#[tokio::test]
async fn errors_are_the_exceptions_that_the_sdk_has_for_them() {
    let sandbox = sandbox().await;
    let seen = run(&sandbox.bridge, "errors.py", &[]).await;
    assert_eq!(seen["auth"]["class"], "MantyxAuthError", "a wrong token: {seen}");
    // The bridge's sentence is where the SDK looks for it.
    let told = seen["auth"]["text"].as_str().unwrap_or_default();
    assert!(told.contains("`mantyx-bridge token`"), "{seen}");
    assert!(seen["spec"]["class"].is_string(), "a spec that the runtime refuses: {seen}");
}

/// The bridge's token goes beside MANTYX's, by the HTTP options of the SDK, and each to its own.
#[tokio::test]
async fn the_oauth_clients_token_goes_to_mantyx_and_the_bridges_does_not() {
    let (dir, mantyx) = (tempfile::TempDir::new().expect("a directory"), Mantyx::start().await);
    let plain = peers::ledger(&ledger_in(&dir), &[]);
    let config = format!(
        "upstream: {{base_url: \"{}\", workspace: acme, credential: passthrough}}\nmcp:\n  plain: {plain}\n",
        mantyx.url()
    );
    let bridge = Bridge::ready(&config).await;
    bridge.wait_backend("plain", "ready").await;
    let issued = r#"{"access_token":"mantyx_at_1","token_type":"Bearer","expires_in":3600}"#;
    let json = "Content-Type: application/json";
    mantyx.canned("POST", "/api/oauth/token", &["HTTP/1.1 200 OK", json], issued);
    mantyx.script(Script::one_call("tu_1", "plain", "plain_note", r#"{"text":"a"}"#));
    let seen = run(&bridge, "oauth.py", &[]).await;
    assert_eq!(seen["text"], "done");
    mantyx.answer("tu_1").await;
    let recorded = mantyx.recorded();
    for request in &recorded {
        let shown = request.header("authorization");
        let wanted = (request.target != "/api/oauth/token").then_some("Bearer mantyx_at_1");
        assert_eq!((shown, request.header("x-api-key")), (wanted, None), "{request:?}");
        assert!(!format!("{request:?}").contains(bridge.token()), "{request:?}");
    }
    assert!(recorded.len() >= 4, "a token, a run, its stream and a result: {recorded:?}");
}
