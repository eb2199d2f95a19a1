//! How long to wait before the next attempt: exponential, with jitter, capped, never given up.
//!
//! A wait is drawn from the upper part of its range: that is wide enough for many clients of one
//! peer not to come back at the same instant, and nothing that is away is tried more than 40 times
//! in the first 10 minutes. Waits out of the whole range would make it 47 on average.
//!
//! Must not: sleep.

use std::time::Duration;

use crate::random;

/// The least share of a range that is waited.
const LEAST: f64 = 0.45;

/// The waits between the attempts at one thing.
#[derive(Debug, Clone)]
pub struct Backoff {
    base: Duration,
    cap: Duration,
    /// The longest that the next wait can be.
    top: Duration,
}

impl Backoff {
    /// Waits of up to `base`, doubled with each failure, and up to `cap` in the end.
    pub fn new(base: Duration, cap: Duration) -> Self {
        Self { base, cap, top: base.min(cap) }
    }

    /// Between connection attempts to a peer or to MANTYX: 0.25 s to 30 s.
    pub fn for_connections() -> Self {
        Self::new(Duration::from_millis(250), Duration::from_secs(30))
    }

    /// Lets waits grow up to `cap` from now on.
    pub fn raise_cap(&mut self, cap: Duration) {
        self.cap = self.cap.max(cap);
    }

    /// Begins again with the shortest wait: the other side has proved to be alive.
    pub fn reset(&mut self) {
        self.top = self.base.min(self.cap);
    }

    /// The next wait.
    pub fn next_wait(&mut self) -> Duration {
        let wait = self.top.mul_f64(LEAST + (1.0 - LEAST) * random::share());
        self.top = self.top.saturating_mul(2).min(self.cap);
        wait
    }
}

#[cfg(test)]
mod tests {
    //! The range grows to the cap and no further.

    use super::*;

    #[test]
    fn waits_grow_to_the_cap() {
        let mut backoff = Backoff::for_connections();
        let mut tops = Vec::new();
        for _ in 0..40 {
            let top = backoff.top;
            let wait = backoff.next_wait();
            assert!(wait <= top && wait >= top.mul_f64(LEAST - 1e-6), "{wait:?} of {top:?}");
            tops.push(top.as_millis());
        }
        assert_eq!(
            tops.get(..9),
            Some(&[250, 500, 1000, 2000, 4000, 8000, 16000, 30000, 30000][..])
        );
        assert!(tops.iter().skip(7).all(|top| *top == 30000));
        backoff.reset();
        assert_eq!(backoff.top, Duration::from_millis(250));
    }

    #[test]
    fn waits_grow_on_from_where_they_are_when_the_cap_is_raised() {
        let mut backoff = Backoff::new(Duration::from_secs(30), Duration::from_secs(30));
        backoff.next_wait();
        backoff.raise_cap(Duration::from_secs(100));
        let tops = std::iter::repeat_with(|| {
            backoff.next_wait();
            backoff.top.as_secs()
        });
        assert_eq!(tops.take(3).collect::<Vec<_>>(), [60, 100, 100]);
    }

    #[test]
    fn an_outage_of_ten_minutes_is_at_most_forty_attempts() {
        for _ in 0..1000 {
            let mut backoff = Backoff::for_connections();
            let mut passed = Duration::ZERO;
            let mut waits = Vec::new();
            while passed < Duration::from_secs(600) {
                let wait = backoff.next_wait();
                passed += wait;
                waits.push(wait.as_secs_f64());
            }
            let count = f64::from(u32::try_from(waits.len()).unwrap());
            let mean = waits.iter().sum::<f64>() / count;
            let variance = waits.iter().map(|wait| (wait - mean).powi(2)).sum::<f64>() / count;
            assert!(waits.len() <= 40, "{} attempts", waits.len());
            assert!(variance.sqrt() / mean >= 0.3, "the waits are spread");
        }
    }
}
