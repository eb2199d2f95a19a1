//! The scripted model: reads what the user said, line by line.
//!
//! | line | what happens |
//! |---|---|
//! | `tool_name {json}` | a call of a declared tool; the JSON object is its arguments, verbatim |
//! | `!sleep 250ms` | nothing, for so long (`ms`, `s`, `m`, `h`) |
//! | `!event {"type":"x","data":{…}}` | an event of that type with that data, verbatim |
//! | `!fail message` | the run ends with an `error` event |
//! | anything else | is said |
//!
//! Tool lines that follow one another are one turn of the model; any other line, an empty one too,
//! ends the turn. A line that looks like one of the above and is not, is said.
//!
//! Must not: know runs or events.

use std::{sync::Arc, time::Duration};

use serde_json::value::RawValue;

use super::spec::{Tool, Tools};
use crate::model::json::Members;

/// The model's reaction to one line.
#[derive(Debug)]
pub(super) enum Step {
    Say(String),
    Call(Call),
    Sleep(Duration),
    Event { kind: String, data: Box<RawValue> },
    Fail(String),
}

/// One call of a tool.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) name: String,
    pub(super) args: Box<RawValue>,
    pub(super) tool: Arc<Tool>,
}

/// The steps of a script.
pub(super) fn steps(script: &str, tools: &Tools) -> impl Iterator<Item = Step> {
    script.lines().map(|line| read_line(line, tools))
}

fn read_line(line: &str, tools: &Tools) -> Step {
    let trimmed = line.trim();
    let (word, rest) = trimmed.split_once(char::is_whitespace).unwrap_or((trimmed, ""));
    let rest = rest.trim();
    let step = match word {
        "!sleep" => read_duration(rest).map(Step::Sleep),
        "!event" => read_event(rest),
        "!fail" => Some(Step::Fail(rest.to_owned())),
        name => read_call(name, rest, tools).map(Step::Call),
    };
    step.unwrap_or_else(|| Step::Say(line.to_owned()))
}

fn read_call(name: &str, args: &str, tools: &Tools) -> Option<Call> {
    let tool = tools.get(name)?;
    Members::read(args).ok()?;
    let args = RawValue::from_string(args.to_owned()).ok()?;
    Some(Call { name: name.to_owned(), args, tool: Arc::clone(tool) })
}

fn read_event(text: &str) -> Option<Step> {
    let members = Members::read(text).ok()?;
    let kind: String = serde_json::from_str(members.get("type")?.get()).ok()?;
    // A frame has the type on a line of its own, so it may not contain line ends. Events that end a
    // run are reserved, as a run ends once.
    let legal = |byte: u8| byte.is_ascii_graphic();
    if kind.is_empty() || !kind.bytes().all(legal) || is_terminal(&kind) {
        return None;
    }
    let data = match members.get("data") {
        Some(data) => data.to_owned(),
        None => RawValue::from_string("{}".to_owned()).ok()?,
    };
    Some(Step::Event { kind, data })
}

/// Whether a run ends with an event of this type (wire-protocol §4).
pub(super) fn is_terminal(kind: &str) -> bool {
    matches!(kind, "result" | "error" | "cancelled")
}

fn read_duration(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits)?;
    let number: u32 = number.parse().ok()?;
    let unit = match unit {
        "ms" => Duration::from_millis(1),
        "s" => Duration::from_secs(1),
        "m" => Duration::from_mins(1),
        "h" => Duration::from_hours(1),
        _ => return None,
    };
    unit.checked_mul(number)
}

#[cfg(test)]
mod tests;
