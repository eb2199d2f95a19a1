//! `run`: what is submitted, what is shown of it, how it ends, and that nothing goes on alone.

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{FAILED, OK, Ran, USAGE, desk::Desk, run, with};
use crate::{
    bridge::Bridge,
    frames::Script,
    harness::{Harness, LEDGER_TOOLS, tool_names},
    mantyx::{CREDENTIAL, Mantyx},
    wait,
};

const CANCELLED: &str = "cancel";

/// A run that says something and then waits to be cancelled.
fn endless() -> Script {
    Script::new().delta("thinking").until(CANCELLED).event("cancelled", r#"{"reason":"user"}"#)
}

async fn wait_cancel(rig: &Harness) {
    wait::soon("the run should be cancelled upstream", async || {
        (!rig.mantyx.requests("POST", "/cancel").is_empty()).then_some(())
    })
    .await;
    rig.mantyx.release(CANCELLED);
}

#[tokio::test]
async fn the_answer_is_on_stdout_and_the_calls_are_on_stderr() {
    let rig = Harness::start().await;
    let calls = Script::new()
        .delta("Look")
        .delta("ing")
        .event("assistant_message", r#"{"text":"Looking","turn":0}"#)
        .mcp("tu_1", "plain", "plain_note", r#"{"text":"a"}"#)
        .answered("tu_1")
        .delta("Done.")
        .event("result", r#"{"subtype":"success","text":"Looking\nDone."}"#);
    rig.mantyx.script(calls.clone());
    let ran = with(&rig, &["run", "hi"]).await.expect(OK);
    assert_eq!(ran.out, "Looking\nDone.\n");
    assert_eq!(ran.err, "-> plain_note {\"text\":\"a\"}\n<- plain_note: (its answer)\n");
    let spec = rig.mantyx.only("POST", "/agent-runs").value();
    assert_eq!(tool_names(&spec), LEDGER_TOOLS);
    assert_eq!((&spec["prompt"], &spec["modelId"]), (&json!("hi"), &Value::Null));
    assert_eq!(spec["systemPrompt"], "You are a helpful assistant.");

    rig.mantyx.script(calls);
    let ran = with(&rig, &["run", "hi", "--json"]).await.expect(OK);
    let events: Vec<Value> =
        ran.out.lines().map(|line| serde_json::from_str(line).expect("an event a line")).collect();
    let kinds: Vec<_> = events.iter().filter_map(|event| event["type"].as_str()).collect();
    assert_eq!(kinds.first(), Some(&"assistant_delta"), "{kinds:?}");
    assert_eq!((kinds.len(), kinds.last()), (7, Some(&"result")), "{kinds:?}");
    assert_eq!(ran.err, "");
}

#[tokio::test]
async fn options_of_run_are_submitted() {
    let rig = Harness::start().await;
    let sent = async |args: &[&str]| {
        rig.mantyx.script(Script::new().done());
        let ran = with(&rig, &[&["run"], args].concat()).await.expect(OK);
        assert_eq!(ran.out, "done\n", "the text of the result, where nothing was said before");
        rig.mantyx.requests("POST", "/agent-runs").pop().expect("a submission").value()
    };
    let spec =
        sent(&["--model", "m", "--system", "Be \"brief\".", "--backends", "none", "x"]).await;
    let wanted = json!({ "modelId": "m", "systemPrompt": "Be \"brief\".", "prompt": "x" });
    assert_eq!(spec, wanted, "and no tools");
    let spec = sent(&["--agent", "agent_1", "--backends", "none", "x"]).await;
    assert_eq!(spec, json!({ "agentId": "agent_1", "prompt": "x" }));

    let refused = with(&rig, &["run", "--backends", "nobody", "x"]).await.expect(FAILED);
    assert!(refused.err.contains("nobody"), "{}", refused.err);
    with(&rig, &["run", "--agent", "a", "--system", "b", "x"]).await.expect(USAGE);
    with(&rig, &["run", " "]).await.expect(USAGE);
}

#[tokio::test]
async fn a_run_that_fails_is_a_failure() {
    let rig = Harness::start().await;
    let ends = async |kind: &str, data: &str| -> Ran {
        rig.mantyx.script(Script::new().delta("Hm").event(kind, data));
        let ran = with(&rig, &["run", "x"]).await.expect(FAILED);
        assert_eq!(ran.out, "Hm\n");
        ran
    };
    let error = ends("error", r#"{"error":"Out of tokens.","code":"truncation"}"#).await;
    assert_eq!(error.err, "Out of tokens.\n");
    let error = ends("result", r#"{"subtype":"error_max_turns"}"#).await;
    assert_eq!(error.err, "error_max_turns\n");
    let error = ends("cancelled", r#"{"reason":"user"}"#).await;
    assert_eq!(error.err, "the run is cancelled\n");

    let mantyx = Mantyx::start().await;
    let upstream =
        format!("upstream: {{base_url: '{}', credential: {CREDENTIAL}}}\n", mantyx.url());
    let rig = Bridge::ready(&upstream).await;
    let args = ["run", "x", "-c", &super::client_config(&rig)];
    let nowhere = run(&args).await.expect(FAILED);
    assert!(nowhere.err.contains("upstream.workspace"), "{}", nowhere.err);
}

#[tokio::test]
async fn ctrl_c_cancels_the_run() {
    let rig = Harness::start().await;
    let config = rig.client_config();
    rig.mantyx.script(endless());
    let mut desk = Desk::on_terminal(80, 24, &["run", "x", "-c", &config]);
    desk.says("thinking").await;
    desk.type_in("\x03");
    wait_cancel(&rig).await;
    let ran = desk.ended().await.expect(FAILED);
    assert!(ran.out.contains("thinking") && ran.out.contains("cancelled"), "{}", ran.out);

    rig.mantyx.script(Script::new().delta("thinking").until("nothing"));
    let mut desk = Desk::start(&["run", "x", "-c", &config]);
    desk.says("thinking").await;
    desk.signal(Signal::INT);
    wait::soon("the second is cancelled, too", async || {
        (rig.mantyx.requests("POST", "/cancel").len() == 2).then_some(())
    })
    .await;
    // MANTYX says no more, and a second Ctrl-C waits for nothing.
    desk.signal(Signal::INT);
    let ran = desk.ended().await.expect(FAILED);
    assert!(ran.err.contains("cancel"), "{}", ran.err);
}

#[tokio::test]
async fn reader_that_closes_stdout_leaves_no_run_behind() {
    let rig = Harness::start().await;
    rig.mantyx.script(Script::new().until("go").delta("thinking").until(CANCELLED));
    let (reader, writer) = std::io::pipe().expect("pipes can be made");
    let mut command = tokio::process::Command::from(crate::bridge::command());
    command.args(["run", "x", "-c", &rig.client_config()]).stdout(writer).kill_on_drop(true);
    let mut child = command.spawn().expect("it starts");
    drop((reader, command));
    rig.mantyx.release("go");
    wait_cancel(&rig).await;
    let limit = std::time::Duration::from_secs(20);
    let status = tokio::time::timeout(limit, child.wait()).await.expect("it ends");
    assert_eq!(status.expect("it was waited for").code(), OK);
}

#[tokio::test]
async fn a_run_is_shown_on_over_a_crash_of_the_daemon() {
    let mut rig = Harness::start().await;
    let more = Script::new().delta("one").until("go").delta(", two").done();
    rig.mantyx.script(more);
    let desk = Desk::start(&["run", "x", "-c", &rig.client_config()]);
    desk.says("one").await;
    rig.bridge.kill9();
    rig.bridge.restart().await;
    rig.mantyx.release("go");
    let ran = desk.ended().await.expect(OK);
    assert_eq!(ran.out, "one, two\n");
}
