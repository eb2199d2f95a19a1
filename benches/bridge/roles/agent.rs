//! A fast A2A agent of revision 0.3 over JSON-RPC, which is what both the bridge and the SDK speak.
//! It answers each message with a message.
//!
//! Must not: keep a task.

use std::net::SocketAddr;

use serde::Deserialize;
use serde_json::{Value, json};

use super::tools::{Call, answer_text};

/// The card of the agent that listens at `addr`, below `/agent`.
pub(super) fn card(addr: SocketAddr) -> String {
    json!({
        "protocolVersion": "0.3.0",
        "name": "Echo",
        "description": "Answers each message with what it says.",
        "url": format!("http://{addr}/agent/"),
        "preferredTransport": "JSONRPC",
        "version": "1.0.0",
        "capabilities": { "streaming": false, "pushNotifications": false },
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{ "id": "echo", "name": "Echo", "description": "Echoes.", "tags": ["echo"] }],
    })
    .to_string()
}

#[derive(Deserialize)]
struct Envelope {
    id: Value,
    method: String,
    #[serde(default)]
    params: Params,
}

#[derive(Deserialize, Default)]
struct Params {
    message: Option<Message>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Message {
    message_id: String,
    parts: Vec<Part>,
}

#[derive(Deserialize)]
struct Part {
    text: Option<String>,
}

/// The response to a request that came in at `came`.
pub(super) fn respond(body: &[u8], came: u64) -> String {
    let Ok(envelope) = serde_json::from_slice::<Envelope>(body) else {
        return r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no request"}}"#
            .into();
    };
    let id = &envelope.id;
    let Some(message) = envelope.params.message.filter(|_| envelope.method == "message/send")
    else {
        let error = json!({ "code": -32601, "message": "there is no such method" });
        return json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string();
    };
    let text = message.parts.into_iter().find_map(|part| part.text).unwrap_or_default();
    let text = answer_text(&Call::of_message(&text), came);
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"kind":"message","messageId":"re-{}","role":"agent","parts":[{{"kind":"text","text":"{text}"}}]}}}}"#,
        message.message_id.replace(['"', '\\'], "")
    )
}
