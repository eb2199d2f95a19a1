//! Which handler a method and a path belong to.
//!
//! A path is forwarded as it was written, and MANTYX reads `run%5F1` as `run_1` and may read `//` as
//! `/`. So the route, and whose the run or the session is, are decided by what the path means
//! (`Meaning`), not by how it is spelled.
//!
//! Must not: look at anything but these two.

mod meaning;

use std::sync::Arc;

use http::Method;

use self::meaning::{Meaning, decoded};
use crate::{
    metrics::RouteKind,
    model::ids::{RunId, RunKind, SessionId},
};

/// The methods that a proxied route may have, for `Allow`.
const PROXIED_METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
/// The methods that the bridge's own routes have.
const OWN_METHODS: &str = "GET, HEAD, POST";

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
        workspace: Arc<str>,
        kind: RunKind,
    },
    CreateSession {
        workspace: Arc<str>,
    },
    Message {
        workspace: Arc<str>,
        session: SessionId,
    },
    EndSession {
        workspace: Arc<str>,
        session: SessionId,
    },
    Stream {
        workspace: Arc<str>,
        kind: RunKind,
        run: RunId,
    },
    ToolResult {
        workspace: Arc<str>,
        run: RunId,
    },
    Cancel {
        workspace: Arc<str>,
        kind: RunKind,
        run: RunId,
    },
    /// Anything else: forwarded and not looked at.
    Other,
}

/// What a path of MANTYX's leads to below a workspace; nothing, by default.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Resource {
    pub workspace: Arc<str>,
    /// All segments behind the workspace, as each may be an id.
    pub ids: Vec<String>,
    pub opened: Option<Opened>,
}

/// What a credential opens that MANTYX accepts for a path: a run, something below it, or the
/// messages of a session. A path that is not in its normal form opens nothing.
#[derive(Debug, PartialEq, Eq)]
pub enum Opened {
    Run(RunKind, RunId),
    Session(SessionId),
}

impl Route {
    /// The route of `method` and `path` (without the query).
    pub fn of(method: &Method, path: &str) -> Self {
        let meaning = Meaning::of(path);
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
            let ambiguous = meaning.has_dots || meaning.is_odd && proxied != Proxied::Other;
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

    /// Whether a request of `method` goes on to its end when its app has hung up: each that
    /// changes something, here or at MANTYX.
    ///
    /// Not so a call by `POST /v1/tool-calls`: nobody else comes back for its answer, so that a
    /// hang-up cancels it at its server. What is noted of a call is written when it is dropped, too.
    pub fn outlives_caller(&self, method: &Method) -> bool {
        match self {
            Self::Own(own) => match own {
                Own::Refresh(_)
                | Own::Accept(_)
                | Own::Submit
                | Own::Attach(_)
                | Own::Decide(_) => true,
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
                | Own::OpenApi => false,
            },
            Self::Proxied(proxied, _) => match proxied {
                Proxied::CreateRun { .. }
                | Proxied::CreateSession { .. }
                | Proxied::Message { .. }
                | Proxied::EndSession { .. }
                | Proxied::ToolResult { .. }
                | Proxied::Cancel { .. } => true,
                Proxied::Stream { .. } => false,
                Proxied::Other => !method.is_safe(),
            },
            // Once a form has been read, nothing of these waits.
            Self::Page | Self::SignIn | Self::SignOut => false,
            Self::WrongMethod(_) | Self::Ambiguous | Self::Unknown => false,
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
        let workspace = || Arc::<str>::from(*workspace);
        match (method.as_str(), rest) {
            ("POST", ["agent-sessions"]) => Self::CreateSession { workspace: workspace() },
            ("POST", ["agent-sessions", id, "messages"]) => {
                Self::Message { workspace: workspace(), session: (*id).into() }
            }
            ("DELETE", ["agent-sessions", id]) => {
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
        if *collection == "agent-sessions" {
            return (rest.first() == Some(&"messages")).then(|| Self::Session((*id).into()));
        }
        RunKind::of_collection(collection).map(|kind| Self::Run(kind, (*id).into()))
    }
}

#[cfg(test)]
mod tests {
    //! Every route by its method and path.

    use super::*;

    #[track_caller]
    fn check(method: &str, path: &str, expected: &Route) {
        assert_eq!(Route::of(&method.parse().unwrap(), path), *expected);
    }

    #[track_caller]
    fn check_proxied(method: &str, path: &str, expected: &Proxied) {
        let route = Route::of(&method.parse().unwrap(), path);
        assert!(matches!(&route, Route::Proxied(found, _) if found == expected), "{route:?}");
    }

    #[track_caller]
    fn resource(path: &str) -> Resource {
        match Route::of(&Method::GET, path) {
            Route::Proxied(_, resource) => resource,
            route => panic!("{route:?}"),
        }
    }

    #[test]
    fn own_routes() {
        check("GET", "/healthz", &Route::Own(Own::Health));
        check("HEAD", "/readyz", &Route::Own(Own::Ready));
        check("GET", "/metrics", &Route::Own(Own::Metrics));
        check("POST", "/v1/backends/fs/refresh", &Route::Own(Own::Refresh("fs".to_owned())));
        check("GET", "/v1/specs/inject", &Route::WrongMethod("POST"));
        check("GET", "/v1/status/", &Route::Unknown);
        check("GET", "/", &Route::Page);
        check("GET", "/api", &Route::Unknown);
        check("POST", "/v1/runs", &Route::Own(Own::Submit));
        check("GET", "/v1/runs", &Route::Own(Own::Runs));
        check("DELETE", "/v1/runs", &Route::WrongMethod("GET, HEAD, POST"));
        check("GET", "/v1/runs/r", &Route::Own(Own::Run("r".into())));
        check("POST", "/v1/runs/r/attach", &Route::Own(Own::Attach("r".into())));
        check("GET", "/v1/calls", &Route::Own(Own::Calls));
        check("GET", "/v1/trust", &Route::Own(Own::Trust));
        check("POST", "/v1/trust/fs", &Route::Own(Own::Accept("fs".to_owned())));
        check("GET", "/v1/approvals", &Route::Own(Own::Approvals));
        check("POST", "/v1/approvals/a", &Route::Own(Own::Decide("a".to_owned())));
        check("GET", "/v1/approvals/a", &Route::WrongMethod("POST"));
        check("GET", "/v1/runs/run%5F1", &Route::Own(Own::Run("run_1".into())));
    }

    #[test]
    fn what_shows_a_requests_headers_is_refused_everywhere() {
        for method in ["TRACE", "TRACK", "trace", "CONNECT"] {
            for path in ["/", "/healthz", "/nothing"] {
                check(method, path, &Route::WrongMethod(OWN_METHODS));
            }
            let route = Route::of(&method.parse().unwrap(), "/api/v1/workspaces/a/models");
            assert_eq!(route, Route::WrongMethod(PROXIED_METHODS));
            assert!(route.is_proxied());
        }
    }

    #[test]
    fn proxied_routes() {
        let workspace = || Arc::<str>::from("acme");
        let base = "/api/v1/workspaces/acme";
        let proxied = |method: &str, rest: &str, expected: Proxied| {
            check_proxied(method, &format!("{base}{rest}"), &expected);
        };
        for (path, kind) in [("/agent-runs", RunKind::Agent), ("/eval-runs", RunKind::Eval)] {
            proxied("POST", path, Proxied::CreateRun { workspace: workspace(), kind });
            let run = || "run_1".into();
            let stream = Proxied::Stream { workspace: workspace(), kind, run: run() };
            proxied("GET", &format!("{path}/run_1/stream"), stream);
            let cancel = Proxied::Cancel { workspace: workspace(), kind, run: run() };
            proxied("POST", &format!("{path}/run_1/cancel"), cancel);
            proxied("GET", &format!("{path}/run_1"), Proxied::Other);
        }
        // However it is spelled, it is the run that it reaches.
        let stream = || {
            let run = "run_1".into();
            Proxied::Stream { workspace: workspace(), kind: RunKind::Agent, run }
        };
        for path in [
            "/agent-runs/run%5F1/stream",
            "//agent-runs//run_1/stream/",
            "/agent-%72uns/run%5f1/stream",
        ] {
            proxied("GET", path, stream());
        }
        check_proxied("GET", "//api/v1/%77orkspaces/acme/agent-runs/run_1/stream", &stream());
        // What reaches it only for some is refused.
        for path in [
            "/agent-runs%2Frun_1/stream",
            "/agent-runs/run_1%5Cstream",
            "/agent-runs\\run_1\\stream",
            "/agent-runs/run%255F1/stream",
            "/agent-runs/run_1%00/stream",
            "/agent-runs/run_1%FF/stream",
            "/x/../agent-runs/run_1/stream",
            "/x/%2e%2E/agent-runs/run_1/stream",
            "/files/%252e%252e%252f",
            "/./files",
            "/Agent-Runs/run_1/stream",
            "/agent-runs/run_1/%53tream",
            "/EVAL-RUNS/run_1/stream",
        ] {
            check("GET", &format!("{base}{path}"), &Route::Ambiguous);
        }
        for (method, path) in [
            ("POST", "/api/v1/Workspaces/acme/agent-runs"),
            ("POST", "/api/V1/workspaces/acme/agent-runs/run_1/Tool-Results"),
            ("POST", "/api/v1/workspaces/acme/agent-runs/run_1/CANCEL"),
            ("POST", "/api/v1/workspaces/acme/agent-sessions/s/Messages"),
            ("DELETE", "/api/v1/workspaces/acme/Agent-Sessions/s"),
        ] {
            check(method, path, &Route::Ambiguous);
        }
        // An id may be such a word, and its case counts.
        let run = "Stream".into();
        let cancel = Proxied::Cancel { workspace: workspace(), kind: RunKind::Agent, run };
        proxied("POST", "/agent-runs/Stream/cancel", cancel);
        proxied("GET", "/Agent-Runs/run_1", Proxied::Other);
        // What is looked at by nobody but MANTYX may be written as it likes.
        for path in ["/files/a%2Fb", "/files/100%25", "/files/a%5Cb", "/files/%E4", "/files/%252F"]
        {
            proxied("GET", path, Proxied::Other);
        }
        proxied("POST", "/eval-runs/run_1/tool-results", Proxied::Other);
        proxied("GET", "/agent-runs", Proxied::Other);
        proxied(
            "POST",
            "/agent-sessions/ses_1/messages",
            Proxied::Message { workspace: workspace(), session: "ses_1".into() },
        );
        proxied(
            "DELETE",
            "/agent-sessions/ses_1",
            Proxied::EndSession { workspace: workspace(), session: "ses_1".into() },
        );
        check_proxied("POST", "/api/oauth/token", &Proxied::Other);
    }

    #[test]
    fn ids_below_a_workspace_however_they_are_written() {
        let ids = |path: &str| {
            let resource = resource(path);
            (resource.workspace.to_string(), resource.ids.join(" "))
        };
        let found = |ids: &str| ("acme".to_owned(), ids.to_owned());
        let base = "/api/v1/workspaces/acme";
        assert_eq!(ids(&format!("{base}/agent-runs/run_1")), found("agent-runs run_1"));
        assert_eq!(ids(&format!("{base}//agent-runs/run%5f1/x/")), found("agent-runs run_1 x"));
        assert_eq!(ids("/api//v1/work%73paces/ac%6De/a%2fb"), found("a b"));
        assert_eq!(ids(&format!("{base}/a%b%2")), found("a%b%2"));
        assert_eq!(ids("/api/v1/Workspaces/acme/Agent-Runs/RUN"), found("agent-runs RUN"));
        assert_eq!(ids("/api/v2/x/WORKSPACES/acme/a"), found("a"));
        assert_eq!(ids(base), found(""));
        assert_eq!(ids(&format!("{base}/agent-runs%252frun_1")), found("agent-runs run_1"));
        assert_eq!(resource("/api/oauth/token"), Resource::default());
    }

    #[test]
    fn what_a_credential_opens() {
        let run = |kind, id: &str| Some(Opened::Run(kind, id.into()));
        let (agent, eval) = (RunKind::Agent, RunKind::Eval);
        for (below, expected) in [
            ("agent-runs/run_1", run(agent, "run_1")),
            ("agent-runs/run_1/feedback", run(agent, "run_1")),
            ("agent-runs/run_1/stream", run(agent, "run_1")),
            ("eval-runs/e/cancel", run(eval, "e")),
            ("agent-sessions/s/messages", Some(Opened::Session("s".into()))),
            ("agent-sessions/s", None),
            ("agent-runs", None),
            ("/agent-runs/run_1", None),
            ("agent-runs/run%5F1", None),
            ("models", None),
        ] {
            let found = resource(&format!("/api/v1/workspaces/acme/{below}")).opened;
            assert_eq!(found, expected, "{below}");
        }
        assert_eq!(resource("/api/v1//workspaces/acme/agent-runs/run_1").opened, None);
    }

    #[test]
    fn only_health_and_readiness_are_open() {
        assert!(Route::of(&Method::GET, "/healthz").is_open());
        assert!(!Route::of(&Method::GET, "/v1/status").is_open());
        assert!(!Route::of(&Method::GET, "/metrics").is_open());
        assert!(!Route::of(&Method::GET, "/nothing").is_open());
        assert!(!Route::of(&Method::GET, "/api/v1/workspaces/a/models").is_open());
    }
}
