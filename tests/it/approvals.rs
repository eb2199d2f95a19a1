//! Calls that a person has to approve: nothing reaches the tool before, and what is approved is
//! what is made.

mod restarts;

use serde_json::{Value, json};

use crate::{
    bridge::{API, Bridge},
    cli,
    effects::{Effects, Kind},
    events::{self, EVENTS},
    frames::Script,
    harness::Harness,
    http::{Answer, Connection, Request},
    owners::{Apps, token},
    peers,
    sse::Stream,
    wait,
};

/// Asked before every call of `plain`.
pub(crate) const ALL: &str = "approve: ['*'],";

const NOTE: &str = r#"{"text":"x"}"#;

pub(crate) async fn list(bridge: &Bridge) -> Vec<Value> {
    let all = bridge.api("GET", "/v1/approvals", None).await.expect(200);
    all["approvals"].as_array().expect("a list").clone()
}

/// Waits until so many calls wait; what is asked of each.
pub(crate) async fn waiting(bridge: &Bridge, count: usize) -> Vec<Value> {
    wait::soon(&format!("{count} calls should wait for a person"), async || {
        let mut all = list(bridge).await;
        all.retain(|one| one["state"] == "waiting");
        (all.len() == count).then_some(all)
    })
    .await
}

/// Waits until one call waits; the id of its question.
pub(crate) async fn asked(bridge: &Bridge) -> String {
    id(&waiting(bridge, 1).await[0])
}

pub(crate) fn id(approval: &Value) -> String {
    approval["id"].as_str().expect("an id").to_owned()
}

/// What the operator decides.
pub(crate) async fn decide(bridge: &Bridge, id: &str, body: &str) -> Answer {
    let request = bridge.request("POST", &format!("/v1/approvals/{id}")).json(body);
    request.header("X-Bridge-Operator", &bridge.operator()).answer(bridge.addr()).await
}

pub(crate) async fn approve(bridge: &Bridge, id: &str) -> Value {
    decide(bridge, id, r#"{"decision":"approve"}"#).await.expect(200)
}

/// Waits until the question has ended so.
async fn ended(bridge: &Bridge, id: &str, state: &str) -> Value {
    wait::soon(&format!("the question should be {state}"), async || {
        let all = list(bridge).await;
        all.into_iter().find(|one| one["id"] == id && one["state"] == state)
    })
    .await
}

#[track_caller]
fn error_of(answer: &Value) -> &str {
    answer["error"].as_str().unwrap_or_else(|| panic!("an error: {answer}"))
}

#[tokio::test]
async fn an_approved_call_is_made_with_the_arguments_that_were_shown() {
    let rig = Harness::with_keys("approve: [a*],", "", &[], "").await;
    let mut events = Stream::open(&rig.bridge, EVENTS).await;
    let exact = r#"{"b":1.10,"a":[ 123456789012345678901 ],"u":"\u202e"}"#;
    let script = Script::new()
        .mcp("tu_1", "plain", "plain_args", exact)
        .mcp("tu_2", "plain", "plain_note", NOTE)
        .answered("tu_2")
        .answered("tu_1");
    let run = rig.run(script.done()).await;
    assert_eq!(rig.mantyx.answer("tu_2").await["result"], "noted: x", "no glob is of this one");
    let shown = waiting(&rig.bridge, 1).await.remove(0);
    let told = events::until(&mut events, "approval", |_| true).await;
    let expected = json!({
        "id": shown["id"], "state": "waiting", "app": "default", "runId": run.run_id,
        "kind": "call", "toolUseId": "tu_1", "name": "plain_args", "backend": "plain", "tool": "args",
        "argumentsSha256": shown["argumentsSha256"], "since": shown["since"],
        "deadline": shown["deadline"], "decidedAt": null, "reason": null,
    });
    assert_eq!(told, expected, "an event does not carry arguments");
    let text = rig.bridge.api("GET", "/v1/approvals", None).await.text();
    assert!(text.contains(&format!(r#""arguments":{exact}"#)), "verbatim: {text}");
    assert_eq!(shown["argumentsText"], exact, "nothing in it is invisible");
    assert_eq!(shown["description"], "Repeats its arguments.", "what a person decides on");
    assert_eq!(shown["destructive"], true, "its server does not say otherwise");
    assert_eq!(rig.bridge.status().await["approvals"], json!({"waiting": 1}));
    let call = crate::pending::shown(&rig.bridge, "tu_1").await;
    assert_eq!((&call["state"], &call["outcome"]), (&"waiting".into(), &Value::Null));
    assert_eq!(rig.executions().len(), 1, "nothing has reached the tool");

    let decided = approve(&rig.bridge, &id(&shown)).await;
    assert_eq!((&decided["state"], &decided["id"]), (&"approved".into(), &shown["id"]));
    assert_eq!(rig.mantyx.answer("tu_1").await["result"], exact);
    assert_eq!(rig.executions().len(), 2);
    events::until(&mut events, "approval", |one| one["state"] == "approved").await;
    let metrics = rig.bridge.api("GET", "/metrics", None).await.text();
    assert!(metrics.contains("mantyx_bridge_approvals_waiting 0"), "{metrics}");
    assert!(metrics.contains("mantyx_bridge_approvals_total{outcome=\"approved\"} 1"), "{metrics}");
}

#[tokio::test]
async fn a_denied_call_is_not_made_and_the_model_learns_why() {
    let rig = Harness::with_keys(ALL, "", &[], "audit: {file: state/audit.jsonl}\n").await;
    rig.run(Script::one_call("tu_1", "plain", "plain_note", NOTE)).await;
    let id = asked(&rig.bridge).await;
    for bad in ["{}", r#"{"decision":"yes"}"#, r#"{"decision":"deny","why":"x"}"#, "deny"] {
        decide(&rig.bridge, &id, bad).await.expect_error(400);
    }
    let long = json!({"decision": "deny", "reason": "x".repeat(1001)}).to_string();
    decide(&rig.bridge, &id, &long).await.expect_error(400);
    let denied = r#"{"decision":"deny","reason":"Use the test server."}"#;
    let told = decide(&rig.bridge, &id, denied).await.expect(200);
    assert_eq!(
        (&told["state"], &told["reason"]),
        (&"denied".into(), &"Use the test server.".into())
    );
    let answer = rig.mantyx.answer("tu_1").await;
    let error = error_of(&answer);
    assert!(error.contains("denied") && error.ends_with("Use the test server."), "{error}");

    for again in [denied, r#"{"decision":"approve"}"#] {
        let refused = decide(&rig.bridge, &id, again).await.expect_error(409);
        assert_eq!(refused["error"], "already_decided", "{refused}");
    }
    let unknown = decide(&rig.bridge, "apr_0", denied).await.expect_error(404);
    assert_eq!(unknown["error"], "not_found");
    assert!(rig.executions().is_empty());

    let line = wait::soon("the audit log should tell", async || {
        let text = std::fs::read_to_string(rig.bridge.state("audit.jsonl")).ok()?;
        text.ends_with('\n').then(|| serde_json::from_str::<Value>(&text).expect("one line"))
    })
    .await;
    assert_eq!(line["outcome"], "not_approved", "{line}");
    let mut approval = line["approval"].clone();
    assert!(approval["ms"].take().is_u64(), "{line}");
    let expected = json!({
        "outcome": "denied", "by": "operator", "reason": "Use the test server.", "ms": null,
    });
    assert_eq!(approval, expected);
}

#[tokio::test]
async fn call_without_a_decision_in_time_counts_as_denied() {
    let rig = Harness::with_keys(ALL, "", &[], "calls: {timeout: 2s}\n").await;
    let answer = rig.call("plain", "plain_note", NOTE).await;
    assert!(error_of(&answer).contains("decision"), "{answer}");
    let expired = list(&rig.bridge).await.remove(0);
    assert_eq!(expired["state"], "expired");
    let late = decide(&rig.bridge, &id(&expired), r#"{"decision":"approve"}"#).await;
    assert_eq!(late.expect_error(409)["error"], "already_decided");
    assert!(rig.executions().is_empty());
}

#[tokio::test]
async fn a_call_that_waits_takes_nobodys_turn() {
    let keys = "approve: [note], concurrency: 1,";
    let rig = Harness::with_keys(keys, "", &[], "calls: {max_concurrent: 1}\n").await;
    let script = (0..5).fold(Script::new(), |script, number| {
        script.mcp(&format!("tu_{number}"), "plain", "plain_note", NOTE)
    });
    rig.run(script.until("never")).await;
    waiting(&rig.bridge, 5).await;
    let through = rig.call_again("tu_args", "plain_args", "{}").await;
    assert_eq!(through["result"], "{}");
    let backend = rig.bridge.backend("plain").await;
    assert_eq!(backend["callsInFlight"], 0, "{backend}");
}

#[tokio::test]
async fn a_mistake_in_the_arguments_is_nobodys_to_decide() {
    let rig = Harness::with_keys(ALL, "", &[], "").await;
    let answer = rig.call("plain", "plain_note", r#"{"text":7}"#).await;
    assert!(error_of(&answer).starts_with("tool_input_invalid"), "{answer}");
    assert!(list(&rig.bridge).await.is_empty());
}

#[tokio::test]
async fn approval_of_an_unwanted_call_is_withdrawn() {
    let rig = Harness::with_keys(ALL, "", &[], "").await;
    let run = rig.run(Script::new().mcp("tu_1", "plain", "plain_note", NOTE).until("never")).await;
    let id = asked(&rig.bridge).await;
    let cancel = format!("{API}/agent-runs/{}/cancel", run.run_id);
    rig.bridge.api("POST", &cancel, Some("{}")).await.expect(200);
    ended(&rig.bridge, &id, "withdrawn").await;
    let late = decide(&rig.bridge, &id, r#"{"decision":"approve"}"#).await.expect_error(409);
    assert!(late["message"].as_str().is_some_and(|text| text.contains("withdrawn")), "{late}");

    // The end of the run.
    let script = Script::new().mcp("tu_2", "plain", "plain_note", NOTE).until("over");
    rig.run(script.done()).await;
    let id = asked(&rig.bridge).await;
    rig.mantyx.release("over");
    ended(&rig.bridge, &id, "withdrawn").await;

    // One who asked by hand, and went away.
    let mut connection = Connection::open(rig.bridge.addr()).await;
    let body = format!(r#"{{"toolUseId":"tu_3","name":"plain_note","args":{NOTE}}}"#);
    let head = format!(
        "POST /v1/tool-calls HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        rig.bridge.addr(),
        rig.bridge.token(),
        body.len()
    );
    connection.write(head.as_bytes()).await;
    let shown = waiting(&rig.bridge, 1).await.remove(0);
    assert_eq!((&shown["runId"], &shown["toolUseId"]), (&Value::Null, &"tu_3".into()));
    drop(connection);
    ended(&rig.bridge, &self::id(&shown), "withdrawn").await;
    assert!(rig.executions().is_empty());
}

#[tokio::test]
async fn a_call_by_hand_waits_as_well() {
    let rig = Harness::with_keys(ALL, "", &[], "").await;
    let body = format!(r#"{{"toolUseId":"tu_1","name":"plain_note","args":{NOTE}}}"#);
    let call = rig.bridge.api("POST", "/v1/tool-calls", Some(&body));
    let decided = async {
        let id = asked(&rig.bridge).await;
        approve(&rig.bridge, &id).await
    };
    let (answer, _) = tokio::join!(call, decided);
    assert_eq!(answer.expect(200)["result"], "noted: x");
}

/// Which apps there are, what `a` decides, and who may.
#[tokio::test]
async fn only_the_operator_decides_unless_an_app_may() {
    for (approves, own) in [("", 403), (", approves: false", 403), (", approves: true", 200)] {
        let apps = Apps::with(ALL, approves).await;
        let decision = r#"{"decision":"approve"}"#;
        let body = format!(r#"{{"toolUseId":"tu_1","name":"plain_note","args":{NOTE}}}"#);
        let call = apps.ask("a", "POST", "/v1/tool-calls", Some(&body));
        let decided = async {
            let target = format!("/v1/approvals/{}", apps.asked().await);
            let listed =
                async |app: &str| apps.ask(app, "GET", "/v1/approvals", None).await.expect(200);
            let (of_a, of_b) = (listed("a").await, listed("b").await);
            assert_eq!(of_a["approvals"][0]["argumentsText"], NOTE, "an app sees its own");
            assert_eq!(
                (&of_a["mayDecide"], &of_b["mayDecide"]),
                (&(own == 200).into(), &false.into())
            );
            assert_eq!(of_b["approvals"], json!([]));
            let status = apps.ask("b", "GET", "/v1/status", None).await.expect(200);
            assert_eq!(status["approvals"]["waiting"], 0);
            for target in [target.as_str(), "/v1/approvals/apr_0"] {
                let refused = apps.ask("b", "POST", target, Some(decision)).await;
                assert_eq!(refused.expect_error(403)["error"], "operator_only");
            }
            let wrong = apps.request("a", "POST", &target).json(decision);
            let wrong = wrong.header("X-Bridge-Operator", &token("a")).answer(apps.bridge.addr());
            assert_eq!(apps.executions(), 0);
            let mine = if own == 200 {
                apps.ask("a", "POST", &target, Some(decision)).await
            } else {
                wrong.await
            };
            assert_eq!(mine.status, own, "{approves}: {}", mine.text());
            if own == 403 {
                assert_eq!(apps.executions(), 0, "nothing was made");
                // With the token of whichever app: it is the secret that counts.
                let request = apps.request("b", "POST", &target).json(decision);
                let request = request.header("X-Bridge-Operator", &apps.bridge.operator());
                request.answer(apps.bridge.addr()).await.expect(200);
            }
        };
        let (answer, ()) = tokio::join!(call, decided);
        assert_eq!(answer.expect(200)["result"], "noted: x", "{approves}");
    }
}

#[tokio::test]
async fn app_that_approves_its_own_calls_decides_on_no_others() {
    let apps = Apps::with(ALL, ", approves: true").await;
    let body = format!(r#"{{"toolUseId":"tu_1","name":"plain_note","args":{NOTE}}}"#);
    let call = apps.ask("b", "POST", "/v1/tool-calls", Some(&body));
    let decided = async {
        let target = format!("/v1/approvals/{}", apps.asked().await);
        let decision = Some(r#"{"decision":"approve"}"#);
        let others = apps.ask("a", "POST", &target, decision).await;
        let nobodys = apps.ask("a", "POST", "/v1/approvals/apr_0", decision).await;
        assert_eq!((others.status, others.body), (404, nobodys.body), "one looks like the other");
        apps.decide(target.rsplit('/').next().expect("an id"), "deny").await.expect(200);
    };
    let (answer, ()) = tokio::join!(call, decided);
    assert!(error_of(&answer.expect(200)).contains("denied"));
    assert_eq!(apps.executions(), 0);
}

#[tokio::test]
async fn tool_that_may_destroy_is_asked_about_as_its_server_says() {
    let effects = Effects::new();
    let server = peers::with(&effects.server(), "approve: destructive");
    let rig = Harness::bare(&format!("mcp:\n  plain: {server}\n")).await;
    rig.bridge.wait_backend("plain", "ready").await;
    let script = Kind::ALL.iter().fold(Script::new(), |script, kind| {
        let tool = kind.tool();
        script.mcp(&format!("tu_{tool}"), "plain", &format!("plain_{tool}"), "{}")
    });
    rig.run(script.until("never")).await;
    let all = waiting(&rig.bridge, 3).await;
    let mut tools: Vec<&str> = all.iter().filter_map(|one| one["tool"].as_str()).collect();
    tools.sort_unstable();
    assert_eq!(tools, ["destructive", "idempotent", "unsaid"]);
    for id in ["tu_read", "tu_additive"] {
        assert!(rig.mantyx.answer(id).await["result"].is_string(), "{id}");
    }
}

#[tokio::test]
async fn an_agent_is_asked_about_under_its_own_name() {
    let rig = Harness::bare("a2a:\n  desk: {bundled: true, approve: ['*']}\n").await;
    rig.bridge.wait_backend("desk", "ready").await;
    rig.run(Script::new().a2a("tu_1", "desk", "Where do I park?").answered("tu_1").done()).await;
    let shown = waiting(&rig.bridge, 1).await.remove(0);
    assert_eq!((&shown["name"], &shown["tool"]), (&"desk".into(), &"".into()));
    approve(&rig.bridge, &id(&shown)).await;
    assert!(rig.mantyx.answer("tu_1").await["result"].is_string());
}

#[tokio::test]
async fn a_changed_file_is_taken_for_later_calls() {
    let mut rig = Harness::with_keys(ALL, "", &[], "").await;
    rig.run(Script::one_call("tu_1", "plain", "plain_note", NOTE)).await;
    let first = asked(&rig.bridge).await;
    let text = std::fs::read_to_string(rig.bridge.config_path()).expect("it is there");
    rig.bridge.set_config(&text.replace(ALL, "approve: [args],"));
    rig.bridge.process().signal(rustix::process::Signal::HUP);
    wait::soon("the file should be taken", async || {
        let id = "tu_by_hand";
        let body = format!(r#"{{"toolUseId":"{id}","name":"plain_note","args":{NOTE}}}"#);
        let call = rig.bridge.api("POST", "/v1/tool-calls", Some(&body));
        let patience = std::time::Duration::from_millis(500);
        tokio::time::timeout(patience, call).await.ok().map(|answer| answer.expect(200))
    })
    .await;
    assert_eq!(asked(&rig.bridge).await, first, "what was asked before is still asked");
    approve(&rig.bridge, &first).await;
    assert_eq!(rig.mantyx.answer("tu_1").await["result"], "noted: x");
}

#[tokio::test]
async fn a_mistyped_glob_is_told_everywhere() {
    let plain = Effects::new();
    let server = peers::with(&plain.server(), "approve: [destructiv], tools: {deny: [additve]}");
    let (mine, theirs) = (token("a"), token("b"));
    let config = format!(
        "upstream: {{sandbox: true}}
apps:
  mine: {{token: {mine}, tools: {{plain: {{deny: [raed]}}}}}}
  theirs: {{token: {theirs}, tools: {{plain: {{allow: ['*'], deny: [rite]}}}}}}
mcp:
  plain: {server}
"
    );
    let mut bridge = Bridge::ready(&config).await;
    let operators = "Of its 5 tools, none matches `destructiv` (mcp.plain.approve[0], line 6), \
                     `additve` (mcp.plain.tools.deny[0], line 6), `raed` \
                     (apps.mine.tools.plain.deny[0], line 3), `rite` \
                     (apps.theirs.tools.plain.deny[0], line 4).";
    let problem = async |bridge: &Bridge, is_operator: bool| {
        let mut request = Request::new("GET", "/v1/status").bearer(&mine);
        if is_operator {
            request = request.header("X-Bridge-Operator", &bridge.operator());
        }
        let status = request.answer(bridge.addr()).await.expect(200);
        let problems = status["problems"].as_array().expect("a list").iter();
        let mut told = problems.filter(|problem| problem["subject"] == "plain");
        told.find_map(|problem| {
            let message = problem["message"].as_str().expect("a text");
            message.contains("none matches").then(|| message.to_owned())
        })
    };
    let told = wait::soon("the operator should be told", async || problem(&bridge, true).await);
    assert_eq!(told.await, operators);
    let own = problem(&bridge, false).await.expect("a problem");
    assert!(own.contains("raed") && !own.contains("rite"), "an app sees its own rules: {own}");
    wait::soon("the log should tell", async || {
        bridge.log().contains("globs of bridge.yaml have no effect").then_some(())
    })
    .await;
    let path = bridge.config_path();
    let path = path.to_str().expect("a path of the tests is UTF-8");
    for command in ["doctor", "check"] {
        // The catalog is on disk a moment after it is known.
        let told = wait::soon(&format!("{command} should tell"), async || {
            let ran = cli::run_with(&[command, "-c", path], &[]).await;
            ran.out.contains("none matches").then_some(ran.out)
        })
        .await;
        assert!(told.contains(operators), "{told}");
    }
    bridge.change_config("[destructiv]", "destructive");
    bridge.change_config("[additve]", "[additive]");
    bridge.change_config("raed", "read");
    bridge.change_config("rite", "write*");
    wait::soon("only what has no effect should be told", async || {
        let left = problem(&bridge, true).await?;
        (left == "Of its 5 tools, none matches `write*` (apps.theirs.tools.plain.deny[0], line 4).")
            .then_some(())
    })
    .await;
}
