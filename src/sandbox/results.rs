//! `POST agent-runs/{id}/tool-results` (agent-runs-protocol §8, wire-protocol §5).
//!
//! Must not: know what a result means, or keep a file's bytes.

use http::StatusCode;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::json;

use super::run::Accepted;
use super::{Invalid, Refusal, Reply, Sandbox, json, read, runs};
use crate::model::answer::files::{MAX_BYTES, decoded_size};
use crate::model::{Answer, ToolUseId};

/// The body of a tool result.
#[derive(Debug)]
pub(super) struct ToolResult {
    pub(super) tool_use: ToolUseId,
    pub(super) answer: Answer,
    pub(super) files: Vec<FileNote>,
}

/// The description of a file that is kept and shown; never its bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FileNote {
    pub(super) filename: String,
    pub(super) mime_type: String,
    #[serde(rename(deserialize = "data"), deserialize_with = "decoded_len")]
    pub(super) size_bytes: usize,
}

/// The decoded length of a text that has been checked to be base64.
fn decoded_len<'de, D: Deserializer<'de>>(data: D) -> Result<usize, D::Error> {
    String::deserialize(data).map(|data| decoded_size(&data))
}

/// Reads a tool result: exactly one of `result` and `error`, each within its limit.
pub(super) fn read(body: &[u8]) -> Result<ToolResult, Invalid> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Body {
        tool_use_id: String,
        result: Option<String>,
        error: Option<String>,
    }
    let value = read::body(body, "toolResult")?;
    let body: Body = read::members(&value)?;
    let tool_use = body.tool_use_id.into();
    match (body.result, body.error) {
        (Some(result), None) => {
            read::fits("/result", result.len(), Answer::MAX_RESULT)?;
            let files: Vec<FileNote> =
                read::members::<Option<_>>(&value["files"])?.unwrap_or_default();
            read::fits("/files", files.iter().map(|file| file.size_bytes).sum(), MAX_BYTES)?;
            Ok(ToolResult { tool_use, answer: Answer::text(result), files })
        }
        (None, Some(error)) => {
            read::fits("/error", error.len(), Answer::MAX_ERROR)?;
            // Files beside an error are ignored (§8).
            Ok(ToolResult { tool_use, answer: Answer::Error(error), files: Vec::new() })
        }
        (Some(_), Some(_)) => Err("send `result` or `error`, not both".to_owned()),
        (None, None) => Err("`result` or `error` is required".to_owned()),
    }
}

pub(super) fn post(sandbox: &Sandbox, id: &str, body: &[u8]) -> Reply {
    let run = runs::find(sandbox, id)?;
    let result = read(body)?;
    // The event with the result is as long as the request, escapes included.
    sandbox.make_room(body.len() + 1024);
    match run.accept(&result.tool_use, result.answer, &result.files) {
        Accepted::Yes => Ok(json(StatusCode::OK, &json!({"ok": true}))),
        Accepted::Unknown => Err(Refusal::new(
            StatusCode::NOT_FOUND,
            "unknown_tool_use",
            format!("no call {:?} of this run waits for a result", result.tool_use.as_str()),
        )),
        Accepted::Terminal => Err(Refusal::new(
            StatusCode::CONFLICT,
            "run_terminal",
            "the run has ended; the result is dropped",
        )),
    }
}

#[cfg(test)]
mod tests;
