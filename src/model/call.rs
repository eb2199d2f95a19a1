//! One call as it was requested. All parts of the bridge that handle a call share one of these, and
//! it never changes.
//!
//! Must not: know how far the call is.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{AppName, Call, Route, RunId, RunKey, SessionId, ToolUseId, Workspace};

/// A request for a call.
#[derive(Debug)]
pub struct CallRequest {
    /// The app whose rights count.
    pub app: AppName,
    /// The run whose model asked for it; `None` for a call by hand.
    pub run: Option<CallingRun>,
    pub tool_use: ToolUseId,
    /// The name that the model called.
    pub name: String,
    pub route: Route,
    /// Verbatim: a JSON object.
    pub arguments: Box<RawValue>,
}

/// The run whose model asked for a call. Ids of runs and sessions are only unique within a
/// workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallingRun {
    pub workspace: Workspace,
    /// The agent run; in an eval, one of its own.
    pub run: RunId,
    pub session: Option<SessionId>,
}

/// What a long call belongs to: who may fetch its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CallOwner {
    /// All runs of a session.
    Session { workspace: Workspace, session: SessionId },
    /// One agent run: the driven run itself or, of an eval, one of its agent runs.
    Run {
        #[serde(flatten)]
        driven: RunKey,
        agent_run: RunId,
    },
    /// The calls that the app has made by hand.
    App,
}

impl CallingRun {
    /// Whether it is the run `key`.
    pub fn is(&self, key: &RunKey) -> bool {
        self.run == key.run && self.workspace == key.workspace
    }
}

impl CallOwner {
    pub fn is_session(&self, of: &Workspace, id: &SessionId) -> bool {
        matches!(self, Self::Session { workspace, session } if workspace == of && session == id)
    }

    pub fn is_run(&self, key: &RunKey) -> bool {
        matches!(self, Self::Run { driven, .. } if driven == key)
    }

    /// The agent run that began a call of this scope.
    pub fn calling_run(&self, run: RunId) -> Option<CallingRun> {
        let (workspace, session) = match self {
            Self::Session { workspace, session } => (workspace.clone(), Some(session.clone())),
            Self::Run { driven, .. } => (driven.workspace.clone(), None),
            Self::App => return None,
        };
        Some(CallingRun { workspace, run, session })
    }
}

impl CallRequest {
    /// The request for `call`, which `route` leads to, on behalf of `app`.
    pub fn new(app: AppName, run: Option<CallingRun>, call: Call, route: Route) -> Self {
        let Call { tool_use, name, args, .. } = call;
        Self { app, run, tool_use, name, route, arguments: args }
    }

    /// The peer's own name for the tool; empty for an A2A agent and a local tool.
    pub fn tool(&self) -> &str {
        self.route.target.tool()
    }

    /// The agent run that asked for it; `None` for a call by hand.
    pub fn run_id(&self) -> Option<&RunId> {
        self.run.as_ref().map(|by| &by.run)
    }
}
