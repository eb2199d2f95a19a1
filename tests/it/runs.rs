//! Runs by the bridge's own API: submitted, handed over, and looked at.

use serde_json::Value;

use crate::{
    bridge::{API, Bridge},
    frames::Script,
    harness::{Harness, LEDGER_TOOLS, tool_names},
    mantyx::{CREDENTIAL, Mantyx},
    sse, wait,
};

const NOTE: &str = r#"{"text":"x"}"#;

/// Submits a run that the bridge does not drive, as an app does that talks to MANTYX itself.
pub(crate) async fn submit_apart(rig: &Harness, script: Script) -> String {
    rig.mantyx.script(script);
    rig.bridge.post_run_with("{}", &[("X-Bridge-Backends", "none")]).await.run_id
}

pub(crate) async fn attach(rig: &Harness, run: &str, body: &str) -> (u16, Value) {
    let answer = rig.bridge.api("POST", &format!("/v1/runs/{run}/attach"), Some(body)).await;
    (answer.status, answer.value())
}

#[tokio::test]
async fn runs_can_be_submitted() {
    let rig = Harness::start().await;
    rig.mantyx.script(Script::one_call("tu_1", "plain", "plain_note", r#"{"text":"a"}"#));
    let spec = r#"{"prompt":"x","n":1.0}"#;
    let answer = rig.bridge.api("POST", "/v1/runs", Some(spec)).await;
    let run = answer.expect(202);
    assert_eq!(answer.header("x-bridge-injected"), Some("plain=8"));
    assert_eq!(rig.mantyx.answer("tu_1").await["result"], "noted: a");
    let sent = rig.mantyx.only("POST", "/agent-runs");
    assert_eq!(sent.target, format!("{API}/agent-runs"), "the workspace of the configuration");
    assert_eq!(tool_names(&sent.value()), LEDGER_TOOLS);
    assert!(sent.text().ends_with(r#""prompt":"x","n":1.0}"#), "{}", sent.text());
    let (id, stream) = (run["runId"].as_str().expect("an id"), run["streamUrl"].as_str());
    assert_eq!(stream, Some(format!("{API}/agent-runs/{id}/stream").as_str()));
    let frames = sse::whole(&rig.bridge, stream.expect("a stream")).await;
    assert!(sse::find(&frames, "local_tool_call").is_none(), "served by the bridge");

    let refused = rig.bridge.request("POST", "/v1/runs").json(spec);
    let refused = refused.header("X-Bridge-Backends", "nobody").answer(rig.bridge.addr()).await;
    assert!(refused.expect_error(400)["candidates"].is_array());
    rig.bridge.api("POST", "/v1/runs", Some("[]")).await.expect_error(400);
    rig.bridge.api("POST", "/v1/runs", None).await.expect_error(415);
}

#[tokio::test]
async fn answer_of_mantyx_to_a_submitted_spec_comes_back() {
    let rig = Harness::start().await;
    let head = ["HTTP/1.1 400 Bad Request", "Content-Type: application/json"];
    let refusal = r#"{"error":"invalid_model","message":"No such model."}"#;
    rig.mantyx.canned("POST", &format!("{API}/agent-runs"), &head, refusal);
    let answer = rig.bridge.api("POST", "/v1/runs", Some("{}")).await;
    assert_eq!(answer.expect(400)["error"], "invalid_model");
}

#[tokio::test]
async fn submission_without_a_workspace_is_refused() {
    let mantyx = Mantyx::start().await;
    let upstream =
        format!("upstream: {{base_url: \"{}\", credential: {CREDENTIAL}}}\n", mantyx.url());
    let bridge = Bridge::ready(&upstream).await;
    for target in ["/v1/runs", "/v1/runs/run_1/attach"] {
        let error = bridge.api("POST", target, Some("{}")).await.expect_error(409);
        assert_eq!(error["error"], "no_workspace", "{error}");
    }
    assert!(mantyx.recorded().is_empty(), "MANTYX is not asked");
}

#[tokio::test]
async fn a_run_that_an_app_submitted_itself_can_be_handed_over() {
    let rig = Harness::start().await;
    let run = submit_apart(&rig, Script::one_call("tu_2", "plain", "plain_note", NOTE)).await;
    let (status, state) = attach(&rig, &run, "{}").await;
    assert_eq!((status, &state["state"]), (202, &"attaching".into()), "{state}");
    assert_eq!(state["backends"], serde_json::json!(["plain"]));
    let (status, again) = attach(&rig, &run, "{}").await;
    assert_eq!((status, &again["runId"]), (200, &run.as_str().into()), "driven already: {again}");
    assert_eq!(rig.mantyx.answer("tu_2").await["result"], "noted: x");
    let stream = state["streamUrl"].as_str().expect("a stream");
    let frames = sse::whole(&rig.bridge, stream).await;
    assert_eq!(sse::seqs(&frames), [1, 2, 3, 4], "what was before is there, too");
    assert!(sse::find(&frames, "local_tool_call").is_none(), "masked");
}

#[tokio::test]
async fn call_that_was_answered_before_its_run_is_handed_over_is_not_made_again() {
    let rig = Harness::start().await;
    let done = r#"{"toolUseId":"tu_done","output":"(its answer)"}"#;
    let script = Script::new()
        .mcp("tu_done", "plain", "plain_note", NOTE)
        .mcp("tu_open", "plain", "plain_note", NOTE)
        .local("tu_app", "plain_note", "{}")
        .event("local_tool_result_in", done)
        .answered("tu_open")
        .mcp("tu_next", "plain", "plain_note", NOTE)
        .answered("tu_next")
        .done();
    // The replay breaks in its middle, where an answered call looks like an open one.
    let run = submit_apart(&rig, script.cut([250])).await;
    let begun = attach(&rig, &run, "{}").await.1;
    for id in ["tu_open", "tu_next"] {
        assert_eq!(rig.mantyx.answer(id).await["result"], "noted: x");
    }
    let frames = sse::whole(&rig.bridge, begun["streamUrl"].as_str().expect("a stream")).await;
    assert_eq!(sse::seqs(&frames), (1..=8).collect::<Vec<_>>());
    assert!(rig.mantyx.posts("tu_done").is_empty(), "its answer stands in the log");
    assert!(rig.mantyx.posts("tu_app").is_empty(), "a tool of the app that has our name");
    let own = sse::find(&frames, "local_tool_call").expect("the app's own call");
    assert_eq!(own["toolUseId"], "tu_app");
    assert_eq!(rig.executions().len(), 2, "{:?}", rig.executions());
}

#[tokio::test]
async fn an_ended_run_that_is_handed_over_ends_again() {
    let rig = Harness::start().await;
    let script = Script::new().mcp("tu_1", "plain", "plain_note", NOTE).done();
    let run = submit_apart(&rig, script).await;
    attach(&rig, &run, "{}").await;
    wait::soon("the run should be read to its end", async || {
        let shown = rig.bridge.api("GET", &format!("/v1/runs/{run}"), None).await.expect(200);
        (shown["state"] == "ended").then_some(())
    })
    .await;
    assert!(rig.executions().is_empty() && rig.mantyx.posts("tu_1").is_empty());
}

#[tokio::test]
async fn run_that_cannot_be_handed_over_is_told_at_once() {
    let rig = Harness::start().await;
    let refusal = r#"{"error":"not_found","message":"No such run."}"#;
    let head = ["HTTP/1.1 404 Not Found", "Content-Type: application/json"];
    rig.mantyx.canned("GET", &format!("{API}/agent-runs/run_no"), &head, refusal);
    let other = "/api/v1/workspaces/other/agent-runs/run_no";
    rig.mantyx.canned("GET", other, &head, refusal);
    struct Case {
        run: &'static str,
        body: &'static str,
        expected: u16,
    }
    for Case { run, body, expected } in [
        Case { run: "run_no", body: "{}", expected: 404 },
        Case { run: "run_no", body: r#"{"workspace":"other"}"#, expected: 404 },
        Case { run: "run_1", body: r#"{"backends":["nobody"]}"#, expected: 400 },
        Case { run: "run_1", body: r#"{"backends":[]}"#, expected: 400 },
        Case { run: "run_1", body: r#"{"backend":"plain"}"#, expected: 400 },
        Case { run: "run_1", body: r#"{"workspace":"a/b"}"#, expected: 400 },
        Case { run: "a%2Fb", body: "{}", expected: 400 },
        Case { run: "..", body: "{}", expected: 400 },
    ] {
        let (status, error) = attach(&rig, run, body).await;
        assert_eq!(status, expected, "{run} {body}: {error}");
        assert!(error["error"].is_string() && error["message"].is_string(), "{error}");
    }
    assert_eq!(rig.mantyx.requests("GET", "/run_no").len(), 2, "in the workspace that is named");
    assert_eq!(rig.bridge.status().await["runs"]["driven"], 0);
}

#[tokio::test]
async fn runs_and_calls_can_be_looked_at() {
    let rig = Harness::start().await;
    let script = Script::new()
        .mcp("tu_1", "plain", "plain_note", r#"{"text":"a secret of the run"}"#)
        .answered("tu_1")
        .mcp("tu_2", "plain", "plain_fail", "{}")
        .answered("tu_2")
        .mcp("tu_3", "plain", "plain_hang", "{}")
        .until("never");
    let run = rig.run(script).await;
    rig.wait_executions(3).await;
    rig.bridge
        .api(
            "POST",
            "/v1/tool-calls",
            Some(r#"{"toolUseId":"tu_4","name":"plain_note","args":{"text":"x"}}"#),
        )
        .await
        .expect(200);

    let listed = rig.bridge.api("GET", "/v1/calls", None).await;
    assert!(!listed.text().contains("a secret of the run"), "no arguments and no results");
    let calls = listed.expect(200)["calls"].clone();
    let told: Vec<_> = calls
        .as_array()
        .expect("calls")
        .iter()
        .map(|call| {
            assert!(call["startedAt"].is_string() && call["ms"].is_u64(), "{call}");
            assert_eq!(call["backend"], "plain");
            let text = |key: &str| call[key].as_str().unwrap_or("-").to_owned();
            [text("toolUseId"), text("name"), text("state"), text("outcome"), text("runId")]
        })
        .collect();
    let id = run.run_id.as_str();
    let expected = [
        ["tu_3", "plain_hang", "running", "-", id],
        ["tu_4", "plain_note", "answered", "result", "-"],
        ["tu_2", "plain_fail", "answered", "error", id],
        ["tu_1", "plain_note", "answered", "result", id],
    ];
    assert_eq!(told, expected, "those that run, then the latest");

    let shown = wait::soon("the answered calls should be posted", async || {
        let shown = rig.bridge.api("GET", &format!("/v1/runs/{id}"), None).await.expect(200);
        Some(shown).filter(|shown| shown["callsInFlight"] == 1)
    })
    .await;
    for (key, value) in [("kind", "agent"), ("state", "driven"), ("workspace", "acme")] {
        assert_eq!(shown[key], value, "{shown}");
    }
    assert_eq!(shown["calls"], 3, "{shown}");
    assert_eq!(shown["streamUrl"], run.stream.as_str());
    assert!(shown["startedAt"].is_string() && shown["endedAt"].is_null(), "{shown}");
    let listed = rig.bridge.api("GET", "/v1/runs", None).await.expect(200);
    assert_eq!(listed["runs"], serde_json::json!([shown]));
}
