//! Sections of bridge.yaml as YAML that shows all that is in them.
//!
//! Must not: print a character that hides others or steers a terminal.

use std::fmt::Write as _;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use crate::model::visible;

/// A section of bridge.yaml.
///
/// The writer of YAML prints characters such as U+202E as they are, and a person would then read
/// another text than the bridge. A word stands for each text with some while the YAML is written,
/// and the text with escapes takes its place.
pub(in crate::cli) fn yaml(section: &str, backends: &Map<String, Value>) -> String {
    let file = json!({ section: backends });
    let mut word = "escaped_text".to_owned();
    while file.to_string().contains(&word) {
        word.push('_');
    }
    let mut texts = Vec::new();
    let file = with_words(&file, &word, &mut texts);
    let mut yaml = serde_saphyr::to_string(&InOrder(&file)).expect("JSON can be written as YAML");
    for (at, text) in texts.iter().enumerate() {
        yaml = yaml.replace(&format!("{word}{at}x"), text);
    }
    yaml
}

/// The keys that a person looks for first.
const FIRST: [&str; 5] = ["command", "args", "url", "headers", "env"];

/// The place of a key in its entry: first those that a person looks for.
pub(in crate::cli) fn place_of_key(key: &str) -> usize {
    FIRST.iter().position(|first| *first == key).unwrap_or(FIRST.len())
}

/// A value whose maps are written with [`FIRST`] before the others: by the alphabet, `args` would
/// stand before the command that takes them.
struct InOrder<'a>(&'a Value);

impl Serialize for InOrder<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(members) => {
                let mut members: Vec<_> = members.iter().collect();
                members.sort_by_key(|(key, _)| place_of_key(key));
                serializer.collect_map(members.into_iter().map(|(key, value)| (key, Self(value))))
            }
            Value::Array(items) => serializer.collect_seq(items.iter().map(InOrder)),
            value => value.serialize(serializer),
        }
    }
}

/// `value` with a word in place of each text that needs escapes; these go into `texts`.
fn with_words(value: &Value, word: &str, texts: &mut Vec<String>) -> Value {
    match value {
        Value::String(text) => shown(text, word, texts).into(),
        Value::Array(items) => items.iter().map(|item| with_words(item, word, texts)).collect(),
        Value::Object(members) => {
            let mut map = Map::new();
            for (key, member) in members {
                map.insert(shown(key, word, texts), with_words(member, word, texts));
            }
            map.into()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

fn shown(text: &str, word: &str, texts: &mut Vec<String>) -> String {
    if visible::hidden(text).next().is_none() {
        return text.to_owned();
    }
    texts.push(quoted(text, |c| !c.is_ascii() || c.is_control()));
    format!("{word}{}x", texts.len() - 1)
}

/// A text in double quotes, as YAML and JSON have it. Characters that `is_escaped` says are written
/// by their numbers.
pub(in crate::cli) fn quoted(text: &str, is_escaped: impl Fn(char) -> bool) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted += "\\n",
            '\t' => quoted += "\\t",
            _ if is_escaped(c) => {
                write!(quoted, "\\U{:08X}", u32::from(c)).expect("writing to a String cannot fail");
            }
            _ => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
