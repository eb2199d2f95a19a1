//! Whose a run or a session is, and that a call has one driver, under whatever name its run is
//! known.

use std::{fs, path::PathBuf};

use serde_json::Value;
use tempfile::TempDir;

use crate::{
    bridge::{API, Bridge},
    evals::{call_of, flat},
    frames::Script,
    harness::ledger_in,
    http::{Answer, Request},
    mantyx::Mantyx,
    peers,
    sse::Stream,
    wait,
};

const EVAL: &str = r#"{"datasetId":"d","agentId":"a"}"#;

/// A bridge with the one backend `plain` and the apps `a` and `b`, which share a credential.
pub(crate) struct Apps {
    pub(crate) bridge: Bridge,
    pub(crate) mantyx: Mantyx,
    ledger: PathBuf,
    _dir: TempDir,
}

pub(crate) fn token(app: &str) -> String {
    format!("mbt_{}", app.repeat(32))
}

impl Apps {
    pub(crate) async fn start() -> Self {
        Self::with("", "").await
    }

    /// `keys` stand in the server's entry, and `of_a` in that of the app `a`.
    pub(crate) async fn with(keys: &str, of_a: &str) -> Self {
        let (mantyx, dir) = (Mantyx::start().await, TempDir::new().expect("a directory"));
        let ledger = ledger_in(&dir);
        let plain = peers::ledger(&ledger, &[]).replacen('{', &format!("{{{keys}"), 1);
        let (a, b) = (token("a"), token("b"));
        let apps = format!("apps:\n  a: {{token: {a}{of_a}}}\n  b: {{token: {b}}}\n");
        let config = format!("{}{apps}mcp:\n  plain: {plain}\n", mantyx.upstream());
        let bridge = Bridge::ready(&config).await;
        let this = Self { bridge, mantyx, ledger, _dir: dir };
        this.wait_for_backend().await;
        this
    }

    pub(crate) async fn wait_for_backend(&self) {
        wait::soon("the backend should be there", async || {
            let status = self.ask("b", "GET", "/v1/status", None).await.expect(200);
            (status["backends"][0]["state"] == "ready").then_some(())
        })
        .await;
    }

    pub(crate) fn request(&self, app: &str, method: &str, target: &str) -> Request {
        Request::new(method, target).bearer(&token(app))
    }

    pub(crate) async fn ask(
        &self,
        app: &str,
        method: &str,
        target: &str,
        body: Option<&str>,
    ) -> Answer {
        let request = self.request(app, method, target);
        let request = match body {
            Some(body) => request.json(body),
            None => request,
        };
        request.answer(self.bridge.addr()).await
    }

    pub(crate) async fn attach(&self, app: &str, run: &str) -> Answer {
        self.ask(app, "POST", &format!("/v1/runs/{run}/attach"), Some("{}")).await
    }

    /// Submits something by `target`, below the workspace, and gives the id that it got.
    pub(crate) async fn submit(&self, app: &str, target: &str, script: Script) -> String {
        self.mantyx.script(script);
        let answer = self.ask(app, "POST", &format!("{API}/{target}"), Some(EVAL)).await;
        answer.expect(202)["runId"].as_str().expect("an id").to_owned()
    }

    /// Waits until one call of whichever app waits for a person; the id of its question.
    pub(crate) async fn asked(&self) -> String {
        wait::soon("a call should wait for a person", async || {
            let request = self.request("b", "GET", "/v1/approvals");
            let request = request.header("X-Bridge-Operator", &self.bridge.operator());
            let all = request.answer(self.bridge.addr()).await.expect(200);
            let first = all["approvals"][0].clone();
            (first["state"] == "waiting").then(|| first["id"].as_str().expect("an id").to_owned())
        })
        .await
    }

    /// What the operator decides.
    pub(crate) async fn decide(&self, id: &str, decision: &str) -> Answer {
        let request = self.request("b", "POST", &format!("/v1/approvals/{id}"));
        let request = request.json(format!(r#"{{"decision":"{decision}"}}"#));
        let request = request.header("X-Bridge-Operator", &self.bridge.operator());
        request.answer(self.bridge.addr()).await
    }

    /// How often the server was called.
    pub(crate) fn executions(&self) -> usize {
        fs::read_to_string(&self.ledger).unwrap_or_default().lines().count()
    }

    /// Waits until the past of the run has been read, so that all that it left open is decided.
    pub(crate) async fn settled(&self, app: &str, run: &str) {
        wait::soon("the run's past should be read", async || {
            let shown = self.ask(app, "GET", &format!("/v1/runs/{run}"), None).await.expect(200);
            (shown["state"] == "driven").then_some(())
        })
        .await;
    }
}

/// A call of `plain_note` in an eval, and the same in the stream of its agent run.
pub(crate) fn in_eval(id: &str) -> String {
    call_of("run_a", id, "plain_note")
}

pub(crate) fn in_agent_run(script: Script, id: &str) -> Script {
    script.mcp(id, "plain", "plain_note", &format!(r#"{{"text":"{id}"}}"#))
}

#[tokio::test]
async fn an_agent_run_of_a_driven_eval_gets_no_second_driver() {
    let mut apps = Apps::start().await;
    let script = Script::new().raw_event(&in_eval("tu_1")).until("never");
    let eval = apps.submit("a", "eval-runs", script).await;
    apps.mantyx.has_run("run_a", in_agent_run(Script::new(), "tu_1").until("never"));
    apps.mantyx.answer("tu_1").await;
    for _ in 0..2 {
        let refused = apps.attach("a", "run_a").await.expect_error(409);
        assert_eq!(refused["error"], "driven_already", "{refused}");
        assert!(refused["message"].as_str().is_some_and(|text| text.contains(&eval)), "{refused}");
        apps.attach("b", "run_a").await.expect_error(404);
        apps.attach("a", "run%5Fa").await.expect_error(409);
        let read = format!("{API}/agent-runs/run_a");
        apps.ask("b", "GET", &read, None).await.expect_error(404);
        apps.ask("a", "GET", &read, None).await.expect(200);
        apps.bridge.kill9();
        apps.bridge.restart().await;
        apps.wait_for_backend().await;
    }
    assert_eq!(apps.executions(), 1);
    assert_eq!(apps.mantyx.opened("run_a"), 0, "its stream is nobody's to drive");
}

#[tokio::test]
async fn a_call_is_made_once_where_its_run_was_handed_over_before_its_eval_named_it() {
    let mut apps = Apps::start().await;
    let script = Script::new()
        .until("named")
        .raw_event(&in_eval("tu_1"))
        .raw_event(&in_eval("tu_2"))
        .raw_event(&flat("local_tool_result_in", r#","agentRunId":"run_a","toolUseId":"tu_0""#))
        .until("never");
    apps.submit("a", "eval-runs", script).await;
    let own = in_agent_run(Script::new(), "tu_1").until("later");
    apps.mantyx.has_run("run_a", in_agent_run(own, "tu_2").delta("x").until("never"));
    // Nothing tells yet that the run is of an eval.
    assert_eq!(apps.attach("b", "run_a").await.status, 202);
    apps.mantyx.answer("tu_1").await;
    apps.mantyx.release("named");
    apps.mantyx.answer("tu_2").await;
    apps.mantyx.release("later");
    wait::soon("the driver of the agent run should read on", async || {
        let runs = apps.ask("b", "GET", "/v1/runs", None).await.expect(200);
        (runs["runs"][0]["lastSeq"] == 3).then_some(())
    })
    .await;
    assert_eq!(apps.executions(), 2, "each of the two made one");
    // Now it is known whose run it is.
    let read = format!("{API}/agent-runs/run_a");
    apps.ask("b", "GET", &read, None).await.expect_error(404);
    apps.ask("a", "GET", &read, None).await.expect(200);

    apps.bridge.kill9();
    apps.bridge.restart().await;
    apps.wait_for_backend().await;
    wait::soon("both should be driven again", async || {
        let opened = |run: &str| apps.mantyx.opened(run);
        (opened("run_a") >= 2 && opened("run_1") >= 2).then_some(())
    })
    .await;
    apps.ask("b", "GET", &read, None).await.expect_error(404);
    assert_eq!(apps.executions(), 2);
}

#[tokio::test]
async fn two_drivers_that_read_a_call_at_once_make_it_once() {
    let apps = Apps::start().await;
    let calls: Vec<String> = (0..20).map(|number| format!("tu_{number}")).collect();
    let eval = Script::new().until("go");
    let eval = calls.iter().fold(eval, |script, id| script.raw_event(&in_eval(id)));
    apps.submit("a", "eval-runs", eval.until("never")).await;
    // What is read while the past is, is held for a while.
    let own = calls.iter().fold(Script::new(), |script, id| in_agent_run(script, id));
    apps.mantyx.has_run("run_a", own.until("never"));
    let (attached, ()) =
        tokio::join!(apps.attach("a", "run_a"), async { apps.mantyx.release("go") });
    assert!(matches!(attached.status, 202 | 409), "{}", attached.text());
    for id in &calls {
        apps.mantyx.answer(id).await;
    }
    if attached.status == 202 {
        apps.settled("a", "run_a").await;
    }
    assert_eq!(apps.executions(), calls.len());
}

/// What one app has created without tools of the bridge, and every way to it.
struct Bare {
    run: String,
    eval: String,
    session: String,
    message: String,
}

impl Bare {
    async fn create(apps: &Apps) -> Self {
        let create = async |target: &str| -> Value {
            apps.mantyx.script(Script::new().delta("a").until("never"));
            let request = apps.request("a", "POST", &format!("{API}/{target}")).json(EVAL);
            let request = request.header("X-Bridge-Backends", "none");
            request.answer(apps.bridge.addr()).await.value()
        };
        let id = |value: &Value, key: &str| value[key].as_str().expect("an id").to_owned();
        let session = id(&create("agent-sessions").await, "sessionId");
        let message = id(&create(&format!("agent-sessions/{session}/messages")).await, "runId");
        Self {
            run: id(&create("agent-runs").await, "runId"),
            eval: id(&create("eval-runs").await, "runId"),
            session,
            message,
        }
    }

    fn ways(&self) -> Vec<(&'static str, String)> {
        let Self { run, eval, session, message } = self;
        let mut ways = Vec::new();
        for run in [run, message] {
            ways.push(("POST", format!("/v1/runs/{run}/attach")));
            ways.push(("POST", format!("{API}/agent-runs/{run}/tool-results")));
            ways.push(("GET", format!("/api/v1/Workspaces/acme/agent-runs/{run}")));
            ways.push(("GET", format!("{API}/Agent-Runs/{run}")));
            ways.push(("GET", format!("/api/v1/workspaces/ACME/agent-runs/{run}/stream")));
            ways.push(("GET", format!("{API}/agent-runs/{}", run.to_uppercase())));
            ways.push(("GET", format!("/api/v2/workspaces/acme/agent-runs/{run};x=1")));
        }
        for run in [
            format!("agent-runs/{run}"),
            format!("agent-runs/{message}"),
            format!("eval-runs/{eval}"),
        ] {
            ways.push(("GET", format!("{API}/{run}")));
            ways.push(("GET", format!("{API}/{run}/stream")));
            ways.push(("POST", format!("{API}/{run}/cancel")));
        }
        for rest in ["", "/events"] {
            ways.push(("GET", format!("{API}/agent-sessions/{session}{rest}")));
        }
        ways.push(("POST", format!("{API}/agent-sessions/{session}/messages")));
        ways.push(("DELETE", format!("{API}/agent-sessions/{session}")));
        ways
    }
}

#[tokio::test]
async fn run_that_was_created_without_tools_belongs_to_its_app() {
    let mut apps = Apps::start().await;
    let bare = Bare::create(&apps).await;
    for _ in 0..2 {
        let before = apps.mantyx.recorded().len();
        for (method, way) in bare.ways() {
            let body = (method == "POST").then_some("{}");
            let refused = apps.ask("b", method, &way, body).await;
            assert_eq!(refused.status, 404, "{method} {way}: {}", refused.text());
        }
        assert_eq!(apps.mantyx.recorded().len(), before, "MANTYX was not asked");
        apps.bridge.kill9();
        apps.bridge.restart().await;
        apps.wait_for_backend().await;
    }
    for target in [&bare.run, &bare.message] {
        let read = format!("{API}/agent-runs/{target}");
        apps.ask("a", "GET", &read, None).await.expect(200);
    }
    assert_eq!(apps.attach("a", &bare.run).await.status, 202, "its own");
}

/// Whether MANTYX folds letter case is not known. It must be one run where it does.
#[tokio::test]
async fn a_run_is_the_same_in_every_spelling() {
    let apps = Apps::start().await;
    let script = in_agent_run(Script::new(), "tu_1").delta("x").until("never");
    let run = apps.submit("a", "agent-runs", script).await;
    apps.mantyx.answer("tu_1").await;
    let loud = run.to_uppercase();
    assert_ne!(loud, run);
    let before = apps.mantyx.recorded().len();
    for (workspace, run) in [("ACME", &run), ("acme", &loud), ("aCmE", &loud)] {
        let below = format!("/api/v1/workspaces/{workspace}/agent-runs/{run}");
        let request = apps.request("a", "GET", &format!("{below}/stream"));
        let mut stream = Stream::request(&apps.bridge, request).await;
        let call = stream.event().await.expect("the call").fields();
        assert_ne!(call.event.as_deref(), Some("local_tool_call"), "it is masked");
        let body = format!(r#"{{"workspace":"{workspace}"}}"#);
        let way = format!("/v1/runs/{run}/attach");
        let known = apps.ask("a", "POST", &way, Some(&body)).await;
        assert_eq!(known.status, 200, "it is driven already: {}", known.text());
        let result = Some(r#"{"toolUseId":"tu_1","result":"forged"}"#);
        apps.ask("a", "POST", &format!("{below}/tool-results"), result).await.expect_error(404);
        for spelled in [format!("{below};x=1/stream"), format!("{below}%3Bx/stream")] {
            apps.ask("a", "GET", &spelled, None).await.expect_error(400);
        }
    }
    assert_eq!(apps.mantyx.recorded().len(), before, "MANTYX was not asked");
    assert_eq!(apps.mantyx.opened(&run), 1, "by one driver");
}

/// MANTYX takes the last of two equal keys.
#[tokio::test]
async fn a_message_that_the_bridge_cannot_read_makes_no_run_without_an_owner() {
    const UNREADABLE: &str = r#"{"prompt":"a","prompt":"b"}"#;
    let apps = Apps::start().await;
    let created = apps.ask("a", "POST", &format!("{API}/agent-sessions"), Some("{}")).await;
    let session = created.expect(201)["sessionId"].as_str().expect("an id").to_owned();
    let messages = format!("{API}/agent-sessions/{session}/messages");
    let before = apps.mantyx.recorded().len();
    apps.ask("a", "POST", &messages, Some(UNREADABLE)).await.expect_error(400);
    let encoded = apps.request("a", "POST", &messages).header("Content-Encoding", "gzip");
    encoded.json("x").answer(apps.bridge.addr()).await.expect_error(415);
    assert_eq!(apps.mantyx.recorded().len(), before, "MANTYX was not asked");

    let bare = Bare::create(&apps).await;
    let messages = format!("{API}/agent-sessions/{}/messages", bare.session);
    for encoding in ["identity", "gzip"] {
        let request = apps.request("a", "POST", &messages).header("Content-Encoding", encoding);
        let request = request.header("X-Bridge-Backends", "none").json(UNREADABLE);
        let run = request.answer(apps.bridge.addr()).await.expect(202)["runId"].clone();
        let read = format!("{API}/agent-runs/{}", run.as_str().expect("an id"));
        apps.ask("b", "GET", &read, None).await.expect_error(404);
        apps.ask("a", "GET", &read, None).await.expect(200);
    }
}

#[tokio::test]
async fn the_first_that_hands_over_an_unknown_run_has_it() {
    let apps = Apps::start().await;
    apps.mantyx.has_run("run_a", Script::new().delta("x").until("never"));
    let read = format!("{API}/agent-runs/run_a");
    for app in ["a", "b"] {
        apps.ask(app, "GET", &read, None).await.expect(200);
    }
    assert_eq!(apps.attach("b", "run_a").await.status, 202);
    apps.attach("a", "run_a").await.expect_error(404);
    apps.ask("a", "GET", &read, None).await.expect_error(404);
    assert_eq!(apps.attach("b", "run_a").await.status, 200, "it has a driver already");
}
