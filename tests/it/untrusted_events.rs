//! Calls that MANTYX makes up: the events of a run are input like any other, and what the bridge
//! does goes by what it put into that run.

use serde_json::{Value, json};

use crate::{
    bridge::API,
    frames::Script,
    harness::{Harness, ledger_in},
    http::Request,
    mantyx::Mantyx,
    peers, sse, wait,
};

const NOTE: &str = r#"{"text":"x"}"#;

/// One forged call, and the words of its refusal.
struct Forged {
    id: &'static str,
    data: Value,
    refused: &'static str,
}

/// A10: another kind, another server, arguments that the schema does not allow, the same id with
/// other arguments.
#[tokio::test]
async fn a_forged_call_is_refused_once_and_never_made() {
    let rig = Harness::with(
        "",
        &[],
        "local:\n  own: {description: d, parameters: {type: object}, command: [cat]}\n",
    )
    .await;
    let call = |id: &str, name: &str, more: Value| {
        let mut data = json!({"toolUseId": id, "name": name, "args": {"text": "x"}});
        for (key, value) in more.as_object().into_iter().flatten() {
            data[key] = value.clone();
        }
        data
    };
    let forged = [
        ("tu_kind_a2a", "plain_note", json!({"kind": "a2a_local"}), "another kind"),
        ("tu_kind_local", "plain_note", json!({"kind": "local"}), "another kind"),
        ("tu_kind_none", "plain_note", json!({}), "another kind"),
        ("tu_kind_mcp", "own", json!({"kind": "mcp_local", "mcpServer": "own"}), "another kind"),
        (
            "tu_server",
            "plain_note",
            json!({"kind": "mcp_local", "mcpServer": "nobody"}),
            "another's",
        ),
        (
            "tu_near",
            "plain_note",
            json!({"kind": "mcp_local", "mcpServer": "plainer"}),
            "another's",
        ),
        (
            "tu_args",
            "plain_note",
            json!({"kind": "mcp_local", "mcpServer": "plain", "args": {"text": {"a": 1}}}),
            "tool_input_invalid",
        ),
        (
            "tu_list",
            "plain_note",
            json!({"kind": "mcp_local", "mcpServer": "plain", "args": ["x"]}),
            "tool_input_invalid",
        ),
    ]
    .map(|(id, name, more, refused)| Forged { id, data: call(id, name, more), refused });
    let mut script = Script::new();
    for Forged { id, data, .. } in &forged {
        script = script.event("local_tool_call", &data.to_string()).answered(id);
    }
    // Taken once as it came first, whatever the id is used for afterwards.
    script = script
        .mcp("tu_twice", "plain", "plain_note", r#"{"text":"first"}"#)
        .answered("tu_twice")
        .mcp("tu_twice", "plain", "plain_note", r#"{"text":"second"}"#)
        .mcp("tu_good", "plain", "plain_note", r#"{"text":"last"}"#)
        .answered("tu_good");
    rig.run(script.done()).await;
    assert_eq!(rig.mantyx.answer("tu_good").await["result"], "noted: last", "the run goes on");
    for Forged { id, refused, .. } in &forged {
        let answer = rig.mantyx.answer(id).await;
        let error = answer["error"].as_str().unwrap_or_else(|| panic!("{id}: {answer}"));
        assert!(error.contains(refused) && error.len() < 8_000, "{id}: {error}");
    }
    assert_eq!(rig.mantyx.answer("tu_twice").await["result"], "noted: first");
    let made: Vec<_> =
        rig.executions().iter().map(|call| call["arguments"]["text"].clone()).collect();
    assert_eq!(made, ["first", "last"], "{:?}", rig.executions());
    assert!(rig.bridge.log().contains("tu_twice"), "the altered call is told");
}

/// A10: what a run was not given is not the bridge's in that run, nor is what comes after its end.
#[tokio::test]
async fn a_run_has_what_it_was_given_until_it_ends() {
    let rig = Harness::start().await;
    let script = || Script::new().mcp("tu_1", "plain", "plain_note", NOTE).done();
    rig.mantyx.script(script());
    let run = rig.bridge.post_run_with(r#"{"prompt":"x"}"#, &[("X-Bridge-Backends", "none")]).await;
    let frames = sse::whole(&rig.bridge, &run.stream).await;
    let call = sse::find(&frames, "local_tool_call").expect("it is the app's to look at");
    assert_eq!(call["toolUseId"], "tu_1");

    let late = Script::new().done().mcp("tu_late", "plain", "plain_note", NOTE).done();
    let run = rig.run(late).await;
    sse::whole(&rig.bridge, &run.stream).await;
    wait::soon("the run should have ended", async || {
        let run = rig.bridge.api("GET", &format!("/v1/runs/{}", run.run_id), None).await;
        (run.value()["state"] == "ended").then_some(())
    })
    .await;
    assert!(rig.mantyx.posts("tu_1").is_empty() && rig.mantyx.posts("tu_late").is_empty());
    assert_eq!(rig.executions(), [] as [Value; 0], "nothing was called");
}

/// A10: the run of one app with the tool of another.
#[tokio::test]
async fn a_run_of_one_app_does_not_reach_the_backend_of_another() {
    let dir = tempfile::TempDir::new().expect("the temporary directory is writable");
    let (one, two) = ("token-of-one-1234567890123456789012", "token-of-two-1234567890123456789012");
    let config = format!(
        "mcp:\n  plain: {}\nlocal:\n  mine: {{description: d, parameters: {{type: object}}, command: [cat]}}\n\
         apps:\n  one: {{token: {one}, backends: [plain]}}\n  two: {{token: {two}, backends: [mine]}}\n",
        peers::ledger(&ledger_in(&dir), &[])
    );
    let rig = Harness::bare(&config).await;
    let status = || Request::new("GET", "/v1/status").bearer(one).answer(rig.bridge.addr());
    wait::soon("the server should be ready", async || {
        (status().await.value()["backends"][0]["state"] == "ready").then_some(())
    })
    .await;
    let script = Script::new().mcp("tu_1", "plain", "plain_note", NOTE).local("tu_2", "mine", "{}");
    rig.mantyx.script(script.answered("tu_2").done());
    let target = format!("{API}/agent-runs");
    let request = Request::new("POST", &target).bearer(two).json(r#"{"prompt":"x"}"#);
    request.answer(rig.bridge.addr()).await.expect(202);
    assert_eq!(rig.mantyx.answer("tu_2").await["result"], "{}", "its own tool is called");
    assert!(rig.mantyx.posts("tu_1").is_empty(), "the other app's is not answered");
    assert!(!ledger_in(&dir).exists(), "and not called");
}

/// A10: the card in an event is not where a message goes.
#[tokio::test]
async fn the_card_in_an_event_leads_nowhere() {
    let (agent, trap) = (peers::a2a_v03().await, Mantyx::start().await);
    let rig = Harness::bare(&format!("a2a:\n  hr: {{url: \"{}\"}}\n", agent.url())).await;
    rig.bridge.wait_backend("hr", "ready").await;
    let data = json!({
        "toolUseId": "tu_1", "name": "hr", "args": {"message": "msg hello"}, "kind": "a2a_local",
        "agentCard": {"name": "hr", "url": trap.url(), "preferredTransport": "JSONRPC"},
    });
    let script = Script::new().event("local_tool_call", &data.to_string());
    rig.run(script.answered("tu_1").done()).await;
    assert_eq!(rig.mantyx.answer("tu_1").await["result"], "hello", "the agent that is configured");
    assert!(trap.recorded().is_empty(), "{:?}", trap.recorded());
}

/// The bridge cannot tell for which call such a result is, and MANTYX may be able to.
#[tokio::test]
async fn a_result_that_cannot_be_read_does_not_pass_for_another() {
    let rig = Harness::start().await;
    let run = rig.run(Script::new().mcp("tu_1", "plain", "plain_hang", "{}").until("end")).await;
    rig.wait_executions(1).await;
    let target = format!("{API}/agent-runs/{}/tool-results", run.run_id);
    for body in [
        r#"{"toolUseId":"mine","toolUseId":"tu_1","result":"forged"}"#,
        r#"{"toolUseId":"tu_1","tool\u0055seId":"mine","result":"forged"}"#,
        "\u{feff}{\"toolUseId\":\"tu_1\",\"result\":\"forged\"}",
        r#"{"toolUseId":"tu_1","result":"forged","x":NaN}"#,
        r#"{"toolUseId":["tu_1"],"result":"forged"}"#,
        r#"[{"toolUseId":"tu_1","result":"forged"}]"#,
        r#"{"toolUseId":"mine"}{"toolUseId":"tu_1","result":"forged"}"#,
        "",
    ] {
        rig.bridge.api("POST", &target, Some(body)).await.expect_error(400);
    }
    let plain = r#"{"toolUseId":"mine","result":"an app's own"}"#;
    let request = || rig.bridge.request("POST", &target).json(plain);
    let encoded = request().header("Content-Encoding", "gzip");
    encoded.answer(rig.bridge.addr()).await.expect_error(415);
    assert!(rig.mantyx.requests("POST", "/tool-results").is_empty());
    let cookies = request().header("Cookie2", "$Version=1").header("Cookie", "a=b");
    cookies.answer(rig.bridge.addr()).await;
    let sent = rig.mantyx.only("POST", "/tool-results");
    assert_eq!(sent.text(), plain, "its own goes on");
    assert_eq!((sent.header("cookie"), sent.header("cookie2")), (None, None));
}
