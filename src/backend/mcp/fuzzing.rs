//! A way in for `fuzz/`: what a server writes on stdout, read as far as it can be without a
//! process.
//!
//! Must not: be a part of the program; it is compiled for fuzzing alone.

use std::sync::Arc;

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientConfig, ClientRequest, InitializeRequest,
    JsonRpcMessage, ListToolsRequest, RequestId,
};
use serde_json::value::RawValue;

use super::lines::{Line, Lines};
use super::verbatim::{ConnectionState, Marker, RawRequest};
use crate::backend::NotRead;

/// Reads `data` as lines of a server that was asked for a handshake (id 0), a page of tools (1) and
/// a call (2). The result of the call is JSON if there is one.
pub fn read(data: &[u8]) {
    let state = ConnectionState::default();
    let mut call = CallToolRequest::new(CallToolRequestParams::new("t"));
    let raw_request = RawRequest::reading("tools/call");
    call.extensions.insert(Marker(Arc::clone(&raw_request)));
    let requests: [ClientRequest; 3] = [
        InitializeRequest::new(ClientConfig::default()).into(),
        ListToolsRequest::default().into(),
        call.into(),
    ];
    for (id, request) in (0..).zip(requests) {
        let request = JsonRpcMessage::request(request, RequestId::Number(id));
        state.outgoing(&request).expect("the bridge's own requests can be written");
    }
    // Short enough for lines that are too long.
    let mut lines = Lines::new(4096);
    lines.buffer.extend_from_slice(data);
    while let Some(line) = lines.next_line() {
        match line {
            Line::Whole(line) => drop(state.incoming(&String::from_utf8_lossy(&line))),
            Line::TooLong { id, size: _ } => {
                let why = NotRead::TooLarge { limit: 1, size: None };
                drop(id.and_then(|id| state.not_read(&id, why)));
            }
        }
    }
    if let Some(Ok(Ok(result))) = raw_request.take_outcome() {
        serde_json::from_str::<&RawValue>(result.get()).expect("a result is JSON");
    }
}
