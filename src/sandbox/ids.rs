//! Makes ids. Unit tests have them counted (`run_1`), as they have to know them in advance.
//!
//! Must not: reuse one.

#[derive(Debug, Default)]
pub(super) struct Ids {
    /// The last number of each prefix.
    #[cfg(test)]
    counters: parking_lot::Mutex<crate::model::maps::HashMap<&'static str, u64>>,
}

impl Ids {
    /// A new id that begins with `prefix`.
    #[cfg(not(test))]
    #[expect(clippy::unused_self, reason = "tests count the ids")]
    pub(super) fn next(&self, prefix: &'static str) -> String {
        format!("{prefix}_{}", crate::random::uuid().simple())
    }

    #[cfg(test)]
    pub(super) fn next(&self, prefix: &'static str) -> String {
        let mut counters = self.counters.lock();
        let number = counters.entry(prefix).or_default();
        *number += 1;
        format!("{prefix}_{number}")
    }
}
