//! The sandbox over HTTP, as a client sees it.

use bytes::Bytes;
use reqwest::{Method, Response};
use serde_json::{Value, json};

use super::*;
use crate::sse::Framer;

const KEY: &str = "mantyx_test";

fn config() -> SandboxConfig {
    SandboxConfig::new("acme", SecretString::from(KEY))
}

/// A sandbox that is being served.
struct Server {
    sandbox: Arc<Sandbox>,
    base: String,
    client: crate::http_client::Client,
    stop: CancellationToken,
    serving: tokio::task::JoinSet<()>,
}

impl Server {
    async fn start(config: SandboxConfig) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}/api/v1/workspaces/acme", listener.local_addr().unwrap());
        let sandbox = Arc::new(Sandbox::new(config));
        let stop = CancellationToken::new();
        let mut serving = tokio::task::JoinSet::new();
        serving.spawn(Arc::clone(&sandbox).serve(listener, stop.clone()));
        Self { sandbox, base, client: crate::http_client::new(), stop, serving }
    }

    async fn send(&self, method: Method, path: &str, body: impl Into<reqwest::Body>) -> Response {
        let request = self.client.request(method, format!("{}{path}", self.base));
        request.bearer_auth(KEY).body(body).send().await.unwrap()
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        read(self.send(Method::GET, path, "").await).await
    }

    async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        read(self.send(Method::POST, path, body.to_string()).await).await
    }

    /// Starts a run and gives its id.
    async fn run(&self, spec: &Value) -> String {
        let (status, body) = self.post("/agent-runs", spec).await;
        assert_eq!(status, 202, "{body}");
        let run = body["runId"].as_str().unwrap().to_owned();
        let url = format!("/api/v1/workspaces/acme/agent-runs/{run}/stream");
        assert_eq!(body["streamUrl"], url.as_str());
        run
    }

    async fn stream(&self, run: &str, query: &str) -> Stream {
        let path = format!("/agent-runs/{run}/stream{query}");
        let response = self.send(Method::GET, &path, "").await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream; charset=utf-8");
        Stream { response, framer: Framer::new(1 << 26) }
    }

    async fn answer(&self, run: &str, id: &Value, result: &str) -> (u16, Value) {
        let body = json!({"toolUseId": id, "result": result});
        self.post(&format!("/agent-runs/{run}/tool-results"), &body).await
    }
}

async fn read(response: Response) -> (u16, Value) {
    let status = response.status().as_u16();
    let text = response.text().await.unwrap();
    (status, if text.is_empty() { Value::Null } else { serde_json::from_str(&text).unwrap() })
}

/// One reader of a run's events.
struct Stream {
    response: Response,
    framer: Framer,
}

impl Stream {
    /// The `data` of the next event as text; `None` at the end of the stream.
    async fn next_text(&mut self) -> Option<String> {
        loop {
            while let Some(frame) = self.framer.next_frame().unwrap() {
                let fields = frame.fields();
                let Some(data) = fields.data else {
                    continue;
                };
                let event: Value = serde_json::from_str(&data).unwrap();
                assert_eq!(fields.id, Some(event["seq"].to_string()));
                assert_eq!(fields.event.as_deref(), event["type"].as_str());
                return Some(data);
            }
            let chunk: Bytes = self.response.chunk().await.unwrap()?;
            self.framer.push(&chunk);
        }
    }

    async fn next(&mut self) -> Option<Value> {
        self.next_text().await.map(|text| serde_json::from_str(&text).unwrap())
    }

    /// The data of the next event, which must be of `kind`.
    async fn expect(&mut self, kind: &str) -> Value {
        let event = self.next().await.expect("the stream goes on");
        assert_eq!(event["type"], kind, "{event}");
        event["data"].clone()
    }

    async fn rest(&mut self) -> Vec<Value> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }
}

fn spec(prompt: &str, tools: &Value) -> Value {
    json!({"systemPrompt": "Be terse.", "prompt": prompt, "tools": tools})
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_whole_run_with_a_local_tool() {
    let server = Server::start(config()).await;
    let tools = json!([{"kind": "local", "name": "add", "parameters": {"type": "object"}}]);
    let run = server.run(&spec("hello there\nadd {\"a\": 1.0}\nbye", &tools)).await;
    let mut stream = server.stream(&run, "").await;
    assert_eq!(stream.expect("assistant_delta").await, json!({"text": "hello there"}));
    let message = stream.expect("assistant_message").await;
    let calls = json!([{"id": "tu_1", "name": "add", "input": {"a": 1.0}}]);
    let expected = json!({
        "text": "hello there", "turn": 0, "finishReason": "tool_use", "toolCalls": calls,
    });
    assert_eq!(message, expected);
    let call = stream.next_text().await.unwrap();
    let text = r#"{"toolUseId":"tu_1","name":"add","args":{"a": 1.0},"kind":"local"}"#;
    assert_eq!(call, format!(r#"{{"seq":3,"type":"local_tool_call","data":{text}}}"#));

    let (status, snapshot) = server.get(&format!("/agent-runs/{run}")).await;
    assert_eq!((status, &snapshot["status"]), (200, &json!("running")));
    assert!(snapshot["turns"].is_null() && snapshot.get("turns").is_some());
    assert_eq!(server.answer(&run, &json!("tu_9"), "x").await.1["error"], "unknown_tool_use");
    assert_eq!(server.answer(&run, &json!("tu_1"), "one").await.0, 200);

    let echo = json!({"toolUseId": "tu_1", "output": "one"});
    assert_eq!(stream.expect("local_tool_result_in").await, echo);
    assert_eq!(stream.expect("assistant_delta").await, json!({"text": "one"}));
    assert_eq!(stream.expect("assistant_delta").await, json!({"text": "\nbye"}));
    let last = json!({"text": "one\nbye", "turn": 1, "finishReason": "end_turn"});
    assert_eq!(stream.expect("assistant_message").await, last);
    let result = stream.expect("result").await;
    let expected = json!({
        "subtype": "success",
        "text": "hello there\none\nbye",
        "turns": 2,
        "model": {"id": "sandbox/echo", "provider": "sandbox", "vendorModelId": "echo"},
    });
    assert_eq!(result, expected);
    assert_eq!(stream.next().await, None);

    let (_, snapshot) = server.get(&format!("/agent-runs/{run}")).await;
    assert_eq!(snapshot["status"], "succeeded");
    assert_eq!(snapshot["finalText"], "hello there\none\nbye");
    assert_eq!(snapshot["turns"], 2);
    assert_eq!(server.answer(&run, &json!("tu_1"), "one").await.1["error"], "run_terminal");
}

#[tokio::test]
async fn streams_resume_by_seq_and_last_seq_counts_first() {
    let server = Server::start(config()).await;
    let run = server.run(&spec("a\nb\nc", &json!([]))).await;
    let all = server.stream(&run, "").await.rest().await;
    assert_eq!(kinds(&all)[..3], ["assistant_delta"; 3]);
    assert_eq!(all.len(), 5);
    assert_eq!(server.stream(&run, "?lastSeq=3").await.rest().await, all[3..]);
    assert_eq!(server.stream(&run, "?lastSeq=5").await.rest().await, [] as [Value; 0]);
    let url = format!("{}/agent-runs/{run}/stream", server.base);
    struct Case {
        query: &'static str,
        header: &'static str,
        after: usize,
    }
    for Case { query, header, after } in [
        Case { query: "", header: "4", after: 4 },
        Case { query: "?lastSeq=2", header: "4", after: 2 },
        Case { query: "", header: "x", after: 0 },
    ] {
        let request = server.client.get(format!("{url}{query}")).header("last-event-id", header);
        let response = request.header("x-api-key", KEY).send().await.unwrap();
        let mut stream = Stream { response, framer: Framer::new(1 << 20) };
        assert_eq!(stream.rest().await, all[after..], "{query} {header}");
    }
    let (status, body) = server.get(&format!("/agent-runs/{run}/stream?lastSeq=x")).await;
    assert_eq!((status, &body["error"]), (400, &json!("invalid_request")));
}

#[tokio::test]
async fn extras_of_each_kind_are_echoed_verbatim() {
    let server = Server::start(config()).await;
    let body = r#"{"systemPrompt":"s","prompt":"hr {\"message\":\"hi\"}\nread {}\nping {}","tools":[
        {"kind":"a2a_local","name":"hr","agentCard":{"z":1.0,"a":12345678901234567890,"a":null}},
        {"kind":"mcp_local","name":"fs","serverInfo":{"name":"s","v":1e2},"tools":[{"name":"read"}]},
        {"kind":"mcp_local","name":"net","tools":[{"name":"ping"}]}]}"#;
    let (status, started) = read(server.send(Method::POST, "/agent-runs", body).await).await;
    assert_eq!(status, 202, "{started}");
    let run = started["runId"].as_str().unwrap();
    let mut stream = server.stream(run, "").await;
    stream.expect("assistant_message").await;
    let expected = [
        r#""kind":"a2a_local","agentCard":{"z":1.0,"a":12345678901234567890,"a":null}}}"#,
        r#""kind":"mcp_local","mcpServer":"fs","mcpToolName":"read","mcpServerInfo":{"name":"s","v":1e2}}}"#,
        r#""kind":"mcp_local","mcpServer":"net","mcpToolName":"ping"}}"#,
    ];
    for (index, end) in expected.iter().enumerate() {
        let text = stream.next_text().await.unwrap();
        assert!(text.ends_with(end), "{text}");
        server.answer(run, &json!(format!("tu_{}", index + 1)), "ok").await;
        stream.expect("local_tool_result_in").await;
    }
}

#[tokio::test]
async fn read_only_calls_go_out_together_and_others_alone() {
    let server = Server::start(config()).await;
    let tools = json!([
        {"kind": "local", "name": "r", "readOnly": true},
        {"kind": "mcp_local", "name": "fs", "tools": [
            {"name": "m", "annotations": {"readOnlyHint": true}}, {"name": "w"}]},
    ]);
    let run = server.run(&spec("r {}\nm {}\nw {}\nr {}", &tools)).await;
    let mut stream = server.stream(&run, "").await;
    stream.expect("assistant_message").await;
    for id in ["tu_1", "tu_2"] {
        assert_eq!(stream.expect("local_tool_call").await["toolUseId"], id);
    }
    // Answered in the other order; the results keep the order of the calls.
    for (id, next) in
        [("tu_2", None), ("tu_1", Some("tu_3")), ("tu_3", Some("tu_4")), ("tu_4", None)]
    {
        assert_eq!(server.answer(&run, &json!(id), id).await.0, 200);
        stream.expect("local_tool_result_in").await;
        if let Some(next) = next {
            assert_eq!(stream.expect("local_tool_call").await["toolUseId"], next);
        }
    }
    let end = stream.rest().await.pop().unwrap();
    assert_eq!(end["data"]["text"], "tu_1\ntu_2\ntu_3\ntu_4");
}

#[tokio::test]
async fn a_call_without_an_answer_ends_the_run() {
    let config = SandboxConfig {
        local_tool_timeout: Duration::from_millis(20),
        heartbeat: Duration::from_millis(5),
        ..config()
    };
    let server = Server::start(config).await;
    let run = server.run(&spec("t {}", &json!([{"kind": "local", "name": "t"}]))).await;
    let end = server.stream(&run, "").await.rest().await.pop().unwrap();
    assert_eq!(end["type"], "result");
    assert_eq!(end["data"]["subtype"], "error_local_tool_timeout");
    let error = end["data"]["error"].as_str().unwrap();
    assert!(error.starts_with("Timed out waiting for local tool result"), "{error}");
    assert_eq!(server.answer(&run, &json!("tu_1"), "late").await.0, 409);
}

#[tokio::test]
async fn cancelling() {
    let server = Server::start(config()).await;
    let run = server.run(&spec("t {}", &json!([{"kind": "local", "name": "t"}]))).await;
    let mut stream = server.stream(&run, "").await;
    stream.expect("assistant_message").await;
    stream.expect("local_tool_call").await;
    for _ in 0..2 {
        let path = format!("/agent-runs/{run}/cancel");
        assert_eq!(server.post(&path, &Value::Null).await.0, 200);
    }
    assert_eq!(stream.expect("cancelled").await, json!({"reason": "user"}));
    assert_eq!(stream.next().await, None);
    assert_eq!(server.answer(&run, &json!("tu_1"), "late").await, (200, json!({"ok": true})));
}

#[tokio::test]
async fn sessions_keep_history_and_end() {
    let server = Server::start(config()).await;
    let tools = json!([{"kind": "local", "name": "t"}]);
    let create = json!({"systemPrompt": "s", "tools": tools, "metadata": {"env": "prod"}});
    let (status, created) = server.post("/agent-sessions", &create).await;
    assert_eq!((status, &created), (201, &json!({"sessionId": "ses_1"})));
    for prompt in ["first things first", "second"] {
        let message = json!({"prompt": prompt, "tools": []});
        let (status, started) = server.post("/agent-sessions/ses_1/messages", &message).await;
        assert_eq!(status, 202);
        server.stream(started["runId"].as_str().unwrap(), "").await.rest().await;
    }
    let (_, session) = server.get("/agent-sessions/ses_1").await;
    assert_eq!(session["messages"].as_array().unwrap().len(), 4);
    assert_eq!(session["messages"][3], json!({"role": "assistant", "content": "second"}));
    // The stored tools are those of the session again; its end cancels the run.
    let message = json!({"prompt": "t {}", "metadata": {"k": "v"}});
    let (_, started) = server.post("/agent-sessions/ses_1/messages", &message).await;
    let run = started["runId"].as_str().unwrap();
    let mut stream = server.stream(run, "").await;
    stream.expect("assistant_message").await;
    stream.expect("local_tool_call").await;
    let ended = read(server.send(Method::DELETE, "/agent-sessions/ses_1", "").await).await;
    assert_eq!(ended, (200, json!({"sessionId": "ses_1", "status": "ended"})));
    stream.expect("cancelled").await;
    let (status, body) = server.post("/agent-sessions/ses_1/messages", &message).await;
    assert_eq!((status, &body["error"]), (409, &json!("session_ended")));
    let (_, run) = server.get(&format!("/agent-runs/{run}")).await;
    assert_eq!(run["metadata"], json!({"env": "prod", "k": "v"}));
    assert_eq!(run["status"], "cancelled");
    assert_eq!(server.get("/agent-sessions/ses_2").await.1["error"], "not_found");
}

#[tokio::test]
async fn sandbox_checks_the_credential_of_a_request() {
    let server = Server::start(config()).await;
    let url = format!("{}/models", server.base);
    let without = server.client.get(&url).send().await.unwrap();
    let (status, body) = read(without).await;
    assert_eq!((status, &body["error"]), (401, &json!("Unauthorized")));
    let wrong = server.client.get(&url).header("x-api-key", "mantyx_no").send().await.unwrap();
    let body = json!({"error": "Invalid API key or OAuth access token"});
    assert_eq!(read(wrong).await, (401, body));
    let encoded = server.client.get(url.replace("/acme/", "/%61cme/"));
    assert_eq!(encoded.bearer_auth(KEY).send().await.unwrap().status(), 200);
    let elsewhere = url.replace("/acme/", "/other/");
    let elsewhere = server.client.get(elsewhere).bearer_auth(KEY).send().await.unwrap();
    let (status, body) = read(elsewhere).await;
    assert_eq!(status, 404);
    assert_eq!(body["error"], "Workspace path does not match this credential");
    assert!(body["hint"].as_str().unwrap().contains("/acme/"));

    assert_eq!(server.get("/models").await.1["defaultModelId"], "sandbox/echo");
    let (status, body) = server.post("/eval-runs", &json!({})).await;
    assert_eq!((status, &body["error"]), (404, &json!("not_found")));
    assert_eq!(server.send(Method::PUT, "/models", "").await.status(), 404);
    let mut spec = spec("a", &json!([]));
    spec["agentId"] = json!("agent_sandbox");
    assert_eq!(server.post("/agent-runs", &spec).await.0, 202);
    spec["agentId"] = json!("agent_x");
    assert_eq!(server.post("/agent-runs", &spec).await.0, 403);
}

#[tokio::test]
async fn bodies_and_runs_are_bounded() {
    let limits = Limits { runs: 2, body_bytes: 4096, ..Limits::default() };
    let server = Server::start(SandboxConfig { limits, ..config() }).await;
    let large = "x".repeat(8 << 20);
    let (status, body) = read(server.send(Method::POST, "/agent-runs", large).await).await;
    assert_eq!((status, &body["error"]), (413, &json!("payload_too_large")));
    let chunks = (0..64).map(|_| Ok::<_, std::io::Error>(Bytes::from_static(&[b'x'; 1024])));
    let stream = reqwest::Body::wrap_stream(futures_util::stream::iter(chunks));
    assert_eq!(server.send(Method::POST, "/agent-runs", stream).await.status(), 413);

    let waits = spec("t {}", &json!([{"kind": "local", "name": "t"}]));
    let first = server.run(&waits).await;
    server.run(&waits).await;
    let (status, body) = server.post("/agent-runs", &waits).await;
    assert_eq!((status, &body["code"]), (429, &json!("rate_limit_exceeded")));
    server.post(&format!("/agent-runs/{first}/cancel"), &Value::Null).await;
    server.run(&waits).await;
    assert_eq!(server.get(&format!("/agent-runs/{first}")).await.0, 404);
}

#[tokio::test]
async fn finished_runs_make_room_for_new_ones() {
    let limits = Limits { bytes: 300_000, log_bytes_per_run: 200_000, ..Limits::default() };
    let server = Server::start(SandboxConfig { limits, ..config() }).await;
    // A log of 90 kB and a spec of 60 kB.
    let body = spec(&"x".repeat(30_000), &json!([]));
    for _ in 0..3 {
        let run = server.run(&body).await;
        let end = server.stream(&run, "").await.rest().await.pop().unwrap();
        assert_eq!(end["data"]["subtype"], "success");
    }
    assert_eq!(server.get("/agent-runs/run_1").await.0, 404);
    assert_eq!(server.get("/agent-runs/run_3").await.0, 200);
    let (status, body) = server.post("/agent-runs", &spec(&"x".repeat(200_000), &json!([]))).await;
    assert_eq!((status, &body["error"]), (429, &json!("rate_limit_exceeded")));

    let chatty = spec(&["y"; 2_000].join("\n"), &json!([]));
    let run = server.run(&chatty).await;
    let end = server.stream(&run, "").await.rest().await.pop().unwrap();
    assert_eq!((&end["type"], &end["data"]["errorClass"]), (&json!("error"), &json!("server")));
}

#[tokio::test]
async fn a_slow_reader_holds_up_nobody() {
    let server = Server::start(config()).await;
    let line = "x".repeat(10_000);
    let prompt = format!("{}\nt {{}}", vec![line; 500].join("\n"));
    let run = server.run(&spec(&prompt, &json!([{"kind": "local", "name": "t"}]))).await;
    let mut slow = server.stream(&run, "").await;
    let mut fast = server.stream(&run, "").await;
    loop {
        let event = fast.next().await.unwrap();
        if event["type"] == "local_tool_call" {
            break;
        }
    }
    server.answer(&run, &json!("tu_1"), "ok").await;
    let end = fast.rest().await;
    assert_eq!(end.last().unwrap()["type"], "result");
    let all = slow.rest().await;
    assert_eq!(all.len() as u64, all.last().unwrap()["seq"].as_u64().unwrap());
}

#[tokio::test]
async fn stopping_closes_streams_and_runs_live_on() {
    let mut server = Server::start(config()).await;
    let run = server.run(&spec("t {}", &json!([{"kind": "local", "name": "t"}]))).await;
    let mut stream = server.stream(&run, "").await;
    stream.expect("assistant_message").await;
    stream.expect("local_tool_call").await;
    server.stop.cancel();
    assert_eq!(stream.next().await, None);
    server.serving.join_next().await.unwrap().unwrap();

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    server.base = format!("http://{}/api/v1/workspaces/acme", listener.local_addr().unwrap());
    server.serving.spawn(Arc::clone(&server.sandbox).serve(listener, CancellationToken::new()));
    assert_eq!(server.answer(&run, &json!("tu_1"), "ok").await.0, 200);
    let rest = server.stream(&run, "?lastSeq=2").await.rest().await;
    assert_eq!(rest.last().unwrap()["data"]["text"], "ok");
}
