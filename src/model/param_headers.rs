//! Arguments that the bridge repeats as HTTP headers, because an MCP server's `inputSchema` marks
//! them with `x-mcp-header` (2026-07-28, Streamable HTTP: Custom Headers from Tool Parameters).
//!
//! Must not: change an argument, or let one become more than the value of its header.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::value::RawValue;

use super::{Members, elements, member, schema};

use crate::model::maps::HashSet;

const MARK: &str = "x-mcp-header";
/// Precedes the mark in the header's name.
const PREFIX: &str = "Mcp-Param-";
/// Encloses a value that is not plain text.
const SENTINEL: (&str, &str) = ("=?base64?", "?=");
/// The largest integer of JavaScript, and so of a header; the smallest is its negative.
const MAX_INTEGER: i64 = (1 << 53) - 1;

/// The arguments of one tool that are repeated as headers.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ParamHeaders(Vec<Mark>);

#[derive(Debug, PartialEq, Eq)]
struct Mark {
    /// The names of the properties on the way to the argument.
    path: Vec<String>,
    header: String,
}

impl ParamHeaders {
    /// The marks of `tool`, a whole `Tool` object that `limits` has passed. The error names a mark
    /// that no client may follow, in words that continue a sentence with the tool's name. Such a
    /// tool must not be offered.
    pub fn read(tool: &str) -> Result<Self, String> {
        let mut search = Search::default();
        if let Some(schema) = member(tool, "inputSchema") {
            search.schema(schema, true)?;
        }
        Ok(Self(search.marks))
    }

    /// Whether no argument is marked.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The headers of a call with these `arguments`, each a name and a value. An argument that is
    /// `null` or absent has none. The error is the answer for the model.
    pub fn headers(&self, arguments: &RawValue) -> Result<Vec<(String, String)>, String> {
        let mut headers = Vec::new();
        for Mark { path, header } in &self.0 {
            let Some(value) = path.iter().try_fold(arguments, last_member) else { continue };
            let text = text(value).map_err(|why| {
                let path = path.join("/");
                schema::refusal(&format!("/{path}: {why}, as it goes along as a header"))
            })?;
            headers.extend(text.map(|text| (format!("{PREFIX}{header}"), encoded(text))));
        }
        Ok(headers)
    }

    /// The first header that does not repeat its argument (2026-07-28, Server Behavior for Custom
    /// Headers); `header` gives the value of a header that is there once, as plain text. Integers
    /// are compared as numbers.
    pub fn mismatch(
        &self,
        arguments: &RawValue,
        header: impl Fn(&str) -> Option<String>,
    ) -> Option<String> {
        self.0.iter().find_map(|Mark { path, header: mark }| {
            let name = format!("{PREFIX}{mark}");
            let said = header(&name);
            let value = path.iter().try_fold(arguments, last_member);
            let numeric = value.is_some_and(|value| {
                value.get().starts_with(|first: char| first == '-' || first.is_ascii_digit())
            });
            let repeats = match (value.and_then(|value| text(value).transpose()), said) {
                // No header can repeat it.
                (Some(Err(_)), said) | (None, said) => said.is_none(),
                (Some(Ok(text)), Some(said)) if numeric => integer(&said) == integer(&text),
                (Some(Ok(text)), said) => said.as_deref() == Some(&text),
            };
            if repeats { None } else { Some(name) }
        })
    }
}

/// The member `key` of an object. Of duplicates it is the last one, as most readers use that.
fn last_member<'a>(object: &'a RawValue, key: &String) -> Option<&'a RawValue> {
    let members = Members::read(object.get()).ok()?;
    members.0.iter().rev().find(|(name, _)| name == key).map(|(_, value)| *value)
}

/// A value as text; `None` for null.
fn text(value: &RawValue) -> Result<Option<String>, &'static str> {
    let json = value.get();
    Ok(Some(match json.as_bytes().first() {
        Some(b'n') => return Ok(None),
        Some(b't' | b'f') => json.to_owned(),
        Some(b'"') => serde_json::from_str(json)
            .map_err(|_lone_surrogate| "the value has a character that is none")?,
        Some(b'{' | b'[') | None => {
            return Err("the value has to be a string, an integer or a boolean");
        }
        Some(_) => integer(json)
            .ok_or("the value has to be an integer of at most 2^53 - 1, up or down")?
            .to_string(),
    }))
}

/// An integer in any notation of JSON, such as `1e3`.
fn integer(json: &str) -> Option<i64> {
    let number = match json.parse::<i64>() {
        Ok(number) => number,
        Err(_) => {
            let float = json.parse::<f64>().ok()?;
            // Also for a NaN.
            if float.fract() != 0.0 || float.abs() > MAX_INTEGER as f64 {
                return None;
            }
            // Exact within these bounds.
            float as i64
        }
    };
    if (-MAX_INTEGER..=MAX_INTEGER).contains(&number) { Some(number) } else { None }
}

/// A value in the form for a header: unchanged if it is plain text, else in Base64.
pub fn encoded(text: String) -> String {
    let visible = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    let padded = text.starts_with(' ') || text.ends_with(' ');
    let (before, after) = SENTINEL;
    let looks_encoded = text.starts_with(before) && text.ends_with(after);
    if visible && !padded && !looks_encoded {
        return text;
    }
    format!("{before}{}{after}", BASE64_STANDARD.encode(text))
}

/// The text of a header's value: the counterpart of [`encoded`]. `None` if it is no text.
pub fn decoded(value: &str) -> Option<String> {
    let (before, after) = SENTINEL;
    match value.strip_prefix(before).and_then(|rest| rest.strip_suffix(after)) {
        Some(inner) => String::from_utf8(BASE64_STANDARD.decode(inner).ok()?).ok(),
        None => Some(value.to_owned()),
    }
}

/// Searches a schema for marks, in their order.
#[derive(Default)]
struct Search {
    path: Vec<String>,
    marks: Vec<Mark>,
    /// In lower case, as names of headers are compared without case.
    headers: HashSet<String>,
}

impl Search {
    /// Searches a schema. `on_way`: only `properties` are on the way to it.
    fn schema(&mut self, schema: &RawValue, on_way: bool) -> Result<(), String> {
        let json = schema.get();
        // Without a mark there; a backslash may escape a letter of one.
        if !json.contains(MARK) && !json.contains('\\') {
            return Ok(());
        }
        if let Ok(schemas) = elements(json) {
            return schemas.into_iter().try_for_each(|schema| self.schema(schema, false));
        }
        let Ok(members) = Members::read(json) else { return Ok(()) };
        if let Some(mark) = members.get(MARK) {
            self.mark(mark, &members, on_way)?;
        }
        for (keyword, value) in &members.0 {
            match keyword.as_ref() {
                // These contain values, not schemas.
                MARK | "const" | "default" | "enum" | "examples" => {}
                "properties" => self.named(value, on_way)?,
                "$defs" | "definitions" | "dependentSchemas" | "patternProperties" => {
                    self.named(value, false)?;
                }
                _ => self.schema(value, false)?,
            }
        }
        Ok(())
    }

    /// Searches a map of schemas by name.
    fn named(&mut self, schemas: &RawValue, on_way: bool) -> Result<(), String> {
        let Ok(schemas) = Members::read(schemas.get()) else { return Ok(()) };
        for (name, schema) in &schemas.0 {
            self.path.push(name.to_string());
            self.schema(schema, on_way)?;
            self.path.pop();
        }
        Ok(())
    }

    fn mark(&mut self, mark: &RawValue, schema: &Members<'_>, on_way: bool) -> Result<(), String> {
        let place = self.path.join("/");
        let header = serde_json::from_str::<String>(mark.get()).unwrap_or_default();
        let why = if !on_way || self.path.is_empty() {
            format!("/{place} is not reached by `properties` alone")
        } else if let Some(twice) = schema.duplicate() {
            format!("/{place} has the key {twice:?} twice")
        } else if header.is_empty() || !header.bytes().all(is_token) {
            format!("that of /{place} cannot be a part of a header's name")
        } else if !is_primitive(schema.get("type")) {
            format!("/{place} is no string, integer or boolean")
        } else if !self.headers.insert(header.to_ascii_lowercase()) {
            format!("there is another {header} than that of /{place}")
        } else {
            self.marks.push(Mark { path: self.path.clone(), header });
            return Ok(());
        };
        Err(format!("has an {MARK} that no client may follow: {why}"))
    }
}

/// Whether a property has one of the three types that may be marked, with or without null.
fn is_primitive(kind: Option<&RawValue>) -> bool {
    let Some(kind) = kind else { return false };
    match serde_json::from_str::<Vec<&str>>(kind.get()) {
        Ok(kinds) => {
            let others: Vec<&str> = kinds.into_iter().filter(|kind| *kind != "null").collect();
            matches!(&others[..], [one] if is_primitive_type(one))
        }
        Err(_) => serde_json::from_str::<&str>(kind.get()).is_ok_and(is_primitive_type),
    }
}

fn is_primitive_type(word: &str) -> bool {
    matches!(word, "string" | "integer" | "boolean")
}

/// A character of a header's name (RFC 9110, 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests;
