//! The state of one run: which events have been seen, which calls are the bridge's, and what to do
//! next. Event in, step out.
//!
//! A run that the bridge submitted is known from its first event. One that is attached has a past:
//! its calls are held until the past has been read ([`Run::settle`]), as their answers may be in it.
//!
//! Must not: do IO, spawn, or look at a clock; every ordering rule is tested here without them.

use std::{collections::HashMap, sync::Arc};

use super::{
    answer::codes::TOOL_INPUT_INVALID,
    event::{Body, Call, Event},
    ids::{RunId, RunKind, ToolUseId, is_segment},
    offer::{Route, Target},
    replay::Unnumbered,
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
#[derive(Debug, Clone, PartialEq)]
pub enum Work {
    /// Make the call and post the answer.
    Make(Route),
    /// The same, but it may have been made before: what was known of the run's past is lost, and its
    /// log has no answer.
    Doubtful(Route),
    /// Post this error; nothing is called.
    Refuse(String),
    /// Nothing: the call was taken before, or its answer stands in the run's log.
    Nothing,
    /// Nothing yet: the past is still being read. [`Run::settle`] gives the call out.
    Hold,
    /// Nothing, and tell the operator: an id that was taken before came with another content.
    Altered,
    /// Nothing, and tell the operator: an eval's call names no agent run to answer to.
    Astray,
}

impl Work {
    /// Whether the call gets no answer by this.
    pub fn is_nothing(&self) -> bool {
        matches!(self, Self::Nothing | Self::Hold | Self::Altered | Self::Astray)
    }

    /// The call may have been made, for all that is known. Whatever else a call leads to, no tool is
    /// reached by it.
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
    /// Where the past ended that an earlier process read: up to here, others may have answered calls,
    /// and which ones is not known any more. 0 for any other run.
    read_to: u64,
    unnumbered: Unnumbered,
    /// Every call of the bridge's that was seen, with a hash of its content; `None` where only
    /// its answer was seen.
    taken: HashMap<Key, Option<u64>>,
    /// While the past is being read: the calls that no answer was seen of, in their order.
    held: Option<Vec<(Call, Work)>>,
    /// What an earlier process knew of the past is lost: what was called there may have been made.
    past_is_lost: bool,
}

/// A call that was taken before the bridge was restarted.
#[derive(Debug, Clone)]
pub struct Seen {
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
            taken: HashMap::new(),
            held: None,
            past_is_lost: false,
        }
    }

    /// A run that others have fed and answered so far.
    pub fn with_past(kind: RunKind, table: Arc<Table>) -> Self {
        Self { held: Some(Vec::new()), ..Self::new(kind, table) }
    }

    /// A run that was driven before the bridge was restarted.
    ///
    /// `seen` are its calls so far, of which nothing is to be decided any more; `again` are those
    /// that are to be made unless their answers stand in what the stream brings first. The stream is
    /// read on behind `last_seq`; up to `read_to`, others may have answered calls that are in neither.
    pub fn resumed(
        kind: RunKind,
        table: Arc<Table>,
        (read_to, last_seq): (u64, u64),
        seen: impl IntoIterator<Item = Seen>,
        again: Vec<Call>,
    ) -> Self {
        let mut this = Self { last_seq, read_to, ..Self::with_past(kind, table) };
        for Seen { agent_run, tool_use, content } in seen {
            let key = this.key(agent_run.as_ref(), &tool_use);
            this.taken.insert(key, Some(content));
        }
        for call in again {
            // The table is the one that claimed it before.
            if let Some(route) = this.table.claims(&call).cloned() {
                let work = this.work(&call, route);
                this.held.get_or_insert_default().push((call, work));
            }
        }
        this
    }

    /// A run that was driven before, and of which nobody can tell whether all that was known is there
    /// still: it is read from its beginning, and a call that has no answer then may have been made.
    ///
    /// `seen` and `again` are as for [`Self::resumed`].
    pub fn with_lost_past(
        kind: RunKind,
        table: Arc<Table>,
        seen: impl IntoIterator<Item = Seen>,
        again: Vec<Call>,
    ) -> Self {
        Self { past_is_lost: true, ..Self::resumed(kind, table, (0, 0), seen, again) }
    }

    /// Whether a call of the past may have been made that nothing is known of.
    pub fn past_is_lost(&self) -> bool {
        self.past_is_lost
    }

    /// The last event that was taken in: where a broken stream resumes.
    pub fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// The stream is opened, for the first time or anew.
    pub fn opened(&mut self) {
        self.unnumbered.reopened();
    }

    /// Whether the bridge answers `tool_use`, so that nobody else may; of an eval, the one of
    /// `agent_run`.
    pub fn owns(&self, agent_run: &RunId, tool_use: &ToolUseId) -> bool {
        let key = self.key(Some(agent_run), tool_use);
        self.taken.get(&key).is_some_and(Option::is_some)
    }

    /// Whether the bridge has answered calls of `agent_run` in this eval.
    pub fn has_calls_of(&self, agent_run: &RunId) -> bool {
        self.taken
            .iter()
            .any(|(key, content)| content.is_some() && key.agent_run.as_ref() == Some(agent_run))
    }

    /// How many calls of the bridge's were seen.
    pub fn calls(&self) -> usize {
        self.taken.values().filter(|content| content.is_some()).count()
    }

    /// Whether calls are held until [`Run::settle`].
    pub fn has_past(&self) -> bool {
        self.held.is_some()
    }

    /// Nobody has read the run for a while: calls are held as if it had just been attached. What was
    /// taken before stays taken.
    pub fn hold(&mut self) {
        self.held.get_or_insert_default();
    }

    /// Tells what a stream of this run repeats that a reader opens who has all events so far.
    pub fn repetitions(&self) -> Unnumbered {
        let mut unnumbered = self.unnumbered.clone();
        unnumbered.reopened();
        unnumbered
    }

    /// The past has been read: what it left unanswered is to be done now.
    pub fn settle(&mut self) -> Vec<(Call, Work)> {
        let mut held = self.held.take().unwrap_or_default();
        // Others may have answered what lies before, also a call that comes late.
        self.read_to = self.read_to.max(self.last_seq);
        if std::mem::take(&mut self.past_is_lost) {
            for (_, work) in &mut held {
                work.doubt();
            }
        }
        held
    }

    /// Takes in the next event.
    ///
    /// An event whose `seq` is not beyond the last one is a repetition (wire-protocol §10), and so
    /// is one without `seq` that a newly opened stream begins with again. Two are none, whatever their
    /// `seq` is: a call of the bridge's that was not taken, as MANTYX waits for its answer, and the
    /// run's last event, as the run is not driven any more once it was read.
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
        let is_last = matches!(event.body, Body::End(kind) if kind == self.kind);
        if repeated && !is_last && !self.is_new_call(&event) {
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
            Body::End(_) if is_last => {
                if let Some(held) = &mut self.held {
                    held.clear();
                }
                Step::Finish
            }
            Body::End(_) | Body::Other => Step::Relay,
        }
    }

    /// Whether an event that looks like a repetition is a call that was not taken.
    ///
    /// The numbers of an eval's events may be those of its agent runs, which begin at one each. In
    /// the stream of an agent run, calls that are published at once may come out of order.
    fn is_new_call(&self, event: &Event) -> bool {
        let Body::Call(call) = &event.body else { return false };
        self.table.claims(call).is_some()
            && !self.taken.contains_key(&self.key(call.agent_run.as_ref(), &call.tool_use))
    }

    fn key(&self, agent_run: Option<&RunId>, tool_use: &ToolUseId) -> Key {
        // The stream of an agent run has its own calls only, whatever an event says.
        let agent_run = agent_run.filter(|_| self.kind == RunKind::Eval).cloned();
        Key { agent_run, tool_use: tool_use.clone() }
    }

    fn on_answered(&mut self, agent_run: Option<&RunId>, tool_use: &ToolUseId) {
        let key = self.key(agent_run, tool_use);
        if let Some(held) = &mut self.held {
            // Of an eval's answer that names no run, the tool use has to do.
            held.retain(|(call, _)| {
                call.tool_use != *tool_use
                    || key.agent_run.is_some() && call.agent_run != key.agent_run
            });
        }
        // An eval's answer that names no run tells nothing of the calls that come after it: the next
        // one with this tool use may be another agent run's.
        if self.kind == RunKind::Agent || key.agent_run.is_some() {
            self.taken.entry(key).or_insert(None);
        }
    }

    fn on_call(&mut self, call: Call, seq: Option<u64>) -> Step {
        let Some(route) = self.table.claims(&call).cloned() else { return Step::Relay };
        let mut work = self.work(&call, route);
        // The numbers of an eval's events may be those of its agent runs.
        if self.kind == RunKind::Agent && seq.is_some_and(|seq| seq <= self.read_to) {
            work.doubt();
        }
        let work = match (&mut self.held, work) {
            (Some(held), work @ (Work::Make(_) | Work::Doubtful(_) | Work::Refuse(_))) => {
                held.push((call.clone(), work));
                Work::Hold
            }
            (_, work) => work,
        };
        Step::Mask(call, work)
    }

    fn work(&mut self, call: &Call, route: Route) -> Work {
        let agent_run = call.agent_run.as_ref();
        if self.kind == RunKind::Eval && !agent_run.is_some_and(|run| is_segment(run.as_str())) {
            return Work::Astray;
        }
        let content = call.content();
        match self.taken.insert(self.key(agent_run, &call.tool_use), Some(content)) {
            Some(Some(before)) if before != content => Work::Altered,
            Some(_) => Work::Nothing,
            // Tools take an object; in place of arguments that are too large stands none.
            None if !call.args.get().starts_with('{') => Work::Refuse(format!(
                "{TOOL_INPUT_INVALID}: the arguments of `{}` are no JSON object, or larger than the \
                 bridge reads (8 MiB with their event). It was not called.",
                call.name,
            )),
            None if route.is_meant_by(call) => Work::Make(route),
            None if call.kind == Some(route.kind) => Work::Refuse(format!(
                "The tool `{}` was offered by one server and called as another's; it was not run.",
                call.name,
            )),
            None => Work::Refuse(format!(
                "The tool `{}` was offered as `{}` and called as another kind; it was not run.",
                call.name,
                route.kind.as_str(),
            )),
        }
    }
}

#[cfg(test)]
mod tests;
