//! What has to be known of a task to ask for it after a restart, as the text of a [`Handle`].
//!
//! Must not: ask the agent anything. The text is read by later versions, too: members may be
//! added, and keep their meaning.

use serde::{Deserialize, Serialize};

use super::threads::MAX_ID;
use crate::backend::peer::Handle;

/// A task, and the conversation that it belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Known {
    pub task: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
}

impl Known {
    /// `None` for an id so long that it is not worth keeping.
    pub(super) fn new(task: &str, context: Option<&str>) -> Option<Self> {
        let short = |id: &&str| id.len() <= MAX_ID;
        let task = Some(task).filter(short)?.to_owned();
        Some(Self { task, context: context.filter(short).map(str::to_owned) })
    }

    pub(super) fn handle(&self) -> Handle {
        Handle(serde_json::to_string(self).expect("a struct of texts is always JSON"))
    }

    /// `None` where the text is none of [`Self::handle`]'s.
    pub(super) fn read(handle: &Handle) -> Option<Self> {
        serde_json::from_str(&handle.0).ok()
    }
}
