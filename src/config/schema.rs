//! The JSON Schema of bridge.yaml, with which editors complete and check it.
//!
//! Must not: be written by hand. `schema/bridge.schema.json` is this module's output.

use schemars::{Schema, generate::SchemaSettings};

use super::file_format::File;

/// The schema, Draft 2020-12.
pub fn schema() -> Schema {
    SchemaSettings::draft2020_12().for_deserialize().into_generator().into_root_schema_for::<File>()
}

/// The schema as the text of the file in the repository.
pub fn json() -> String {
    let mut text = serde_json::to_string_pretty(&schema()).expect("a schema is plain JSON");
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn the_file_in_the_repository_is_current() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema/bridge.schema.json");
        if std::env::var_os("UPDATE_SCHEMA").is_some_and(|value| value == "1") {
            std::fs::write(&path, super::json()).unwrap();
        }
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(written == super::json(), "run the tests once with UPDATE_SCHEMA=1");
    }
}
