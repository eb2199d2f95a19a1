//! Whose credential goes to MANTYX while a run goes on: one that is refused for a while, one that
//! expires, and those of other people.

use std::{fs, time::Duration};

use rustix::process::Signal;
use serde_json::Value;
use tokio::time::timeout;

use crate::{
    approvals::ALL,
    bridge::{API, Bridge},
    events::EVENTS,
    frames::Script,
    harness::Harness,
    http::{Answer, Request},
    mantyx::{CREDENTIAL, Mantyx, Recorded, Reply},
    sse::Stream,
    wait,
};

/// A bridge whose apps bring their own credential; `first` is one that MANTYX takes.
async fn passthrough(first: &str) -> Harness {
    bring_their_own(Harness::start().await, first).await
}

/// The same bridge, where apps bring their own credential.
async fn bring_their_own(mut rig: Harness, first: &str) -> Harness {
    rig.bridge.stop().await;
    let config = fs::read_to_string(rig.bridge.config_path()).expect("the configuration");
    rig.bridge.set_config(&config.replacen(CREDENTIAL, "passthrough", 1));
    rig.bridge.restart().await;
    rig.bridge.wait_backend("plain", "ready").await;
    rig.mantyx.lets_in(&[first]);
    rig
}

/// A request of the app, which shows `credential` to MANTYX; none, where it is empty.
pub(crate) fn showing(bridge: &Bridge, credential: &str, method: &str, target: &str) -> Request {
    let request = Request::new(method, target).header("X-API-Key", bridge.token());
    if credential.is_empty() { request } else { request.bearer(credential) }
}

async fn ask(bridge: &Bridge, credential: &str, method: &str, target: &str) -> Answer {
    let request = showing(bridge, credential, method, target);
    let request = if method == "POST" { request.json("{}") } else { request };
    request.answer(bridge.addr()).await
}

/// The id of a run that follows `script`, created with `credential`.
async fn run(rig: &Harness, credential: &str, script: Script) -> String {
    rig.mantyx.script(script);
    let post = showing(&rig.bridge, credential, "POST", &format!("{API}/agent-runs"));
    let created = post.json(r#"{"prompt":"x"}"#).answer(rig.bridge.addr()).await.expect(202);
    created["runId"].as_str().expect("an id").to_owned()
}

/// What was shown with it.
fn shown(request: &Recorded) -> &str {
    request.header("authorization").unwrap_or_default()
}

/// How often MANTYX was asked for the run itself.
fn asked_for(mantyx: &Mantyx, run: &str) -> usize {
    mantyx.requests("GET", &format!("/agent-runs/{run}")).len()
}

#[tokio::test]
async fn a_result_outlives_a_credential_that_is_refused_for_a_while() {
    let mut rig = Harness::start().await;
    rig.mantyx.replies("tu_1", [401, 403, 401].map(Reply::Status));
    rig.run(Script::one_call("tu_1", "plain", "plain_note", r#"{"text":"a"}"#)).await;
    let posts = rig.mantyx.wait_posts("tu_1", 4).await;
    assert!(posts.iter().all(|post| post.body == posts[0].body), "the same bytes: {posts:?}");
    assert!(rig.mantyx.is_answered("tu_1"));

    // Somebody replaces the key: the next attempt has the new one.
    let script = Script::new().until("go").mcp("tu_2", "plain", "plain_note", r#"{"text":"b"}"#);
    let run = rig.run(script.answered("tu_2").done()).await;
    wait::soon("the stream should be opened", async || {
        (rig.mantyx.opened(&run.run_id) > 0).then_some(())
    })
    .await;
    rig.mantyx.lets_in(&["new-key-canary"]);
    rig.mantyx.release("go");
    rig.mantyx.wait_posts("tu_2", 2).await;
    let config = fs::read_to_string(rig.bridge.config_path()).expect("the configuration");
    rig.bridge.set_config(&config.replacen(CREDENTIAL, "new-key-canary", 1));
    rig.bridge.process().signal(Signal::HUP);
    wait::soon("the result should be taken", async || rig.mantyx.is_answered("tu_2").then_some(()))
        .await;
    let posts = rig.mantyx.posts("tu_2");
    let (last, before) = posts.split_last().expect("posts");
    assert_eq!(shown(last), "Bearer new-key-canary");
    assert!(before.iter().all(|post| shown(post) == format!("Bearer {CREDENTIAL}")));
    assert_eq!(rig.executions().len(), 2, "nothing was called again");
}

#[tokio::test]
async fn an_answer_that_is_not_taken_is_replaced_by_a_short_error() {
    let mut rig = Harness::start().await;
    // Too large, and then the bridge is killed before the error is taken.
    rig.mantyx.replies("tu_1", [413, 503, 503, 503, 503, 503, 503, 503].map(Reply::Status));
    rig.run(Script::one_call("tu_1", "plain", "plain_note", r#"{"text":"a"}"#)).await;
    rig.mantyx.wait_posts("tu_1", 3).await;
    rig.bridge.kill9();
    rig.mantyx.replies("tu_1", []);
    rig.bridge.restart().await;
    wait::soon("the error should be taken", async || rig.mantyx.is_answered("tu_1").then_some(()))
        .await;
    let posts = rig.mantyx.posts("tu_1");
    let (first, others) = posts.split_first().expect("posts");
    assert_eq!(first.value()["result"], "noted: a");
    let error = others[0].value()["error"].as_str().expect("an error").to_owned();
    assert!(error.contains(&format!("HTTP 413); it was {} bytes", first.body.len())), "{error}");
    assert!(others.iter().all(|post| post.body == others[0].body), "one answer: {others:?}");
    assert_eq!(rig.executions().len(), 1);

    // Where the error is refused as well, there is no third.
    rig.mantyx.replies("tu_2", [400, 400].map(Reply::Status));
    rig.run(Script::one_call("tu_2", "plain", "plain_note", r#"{"text":"b"}"#)).await;
    rig.mantyx.wait_posts("tu_2", 2).await;
    wait::soon("the result should be given up", async || {
        let metrics = rig.bridge.api("GET", "/metrics", None).await.text();
        metrics.contains("mantyx_bridge_results_undelivered_total 2").then_some(())
    })
    .await;
    assert_eq!(rig.mantyx.posts("tu_2").len(), 2);
}

/// A token of MANTYX lives for an hour, and a run may live longer.
#[tokio::test]
async fn a_fresh_token_of_its_app_replaces_one_that_expired() {
    let rig = passthrough("first").await;
    let script = Script::new()
        .until("expired")
        .mcp("tu_1", "plain", "plain_note", r#"{"text":"a"}"#)
        .answered("tu_1");
    let script = script.until("cut").delta("again").done();
    let cut = script.bytes().len() - 1;
    let id = run(&rig, "first", script.cut([cut])).await;
    let target = format!("{API}/agent-runs/{id}");
    wait::soon("the stream should be opened", async || (rig.mantyx.opened(&id) > 0).then_some(()))
        .await;
    rig.mantyx.lets_in(&["second"]);
    rig.mantyx.release("expired");
    rig.mantyx.wait_posts("tu_1", 1).await;
    // What MANTYX does not take replaces nothing.
    for junk in ["junk", ""] {
        ask(&rig.bridge, junk, "GET", &target).await.expect_error(401);
    }
    let before = rig.mantyx.posts("tu_1").len();
    rig.mantyx.wait_posts("tu_1", before + 1).await;
    assert!(!rig.mantyx.is_answered("tu_1"));
    ask(&rig.bridge, "second", "GET", &target).await.expect(200);
    wait::soon("the result should be taken", async || rig.mantyx.is_answered("tu_1").then_some(()))
        .await;
    let posts = rig.mantyx.posts("tu_1");
    assert!(posts.iter().all(|post| ["Bearer first", "Bearer second"].contains(&shown(post))));

    // The stream breaks when a third one is good; the app shows it by asking for the stream.
    rig.mantyx.lets_in(&["third"]);
    rig.mantyx.release("cut");
    let events = ask(&rig.bridge, "third", "GET", &format!("{target}/stream")).await;
    assert!(events.text().contains("event: result"), "{}", events.text());
    let streams = rig.mantyx.requests("GET", "/stream");
    let taken: Vec<&str> = streams.iter().map(shown).collect();
    assert_eq!(taken.first(), Some(&"Bearer first"));
    assert_eq!(taken.last(), Some(&"Bearer third"), "{taken:?}");
}

#[tokio::test]
async fn a_run_that_waits_for_its_apps_credential_is_counted() {
    let mut rig = passthrough("mine").await;
    let script = Script::new().mcp("tu_1", "plain", "plain_hang", "{}").until("later").done();
    let id = run(&rig, "mine", script).await;
    rig.wait_executions(1).await;
    rig.bridge.kill9();
    rig.bridge.wait_childless().await;
    rig.bridge.restart().await;
    assert_eq!(rig.bridge.status().await["runs"], serde_json::json!({"driven": 0, "asleep": 1}));
    let request = showing(&rig.bridge, "mine", "GET", &format!("{API}/agent-runs/{id}/stream"));
    let _open = Stream::request(&rig.bridge, request).await;
    wait::soon("its app has come back", async || {
        (rig.bridge.status().await["runs"]["asleep"] == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_runs_events_are_for_those_whom_mantyx_lets_see_it() {
    let mut rig = passthrough("mine").await;
    let script = Script::new().mcp("tu_1", "plain", "plain_hang", "{}").delta("secret-word");
    let id = run(&rig, "mine", script.until("later").done()).await;
    let (target, own) = (format!("{API}/agent-runs/{id}"), format!("/v1/runs/{id}"));
    rig.wait_executions(1).await;
    let attach = format!("{own}/attach");
    let others = async |rig: &Harness| {
        for other in ["other", ""] {
            for (method, target) in [
                ("GET", format!("{target}/stream")),
                ("POST", format!("{target}/tool-results")),
                ("POST", format!("{target}/cancel")),
                ("POST", attach.clone()),
            ] {
                let answer = ask(&rig.bridge, other, method, &target).await;
                let body = answer.expect_error(401);
                assert_eq!(body["error"], "unauthorized", "{other} {method} {target}");
                assert!(!answer.text().contains("secret-word"), "{}", answer.text());
            }
        }
    };
    others(&rig).await;
    let before = asked_for(&rig.mantyx, &id);
    let open = async |rig: &Harness, credential: &str| {
        let request = showing(&rig.bridge, credential, "GET", &format!("{target}/stream"));
        let events = Stream::request(&rig.bridge, request).await.until("assistant_delta").await;
        let text: String = events.iter().map(|frame| String::from_utf8_lossy(&frame.raw)).collect();
        assert!(text.contains("secret-word") && text.contains("plain_hang"), "{text}");
        assert!(!text.contains("event: local_tool_call"), "the call is masked: {text}");
    };
    open(&rig, "mine").await;
    assert_eq!(asked_for(&rig.mantyx, &id), before, "whose run it is needs no question");
    let body = r#"{"toolUseId":"tu_1","result":"forged"}"#;
    let forged = showing(&rig.bridge, "mine", "POST", &format!("{target}/tool-results")).json(body);
    forged.answer(rig.bridge.addr()).await.expect_error(404);

    // Whom MANTYX lets see it, sees it as everybody does; and is not asked about each time.
    rig.mantyx.lets_in(&["mine", "friend"]);
    for _ in 0..3 {
        open(&rig, "friend").await;
    }
    assert_eq!(asked_for(&rig.mantyx, &id), before + 1);
    let reading = async |credential: &str| {
        let request = showing(&rig.bridge, credential, "GET", &format!("{target}/stream"));
        let mut stream = Stream::request(&rig.bridge, request).await;
        stream.until("assistant_delta").await;
        stream
    };
    let (mut theirs, mut own_stream) = (reading("friend").await, reading("mine").await);
    rig.mantyx.lets_in(&["mine"]);
    ask(&rig.bridge, "friend", "GET", &target).await.expect_error(401);
    while theirs.next().await.is_some() {}
    let ends = timeout(Duration::from_millis(300), own_stream.event()).await;
    ends.expect_err("the other's token is as good as it was");

    // After a restart, nobody is known, and only who MANTYX knows takes the run up again.
    rig.bridge.kill9();
    rig.bridge.restart().await;
    rig.bridge.wait_backend("plain", "ready").await;
    rig.mantyx.forget_requests();
    others(&rig).await;
    assert!(rig.mantyx.requests("GET", "/stream").is_empty(), "the run is not taken up");
    rig.mantyx.release("later");
    let events = ask(&rig.bridge, "mine", "GET", &format!("{target}/stream")).await;
    assert!(events.text().contains("event: result"), "{}", events.text());
}

#[tokio::test]
async fn bridges_own_answers_about_a_run_are_for_apps_whom_mantyx_lets_see_it() {
    let mut rig = Harness::with_keys(ALL, "", &[], "").await;
    let config = fs::read_to_string(rig.bridge.config_path()).expect("the configuration");
    let token = rig.bridge.token();
    let apps = format!("apps: {{default: {{token: {token}, approves: true}}}}\n");
    rig.bridge.set_config(&format!("{config}{apps}"));
    let rig = bring_their_own(rig, "mine").await;
    let script = Script::new().mcp("tu_1", "plain", "plain_note", r#"{"text":"secret-word"}"#);
    let looking = |credential: &str| showing(&rig.bridge, credential, "GET", EVENTS);
    let mut others = Stream::request(&rig.bridge, looking("other")).await;
    let mut own = Stream::request(&rig.bridge, looking("mine")).await;
    let id = run(&rig, "mine", script.answered("tu_1").done()).await;
    let question = waiting_as_operator(&rig.bridge).await;
    let lists = ["runs", "calls", "approvals"];
    let run_path = format!("/v1/runs/{id}");
    let decision = showing(&rig.bridge, "other", "POST", &format!("/v1/approvals/{question}"));
    let decision = decision.json(r#"{"decision":"approve"}"#);
    for other in ["other", ""] {
        for list in lists {
            let seen = ask(&rig.bridge, other, "GET", &format!("/v1/{list}")).await.expect(200);
            assert_eq!(seen[list], serde_json::json!([]), "{other:?} {list}");
        }
        ask(&rig.bridge, other, "GET", &run_path).await.expect_error(404);
    }
    decision.answer(rig.bridge.addr()).await.expect_error(404);
    assert!(rig.executions().is_empty(), "nobody has decided");

    // Its own user sees it, and decides.
    for list in lists {
        let seen = ask(&rig.bridge, "mine", "GET", &format!("/v1/{list}")).await.expect(200);
        assert_eq!(seen[list][0]["runId"], id.as_str(), "{list}: {seen}");
    }
    ask(&rig.bridge, "mine", "GET", &run_path).await.expect(200);
    let decision = showing(&rig.bridge, "mine", "POST", &format!("/v1/approvals/{question}"));
    let decision = decision.json(r#"{"decision":"approve"}"#);
    decision.answer(rig.bridge.addr()).await.expect(200);
    rig.mantyx.wait_posts("tu_1", 1).await;
    let text = |events: Vec<mantyx_bridge::internals::Frame>| -> String {
        events.iter().map(|frame| String::from_utf8_lossy(&frame.raw)).collect()
    };
    assert!(text(own.until("call").await).contains(&id));
    // What comes next is of a run that the other one may see.
    rig.mantyx.lets_in(&["mine", "other"]);
    let theirs = run(&rig, "other", Script::new().done()).await;
    let told = text(others.until("run").await);
    assert!(told.contains(&theirs) && !told.contains(&id), "{told}");
}

/// Waits for the one question; its id.
async fn waiting_as_operator(bridge: &Bridge) -> String {
    wait::soon("a call should wait for a person", async || {
        let request = Request::new("GET", "/v1/approvals").header("X-API-Key", bridge.token());
        let request = request.header("X-Bridge-Operator", &bridge.operator());
        let list = request.answer(bridge.addr()).await.expect(200);
        list["approvals"][0]["id"].as_str().map(str::to_owned)
    })
    .await
}

/// The answer to one person's request is for no other who may use the app.
#[tokio::test]
async fn key_of_another_credential_gets_no_answer_of_the_first() {
    let mut rig = passthrough("mine").await;
    let body = r#"{"toolUseId":"tu_1","name":"plain_pid","args":{}}"#;
    let ask = async |bridge: &Bridge, credential: &str, key: &str| {
        let request = showing(bridge, credential, "POST", "/v1/tool-calls");
        request.header("Idempotency-Key", key).json(body).answer(bridge.addr()).await
    };
    let first = ask(&rig.bridge, "mine", "k1").await.expect(200);
    assert_eq!(rig.executions().len(), 1);
    for restarts in [false, true] {
        if restarts {
            rig.bridge.kill9();
            rig.bridge.restart().await;
            rig.bridge.wait_backend("plain", "ready").await;
        }
        assert_eq!(ask(&rig.bridge, "mine", "k1").await.expect(200), first);
        for other in ["others", ""] {
            let refused = ask(&rig.bridge, other, "k1").await.expect_error(422);
            assert_eq!(refused["error"], "idempotency_key_reused", "{other:?}: {refused}");
        }
        assert_eq!(rig.executions().len(), 1);
    }
    assert_ne!(ask(&rig.bridge, "others", "k2").await.expect(200), Value::Null);
    assert_eq!(rig.executions().len(), 2, "a key of its own");
    rig.bridge.stop().await;
    let state = fs::read_dir(rig.bridge.state("")).expect("the state directory");
    for file in state.map(|file| file.expect("a file").path()).filter(|path| path.is_file()) {
        let bytes = fs::read(&file).expect("it is readable");
        assert!(!bytes.windows(11).any(|some| some == b"Bearer mine"), "{}", file.display());
    }
}
