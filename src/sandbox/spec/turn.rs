//! The input of a run: `prompt` or `messages` with attachments (agent-runs-protocol §4.0.1).
//!
//! Must not: keep the bytes of attached files.

use serde::Serialize;

use crate::{
    model::answer::files::{MAX_BYTES, MAX_FILES},
    sandbox::{
        files,
        read::{Invalid, Object, Value},
    },
};

const MAX_MESSAGES: usize = 200;
const MAX_CHARACTERS: usize = 200_000;

/// The messages to the model in one run. The last one that is not a system message is the user's.
#[derive(Debug, Clone)]
pub(crate) struct Turn {
    pub(crate) messages: Vec<Message>,
}

/// One message in the form that is stored and shown.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Message {
    pub(crate) role: Role,
    pub(crate) content: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) attachments: Vec<Attachment>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    User,
    Assistant,
    System,
}

/// An attached file, without its bytes (§6.2).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub(crate) enum Attachment {
    InputFile {
        mime_type: String,
        filename: String,
        size: usize,
    },
    InputFileUrl {
        url: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        mime_type: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        filename: Option<String>,
    },
}

impl Turn {
    /// The text that the model responds to.
    pub(crate) fn script(&self) -> &str {
        let last = self.messages.iter().rev().find(|message| message.role == Role::User);
        last.map_or("", |message| &message.content)
    }

    pub(super) fn has_system_message(&self) -> bool {
        let said = |message: &Message| !message.content.trim().is_empty();
        self.messages.iter().any(|message| message.role == Role::System && said(message))
    }
}

/// Reads `prompt` or `messages`; exactly one of them must be present.
pub(super) fn read(body: &Object<'_>) -> Result<Turn, Invalid> {
    match (body.get("prompt"), body.get("messages")) {
        (Some(prompt), None) => {
            let content = prompt.string()?;
            Ok(Turn { messages: vec![Message::new(Role::User, content)] })
        }
        (None, Some(messages)) => read_messages(&messages),
        (Some(_), Some(_)) => Err(body.invalid("send `prompt` or `messages`, not both")),
        (None, None) => Err(body.invalid("`prompt` or `messages` is required")),
    }
}

impl Message {
    pub(crate) fn new(role: Role, content: String) -> Self {
        Self { role, content, attachments: Vec::new() }
    }
}

fn read_messages(value: &Value<'_>) -> Result<Turn, Invalid> {
    let entries = value.array()?;
    value.fits(entries.len(), MAX_MESSAGES, "messages")?;
    let mut messages = Vec::with_capacity(entries.len());
    for entry in &entries {
        let entry = entry.object()?;
        let role = read_role(&entry.need("role")?)?;
        messages.push(Message::new(role, read_content(&entry.need("content")?)?));
    }
    let last = messages.iter().rposition(|message| message.role != Role::System);
    let Some(last) = last.filter(|index| messages[*index].role == Role::User) else {
        return Err(value.invalid("the last message that is not `system` must be the `user`'s"));
    };
    // Attachments of earlier messages do not go to the model, and may be the bare metadata that a
    // history shows.
    let entry = entries[last].object()?;
    if let Some(attachments) = entry.get("attachments") {
        messages[last].attachments = read_attachments(&attachments)?;
    }
    Ok(Turn { messages })
}

fn read_role(value: &Value<'_>) -> Result<Role, Invalid> {
    match value.string()?.as_str() {
        "user" => Ok(Role::User),
        "assistant" => Ok(Role::Assistant),
        "system" => Ok(Role::System),
        _ => Err(value.wrong_type("user, assistant or system")),
    }
}

fn read_content(value: &Value<'_>) -> Result<String, Invalid> {
    let content = value.string()?;
    value.fits(content.chars().count(), MAX_CHARACTERS, "characters")?;
    Ok(content)
}

fn read_attachments(value: &Value<'_>) -> Result<Vec<Attachment>, Invalid> {
    let entries = value.array()?;
    value.fits(entries.len(), MAX_FILES, "files")?;
    let mut total = 0;
    let mut attachments = Vec::with_capacity(entries.len());
    for entry in &entries {
        let file = entry.object()?;
        let kind = file.need("type")?;
        attachments.push(match kind.string()?.as_str() {
            "input_file" => {
                let note = files::read_inline(&file)?;
                total += note.size_bytes;
                Attachment::InputFile {
                    mime_type: note.mime_type,
                    filename: note.filename,
                    size: note.size_bytes,
                }
            }
            "input_file_url" => read_link(&file)?,
            _ => return Err(kind.wrong_type("input_file or input_file_url")),
        });
    }
    value.fits(total, MAX_BYTES, "bytes decoded")?;
    Ok(attachments)
}

fn read_link(file: &Object<'_>) -> Result<Attachment, Invalid> {
    let value = file.need("url")?;
    let url = value.string()?;
    if url::Url::parse(&url).is_ok_and(|url| url.scheme() == "https") {
        let mime_type = file.get("mimeType").map(|value| files::read_mime_type(&value));
        let mime_type = mime_type.transpose()?;
        return Ok(Attachment::InputFileUrl { url, mime_type, filename: file.string("filename")? });
    }
    Err(value.wrong_type("an https URL"))
}
