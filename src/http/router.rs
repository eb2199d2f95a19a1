//! Finds the route of a method and a path. The route says who may make the request, what becomes of
//! it when its app hangs up, and how metrics and traces name it.
//!
//! The bridge's own routes stand in one table (`api::routes`); `proxy::route` reads MANTYX's paths.
//!
//! Must not: look at anything of a request but its method and its path.

use http::Method;

use crate::http::Access;
use crate::http::api::routes::{AfterHangUp, OwnRoute, ROUTES, RouteRules};
use crate::http::proxy::path::{NormalizedPath, decoded};
use crate::http::proxy::route::{Proxied, Resource};
use crate::metrics::RouteKind;
use crate::model::RunKind;

/// The methods that proxied routes allow, for `Allow`.
const PROXIED_METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
/// The methods that the bridge's own routes allow, for `Allow`.
const OWN_METHODS: &str = "GET, HEAD, POST";

/// TRACE and TRACK make a server return the request's own headers, the credential included. CONNECT
/// asks for a tunnel.
const REFUSED_METHODS: [&str; 3] = ["TRACE", "TRACK", "CONNECT"];

/// The longest path, in bytes. Its meaning is looked for before the client is known, which takes
/// milliseconds for one of 64 KiB.
const MAX_PATH: usize = 8 << 10;

/// The path of MCP clients, and its other spelling.
const MCP: &str = "/mcp";
const MCP_WITH_SLASH: &str = "/mcp/";

/// The paths of MANTYX's whose requests get a span, as patterns.
const AGENT_RUNS: &str = "/api/v1/workspaces/{workspace}/agent-runs";
const EVAL_RUNS: &str = "/api/v1/workspaces/{workspace}/eval-runs";
const MESSAGES: &str = "/api/v1/workspaces/{workspace}/agent-sessions/{session}/messages";

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
    TooLong,
    Unknown,
}

impl Route {
    /// The route of `method` and `path` (without the query).
    pub fn find(method: &Method, path: &str) -> Self {
        if path.len() > MAX_PATH {
            return Self::TooLong;
        }
        // Many clients and guides write MCP's address so.
        let path = if path == MCP_WITH_SLASH { MCP } else { path };
        let meaning = NormalizedPath::new(path);
        let is_proxied = meaning.is_proxied(path);
        if REFUSED_METHODS.iter().any(|name| method.as_str().eq_ignore_ascii_case(name)) {
            return Self::WrongMethod(if is_proxied { PROXIED_METHODS } else { OWN_METHODS });
        }
        if is_proxied {
            return Proxied::read(method, path, &meaning)
                .map_or(Self::Ambiguous, |(proxied, resource)| Self::Proxied(proxied, resource));
        }
        let segments: Vec<String> = path.split('/').skip(1).map(decoded).collect();
        let routes: Vec<(&OwnRoute, String)> =
            ROUTES.iter().filter_map(|own| Some((own, own.matches(&segments)?))).collect();
        let has = |method: &str| routes.iter().any(|(own, _)| own.method == method);
        let other = match (has("GET"), has("POST"), has("DELETE")) {
            (true, true, true) => Self::WrongMethod("GET, HEAD, POST, DELETE"),
            (true, true, false) => Self::WrongMethod(OWN_METHODS),
            (true, false, _) => Self::WrongMethod("GET, HEAD"),
            (false, true, true) => Self::WrongMethod("POST, DELETE"),
            (false, true, false) => Self::WrongMethod("POST"),
            (false, false, _) => Self::Unknown,
        };
        let route_method = if *method == Method::HEAD { "GET" } else { method.as_str() };
        let own = routes.into_iter().find(|(own, _)| own.method == route_method);
        own.map_or(other, |(own, segment)| Self::Own(own, segment))
    }

    /// Errors on such a route have MANTYX's own form, which MANTYX's clients read.
    pub fn is_proxied(&self) -> bool {
        matches!(self, Self::Proxied(..) | Self::Ambiguous | Self::WrongMethod(PROXIED_METHODS))
    }

    /// What holds for requests with `method` on this route.
    pub fn rules(&self, method: &Method) -> RouteRules {
        match self {
            Self::Own(own, _) => own.rules,
            Self::Proxied(proxied, _) => rules_of_proxied(proxied, method),
            Self::WrongMethod(_) => for_apps(RouteKind::Own, AfterHangUp::Dropped),
            Self::Unknown | Self::Ambiguous | Self::TooLong => {
                for_apps(RouteKind::Unknown, AfterHangUp::Dropped)
            }
        }
    }
}

/// The rules of a route that only apps may use, and whose requests have no span.
fn for_apps(kind: RouteKind, after_hang_up: AfterHangUp) -> RouteRules {
    RouteRules { access: Access::App, after_hang_up, kind, traced: None }
}

/// What holds for requests with `method` on a route of MANTYX's.
///
/// What creates or ends something at MANTYX runs to its end even if the app hangs up: dropped in
/// the middle, it could have its effect there without a driver here.
fn rules_of_proxied(route: &Proxied, method: &Method) -> RouteRules {
    use AfterHangUp::{Dropped, ForAWhile, ToItsEnd};
    let traced = match route {
        Proxied::CreateRun(_, RunKind::Agent) => Some(AGENT_RUNS),
        Proxied::CreateRun(_, RunKind::Eval) => Some(EVAL_RUNS),
        Proxied::Message(..) => Some(MESSAGES),
        _ => None,
    };
    let rules = match route {
        Proxied::CreateRun(..) => for_apps(RouteKind::CreateRun, ToItsEnd),
        Proxied::CreateSession(_) => for_apps(RouteKind::CreateSession, ToItsEnd),
        Proxied::Message(..) => for_apps(RouteKind::Message, ToItsEnd),
        Proxied::EndSession(..) => for_apps(RouteKind::EndSession, ToItsEnd),
        Proxied::Stream(_) => for_apps(RouteKind::Stream, Dropped),
        Proxied::ToolResult(_) => for_apps(RouteKind::ToolResult, ForAWhile),
        Proxied::Cancel(_) => for_apps(RouteKind::Cancel, ToItsEnd),
        Proxied::Other if method.is_safe() => for_apps(RouteKind::Forwarded, Dropped),
        Proxied::Other => for_apps(RouteKind::Forwarded, ForAWhile),
    };
    RouteRules { traced, ..rules }
}

#[cfg(test)]
mod tests;
