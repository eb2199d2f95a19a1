//! The OpenAPI 3.1 document of the bridge's own API, generated from the types that are serialized
//! and the routes that are served.
//!
//! Must not: describe a request in more words than a reader of the document needs; docs/api.md has
//! the details.

use std::sync::LazyLock;

use bytes::Bytes;
use http::{Response, StatusCode};
use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{
    routes::{Content, OwnRoute, ROUTES},
    runs,
};
use crate::http::{Body, response};

/// The document, as it is served.
static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| Bytes::from(text()));

/// Every error of the bridge, and of MANTYX.
#[derive(Serialize, Deserialize, JsonSchema)]
pub(super) struct Error {
    /// For programs.
    error: String,
    /// For people.
    message: String,
}

/// The daemon lives.
#[derive(Serialize, Deserialize, JsonSchema)]
pub(super) struct Alive {
    status: String,
}

/// Refs as they go into a spec's `tools`, or the tools of an API.
#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) struct ToolRefs {
    pub(crate) tools: Vec<Map<String, Value>>,
    /// Changes with the tools; also the `ETag`.
    digest: String,
    /// What was changed for the API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    notes: Option<Vec<String>>,
}

/// An agent run's spec, as MANTYX takes it; what is not named here goes on as it is.
#[derive(Serialize, Deserialize, JsonSchema)]
pub(super) struct Spec {
    /// Tool refs, and placeholders of the bridge's. MANTYX judges them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tools: Option<Vec<Value>>,
}

/// The data of a `local_tool_call` event.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolCall {
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
pub(crate) struct ToolResult {
    tool_use_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) result: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    files: Option<Vec<Map<String, Value>>>,
}

/// A run that MANTYX has accepted.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Submitted {
    run_id: String,
    /// A path of the bridge.
    pub(crate) stream_url: String,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct RunList<'a> {
    /// The latest first.
    runs: Vec<runs::Shown<'a>>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct CallList<'a> {
    /// Those that run, then those that were answered; the latest first.
    calls: Vec<runs::ShownCall<'a>>,
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
    for route in ROUTES.iter().filter(|route| !route.id.is_empty()) {
        let written = write(route, &mut generator);
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.to_lowercase()] = written;
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

fn write(route: &OwnRoute, generator: &mut SchemaGenerator) -> Value {
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
    for (status, what, content) in route.gives.iter().flatten() {
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
    let schema = generator.subschema_for::<Error>();
    let content = json!({ "application/json": { "schema": schema } });
    responses.insert("default".into(), json!({ "description": "An error.", "content": content }));
    let parameters: Vec<Value> = route.parameters.iter().map(parameter).collect();
    let mut written = json!({
        "operationId": route.id,
        "summary": route.summary,
        "parameters": parameters,
        "responses": responses,
    });
    if let Some(schema) = route.takes {
        let content = json!({ "application/json": { "schema": schema(generator) } });
        written["requestBody"] = json!({ "required": !route.bodiless, "content": content });
    }
    if route.access.is_open() {
        written["security"] = json!([]);
    }
    written
}

#[cfg(test)]
mod tests {
    //! The document is in the repository.

    use std::path::Path;

    use super::*;

    #[test]
    fn the_file_in_the_repository_is_current() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema/openapi.json");
        if std::env::var_os("UPDATE_SCHEMA").is_some_and(|value| value == "1") {
            std::fs::write(&path, text()).unwrap();
        }
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(written == text(), "run the tests once with UPDATE_SCHEMA=1");
    }
}
