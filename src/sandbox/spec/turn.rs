//! The input of a run: `prompt` or `messages` (agent-runs-protocol §4.0.1). Attachments are
//! checked, and have no effect.
//!
//! Must not: keep the bytes of attached files.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::sandbox::{Invalid, read};

/// The messages to the model in one run. The last one that is not a system message is the user's.
#[derive(Debug, Clone)]
pub(crate) struct Turn {
    pub(crate) messages: Vec<Message>,
}

/// One message in the form that is stored and shown.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Message {
    pub(crate) role: Role,
    pub(crate) content: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    User,
    Assistant,
    System,
}

impl Turn {
    /// Reads `prompt` or `messages` of a body; exactly one of them must be present.
    pub(super) fn read(body: &Value) -> Result<Self, Invalid> {
        let why = match (body.get("prompt"), body.get("messages")) {
            (Some(prompt), None) => {
                let content = read::members(prompt)?;
                return Ok(Self { messages: vec![Message { role: Role::User, content }] });
            }
            (None, Some(messages)) => return Self::read_messages(messages),
            (Some(_), Some(_)) => "send `prompt` or `messages`, not both",
            (None, None) => "`prompt` or `messages` is required",
        };
        Err(why.to_owned())
    }

    fn read_messages(value: &Value) -> Result<Self, Invalid> {
        let messages: Vec<Message> = read::members(value)?;
        let last = messages.iter().rposition(|message| message.role != Role::System);
        let Some(last) = last.filter(|index| messages[*index].role == Role::User) else {
            let why = "the last message that is not `system` must be the `user`'s";
            return Err(format!("/messages: {why}"));
        };
        // Attachments of earlier messages do not go to the model, and may be the bare metadata that
        // a history shows.
        if let Some(attachments) = value[last].get("attachments") {
            read::check(attachments, "attachments", &format!("/messages/{last}/attachments"))?;
        }
        Ok(Self { messages })
    }

    /// The text that the model responds to.
    pub(crate) fn script(&self) -> &str {
        let last = self.messages.iter().rev().find(|message| message.role == Role::User);
        last.map_or("", |message| &message.content)
    }

    pub(super) fn has_system_message(&self) -> bool {
        self.messages
            .iter()
            .any(|message| message.role == Role::System && !message.content.trim().is_empty())
    }
}
