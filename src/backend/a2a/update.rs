//! One event of an agent's stream: a task as it stands, a message, a change of its status, or a
//! piece of an artifact. Reads the forms of all wires.
//!
//! Must not: put events together (`backend::a2a::assembly` does), or trust their shape.

use serde_json::value::RawValue;

use super::result;
use super::result::{CONTEXT_ID, Stage, TASK_ID, first_string, id, parts_of, stated};
use crate::model::Members;

/// An event, and what it is about.
#[derive(Debug)]
pub(super) struct Event<'a> {
    pub task_id: Option<String>,
    pub context_id: Option<String>,
    pub update: Update<'a>,
}

#[derive(Debug)]
pub(super) enum Update<'a> {
    /// The task as it stands: what came before it is in it.
    Task(Members<'a>),
    /// The reply, or, with a task, what the agent says while it works.
    Message(&'a RawValue),
    /// The new `TaskStatus`.
    Status(&'a RawValue),
    Artifact(ArtifactUpdate<'a>),
}

/// An artifact, or its next piece.
#[derive(Debug)]
pub(super) struct ArtifactUpdate<'a> {
    pub artifact: Members<'a>,
    /// It follows what the artifact has, and does not replace it.
    pub is_appended: bool,
    /// Nothing follows it.
    pub is_last: bool,
}

/// The event is none that A2A knows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum UnknownEvent {
    #[error("an event of its stream is not a JSON object ({0})")]
    NotAnObject(String),
    #[error("an event of its stream is of a kind that A2A does not know")]
    UnknownKind,
}

/// Reads an event. 1.0 and the protobuf form of 0.3 wrap it in a member with the name of its kind;
/// 0.3 over JSON-RPC has the name in `kind`.
pub(super) fn read(event: &RawValue) -> Result<Event<'_>, UnknownEvent> {
    let not_an_object = |error: serde_json::Error| UnknownEvent::NotAnObject(error.to_string());
    let outer = Members::read(event.get()).map_err(not_an_object)?;
    for (key, kind) in WRAPPED {
        if let Some(inner) = stated(&outer, key) {
            let members = Members::read(inner.get()).map_err(not_an_object)?;
            return kind.event(inner, members).ok_or(UnknownEvent::UnknownKind);
        }
    }
    let stated_kind = outer.string("kind").and_then(|name| Kind::from_name(&name));
    let kind =
        stated_kind.or_else(|| Kind::from_members(&outer)).ok_or(UnknownEvent::UnknownKind)?;
    kind.event(event, outer).ok_or(UnknownEvent::UnknownKind)
}

impl Event<'_> {
    /// How far the work is, as this event tells.
    pub(super) fn stage(&self) -> Stage {
        match &self.update {
            Update::Task(task) => stated(task, "status").map_or(Stage::Unfinished, result::stage),
            Update::Status(status) => result::stage(status),
            Update::Message(_) if self.task_id.is_none() => Stage::Ended,
            Update::Message(_) | Update::Artifact(_) => Stage::Unfinished,
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Task,
    Message,
    Status,
    Artifact,
}

const WRAPPED: [(&str, Kind); 5] = [
    ("statusUpdate", Kind::Status),
    ("artifactUpdate", Kind::Artifact),
    ("task", Kind::Task),
    ("message", Kind::Message),
    ("msg", Kind::Message),
];

impl Kind {
    fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "task" => Self::Task,
            "message" => Self::Message,
            "status-update" => Self::Status,
            "artifact-update" => Self::Artifact,
            _ => return None,
        })
    }

    /// The kind of an event that does not name it.
    fn from_members(event: &Members<'_>) -> Option<Self> {
        let has = |key| stated(event, key).is_some();
        if has("artifact") {
            Some(Self::Artifact)
        } else if has("status") {
            Some(if has("id") { Self::Task } else { Self::Status })
        } else if parts_of(event).is_some() {
            Some(Self::Message)
        } else {
            None
        }
    }

    /// `None` if `members` lack what the kind is about.
    fn event<'a>(self, raw: &'a RawValue, members: Members<'a>) -> Option<Event<'a>> {
        let context_id = id(&members, CONTEXT_ID);
        let task_id = match self {
            Self::Task => id(&members, &["id"]),
            Self::Message | Self::Status | Self::Artifact => id(&members, TASK_ID),
        };
        let update = match self {
            Self::Task => Update::Task(members),
            Self::Message => Update::Message(raw),
            Self::Status => Update::Status(stated(&members, "status")?),
            Self::Artifact => Update::Artifact(ArtifactUpdate {
                artifact: members.object("artifact")?,
                is_appended: is_true(&members, &["append"]),
                is_last: is_true(&members, &["lastChunk", "last_chunk"]),
            }),
        };
        Some(Event { task_id, context_id, update })
    }
}

fn is_true(members: &Members<'_>, keys: &[&str]) -> bool {
    keys.iter().any(|key| members.get(key).is_some_and(|value| value.get() == "true"))
}

/// The id of an artifact; agents that make one alone may leave it out.
pub(super) fn artifact_id(artifact: &Members<'_>) -> String {
    first_string(artifact, &["artifactId", "artifact_id"]).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    //! Events of every wire.

    use super::*;

    fn shown(event: &str) -> String {
        let raw: &RawValue = serde_json::from_str(event).unwrap();
        match read(raw) {
            Ok(Event { task_id, context_id, update }) => {
                let ids = [task_id, context_id].map(Option::unwrap_or_default).join(" ");
                let update = match update {
                    Update::Task(_) => "task".to_owned(),
                    Update::Message(_) => "message".to_owned(),
                    Update::Status(status) => status.get().to_owned(),
                    Update::Artifact(update) => format!(
                        "{} {} {}",
                        artifact_id(&update.artifact),
                        update.is_appended,
                        update.is_last
                    ),
                };
                format!("{ids}: {update}")
            }
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn event_of_each_wire_is_read() {
        for (event, expected) in [
            (r#"{"kind":"task","id":"t","contextId":"c","status":{}}"#, "t c: task"),
            (r#"{"task":{"id":"t","contextId":"c"}}"#, "t c: task"),
            (r#"{"kind":"message","taskId":"t","parts":[]}"#, "t : message"),
            (r#"{"msg":{"contextId":"c","content":[]}}"#, " c: message"),
            (r#"{"parts":[]}"#, " : message"),
            (
                r#"{"kind":"status-update","taskId":"t","contextId":"c","status":{"a":1}}"#,
                r#"t c: {"a":1}"#,
            ),
            (r#"{"kind":"status-update","task_id":"t","context_id":"c","status":{}}"#, "t c: {}"),
            (r#"{"statusUpdate":{"taskId":"t","status":{}}}"#, "t : {}"),
            (r#"{"taskId":"t","status":{}}"#, "t : {}"),
            (
                r#"{"kind":"artifact-update","taskId":"t","artifact":{"artifactId":"a"},"append":true}"#,
                "t : a true false",
            ),
            (
                r#"{"artifactUpdate":{"taskId":"t","artifact":{"parts":[]},"lastChunk":true}}"#,
                "t :  false true",
            ),
        ] {
            assert_eq!(shown(event), expected, "{event}");
        }
    }

    #[test]
    fn event_of_another_kind_is_refused() {
        for event in ["{}", r#"{"kind":"thought"}"#, r#"{"statusUpdate":{"taskId":"t"}}"#] {
            assert_eq!(shown(event), UnknownEvent::UnknownKind.to_string(), "{event}");
        }
        assert!(shown("[1]").starts_with("an event of its stream is not"));
    }
}
