//! The data of the events of a running run (agent-runs-protocol §7, wire-protocol §4).
//!
//! Must not: decide when an event happens.

use serde::Serialize;
use serde_json::value::RawValue;

use super::{model::Call, spec::Kind};
use crate::model::ids::ToolUseId;

#[derive(Serialize)]
pub(super) struct Delta<'a> {
    pub(super) text: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AssistantMessage<'a> {
    pub(super) text: &'a str,
    pub(super) turn: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) finish_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub(super) tool_calls: &'a [ToolCall<'a>],
}

#[derive(Serialize)]
pub(super) struct ToolCall<'a> {
    pub(super) id: &'a str,
    pub(super) name: &'a str,
    pub(super) input: &'a RawValue,
}

impl<'a> ToolCall<'a> {
    pub(super) fn new((id, call): &'a (ToolUseId, Call)) -> Self {
        Self { id: id.as_str(), name: &call.name, input: &call.args }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LocalToolCall<'a> {
    pub(super) tool_use_id: &'a str,
    pub(super) name: &'a str,
    pub(super) args: &'a RawValue,
    #[serde(flatten)]
    pub(super) kind: &'a Kind,
}

impl<'a> LocalToolCall<'a> {
    pub(super) fn new(id: &'a ToolUseId, call: &'a Call) -> Self {
        Self { tool_use_id: id.as_str(), name: &call.name, args: &call.args, kind: &call.tool.kind }
    }

    /// The `tool_call` event of a tool that the client does not answer.
    pub(super) fn informational(&self) -> InformationalCall<'a> {
        InformationalCall { tool_use_id: self.tool_use_id, name: self.name, input: self.args }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InformationalCall<'a> {
    pub(super) tool_use_id: &'a str,
    pub(super) name: &'a str,
    pub(super) input: &'a RawValue,
}

/// `summary` and `ok` come from agent-runs-protocol §7, `result` from wire-protocol §4.2.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolResult<'a> {
    pub(super) tool_use_id: &'a str,
    pub(super) name: &'a str,
    pub(super) ok: bool,
    pub(super) summary: &'a str,
    pub(super) result: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BudgetExceeded<'a> {
    pub(super) tool: &'a str,
    pub(super) max_calls: u64,
    pub(super) call_index: u64,
}
