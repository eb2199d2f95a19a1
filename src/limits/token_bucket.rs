//! A token bucket: a burst at once, and then so many a second.
//!
//! Must not: read the clock.

use std::time::Duration;

use tokio::time::Instant;

use crate::config::Rate;

/// The state of one limit.
#[derive(Debug, Clone, Copy)]
pub struct Bucket {
    tokens: f64,
    at: Instant,
}

impl Bucket {
    pub fn full(rate: Rate, now: Instant) -> Self {
        Self { tokens: rate.burst, at: now }
    }

    /// Takes one token, or returns how long it takes until there is one.
    pub fn take(&mut self, rate: Rate, now: Instant) -> Result<(), Duration> {
        self.wait(rate, now).map_or(Ok(()), Err)?;
        self.tokens -= 1.0;
        Ok(())
    }

    /// How long it takes until there is a token; `None` if there is one.
    pub fn wait(&mut self, rate: Rate, now: Instant) -> Option<Duration> {
        let since = now.saturating_duration_since(self.at).as_secs_f64();
        self.tokens = (self.tokens + since * rate.per_second).min(rate.burst);
        self.at = now;
        if self.tokens < 1.0 {
            Some(Duration::from_secs_f64((1.0 - self.tokens) / rate.per_second))
        } else {
            None
        }
    }

    /// A full bucket need not be kept: a new one would be in the same state.
    pub fn is_full(&mut self, rate: Rate, now: Instant) -> bool {
        self.wait(rate, now);
        self.tokens >= rate.burst
    }
}

/// `Retry-After` for a wait: whole seconds, at least one.
pub fn seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0 || wait.is_zero())
}

#[cfg(test)]
mod tests {
    //! What goes through, in made-up time.

    use super::*;

    #[test]
    fn a_burst_and_then_so_many_a_second() {
        let rate = Rate { per_second: 10.0, burst: 5.0 };
        let begin = Instant::now();
        let mut bucket = Bucket::full(rate, begin);
        let went = (0..20).filter(|_| bucket.take(rate, begin).is_ok()).count();
        assert_eq!(went, 5);
        let wait = bucket.take(rate, begin).unwrap_err();
        assert_eq!(wait, Duration::from_millis(100));
        assert!(bucket.take(rate, begin + wait).is_ok());
        let later = begin + Duration::from_secs(10);
        assert!(bucket.is_full(rate, later));
        let went = (0..20).filter(|_| bucket.take(rate, later).is_ok()).count();
        assert_eq!(went, 5, "no more than the burst, however long it was quiet");
    }

    #[test]
    fn waits_in_whole_seconds() {
        for (millis, whole) in [(0, 1), (1, 1), (1000, 1), (1001, 2)] {
            assert_eq!(seconds(Duration::from_millis(millis)), whole);
        }
    }
}
