//! Moments that two processes of the bridge can compare.
//!
//! The wall clock can be set back and forth. The time since the boot cannot, but restarts with
//! every boot. So a moment has both.
//!
//! Pure.
//!
//! Must not: read a clock (journal/clock.rs does).

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Milliseconds since the epoch, by the wall clock.
pub type Millis = u64;

/// The machine's boot, and for how many milliseconds it has been up, suspended or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Uptime(pub u64, pub Millis);

/// A moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    pub wall: Millis,
    /// `None` if the system does not provide it.
    pub up: Option<Uptime>,
}

impl Moment {
    /// How long after this moment `now` is. `noted` is the latest wall-clock time that is known to
    /// have passed. `None`: not known, as the machine was booted and its clock put back.
    pub fn until(self, now: Self, noted: Millis) -> Option<Duration> {
        let elapsed = match (self.up, now.up) {
            (Some(Uptime(boot, then)), Some(Uptime(same, now))) if boot == same => {
                now.checked_sub(then)
            }
            _ if now.wall < noted => None,
            _ => now.wall.checked_sub(self.wall),
        };
        elapsed.map(Duration::from_millis)
    }
}

#[cfg(test)]
mod tests {
    //! Which clock counts.

    use super::*;

    fn moment(wall: Millis, up: Option<(u64, Millis)>) -> Moment {
        Moment { wall, up: up.map(|(boot, up)| Uptime(boot, up)) }
    }

    #[test]
    fn the_boot_clock_counts_and_after_a_boot_the_wall_clock_unless_it_was_put_back() {
        const HOUR: Millis = 3_600_000;
        let noted = HOUR + 50;
        struct Case {
            then: (Millis, Option<(u64, Millis)>),
            now: (Millis, Option<(u64, Millis)>),
            expected: Option<u64>,
        }
        for Case { then, now, expected } in [
            // The same boot, whatever the wall clock does.
            Case {
                then: (HOUR, Some((1, 10))),
                now: (HOUR + 70, Some((1, 80))),
                expected: Some(70),
            },
            Case { then: (HOUR, Some((1, 10))), now: (0, Some((1, 80))), expected: Some(70) },
            Case {
                then: (HOUR, Some((1, 10))),
                now: (9 * HOUR, Some((1, 80))),
                expected: Some(70),
            },
            Case { then: (HOUR, Some((1, 80))), now: (9 * HOUR, Some((1, 10))), expected: None },
            // Another one.
            Case {
                then: (HOUR, Some((1, 10))),
                now: (HOUR + 70, Some((2, 5))),
                expected: Some(70),
            },
            Case { then: (HOUR, None), now: (HOUR + 70, None), expected: Some(70) },
            Case { then: (HOUR, None), now: (HOUR + 70, Some((2, 5))), expected: Some(70) },
            Case { then: (HOUR, Some((1, 10))), now: (0, Some((2, 5))), expected: None },
            // It was later than that already.
            Case { then: (HOUR, Some((1, 10))), now: (HOUR + 40, Some((2, 5))), expected: None },
        ] {
            let elapsed = moment(then.0, then.1).until(moment(now.0, now.1), noted);
            let told = format!("{then:?} {now:?}");
            assert_eq!(elapsed, expected.map(Duration::from_millis), "{told}");
        }
    }
}
