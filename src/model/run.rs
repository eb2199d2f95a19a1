//! The state of one run: which events have been seen, which calls are the bridge's, and what to do
//! next. Event in, step out.
//!
//! Must not: do IO, spawn, or look at a clock; every ordering rule is tested here without them.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
};

use super::{
    event::{Body, Call, Event},
    ids::ToolUseId,
    offer::Route,
    spec::Table,
};

/// What the driver does about one event.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// Seen before: nothing.
    Skip,
    /// Hand it to the app as it is.
    Relay,
    /// Hand it to the app masked, for it is a call of the bridge's; then do what `Work` says.
    Mask(Call, Work),
    /// Hand it to the app; the run has ended.
    Finish,
}

/// What a call of the bridge's asks for.
#[derive(Debug, PartialEq)]
pub enum Work {
    /// Make the call and post the answer.
    Make(Route),
    /// Post this error; nothing is called.
    Refuse(String),
    /// Nothing: the call was taken before, or its answer stands in the run's log.
    Nothing,
    /// Nothing, and tell the operator: an id that was taken before came with another content.
    Altered,
}

/// One run.
#[derive(Debug)]
pub struct Run {
    table: Arc<Table>,
    last_seq: u64,
    /// Every call of the bridge's that was seen, with a hash of its content; `None` where only
    /// its answer was seen.
    taken: HashMap<ToolUseId, Option<u64>>,
}

impl Run {
    pub fn new(table: Arc<Table>) -> Self {
        Self { table, last_seq: 0, taken: HashMap::new() }
    }

    /// The last event that was taken in: where a broken stream resumes.
    pub fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// Whether the bridge answers `tool_use`, so that nobody else may.
    pub fn owns(&self, tool_use: &ToolUseId) -> bool {
        self.taken.get(tool_use).is_some_and(Option::is_some)
    }

    /// Takes in the next event.
    ///
    /// An event whose `seq` is not beyond the last one is a repetition (wire-protocol §10). An
    /// event without `seq` is handed on, as its order cannot be told.
    pub fn on_event(&mut self, event: Event) -> Step {
        match event.seq {
            Some(seq) if seq <= self.last_seq => return Step::Skip,
            Some(seq) => self.last_seq = seq,
            None => {}
        }
        match event.body {
            Body::Call(call) => self.on_call(call),
            Body::Answered(tool_use) => {
                self.taken.entry(tool_use).or_insert(None);
                Step::Relay
            }
            Body::Terminal => Step::Finish,
            Body::Other => Step::Relay,
        }
    }

    fn on_call(&mut self, call: Call) -> Step {
        let Some(route) = self.table.route(&call.name) else { return Step::Relay };
        let content = content(&call);
        let work = match self.taken.insert(call.tool_use.clone(), Some(content)) {
            Some(Some(before)) if before != content => Work::Altered,
            Some(_) => Work::Nothing,
            None if call.kind == Some(route.kind) => Work::Make(route.clone()),
            None => Work::Refuse(format!(
                "The tool `{}` was offered as `{}` and called as another kind; it was not run.",
                call.name,
                route.kind.as_str(),
            )),
        };
        Step::Mask(call, work)
    }
}

fn content(call: &Call) -> u64 {
    let mut hasher = DefaultHasher::new();
    call.name.hash(&mut hasher);
    call.args.get().hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests;
