//! Turns the reply of an A2A agent into an [`Answer`]: messages and tasks of 0.3 and 1.0.
//!
//! Must not: know which HTTP request brought the reply, or trust its shape: every field may be
//! absent, of another type or of a kind that is newer than this code.

mod data_url;

use serde_json::value::RawValue;

use self::data_url::DataUrl;
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
    pub content: Content,
}

/// Where the content of a reply stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// In the message, in the task's artifacts or in the message of its status.
    Stated,
    /// Only in the history of the task, of which a reply may have a part alone.
    History,
    /// Nowhere.
    None,
}

/// The state of the agent's work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Submitted or working: poll again.
    Unfinished,
    /// In a state of this name, which A2A does not know. It may change.
    Unknown(String),
    /// The agent waits for input or an authorization.
    Waiting(Answer),
    /// Nothing more will come.
    Final(Answer),
}

/// The reply is neither a message nor a task that can be followed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    #[error("its reply is not a JSON object ({0})")]
    NotAnObject(String),
    #[error("its reply is neither a message nor a task")]
    NeitherMessageNorTask,
    #[error("its task has no state")]
    NoState,
    #[error("its task is unfinished and has no id to ask for it by")]
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

/// The texts of a task, each with a line for each of its files, and the files of all.
#[derive(Debug, Default)]
struct TaskTexts {
    /// What the agent has made.
    artifacts: String,
    /// What it says at the end, or asks.
    closing: String,
    /// What it has said before. Read only if there is nothing else.
    history: String,
    files: Vec<File>,
}

/// The id of a conversation. Some servers write the names of their own language.
pub(super) const CONTEXT_ID: &[&str] = &["contextId", "context_id"];
pub(super) const TASK_ID: &[&str] = &["taskId", "task_id"];
pub(super) const MESSAGE_ID: &[&str] = &["messageId", "message_id"];

/// How many bytes of a name or an address are shown, on one line, so that it cannot look like
/// further lines of the answer.
const MAX_NAME: usize = 2048;

/// How many bytes of the name of an unknown state are shown.
const MAX_STATE: usize = 60;

const WAITS_FOR_INPUT: &str =
    "[the agent waits for input: call this tool again with the answer, and it goes on]";
const WAITS_FOR_AUTHORIZATION: &str = "[the agent waits for an authorization, which has to be given \
    to it elsewhere: call this tool again when that is done, and it goes on]";
const EMPTY_MESSAGE: &str = "[the agent replied with an empty message]";
const EMPTY_TASK: &str = "[the agent completed the task and gave no answer]";
/// Stands before what a failed task has made.
const MADE_BEFORE: &str = "[what the agent had made before:]";

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
    let mut files = Attachments::default();
    let text = text([message], encoding, false, &mut files);
    let (text, content) = match text.is_empty() {
        true => (EMPTY_MESSAGE.to_owned(), Content::None),
        false => (text, Content::Stated),
    };
    let outcome = Outcome::Final(Answer::Result { text, files: files.files });
    Reply { task_id: None, context_id: id(message, CONTEXT_ID), outcome, content }
}

fn task(task: &Members<'_>, encoding: PartEncoding, in_pieces: bool) -> Result<Reply, Unreadable> {
    let status = task.object("status");
    let state_name =
        status.as_ref().and_then(|status| status.string("state")).ok_or(Unreadable::NoState)?;
    let task_id = id(task, &["id"]);
    let context_id = id(task, CONTEXT_ID);
    let Some(state) = TaskState::parse(&state_name) else {
        let outcome = Outcome::Unknown(visible::line(&state_name, MAX_STATE));
        return Ok(Reply { task_id, context_id, outcome, content: Content::None });
    };
    if let TaskState::Unfinished = state {
        if task_id.is_none() {
            return Err(Unreadable::NoTaskId);
        }
        let (outcome, content) = (Outcome::Unfinished, Content::None);
        return Ok(Reply { task_id, context_id, outcome, content });
    }
    let mut files = match state {
        TaskState::Failed(_) => Attachments::of_an_error(),
        _ => Attachments::default(),
    };
    let mut artifacts = text(&task.objects("artifacts"), encoding, in_pieces, &mut files);
    let message = status.and_then(|status| status.object("message"));
    let closing = text(&message, encoding, false, &mut files);
    if closing == artifacts {
        // Some agents say in the status what they have made, once more.
        artifacts.clear();
    }
    let mut texts = TaskTexts { artifacts, closing, ..TaskTexts::default() };
    let mut content = Content::Stated;
    if texts.artifacts.is_empty() && texts.closing.is_empty() {
        texts.history = text(&last_words(task), encoding, false, &mut files);
        content = if texts.history.is_empty() { Content::None } else { Content::History };
    }
    texts.files = files.files;
    Ok(Reply { task_id, context_id, outcome: state.outcome(texts), content })
}

/// What the agent has said since the last message of its user. Agents that make no artifact leave
/// their answer there.
pub(super) fn last_words<'a>(task: &Members<'a>) -> Vec<Members<'a>> {
    let mut history = task.objects("history");
    let begin = history.iter().rposition(is_of_user).map_or(0, |last| last + 1);
    history.split_off(begin)
}

fn is_of_user(message: &Members<'_>) -> bool {
    matches!(message.string("role").as_deref(), Some("user" | "ROLE_USER"))
}

/// How far a task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Also in a state that A2A does not know.
    Unfinished,
    Waiting,
    Ended,
}

/// How far a task with this `TaskStatus` is.
pub(super) fn stage(status: &RawValue) -> Stage {
    let state = string_member(status.get(), "state");
    match state.as_deref().and_then(TaskState::parse) {
        None | Some(TaskState::Unfinished) => Stage::Unfinished,
        Some(TaskState::Interrupted(_)) => Stage::Waiting,
        Some(TaskState::Completed | TaskState::Failed(_)) => Stage::Ended,
    }
}

/// Whether a `TaskStatus` says that the agent has failed.
pub(super) fn is_failed(status: &RawValue) -> bool {
    let state = string_member(status.get(), "state");
    matches!(state.as_deref(), Some("failed" | "TASK_STATE_FAILED"))
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
    /// The outcome of a task that ended or waits. Nothing of its texts is left out: a model that is
    /// not told what a failed task has done would have it done again.
    fn outcome(self, texts: TaskTexts) -> Outcome {
        let TaskTexts { artifacts, closing, history, files } = texts;
        match self {
            Self::Unfinished => Outcome::Unfinished,
            Self::Completed => {
                let mut text = lines(&[&history, &artifacts, &closing]);
                if text.is_empty() {
                    EMPTY_TASK.clone_into(&mut text);
                }
                Outcome::Final(Answer::Result { text, files })
            }
            Self::Interrupted(request) => {
                let text = lines(&[&history, &artifacts, &closing, request]);
                Outcome::Waiting(Answer::Result { text, files })
            }
            // The reason comes first, as a long error is cut at its end.
            Self::Failed(without_reason) => {
                let reason = if closing.is_empty() { without_reason } else { &closing };
                let heading = if artifacts.is_empty() { "" } else { MADE_BEFORE };
                let text = lines(&[reason, &history, heading, &artifacts]);
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

/// The text of messages or artifacts, one part below the other. `in_pieces`: adjacent text parts
/// may be pieces of one text.
fn text<'a, 'b: 'a>(
    messages: impl IntoIterator<Item = &'a Members<'b>>,
    encoding: PartEncoding,
    in_pieces: bool,
    files: &mut Attachments,
) -> String {
    let mut texts: Vec<String> = Vec::new();
    for message in messages {
        let parts = parts_of(message).unwrap_or_default();
        for run in parts.chunk_by(|before, after| is_text(before) && is_text(after)) {
            let run: Vec<String> =
                run.iter().map(|part| part_text(part, encoding, files)).collect();
            if in_pieces && brings_spacing(&run) {
                texts.push(run.concat());
            } else {
                texts.extend(run);
            }
        }
    }
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    lines(&texts)
}

/// What a message of the agent says, in one text without its files.
pub(super) fn text_of_message(message: &Members<'_>, encoding: PartEncoding) -> String {
    text([message], encoding, false, &mut Attachments::of_an_error())
}

/// Whether the texts are pieces of one text, with the spaces between words in them. An agent that
/// streams may have sent a title and a paragraph as well, which must not be one word.
fn brings_spacing(run: &[String]) -> bool {
    let mut junctions = run.iter().zip(run.iter().skip(1));
    junctions.any(|(before, after)| {
        before.ends_with(char::is_whitespace) || after.starts_with(char::is_whitespace)
    })
}

/// 0.3 over HTTP+JSON calls the parts of a message `content`.
pub(super) fn parts_of<'a>(message: &Members<'a>) -> Option<Vec<&'a RawValue>> {
    message.array("parts").or_else(|| message.array("content"))
}

fn is_text(part: &RawValue) -> bool {
    text_of(part).is_some()
}

/// The text of a part that is one.
pub(super) fn text_of(part: &RawValue) -> Option<String> {
    string_member(part.get(), "text")
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
pub(super) fn stated<'a>(members: &Members<'a>, key: &str) -> Option<&'a RawValue> {
    members.get(key).filter(|value| value.get() != "null")
}

/// The line of a file: 1.0 has its fields in the part itself, 0.3 in `file`, under two sets of
/// names.
fn file_line(file: &Members<'_>, encoding: PartEncoding, files: &mut Attachments) -> String {
    let name = first_string(file, &["name", "filename"]);
    let mime_type = first_string(file, &["mimeType", "mediaType", "mime_type", "media_type"]);
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
    let uri = first_string(file, &["uri", "url", "fileWithUri"]);
    if let Some(inline) = uri.as_deref().and_then(DataUrl::read) {
        return files.add(DescribedFile {
            kind: "file",
            name: name.as_deref(),
            mime_type: mime_type.as_deref().or(inline.mime_type),
            data: &inline.base64,
            twice: false,
        });
    }
    let mut line = "[file".to_owned();
    for field in [name, mime_type].into_iter().flatten() {
        line.push(' ');
        line.push_str(&visible::line(&field, MAX_NAME));
    }
    match uri {
        Some(uri) => line.push_str(&format!(": {}]", visible::line(&uri, MAX_NAME))),
        None => line.push_str(", without content]"),
    }
    line
}

pub(super) fn first_string(members: &Members<'_>, keys: &[&str]) -> Option<String> {
    keys.iter().find_map(|key| members.string(key))
}

fn unknown_part(size: usize) -> String {
    format!("[a part of an unknown kind, {} bytes: not passed on]", grouped(size))
}

/// The texts that are not empty, one below the other.
fn lines(texts: &[&str]) -> String {
    texts.iter().filter(|text| !text.is_empty()).copied().collect::<Vec<_>>().join("\n")
}

/// The id under one of the keys.
pub(super) fn id(members: &Members<'_>, keys: &[&str]) -> Option<String> {
    first_string(members, keys).filter(|id| !id.is_empty())
}

#[cfg(test)]
mod tests;
