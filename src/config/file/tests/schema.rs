//! The JSON Schema of bridge.yaml, with which editors complete and check it.
//!
//! Must not: be written by hand. `schema/bridge.schema.json` is this test's output.

use std::path::Path;

use schemars::generate::SchemaSettings;

use crate::config::file_format::File;

#[test]
fn the_file_in_the_repository_is_current() {
    let settings = SchemaSettings::draft2020_12().for_deserialize();
    let schema = settings.into_generator().into_root_schema_for::<File>();
    let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema/bridge.schema.json");
    if std::env::var_os("UPDATE_SCHEMA").is_some_and(|value| value == "1") {
        std::fs::write(&path, &text).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == text, "run the tests once with UPDATE_SCHEMA=1");
}
