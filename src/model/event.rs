//! One event of a run's stream, as far as the bridge must understand it.
//!
//! The envelope is `{"seq","type","data"}` (wire-protocol §4); a frame whose `data` is the payload
//! itself, with the type in the `event:` field, is read as well.
//!
//! Must not: decide what to do about an event (run.rs does).

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{ids::ToolUseId, offer::RefKind};

/// One event.
#[derive(Debug, PartialEq, Eq)]
pub struct Event {
    /// Its place in the run's log; `None` for a frame that has none.
    pub seq: Option<u64>,
    pub body: Body,
}

/// What an event says.
#[derive(Debug, PartialEq, Eq)]
pub enum Body {
    /// `local_tool_call`: a tool of the client's side is wanted.
    Call(Call),
    /// `local_tool_result_in`: the call has been answered.
    Answered(ToolUseId),
    /// `result`, `error` or `cancelled`: the run has ended.
    Terminal,
    /// Anything else: for people, not for the bridge.
    Other,
}

/// The payload of a `local_tool_call` (wire-protocol §4.3).
#[derive(Debug, Clone)]
pub struct Call {
    pub tool_use: ToolUseId,
    pub name: String,
    /// The kind, `None` for one that the bridge does not know.
    pub kind: Option<RefKind>,
    /// Verbatim; `{}` where the event has none.
    pub args: Box<RawValue>,
    /// `mcpServer`, a cross-check only.
    pub mcp_server: Option<String>,
}

impl PartialEq for Call {
    fn eq(&self, other: &Self) -> bool {
        let key = |call: &Self| (call.tool_use.clone(), call.name.clone(), call.kind);
        key(self) == key(other) && self.args.get() == other.args.get()
    }
}

impl Eq for Call {}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(default)]
    seq: Option<u64>,
    #[serde(borrow, default, rename = "type")]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CallData<'a> {
    tool_use_id: String,
    name: String,
    #[serde(borrow, default)]
    args: Option<&'a RawValue>,
    #[serde(borrow, default)]
    input: Option<&'a RawValue>,
    #[serde(borrow, default)]
    kind: Option<Cow<'a, str>>,
    #[serde(default)]
    mcp_server: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AnsweredData {
    tool_use_id: String,
}

impl Event {
    /// Reads an event out of the fields of its frame.
    ///
    /// Never fails: what cannot be read is [`Body::Other`] and passed on, except that a
    /// `local_tool_call` without its required fields is an error, which the caller reports.
    pub fn read(
        id: Option<&str>,
        event: Option<&str>,
        data: &str,
    ) -> Result<Self, serde_json::Error> {
        let envelope: Option<Envelope<'_>> = serde_json::from_str(data).ok();
        let id = id.and_then(|id| id.parse().ok());
        let Some(Envelope { seq, kind, data: inner }) = envelope else {
            return Ok(Self { seq: id, body: Body::Other });
        };
        let seq = seq.or(id);
        let payload = inner.map(RawValue::get).filter(|inner| inner.starts_with('{'));
        let payload = payload.unwrap_or(data);
        let body = match kind.as_deref().or(event) {
            Some("local_tool_call") => Body::Call(Call::read(payload)?),
            Some("local_tool_result_in") => {
                let data: AnsweredData = serde_json::from_str(payload)?;
                Body::Answered(data.tool_use_id.into())
            }
            Some("result" | "error" | "cancelled") => Body::Terminal,
            _ => Body::Other,
        };
        Ok(Self { seq, body })
    }
}

impl Call {
    /// Reads the payload of a `local_tool_call`.
    pub fn read(payload: &str) -> Result<Self, serde_json::Error> {
        let data: CallData<'_> = serde_json::from_str(payload)?;
        let kind = data.kind.as_deref().unwrap_or("local");
        let args = data.args.or(data.input).filter(|args| args.get() != "null");
        let args = match args {
            Some(args) => args.to_owned(),
            None => RawValue::from_string("{}".to_owned())?,
        };
        Ok(Self {
            tool_use: data.tool_use_id.into(),
            name: data.name,
            kind: RefKind::parse(kind),
            args,
            mcp_server: data.mcp_server,
        })
    }
}

#[cfg(test)]
mod tests;
