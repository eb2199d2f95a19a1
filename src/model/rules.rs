//! Rules of bridge.yaml: globs of tools, each with conditions on the arguments of a call.
//!
//! Rules ask or refuse, so what cannot be decided counts as a match: a value of another type, a key in
//! other letter case, each of several members with one key. Only an argument that is absent is none.
//!
//! Pure.
//!
//! Must not: know what becomes of a call that a rule matches, or build a `Value` of all arguments.

use std::{fmt, mem::discriminant};

use globset::{Glob, GlobMatcher};
use serde_json::Value;

use super::json::{Elements, Members, each_member};

/// The most keys of a [`Pointer`], as each of them takes a pass over the arguments.
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
    pub path: Pointer,
    pub test: Test,
}

/// What a value is compared with.
#[derive(Debug, Clone)]
pub enum Test {
    Gt(f64),
    Lt(f64),
    /// A text, a number or a boolean.
    Equals(Value),
    Glob(GlobMatcher),
}

/// A JSON Pointer (RFC 6901) to a value in an object.
#[derive(Debug, Clone)]
pub struct Pointer {
    written: String,
    keys: Vec<String>,
}

impl Pointer {
    /// `None` if `written` is no pointer, points to the whole, or has too many keys.
    pub fn parse(written: &str) -> Option<Self> {
        let escaped = written.strip_prefix('/')?.split('/');
        let keys = escaped.map(|key| {
            let is_good = !key.replace("~0", "").replace("~1", "").contains('~');
            is_good.then(|| key.replace("~1", "/").replace("~0", "~"))
        });
        let keys = keys.take(MAX_KEYS + 1).collect::<Option<Vec<_>>>()?;
        (keys.len() <= MAX_KEYS).then(|| Self { written: written.to_owned(), keys })
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written)
    }
}

impl Rule {
    /// Whether it is about a call of one of its tools with these arguments.
    pub fn holds(&self, arguments: &str) -> bool {
        self.when.iter().all(|one| fits_under(arguments, &one.path.keys, &|it| one.test.fits(it)))
    }

    /// The first path that no input schema among `schemas` knows; a schema that is open, or not
    /// understood, knows all.
    pub fn unknown_path(&self, schemas: &[&str]) -> Option<&Pointer> {
        let mut paths = self.when.iter().map(|condition| &condition.path);
        paths.find(|path| !schemas.iter().any(|schema| knows(schema, &path.keys)))
    }
}

/// The conditions, for the model and people.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, Condition { path, test }) in self.when.iter().enumerate() {
            f.write_str(if at == 0 { "" } else { " and " })?;
            match test {
                Test::Gt(limit) => write!(f, "`{path}` is greater than {limit}")?,
                Test::Lt(limit) => write!(f, "`{path}` is less than {limit}")?,
                Test::Equals(value) => write!(f, "`{path}` is {value}")?,
                Test::Glob(glob) => write!(f, "`{path}` matches `{}`", glob.glob())?,
            }
        }
        Ok(())
    }
}

impl Test {
    /// Whether the JSON text `value` fits, or is of another type than can be compared.
    fn fits(&self, value: &str) -> bool {
        let compare = |limit: f64, is_beyond: fn(&f64, &f64) -> bool| {
            let number = value.parse::<f64>().ok().filter(|number| number.is_finite());
            let is_rounded = |number| number == limit && value.len() > EXACT;
            number.is_none_or(|number| is_beyond(&number, &limit) || is_rounded(number))
        };
        match self {
            Self::Gt(limit) => compare(*limit, f64::gt),
            Self::Lt(limit) => compare(*limit, f64::lt),
            Self::Equals(Value::Number(wanted)) => {
                wanted.as_f64().is_none_or(|wanted| compare(wanted, f64::eq))
            }
            Self::Equals(wanted) => match serde_json::from_str::<Value>(value) {
                Ok(found) if discriminant(&found) == discriminant(wanted) => found == *wanted,
                _ => true,
            },
            Self::Glob(glob) => serde_json::from_str::<String>(value).ok().is_none_or(|text| {
                let plain = plain_path(&text);
                // With a slash, as `/etc/**` is meant to match `/etc`.
                [&text, &plain, &format!("{plain}/")].iter().any(|it| glob.is_match(it))
            }),
        }
    }
}

/// Whether one of the values under `keys` in the JSON text `value` fits, or what is there has no keys.
fn fits_under(value: &str, keys: &[String], fits: &dyn Fn(&str) -> bool) -> bool {
    let Some((key, rest)) = keys.split_first() else { return fits(value) };
    if let (Ok(index), Ok(Elements(items))) = (key.parse::<usize>(), Elements::read(value)) {
        return items.get(index).is_some_and(|item| fits_under(item.get(), rest, fits));
    }
    let mut found = false;
    let read = each_member(value, |name, value| {
        found |= is_key(&name, key) && fits_under(value.get(), rest, fits);
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
    const OPEN: [&str; 9] = [
        "$ref",
        "$dynamicRef",
        "additionalProperties",
        "allOf",
        "anyOf",
        "oneOf",
        "if",
        "patternProperties",
        "items",
    ];
    let (Some((key, rest)), Ok(schema)) = (keys.split_first(), Members::read(schema)) else {
        return true;
    };
    let Some(properties) = schema.object("properties") else { return true };
    match properties.0.iter().find(|(name, _)| is_key(name, key)) {
        Some((_, schema)) => knows(schema.get(), rest),
        None => OPEN.iter().any(|key| schema.get(key).is_some_and(|it| it.get() != "false")),
    }
}

#[cfg(test)]
mod tests;
