//! The text of messages for a server. Each is made once, and goes out as it is made: arguments byte
//! for byte, but on one line.
//!
//! Must not: do IO.

use std::sync::Arc;

use rmcp::model::{ErrorData, RequestId, RequestMetaObject};
use serde::Serialize;
use serde_json::{Value, json, to_string};

use super::OpenRequest;
use crate::backend::mcp::questions::Inputs;
use crate::model::CallRequest;
use crate::model::json::one_line;
use crate::model::mcp::notification;

/// The bytes of a request around its parameters and its `_meta`.
const OVERHEAD: usize = 128;

/// A message for the server.
#[derive(Debug)]
pub(in crate::backend::mcp) struct Message {
    /// On one line, without its end.
    pub(in crate::backend::mcp) text: Vec<u8>,
    /// `None` in a response.
    pub(in crate::backend::mcp) method: Option<&'static str>,
    /// The request that it is.
    pub(in crate::backend::mcp) request: Option<Arc<OpenRequest>>,
}

impl Message {
    /// A request whose parameters have this `_meta`, if there is one, and these `members`, in
    /// pieces: large arguments are copied once.
    pub(in crate::backend::mcp) fn request(
        request: &Arc<OpenRequest>,
        meta: Option<&RequestMetaObject>,
        members: &[&str],
    ) -> Self {
        let OpenRequest { id, method, .. } = &**request;
        let meta = meta.map(json_text).unwrap_or_default();
        let size: usize = members.iter().map(|piece| piece.len()).sum();
        let mut text = String::with_capacity(size + meta.len() + OVERHEAD);
        let id = id.to_string();
        text.extend([
            r#"{"jsonrpc":"2.0","id":"#,
            &id,
            r#","method":""#,
            method,
            r#"","params":{"#,
        ]);
        if !meta.is_empty() {
            text.extend([r#""_meta":"#, &meta]);
            text.push_str(if size == 0 { "" } else { "," });
        }
        text.extend(members.iter().copied());
        text.push_str("}}");
        Self { text: one_line(text), method: Some(method), request: Some(Arc::clone(request)) }
    }

    /// A `tools/call` with the arguments of `call`, byte for byte. `task_ttl` asks the server to
    /// run the call as a task and to keep it for so many milliseconds; `inputs` are the answers to
    /// the server's questions.
    pub(in crate::backend::mcp) fn call(
        request: &Arc<OpenRequest>,
        meta: &RequestMetaObject,
        call: &CallRequest,
        task_ttl: Option<u64>,
        inputs: Option<&Inputs>,
    ) -> Self {
        let name = json_text(call.tool());
        let mut members = vec![r#""name":"#, &name, r#","arguments":"#, call.arguments.get()];
        let task = task_ttl.map(|ttl| format!(r#","task":{{"ttl":{ttl}}}"#));
        members.extend(task.as_deref());
        if let Some(inputs) = inputs {
            members.extend([r#","inputResponses":"#, inputs.responses.get()]);
            if let Some(state) = &inputs.state {
                members.extend([r#","requestState":"#, state.get()]);
            }
        }
        Self::request(request, Some(meta), &members)
    }

    /// The end of a handshake by `initialize`.
    pub(in crate::backend::mcp) fn initialized() -> Self {
        let text = json!({ "jsonrpc": "2.0", "method": notification::INITIALIZED }).to_string();
        Self { text: text.into_bytes(), method: Some(notification::INITIALIZED), request: None }
    }

    /// Tells the server that the caller of the request `id` has gone.
    pub(super) fn cancelled(id: i64) -> Self {
        let reason = "the caller does not wait any longer";
        let params = json!({ "requestId": id, "reason": reason });
        let text = json!({ "jsonrpc": "2.0", "method": notification::CANCELLED, "params": params })
            .to_string();
        Self { text: text.into_bytes(), method: Some(notification::CANCELLED), request: None }
    }

    /// The response to the server's request `id`, with this result as JSON text or with this error.
    pub(super) fn response(id: &RequestId, outcome: Result<&str, &ErrorData>) -> Self {
        let id = json_text(id);
        let text = match outcome {
            Ok(result) => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#),
            Err(error) => {
                format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{}}}"#, json_text(error))
            }
        };
        Self { text: one_line(text), method: None, request: None }
    }
}

/// The members of `params`, a JSON object, without its braces.
pub(in crate::backend::mcp) fn members(params: &impl Serialize) -> String {
    let text = json_text(params);
    let members = text.strip_prefix('{').and_then(|text| text.strip_suffix('}'));
    members.unwrap_or_default().to_owned()
}

/// `params` without their `_meta`, which a request has once.
pub(in crate::backend::mcp) fn without_meta(mut params: Value) -> (Value, RequestMetaObject) {
    let meta = params
        .as_object_mut()
        .and_then(|params| params.remove("_meta"))
        .and_then(|meta| serde_json::from_value(meta).ok());
    (params, meta.unwrap_or_default())
}

fn json_text(value: &(impl Serialize + ?Sized)) -> String {
    to_string(value).expect("the bridge's own values can be written as JSON")
}
