//! `GET /v1/events`: what the bridge does, as it happens.

use rustix::process::{Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    bridge::Bridge,
    frames::Script,
    harness::{Harness, ledger_in},
    http::Request,
    mantyx::Mantyx,
    peers,
    sse::Stream,
};

pub(crate) const EVENTS: &str = "/v1/events";

/// Reads on until an event of `kind` that `wanted` takes.
pub(crate) async fn until(
    stream: &mut Stream,
    kind: &str,
    wanted: impl Fn(&Value) -> bool,
) -> Value {
    loop {
        let fields = stream.event().await.expect("the stream stays open").fields();
        let data: Value = serde_json::from_str(&fields.data.unwrap_or_default()).expect("JSON");
        if fields.event.as_deref() == Some(kind) && wanted(&data) {
            return data;
        }
    }
}

#[tokio::test]
async fn events_tell_of_runs_calls_and_backends() {
    let rig = Harness::start().await;
    let mut events = Stream::open(&rig.bridge, EVENTS).await;
    // The run may end before its last post is told.
    let mut runs = Stream::open(&rig.bridge, EVENTS).await;
    let status = until(&mut events, "status", |_| true).await;
    assert_eq!(status["problems"], serde_json::json!([]), "{status}");
    let backend = until(&mut events, "backend", |backend| backend["name"] == "plain").await;
    assert_eq!((&backend["state"], &backend["lastCall"]), (&"ready".into(), &Value::Null));

    let script = Script::new()
        .mcp("tu_1", "plain", "plain_note", r#"{"text":"a secret"}"#)
        .answered("tu_1")
        .mcp("tu_2", "plain", "plain_fail", "{}")
        .answered("tu_2")
        .done();
    let run = rig.run(script).await;
    let told = until(&mut events, "run", |_| true).await;
    assert_eq!((&told["runId"], &told["state"]), (&run.run_id.as_str().into(), &"driven".into()));
    let begun = until(&mut events, "call", |call| call["toolUseId"] == "tu_1").await;
    assert_eq!(begun["runId"], run.run_id.as_str());
    let is_posted = |call: &Value| call["outcome"] == "error" && call["postedMs"].is_u64();
    let failed = until(&mut events, "call", is_posted).await;
    assert_eq!(failed["toolUseId"], "tu_2");
    let listed = rig.bridge.api("GET", "/v1/calls", None).await;
    assert_eq!(listed.expect(200)["calls"][0], failed, "one shape everywhere");
    until(&mut runs, "run", |run| run["state"] == "ended").await;

    // A later look has what was called in the meantime, though the registry has not changed.
    let mut later = Stream::open(&rig.bridge, EVENTS).await;
    let backend = until(&mut later, "backend", |backend| backend["name"] == "plain").await;
    assert_eq!(backend["lastCall"]["answered"], true, "{backend}");
}

#[tokio::test]
async fn a_backend_that_goes_away_is_a_problem_with_a_cure() {
    let rig = Harness::start().await;
    let mut events = Stream::open(&rig.bridge, EVENTS).await;
    let before = until(&mut events, "backend", |backend| backend["state"] == "ready").await;
    for child in rig.bridge.children() {
        kill_process(child, Signal::KILL).expect("it is the daemon's");
    }
    // It may be back before anybody has looked, with tools that have been asked for anew.
    let is_back = |backend: &Value| {
        backend["state"] == "ready" && backend["lastRefresh"] != before["lastRefresh"]
    };
    until(&mut events, "backend", is_back).await;

    let broken = "mcp: {gone: {command: /nonexistent/program}}\n";
    let bridge = Bridge::start(&format!("{}{broken}", rig.mantyx.upstream())).await;
    bridge.wait_backend("gone", "down").await;
    let problems = bridge.status().await["problems"].clone();
    let problem = &problems[0];
    assert_eq!(problem["subject"], "gone", "{problems}");
    assert!(problem["message"].as_str().is_some_and(|text| text.contains("/nonexistent/program")));
    assert!(problem["cure"].as_str().is_some_and(|text| text.contains("`command`")), "{problem}");
}

#[tokio::test]
async fn an_app_is_told_of_its_own() {
    let mantyx = Mantyx::start().await;
    let dir = TempDir::new().expect("the temporary directory is writable");
    let plain = peers::ledger(&ledger_in(&dir), &[]);
    let (one, two) = ("token-of-one-1234567890123456789012", "token-of-two-1234567890123456789012");
    let config = format!(
        "{}mcp:\n  plain: {plain}\napps:\n  one: {{token: {one}}}\n  \
         two: {{token: {two}, backends: []}}\n",
        mantyx.upstream()
    );
    let mut bridge = Bridge::ready(&config).await;
    let open = async |token| {
        let request = Request::new("GET", EVENTS).bearer(token);
        Stream::request(&bridge, request).await
    };
    let (mut ones, mut twos) = (open(one).await, open(two).await);
    until(&mut ones, "backend", |backend| backend["state"] == "ready").await;
    let by_hand = async |token| {
        let call = r#"{"toolUseId":"tu_4","name":"plain_note","args":{"text":"x"}}"#;
        let request = Request::new("POST", "/v1/tool-calls").bearer(token).json(call);
        request.answer(bridge.addr()).await.expect(200)
    };
    assert_eq!(by_hand(one).await["result"], "noted: x");
    until(&mut ones, "call", |call| call["outcome"] == "result").await;
    assert!(by_hand(two).await["error"].is_string(), "not its tool");
    bridge.stop().await;
    let mut seen = Vec::new();
    while let Some(frame) = twos.event().await {
        seen.push(frame.fields().event.unwrap_or_default());
    }
    assert!(seen.iter().all(|event| event == "status"), "{seen:?}");
}
