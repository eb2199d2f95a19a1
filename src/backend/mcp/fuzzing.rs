//! A way in for `fuzz/`: what a server writes on stdout, read as far as it can be without a
//! process.
//!
//! Must not: be a part of the program; it is compiled for fuzzing alone.

use std::sync::Arc;

use serde_json::value::RawValue;

use super::lines::{Line, Lines};
use super::rpc::{Kind, OpenRequest, Rpc};
use super::stdio::Pipe;
use super::transport::Transport;
use crate::backend::{LiveRedaction, NotRead};
use crate::model::BackendName;
use crate::model::mcp::method;

/// Reads `data` as lines of a server that was asked for a handshake (ids 0 and 1), a page of tools
/// (2) and a call (3). The result of the call is JSON if there is one.
pub fn read(data: &[u8]) {
    let backend = BackendName::parse("fuzzed").expect("a name");
    let transport = Transport::Pipe(Pipe::closed());
    let rpc = Rpc::new(backend, transport, &LiveRedaction::default(), true, Arc::default());
    let requests = [
        OpenRequest::new(0, method::INITIALIZE, Kind::Handshake),
        OpenRequest::new(1, method::DISCOVER, Kind::Handshake),
        OpenRequest::new(2, "tools/list", Kind::List),
        OpenRequest::new(3, "tools/call", Kind::Call),
    ]
    .map(Arc::new);
    requests.iter().for_each(|request| rpc.open(request));
    // Short enough for lines that are too long.
    let mut lines = Lines::new(4096);
    lines.buffer.extend_from_slice(data);
    while let Some(line) = lines.next_line() {
        match line {
            Line::Whole(line) => drop(rpc.incoming(&String::from_utf8_lossy(&line))),
            Line::TooLong { id, size: _ } => {
                let why = NotRead::TooLarge { limit: 1, size: None };
                let _was_open = id.is_some_and(|id| rpc.not_read(&id, why));
            }
        }
    }
    for request in requests {
        let Some(Ok(Ok(result))) = request.take_outcome() else { continue };
        serde_json::from_str::<&RawValue>(result.get()).expect("a result is JSON");
        if request.kind == Kind::Handshake {
            drop(rpc.handshake.lock().initialized(&result));
            drop(rpc.handshake.lock().discovered(&result));
        }
    }
}
