//! A cancellation that reaches another replica than the one that drives ends the calls there.

use super::*;

/// What is cancelled, and how.
struct Way {
    /// The calls of it, and those that go on.
    ends: &'static [&'static str],
    goes_on: &'static [&'static str],
    method: &'static str,
    target: String,
}

/// An eval at the first replica, whose two agent runs each have a call under way.
async fn eval(it: &Two) -> String {
    let script = Script::new()
        .raw_event(&call_of("run_a", "tu_1", "plain_hang"))
        .raw_event(&call_of("run_b", "tu_2", "plain_hang"));
    it.mantyx.script(script.until("never"));
    submitted(&it.one, "eval-runs", r#"{"datasetId":"d","agentId":"a"}"#).await
}

/// A run at the first replica, submitted to `target`, with a call under way.
async fn run(it: &Two, target: &str) -> String {
    it.mantyx.script(Script::new().mcp("tu_1", "plain", "plain_hang", "{}").until("never"));
    submitted(&it.one, target, r#"{"prompt":"hi"}"#).await
}

async fn assert_ends(it: &Two, way: Way) {
    let Way { ends, goes_on, method, target } = way;
    wait::soon("the calls should be under way", async || {
        (it.executions() == ends.len() + goes_on.len()).then_some(())
    })
    .await;
    // Without an app's right to it, nothing ends.
    ask(&it.two, "b", method, &target, "{}").await.expect_error(404);
    it.mantyx.canned(method, &target, &["HTTP/1.1 200 OK"], "{}");
    assert_eq!(ask(&it.two, "a", method, &target, "{}").await.status, 200, "{target}");
    for id in ends {
        let answer = it.mantyx.answer(id).await;
        assert!(answer["error"].to_string().contains("cancelled"), "{target}: {answer}");
    }
    for id in goes_on {
        assert!(it.mantyx.posts(id).is_empty(), "{target}: {id} goes on");
    }
}

#[tokio::test]
async fn run_that_is_cancelled_at_another_replica_ends_its_call() {
    let it = two().await;
    let target = format!("{API}/agent-runs/{}/cancel", run(&it, "agent-runs").await);
    assert_ends(&it, Way { ends: &["tu_1"], goes_on: &[], method: "POST", target }).await;
}

#[tokio::test]
async fn session_that_is_ended_at_another_replica_ends_its_call() {
    let it = two().await;
    let session = ask(&it.one, "a", "POST", &format!("{API}/agent-sessions"), "{}").await;
    let session = session.value()["sessionId"].as_str().expect("an id").to_owned();
    run(&it, &format!("agent-sessions/{session}/messages")).await;
    let target = format!("{API}/agent-sessions/{session}");
    assert_ends(&it, Way { ends: &["tu_1"], goes_on: &[], method: "DELETE", target }).await;
}

#[tokio::test]
async fn eval_that_is_cancelled_at_another_replica_ends_its_calls() {
    let it = two().await;
    let target = format!("{API}/eval-runs/{}/cancel", eval(&it).await);
    assert_ends(&it, Way { ends: &["tu_1", "tu_2"], goes_on: &[], method: "POST", target }).await;
}

#[tokio::test]
async fn agent_run_that_is_cancelled_at_another_replica_ends_its_call_and_no_others() {
    let it = two().await;
    eval(&it).await;
    let target = format!("{API}/agent-runs/run_a/cancel");
    assert_ends(&it, Way { ends: &["tu_1"], goes_on: &["tu_2"], method: "POST", target }).await;
}
