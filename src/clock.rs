//! The clocks that outlive the process: the wall clock and the boot clock. A simulation sets them.
//! Also how times and durations are written.
//!
//! Must not: measure how long something takes; that is `tokio::time::Instant`'s.

use std::fs;
use std::sync::LazyLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

use crate::model::moment::{Millis, Moment, Uptime};

/// The present moment, by both clocks.
pub fn moment() -> Moment {
    #[cfg(test)]
    if let Some(world) = crate::simulated::world() {
        return world.moment();
    }
    /// The beginning of the boot's id, enough to tell boots apart.
    static BOOT: LazyLock<Option<u64>> = LazyLock::new(|| {
        let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let digits: String = id.chars().filter(char::is_ascii_hexdigit).take(16).collect();
        u64::from_str_radix(&digits, 16).ok()
    });
    let since_boot = Duration::try_from(clock_gettime(ClockId::Boottime)).ok();
    let millis = since_boot.and_then(|time| u64::try_from(time.as_millis()).ok());
    let up = (*BOOT).zip(millis).map(|(boot, millis)| Uptime(boot, millis));
    Moment { wall: wall(), up }
}

/// The time since the boot, with the time that the machine has slept.
pub fn since_boot() -> Duration {
    Duration::from_millis(moment().up.map_or(0, |up| up.1))
}

/// The wall clock.
pub fn millis() -> Millis {
    #[cfg(test)]
    if let Some(world) = crate::simulated::world() {
        return world.moment().wall;
    }
    wall()
}

/// The wall clock, as a time.
pub fn now() -> SystemTime {
    #[cfg(test)]
    if let Some(world) = crate::simulated::world() {
        return time(world.moment().wall);
    }
    system()
}

/// The wall clock's reading as a time.
pub fn time(at: Millis) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(at)
}

/// A time as logs and answers write it: `2026-06-08T17:00:00.000Z`.
pub fn rfc3339(at: SystemTime) -> String {
    humantime::format_rfc3339_millis(at).to_string()
}

/// The whole milliseconds of a duration.
pub fn millis_of(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn wall() -> Millis {
    millis_of(system().duration_since(UNIX_EPOCH).unwrap_or_default())
}

#[expect(clippy::disallowed_methods, reason = "the one place that asks the system")]
fn system() -> SystemTime {
    SystemTime::now()
}
