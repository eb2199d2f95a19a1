//! Which handler a method and a path belong to.
//!
//! A path is forwarded as it was written, and MANTYX reads `run%5F1` as `run_1` and may read `//` as
//! `/`. So the route, and whose the run or the session is, are decided by what the path means
//! (`Meaning`), not by how it is spelled.
//!
//! Must not: look at anything but these two.

use std::sync::Arc;

use http::Method;

use crate::{
    metrics::RouteKind,
    model::ids::{RunId, RunKind, SessionId},
};

/// The methods that a proxied route may have, for `Allow`.
const PROXIED_METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
/// How often a path is decoded before it counts as ambiguous: nobody encodes it more than twice in
/// good faith.
const MOST_DECODED: usize = 4;
/// The segments by which a path of MANTYX's is told from another.
const FIXED: [&str; 9] = [
    "v1",
    "workspaces",
    "agent-runs",
    "agent-sessions",
    "eval-runs",
    "stream",
    "tool-results",
    "cancel",
    "messages",
];

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
    Proxied(Proxied),
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

impl Route {
    /// The route of `method` and `path` (without the query).
    pub fn of(method: &Method, path: &str) -> Self {
        // The first two make a server show the request's own headers, the credential too; the third
        // asks for a tunnel.
        let refused = ["TRACE", "TRACK", "CONNECT"];
        if refused.iter().any(|name| method.as_str().eq_ignore_ascii_case(name)) {
            return Self::WrongMethod(PROXIED_METHODS);
        }
        if is_proxied(path) {
            let meaning = Meaning::of(path);
            let segments: Vec<&str> = meaning.segments.iter().map(String::as_str).collect();
            let proxied = Proxied::of(method, &segments);
            let ambiguous = meaning.has_dots || meaning.is_odd && proxied != Proxied::Other;
            return if ambiguous { Self::Ambiguous } else { Self::Proxied(proxied) };
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

    /// What its requests are counted as.
    pub fn kind(&self) -> RouteKind {
        match self {
            Self::Own(Own::Health | Own::Ready) => RouteKind::Health,
            Self::Own(_) | Self::WrongMethod(_) => RouteKind::Own,
            Self::Page | Self::SignIn | Self::SignOut => RouteKind::Page,
            Self::Unknown | Self::Ambiguous => RouteKind::Unknown,
            Self::Proxied(proxied) => match proxied {
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
            Self::Proxied(Proxied::CreateRun { kind: RunKind::Agent, .. }) => {
                Some("/api/v1/workspaces/{workspace}/agent-runs")
            }
            Self::Proxied(Proxied::CreateRun { kind: RunKind::Eval, .. }) => {
                Some("/api/v1/workspaces/{workspace}/eval-runs")
            }
            Self::Proxied(Proxied::Message { .. }) => {
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
            Self::Proxied(proxied) => match proxied {
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
            Self::Proxied(_)
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
        let kind = |collection: &str| {
            [RunKind::Agent, RunKind::Eval].into_iter().find(|kind| kind.collection() == collection)
        };
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
            (method, [collection, rest @ ..]) => match (kind(collection), method, rest) {
                (Some(kind), "POST", []) => Self::CreateRun { workspace: workspace(), kind },
                (Some(kind), "GET", [id, "stream"]) => {
                    Self::Stream { workspace: workspace(), kind, run: (*id).into() }
                }
                (Some(kind), "POST", [id, "cancel"]) => {
                    Self::Cancel { workspace: workspace(), kind, run: (*id).into() }
                }
                _ => Self::Other,
            },
            _ => Self::Other,
        }
    }
}

/// Whether a path is one of MANTYX's.
pub fn is_proxied(path: &str) -> bool {
    path.starts_with("/api/")
        || Meaning::of(path)
            .segments
            .split_first()
            .is_some_and(|(first, rest)| first == "api" && !rest.is_empty())
}

/// The workspace that a path of MANTYX's leads into, and all that may be an id behind it.
pub fn below_workspace(path: &str) -> Option<(String, Vec<String>)> {
    let segments = Meaning::of(path).segments.into_iter();
    let is_fixed = |segment: &String| segment.eq_ignore_ascii_case("workspaces");
    let mut segments = segments.skip_while(|segment| !is_fixed(segment)).skip(1);
    let workspace = segments.next()?;
    Some((workspace, segments.collect()))
}

/// A path as the most generous server reads it.
#[derive(Debug, PartialEq, Eq)]
struct Meaning {
    /// Its segments, decoded; empty ones are left out, and [`FIXED`] ones are in lower case.
    segments: Vec<String>,
    /// Whether a less generous server reads other segments: an encoded slash is content for one and
    /// a separator for the other, and `Agent-Runs` is `agent-runs` only where case is ignored.
    is_odd: bool,
    /// Whether a segment is `.` or `..`, which lead elsewhere.
    has_dots: bool,
}

impl Meaning {
    fn of(path: &str) -> Self {
        let plain = path.split('/').filter(|segment| !segment.is_empty()).map(decoded);
        let plain: Vec<String> = plain.collect();
        let mut text = path.to_owned();
        let mut settled = false;
        for _ in 0..MOST_DECODED {
            let next = decoded(&text);
            settled = next == text;
            text = next;
        }
        let segments = text.split(['/', '\\']).filter(|segment| !segment.is_empty());
        let segments: Vec<String> = segments.enumerate().map(without_case).collect();
        let strange = |text: char| text.is_control() || text == char::REPLACEMENT_CHARACTER;
        Self {
            is_odd: !settled || segments != plain || text.contains(strange),
            has_dots: segments.iter().any(|segment| matches!(segment.as_str(), "." | "..")),
            segments,
        }
    }
}

/// A segment in lower case, if it is one of [`FIXED`] and does not stand where the workspace (3) or
/// the id (5) does.
fn without_case((at, segment): (usize, &str)) -> String {
    let is_id = matches!(at, 3 | 5);
    let fixed = FIXED.into_iter().find(|fixed| !is_id && fixed.eq_ignore_ascii_case(segment));
    fixed.unwrap_or(segment).to_owned()
}

/// A segment without its percent-encoding (RFC 3986, 2.1).
fn decoded(segment: &str) -> String {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let encoded = match behind {
            [high, low, after @ ..] if *first == b'%' => digit(high)
                .zip(digit(low))
                .and_then(|(high, low)| Some((u8::try_from(high * 16 + low).ok()?, after))),
            _ => None,
        };
        let (byte, after) = encoded.unwrap_or((*first, behind));
        bytes.push(byte);
        rest = after;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    //! Every route by its method and path.

    use super::*;

    #[track_caller]
    fn check(method: &str, path: &str, expected: &Route) {
        assert_eq!(Route::of(&method.parse().unwrap(), path), *expected);
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
            for path in ["/", "/healthz", "/api/v1/workspaces/a/models", "/nothing"] {
                check(method, path, &Route::WrongMethod(PROXIED_METHODS));
            }
        }
    }

    #[test]
    fn proxied_routes() {
        let workspace = || Arc::<str>::from("acme");
        let base = "/api/v1/workspaces/acme";
        let proxied = |method: &str, rest: &str, expected: Proxied| {
            check(method, &format!("{base}{rest}"), &Route::Proxied(expected));
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
        check(
            "GET",
            "//api/v1/%77orkspaces/acme/agent-runs/run_1/stream",
            &Route::Proxied(stream()),
        );
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
        check("POST", "/api/oauth/token", &Route::Proxied(Proxied::Other));
    }

    #[test]
    fn ids_below_a_workspace_however_they_are_written() {
        let ids =
            |path: &str| below_workspace(path).map(|(workspace, ids)| (workspace, ids.join(" ")));
        let found = |ids: &str| Some(("acme".to_owned(), ids.to_owned()));
        let base = "/api/v1/workspaces/acme";
        assert_eq!(ids(&format!("{base}/agent-runs/run_1")), found("agent-runs run_1"));
        assert_eq!(ids(&format!("{base}//agent-runs/run%5f1/x/")), found("agent-runs run_1 x"));
        assert_eq!(ids("/api//v1/work%73paces/ac%6De/a%2fb"), found("a b"));
        assert_eq!(ids(&format!("{base}/a%b%2")), found("a%b%2"));
        assert_eq!(ids("/api/v1/Workspaces/acme/Agent-Runs/RUN"), found("agent-runs RUN"));
        assert_eq!(ids("/api/v2/x/WORKSPACES/acme/a"), found("a"));
        assert_eq!(ids(base), found(""));
        assert_eq!(ids(&format!("{base}/agent-runs%252frun_1")), found("agent-runs run_1"));
        assert_eq!(ids("/api/oauth/token"), None);
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
