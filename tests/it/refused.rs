//! Streams of driven runs that MANTYX refuses: what the app is told, what is tried again, and what
//! becomes of the calls of a run that is given up.

use std::fs;

use serde_json::{Value, json};

use crate::{
    bridge::{Bridge, Submitted},
    frames::Script,
    harness::Harness,
    mantyx::{Mantyx, Reply},
    sdk,
    sse::{self, Stream},
    wait,
};

const NOTE: &str = r#"{"text":"x"}"#;
const GONE: &str = r#"{"error":"not_found","message":"No such run."}"#;
const NOT_FOUND: [&str; 2] = ["HTTP/1.1 404 Not Found", "Content-Type: application/json"];

/// The problems that `/v1/status` has of the upstream.
async fn problems(bridge: &Bridge) -> Vec<Value> {
    let status = bridge.status().await;
    let problems = status["problems"].as_array().expect("problems").clone();
    problems.into_iter().filter(|problem| problem["subject"] == "upstream").collect()
}

async fn state(rig: &Harness, run: &str) -> Value {
    rig.bridge.api("GET", &format!("/v1/runs/{run}"), None).await.expect(200)["state"].clone()
}

async fn wait_state(rig: &Harness, run: &str, expected: &str) {
    wait::until(
        &format!("the run should be {expected}"),
        std::time::Duration::from_secs(30),
        async || (state(rig, run).await == expected).then_some(()),
    )
    .await;
}

#[tokio::test]
async fn an_app_gets_mantyxs_answer_in_place_of_a_stream() {
    let rig = Harness::start().await;
    for (status, retry) in [
        ("403 Forbidden", None),
        ("404 Not Found", None),
        ("410 Gone", None),
        ("429 Too Many Requests", Some("1")),
        ("500 Internal Server Error", None),
        ("503 Service Unavailable", Some("2")),
    ] {
        let (first, body) = (format!("HTTP/1.1 {status}"), format!(r#"{{"error":"is {status}"}}"#));
        let retry_after = retry.map(|seconds| format!("Retry-After: {seconds}"));
        let mut head = vec![first.as_str(), "Content-Type: application/problem+json", "X-Odd: 1"];
        head.extend(retry_after.as_deref());
        rig.mantyx.refuse_streams(&head, &body);
        let run = rig.run(Script::one_call("tu", "plain", "plain_note", NOTE)).await;
        let answer = rig.bridge.api("GET", &run.stream, None).await;
        let code = status.split(' ').next().and_then(|code| code.parse().ok());
        assert_eq!((Some(answer.status), answer.text()), (code, body), "{status}");
        assert_eq!(answer.header("retry-after"), retry, "{status}");
        assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{status}");
        assert_eq!(answer.header("x-odd"), Some("1"), "{status}");
    }
    let told = problems(&rig.bridge).await;
    let text = json!(told).to_string();
    assert!(text.contains("503 Service Unavailable") && text.contains("run_"), "{text}");
    assert!(
        told.iter().all(|problem| problem["cure"].as_str().is_some_and(|cure| !cure.is_empty()))
    );
    let upstream = rig.bridge.status().await["upstream"].clone();
    assert_eq!(upstream["reachable"], true, "{upstream}");
    assert!(upstream["lastError"].as_str().is_some_and(|error| error.contains("answered")));
}

#[tokio::test]
async fn refusal_of_the_bridges_credential_is_not_told_as_the_apps() {
    let rig = Harness::start().await;
    rig.mantyx.refuse_streams(&["HTTP/1.1 401 Unauthorized"], r#"{"error":"unauthorized"}"#);
    let run = rig.run(Script::one_call("tu", "plain", "plain_note", NOTE)).await;
    let answer = rig.bridge.api("GET", &run.stream, None).await;
    assert_eq!(answer.expect_error(502)["code"], "upstream_unauthorized");
    let told = problems(&rig.bridge).await;
    assert!(told[0]["cure"].as_str().is_some_and(|cure| cure.contains("upstream.credential")));
}

#[tokio::test]
async fn a_stream_that_is_given_after_all_is_driven_on() {
    let rig = Harness::start().await;
    rig.mantyx.refuse_streams(&["HTTP/1.1 503 Service Unavailable"], "{}");
    let run = rig.run(Script::one_call("tu_1", "plain", "plain_note", NOTE)).await;
    rig.bridge.api("GET", &run.stream, None).await.expect(503);
    rig.mantyx.give_streams();
    assert_eq!(rig.mantyx.answer("tu_1").await["result"], "noted: x");
    let frames = sse::whole(&rig.bridge, &run.stream).await;
    assert_eq!(sse::seqs(&frames), [1, 2, 3, 4]);
    assert!(problems(&rig.bridge).await.is_empty(), "it is over");
}

#[tokio::test]
async fn events_that_an_app_has_not_read_come_before_a_refusal() {
    let rig = Harness::start().await;
    let script = Script::new().delta("a").delta("b").until("refused").delta("c").done();
    let cut = script.bytes().len() / 2 + 40;
    let run = rig.run(script.cut([cut])).await;
    let mut stream = Stream::open(&rig.bridge, &run.stream).await;
    stream.event().await.expect("the first event");
    rig.mantyx.refuse_streams(&["HTTP/1.1 403 Forbidden"], r#"{"error":"forbidden"}"#);
    rig.mantyx.release("refused");
    wait::soon("the refusal should be told", async || {
        (!problems(&rig.bridge).await.is_empty()).then_some(())
    })
    .await;
    let rest = Stream::resume(&rig.bridge, &run.stream, 1).await.rest().await;
    assert_eq!(sse::seqs(&rest)[0], 2, "and then the stream ends: {}", sse::text(&rest));
    let last = sse::seqs(&rest).last().copied().unwrap_or_default();
    let answer = rig.bridge.request("GET", &run.stream).header("Last-Event-ID", &last.to_string());
    let answer = answer.answer(rig.bridge.addr()).await;
    assert_eq!((answer.status, answer.text().as_str()), (403, r#"{"error":"forbidden"}"#));
}

/// A run whose call of a slow tool is under way when MANTYX forgets the run.
struct Forgotten {
    rig: Harness,
    run: Submitted,
    dir: tempfile::TempDir,
}

impl Forgotten {
    async fn start() -> Self {
        let (rig, dir) = (Harness::start().await, tempfile::tempdir().expect("a directory"));
        let until = dir.path().join("go").display().to_string();
        let args = json!({"text": until}).to_string();
        let script = Script::new()
            .mcp("tu_1", "plain", "plain_slow", &args)
            .until("forgotten")
            .delta("lost")
            .answered("tu_1")
            .mcp("tu_2", "plain", "plain_note", NOTE)
            .answered("tu_2")
            .done();
        let call = Script::new().mcp("tu_1", "plain", "plain_slow", &args).bytes().len();
        let run = rig.run(script.cut([call + 10])).await;
        rig.wait_executions(1).await;
        rig.mantyx.refuse_streams(&NOT_FOUND, GONE);
        rig.mantyx.release("forgotten");
        Self { rig, run, dir }
    }

    /// Waits until MANTYX has said `times` that there is no such run.
    async fn wait_refused(&self, times: usize) {
        let what = format!("the stream should be tried {times} times");
        wait::until(&what, std::time::Duration::from_secs(60), async || {
            let tried = self.rig.mantyx.requests("GET", "/stream").len();
            (tried > times).then_some(())
        })
        .await;
    }

    fn let_the_tool_answer(&self) {
        fs::write(self.dir.path().join("go"), "").expect("the file can be written");
    }

    async fn attach(&self) -> Value {
        let target = format!("/v1/runs/{}/attach", self.run.run_id);
        self.rig.bridge.api("POST", &target, Some("{}")).await.expect(202)
    }
}

#[tokio::test]
async fn a_run_with_a_call_in_flight_is_not_given_up() {
    let scene = Forgotten::start().await;
    scene.wait_refused(6).await;
    assert_eq!(state(&scene.rig, &scene.run.run_id).await, "driven");
    scene.let_the_tool_answer();
    assert!(scene.rig.mantyx.answer("tu_1").await["result"].is_string(), "MANTYX takes it");
    wait_state(&scene.rig, &scene.run.run_id, "given_up").await;
    // What the app has not read comes first, and then what MANTYX says now.
    let unread = Stream::open(&scene.rig.bridge, &scene.run.stream).await.rest().await;
    assert_eq!(sse::seqs(&unread), [1]);
    let rest = format!("{}?lastSeq=1", scene.run.stream);
    let answer = scene.rig.bridge.api("GET", &rest, None).await;
    assert_eq!((answer.status, answer.text().as_str()), (404, GONE));
    wait_state(&scene.rig, &scene.run.run_id, "given_up").await;

    scene.rig.mantyx.give_streams();
    assert_eq!(scene.attach().await["state"], "attaching");
    assert_eq!(scene.rig.mantyx.answer("tu_2").await["result"], "noted: x");
    let frames = sse::whole(&scene.rig.bridge, &scene.run.stream).await;
    assert_eq!(sse::seqs(&frames), (1..=6).collect::<Vec<_>>());
    assert_eq!(scene.rig.executions().len(), 2, "no call was made twice");
    assert_eq!(scene.rig.mantyx.posts("tu_1").len(), 1);
}

#[tokio::test]
async fn an_answer_that_mantyx_did_not_know_is_posted_when_it_does() {
    let scene = Forgotten::start().await;
    scene.rig.mantyx.replies("tu_1", [Reply::Status(404)]);
    scene.wait_refused(6).await;
    scene.let_the_tool_answer();
    wait_state(&scene.rig, &scene.run.run_id, "given_up").await;
    assert_eq!(scene.rig.mantyx.posts("tu_1").len(), 1, "refused");
    scene.rig.mantyx.give_streams();
    scene.attach().await;
    let posts = scene.rig.mantyx.wait_posts("tu_1", 2).await;
    assert_eq!(posts[0].body, posts[1].body, "the same bytes");
    assert_eq!(scene.rig.mantyx.answer("tu_2").await["result"], "noted: x");
    assert_eq!(scene.rig.executions().len(), 2, "{:?}", scene.rig.executions());
}

#[tokio::test]
async fn a_run_that_was_given_up_is_known_over_restarts() {
    let mut scene = Forgotten::start().await;
    scene.rig.mantyx.replies("tu_1", (0..9).map(|_| Reply::Status(404)));
    scene.wait_refused(5).await;
    scene.let_the_tool_answer();
    wait_state(&scene.rig, &scene.run.run_id, "given_up").await;
    scene.rig.bridge.kill9();
    scene.rig.bridge.restart().await;
    scene.rig.bridge.wait_backend("plain", "ready").await;
    wait_state(&scene.rig, &scene.run.run_id, "given_up").await;
    scene.rig.mantyx.give_streams();
    scene.rig.mantyx.replies("tu_1", []);
    let before = scene.rig.mantyx.posts("tu_1").len();
    scene.attach().await;
    let posts = scene.rig.mantyx.wait_posts("tu_1", before + 1).await;
    assert!(posts.iter().all(|post| post.body == posts[0].body), "the same bytes");
    assert_eq!(scene.rig.mantyx.answer("tu_2").await["result"], "noted: x");
    assert_eq!(scene.rig.executions().len(), 2, "{:?}", scene.rig.executions());
}

#[tokio::test]
async fn the_sdk_raises_what_it_raises_without_the_bridge() {
    let mantyx = Mantyx::start().await;
    let dir = tempfile::tempdir().expect("a directory");
    let plain = crate::peers::ledger(&crate::harness::ledger_in(&dir), &[]);
    let config = format!(
        "upstream: {{base_url: \"{}\", workspace: acme, credential: passthrough}}\n\
         auth: off\nmcp:\n  plain: {plain}\n",
        mantyx.url()
    );
    let bridge = Bridge::ready(&config).await;
    bridge.wait_backend("plain", "ready").await;
    for (status, body) in [
        ("401 Unauthorized", r#"{"error":"invalid_token"}"#),
        ("403 Forbidden", r#"{"error":"insufficient_scope","required":["runs:read"]}"#),
        ("404 Not Found", r#"{"error":"not_found","hint":"another workspace"}"#),
        ("410 Gone", r#"{"error":"gone"}"#),
        ("429 Too Many Requests", r#"{"error":"rate_limit_exceeded"}"#),
        ("500 Internal Server Error", "no JSON"),
        ("503 Service Unavailable", r#"{"error":"unavailable"}"#),
    ] {
        let first = format!("HTTP/1.1 {status}");
        mantyx.refuse_streams(&[&first, "Content-Type: application/json", "Retry-After: 1"], body);
        let direct = sdk::run_at(&mantyx.url(), "stream_refused.py").await;
        let through = sdk::run_at(&bridge.url(), "stream_refused.py").await;
        assert!(direct["class"].is_string(), "{status}: {direct}");
        assert_eq!(through, direct, "{status}");
    }
}
