//! Plays the script of one run: turns, calls of tools, the end.
//!
//! The model repeats the results of its calls at the start of its next turn, so that the texts of
//! all turns, joined with newlines, are the reply.
//!
//! Must not: speak HTTP, or call anything itself.

use std::{collections::HashMap, time::Duration};

use serde::Serialize;
use tokio::{sync::oneshot, time::Instant};

use super::{
    Shared,
    events::{AssistantMessage, BudgetExceeded, Delta, LocalToolCall, ToolCall, ToolResult},
    model::{self, Call, Step},
    run::{Run, Stop},
    spec::{Kind, Plan, ToolBudget},
    terminal::{PlanStep, PlanView, Report, RunEnd, Tokens},
};
use crate::model::{answer::Answer, ids::ToolUseId, json::string_member};

/// Plays `run` to its end, unless it is cancelled.
pub(super) async fn play(shared: &Shared, run: &Run) {
    let mut player = Player {
        shared,
        run,
        tokens: Tokens::default(),
        turns: 0,
        context_words: input_words(run),
        said: None,
        reply: None,
        calls: Vec::new(),
        counts: HashMap::new(),
    };
    let end = tokio::select! {
        biased;
        () = run.over.cancelled() => return,
        end = player.play() => end,
    };
    let end = end.unwrap_or_else(|end| *end);
    let report = Report::new(&run.spec, player.tokens, player.turns);
    shared.finish(run, end, report);
}

/// One run being played.
struct Player<'a> {
    shared: &'a Shared,
    run: &'a Run,
    tokens: Tokens,
    turns: u64,
    /// How many words the model would read if it were asked now.
    context_words: u64,
    /// The text of this turn.
    said: Option<String>,
    /// The text of the earlier turns.
    reply: Option<String>,
    /// The calls of this turn.
    calls: Vec<Call>,
    /// How often each tool was called.
    counts: HashMap<String, u64>,
}

/// The end of a run whose playing stopped before the end of the script.
type Halt = Box<RunEnd>;

/// A call that the client has seen.
struct Published {
    name: String,
    id: ToolUseId,
    answered: oneshot::Receiver<Answer>,
    deadline: Instant,
}

impl Player<'_> {
    async fn play(&mut self) -> Result<RunEnd, Halt> {
        let run = self.run;
        if let Some(Plan::Own { plan_only: true, brief, steps }) = &run.spec.plan {
            return self.plan_only(brief.clone(), steps);
        }
        self.begin_turn();
        if run.spec.is_strict() {
            return Ok(strict());
        }
        for (index, step) in model::steps(run.turn.script(), &run.spec.tools).enumerate() {
            if index % 64 == 63 {
                // Yields, so that a long script without calls does not block other tasks of this
                // thread.
                tokio::task::yield_now().await;
            }
            if !matches!(step, Step::Call(_)) {
                self.call_tools().await?;
            }
            match step {
                Step::Say(text) => self.say(&text)?,
                Step::Call(call) => self.calls.push(call),
                Step::Sleep(duration) => tokio::time::sleep(duration).await,
                Step::Event { kind, data } => self.emit(&kind, &data)?,
                Step::Fail(error) => {
                    let partial_text = self.said.clone();
                    self.end_turn(None, &[])?;
                    return Ok(RunEnd::failed("unknown", error, partial_text));
                }
            }
        }
        self.call_tools().await?;
        self.end_turn(Some("end_turn"), &[])?;
        Ok(RunEnd::success(self.reply.take().unwrap_or_default(), None))
    }

    /// A plan-only run (agent-runs-protocol §4.9): returns the checklist as it was given.
    fn plan_only(&mut self, brief: Option<String>, steps: &[String]) -> Result<RunEnd, Halt> {
        if self.run.spec.is_strict() {
            return Ok(strict());
        }
        let step = |title: &String| PlanStep { title: title.clone(), status: "pending" };
        let plan = PlanView { brief, steps: steps.iter().map(step).collect() };
        self.emit("task_plan", &plan)?;
        let lines = steps.iter().enumerate().map(|(index, step)| format!("{}. {step}", index + 1));
        let list = lines.collect::<Vec<_>>().join("\n");
        let text = match &plan.brief {
            _ if steps.is_empty() => "No multi-step plan was warranted.".to_owned(),
            Some(brief) => format!("{brief}\n\n{list}"),
            None => list,
        };
        Ok(RunEnd::success(text, Some(plan)))
    }

    fn begin_turn(&mut self) {
        self.turns += 1;
        self.tokens.input_tokens += self.context_words;
    }

    /// Says one piece of text, on a line of its own.
    fn say(&mut self, text: &str) -> Result<(), Halt> {
        let words = words(text);
        self.tokens.output_tokens += words;
        self.context_words += words;
        let delta = match &mut self.said {
            Some(said) => {
                let start = said.len();
                said.push('\n');
                said.push_str(text);
                said.get(start..).unwrap_or_default().to_owned()
            }
            None => {
                self.said = Some(text.to_owned());
                text.to_owned()
            }
        };
        if delta.is_empty() {
            return Ok(());
        }
        self.emit("assistant_delta", &Delta { text: &delta })
    }

    /// Emits the text of this turn, and begins the next one without text.
    fn end_turn(
        &mut self,
        finish_reason: Option<&'static str>,
        tool_calls: &[ToolCall<'_>],
    ) -> Result<(), Halt> {
        let said = self.said.take();
        let text = said.as_deref().unwrap_or_default();
        let turn = self.turns - 1;
        self.emit(
            "assistant_message",
            &AssistantMessage { text, turn, finish_reason, tool_calls },
        )?;
        if let Some(said) = said {
            match &mut self.reply {
                Some(reply) => {
                    reply.push('\n');
                    reply.push_str(&said);
                }
                None => self.reply = Some(said),
            }
        }
        Ok(())
    }

    /// Ends the turn with its calls, waits for their answers, and begins the next turn by saying
    /// the results. Does nothing without calls.
    async fn call_tools(&mut self) -> Result<(), Halt> {
        if self.calls.is_empty() {
            return Ok(());
        }
        let calls: Vec<(ToolUseId, Call)> = std::mem::take(&mut self.calls)
            .into_iter()
            .map(|call| (self.shared.ids.next("tu").into(), call))
            .collect();
        for (_, call) in &calls {
            let words = 1 + words(call.args.get());
            self.tokens.output_tokens += words;
            self.context_words += words;
        }
        let shown: Vec<ToolCall<'_>> = calls.iter().map(ToolCall::new).collect();
        self.end_turn(Some("tool_use"), &shown)?;
        let mut results = Vec::with_capacity(calls.len());
        // Adjacent read-only calls run concurrently, all others alone (§4.1.1).
        for group in calls.chunk_by(|(_, one), (_, next)| one.tool.read_only && next.tool.read_only)
        {
            let mut published = Vec::with_capacity(group.len());
            for (id, call) in group {
                published.push(self.start_call(id, call)?);
            }
            for call in published {
                results.push(match call {
                    Ok(published) => {
                        answer_of(published, self.shared.config.local_tool_timeout).await?
                    }
                    Err(answer) => answer,
                });
            }
        }
        for Answer::Result { text, .. } | Answer::Error(text) in &results {
            self.context_words += words(text);
        }
        self.begin_turn();
        for result in results {
            match result {
                Answer::Result { text, .. } => self.say(&text)?,
                Answer::Error(text) => self.say(&format!("error: {text}"))?,
            }
        }
        Ok(())
    }

    /// Sends a call to the client; answers it at once if it is not the client's.
    fn start_call(
        &mut self,
        id: &ToolUseId,
        call: &Call,
    ) -> Result<Result<Published, Answer>, Halt> {
        self.run.count_call();
        if let Some(answer) = self.over_budget(id, call)? {
            return Ok(Err(answer));
        }
        let event = LocalToolCall::new(id, call);
        match &call.tool.kind {
            Kind::Server(kind) => {
                let why = format!(
                    "{} is a {kind} tool, which MANTYX would run itself; the sandbox cannot",
                    call.name
                );
                self.emit("tool_call", &event.informational())?;
                return Ok(Err(self.informational_result(id, &call.name, why)?));
            }
            Kind::A2aLocal { .. } if string_member(call.args.get(), "message").is_none() => {
                let why = "tool_input_invalid: message: must be a string".to_owned();
                return Ok(Err(self.informational_result(id, &call.name, why)?));
            }
            Kind::Local | Kind::A2aLocal { .. } | Kind::McpLocal { .. } => (),
        }
        let text = serde_json::value::to_raw_value(&event).expect("made of JSON");
        self.shared.make_room(text.get().len());
        let answered = self.run.publish(id.clone(), &text).map_err(halt)?;
        let deadline = Instant::now() + self.shared.config.local_tool_timeout;
        Ok(Ok(Published { name: call.name.clone(), id: id.clone(), answered, deadline }))
    }

    /// Answers a call with an error if its tool has used up its `toolBudgets` (§4.7).
    fn over_budget(&mut self, id: &ToolUseId, call: &Call) -> Result<Option<Answer>, Halt> {
        let count = self.counts.entry(call.name.clone()).or_default();
        *count += 1;
        let call_index = *count;
        let Some(&ToolBudget { max_calls }) = self.run.spec.tool_budgets.get(&call.name) else {
            return Ok(None);
        };
        if call_index <= max_calls {
            return Ok(None);
        }
        let why = format!("budget exceeded for {}: pivot or finalize", call.name);
        let answer = self.informational_result(id, &call.name, why)?;
        let data = BudgetExceeded { tool: &call.name, max_calls, call_index };
        self.emit("tool_budget_exceeded", &data)?;
        Ok(Some(answer))
    }

    /// A failure that the client sees, but does not answer.
    fn informational_result(
        &self,
        id: &ToolUseId,
        name: &str,
        why: String,
    ) -> Result<Answer, Halt> {
        let data =
            ToolResult { tool_use_id: id.as_str(), name, ok: false, summary: &why, result: &why };
        self.emit("tool_result", &data)?;
        Ok(Answer::Error(why))
    }

    fn emit(&self, kind: &str, data: &impl Serialize) -> Result<(), Halt> {
        let data = serde_json::value::to_raw_value(data).expect("our own types have string keys");
        self.shared.make_room(data.get().len());
        self.run.append(kind, &data).map_err(halt)
    }
}

/// The log has no room, or another request has ended the run; ending it a second time does nothing.
fn halt(_: Stop) -> Halt {
    Box::new(RunEnd::log_full())
}

/// Waits for the client's answer, until the deadline of the call.
async fn answer_of(call: Published, timeout: Duration) -> Result<Answer, Halt> {
    match tokio::time::timeout_at(call.deadline, call.answered).await {
        Ok(Ok(answer)) => Ok(answer),
        // The sender was dropped without an answer. Either the log had no room for the answer, or
        // the run has ended; ending it a second time does nothing.
        Ok(Err(_)) => Err(Box::new(RunEnd::log_full())),
        Err(_elapsed) => Err(Box::new(RunEnd::timed_out(format!(
            "Timed out waiting for local tool result of {} ({}) after {} ms",
            call.name,
            call.id,
            timeout.as_millis()
        )))),
    }
}

/// The scripted model has no way to enforce a schema (agent-runs-protocol §4.5).
fn strict() -> RunEnd {
    let error = "the sandbox's model cannot enforce an outputSchema".to_owned();
    RunEnd::failed("structured_output_not_supported", error, None)
}

/// Counts tokens; a token is a word between white space.
pub(super) fn words(text: &str) -> u64 {
    text.split_whitespace().count() as u64
}

fn input_words(run: &Run) -> u64 {
    let system = run.spec.system_prompt.as_deref().map_or(0, words);
    let said = run.turn.messages.iter().map(|message| words(&message.content)).sum::<u64>();
    run.history_words + system + said
}
