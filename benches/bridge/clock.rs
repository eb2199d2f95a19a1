//! The one clock of all processes: `CLOCK_MONOTONIC`, in nanoseconds.
//!
//! Must not: be used to judge anything.

use rustix::time::{ClockId, clock_gettime};

pub(crate) const SECOND: u64 = 1_000_000_000;

/// Nanoseconds since the machine was started; the same for every process on it.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    part(time.tv_sec) * SECOND + part(time.tv_nsec)
}

pub(crate) fn seconds_since(begun: u64) -> f64 {
    seconds(now().saturating_sub(begun))
}

/// Nanoseconds as seconds.
pub(crate) fn seconds(nanos: u64) -> f64 {
    nanos as f64 / SECOND as f64
}
