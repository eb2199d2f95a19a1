//! Sends a call again that a server did not run, as it had forgotten the session.
//!
//! Must not: send a call again that may have run.

use tracing::info;

use super::connecting::Patience;
use super::failure::CallFailure;
use super::{Backends, CallContext, Limits};
use crate::backend::CallOutcome;
use crate::backend::registry::InUse;

impl Backends {
    /// Sends `call` once more, on the connection that follows `broken`. Permission is asked again, and
    /// the dispatch recorded again: the new session may have brought other tools, and a reload other
    /// rights.
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
        self.record_dispatch(&fresh, call, false).await?;
        self.attempt(&fresh, call, None, limits).await
    }
}
