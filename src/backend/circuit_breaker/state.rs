//! The state machine of a circuit breaker: it rejects calls of a backend that keeps failing.
//!
//! ```text
//! closed --7 failures in a row--> open: no call for 1 s, 2 s, ... 60 s
//!   ^                              |  ^
//!   |                     time over|  | it failed: twice the time
//!   +------- it answered ------- probing: one call and no other
//! ```
//!
//! Any answer of the peer closes the breaker, and so does a new connection. The failure of a call
//! that was admitted before the last change does not count: it belongs to the failures that led to
//! that change.
//!
//! Must not: look at a clock, wait, or know what a failure is.

use std::time::Duration;

use tokio::time::Instant;

use crate::model::words::words;

/// This many failures in a row open the breaker (linkerd's number).
const FAILURES_TO_OPEN: u32 = 7;
/// How long the breaker is open at first.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// How long the breaker is open at most.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// The breaker of one backend.
#[derive(Debug)]
pub(super) struct Breaker {
    state: State,
    /// Counts the changes of state, so that a ticket from before a change can be told apart.
    period: u64,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Closed {
        /// In a row.
        failures: u32,
    },
    /// `wait` long, until `until`.
    Open { until: Instant, wait: Duration },
    /// One call is on its way; the breaker was open for `wait`.
    Probing { wait: Duration },
}

/// Permits one call, in the period that it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ticket(u64);

/// A call is rejected; the next one may try after this time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shut(pub Duration);

/// What the end of a call says about the backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    /// The peer gave an answer, whatever it says.
    Alive,
    /// The peer gave no answer.
    Failed,
    /// The call ended before it could tell, such as without a permit.
    None,
}

words! {
    /// The state of a breaker, for status pages and metrics.
    pub enum Look {
        Closed = "closed",
        Open = "open",
        /// One call may try, or is trying.
        HalfOpen = "half-open",
    }
}

/// A change that operators want to know of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// The breaker was closed and is open for this time.
    Opened(Duration),
    /// The probe failed; the breaker is open again, for this time.
    Reopened(Duration),
    Closed,
}

/// A closed breaker.
impl Default for Breaker {
    fn default() -> Self {
        Self { state: State::Closed { failures: 0 }, period: 0 }
    }
}

impl Breaker {
    /// Admits a call, or says why not. When an admitted call ends, call [`Self::ended`].
    pub(super) fn admit(&mut self, now: Instant) -> Result<Ticket, Shut> {
        match self.state {
            State::Closed { .. } => (),
            State::Open { until, .. } if now < until => return Err(Shut(until - now)),
            State::Open { wait, .. } => self.change(State::Probing { wait }),
            // How long the probe takes is not known.
            State::Probing { .. } => return Err(Shut(FIRST_WAIT)),
        }
        Ok(Ticket(self.period))
    }

    /// Whether the ticket is still valid: the state has not changed since it was given.
    pub(super) fn admits(&self, ticket: Ticket) -> bool {
        ticket.0 == self.period
    }

    /// Notes the end of the call that holds `ticket`.
    pub(super) fn ended(&mut self, ticket: Ticket, sign: Sign, now: Instant) -> Option<Change> {
        match (sign, self.state) {
            (Sign::Alive, State::Closed { .. }) => {
                self.state = State::Closed { failures: 0 };
                None
            }
            (Sign::Alive, _) => self.close(),
            _ if !self.admits(ticket) => None,
            (Sign::Failed, State::Closed { failures }) if failures + 1 < FAILURES_TO_OPEN => {
                self.state = State::Closed { failures: failures + 1 };
                None
            }
            (Sign::Failed, State::Closed { .. }) => {
                self.change(State::Open { until: now + FIRST_WAIT, wait: FIRST_WAIT });
                Some(Change::Opened(FIRST_WAIT))
            }
            (Sign::Failed, State::Probing { wait }) => {
                let wait = (2 * wait).min(LONGEST_WAIT);
                self.change(State::Open { until: now + wait, wait });
                Some(Change::Reopened(wait))
            }
            (Sign::None, State::Probing { wait }) => {
                // The probe found out nothing, so the next call may probe at once.
                self.change(State::Open { until: now, wait });
                None
            }
            (Sign::None, State::Closed { .. }) | (_, State::Open { .. }) => None,
        }
    }

    /// The present state, and how long the breaker stays open.
    pub(super) fn look(&self, now: Instant) -> (Look, Option<Duration>) {
        match self.state {
            State::Closed { .. } => (Look::Closed, None),
            State::Open { until, .. } if now < until => (Look::Open, Some(until - now)),
            State::Open { .. } | State::Probing { .. } => (Look::HalfOpen, None),
        }
    }

    /// Closes the breaker: the backend has answered, perhaps over a new connection.
    pub(super) fn close(&mut self) -> Option<Change> {
        let was_closed = matches!(self.state, State::Closed { .. });
        self.change(State::Closed { failures: 0 });
        if was_closed { None } else { Some(Change::Closed) }
    }

    fn change(&mut self, state: State) {
        self.state = state;
        self.period += 1;
    }
}

#[cfg(test)]
mod tests;
