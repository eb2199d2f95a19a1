//! The bridge's own routes. Each stands here once: its path, who may use it, its handler, and its
//! labels for metrics and traces. schema/openapi.json describes them to clients.
//!
//! Must not: answer a request; the handlers do.

use futures_util::future::BoxFuture;
use http::{Request, Response};
use hyper::body::Incoming;
use serde_json::json;

use super::{Api, App, Body, Caller, HandlerResult, bad_request, openapi, query, response};
use crate::http::Access;
use crate::metrics::RouteKind;

/// A route of the bridge's own.
#[derive(Debug)]
pub struct OwnRoute {
    /// `GET`, which also serves HEAD, `POST` or `DELETE`.
    pub method: &'static str,
    /// A segment in braces matches any segment, and `**` at the end any number of them.
    pub path: &'static str,
    pub handler: Handler,
    pub rules: RouteRules,
    /// The parameters that its query may have; `None` where others say what they are: health checks
    /// of any kind, browsers, issuers, and the protocols MCP and A2A, which answer in their own
    /// form.
    parameters: Option<&'static [&'static str]>,
}

/// What holds for the requests of a route, whatever they say.
#[derive(Debug, Clone, Copy)]
pub struct RouteRules {
    pub access: Access,
    pub after_hang_up: AfterHangUp,
    /// The label of the requests in metrics.
    pub kind: RouteKind,
    /// The path pattern in traces, for a request that begins a run or a call or hands a run over;
    /// `None` for requests without a span.
    pub traced: Option<&'static str>,
}

/// The part of the bridge that answers.
#[derive(Debug, Clone, Copy)]
pub enum Handler {
    /// For anyone; the handler gets the app if the request authenticated as one.
    Open(fn(&Api, Option<&App>) -> Response<Body>),
    /// Answers from what the bridge holds, on a thread for such work.
    Now(NowHandler),
    Api(ApiHandler),
    Page,
    SignIn,
    SignOut,
    /// Sends a browser to the issuer at which a person logs in.
    StartLogin,
    /// Takes what the issuer sends the browser back with.
    LoginReturn,
    /// Makes a link to sign in.
    Link,
    FollowLink,
}

pub type NowHandler = fn(&Api, &ApiRequest) -> HandlerResult;
pub type ApiHandler = for<'a> fn(&'a Api, ApiRequest) -> BoxFuture<'a, HandlerResult>;

/// A request to a handler.
#[derive(Debug)]
pub struct ApiRequest {
    pub caller: Caller,
    pub request: Request<Incoming>,
    /// The segment that stands in place of the braces of the route's path.
    pub segment: String,
}

/// What becomes of a request whose app has hung up.
///
/// Every request that changes something, here or at MANTYX, continues. A call by `POST
/// /v1/tool-calls` does not: only its caller wants the answer, so a hang-up cancels the call at its
/// server. The records of a call are also written when its future is dropped. With an
/// `Idempotency-Key`, the calls run in a task of `calls::once`, and continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterHangUp {
    Dropped,
    /// Continues, and is dropped if MANTYX takes too long. The bridge has nothing to do once MANTYX
    /// has answered.
    ForAWhile,
    /// Continues until its handler ends; the handler bounds each of its waits. The bridge may have
    /// to act on MANTYX's answer: it drives a run that was created, and ends the calls of one that
    /// was cancelled.
    ToItsEnd,
}

/// All own routes.
pub static ROUTES: &[OwnRoute] = &[
    open("/healthz", |_, _| response::json(&json!({ "status": "ok" }))),
    open("/readyz", Api::ready).access(Access::AnyoneAppsMore),
    get("/metrics", Api::metrics).access(Access::App),
    get("/v1/status", Api::status).takes(&["app"]),
    get("/v1/tool-refs", Api::tool_refs).takes(&["backends", "app"]),
    get("/v1/tools", Api::tools).takes(&["format", "backends", "runtime", "app"]),
    post("/v1/specs/inject", |api, incoming| Box::pin(api.inject(incoming))),
    post("/v1/tool-calls", |api, incoming| Box::pin(api.tool_call(incoming)))
        .access(Access::AppOrSessionWithKey)
        .takes(&["format", "app"])
        .traced("/v1/tool-calls"),
    post("/v1/external-tools", |api, incoming| Box::pin(api.external_tools(incoming)))
        .goes_on()
        .traced("/v1/external-tools"),
    post("/v1/confirmations", |api, incoming| Box::pin(api.confirm(incoming))),
    get("/v1/backends", Api::list_backends).access(Access::AppOrSessionWithKey).takes(&["app"]),
    post("/v1/backends/{name}/doctor", |api, incoming| Box::pin(api.examine(incoming)))
        .access(Access::AppOrSessionWithKey),
    post("/v1/backends/{name}/refresh", |api, incoming| Box::pin(api.refresh(incoming)))
        .access(Access::AppOrSession)
        .takes(&["app"])
        .goes_on(),
    post("/v1/backends/{name}/disable", |api, incoming| Box::pin(api.disable(incoming)))
        .access(Access::AppOrSessionWithKey)
        .goes_on(),
    post("/v1/backends/{name}/enable", |api, incoming| Box::pin(api.enable(incoming)))
        .access(Access::AppOrSessionWithKey)
        .goes_on(),
    post("/v1/backends/{name}/restart", |api, incoming| Box::pin(api.restart(incoming)))
        .access(Access::AppOrSessionWithKey)
        .goes_on(),
    get("/v1/trust", Api::trust),
    post("/v1/trust/{name}", |api, incoming| Box::pin(api.accept(incoming)))
        .access(Access::AppOrSessionWithKey)
        .goes_on(),
    post("/v1/runs", |api, incoming| Box::pin(api.submit(incoming))).goes_on().traced("/v1/runs"),
    get_later("/v1/runs", |api, incoming| Box::pin(api.list_runs(incoming))),
    get_later("/v1/runs/{id}", |api, incoming| Box::pin(api.show_run(incoming))),
    post("/v1/runs/{id}/attach", |api, incoming| Box::pin(api.attach(incoming)))
        .goes_on()
        .traced("/v1/runs/{run}/attach"),
    get("/v1/calls", Api::list_calls).takes(&["limit"]),
    get("/v1/calls/{number}", Api::show_call).access(Access::AppOrSessionWithKey),
    get("/v1/approvals", Api::list_approvals).access(Access::AppOrSessionWithKey),
    post("/v1/approvals/{id}", |api, incoming| Box::pin(api.decide(incoming)))
        .access(Access::AppOrSessionWithKey)
        .goes_on(),
    get("/v1/logins", Api::list_logins),
    post("/v1/logins/{backend}", |api, incoming| Box::pin(api.begin_login(incoming)))
        .access(Access::AppOrSessionWithKey)
        .goes_on(),
    delete("/v1/logins/{backend}", |api, incoming| Box::pin(api.end_login(incoming)))
        .access(Access::AppOrSessionWithKey)
        .goes_on(),
    post("/v1/logins/{backend}/callback", |api, incoming| Box::pin(api.paste_login(incoming)))
        .access(Access::AppOrSessionWithKey)
        .goes_on(),
    post("/v1/notify/{name}/test", |api, incoming| Box::pin(api.test_notice(incoming)))
        .access(Access::AppOrSessionWithKey)
        .goes_on(),
    get("/v1/events", Api::events),
    route("POST", "/v1/sign-in-links", Handler::Link, Access::AppOrOperator, RouteKind::Own),
    mcp("POST").traced("/mcp"),
    mcp("GET"),
    mcp("DELETE"),
    a2a("GET", "/a2a"),
    a2a("GET", "/a2a/{name}/**"),
    a2a("POST", "/a2a/{name}/**").traced("/a2a/{name}"),
    get("/openapi.json", |_, _| Ok(response::json_text(openapi::DOCUMENT))),
    page("GET", "/", Handler::Page).access(Access::AppOrForm),
    // `AfterHangUp::Dropped` is enough: once the form has been read, these handlers wait for
    // nothing.
    page("POST", "/sign-in", Handler::SignIn),
    page("GET", "/sign-in", Handler::FollowLink),
    page("POST", "/sign-out", Handler::SignOut),
    // The exchange of a code has a task, which outlives a browser that goes away.
    page("GET", "/oauth/start/{ticket}", Handler::StartLogin).access(Access::Navigation),
    page("GET", "/oauth/callback", Handler::LoginReturn).access(Access::Navigation),
    page("GET", "/oauth/client.json", Handler::Open(Api::client_metadata)),
];

type Str = &'static str;

const fn route(
    method: Str,
    path: Str,
    handler: Handler,
    access: Access,
    kind: RouteKind,
) -> OwnRoute {
    let rules = RouteRules { access, after_hang_up: AfterHangUp::Dropped, kind, traced: None };
    let parameters: Option<&'static [&'static str]> = match kind {
        RouteKind::Own => Some(&[]),
        _ => None,
    };
    OwnRoute { method, path, handler, rules, parameters }
}

const fn get(path: Str, handler: NowHandler) -> OwnRoute {
    route("GET", path, Handler::Now(handler), Access::AppOrSession, RouteKind::Own)
}

/// The answer may have to be waited for.
const fn get_later(path: Str, handler: ApiHandler) -> OwnRoute {
    route("GET", path, Handler::Api(handler), Access::AppOrSession, RouteKind::Own)
}

/// For apps alone, unless the table says otherwise.
const fn post(path: Str, handler: ApiHandler) -> OwnRoute {
    route("POST", path, Handler::Api(handler), Access::App, RouteKind::Own)
}

const fn delete(path: Str, handler: ApiHandler) -> OwnRoute {
    route("DELETE", path, Handler::Api(handler), Access::App, RouteKind::Own)
}

const fn open(path: Str, handler: fn(&Api, Option<&App>) -> Response<Body>) -> OwnRoute {
    route("GET", path, Handler::Open(handler), Access::Anyone, RouteKind::Health)
}

/// The route of MCP clients. MCP describes it, and the OpenAPI document omits it.
const fn mcp(method: Str) -> OwnRoute {
    let handler = Handler::Api(|api, incoming| Box::pin(api.mcp(incoming)));
    route(method, "/mcp", handler, Access::App, RouteKind::Mcp)
}

/// The routes of A2A clients. A2A describes them, and the OpenAPI document omits them.
const fn a2a(method: Str, path: Str) -> OwnRoute {
    let handler = Handler::Api(|api, incoming| Box::pin(api.a2a(incoming)));
    route(method, path, handler, Access::App, RouteKind::A2a)
}

/// A route for browsers; the OpenAPI document omits it.
const fn page(method: Str, path: Str, handler: Handler) -> OwnRoute {
    route(method, path, handler, Access::Anyone, RouteKind::Page)
}

impl OwnRoute {
    /// The segment in place of the braces, if the segments of a path match this route.
    pub fn matches(&self, segments: &[String]) -> Option<String> {
        let pattern: Vec<&str> = self.path.split('/').skip(1).collect();
        let (pattern, segments) = match pattern.split_last() {
            Some((&"**", pattern)) => (pattern, segments.get(..pattern.len())?),
            _ => (pattern.as_slice(), segments),
        };
        if pattern.len() != segments.len() {
            return None;
        }
        let mut in_braces = String::new();
        for (part, segment) in pattern.iter().zip(segments) {
            if part.starts_with('{') {
                in_braces.clone_from(segment);
            } else if part != segment {
                return None;
            }
        }
        Some(in_braces)
    }

    /// Refuses a query that the route does not know.
    pub fn check_query(&self, query: Option<&str>) -> HandlerResult<()> {
        let flaw = self.parameters.and_then(|known| query::flaw(query, known));
        flaw.map_or(Ok(()), |why| Err(bad_request(&why)))
    }

    const fn takes(mut self, parameters: &'static [&'static str]) -> Self {
        self.parameters = Some(parameters);
        self
    }

    const fn access(mut self, access: Access) -> Self {
        self.rules.access = access;
        self
    }

    const fn goes_on(mut self) -> Self {
        self.rules.after_hang_up = AfterHangUp::ToItsEnd;
        self
    }

    const fn traced(mut self, pattern: &'static str) -> Self {
        self.rules.traced = Some(pattern);
        self
    }
}

#[cfg(test)]
mod tests {
    //! The table holds together; the page of the API and the OpenAPI document have all of it.

    use serde_json::Value;

    use super::*;

    #[test]
    fn the_page_and_the_document_have_every_route() {
        let page = include_str!("../../../docs/api.md");
        let document: Value = serde_json::from_str(openapi::DOCUMENT).unwrap();
        let paths = document["paths"].as_object().unwrap();
        let mut left: usize = paths.values().map(|path| path.as_object().unwrap().len()).sum();
        let described = |route: &&OwnRoute| {
            !matches!(route.rules.kind, RouteKind::Mcp | RouteKind::A2a | RouteKind::Page)
        };
        for route in ROUTES.iter().filter(described) {
            let OwnRoute { method, path, rules, .. } = route;
            assert!(page.contains(path), "{method} {path}");
            let operation = &document["paths"][path][method.to_lowercase()];
            assert!(operation["summary"].is_string(), "{method} {path}");
            assert_eq!(
                operation["security"] == json!([]),
                rules.access.is_open(),
                "{method} {path}"
            );
            let described: Vec<&str> = operation["parameters"]
                .as_array()
                .into_iter()
                .flatten()
                .filter(|parameter| parameter["in"] == "query")
                .filter_map(|parameter| parameter["name"].as_str())
                .collect();
            assert_eq!(described, route.parameters.unwrap_or_default(), "{method} {path}");
            left -= 1;
        }
        assert_eq!(left, 0, "the document describes routes that there are not");
    }

    #[test]
    fn each_route_is_there_once() {
        for (at, route) in ROUTES.iter().enumerate() {
            let same = |other: &&OwnRoute| (other.method, other.path) == (route.method, route.path);
            assert_eq!(ROUTES.iter().position(|other| same(&other)), Some(at), "{}", route.path);
        }
    }
}
