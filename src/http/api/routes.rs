//! The bridge's own routes. Each stands here once: its path, who may use it, its handler, and its
//! description for metrics, traces and the OpenAPI document.
//!
//! Must not: answer a request; the handlers do.

use futures_util::future::BoxFuture;
use http::{Request, Response};
use hyper::body::Incoming;
use schemars::{JsonSchema, SchemaGenerator, json_schema};
use serde_json::{Map, Value};

use super::{
    Api, approvals,
    openapi::{self, Alive, CallList, RunList, Spec, Submitted, ToolCall, ToolRefs, ToolResult},
    ready, runs, status, trust,
};
use crate::{
    config::App,
    http::{Access, Answered, Body, Caller, response::either},
    metrics::RouteKind,
};

/// A route of the bridge's own.
#[derive(Debug)]
pub struct OwnRoute {
    /// `GET`, which also serves HEAD, `POST` or `DELETE`.
    pub method: &'static str,
    /// A segment in braces matches any segment.
    pub path: &'static str,
    pub handler: Handler,
    pub access: Access,
    pub after_hang_up: AfterHangUp,
    pub kind: RouteKind,
    /// The path pattern in traces, for a request that begins a run or a call or hands a run over;
    /// `None` for requests without a span.
    pub traced: Option<&'static str>,
    /// Empty: the OpenAPI document omits the route.
    pub(super) id: &'static str,
    pub(super) summary: &'static str,
    /// Name, place and meaning.
    pub(super) parameters: &'static [Parameter],
    pub(super) takes: Option<Schema>,
    /// Whether the body may be missing.
    pub(super) bodiless: bool,
    /// Its answers, without errors, which all have one form.
    pub(super) gives: [Option<Gives>; 2],
}

/// The part of the bridge that answers.
#[derive(Debug, Clone, Copy)]
pub enum Handler {
    /// For anyone; the handler gets the app if the request authenticated as one.
    Open(fn(&Api, Option<&App>) -> Response<Body>),
    /// Answers at once.
    Now(NowHandler),
    Api(ApiHandler),
    Page,
    SignIn,
    SignOut,
}

pub type NowHandler = fn(&Api, &ApiRequest) -> Answered;
pub type ApiHandler = for<'a> fn(&'a Api, ApiRequest) -> BoxFuture<'a, Response<Body>>;

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
/// `Idempotency-Key`, the calls run in a task of `runs::idempotency`, and continue.
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

pub(super) type Schema = fn(&mut SchemaGenerator) -> schemars::Schema;
pub(super) type Parameter = (&'static str, &'static str, &'static str);
pub(super) type Gives = (u16, &'static str, Content);

/// The content of a body.
#[derive(Debug, Clone, Copy)]
pub(super) enum Content {
    Json(Schema),
    /// Text of this media type.
    Text(&'static str),
    Nothing,
}

use Content::{Json, Nothing, Text};

const RUN: Parameter = ("id", "path", "the run's id");
const BACKEND: Parameter = ("name", "path", "the backend's name");
const BACKENDS_HEADER: Parameter = (
    "X-Bridge-Backends",
    "header",
    "the backends that the run gets, with commas between them; `none` for none; without it all",
);
const OPERATOR_HEADER: Parameter =
    ("X-Bridge-Operator", "header", "what stands in the file `operator` of the state directory");

const WHOSE: Parameter = ("backends", "query", "whose tools, with commas between them; or all");
const KNOWN_TAG: Parameter = ("If-None-Match", "header", "the `ETag` of what the caller has");
const FORMAT: Parameter = (
    "format",
    "query",
    "openai-chat, openai-responses, anthropic, gemini; for tools, hsafa, claude, too",
);
const ONCE: Parameter = ("Idempotency-Key", "header", "the same request is made once a day");

/// All own routes, in the order of the OpenAPI document.
pub static ROUTES: &[OwnRoute] = &[
    open("/healthz", |_, _| super::alive())
        .called("health", "Whether the daemon lives")
        .answers::<Alive>("It does."),
    open("/readyz", Api::ready)
        .called("ready", "Whether every required backend has been resolved")
        .access(Access::AnyoneAppsMore)
        .answers::<ready::Ready>("They have.")
        .gives(503, "Some have not: `missing` names them.", Json(of::<ready::NotReady<'_>>)),
    get("/metrics", Api::metrics)
        .called("metrics", "The metrics of the whole bridge, for Prometheus")
        .access(Access::App)
        .gives(200, "OpenMetrics text.", Text("application/openmetrics-text")),
    get("/v1/status", Api::status)
        .called("status", "The daemon, MANTYX and every backend")
        .answers::<status::Status>("How they are."),
    get("/v1/tool-refs", Api::tool_refs)
        .called("toolRefs", "The refs as they go into specs")
        .parameters(&[WHOSE, KNOWN_TAG])
        .answers::<ToolRefs>("The tools.")
        .gives(304, "They are those that the caller has.", Nothing),
    get("/v1/tools", Api::tools)
        .called("tools", "The tools for the API of a model")
        .parameters(&[FORMAT, WHOSE, KNOWN_TAG])
        .answers::<ToolRefs>("The tools.")
        .gives(304, "They are those that the caller has.", Nothing),
    post("/v1/specs/inject", |api, asked| Box::pin(either(api.inject(asked))))
        .called("inject", "The spec that the proxy would send out")
        .parameters(&[BACKENDS_HEADER])
        .takes(of::<Spec>)
        .answers::<Spec>("The spec with refs."),
    post("/v1/tool-calls", |api, asked| Box::pin(either(api.tool_call(asked))))
        .called("call", "Makes calls")
        .traced("/v1/tool-calls")
        .parameters(&[FORMAT, ONCE])
        .takes(|of| json_schema!({ "anyOf": [of.subschema_for::<ToolCall>(), {}] }))
        .gives(200, "What came of them.", Json(tool_results)),
    post("/v1/external-tools", |api, asked| Box::pin(either(api.external_tools(asked))))
        .called("externalTools", "Answers a set of loom-mcp")
        .goes_on()
        .traced("/v1/external-tools")
        .takes(|_| json_schema!({ "required": ["id", "items"] }))
        .gives(
            200,
            "The results of all its items.",
            Json(|_| json_schema!({ "required": ["Results"] })),
        ),
    post("/v1/confirmations", |api, asked| Box::pin(either(api.confirm(asked))))
        .called("confirm", "Asks a person, for loom-mcp")
        .takes(|_| json_schema!({ "required": ["id", "tool_name", "tool_call_id"] }))
        .gives(
            200,
            "What the person has decided.",
            Json(|_| json_schema!({ "required": ["Approved"] })),
        ),
    post("/v1/backends/{name}/refresh", |api, asked| {
        Box::pin(async move { api.refresh(&asked.caller.app, &asked.segment).await })
    })
    .called("refresh", "Asks a backend for its tools now")
    .access(Access::AppOrSession)
    .goes_on()
    .parameters(&[BACKEND])
    .answers::<status::Backend>("How it is then."),
    get("/v1/trust", Api::trust)
        .called("trust", "What the backends show a model, against what the operator has accepted")
        .parameters(&[OPERATOR_HEADER])
        .answers::<trust::Trust>("What was accepted, and what is not as it was."),
    post("/v1/trust/{name}", |api, asked| Box::pin(either(api.accept(asked))))
        .called("accept", "Accepts what a backend shows; for the operator")
        .access(Access::AppOrSessionWithKey)
        .goes_on()
        .parameters(&[BACKEND, OPERATOR_HEADER])
        .takes(of::<trust::Acceptance>)
        .answers::<trust::Pinned>("It is accepted."),
    post("/v1/runs", |api, asked| Box::pin(either(api.submit(asked))))
        .called("submit", "Submits a run, and drives it")
        .goes_on()
        .traced("/v1/runs")
        .parameters(&[BACKENDS_HEADER])
        .takes(of::<Spec>)
        .gives(202, "MANTYX has accepted it.", Json(of::<Submitted>)),
    get("/v1/runs", Api::list_runs)
        .called("runs", "The driven runs, and those that ended recently")
        .answers::<RunList<'_>>("The runs."),
    get("/v1/runs/{id}", Api::show_run)
        .called("run", "One run")
        .parameters(&[RUN])
        .answers::<runs::Shown<'_>>("The run."),
    post("/v1/runs/{id}/attach", |api, asked| Box::pin(either(api.attach(asked))))
        .called("attach", "Drives a run that the app submitted itself")
        .goes_on()
        .traced("/v1/runs/{run}/attach")
        .parameters(&[RUN])
        .takes(of::<runs::Attach>)
        .bodiless()
        .answers::<runs::Shown<'_>>("It is driven already.")
        .gives(202, "It is driven from now on.", Json(of::<runs::Shown<'_>>)),
    get("/v1/calls", Api::list_calls)
        .called("calls", "The calls that run, and the last that were answered")
        .answers::<CallList<'_>>("The calls."),
    get("/v1/approvals", Api::list_approvals)
        .called("approvals", "The calls that wait for a person, and recent decisions")
        .access(Access::AppOrSessionWithKey)
        .answers::<approvals::ApprovalList>("The questions."),
    post("/v1/approvals/{id}", |api, asked| Box::pin(either(api.decide(asked))))
        .called("decide", "Approves or denies a call")
        .access(Access::AppOrSessionWithKey)
        .goes_on()
        .parameters(&[("id", "path", "the question's id")])
        .takes(of::<approvals::Decide>)
        .answers::<approvals::Shown>("It is decided."),
    get("/v1/events", Api::events).called("events", "What happens, as server-sent events").gives(
        200,
        "`status`, `backend`, `run`, `call`, `approval` and `missed` events, until the caller \
         or the daemon ends.",
        Text("text/event-stream"),
    ),
    mcp("POST").traced("/mcp"),
    mcp("GET"),
    mcp("DELETE"),
    get("/openapi.json", |_, _| Ok(openapi::document()))
        .called("openapi", "This document")
        .answers::<Map<String, Value>>("The document."),
    page("GET", "/", Handler::Page).access(Access::AppOrForm),
    // `AfterHangUp::Dropped` is enough: once the form has been read, these handlers wait for
    // nothing.
    page("POST", "/sign-in", Handler::SignIn),
    page("POST", "/sign-out", Handler::SignOut),
];

type Str = &'static str;

const fn route(method: Str, path: Str, handler: Handler) -> OwnRoute {
    OwnRoute {
        method,
        path,
        handler,
        access: Access::AppOrSession,
        after_hang_up: AfterHangUp::Dropped,
        kind: RouteKind::Own,
        traced: None,
        id: "",
        summary: "",
        parameters: &[],
        takes: None,
        bodiless: false,
        gives: [None, None],
    }
}

const fn get(path: Str, handler: NowHandler) -> OwnRoute {
    route("GET", path, Handler::Now(handler))
}

/// For apps alone, unless the table says otherwise.
const fn post(path: Str, handler: ApiHandler) -> OwnRoute {
    route("POST", path, Handler::Api(handler)).access(Access::App)
}

const fn open(path: Str, handler: fn(&Api, Option<&App>) -> Response<Body>) -> OwnRoute {
    let route = route("GET", path, Handler::Open(handler));
    OwnRoute { access: Access::Anyone, kind: RouteKind::Health, ..route }
}

/// The route of MCP clients. MCP describes it, and the OpenAPI document omits it.
const fn mcp(method: Str) -> OwnRoute {
    let handler = Handler::Api(|api, asked| Box::pin(either(api.mcp(asked))));
    OwnRoute { access: Access::App, kind: RouteKind::Mcp, ..route(method, "/mcp", handler) }
}

/// A route for browsers; the OpenAPI document omits it.
const fn page(method: Str, path: Str, handler: Handler) -> OwnRoute {
    OwnRoute { access: Access::Anyone, kind: RouteKind::Page, ..route(method, path, handler) }
}

impl OwnRoute {
    /// The segment in place of the braces, if the segments of a path match this route.
    pub fn matches(&self, segments: &[String]) -> Option<String> {
        let pattern: Vec<&str> = self.path.split('/').skip(1).collect();
        let mut found = String::new();
        for (wanted, segment) in pattern.iter().zip(segments) {
            if wanted.starts_with('{') {
                found.clone_from(segment);
            } else if wanted != segment {
                return None;
            }
        }
        (pattern.len() == segments.len()).then_some(found)
    }

    /// Sets the id and the summary in the OpenAPI document.
    const fn called(self, id: Str, summary: Str) -> Self {
        Self { id, summary, ..self }
    }

    const fn access(self, access: Access) -> Self {
        Self { access, ..self }
    }

    const fn goes_on(self) -> Self {
        Self { after_hang_up: AfterHangUp::ToItsEnd, ..self }
    }

    const fn traced(self, pattern: &'static str) -> Self {
        Self { traced: Some(pattern), ..self }
    }

    const fn parameters(self, parameters: &'static [Parameter]) -> Self {
        Self { parameters, ..self }
    }

    const fn takes(self, schema: Schema) -> Self {
        Self { takes: Some(schema), ..self }
    }

    const fn bodiless(self) -> Self {
        Self { bodiless: true, ..self }
    }

    /// Says that the answer is 200 with a `T` in JSON.
    const fn answers<T: JsonSchema>(self, what: Str) -> Self {
        self.gives(200, what, Json(of::<T>))
    }

    const fn gives(mut self, status: u16, what: Str, content: Content) -> Self {
        let place = if self.gives[0].is_none() { 0 } else { 1 };
        self.gives[place] = Some((status, what, content));
        self
    }
}

fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> schemars::Schema {
    generator.subschema_for::<T>()
}

/// With `format`, the answer is an object with `messages`.
fn tool_results(generator: &mut SchemaGenerator) -> schemars::Schema {
    json_schema!({ "anyOf": [generator.subschema_for::<ToolResult>(), { "required": ["messages"] }] })
}

#[cfg(test)]
mod tests {
    //! The table holds together, and the page of the API has all of it.

    use super::*;

    #[test]
    fn the_page_of_the_api_has_every_route() {
        let page = include_str!("../../../docs/api.md");
        for route in ROUTES.iter().filter(|route| !route.id.is_empty()) {
            assert!(page.contains(route.path), "{} {}", route.method, route.path);
        }
    }

    #[test]
    fn each_route_is_there_once() {
        for (at, route) in ROUTES.iter().enumerate() {
            let same = |other: &&OwnRoute| (other.method, other.path) == (route.method, route.path);
            assert_eq!(ROUTES.iter().position(|other| same(&other)), Some(at), "{}", route.path);
        }
    }
}
