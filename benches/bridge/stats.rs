//! Quantiles of what was measured in rounds.
//!
//! Must not: drop what does not fit.

use serde_json::{Value, json};

/// What one of the compared ones took, in nanoseconds, round by round.
#[derive(Debug, Default, Clone)]
pub(crate) struct Samples {
    rounds: Vec<Vec<u64>>,
}

impl Samples {
    /// Adds what one round has measured.
    pub(crate) fn round(&mut self, samples: Vec<u64>) {
        if !samples.is_empty() {
            self.rounds.push(samples);
        }
    }

    /// All rounds together; `None` where nothing was measured.
    pub(crate) fn quantiles(&self) -> Option<Quantiles> {
        let mut all = self.rounds.concat();
        all.sort_unstable();
        let medians: Vec<u64> = self.rounds.iter().map(|round| median(round)).collect();
        Some(Quantiles {
            count: all.len(),
            p50: at(&all, 0.5),
            p90: at(&all, 0.9),
            p99: at(&all, 0.99),
            max: *all.last()?,
            lowest_median: *medians.iter().min()?,
            highest_median: *medians.iter().max()?,
        })
    }
}

/// Nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Quantiles {
    pub(crate) count: usize,
    pub(crate) p50: u64,
    pub(crate) p90: u64,
    pub(crate) p99: u64,
    pub(crate) max: u64,
    /// The rounds' medians lie between these: how far the machine lets the figure be trusted.
    pub(crate) lowest_median: u64,
    pub(crate) highest_median: u64,
}

impl Quantiles {
    pub(crate) fn json(&self) -> Value {
        json!({
            "unit": "ns", "count": self.count, "p50": self.p50, "p90": self.p90, "p99": self.p99,
            "max": self.max, "roundMedians": [self.lowest_median, self.highest_median],
        })
    }

    /// As the columns of [`COLUMNS`].
    pub(crate) fn cells(&self) -> Vec<String> {
        let spread = format!("{}–{}", time(self.lowest_median), time(self.highest_median));
        let mut cells = [self.p50, self.p90, self.p99, self.max].map(time).to_vec();
        cells.extend([spread, self.count.to_string()]);
        cells
    }
}

/// What [`Quantiles::cells`] has.
pub(crate) const COLUMNS: [&str; 6] = ["p50", "p90", "p99", "max", "rounds' medians", "n"];

/// The smallest value that a share of `sorted` is not above.
fn at(sorted: &[u64], share: f64) -> u64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

pub(crate) fn median(values: &[u64]) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    at(&sorted, 0.5)
}

/// Nanoseconds for people, three digits of it.
pub(crate) fn time(nanos: u64) -> String {
    let value = nanos as f64;
    let (value, unit) = match nanos {
        0..1_000_000 => (value / 1e3, "µs"),
        1_000_000..1_000_000_000 => (value / 1e6, "ms"),
        _ => (value / 1e9, "s"),
    };
    let places = match value {
        0.0..10.0 => 2,
        10.0..100.0 => 1,
        _ => 0,
    };
    format!("{value:.places$} {unit}")
}

/// `a` as a multiple of `b`.
pub(crate) fn ratio(a: u64, b: u64) -> String {
    if b == 0 { "–".into() } else { format!("{:.2}×", a as f64 / b as f64) }
}
