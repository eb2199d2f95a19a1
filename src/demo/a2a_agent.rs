//! The bundled A2A agent: a facilities desk that speaks A2A 1.0 over JSON-RPC.
//!
//! Must not: keep anything, reach anything, or answer the same question in two ways.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use a2a::{A2AError, JsonRpcId, JsonRpcResponse};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use serde::Deserialize as _;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::small_server::{self, Limits};

const MAX_BODY: usize = 1024 * 1024;
const LIMITS: Limits = Limits { connections: 64, idle: Duration::from_secs(30) };

/// Serves the agent on `listener` until `stop`.
pub async fn serve(listener: TcpListener, stop: CancellationToken) -> io::Result<()> {
    let card = Arc::new(card(listener.local_addr()?));
    let answer = move |request| handle(request, Arc::clone(&card));
    small_server::serve(&listener, LIMITS, &stop, answer).await;
    Ok(())
}

async fn handle(request: Request<Incoming>, card: Arc<Value>) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let (status, text) = match (&head.method, head.uri.path()) {
        (&Method::GET, "/.well-known/agent-card.json") => (StatusCode::OK, card.to_string()),
        (&Method::POST, "/") => match Limited::new(body, MAX_BODY).collect().await {
            Ok(body) => (StatusCode::OK, respond(&head.headers, &body.to_bytes())),
            Err(_) => (StatusCode::PAYLOAD_TOO_LARGE, String::new()),
        },
        _ => (StatusCode::NOT_FOUND, String::new()),
    };
    let response = Response::builder().status(status).header(CONTENT_TYPE, "application/json");
    response.body(Full::from(text)).expect("the header is valid")
}

/// The agent's card: it names the address that the agent listens at.
fn card(address: SocketAddr) -> Value {
    let file = serde_json::from_str(include_str!("a2a_agent/card.json"));
    let mut card: Value = file.expect("the file is JSON");
    card["version"] = env!("CARGO_PKG_VERSION").into();
    card["supportedInterfaces"][0]["url"] = format!("http://{address}/").into();
    card
}

/// The JSON-RPC response to a request's body.
fn respond(headers: &HeaderMap, body: &[u8]) -> String {
    let request: Result<Value, _> = serde_json::from_slice(body)
        .map_err(|error| A2AError::parse_error(format!("the body is not JSON: {error}")));
    let id = request.as_ref().ok().and_then(|it| JsonRpcId::deserialize(it.get("id")?).ok());
    let id = id.unwrap_or(JsonRpcId::Null);
    let response = match request.and_then(|request| answer_request(headers, &request)) {
        Ok(result) => JsonRpcResponse::success(id, result),
        Err(error) => JsonRpcResponse::error(id, error.to_jsonrpc_error()),
    };
    serde_json::to_string(&response).expect("A2A's types are always JSON")
}

fn answer_request(headers: &HeaderMap, request: &Value) -> Result<Value, A2AError> {
    let member = |key: &str| request.get(key).and_then(Value::as_str);
    let (Some("2.0"), Some(method)) = (member("jsonrpc"), member("method")) else {
        return Err(A2AError::invalid_request("the body is not a JSON-RPC 2.0 request"));
    };
    // Without the header, a request is one of A2A 0.3.
    let version = headers.get(a2a::SVC_PARAM_VERSION).map_or("0.3", |v| v.to_str().unwrap_or("?"));
    if version.split('.').next() != Some("1") {
        return Err(A2AError::version_not_supported(version));
    }
    if method != a2a::methods::SEND_MESSAGE {
        let why = format!("there is no method {method}");
        return Err(A2AError::new(a2a::error_code::METHOD_NOT_FOUND, why));
    }
    let params = request.get("params").cloned().unwrap_or_default();
    let request: a2a::SendMessageRequest = serde_json::from_value(params)
        .map_err(|error| A2AError::invalid_params(error.to_string()))?;
    let reply = a2a::SendMessageResponse::Message(reply(&request.message));
    Ok(serde_json::to_value(reply).expect("A2A's types are always JSON"))
}

fn reply(message: &a2a::Message) -> a2a::Message {
    let texts: Vec<&str> = message.parts.iter().filter_map(a2a::Part::as_text).collect();
    let text = answer(&texts.join("\n"));
    let mut reply = a2a::Message::new(a2a::Role::Agent, vec![a2a::Part::text(text)]);
    reply.context_id = Some(message.context_id.clone().unwrap_or_else(a2a::new_context_id));
    reply
}

/// What the desk knows: the words that a question may hold, and the answer.
static KNOWN: LazyLock<Vec<(Vec<String>, String)>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("a2a_agent/known.json")).expect("the file is JSON")
});

fn answer(question: &str) -> String {
    let question = question.trim();
    let lower = question.to_lowercase();
    let known = KNOWN.iter().find(|(words, _)| words.iter().any(|word| lower.contains(&**word)));
    match known {
        Some((_, answer)) => answer.clone(),
        None if question.is_empty() => "Facilities desk. What can we do for you?".to_owned(),
        None => format!(
            "The facilities desk has no answer to {question:?}. Ask about time off, parking, \
             badges or rooms."
        ),
    }
}

#[cfg(test)]
mod tests;
