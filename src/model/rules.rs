//! Rules of bridge.yaml: globs of tools, each with conditions on the arguments of a call.
//!
//! Rules ask or refuse, so what cannot be decided counts as a match: a value of another type, a key
//! in other letter case, each of several members with one key. Only an argument that is absent is
//! none.
//!
//! Pure.
//!
//! Must not: know what becomes of a call that a rule matches, or build a `Value` of all arguments.

mod reading;

use std::borrow::Cow;
use std::{ptr, slice};

use globset::{Glob, GlobMatcher};
use serde_json::Value;

use crate::model::maps::HashSet;

pub(super) use reading::ConditionTree;

/// The most keys of a path, as each of them takes a pass over the arguments.
const MAX_KEYS: usize = 32;

/// Tools, and which of their calls.
#[derive(Debug, Clone)]
pub struct Rule {
    /// As it stands in the file.
    pub glob: Glob,
    /// All of them must hold; none: all calls of these tools.
    pub when: Vec<Condition>,
    /// Where it stands in the file.
    pub place: String,
}

/// A condition on one argument.
#[derive(Debug, Clone)]
pub struct Condition {
    /// A JSON Pointer.
    pub path: String,
    /// The keys in it.
    pub keys: Vec<String>,
    pub test: Test,
}

/// What a value is compared with.
#[derive(Debug, Clone)]
pub enum Test {
    Gt(f64),
    Lt(f64),
    Glob(GlobMatcher),
}

/// The keys of a JSON Pointer (RFC 6901). `None` if `path` is none, points to the whole, or has too
/// many keys.
pub fn keys(path: &str) -> Option<Vec<String>> {
    let keys = path.strip_prefix('/')?.split('/').take(MAX_KEYS + 1).map(|key| {
        if key.replace("~0", "").replace("~1", "").contains('~') {
            return None;
        }
        Some(key.replace("~1", "/").replace("~0", "~"))
    });
    keys.collect::<Option<Vec<_>>>().filter(|keys| keys.len() <= MAX_KEYS)
}

impl Rule {
    /// Whether it is about a call of one of its tools with these arguments.
    #[cfg(test)]
    fn holds(&self, arguments: &str) -> bool {
        ConditionTree::new(slice::from_ref(self)).first(&[0], arguments).is_some()
    }

    /// Its conditions, for the model and people.
    pub fn conditions(&self) -> String {
        let words = self.when.iter().map(|Condition { path, test, .. }| match test {
            Test::Gt(limit) => format!("`{path}` is greater than {limit}"),
            Test::Lt(limit) => format!("`{path}` is less than {limit}"),
            Test::Glob(glob) => format!("`{path}` matches `{}`", glob.glob()),
        });
        words.collect::<Vec<_>>().join(" and ")
    }
}

impl Condition {
    /// Whether arguments that fit the JSON Schema `schema` can have its path, as far as the schema
    /// is understood. With `properties`, a schema has no others: a key that it does not name is
    /// mistyped more often than it is one that the server reads all the same.
    pub fn is_known(&self, schema: &Value) -> bool {
        let mut here = vec![schema];
        for key in &self.keys {
            let Some(all) = parts(schema, here) else { return true };
            here = all.iter().flat_map(|part| inner(part, key)).collect();
            if here.is_empty() {
                let mut lists = all.iter().filter_map(|part| part.get("properties"));
                return lists.next().is_none() && all.iter().any(|part| is_open(part, key));
            }
        }
        true
    }
}

/// Whether some servers take `name` for `key`: those written in Go do not look at the case of
/// letters.
fn is_key(name: &str, key: &str) -> bool {
    name == key || fold(name) == fold(key)
}

/// What all keys have in common that some servers take for `key`.
fn fold(key: &str) -> Cow<'_, str> {
    if key.bytes().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase()) {
        return key.into();
    }
    // `ſ` is `s` in upper case, and the Kelvin sign `k` in lower case.
    key.to_uppercase().to_lowercase().into()
}

/// The path without `.`, `..` and doubled slashes, by its text alone.
fn plain_path(path: &str) -> String {
    let root = if path.starts_with('/') { "/" } else { "" };
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => drop(parts.pop()),
            ".." if !root.is_empty() => {}
            part => parts.push(part),
        }
    }
    format!("{root}{}", parts.join("/"))
}

/// The keywords that have the other schemas which a value must fit as well, or one of them.
const COMBINED: [&str; 5] = ["allOf", "anyOf", "oneOf", "then", "else"];

/// The schemas `here`, within `whole`, and all that they are combined of. `None` if one of them is
/// elsewhere.
fn parts<'a>(whole: &'a Value, mut here: Vec<&'a Value>) -> Option<Vec<&'a Value>> {
    let mut all = Vec::new();
    // References may lead in circles.
    let mut visited = HashSet::default();
    while let Some(schema) = here.pop() {
        if !visited.insert(ptr::from_ref(schema)) {
            continue;
        }
        all.push(schema);
        if let Some(reference) = schema.get("$ref") {
            here.push(whole.pointer(reference.as_str()?.strip_prefix('#')?)?);
        }
        let combined = COMBINED.iter().filter_map(|key| schema.get(*key));
        for schemas in combined {
            here.extend(schemas.as_array().map_or(slice::from_ref(schemas), Vec::as_slice));
        }
    }
    Some(all)
}

/// The schemas that `schema` alone has for the member or the element `key`.
fn inner<'a>(schema: &'a Value, key: &str) -> Vec<&'a Value> {
    let named_schemas =
        |keyword: &str| schema.get(keyword).and_then(Value::as_object).into_iter().flatten();
    let mut schemas: Vec<&Value> = named_schemas("properties")
        .filter(|(name, _)| is_key(name, key))
        .map(|(_, schema)| schema)
        .collect();
    if let Ok(index) = key.parse::<usize>() {
        let items = schema.get("items");
        let list = schema.get("prefixItems").or(items).and_then(|list| list.get(index));
        schemas.extend(list.or(items.filter(|items| !items.is_array())));
    }
    if schemas.is_empty() {
        schemas.extend(named_schemas("patternProperties").map(|(_, schema)| schema));
        let others = schema.get("additionalProperties");
        schemas
            .extend(others.filter(|schema| schema.as_object().is_some_and(|all| !all.is_empty())));
    }
    schemas
}

/// Whether `schema` says nothing of `key`, and yet takes it.
fn is_open(schema: &Value, key: &str) -> bool {
    let types = match schema.get("type") {
        None => &[],
        Some(Value::Array(types)) => types.as_slice(),
        Some(only) => slice::from_ref(only),
    };
    let mut other_keywords = COMBINED.iter().chain(&["$ref"]);
    let takes_all = schema.get("type").is_none()
        && *schema != false
        && !other_keywords.any(|keyword| schema.get(*keyword).is_some());
    (types.iter().any(|name| name == "object") || takes_all)
        && schema.get("additionalProperties") != Some(&false.into())
        || types.iter().any(|name| name == "array") && key.parse::<usize>().is_ok()
}

#[cfg(test)]
mod tests;
