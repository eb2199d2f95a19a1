//! Which route a method and a path belong to, and what that means for a request: who may make it,
//! what becomes of it when its app hangs up, what it is counted and traced as.
//!
//! The bridge's own routes stand in one table (`api::routes`), and what a path of MANTYX's means is
//! read by `proxy::route`.
//!
//! Must not: look at anything of a request but its method and its path.

use http::Method;

use crate::{
    http::{
        api::routes::{AfterHangUp, OwnRoute, ROUTES},
        auth::Access,
        proxy::{
            path::{NormalizedPath, decoded},
            route::{Proxied, Resource},
        },
    },
    metrics::RouteKind,
    model::ids::RunKind,
};

/// The methods that a proxied route may have, for `Allow`.
const PROXIED_METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
/// The methods that the bridge's own routes have.
const OWN_METHODS: &str = "GET, HEAD, POST";

/// Where a request goes.
#[derive(Debug)]
pub enum Route {
    /// A route of the bridge's own, with the segment in place of the braces of its path.
    Own(&'static OwnRoute, String),
    /// MANTYX's API, below `/api/`.
    Proxied(Proxied, Resource),
    /// A route of the bridge's with another method; the methods that it has.
    WrongMethod(&'static str),
    /// A path of MANTYX's that two readers could take for two.
    Ambiguous,
    Unknown,
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
            return Proxied::read(method, path, &meaning)
                .map_or(Self::Ambiguous, |(proxied, resource)| Self::Proxied(proxied, resource));
        }
        let segments: Vec<String> = path.split('/').skip(1).map(decoded).collect();
        let found = ROUTES.iter().filter_map(|own| Some((own, own.matches(&segments)?)));
        let found: Vec<(&OwnRoute, String)> = found.collect();
        let has = |method: &str| found.iter().any(|(own, _)| own.method == method);
        let other = match (has("GET"), has("POST")) {
            (true, true) => Self::WrongMethod(OWN_METHODS),
            (true, false) => Self::WrongMethod("GET, HEAD"),
            (false, true) => Self::WrongMethod("POST"),
            (false, false) => Self::Unknown,
        };
        let wanted = if *method == Method::HEAD { "GET" } else { method.as_str() };
        let own = found.into_iter().find(|(own, _)| own.method == wanted);
        own.map_or(other, |(own, segment)| Self::Own(own, segment))
    }

    /// Whether the path is one of MANTYX's.
    pub fn is_proxied(&self) -> bool {
        matches!(self, Self::Proxied(..) | Self::Ambiguous | Self::WrongMethod(PROXIED_METHODS))
    }

    pub fn access(&self) -> Access {
        match self {
            Self::Own(own, _) => own.access,
            Self::Proxied(..) | Self::WrongMethod(_) | Self::Ambiguous | Self::Unknown => {
                Access::App
            }
        }
    }

    /// What its requests are counted as.
    pub fn kind(&self) -> RouteKind {
        match self {
            Self::Own(own, _) => own.kind,
            Self::WrongMethod(_) => RouteKind::Own,
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
            Self::Own(own, _) => own.traced,
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

    /// What becomes of a request of `method` when its app hangs up.
    pub fn after_hang_up(&self, method: &Method) -> AfterHangUp {
        match self {
            Self::Own(own, _) => own.after_hang_up,
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
            Self::WrongMethod(_) | Self::Ambiguous | Self::Unknown => AfterHangUp::Dropped,
        }
    }
}

#[cfg(test)]
mod tests;
