//! What an app may use: backends, and of an MCP server some of its tools.
//!
//! Must not: know offers; `offer::seen` applies it to them.

use std::collections::{BTreeMap, BTreeSet};

use super::{ids::BackendName, naming::ToolFilter};

/// What one app may use. The default is everything.
#[derive(Debug, Clone, Default)]
pub struct Rights {
    /// These backends; `None` means all.
    pub backends: Option<BTreeSet<BackendName>>,
    /// Of these backends no tool that does not pass, by the server's own names.
    pub tools: BTreeMap<BackendName, ToolFilter>,
}

impl Rights {
    /// Whether the backend may be used at all.
    pub fn include(&self, backend: &BackendName) -> bool {
        self.backends.as_ref().is_none_or(|backends| backends.contains(backend))
    }

    /// Whether the tool that `backend` calls `tool` may be used.
    pub fn include_tool(&self, backend: &BackendName, tool: &str) -> bool {
        self.include(backend) && self.tools.get(backend).is_none_or(|filter| filter.passes(tool))
    }

    /// Whether nothing is kept from the app.
    pub fn are_all(&self) -> bool {
        self.backends.is_none() && self.tools.is_empty()
    }
}
