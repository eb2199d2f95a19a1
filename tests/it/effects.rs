//! The server whose tools have effects, and the ledger in which each of them stands: what really
//! happened, whatever the bridge says.
//!
//! Must not: look at the bridge or at MANTYX.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use tempfile::TempDir;

use crate::{peers, wait};

/// What a server says of a tool's effects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Idempotent,
    Additive,
    Destructive,
    Unsaid,
}

impl Kind {
    pub(crate) const ALL: [Self; 5] =
        [Self::Read, Self::Idempotent, Self::Additive, Self::Destructive, Self::Unsaid];

    pub(crate) fn tool(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Idempotent => "idempotent",
            Self::Additive => "additive",
            Self::Destructive => "destructive",
            Self::Unsaid => "unsaid",
        }
    }

    /// Whether a trusted server says that the tool may be called twice.
    pub(crate) fn is_harmless(self) -> bool {
        matches!(self, Self::Read | Self::Idempotent)
    }
}

/// A line of the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Entry {
    pub(crate) step: Step,
    #[serde(rename = "use")]
    pub(crate) tool_use: String,
    pub(crate) tool: String,
    /// What the arguments say that the call is for.
    #[serde(default)]
    pub(crate) intent: Option<String>,
    /// What was answered; of [`Step::Done`] alone.
    #[serde(default)]
    pub(crate) text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Step {
    Begun,
    Done,
}

/// The ledger of one server.
#[derive(Debug)]
pub(crate) struct Effects {
    dir: TempDir,
}

impl Effects {
    pub(crate) fn new() -> Self {
        Self { dir: TempDir::new().expect("the temporary directory is writable") }
    }

    /// The server's entry in bridge.yaml.
    pub(crate) fn server(&self) -> String {
        peers::effects(&self.path(), &[])
    }

    /// The entry of a server that the operator trusts.
    pub(crate) fn trusted_server(&self) -> String {
        peers::with(&self.server(), "trust_annotations: true")
    }

    /// The entry of a server that copies `file` whenever a call reaches it.
    pub(crate) fn server_copying(&self, file: &Path) -> String {
        peers::effects(&self.path(), &["--copy", file.to_str().expect("a path is UTF-8")])
    }

    /// Where the copy lies that was made when `tool_use` reached the server.
    pub(crate) fn copy(&self, tool_use: &str) -> PathBuf {
        self.dir.path().join(format!("ledger.{tool_use}"))
    }

    /// The ledger.
    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("ledger")
    }

    /// All lines so far.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let text = fs::read_to_string(self.path()).unwrap_or_default();
        let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        whole.map(|line| serde_json::from_str(line).expect("the ledger is JSON lines")).collect()
    }

    /// How often `tool_use` was begun.
    pub(crate) fn begun(&self, tool_use: &str) -> usize {
        let begun = |entry: &Entry| entry.step == Step::Begun && entry.tool_use == tool_use;
        self.entries().into_iter().filter(begun).count()
    }

    /// Waits until `tool_use` has reached the server `times` times.
    pub(crate) async fn wait_begun(&self, tool_use: &str, times: usize) {
        wait::soon(&format!("{tool_use} should reach the server {times} times"), async || {
            (self.begun(tool_use) >= times).then_some(())
        })
        .await;
    }
}
