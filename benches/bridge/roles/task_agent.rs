//! An agent of revision 0.3 over JSON-RPC whose tasks end after the time that a message says, in
//! milliseconds: with streams in `/tasks/`, and without them in `/polled/`. What a task says at its
//! end begins with the moment of that end.
//!
//! Must not: keep a task. Its id says when it ends.

use std::{io, net::SocketAddr, time::Duration};

use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};
use tokio::time::sleep;

use crate::{
    clock::{self, SECOND},
    wire::{self, Request, Served, chunk},
};

const MILLI: u64 = SECOND / 1_000;
const HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

/// The card of the agent at `path` of `addr`.
pub(super) fn card(addr: SocketAddr, path: &str) -> String {
    json!({
        "protocolVersion": "0.3.0",
        "name": "Tasks",
        "description": "Ends a task after so many milliseconds.",
        "url": format!("http://{addr}{path}"),
        "preferredTransport": "JSONRPC",
        "version": "1.0.0",
        "capabilities": { "streaming": path == "/tasks/", "pushNotifications": false },
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{ "id": "wait", "name": "Wait", "description": "Waits.", "tags": ["wait"] }],
    })
    .to_string()
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    id: &'a RawValue,
    method: String,
    #[serde(default)]
    params: Value,
}

/// Answers one request.
pub(super) async fn answer(client: &mut Served, request: &Request) -> io::Result<()> {
    let Ok(envelope) = serde_json::from_slice::<Envelope<'_>>(&request.body) else {
        return client.write(&wire::response(400, "{}")).await;
    };
    let Envelope { id, method, params } = envelope;
    let millis = params["message"]["parts"][0]["text"].as_str().and_then(|text| text.parse().ok());
    let end = clock::now() + millis.unwrap_or(0) * MILLI;
    let result =
        |result: &Value| json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string();
    match method.as_str() {
        "message/stream" => {
            client.write(HEAD).await?;
            let event = |value: &Value| {
                let mut out = Vec::new();
                chunk(&mut out, format!("data: {}\n\n", result(value)).as_bytes());
                out
            };
            client.write(&event(&task(end, "working"))).await?;
            while clock::now() < end {
                sleep(Duration::from_nanos(end - clock::now())).await;
            }
            let last = json!({
                "kind": "status-update", "taskId": name(end), "contextId": "c", "final": true,
                "status": status("completed", clock::now()),
            });
            client.write(&[event(&last), b"0\r\n\r\n".to_vec()].concat()).await
        }
        "message/send" => client.write(&wire::response(200, &result(&task(end, "working")))).await,
        "tasks/get" => {
            let end = params["id"].as_str().and_then(|id| id.strip_prefix("t-")?.parse().ok());
            let body = match end {
                Some(end) if clock::now() >= end => result(&task(end, "completed")),
                Some(end) => result(&task(end, "working")),
                None => {
                    let error = json!({ "code": -32001, "message": "Task not found" });
                    json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string()
                }
            };
            client.write(&wire::response(200, &body)).await
        }
        _ => {
            let error = json!({ "code": -32601, "message": "there is no such method" });
            let body = json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string();
            client.write(&wire::response(200, &body)).await
        }
    }
}

fn name(end: u64) -> String {
    format!("t-{end}")
}

fn task(end: u64, state: &str) -> Value {
    json!({ "kind": "task", "id": name(end), "contextId": "c", "status": status(state, end) })
}

/// The status of a task which, if that is its end, has ended at `end`.
fn status(state: &str, end: u64) -> Value {
    if state != "completed" {
        return json!({ "state": state });
    }
    let parts = json!([{ "kind": "text", "text": format!("{end} is the end") }]);
    let message = json!({ "kind": "message", "messageId": format!("m-{end}"), "role": "agent", "parts": parts });
    json!({ "state": state, "message": message })
}
