//! The state of one run: which events have been seen, which calls are the bridge's, and what to do
//! next. Event in, step out.
//!
//! A run that the bridge submitted is known from its first event. An attached run has a past: its
//! calls are held until the past has been read ([`Run::settle`]), as other clients may have
//! answered them.
//!
//! Must not: do IO, spawn, or look at a clock; every ordering rule is tested here without them.

use std::sync::Arc;

use super::event::Body;
use super::ids::is_segment;
use super::replay::Unnumbered;
use super::sentences;
use super::{Call, Event, Route, RunEnding, RunId, RunKind, Table, Target, ToolUseId};
use crate::model::maps::HashMap;

/// What the driver does about one event.
#[derive(Debug)]
#[cfg_attr(test, derive(PartialEq))]
pub enum Step {
    /// A repetition: do nothing.
    Skip,
    /// Hand it to the app as it is.
    Relay,
    /// Hand it to the app masked, as it is a call for the bridge; then do what `CallAction` says.
    Mask(Call, CallAction),
    /// Hand it to the app; the run has ended so.
    Finish(RunEnding),
}

/// What the driver does about a call that is the bridge's.
#[derive(Debug, Clone)]
#[cfg_attr(test, derive(PartialEq))]
pub enum CallAction {
    /// Make the call and post the answer.
    Make(Route),
    /// Like `Make`, but the call may have been made before: the record of the run's past is lost,
    /// and the run's log has no answer.
    Doubtful(Route),
    /// Post this error; nothing is called.
    Refuse(String),
    /// Nothing: the call was taken before, or its answer is in the run's log.
    Nothing,
    /// Nothing yet: the past is still being read. [`Run::settle`] returns the call.
    Hold,
    /// Nothing, and warn the operator: an id that was taken before came with another content.
    Altered,
    /// Nothing, and warn the operator: an eval's call names no agent run to answer to.
    Astray,
}

impl CallAction {
    /// The call may have been made. Only `Make` reaches a tool, so only `Make` becomes doubtful.
    fn doubt(&mut self) {
        if let Self::Make(route @ Route { target: Target::Tool { .. }, .. }) = self {
            *self = Self::Doubtful(route.clone());
        }
    }
}

/// One run.
#[derive(Debug)]
pub struct Run {
    kind: RunKind,
    table: Arc<Table>,
    last_seq: u64,
    /// The last event of the past that an earlier process read: up to it, other clients may have
    /// answered calls, and which ones is not known any more. 0 for any other run.
    read_to: u64,
    unnumbered: Unnumbered,
    /// Every call for the bridge that was seen, with a hash of its content; `None` if only its
    /// answer was seen.
    contents: HashMap<Key, Option<u64>>,
    /// Calls of a run that has ended: only their number is still asked for.
    forgotten: usize,
    /// While the past is being read: the calls without an answer so far, in their order.
    past_calls: Option<Vec<(Call, CallAction)>>,
    /// The record of the past is lost: a call there may have been made.
    past_is_lost: bool,
}

/// A call that was taken before the bridge was restarted.
#[derive(Debug, Clone)]
pub struct EarlierCall {
    /// Of an eval, the agent run.
    pub agent_run: Option<RunId>,
    pub tool_use: ToolUseId,
    /// [`Call::content`].
    pub content: u64,
}

/// What identifies a call: an eval has the calls of many agent runs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    agent_run: Option<RunId>,
    tool_use: ToolUseId,
}

impl Run {
    /// A run that begins now.
    pub fn new(kind: RunKind, table: Arc<Table>) -> Self {
        Self {
            kind,
            table,
            last_seq: 0,
            read_to: 0,
            unnumbered: Unnumbered::default(),
            contents: HashMap::default(),
            forgotten: 0,
            past_calls: None,
            past_is_lost: false,
        }
    }

    /// A run whose calls other clients have answered so far.
    pub fn with_past(kind: RunKind, table: Arc<Table>) -> Self {
        Self { past_calls: Some(Vec::new()), ..Self::new(kind, table) }
    }

    /// A run that was driven before the bridge was restarted.
    ///
    /// `seen` are its calls so far that need no further decision. `again` are those to be made,
    /// unless the stream brings their answers first. The stream is read on behind `last_seq`. Up to
    /// `read_to`, other clients may have answered calls that are in neither list.
    pub fn resumed(
        kind: RunKind,
        table: Arc<Table>,
        (read_to, last_seq): (u64, u64),
        seen: impl IntoIterator<Item = EarlierCall>,
        again: Vec<Call>,
    ) -> Self {
        let mut this = Self { last_seq, read_to, ..Self::with_past(kind, table) };
        for EarlierCall { agent_run, tool_use, content } in seen {
            let key = this.key(agent_run.as_ref(), &tool_use);
            this.contents.insert(key, Some(content));
        }
        for call in again {
            // The same table claimed the call before.
            if let Some(route) = this.table.route_of_call(&call).cloned() {
                let action = this.action_for(&call, route);
                this.past_calls.get_or_insert_default().push((call, action));
            }
        }
        this
    }

    /// A run that was driven before, and whose record may be incomplete. It is read from its
    /// beginning, and a call without an answer there may have been made.
    ///
    /// `seen` and `again` are as for [`Self::resumed`].
    pub fn with_lost_past(
        kind: RunKind,
        table: Arc<Table>,
        seen: impl IntoIterator<Item = EarlierCall>,
        again: Vec<Call>,
    ) -> Self {
        Self { past_is_lost: true, ..Self::resumed(kind, table, (0, 0), seen, again) }
    }

    /// Whether calls of the past may have been made without a record.
    pub fn past_is_lost(&self) -> bool {
        self.past_is_lost
    }

    /// The last event that was handled: a broken stream resumes behind it.
    pub fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// Notes that the stream is open, for the first time or again.
    pub fn opened(&mut self) {
        self.unnumbered.reopened();
    }

    /// Whether the bridge answers `tool_use`, so that no other client may. In an eval, `agent_run`
    /// asks for it.
    pub fn owns(&self, agent_run: &RunId, tool_use: &ToolUseId) -> bool {
        let key = self.key(Some(agent_run), tool_use);
        self.contents.get(&key).is_some_and(Option::is_some)
    }

    /// The number of calls for the bridge, those included that [`Self::forget_calls`] dropped.
    pub fn calls(&self) -> usize {
        self.forgotten + self.contents.values().filter(|content| content.is_some()).count()
    }

    /// Forgets which calls there were, to free their memory. The run has ended: none comes again.
    pub fn forget_calls(&mut self) {
        self.forgotten = self.calls();
        self.contents = HashMap::default();
    }

    /// Whether calls are held until [`Run::settle`].
    pub fn has_past(&self) -> bool {
        self.past_calls.is_some()
    }

    /// Holds calls as if the run had just been attached, as no driver has read it for a while.
    /// Calls that were taken before stay taken.
    pub fn hold(&mut self) {
        self.past_calls.get_or_insert_default();
    }

    /// The filter for repetitions in a new stream of this run, for a reader that has all events so
    /// far.
    pub fn repetitions(&self) -> Unnumbered {
        let mut unnumbered = self.unnumbered.clone();
        unnumbered.reopened();
        unnumbered
    }

    /// Ends the past, and returns the calls that it left without an answer.
    pub fn settle(&mut self) -> Vec<(Call, CallAction)> {
        let mut calls = self.past_calls.take().unwrap_or_default();
        // Other clients may have answered calls up to here, also a call that comes late.
        self.read_to = self.read_to.max(self.last_seq);
        if std::mem::take(&mut self.past_is_lost) {
            for (_, action) in &mut calls {
                action.doubt();
            }
        }
        calls
    }

    /// Handles the next event.
    ///
    /// An event whose `seq` is not beyond the last one is a repetition (wire-protocol §10), and so
    /// is one without `seq` that a newly opened stream begins with again. Two kinds of events are
    /// never repetitions, whatever their `seq` is. One is a call for the bridge that was not taken,
    /// as MANTYX waits for its answer. The other is the run's last event, as the driver stops once
    /// it has read it.
    pub fn on_event(&mut self, event: Event) -> Step {
        let repeated = match (event.seq, event.print) {
            (Some(seq), _) if seq <= self.last_seq => true,
            (Some(seq), _) => {
                self.last_seq = seq;
                false
            }
            (None, Some(print)) => self.unnumbered.repeats(print),
            (None, None) => false,
        };
        let ends_run = matches!(event.body, Body::End(kind, _) if kind == self.kind);
        if repeated && !ends_run && !self.is_new_call(&event) {
            if let Body::Answered(agent_run, tool_use) = &event.body {
                self.on_answered(agent_run.as_ref(), tool_use);
            }
            return Step::Skip;
        }
        match event.body {
            Body::Call(call) => self.on_call(call, event.seq),
            Body::Answered(agent_run, tool_use) => {
                self.on_answered(agent_run.as_ref(), &tool_use);
                Step::Relay
            }
            Body::End(_, ending) if ends_run => {
                if let Some(past_calls) = &mut self.past_calls {
                    past_calls.clear();
                }
                Step::Finish(ending)
            }
            Body::End(..) | Body::Other => Step::Relay,
        }
    }

    /// Whether an event that looks like a repetition is a call that was not taken.
    ///
    /// The numbers of an eval's events may be those of its agent runs, each of which begins at one.
    /// In the stream of an agent run, calls that are published at once may come out of order.
    fn is_new_call(&self, event: &Event) -> bool {
        let Body::Call(call) = &event.body else { return false };
        self.table.route_of_call(call).is_some()
            && !self.contents.contains_key(&self.key(call.agent_run.as_ref(), &call.tool_use))
    }

    fn key(&self, agent_run: Option<&RunId>, tool_use: &ToolUseId) -> Key {
        // The stream of an agent run has only its own calls, whatever an event says.
        let agent_run = agent_run.filter(|_| self.kind == RunKind::Eval).cloned();
        Key { agent_run, tool_use: tool_use.clone() }
    }

    fn on_answered(&mut self, agent_run: Option<&RunId>, tool_use: &ToolUseId) {
        let key = self.key(agent_run, tool_use);
        if let Some(past_calls) = &mut self.past_calls {
            // If an eval's answer names no run, only the tool use can identify the call.
            past_calls.retain(|(call, _)| {
                call.tool_use != *tool_use
                    || key.agent_run.is_some() && call.agent_run != key.agent_run
            });
        }
        // An eval's answer that names no run says nothing about later calls: the next one with this
        // tool use may be another agent run's.
        if self.kind == RunKind::Agent || key.agent_run.is_some() {
            self.contents.entry(key).or_insert(None);
        }
    }

    fn on_call(&mut self, call: Call, seq: Option<u64>) -> Step {
        let Some(route) = self.table.route_of_call(&call).cloned() else { return Step::Relay };
        let mut action = self.action_for(&call, route);
        // The numbers of an eval's events may be those of its agent runs.
        if self.kind == RunKind::Agent && seq.is_some_and(|seq| seq <= self.read_to) {
            action.doubt();
        }
        let action_now = match (&mut self.past_calls, action) {
            (
                Some(past_calls),
                action @ (CallAction::Make(_) | CallAction::Doubtful(_) | CallAction::Refuse(_)),
            ) => {
                past_calls.push((call.clone(), action));
                CallAction::Hold
            }
            (_, action) => action,
        };
        Step::Mask(call, action_now)
    }

    fn action_for(&mut self, call: &Call, route: Route) -> CallAction {
        let agent_run = call.agent_run.as_ref();
        if self.kind == RunKind::Eval && !agent_run.is_some_and(|run| is_segment(run.as_str())) {
            return CallAction::Astray;
        }
        let content = call.content();
        match self.contents.insert(self.key(agent_run, &call.tool_use), Some(content)) {
            Some(Some(before)) if before != content => CallAction::Altered,
            Some(_) => CallAction::Nothing,
            // Tools take an object. The placeholder for arguments that are too large is none.
            None if !call.args.get().starts_with('{') => {
                CallAction::Refuse(sentences::arguments_unreadable(&call.name))
            }
            None if route.is_meant_by(call) => CallAction::Make(route),
            None if call.kind == Some(route.kind) => {
                CallAction::Refuse(sentences::tool_of_other_server(&call.name))
            }
            None => {
                let kind = route.kind.as_str();
                CallAction::Refuse(sentences::tool_of_other_kind(&call.name, kind))
            }
        }
    }
}

#[cfg(test)]
mod tests;
