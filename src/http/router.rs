//! Which handler a method and a path belong to.
//!
//! A path is forwarded as it was written, and MANTYX reads `run%5F1` as `run_1` and may read `//` as
//! `/`. So the route, and whose the run or the session is, are decided by what the path means
//! (`NormalizedPath`), not by how it is spelled.
//!
//! Must not: look at anything but these two.

mod path;

use http::Method;

use self::path::{NormalizedPath, decoded};
use crate::{
    metrics::RouteKind,
    model::ids::{RunId, RunKind, SessionId, Workspace, is_segment},
};

/// The methods that a proxied route may have, for `Allow`.
const PROXIED_METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
/// The methods that the bridge's own routes have.
const OWN_METHODS: &str = "GET, HEAD, POST";
/// The collection of MANTYX's API that holds sessions.
const SESSIONS: &str = "agent-sessions";

/// Where a request goes.
#[derive(Debug, PartialEq, Eq)]
pub enum Route {
    /// The bridge's own API.
    Own(Own),
    /// The status page.
    Page,
    SignIn,
    SignOut,
    /// MANTYX's API, below `/api/`.
    Proxied(Proxied, Resource),
    /// A route of the bridge's with another method; the methods that it has.
    WrongMethod(&'static str),
    /// A path of MANTYX's that two readers could take for two. A reader that ignores letter case
    /// finds a run where another finds nothing.
    Ambiguous,
    Unknown,
}

/// A route of the bridge's own API.
#[derive(Debug, PartialEq, Eq)]
pub enum Own {
    Health,
    Ready,
    Status,
    ToolRefs,
    Inject,
    ToolCalls,
    Refresh(String),
    Trust,
    Accept(String),
    Submit,
    Runs,
    Run(RunId),
    Attach(RunId),
    Calls,
    Approvals,
    Decide(String),
    Metrics,
    Events,
    OpenApi,
}

/// A route of MANTYX's API, with what the bridge must know of it.
#[derive(Debug, PartialEq, Eq)]
pub enum Proxied {
    CreateRun {
        workspace: Workspace,
        kind: RunKind,
    },
    CreateSession {
        workspace: Workspace,
    },
    Message {
        workspace: Workspace,
        session: SessionId,
    },
    EndSession {
        workspace: Workspace,
        session: SessionId,
    },
    Stream {
        workspace: Workspace,
        kind: RunKind,
        run: RunId,
    },
    ToolResult {
        workspace: Workspace,
        run: RunId,
    },
    Cancel {
        workspace: Workspace,
        kind: RunKind,
        run: RunId,
    },
    /// Anything else: forwarded and not looked at.
    Other,
}

/// What a path of MANTYX's leads to below a workspace; nothing, by default.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Resource {
    pub workspace: Workspace,
    /// All segments behind the workspace, as each may be an id.
    pub ids: Vec<String>,
    pub opened: Option<Opened>,
}

/// What a credential opens that MANTYX accepts for a path: a run, something below it, or the
/// messages of a session. A path that is not in its normal form opens nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opened {
    Run(RunKind, RunId),
    Session(SessionId),
}

/// What becomes of a request whose app has hung up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterHangUp {
    Dropped,
    /// It goes on, and is dropped if MANTYX takes too long. The bridge does nothing once MANTYX has
    /// answered.
    ForAWhile,
    /// It goes on until its handler ends, which bounds each of its waits. Something may follow from
    /// MANTYX's answer: a run that was created has to be driven, the calls of one that was cancelled end.
    ToItsEnd,
}

impl Route {
    /// The route of `method` and `path` (without the query).
    pub fn of(method: &Method, path: &str) -> Self {
        let meaning = NormalizedPath::of(path);
        let is_proxied = meaning.is_proxied(path);
        // The first two make a server show the request's own headers, the credential too; the third
        // asks for a tunnel.
        let refused = ["TRACE", "TRACK", "CONNECT"];
        if refused.iter().any(|name| method.as_str().eq_ignore_ascii_case(name)) {
            return Self::WrongMethod(if is_proxied { PROXIED_METHODS } else { OWN_METHODS });
        }
        if is_proxied {
            let segments: Vec<&str> = meaning.segments.iter().map(String::as_str).collect();
            let proxied = Proxied::of(method, &segments);
            let ambiguous = meaning.has_dots
                || meaning.is_odd && proxied != Proxied::Other
                || names_oddly(&segments);
            return match ambiguous {
                true => Self::Ambiguous,
                false => Self::Proxied(proxied, Resource::of(path, &segments)),
            };
        }
        let with = |wanted: Method, allow: &'static str, route: Self| {
            if *method == wanted || (wanted == Method::GET && *method == Method::HEAD) {
                route
            } else {
                Self::WrongMethod(allow)
            }
        };
        let own =
            |wanted: Method, allow: &'static str, own: Own| with(wanted, allow, Self::Own(own));
        let segments: Vec<String> = path.split('/').skip(1).map(decoded).collect();
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        match segments.as_slice() {
            [""] => with(Method::GET, "GET, HEAD", Self::Page),
            ["sign-in"] => with(Method::POST, "POST", Self::SignIn),
            ["sign-out"] => with(Method::POST, "POST", Self::SignOut),
            ["healthz"] => own(Method::GET, "GET, HEAD", Own::Health),
            ["readyz"] => own(Method::GET, "GET, HEAD", Own::Ready),
            ["metrics"] => own(Method::GET, "GET, HEAD", Own::Metrics),
            ["v1", "status"] => own(Method::GET, "GET, HEAD", Own::Status),
            ["v1", "tool-refs"] => own(Method::GET, "GET, HEAD", Own::ToolRefs),
            ["v1", "specs", "inject"] => own(Method::POST, "POST", Own::Inject),
            ["v1", "tool-calls"] => own(Method::POST, "POST", Own::ToolCalls),
            ["v1", "backends", name, "refresh"] => {
                own(Method::POST, "POST", Own::Refresh((*name).to_owned()))
            }
            ["v1", "trust"] => own(Method::GET, "GET, HEAD", Own::Trust),
            ["v1", "trust", name] => own(Method::POST, "POST", Own::Accept((*name).to_owned())),
            ["v1", "runs"] if *method == Method::POST => Self::Own(Own::Submit),
            ["v1", "runs"] => own(Method::GET, "GET, HEAD, POST", Own::Runs),
            ["v1", "runs", id] => own(Method::GET, "GET, HEAD", Own::Run((*id).into())),
            ["v1", "runs", id, "attach"] => own(Method::POST, "POST", Own::Attach((*id).into())),
            ["v1", "calls"] => own(Method::GET, "GET, HEAD", Own::Calls),
            ["v1", "approvals"] => own(Method::GET, "GET, HEAD", Own::Approvals),
            ["v1", "approvals", id] => own(Method::POST, "POST", Own::Decide((*id).to_owned())),
            ["openapi.json"] => own(Method::GET, "GET, HEAD", Own::OpenApi),
            ["v1", "events"] => own(Method::GET, "GET, HEAD", Own::Events),
            _ => Self::Unknown,
        }
    }

    /// Whether the path is one of MANTYX's.
    pub fn is_proxied(&self) -> bool {
        match self {
            Self::Proxied(..) | Self::Ambiguous | Self::WrongMethod(PROXIED_METHODS) => true,
            Self::Own(_)
            | Self::Page
            | Self::SignIn
            | Self::SignOut
            | Self::WrongMethod(_)
            | Self::Unknown => false,
        }
    }

    /// What its requests are counted as.
    pub fn kind(&self) -> RouteKind {
        match self {
            Self::Own(Own::Health | Own::Ready) => RouteKind::Health,
            Self::Own(_) | Self::WrongMethod(_) => RouteKind::Own,
            Self::Page | Self::SignIn | Self::SignOut => RouteKind::Page,
            Self::Unknown | Self::Ambiguous => RouteKind::Unknown,
            Self::Proxied(proxied, _) => match proxied {
                Proxied::CreateRun { .. } => RouteKind::CreateRun,
                Proxied::CreateSession { .. } => RouteKind::CreateSession,
                Proxied::Message { .. } => RouteKind::Message,
                Proxied::EndSession { .. } => RouteKind::EndSession,
                Proxied::Stream { .. } => RouteKind::Stream,
                Proxied::ToolResult { .. } => RouteKind::ToolResult,
                Proxied::Cancel { .. } => RouteKind::Cancel,
                Proxied::Other => RouteKind::Forwarded,
            },
        }
    }

    /// The pattern of the path, where a request begins a run or a call, or hands a run over: what
    /// traces tell of.
    pub fn traced(&self) -> Option<&'static str> {
        match self {
            Self::Own(Own::Submit) => Some("/v1/runs"),
            Self::Own(Own::Attach(_)) => Some("/v1/runs/{run}/attach"),
            Self::Own(Own::ToolCalls) => Some("/v1/tool-calls"),
            Self::Proxied(Proxied::CreateRun { kind: RunKind::Agent, .. }, _) => {
                Some("/api/v1/workspaces/{workspace}/agent-runs")
            }
            Self::Proxied(Proxied::CreateRun { kind: RunKind::Eval, .. }, _) => {
                Some("/api/v1/workspaces/{workspace}/eval-runs")
            }
            Self::Proxied(Proxied::Message { .. }, _) => {
                Some("/api/v1/workspaces/{workspace}/agent-sessions/{session}/messages")
            }
            _ => None,
        }
    }

    /// What becomes of a request of `method` when its app hangs up. Each that changes something, here
    /// or at MANTYX, goes on.
    ///
    /// Not so a call by `POST /v1/tool-calls`: only its caller wants the answer, so that a hang-up
    /// cancels it at its server. What is noted of a call is written when it is dropped, too.
    pub fn after_hang_up(&self, method: &Method) -> AfterHangUp {
        match self {
            Self::Own(own) => match own {
                Own::Submit
                | Own::Attach(_)
                | Own::Refresh(_)
                | Own::Accept(_)
                | Own::Decide(_) => AfterHangUp::ToItsEnd,
                Own::Health
                | Own::Ready
                | Own::Status
                | Own::ToolRefs
                | Own::Inject
                | Own::ToolCalls
                | Own::Trust
                | Own::Runs
                | Own::Run(_)
                | Own::Calls
                | Own::Approvals
                | Own::Metrics
                | Own::Events
                | Own::OpenApi => AfterHangUp::Dropped,
            },
            Self::Proxied(proxied, _) => match proxied {
                Proxied::CreateRun { .. }
                | Proxied::CreateSession { .. }
                | Proxied::Message { .. }
                | Proxied::EndSession { .. }
                | Proxied::Cancel { .. } => AfterHangUp::ToItsEnd,
                Proxied::ToolResult { .. } => AfterHangUp::ForAWhile,
                Proxied::Other if !method.is_safe() => AfterHangUp::ForAWhile,
                Proxied::Stream { .. } | Proxied::Other => AfterHangUp::Dropped,
            },
            // Once a form has been read, nothing of these waits.
            Self::Page | Self::SignIn | Self::SignOut => AfterHangUp::Dropped,
            Self::WrongMethod(_) | Self::Ambiguous | Self::Unknown => AfterHangUp::Dropped,
        }
    }

    /// Whether the route is answered without a token.
    pub fn is_open(&self) -> bool {
        matches!(self, Self::Own(Own::Health | Own::Ready) | Self::SignIn | Self::SignOut)
    }

    /// Whether a session of the status page opens the route: what the page shows, and what it has
    /// buttons for.
    pub fn takes_sessions(&self) -> bool {
        match self {
            Self::Page => true,
            Self::Own(own) => match own {
                Own::Status
                | Own::ToolRefs
                | Own::Refresh(_)
                | Own::Trust
                | Own::Accept(_)
                | Own::Runs
                | Own::Run(_)
                | Own::Calls
                | Own::Approvals
                | Own::Decide(_)
                | Own::Events
                | Own::OpenApi => true,
                Own::Health
                | Own::Ready
                | Own::Metrics
                | Own::Inject
                | Own::ToolCalls
                | Own::Submit
                | Own::Attach(_) => false,
            },
            Self::Proxied(..)
            | Self::SignIn
            | Self::SignOut
            | Self::WrongMethod(_)
            | Self::Ambiguous
            | Self::Unknown => false,
        }
    }
}

impl Route {
    /// Whether a session opens it only with its key, which no cookie is: what a call is made with,
    /// whether it is, and what is accepted of a backend.
    pub fn wants_key(&self) -> bool {
        matches!(self, Self::Own(Own::Approvals | Own::Decide(_) | Own::Accept(_)))
    }
}

impl Proxied {
    fn of(method: &Method, segments: &[&str]) -> Self {
        let ["api", "v1", "workspaces", workspace, rest @ ..] = segments else {
            return Self::Other;
        };
        let workspace = || Workspace::from(*workspace);
        match (method.as_str(), rest) {
            ("POST", [SESSIONS]) => Self::CreateSession { workspace: workspace() },
            ("POST", [SESSIONS, id, "messages"]) => {
                Self::Message { workspace: workspace(), session: (*id).into() }
            }
            ("DELETE", [SESSIONS, id]) => {
                Self::EndSession { workspace: workspace(), session: (*id).into() }
            }
            // Evals have no results of their own: their calls are those of agent runs.
            ("POST", ["agent-runs", id, "tool-results"]) => {
                Self::ToolResult { workspace: workspace(), run: (*id).into() }
            }
            (method, [collection, rest @ ..]) => {
                match (RunKind::of_collection(collection), method, rest) {
                    (Some(kind), "POST", []) => Self::CreateRun { workspace: workspace(), kind },
                    (Some(kind), "GET", [id, "stream"]) => {
                        Self::Stream { workspace: workspace(), kind, run: (*id).into() }
                    }
                    (Some(kind), "POST", [id, "cancel"]) => {
                        Self::Cancel { workspace: workspace(), kind, run: (*id).into() }
                    }
                    _ => Self::Other,
                }
            }
            _ => Self::Other,
        }
    }
}

/// Whether a workspace, a run or a session is named by what is no id of MANTYX's: a reader that
/// folds or strips such characters finds another one.
fn names_oddly(segments: &[&str]) -> bool {
    let ["api", "v1", "workspaces", workspace, collection, ids @ ..] = segments else {
        return false;
    };
    let is_known = *collection == SESSIONS || RunKind::of_collection(collection).is_some();
    is_known && !ids.iter().take(1).chain([workspace]).all(|id| is_segment(id))
}

impl Resource {
    /// What `path` leads to, whose meaning is `segments`.
    fn of(path: &str, segments: &[&str]) -> Self {
        let workspaces = segments.iter().position(|it| it.eq_ignore_ascii_case("workspaces"));
        let below = workspaces.and_then(|at| segments.get(at + 1..)).unwrap_or_default();
        let Some((workspace, ids)) = below.split_first() else { return Self::default() };
        let is_normal = || path.split('/').skip(1).eq(segments.iter().copied());
        Self {
            workspace: (*workspace).into(),
            ids: ids.iter().map(|id| (*id).to_owned()).collect(),
            opened: Opened::of(segments).filter(|_| is_normal()),
        }
    }
}

impl Opened {
    fn of(segments: &[&str]) -> Option<Self> {
        let ["api", "v1", "workspaces", _, collection, id, rest @ ..] = segments else {
            return None;
        };
        if *collection == SESSIONS {
            return (rest.first() == Some(&"messages")).then(|| Self::Session((*id).into()));
        }
        RunKind::of_collection(collection).map(|kind| Self::Run(kind, (*id).into()))
    }
}

#[cfg(test)]
mod tests;
