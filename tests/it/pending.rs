//! Calls that take long: answered for the time being, made once, and fetched later by whom they
//! belong to.

use std::{fs, path::PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    bridge::{API, Bridge, DRAIN},
    frames::Script,
    harness::{Harness, tool_names},
    mantyx::{CREDENTIAL, Mantyx},
    peers, sdk, sse, wait,
};

const TOOL: &str = "bridge_call_result";

/// A local tool that answers when the test lets it.
pub(crate) struct Gate(TempDir);

impl Gate {
    pub(crate) fn new() -> Self {
        Self(TempDir::new().expect("the temporary directory is writable"))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The section `local` with the tool `gate`.
    pub(crate) fn section(&self) -> String {
        let (calls, open) = (self.file("calls"), self.file("open"));
        let script = format!(
            "echo x >> {}; until [ -e {} ]; do sleep 0.02; done; echo opened",
            calls.display(),
            open.display()
        );
        format!("local:\n  gate: {{command: [sh, -c, '{script}'], pending_after: 300ms}}\n")
    }

    pub(crate) fn open(&self) {
        fs::write(self.file("open"), "").expect("the test's directory is writable");
    }

    /// How often the tool was called.
    pub(crate) fn calls(&self) -> usize {
        fs::read_to_string(self.file("calls")).unwrap_or_default().lines().count()
    }
}

/// Fields drop in their order.
pub(crate) struct Gated {
    pub(crate) rig: Harness,
    pub(crate) gate: Gate,
}

pub(crate) async fn gated() -> Gated {
    let gate = Gate::new();
    Gated { rig: Harness::bare(&gate.section()).await, gate }
}

/// The pending answer in a posted result.
#[track_caller]
pub(crate) fn pending(answer: &Value) -> Value {
    let text = answer["result"].as_str().unwrap_or_else(|| panic!("a result: {answer}"));
    let pending: Value = serde_json::from_str(text).unwrap_or_else(|_| panic!("JSON: {text}"));
    assert_eq!(pending["status"], "pending", "{pending}");
    assert!(pending["message"].as_str().is_some_and(|text| text.contains(TOOL)), "{pending}");
    pending
}

/// Waits until `id` was answered with a `callId`, and puts that in place of `mark` in the scripts.
pub(crate) async fn learn(rig: &Harness, id: &str, mark: &str) -> String {
    let pending = pending(&rig.mantyx.taken(id).await);
    let call = pending["callId"].as_str().expect("an id").to_owned();
    assert!(call.starts_with("call_") && call.len() == 21, "{call}");
    rig.mantyx.fill(mark, &call);
    call
}

/// A question for the call whose id stands in place of `@call`.
pub(crate) fn fetch(script: Script, id: &str, wait: u32) -> Script {
    script.local(id, TOOL, &format!(r#"{{"callId":"@call","wait":{wait}}}"#))
}

async fn run_state(rig: &Harness, run: &str) -> Value {
    rig.bridge.api("GET", &format!("/v1/runs/{run}"), None).await.expect(200)
}

async fn wait_ended(rig: &Harness, run: &str) -> Value {
    wait::soon("the run should end", async || {
        Some(run_state(rig, run).await).filter(|run| run["state"] == "ended")
    })
    .await
}

/// The entry of a tool use in `GET /v1/calls`.
pub(crate) async fn shown(bridge: &Bridge, id: &str) -> Value {
    let calls = bridge.api("GET", "/v1/calls", None).await.expect(200);
    let calls = calls["calls"].as_array().expect("calls").clone();
    calls.into_iter().find(|call| call["toolUseId"] == id).expect("the call is listed")
}

/// Waits until the call is shown as cancelled and what it started is gone.
async fn cancelled(rig: &Harness, id: &str) {
    wait::soon("the call should be cancelled", async || {
        let call = shown(&rig.bridge, id).await;
        (call["outcome"] == "cancelled" && rig.bridge.children().is_empty()).then_some(())
    })
    .await;
}

pub(crate) async fn new_session(rig: &Harness) -> String {
    let created = rig.bridge.api("POST", &format!("{API}/agent-sessions"), Some("{}")).await;
    created.expect(201)["sessionId"].as_str().expect("an id").to_owned()
}

/// A message in a session whose run follows `script`; the run's id.
pub(crate) async fn message(rig: &Harness, session: &str, script: Script) -> String {
    rig.mantyx.script(script);
    let path = format!("{API}/agent-sessions/{session}/messages");
    let run = rig.bridge.api("POST", &path, Some(r#"{"prompt":"x"}"#)).await.expect(202);
    run["runId"].as_str().expect("an id").to_owned()
}

#[tokio::test]
async fn a_long_call_is_fetched_later_in_its_run() {
    let Gated { rig, gate } = gated().await;
    let script = Script::new().local("tu_1", "gate", "{}").answered("tu_1").until("@call");
    let script = fetch(script, "tu_2", 0).answered("tu_2");
    let script = fetch(script, "tu_3", 60).answered("tu_3");
    let run = rig.run(fetch(script, "tu_4", 0).answered("tu_4").done()).await;
    assert_eq!(run.injected.as_deref(), Some("gate=1"), "the bridge's own tool is not counted");
    let sent = rig.mantyx.only("POST", "/agent-runs").value();
    assert_eq!(tool_names(&sent), ["gate", TOOL]);
    assert_eq!(sent["tools"][1]["readOnly"], true);

    let call = learn(&rig, "tu_1", "@call").await;
    let again = pending(&rig.mantyx.answer("tu_2").await);
    assert_eq!((&again["callId"], &again["tool"]), (&call.as_str().into(), &"gate".into()));
    let listed = shown(&rig.bridge, "tu_1").await;
    assert_eq!((&listed["state"], &listed["pending"]), (&"running".into(), &true.into()));
    assert!(run_state(&rig, &run.run_id).await["callsInFlight"].as_u64() >= Some(1));
    gate.open();
    assert_eq!(rig.mantyx.answer("tu_3").await, json!({"toolUseId": "tu_3", "result": "opened"}));
    assert_eq!(rig.mantyx.answer("tu_4").await["result"], "opened", "as often as it asks");
    sse::whole(&rig.bridge, &run.stream).await;
    assert_eq!((gate.calls(), rig.mantyx.posts("tu_1").len()), (1, 1), "made and answered once");
    let listed = shown(&rig.bridge, "tu_1").await;
    assert_eq!((&listed["outcome"], &listed["pending"]), (&"result".into(), &false.into()));
    assert_eq!(run_state(&rig, &run.run_id).await["callsInFlight"], 0);
}

#[tokio::test]
async fn a_call_that_ends_in_time_is_answered_as_ever() {
    let rig = Harness::with_keys("pending_after: 20s, ", "", &[], "").await;
    assert_eq!(rig.call("plain", "plain_note", r#"{"text":"x"}"#).await["result"], "noted: x");
}

#[tokio::test]
async fn a_long_call_of_an_mcp_server_is_made_once() {
    let rig = Harness::with_keys("pending_after: 300ms, ", "", &[], "").await;
    let script = Script::new().mcp("tu_1", "plain", "plain_slow", r#"{"text":"1.5"}"#);
    let script = fetch(script.answered("tu_1").until("@call"), "tu_2", 60).answered("tu_2");
    rig.run(script.done()).await;
    learn(&rig, "tu_1", "@call").await;
    assert_eq!(rig.mantyx.answer("tu_2").await["result"], "slept");
    assert_eq!(rig.executions().len(), 1);
}

#[tokio::test]
async fn fetched_answer_of_an_agent_is_whole() {
    let agent = peers::a2a_v1("1.0").await;
    // No answer comes over the network in so short a time.
    let config = format!("a2a:\n  hr: {{url: \"{}\", pending_after: 1ms}}\n", agent.url());
    let rig = Harness::bare(&config).await;
    rig.bridge.wait_backend("hr", "ready").await;
    let ask = |mark: &str| format!(r#"{{"callId":"{mark}"}}"#);
    let script = Script::new().a2a("tu_file", "hr", "file").until("@file");
    let script = script.local("tu_1", TOOL, &ask("@file")).a2a("tu_fail", "hr", "fail");
    let script = script.until("@fail").local("tu_2", TOOL, &ask("@fail"));
    rig.run(script.answered("tu_1").answered("tu_2").done()).await;
    learn(&rig, "tu_file", "@file").await;
    let file = rig.mantyx.answer("tu_1").await;
    assert_eq!(file["files"][0]["filename"], "report.pdf", "{file}");
    assert!(file["result"].as_str().is_some_and(|text| text.starts_with("see the report")));
    learn(&rig, "tu_fail", "@fail").await;
    let failed = rig.mantyx.answer("tu_2").await;
    assert!(
        failed["error"].as_str().is_some_and(|text| text.contains("it went wrong")),
        "{failed}"
    );
    assert!(failed.get("result").is_none(), "either, not both: {failed}");
}

#[tokio::test]
async fn a_later_run_of_the_session_fetches_it_and_no_other() {
    let Gated { rig, gate } = gated().await;
    let (own, other) = (new_session(&rig).await, new_session(&rig).await);
    let begin = Script::new().local("tu_1", "gate", "{}").answered("tu_1").done();
    let first = message(&rig, &own, begin).await;
    learn(&rig, "tu_1", "@call").await;
    assert_eq!(wait_ended(&rig, &first).await["callsInFlight"], 1, "it outlives its run");
    gate.open();
    message(&rig, &own, fetch(Script::new(), "tu_own", 60).answered("tu_own").done()).await;
    assert_eq!(rig.mantyx.answer("tu_own").await["result"], "opened");

    message(&rig, &other, fetch(Script::new(), "tu_other", 60).answered("tu_other").done()).await;
    rig.run(fetch(Script::new(), "tu_alone", 60).answered("tu_alone").done()).await;
    rig.run(Script::new().local("tu_bad", TOOL, r#"{"wait":1}"#).answered("tu_bad").done()).await;
    for (id, expected) in [("tu_other", "no such"), ("tu_alone", "no such"), ("tu_bad", "callId")] {
        let answer = rig.mantyx.answer(id).await;
        let error = answer["error"].as_str().unwrap_or_else(|| panic!("an error: {answer}"));
        assert!(error.contains(expected), "{id}: {error}");
    }
    assert_eq!(gate.calls(), 1);
}

#[tokio::test]
async fn a_cancelled_run_cancels_it() {
    let Gated { rig, .. } = gated().await;
    for session in [None, Some(new_session(&rig).await)] {
        let id = if session.is_some() { "tu_session" } else { "tu_alone" };
        let script = Script::new().local(id, "gate", "{}").answered(id).until("never").done();
        let run = match session {
            Some(session) => message(&rig, &session, script).await,
            None => rig.run(script).await.run_id,
        };
        pending(&rig.mantyx.answer(id).await);
        let path = format!("{API}/agent-runs/{run}/cancel");
        rig.bridge.api("POST", &path, Some("{}")).await.expect(200);
        cancelled(&rig, id).await;
    }
}

#[tokio::test]
async fn the_end_of_a_run_or_a_session_cancels_it() {
    let Gated { rig, .. } = gated().await;
    let script = |id: &str| Script::new().local(id, "gate", "{}").answered(id).done();
    rig.run(script("tu_alone")).await;
    pending(&rig.mantyx.answer("tu_alone").await);
    cancelled(&rig, "tu_alone").await;

    let session = new_session(&rig).await;
    let run = message(&rig, &session, script("tu_session")).await;
    pending(&rig.mantyx.answer("tu_session").await);
    assert_eq!(wait_ended(&rig, &run).await["callsInFlight"], 1);
    let path = format!("{API}/agent-sessions/{session}");
    rig.bridge.api("DELETE", &path, None).await.expect(200);
    cancelled(&rig, "tu_session").await;
}

#[tokio::test]
async fn pending_call_of_an_eval_is_its_agent_runs_alone() {
    let Gated { rig, gate } = gated().await;
    let call = |run: &str, id: &str, name: &str, args: &str| {
        let data = format!(
            r#"{{"type":"local_tool_call","agentRunId":"{run}","toolUseId":"{id}","name":"{name}","args":{args},"kind":"local"}}"#
        );
        format!("event: local_tool_call\ndata: {data}\n\n")
    };
    let ask = r#"{"callId":"@call","wait":60}"#;
    let script = Script::new()
        .raw_event(&call("run_a", "tu_1", "gate", "{}"))
        .until("@call")
        .raw_event(&call("run_b", "tu_b", TOOL, ask))
        .raw_event(&call("run_a", "tu_a", TOOL, ask))
        .until("tu_a")
        .raw_event("event: run_completed\ndata: {\"type\":\"run_completed\"}\n\n");
    rig.mantyx.script(script);
    let spec = r#"{"datasetId":"d","agentId":"a"}"#;
    rig.bridge.api("POST", &format!("{API}/eval-runs"), Some(spec)).await.expect(202);
    learn(&rig, "tu_1", "@call").await;
    let refused = rig.mantyx.answer("tu_b").await;
    assert!(refused["error"].as_str().is_some_and(|text| text.contains("no such")));
    gate.open();
    assert_eq!(rig.mantyx.answer("tu_a").await["result"], "opened");
    let posted = rig.mantyx.posts("tu_a").remove(0);
    assert!(posted.target.ends_with("/agent-runs/run_a/tool-results"), "{}", posted.target);
}

#[tokio::test]
async fn calls_by_hand_are_their_apps_alone() {
    let (gate, mantyx) = (Gate::new(), Mantyx::start().await);
    let token = |app: &str| format!("mbt_{}", app.repeat(32));
    let config = format!(
        "upstream: {{base_url: \"{}\", workspace: acme, credential: {CREDENTIAL}}}\n\
         apps: {{a: {{token: {}, backends: [gate]}}, b: {{token: {}}}}}\n{}",
        mantyx.url(),
        token("a"),
        token("b"),
        gate.section()
    );
    let bridge = Bridge::ready(&config).await;
    let call = async |app: &str, name: &str, args: Value| {
        let body = json!({"toolUseId": "tu_1", "name": name, "args": args}).to_string();
        let request = crate::http::Request::new("POST", "/v1/tool-calls").bearer(&token(app));
        request.json(body).answer(bridge.addr()).await.expect(200)
    };
    let refs = crate::http::Request::new("GET", "/v1/tool-refs").bearer(&token("a"));
    let refs = refs.answer(bridge.addr()).await.expect(200);
    assert_eq!(tool_names(&refs), ["gate", TOOL]);
    let id = pending(&call("a", "gate", json!({})).await)["callId"].clone();
    let ask = json!({"callId": id, "wait": 60});
    gate.open();
    let refused = call("b", TOOL, ask.clone()).await;
    assert!(refused["error"].as_str().is_some_and(|text| text.contains("no such")));
    assert_eq!(call("a", TOOL, ask).await["result"], "opened");
}

#[tokio::test]
async fn a_daemon_that_stops_lets_it_come_to_its_end() {
    let Gated { mut rig, gate } = gated().await;
    let session = new_session(&rig).await;
    let script = Script::new().local("tu_1", "gate", "{}").answered("tu_1").until("@call");
    message(&rig, &session, fetch(script, "tu_2", 240).until("never")).await;
    learn(&rig, "tu_1", "@call").await;
    wait::soon("the question should wait", async || {
        let calls = rig.bridge.api("GET", "/v1/calls", None).await.expect(200);
        calls["calls"].as_array()?.iter().find(|call| call["toolUseId"] == "tu_2").map(|_| ())
    })
    .await;
    rig.bridge.process().signal(rustix::process::Signal::TERM);
    pending(&rig.mantyx.answer("tu_2").await);
    gate.open();
    let status = rig.bridge.process().ended(DRAIN).await;
    assert_eq!(status.code(), Some(0), "it ends by itself: {}", rig.bridge.log());
    let log = rig.bridge.log();
    let ended = log.lines().find(|line| line.contains("\"ok\":")).expect("a line");
    assert!(ended.contains("\"ok\":true"), "{ended}");
}

#[tokio::test]
async fn the_sdk_fetches_it_with_the_next_message() {
    let gate = Gate::new();
    let config = format!("upstream: {{sandbox: true, workspace: acme}}\n{}", gate.section());
    let bridge = Bridge::ready(&config).await;
    let open = gate.file("open").display().to_string();
    let seen = sdk::run(&bridge, "long_call.py", &["gate {}", &open]).await;
    assert_eq!(seen["pending"]["status"], "pending", "{seen}");
    assert_eq!(seen["pending"]["tool"], "gate", "{seen}");
    assert_eq!(seen["result"], "opened", "{seen}");
    assert_eq!(gate.calls(), 1);
}
