//! A client that chooses a part of the backends that its app may use.

use serde_json::{Value, json};

use crate::{
    harness::Harness,
    http::{Answer, Request},
    mcp_server::{Client, META, Stdio},
    peers,
};

/// A bridge with the servers `fs` and `hr`; the app `most` may use both, `less` only `fs`.
async fn rig(keys: &str) -> Harness {
    let entry = |name: &str| peers::with(&peers::saying(name), &format!("pin: warn{keys}"));
    let config = format!(
        "apps:\n  most: {{token: aaaaaaaaaaaaaaaa}}\n  \
         less: {{token: bbbbbbbbbbbbbbbb, backends: [fs]}}\n\
         mcp:\n  fs: {}\n  hr: {}\n",
        entry("fs"),
        entry("hr")
    );
    let rig = Harness::bare(&config).await;
    for name in ["fs", "hr"] {
        rig.bridge.wait_backend(name, "ready").await;
    }
    rig
}

const MOST: &str = "aaaaaaaaaaaaaaaa";
const HEADER: &str = "X-Bridge-Backends";

fn tools(answer: &Value) -> Vec<&str> {
    let tools = answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("{answer}"));
    tools.iter().map(|tool| tool["name"].as_str().expect("a name")).collect()
}

/// A request without a session, to this target.
async fn stateless(rig: &Harness, target: &str, method: &str, selection: &[&str]) -> Answer {
    let message = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{META}}}}}"#);
    let request = Request::new("POST", target)
        .bearer(MOST)
        .header("Accept", "application/json, text/event-stream")
        .header("MCP-Protocol-Version", "2026-07-28")
        .header("Mcp-Method", method)
        .json(message);
    let request = selection.iter().fold(request, |request, names| request.header(HEADER, names));
    request.answer(rig.bridge.addr()).await
}

#[tokio::test]
async fn selection_by_header_or_query_is_a_part_of_what_the_app_may_use() {
    let rig = rig("").await;
    let listed = stateless(&rig, "/mcp", "tools/list", &["hr"]).await.expect(200);
    assert_eq!(tools(&listed), ["hr_say"]);
    let listed = stateless(&rig, "/mcp?backends=fs%2Chr", "tools/list", &[]).await.expect(200);
    assert_eq!(tools(&listed), ["fs_say", "hr_say"]);
    let listed = stateless(&rig, "/mcp?backends=none", "tools/list", &[]).await.expect(200);
    assert_eq!(tools(&listed), [""; 0]);
    for target in ["/mcp?Backends=hr", "/mcp?backend=hr"] {
        let misspelled = stateless(&rig, target, "tools/list", &[]).await;
        assert_eq!(misspelled.status, 400, "{target}: {}", misspelled.text());
        assert!(misspelled.text().contains("did you mean `backends`?"), "{}", misspelled.text());
    }
    let prompts = stateless(&rig, "/mcp?backends=hr", "prompts/list", &[]).await.expect(200);
    assert_eq!(prompts["result"]["prompts"], json!([{"name": "hr_say"}]));
    let two = stateless(&rig, "/mcp?backends=hr", "tools/list", &["fs"]).await;
    two.expect(400);
}

#[tokio::test]
async fn unknown_backend_in_a_selection_is_told_with_those_that_there_are() {
    let rig = rig("").await;
    let refused = stateless(&rig, "/mcp", "tools/list", &["hr,zz"]).await.expect(400);
    let why = refused["error"]["message"].as_str().unwrap();
    assert!(why.contains("\"zz\"") && why.contains("fs, hr"), "{why}");
    assert_eq!(refused["error"]["data"]["candidates"], json!(["fs", "hr"]));
    // Whether the app may not use it or there is none such looks the same.
    let hello = Client::hello(&rig.bridge, "bbbbbbbbbbbbbbbb", &[(HEADER, "hr")]).await;
    let why = hello.expect(400)["error"]["message"].as_str().unwrap().to_owned();
    assert!(why.contains("\"hr\"") && why.ends_with("It may use: fs."), "{why}");
}

#[tokio::test]
async fn selection_of_a_session_is_fixed_at_its_begin() {
    let rig = rig("").await;
    let client = Client::with_selection(&rig.bridge, MOST, "hr").await;
    assert_eq!(tools(&client.answer("tools/list", "").await.expect(200)), ["hr_say"]);
    let ping = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#;
    let addr = rig.bridge.addr();
    let same = client.post(ping).header(HEADER, "hr").answer(addr).await.expect(200);
    assert_eq!(tools(&same), ["hr_say"]);
    for other in ["fs", "fs,hr", "none"] {
        let refused = client.post(ping).header(HEADER, other).answer(addr).await.expect(400);
        let why = refused["error"]["message"].as_str().unwrap();
        assert!(why.contains("begun with another selection"), "{why}");
    }
    let stream = client.stream().header(HEADER, "fs").answer(addr).await;
    stream.expect(400);
    let called = r#""name":"fs_say","arguments":{}"#;
    let called = client.answer("tools/call", called).await.expect(200);
    assert_eq!(called["error"]["message"], "Unknown tool: fs_say");
    let read = client.answer("prompts/get", r#""name":"fs_say""#).await.expect(200);
    assert_eq!(read["error"]["code"], -32602, "{read}");
}

#[tokio::test]
async fn search_of_a_client_stays_within_its_selection() {
    let rig = rig(", offer: search").await;
    let client = Client::with_selection(&rig.bridge, MOST, "hr").await;
    let find = r#""name":"bridge_find_tools","arguments":{"query":"say"}"#;
    let found = client.answer("tools/call", find).await.expect(200);
    let text = found["result"]["content"][0]["text"].as_str().expect("what was found");
    assert!(text.contains("\"hr_say\"") && !text.contains("fs_say"), "{text}");
    let call = r#""name":"bridge_call_tool","arguments":{"name":"fs_say","arguments":{}}"#;
    let called = client.answer("tools/call", call).await.expect(200);
    let why = called["result"]["content"][0]["text"].as_str().expect("why");
    assert!(called["result"]["isError"] == true && why.contains("no tool `fs_say`"), "{called}");
}

#[tokio::test]
async fn selection_over_stdio_holds_in_both_eras_and_over_a_restart() {
    let mut rig = rig("").await;
    let mut client = Stdio::spawn(&rig, &["--app", "most", "--backends", "hr"]);
    let listed = client.ask_stateless(1, "tools/list", "").await;
    assert_eq!(tools(&listed), ["hr_say"]);
    client.initialize().await;
    assert_eq!(tools(&client.ask(2, "tools/list", "{}").await), ["hr_say"]);
    rig.bridge.stop().await;
    rig.bridge.restart().await;
    rig.bridge.wait_backend("hr", "ready").await;
    assert_eq!(tools(&client.ask(3, "tools/list", "{}").await), ["hr_say"]);

    let mut unknown = Stdio::spawn(&rig, &["--app", "most", "--backends", "zz"]);
    let refused = unknown.initialize().await;
    assert!(refused["error"]["message"].as_str().unwrap().contains("\"zz\""), "{refused}");
}

#[tokio::test]
async fn client_that_has_discovered_may_still_begin_a_session() {
    let rig = rig("").await;
    let mut client = Stdio::spawn(&rig, &["--app", "most"]);
    let discovered = client.ask_stateless(1, "server/discover", "").await;
    assert_eq!(discovered["result"]["resultType"], "complete", "{discovered}");
    let hello = client.initialize().await;
    assert_eq!(hello["result"]["protocolVersion"], "2025-11-25", "{hello}");
    assert_eq!(tools(&client.ask(2, "tools/list", "{}").await), ["fs_say", "hr_say"]);
    // A client may name its revision in each message.
    let meta = r#"{"protocolVersion":"2025-06-18","capabilities":{},"_meta":{"io.modelcontextprotocol/protocolVersion":"2025-06-18"}}"#;
    let again = client.ask(3, "initialize", meta).await;
    assert_eq!(again["result"]["protocolVersion"], "2025-06-18", "{again}");
    let meta = r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2025-06-18"}}"#;
    assert_eq!(tools(&client.ask(4, "tools/list", meta).await), ["fs_say", "hr_say"]);
    // The session before it has ended: it would stay for a day otherwise.
    assert_eq!(client.ask_stateless(5, "tools/list", "").await["result"]["ttlMs"], 0);
}
