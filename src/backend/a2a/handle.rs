//! The data with which a task can be asked for after a restart, as the text of a [`Handle`].
//!
//! Must not: ask the agent anything. Later versions read the text, too: members may be added, but
//! never change their meaning.

use serde::{Deserialize, Serialize};

use super::threads::MAX_ID;
use crate::backend::Handle;

/// A task and its conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Known {
    pub task: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
}

impl Known {
    /// `None` if the task's id is longer than [`MAX_ID`].
    pub(super) fn new(task: &str, context: Option<&str>) -> Option<Self> {
        let short = |id: &&str| id.len() <= MAX_ID;
        let task = Some(task).filter(short)?.to_owned();
        Some(Self { task, context: context.filter(short).map(str::to_owned) })
    }

    pub(super) fn handle(&self) -> Handle {
        Handle(serde_json::to_string(self).expect("a struct of texts is always JSON"))
    }

    /// `None` if [`Self::handle`] did not write the text.
    pub(super) fn read(handle: &Handle) -> Option<Self> {
        serde_json::from_str(&handle.0).ok()
    }
}
