//! The text of a file with MCP servers as a tree: JSON with comments, YAML, or TOML.
//!
//! Must not: put a value of the file into an error; it may be a secret.

use std::path::Path;

use serde_json::{Map, Value};

/// The members at the top of the file at `path`, or what keeps it from being read.
pub(in crate::cli) fn parse(path: &Path, text: &str) -> Result<Map<String, Value>, String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.contains('\0') {
        let why = "it has zero bytes, as UTF-16 text has; save the file as UTF-8".to_owned();
        return Err(why);
    }
    let extension = path.extension().unwrap_or_default().to_ascii_lowercase();
    let value = match extension.to_str().unwrap_or_default() {
        "toml" => toml(text)?,
        "yaml" | "yml" => yaml(text)?,
        "json" | "jsonc" => json(text)?,
        _ if text.trim_start().starts_with(['{', '[', '/']) => json(text)?,
        _ => yaml(text)?,
    };
    match value {
        Value::Object(members) => Ok(members),
        // A list of servers, which have their names inside.
        Value::Array(_) => Ok(Map::from_iter([("mcpServers".to_owned(), value)])),
        _ => Err("there is no map at its top".to_owned()),
    }
}

/// Whether the file is YAML, by its name.
pub(super) fn is_yaml(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "yaml" || end == "yml")
}

fn json(text: &str) -> Result<Value, String> {
    serde_json::from_str(&without_comments(text)?)
        .map_err(|error| format!("it is not JSON: {error}"))
}

fn yaml(text: &str) -> Result<Value, String> {
    let options = serde_saphyr::options! { strict_booleans: true, with_snippet: false };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let place =
            error.location().map(|at| format!(", line {} column {}", at.line(), at.column()));
        format!("it is not YAML{}", place.unwrap_or_default())
    })
}

fn toml(text: &str) -> Result<Value, String> {
    toml::from_str(text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start));
        let line = before.map(|before| format!(", line {}", before.matches('\n').count() + 1));
        format!("it is not TOML{}", line.unwrap_or_default())
    })
}

/// `text` without comments and trailing commas. All else keeps its place, so that an error names
/// the right line and column.
fn without_comments(text: &str) -> Result<String, String> {
    let mut bytes = text.as_bytes().to_vec();
    json_strip_comments::strip_slice(&mut bytes)
        .map_err(|_slash| "it is not JSON: a `/` in it begins no comment".to_owned())?;
    // The crate makes spaces of the line ends in block comments, too.
    for (byte, was) in bytes.iter_mut().zip(text.bytes()) {
        if was == b'\n' {
            *byte = was;
        }
    }
    Ok(String::from_utf8(bytes).expect("only whole comments and commas became spaces"))
}
