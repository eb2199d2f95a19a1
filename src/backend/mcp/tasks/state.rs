//! Reads the state of a task, and which tools may be called as tasks. The revisions differ in two
//! names and in the place of the result; this file hides the difference.
//!
//! Must not: do IO, or change a result.

use std::time::Duration;

use serde_json::value::RawValue;

use crate::backend::mcp::result::result_type;
use crate::backend::{CallError, Called};
use crate::model::Members;
use crate::model::words::{Words as _, words};

/// The wait between polls of a task, if the server does not say.
const USUAL_WAIT: Duration = Duration::from_secs(1);
/// The bounds of the wait that a server may set.
const SHORTEST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Whether `tool` may be called as a task (`execution.taskSupport` of 2025-11-25).
pub(in crate::backend::mcp) fn may_be_task(tool: &RawValue) -> bool {
    let execution = Members::read(tool.get()).ok().and_then(|tool| tool.object("execution"));
    let support = execution.and_then(|execution| execution.string("taskSupport"));
    support.is_some_and(|support| matches!(support.as_str(), "optional" | "required"))
}

words! {
    /// The status of a task.
    pub(super) enum Status {
        Working = "working",
        InputRequired = "input_required",
        Completed = "completed",
        Failed = "failed",
        Cancelled = "cancelled",
    }
}

/// A task as one message shows it.
#[derive(Debug)]
pub(super) struct Task<'a> {
    pub(super) id: String,
    pub(super) status: Status,
    /// What the server says of the status, for people and models.
    pub(super) message: Option<String>,
    /// How long to wait before the next poll.
    pub(super) wait: Duration,
    /// The result of the call, where it stands in the task (2026-07-28).
    pub(super) result: Option<&'a RawValue>,
    /// The JSON-RPC error that the call ended with, likewise.
    pub(super) error: Option<&'a RawValue>,
}

/// What should be a task is none.
fn no_task() -> CallError {
    let why =
        "the server tells of a task without a name or with a status that the protocol has not";
    CallError::Unreadable(why.to_owned())
}

impl<'a> Task<'a> {
    /// The task that a `tools/call` was answered with. `None`: it was answered with its result,
    /// which is up to the server even where a task was `wanted`.
    pub(super) fn created(result: &'a RawValue, wanted: bool) -> Called<Option<Self>> {
        let says_task = result_type(result).as_deref() == Some("task");
        let members = (says_task || wanted).then(|| Members::read(result.get()).ok()).flatten();
        let is_there = |value: &&RawValue| value.get() != "null";
        match members {
            Some(members) if says_task => Self::from_members(&members).map(Some),
            Some(members) if members.get("content").filter(is_there).is_none() => {
                members.get("task").filter(is_there).map(Self::read).transpose()
            }
            _ => Ok(None),
        }
    }

    /// The task that a `tasks/get` was answered with.
    pub(super) fn read(task: &'a RawValue) -> Called<Self> {
        Self::from_members(&Members::read(task.get()).map_err(|_no_object| no_task())?)
    }

    fn from_members(members: &Members<'a>) -> Called<Self> {
        let either = |new: &str, old: &str| members.get(new).or_else(|| members.get(old));
        let status = members.string("status").and_then(|status| Status::parse(&status));
        let interval = either("pollIntervalMs", "pollInterval").and_then(milliseconds);
        let ttl = either("ttlMs", "ttl").and_then(milliseconds);
        let object = |key| members.get(key).filter(|raw| raw.get().starts_with('{'));
        Ok(Self {
            id: members.string("taskId").filter(|id| !id.is_empty()).ok_or_else(no_task)?,
            status: status.ok_or_else(no_task)?,
            message: members.string("statusMessage").filter(|message| !message.trim().is_empty()),
            wait: wait(interval, ttl),
            result: object("result"),
            error: object("error"),
        })
    }
}

/// How long to wait before the next poll. A task that the server keeps for a limited time must be
/// polled within it.
fn wait(interval: Option<Duration>, ttl: Option<Duration>) -> Duration {
    let wait = interval.unwrap_or(USUAL_WAIT).min(LONGEST_WAIT);
    ttl.map_or(wait, |ttl| wait.min(ttl / 2)).max(SHORTEST_WAIT)
}

/// A number of milliseconds, at most a day; `None` is no number, and none that is set.
fn milliseconds(raw: &RawValue) -> Option<Duration> {
    const DAY: f64 = 86_400.0;
    let number: f64 = serde_json::from_str(raw.get()).ok()?;
    Some(Duration::from_secs_f64((number / 1000.0).clamp(0.0, DAY)))
}

#[cfg(test)]
mod tests;
