//! The routes of MANTYX's API: the meaning of a path, and its target.
//!
//! The bridge forwards a path as it was written; MANTYX reads `run%5F1` as `run_1`, and may read
//! `//` as `/`. So the route, and the owner of the run or session, are decided by the path's
//! meaning (`NormalizedPath`), not by its spelling. Otherwise another spelling would get around
//! these checks.
//!
//! Must not: look at anything but a method and a path.

use http::Method;

use super::path::NormalizedPath;
use crate::model::ids::is_segment;
use crate::model::words::Words as _;
use crate::model::{RunKey, RunKind, SessionId, Workspace};

/// The collection of sessions in MANTYX's API.
const SESSIONS: &str = "agent-sessions";

/// A route of MANTYX's API, with the facts that the bridge needs.
#[derive(Debug, PartialEq, Eq)]
pub enum Proxied {
    CreateRun(Workspace, RunKind),
    CreateSession(Workspace),
    Message(Workspace, SessionId),
    EndSession(Workspace, SessionId),
    Stream(RunKey),
    ToolResult(RunKey),
    Cancel(RunKey),
    /// Any other route: forwarded without a look into it.
    Other,
}

/// The target of a path of MANTYX's API below a workspace; empty by default.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Resource {
    pub workspace: Workspace,
    /// All segments behind the workspace, since each may be an id.
    pub ids: Vec<String>,
    pub opened: Option<Opened>,
}

/// What a credential opens that MANTYX accepts for a path: a run, something below it, or the
/// messages of a session. A path that is not in its normal form opens nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opened {
    Run(RunKey),
    Session(SessionId),
}

impl Proxied {
    /// The route of `method` and `path`, with the meaning `meaning`. `None` where two readers could
    /// take the path for two different ones: one that ignores letter case finds a run where another
    /// finds nothing.
    pub fn read(method: &Method, path: &str, meaning: &NormalizedPath) -> Option<(Self, Resource)> {
        let segments: Vec<&str> = meaning.segments.iter().map(String::as_str).collect();
        let proxied = Self::from_segments(method, &segments);
        if meaning.has_dots || meaning.is_odd && proxied != Self::Other || names_oddly(&segments) {
            return None;
        }
        Some((proxied, Resource::read(path, &segments)))
    }

    fn from_segments(method: &Method, segments: &[&str]) -> Self {
        let ["api", "v1", "workspaces", workspace, rest @ ..] = segments else {
            return Self::Other;
        };
        let workspace = Workspace::from(*workspace);
        match (method.as_str(), rest) {
            ("POST", [SESSIONS]) => Self::CreateSession(workspace),
            ("POST", [SESSIONS, id, "messages"]) => Self::Message(workspace, (*id).into()),
            ("DELETE", [SESSIONS, id]) => Self::EndSession(workspace, (*id).into()),
            // Evals have no results of their own; their calls belong to their agent runs.
            ("POST", ["agent-runs", id, "tool-results"]) => {
                Self::ToolResult(RunKey { workspace, kind: RunKind::Agent, run: (*id).into() })
            }
            (method, [collection, rest @ ..]) => match (RunKind::parse(collection), method, rest) {
                (Some(kind), "POST", []) => Self::CreateRun(workspace, kind),
                (Some(kind), "GET", [id, "stream"]) => {
                    Self::Stream(RunKey { workspace, kind, run: (*id).into() })
                }
                (Some(kind), "POST", [id, "cancel"]) => {
                    Self::Cancel(RunKey { workspace, kind, run: (*id).into() })
                }
                _ => Self::Other,
            },
            _ => Self::Other,
        }
    }
}

/// Whether a workspace, a run or a session has a name that is no id of MANTYX's. A reader that
/// folds or strips such characters would find another thing.
fn names_oddly(segments: &[&str]) -> bool {
    let ["api", "v1", "workspaces", workspace, collection, ids @ ..] = segments else {
        return false;
    };
    if *collection != SESSIONS && RunKind::parse(collection).is_none() {
        return false;
    }
    !ids.iter().take(1).chain([workspace]).all(|id| is_segment(id))
}

impl Resource {
    /// The target of `path`, with the meaning `segments`.
    fn read(path: &str, segments: &[&str]) -> Self {
        let workspaces =
            segments.iter().position(|segment| segment.eq_ignore_ascii_case("workspaces"));
        let below = workspaces.and_then(|at| segments.get(at + 1..)).unwrap_or_default();
        let Some((workspace, ids)) = below.split_first() else { return Self::default() };
        let is_normal = path.split('/').skip(1).eq(segments.iter().copied());
        Self {
            workspace: (*workspace).into(),
            ids: ids.iter().map(|id| (*id).to_owned()).collect(),
            opened: if is_normal { Opened::read(segments) } else { None },
        }
    }
}

impl Opened {
    fn read(segments: &[&str]) -> Option<Self> {
        let ["api", "v1", "workspaces", workspace, collection, id, rest @ ..] = segments else {
            return None;
        };
        if *collection == SESSIONS {
            return match rest.first() {
                Some(&"messages") => Some(Self::Session((*id).into())),
                _ => None,
            };
        }
        let (workspace, run) = ((*workspace).into(), (*id).into());
        Some(Self::Run(RunKey { workspace, kind: RunKind::parse(collection)?, run }))
    }
}
