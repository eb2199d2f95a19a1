//! A histogram of durations, made of atomics. The one of prometheus-client takes a lock for each
//! value.
//!
//! Must not: lock, or allocate after it was made.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use prometheus_client::encoding::{MetricEncoder, NoLabelSet};

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
#[derive(Debug)]
pub struct Histogram {
    /// The longest time of each bucket but the last, in seconds.
    bounds: &'static [f64],
    /// One more than `bounds`. Each value counts in one bucket; the buckets are not cumulative.
    buckets: Box<[AtomicU64]>,
    /// The sum of all durations, in nanoseconds. A `u64` has room for 584 years.
    nanos: AtomicU64,
}

impl Histogram {
    /// A histogram for calls, and for work that takes as long.
    pub fn of_calls() -> Self {
        Self::new(CALLS)
    }

    /// A histogram for writes to disk.
    pub fn of_disk() -> Self {
        Self::new(DISK)
    }

    fn new(bounds: &'static [f64]) -> Self {
        let buckets = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, buckets, nanos: AtomicU64::new(0) }
    }

    /// Counts one duration.
    pub fn observe(&self, time: Duration) {
        let seconds = time.as_secs_f64();
        let bucket = self.bounds.partition_point(|bound| *bound < seconds);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    pub(super) fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        // Read before the buckets: a value that is counted meanwhile is then only missing in the
        // sum.
        let sum = Duration::from_nanos(self.nanos.load(Ordering::Relaxed)).as_secs_f64();
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        let counts = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed));
        let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }
}

#[cfg(test)]
mod tests {
    //! Which bucket a time is in.

    use super::*;

    fn filled(histogram: &Histogram) -> Vec<usize> {
        let count = |bucket: &AtomicU64| bucket.load(Ordering::Relaxed);
        let buckets = histogram.buckets.iter().enumerate();
        buckets.filter(|(_, bucket)| count(bucket) > 0).map(|(at, _)| at).collect()
    }

    #[test]
    fn a_bound_is_in_its_own_bucket_and_what_is_longer_in_the_next() {
        for (nanos, bucket) in [
            (0, 0),
            (1_000_000, 0),
            (1_000_001, 1),
            (300_000_000_000, CALLS.len() - 1),
            (300_000_000_001, CALLS.len()),
        ] {
            let histogram = Histogram::of_calls();
            histogram.observe(Duration::from_nanos(nanos));
            assert_eq!(filled(&histogram), [bucket], "{nanos} ns");
        }
        let histogram = Histogram::of_disk();
        histogram.observe(Duration::MAX);
        assert_eq!(filled(&histogram), [DISK.len()]);
    }
}
