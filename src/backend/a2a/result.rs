//! Turns the reply of an A2A agent into an [`Answer`]: messages and tasks of 0.3 and 1.0.
//!
//! Must not: know which HTTP request brought the reply, or trust its shape: every field may be
//! absent, of another type or of a kind that is newer than this code.

use serde_json::value::RawValue;

use crate::model::answer::files::{Attachments, DescribedFile, File, grouped};
use crate::model::{Answer, Members, string_member, visible};

/// An agent's reply to a message, or a task as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The task that the agent made of the message; `None` for a plain message.
    pub task_id: Option<String>,
    /// The conversation that the reply belongs to.
    pub context_id: Option<String>,
    pub outcome: Outcome,
}

/// The state of the agent's work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Submitted or working: poll again.
    Unfinished,
    /// The agent waits for input or an authorization.
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
}

/// How the parts of a reply are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartEncoding {
    /// `{"data": …}`, and bytes in base64: everywhere but in 0.3 over HTTP+JSON.
    Plain,
    /// The protobuf form of 0.3 over HTTP+JSON: `{"data": {"data": …}}`. In `fileWithBytes`,
    /// a2a-sdk writes the base64 text of a file in base64 once more.
    Nested,
}

/// The content of a message or of a task's artifacts: text, and the files that it names.
#[derive(Debug, Default)]
struct Said {
    text: String,
    files: Vec<File>,
}

/// How many bytes of a name or an address are shown, on one line, so that it cannot look like
/// further lines of the answer.
const MAX_NAME: usize = 2048;

const WAITS_FOR_INPUT: &str =
    "[the agent waits for input: call this tool again with the answer, and it goes on]";
const WAITS_FOR_AUTHORIZATION: &str = "[the agent waits for an authorization, which has to be given \
    to it elsewhere: call this tool again when that is done, and it goes on]";

/// Reads the result of a sent message or of a poll. `in_pieces`: a text of an artifact may be in
/// several parts, as the agent made it piece by piece.
pub fn read(result: &str, encoding: PartEncoding, in_pieces: bool) -> Result<Reply, Unreadable> {
    let result =
        Members::read(result).map_err(|error| Unreadable::NotAnObject(error.to_string()))?;
    let kind = result.string("kind");
    let inner_task = result.object("task");
    let inner_message = result.object("message").or_else(|| result.object("msg"));
    match (kind.as_deref(), inner_task, inner_message) {
        (Some("task"), ..) => task(&result, encoding, in_pieces),
        (Some("message"), ..) => Ok(message(&result, encoding)),
        (_, Some(inner), _) => task(&inner, encoding, in_pieces),
        _ if stated(&result, "status").is_some() => task(&result, encoding, in_pieces),
        (_, _, Some(inner)) => Ok(message(&inner, encoding)),
        _ if parts_of(&result).is_some() => Ok(message(&result, encoding)),
        _ => Err(Unreadable::NeitherMessageNorTask),
    }
}

fn message(message: &Members<'_>, encoding: PartEncoding) -> Reply {
    let said = Said::read([message], encoding, false, Attachments::default());
    let outcome = Outcome::Final(said.result());
    Reply { task_id: None, context_id: id(message, "contextId"), outcome }
}

fn task(task: &Members<'_>, encoding: PartEncoding, in_pieces: bool) -> Result<Reply, Unreadable> {
    let status = task.object("status");
    let state_name = status.as_ref().and_then(|status| status.string("state"));
    let state = state_name.as_deref().and_then(TaskState::parse).ok_or(Unreadable::UnknownState)?;
    let task_id = id(task, "id");
    let message = status.and_then(|status| status.object("message"));
    let outcome = match state {
        TaskState::Unfinished if task_id.is_none() => return Err(Unreadable::NoTaskId),
        TaskState::Unfinished => Outcome::Unfinished,
        state => {
            let files = match state {
                TaskState::Failed(_) => Attachments::of_an_error,
                _ => Attachments::default,
            };
            let words = Said::read(&message, encoding, false, files());
            let artifacts = Said::read(&task.objects("artifacts"), encoding, in_pieces, files());
            state.outcome(words, artifacts)
        }
    };
    Ok(Reply { task_id, context_id: id(task, "contextId"), outcome })
}

enum TaskState {
    Unfinished,
    Completed,
    /// With a last line that asks the model for the agent's input.
    Interrupted(&'static str),
    /// With the sentence to use if the agent gives no reason.
    Failed(&'static str),
}

impl TaskState {
    /// The outcome of a task that ended or waits, from the `words` of its status and its
    /// `artifacts`. A completed task is asked for its work, any other for what the agent says about
    /// it.
    fn outcome(self, words: Said, artifacts: Said) -> Outcome {
        match self {
            Self::Unfinished => Outcome::Unfinished,
            Self::Completed => Outcome::Final(artifacts.or(words).result()),
            Self::Interrupted(closing) => {
                let mut question = words.or(artifacts);
                question.text = lines(&[&question.text, closing]);
                Outcome::Waiting(question.result())
            }
            Self::Failed(without_reason) => {
                let reason = words.or(artifacts).text;
                let text = if reason.is_empty() { without_reason.to_owned() } else { reason };
                Outcome::Final(Answer::Error(text))
            }
        }
    }

    /// Reads `input-required` (0.3) and `TASK_STATE_INPUT_REQUIRED` (1.0) alike.
    fn parse(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase().replace('_', "-");
        Some(match name.strip_prefix("task-state-").unwrap_or(&name) {
            "submitted" | "working" => Self::Unfinished,
            "completed" => Self::Completed,
            "input-required" => Self::Interrupted(WAITS_FOR_INPUT),
            "auth-required" => Self::Interrupted(WAITS_FOR_AUTHORIZATION),
            "failed" => Self::Failed("the agent failed the task and gave no reason"),
            "rejected" => Self::Failed("the agent rejected the task and gave no reason"),
            // 0.3's protobuf form has the second L.
            "canceled" | "cancelled" => Self::Failed("the agent canceled the task"),
            _ => return None,
        })
    }
}

impl Said {
    /// Reads the parts of messages or artifacts, one below the other; `in_pieces`, a text part goes
    /// on in the text part behind it.
    fn read<'a, 'b: 'a>(
        messages: impl IntoIterator<Item = &'a Members<'b>>,
        encoding: PartEncoding,
        in_pieces: bool,
        mut files: Attachments,
    ) -> Self {
        let mut texts: Vec<String> = Vec::new();
        for message in messages {
            let mut goes_on = false;
            for part in parts_of(message).unwrap_or_default() {
                let text = part_text(part, encoding, &mut files);
                match texts.last_mut().filter(|_| goes_on && is_text(part)) {
                    Some(before) => before.push_str(&text),
                    None => texts.push(text),
                }
                goes_on = in_pieces && is_text(part);
            }
        }
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        Self { text: lines(&texts), files: files.files }
    }

    /// The other content if there is none here; a file always has its line.
    fn or(self, otherwise: Self) -> Self {
        if self.text.is_empty() { otherwise } else { self }
    }

    fn result(self) -> Answer {
        Answer::Result { text: self.text, files: self.files }
    }
}

/// 0.3 over HTTP+JSON calls the parts of a message `content`.
fn parts_of<'a>(message: &Members<'a>) -> Option<Vec<&'a RawValue>> {
    message.array("parts").or_else(|| message.array("content"))
}

fn is_text(part: &RawValue) -> bool {
    string_member(part.get(), "text").is_some()
}

fn part_text(part: &RawValue, encoding: PartEncoding, files: &mut Attachments) -> String {
    let Ok(part) = Members::read(part.get()) else {
        return unknown_part(part.get().len());
    };
    if let Some(text) = part.string("text") {
        return text;
    }
    if let Some(data) = stated(&part, "data") {
        let inner = Members::read(data.get()).ok().and_then(|data| data.get("data"));
        return match (encoding, inner) {
            (PartEncoding::Nested, Some(inner)) => inner.get().to_owned(),
            _ => data.get().to_owned(),
        };
    }
    if let Some(file) = part.object("file") {
        return file_line(&file, encoding, files);
    }
    if stated(&part, "raw").is_some() || stated(&part, "url").is_some() {
        return file_line(&part, encoding, files);
    }
    let size = part.0.iter().map(|(key, value)| key.len() + value.get().len()).sum();
    unknown_part(size)
}

/// The value under `key`; `null` counts as left out.
fn stated<'a>(members: &Members<'a>, key: &str) -> Option<&'a RawValue> {
    members.get(key).filter(|value| value.get() != "null")
}

/// The line of a file: 1.0 has its fields in the part itself, 0.3 in `file`, under two sets of
/// names.
fn file_line(file: &Members<'_>, encoding: PartEncoding, files: &mut Attachments) -> String {
    let name = first_string(file, &["name", "filename"]);
    let mime_type = first_string(file, &["mimeType", "mediaType"]);
    let protobuf = file.string("fileWithBytes");
    let twice = protobuf.is_some() && encoding == PartEncoding::Nested;
    if let Some(data) = first_string(file, &["bytes", "raw"]).or(protobuf) {
        return files.add(DescribedFile {
            kind: "file",
            name: name.as_deref(),
            mime_type: mime_type.as_deref(),
            data: &data,
            twice,
        });
    }
    let mut line = "[file".to_owned();
    for field in [name, mime_type].into_iter().flatten() {
        line.push(' ');
        line.push_str(&visible::line(&field, MAX_NAME));
    }
    match first_string(file, &["uri", "url", "fileWithUri"]) {
        Some(uri) => line.push_str(&format!(": {}]", visible::line(&uri, MAX_NAME))),
        None => line.push_str(", without content]"),
    }
    line
}

fn first_string(members: &Members<'_>, keys: &[&str]) -> Option<String> {
    keys.iter().find_map(|key| members.string(key))
}

fn unknown_part(size: usize) -> String {
    format!("[a part of an unknown kind, {} bytes: not passed on]", grouped(size))
}

/// The texts that are not empty, one below the other.
fn lines(texts: &[&str]) -> String {
    texts.iter().filter(|text| !text.is_empty()).copied().collect::<Vec<_>>().join("\n")
}

fn id(members: &Members<'_>, key: &str) -> Option<String> {
    members.string(key).filter(|id| !id.is_empty())
}

#[cfg(test)]
mod tests;
