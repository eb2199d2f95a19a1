//! The repository's bridge.yaml explains every key of the schema.

use std::collections::BTreeSet;

use schemars::generate::SchemaSettings;
use serde_json::Value;

use crate::config::file_format::File;

/// The keys that a part of bridge.yaml sets, mentions in an example, or lists as `a, b: as above`.
fn explained(part: &str) -> BTreeSet<&str> {
    let mut keys = BTreeSet::new();
    for line in part.lines() {
        let line = line.trim_start_matches([' ', '#']);
        if let Some((list, _)) = line.split_once(": as ") {
            keys.extend(list.split(", "));
        }
        let before_colons = line.rsplit(':').skip(1);
        keys.extend(before_colons.filter_map(|text| text.rsplit([' ', '{', '[', '"']).next()));
    }
    keys
}

/// The names of the definitions that `schema` itself refers to.
fn referred<'a>(schema: &'a Value, found: &mut BTreeSet<&'a str>) {
    match schema {
        Value::Object(members) => {
            found.extend(members.get("$ref").and_then(|it| it.as_str()?.strip_prefix("#/$defs/")));
            members.values().for_each(|member| referred(member, found));
        }
        Value::Array(items) => items.iter().for_each(|item| referred(item, found)),
        _ => (),
    }
}

/// Editors, `init` and the README promise that bridge.yaml explains every setting.
#[test]
fn the_example_explains_every_key() {
    let schema = SchemaSettings::draft2020_12().for_deserialize();
    let schema = schema.into_generator().into_root_schema_for::<File>().to_value();
    let text = include_str!("../../../../bridge.yaml");
    let keys = |schema: &Value| -> Vec<String> {
        schema["properties"].as_object().into_iter().flat_map(|it| it.keys().cloned()).collect()
    };
    let everywhere = explained(text);
    let mut missing = Vec::new();
    for (section, entry) in schema["properties"].as_object().unwrap() {
        // A section begins with its key, and ends with the next one.
        let begins = |line: &str| line.trim_start_matches("# ").starts_with(&format!("{section}:"));
        let is_key = |line: &str| {
            let line = line.strip_prefix("# ").unwrap_or(line);
            let key = line.split(':').next().unwrap_or_default();
            line.contains(':') && schema["properties"].get(key).is_some() && key != section
        };
        let part: Vec<&str> = text
            .lines()
            .skip_while(|line| !begins(line))
            .take_while(|line| !is_key(line))
            .collect();
        if part.is_empty() && section != "mcpServers" {
            missing.push(section.clone());
        }
        let part = part.join("\n");
        let here = explained(if section == "mcpServers" { text } else { &part });
        let mut definitions = BTreeSet::new();
        referred(entry, &mut definitions);
        for key in definitions.into_iter().flat_map(|name| keys(&schema["$defs"][name])) {
            if !here.contains(key.as_str()) {
                missing.push(format!("{section}: {key}"));
            }
        }
    }
    for (name, definition) in schema["$defs"].as_object().unwrap() {
        let lost = keys(definition).into_iter().filter(|key| !everywhere.contains(key.as_str()));
        missing.extend(lost.map(|key| format!("{name}: {key}")));
    }
    assert!(missing.is_empty(), "bridge.yaml does not explain {missing:#?}");
}
