//! The OpenAPI 3.1 document of the bridge's own API, and answers that only the document and the
//! command line know as types.
//!
//! The document is schema/openapi.json. Its paths are written by hand; a test keeps the schemas of
//! the types that are serialized up to date in it.
//!
//! Must not: describe a request in more words than a reader of the document needs; docs/api.md has
//! the details.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The document, as it is served.
pub(super) const DOCUMENT: &str = include_str!("../../../schema/openapi.json");

/// Refs as they go into a spec's `tools`, or the tools of an API.
#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) struct ToolRefs {
    pub(crate) tools: Vec<Map<String, Value>>,
    /// What MCP servers tell models about their tools, by backend: those of which the app may use
    /// all tools.
    #[serde(default)]
    pub(crate) instructions: BTreeMap<String, String>,
    /// Changes with the tools. The `ETag` changes with the instructions, too.
    digest: String,
    /// What was changed for the API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    notes: Option<Vec<String>>,
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
    pub(crate) run_id: String,
    /// A path of the bridge.
    pub(crate) stream_url: String,
}

/// A link that signs a browser in as the one who has asked for it, once.
#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) struct SignInLink {
    /// A path of the bridge.
    pub(crate) path: String,
    /// How long it can be followed.
    pub(crate) seconds: u64,
}

#[cfg(test)]
mod tests {
    //! The document has the schemas of the types.

    use std::path::Path;

    use schemars::SchemaGenerator;
    use schemars::generate::SchemaSettings;

    use super::*;
    use crate::http::api::{approvals, backends, logins, notify, ready, runs, status, trust};

    /// The schemas of the types that are serialized, by their names in the document.
    fn schemas() -> Map<String, Value> {
        let mut settings = SchemaSettings::draft2020_12().for_serialize();
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
        let mut generator = settings.into_generator();
        for add in [
            SchemaGenerator::subschema_for::<ready::Ready>,
            SchemaGenerator::subschema_for::<ready::NotReady<'_>>,
            SchemaGenerator::subschema_for::<status::Status>,
            SchemaGenerator::subschema_for::<backends::BackendList>,
            SchemaGenerator::subschema_for::<ToolRefs>,
            SchemaGenerator::subschema_for::<ToolResult>,
            SchemaGenerator::subschema_for::<trust::Trust>,
            SchemaGenerator::subschema_for::<trust::Acceptance>,
            SchemaGenerator::subschema_for::<Submitted>,
            SchemaGenerator::subschema_for::<runs::Shown<'_>>,
            SchemaGenerator::subschema_for::<runs::ShownCall<'_>>,
            SchemaGenerator::subschema_for::<runs::Attach>,
            SchemaGenerator::subschema_for::<approvals::ApprovalList>,
            SchemaGenerator::subschema_for::<approvals::Decide>,
            SchemaGenerator::subschema_for::<SignInLink>,
            SchemaGenerator::subschema_for::<logins::LoginList>,
            SchemaGenerator::subschema_for::<logins::LoginRequest>,
            SchemaGenerator::subschema_for::<logins::LoginBegun>,
            SchemaGenerator::subschema_for::<logins::LoginEnd>,
            SchemaGenerator::subschema_for::<logins::PastedAddress>,
            SchemaGenerator::subschema_for::<notify::NoticeTest>,
            SchemaGenerator::subschema_for::<runs::CallTexts<'_>>,
        ] {
            add(&mut generator);
        }
        generator.take_definitions(true)
    }

    #[test]
    fn the_document_is_current() {
        let mut document: Value = serde_json::from_str(DOCUMENT).unwrap();
        document["info"]["version"] = env!("CARGO_PKG_VERSION").into();
        for (name, schema) in schemas() {
            document["components"]["schemas"][name] = schema;
        }
        let text = format!("{document:#}\n");
        if std::env::var_os("UPDATE_SCHEMA").is_some_and(|value| value == "1") {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema/openapi.json");
            std::fs::write(path, &text).unwrap();
        }
        assert!(text == DOCUMENT, "run the tests once with UPDATE_SCHEMA=1");
    }

    #[test]
    fn each_schema_is_used() {
        let document: Value = serde_json::from_str(DOCUMENT).unwrap();
        for name in document["components"]["schemas"].as_object().unwrap().keys() {
            let reference = format!("\"#/components/schemas/{name}\"");
            assert!(DOCUMENT.contains(&reference), "nothing refers to {name}");
        }
    }
}
