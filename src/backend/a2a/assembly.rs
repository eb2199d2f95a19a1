//! Puts the events of one unbroken stream together to the task that they tell of.
//!
//! Must not: join what comes from two streams, or hold more than one reply may have.

use serde_json::value::RawValue;

use super::failure::{A2aFailure, A2aResult};
use super::link::MAX_REPLY;
use super::result;
use super::result::{MESSAGE_ID, PartEncoding, Reply, Stage, id, parts_of, text_of};
use super::update::{ArtifactUpdate, Event, Update, artifact_id};
use crate::backend::{CallError, NotRead};
use crate::budget::{Budget, Held};
use crate::model::json::quoted;
use crate::model::maps::fingerprint;
use crate::model::{Members, member};

/// What an entry of a list takes in memory, apart from its text.
const ENTRY: usize = 64;

/// A task as far as a stream has told of it.
#[derive(Debug)]
pub(super) struct Assembly {
    encoding: PartEncoding,
    task_id: Option<String>,
    context_id: Option<String>,
    /// The last `TaskStatus`.
    status: Option<Box<RawValue>>,
    artifacts: Vec<Sequence>,
    /// What the agent has said, apart from the message of the last status.
    messages: Vec<Sequence>,
    /// The reply, if it is a message and there is no task.
    reply: Option<Box<RawValue>>,
    /// Why the pieces may not be all of the task, or not in their order.
    doubt: Option<&'static str>,
    /// The fingerprint of the last piece.
    last_piece: Option<u64>,
    /// How many bytes all of it has.
    bytes: usize,
    held: Held,
}

/// The parts of an artifact or a message.
#[derive(Debug, Default)]
struct Sequence {
    id: String,
    parts: Vec<Part>,
    /// Its last piece has come.
    is_complete: bool,
}

#[derive(Debug)]
enum Part {
    /// Grows, piece by piece.
    Text(String),
    Other(Box<RawValue>),
}

impl Assembly {
    /// Without an event.
    pub(super) fn new(encoding: PartEncoding) -> Self {
        Self {
            encoding,
            task_id: None,
            context_id: None,
            status: None,
            artifacts: Vec::new(),
            messages: Vec::new(),
            reply: None,
            doubt: None,
            last_piece: None,
            bytes: 0,
            held: Budget::of_process().hold(),
        }
    }

    /// Takes an event of the one task that the stream is about. The app of the call pays for its
    /// bytes; an error if there are more than one reply may have, or no room.
    pub(super) async fn take(&mut self, event: Event<'_>) -> A2aResult<()> {
        let Event { task_id, context_id, update } = event;
        self.context_id = context_id.or(self.context_id.take());
        match update {
            Update::Message(message) if task_id.is_none() && self.task_id.is_none() => {
                self.bytes += message.get().len();
                self.reply = Some(message.to_owned());
            }
            Update::Message(message) => self.say(message),
            Update::Task(task) => self.replace(&task),
            Update::Status(status) => self.set_status(status),
            Update::Artifact(update) => self.add(update),
        }
        self.task_id = task_id.or(self.task_id.take());
        if self.bytes > MAX_REPLY {
            let too_large = NotRead::TooLarge { limit: MAX_REPLY, size: None };
            return Err(CallError::NotRead(too_large).into());
        }
        let held = self.held.keep_up(self.bytes).await;
        held.map_err(|no_room| CallError::NotRead(no_room.into()).into())
    }

    /// A task as it stands. Servers that leave artifacts or the history out of it have sent them
    /// before.
    fn replace(&mut self, task: &Members<'_>) {
        if let Some(status) = result::stated(task, "status") {
            self.set_status(status);
        }
        let artifacts = task.objects("artifacts");
        if !artifacts.is_empty() {
            let sequences = artifacts.iter().map(|one| Sequence::new(artifact_id(one), one));
            let earlier = std::mem::replace(&mut self.artifacts, sequences.collect());
            self.bytes = self.bytes - total(&earlier) + total(&self.artifacts);
        }
        let history = result::last_words(task);
        if !history.is_empty() {
            let sequences = history.iter().map(|one| Sequence::new(message_id(one), one));
            let earlier = std::mem::replace(&mut self.messages, sequences.collect());
            self.bytes = self.bytes - total(&earlier) + total(&self.messages);
        }
    }

    /// The next status. What the last one said is kept: some agents say their answer in it, and
    /// complete the task without a word.
    fn set_status(&mut self, status: &RawValue) {
        if let Some(last) = self.status.take() {
            self.bytes -= last.get().len();
            let message = member(last.get(), "message").filter(|message| {
                // A status that is sent again says nothing new.
                let next = member(status.get(), "message");
                next.is_none_or(|next| next.get() != message.get())
            });
            if let Some(message) = message {
                self.say(message);
            }
        }
        self.bytes += status.get().len();
        self.status = Some(status.to_owned());
    }

    /// Keeps what the agent says. Messages with one id are pieces of one.
    fn say(&mut self, message: &RawValue) {
        let Ok(message) = Members::read(message.get()) else { return };
        let id = message_id(&message);
        match self.messages.last_mut() {
            Some(last) if !id.is_empty() && last.id == id => {
                self.bytes += last.extend(&message);
            }
            _ => {
                let sequence = Sequence::new(id, &message);
                self.bytes += sequence.bytes();
                self.messages.push(sequence);
            }
        }
    }

    /// Takes an artifact, or the next piece of one.
    fn add(&mut self, update: ArtifactUpdate<'_>) {
        let ArtifactUpdate { artifact, is_appended, is_last } = update;
        let id = artifact_id(&artifact);
        let place = self.artifacts.iter().rposition(|artifact| artifact.id == id);
        let piece = Some(fingerprint(&artifact.get("parts").map_or("", RawValue::get)));
        match place.and_then(|place| self.artifacts.get_mut(place)) {
            Some(sequence) if is_appended => {
                if sequence.is_complete {
                    self.doubt = Some("a piece follows the last one");
                } else if piece == self.last_piece {
                    self.doubt = Some("a piece came twice");
                }
                self.bytes += sequence.extend(&artifact);
                sequence.is_complete = is_last;
            }
            Some(sequence) => {
                self.bytes -= sequence.bytes();
                *sequence = Sequence { is_complete: is_last, ..Sequence::new(id, &artifact) };
                self.bytes += sequence.bytes();
            }
            None => {
                if is_appended {
                    self.doubt = Some("a piece belongs to an artifact that was not sent");
                }
                let new = Sequence { is_complete: is_last, ..Sequence::new(id, &artifact) };
                self.bytes += new.bytes();
                self.artifacts.push(new);
            }
        }
        self.last_piece = piece;
    }

    /// What the events tell of the work, as a reply; `None` if they do not tell of any.
    pub(super) fn reply(&self) -> A2aResult<Option<Reply>> {
        let text = match (&self.reply, &self.status) {
            (_, Some(status)) => self.task(status),
            (Some(message), None) => format!("{{\"message\":{}}}", message.get()),
            (None, None) => return Ok(None),
        };
        let reply = result::read(&text, self.encoding, false)
            .map_err(|error| A2aFailure::unclear(error.to_string()))?;
        Ok(Some(Reply { context_id: reply.context_id.or(self.context_id.clone()), ..reply }))
    }

    /// The reply of an agent that has reported `error` in the place of an end.
    pub(super) fn failed(&self, error: &str) -> A2aResult<Reply> {
        let parts = format!("[{{\"text\":{}}}]", quoted(error));
        let json = format!("{{\"state\":\"failed\",\"message\":{{\"parts\":{parts}}}}}");
        let status = RawValue::from_string(json).expect("the members are JSON");
        result::read(&self.task(&status), self.encoding, false)
            .map_err(|error| A2aFailure::unclear(error.to_string()))
    }

    /// How far the work is, as far as events have told.
    pub(super) fn stage(&self) -> Stage {
        match (&self.status, &self.reply) {
            (Some(status), _) => result::stage(status),
            (None, Some(_)) => Stage::Ended,
            (None, None) => Stage::Unfinished,
        }
    }

    /// Why the pieces may not be all of the task, or not in their order; `None` if they are.
    pub(super) fn doubt(&self) -> Option<&'static str> {
        self.doubt
    }

    /// Notes why the pieces may not be all of the task.
    pub(super) fn doubt_for(&mut self, why: &'static str) {
        self.doubt = Some(why);
    }

    /// Whether the task is in this conversation.
    pub(super) fn is_in(&self, context: &str) -> bool {
        self.context_id.as_deref() == Some(context)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.reply.is_none()
            && self.status.is_none()
            && self.artifacts.is_empty()
            && self.messages.is_empty()
    }

    /// The JSON of the task with this status.
    fn task(&self, status: &RawValue) -> String {
        let mut text = format!("{{\"kind\":\"task\",\"status\":{}", status.get());
        for (key, id) in [("id", &self.task_id), ("contextId", &self.context_id)] {
            if let Some(id) = id {
                text.push_str(&format!(",\"{key}\":{}", quoted(id)));
            }
        }
        for (key, list) in [("artifacts", &self.artifacts), ("history", &self.messages)] {
            let list: Vec<String> = list.iter().map(Sequence::json).collect();
            text.push_str(&format!(",\"{key}\":[{}]", list.join(",")));
        }
        text.push('}');
        text
    }
}

impl Sequence {
    fn new(id: String, content: &Members<'_>) -> Self {
        let mut new = Self { id, ..Self::default() };
        new.extend(content);
        new
    }

    /// Appends the parts of `content`; returns how many bytes they take. A text continues the text
    /// before it: agents send the words of one as they come to their mind.
    fn extend(&mut self, content: &Members<'_>) -> usize {
        let mut parts = parts_of(content).unwrap_or_default().into_iter().peekable();
        let mut bytes = 0;
        if let Some(Part::Text(text)) = self.parts.last_mut()
            && let Some(more) = parts.peek().and_then(|part| text_of(part))
        {
            text.push_str(&more);
            bytes += more.len();
            parts.next();
        }
        for part in parts {
            let new = match text_of(part) {
                Some(text) => Part::Text(text),
                None => Part::Other(part.to_owned()),
            };
            bytes += new.bytes();
            self.parts.push(new);
        }
        bytes
    }

    fn bytes(&self) -> usize {
        ENTRY + self.id.len() + self.parts.iter().map(Part::bytes).sum::<usize>()
    }

    /// As a message of the agent, which an artifact may be written as, too.
    fn json(&self) -> String {
        let parts = self.parts.iter().map(|part| match part {
            Part::Text(text) => format!("{{\"text\":{}}}", quoted(text)),
            Part::Other(part) => part.get().to_owned(),
        });
        let parts: Vec<String> = parts.collect();
        format!("{{\"role\":\"agent\",\"parts\":[{}]}}", parts.join(","))
    }
}

impl Part {
    fn bytes(&self) -> usize {
        let text = match self {
            Self::Text(text) => text,
            Self::Other(part) => part.get(),
        };
        ENTRY + text.len()
    }
}

fn total(list: &[Sequence]) -> usize {
    list.iter().map(Sequence::bytes).sum()
}

fn message_id(message: &Members<'_>) -> String {
    id(message, MESSAGE_ID).unwrap_or_default()
}

#[cfg(test)]
mod tests;
