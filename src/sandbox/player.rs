//! Plays the script of one run: turns, calls of tools, the end.
//!
//! The model repeats the results of its calls at the start of its next turn, so that the texts of
//! all turns, joined with newlines, are the reply.
//!
//! Must not: speak HTTP, or call anything itself.

use std::time::Duration;

use serde::Serialize;
use serde_json::{
    json,
    value::{RawValue, to_raw_value},
};
use tokio::{sync::oneshot, time::Instant};

use super::{
    Sandbox,
    model::{self, Call, Step},
    run::{Run, Stop},
    spec::Kind,
    terminal::{MODEL_ID, RunEnd},
};
use crate::model::{answer::Answer, ids::ToolUseId};

/// Plays `run` to its end, unless it is cancelled.
pub(super) async fn play(sandbox: &Sandbox, run: &Run) {
    let mut player = Player { sandbox, run, turns: 1, said: None, reply: None, calls: Vec::new() };
    let end = tokio::select! {
        biased;
        () = run.over.cancelled() => return,
        end = player.play() => end,
    };
    let mut end = end.unwrap_or_else(|end| end);
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
    said: Option<String>,
    /// The text of the earlier turns.
    reply: Option<String>,
    /// The calls of this turn.
    calls: Vec<Call>,
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
                Step::Call(call) => self.calls.push(call),
            }
        }
        self.call_tools().await?;
        self.end_turn("end_turn", &[])?;
        Ok(RunEnd::success(self.reply.as_deref().unwrap_or_default()))
    }

    /// Says one piece of text, on a line of its own.
    fn say(&mut self, text: &str) -> Result<(), RunEnd> {
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
    fn end_turn(&mut self, finish_reason: &str, calls: &[(ToolUseId, Call)]) -> Result<(), RunEnd> {
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
        self.end_turn("tool_use", &calls)?;
        let mut results = Vec::with_capacity(calls.len());
        // Adjacent read-only calls run concurrently, all others alone (§4.1.1).
        for group in calls.chunk_by(|(_, one), (_, next)| one.tool.read_only && next.tool.read_only)
        {
            let published = group.iter().map(|(id, call)| self.publish(id, call));
            for call in published.collect::<Result<Vec<_>, RunEnd>>()? {
                results.push(answer_of(call, self.sandbox.config.local_tool_timeout).await?);
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
    fn publish(&self, id: &ToolUseId, call: &Call) -> Result<Published, RunEnd> {
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
        Ok(Published { name: call.name.clone(), id: id.clone(), answered, deadline })
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
