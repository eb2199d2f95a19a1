//! Sends a call again: one that a server did not run, as it had forgotten the session, or one of a
//! tool that may run twice.
//!
//! Must not: decide whether a call may be sent twice.

use tracing::info;

use super::connecting::{Connected, Patience};
use super::failure::CallFailure;
use super::{Backends, CallContext, Dispatch, Limits};
use crate::backend::CallOutcome;
use crate::backend::peer::CallError;
use crate::backend::registry::InUse;
use crate::model::Identity;

impl Backends {
    /// Sends `call` once more, on the connection that follows `broken`. Permission is asked again,
    /// and the dispatch recorded again: the new session may have brought other tools, and a reload
    /// other rights.
    pub(super) async fn send_in_new_session(
        &self,
        broken: InUse,
        call: &CallContext,
        why: &str,
        limits: Limits,
    ) -> Result<CallOutcome, CallFailure> {
        let name = &call.request.route.backend;
        info!(backend = %name, why, "the session is lost; sending the call in a new one");
        let patience = Patience::OfCall(limits.deadline);
        let fresh = self.connected(name, Some(&broken), patience).await?.connection;
        // A reload may have given the name to another server.
        if fresh.identity != broken.identity {
            return Err(CallFailure::NotConnected);
        }
        drop(broken);
        self.record_dispatch(&fresh, call, Dispatch::Repeated).await?;
        self.attempt(&fresh, call, None, limits).await
    }

    /// Makes a call once more whose connection to `peer` was lost before the answer.
    pub(super) async fn repeat(
        &self,
        call: &CallContext,
        peer: Option<&Identity>,
        limits: Limits,
    ) -> Result<CallOutcome, CallFailure> {
        let name = &call.request.route.backend;
        let patience = Patience::OfCall(limits.deadline);
        let Connected { connection, .. } = self.connected(name, None, patience).await?;
        match self.repeat_on(&connection, call, peer, limits).await {
            // This was the broken connection: its supervisor has not noticed yet.
            Err(CallFailure::Call(CallError::NotSent(_))) => {
                let other = self.connected(name, Some(&connection), patience).await?;
                self.repeat_on(&other.connection, call, peer, limits).await
            }
            outcome => outcome,
        }
    }

    async fn repeat_on(
        &self,
        connection: &InUse,
        call: &CallContext,
        peer: Option<&Identity>,
        limits: Limits,
    ) -> Result<CallOutcome, CallFailure> {
        // A reload may have given the name to another server.
        if connection.identity.as_ref() != peer {
            return Err(CallFailure::AnotherPeer);
        }
        self.record_dispatch(connection, call, Dispatch::Repeated).await?;
        self.attempt(connection, call, None, limits).await
    }
}
