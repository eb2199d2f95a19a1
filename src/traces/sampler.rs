//! Decides which traces are recorded. Pure.
//!
//! The decision depends on the trace alone. So a run that is driven on after a restart is recorded
//! if it was before.
//!
//! Must not: read the environment.

use std::num::NonZeroU128;

/// Decides which of the traces that begin here are recorded: this share of them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampler {
    /// A new trace is recorded if its number is below this, out of 2^63.
    below: u64,
}

/// Every new trace.
impl Default for Sampler {
    fn default() -> Self {
        Self::with_share(1.0)
    }
}

impl Sampler {
    /// The sampler of this share, between 0 and 1.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "of 0 to 2^63")]
    #[expect(clippy::cast_precision_loss, reason = "2^63 is exact")]
    pub fn with_share(share: f64) -> Self {
        Self { below: (share * (1_u64 << 63) as f64) as u64 }
    }

    /// Whether a trace that begins here is recorded.
    #[expect(clippy::cast_possible_truncation, reason = "the right half is meant")]
    pub fn takes_new(self, trace: NonZeroU128) -> bool {
        // The 63 bits of a trace's id that every way to draw ids makes random. Other
        // implementations use the same bits of the right half, so that all programs in a trace
        // decide alike.
        let number = trace.get() as u64 >> 1;
        number < self.below
    }
}

#[cfg(test)]
mod tests {
    //! Shares.

    use super::*;
    use crate::model::trace::Trace;

    const SAMPLED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    /// 0x8448eb211c80319c is 0.5167 of 2^64.
    #[test]
    fn a_share_is_taken_by_the_right_half_of_the_id() {
        let new = Trace::read(&[SAMPLED], &[]).unwrap().ids().trace;
        for (share, taken) in [(0.0, false), (0.516, false), (0.517, true), (1.0, true)] {
            assert_eq!(Sampler::with_share(share).takes_new(new), taken, "{share}");
        }
        let quarter = Sampler::with_share(0.25);
        let taken = (0..4000).filter(|_| quarter.takes_new(rand::random())).count();
        assert!((800..1200).contains(&taken), "{taken} of 4000");
    }
}
