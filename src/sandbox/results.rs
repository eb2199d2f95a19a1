//! `POST agent-runs/{id}/tool-results` (agent-runs-protocol §8, wire-protocol §5).
//!
//! Must not: know what a result means.

use http::StatusCode;
use serde::Serialize;

use super::{
    Shared, files,
    files::FileNote,
    read::{self, Invalid},
    reply::{Refusal, Reply, json, no_content},
    run::Accepted,
    runs,
};
use crate::model::{answer::Answer, ids::ToolUseId};

/// The body of a tool result.
#[derive(Debug)]
pub(super) struct ToolResult {
    pub(super) tool_use: ToolUseId,
    pub(super) answer: Answer,
    pub(super) files: Vec<FileNote>,
}

/// Reads a tool result: exactly one of `result` and `error`, each within its limit.
pub(super) fn read(body: &[u8]) -> Result<ToolResult, Invalid> {
    let body = read::body(body)?;
    let id = body.need("toolUseId")?.non_empty()?;
    let result = body.get("result");
    let error = body.get("error");
    let (answer, value, max) = match (&result, &error) {
        (Some(result), None) => (Answer::text(result.string()?), result, Answer::MAX_RESULT),
        (None, Some(error)) => (Answer::Error(error.string()?), error, Answer::MAX_ERROR),
        (Some(_), Some(_)) => return Err(body.invalid("send `result` or `error`, not both")),
        (None, None) => return Err(body.invalid("`result` or `error` is required")),
    };
    let length = match &answer {
        Answer::Result { text, .. } | Answer::Error(text) => text.len(),
    };
    value.fits(length, max, "bytes")?;
    // Files beside an error are ignored (§8).
    let files = match (&answer, body.get("files")) {
        (Answer::Result { .. }, Some(files)) => files::read_files(&files)?,
        _ => Vec::new(),
    };
    Ok(ToolResult { tool_use: id.into(), answer, files })
}

pub(super) fn post(shared: &Shared, id: &str, body: &[u8]) -> Reply {
    #[derive(Serialize)]
    struct Ok200 {
        ok: bool,
    }
    let run = runs::find(shared, id)?;
    let posted = read(body)?;
    // The event with the result is as long as the request, escapes included.
    shared.make_room(body.len() + 1024);
    // If the log has no room for it, the run ends.
    let accepted =
        run.accept(&posted.tool_use, posted.answer, &posted.files).unwrap_or(Accepted::Terminal);
    match accepted {
        Accepted::Yes if shared.config.tool_result_status == StatusCode::NO_CONTENT => {
            Ok(no_content())
        }
        Accepted::Yes => Ok(json(shared.config.tool_result_status, &Ok200 { ok: true })),
        Accepted::Unknown => Err(Refusal::new(
            StatusCode::NOT_FOUND,
            "unknown_tool_use",
            format!("no call {:?} of this run waits for a result", posted.tool_use.as_str()),
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
