//! When a call or a read may be sent: the circuit breaker's word, and the permits.
//!
//! Must not: send anything.

use tokio::time::Instant;

use super::failure::CallFailure;
use super::{BackendHandle, CallDeadlines};
use crate::backend::circuit_breaker::Pass;
use crate::backend::peer::CallError;
use crate::limits::queue::{AdmissionQueue, Permit, Rejected};
use crate::model::AppName;

/// What goes to a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sending {
    New,
    /// The question for the outcome of work that the peer has begun.
    Resumed,
}

/// The breaker's pass and the permits that a call holds while it runs.
pub(super) struct Admission<'a> {
    /// `None` if the bridge only asks for work that was started before: that is no new call, so the
    /// breaker has no say.
    pub(super) pass: Option<Pass<'a>>,
    pub(super) own: Permit,
    pub(super) of_all: Permit,
}

/// Waits until `app` may send: asks the backend's circuit breaker, then waits for a permit of the
/// backend's queue and one of those that all backends share.
///
/// The breaker is asked again after the wait: it may have opened meanwhile, and all that waited
/// would be sent to a backend that fails.
pub(super) async fn admit<'a>(
    backend: &'a BackendHandle,
    of_all: &AdmissionQueue,
    app: &AppName,
    sending: Sending,
    deadlines: CallDeadlines,
) -> Result<Admission<'a>, CallFailure> {
    let pass = match sending {
        Sending::New => Some(backend.breaker.admit().map_err(CallFailure::BreakerOpen)?),
        Sending::Resumed => None,
    };
    let permits = acquire(&backend.queue, of_all, app, sending, deadlines.permit_deadline()).await;
    backend.metrics().turn.observe(deadlines.elapsed());
    let (own, of_all) = permits.map_err(|why| match sending {
        Sending::New => CallFailure::Rejected(why, deadlines.elapsed()),
        Sending::Resumed => CallFailure::Call(CallError::Lost("no turn to ask for it".to_owned())),
    })?;
    let pass = pass.map(Pass::renew).transpose().map_err(CallFailure::BreakerOpen)?;
    Ok(Admission { pass, own, of_all })
}

/// Acquires a permit of the backend and one of all backends. The backend's own comes first, so that
/// calls which wait in a long queue hold no shared permit and cannot delay other backends.
async fn acquire(
    queue: &AdmissionQueue,
    of_all: &AdmissionQueue,
    app: &AppName,
    sending: Sending,
    by: Instant,
) -> Result<(Permit, Permit), Rejected> {
    let own = match sending {
        Sending::New => queue.acquire(app, by).await?,
        Sending::Resumed => queue.acquire_unbounded(app, by).await?,
    };
    Ok((own, of_all.acquire_unbounded(app, by).await?))
}
