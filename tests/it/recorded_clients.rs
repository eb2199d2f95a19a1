//! What real MCP clients send (tests/peers/clients), replayed against the bridge: each of them gets
//! its tools and its result, over stdio and over HTTP.

use std::fs;

use serde::Deserialize;
use serde_json::Value;

use crate::{
    bridge::BINARY, harness::Harness, http::Request, mcp_server::Stdio, peers::repository,
};

/// What one client has sent.
#[derive(Deserialize)]
struct Recording {
    client: String,
    #[serde(default)]
    stdio: Vec<String>,
    http: Vec<HttpRequest>,
}

#[derive(Deserialize)]
struct HttpRequest {
    method: String,
    headers: serde_json::Map<String, Value>,
    body: String,
}

/// All recordings, and how many there are at least.
fn recordings() -> Vec<Recording> {
    let files = fs::read_dir(repository("tests/peers/clients")).expect("the directory is there");
    let mut paths: Vec<_> = files.map(|file| file.expect("it can be listed").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    assert!(paths.len() >= 9, "{paths:?}");
    let read = |path| serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    paths.iter().map(read).collect()
}

/// A bridge with the bundled server, as the clients had it.
async fn demo() -> Harness {
    let config = format!("mcp:\n  demo: {{command: {BINARY}, args: [demo-mcp-server]}}\n");
    let rig = Harness::bare(&config).await;
    rig.bridge.wait_backend("demo", "ready").await;
    rig
}

/// Checks the answer to a request of `client` for `method`.
#[track_caller]
fn check(client: &str, method: &str, answer: &Value) {
    let result = &answer["result"];
    assert!(result.is_object(), "{client}: {method}: {answer}");
    match method {
        "tools/list" => {
            let names = result["tools"].as_array().expect("a list").iter();
            let names: Vec<&Value> = names.map(|tool| &tool["name"]).collect();
            assert!(names.contains(&&"demo_add".into()), "{client}: {answer}");
        }
        "tools/call" => assert_eq!(result["content"][0]["text"], "42", "{client}: {answer}"),
        _ => (),
    }
}

#[tokio::test]
async fn recorded_client_over_stdio_gets_an_answer_to_each_request() {
    let rig = demo().await;
    for Recording { client, stdio, .. } in recordings() {
        let mut process = Stdio::spawn(&rig, &[]);
        for line in &stdio {
            process.write(line).await;
            let message: Value = serde_json::from_str(line).expect("JSON");
            let (id, method) = (&message["id"], message["method"].as_str().unwrap_or_default());
            if id.is_null() {
                continue;
            }
            // The answer to this one is a stream that begins with a notification.
            if method == "subscriptions/listen" {
                let first = process.next().await;
                let expected = "notifications/subscriptions/acknowledged";
                assert_eq!(first["method"], expected, "{client}: {first}");
                continue;
            }
            let answer = loop {
                let answer = process.next().await;
                if answer["id"] == *id {
                    break answer;
                }
            };
            check(&client, method, &answer);
        }
    }
}

#[tokio::test]
async fn recorded_client_over_http_gets_an_answer_to_each_request() {
    let rig = demo().await;
    for Recording { client, http, .. } in recordings() {
        let mut session = String::new();
        for HttpRequest { method, headers, body } in &http {
            let mut request = Request::new(method, "/mcp");
            for (name, value) in headers {
                let value = value.as_str().expect("a text");
                let value = value.replace("TOKEN", rig.bridge.token());
                request = request.header(name, &value.replace("SESSION", &session));
            }
            if !body.is_empty() {
                request = request.without("content-type").json(body.as_str());
            }
            let message: Value = serde_json::from_str(body).unwrap_or_default();
            let rpc_method = message["method"].as_str().unwrap_or_default();
            // These are streams without an end.
            if method == "GET" || rpc_method == "subscriptions/listen" {
                let response = request.send(rig.bridge.addr()).await;
                assert_eq!(response.status, 200, "{client}: {method} {rpc_method}");
                continue;
            }
            let answer = request.answer(rig.bridge.addr()).await;
            assert!([200, 202].contains(&answer.status), "{client}: {}", answer.text());
            if let Some(id) = answer.header("mcp-session-id") {
                id.clone_into(&mut session);
            }
            if !message["id"].is_null() {
                check(&client, rpc_method, &response_in(&answer.text()));
            }
        }
    }
}

/// The response in a body: the JSON itself, or the last event of a stream.
fn response_in(body: &str) -> Value {
    let last = body.lines().filter_map(|line| line.strip_prefix("data: ")).next_back();
    serde_json::from_str(last.unwrap_or(body)).unwrap_or_else(|_| panic!("JSON: {body}"))
}
