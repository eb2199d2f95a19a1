//! The circuit breaker of one backend, which its calls and its supervisor share. Changes of its state
//! are logged.
//!
//! Must not: await anything, or decide what opens and closes it ([`state`] does).

mod state;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;
use tracing::{info, warn};

use self::state::{Breaker, Change, Ticket};
pub use self::state::{Look, Shut, Sign};
use crate::model::ids::BackendName;

/// The breaker of one backend, shared by its calls and its supervisor.
#[derive(Debug)]
pub struct CircuitBreaker {
    name: BackendName,
    breaker: Mutex<Breaker>,
}

/// Permits one call. If it is dropped without a sign of the backend, the next call may try in its place.
#[derive(Debug)]
pub struct Pass<'a> {
    breaker: &'a CircuitBreaker,
    ticket: Option<Ticket>,
}

impl CircuitBreaker {
    /// The breaker of the backend `name`, which lets every call through.
    pub fn new(name: BackendName) -> Self {
        Self { name, breaker: Mutex::new(Breaker::default()) }
    }

    /// Asks for leave to make a call.
    pub fn admit(&self) -> Result<Pass<'_>, Shut> {
        let ticket = self.breaker().admit(Instant::now())?;
        Ok(Pass { breaker: self, ticket: Some(ticket) })
    }

    /// There is a new connection to the backend, and it works.
    pub fn reconnected(&self) {
        let change = self.breaker().reconnected();
        self.tell(change);
    }

    /// How it stands.
    pub fn look(&self) -> Look {
        self.breaker().look(Instant::now())
    }

    fn ended(&self, ticket: Ticket, sign: Sign) {
        let change = self.breaker().ended(ticket, sign, Instant::now());
        self.tell(change);
    }

    fn tell(&self, change: Option<Change>) {
        let backend = &self.name;
        match change {
            None => (),
            Some(Change::Opened(wait)) => {
                warn!(%backend, "keeps failing: calls are refused for {wait:?}, then one may try");
            }
            Some(Change::Reopened(wait)) => {
                info!(%backend, "still fails: calls are refused for {wait:?}, then one may try");
            }
            Some(Change::Closed) => info!(%backend, "circuit breaker closed"),
        }
    }

    fn breaker(&self) -> MutexGuard<'_, Breaker> {
        // No method of a breaker panics half-way.
        self.breaker.lock()
    }
}

impl<'a> Pass<'a> {
    /// Asks again where things have changed since, such as while the call waited for its turn.
    pub fn renew(self) -> Result<Self, Shut> {
        let stands = self.ticket.is_some_and(|ticket| self.breaker.breaker().admits(ticket));
        if stands { Ok(self) } else { self.breaker.admit() }
    }

    /// Ends the call with what it says about the backend.
    pub fn end(mut self, sign: Sign) {
        if let Some(ticket) = self.ticket.take() {
            self.breaker.ended(ticket, sign);
        }
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.breaker.ended(ticket, Sign::None);
        }
    }
}
