//! Large answers that an app asks for and does not read, and many at once: they cost the app, and
//! not the others.

use std::{fs, time::Duration};

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{task::JoinSet, time::Instant};

use crate::{
    bridge::Bridge,
    http::{Request, Response},
    owners::token,
    peers, process, wait,
};

/// How much an app that reads nothing may make the bridge take, beside what the bridge needs
/// itself.
const SHARE: u64 = 160 << 20;
/// For each of its requests, the connections on which the app does not read.
const UNREAD: usize = 50;

/// A bridge with the apps `a` and `b`, and a server with a catalog of 6 MB.
struct Large {
    bridge: Bridge,
    _dir: TempDir,
}

impl Large {
    async fn start() -> Self {
        let dir = TempDir::new().expect("a directory");
        let catalog = dir.path().join("catalog.json");
        let tool = |n: usize| {
            let text = format!("{n} {}", "what it does ".repeat(300));
            json!({"name": format!("tool_{n}"), "description": text, "inputSchema": {"type": "object"}})
        };
        let tools: Vec<Value> = (0..1_500).map(tool).collect();
        fs::write(&catalog, json!({ "tools": tools }).to_string()).expect("a file");
        let config = format!(
            "upstream: {{sandbox: true}}\napps:\n  a: {{token: {}}}\n  b: {{token: {}}}\nmcp:\n  c: {}\n\
             local:\n  ok: {{description: d, parameters: {{type: object}}, command: [echo, hi]}}\n",
            token("a"),
            token("b"),
            peers::changing(&catalog, &[]),
        );
        let bridge = Bridge::start(&config).await;
        let this = Self { bridge, _dir: dir };
        wait::soon("the catalog should be there", async || {
            let request = Request::new("GET", "/v1/status").bearer(&token("b"));
            let status = request.send(this.bridge.addr()).await.answer().await.value();
            let backends = status["backends"].as_array()?.clone();
            backends.iter().any(|one| one["tools"] == 1_500).then_some(())
        })
        .await;
        this
    }

    fn memory(&mut self) -> u64 {
        process::resident(self.bridge.process().pid())
    }

    /// Sends each of the requests on many connections and reads the heads of the answers alone.
    async fn unread(&self) -> Vec<Response> {
        let mut sent = JoinSet::new();
        for request in requests() {
            for _ in 0..UNREAD {
                sent.spawn(request.clone().send(self.bridge.addr()));
            }
        }
        sent.join_all().await
    }

    /// A call of the app `b`, and how long it took.
    async fn call_of_b(&self) -> Duration {
        let begun = Instant::now();
        let call = json!({"toolUseId": "tu_b", "name": "ok", "args": {}}).to_string();
        let request = Request::new("POST", "/v1/tool-calls").bearer(&token("b")).json(call);
        let answer = request.send(self.bridge.addr()).await.answer().await.expect(200);
        assert_eq!(answer["result"], "hi");
        begun.elapsed()
    }
}

/// What an app can ask for that has all definitions in it.
fn requests() -> Vec<Request> {
    let of_a = |method: &str, target: &str| Request::new(method, target).bearer(&token("a"));
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }}});
    vec![
        of_a("GET", "/v1/tool-refs"),
        of_a("GET", "/v1/tools?format=openai-chat"),
        of_a("POST", "/v1/specs/inject").json(r#"{"modelId":"m","prompt":"p"}"#),
        of_a("POST", "/mcp")
            .header("MCP-Protocol-Version", "2026-07-28")
            .header("Mcp-Method", "tools/list")
            .header("Accept", "application/json, text/event-stream")
            .json(list.to_string()),
    ]
}

#[tokio::test]
async fn answers_that_an_app_does_not_read_are_paid_for() {
    let mut large = Large::start().await;
    let before = large.memory();
    let held = large.unread().await;
    large.call_of_b().await;
    let more = large.memory().saturating_sub(before);
    assert!(more < SHARE, "{} MiB more", more >> 20);
    let refused = held.iter().filter(|answer| answer.status == 503).count();
    assert!(refused > 0, "200 lists of 6 MB are more than there is room for");
    assert!(held.iter().any(|answer| answer.status == 200), "some got what they asked for");
    // What was read is free again.
    drop(held);
    wait::soon("an app that reads should get its list", async || {
        let answer = requests().remove(0).send(large.bridge.addr()).await;
        (answer.status == 200).then_some(())
    })
    .await;
}

/// The answer to `initialize` of the app `a`: its session.
async fn session(large: &Large) -> String {
    let begin = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }});
    let request = Request::new("POST", "/mcp").bearer(&token("a")).json(begin.to_string());
    let answer = request.send(large.bridge.addr()).await.answer().await;
    answer.header("mcp-session-id").expect("a session").to_owned()
}

/// A message of that session.
fn message(session: &str, message: &Value) -> Request {
    Request::new("POST", "/mcp")
        .bearer(&token("a"))
        .header("Mcp-Session-Id", session)
        .header("Accept", "application/json, text/event-stream")
        .json(message.to_string())
}

#[tokio::test]
async fn unread_errors_that_repeat_a_request_are_paid_for() {
    let mut large = Large::start().await;
    let session = session(&large).await;
    let before = large.memory();
    let name = "n".repeat(6 << 20);
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name}});
    let request = message(&session, &call);
    let mut sent = JoinSet::new();
    for _ in 0..60 {
        sent.spawn(request.clone().send(large.bridge.addr()));
    }
    let held = sent.join_all().await;
    large.call_of_b().await;
    let more = large.memory().saturating_sub(before);
    assert!(more < SHARE, "{} MiB more", more >> 20);
    assert!(
        held.iter().any(|answer| answer.status == 503),
        "360 MB are more than there is room for"
    );
}

#[tokio::test]
async fn cancellations_of_requests_that_never_come_take_no_memory() {
    let mut large = Large::start().await;
    let session = session(&large).await;
    let before = large.memory();
    let params = json!({ "requestId": "n".repeat(6 << 20) });
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
    for _ in 0..60 {
        let answer = message(&session, &cancel).send(large.bridge.addr()).await;
        assert_eq!(answer.status, 202);
    }
    let more = large.memory().saturating_sub(before);
    assert!(more < SHARE, "{} MiB more", more >> 20);
}

#[tokio::test]
async fn ids_of_calls_that_are_remembered_have_a_limit() {
    let large = Large::start().await;
    let send = async |path: &str, body: Value| {
        let request = Request::new("POST", path).bearer(&token("a")).json(body.to_string());
        let answer = request.send(large.bridge.addr()).await.answer().await;
        answer.expect_error(400)["message"].as_str().expect("a text").to_owned()
    };
    let long = "i".repeat(1025);
    let call = json!({"toolUseId": long, "name": "ok", "args": {}});
    let item = json!({"tool_name": "ok", "tool_call_id": long, "payload": {}});
    let set = json!({"id": "s", "runId": "r", "items": [item]});
    let confirmation = json!({"id": "c", "tool_name": long, "tool_call_id": "t", "payload": {}});
    for (path, body) in
        [("/v1/tool-calls", call), ("/v1/external-tools", set), ("/v1/confirmations", confirmation)]
    {
        let why = send(path, body).await;
        assert!(why.contains("at most 1024 bytes"), "{path}: {why}");
    }
}

#[tokio::test]
async fn parameters_of_a_read_have_a_limit() {
    let large = Large::start().await;
    let session = session(&large).await;
    let params =
        json!({"ref": {"type": "ref/prompt", "name": "p"}, "argument": vec![json!([]); 400_000]});
    let read =
        json!({"jsonrpc": "2.0", "id": 1, "method": "completion/complete", "params": params});
    let answer =
        message(&session, &read).send(large.bridge.addr()).await.answer().await.expect(200);
    assert_eq!(answer["error"]["code"], -32602);
    let why = answer["error"]["message"].as_str().expect("a text");
    assert!(why.contains("longer than"), "{why}");
}

#[tokio::test]
async fn app_whose_token_is_taken_away_gets_no_list_that_it_waits_for() {
    let mut large = Large::start().await;
    let addr = large.bridge.addr();
    let mut asking = JoinSet::new();
    for _ in 0..200 {
        let request = requests().remove(0);
        asking.spawn(async move { request.send(addr).await.answer().await.status });
    }
    asking.join_next().await.expect("a first answer").expect("no panic");
    large.bridge.change_config(&token("a"), &token("c"));
    large.bridge.process().signal(Signal::HUP);
    wait::soon("the token should not be let in", async || {
        // This one needs no turn.
        let answer = Request::new("GET", "/mcp").bearer(&token("a")).answer(addr).await;
        (answer.status == 401).then_some(())
    })
    .await;
    while asking.try_join_next().is_some() {}
    let late = asking.join_all().await;
    assert!(late.contains(&401), "they are all written already");
    // These are being written, or on the way.
    let lists = late.iter().filter(|status| **status == 200).count();
    assert!(lists <= 16, "{lists} of {}", late.len());
}

#[tokio::test]
async fn app_that_asks_for_many_lists_holds_up_itself_alone() {
    let large = Large::start().await;
    let alone = large.call_of_b().await;
    let mut asking = JoinSet::new();
    for request in requests() {
        for _ in 0..50 {
            let addr = large.bridge.addr();
            let request = request.clone();
            asking.spawn(async move { request.send(addr).await.answer().await });
        }
    }
    // Some of them are being written by now.
    asking.join_next().await.expect("a first answer").expect("no panic");
    let beside = large.call_of_b().await;
    assert!(!asking.is_empty(), "they are all written already");
    assert!(beside < Duration::from_secs(3) + 10 * alone, "{beside:?}, and {alone:?} alone");
    asking.abort_all();
}
