//! Answers that MANTYX did not want while it did not know their run either: they are posted again
//! once it does.
//!
//! Must not: hold more than there is room for. What finds none is given up, as MANTYX asked.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;

use super::{entry::Entry, log::Room};
use crate::model::ids::{RunId, ToolUseId};

/// The agent run, in an eval, and the tool use.
type Key = (Option<RunId>, ToolUseId);

/// The answers of one run. They share the room of the events.
#[derive(Debug)]
pub(super) struct Unwanted {
    room: Room,
    answers: HashMap<Key, (Arc<Entry>, Bytes)>,
}

impl Unwanted {
    pub(super) fn new(room: &Room) -> Self {
        Self { room: room.clone(), answers: HashMap::new() }
    }

    /// Keeps an answer, if there is room.
    pub(super) fn keep(&mut self, entry: &Arc<Entry>, body: Bytes) -> bool {
        if self.room.is_scarce() {
            return false;
        }
        self.room.use_up(body.len());
        let call = entry.call();
        let key = (call.agent_run, call.tool_use);
        if let Some((_, before)) = self.answers.insert(key, (Arc::clone(entry), body)) {
            self.room.give_back(before.len());
        }
        true
    }

    /// All of them, which are not kept any more.
    pub(super) fn take(&mut self) -> Vec<(Arc<Entry>, Bytes)> {
        let taken: Vec<_> = self.answers.drain().map(|(_, answer)| answer).collect();
        self.room.give_back(taken.iter().map(|(_, body)| body.len()).sum());
        taken
    }
}

impl Drop for Unwanted {
    fn drop(&mut self) {
        self.take();
    }
}
