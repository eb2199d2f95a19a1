//! What an A2A agent replied, as an [`Answer`]: messages and tasks of 0.3 and 1.0.
//!
//! Must not: know which HTTP request brought the reply, or trust its shape: every field may be
//! absent, of another type or of a kind that is newer than this code.

pub mod stream;

use serde_json::value::RawValue;

use super::Answer;
use crate::model::json::{Elements, Members};

/// An agent's reply to a message, or a task as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The task that the agent made of the message; `None` for a plain message.
    pub task_id: Option<String>,
    /// The conversation that the reply belongs to.
    pub context_id: Option<String>,
    pub outcome: Outcome,
    /// What the answer leaves out of the reply: one sentence each, for the log.
    pub left_out: Vec<&'static str>,
}

/// How far the agent is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Submitted or working: ask again.
    Unfinished,
    /// The agent has interrupted the task until it is given more.
    Waiting(Answer),
    /// Nothing more will come.
    Final(Answer),
}

/// The reply is neither a message nor a task that can be followed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    #[error("the reply is not a JSON object ({0})")]
    NotAnObject(String),
    #[error("the reply is neither a message nor a task")]
    NeitherMessageNorTask,
    #[error("the task has no state that A2A knows")]
    UnknownState,
    #[error("the task is unfinished and has no id to ask for it by")]
    NoTaskId,
    #[error("the artifacts of the task are too large")]
    TooLarge,
}

/// Where the data parts of a reply keep their content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataParts {
    /// `{"data": …}`, everywhere but in 0.3 over HTTP+JSON.
    Plain,
    /// `{"data": {"data": …}}`, the protobuf form of 0.3 over HTTP+JSON.
    Nested,
}

const WAITS_FOR_INPUT: &str =
    "[the agent waits for input: call this tool again with the answer, and it goes on]";
const WAITS_FOR_AUTHORIZATION: &str = "[the agent waits for an authorization, which has to be given \
    to it elsewhere: call this tool again when that is done, and it goes on]";

/// Reads the result of a send or of a look at a task.
pub fn read(result: &str, data_parts: DataParts) -> Result<Reply, Unreadable> {
    let result =
        Members::read(result).map_err(|error| Unreadable::NotAnObject(error.to_string()))?;
    let kind = string(&result, "kind");
    if kind.as_deref() == Some("task") {
        return task(&result, data_parts);
    }
    if kind.as_deref() == Some("message") {
        return Ok(message(&result, data_parts));
    }
    if let Some(inner) = object(&result, "task") {
        return task(&inner, data_parts);
    }
    if result.get("status").is_some() {
        return task(&result, data_parts);
    }
    if let Some(inner) = object(&result, "message").or_else(|| object(&result, "msg")) {
        return Ok(message(&inner, data_parts));
    }
    if parts_of(&result).is_some() {
        return Ok(message(&result, data_parts));
    }
    Err(Unreadable::NeitherMessageNorTask)
}

fn message(message: &Members<'_>, data_parts: DataParts) -> Reply {
    Reply {
        task_id: None,
        context_id: id(message, "contextId"),
        outcome: Outcome::Final(Answer::Result(message_text(message, data_parts))),
        left_out: Vec::new(),
    }
}

fn task(task: &Members<'_>, data_parts: DataParts) -> Result<Reply, Unreadable> {
    let status = object(task, "status");
    let state = status.as_ref().and_then(|status| string(status, "state"));
    let state = state.as_deref().and_then(State::parse).ok_or(Unreadable::UnknownState)?;
    let task_id = id(task, "id");
    let said = status
        .and_then(|status| object(&status, "message"))
        .map(|message| message_text(&message, data_parts))
        .unwrap_or_default();
    let made = artifacts_text(task, data_parts);
    let mut left_out = Vec::new();
    let outcome = match state {
        State::Unfinished => {
            if task_id.is_none() {
                return Err(Unreadable::NoTaskId);
            }
            Outcome::Unfinished
        }
        State::Completed => {
            if !made.is_empty() && !said.is_empty() {
                left_out.push("the completed task's status message: its artifacts are the answer");
            }
            Outcome::Final(Answer::Result(first(made, said)))
        }
        State::InputRequired => {
            Outcome::Waiting(Answer::Result(lines(&[&first(said, made), WAITS_FOR_INPUT])))
        }
        State::AuthRequired => {
            Outcome::Waiting(Answer::Result(lines(&[&first(said, made), WAITS_FOR_AUTHORIZATION])))
        }
        State::Failed(without_reason) => {
            if !made.is_empty() && !said.is_empty() {
                left_out.push("the artifacts of a task that failed: its status message says why");
            }
            let reason = first(said, made);
            Outcome::Final(Answer::Error(first(reason, without_reason.to_owned())))
        }
    };
    Ok(Reply { task_id, context_id: id(task, "contextId"), outcome, left_out })
}

enum State {
    Unfinished,
    Completed,
    InputRequired,
    AuthRequired,
    /// With the sentence for an agent that gives no reason.
    Failed(&'static str),
}

impl State {
    /// Reads `input-required` (0.3) and `TASK_STATE_INPUT_REQUIRED` (1.0) alike.
    fn parse(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase().replace('_', "-");
        Some(match name.strip_prefix("task-state-").unwrap_or(&name) {
            "submitted" | "working" => Self::Unfinished,
            "completed" => Self::Completed,
            "input-required" => Self::InputRequired,
            "auth-required" => Self::AuthRequired,
            "failed" => Self::Failed("the agent failed the task and gave no reason"),
            "rejected" => Self::Failed("the agent rejected the task and gave no reason"),
            // 0.3's protobuf form has the second L.
            "canceled" | "cancelled" => Self::Failed("the agent canceled the task"),
            _ => return None,
        })
    }
}

fn artifacts_text(task: &Members<'_>, data_parts: DataParts) -> String {
    let artifacts = array(task, "artifacts").unwrap_or_default();
    let texts: Vec<String> = artifacts
        .iter()
        .filter_map(|artifact| Members::read(artifact.get()).ok())
        .map(|artifact| message_text(&artifact, data_parts))
        .collect();
    lines(&texts.iter().map(String::as_str).collect::<Vec<_>>())
}

/// The parts of a message or an artifact, one below the other.
fn message_text(message: &Members<'_>, data_parts: DataParts) -> String {
    let parts = parts_of(message).unwrap_or_default();
    let texts: Vec<String> = parts.iter().map(|part| part_text(part, data_parts)).collect();
    lines(&texts.iter().map(String::as_str).collect::<Vec<_>>())
}

/// `content` is what 0.3 over HTTP+JSON calls the parts of a message.
fn parts_of<'a>(message: &Members<'a>) -> Option<Vec<&'a RawValue>> {
    array(message, "parts").or_else(|| array(message, "content"))
}

fn part_text(part: &RawValue, data_parts: DataParts) -> String {
    let Ok(part) = Members::read(part.get()) else {
        return unknown_part(part.get().len());
    };
    if let Some(text) = string(&part, "text") {
        return text;
    }
    if let Some(data) = part.get("data") {
        let inner = Members::read(data.get()).ok().and_then(|data| data.get("data"));
        return match (data_parts, inner) {
            (DataParts::Nested, Some(inner)) => inner.get().to_owned(),
            _ => data.get().to_owned(),
        };
    }
    if let Some(file) = object(&part, "file") {
        return file_line(&file);
    }
    if part.get("raw").is_some() || part.get("url").is_some() {
        return file_line(&part);
    }
    let size = part.0.iter().map(|(key, value)| key.len() + value.get().len()).sum();
    unknown_part(size)
}

/// One line for a file: 1.0 has its fields in the part itself, 0.3 in `file`, under two sets of
/// names.
fn file_line(file: &Members<'_>) -> String {
    let any = |keys: &[&str]| keys.iter().find_map(|key| string(file, key));
    let mut line = "[file".to_owned();
    for field in [any(&["name", "filename"]), any(&["mimeType", "mediaType"])].into_iter().flatten()
    {
        line.push(' ');
        line.push_str(&one_line(&field));
    }
    if let Some(content) = any(&["bytes", "raw", "fileWithBytes"]) {
        let size = thousands(base64_len(&content));
        line.push_str(&format!(", {size} bytes: not passed on]"));
    } else if let Some(uri) = any(&["uri", "url", "fileWithUri"]) {
        line.push_str(&format!(": {}]", one_line(&uri)));
    } else {
        line.push_str(", without content]");
    }
    line
}

fn unknown_part(size: usize) -> String {
    format!("[a part of an unknown kind, {} bytes: not passed on]", thousands(size))
}

/// How many bytes a base64 text holds, padding and line breaks left out.
fn base64_len(text: &str) -> usize {
    let symbols = text.bytes().filter(|b| !b.is_ascii_whitespace() && *b != b'=').count();
    symbols * 3 / 4
}

/// `12345` as `12,345`.
fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A name or an address that must not look like more lines of the answer.
fn one_line(text: &str) -> String {
    const MAX: usize = 2048;
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX).collect()
}

/// The texts that say something, one below the other.
fn lines(texts: &[&str]) -> String {
    texts.iter().filter(|text| !text.is_empty()).copied().collect::<Vec<_>>().join("\n")
}

fn first(text: String, otherwise: String) -> String {
    if text.is_empty() { otherwise } else { text }
}

fn string(members: &Members<'_>, key: &str) -> Option<String> {
    serde_json::from_str(members.get(key)?.get()).ok()
}

fn id(members: &Members<'_>, key: &str) -> Option<String> {
    string(members, key).filter(|id| !id.is_empty())
}

fn object<'a>(members: &Members<'a>, key: &str) -> Option<Members<'a>> {
    Members::read(members.get(key)?.get()).ok()
}

fn array<'a>(members: &Members<'a>, key: &str) -> Option<Vec<&'a RawValue>> {
    Some(Elements::read(members.get(key)?.get()).ok()?.0)
}

#[cfg(test)]
mod tests;
