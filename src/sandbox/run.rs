//! One run: its event log, the calls that wait for an answer, and its end.
//!
//! The log is the single source of events (wire-protocol §10): every event has a `seq` from 1, and
//! each stream reads the log from its own position. So a slow stream delays no other.
//!
//! Must not: play the script, speak HTTP, or wait.

use std::fmt::Display;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::results::FileNote;
use super::{Charge, Spec, Turn, grow};
use crate::clock;
use crate::model::maps::{HashMap, HashSet};
use crate::model::{Answer, RunId, SessionId, ToolUseId};
use crate::sse::Frame;

/// One run.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) id: RunId,
    pub(super) session: Option<SessionId>,
    pub(super) spec: Spec,
    pub(super) turn: Turn,
    pub(super) created: SystemTime,
    pub(super) started: Instant,
    max_log_bytes: usize,
    state: Mutex<State>,
    /// The `seq` of the last event.
    pub(super) last: watch::Sender<u64>,
    /// Fires when the run has ended.
    pub(super) over: CancellationToken,
}

#[derive(Debug)]
struct State {
    frames: Vec<Bytes>,
    log_bytes: usize,
    charge: Charge,
    open_calls: HashMap<ToolUseId, oneshot::Sender<Answer>>,
    /// The calls that waited when the run was cancelled.
    abandoned: HashSet<ToolUseId>,
    end: Option<Arc<End>>,
}

/// How and when a run ended.
#[derive(Debug)]
pub(super) struct End {
    pub(super) outcome: RunEnd,
    pub(super) at: SystemTime,
    pub(super) duration_ms: u64,
}

/// The outcome of a posted tool result.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Accepted {
    /// The call has its answer, or was abandoned.
    Yes,
    /// No such call waits.
    Unknown,
    /// The run has ended.
    Terminal,
}

/// How a run ended.
#[derive(Debug)]
pub(super) struct RunEnd {
    /// The type of the terminal event.
    pub(super) kind: &'static str,
    /// The final status of the run.
    pub(super) status: &'static str,
    /// The category of a failure.
    pub(super) class: Option<&'static str>,
    /// The data of the terminal event.
    pub(super) data: Value,
}

impl RunEnd {
    pub(super) fn success(text: &str) -> Self {
        let data = json!({"subtype": "success", "text": text});
        Self { kind: "result", status: "succeeded", class: None, data }
    }

    /// A local tool was not answered in time.
    pub(super) fn timed_out(error: &str) -> Self {
        let data = json!({"subtype": "error_local_tool_timeout", "error": error});
        Self { kind: "result", status: "failed", class: Some("local_timeout"), data }
    }

    /// The run's log has reached the limit of the sandbox.
    pub(super) fn log_full() -> Self {
        let error = "the run has more events than the sandbox keeps";
        let class = "server";
        let data = json!({"error": error, "code": class, "errorClass": class, "retryable": false});
        Self { kind: "error", status: "failed", class: Some(class), data }
    }

    /// The reply of a run that succeeded.
    pub(super) fn reply(&self) -> Option<&str> {
        self.data["text"].as_str()
    }
}

/// A part of the log.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) bytes: Bytes,
    /// The `seq` of the last event in it.
    pub(super) last: u64,
    /// Whether it contains the last event of the run.
    pub(super) is_end: bool,
}

impl Run {
    pub(super) fn new(
        id: RunId,
        (spec, turn): (Spec, Turn),
        session: Option<SessionId>,
        max_log_bytes: usize,
        charge: Charge,
    ) -> Self {
        Self {
            id,
            session,
            spec,
            turn,
            created: clock::now(),
            started: Instant::now(),
            max_log_bytes,
            state: Mutex::new(State {
                frames: Vec::new(),
                log_bytes: 0,
                charge,
                open_calls: HashMap::default(),
                abandoned: HashSet::default(),
                end: None,
            }),
            last: watch::Sender::new(0),
            over: CancellationToken::new(),
        }
    }

    /// Appends one event; `None` if the run has ended, or the log is full.
    pub(super) fn append(&self, kind: &str, data: &impl Display) -> Option<()> {
        self.push(&mut self.state.lock(), kind, data)
    }

    /// Appends the event of a call that a client has to answer; returns the receiver of the answer.
    pub(super) fn publish(
        &self,
        call: ToolUseId,
        data: &impl Display,
    ) -> Option<oneshot::Receiver<Answer>> {
        let (sender, answer) = oneshot::channel();
        let mut state = self.state.lock();
        self.push(&mut state, "local_tool_call", data)?;
        state.open_calls.insert(call, sender);
        Some(answer)
    }

    /// Accepts a posted tool result. Its event is in the log before this returns.
    pub(super) fn accept(&self, call: &ToolUseId, answer: Answer, files: &[FileNote]) -> Accepted {
        let mut state = self.state.lock();
        if state.end.is_some() {
            // Late results of a cancelled run are accepted and ignored (agent-runs-protocol §9).
            let abandoned = state.abandoned.remove(call);
            return if abandoned { Accepted::Yes } else { Accepted::Terminal };
        }
        let Some(sender) = state.open_calls.remove(call) else { return Accepted::Unknown };
        let mut data = json!({ "toolUseId": call.as_str() });
        match &answer {
            Answer::Result { text, .. } => data["output"] = text.as_str().into(),
            Answer::Error(text) => data["error"] = text.as_str().into(),
        }
        if !files.is_empty() {
            data["files"] = json!(files);
        }
        let has_room = self.push(&mut state, "local_tool_result_in", &data).is_some();
        drop(state);
        if !has_room {
            // The call has lost its sender, which ends the run.
            return Accepted::Terminal;
        }
        // Fails if the run has ended in between; the answer is of no use then.
        drop(sender.send(answer));
        Accepted::Yes
    }

    /// Ends the run; false if it has already ended.
    pub(super) fn finish(&self, end: RunEnd) -> bool {
        let mut state = self.state.lock();
        if state.end.is_some() {
            return false;
        }
        let frame = state.frame(end.kind, &end.data);
        // Kept even without room, as a run has to end. It repeats texts that were counted.
        grow(&mut state.charge, frame.len());
        state.frames.push(frame);
        let open_calls = std::mem::take(&mut state.open_calls);
        if end.kind == "cancelled" {
            state.abandoned = open_calls.into_keys().collect();
        }
        let duration_ms = clock::millis_of(self.started.elapsed());
        state.end = Some(Arc::new(End { outcome: end, at: clock::now(), duration_ms }));
        self.last.send_replace(state.frames.len() as u64);
        self.over.cancel();
        true
    }

    /// Cancels the run for `reason`; does nothing to a run that has ended.
    pub(super) fn cancel(&self, reason: &'static str) {
        let data = json!({"reason": reason});
        self.finish(RunEnd { kind: "cancelled", status: "cancelled", class: None, data });
    }

    /// The events after `seq`, about `max` bytes of them, and at least one if there is one.
    pub(super) fn after(&self, seq: u64, max: usize) -> Batch {
        let state = self.state.lock();
        let first = usize::try_from(seq).unwrap_or(usize::MAX);
        let rest = state.frames.get(first..).unwrap_or_default();
        let (mut count, mut size) = (0, 0);
        for frame in rest {
            if count > 0 && size + frame.len() > max {
                break;
            }
            count += 1;
            size += frame.len();
        }
        Batch {
            bytes: rest[..count].concat().into(),
            last: seq + count as u64,
            is_end: state.end.is_some() && count == rest.len(),
        }
    }

    /// The end of the run, and the `seq` of its last event.
    pub(super) fn view(&self) -> (Option<Arc<End>>, u64) {
        let state = self.state.lock();
        (state.end.clone(), state.frames.len() as u64)
    }

    fn push(&self, state: &mut State, kind: &str, data: &impl Display) -> Option<()> {
        let frame = state.frame(kind, data);
        let fits = state.log_bytes + frame.len() <= self.max_log_bytes;
        if state.end.is_some() || !fits || !grow(&mut state.charge, frame.len()) {
            return None;
        }
        state.log_bytes += frame.len();
        state.frames.push(frame);
        self.last.send_replace(state.frames.len() as u64);
        Some(())
    }
}

impl State {
    /// The next event, which is `data` as JSON.
    fn frame(&self, kind: &str, data: &impl Display) -> Bytes {
        let seq = self.frames.len() + 1;
        let kind_json = Value::from(kind);
        let mut event = format!(r#"{{"seq":{seq},"type":{kind_json},"data":{data}}}"#);
        // Replaces line breaks, which in JSON only stand between tokens: MANTYX sends one `data:`
        // line for each event.
        if event.contains(['\r', '\n']) {
            event = event.replace(['\r', '\n'], " ");
        }
        Frame::write(Some(&seq.to_string()), Some(kind), &event).raw
    }
}

#[cfg(test)]
mod tests;
