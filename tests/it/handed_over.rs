//! A run that one app handed over while MANTYX was still creating it for another: it goes to the
//! other, and no call of it is made twice or left without an answer.

use std::fs;

use serde_json::{Value, json};

use crate::{bridge::API, frames::Script, owners::Apps, wait};

/// The scripted MANTYX counts: this was its first answer.
const RUN: &str = "run_1";
const NOTE: &str = r#"{"text":"x"}"#;

/// A run of the app `a` that follows `script`, and that `b` has handed over before MANTYX's answer
/// to `a` has come. A call of `b`'s driver has reached the server then. `a` asks for the tools of
/// `backends`.
async fn handed_over(script: Script, backends: &str) -> Apps {
    let apps = Apps::start().await;
    apps.mantyx.script(script);
    apps.mantyx.hold("POST", "/agent-runs", "created");
    let create = apps.request("a", "POST", &format!("{API}/agent-runs")).json(r#"{"prompt":"x"}"#);
    let create = create.header("X-Bridge-Backends", backends);
    let created = create.answer(apps.bridge.addr());
    let meanwhile = async {
        wait::soon("the request should reach MANTYX", async || {
            (!apps.mantyx.requests("POST", "/agent-runs").is_empty()).then_some(())
        })
        .await;
        assert_eq!(apps.attach("b", RUN).await.status, 202);
        wait::soon("the call should be made", async || (apps.executions() > 0).then_some(())).await;
        apps.mantyx.release("created");
    };
    let (created, ()) = tokio::join!(created, meanwhile);
    assert_eq!(created.expect(202)["runId"], RUN);
    apps
}

/// A call of the tool `first`, and one after it.
fn two_calls(first: &str, arguments: &str) -> Script {
    Script::new()
        .mcp("tu_1", "plain", first, arguments)
        .answered("tu_1")
        .until("go")
        .mcp("tu_2", "plain", "plain_note", NOTE)
        .answered("tu_2")
        .until("never")
}

async fn restart(apps: &mut Apps) {
    apps.bridge.kill9();
    apps.bridge.restart().await;
    apps.wait_for_backend().await;
}

#[track_caller]
fn assert_unknown(answer: &Value) {
    let error = answer["error"].as_str().expect("an error");
    assert!(error.starts_with("OUTCOME_UNKNOWN"), "{error}");
}

async fn assert_is_of_a(apps: &Apps) {
    let read = format!("{API}/agent-runs/{RUN}");
    apps.ask("b", "GET", &read, None).await.expect_error(404);
    apps.ask("a", "GET", &read, None).await.expect(200);
    let of_b = apps.ask("b", "GET", "/v1/runs", None).await.expect(200);
    assert_eq!(of_b["runs"].as_array().map(Vec::len), Some(0), "{of_b}");
}

#[tokio::test]
async fn a_run_goes_to_its_creator_and_its_call_is_answered_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let until = dir.path().join("go");
    let arguments = json!({"text": until}).to_string();
    let apps = handed_over(two_calls("plain_slow", &arguments), "plain").await;
    assert_is_of_a(&apps).await;
    fs::write(&until, "").expect("the file can be written");
    assert!(apps.mantyx.answer("tu_1").await["result"].is_string(), "its first driver posts it");
    apps.mantyx.release("go");
    assert_eq!(apps.mantyx.answer("tu_2").await["result"], "noted: x");
    assert_eq!(apps.executions(), 2, "each call was made once");
}

#[tokio::test]
async fn a_crash_leaves_no_call_of_its_first_driver_unanswered() {
    let mut apps = handed_over(two_calls("plain_hang", "{}"), "plain").await;
    for _ in 0..2 {
        restart(&mut apps).await;
        assert_unknown(&apps.mantyx.answer("tu_1").await);
        assert_is_of_a(&apps).await;
    }
    apps.mantyx.release("go");
    assert_eq!(apps.mantyx.answer("tu_2").await["result"], "noted: x", "it is driven for a");
    assert_eq!(apps.executions(), 2);
}

#[tokio::test]
async fn crash_leaves_no_call_unanswered_where_the_creator_wants_no_tools() {
    let mut apps = handed_over(two_calls("plain_hang", "{}"), "none").await;
    restart(&mut apps).await;
    assert_unknown(&apps.mantyx.answer("tu_1").await);
    assert_is_of_a(&apps).await;
    assert_eq!(apps.attach("a", RUN).await.status, 202, "its own, and not driven");
    assert_eq!(apps.executions(), 1);
}
