//! A call that stands in two streams, and a crash between the two: it is made by the driver that
//! claimed it, and by no other, in whatever order the streams bring it.

use crate::{
    evals::call_of,
    frames::Script,
    owners::{Apps, in_agent_run, in_eval},
    storage, wait,
};

/// What the call does that the first stream brings: it is answered before the crash, or is in
/// flight.
const TOOLS: [&str; 2] = ["plain_note", "plain_hang"];

/// The call `tu_1` of the agent run `run_a` by this tool, in its own stream.
fn own(script: Script, tool: &str) -> Script {
    script.mcp("tu_1", "plain", tool, r#"{"text":"tu_1"}"#)
}

/// The same in an eval, which has another call behind it.
fn of_second_eval(tool: &str) -> Script {
    let script = Script::new().until("later").raw_event(&call_of("run_a", "tu_1", tool));
    script.raw_event(&in_eval("tu_2")).until("never")
}

/// Waits until the first driver has made `tu_1`, kills the bridge and has it drive on.
async fn crash(apps: &mut Apps, tool: &str) {
    wait::soon("the call should be made", async || (apps.executions() == 1).then_some(())).await;
    if tool == "plain_note" {
        apps.mantyx.taken("tu_1").await;
    }
    apps.bridge.kill9();
    apps.bridge.restart().await;
    apps.wait_for_backend().await;
}

/// The call has one answer, which says what is known of it.
async fn assert_answered(apps: &Apps, tool: &str) {
    let answer = apps.mantyx.taken("tu_1").await;
    let error = answer["error"].as_str().unwrap_or_default();
    assert_eq!(error.starts_with("OUTCOME_UNKNOWN"), tool == "plain_hang", "{answer}");
}

#[tokio::test]
async fn an_eval_does_not_make_after_a_crash_what_its_agent_runs_driver_made() {
    for tool in TOOLS {
        let mut apps = Apps::start().await;
        apps.submit("a", "eval-runs", of_second_eval(tool)).await;
        // Nothing tells yet that the run is of an eval.
        apps.mantyx.has_run("run_a", own(Script::new(), tool).until("never"));
        assert_eq!(apps.attach("a", "run_a").await.status, 202);
        crash(&mut apps, tool).await;
        apps.mantyx.release("later");
        apps.mantyx.answer("tu_2").await;
        assert_answered(&apps, tool).await;
        assert_eq!(apps.executions(), 2, "{tool}");
    }
}

#[tokio::test]
async fn an_agent_runs_driver_does_not_make_after_a_crash_what_an_eval_made() {
    for tool in TOOLS {
        let mut apps = Apps::start().await;
        let first = call_of("run_a", "tu_1", tool);
        let eval = Script::new().until("named").raw_event(&first).until("never");
        apps.submit("a", "eval-runs", eval).await;
        let script = own(Script::new().delta("x").until("later"), tool);
        apps.mantyx.has_run("run_a", in_agent_run(script, "tu_2").delta("y").until("never"));
        assert_eq!(apps.attach("a", "run_a").await.status, 202);
        apps.settled("a", "run_a").await;
        apps.mantyx.release("named");
        crash(&mut apps, tool).await;
        apps.mantyx.release("later");
        wait::soon("the driver of the agent run should read on", async || {
            let run = apps.ask("a", "GET", "/v1/runs/run_a", None).await.expect(200);
            (run["lastSeq"] == 4).then_some(())
        })
        .await;
        assert_answered(&apps, tool).await;
        assert_eq!(apps.executions(), 1, "{tool}: the eval has not brought the other one");
    }
}

#[tokio::test]
async fn call_of_two_evals_is_made_by_one_over_a_crash_too() {
    for tool in TOOLS {
        let mut apps = Apps::start().await;
        let first = Script::new().raw_event(&call_of("run_a", "tu_1", tool)).until("never");
        apps.submit("a", "eval-runs", first).await;
        apps.submit("a", "eval-runs", of_second_eval(tool)).await;
        crash(&mut apps, tool).await;
        apps.mantyx.release("later");
        apps.mantyx.answer("tu_2").await;
        assert_answered(&apps, tool).await;
        assert_eq!(apps.executions(), 2, "{tool}");
    }
}

#[tokio::test]
async fn the_agent_run_of_an_eval_that_is_lost_can_be_handed_over() {
    let tool = "plain_hang";
    let mut apps = Apps::start().await;
    let eval = Script::new().raw_event(&call_of("run_a", "tu_1", tool)).until("never");
    apps.submit("a", "eval-runs", eval).await;
    wait::soon("the call should be made", async || (apps.executions() == 1).then_some(())).await;
    apps.bridge.kill9();
    let journal = apps.bridge.state("journal");
    let mut bytes = std::fs::read(&journal).expect("the bridge has a journal");
    let at = storage::last(&bytes, "\"kind\":\"eval-runs\"");
    bytes[at] ^= 1;
    std::fs::write(&journal, &bytes).expect("a file of ours");
    apps.bridge.restart().await;
    apps.wait_for_backend().await;
    apps.mantyx.has_run("run_a", own(Script::new(), tool).until("never"));
    assert_eq!(apps.attach("b", "run_a").await.status, 404, "it is still a's");
    assert_eq!(apps.attach("a", "run_a").await.status, 202);
    assert_answered(&apps, tool).await;
    assert_eq!(apps.executions(), 1);
}
