//! Makes ids. Tests may have them counted, as they have to know them in advance.
//!
//! Must not: reuse one.

#[derive(Debug, Default)]
pub(super) struct Ids {
    /// The last number of each prefix, if ids are counted.
    #[cfg(test)]
    pub(super) counted: Option<parking_lot::Mutex<std::collections::HashMap<&'static str, u64>>>,
}

impl Ids {
    /// A new id that begins with `prefix`.
    #[cfg_attr(not(test), expect(clippy::unused_self, reason = "tests count the ids"))]
    pub(super) fn next(&self, prefix: &'static str) -> String {
        #[cfg(test)]
        if let Some(counted) = &self.counted {
            let mut counted = counted.lock();
            let number = counted.entry(prefix).or_default();
            *number += 1;
            return format!("{prefix}_{number}");
        }
        format!("{prefix}_{}", uuid::Uuid::new_v4().simple())
    }
}
