//! What a server asks the user is answered by a person, where no MCP client has made the call.

use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    approvals::{asked, decide, id, list, waiting},
    cli::{FAILED, OK, USAGE, with},
    frames::Script,
    harness::Harness,
    http::Request,
    owners::token,
    peers,
    recovery::wait_journaled,
    wait,
};

/// A bridge with the server `ask` that asks what it is told to.
async fn eliciting(rest: &str) -> Harness {
    let rig = Harness::bare(&format!("mcp:\n  ask: {}\n{rest}", peers::eliciting())).await;
    rig.bridge.wait_backend("ask", "ready").await;
    rig
}

/// A form with these fields, of which `name` is required.
fn form(properties: &Value) -> Value {
    let schema = json!({"type": "object", "properties": properties, "required": ["name"]});
    json!({"params": {"message": "Who are you?", "requestedSchema": schema}})
}

fn fields() -> Value {
    form(&json!({"name": {"type": "string"}, "n": {"type": "number"}}))
}

fn answer(content: &str) -> String {
    format!(r#"{{"decision":"answer","content":{content}}}"#)
}

#[tokio::test]
async fn an_answer_reaches_the_server_as_the_person_wrote_it() {
    let rig = eliciting("audit: {file: state/audit.jsonl}\n").await;
    let args = fields();
    rig.run(Script::one_call("tu_1", "ask", "ask_ask", &args.to_string())).await;
    let shown = waiting(&rig.bridge, 1).await.remove(0);
    assert_eq!((&shown["kind"], &shown["tool"]), (&"question".into(), &"ask".into()));
    assert_eq!((&shown["question"], &shown["flaw"]), (&args["params"], &Value::Null));
    assert_eq!(shown["arguments"], args);
    assert_eq!(rig.bridge.status().await["approvals"], json!({"waiting": 1}));
    let id = id(&shown);
    for (bad, part) in [
        (r#"{"decision":"approve"}"#.to_owned(), "answered or denied"),
        (r#"{"decision":"deny","content":{}}"#.to_owned(), "only an answer"),
        (r#"{"decision":"answer"}"#.to_owned(), "`content`"),
        (answer("{}"), r#"`content`: "name" is required"#),
        (answer(r#"{"name":7}"#), "/name: the value is not of type"),
        (answer(r#"{"name":"Ada","n":9,"n":1}"#), "`n` twice"),
        (answer(r#"{"name":"Ada","age":7}"#), "dditional properties are not allowed"),
        (answer("[]"), "`content`"),
    ] {
        let told = decide(&rig.bridge, &id, &bad).await.expect_error(400);
        let message = told["message"].as_str().expect("a text");
        assert!(message.contains(part), "{bad}: {message}");
    }
    assert_eq!(asked(&rig.bridge).await, id, "it still waits");
    let content = "{\"n\": 1.10,\n \"name\":\"\\u0041da\"}";
    let decided = decide(&rig.bridge, &id, &answer(content)).await.expect(200);
    assert_eq!((&decided["state"], &decided["kind"]), (&"answered".into(), &"question".into()));
    let result = rig.mantyx.answer("tu_1").await["result"].clone();
    let verbatim = format!(r#"{{"action":"accept","content":{}}}"#, content.replace('\n', " "));
    assert_eq!(result, verbatim.as_str());

    let again = decide(&rig.bridge, &id, &answer(content)).await.expect_error(409);
    assert_eq!(again["error"], "already_decided");
    let metrics = rig.bridge.api("GET", "/metrics", None).await.text();
    assert!(metrics.contains("mantyx_bridge_approvals_total{outcome=\"answered\"} 1"), "{metrics}");
    let line = wait::soon("the audit log should tell", async || {
        let text = fs::read_to_string(rig.bridge.state("audit.jsonl")).ok()?;
        text.ends_with('\n').then(|| serde_json::from_str::<Value>(&text).expect("one line"))
    })
    .await;
    assert_eq!(line["approval"], Value::Null, "{line}");
    let told = &line["questions"][0];
    assert_eq!((&told["outcome"], &told["by"]), (&"answered".into(), &"operator".into()), "{line}");
}

#[tokio::test]
async fn a_denied_question_is_declined_and_the_model_is_told_if_the_call_fails() {
    let rig = eliciting("").await;
    for fails in [false, true] {
        let mut args = fields();
        args["fail"] = fails.into();
        let tool_use = format!("tu_{fails}");
        rig.run(Script::one_call(&tool_use, "ask", "ask_ask", &args.to_string())).await;
        let id = asked(&rig.bridge).await;
        let denied = r#"{"decision":"deny","reason":"Ask Bob."}"#;
        assert_eq!(decide(&rig.bridge, &id, denied).await.expect(200)["state"], "denied");
        let answer = rig.mantyx.answer(&tool_use).await;
        if fails {
            let error = answer["error"].as_str().expect("an error");
            assert!(error.starts_with(r#"{"action":"decline"}"#), "{error}");
            assert!(error.ends_with("a person and declined. The reason: Ask Bob."), "{error}");
        } else {
            assert_eq!(answer["result"], r#"{"action":"decline"}"#, "it is the server's own");
        }
    }
}

#[tokio::test]
async fn a_question_that_no_person_answers_is_cancelled() {
    let rig = eliciting("calls: {timeout: 2s}\n").await;
    let answer = rig.call("ask", "ask_ask", &fields().to_string()).await;
    assert_eq!(answer["result"], r#"{"action":"cancel"}"#);
    let expired = list(&rig.bridge).await.remove(0);
    assert_eq!((&expired["state"], &expired["question"]), (&"expired".into(), &Value::Null));
    let late = decide(&rig.bridge, &id(&expired), &self::answer("{}")).await.expect_error(409);
    assert!(late["message"].as_str().expect("a text").contains("deadline"), "{late}");
}

#[tokio::test]
async fn question_without_a_form_can_only_be_denied() {
    let rig = eliciting("").await;
    for (params, part) in [
        (json!({"message": "?", "requestedSchema": 7}), "/requestedSchema"),
        (json!({"message": "?", "mode": "url", "url": "javascript:alert(1)"}), "/url"),
        (json!({"message": "?", "mode": "url", "url": "https://a.example/\u{202e}x"}), "/url: it"),
    ] {
        let args = json!({"params": params}).to_string();
        let tool_use = format!("tu_{part}");
        rig.run(Script::one_call(&tool_use, "ask", "ask_ask", &args)).await;
        let shown = waiting(&rig.bridge, 1).await.remove(0);
        assert_eq!(shown["question"], params);
        assert!(shown["flaw"].as_str().expect("a flaw").starts_with(part), "{shown}");
        let refused = decide(&rig.bridge, &id(&shown), &answer("{}")).await.expect_error(400);
        let message = refused["message"].as_str().expect("a text");
        assert!(message.contains("can only be denied"), "{message}");
        let listed = with(&rig, &["approvals"]).await.expect(OK).out;
        assert!(listed.contains("It can only be denied"), "{listed}");
        with(&rig, &["approvals", "deny", &id(&shown)]).await.expect(OK);
        assert_eq!(rig.mantyx.answer(&tool_use).await["result"], r#"{"action":"decline"}"#);
    }
    let mut long = fields();
    long["params"]["message"] = "x".repeat(1 << 20).into();
    long["fail"] = true.into();
    rig.run(Script::one_call("tu_long", "ask", "ask_ask", &long.to_string())).await;
    let answer = rig.mantyx.answer("tu_long").await;
    let error = answer["error"].as_str().expect("an error");
    assert!(error.starts_with(r#"{"action":"cancel"}"#) && error.contains("too long"), "{error}");
}

#[tokio::test]
async fn a_url_is_shown_and_answered_without_content() {
    let rig = eliciting("").await;
    let params = json!({"message": "Log in", "mode": "url", "url": "https://login.example/x"});
    let args = json!({"params": params}).to_string();
    rig.run(Script::one_call("tu_1", "ask", "ask_ask", &args)).await;
    let id = asked(&rig.bridge).await;
    let listed = with(&rig, &["approvals"]).await.expect(OK).out;
    assert!(listed.contains("open https://login.example/x\n"), "{listed}");
    assert!(listed.contains("its host is login.example\n"), "{listed}");
    decide(&rig.bridge, &id, &answer("{}")).await.expect_error(400);
    let answered = with(&rig, &["approvals", "answer", &id]).await.expect(OK);
    assert_eq!(answered.out, "the question of ask_ask is answered\n");
    assert_eq!(rig.mantyx.answer("tu_1").await["result"], r#"{"action":"accept"}"#);
}

/// The reference server, with all kinds of fields, in a call by hand.
#[tokio::test]
async fn every_kind_of_field_is_answered_at_a_terminal() {
    let rig = Harness::bare(&format!("mcp:\n  all: {}\n", peers::everything_stdio())).await;
    rig.bridge.wait_backend("all", "ready").await;
    let body =
        r#"{"toolUseId":"tu_1","name":"all_trigger_elicitation_request","args":{}}"#.to_owned();
    let call = rig.bridge.api("POST", "/v1/tool-calls", Some(&body));
    let answered = async {
        let id = asked(&rig.bridge).await;
        let listed = with(&rig, &["approvals"]).await.expect(OK).out;
        assert!(listed.contains("its server asks: Please provide inputs"), "{listed}");
        assert!(listed.contains("\n  name: required {"), "{listed}");
        let answer = ["approvals", "answer", &id];
        let usage = with(&rig, &[&answer[..], &["colour=red"]].concat()).await.expect(USAGE);
        assert!(usage.err.contains("no field `colour`"), "{}", usage.err);
        let refused = with(&rig, &[&answer[..], &["integer=7"]].concat()).await.expect(FAILED);
        assert!(refused.err.contains("required"), "{}", refused.err);
        let all = [
            "name=Ada",
            "check=true",
            "integer=7",
            "number=1.5",
            "untitledSingleSelectEnum=Joey",
            "untitledMultipleSelectEnum=Piano",
            "untitledMultipleSelectEnum=Bass",
            "titledMultipleSelectEnum=fish-2",
            "titledSingleSelectEnum=hero-2",
        ];
        with(&rig, &[&answer[..], &all].concat()).await.expect(OK);
    };
    let (answer, ()) = tokio::join!(call, answered);
    let answer = answer.expect(200);
    let result = answer["result"].as_str().unwrap_or_else(|| panic!("{answer}"));
    for part in ["Name: Ada", "Agreed to terms: true", "Favorite Integer: 7", "Number: 1.5"] {
        assert!(result.contains(part), "{part}: {result}");
    }
    assert!(result.contains("fish-2") && result.contains("Bass"), "{result}");
}

#[tokio::test]
async fn the_call_is_cancelled_and_its_question_with_it() {
    let rig = eliciting("").await;
    let script = Script::new().mcp("tu_1", "ask", "ask_ask", &fields().to_string());
    let run = rig.run(script.until("never")).await;
    let id = asked(&rig.bridge).await;
    let cancel = format!("{}/agent-runs/{}/cancel", crate::bridge::API, run.run_id);
    rig.bridge.api("POST", &cancel, Some("{}")).await.expect(200);
    waiting(&rig.bridge, 0).await;
    let late = decide(&rig.bridge, &id, &answer(r#"{"name":"Ada"}"#)).await.expect_error(409);
    assert!(late["message"].as_str().expect("a text").contains("withdrawn"), "{late}");
}

#[tokio::test]
async fn an_app_answers_what_its_own_calls_ask_if_it_may() {
    let apps = format!(
        "apps:\n  a: {{token: {}}}\n  b: {{token: {}, approves: true}}\nmcp:\n  ask: {}\n",
        token("a"),
        token("b"),
        peers::eliciting()
    );
    let rig = Harness::bare(&apps).await;
    wait::soon("the server should be ready", async || {
        let status = Request::new("GET", "/v1/status").bearer(&token("a"));
        let status = status.answer(rig.bridge.addr()).await.expect(200);
        (status["backends"][0]["state"] == "ready").then_some(())
    })
    .await;
    let ask = async |app: &str, target: &str, body: &str| {
        let request = Request::new("POST", target).bearer(&token(app)).json(body);
        request.answer(rig.bridge.addr()).await
    };
    struct Case {
        app: &'static str,
        other: &'static str,
        own: u16,
        others: u16,
    }
    for Case { app, other, own, others } in [
        Case { app: "a", other: "b", own: 403, others: 404 },
        Case { app: "b", other: "a", own: 200, others: 403 },
    ] {
        let body = json!({"toolUseId": "t", "name": "ask_ask", "args": fields()}).to_string();
        let call = ask(app, "/v1/tool-calls", &body);
        let answered = async {
            let all = wait::soon("the question should wait", async || {
                let request = Request::new("GET", "/v1/approvals").bearer(&token(app));
                let listed = request.answer(rig.bridge.addr()).await.expect(200);
                let first = listed["approvals"][0].clone();
                (first["state"] == "waiting").then_some(first)
            });
            let target = format!("/v1/approvals/{}", id(&all.await));
            let good = answer(r#"{"name":"Ada"}"#);
            assert_eq!(ask(other, &target, &good).await.status, others, "{other}");
            assert_eq!(ask(app, &target, &good).await.status, own, "{app}");
            if own != 200 {
                let request = Request::new("POST", &target).bearer(&token(other));
                let request = request.header("X-Bridge-Operator", &rig.bridge.operator());
                request.json(good.as_str()).answer(rig.bridge.addr()).await.expect(200);
            }
        };
        let (made, ()) = tokio::join!(call, answered);
        assert!(made.expect(200)["result"].as_str().expect("a result").contains("Ada"));
    }
}

/// A server of 2026-07-28, whose effects are in a file.
async fn asking(keys: &str) -> (Harness, TempDir) {
    let dir = TempDir::new().expect("the temporary directory is writable");
    let ledger = dir.path().join("ledger");
    let server = peers::asking_into(&[ledger.to_str().expect("a path is UTF-8")]);
    let server = server.replacen('{', &format!("{{{keys}"), 1);
    let rig = Harness::bare(&format!("mcp:\n  ask: {server}\n")).await;
    rig.bridge.wait_backend("ask", "ready").await;
    (rig, dir)
}

fn effects(dir: &TempDir) -> usize {
    fs::read_to_string(dir.path().join("ledger")).unwrap_or_default().lines().count()
}

/// Answers the question that waits with `value`; returns its id.
async fn says(rig: &Harness, value: &str) -> String {
    let id = asked(&rig.bridge).await;
    let content = json!({ "value": value }).to_string();
    decide(&rig.bridge, &id, &answer(&content)).await.expect(200);
    id
}

/// Waits for the question after `first`.
async fn asked_next(rig: &Harness, first: &str) -> Value {
    wait::soon("the second question should wait", async || {
        let all = list(&rig.bridge).await;
        all.into_iter().find(|one| one["state"] == "waiting" && id(one) != first)
    })
    .await
}

#[tokio::test]
async fn other_calls_are_made_while_a_question_is_open() {
    let (rig, dir) = asking("concurrency: 1, ").await;
    rig.run(Script::one_call("tu_1", "ask", "ask_greet", "{}")).await;
    waiting(&rig.bridge, 1).await;
    // It reaches the server, whose only place the first call would have.
    rig.run(Script::one_call("tu_2", "ask", "ask_greet", "{}")).await;
    let content = answer(&json!({ "value": "Ada" }).to_string());
    for question in waiting(&rig.bridge, 2).await {
        decide(&rig.bridge, &id(&question), &content).await.expect(200);
    }
    wait::soon("both are asked for the colour", async || {
        let all = list(&rig.bridge).await;
        let asked = |one: &&Value| one["question"]["message"] == "Which colour?";
        (all.iter().filter(asked).count() == 2).then_some(())
    })
    .await;
    for question in waiting(&rig.bridge, 2).await {
        decide(&rig.bridge, &id(&question), &content).await.expect(200);
    }
    for tool_use in ["tu_1", "tu_2"] {
        let answer = rig.mantyx.answer(tool_use).await;
        assert!(answer["result"].as_str().is_some_and(|it| it.contains("Ada")), "{answer}");
    }
    assert_eq!(effects(&dir), 2);
}

#[tokio::test]
async fn a_question_of_2026_outlives_a_crash_and_the_call_has_one_effect() {
    let (mut rig, dir) = asking("").await;
    rig.run(Script::one_call("tu_1", "ask", "ask_greet", "{}")).await;
    let first = asked(&rig.bridge).await;
    wait_journaled(&rig.bridge, "tu_1").await;
    rig.bridge.kill9();
    rig.bridge.restart().await;
    assert_eq!(asked(&rig.bridge).await, first, "the same question of the same call");
    says(&rig, "Ada").await;
    // The next one waits after a stop, too, which does not wait for a person.
    let second = asked_next(&rig, &first).await;
    assert_eq!(second["question"]["message"], "Which colour?");
    rig.bridge.stop().await;
    assert!(rig.mantyx.posts("tu_1").is_empty(), "nothing is answered");
    rig.bridge.restart().await;
    assert_eq!(says(&rig, "red").await, id(&second));
    assert_eq!(rig.mantyx.answer("tu_1").await["result"], "Ada likes red");
    assert_eq!(effects(&dir), 1);
    rig.bridge.kill9();
    rig.bridge.restart().await;
    waiting(&rig.bridge, 0).await;
    assert_eq!(effects(&dir), 1);
}

/// Otherwise an answer that is sent twice would answer the same question again.
#[tokio::test]
async fn the_same_question_asked_again_is_another_one() {
    let (mut rig, dir) = asking("").await;
    rig.run(Script::one_call("tu_1", "ask", "ask_greet", r#"{"name":"Ada"}"#)).await;
    let first = says(&rig, "Bob").await;
    let second = asked_next(&rig, &first).await;
    let again = answer(r#"{"value":"Bob"}"#);
    let told = decide(&rig.bridge, &first, &again).await.expect_error(409);
    assert_eq!(told["error"], "already_decided");
    rig.bridge.kill9();
    rig.bridge.restart().await;
    assert_eq!(says(&rig, "Ada").await, id(&second), "the same round");
    asked_next(&rig, &id(&second)).await;
    says(&rig, "red").await;
    assert_eq!(rig.mantyx.answer("tu_1").await["result"], "Ada likes red");
    assert_eq!(effects(&dir), 1);
}

/// The bridge has no roots, so the person's answer would be of no use.
#[tokio::test]
async fn no_person_is_asked_if_something_else_cannot_be_answered() {
    let (rig, dir) = asking("").await;
    let answer = rig.call("ask", "ask_greet", r#"{"roots":true}"#).await;
    let error = answer["error"].as_str().unwrap_or_else(|| panic!("{answer}"));
    assert!(error.contains("the server wants input"), "{error}");
    assert!(list(&rig.bridge).await.is_empty(), "no person is asked");
    assert_eq!(effects(&dir), 0);
}

/// With its first answer long posted.
#[tokio::test]
async fn the_question_of_a_long_call_outlives_a_crash() {
    let (mut rig, dir) = asking("pending_after: 0s,").await;
    let script = Script::new().mcp("tu_1", "ask", "ask_greet", "{}").answered("tu_1");
    let script = crate::pending::fetch(script.until("@call"), "tu_2", 60);
    rig.run(script.answered("tu_2").until("never")).await;
    let first = asked(&rig.bridge).await;
    crate::pending::learn(&rig, "tu_1", "@call").await;
    rig.bridge.kill9();
    rig.bridge.restart().await;
    assert_eq!(says(&rig, "Ada").await, first);
    let second = asked_next(&rig, &first).await;
    rig.bridge.kill9();
    rig.bridge.restart().await;
    assert_eq!(says(&rig, "red").await, id(&second));
    assert_eq!(rig.mantyx.answer("tu_2").await["result"], "Ada likes red");
    assert_eq!(effects(&dir), 1);
}

/// A question of 2025-11-25 dies with its connection.
#[tokio::test]
async fn a_question_of_2025_ends_with_the_bridge() {
    let mut rig = eliciting("").await;
    rig.run(Script::one_call("tu_1", "ask", "ask_ask", &fields().to_string())).await;
    asked(&rig.bridge).await;
    rig.bridge.kill9();
    rig.bridge.restart().await;
    let answer = rig.mantyx.answer("tu_1").await;
    let error = answer["error"].as_str().unwrap_or_else(|| panic!("{answer}"));
    assert!(error.starts_with("OUTCOME_UNKNOWN"), "{error}");
    assert!(list(&rig.bridge).await.is_empty(), "no person is asked");
}
