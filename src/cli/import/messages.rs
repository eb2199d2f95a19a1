//! The configuration's own words about an entry, without the entry's values: one of them may be a
//! secret that stands where bridge.yaml has none.
//!
//! Must not: show a value, but for a reference of another product by name.

use serde_json::{Map, Value};

use super::looks::is_everyday;

/// `message` with `…` in place of each text in it that `entry` has as a value, or in a value.
pub(super) fn without_values(message: &str, entry: &Map<String, Value>) -> String {
    let mut values = Vec::new();
    for value in entry.values() {
        collect(value, &mut values);
    }
    let mut out = String::new();
    for (at, piece) in message.split('`').enumerate() {
        if at > 0 {
            out.push('`');
        }
        let quoted = at % 2 == 1;
        let hidden = quoted
            && values.iter().any(|value| value.contains(piece))
            && !is_named_reference(piece)
            && !is_scheme(piece);
        out += if hidden { "…" } else { piece };
    }
    // Words without a quotation mark are the file's only if no person could have written them here.
    for value in values.iter().filter(|value| !is_everyday(value)) {
        out = out.replace(value.as_str(), "…");
    }
    out
}

fn collect(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::String(text) => texts.push(text.clone()),
        Value::Number(number) => texts.push(number.to_string()),
        Value::Array(items) => items.iter().for_each(|item| collect(item, texts)),
        Value::Object(members) => members.values().for_each(|member| collect(member, texts)),
        Value::Null | Value::Bool(_) => {}
    }
}

/// `${command:pick.one}`: the name of a thing, and no value.
fn is_named_reference(piece: &str) -> bool {
    let inside = piece.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
    inside.is_some_and(|inside| {
        is_everyday(inside) && inside.chars().all(|c| c.is_ascii_alphabetic() || "._:".contains(c))
    })
}

/// `ws://`, which is not spoken.
fn is_scheme(piece: &str) -> bool {
    let scheme = piece.strip_suffix("://");
    scheme.is_some_and(|scheme| scheme.len() < 8 && scheme.chars().all(|c| c.is_ascii_lowercase()))
}
