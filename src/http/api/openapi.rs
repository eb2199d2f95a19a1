//! What the bridge's own API is, for programs: OpenAPI 3.1, out of the types that are written and the
//! routes that are served.
//!
//! Must not: say what a request does in more words than a reader of the document needs; docs/api.md
//! has them.

use std::sync::LazyLock;

use bytes::Bytes;
use http::{Response, StatusCode};
use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{approvals, ready, runs, status, trust};
use crate::http::{
    response::{self, Body},
    router::Own,
};

/// The document, as it is served.
static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| Bytes::from(text()));

/// Every error of the bridge, and of MANTYX.
#[derive(Serialize, Deserialize, JsonSchema)]
struct Error {
    /// For programs.
    error: String,
    /// For people.
    message: String,
}

/// The daemon lives.
#[derive(Serialize, Deserialize, JsonSchema)]
struct Alive {
    status: String,
}

/// Refs as they go into a spec's `tools`.
#[derive(Serialize, Deserialize, JsonSchema)]
struct ToolRefs {
    tools: Vec<Map<String, Value>>,
    /// Changes with the refs; also the `ETag`.
    digest: String,
}

/// An agent run's spec, as MANTYX takes it; what is not named here goes on as it is.
#[derive(Serialize, Deserialize, JsonSchema)]
struct Spec {
    /// Tool refs, and placeholders of the bridge's. MANTYX judges them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tools: Option<Vec<Value>>,
}

/// The data of a `local_tool_call` event.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ToolCall {
    tool_use_id: String,
    /// The name that the model called.
    name: String,
    /// The arguments; the tool's schema says which it takes.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    args: Value,
}

/// What is to be posted as the call's result: one of `result` and `error`.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ToolResult {
    tool_use_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    result: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    files: Option<Vec<Map<String, Value>>>,
}

/// A run that MANTYX has accepted.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Submitted {
    run_id: String,
    /// A path of the bridge.
    stream_url: String,
}

#[derive(Serialize, JsonSchema)]
struct RunList<'a> {
    /// The latest first.
    runs: Vec<runs::Shown<'a>>,
}

#[derive(Serialize, JsonSchema)]
struct CallList<'a> {
    /// Those that run, then those that were answered; the latest first.
    calls: Vec<runs::ShownCall<'a>>,
}

/// What a body is.
enum Content {
    Json(Schema),
    /// Of this type.
    Text(&'static str),
    Nothing,
}

type Schema = fn(&mut SchemaGenerator) -> schemars::Schema;

/// One route with one method.
struct Operation {
    method: &'static str,
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    /// Name, place and meaning.
    parameters: &'static [(&'static str, &'static str, &'static str)],
    takes: Option<Schema>,
    /// It may come without a body.
    bodiless: bool,
    gives: Vec<(u16, &'static str, Content)>,
    /// Without a token.
    open: bool,
}

fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> schemars::Schema {
    generator.subschema_for::<T>()
}

const WORKSPACE: (&str, &str, &str) =
    ("workspace", "query", "which run is meant, where several workspaces have its id");
const RUN: (&str, &str, &str) = ("id", "path", "the run's id");
const BACKENDS_HEADER: (&str, &str, &str) = (
    "X-Bridge-Backends",
    "header",
    "the backends that the run gets, with commas between them; `none` for none; without it all",
);

const OPERATOR_HEADER: (&str, &str, &str) =
    ("X-Bridge-Operator", "header", "what stands in the file `operator` of the state directory");

/// The operations of a route.
#[expect(clippy::too_many_lines, reason = "a table, a few lines for each route")]
fn operations(route: &Own) -> Vec<Operation> {
    use Content::{Json, Nothing, Text};
    let get = |path, id, summary, gives| Operation {
        method: "get",
        path,
        id,
        summary,
        parameters: &[],
        takes: None,
        bodiless: false,
        gives,
        open: false,
    };
    let post = |path, id, summary, takes: Schema, gives| Operation {
        method: "post",
        takes: Some(takes),
        ..get(path, id, summary, gives)
    };
    let error = |status: u16, what| (status, what, Json(of::<Error>));
    let too_large = || error(413, "The body is too large.");
    let not_json = || error(415, "The body is not said to be JSON.");
    let bad = || error(400, "The request cannot be used.");
    vec![match route {
        Own::Health => Operation {
            open: true,
            ..get(
                "/healthz",
                "health",
                "Whether the daemon lives",
                vec![(200, "It does.", Json(of::<Alive>))],
            )
        },
        Own::Ready => Operation {
            open: true,
            ..get(
                "/readyz",
                "ready",
                "Whether every required backend has been resolved",
                vec![
                    (200, "They have.", Json(of::<ready::Ready<'_>>)),
                    (503, "Some have not: `missing` names them.", Json(of::<ready::NotReady<'_>>)),
                ],
            )
        },
        Own::Metrics => get(
            "/metrics",
            "metrics",
            "The metrics of the whole bridge, for Prometheus",
            vec![(200, "OpenMetrics text.", Text("application/openmetrics-text"))],
        ),
        Own::Status => get(
            "/v1/status",
            "status",
            "The daemon, MANTYX and every backend",
            vec![(200, "How they are.", Json(of::<status::Status<'_>>))],
        ),
        Own::ToolRefs => Operation {
            parameters: &[
                ("backends", "query", "whose refs, with commas between them; without it all"),
                ("If-None-Match", "header", "the `ETag` of refs that the caller has"),
            ],
            ..get(
                "/v1/tool-refs",
                "toolRefs",
                "The refs as they go into specs",
                vec![
                    (200, "The refs.", Json(of::<ToolRefs>)),
                    (304, "They are those that the caller has.", Nothing),
                    error(
                        400,
                        "There is no such backend: `candidates` names those that there are.",
                    ),
                ],
            )
        },
        Own::Inject => Operation {
            parameters: &[BACKENDS_HEADER],
            ..post(
                "/v1/specs/inject",
                "inject",
                "The spec that the proxy would send out",
                of::<Spec>,
                vec![
                    (200, "The spec with refs.", Json(of::<Spec>)),
                    bad(),
                    too_large(),
                    not_json(),
                ],
            )
        },
        Own::ToolCalls => post(
            "/v1/tool-calls",
            "call",
            "Makes one call",
            of::<ToolCall>,
            vec![
                (200, "What came of it.", Json(of::<ToolResult>)),
                bad(),
                too_large(),
                not_json(),
                error(503, "There was no turn for it; it was not made."),
            ],
        ),
        Own::Refresh(_) => Operation {
            method: "post",
            parameters: &[("name", "path", "the backend's name")],
            ..get(
                "/v1/backends/{name}/refresh",
                "refresh",
                "Asks a backend for its tools now",
                vec![
                    (200, "How it is then.", Json(of::<status::Backend>)),
                    error(
                        404,
                        "There is no such backend: `candidates` names those that there are.",
                    ),
                ],
            )
        },
        Own::Trust => Operation {
            parameters: &[OPERATOR_HEADER],
            ..get(
                "/v1/trust",
                "trust",
                "What the backends show a model, against what the operator has accepted",
                vec![(
                    200,
                    "What was accepted, and what is not as it was.",
                    Json(of::<trust::Trust>),
                )],
            )
        },
        Own::Accept(_) => Operation {
            parameters: &[("name", "path", "the backend's name"), OPERATOR_HEADER],
            ..post(
                "/v1/trust/{name}",
                "accept",
                "Accepts what a backend shows; for the operator",
                of::<trust::Acceptance>,
                vec![
                    (200, "It is accepted.", Json(of::<trust::Pinned>)),
                    bad(),
                    error(
                        404,
                        "There is no such backend: `candidates` names those that there are.",
                    ),
                    error(409, "It has changed since it was looked at."),
                    too_large(),
                    not_json(),
                ],
            )
        },
        Own::Submit => Operation {
            parameters: &[BACKENDS_HEADER],
            ..post(
                "/v1/runs",
                "submit",
                "Submits a run, and drives it",
                of::<Spec>,
                vec![
                    (202, "MANTYX has accepted it.", Json(of::<Submitted>)),
                    error(400, "The bridge or MANTYX cannot use the spec."),
                    error(409, "The configuration has no workspace."),
                    too_large(),
                    not_json(),
                    error(429, "MANTYX wants fewer requests."),
                    error(502, "MANTYX cannot be reached, or refuses the bridge."),
                ],
            )
        },
        Own::Runs => get(
            "/v1/runs",
            "runs",
            "The runs that are driven, and that ended of late",
            vec![(200, "The runs.", Json(of::<RunList<'_>>))],
        ),
        Own::Run(_) => Operation {
            parameters: &[RUN, WORKSPACE],
            ..get(
                "/v1/runs/{id}",
                "run",
                "One run",
                vec![
                    (200, "The run.", Json(of::<runs::Shown<'_>>)),
                    error(404, "The bridge knows no such run of this app."),
                ],
            )
        },
        Own::Attach(_) => Operation {
            parameters: &[RUN],
            bodiless: true,
            ..post(
                "/v1/runs/{id}/attach",
                "attach",
                "Drives a run that the app submitted itself",
                of::<runs::Attach>,
                vec![
                    (200, "It is driven already.", Json(of::<runs::Shown<'_>>)),
                    (202, "It is driven from now on.", Json(of::<runs::Shown<'_>>)),
                    bad(),
                    error(404, "MANTYX has no such run, or it is another app's."),
                    error(409, "No workspace is named."),
                    too_large(),
                    not_json(),
                    error(502, "MANTYX cannot be reached, or refuses the bridge."),
                ],
            )
        },
        Own::Calls => get(
            "/v1/calls",
            "calls",
            "The calls that run, and the last that were answered",
            vec![(200, "The calls.", Json(of::<CallList<'_>>))],
        ),
        Own::Approvals => get(
            "/v1/approvals",
            "approvals",
            "The calls that wait for a person, and what was decided of late",
            vec![(200, "The questions.", Json(of::<approvals::ApprovalList<'_>>))],
        ),
        Own::Decide(_) => Operation {
            parameters: &[("id", "path", "the question's id")],
            ..post(
                "/v1/approvals/{id}",
                "decide",
                "Approves or denies a call",
                of::<approvals::Decide>,
                vec![
                    (200, "It is decided.", Json(of::<approvals::Shown<'_>>)),
                    bad(),
                    error(404, "There is no such question of this app."),
                    error(409, "It has ended already."),
                    too_large(),
                    not_json(),
                ],
            )
        },
        Own::Events => get(
            "/v1/events",
            "events",
            "What happens, as server-sent events",
            vec![(
                200,
                "`status`, `backend`, `run`, `call`, `approval` and `missed` events, until the caller \
             or the daemon ends.",
                Text("text/event-stream"),
            )],
        ),
        Own::OpenApi => get(
            "/openapi.json",
            "openapi",
            "This document",
            vec![(200, "The document.", Json(of::<Map<String, Value>>))],
        ),
    }]
}

/// A route of every kind, in the order of the document.
fn routes() -> Vec<Own> {
    vec![
        Own::Health,
        Own::Ready,
        Own::Metrics,
        Own::Status,
        Own::ToolRefs,
        Own::Inject,
        Own::ToolCalls,
        Own::Refresh(String::new()),
        Own::Trust,
        Own::Accept(String::new()),
        Own::Submit,
        Own::Runs,
        Own::Run("".into()),
        Own::Attach("".into()),
        Own::Calls,
        Own::Approvals,
        Own::Decide(String::new()),
        Own::Events,
        Own::OpenApi,
    ]
}

/// The document itself.
pub(super) fn document() -> Response<Body> {
    response::json_text(StatusCode::OK, DOCUMENT.clone())
}

fn text() -> String {
    let mut settings = SchemaSettings::draft2020_12().for_serialize();
    settings.definitions_path = "/components/schemas".into();
    settings.meta_schema = None;
    let mut generator = settings.into_generator();
    let mut paths = Map::new();
    for operation in routes().iter().flat_map(operations) {
        let written = write(&operation, &mut generator);
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        path[operation.method] = written;
    }
    let schemes = json!({
        "token": { "type": "http", "scheme": "bearer", "description": "`mantyx-bridge token` prints it." },
        "key": { "type": "apiKey", "in": "header", "name": "X-API-Key" },
    });
    let document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "mantyx-bridge",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "The bridge's own API. Everything below /api/ is MANTYX's.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "security": [{ "token": [] }, { "key": [] }],
        "paths": paths,
        "components": { "schemas": generator.take_definitions(true), "securitySchemes": schemes },
    });
    let mut text = serde_json::to_string_pretty(&document).expect("the document is plain JSON");
    text.push('\n');
    text
}

fn write(operation: &Operation, generator: &mut SchemaGenerator) -> Value {
    let parameter = |(name, place, meaning): &(&str, &str, &str)| {
        json!({
            "name": name,
            "in": place,
            "description": meaning,
            "required": *place == "path",
            "schema": { "type": "string" },
        })
    };
    let mut responses = Map::new();
    for (status, what, content) in &operation.gives {
        let mut response = json!({ "description": what });
        match content {
            Content::Json(schema) => {
                response["content"] =
                    json!({ "application/json": { "schema": schema(generator) } });
            }
            Content::Text(kind) => {
                response["content"] = json!({ *kind: { "schema": { "type": "string" } } });
            }
            Content::Nothing => {}
        }
        responses.insert(status.to_string(), response);
    }
    let refused = [
        (401, "There is no token, or a wrong one."),
        (403, "The request comes from a web page, or by a name that is not the bridge's."),
        (429, "Too many requests, or too many without a right token; `Retry-After` says when."),
    ];
    for (status, what) in refused.iter().filter(|(status, _)| !operation.open || *status == 403) {
        let schema = generator.subschema_for::<Error>();
        let content = json!({ "application/json": { "schema": schema } });
        responses.insert(status.to_string(), json!({ "description": what, "content": content }));
    }
    let parameters: Vec<Value> = operation.parameters.iter().map(parameter).collect();
    let mut written = json!({
        "operationId": operation.id,
        "summary": operation.summary,
        "parameters": parameters,
        "responses": responses,
    });
    if let Some(schema) = operation.takes {
        let content = json!({ "application/json": { "schema": schema(generator) } });
        written["requestBody"] = json!({ "required": !operation.bodiless, "content": content });
    }
    if operation.open {
        written["security"] = json!([]);
    }
    written
}

#[cfg(test)]
mod tests {
    //! The document is in the repository, and leads where the routes are.

    use std::path::Path;

    use http::Method;

    use super::*;
    use crate::http::router::Route;

    #[test]
    fn the_file_in_the_repository_is_current() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema/openapi.json");
        if std::env::var_os("UPDATE_SCHEMA").is_some_and(|value| value == "1") {
            std::fs::write(&path, text()).unwrap();
        }
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(written == text(), "run the tests once with UPDATE_SCHEMA=1");
    }

    #[test]
    fn every_operation_is_a_route() {
        for route in routes() {
            for operation in operations(&route) {
                let method = Method::try_from(operation.method.to_uppercase().as_str()).unwrap();
                let Route::Own(found) = Route::of(&method, operation.path) else {
                    panic!("{} {} is no route", operation.method, operation.path)
                };
                let kind = std::mem::discriminant(&found);
                assert_eq!(kind, std::mem::discriminant(&route), "{}", operation.path);
                assert_eq!(found_open(&found), operation.open, "{}", operation.path);
            }
        }
    }

    fn found_open(route: &Own) -> bool {
        matches!(route, Own::Health | Own::Ready)
    }
}
