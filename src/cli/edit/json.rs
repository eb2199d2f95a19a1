//! One entry of another program's list of MCP servers is added or removed: JSON with comments and
//! trailing commas, which stay, as do a byte order mark and the ends of lines.
//!
//! Must not: write JSON that was not read again and compared.

use std::path::Path;

use jsonc_parser::cst::{CstInputValue, CstObject, CstRootNode};
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::{Edit, Splice};
use crate::cli::import::formats;

const BOM: char = '\u{feff}';
/// Why a text stays as it is, where the library says no more.
const UNCHANGEABLE: &str = "it cannot be changed as it is written";

/// The text of an absent file.
pub(in crate::cli) const EMPTY: &str = "{}\n";

/// The keys of an entry in the order in which the programs' own documentation has them; others come
/// behind them.
const ORDER: [&str; 6] = ["name", "type", "command", "args", "env", "url"];

/// The members of a map, in [`ORDER`].
fn in_order(members: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut members: Vec<_> = members.iter().collect();
    members
        .sort_by_key(|(key, _)| ORDER.iter().position(|first| first == key).unwrap_or(ORDER.len()));
    members
}

/// A value whose maps are written in [`ORDER`].
struct InOrder<'a>(&'a Value);

impl Serialize for InOrder<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(members) => {
                let members = in_order(members).into_iter();
                serializer.collect_map(members.map(|(key, value)| (key, Self(value))))
            }
            Value::Array(items) => serializer.collect_seq(items.iter().map(InOrder)),
            value => value.serialize(serializer),
        }
    }
}

/// An entry, or a list of them, on one line.
pub(in crate::cli) fn on_one_line(value: &Value) -> String {
    serde_json::to_string(&InOrder(value)).expect("a value can be written")
}

/// An entry, or a list of them, for people.
pub(in crate::cli) fn on_lines(value: &Value) -> String {
    serde_json::to_string_pretty(&InOrder(value)).expect("a value can be written")
}

/// `text` with the server `name` below `key`, in place of one of that name.
///
/// # Errors
///
/// Why a person has to do it.
pub(in crate::cli) fn with_server(
    text: &str,
    key: &str,
    name: &str,
    entry: &Value,
) -> Result<Edit, String> {
    let mut expected = tree(text)?;
    let list = expected.entry(key).or_insert_with(|| Map::new().into());
    let Some(servers) = list.as_object_mut() else {
        return Err(format!("`{key}` is no map"));
    };
    if servers.get(name) == Some(entry) {
        return Ok(Edit { text: text.to_owned(), splice: Splice::between(text, text) });
    }
    let replaces = servers.insert(name.to_owned(), entry.clone()).is_some();
    // What is shown of the change must not have another server in it, which may have secrets.
    let others: Vec<String> = servers
        .keys()
        .filter(|other| *other != name)
        .map(|other| Value::from(other.as_str()).to_string())
        .collect();
    let new_text = with_change(text, |root| {
        // In front, as an entry behind another one would change that one's line: it gets a comma.
        let servers = match root.object_value(key) {
            Some(servers) => servers,
            None => {
                root.insert(0, key, CstInputValue::Object(Vec::new()));
                root.object_value(key)?
            }
        };
        match servers.get(name) {
            Some(member) => member.set_value(input(entry)),
            None => drop(servers.insert(0, name, input(entry))),
        }
        Some(())
    })?;
    // The library breaks a map on one line into several.
    let mut candidates = vec![new_text];
    candidates.extend(with_server_in_line(text, key, name, entry));
    let edits = candidates.into_iter().map(|candidate| {
        let splice = Splice::between(text, &candidate);
        Edit { text: candidate, splice }
    });
    let edit = edits.into_iter().find(|Edit { text, splice }| {
        (replaces || splice.only_adds())
            && !others.iter().any(|other| splice.new.contains(other))
            && tree(text).as_ref() == Ok(&expected)
    });
    edit.ok_or_else(|| format!("`{key}` is written in a form that cannot be added to"))
}

/// `text` with the server as the first member of its map, in the same line.
fn with_server_in_line(text: &str, key: &str, name: &str, entry: &Value) -> Option<String> {
    let (mark, json) = split_mark(text);
    let value = parse_to_ast(json, &CollectOptions::default(), &FORM).ok()?.value?;
    let root = value.as_object()?;
    let member = format!("{}:{}", Value::from(name), on_one_line(entry));
    let (map, member) = match root.get_object(key) {
        Some(servers) => (servers, member),
        None => (root, format!("{}:{{{member}}}", Value::from(key))),
    };
    let comma = if map.properties.is_empty() { "" } else { "," };
    let (front, back) = json.split_at_checked(map.range.start + 1)?;
    Some(format!("{mark}{front}{member}{comma}{back}"))
}

/// `text` without the server `name` below `key`; `None` if there is none.
pub(in crate::cli) fn without_server(
    text: &str,
    key: &str,
    name: &str,
) -> Result<Option<Edit>, String> {
    let mut expected = tree(text)?;
    let servers = expected.get_mut(key).and_then(Value::as_object_mut);
    if servers.and_then(|servers| servers.remove(name)).is_none() {
        return Ok(None);
    }
    let new_text = with_change(text, |root| {
        root.object_value(key)?.get(name)?.remove();
        Some(())
    })?;
    let splice = Splice::between(text, &new_text);
    if !splice.only_removes() || tree(&new_text).as_ref() != Ok(&expected) {
        return Err(format!("`{key}` is written in a form that cannot be cut"));
    }
    Ok(Some(Edit { text: new_text, splice }))
}

/// Whether `text` has nothing but the empty list `key`: no other member, and no comment.
pub(in crate::cli) fn is_empty_list(text: &str, key: &str) -> bool {
    let list = format!("{{{}:{{}}}}", Value::from(key));
    without_spaces(split_mark(text).1) == list
}

/// The change that takes the whole list `key` out of `text`, where `removal` has emptied it and the
/// file had none `before` the entry was added; `None` if the list stays.
///
/// What the file had before is restored to the byte if nothing else was changed since: the library
/// breaks a map on one line into several.
pub(in crate::cli) fn without_list(
    text: &str,
    removal: &Edit,
    key: &str,
    before: &str,
) -> Option<Edit> {
    if tree(before).ok()?.contains_key(key) {
        return None;
    }
    let mut expected = tree(&removal.text).ok()?;
    let list = expected.remove(key)?;
    if list.as_object().is_none_or(|servers| !servers.is_empty()) {
        return None;
    }
    let mut new_text = with_change(&removal.text, |root| {
        root.get(key)?.remove();
        Some(())
    })
    .ok()?;
    if tree(&new_text).as_ref() != Ok(&expected) {
        return None;
    }
    if tree(before).as_ref() == Ok(&expected) && differs_in_spaces_alone(before, &new_text) {
        before.clone_into(&mut new_text);
    }
    Some(Edit { splice: Splice::between(text, &new_text), text: new_text })
}

/// Whether `before` is `text` but for white space; nothing at all stands for an empty map.
fn differs_in_spaces_alone(before: &str, text: &str) -> bool {
    let earlier = without_spaces(split_mark(before).1);
    earlier.is_empty() || earlier == without_spaces(split_mark(text).1)
}

fn without_spaces(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace()).collect()
}

/// Comments and trailing commas, as the editors of these files take them, and nothing else.
const FORM: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_trailing_commas: true,
    allow_loose_object_property_names: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

/// The byte order mark of a text, if it has one, and the rest.
fn split_mark(text: &str) -> (&str, &str) {
    text.split_at(if text.starts_with(BOM) { BOM.len_utf8() } else { 0 })
}

fn tree(text: &str) -> Result<Map<String, Value>, String> {
    if split_mark(text).1.trim().is_empty() {
        return Ok(Map::new());
    }
    formats::parse(Path::new("servers.json"), text)
}

/// The text after `change` of the object at its top.
fn with_change(
    text: &str,
    change: impl FnOnce(&CstObject) -> Option<()>,
) -> Result<String, String> {
    let (mark, json) = split_mark(text);
    let json = if json.trim().is_empty() { EMPTY } else { json };
    let root = CstRootNode::parse(json, &FORM).map_err(|_why| UNCHANGEABLE.to_owned())?;
    let object = root.object_value_or_create().ok_or(UNCHANGEABLE)?;
    change(&object).ok_or(UNCHANGEABLE)?;
    Ok(format!("{mark}{root}"))
}

fn input(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(flag) => CstInputValue::Bool(*flag),
        Value::Number(number) => CstInputValue::Number(number.to_string()),
        Value::String(text) => CstInputValue::String(text.clone()),
        Value::Array(items) => CstInputValue::Array(items.iter().map(input).collect()),
        Value::Object(members) => {
            let members = in_order(members).into_iter();
            let members = members.map(|(key, value)| (key.clone(), input(value)));
            CstInputValue::Object(members.collect())
        }
    }
}

#[cfg(test)]
mod tests;
