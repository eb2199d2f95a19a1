//! Where a schema has its subschemas: a value elsewhere, such as one of `enum` or `default`, only
//! looks like one.
//!
//! Must not: know what a keyword means.

use serde_json::{Map, Value};

/// The keywords whose value is a schema.
const ONE: [&str; 12] = [
    "additionalItems",
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];
/// Those whose value is a list of schemas.
const LISTS: [&str; 5] = ["allOf", "anyOf", "oneOf", "prefixItems", "items"];
/// Those whose value has schemas by name.
const NAMED: [&str; 6] =
    ["$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"];

/// One subschema.
#[derive(Debug)]
pub(super) struct Step<'a> {
    pub keyword: &'static str,
    /// Its place in the whole schema, as a JSON pointer.
    pub place: String,
    pub schema: &'a Value,
}

/// The subschemas of a schema with these keywords, which is at `place`.
pub(super) fn steps<'a>(keywords: &'a Map<String, Value>, place: &str) -> Vec<Step<'a>> {
    let mut steps = Vec::new();
    for (key, value) in keywords {
        let at = |rest: &str| format!("{place}/{}{rest}", escaped(key));
        match value {
            Value::Array(items) => {
                let Some(&keyword) = LISTS.iter().find(|list| *list == key) else { continue };
                steps.extend(items.iter().enumerate().map(|(index, schema)| {
                    let place = at(&format!("/{index}"));
                    Step { keyword, place, schema }
                }));
            }
            Value::Object(schemas)
                if let Some(&keyword) = NAMED.iter().find(|name| *name == key) =>
            {
                // Of `dependencies`, some are lists of names.
                let schemas = schemas
                    .iter()
                    .filter(|(_, schema)| keyword != "dependencies" || !schema.is_array());
                steps.extend(schemas.map(|(name, schema)| {
                    let place = at(&format!("/{}", escaped(name)));
                    Step { keyword, place, schema }
                }));
            }
            schema => {
                if let Some(&keyword) = ONE.iter().find(|one| *one == key) {
                    steps.push(Step { keyword, place: at(""), schema });
                }
            }
        }
    }
    steps
}

/// Calls `change` with each subschema of a schema with these keywords.
pub(super) fn each_subschema(
    keywords: &mut Map<String, Value>,
    change: &mut dyn FnMut(&mut Value),
) {
    for (key, value) in keywords {
        let key = key.as_str();
        match value {
            Value::Array(items) if LISTS.contains(&key) => items.iter_mut().for_each(&mut *change),
            Value::Object(schemas) if NAMED.contains(&key) => {
                schemas.values_mut().for_each(&mut *change);
            }
            schema if ONE.contains(&key) => change(schema),
            _ => {}
        }
    }
}

/// A key as a JSON pointer has it.
pub(super) fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}
