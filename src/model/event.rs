//! One event of a run's stream, as far as the bridge must understand it.
//!
//! The envelope is `{"seq","type","data"}` (wire-protocol §4); a frame whose `data` is the payload
//! itself, with the type in the `event:` field, is read as well. Eval streams are flat: the payload
//! stands beside the `type`, mostly without a `seq`.
//!
//! Must not: decide what to do about an event (run.rs does).

use std::borrow::Cow;

use serde::de::{DeserializeSeed, MapAccess, Visitor};
use serde::{Deserialize, Deserializer as _};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use sha2::Digest as _;

use super::catalog::hash_of;
use super::json::no_members;
use super::maps::fingerprint;
use super::words::Words as _;
use super::{RefKind, RunEnding, RunId, RunKind, ToolUseId, member};

/// One event.
#[derive(Debug)]
#[cfg_attr(test, derive(PartialEq, Eq))]
pub struct Event {
    /// Its number in the run's log; `None` for a frame without one.
    pub seq: Option<u64>,
    /// For an event without a `seq`: a hash of its text, which identifies a repetition.
    pub print: Option<u64>,
    /// The agent run of the event, in the stream of an eval.
    pub agent_run: Option<RunId>,
    pub body: Body,
}

/// What an event says.
#[derive(Debug)]
#[cfg_attr(test, derive(PartialEq, Eq))]
pub enum Body {
    /// `local_tool_call`: MANTYX asks for a tool on the client's side.
    Call(Call),
    /// `local_tool_result_in`: the call has been answered. An eval names the agent run.
    Answered(Option<RunId>, ToolUseId),
    /// A run of this kind has ended. In an eval's stream, the end of an agent run ends nothing.
    End(RunKind, RunEnding),
    /// Any other event: for people, not for the bridge.
    Other,
}

/// The payload of a `local_tool_call` (wire-protocol §4.3).
#[derive(Debug, Clone)]
pub struct Call {
    pub tool_use: ToolUseId,
    /// The agent run that asks for the call, in the stream of an eval.
    pub agent_run: Option<RunId>,
    pub name: String,
    /// The kind; `None` for one that the bridge does not know.
    pub kind: Option<RefKind>,
    /// Verbatim; `{}` if the event has none.
    pub args: Box<RawValue>,
    /// `mcpServer`, a cross-check only.
    pub mcp_server: Option<String>,
}

impl Call {
    /// Reads the payload of a `local_tool_call`.
    pub fn read(payload: &str) -> serde_json::Result<Self> {
        let data: CallData<'_> = serde_json::from_str(payload)?;
        let kind = data.kind.as_deref().unwrap_or("local");
        Ok(Self {
            agent_run: data.agent_run_id.map(RunId::from),
            kind: RefKind::parse(kind),
            mcp_server: data.mcp_server,
            ..Self::by_hand(&data.tool_use_id, data.name, data.args.or(data.input))
        })
    }

    /// A call that comes from no stream of MANTYX. Arguments that are missing or `null` are `{}`.
    pub fn by_hand(id: &str, name: String, args: Option<&RawValue>) -> Self {
        let args = match args {
            Some(args) if args.get() != "null" => args.to_owned(),
            _ => no_members(),
        };
        Self { tool_use: id.into(), agent_run: None, name, kind: None, args, mcp_server: None }
    }

    /// A hash of the call's content. It tells a repetition from another call under the same id. The
    /// journal keeps it over restarts, so it must be the same in every version.
    pub fn content(&self) -> u64 {
        let hash = hash_of([&self.name]).chain_update(self.args.get());
        hash.finalize().iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
    }
}

#[cfg(test)]
impl PartialEq for Call {
    fn eq(&self, other: &Self) -> bool {
        fn key(call: &Call) -> (&ToolUseId, Option<&RunId>, &str, Option<RefKind>, &str) {
            let Call { tool_use, agent_run, name, kind, args, mcp_server: _ } = call;
            (tool_use, agent_run.as_ref(), name, *kind, args.get())
        }
        key(self) == key(other)
    }
}

#[cfg(test)]
impl Eq for Call {}

#[derive(Deserialize)]
struct Envelope<'a> {
    seq: Option<u64>,
    #[serde(borrow, rename = "type")]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    #[serde(rename = "agentRunId")]
    agent_run_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CallData<'a> {
    tool_use_id: String,
    agent_run_id: Option<String>,
    name: String,
    #[serde(borrow)]
    args: Option<&'a RawValue>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
    #[serde(borrow)]
    kind: Option<Cow<'a, str>>,
    mcp_server: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResultData {
    tool_use_id: String,
    agent_run_id: Option<String>,
}

impl Event {
    /// Reads an event from the fields of its frame.
    ///
    /// # Errors
    ///
    /// A `local_tool_call` without its required fields, which the caller reports. Any other text
    /// that cannot be read is [`Body::Other`] and passed on.
    pub fn read(id: Option<&str>, event: Option<&str>, data: &str) -> serde_json::Result<Self> {
        let envelope: Option<Envelope<'_>> = serde_json::from_str(data).ok();
        let id = id.and_then(|id| id.parse().ok());
        let Some(Envelope { seq, kind, data: inner, agent_run_id }) = envelope else {
            let print = print_without(id, event, data);
            return Ok(Self { seq: id, print, agent_run: None, body: Body::Other });
        };
        let seq = seq.or(id);
        let print = print_without(seq, event, data);
        let agent_run = agent_run_id.map(RunId::from);
        let payload = match inner.map(RawValue::get) {
            Some(inner) if inner.starts_with('{') => inner,
            _ => data,
        };
        Ok(match kind.as_deref().or(event) {
            Some("local_tool_call") => {
                let mut call = Call::read(payload)?;
                call.agent_run = call.agent_run.or(agent_run);
                Self { seq, print, agent_run: call.agent_run.clone(), body: Body::Call(call) }
            }
            Some("local_tool_result_in") => {
                let result: ResultData = serde_json::from_str(payload)?;
                let agent_run = result.agent_run_id.map(RunId::from).or(agent_run);
                let body = Body::Answered(agent_run.clone(), result.tool_use_id.into());
                Self { seq, print, agent_run, body }
            }
            kind => Self { seq, print, agent_run, body: Body::without_payload(kind) },
        })
    }
}

/// The fingerprint of an event that has no number, by which its repetition is known.
fn print_without(seq: Option<u64>, event: Option<&str>, data: &str) -> Option<u64> {
    match seq {
        Some(_) => None,
        None => Some(fingerprint(&(event, data))),
    }
}

/// The input, cached and output tokens of a run, as its last event says (wire-protocol §4.8.1).
pub fn tokens(data: &str) -> Option<[u64; 3]> {
    let payload = member(data, "data").filter(|payload| payload.get().starts_with('{'));
    let tokens = member(payload.map_or(data, RawValue::get), "tokens")?;
    Some(["inputTokens", "cachedTokens", "outputTokens"].map(|key| {
        let count = member(tokens.get(), key).and_then(|count| count.get().parse().ok());
        count.unwrap_or(0)
    }))
}

impl Body {
    /// What an event of this type says that is no call and no answer to one.
    fn without_payload(kind: Option<&str>) -> Self {
        let (run_kind, ending) = match kind {
            Some("result") => (RunKind::Agent, RunEnding::Result),
            Some("error") => (RunKind::Agent, RunEnding::Error),
            Some("cancelled") => (RunKind::Agent, RunEnding::Cancelled),
            Some("run_completed") => (RunKind::Eval, RunEnding::Result),
            Some("run_error") => (RunKind::Eval, RunEnding::Error),
            Some("run_cancelled") => (RunKind::Eval, RunEnding::Cancelled),
            _ => return Self::Other,
        };
        Self::End(run_kind, ending)
    }
}

/// The facts in the beginning of an event that is larger than the bridge reads.
#[derive(Debug)]
#[cfg_attr(test, derive(PartialEq, Eq))]
pub struct Beginning {
    /// The event. A call has [`TOO_LARGE`] in place of its arguments.
    pub event: Event,
    /// Whether the beginning tells what kind of event it is.
    pub names_type: bool,
}

/// Takes the place of arguments that are too large. It is not an object, so no tool is called with
/// it.
const TOO_LARGE: &str = "(larger than the bridge reads)";

impl Beginning {
    /// Reads the fields of a frame, whose `data` is cut off somewhere.
    pub fn read(id: Option<&str>, event: Option<&str>, data: &str) -> Self {
        let mut whole = Map::new();
        let mut json = serde_json::Deserializer::from_str(data);
        // An error is expected: the text ends in the middle of the value that is too large. The
        // members before it are in `whole` by then.
        json.deserialize_map(Gather(&mut whole)).ok();
        let names_type = event.is_some() || whole.get("type").is_some_and(Value::is_string);
        let payload = match whole.get_mut("data").and_then(Value::as_object_mut) {
            Some(payload) => payload,
            None => &mut whole,
        };
        payload.insert("args".to_owned(), TOO_LARGE.into());
        let outcome = Event::read(id, event, &json!(whole).to_string());
        let mut event = outcome.unwrap_or_else(|_is_a_call_without_a_name| {
            whole.remove("type");
            Event::read(id, None, &json!(whole).to_string()).expect("it is no call any more")
        });
        event.print = None;
        if matches!(event.body, Body::Answered(..)) {
            event.body = Body::Other;
        }
        Self { event, names_type }
    }
}

/// Gathers the members before the end of a text, and those of the payload in it.
struct Gather<'a>(&'a mut Map<String, Value>);

impl<'de> DeserializeSeed<'de> for Gather<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Gather<'_> {
    type Value = ();

    fn expecting(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            if key == "data" {
                let data = self.0.entry(key).or_insert_with(|| Map::new().into());
                map.next_value_seed(Gather(data.as_object_mut().expect("it is always a map")))?;
            } else {
                self.0.insert(key, map.next_value()?);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
