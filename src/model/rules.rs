//! Rules of bridge.yaml: globs of tools, each with conditions on the arguments of a call.
//!
//! Rules ask or refuse, so what cannot be decided counts as a match: a value of another type, a key in
//! other letter case, each of several members with one key. Only an argument that is absent is none.
//!
//! Pure.
//!
//! Must not: know what becomes of a call that a rule matches, or build a `Value` of all arguments.

use globset::{Glob, GlobMatcher};
use serde_json::Value;

use super::json::{Elements, Members, each_member};

/// The most keys of a path, as each of them takes a pass over the arguments.
const MAX_KEYS: usize = 32;
/// A number with more characters may be rounded to a limit that it is not equal to.
const EXACT: usize = 15;

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
        let is_good = !key.replace("~0", "").replace("~1", "").contains('~');
        is_good.then(|| key.replace("~1", "/").replace("~0", "~"))
    });
    keys.collect::<Option<Vec<_>>>().filter(|keys| keys.len() <= MAX_KEYS)
}

impl Rule {
    /// Whether it is about a call of one of its tools with these arguments.
    pub fn holds(&self, arguments: &str) -> bool {
        self.when.iter().all(|one| fits_under(arguments, &one.keys, &one.test))
    }

    /// The first path that no input schema among `schemas` knows; a schema that is open, or not
    /// understood, knows all.
    pub fn unknown_path(&self, schemas: &[&str]) -> Option<&str> {
        let is_known = |one: &&Condition| schemas.iter().any(|schema| knows(schema, &one.keys));
        self.when.iter().find(|one| !is_known(one)).map(|one| one.path.as_str())
    }

    /// Its conditions, for the model and people.
    pub fn conditions(&self) -> String {
        let told = self.when.iter().map(|Condition { path, test, .. }| match test {
            Test::Gt(limit) => format!("`{path}` is greater than {limit}"),
            Test::Lt(limit) => format!("`{path}` is less than {limit}"),
            Test::Glob(glob) => format!("`{path}` matches `{}`", glob.glob()),
        });
        told.collect::<Vec<_>>().join(" and ")
    }
}

impl Test {
    /// Whether the JSON text `value` fits, or is of another type than can be compared.
    fn fits(&self, value: &str) -> bool {
        let number = value.parse::<f64>().ok().filter(|number| number.is_finite());
        let may_equal = |it, limit: f64| (it == limit && value.len() > EXACT) || !limit.is_finite();
        match self {
            Self::Gt(limit) => number.is_none_or(|it| it > *limit || may_equal(it, *limit)),
            Self::Lt(limit) => number.is_none_or(|it| it < *limit || may_equal(it, *limit)),
            Self::Glob(glob) => match serde_json::from_str::<Value>(value) {
                Ok(Value::String(text)) => {
                    let plain = plain_path(&text);
                    // With a slash, as `/etc/**` is meant to match `/etc`.
                    [&text, &plain, &format!("{plain}/")].iter().any(|it| glob.is_match(it))
                }
                Ok(Value::Number(_) | Value::Bool(_)) => glob.is_match(value),
                _ => true,
            },
        }
    }
}

/// Whether one of the values under `keys` in the JSON text `value` fits, or what is there has no keys.
fn fits_under(value: &str, keys: &[String], test: &Test) -> bool {
    let Some((key, rest)) = keys.split_first() else { return test.fits(value) };
    if let (Ok(index), Ok(Elements(items))) = (key.parse::<usize>(), Elements::read(value)) {
        return items.get(index).is_some_and(|item| fits_under(item.get(), rest, test));
    }
    let mut found = false;
    let read = each_member(value, |name, value| {
        found |= is_key(&name, key) && fits_under(value.get(), rest, test);
        true
    });
    found || read.is_err()
}

/// Whether some servers take `name` for `key`: those written in Go do not look at the case of letters.
fn is_key(name: &str, key: &str) -> bool {
    // `ſ` is `s` in upper case, and the Kelvin sign `k` in lower case.
    let fold = |text: &str| text.to_uppercase().to_lowercase();
    name == key || fold(name) == fold(key)
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

/// Whether values that fit the JSON Schema `schema` may have something under `keys`.
fn knows(schema: &str, keys: &[String]) -> bool {
    const OPEN: &str =
        "$ref $dynamicRef additionalProperties allOf anyOf oneOf if patternProperties items";
    let (Some((key, rest)), Ok(schema)) = (keys.split_first(), Members::read(schema)) else {
        return true;
    };
    let Some(properties) = schema.object("properties") else { return true };
    match properties.0.iter().find(|(name, _)| is_key(name, key)) {
        Some((_, schema)) => knows(schema.get(), rest),
        None => OPEN.split(' ').any(|key| schema.get(key).is_some_and(|it| it.get() != "false")),
    }
}

#[cfg(test)]
mod tests;
