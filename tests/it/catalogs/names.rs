//! Tools that a run has to find take no name of its app, whatever way the app's tools come in.

use serde_json::{Value, json};

use super::{CALL, FIND, by_hand, error_of, found};
use crate::{
    bridge::API,
    evals::flat,
    frames::Script,
    harness::Harness,
    sse::{self, Stream},
};

/// Tools of an app that have the name of a tool which runs have to find: its own, one of its own
/// server, and one of a server that has the backend's name.
const OWN: [&str; 3] = [
    r#"{"kind":"local","name":"plain_note","parameters":{"type":"object"}}"#,
    r#"{"kind":"mcp_local","name":"own","tools":[{"name":"plain_note"}]}"#,
    r#"{"kind":"mcp_local","name":"plain","tools":[{"name":"plain_note"}]}"#,
];

const ARGS: &str = r#"{"text":"theirs"}"#;

/// Whether a run has been attached; then its app's names are not known.
#[derive(PartialEq)]
enum Begun {
    ByTheBridge,
    ByTheApp,
}

async fn searched() -> Harness {
    Harness::with_keys("offer: search, ", "", &[], "").await
}

/// Three calls of the app's own tool, each of another kind, a search, and the end.
fn script() -> Script {
    let find = json!({"toolUseId": "tu_find", "name": FIND, "kind": "local", "args": {"query": "note a text", "limit": 1}});
    let find = find.to_string();
    Script::new()
        .local("tu_local", "plain_note", ARGS)
        .mcp("tu_own", "own", "plain_note", ARGS)
        .mcp("tu_plain", "plain", "plain_note", ARGS)
        .event("local_tool_call", &find)
        .answered("tu_find")
        .done()
}

/// Checks a run that follows [`script`]: its app gets the calls of its own tools. Returns the name
/// that the bridge's tool has.
async fn check(rig: &Harness, stream: &str, begun: Begun) -> String {
    let answer = rig.mantyx.answer("tu_find").await;
    let names = found(answer["result"].as_str().expect("what was found"));
    let [given] = &*names else { panic!("one tool: {names:?}") };
    let frames = sse::whole(&rig.bridge, stream).await;
    let of_app = frames.iter().filter(|frame| sse::event_type(frame) == "local_tool_call");
    let ids: Vec<Value> =
        of_app.map(|frame| sse::envelope(frame)["data"]["toolUseId"].clone()).collect();
    assert_eq!(ids, ["tu_local", "tu_own", "tu_plain"], "they are the app's to answer");
    for id in ["tu_local", "tu_own", "tu_plain"] {
        assert!(rig.mantyx.posts(id).is_empty(), "the bridge leaves {id} alone");
    }
    assert!(rig.executions().is_empty());
    assert_eq!(given == "plain_note", begun == Begun::ByTheApp, "{given}");
    given.clone()
}

#[tokio::test]
async fn hidden_name_is_the_apps_in_a_run_and_the_tool_has_another() {
    for own in OWN {
        let rig = searched().await;
        rig.mantyx.script(script());
        let run = rig.bridge.post_run(&format!(r#"{{"tools":[{own}]}}"#)).await;
        let given = check(&rig, &run.stream, Begun::ByTheBridge).await;
        let args = json!({"name": given, "arguments": {"text": "ours"}}).to_string();
        let theirs = r#"{"name":"plain_note","arguments":{"text":"x"}}"#;
        rig.mantyx.script(
            Script::new()
                .local("tu_ours", CALL, &args)
                .answered("tu_ours")
                .local("tu_theirs", CALL, theirs)
                .answered("tu_theirs")
                .done(),
        );
        rig.bridge.post_run(&format!(r#"{{"tools":[{own}]}}"#)).await;
        assert_eq!(rig.mantyx.answer("tu_ours").await["result"], "noted: ours");
        let refused = rig.mantyx.answer("tu_theirs").await;
        assert!(error_of(&refused).contains("no tool `plain_note`"), "{refused}");
        assert_eq!(rig.executions().len(), 1);
    }
}

#[tokio::test]
async fn hidden_name_is_the_apps_in_messages_of_a_session() {
    for tools_of_message in [false, true] {
        let rig = searched().await;
        let with_tools = format!(r#"{{"prompt":"hi","tools":[{}]}}"#, OWN[0]);
        let (of_session, of_message) = match tools_of_message {
            true => ("{}", with_tools.as_str()),
            false => (with_tools.as_str(), r#"{"prompt":"hi"}"#),
        };
        let session =
            rig.bridge.api("POST", &format!("{API}/agent-sessions"), Some(of_session)).await;
        let session = session.expect(201)["sessionId"].as_str().expect("an id").to_owned();
        rig.mantyx.script(script());
        let messages = format!("{API}/agent-sessions/{session}/messages");
        let run = rig.bridge.api("POST", &messages, Some(of_message)).await.expect(202);
        let stream = run["streamUrl"].as_str().expect("a stream");
        check(&rig, stream, Begun::ByTheBridge).await;
    }
}

#[tokio::test]
async fn hidden_name_is_the_apps_in_an_eval() {
    let rig = searched().await;
    let call = |id: &str, kind: &str, name: &str, args: &str| {
        flat(
            "local_tool_call",
            &format!(
                r#","agentRunId":"run_a","toolUseId":"{id}","name":"{name}","args":{args}{kind}"#
            ),
        )
    };
    let of_plain = r#","kind":"mcp_local","mcpServer":"plain""#;
    let script = Script::new()
        .raw_event(&call("tu_local", "", "plain_note", ARGS))
        .raw_event(&call("tu_plain", of_plain, "plain_note", ARGS))
        .raw_event(&call("tu_find", "", FIND, r#"{"query":"note a text","limit":1}"#))
        .until("tu_find")
        .raw_event(&flat("run_completed", ""));
    rig.mantyx.script(script);
    let body = format!(r#"{{"datasetId":"d","agent":{{"tools":[{}]}}}}"#, OWN[0]);
    let eval = rig.bridge.api("POST", &format!("{API}/eval-runs"), Some(&body)).await.expect(202);
    let answer = rig.mantyx.answer("tu_find").await;
    let names = found(answer["result"].as_str().expect("what was found"));
    assert!(names[0].starts_with("plain_note_"), "{names:?}");
    let url = eval["streamUrl"].as_str().expect("a stream");
    let frames = Stream::open(&rig.bridge, url).await.rest().await;
    let of_app = frames.iter().filter(|frame| sse::event_type(frame) == "local_tool_call");
    assert_eq!(of_app.count(), 2, "they are the app's to answer");
    assert!(rig.executions().is_empty());
}

#[tokio::test]
async fn hidden_name_is_the_apps_in_a_run_that_it_attached() {
    let rig = searched().await;
    rig.mantyx.has_run("run_a", script());
    rig.bridge.api("POST", "/v1/runs/run_a/attach", Some("{}")).await.expect(202);
    check(&rig, &format!("{API}/agent-runs/run_a/stream"), Begun::ByTheApp).await;
}

#[tokio::test]
async fn hidden_name_is_no_call_by_hand_and_the_answer_says_how_to_call_it() {
    let rig = searched().await;
    let refused = by_hand(&rig.bridge, "tu_1", "plain_note", ARGS).await.expect(200);
    assert!(error_of(&refused).contains(CALL), "{refused}");
    let chat = json!([{"id": "c", "type": "function", "function": {"name": "plain_note", "arguments": ARGS}}]);
    let target = "/v1/tool-calls?format=openai-chat";
    let answer = rig.bridge.api("POST", target, Some(&chat.to_string())).await.expect(200);
    let text = answer["messages"][0]["content"].as_str().expect("a text");
    assert!(text.contains(CALL), "{answer}");
    assert!(rig.executions().is_empty());
    let args = json!({"name": "plain_note", "arguments": {"text": "x"}}).to_string();
    let made = by_hand(&rig.bridge, "tu_2", CALL, &args).await.expect(200);
    assert_eq!(made["result"], "noted: x");
}
