//! A server with definitions and results that careless servers write: what the official MCP clients
//! of each era, the APIs of models, runs and operators get of it.

use serde_json::{Value, json};
use tokio::process::Command;

use crate::{
    bridge::BINARY,
    cli,
    harness::Harness,
    http::Request,
    peers::{self, fetch, repository},
};

/// The tools that clients get, in the server's order.
const TOOLS: [&str; 21] = [
    "good",
    "nulls",
    "null_schemas",
    "array",
    "any",
    "untyped",
    "bad_output",
    "bad_pattern",
    "flags",
    "half",
    "rows",
    "tool_result",
    "words",
    "block",
    "null_content",
    "empty",
    "list",
    "structure",
    "blocks",
    "hints",
    "old_draft",
];

/// What the texts of results have, by the tool.
const TEXTS: [(&str, &[&str]); 10] = [
    ("rows", &["{\"rows\":3}", "[out of form: "]),
    ("tool_result", &["{\"toolResult\":{\"rows\":3}}", "[out of form: "]),
    ("words", &["words", "[out of form: "]),
    ("block", &["block", "[out of form: "]),
    ("null_content", &["{\"content\":null}", "[out of form: "]),
    ("empty", &["{}", "[out of form: "]),
    ("list", &["[1,2]", "[out of form: "]),
    ("structure", &["{\"a\":1}"]),
    ("half", &["a\u{fffd}b"]),
    ("blocks", &["[hologram, ", "words", "t", "[out of form: "]),
];

async fn start(era: &str) -> Harness {
    let rig = Harness::bare(&format!("mcp:\n  it: {}\n", peers::nasty(era))).await;
    rig.bridge.wait_backend("it", "ready").await;
    rig
}

#[tokio::test]
async fn every_list_and_result_is_taken_by_the_official_clients() {
    let mcp = fetch::mcp_node();
    let python = |interpreter, era| {
        let mut command = Command::new(interpreter);
        command.arg(repository("tests/peers/nasty_client.py")).arg(era);
        command
    };
    let node = |sdk, era| {
        let mut command = Command::new(&mcp.node);
        command.arg(repository("tests/peers/nasty_client.mjs")).arg(&mcp.modules).args([sdk, era]);
        command
    };
    for server in ["sessions", "stateless"] {
        let rig = start(server).await;
        for (client, mut command) in [
            ("sessions", python(fetch::python_mcp1(), "sessions")),
            ("sessions", python(fetch::python(), "sessions")),
            ("stateless", python(fetch::python(), "stateless")),
            ("sessions", node("v1", "sessions")),
            ("sessions", node("v2", "sessions")),
            ("stateless", node("v2", "stateless")),
        ] {
            command.args([BINARY, "mcp", "-c"]).arg(rig.bridge.config_path());
            let output = command.kill_on_drop(true).output().await.unwrap();
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{server} {command:?}: {errors}");
            check(&serde_json::from_slice(&output.stdout).unwrap(), client == "stateless");
        }
    }
}

/// Checks all that a client got.
fn check(said: &Value, is_stateless: bool) {
    let tools = said["tools"].as_array().unwrap();
    let names: Vec<&str> = tools.iter().filter_map(|tool| tool["name"].as_str()).collect();
    assert_eq!(names, TOOLS.map(|name| format!("it_{name}")), "{said}");
    let schema = |name: &str| {
        let name = format!("it_{name}");
        tools.iter().find(|tool| tool["name"] == *name).map(|tool| &tool["outputSchema"])
    };
    assert_eq!(schema("good").unwrap()["type"], "object", "{said}");
    for name in ["array", "any", "untyped"] {
        assert_eq!(schema(name).unwrap().is_object(), is_stateless, "{name}: {said}");
    }
    for name in ["bad_output", "bad_pattern", "nulls"] {
        assert_eq!(schema(name), Some(&Value::Null), "{name}: {said}");
    }
    let result = |name: &str| &said["results"][format!("it_{name}")];
    for (name, parts) in TEXTS {
        let content = result(name)["content"].as_array().unwrap();
        let texts: Vec<&str> = content.iter().filter_map(|block| block["text"].as_str()).collect();
        let text = texts.join("\n");
        for part in parts {
            assert!(text.contains(part), "{name}: {text}");
        }
    }
    for name in ["good", "bad_output", "structure"] {
        assert_eq!(result(name)["structuredContent"], json!({ "a": 1 }), "{name}: {said}");
    }
    let [structured, text] = match is_stateless {
        true => [json!([1, 2]), Value::Null],
        false => [Value::Null, json!("[1,2]")],
    };
    assert_eq!(result("array")["structuredContent"], structured, "{said}");
    assert_eq!(result("array")["content"][0]["text"], text, "{said}");
    assert_eq!(result("any")["content"][0]["text"], "any");
    check_features(said);
}

fn check_features(said: &Value) {
    let resources = said["resources"].as_array().unwrap();
    assert_eq!(resources.len(), 2, "{said}");
    assert!(resources.iter().all(|resource| resource["annotations"].is_null()), "{said}");
    assert_eq!(said["templates"].as_array().unwrap().len(), 1);
    assert_eq!(said["prompts"].as_array().unwrap().len(), 1);
    assert_eq!(said["contents"][0]["text"], "a");
    let texts = [0, 1].map(|at| said["messages"][at]["content"]["text"].clone());
    assert_eq!(texts, ["words", "a"]);
}

#[tokio::test]
async fn member_that_clients_do_not_get_is_told_with_its_tool() {
    let rig = start("sessions").await;
    let told = [
        "\"bad_hint\" (`annotations.readOnlyHint` is not true or false)",
        "\"no_schema\" (`inputSchema` is missing)",
        "number 2 of resources \"a/b\" (`uri` is no whole URI)",
        "number 1 of prompts \"nameless\" (`arguments[0].name` is missing)",
        "\"old_draft\" (/properties/n/exclusiveMinimum: ",
    ];
    // Resources are listed after the tools.
    let problems = crate::wait::soon("the problems", async || {
        let problems = rig.bridge.status().await["problems"].clone();
        problems.to_string().contains("nameless").then_some(problems)
    });
    let problems = problems.await;
    let messages = problems.as_array().unwrap().iter().filter(|one| one["subject"] == "it");
    let messages: Vec<&str> = messages.filter_map(|one| one["message"].as_str()).collect();
    let log = rig.bridge.log().replace("\\\"", "\"");
    let doctor = cli::with(&rig, &["doctor", "--json", "it"]).await;
    let doctor = doctor.out.replace("\\\"", "\"");
    for part in told {
        assert!(messages.iter().any(|message| message.contains(part)), "{part}: {messages:?}");
        assert!(log.contains(part), "{part}: {log}");
        assert!(doctor.contains(part), "{part}: {doctor}");
    }
    let shown = cli::with(&rig, &["tools", "it_old_draft"]).await.out;
    assert!(shown.contains("Not checked") && shown.contains("/properties/n/excl"), "{shown}");
}

#[tokio::test]
async fn model_api_gets_a_list_that_it_takes_and_a_run_gets_the_servers_bytes() {
    let rig = start("stateless").await;
    let listed = rig.bridge.api("GET", "/v1/tools?format=anthropic", None).await.expect(200);
    let tools = listed["tools"].as_array().unwrap();
    assert_eq!(tools.len(), TOOLS.len(), "{listed}");
    let schema = &tools.last().unwrap()["input_schema"];
    assert_eq!(schema["properties"]["n"], json!({ "type": "number", "minimum": 0 }));
    let notes = listed["notes"].to_string();
    assert!(notes.contains("`it_old_draft`: its schema is without /properties/n/excl"), "{notes}");
    assert_eq!(tools[2]["input_schema"], json!({ "type": "object" }), "null counts as left out");

    let refs = rig.bridge.api("GET", "/v1/tool-refs", None).await.text();
    assert!(refs.contains(r#""outputSchema":null,"execution":null"#), "{refs}");
    assert!(refs.contains(r#""name":"it_no_schema","inputSchema":null"#), "{refs}");

    let call = async |args: Value| {
        let call = json!({ "toolUseId": "t", "name": "it_old_draft", "args": args });
        let body = call.to_string();
        rig.bridge.api("POST", "/v1/tool-calls", Some(&body)).await.expect(200)
    };
    assert_eq!(call(json!({ "n": 1, "m": "a" })).await["result"], "done");
    assert_eq!(call(Value::Null).await["result"], "done");
    let refused = call(json!({ "m": 1 })).await;
    assert!(refused["error"].as_str().is_some_and(|why| why.contains("/m: ")), "{refused}");
    let input = r#"{"id":"t","type":"tool_use","name":"it_rows","input":null}"#;
    let target = "/v1/tool-calls?format=anthropic";
    let answer = rig.bridge.api("POST", target, Some(input)).await.expect(200).to_string();
    assert!(answer.contains("rows") && answer.contains("[out of form: "), "{answer}");
}

#[tokio::test]
async fn mcp_with_a_slash_is_mcp() {
    let rig = start("sessions").await;
    let addr = rig.bridge.addr();
    let request = |method: &str, session: Option<&str>| {
        let request = Request::new(method, "/mcp/").bearer(rig.bridge.token());
        let request = request.header("Accept", "application/json, text/event-stream");
        match session {
            Some(id) => request.header("Mcp-Session-Id", id),
            None => request,
        }
    };
    let hello = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":null}}"#;
    let begun = request("POST", None).json(hello).answer(addr).await;
    begun.expect(200);
    let id = begun.header("mcp-session-id").unwrap().to_owned();
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"it_good","arguments":null,"_meta":null}}"#;
    let called = request("POST", Some(&id)).json(call).answer(addr).await.expect(200);
    assert_eq!(called["result"]["structuredContent"]["a"], 1, "{called}");
    let ping = r#"{"jsonrpc":"2.0","id":2,"method":"ping","params":null}"#;
    assert_eq!(
        request("POST", Some(&id)).json(ping).answer(addr).await.expect(200)["result"],
        json!({})
    );
    assert_eq!(request("GET", Some(&id)).send(addr).await.status, 200);
    let strangers = Request::new("POST", "/mcp/").json(ping).answer(addr).await;
    assert_eq!(strangers.status, 401);
    assert_eq!(request("PUT", Some(&id)).answer(addr).await.status, 405);
    assert_eq!(request("DELETE", Some(&id)).answer(addr).await.status, 200);
    assert_eq!(request("POST", Some(&id)).json(ping).answer(addr).await.status, 404);
}
