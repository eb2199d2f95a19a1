//! What outlives the process besides the calls that are waited for: sessions, calls that go on and
//! their results, and the work that a stop leaves to the next start.

use rustix::process::Signal;
use serde_json::json;

use crate::{
    bridge::{API, Bridge, DRAIN},
    evals,
    frames::Script,
    harness::{Harness, LEDGER_TOOLS, tool_names},
    http::Request,
    mantyx::CREDENTIAL,
    peers,
    pending::{Gated, fetch, gated, learn, message, new_session, pending},
    recovery::{begun_task, messages, wait_journaled, with_agent},
    runs, wait,
};

const OWN: &str = r#"{"kind":"local","name":"own","parameters":{"n": 1.0}}"#;

#[tokio::test]
async fn a_session_keeps_its_tools() {
    let mut rig = Harness::start().await;
    let spec = format!(r#"{{"modelId":"m","tools":[{OWN}]}}"#);
    let path = format!("{API}/agent-sessions");
    let created = rig.bridge.api("POST", &path, Some(&spec)).await.expect(201);
    let session = created["sessionId"].as_str().expect("an id").to_owned();
    rig.bridge.kill9();
    rig.bridge.restart().await;
    let script = Script::one_call("tu_1", "plain", "plain_note", r#"{"text":"a"}"#);
    message(&rig, &session, script).await;
    let sent = rig.mantyx.requests("POST", "/messages").pop().expect("a message");
    assert_eq!(sent.text(), r#"{"prompt":"x"}"#, "nothing has changed, so it is left alone");
    assert_eq!(rig.mantyx.answer("tu_1").await["result"], "noted: a", "its run is driven");

    // The catalogs are others after the next start.
    rig.bridge.kill9();
    let config = std::fs::read_to_string(rig.bridge.config_path()).expect("the configuration");
    rig.bridge.set_config(&config.replacen("plain: {", "plain: {prefix: new_, ", 1));
    rig.bridge.restart().await;
    rig.bridge.wait_backend("plain", "ready").await;
    let script = Script::one_call("tu_2", "plain", "new_note", r#"{"text":"b"}"#);
    message(&rig, &session, script).await;
    let sent = rig.mantyx.requests("POST", "/messages").pop().expect("a message");
    assert!(sent.text().contains(OWN), "the app's own tool, as it wrote it: {}", sent.text());
    let names = tool_names(&sent.value());
    assert_eq!((names.len(), names[0].as_str()), (LEDGER_TOOLS.len() + 1, "own"), "{names:?}");
    assert!(names[1..].iter().all(|name| name.starts_with("new_")), "{names:?}");
    assert_eq!(rig.mantyx.answer("tu_2").await["result"], "noted: b");
}

#[tokio::test]
async fn the_result_of_a_long_call_can_be_fetched() {
    let Gated { mut rig, gate } = gated().await;
    let session = new_session(&rig).await;
    let script = Script::new().local("tu_1", "gate", "{}").answered("tu_1").done();
    message(&rig, &session, script).await;
    learn(&rig, "tu_1", "@call").await;
    gate.open();
    wait_journaled(&rig.bridge, "opened").await;
    rig.bridge.kill9();
    rig.bridge.restart().await;
    message(&rig, &session, fetch(Script::new(), "tu_2", 0).answered("tu_2").done()).await;
    assert_eq!(rig.mantyx.answer("tu_2").await, json!({"toolUseId": "tu_2", "result": "opened"}));
    assert_eq!(gate.calls(), 1);
}

#[tokio::test]
async fn a_long_call_that_a_crash_cut_off_is_told_as_unknown() {
    let Gated { mut rig, gate } = gated().await;
    let session = new_session(&rig).await;
    let script = Script::new().local("tu_1", "gate", "{}").answered("tu_1").done();
    message(&rig, &session, script).await;
    learn(&rig, "tu_1", "@call").await;
    rig.bridge.kill9();
    rig.bridge.restart().await;
    message(&rig, &session, fetch(Script::new(), "tu_2", 0).answered("tu_2").done()).await;
    let error = rig.mantyx.answer("tu_2").await["error"].as_str().unwrap_or_default().to_owned();
    assert!(error.contains("OUTCOME_UNKNOWN"), "{error}");
    assert_eq!(gate.calls(), 1, "it is not made again");
    gate.open();
}

#[tokio::test]
async fn the_long_task_of_an_agent_goes_on_over_a_crash() {
    let agent = peers::a2a_v1("1.0").await;
    let config = format!("a2a:\n  hr: {{url: \"{}\", pending_after: 100ms}}\n", agent.url());
    let mut rig = Harness::bare(&config).await;
    rig.bridge.wait_backend("hr", "ready").await;
    let script = Script::new().a2a("tu_1", "hr", "long 40").answered("tu_1").until("@call");
    rig.run(fetch(script, "tu_2", 60).answered("tu_2").done()).await;
    pending(&rig.mantyx.answer("tu_1").await);
    let task = begun_task(&agent).await;
    wait_journaled(&rig.bridge, &task).await;
    rig.bridge.kill9();
    rig.bridge.restart().await;
    learn(&rig, "tu_1", "@call").await;
    assert_eq!(rig.mantyx.answer("tu_2").await["result"], "worked 40");
    assert_eq!(messages(&agent), 1, "the message is sent once: {}", agent.log());
}

/// Its context and the task that waits for an answer, after a crash and after a stop.
#[tokio::test]
async fn a_conversation_with_an_agent_goes_on() {
    let agent = peers::a2a_v1("1.0").await;
    let mut rig = Harness::bare(&format!("a2a:\n  hr: {{url: \"{}\"}}\n", agent.url())).await;
    let (own, other) = (new_session(&rig).await, new_session(&rig).await);
    let says = async |rig: &Harness, session: &str, id: &str, text: &str| {
        rig.bridge.wait_backend("hr", "ready").await;
        message(rig, session, Script::new().a2a(id, "hr", text).answered(id).done()).await;
        rig.mantyx.answer(id).await["result"].as_str().expect("a result").to_owned()
    };
    let context = says(&rig, &own, "tu_1", "context").await;
    rig.bridge.kill9();
    rig.bridge.restart().await;
    assert_eq!(says(&rig, &own, "tu_2", "context").await, context);
    assert_ne!(says(&rig, &other, "tu_3", "context").await, context);
    let asked = says(&rig, &own, "tu_4", "input").await;
    assert!(asked.starts_with("Which day?"), "{asked}");
    rig.bridge.stop().await;
    rig.bridge.restart().await;
    assert_eq!(says(&rig, &other, "tu_5", "msg Monday").await, "Monday");
    assert_eq!(says(&rig, &own, "tu_6", "Friday").await, "day: Friday");
    assert_eq!(says(&rig, &own, "tu_7", "context").await, context);
}

#[tokio::test]
async fn a_stop_leaves_the_task_of_an_agent_to_the_next_start() {
    let agent = peers::a2a_v1("1.0").await;
    let (mut bridge, mantyx) = with_agent("1.0", &agent).await;
    mantyx.script(Script::new().a2a("tu_1", "hr", "long 40").answered("tu_1").done());
    bridge.post_run(r#"{"modelId":"m","prompt":"hi"}"#).await;
    let task = begun_task(&agent).await;
    wait_journaled(&bridge, &task).await;
    // The second signal spares the test the 30 s that calls have to end.
    bridge.process().signal(Signal::TERM);
    wait::soon("the bridge should stop", async || bridge.log().contains("stopping").then_some(()))
        .await;
    bridge.process().signal(Signal::TERM);
    bridge.process().ended(DRAIN).await;
    // It has ended; this only says so to the kit.
    bridge.kill9();
    assert!(mantyx.posts("tu_1").is_empty(), "it is answered by nobody yet");
    bridge.restart().await;
    assert_eq!(mantyx.taken("tu_1").await["result"], "worked 40", "the task's own result");
    assert_eq!(messages(&agent), 1, "the message is sent once: {}", agent.log());
    assert!(!agent.log().contains("CANCELLED"), "{}", agent.log());
}

#[tokio::test]
async fn an_eval_goes_on() {
    let mut rig = Harness::start().await;
    let script = Script::new()
        .raw_event(&evals::call_of("run_a", "tu_hang", "plain_hang"))
        .raw_event(&evals::call_of("run_a", "tu_done", "plain_note"))
        .until("the end")
        .raw_event(&evals::flat("run_completed", ""));
    let run = evals::start(&rig, script).await;
    rig.mantyx.answer("tu_done").await;
    rig.wait_executions(2).await;
    rig.bridge.kill9();
    rig.bridge.restart().await;
    let error = rig.mantyx.answer("tu_hang").await["error"].to_string();
    assert!(error.contains("OUTCOME_UNKNOWN"), "{error}");
    let to: Vec<_> = rig.mantyx.posts("tu_hang").into_iter().map(|post| post.target).collect();
    assert_eq!(to, [format!("{API}/agent-runs/run_a/tool-results")], "of its agent run");
    rig.mantyx.release("the end");
    let id = run["runId"].as_str().expect("an id");
    wait::soon("the eval should end", async || {
        let shown = rig.bridge.api("GET", &format!("/v1/runs/{id}"), None).await.expect(200);
        (shown["state"] == "ended").then_some(())
    })
    .await;
    assert_eq!(rig.executions().len(), 2);
    // The crash may have come before MANTYX's word that it has the answer was on disk.
    let answers: Vec<_> = rig.mantyx.posts("tu_done").into_iter().map(|post| post.body).collect();
    assert!(answers.iter().all(|answer| *answer == answers[0]), "it has one answer: {answers:?}");
}

#[tokio::test]
async fn a_run_that_was_handed_over_goes_on() {
    let mut rig = Harness::start().await;
    let script = Script::new()
        .mcp("tu_hang", "plain", "plain_hang", "{}")
        .answered("tu_hang")
        .mcp("tu_next", "plain", "plain_note", r#"{"text":"x"}"#)
        .answered("tu_next")
        .done();
    let run = runs::submit_apart(&rig, script).await;
    runs::attach(&rig, &run, "{}").await;
    rig.wait_executions(1).await;
    rig.bridge.kill9();
    rig.bridge.restart().await;
    let error = rig.mantyx.answer("tu_hang").await["error"].to_string();
    assert!(error.contains("OUTCOME_UNKNOWN"), "{error}");
    assert_eq!(rig.mantyx.answer("tu_next").await["result"], "noted: x");
    assert_eq!(rig.executions().len(), 2, "nothing ran twice");
}

/// A request of an app that has a credential of its own.
fn with_own(bridge: &Bridge, method: &str, target: &str) -> Request {
    let request = Request::new(method, target).header("X-API-Key", bridge.token());
    request.bearer(CREDENTIAL)
}

/// Credentials are not kept, so the bridge waits until the app shows its own again.
#[tokio::test]
async fn a_run_with_its_apps_own_credential_waits_for_it() {
    let mut rig = Harness::start().await;
    rig.bridge.kill9();
    let config = std::fs::read_to_string(rig.bridge.config_path()).expect("the configuration");
    rig.bridge.set_config(&config.replacen(CREDENTIAL, "passthrough", 1));
    rig.bridge.restart().await;
    rig.bridge.wait_backend("plain", "ready").await;
    let script = Script::new().mcp("tu_1", "plain", "plain_hang", "{}").answered("tu_1").done();
    rig.mantyx.script(script);
    let post = with_own(&rig.bridge, "POST", &format!("{API}/agent-runs"));
    let run = post.json(r#"{"prompt":"x"}"#).answer(rig.bridge.addr()).await.expect(202);
    rig.wait_executions(1).await;
    rig.bridge.kill9();
    rig.bridge.restart().await;
    wait::soon("the run should be waited for", async || {
        rig.bridge.log().contains("app's credential").then_some(())
    })
    .await;
    assert!(rig.mantyx.posts("tu_1").is_empty());
    let stream = run["streamUrl"].as_str().expect("a stream");
    with_own(&rig.bridge, "GET", stream).answer(rig.bridge.addr()).await;
    let error = rig.mantyx.answer("tu_1").await["error"].to_string();
    assert!(error.contains("OUTCOME_UNKNOWN"), "{error}");
}
