//! Plays the script of one run: turns, calls of tools, the end.
//!
//! The model repeats the results of its calls at the start of its next turn, so that the texts of
//! all turns, joined with newlines, are the reply.
//!
//! Must not: speak HTTP, or call anything itself.

use std::{collections::HashMap, time::Duration};

use serde::Serialize;
use serde_json::{
    Value, json,
    value::{RawValue, to_raw_value},
};
use tokio::{sync::oneshot, time::Instant};

use super::{
    Sandbox,
    model::{self, Call, Step},
    run::{Run, Stop},
    spec::{Enforcement, Kind, Plan, ToolBudget},
    terminal::{MODEL_ID, RunEnd},
};
use crate::model::{answer::Answer, ids::ToolUseId, json::string_member};

/// Plays `run` to its end, unless it is cancelled.
pub(super) async fn play(sandbox: &Sandbox, run: &Run) {
    let mut player = Player {
        sandbox,
        run,
        input_tokens: 0,
        output_tokens: 0,
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
    let mut end = end.unwrap_or_else(|end| end);
    player.report(&mut end.data);
    sandbox.finish(run, end);
}

/// One run being played.
struct Player<'a> {
    sandbox: &'a Sandbox,
    run: &'a Run,
    /// The tokens that the model has read and written. Tokens are words.
    input_tokens: u64,
    output_tokens: u64,
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

/// A call that the client has seen.
struct Published {
    name: String,
    id: ToolUseId,
    answered: oneshot::Receiver<Answer>,
    deadline: Instant,
}

// Not made with `json!`, as arguments may have numbers that a `Value` cannot hold.

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AssistantMessage<'a> {
    text: &'a str,
    turn: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    finish_reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<ToolCall<'a>>,
}

#[derive(Serialize)]
struct ToolCall<'a> {
    id: &'a str,
    name: &'a str,
    input: &'a RawValue,
}

/// The data of `tool_call`, the call of a tool that the client does not answer.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct InnerCall<'a> {
    tool_use_id: &'a str,
    name: &'a str,
    input: &'a RawValue,
}

/// The data of `local_tool_call`, with the arguments and the kind's own members as they were sent.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LocalToolCall<'a> {
    tool_use_id: &'a str,
    name: &'a str,
    args: &'a RawValue,
    #[serde(flatten)]
    kind: &'a Kind,
}

impl Player<'_> {
    async fn play(&mut self) -> Result<RunEnd, RunEnd> {
        let run = self.run;
        if let Some(Plan::Own { plan_only: true, brief, steps }) = &run.spec.plan {
            return self.plan_only(brief.as_deref(), steps);
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
                    let mut end = RunEnd::failed("unknown", &error);
                    if let Some(said) = &self.said {
                        end.data["partialText"] = json!(said);
                    }
                    self.end_turn(None, &[])?;
                    return Ok(end);
                }
            }
        }
        self.call_tools().await?;
        self.end_turn(Some("end_turn"), &[])?;
        Ok(RunEnd::success(self.reply.as_deref().unwrap_or_default()))
    }

    /// A plan-only run (agent-runs-protocol §4.9): returns the checklist as it was given.
    fn plan_only(&mut self, brief: Option<&str>, steps: &[String]) -> Result<RunEnd, RunEnd> {
        if self.run.spec.is_strict() {
            return Ok(strict());
        }
        let step = |title: &String| json!({"title": title, "status": "pending"});
        let mut plan = json!({"steps": steps.iter().map(step).collect::<Vec<_>>()});
        if let Some(brief) = brief {
            plan["brief"] = json!(brief);
        }
        self.emit("task_plan", &plan)?;
        let lines = steps.iter().enumerate().map(|(index, step)| format!("{}. {step}", index + 1));
        let list = lines.collect::<Vec<_>>().join("\n");
        let text = match brief {
            _ if steps.is_empty() => "No multi-step plan was warranted.".to_owned(),
            Some(brief) => format!("{brief}\n\n{list}"),
            None => list,
        };
        let mut end = RunEnd::success(&text);
        end.data["plan"] = plan;
        Ok(end)
    }

    /// Adds the members that every `result` and `error` has in common.
    fn report(&self, data: &mut Value) {
        let spec = &self.run.spec;
        let enforcement = spec.output_schema.as_ref().map(|schema| schema.enforcement);
        data["structuredOutput"] = json!({
            "schemaRequested": enforcement.is_some(),
            // The scripted model enforces no schema, and reports that.
            "schemaEnforced": false,
            "enforcementMechanism": "none",
            "unconstrainedFallbackOccurred": enforcement == Some(Enforcement::BestEffort),
        });
        data["tokens"] = json!({
            "inputTokens": self.input_tokens,
            "cachedTokens": 0,
            "reasoningTokens": 0,
            "outputTokens": self.output_tokens,
        });
        data["turns"] = json!(self.turns);
        data["model"] = json!({
            "id": spec.model_id.as_deref().unwrap_or(MODEL_ID),
            "provider": "sandbox",
            "vendorModelId": "echo",
        });
        if let Some(effort) = spec.reasoning_level {
            data["model"]["reasoningEffort"] = json!(effort.level());
        }
    }

    fn begin_turn(&mut self) {
        self.turns += 1;
        self.input_tokens += self.context_words;
    }

    /// Says one piece of text, on a line of its own.
    fn say(&mut self, text: &str) -> Result<(), RunEnd> {
        let words = words(text);
        self.output_tokens += words;
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
        self.emit("assistant_delta", &json!({"text": delta}))
    }

    /// Emits the text of this turn, and begins the next one without text.
    fn end_turn(
        &mut self,
        finish_reason: Option<&str>,
        calls: &[(ToolUseId, Call)],
    ) -> Result<(), RunEnd> {
        let said = self.said.take();
        let text = said.as_deref().unwrap_or_default();
        let tool_calls = calls.iter().map(|(id, call)| ToolCall {
            id: id.as_str(),
            name: &call.name,
            input: &call.args,
        });
        let message = AssistantMessage {
            text,
            turn: self.turns - 1,
            finish_reason,
            tool_calls: tool_calls.collect(),
        };
        self.emit("assistant_message", &message)?;
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
    async fn call_tools(&mut self) -> Result<(), RunEnd> {
        if self.calls.is_empty() {
            return Ok(());
        }
        let calls: Vec<(ToolUseId, Call)> = std::mem::take(&mut self.calls)
            .into_iter()
            .map(|call| (self.sandbox.ids.next("tu").into(), call))
            .collect();
        for (_, call) in &calls {
            let words = 1 + words(call.args.get());
            self.output_tokens += words;
            self.context_words += words;
        }
        self.end_turn(Some("tool_use"), &calls)?;
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
                        answer_of(published, self.sandbox.config.local_tool_timeout).await?
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
    ) -> Result<Result<Published, Answer>, RunEnd> {
        self.run.count_call();
        if let Some(answer) = self.over_budget(id, call)? {
            return Ok(Err(answer));
        }
        match &call.tool.kind {
            Kind::Server(kind) => {
                let why = format!(
                    "{} is a {kind} tool, which MANTYX would run itself; the sandbox cannot",
                    call.name
                );
                let event =
                    InnerCall { tool_use_id: id.as_str(), name: &call.name, input: &call.args };
                self.emit("tool_call", &event)?;
                return Ok(Err(self.informational_result(id, &call.name, why)?));
            }
            Kind::A2aLocal { .. } if string_member(call.args.get(), "message").is_none() => {
                let why = "tool_input_invalid: message: must be a string".to_owned();
                return Ok(Err(self.informational_result(id, &call.name, why)?));
            }
            Kind::Local | Kind::A2aLocal { .. } | Kind::McpLocal { .. } => (),
        }
        let event = LocalToolCall {
            tool_use_id: id.as_str(),
            name: &call.name,
            args: &call.args,
            kind: &call.tool.kind,
        };
        let text = to_raw_value(&event).expect("made of JSON");
        self.sandbox.make_room(text.get().len());
        let answered = self.run.publish(id.clone(), &text).map_err(halt)?;
        let deadline = Instant::now() + self.sandbox.config.local_tool_timeout;
        Ok(Ok(Published { name: call.name.clone(), id: id.clone(), answered, deadline }))
    }

    /// Answers a call with an error if its tool has used up its `toolBudgets` (§4.7).
    fn over_budget(&mut self, id: &ToolUseId, call: &Call) -> Result<Option<Answer>, RunEnd> {
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
        let data = json!({"tool": call.name, "maxCalls": max_calls, "callIndex": call_index});
        self.emit("tool_budget_exceeded", &data)?;
        Ok(Some(answer))
    }

    /// A failure that the client sees, but does not answer.
    fn informational_result(
        &self,
        id: &ToolUseId,
        name: &str,
        why: String,
    ) -> Result<Answer, RunEnd> {
        // `summary` and `ok` come from agent-runs-protocol §7, `result` from wire-protocol §4.2.
        let data = json!({
            "toolUseId": id.as_str(),
            "name": name,
            "ok": false,
            "summary": why,
            "result": why,
        });
        self.emit("tool_result", &data)?;
        Ok(Answer::Error(why))
    }

    fn emit(&self, kind: &str, data: &impl Serialize) -> Result<(), RunEnd> {
        let data = to_raw_value(data).expect("our own types have string keys");
        self.sandbox.make_room(data.get().len());
        self.run.append(kind, &data).map_err(halt)
    }
}

/// The log has no room, or another request has ended the run; ending it a second time does nothing.
fn halt(_: Stop) -> RunEnd {
    RunEnd::log_full()
}

/// Waits for the client's answer, until the deadline of the call.
async fn answer_of(call: Published, timeout: Duration) -> Result<Answer, RunEnd> {
    match tokio::time::timeout_at(call.deadline, call.answered).await {
        Ok(Ok(answer)) => Ok(answer),
        // The sender was dropped without an answer. Either the log had no room for the answer, or
        // the run has ended; ending it a second time does nothing.
        Ok(Err(_)) => Err(RunEnd::log_full()),
        Err(_elapsed) => Err(RunEnd::timed_out(&format!(
            "Timed out waiting for local tool result of {} ({}) after {} ms",
            call.name,
            call.id,
            timeout.as_millis()
        ))),
    }
}

/// The scripted model has no way to enforce a schema (agent-runs-protocol §4.5).
fn strict() -> RunEnd {
    let error = "the sandbox's model cannot enforce an outputSchema";
    RunEnd::failed("structured_output_not_supported", error)
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
