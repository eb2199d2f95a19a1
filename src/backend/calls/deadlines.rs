//! How long one call may take.
//!
//! Must not: wait.

use std::time::Duration;

use tokio::time::Instant;

/// The longest that a call waits for a permit: half of the time that a call has if it does not
/// become a long call.
const PERMIT_PATIENCE: Duration = Duration::from_secs(145);

/// How long one call may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallDeadlines {
    start: Instant,
    /// The longest time without a sign of progress.
    idle: Duration,
    /// The end of the call, whatever progress the peer reports.
    pub(super) deadline: Instant,
}

impl CallDeadlines {
    pub(super) fn new(idle: Duration, deadline: Instant) -> Self {
        Self { start: Instant::now(), idle, deadline }
    }

    /// The deadlines of a call that is sent only now.
    pub(super) fn with_clock_restarted(self) -> Self {
        Self { start: Instant::now(), ..self }
    }

    /// The end of a call that shows no progress.
    pub(super) fn idle_deadline(&self) -> Instant {
        self.deadline.min(self.start + self.idle)
    }

    /// The end of a call that has shown progress just now.
    pub(super) fn idle_deadline_from_now(&self) -> Instant {
        self.deadline.min(Instant::now() + self.idle)
    }

    /// The latest time for a permit. Only half of the time is for waiting, so that a call which
    /// gets a permit has time to run.
    pub(super) fn permit_deadline(&self) -> Instant {
        let half = self.idle_deadline().saturating_duration_since(self.start) / 2;
        self.start + half.min(PERMIT_PATIENCE)
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }
}
