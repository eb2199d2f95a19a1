//! Plays the script of one run: turns, calls of tools, the end.
//!
//! The model repeats the results of its calls at the start of its next turn, so that the texts of
//! all turns, joined with newlines, are the reply.
//!
//! Must not: speak HTTP, or call anything itself.

use serde::Serialize;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::model::{Call, Step};
use super::run::RunEnd;
use super::spec::Kind;
use super::{Run, Sandbox, model};
use crate::model::{Answer, ToolUseId};

/// The name of the only model, in the catalog's form (`models.json`).
const MODEL_ID: &str = "sandbox/echo";

/// Plays `run` to its end, unless it is cancelled.
pub(super) async fn play(sandbox: &Sandbox, run: &Run) {
    let mut player =
        Player { sandbox, run, turns: 1, turn_text: None, reply: None, calls: Vec::new() };
    let mut end = tokio::select! {
        biased;
        () = run.over.cancelled() => return,
        outcome = player.play() => match outcome {
            Ok(end) | Err(end) => end,
        },
    };
    end.data["turns"] = json!(player.turns);
    end.data["model"] = json!({
        "id": run.spec.model_id.as_deref().unwrap_or(MODEL_ID),
        "provider": "sandbox",
        "vendorModelId": "echo",
    });
    sandbox.finish(run, end);
}

/// One run being played.
struct Player<'a> {
    sandbox: &'a Sandbox,
    run: &'a Run,
    turns: u64,
    /// The text of this turn.
    turn_text: Option<String>,
    /// The text of the earlier turns.
    reply: Option<String>,
    /// The calls of this turn.
    calls: Vec<(ToolUseId, Call)>,
}

// Not made with `json!`, as arguments may have numbers that a `Value` cannot hold.

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AssistantMessage<'a> {
    text: &'a str,
    turn: u64,
    finish_reason: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<ToolCall<'a>>,
}

#[derive(Serialize)]
struct ToolCall<'a> {
    id: &'a str,
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
        for (index, step) in model::steps(run.turn.script(), &run.spec.tools).enumerate() {
            if index % 64 == 63 {
                // Yields, so that a long script without calls does not block other tasks of this
                // thread.
                tokio::task::yield_now().await;
            }
            match step {
                Step::Say(text) => {
                    self.call_tools().await?;
                    self.say(&text)?;
                }
                Step::Call(call) => self.calls.push((self.sandbox.ids.next("tu").into(), call)),
            }
        }
        self.call_tools().await?;
        self.end_turn("end_turn", &[])?;
        Ok(RunEnd::success(self.reply.as_deref().unwrap_or_default()))
    }

    /// Says one piece of text, on a line of its own.
    fn say(&mut self, text: &str) -> Result<(), RunEnd> {
        let delta = add_line(&mut self.turn_text, text);
        if delta.is_empty() {
            return Ok(());
        }
        self.emit("assistant_delta", &json!({"text": delta}))
    }

    /// Emits the text of this turn, and begins the next one without text.
    fn end_turn(&mut self, finish_reason: &str, calls: &[(ToolUseId, Call)]) -> Result<(), RunEnd> {
        let turn_text = self.turn_text.take();
        let text = turn_text.as_deref().unwrap_or_default();
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
        if let Some(text) = turn_text {
            add_line(&mut self.reply, &text);
        }
        Ok(())
    }

    /// Ends the turn with its calls, waits for their answers, and begins the next turn by saying
    /// the results. Does nothing without calls.
    async fn call_tools(&mut self) -> Result<(), RunEnd> {
        if self.calls.is_empty() {
            return Ok(());
        }
        let calls = std::mem::take(&mut self.calls);
        self.end_turn("tool_use", &calls)?;
        let mut results = Vec::with_capacity(calls.len());
        // Adjacent read-only calls run concurrently, all others alone (§4.1.1).
        for group in calls.chunk_by(|(_, one), (_, next)| one.tool.read_only && next.tool.read_only)
        {
            let mut answers = Vec::with_capacity(group.len());
            for call in group {
                answers.push(self.publish(call)?);
            }
            let deadline = Instant::now() + self.sandbox.config.local_tool_timeout;
            for (call, answer) in group.iter().zip(answers) {
                results.push(self.answer_of(call, answer, deadline).await?);
            }
        }
        self.turns += 1;
        for result in results {
            match result {
                Answer::Result { text, .. } => self.say(&text)?,
                Answer::Error(text) => self.say(&format!("error: {text}"))?,
            }
        }
        Ok(())
    }

    /// Sends a call to the client.
    fn publish(&self, (id, call): &(ToolUseId, Call)) -> Result<oneshot::Receiver<Answer>, RunEnd> {
        let event = LocalToolCall {
            tool_use_id: id.as_str(),
            name: &call.name,
            args: &call.args,
            kind: &call.tool.kind,
        };
        let text = to_raw_value(&event).expect("made of JSON");
        self.sandbox.make_room(text.get().len());
        self.run.publish(id.clone(), &text).ok_or_else(RunEnd::log_full)
    }

    /// Waits for the client's answer, until the deadline.
    async fn answer_of(
        &self,
        (id, call): &(ToolUseId, Call),
        answer: oneshot::Receiver<Answer>,
        deadline: Instant,
    ) -> Result<Answer, RunEnd> {
        match tokio::time::timeout_at(deadline, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            // The sender was dropped without an answer. Either the log had no room for the answer,
            // or the run has ended; ending it a second time does nothing.
            Ok(Err(_)) => Err(RunEnd::log_full()),
            Err(_elapsed) => Err(RunEnd::timed_out(&format!(
                "Timed out waiting for local tool result of {} ({id}) after {} ms",
                call.name,
                self.sandbox.config.local_tool_timeout.as_millis()
            ))),
        }
    }

    fn emit(&self, kind: &str, data: &impl Serialize) -> Result<(), RunEnd> {
        let data = to_raw_value(data).expect("our own types have string keys");
        self.sandbox.make_room(data.get().len());
        self.run.append(kind, &data).ok_or_else(RunEnd::log_full)
    }
}

/// Adds `text` to `lines`, on a line of its own; returns what was added.
fn add_line(lines: &mut Option<String>, text: &str) -> String {
    let added = if lines.is_some() { format!("\n{text}") } else { text.to_owned() };
    lines.get_or_insert_default().push_str(&added);
    added
}
