//! The text of calls: their arguments byte for byte, and calls that go past rmcp.
//!
//! Must not: do IO.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rmcp::model::{ProgressToken, RequestId, RequestMetaObject};
use serde_json::to_string;

use super::{ConnectionState, RawRequest, Waiting, number};
use crate::model::json::one_line;

/// The id of the first call that goes past rmcp.
const DIRECT: i64 = 1 << 40;

impl ConnectionState {
    /// The line of a call that goes past rmcp, and its id.
    pub(in crate::backend::mcp) fn direct(
        &self,
        mut meta: RequestMetaObject,
        tool: &str,
        raw_request: &Arc<RawRequest>,
    ) -> Result<(RequestId, Vec<u8>), serde_json::Error> {
        // rmcp counts its own requests from 0.
        let number = DIRECT + self.direct.fetch_add(1, Ordering::Relaxed);
        let id = RequestId::Number(number);
        meta.set_progress_token(ProgressToken(id.clone()));
        let mut line = encode_call(&id, &meta, tool, raw_request)?;
        line.push(b'\n');
        Ok((id, line))
    }

    /// Expects the response to a call that goes past rmcp.
    pub(in crate::backend::mcp) fn expect_direct(
        &self,
        id: &RequestId,
        raw_request: &Arc<RawRequest>,
    ) {
        let Some(id) = number(id) else { return };
        raw_request.token.get_or_init(|| id);
        raw_request.is_direct.store(true, Ordering::Relaxed);
        self.waiting.lock().insert(id, Waiting::Raw(Arc::clone(raw_request)));
    }
}

/// A `tools/call` with the arguments of `raw_request`, byte for byte.
pub(super) fn encode_call(
    id: &RequestId,
    meta: &RequestMetaObject,
    name: &str,
    raw_request: &RawRequest,
) -> Result<Vec<u8>, serde_json::Error> {
    let inputs = raw_request.inputs.as_ref();
    let members = [
        ("arguments", raw_request.call.as_ref().map(|call| call.arguments.get().into())),
        ("task", raw_request.task_ttl.map(|ttl| Cow::from(format!(r#"{{"ttl":{ttl}}}"#)))),
        ("inputResponses", inputs.map(|inputs| inputs.responses.get().into())),
        ("requestState", inputs.and_then(|inputs| Some(inputs.state.as_ref()?.get().into()))),
    ];
    let [id, meta, name] = [to_string(id)?, to_string(meta)?, to_string(name)?];
    let mut text = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"_meta":{meta},"name":{name}"#
    );
    for (key, value) in members.iter().filter_map(|(key, value)| Some((key, value.as_ref()?))) {
        text.extend([r#",""#, key, r#"":"#, value]);
    }
    text.push_str("}}");
    Ok(one_line(text))
}
