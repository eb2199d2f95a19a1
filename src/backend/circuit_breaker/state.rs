//! Whether a backend that keeps failing is called at all: a circuit breaker.
//!
//! ```text
//! closed --7 failures in a row--> open: no call for 1 s, 2 s, ... 60 s
//!   ^                              |  ^
//!   |                     time over|  | it failed: twice the time
//!   +------- it answered ------- probing: one call and no other
//! ```
//!
//! Any answer of the peer closes it, and so does a new connection. The failure of a call that was
//! let through before the last change does not count: it is a part of what led to that change.
//!
//! Must not: look at a clock, wait, or know what a failure is.

use std::time::Duration;

use tokio::time::Instant;

/// So many failures in a row open it (linkerd's number).
const FAILURES_TO_OPEN: u32 = 7;
/// How long it is open at first.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// How long it is open at most.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// The breaker of one backend.
#[derive(Debug)]
pub(super) struct Breaker {
    state: State,
    /// Counts the changes of state.
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

/// Leave to make one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ticket {
    period: u64,
}

/// Why a call is not let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shut {
    /// The next call is let through after this time.
    For(Duration),
    /// Another call is finding out whether the backend answers again.
    WhileProbing,
}

/// What a call says about the backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    /// The peer gave an answer, whatever it says.
    Alive,
    /// There was none.
    Failed,
    /// The call did not get that far.
    None,
}

/// How a breaker stands, for those who only look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    Closed,
    /// For this time.
    Open(Duration),
    /// One call may try, or is trying.
    HalfOpen,
}

impl Look {
    /// The words of [`Self::as_str`].
    pub const WORDS: [&'static str; 3] = ["closed", "open", "half-open"];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open(_) => "open",
            Self::HalfOpen => "half-open",
        }
    }
}

/// A change that operators want to know of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// It was closed and is open for this time.
    Opened(Duration),
    /// The probe failed; it is open again, for this time.
    Reopened(Duration),
    Closed,
}

/// A breaker that lets every call through.
impl Default for Breaker {
    fn default() -> Self {
        Self { state: State::Closed { failures: 0 }, period: 0 }
    }
}

impl Breaker {
    /// Asks for leave to make a call. Where it is given, [`Self::ended`] must be told of its end.
    pub(super) fn admit(&mut self, now: Instant) -> Result<Ticket, Shut> {
        match self.state {
            State::Closed { .. } => (),
            State::Open { until, .. } if now < until => return Err(Shut::For(until - now)),
            State::Open { wait, .. } => self.change(State::Probing { wait }),
            State::Probing { .. } => return Err(Shut::WhileProbing),
        }
        Ok(Ticket { period: self.period })
    }

    /// Whether the leave that was given still stands.
    pub(super) fn admits(&self, ticket: Ticket) -> bool {
        ticket.period == self.period
    }

    /// The call that `ticket` was given for has ended.
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
                self.open(now, FIRST_WAIT);
                Some(Change::Opened(FIRST_WAIT))
            }
            (Sign::Failed, State::Probing { wait }) => {
                let wait = (2 * wait).min(LONGEST_WAIT);
                self.open(now, wait);
                Some(Change::Reopened(wait))
            }
            (Sign::None, State::Probing { wait }) => {
                // The next call may try at once.
                self.change(State::Open { until: now, wait });
                None
            }
            (Sign::None, State::Closed { .. }) | (_, State::Open { .. }) => None,
        }
    }

    /// There is a new connection, over which the backend has shown that it lives.
    pub(super) fn reconnected(&mut self) -> Option<Change> {
        self.close()
    }

    /// How it stands.
    pub(super) fn look(&self, now: Instant) -> Look {
        match self.state {
            State::Closed { .. } => Look::Closed,
            State::Open { until, .. } if now < until => Look::Open(until - now),
            State::Open { .. } | State::Probing { .. } => Look::HalfOpen,
        }
    }

    fn close(&mut self) -> Option<Change> {
        let was_closed = matches!(self.state, State::Closed { .. });
        self.change(State::Closed { failures: 0 });
        (!was_closed).then_some(Change::Closed)
    }

    fn open(&mut self, now: Instant, wait: Duration) {
        self.change(State::Open { until: now + wait, wait });
    }

    fn change(&mut self, state: State) {
        self.state = state;
        self.period += 1;
    }
}

#[cfg(test)]
mod tests;
