//! Identifiers, parsed once at the edge: holding one proves that it is well formed.
//!
//! Must not: know where an id came from or what it is used for.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::words::words;

/// The name of a backend: unique over `mcp`, `a2a` and `local` of one configuration.
///
/// Matches `^[a-zA-Z0-9_]{1,40}$`, so that it can stand in model-facing names.
#[derive(
    Clone,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    derive_more::Debug,
    derive_more::Display,
)]
#[debug("{_0:?}")]
#[serde(try_from = "Arc<str>")]
pub struct BackendName(Arc<str>);

impl BackendName {
    /// The longest backend name, in characters.
    pub const MAX_LEN: usize = 40;

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Parses `name`. The error says what a backend name may look like.
    pub fn parse(name: &str) -> Result<Self, BadBackendName> {
        let legal = !name.is_empty()
            && name.len() <= Self::MAX_LEN
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if legal { Ok(Self(name.into())) } else { Err(BadBackendName) }
    }
}

impl TryFrom<Arc<str>> for BackendName {
    type Error = BadBackendName;

    fn try_from(name: Arc<str>) -> Result<Self, BadBackendName> {
        Self::parse(&name)
    }
}

/// The text was not a backend name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a backend name has 1 to 40 characters out of a-z, A-Z, 0-9 and _")]
pub struct BadBackendName;

impl std::borrow::Borrow<str> for BackendName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// An id that MANTYX made: opaque, only carried and compared.
macro_rules! opaque_id {
    ($(#[$doc:meta])* $name:ident) => {
        opaque_id! {
            @bare
            $(#[$doc])*
            #[derive(PartialEq, Eq, PartialOrd, Ord, Hash)]
            $name
        }
    };
    (@bare $(#[$attribute:meta])* $name:ident) => {
        $(#[$attribute])*
        #[derive(Clone, Serialize, Deserialize)]
        #[derive(derive_more::Debug, derive_more::Display, derive_more::From)]
        #[debug("{_0:?}")]
        #[from(&str, String)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
    };
}

words! {
    /// What kind of run an id names: ids are only known to be unique within their kind. The word is
    /// the collection of MANTYX's API that holds runs of this kind.
    #[derive(Hash, Serialize, Deserialize)]
    pub enum RunKind {
        /// One model at work.
        #[serde(rename = "agent-runs")]
        Agent = "agent-runs",
        /// Many agent runs behind one stream.
        #[serde(rename = "eval-runs")]
        Eval = "eval-runs",
    }
}

/// Whether `text` can be one segment of a path without encoding: an id from an event or a body must
/// not lead a request elsewhere.
pub fn is_segment(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.~:".contains(&byte))
        && !text.bytes().all(|byte| byte == b'.')
}

/// Whether a byte may stand in a segment of a path as it is (RFC 3986, `pchar`).
fn is_path_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@".contains(&byte)
}

/// `text` as one segment of a path, with other characters percent-encoded.
pub fn as_segment(text: &str) -> Cow<'_, str> {
    if text.bytes().all(is_path_byte) {
        return Cow::Borrowed(text);
    }
    let mut segment = String::with_capacity(text.len() + 8);
    for byte in text.bytes() {
        if is_path_byte(byte) {
            segment.push(char::from(byte));
        } else {
            write!(segment, "%{byte:02X}").expect("a string takes all");
        }
    }
    Cow::Owned(segment)
}

/// An id of MANTYX's that is part of paths: opaque, and compared without letter case.
///
/// Whether MANTYX reads `ACME` as `acme` is not known. If it does, two spellings lead to one run,
/// which must have one driver and one owner. If it does not, the second spelling leads nowhere:
/// MANTYX gives no two things ids that differ only in letter case.
macro_rules! path_id {
    ($(#[$doc:meta])* $name:ident) => {
        opaque_id! {
            @bare
            $(#[$doc])*
            $name
        }

        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                self.0.eq_ignore_ascii_case(&other.0)
            }
        }

        impl Eq for $name {}

        impl Hash for $name {
            fn hash<H: Hasher>(&self, state: &mut H) {
                self.0.bytes().for_each(|byte| state.write_u8(byte.to_ascii_lowercase()));
                state.write_u8(u8::MAX);
            }
        }
    };
}

path_id! {
    /// A workspace, by its slug.
    #[derive(Default)]
    Workspace
}
path_id! {
    /// One agent run or eval run, as `POST agent-runs` named it.
    #[derive(Default)]
    RunId
}
path_id! {
    /// One agent session, as `POST agent-sessions` named it.
    SessionId
}
opaque_id! {
    /// One tool call of one run: the key of "answered once".
    ToolUseId
}
opaque_id! {
    /// A local program that uses the bridge, as the configuration names it.
    #[derive(Default)]
    AppName
}
opaque_id! {
    /// One approval, as the bridge named it.
    ApprovalId
}
opaque_id! {
    /// One long call, as the bridge named it.
    CallId
}

/// What identifies a run: ids are only known to be unique within their workspace and kind.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RunKey {
    /// The workspace's slug as it stands in paths.
    pub workspace: Workspace,
    pub kind: RunKind,
    pub run: RunId,
}

impl RunKey {
    /// The agent run `run` of `workspace`.
    pub fn agent(workspace: &Workspace, run: RunId) -> Self {
        Self { workspace: workspace.clone(), kind: RunKind::Agent, run }
    }

    /// The path of the run.
    pub fn path(&self) -> String {
        let Self { workspace, kind, run } = self;
        let workspace = as_segment(workspace.as_str());
        let run = as_segment(run.as_str());
        format!("/api/v1/workspaces/{workspace}/{}/{run}", kind.as_str())
    }

    /// The path of its event stream.
    pub fn stream_path(&self) -> String {
        format!("{}/stream", self.path())
    }

    /// The path to which results are posted for `asked_by`: the run itself or, of an eval, one of
    /// its agent runs.
    pub fn results_path(&self, asked_by: &RunId) -> String {
        format!("{}/tool-results", Self::agent(&self.workspace, asked_by.clone()).path())
    }
}

#[cfg(test)]
mod tests {
    //! What is one id.

    use crate::model::maps::HashSet;

    use super::*;

    #[test]
    fn ids_in_paths_are_compared_without_letter_case() {
        let ids: HashSet<RunId> =
            ["run_A", "RUN_a", "run_b"].into_iter().map(RunId::from).collect();
        assert_eq!(ids.len(), 2);
        assert!(ids.contains(&"rUn_B".into()) && !ids.contains(&"run_".into()));
        assert_eq!(Workspace::from("ACME"), "acme".into());
        assert_eq!(RunId::from("Run").as_str(), "Run", "as it was written");
        assert_ne!(ToolUseId::from("tu_A"), "tu_a".into());
    }
}
