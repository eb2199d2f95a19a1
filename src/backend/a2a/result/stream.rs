//! Gathers the events of an agent's stream into one reply: messages, tasks, and updates of a
//! task's status and artifacts, of 0.3 and 1.0.
//!
//! Must not: know how events travel, or let an event of another task into the reply.

use serde_json::value::RawValue;

use super::{Outcome, PartEncoding, Reply, TaskState, Unreadable, id, message};
use crate::model::json::Members;

/// The most artifacts of one task. No sane agent makes more.
const MAX_ARTIFACTS: usize = 10_000;
/// How many bytes an artifact or a part counts, beside its own.
const OVERHEAD: usize = 64;

/// A reply that is not complete yet.
#[derive(Debug)]
pub struct Gathering {
    encoding: PartEncoding,
    /// The most bytes that are kept.
    limit: usize,
    task: Option<String>,
    context: Option<String>,
    status: Option<Box<RawValue>>,
    artifacts: Vec<Artifact>,
    /// The size of the artifacts, in bytes.
    size: usize,
    heard: bool,
    /// Whether the next event may show the task as it was before the message was sent.
    may_be_stale: bool,
    /// Whether events may have been missed since the last whole task.
    has_gap: bool,
}

/// The received part of an artifact.
#[derive(Debug)]
struct Artifact {
    id: Option<String>,
    pieces: Vec<Piece>,
}

/// A part of an artifact, or a run of text parts of which each was appended to the one before.
#[derive(Debug)]
enum Piece {
    Text(String),
    Raw(Box<RawValue>),
}

/// The effect of an event.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    More,
    /// The reply is complete.
    Done(Reply),
    /// The event is not part of the reply, for this reason.
    LeftOut(&'static str),
}

enum Event<'a> {
    Message(Members<'a>),
    Task(Members<'a>),
    Status(Members<'a>),
    Artifact(Members<'a>),
}

const FOREIGN: &str = "an event of another task";
const UNKNOWN: &str = "an event of an unknown kind";

impl Gathering {
    /// An empty reply, which keeps at most `limit` bytes. `task` and `context` are those of the
    /// message that it answers, if that belongs to a conversation.
    pub fn new(
        encoding: PartEncoding,
        limit: usize,
        task: Option<&str>,
        context: Option<&str>,
    ) -> Self {
        Self {
            encoding,
            limit,
            task: task.map(str::to_owned),
            context: context.map(str::to_owned),
            status: None,
            artifacts: Vec::new(),
            size: 0,
            heard: false,
            may_be_stale: task.is_some(),
            has_gap: false,
        }
    }

    /// The task that the agent made of the message, or continues.
    pub fn task(&self) -> Option<&str> {
        self.task.as_deref()
    }

    /// The conversation that the task belongs to.
    pub fn context(&self) -> Option<&str> {
        self.context.as_deref()
    }

    /// Whether any event has come.
    pub fn has_heard(&self) -> bool {
        self.heard
    }

    /// Whether events may be missing in the reply.
    pub fn has_gap(&self) -> bool {
        self.has_gap
    }

    /// Notes that the stream broke, and that the next events come from a new one.
    pub fn resumed(&mut self) {
        self.has_gap = true;
        self.may_be_stale = false;
    }

    /// Takes in one event.
    pub fn push(&mut self, event: &str) -> Result<Step, Unreadable> {
        let event =
            Members::read(event).map_err(|error| Unreadable::NotAnObject(error.to_string()))?;
        let Some(event) = Event::of(event) else { return Ok(Step::LeftOut(UNKNOWN)) };
        self.heard = true;
        let may_be_stale = std::mem::take(&mut self.may_be_stale);
        let step = match event {
            Event::Message(_) if self.has_begun() => Step::LeftOut("a message beside the task"),
            Event::Message(members) => Step::Done(message(&members, self.encoding)),
            Event::Task(members) => self.task_as_it_stands(&members, may_be_stale)?,
            Event::Status(members) => self.status(&members)?,
            Event::Artifact(members) => self.artifact(&members),
        };
        if self.size > self.limit || self.artifacts.len() > MAX_ARTIFACTS {
            return Err(Unreadable::TooLarge);
        }
        Ok(step)
    }

    fn task_as_it_stands(
        &mut self,
        task: &Members<'_>,
        may_be_stale: bool,
    ) -> Result<Step, Unreadable> {
        let context = id(task, "contextId");
        if !self.belongs(id(task, "id"), context) {
            return Ok(Step::LeftOut(FOREIGN));
        }
        let Some(status) = task.get("status") else { return Err(Unreadable::UnknownState) };
        if may_be_stale && state(status).is_some_and(|state| state.is_waiting()) {
            // Agents repeat the task before they continue it. Only the next events say whether it
            // still waits.
            return Ok(Step::LeftOut("the task as it waited for this message"));
        }
        self.status = Some(status.to_owned());
        self.has_gap = false;
        self.artifacts.clear();
        for raw in task.array("artifacts").unwrap_or_default() {
            let Ok(members) = Members::read(raw.get()) else { continue };
            self.artifacts.push(Artifact::read(&members));
        }
        self.size = self.artifacts.iter().map(Artifact::size).sum();
        self.step()
    }

    fn status(&mut self, update: &Members<'_>) -> Result<Step, Unreadable> {
        if !self.belongs(id(update, "taskId"), id(update, "contextId")) {
            return Ok(Step::LeftOut(FOREIGN));
        }
        let Some(status) = update.get("status").filter(|status| state(status).is_some()) else {
            return Ok(Step::LeftOut("a status without a state that A2A knows"));
        };
        self.status = Some(status.to_owned());
        self.step()
    }

    fn artifact(&mut self, update: &Members<'_>) -> Step {
        if !self.belongs(id(update, "taskId"), id(update, "contextId")) {
            return Step::LeftOut(FOREIGN);
        }
        let Some(members) = update.object("artifact") else { return Step::LeftOut(UNKNOWN) };
        let artifact = Artifact::read(&members);
        let appends = update.get("append").is_some_and(|append| append.get() == "true");
        let known = match &artifact.id {
            // Searched from the end: updates are nearly always of the last artifact.
            Some(id) => self.artifacts.iter_mut().rfind(|known| known.id.as_ref() == Some(id)),
            None if appends => self.artifacts.last_mut(),
            None => None,
        };
        self.size += artifact.size();
        match known {
            Some(known) if appends => known.append(artifact),
            Some(known) => {
                let old = std::mem::replace(known, artifact);
                self.size -= old.size().min(self.size);
            }
            None => self.artifacts.push(artifact),
        }
        Step::More
    }

    /// Whether an event with these ids belongs to this reply. The first event that names a task
    /// decides on the reply's task.
    fn belongs(&mut self, task: Option<String>, context: Option<String>) -> bool {
        let same_task = match (&self.task, &task) {
            (Some(own), Some(task)) => own == task,
            _ => true,
        };
        // An agent may answer a message to one task with another task of the conversation.
        let same_talk = !self.has_begun() && context.is_some() && context == self.context;
        if !same_task && !same_talk {
            return false;
        }
        self.task = task.or_else(|| self.task.take());
        self.context = context.or_else(|| self.context.take());
        true
    }

    /// Whether a status or an artifact of the task has come.
    fn has_begun(&self) -> bool {
        self.status.is_some() || !self.artifacts.is_empty()
    }

    /// The reply, if it is complete.
    fn step(&self) -> Result<Step, Unreadable> {
        let reply = super::read(&self.as_task(), self.encoding)?;
        Ok(match reply.outcome {
            Outcome::Unfinished => Step::More,
            Outcome::Waiting(_) | Outcome::Final(_) => Step::Done(reply),
        })
    }

    /// The gathered events as a task, in the form in which `GetTask` would return it.
    fn as_task(&self) -> String {
        let status = self.status.as_ref().map_or("{}", |status| status.get());
        let finished =
            state_of(status).is_some_and(|state| !matches!(state, TaskState::Unfinished));
        // Artifacts of an unfinished task are not read, so they are not written each time.
        let artifacts = if finished { self.artifacts.as_slice() } else { &[] };
        let artifacts: Vec<String> = artifacts.iter().map(Artifact::as_json).collect();
        format!(
            r#"{{"kind":"task","id":{},"contextId":{},"status":{status},"artifacts":[{}]}}"#,
            json(self.task.as_deref()),
            json(self.context.as_deref()),
            artifacts.join(",")
        )
    }
}

impl<'a> Event<'a> {
    /// In 0.3's JSON-RPC, an event has a `kind`; all others wrap the event under its name.
    fn of(event: Members<'a>) -> Option<Self> {
        match event.string("kind").as_deref() {
            Some("message") => return Some(Self::Message(event)),
            Some("task") => return Some(Self::Task(event)),
            Some("status-update") => return Some(Self::Status(event)),
            Some("artifact-update") => return Some(Self::Artifact(event)),
            _ => {}
        }
        let wrapped = |key: &str| event.object(key);
        None.or_else(|| wrapped("task").map(Self::Task))
            .or_else(|| wrapped("statusUpdate").map(Self::Status))
            .or_else(|| wrapped("artifactUpdate").map(Self::Artifact))
            .or_else(|| wrapped("message").or_else(|| wrapped("msg")).map(Self::Message))
    }
}

impl Artifact {
    fn read(members: &Members<'_>) -> Self {
        let pieces = super::parts_of(members).unwrap_or_default();
        let pieces = pieces.into_iter().map(Piece::read).collect();
        Self { id: id(members, "artifactId"), pieces }
    }

    /// Adds the parts of `more`. Text that is appended to text continues the same line, as agents
    /// send one text in pieces.
    fn append(&mut self, more: Self) {
        let mut pieces = more.pieces.into_iter();
        match (self.pieces.last_mut(), pieces.next()) {
            (Some(Piece::Text(text)), Some(Piece::Text(more))) => text.push_str(&more),
            (_, Some(piece)) => self.pieces.push(piece),
            (_, None) => {}
        }
        self.pieces.extend(pieces);
    }

    fn size(&self) -> usize {
        let id = self.id.as_ref().map_or(0, String::len);
        OVERHEAD + id + self.pieces.iter().map(Piece::size).sum::<usize>()
    }

    fn as_json(&self) -> String {
        let parts: Vec<String> = self
            .pieces
            .iter()
            .map(|piece| match piece {
                Piece::Text(text) => format!(r#"{{"text":{}}}"#, json(Some(text))),
                Piece::Raw(raw) => raw.get().to_owned(),
            })
            .collect();
        format!(r#"{{"parts":[{}]}}"#, parts.join(","))
    }
}

impl Piece {
    fn read(part: &RawValue) -> Self {
        let text = Members::read(part.get()).ok().and_then(|part| part.string("text"));
        text.map_or_else(|| Self::Raw(part.to_owned()), Self::Text)
    }

    fn size(&self) -> usize {
        let own = match self {
            Self::Text(text) => text.len(),
            Self::Raw(raw) => raw.get().len(),
        };
        OVERHEAD + own
    }
}

impl TaskState {
    fn is_waiting(&self) -> bool {
        matches!(self, Self::Interrupted(_))
    }
}

fn state(status: &RawValue) -> Option<TaskState> {
    state_of(status.get())
}

fn state_of(status: &str) -> Option<TaskState> {
    TaskState::parse(&Members::read(status).ok()?.string("state")?)
}

fn json(text: Option<&str>) -> String {
    serde_json::to_string(&text).expect("a text is always JSON")
}

#[cfg(test)]
mod tests;
