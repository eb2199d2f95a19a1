//! Sentences with names, in files of text: what models are told about their calls, and other lists of
//! the same form.
//!
//! Must not: decide which sentence is said.

use std::fmt::Display;

/// What models are told. A sentence a line: its name, and the text with `{…}` in the places of values.
const SENTENCES: &str = include_str!("sentences.txt");

/// The sentence for a model of this name, with `values` in their places.
pub fn sentence(name: &str, values: &[(&str, &dyn Display)]) -> String {
    filled(SENTENCES, name, values)
}

/// The text of this name in a list of lines `NAME: TEXT`.
pub fn named(list: &'static str, name: &str) -> &'static str {
    let text = |line: &'static str| line.strip_prefix(name)?.strip_prefix(": ");
    list.lines().find_map(text).unwrap_or_default()
}

/// The same with the values in their places. What a value contains stays as it is.
pub fn filled(list: &'static str, name: &str, values: &[(&str, &dyn Display)]) -> String {
    fill(named(list, name), values)
}

/// A text with the values in their places; other braces stay as they are.
pub fn fill(mut text: &str, values: &[(&str, &dyn Display)]) -> String {
    let mut filled = String::new();
    while let Some((before, rest)) = text.split_once('{') {
        filled.push_str(before);
        let behind = |key: &str| rest.strip_prefix(key)?.strip_prefix('}');
        let value = values.iter().find_map(|(key, value)| Some((value, behind(key)?)));
        match value {
            Some((value, rest)) => {
                filled.push_str(&value.to_string());
                text = rest;
            }
            None => {
                filled.push('{');
                text = rest;
            }
        }
    }
    filled + text
}

#[cfg(test)]
pub mod tests;
