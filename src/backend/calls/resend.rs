//! Sends a call again: one that a server did not run, as it had forgotten the session or had ended,
//! or one of a tool that may run twice.
//!
//! Must not: decide whether a call may be sent twice.

use tracing::info;

use super::connecting::{Connected, Patience};
use super::failure::CallFailure;
use super::{Backends, CallContext, CallDeadlines, Dispatch};
use crate::backend::CallOutcome;
use crate::backend::peer::CallError;
use crate::backend::registry::InUse;
use crate::model::Identity;

/// Why the call that `connection` was given has not been run, and goes to the next one; `None` if
/// it may have been run, or if there is no next one to wait for.
pub(super) fn not_run<'o>(
    outcome: &'o Result<CallOutcome, CallFailure>,
    connection: &InUse,
) -> Option<&'o str> {
    match outcome {
        Err(CallFailure::Call(CallError::NoSession(why))) => Some(why),
        // Its program has crashed, and its supervisor has not noticed yet: a moment later, the call
        // would have waited for the next connection.
        Err(CallFailure::Call(CallError::NotSent(why))) if connection.peer.has_ended() => Some(why),
        _ => None,
    }
}

impl Backends {
    /// Sends `call`, which has not been run, on the connection that follows `broken`. The
    /// definition is looked at again, permission asked again, and the dispatch recorded again: the
    /// new session may have brought other tools, and a reload other rights. The deadlines stay:
    /// what the call has waited was its server's own doing.
    pub(super) async fn send_on_next(
        &self,
        broken: InUse,
        call: &CallContext,
        why: &str,
        deadlines: CallDeadlines,
    ) -> Result<CallOutcome, CallFailure> {
        let name = &call.request.route.backend;
        info!(backend = %name, why, "the call was not run; sending it on the next connection");
        let patience = Patience::OfCall(deadlines.deadline);
        let fresh = self.connected(name, Some(&broken), patience).await?.connection;
        // A reload may have given the name to another server.
        if fresh.identity != broken.identity {
            return Err(CallFailure::NotConnected);
        }
        drop(broken);
        self.check_definition(call)?;
        self.record_dispatch(&fresh, call, Dispatch::Repeated).await?;
        self.attempt(&fresh, call, None, deadlines).await
    }

    /// Makes a call once more whose connection to `peer` was lost before the answer.
    pub(super) async fn repeat(
        &self,
        call: &CallContext,
        peer: Option<&Identity>,
        deadlines: CallDeadlines,
    ) -> Result<CallOutcome, CallFailure> {
        let name = &call.request.route.backend;
        let patience = Patience::OfCall(deadlines.deadline);
        let Connected { connection, .. } = self.connected(name, None, patience).await?;
        match self.repeat_on(&connection, call, peer, deadlines).await {
            // This was the broken connection: its supervisor has not noticed yet.
            Err(CallFailure::Call(CallError::NotSent(_))) => {
                let other = self.connected(name, Some(&connection), patience).await?;
                self.repeat_on(&other.connection, call, peer, deadlines).await
            }
            outcome => outcome,
        }
    }

    async fn repeat_on(
        &self,
        connection: &InUse,
        call: &CallContext,
        peer: Option<&Identity>,
        deadlines: CallDeadlines,
    ) -> Result<CallOutcome, CallFailure> {
        // A reload may have given the name to another server.
        if connection.identity.as_ref() != peer {
            return Err(CallFailure::AnotherPeer);
        }
        self.check_definition(call)?;
        self.record_dispatch(connection, call, Dispatch::Repeated).await?;
        self.attempt(connection, call, None, deadlines).await
    }
}
