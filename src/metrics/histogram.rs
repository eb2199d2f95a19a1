//! A histogram of durations.
//!
//! Must not: know which work takes the time.

use std::time::Duration;

use prometheus_client::metrics::histogram;

/// The buckets for calls, in seconds: up to the longest time that a call without a long-call answer
/// may take.
const CALLS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    120.0, 300.0,
];
/// The buckets for disk writes, in seconds: an fsync takes less than a millisecond on a good disk,
/// and can take more than a second on a busy one.
const DISK: &[f64] =
    &[0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0];

/// A histogram of durations.
#[derive(Debug, Clone)]
pub struct Histogram(histogram::Histogram);

impl Default for Histogram {
    /// A histogram for calls, and for work that takes as long.
    fn default() -> Self {
        Self(histogram::Histogram::new(CALLS.iter().copied()))
    }
}

impl Histogram {
    /// A histogram for writes to disk.
    pub fn of_disk() -> Self {
        Self(histogram::Histogram::new(DISK.iter().copied()))
    }

    /// Counts one duration.
    pub fn observe(&self, time: Duration) {
        self.0.observe(time.as_secs_f64());
    }

    /// The histogram for the page; both share their values.
    pub fn metric(&self) -> histogram::Histogram {
        self.0.clone()
    }
}

#[cfg(test)]
mod tests {
    //! Which bucket a time is in.

    use super::super::page;
    use super::*;

    /// The bound of the first bucket that has the value.
    fn bound(histogram: &Histogram) -> String {
        let page =
            page::write(Vec::new(), vec![page::Row::new("x", "X", Box::new(histogram.metric()))]);
        let bucket = page.lines().find(|line| line.contains("_bucket") && line.ends_with(" 1"));
        bucket.and_then(|line| line.split('"').nth(1)).expect("a bucket has it").to_owned()
    }

    #[test]
    fn a_bound_is_in_its_own_bucket_and_what_is_longer_in_the_next() {
        for (nanos, expected) in [
            (0, "0.001"),
            (1_000_000, "0.001"),
            (1_000_001, "0.0025"),
            (300_000_000_000, "300.0"),
            (300_000_000_001, "+Inf"),
        ] {
            let histogram = Histogram::default();
            histogram.observe(Duration::from_nanos(nanos));
            assert_eq!(bound(&histogram), expected, "{nanos} ns");
        }
        let histogram = Histogram::of_disk();
        histogram.observe(Duration::MAX);
        assert_eq!(bound(&histogram), "+Inf");
    }
}
