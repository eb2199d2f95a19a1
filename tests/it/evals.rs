//! Eval runs: one stream for many agent runs, whose calls name the run that they belong to.

use std::{process::Stdio, time::Duration};

use serde_json::{Value, json};

use crate::{
    bridge::API,
    frames::Script,
    harness::{Harness, ledger_in},
    http::Request,
    peers,
    sse::{self, Stream},
    wait,
};

const EVAL: &str = r#"{"datasetId":"d","agentId":"a"}"#;

/// An event in the flat layout of eval streams, which have no seq.
pub(crate) fn flat(kind: &str, rest: &str) -> String {
    format!("event: {kind}\ndata: {{\"type\":\"{kind}\"{rest}}}\n\n")
}

pub(crate) fn call_of(run: &str, id: &str, name: &str) -> String {
    flat(
        "local_tool_call",
        &format!(
            r#","agentRunId":"{run}","toolUseId":"{id}","name":"{name}","args":{{"text":"{id}"}},"kind":"mcp_local","mcpServer":"plain","mcpToolName":"{name}""#
        ),
    )
}

fn call(run: &str, id: &str) -> String {
    call_of(run, id, "plain_note")
}

/// The calls `tu_{name}a` and `tu_{name}b` of two agent runs, interleaved.
fn two_runs(name: &str) -> Script {
    let (a, b) = (format!("tu_{name}a"), format!("tu_{name}b"));
    Script::new()
        .raw_event(&flat("case_started", r#","caseId":"c""#))
        .raw_event(&call("run_a", &a))
        .raw_event(&call("run_b", &b))
        .until(&b)
        .raw_event(&flat(
            "local_tool_result_in",
            &format!(r#","agentRunId":"run_b","toolUseId":"{b}""#),
        ))
        // The end of one agent run is not the end of the eval.
        .raw_event(&flat("result", r#","agentRunId":"run_b""#))
        .until(&a)
        .raw_event(&flat("run_completed", ""))
}

/// What an app must see of [`two_runs`].
const TWO_RUNS: [&str; 6] =
    ["case_started", "tool_call", "tool_call", "local_tool_result_in", "result", "run_completed"];

pub(crate) async fn start(rig: &Harness, script: Script) -> Value {
    rig.mantyx.script(script);
    let answer = rig.bridge.api("POST", &format!("{API}/eval-runs"), Some(EVAL)).await;
    let injected = answer.header("x-bridge-injected").map(str::to_owned);
    let run = answer.expect(202);
    assert_eq!(injected.as_deref(), Some("plain=8"));
    run
}

/// The events of an eval up to the end of the stream.
async fn events(rig: &Harness, run: &Value) -> Vec<Value> {
    let url = run["streamUrl"].as_str().expect("a stream");
    let mut stream = Stream::open(&rig.bridge, url).await;
    let mut events = Vec::new();
    while let Some(frame) = stream.event().await {
        let event = sse::envelope(&frame);
        assert_eq!(event["type"], sse::event_type(&frame).as_str(), "one type, twice");
        events.push(event);
    }
    events
}

fn types(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap_or_default()).collect()
}

#[tokio::test]
async fn calls_of_an_eval_are_answered_in_their_runs() {
    let rig = Harness::start().await;
    let run = start(&rig, two_runs("")).await;
    for (id, agent_run) in [("tu_a", "run_a"), ("tu_b", "run_b")] {
        assert_eq!(rig.mantyx.answer(id).await["result"], format!("noted: {id}"));
        let post = rig.mantyx.posts(id).pop().expect("a POST");
        assert_eq!(post.target, format!("{API}/agent-runs/{agent_run}/tool-results"));
    }
    let events = events(&rig, &run).await;
    assert_eq!(types(&events), TWO_RUNS, "an SDK would answer a local_tool_call");
    let expected = json!({
        "type": "tool_call", "agentRunId": "run_a", "toolUseId": "tu_a",
        "name": "plain_note", "input": {"text": "tu_a"},
    });
    assert_eq!(events[1], expected, "flat, as all events of an eval");
    let shown = format!("/v1/runs/{}", run["runId"].as_str().expect("an id"));
    let shown = rig.bridge.api("GET", &shown, None).await.expect(200);
    assert_eq!((&shown["kind"], &shown["state"]), (&"eval".into(), &"ended".into()), "{shown}");
    assert_eq!(shown["calls"], 2, "{shown}");
}

#[tokio::test]
async fn an_eval_that_is_cut_anywhere_says_and_runs_everything_once() {
    let rig = Harness::start().await;
    let length = two_runs("00").bytes().len();
    let offsets: Vec<_> = (0..length).step_by(37).collect();
    let mut runs = Vec::new();
    for (number, offset) in offsets.iter().enumerate() {
        // MANTYX begins anew each time, or goes on; nothing in the stream tells which.
        let script = two_runs(&format!("{number:02}")).cut([*offset]);
        let script = if number % 2 == 0 { script } else { script.forgetful() };
        runs.push(start(&rig, script).await);
    }
    for (number, (run, offset)) in runs.iter().zip(&offsets).enumerate() {
        assert_eq!(types(&events(&rig, run).await), TWO_RUNS, "cut after {offset} bytes");
        for id in [format!("tu_{number:02}a"), format!("tu_{number:02}b")] {
            assert_eq!(rig.mantyx.answer(&id).await["result"], format!("noted: {id}"));
        }
    }
    assert_eq!(rig.executions().len(), 2 * offsets.len(), "each call ran once");
}

#[tokio::test]
async fn a_call_that_an_eval_repeats_runs_once() {
    let rig = Harness::start().await;
    let script = Script::new()
        .raw_event(&call("run_a", "tu_1"))
        .raw_event(&call("run_a", "tu_1"))
        .raw_event(&call("run_b", "tu_1"))
        .raw_event(&call("run_a", "tu_1"))
        .raw_event(&call("run_b", "tu_2"))
        .until("all of them")
        .raw_event(&flat("run_completed", ""));
    let run = start(&rig, script).await;
    rig.mantyx.wait_posts("tu_1", 2).await;
    rig.mantyx.answer("tu_2").await;
    rig.mantyx.release("all of them");
    events(&rig, &run).await;
    assert_eq!(rig.executions().len(), 3, "tu_1 of each agent run, and tu_2");
    let mut to: Vec<_> = rig.mantyx.posts("tu_1").into_iter().map(|post| post.target).collect();
    to.sort();
    let expected = ["run_a", "run_b"].map(|id| format!("{API}/agent-runs/{id}/tool-results"));
    assert_eq!(to, expected);
}

#[tokio::test]
async fn an_eval_with_numbers_is_resumed_by_them() {
    let rig = Harness::start().await;
    let data = r#"{"agentRunId":"run_a","toolUseId":"tu_1","name":"plain_note","args":{"text":"x"},"kind":"mcp_local","mcpServer":"plain"}"#;
    let script = Script::new().delta("a").delta("b").event("local_tool_call", data);
    let script = script.until("tu_1").event("run_completed", "{}").cut([150, 300]);
    let run = start(&rig, script).await;
    let events = events(&rig, &run).await;
    let seqs: Vec<_> = events.iter().filter_map(|event| event["seq"].as_u64()).collect();
    assert_eq!(seqs, [1, 2, 3, 4]);
    assert_eq!(rig.mantyx.answer("tu_1").await["result"], "noted: x");
    let resumed = rig.mantyx.requests("GET", "/stream");
    assert!(resumed.iter().any(|request| request.target.contains("lastSeq=")), "{resumed:?}");
}

/// The stream breaks in the last event, and again at the same place: MANTYX's snapshot tells the
/// bridge of the end, and an app still gets the last event.
#[tokio::test]
async fn an_app_gets_the_last_event_that_the_bridge_never_read() {
    let rig = Harness::start().await;
    let before = Script::new().raw_event(&call("run_a", "tu_1")).until("tu_1");
    let cut = before.bytes().len() + 10;
    let script = before.raw_event(&flat("run_completed", "")).cut([cut, cut]);
    rig.mantyx.canned(
        "GET",
        &format!("{API}/eval-runs/run_1"),
        &["HTTP/1.1 200 OK", "Content-Type: application/json"],
        r#"{"id":"run_1","status":"succeeded"}"#,
    );
    let run = start(&rig, script).await;
    let path = format!("/v1/runs/{}", run["runId"].as_str().expect("an id"));
    wait::soon("the eval should have ended", async || {
        let shown = rig.bridge.api("GET", &path, None).await.expect(200);
        (shown["state"] == "ended").then_some(())
    })
    .await;
    assert_eq!(types(&events(&rig, &run).await), ["tool_call", "run_completed"]);
}

#[tokio::test]
async fn an_eval_that_is_over_is_not_waited_for() {
    let rig = Harness::start().await;
    // The last event is lost, and MANTYX replays nothing: only its snapshot tells of the end.
    let script = Script::new().raw_event(&call("run_a", "tu_1")).until("tu_1").forgetful();
    let run = start(&rig, script).await;
    rig.mantyx.answer("tu_1").await;
    assert_eq!(types(&events(&rig, &run).await), ["tool_call"]);
    assert_eq!(rig.bridge.status().await["runs"]["driven"], 0);
}

#[tokio::test]
async fn cancelling_an_eval_cancels_its_calls() {
    let rig = Harness::start().await;
    let script = Script::new()
        .raw_event(&call_of("run_a", "tu_1", "plain_hang"))
        .raw_event(&call_of("run_b", "tu_2", "plain_hang"))
        .until("never");
    let run = start(&rig, script).await;
    rig.wait_executions(2).await;
    let cancel = format!("{API}/eval-runs/{}/cancel", run["runId"].as_str().expect("an id"));
    rig.bridge.api("POST", &cancel, None).await.expect(200);
    assert_eq!(rig.mantyx.requests("POST", "/cancel").len(), 1, "forwarded");
    for id in ["tu_1", "tu_2"] {
        let error = rig.mantyx.answer(id).await["error"].to_string();
        assert!(error.contains("cancelled"), "{error}");
    }
    let calls = rig.bridge.api("GET", "/v1/calls", None).await.expect(200);
    for call in calls["calls"].as_array().expect("calls") {
        assert_eq!((&call["state"], &call["outcome"]), (&"answered".into(), &"cancelled".into()));
    }
}

/// Those that are waited for, and those that go on after a first answer.
#[tokio::test]
async fn cancelling_an_agent_run_of_an_eval_cancels_its_calls_and_no_others() {
    for keys in ["", "pending_after: 300ms,"] {
        let rig = Harness::with_keys(keys, "", &[], "").await;
        let script = Script::new()
            .raw_event(&call_of("run_a", "tu_1", "plain_hang"))
            .raw_event(&call_of("run_b", "tu_2", "plain_hang"))
            .until("never");
        let run = start(&rig, script).await;
        rig.wait_executions(2).await;
        if !keys.is_empty() {
            rig.mantyx.answer("tu_1").await;
            rig.mantyx.answer("tu_2").await;
        }
        let cancel = format!("{API}/agent-runs/run_a/cancel");
        rig.mantyx.canned("POST", &cancel, &["HTTP/1.1 200 OK"], "{}");
        rig.bridge.api("POST", &cancel, None).await.expect(200);
        wait::soon("the call of the agent run should be cancelled", async || {
            let calls = rig.bridge.api("GET", "/v1/calls", None).await.expect(200);
            let calls = calls["calls"].as_array().expect("calls").clone();
            calls.iter().any(|it| it["outcome"] == "cancelled").then_some(calls)
        })
        .await
        .iter()
        .for_each(|call| match call["outcome"] == "cancelled" {
            true => assert_eq!(call["toolUseId"], "tu_1", "{call}"),
            false => assert_eq!(call["toolUseId"], "tu_2", "{call}"),
        });
        let shown = format!("/v1/runs/{}", run["runId"].as_str().expect("an id"));
        let shown = rig.bridge.api("GET", &shown, None).await.expect(200);
        assert_eq!(shown["callsInFlight"], 1, "the other run's goes on: {shown}");
    }
}

#[tokio::test]
async fn results_of_an_evals_calls_are_the_bridges_to_post() {
    let rig = Harness::start().await;
    let own = flat(
        "local_tool_call",
        r#","agentRunId":"run_a","toolUseId":"tu_app","name":"mine","args":{},"kind":"local""#,
    );
    let script = Script::new().raw_event(&call("run_a", "tu_1")).raw_event(&own);
    let script = script.until("tu_1").until("tu_app").raw_event(&flat("run_completed", ""));
    let run = start(&rig, script).await;
    rig.mantyx.answer("tu_1").await;
    let results = format!("{API}/agent-runs/run_a/tool-results");
    let post = async |id: &str| {
        let body = format!(r#"{{"toolUseId":"{id}","result":"mine"}}"#);
        rig.bridge.api("POST", &results, Some(&body)).await
    };
    assert_eq!(post("tu_1").await.expect_error(404)["error"], "unknown_tool_use");
    post("tu_app").await.expect(200);
    assert_eq!(rig.mantyx.answer("tu_app").await["result"], "mine", "forwarded, once");
    let events = events(&rig, &run).await;
    assert_eq!(types(&events), ["tool_call", "local_tool_call", "run_completed"]);
}

#[tokio::test]
async fn an_eval_of_another_app_is_not_there() {
    let dir = tempfile::TempDir::new().expect("the temporary directory is writable");
    let plain = peers::ledger(&ledger_in(&dir), &[]);
    let token = |app: &str| format!("token-of-{app}-1234567890123456789012");
    let config = format!(
        "mcp:\n  plain: {plain}\napps:\n  one: {{token: {}}}\n  two: {{token: {}}}\n",
        token("one"),
        token("two")
    );
    let rig = Harness::bare(&config).await;
    let send = async |app: &str, method: &str, target: &str, body: Option<&str>| {
        let request = Request::new(method, target).bearer(&token(app));
        let request = if let Some(body) = body { request.json(body) } else { request };
        request.answer(rig.bridge.addr()).await
    };
    rig.mantyx.script(Script::new().raw_event(&call("run_a", "tu_1")).until("never"));
    let run = send("one", "POST", &format!("{API}/eval-runs"), Some(EVAL)).await.expect(202);
    rig.mantyx.answer("tu_1").await;
    let id = run["runId"].as_str().expect("an id");
    let result = r#"{"toolUseId":"tu_x","result":"no"}"#;
    struct Case {
        method: &'static str,
        target: String,
        body: Option<&'static str>,
    }
    for Case { method, target, body } in [
        Case { method: "GET", target: format!("{API}/eval-runs/{id}/stream"), body: None },
        Case { method: "POST", target: format!("{API}/eval-runs/{id}/cancel"), body: Some("{}") },
        Case {
            method: "POST",
            target: format!("{API}/agent-runs/run_a/tool-results"),
            body: Some(result),
        },
        Case { method: "POST", target: format!("{API}/agent-runs/run_a/cancel"), body: Some("{}") },
        Case { method: "GET", target: format!("/v1/runs/{id}"), body: None },
    ] {
        send("two", method, &target, body).await.expect_error(404);
    }
    assert!(rig.mantyx.requests("POST", "/cancel").is_empty(), "MANTYX is not asked");
    for (app, count) in [("one", 1), ("two", 0)] {
        for list in ["runs", "calls"] {
            let shown = send(app, "GET", &format!("/v1/{list}"), None).await.expect(200);
            assert_eq!(shown[list].as_array().map(Vec::len), Some(count), "{list} of {app}");
        }
    }
}

#[tokio::test]
async fn the_python_sdk_runs_an_eval_with_a_tool_of_its_own() {
    let rig = Harness::start().await;
    let own = flat(
        "local_tool_call",
        r#","agentRunId":"run_b","toolUseId":"tu_own","name":"add_numbers","args":{"a":2,"b":3},"kind":"local""#,
    );
    let script = Script::new()
        .raw_event(&flat("case_started", r#","caseId":"c""#))
        .raw_event(&call("run_a", "tu_1"))
        .raw_event(&own)
        .until("tu_1")
        .until("tu_own")
        .raw_event(&flat("run_completed", ""));
    rig.mantyx.script(script);
    let mut command = peers::sdk("eval_run.py");
    command.arg(rig.bridge.url()).arg(rig.bridge.token()).stdin(Stdio::null());
    let output = tokio::time::timeout(Duration::from_secs(60), command.output()).await;
    let output = output.expect("the SDK should be done in time").expect("the interpreter runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let seen: Value = serde_json::from_slice(&output.stdout).expect(&errors);
    assert_eq!(seen["status"], "succeeded");
    // It asks for the eval's state beside its stream, and may leave before the last event.
    let kinds: Vec<_> = seen["events"].as_array().expect("events").iter().take(3).collect();
    assert_eq!(kinds, ["case_started", "tool_call", "local_tool_call"]);
    assert_eq!(seen["ownCalls"], json!([{"a": 2, "b": 3}]), "its own tool ran once");
    assert_eq!(rig.mantyx.answer("tu_own").await["result"], "5");
    assert_eq!(rig.mantyx.answer("tu_1").await["result"], "noted: tu_1", "one answer, ours");
    let sent = rig.mantyx.only("POST", "/eval-runs").value();
    let kinds: Vec<_> = sent["agent"]["tools"].as_array().expect("refs").iter().collect();
    assert_eq!((kinds.len(), &kinds[0]["name"]), (2, &"add_numbers".into()), "{sent}");
    wait::soon("the driver should have ended", async || {
        (rig.bridge.status().await["runs"]["driven"] == 0).then_some(())
    })
    .await;
}
