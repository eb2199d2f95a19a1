//! Makes ids: random ones, or counted ones for tests that have to know them in advance.
//!
//! Must not: reuse one.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::model::ids::{RunId, SessionId, ToolUseId};

#[derive(Debug)]
pub(super) struct Ids {
    /// The last number of each prefix, if ids are counted.
    counted: Option<Mutex<HashMap<&'static str, u64>>>,
}

impl Ids {
    pub(super) fn new(counted: bool) -> Self {
        Self { counted: counted.then(Mutex::default) }
    }

    pub(super) fn run(&self) -> RunId {
        self.next("run").into()
    }

    pub(super) fn session(&self) -> SessionId {
        self.next("ses").into()
    }

    pub(super) fn tool_use(&self) -> ToolUseId {
        self.next("tu").into()
    }

    pub(super) fn feedback(&self) -> String {
        self.next("fb")
    }

    fn next(&self, prefix: &'static str) -> String {
        let Some(counted) = &self.counted else {
            return format!("{prefix}_{}", uuid::Uuid::new_v4().simple());
        };
        let mut counted = counted.lock();
        let number = counted.entry(prefix).or_default();
        *number += 1;
        format!("{prefix}_{number}")
    }
}
