//! Calls that run as tasks: at the bridge's request (2025-11-25), or by the server's own decision
//! (2026-07-28, SEP-2663). A task has a name, so the bridge can ask for it after a crash. The
//! bridge follows a task by polling.
//!
//! Must not: time out (the caller drops the future), or start a task twice.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::ErrorCode;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout};

use super::connection::Connection;
use super::result::complete;
use super::rpc::{Kind, OpenRequest, error_of, members};
use crate::backend::{CallError, CallOutcome, Called, Handle, TASK_SILENCE, ToolCall};
use crate::model::sentences;
use crate::model::{Answer, Ending, string_member};
use crate::random;

mod state;

pub(super) use state::may_be_task;

use state::{Status, Task};

/// How long a server is asked to keep a task, in milliseconds: longer than any call may take, and
/// longer than a crashed bridge is away.
pub(super) const TTL: u64 = 3_600_000;

/// The wait after a request about a task that failed.
const MISS_WAIT: Duration = Duration::from_secs(1);

/// The share of a wait that is added to it at random, so that many tasks are not polled at once.
const JITTER: f64 = 0.1;

/// How long a cancellation may take. It runs in the background.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(10);

const NO_REASON: &str = "the server gives no reason";

/// The member of a [`Handle`] that has the id of a task.
const NAMED: &str = "mcpTask";

/// The request for the status of a task.
const STATUS: &str = "tasks/get";
/// The request for the result of an ended task of 2025-11-25; in later revisions, the status brings
/// it.
const RESULT: &str = "tasks/result";

/// The request that ends a task.
const CANCEL: &str = "tasks/cancel";

/// Finishes a call that the server answered with `result`: if that is a task, waits for its end.
pub(super) async fn follow(
    connection: &Connection,
    call: &ToolCall,
    request: &Arc<OpenRequest>,
    result: &RawValue,
) -> Called<CallOutcome> {
    let created = Task::created(result, request.asks_for_task)?;
    let Some(task) = created else { return complete(result, &call.progress) };
    call.recorder.named(&Handle(json!({ NAMED: task.id }).to_string()));
    let wait = if task.status == Status::Working { task.wait } else { Duration::ZERO };
    // For as long as the caller holds the request.
    connection.rpc().expect_progress(request);
    Followed { connection, call, task: task.id, ended: false }.outcome(wait).await
}

/// Follows the task that `handle` names and that an earlier connection has started.
pub(super) async fn resume(
    connection: &Connection,
    call: &ToolCall,
    handle: &Handle,
) -> Called<CallOutcome> {
    let Some(task) = string_member(&handle.0, NAMED) else {
        return Err(CallError::Lost("what the call had started is no MCP task".to_owned()));
    };
    Followed { connection, call, task, ended: false }.outcome(Duration::ZERO).await
}

/// A task that a call waits for. A drop before its end cancels it, unless the bridge is stopping
/// and will ask for the task after its restart.
struct Followed<'a> {
    connection: &'a Connection,
    call: &'a ToolCall,
    task: String,
    ended: bool,
}

impl Followed<'_> {
    /// Polls until the task has ended or cannot continue; its outcome. The first poll is after
    /// `wait`.
    async fn outcome(mut self, mut wait: Duration) -> Called<CallOutcome> {
        loop {
            self.pause(wait.mul_f64(1.0 + JITTER * random::share())).await;
            let answer = match self.ask(STATUS).await {
                Err(CallError::Refused(why)) => {
                    self.ended = true;
                    return Err(CallError::Lost(format!("the server has no such task: {why}")));
                }
                answer => answer?,
            };
            let task = Task::read(&answer)?;
            if task.status != Status::Working {
                // A task that wants input has not ended; the drop cancels it.
                self.ended = task.status != Status::InputRequired;
                return self.answer(task).await;
            }
            wait = task.wait;
            self.call.progress.touch();
        }
    }

    async fn answer(&self, task: Task<'_>) -> Called<CallOutcome> {
        let Task { status, message, result, error, .. } = task;
        match (status, result, error) {
            (Status::Completed, Some(result), _) => complete(result, &self.call.progress),
            (Status::Completed, None, _) => self.result().await.map_err(|error| match error {
                // The task had completed, so a refusal here is not the tool's own error.
                CallError::Refused(why) => CallError::Unreadable(why),
                error => error,
            }),
            (Status::Failed, _, None) => self.failure(message).await,
            (Status::Failed, _, error) => Err(failed(message, error)),
            (Status::Cancelled, ..) => {
                let why = message.as_deref().unwrap_or(NO_REASON).trim_end_matches('.');
                Err(CallError::Refused(sentences::cancelled_by_server(why)))
            }
            (Status::Working | Status::InputRequired, ..) => {
                let message = message.map(|message| format!(" ({message})")).unwrap_or_default();
                Err(CallError::Refused(sentences::input_required(message)))
            }
        }
    }

    /// Sends a request, and repeats it after a failure on the way: it only reads, so that is safe.
    /// [`CallError::Refused`] is the server's own refusal.
    async fn ask(&self, method: &'static str) -> Called<Box<RawValue>> {
        let asked = Instant::now();
        loop {
            let params = json!({ "taskId": self.task });
            let why = match self.connection.read(method, params, None).await {
                Ok(Ok(result)) => return Ok(result),
                // An internal error does not mean that the server does not know the task.
                Ok(Err(error)) if method == STATUS && error.code == ErrorCode::INTERNAL_ERROR.0 => {
                    error.to_string()
                }
                Ok(Err(error)) => return Err(error.into()),
                Err(unread @ CallError::NotRead(_)) => return Err(unread),
                // A gateway before the server may have refused, which knows nothing of tasks; its
                // pages are unreadable.
                Err(
                    CallError::NotSent(why)
                    | CallError::NoSession(why)
                    | CallError::Lost(why)
                    | CallError::Refused(why)
                    | CallError::RefusedWith { why, .. }
                    | CallError::Unclear { why, .. }
                    | CallError::Unreadable(why),
                ) => why,
            };
            if asked.elapsed() >= TASK_SILENCE || self.connection.is_over() {
                return Err(CallError::Lost(why));
            }
            tracing::debug!(task = self.task, "a task could not be asked for: {why}");
            self.pause(MISS_WAIT).await;
        }
    }

    /// Waits for this time, or until the connection takes no more requests.
    async fn pause(&self, time: Duration) {
        drop(timeout(time, self.connection.over()).await);
    }

    /// Fetches the result of an ended task whose status did not bring it.
    async fn result(&self) -> Called<CallOutcome> {
        complete(&self.ask(RESULT).await?, &self.call.progress)
    }

    /// The answer of a failed task of 2025-11-25. Its result is the tool's error, or the JSON-RPC
    /// error that a plain call would have got. A server may have kept neither.
    async fn failure(&self, message: Option<String>) -> Called<CallOutcome> {
        let outcome = match self.result().await {
            Ok(outcome) => outcome,
            Err(CallError::Refused(why)) if message.is_none() => {
                return Err(CallError::Refused(why));
            }
            Err(_) => return Err(failed(message, None)),
        };
        match outcome.answer {
            Answer::Error(text) => Ok(CallOutcome { answer: Answer::Error(text), ..outcome }),
            // The server says that the task has failed, and its result does not.
            Answer::Result { text, .. } if message.is_none() && !text.is_empty() => {
                Ok(CallOutcome {
                    answer: Answer::Error(text),
                    ending: Ending::ToolError,
                    ..outcome
                })
            }
            Answer::Result { .. } => Err(failed(message, None)),
        }
    }
}

impl Drop for Followed<'_> {
    fn drop(&mut self) {
        if self.ended || self.call.recorder.is_left() {
            return;
        }
        let rpc = self.connection.rpc();
        let request = OpenRequest {
            subject: Some(self.task.clone()),
            ..OpenRequest::new(rpc.next_id(), CANCEL, Kind::Aside)
        };
        rpc.ask_aside(request, &[&members(&json!({ "taskId": self.task }))], CANCEL_TIMEOUT);
    }
}

/// A task that ended with an error of the protocol.
fn failed(message: Option<String>, error: Option<&RawValue>) -> CallError {
    let error = error.map(|error| error_of(error).to_string());
    CallError::Refused(match (message, error) {
        (Some(message), Some(error)) => format!("{message}: {error}"),
        (Some(words), None) | (None, Some(words)) => words,
        (None, None) => format!("the call failed, and {NO_REASON}"),
    })
}

#[cfg(test)]
mod tests;
