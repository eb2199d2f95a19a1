//! The specs of clients: reads the bodies of `POST agent-runs`, `POST agent-sessions` and `POST
//! agent-sessions/{id}/messages`. `bodies.json` has the limits of agent-runs-protocol §4; the few
//! that a schema cannot express are here.
//!
//! If a limit is written as "KB" or "MB", the smaller reading applies, so that a body which passes
//! here passes under either. Members that the protocol does not know are kept and otherwise
//! ignored. So are those for the model (`outputSchema`, `reasoningLevel`, `plan`, `toolBudgets` and
//! others), once they are checked: the model is a script.
//!
//! Must not: know runs or sessions, or change a byte that it keeps.

mod tools;
mod turn;

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

pub(super) use self::tools::{Kind, Tool, Tools};
pub(super) use self::turn::{Message, Role, Turn};
use super::{Invalid, read};
use crate::model::Members;

pub(super) type Metadata = BTreeMap<String, String>;

/// The agent of one run or session.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Spec {
    pub(super) name: Option<String>,
    pub(super) agent_id: Option<String>,
    pub(super) model_id: Option<String>,
    pub(super) system_prompt: Option<String>,
    #[serde(default)]
    pub(super) metadata: Metadata,
    #[serde(skip)]
    pub(super) tools: Tools,
    /// The spec as it was sent, without the input.
    #[serde(skip)]
    pub(super) raw: Box<RawValue>,
}

/// A message's request to its session: its input, and the message as it was sent without that.
pub(super) type MessageSpec = (Turn, Box<RawValue>);

/// Reads the body of `POST agent-runs`.
pub(super) fn read_run(bytes: &[u8]) -> Result<(Spec, Turn), Invalid> {
    let (turn, raw) = read_message(bytes)?;
    let spec = Spec::read(raw)?;
    if !spec.has_identity() && !turn.has_system_message() {
        let why =
            "a run needs `systemPrompt`, `agentId` or a non-empty system message in `messages`";
        return Err(why.to_owned());
    }
    Ok((spec, turn))
}

/// Reads the body of `POST agent-sessions`.
pub(super) fn read_session(bytes: &[u8]) -> Result<Spec, Invalid> {
    let body = read_body(bytes)?;
    for key in ["prompt", "messages"] {
        if body.get(key).is_some() {
            return Err(format!(
                "/{key}: does not belong into the spec of a session; send it to \
                 agent-sessions/{{id}}/messages"
            ));
        }
    }
    let spec = Spec::read(without_input(bytes)?)?;
    if !spec.has_identity() {
        return Err("a session needs `systemPrompt` or `agentId`".to_owned());
    }
    Ok(spec)
}

/// Reads the body of `POST agent-sessions/{id}/messages`.
pub(super) fn read_message(bytes: &[u8]) -> Result<MessageSpec, Invalid> {
    Ok((Turn::read(&read_body(bytes)?)?, without_input(bytes)?))
}

impl Spec {
    /// Reads a spec that has been checked.
    fn read(raw: Box<RawValue>) -> Result<Self, Invalid> {
        let body: Value = serde_json::from_str(raw.get()).map_err(unreadable)?;
        let mut spec: Self = read::members(&body)?;
        spec.tools = Tools::read(&body, &raw)?;
        spec.raw = raw;
        Ok(spec)
    }

    fn has_identity(&self) -> bool {
        self.agent_id.is_some()
            || self.system_prompt.as_ref().is_some_and(|prompt| !prompt.is_empty())
    }

    /// The spec of one run in a session: members of the message replace those of the session,
    /// `metadata` key by key (agent-runs-protocol §4.10, wire-protocol §2.2).
    pub(super) fn for_message(&self, (turn, raw): MessageSpec) -> Result<(Self, Turn), Invalid> {
        let mut spec = Self::read(overlay(&self.raw, &raw)?)?;
        for (key, value) in &self.metadata {
            spec.metadata.entry(key.clone()).or_insert_with(|| value.clone());
        }
        Ok((spec, turn))
    }
}

/// Reads a body with a spec, and checks the rules that a schema cannot express.
fn read_body(bytes: &[u8]) -> Result<Value, Invalid> {
    const MAX_OUTPUT_SCHEMA: usize = 32_000;
    const MAX_METADATA: usize = 4_000;
    let body = read::body(bytes, "spec")?;
    for (key, max) in [("outputSchema", MAX_OUTPUT_SCHEMA), ("metadata", MAX_METADATA)] {
        read::fits(&format!("/{key}"), body[key].to_string().len(), max)?;
    }
    Ok(body)
}

fn unreadable(error: impl std::fmt::Debug) -> Invalid {
    format!("the body cannot be read: {error:?}")
}

/// The members of a body without its input, each as it was sent.
fn without_input(body: &[u8]) -> Result<Box<RawValue>, Invalid> {
    let text: &RawValue = serde_json::from_slice(body).map_err(unreadable)?;
    let mut members = Members::read(text.get()).map_err(unreadable)?;
    members.0.retain(|(key, _)| !matches!(key.as_ref(), "prompt" | "messages"));
    Ok(write_object(&members.0))
}

/// `base`, with members replaced by those of `over`.
fn overlay(base: &RawValue, over: &RawValue) -> Result<Box<RawValue>, Invalid> {
    let mut members = Members::read(base.get()).map_err(unreadable)?;
    let replacements = Members::read(over.get()).map_err(unreadable)?;
    members.0.retain(|(key, _)| replacements.get(key).is_none());
    members.0.extend(replacements.0);
    Ok(write_object(&members.0))
}

fn write_object(members: &[(Cow<'_, str>, &RawValue)]) -> Box<RawValue> {
    let texts: Vec<String> =
        members.iter().map(|(key, value)| format!("{}:{value}", Value::from(&**key))).collect();
    let text = format!("{{{}}}", texts.join(","));
    RawValue::from_string(text).expect("made of whole JSON values")
}

#[cfg(test)]
mod tests;
