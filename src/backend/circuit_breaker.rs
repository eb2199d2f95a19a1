//! The circuit breaker of one backend, shared by its calls and its supervisor. It logs every change
//! of its state.
//!
//! Must not: await anything, or decide when to open and close ([`state`] does).

mod state;

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::{info, warn};

use self::state::{Breaker, Change, Ticket};
pub use self::state::{BreakerOpen, BreakerState, CallEvidence};
use crate::model::BackendName;

/// The breaker of one backend, shared by its calls and its supervisor.
#[derive(Debug)]
pub struct CircuitBreaker {
    name: BackendName,
    /// No method of `Breaker` panics half-way, so its state is valid whatever happens.
    breaker: Mutex<Breaker>,
}

/// Permits one call. If a probing call's pass is dropped without a sign of the backend, the next
/// call may probe at once.
#[derive(Debug)]
pub struct Pass<'a> {
    breaker: &'a CircuitBreaker,
    ticket: Ticket,
    /// What the call has found out so far.
    evidence: CallEvidence,
}

impl CircuitBreaker {
    /// The breaker of the backend `name`, which lets every call through.
    pub fn new(name: BackendName) -> Self {
        Self { name, breaker: Mutex::new(Breaker::default()) }
    }

    /// Admits a call, or says why not. End the pass with [`Pass::end`].
    pub fn admit(&self) -> Result<Pass<'_>, BreakerOpen> {
        let ticket = self.breaker.lock().admit(Instant::now())?;
        Ok(Pass { breaker: self, ticket, evidence: CallEvidence::Inconclusive })
    }

    /// Closes the breaker: there is a new connection to the backend, and it works.
    pub fn reconnected(&self) {
        let change = self.breaker.lock().close();
        self.tell(change);
    }

    /// The present state, and how long the breaker stays open.
    pub fn state(&self) -> (BreakerState, Option<Duration>) {
        self.breaker.lock().state(Instant::now())
    }

    fn tell(&self, change: Option<Change>) {
        let backend = &self.name;
        match change {
            None => (),
            Some(Change::Opened(wait)) => {
                warn!(%backend, "keeps failing: calls are refused for {wait:?}, then one may try");
            }
            Some(Change::Reopened(wait)) => {
                info!(%backend, "still failing: calls are refused for {wait:?}, then one may try");
            }
            Some(Change::Closed) => info!(%backend, "circuit breaker closed"),
        }
    }
}

impl<'a> Pass<'a> {
    /// Checks the pass again after a wait, such as for a permit. If the breaker has changed its
    /// state since, the call has to be admitted again.
    pub fn renew(self) -> Result<Self, BreakerOpen> {
        let stands = self.breaker.breaker.lock().admits(self.ticket);
        if stands { Ok(self) } else { self.breaker.admit() }
    }

    /// Ends the call and tells the breaker whether the backend gave an answer.
    pub fn end(mut self, evidence: CallEvidence) {
        self.evidence = evidence;
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        let change =
            self.breaker.breaker.lock().record_outcome(self.ticket, self.evidence, Instant::now());
        self.breaker.tell(change);
    }
}
