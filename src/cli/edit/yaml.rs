//! One entry of bridge.yaml is added or removed. Every other byte stays: comments, order, anchors,
//! line ends.
//!
//! Must not: write YAML that was not read again and compared.

use std::path::Path;
use std::str::FromStr as _;

use serde_json::{Map, Value};
use yaml_edit::{Document, Mapping};

use super::{Edit, Splice};
use crate::cli::import::{formats, place_of_key, quoted};
use crate::model::visible;

/// The sections that have backends.
const SECTIONS: [&str; 4] = ["mcp", "mcpServers", "a2a", "local"];

/// `text` with the MCP server `name`.
///
/// # Errors
///
/// Why a person has to do it.
pub(in crate::cli) fn with_server(
    text: &str,
    name: &str,
    entry: &Map<String, Value>,
) -> Result<Edit, String> {
    let before = tree(text)?;
    let section = if before.contains_key("mcpServers") && !before.contains_key("mcp") {
        "mcpServers"
    } else {
        "mcp"
    };
    let mut expected = before.clone();
    let list = expected.entry(section).or_insert_with(|| Map::new().into());
    if list.is_null() {
        *list = Map::new().into();
    }
    let Some(servers) = list.as_object_mut() else {
        return Err(format!("`{section}` is no map"));
    };
    servers.insert(name.to_owned(), entry.clone().into());
    let new_text = match before.get(section) {
        Some(Value::Object(servers)) if !servers.is_empty() => {
            let document = parse(text)?;
            let Some(map) = document.get_mapping(section) else { return Err(no_map(section)) };
            map.set(name, mapping(entry)?);
            document.to_string()
        }
        Some(_) => in_empty_section(text, section, name, entry),
        None => with_section(text, section, name, entry),
    };
    let splice = Splice::between(text, &new_text);
    if !splice.only_adds() || tree(&new_text).as_ref() != Ok(&expected) {
        return Err(format!("`{section}` is written in a form that cannot be added to"));
    }
    Ok(Edit { text: new_text, splice })
}

/// `text` without the backend `name`, and the section that had it; `None` if none has it.
pub(in crate::cli) fn without_backend(text: &str, name: &str) -> Result<Option<Edit>, String> {
    let before = tree(text)?;
    let mut sections = SECTIONS.iter();
    let section =
        sections.find(|section| before.get(**section).is_some_and(|map| map.get(name).is_some()));
    let Some(section) = section else { return Ok(None) };
    let mut expected = before.clone();
    if let Some(map) = expected.get_mut(*section).and_then(Value::as_object_mut) {
        map.remove(name);
    }
    let document = parse(text)?;
    let Some(map) = document.get_mapping(section) else { return Err(no_map(section)) };
    map.remove(name);
    let new_text = document.to_string();
    let splice = Splice::between(text, &new_text);
    let after = tree(&new_text).map_err(|_why| {
        format!("another part of the file refers to `{name}`, by an anchor that stands in it")
    })?;
    if !splice.only_removes() || after != expected {
        return Err(format!(
            "another entry has what `{name}` has, by an anchor, or `{section}` is written in a form \
             that cannot be cut"
        ));
    }
    Ok(Some(Edit { text: new_text, splice }))
}

/// The names of all backends.
pub(in crate::cli) fn backends(text: &str) -> Vec<String> {
    let members = tree(text).unwrap_or_default();
    let maps = SECTIONS.iter().filter_map(|section| members.get(*section)?.as_object());
    maps.flat_map(Map::keys).cloned().collect()
}

pub(in crate::cli) fn has_backend(text: &str, name: &str) -> bool {
    backends(text).iter().any(|other| other == name)
}

/// The entry as a section of its own, for a person who writes it into a file.
pub(in crate::cli) fn section(name: &str, entry: &Map<String, Value>) -> String {
    with_section("", "mcp", name, entry)
}

/// The text as data, anchors replaced by what they stand for.
fn tree(text: &str) -> Result<Map<String, Value>, String> {
    let has_lines = text.lines().any(|line| !line.trim().is_empty() && !line.starts_with('#'));
    if has_lines { formats::parse(Path::new("bridge.yaml"), text) } else { Ok(Map::new()) }
}

fn parse(text: &str) -> Result<Document, String> {
    Document::from_str(text).map_err(|_why| "it cannot be changed as it is written".to_owned())
}

fn no_map(section: &str) -> String {
    format!("`{section}` is no map that is written out here")
}

/// The entry as the library inserts it.
fn mapping(entry: &Map<String, Value>) -> Result<Mapping, String> {
    let document = parse(&block(entry, "", "\n"))?;
    document.as_mapping().ok_or_else(|| "the entry is empty".to_owned())
}

/// The text with a first entry in the section, whose value is nothing, or an empty map. A comment
/// behind an empty map stays where it is, so the entry stands between the brackets.
fn in_empty_section(text: &str, section: &str, name: &str, entry: &Map<String, Value>) -> String {
    let end = line_end(text);
    let mut out = String::new();
    let mut pending = true;
    for line in text.split_inclusive('\n') {
        let value = line.strip_prefix(section).and_then(|rest| rest.strip_prefix(':'));
        let Some(value) = value.filter(|_| pending) else {
            out.push_str(line);
            continue;
        };
        pending = false;
        if value.contains('#') && value.contains("{}") {
            let member = format!("{{{}: {}}}", scalar(name), flow(&entry.clone().into()));
            out.push_str(&line.replacen("{}", &member, 1));
        } else if value.contains('#') {
            out.push_str(line);
            out.push_str(&entry_text(name, entry, end));
        } else {
            out.push_str(&format!("{section}:{end}{}", entry_text(name, entry, end)));
        }
    }
    out
}

/// The text with the section, and the entry in it, at its end.
fn with_section(text: &str, section: &str, name: &str, entry: &Map<String, Value>) -> String {
    let end = line_end(text);
    let gap = if text.is_empty() || text.ends_with('\n') { "" } else { end };
    format!("{text}{gap}{section}:{end}{}", entry_text(name, entry, end))
}

fn entry_text(name: &str, entry: &Map<String, Value>, end: &str) -> String {
    format!("  {}:{end}{}", scalar(name), block(entry, "    ", end))
}

/// The members, each on a line of its own.
fn block(entry: &Map<String, Value>, indent: &str, end: &str) -> String {
    let mut members: Vec<_> = entry.iter().collect();
    members.sort_by_key(|(key, _)| place_of_key(key));
    let lines = members
        .into_iter()
        .map(|(key, value)| format!("{indent}{}: {}{end}", scalar(key), flow(value)));
    lines.collect()
}

/// A value on one line.
fn flow(value: &Value) -> String {
    match value {
        Value::String(text) => scalar(text),
        Value::Array(items) => {
            format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", "))
        }
        Value::Object(members) => {
            let members =
                members.iter().map(|(key, value)| format!("{}: {}", scalar(key), flow(value)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

/// Whether the character means itself in any place of a YAML text.
fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_-./".contains(c)
}

/// A text without quotes if it means the same without, in any place.
fn scalar(text: &str) -> String {
    let begins = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        || text.starts_with('-') && text.len() > 1 && !text.contains(|c: char| c.is_ascii_digit());
    let words = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    let means_other = words.iter().any(|word| word.eq_ignore_ascii_case(text));
    if begins && text.chars().all(is_plain) && !means_other && !text.starts_with("---") {
        return text.to_owned();
    }
    // What would hide a part of the text or steer a terminal is escaped.
    quoted(text, visible::hides)
}

fn line_end(text: &str) -> &'static str {
    if text.contains("\r\n") { "\r\n" } else { "\n" }
}

#[cfg(test)]
mod tests;
