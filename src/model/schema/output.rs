//! Whether MCP clients can use a schema of output.
//!
//! A client compiles the `outputSchema` of each tool that it lists. The official one of TypeScript
//! refuses the whole list if one of them does not compile, and others each call of that tool.
//!
//! Must not: be lenient: a client without the schema still gets the output.

use std::sync::LazyLock;

use jsonschema::Validator;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::read;
use super::usable::{followed, references};
use super::walk::{Step, steps};

/// Whether every client can compile `schema`.
pub fn is_good_output(schema: &RawValue) -> bool {
    read(schema.get()).is_ok_and(|schema| is_good(&schema))
}

fn is_good(root: &Value) -> bool {
    // Clients take the drafts from 7 on alike, whatever the schema says.
    let is_known =
        jsonschema::draft202012::meta::is_valid(root) || jsonschema::draft7::meta::is_valid(root);
    root.is_object() && is_known && are_good(root, root, "")
}

/// Whether clients can compile `schema`, which is at `place` of `root`, and all schemas in it.
fn are_good(root: &Value, schema: &Value, place: &str) -> bool {
    let Some(keywords) = schema.as_object() else { return true };
    // A base of its own gives all references below another meaning.
    if !place.is_empty() && keywords.contains_key("$id") {
        return false;
    }
    let are_followed = references(keywords).all(|target| followed(root, target).is_some());
    let mut below = steps(keywords, place).into_iter();
    are_followed
        && is_plain(keywords)
        && below.all(|Step { place, schema, .. }| are_good(root, schema, &place))
}

/// Whether these keywords mean the same to all clients.
fn is_plain(keywords: &Map<String, Value>) -> bool {
    // `id` is of draft 4, and OpenAPI wants a type beside `nullable`.
    if keywords.contains_key("id")
        || keywords.contains_key("nullable") && !keywords.contains_key("type")
    {
        return false;
    }
    let pattern = keywords.get("pattern").and_then(Value::as_str);
    let properties = keywords.get("patternProperties").and_then(Value::as_object);
    let keys = properties.into_iter().flatten().map(|(key, _)| &**key);
    pattern.into_iter().chain(keys).all(is_unicode_pattern)
}

/// Whether JavaScript takes `pattern` with the flag `u`, which clients set.
fn is_unicode_pattern(pattern: &str) -> bool {
    let mut in_class = false;
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match c {
            '[' => in_class = true,
            ']' => in_class = false,
            '\\' => match chars.next() {
                Some('-') if in_class => {}
                Some(c) if c.is_ascii_alphanumeric() || "^$\\.*+?()[]{}|/".contains(c) => {}
                _ => return false,
            },
            _ => {}
        }
    }
    is_pattern(pattern)
}

/// Whether `pattern` is a regular expression of JavaScript.
pub(super) fn is_pattern(pattern: &str) -> bool {
    static PATTERN: LazyLock<Validator> = LazyLock::new(|| {
        let options = jsonschema::options().should_validate_formats(true);
        options.build(&json!({ "format": "regex" })).expect("the constant is a schema")
    });
    PATTERN.is_valid(&pattern.into())
}
