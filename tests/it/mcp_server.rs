//! `/mcp`: the bridge as an MCP server, byte for byte.

use std::{fs, time::Duration};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    task::JoinSet,
    time::timeout,
};

use crate::{
    bridge::Bridge,
    harness::{Harness, LEDGER_TOOLS},
    http::{Answer, Request, Response},
    peers, process, wait,
};

mod features;

/// A client of `/mcp` that writes its own requests.
pub(crate) struct Client<'a> {
    bridge: &'a Bridge,
    token: String,
    session: Option<String>,
}

pub(crate) const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

impl<'a> Client<'a> {
    /// A client of 2026-07-28.
    pub(crate) fn stateless(bridge: &'a Bridge) -> Self {
        Self { bridge, token: bridge.token().to_owned(), session: None }
    }

    /// A client with a session of 2025-11-25.
    pub(crate) async fn with_session(bridge: &'a Bridge) -> Self {
        Self::with_token(bridge, bridge.token()).await
    }

    async fn with_token(bridge: &'a Bridge, token: &str) -> Self {
        Self::begun(bridge, token, &[]).await
    }

    /// With a session that has a selection of backends.
    pub(crate) async fn with_selection(bridge: &'a Bridge, token: &str, names: &str) -> Self {
        Self::begun(bridge, token, &[("X-Bridge-Backends", names)]).await
    }

    async fn begun(bridge: &'a Bridge, token: &str, headers: &[(&str, &str)]) -> Self {
        let answer = Self::hello(bridge, token, headers).await;
        let result = answer.expect(200);
        assert_eq!(result["result"]["protocolVersion"], "2025-11-25", "{result}");
        let session = answer.header("mcp-session-id").expect("a session has an id").to_owned();
        Self { bridge, token: token.to_owned(), session: Some(session) }
    }

    /// The answer to an `initialize` with these headers.
    pub(crate) async fn hello(bridge: &'a Bridge, token: &str, headers: &[(&str, &str)]) -> Answer {
        let this = Self { bridge, token: token.to_owned(), session: None };
        let hello = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;
        let request = headers
            .iter()
            .fold(this.post(hello), |request, (name, value)| request.header(name, value));
        request.answer(bridge.addr()).await
    }

    /// The request for the session's stream.
    pub(crate) fn stream(&self) -> Request {
        self.request("GET")
    }

    fn request(&self, method: &str) -> Request {
        let request = Request::new(method, "/mcp")
            .bearer(&self.token)
            .header("Accept", "application/json, text/event-stream");
        match &self.session {
            Some(id) => request.header("Mcp-Session-Id", id),
            None => request,
        }
    }

    pub(crate) fn post(&self, message: &str) -> Request {
        self.request("POST").json(message)
    }

    /// The request for `method` with `params`, whose braces are left out.
    fn call(&self, id: u64, method: &str, params: &str) -> Request {
        if self.session.is_some() {
            return self.post(&format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{params}}}}}"#
            ));
        }
        let comma = if params.is_empty() { "" } else { "," };
        let message = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{params}{comma}{META}}}}}"#
        );
        let name: Value = serde_json::from_str(&format!("{{{params}}}")).unwrap();
        let request = self.post(&message).header("MCP-Protocol-Version", "2026-07-28");
        let request = request.header("Mcp-Method", method);
        match name["name"].as_str() {
            Some(name) => request.header("Mcp-Name", name),
            None => request,
        }
    }

    pub(crate) async fn answer(&self, method: &str, params: &str) -> Answer {
        self.call(1, method, params).answer(self.bridge.addr()).await
    }

    /// Begins a call of the ledger's `hang`, and waits until it is there.
    async fn hang(&self, rig: &Harness, count: usize) -> JoinSet<Response> {
        let addr = self.bridge.addr();
        let call = self.call(7, "tools/call", r#""name":"plain_hang","arguments":{}"#);
        let mut calls = JoinSet::new();
        calls.spawn(call.send(addr));
        rig.wait_executions(count).await;
        calls
    }
}

/// How many calls are under way.
async fn in_flight(bridge: &Bridge) -> u64 {
    bridge.backend("plain").await["callsInFlight"].as_u64().expect("a number")
}

async fn wait_in_flight(bridge: &Bridge, count: u64) {
    wait::soon("calls under way", async || (in_flight(bridge).await == count).then_some(())).await;
}

#[tokio::test]
async fn unknown_name_is_answered_with_a_near_one_that_the_app_may_see() {
    let config = format!(
        "apps:\n  a: {{token: aaaaaaaaaaaaaaaa}}\n  \
         b: {{token: bbbbbbbbbbbbbbbb, tools: {{one: {{allow: [fail]}}}}}}\n\
         mcp:\n  one: {}\n  say: {}\n",
        peers::hostile_mcp(&[]),
        peers::saying("x")
    );
    let rig = Harness::bare(&config).await;
    let a = Client::with_token(&rig.bridge, "aaaaaaaaaaaaaaaa").await;
    let b = Client::with_token(&rig.bridge, "bbbbbbbbbbbbbbbb").await;
    let message = async |client: &Client<'_>, method: &str, name: &str| -> String {
        let answer = client.answer(method, &format!(r#""name":"{name}""#)).await.expect(200);
        answer["error"]["message"].as_str().unwrap_or_default().to_owned()
    };
    wait::soon("a tool", async || {
        let told = message(&a, "tools/call", "one_ecko").await;
        (told == "Unknown tool: one_ecko. Did you mean `one_echo`?").then_some(())
    })
    .await;
    assert_eq!(message(&a, "tools/call", "weather").await, "Unknown tool: weather");
    assert_eq!(message(&b, "tools/call", "one_ecko").await, "Unknown tool: one_ecko");
    wait::soon("a prompt", async || {
        let told = message(&a, "prompts/get", "say_sey").await;
        told.contains("Did you mean `say_").then_some(())
    })
    .await;
}

#[tokio::test]
async fn definitions_and_results_come_as_the_server_wrote_them() {
    let rig = Harness::start().await;
    let note = r#"{"x-vendor": {"b": 1.0, "a": 123456789012345678901234567890}, "name": "plain_note",  "description": "Notes a text.", "inputSchema": {"type": "object", "#;
    let result = r#"{"content": [{"type": "text", "text": "noted: \u00e9"}], "isError": false}"#;
    let client = Client::with_session(&rig.bridge).await;
    let listed = client.answer("tools/list", "").await.text();
    assert!(listed.contains(note), "{listed}");
    let arguments = r#""name":"plain_note","arguments":{"text":"é"}"#;
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
    let traced = format!(r#"{arguments},"_meta":{{"traceparent":"{parent}"}}"#);
    client.answer("tools/call", &traced).await.expect(200);
    assert_eq!(rig.executions()[0]["meta"]["traceparent"], parent);
    let called = client.answer("tools/call", arguments).await.text();
    assert_eq!(called, format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#));

    let client = Client::stateless(&rig.bridge);
    let listed = client.answer("tools/list", "").await;
    assert!(listed.text().contains(note));
    let result = &listed.value()["result"];
    let extras = ["resultType", "ttlMs", "cacheScope"].map(|key| result[key].clone());
    assert_eq!(extras, [json!("complete"), json!(0), json!("private")]);
    let called = client.answer("tools/call", arguments).await.text();
    assert!(called.contains(r#"{"resultType":"complete","content": [{"type""#), "{called}");
    let names: Vec<_> = result["tools"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(names, LEDGER_TOOLS);
}

#[tokio::test]
async fn mistake_of_a_client_is_told_in_the_protocols_own_words() {
    let rig = Harness::start().await;
    let session = Client::with_session(&rig.bridge).await;
    let stateless = Client::stateless(&rig.bridge);
    let addr = rig.bridge.addr();
    let gone = Client {
        bridge: &rig.bridge,
        token: rig.bridge.token().to_owned(),
        session: Some("0123456789abcdef".to_owned()),
    };
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let old = stateless.post(ping).header("MCP-Protocol-Version", "1999-01-01");
    let unnamed = stateless
        .post(&format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{{META}}}}}"#));
    struct Case {
        request: Request,
        status: u16,
        code: i64,
    }
    for Case { request, status, code } in [
        Case { request: session.post("{"), status: 400, code: -32700 },
        Case { request: session.post("[]"), status: 400, code: -32600 },
        Case { request: stateless.post(ping), status: 400, code: -32600 },
        Case { request: gone.post(ping), status: 404, code: -32600 },
        Case { request: old, status: 400, code: -32022 },
        Case { request: unnamed, status: 400, code: -32020 },
        Case { request: session.call(1, "nope", ""), status: 200, code: -32601 },
        Case { request: stateless.call(1, "nope", ""), status: 404, code: -32601 },
        Case {
            request: session.call(1, "tools/call", r#""name":"nope""#),
            status: 200,
            code: -32602,
        },
        Case {
            request: session.call(1, "tools/call", r#""arguments":{}"#),
            status: 200,
            code: -32602,
        },
        Case {
            request: session.call(1, "tools/call", r#""name":"plain_args","arguments":[]"#),
            status: 200,
            code: -32602,
        },
        Case {
            request: session.call(1, "tools/list", r#""cursor":"2""#),
            status: 200,
            code: -32602,
        },
        Case { request: gone.request("GET"), status: 404, code: -32600 },
        Case { request: gone.request("DELETE"), status: 404, code: -32600 },
    ] {
        let said = format!("{request:?}");
        let answer = request.answer(addr).await;
        assert_eq!(answer.expect(status)["error"]["code"], code, "{said}");
    }
    let large = session.request("POST").header("Content-Type", "application/json");
    let large = large.header("Content-Length", "9000000").answer(addr).await;
    assert_eq!(large.status, 413);
    let form = session.request("POST").body("text/plain", ping).answer(addr).await;
    assert_eq!(form.status, 415);
    let nobody = Request::new("POST", "/mcp").json(ping).answer(addr).await;
    assert_eq!(nobody.status, 401);
    let page = session.post(ping).header("Origin", "https://evil.example").answer(addr).await;
    assert_eq!(page.status, 403);
    let put = session.request("PUT").answer(addr).await;
    assert_eq!((put.status, put.header("allow")), (405, Some("GET, HEAD, POST, DELETE")));
    assert_eq!(rig.executions(), Vec::<Value>::new());
}

#[tokio::test]
async fn a_client_of_2026_cancels_by_closing_and_one_before_does_not() {
    let rig = Harness::start().await;
    let addr = rig.bridge.addr();
    let stateless = Client::stateless(&rig.bridge);
    let call = stateless.hang(&rig, 1).await;
    assert_eq!(in_flight(&rig.bridge).await, 1);
    drop(call);
    wait_in_flight(&rig.bridge, 0).await;

    let session = Client::with_session(&rig.bridge).await;
    drop(session.hang(&rig, 2).await);
    // A request after the hang-up: by then the bridge has seen that the connection is closed.
    let twice = session.call(7, "tools/call", r#""name":"plain_pid""#).answer(addr).await;
    assert_eq!(twice.expect(400)["error"]["code"], -32600, "the call goes on, under its id");
    assert_eq!(in_flight(&rig.bridge).await, 1);
    let cancelled =
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#;
    assert_eq!(session.post(cancelled).answer(addr).await.status, 202);
    wait_in_flight(&rig.bridge, 0).await;

    drop(session.hang(&rig, 3).await);
    // Three of these wait for a permit, and do not begin when the others end.
    let mut more = JoinSet::new();
    for id in 10..16 {
        let hang = session.call(id, "tools/call", r#""name":"plain_hang","arguments":{}"#);
        more.spawn(hang.send(addr));
    }
    rig.wait_executions(6).await;
    wait_in_flight(&rig.bridge, 7).await;
    assert_eq!(session.request("DELETE").answer(addr).await.status, 200);
    wait_in_flight(&rig.bridge, 0).await;
    assert_eq!(session.answer("ping", "").await.status, 404, "the session is over");
    assert_eq!(rig.executions().len(), 6);
}

#[tokio::test]
async fn a_changed_catalog_is_told_in_both_eras() {
    let dir = TempDir::new().unwrap();
    let catalog = dir.path().join("catalog");
    let tools = |name: &str| {
        format!(r#"{{"tools":[{{"name":"{name}","inputSchema":{{"type":"object"}}}}]}}"#)
    };
    fs::write(&catalog, tools("one")).unwrap();
    let rig =
        Harness::bare(&format!("mcp:\n  c: {}\n", peers::changing(&catalog, &["--tells"]))).await;
    let addr = rig.bridge.addr();
    let session = Client::with_session(&rig.bridge).await;
    let mut first = session.request("GET").send(addr).await;
    let mut streamed = session.request("GET").send(addr).await;
    assert_eq!(first.chunk().await, None, "one stream of a session");
    let stateless = Client::stateless(&rig.bridge);
    let listen = r#""notifications":{"toolsListChanged":true,"promptsListChanged":true}"#;
    let mut listened = stateless.call(9, "subscriptions/listen", listen).send(addr).await;
    let confirmed = String::from_utf8(listened.chunk().await.unwrap()).unwrap();
    let agreed = r#""notifications":{"promptsListChanged":true,"toolsListChanged":true}"#;
    assert!(confirmed.contains(agreed), "{confirmed}");
    fs::write(&catalog, tools("two")).unwrap();
    for (stream, id) in [(&mut streamed, None), (&mut listened, Some("9"))] {
        let told = loop {
            let text = String::from_utf8(stream.chunk().await.unwrap()).unwrap();
            if text != ": ping\n\n" {
                break text;
            }
        };
        assert!(told.contains(r#""method":"notifications/tools/list_changed""#), "{told}");
        let marked = id.map(|id| format!(r#""io.modelcontextprotocol/subscriptionId":{id}"#));
        assert!(marked.is_none_or(|mark| told.contains(&mark)), "{told}");
    }
    let listed = session.answer("tools/list", "").await.text();
    assert!(listed.contains("c_two") && !listed.contains("c_one"), "{listed}");
    session.request("DELETE").answer(addr).await;
    assert_eq!(streamed.chunk().await, None, "the stream ends with its session");
}

#[tokio::test]
async fn each_app_has_its_own_view_and_its_own_sessions() {
    let dir = TempDir::new().unwrap();
    let ledger = dir.path().join("ledger");
    let config = format!(
        "apps:\n  a: {{token: aaaaaaaaaaaaaaaa, tools: {{plain: {{allow: [note]}}}}}}\n  \
         b: {{token: bbbbbbbbbbbbbbbb}}\nmcp:\n  plain: {}\n",
        peers::ledger(&ledger, &[])
    );
    let rig = Harness::bare(&config).await;
    let a = Client::with_token(&rig.bridge, "aaaaaaaaaaaaaaaa").await;
    let listed = a.answer("tools/list", "").await.expect(200);
    assert_eq!(listed["result"]["tools"].as_array().unwrap().len(), 1, "{listed}");
    let hidden = a.answer("tools/call", r#""name":"plain_args","arguments":{}"#).await;
    assert_eq!(hidden.expect(200)["error"]["code"], -32602);
    let thief = Client { token: "bbbbbbbbbbbbbbbb".to_owned(), session: a.session.clone(), ..a };
    assert_eq!(thief.answer("ping", "").await.status, 404);
    for (options, count) in [(&["--app", "a"][..], 1), (&["--app", "b"], LEDGER_TOOLS.len())] {
        let listed = Stdio::with(&rig, options).await.ask(1, "tools/list", "{}").await;
        let tools = listed["result"]["tools"].as_array().expect("a list");
        assert_eq!(tools.len(), count, "{options:?}: {listed}");
    }
    assert!(!ledger.exists(), "no call was made");
}

#[tokio::test]
async fn ten_clients_share_one_child() {
    let rig = Harness::start().await;
    let children = rig.bridge.children();
    let mut pids = Vec::new();
    for _ in 0..10 {
        let client = Client::with_session(&rig.bridge).await;
        let answer = client.answer("tools/call", r#""name":"plain_pid","arguments":{}"#).await;
        pids.push(answer.expect(200)["result"]["content"][0]["text"].clone());
    }
    pids.dedup();
    assert_eq!((pids.len(), rig.bridge.children()), (1, children));
}

/// A client of `mantyx-bridge mcp`.
pub(crate) struct Stdio {
    child: tokio::process::Child,
    input: Option<tokio::process::ChildStdin>,
    output: tokio::io::Lines<BufReader<tokio::process::ChildStdout>>,
}

impl Stdio {
    async fn start(rig: &Harness) -> Self {
        Self::with(rig, &[]).await
    }

    /// With these options.
    async fn with(rig: &Harness, options: &[&str]) -> Self {
        let mut this = Self::spawn(rig, options);
        let hello = this.initialize().await;
        assert_eq!(hello["result"]["protocolVersion"], "2025-11-25", "{hello}");
        this
    }

    /// Before its first message.
    pub(crate) fn spawn(rig: &Harness, options: &[&str]) -> Self {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_mantyx-bridge"));
        command.arg("mcp").args(options).arg("-c").arg(rig.bridge.config_path()).kill_on_drop(true);
        let pipe = std::process::Stdio::piped;
        let mut child = command.stdin(pipe()).stdout(pipe()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { input: child.stdin.take(), child, output }
    }

    pub(crate) async fn initialize(&mut self) -> Value {
        let params = r#"{"protocolVersion":"2025-11-25","capabilities":{}}"#;
        self.ask(0, "initialize", params).await
    }

    /// The answer to a request of 2026-07-28, whose parameters have no braces.
    pub(crate) async fn ask_stateless(&mut self, id: u64, method: &str, params: &str) -> Value {
        let comma = if params.is_empty() { "" } else { "," };
        self.ask(id, method, &format!("{{{params}{comma}{META}}}")).await
    }

    pub(crate) async fn write(&mut self, line: &str) {
        let input = self.input.as_mut().expect("stdin is open");
        input.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    /// The next message, which must come in time.
    pub(crate) async fn next(&mut self) -> Value {
        let line = timeout(Duration::from_secs(30), self.output.next_line()).await;
        serde_json::from_str(&line.expect("in time").unwrap().expect("a line")).unwrap()
    }

    pub(crate) async fn ask(&mut self, id: u64, method: &str, params: &str) -> Value {
        let head = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}""#);
        self.write(&format!(r#"{head},"params":{params}}}"#)).await;
        loop {
            let message = self.next().await;
            if message["id"] == id {
                return message;
            }
        }
    }
}

const NOTE: &str = r#"{"name":"plain_note","arguments":{"text":"x"}}"#;

#[tokio::test]
async fn a_stdio_client_outlives_the_daemons_restart() {
    let mut rig = Harness::start().await;
    let mut client = Stdio::start(&rig).await;
    assert_eq!(client.ask(1, "tools/call", NOTE).await["result"]["isError"], false);
    let call = r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"plain_hang"}}"#;
    client.write(call).await;
    rig.wait_executions(2).await;
    rig.bridge.kill9();
    let lost = loop {
        let message = client.next().await;
        if message["id"] == 2 {
            break message;
        }
    };
    let why = lost["error"]["message"].as_str().unwrap();
    assert!(why.starts_with("OUTCOME_UNKNOWN"), "it was sent: {lost}");
    // Asked while no daemon is there, and answered by the next one.
    let mut asked = JoinSet::new();
    asked.spawn(async move {
        let answer = client.ask(3, "tools/call", NOTE).await;
        (client, answer)
    });
    rig.bridge.restart().await;
    let (mut client, answer) = asked.join_next().await.unwrap().unwrap();
    assert_eq!(answer["result"]["isError"], false, "{answer}");
    let listed = client.ask(4, "tools/list", "{}").await;
    assert_eq!(listed["result"]["tools"].as_array().unwrap().len(), LEDGER_TOOLS.len());
    let tools: Vec<_> = rig.executions().iter().map(|call| call["tool"].clone()).collect();
    assert_eq!(tools, ["note", "hang", "note"], "no call was made twice");
    client.write(call).await;
    rig.wait_executions(4).await;
    drop(client.input.take());
    assert!(client.child.wait().await.unwrap().success());
    wait_in_flight(&rig.bridge, 0).await;
}

/// A call whose answer has become a stream breaks off, too; notifications get no answer, and what
/// is sent in one piece is handled in its order.
#[tokio::test]
async fn a_stdio_client_gets_an_answer_to_each_request() {
    let all = format!("  all: {}\n", peers::everything_stdio());
    let mut rig = Harness::with(&all, &[], "").await;
    rig.bridge.wait_backend("all", "ready").await;
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_mantyx-bridge"));
    command.arg("mcp").arg("-c").arg(rig.bridge.config_path()).kill_on_drop(true);
    let pipe = std::process::Stdio::piped;
    let mut child = command.stdin(pipe()).stdout(pipe()).spawn().unwrap();
    let output = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut client = Stdio { input: child.stdin.take(), child, output };
    let at_once = [
        r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/unknown","params":{"x":1}}"#,
    ];
    client.write(&at_once.join("\n")).await;
    assert_eq!(client.next().await["id"], 0);
    let listed = client.next().await;
    assert!(listed["id"] == 1 && listed["result"]["tools"].is_array(), "{listed}");

    // Its first progress makes a stream of the answer.
    let long = |id: u64| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"all_trigger_long_running_operation","arguments":{{"duration":60,"steps":600}},"_meta":{{"progressToken":{id}}}}}}}"#
        )
    };
    // A cancelled one has no answer.
    client.write(&long(9)).await;
    assert_eq!(client.next().await["params"]["progressToken"], 9);
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9}}"#;
    client.write(cancel).await;
    wait_in_flight(&rig.bridge, 0).await;
    client.write(&long(2)).await;
    loop {
        let progress = client.next().await;
        assert_eq!(progress["method"], "notifications/progress", "{progress}");
        if progress["params"]["progressToken"] == 2 {
            break;
        }
    }
    rig.bridge.kill9();
    let lost = loop {
        let message = client.next().await;
        if message["id"] == 2 {
            break message;
        }
    };
    assert!(lost["error"]["message"].as_str().unwrap().starts_with("OUTCOME_UNKNOWN"), "{lost}");
    for garbage in [&b"\xff\n"[..], b"{\"jsonrpc\":\n"] {
        client.input.as_mut().unwrap().write_all(garbage).await.unwrap();
        let answer = loop {
            let message = client.next().await;
            if message["method"].is_null() {
                break message;
            }
        };
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&Value::Null, &json!(-32700)));
    }
}

/// One app that does not read its results holds no more than its share, and learns why the rest is
/// refused.
#[tokio::test]
async fn results_that_a_client_does_not_read_are_paid_for() {
    let mut rig = Harness::start().await;
    let before = process::resident(rig.bridge.process().pid());
    let client = Client::stateless(&rig.bridge);
    let big = r#""name":"plain_big","arguments":{"bytes":7000000}"#;
    let mut unread = JoinSet::new();
    for id in 0..48 {
        // No event streams: on a slow machine, one would begin with a sign of life.
        let request = client.call(id, "tools/call", big).without("Accept");
        unread.spawn(request.send(rig.bridge.addr()));
    }
    // Each head has come, and of each body, what the system's buffers take.
    let mut held = Vec::new();
    while let Some(response) = unread.join_next().await {
        held.push(response.unwrap());
    }
    let now = process::resident(rig.bridge.process().pid());
    assert!(now < before + (300 << 20), "{} MiB more", (now - before) >> 20);
    let mut refused = 0;
    for response in held {
        let answer = response.answer().await.expect(200);
        refused += u64::from(answer["result"]["isError"] == true);
    }
    assert!(refused > 0, "48 results of 7 MB are more than there is room for");
}
