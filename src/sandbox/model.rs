//! The scripted model: reads what the user said, line by line. `tool_name {json}` is a call of a
//! declared tool, and the JSON object its arguments, verbatim; anything else is said.
//!
//! Tool lines that follow one another are one turn of the model; any other line, an empty one too,
//! ends the turn.
//!
//! Must not: know runs or events.

use std::sync::Arc;

use serde_json::value::RawValue;

use super::spec::{Tool, Tools};
use crate::model::Members;

/// The model's reaction to one line.
#[derive(Debug)]
pub(super) enum Step {
    Say(String),
    Call(Call),
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
    script.lines().map(|line| {
        let call = read_call(line.trim(), tools).map(Step::Call);
        call.unwrap_or_else(|| Step::Say(line.to_owned()))
    })
}

fn read_call(line: &str, tools: &Tools) -> Option<Call> {
    let (name, args) = line.split_once(char::is_whitespace)?;
    let args = args.trim();
    let tool = tools.get(name)?;
    Members::read(args).ok()?;
    let args = RawValue::from_string(args.to_owned()).ok()?;
    Some(Call { name: name.to_owned(), args, tool: Arc::clone(tool) })
}

#[cfg(test)]
mod tests;
