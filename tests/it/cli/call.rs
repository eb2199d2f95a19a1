//! `call`: its answer, and what becomes of it when somebody gives up.

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{FAILED, OK, desk::Desk, with};
use crate::{harness::Harness, peers, wait};

/// The last call that the bridge was asked for.
async fn last(rig: &Harness) -> Value {
    let calls = rig.bridge.api("GET", "/v1/calls", None).await.expect(200);
    calls["calls"][0].clone()
}

async fn wait_cancelled(rig: &Harness) {
    wait::soon("the bridge should cancel the call", async || {
        (last(rig).await["outcome"] == "cancelled").then_some(())
    })
    .await;
}

#[tokio::test]
async fn call_prints_the_answer_alone_and_ctrl_c_cancels() {
    let rig = Harness::start().await;
    let slow = with(&rig, &["call", "plain_slow", r#"{"text":"3"}"#]).await.expect(OK);
    assert_eq!((slow.out.as_str(), slow.err.as_str()), ("slept\n", ""));

    let config = rig.client_config();
    let mut desk = Desk::start(&["call", "plain_hang", "-c", &config]);
    rig.wait_executions(2).await;
    desk.signal(Signal::INT);
    let ran = desk.ended().await.expect(FAILED);
    assert_eq!(ran.out, "");
    assert!(ran.err.contains("cancelled"), "{}", ran.err);
    wait_cancelled(&rig).await;
}

#[tokio::test]
async fn a_call_that_goes_on_is_waited_for_and_can_be_fetched_later() {
    let rig = Harness::with_keys("pending_after: 100ms, ", "", &[], "").await;
    let slow = with(&rig, &["call", "plain_slow", r#"{"text":"1"}"#]).await.expect(OK);
    assert_eq!(slow.out, "slept\n");
    let json = with(&rig, &["call", "plain_slow", r#"{"text":"1"}"#, "--json"]).await.expect(OK);
    assert_eq!(json.json()["result"], "slept");

    let config = rig.client_config();
    let arguments = r#"{"text":"2"}"#;
    let mut desk = Desk::start(&["call", "plain_slow", arguments, "-c", &config]);
    wait::soon("the call should go on", async || {
        let calls = rig.bridge.api("GET", "/v1/calls", None).await.expect(200);
        let asked =
            |call: &Value| call["name"] == "bridge_call_result" && call["state"] == "running";
        calls["calls"].as_array().is_some_and(|calls| calls.iter().any(asked)).then_some(())
    })
    .await;
    desk.signal(Signal::INT);
    let ran = desk.ended().await.expect(FAILED);
    let question = ran.err.split_once("bridge_call_result ").map(|(_, rest)| rest.trim());
    let question = question.unwrap_or_else(|| panic!("what to type: {}", ran.err));
    let later = with(&rig, &["call", "bridge_call_result", question]).await.expect(OK);
    assert_eq!(later.out, "slept\n");
}

#[tokio::test]
async fn a_servers_words_reach_stderr_as_plain_text() {
    let rig = Harness::bare(&format!("mcp:\n  saying: {}\n", peers::saying("x"))).await;
    rig.bridge.wait_backend("saying", "ready").await;
    let error = json!({"error": {"code": -1, "message": "It is \u{1b}[31mred\u{202e}."}});
    let ran = with(&rig, &["call", "saying_say", &error.to_string()]).await.expect(FAILED);
    assert!(ran.err.contains("It is \u{fffd}[31mred\u{fffd}."), "{:?}", ran.err);
}
