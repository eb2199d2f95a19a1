//! What an event of a stream says to people who wait: the text of a status, a message or a piece.
//!
//! Must not: be part of an answer.

use super::result;
use super::result::PartEncoding;
use super::update::{Event, Update};
use crate::model::{Members, member, string_member, visible};

/// The longest text, in bytes.
const MAX_TEXT: usize = 1024;

/// What the event says; `None` if it has no words.
pub(super) fn of_event(event: &Event<'_>, encoding: PartEncoding) -> Option<String> {
    let text = match &event.update {
        Update::Task(_) => return None,
        Update::Message(message) => {
            result::text_of_message(&Members::read(message.get()).ok()?, encoding)
        }
        Update::Status(status) => match member(status.get(), "message") {
            Some(message) => result::text_of_message(&Members::read(message.get()).ok()?, encoding),
            None => return state(&string_member(status.get(), "state")?),
        },
        Update::Artifact(update) => result::text_of_message(&update.artifact, encoding),
    };
    Some(visible::line(text.trim(), MAX_TEXT)).filter(|text| !text.is_empty())
}

/// The state of a task, as people read it.
fn state(name: &str) -> Option<String> {
    let lower = name.to_ascii_lowercase().replace('_', "-");
    let name = lower.strip_prefix("task-state-").unwrap_or(&lower);
    Some(visible::line(name, MAX_TEXT)).filter(|name| !name.is_empty())
}
