//! Apps that call a model themselves: the programs of docs/model-apis.md, word by word, with the
//! official clients against stand-ins of the APIs; and `Idempotency-Key`.

use std::{fs, process::Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::{
    bridge::Bridge,
    guides,
    harness::Harness,
    http::{Answer, Request},
    peers::{self, fetch, repository},
};

/// Runs a program of the page in a directory of its own.
async fn check_program(name: &str, path: &str) {
    let all = format!("  all: {}\n", peers::everything_stdio());
    let rig = Harness::with(&all, &[], "").await;
    rig.bridge.wait_backend("all", "ready").await;
    let apis = peers::model_apis().await;
    let dir = TempDir::new().expect("the temporary directory is writable");
    let page = fs::read_to_string(repository("docs/model-apis.md")).expect("a page of ours");
    let port = rig.bridge.addr().port().to_string();
    for (file, text) in guides::files(&page) {
        fs::write(dir.path().join(file), text.replace("7717", &port)).expect("it is writable");
    }
    let mut command = tokio::process::Command::new(fetch::python_models());
    command.arg(name).current_dir(dir.path()).stdin(Stdio::null());
    command.env("BRIDGE_TOKEN", rig.bridge.token());
    for api in ["OPENAI", "ANTHROPIC", "GEMINI"] {
        command.env(format!("{api}_API_KEY"), "sk-test");
    }
    command.env("OPENAI_BASE_URL", format!("{}/v1", apis.url()));
    command.env("ANTHROPIC_BASE_URL", apis.url()).env("GOOGLE_GEMINI_BASE_URL", apis.url());
    let output = command.output().await.expect("python runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {errors}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "Tea is at four.\n", "{errors}");
    let tools: Vec<_> = rig.executions().iter().map(|call| call["tool"].clone()).collect();
    assert!(tools.len() == 2 && tools.contains(&json!("note")) && tools.contains(&json!("fail")));

    // The list of tools has a tag of its own for each format.
    let tools = rig.bridge.api("GET", path, None).await;
    let tag = tools.header("etag").expect("an ETag").to_owned();
    let again = rig.bridge.request("GET", path).header("If-None-Match", &tag);
    assert_eq!(again.answer(rig.bridge.addr()).await.status, 304);
    let plain = rig.bridge.api("GET", &format!("{path}&backends=plain"), None).await;
    assert_ne!(plain.header("etag"), Some(&*tag));
    // Without instructions, the tag is the digest of the tools.
    let digest = plain.value()["digest"].as_str().expect("a text").to_owned();
    assert_eq!(plain.header("etag"), Some(&*format!("\"{digest}\"")));
    let other = rig.bridge.api("GET", &format!("{path}&backends=nothing"), None).await;
    assert_eq!(other.expect_error(400)["error"], "unknown_backend");
}

#[tokio::test]
async fn openais_chat_completions() {
    check_program("chat.py", "/v1/tools?format=openai-chat").await;
}

#[tokio::test]
async fn openais_responses() {
    check_program("responses.py", "/v1/tools?format=openai-responses").await;
}

#[tokio::test]
async fn anthropics_messages() {
    check_program("claude.py", "/v1/tools?format=anthropic").await;
}

#[tokio::test]
async fn geminis_contents() {
    check_program("gemini.py", "/v1/tools?format=gemini").await;
}

#[tokio::test]
async fn a_list_of_tools_is_as_the_servers_wrote_them() {
    let rig = Harness::start().await;
    let ask = async |target: &str| rig.bridge.api("GET", target, None).await;
    let mcp = ask("/v1/tools?format=mcp").await;
    mcp.expect(200);
    let note =
        r#"{"x-vendor": {"b": 1.0, "a": 123456789012345678901234567890}, "name": "plain_note""#;
    assert!(mcp.text().contains(note), "{}", mcp.text());
    let chat = ask("/v1/tools?format=openai-chat").await.expect(200);
    assert_eq!(chat["tools"].as_array().expect("a list").len(), 8);
    // Of 8 tools, 5 have no `properties`.
    assert_eq!(chat["notes"].as_array().expect("a list").len(), 5, "{chat}");
    for target in ["/v1/tools", "/v1/tools?format=other"] {
        assert_eq!(ask(target).await.expect_error(400)["error"], "invalid_request");
    }
}

/// Asks for a call with a key.
fn keyed(bridge: &Bridge, target: &str, key: &str, body: &str) -> Request {
    bridge.request("POST", target).header("Idempotency-Key", key).json(body)
}

const CHAT: &str = "/v1/tool-calls?format=openai-chat";

/// A call of the ledger's `slow` in the form of Chat Completions, which ends once the file is
/// there.
fn slow(file: &str) -> String {
    let arguments = json!({ "text": file }).to_string();
    json!({ "id": "call_0", "type": "function",
            "function": { "name": "plain_slow", "arguments": arguments } })
    .to_string()
}

#[tokio::test]
async fn a_key_makes_a_request_once() {
    let mut rig = Harness::start().await;
    let note = r#"{"toolUseId":"1","name":"plain_note","args":{"text":"tea"}}"#;
    let chat = r#"[{"id":"c","type":"function","function":{"name":"plain_note","arguments":"{\"text\":\"tea\"}"}}]"#;
    for round in 0..3 {
        for (target, body) in [("/v1/tool-calls", note), (CHAT, chat)] {
            let ask = async |key: &str, body: &str| {
                keyed(&rig.bridge, target, key, body).answer(rig.bridge.addr()).await
            };
            let first = ask(target, body).await;
            let again = ask(target, body).await;
            assert_eq!((first.expect(200), first.text()), (again.expect(200), again.text()));
            let other = ask(target, &body.replace("tea", "milk")).await;
            assert_eq!(other.expect_error(422)["error"], "idempotency_key_reused");
            assert_eq!(ask(&"k".repeat(256), body).await.status, 400);
            let two = keyed(&rig.bridge, target, "a", body).header("Idempotency-Key", "b");
            two.answer(rig.bridge.addr()).await.expect_error(400);
        }
        let other_form = keyed(&rig.bridge, CHAT, "/v1/tool-calls", note);
        assert!(matches!(other_form.answer(rig.bridge.addr()).await.status, 400 | 422));
        assert_eq!(rig.executions().len(), 2, "round {round}");
        match round {
            0 => rig.bridge.stop().await,
            _ => rig.bridge.kill9(),
        }
        rig.bridge.restart().await;
        rig.bridge.wait_backend("plain", "ready").await;
    }
    rig.bridge.api("POST", "/v1/tool-calls", Some(note)).await.expect(200);
    rig.bridge.api("POST", "/v1/tool-calls", Some(note)).await.expect(200);
    assert_eq!(rig.executions().len(), 4, "without a key each request is a call");
}

#[tokio::test]
async fn two_requests_with_one_key_at_once_get_one_answer_and_a_hang_up_changes_nothing() {
    let rig = Harness::start().await;
    let dir = TempDir::new().expect("the temporary directory is writable");
    let file = dir.path().join("go");
    let body = slow(file.to_str().expect("a plain path"));
    let addr = rig.bridge.addr();
    let ask = || keyed(&rig.bridge, CHAT, "k", &body);
    let mut hung_up = JoinSet::new();
    hung_up.spawn(ask().send(addr));
    rig.wait_executions(1).await;
    hung_up.shutdown().await;
    let mut asked: JoinSet<Answer> = (0..3).map(|_| ask().answer(addr)).collect();
    let other = keyed(&rig.bridge, CHAT, "k", &slow("other")).answer(addr).await;
    assert_eq!(other.expect_error(422)["error"], "idempotency_key_reused");
    fs::write(file, "").expect("the temporary directory is writable");
    while let Some(answer) = asked.join_next().await {
        let answer = answer.expect("it has an answer").expect(200);
        let expected = json!({ "role": "tool", "tool_call_id": "call_0", "content": "slept" });
        assert_eq!(answer["messages"], json!([expected]));
    }
    assert_eq!(rig.executions().len(), 1);
}

/// A key is for calls that were made.
#[tokio::test]
async fn a_refusal_leaves_the_key_free() {
    let rig = Harness::start().await;
    let call = |id: &str, name: &str| {
        let function = json!({ "name": name, "arguments": r#"{"text":"tea"}"# });
        json!({ "id": id, "type": "function", "function": function })
    };
    let ask = async |body: String| {
        let request = keyed(&rig.bridge, CHAT, "k", &body);
        let answer = request.answer(rig.bridge.addr()).await.expect(200);
        answer["messages"].as_array().expect("a list").last().expect("a result").clone()
    };
    let refused = ask(call("1", "plain_gone").to_string()).await;
    let content = refused["content"].as_str().expect("a text");
    assert!(content.contains("no tool `plain_gone`"), "{content}");
    assert!(content.contains("mantyx-bridge status"), "{content}");
    let made = ask(json!([call("1", "plain_gone"), call("2", "plain_note")]).to_string()).await;
    assert_eq!(made["tool_call_id"], "2", "{made}");
    let other = keyed(&rig.bridge, CHAT, "k", &call("1", "plain_note").to_string());
    other.answer(rig.bridge.addr()).await.expect_error(422);
    assert_eq!(rig.executions().len(), 1);
}

/// What a list cannot return is not made: the tools would run for nothing.
#[tokio::test]
async fn calls_for_whose_results_there_is_no_room_are_not_made() {
    let rig = Harness::start().await;
    let call = |id: usize| {
        let function = json!({ "name": "plain_big", "arguments": r#"{"bytes":1999000}"# });
        json!({ "id": id.to_string(), "type": "function", "function": function })
    };
    let all: Vec<Value> = (0..48).map(call).collect();
    let request = rig.bridge.request("POST", CHAT).json(json!(all).to_string());
    let answer = request.answer(rig.bridge.addr()).await.expect(200);
    let results = answer["messages"].as_array().expect("a list").iter();
    let texts: Vec<&str> = results.map(|it| it["content"].as_str().expect("a text")).collect();
    let count = |part: &str| texts.iter().filter(|text| text.contains(part)).count();
    let (whole, lost, left) = (count("é"), count("its result is lost"), count("was not made"));
    assert_eq!((whole + lost + left, whole + lost), (48, rig.executions().len()));
    assert!(whole > 5 && (1..=16).contains(&lost) && left > 10, "{whole}, {lost}, {left}");
}

#[tokio::test]
async fn a_kill_in_the_middle_of_a_call_leaves_its_outcome_unknown() {
    let mut rig = Harness::start().await;
    let hang = r#"{"toolUseId":"1","name":"plain_hang","args":{}}"#;
    let calls = format!("[{},{}]", slow("/nowhere/at/all"), slow("/nowhere/else"));
    struct Case<'a> {
        count: usize,
        target: &'static str,
        body: &'a str,
    }
    for Case { count, target, body } in [
        Case { count: 1, target: "/v1/tool-calls", body: hang },
        Case { count: 3, target: CHAT, body: calls.as_str() },
    ] {
        let mut asked = JoinSet::new();
        asked.spawn(keyed(&rig.bridge, target, target, body).send(rig.bridge.addr()));
        rig.wait_executions(count).await;
        rig.bridge.kill9();
        asked.shutdown().await;
        rig.bridge.restart().await;
        rig.bridge.wait_backend("plain", "ready").await;
        for _ in 0..2 {
            let again = keyed(&rig.bridge, target, target, body);
            let again = again.answer(rig.bridge.addr()).await.expect(200);
            let said = match again["messages"].as_array() {
                Some(messages) => messages.iter().map(|message| &message["content"]).collect(),
                None => vec![&again["error"]],
            };
            let is_unknown = |said: &&Value| said.as_str().unwrap().contains("OUTCOME_UNKNOWN: ");
            assert!(said.len() == count.min(2) && said.iter().all(is_unknown), "{target}: {again}");
        }
        assert_eq!(rig.executions().len(), count, "{target}: never made again");
    }
}
