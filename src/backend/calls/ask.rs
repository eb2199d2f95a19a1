//! Requests to MCP servers that only read, for the bridge's own MCP clients: contents of resources,
//! prompts, completions. They wait in the same queue as calls do, and an open circuit breaker
//! refuses them.
//!
//! Must not: make a call.

use std::sync::Arc;

use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::admission::{Sending, admit};
use super::connecting::{Connected, Patience};
use super::failure::CallFailure;
use super::{BackendHandle, Backends, CallDeadlines};
use crate::backend::circuit_breaker::CallEvidence;
use crate::backend::log::Redactor;
use crate::backend::peer::ReadPermission;
use crate::backend::registry::InUse;
use crate::backend::{CallError, Reply};
use crate::model::redaction::Part;
use crate::model::{AppName, BackendName};
use crate::tasks::in_place_if_large;

/// What the outcome of a read says about the server.
///
/// An app chooses what it reads: a resource that never comes, or one that its server breaks over,
/// would otherwise open the breaker, and so end the calls of all apps. Only a connection that
/// cannot be used counts against the server.
pub(super) fn evidence_of_read<T>(outcome: &Result<T, CallFailure>) -> CallEvidence {
    match outcome {
        Ok(_) | Err(CallFailure::Call(CallError::Refused(_) | CallError::NotRead(_))) => {
            CallEvidence::Alive
        }
        Err(
            CallFailure::NotConnected
            | CallFailure::Call(CallError::NotSent(_) | CallError::NoSession(_)),
        ) => CallEvidence::Failed,
        Err(_) => CallEvidence::Inconclusive,
    }
}

async fn send(
    connection: &InUse,
    (method, params): (&'static str, Value),
    permission: ReadPermission,
    deadlines: CallDeadlines,
) -> Result<Reply, CallFailure> {
    timeout_at(deadlines.idle_deadline(), connection.peer.ask(method, params, permission))
        .await
        .map_err(|_elapsed| CallFailure::TimedOut(deadlines.elapsed()))?
        .map_err(CallFailure::Call)
}

impl Backends {
    /// Sends a request to a server, and waits for its answer within the backend's timeout. The
    /// error is a sentence for the client.
    ///
    /// `permission` is asked for right before each time that the request is sent: a reload may have
    /// taken the backend from the app while the request waited for its turn, a connection or a
    /// program's start.
    pub async fn ask(
        &self,
        app: &AppName,
        name: &BackendName,
        (method, params): (&'static str, Value),
        permission: ReadPermission,
    ) -> Result<Reply, String> {
        let all = self.all();
        let Some(backend) = all.handles.get(name) else {
            return Err(CallFailure::Removed.for_model(name));
        };
        let idle = backend.rules.call_timeout;
        let deadlines = CallDeadlines::new(idle, Instant::now() + idle);
        let for_client = |failure: CallFailure| {
            self.redactor_of(name, backend).text(failure.for_reader(name), &mut 0)
        };
        let admission =
            admit(backend, &all.permits, app, Sending::New, deadlines).await.map_err(for_client)?;
        let outcome = self.send_request(name, (method, params), permission, deadlines).await;
        if let Some(pass) = admission.pass {
            pass.end(evidence_of_read(&outcome));
        }
        let mut reply = outcome.map_err(for_client)?;
        let mut count = 0;
        let redactor = self.redactor_of(name, backend);
        match &mut reply {
            Ok(result) => {
                let changed = in_place_if_large(result.get().len(), || {
                    redactor.redact.in_json(result, Part::Result, &mut count)
                });
                if let Some(changed) = changed {
                    *result = changed;
                }
            }
            Err(error) => error.redact(&redactor, &mut count),
        }
        backend.metrics().redacted.inc_by(count);
        Ok(reply)
    }

    async fn send_request(
        &self,
        name: &BackendName,
        (method, params): (&'static str, Value),
        permission: ReadPermission,
        deadlines: CallDeadlines,
    ) -> Result<Reply, CallFailure> {
        let patience = Patience::OfCall(deadlines.deadline);
        let Connected { connection, has_waited } = self.connected(name, None, patience).await?;
        let deadlines = if has_waited { deadlines.with_clock_restarted() } else { deadlines };
        permission()?;
        let request = (method, params.clone());
        let first = send(&connection, request, Arc::clone(&permission), deadlines).await;
        let Err(CallFailure::Call(CallError::NotSent(_))) = first else { return first };
        if !connection.peer.has_ended() {
            return first;
        }
        // Its program has crashed, and its supervisor has not noticed yet.
        let next = self.connected(name, Some(&connection), patience).await?.connection;
        permission()?;
        send(&next, (method, params), permission, deadlines).await
    }

    /// What is to be hidden in the answers of `name` now: a reload may have added to it since the
    /// request came. A backend that was removed meanwhile hides what it did `before`.
    fn redactor_of(&self, name: &BackendName, before: &BackendHandle) -> Redactor {
        self.all().handles.get(name).map_or_else(|| before.redactor(), |now| now.redactor())
    }
}
