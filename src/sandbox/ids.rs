//! Makes ids: random ones, or counted ones for tests that have to know them in advance.
//!
//! Must not: reuse one.

use std::collections::HashMap;

use parking_lot::Mutex;

#[derive(Debug)]
pub(super) struct Ids {
    /// The last number of each prefix, if ids are counted.
    counted: Option<Mutex<HashMap<&'static str, u64>>>,
}

impl Ids {
    pub(super) fn new(counted: bool) -> Self {
        Self { counted: counted.then(Mutex::default) }
    }

    /// A new id that begins with `prefix`.
    pub(super) fn next(&self, prefix: &'static str) -> String {
        let Some(counted) = &self.counted else {
            return format!("{prefix}_{}", uuid::Uuid::new_v4().simple());
        };
        let mut counted = counted.lock();
        let number = counted.entry(prefix).or_default();
        *number += 1;
        format!("{prefix}_{number}")
    }
}
