//! Finds the route of a method and a path. The route says who may make the request, what becomes of
//! it when its app hangs up, and how metrics and traces name it.
//!
//! The bridge's own routes stand in one table (`api::routes`); `proxy::route` reads MANTYX's paths.
//!
//! Must not: look at anything of a request but its method and its path.

use http::Method;

use crate::http::Access;
use crate::http::api::routes::{AfterHangUp, OwnRoute, ROUTES};
use crate::http::proxy::path::{NormalizedPath, decoded};
use crate::http::proxy::route::{Proxied, Resource};
use crate::metrics::RouteKind;
use crate::model::RunKind;

/// The methods that proxied routes allow, for `Allow`.
const PROXIED_METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
/// The methods that the bridge's own routes allow, for `Allow`.
const OWN_METHODS: &str = "GET, HEAD, POST";

/// The route of a request.
#[derive(Debug)]
pub enum Route {
    /// The bridge's own route, with the segment in place of the braces of its path.
    Own(&'static OwnRoute, String),
    /// MANTYX's API, below `/api/`.
    Proxied(Proxied, Resource),
    /// A route of the bridge's that has not this method; with the methods that it has.
    WrongMethod(&'static str),
    /// A path of MANTYX's that two readers could understand in two ways.
    Ambiguous,
    Unknown,
}

impl Route {
    /// The route of `method` and `path` (without the query).
    pub fn of(method: &Method, path: &str) -> Self {
        let meaning = NormalizedPath::of(path);
        let is_proxied = meaning.is_proxied(path);
        // TRACE and TRACK make a server return the request's own headers, the credential included.
        // CONNECT asks for a tunnel.
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
            (true, true) if has("DELETE") => Self::WrongMethod("GET, HEAD, POST, DELETE"),
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

    /// The label of its requests in metrics.
    pub fn kind(&self) -> RouteKind {
        match self {
            Self::Own(own, _) => own.kind,
            Self::WrongMethod(_) => RouteKind::Own,
            Self::Unknown | Self::Ambiguous => RouteKind::Unknown,
            Self::Proxied(proxied, _) => of_proxied(proxied).0,
        }
    }

    /// The pattern of the path, if the request begins a run or a call, or hands a run over: these
    /// requests get a span.
    pub fn traced(&self) -> Option<&'static str> {
        match self {
            Self::Own(own, _) => own.traced,
            Self::Proxied(Proxied::CreateRun(_, kind), _) => Some(match kind {
                RunKind::Agent => "/api/v1/workspaces/{workspace}/agent-runs",
                RunKind::Eval => "/api/v1/workspaces/{workspace}/eval-runs",
            }),
            Self::Proxied(Proxied::Message(..), _) => {
                Some("/api/v1/workspaces/{workspace}/agent-sessions/{session}/messages")
            }
            _ => None,
        }
    }

    /// What becomes of a request with `method` when its app hangs up.
    pub fn after_hang_up(&self, method: &Method) -> AfterHangUp {
        match self {
            Self::Own(own, _) => own.after_hang_up,
            Self::Proxied(Proxied::Other, _) if method.is_safe() => AfterHangUp::Dropped,
            Self::Proxied(proxied, _) => of_proxied(proxied).1,
            Self::WrongMethod(_) | Self::Ambiguous | Self::Unknown => AfterHangUp::Dropped,
        }
    }
}

/// The label of a route of MANTYX's in metrics, and what becomes of a request that changes something
/// when its app hangs up.
fn of_proxied(route: &Proxied) -> (RouteKind, AfterHangUp) {
    match route {
        Proxied::CreateRun(..) => (RouteKind::CreateRun, AfterHangUp::ToItsEnd),
        Proxied::CreateSession(_) => (RouteKind::CreateSession, AfterHangUp::ToItsEnd),
        Proxied::Message(..) => (RouteKind::Message, AfterHangUp::ToItsEnd),
        Proxied::EndSession(..) => (RouteKind::EndSession, AfterHangUp::ToItsEnd),
        Proxied::Stream(_) => (RouteKind::Stream, AfterHangUp::Dropped),
        Proxied::ToolResult(_) => (RouteKind::ToolResult, AfterHangUp::ForAWhile),
        Proxied::Cancel(_) => (RouteKind::Cancel, AfterHangUp::ToItsEnd),
        Proxied::Other => (RouteKind::Forwarded, AfterHangUp::ForAWhile),
    }
}

#[cfg(test)]
mod tests;
