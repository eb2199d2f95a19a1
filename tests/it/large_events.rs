//! Events that are larger than the bridge reads: a run ends with its last one, apps get it whole,
//! and a call of the bridge's is answered.

use std::time::Duration;

use crate::{
    bridge::API,
    evals::{call_of, flat, start},
    frames::Script,
    harness::Harness,
    process, sse, wait,
};

/// More than the bridge reads of one event.
const LARGE: usize = 9 << 20;
const NOTE: &str = r#"{"text":"x"}"#;

fn large() -> String {
    "y".repeat(LARGE)
}

async fn wait_ended(rig: &Harness, run: &str) {
    wait::until("the run should end", Duration::from_secs(60), async || {
        let shown = rig.bridge.api("GET", &format!("/v1/runs/{run}"), None).await.expect(200);
        (shown["state"] == "ended").then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_last_event_that_is_too_large_ends_the_run_and_reaches_the_app() {
    let mut rig = Harness::start().await;
    let data = format!(r#"{{"subtype":"success","text":"{}"}}"#, large());
    let script = || {
        let script = Script::new().mcp("tu_1", "plain", "plain_note", NOTE).answered("tu_1");
        script.event("result", &data)
    };
    let before = process::resident(rig.bridge.process().pid());
    for script in [script(), script().crlf().unframed(), script().pieces(100_001)] {
        let last = script.bytes();
        let run = rig.run(script).await;
        wait_ended(&rig, &run.run_id).await;
        for _ in 0..2 {
            let frames = sse::whole(&rig.bridge, &run.stream).await;
            assert_eq!(sse::seqs(&frames), [1, 2, 3]);
            let raw = &frames[2].raw;
            assert!(last.ends_with(raw), "its bytes are MANTYX's, {} of them", raw.len());
        }
        let opened = rig.mantyx.opened(&run.run_id);
        assert!(opened <= 3, "the driver reads it once: {opened}");
    }
    let grown = process::resident(rig.bridge.process().pid()).saturating_sub(before);
    assert!(grown < 48 << 20, "{} KiB", grown >> 10);
    assert_eq!(rig.bridge.status().await["runs"]["driven"], 0);
}

#[tokio::test]
async fn last_event_that_is_too_large_and_has_its_type_at_the_end_ends_the_run() {
    let rig = Harness::start().await;
    let data = format!(
        "id: 2\ndata: {{\"data\":{{\"text\":\"{}\"}},\"type\":\"result\",\"seq\":2}}\n\n",
        large()
    );
    rig.mantyx.script(Script::new().delta("a").raw_event(&data));
    let target = format!("{API}/agent-runs/run_1");
    let ok = ["HTTP/1.1 200 OK", "Content-Type: application/json"];
    rig.mantyx.canned("GET", &target, &ok, r#"{"id":"run_1","status":"succeeded"}"#);
    let run = rig.bridge.post_run("{}").await;
    assert_eq!(run.run_id, "run_1");
    wait_ended(&rig, &run.run_id).await;
    let text = rig.bridge.api("GET", &run.stream, None).await.text();
    assert!(text.ends_with(&data), "{} bytes", text.len());
}

#[tokio::test]
async fn the_last_event_of_an_eval_may_be_too_large() {
    let rig = Harness::start().await;
    let end = flat("run_completed", &format!(r#","report":"{}""#, large()));
    let script = Script::new()
        .raw_event(&flat("case_started", r#","caseId":"c""#))
        .raw_event(&call_of("run_a", "tu_1", "plain_note"))
        .until("tu_1")
        .raw_event(&flat("case_started", r#","caseId":"c""#))
        .raw_event(&end);
    let run = start(&rig, script).await;
    wait_ended(&rig, run["runId"].as_str().expect("an id")).await;
    let stream = run["streamUrl"].as_str().expect("a stream");
    let text = rig.bridge.api("GET", stream, None).await.text();
    assert!(text.ends_with(&end), "{} bytes", text.len());
    assert_eq!(text.matches("event: case_started").count(), 2, "nothing twice");
    assert_eq!(text.matches("event: tool_call").count(), 1);
    assert!(!text.contains("local_tool_call"), "masked");
}

/// Apps that read along get an event that is too large for the run's log from MANTYX, in its place.
#[tokio::test]
async fn an_event_that_is_not_kept_is_read_in_its_place() {
    let rig = Harness::start().await;
    let large = "y".repeat(2 << 20);
    let script = Script::new().delta("a").until("go").delta(&large).delta("b").done();
    let run = rig.run(script).await;
    let mut stream = sse::Stream::open(&rig.bridge, &run.stream).await;
    stream.event().await.expect("the first event");
    rig.mantyx.release("go");
    assert_eq!(sse::seqs(&stream.rest().await), [2, 3, 4]);
    assert_eq!(sse::seqs(&sse::whole(&rig.bridge, &run.stream).await), [1, 2, 3, 4]);
    assert_eq!(rig.mantyx.opened(&run.run_id), 3, "the driver's, and one for each reader");
}

#[tokio::test]
async fn a_call_that_is_too_large_is_answered_and_not_made() {
    let rig = Harness::start().await;
    let args = format!(r#"{{"text":"{}"}}"#, large());
    let script = Script::new()
        .mcp("tu_1", "plain", "plain_note", &args)
        .answered("tu_1")
        .mcp("tu_2", "plain", "plain_note", NOTE)
        .answered("tu_2")
        .done();
    let run = rig.run(script).await;
    let answer = rig.mantyx.answer("tu_1").await;
    let error = answer["error"].as_str().expect("an error");
    assert!(error.starts_with("tool_input_invalid") && error.contains("larger"), "{error}");
    assert_eq!(rig.mantyx.answer("tu_2").await["result"], "noted: x");
    let frames = sse::whole(&rig.bridge, &run.stream).await;
    assert_eq!(sse::seqs(&frames), (1..=5).collect::<Vec<_>>());
    assert!(sse::find(&frames, "local_tool_call").is_none(), "masked");
    assert_eq!(rig.executions().len(), 1);
}
