//! The specs of clients: checks the bodies of `POST agent-runs`, `POST agent-sessions` and `POST
//! agent-sessions/{id}/messages` against the limits of agent-runs-protocol §4.
//!
//! If a limit is written as "KB" or "MB", the smaller reading applies, so that a body which passes
//! here passes under either. Members that the protocol does not know are kept and otherwise
//! ignored.
//!
//! Must not: know runs or sessions, or change a byte that it keeps.

mod guards;
mod tools;
mod turn;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use serde_json::value::RawValue;

pub(super) use self::{
    guards::{Plan, Schema},
    tools::{Kind, Tool, Tools},
    turn::{Attachment, Message, Role, Turn},
};
use super::read::{self, Invalid, Object};

pub(super) type Metadata = BTreeMap<String, String>;

/// The agent of one run or session.
#[derive(Debug, Clone)]
pub(super) struct Spec {
    pub(super) name: Option<String>,
    pub(super) agent_id: Option<String>,
    pub(super) model_id: Option<String>,
    pub(super) system_prompt: Option<String>,
    pub(super) tools: Arc<Tools>,
    pub(super) options: Options,
    pub(super) metadata: Metadata,
    /// The spec as it was sent, without the input.
    pub(super) raw: Arc<RawValue>,
}

/// The options that a session sets for all its runs, and that a message may set for its own run.
#[derive(Debug, Clone, Default)]
pub(super) struct Options {
    pub(super) effort: Option<&'static str>,
    pub(super) schema: Option<Schema>,
    pub(super) plan: Option<Plan>,
    /// How often each tool may be called.
    pub(super) budgets: Option<Arc<HashMap<String, u64>>>,
}

/// A message's request to its session.
#[derive(Debug)]
pub(super) struct MessageSpec {
    turn: Turn,
    tools: Option<Tools>,
    options: Options,
    metadata: Metadata,
    /// The message as it was sent, without the input.
    raw: Box<RawValue>,
}

/// Reads the body of `POST agent-runs`.
pub(super) fn read_run(bytes: &[u8]) -> Result<(Spec, Turn), Invalid> {
    let body = read::body(bytes)?;
    let turn = turn::read(&body)?;
    let spec = read_spec(&body)?;
    if !spec.has_identity() && !turn.has_system_message() {
        return Err(body.invalid(
            "a run needs `systemPrompt`, `agentId` or a non-empty system message in `messages`",
        ));
    }
    Ok((spec, turn))
}

/// Reads the body of `POST agent-sessions`.
pub(super) fn read_session(bytes: &[u8]) -> Result<Spec, Invalid> {
    let body = read::body(bytes)?;
    for key in ["prompt", "messages"] {
        if let Some(value) = body.get(key) {
            return Err(value.invalid(
                "does not belong into the spec of a session; send it to \
                 agent-sessions/{id}/messages",
            ));
        }
    }
    let spec = read_spec(&body)?;
    if !spec.has_identity() {
        return Err(body.invalid("a session needs `systemPrompt` or `agentId`"));
    }
    Ok(spec)
}

/// Reads the body of `POST agent-sessions/{id}/messages`.
pub(super) fn read_message(bytes: &[u8]) -> Result<MessageSpec, Invalid> {
    let body = read::body(bytes)?;
    Ok(MessageSpec {
        turn: turn::read(&body)?,
        tools: body.get("tools").map(|value| Tools::read(&value)).transpose()?,
        options: read_options(&body)?,
        metadata: read_metadata(&body)?,
        raw: without_input(&body),
    })
}

impl Spec {
    fn has_identity(&self) -> bool {
        self.agent_id.is_some() || self.system_prompt.is_some()
    }

    /// The spec of one run in a session: members of the message replace those of the session,
    /// `metadata` key by key (agent-runs-protocol §4.10, wire-protocol §2.2).
    pub(super) fn for_message(&self, message: MessageSpec) -> (Self, Turn) {
        let mut metadata = self.metadata.clone();
        metadata.extend(message.metadata);
        let options = Options {
            effort: message.options.effort.or(self.options.effort),
            schema: message.options.schema.or(self.options.schema),
            plan: message.options.plan.or_else(|| self.options.plan.clone()),
            budgets: message.options.budgets.or_else(|| self.options.budgets.clone()),
        };
        let spec = Self {
            tools: message.tools.map_or_else(|| Arc::clone(&self.tools), Arc::new),
            options,
            metadata,
            raw: overlay(&self.raw, &message.raw),
            ..self.clone()
        };
        (spec, message.turn)
    }
}

fn read_spec(body: &Object<'_>) -> Result<Spec, Invalid> {
    let model_id = body.non_empty("modelId")?;
    let fallback = body.non_empty("fallbackModelId")?;
    if fallback.is_some() && fallback == model_id {
        return Err(body.invalid("fallbackModelId: must be another model than modelId"));
    }
    guards::check(body)?;
    Ok(Spec {
        name: body.string("name")?,
        agent_id: body.non_empty("agentId")?,
        model_id,
        system_prompt: body.string("systemPrompt")?.filter(|prompt| !prompt.is_empty()),
        tools: Arc::new(match body.get("tools") {
            Some(tools) => Tools::read(&tools)?,
            None => Tools::default(),
        }),
        options: read_options(body)?,
        metadata: read_metadata(body)?,
        raw: without_input(body).into(),
    })
}

fn read_options(body: &Object<'_>) -> Result<Options, Invalid> {
    Ok(Options {
        effort: guards::read_effort(body)?,
        schema: guards::read_schema(body)?,
        plan: guards::read_plan(body)?,
        budgets: guards::read_budgets(body)?.map(Arc::new),
    })
}

/// Reads `metadata` (agent-runs-protocol §4.10).
fn read_metadata(body: &Object<'_>) -> Result<Metadata, Invalid> {
    const MAX_ENTRIES: usize = 16;
    const MAX_KEY: usize = 64;
    const MAX_VALUE: usize = 256;
    const MAX_SIZE: usize = 4_000;
    let Some(value) = body.get("metadata") else {
        return Ok(Metadata::new());
    };
    let object = value.object()?;
    value.fits(object.len(), MAX_ENTRIES, "entries")?;
    value.is_short(MAX_SIZE)?;
    let mut metadata = Metadata::new();
    for (key, value) in object.members() {
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        if key.is_empty() || key.len() > MAX_KEY || !key.bytes().all(legal) {
            return Err(value.invalid("the key must match ^[A-Za-z0-9._-]{1,64}$"));
        }
        let text = value.string()?;
        if text.chars().count() > MAX_VALUE {
            return Err(value.invalid(format_args!("is longer than {MAX_VALUE} characters")));
        }
        metadata.insert(key.to_owned(), text);
    }
    Ok(metadata)
}

/// The members of a body without its input, each as it was sent.
fn without_input(body: &Object<'_>) -> Box<RawValue> {
    let kept = body.members().filter(|(key, _)| !matches!(*key, "prompt" | "messages"));
    write_object(kept.map(|(key, value)| (key.to_owned(), value.raw.get().to_owned())))
}

/// `base`, with members replaced by those of `over`.
fn overlay(base: &RawValue, over: &RawValue) -> Arc<RawValue> {
    let (Ok(base_members), Ok(over)) = (
        crate::model::json::Members::read(base.get()),
        crate::model::json::Members::read(over.get()),
    ) else {
        return base.to_owned().into();
    };
    let stays = base_members.0.iter().filter(|(key, _)| over.get(key).is_none());
    let members = stays.chain(&over.0);
    write_object(members.map(|(key, raw)| (key.to_string(), raw.get().to_owned()))).into()
}

fn write_object(members: impl Iterator<Item = (String, String)>) -> Box<RawValue> {
    let mut text = String::from("{");
    for (key, value) in members {
        if text.len() > 1 {
            text.push(',');
        }
        text.push_str(&serde_json::to_string(&key).expect("a string is JSON"));
        text.push(':');
        text.push_str(&value);
    }
    text.push('}');
    RawValue::from_string(text).expect("made of whole JSON values")
}

#[cfg(test)]
mod tests;
