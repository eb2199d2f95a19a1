//! A fast MCP server over Streamable HTTP, in `/mcp`, a fast agent in `/agent`, two agents with
//! tasks in `/tasks` and `/polled`, and servers with many tools: `/catalog/500` has 500.
//!
//! A tool's answer says when its request was there and when it was answered, so that whoever gets
//! it knows the tool's own time. Must not: need more than a few microseconds for an answer.

use std::{net::SocketAddr, sync::OnceLock};

use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use super::{agent, catalog, task_agent};
use crate::{
    clock,
    run::Outcome,
    wire::{self, Request, Served, header},
};

/// The addresses of the agents with tasks: with streams, and without.
const TASKS: [&str; 2] = ["/tasks/", "/polled/"];
/// The length that answers are filled up to.
const ANSWER_LENGTH: usize = 160;

/// What is asked of a tool.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Call {
    /// The number of the call, which its answer begins with.
    #[serde(default)]
    pub(super) id: u64,
}

impl Call {
    /// Out of a message to the agent, which begins with the number.
    pub(super) fn of_message(text: &str) -> Self {
        let number = text.split(' ').next().and_then(|word| word.parse().ok());
        Self { id: number.unwrap_or(0) }
    }
}

/// The answer to a call that came in at `came`: its number and both times, filled up.
pub(super) fn answer_text(call: &Call, came: u64) -> String {
    let mut text = format!("{} {came} {} ", call.id, clock::now());
    text.extend(std::iter::repeat_n('.', ANSWER_LENGTH.saturating_sub(text.len())));
    text
}

pub(super) async fn play() -> Outcome<()> {
    wire::listen(serve).await?;
    Ok(())
}

async fn serve(mut client: Served) -> std::io::Result<()> {
    while let Some(request) = client.request().await? {
        if request.method == "POST" && TASKS.contains(&request.target.as_str()) {
            task_agent::answer(&mut client, &request).await?;
            continue;
        }
        client.write(&respond(&request)).await?;
    }
    Ok(())
}

fn respond(request: &Request) -> Vec<u8> {
    let path = request.target.split('?').next().unwrap_or_default();
    match (request.method.as_str(), path) {
        ("GET", "/agent/.well-known/agent-card.json") => {
            wire::response(200, &agent::card(host(request)))
        }
        ("GET", "/tasks/.well-known/agent-card.json") => {
            wire::response(200, &task_agent::card(host(request), TASKS[0]))
        }
        ("GET", "/polled/.well-known/agent-card.json") => {
            wire::response(200, &task_agent::card(host(request), TASKS[1]))
        }
        ("POST", "/agent/") => wire::response(200, &agent::respond(&request.body, request.last)),
        ("POST", _) => match mcp(&request.body, request.last, tools(path)) {
            Some(answer) => wire::response(200, &answer),
            None => b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n".to_vec(),
        },
        // No standing stream, and no session that could be ended.
        ("GET" | "DELETE", path) if path.starts_with("/mcp") || path.starts_with("/catalog") => {
            b"HTTP/1.1 405 No\r\nAllow: POST\r\nContent-Length: 0\r\n\r\n".to_vec()
        }
        _ => wire::response(404, "{}"),
    }
}

fn host(request: &Request) -> SocketAddr {
    let host = header(&request.head, "host").and_then(|host| host.parse().ok());
    host.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0)))
}

/// How many tools the server at `path` has beside `echo`.
fn tools(path: &str) -> usize {
    path.strip_prefix("/catalog/").and_then(|count| count.parse().ok()).unwrap_or(0)
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: Option<String>,
    #[serde(default)]
    params: Params,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Params {
    protocol_version: Option<String>,
    arguments: Option<Call>,
}

/// The response of an MCP server to a message that came in at `came`; `None` to a notification.
pub(super) fn mcp(body: &[u8], came: u64, tools: usize) -> Option<String> {
    let envelope: Envelope<'_> = serde_json::from_slice(body).ok()?;
    let (id, method) = (envelope.id?.get(), envelope.method?);
    let answer = |result: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
    Some(match method.as_str() {
        "tools/call" => {
            let text = answer_text(&envelope.params.arguments.unwrap_or_default(), came);
            answer(&format!(r#"{{"content":[{{"type":"text","text":"{text}"}}],"isError":false}}"#))
        }
        "initialize" => answer(&hello(envelope.params.protocol_version).to_string()),
        "tools/list" => answer(&format!(r#"{{"tools":[{}]}}"#, listed(tools))),
        "ping" => answer("{}"),
        _ => format!(
            r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32601,"message":"Method not found"}}}}"#
        ),
    })
}

/// The revisions with an `initialize` that this server speaks.
const REVISIONS: [&str; 2] = ["2025-06-18", "2025-11-25"];

fn hello(asked: Option<String>) -> Value {
    let known = asked.filter(|asked| REVISIONS.contains(&asked.as_str()));
    json!({
        "protocolVersion": known.unwrap_or_else(|| "2025-11-25".into()),
        "capabilities": { "tools": {} },
        "serverInfo": { "name": "bench", "version": "1.0.0" },
    })
}

fn listed(tools: usize) -> String {
    const ECHO: &str = r#"{"name":"echo","description":"Says when it was asked and when it answered.","inputSchema":{"type":"object","properties":{"id":{"type":"integer","description":"The number of the call."},"text":{"type":"string","description":"What is carried along."}},"required":["id"]}}"#;
    static LARGEST: OnceLock<Vec<String>> = OnceLock::new();
    let made = LARGEST.get_or_init(|| (0..catalog::MOST).map(catalog::tool).collect());
    let mut all = vec![ECHO];
    // A catalog of N tools has `echo` among them.
    all.extend(made.iter().take(tools.saturating_sub(1)).map(String::as_str));
    all.join(",")
}
