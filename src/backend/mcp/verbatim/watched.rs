//! Handles the server's notifications about the tasks that the bridge follows.
//!
//! Must not: ask for anything, or keep the outcome of a task: the follower of the task polls.

use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::sync::Notify;

use super::{ConnectionState, RawRequest, lock};
use crate::model::json::{Members, string_member};

/// Reports a task to which the client has subscribed (2026-07-28).
pub(super) const STATUS: &str = "notifications/tasks";
/// Reports any task that the client has started (2025-11-25).
pub(super) const STATUS_2025: &str = "notifications/tasks/status";

/// One task that is followed.
#[derive(Debug)]
pub(in crate::backend::mcp) struct Watched {
    task: String,
    /// The call that started it, whose progress continues.
    raw_request: Arc<RawRequest>,
    changed: Notify,
}

/// Follows a task until it is dropped.
#[derive(Debug)]
pub(in crate::backend::mcp) struct Watch<'a> {
    state: &'a ConnectionState,
    watched: Arc<Watched>,
}

impl ConnectionState {
    /// Listens to the server's notifications about `task`, which the call of `raw_request` started.
    pub(in crate::backend::mcp) fn watch(
        &self,
        task: String,
        raw_request: Arc<RawRequest>,
    ) -> Watch<'_> {
        let watched = Arc::new(Watched { task, raw_request, changed: Notify::new() });
        lock(&self.watched).push(Arc::clone(&watched));
        Watch { state: self, watched }
    }

    pub(super) fn task_progressed(&self, token: i64, params: &RawValue) {
        for watched in lock(&self.watched).iter().filter(|one| one.raw_request.is_called(token)) {
            watched.raw_request.progress.report(params);
        }
    }

    /// Handles a notification of a task's status.
    pub(super) fn task_changed(&self, text: &str) {
        let params = Members::read(text).ok().and_then(|message| message.get("params"));
        let member = |key| params.and_then(|params| string_member(params.get(), key));
        let Some(task) = member("taskId") else { return };
        let works = member("status").is_some_and(|status| status == "working");
        for watched in lock(&self.watched).iter().filter(|one| one.task == task) {
            watched.raw_request.progress.touch();
            if !works {
                watched.changed.notify_one();
            }
        }
    }
}

impl Watch<'_> {
    /// Ends when the server has reported that the task does not work any more.
    pub(in crate::backend::mcp) async fn changed(&self) {
        self.watched.changed.notified().await;
    }

    /// Notes that the task works.
    pub(in crate::backend::mcp) fn touch(&self) {
        self.watched.raw_request.progress.touch();
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        lock(&self.state.watched).retain(|one| !Arc::ptr_eq(one, &self.watched));
    }
}
