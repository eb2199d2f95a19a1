//! Decides which traces are recorded, by the names of `OTEL_TRACES_SAMPLER`. Pure.
//!
//! The decision depends on the trace alone. So a run that is driven on after a restart is recorded
//! if it was before.
//!
//! Must not: read the environment.

use std::num::NonZeroU128;

use crate::model::trace::Ids;

/// Decides which traces are recorded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampler {
    /// A trace that another program began is recorded if that program records it.
    follows: bool,
    share: Share,
}

/// The share of traces that this sampler selects.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Share {
    All,
    None,
    /// The traces whose number is below this, out of 2^63.
    Below(u64),
}

impl Default for Sampler {
    /// `parentbased_always_on`.
    fn default() -> Self {
        Self { follows: true, share: Share::All }
    }
}

impl Sampler {
    /// The sampler of this name, with a ratio between 0 and 1; `None` if there is none.
    pub fn of(name: &str, ratio: f64) -> Option<Self> {
        let (follows, base) = match name.strip_prefix("parentbased_") {
            Some(base) => (true, base),
            None => (false, name),
        };
        let share = match base {
            "always_on" => Share::All,
            "always_off" => Share::None,
            "traceidratio" => Share::of(ratio),
            _ => return None,
        };
        Some(Self { follows, share })
    }

    /// Whether work in a trace of another program is recorded.
    pub fn takes(&self, trace: &Ids) -> bool {
        if self.follows { trace.is_sampled() } else { self.takes_new(trace.trace) }
    }

    /// Whether a trace that begins here is recorded.
    pub fn takes_new(&self, trace: NonZeroU128) -> bool {
        match self.share {
            Share::All => true,
            Share::None => false,
            Share::Below(bound) => number(trace) < bound,
        }
    }
}

impl Share {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "of 0 to 2^63")]
    #[expect(clippy::cast_precision_loss, reason = "2^63 is exact")]
    fn of(ratio: f64) -> Self {
        if ratio >= 1.0 { Self::All } else { Self::Below((ratio * (1_u64 << 63) as f64) as u64) }
    }
}

/// The 63 bits of a trace's id that every way to draw ids makes random. Other implementations use
/// the same bits of the right half, so that all programs in a trace decide alike.
#[expect(clippy::cast_possible_truncation, reason = "the right half is meant")]
fn number(trace: NonZeroU128) -> u64 {
    trace.get() as u64 >> 1
}

#[cfg(test)]
mod tests {
    //! Names, parents and shares.

    use super::*;
    use crate::model::trace::Trace;

    const SAMPLED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn ids(parent: &str) -> Ids {
        Trace::read(&[parent], &[]).unwrap().ids()
    }

    #[track_caller]
    fn takes(name: &str, ratio: f64, [sampled, unsampled, new]: [bool; 3]) {
        let sampler = Sampler::of(name, ratio).unwrap();
        assert_eq!(sampler.takes(&ids(SAMPLED)), sampled, "{name} in a sampled trace");
        let other = ids(&SAMPLED.replace("-01", "-00"));
        assert_eq!(sampler.takes(&other), unsampled, "{name} in an unsampled trace");
        assert_eq!(sampler.takes_new(ids(SAMPLED).trace), new, "{name} where a trace begins");
    }

    #[test]
    fn names() {
        takes("always_on", 1.0, [true, true, true]);
        takes("always_off", 1.0, [false, false, false]);
        takes("traceidratio", 0.0, [false, false, false]);
        takes("traceidratio", 1.0, [true, true, true]);
        takes("parentbased_always_on", 1.0, [true, false, true]);
        takes("parentbased_always_off", 1.0, [true, false, false]);
        takes("parentbased_traceidratio", 0.0, [true, false, false]);
        takes("parentbased_traceidratio", 1.0, [true, false, true]);
        for unknown in ["", "jaeger_remote", "parentbased_", "ALWAYS_ON"] {
            assert_eq!(Sampler::of(unknown, 1.0), None, "{unknown}");
        }
        assert_eq!(Sampler::of("parentbased_always_on", 0.0), Some(Sampler::default()));
    }

    /// 0x8448eb211c80319c is 0.5167 of 2^64.
    #[test]
    fn a_share_is_taken_by_the_right_half_of_the_id() {
        takes("traceidratio", 0.516, [false, false, false]);
        takes("traceidratio", 0.517, [true, true, true]);
        let quarter = Sampler::of("traceidratio", 0.25).unwrap();
        let taken = (0..4000).filter(|_| quarter.takes_new(rand::random())).count();
        assert!((800..1200).contains(&taken), "{taken} of 4000");
    }
}
