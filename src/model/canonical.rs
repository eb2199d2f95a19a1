//! JSON in one form (after RFC 8785): members sorted, no whitespace, texts escaped in one way. Two
//! documents with the same form say the same.
//!
//! Numbers stay as they were written, and duplicate members stay, since readers differ in what they
//! make of either. Half of a surrogate pair, which no text can hold, becomes U+FFFD, which counts
//! as hidden. [`Node::jcs`] is the RFC's own form, where numbers are doubles; documents that
//! readers understand differently have no such form ([`Node::read_clear`]).
//!
//! Must not: be sent anywhere; it is for comparing, for what was signed, and for people.

mod number;

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::json::{self, quoted};

/// The deepest level that is read. Deeper values are kept as they were written.
const MAX_DEPTH: usize = 128;

/// A JSON value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node<'a> {
    /// A string, without its escapes.
    Text(String),
    /// A number, a word, or a value that is too deep, as it was written.
    Raw(&'a str),
    List(Vec<Self>),
    /// The members, sorted by their keys.
    Map(Vec<(String, Self)>),
}

/// Why a document has no form of RFC 8785: readers of JSON do not agree on what it says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unclear {
    #[error("{0:?} stands twice in one object")]
    Twice(String),
    #[error("half of a surrogate pair stands in a text")]
    HalfAPair,
    #[error("a number is larger than any double")]
    Number,
    #[error("it is nested more than {MAX_DEPTH} deep")]
    TooDeep,
}

impl<'a> Node<'a> {
    /// Reads a whole value.
    pub fn read(json: &'a RawValue) -> Self {
        Reader::default().value(json, 0)
    }

    /// Reads a whole value that has a form of RFC 8785.
    pub fn read_clear(json: &'a RawValue) -> Result<Self, Unclear> {
        let mut reader = Reader::default();
        let node = reader.value(json, 0);
        reader.unclear.map_or(Ok(node), Err)
    }

    /// Its canonical form.
    pub fn canonical(&self) -> String {
        self.text(&|raw| raw.into())
    }

    /// The form of RFC 8785, for a node from [`Self::read_clear`].
    pub fn jcs(&self) -> String {
        self.text(&|raw| number::double(raw).map_or(raw.into(), number::text))
    }

    fn text(&self, shown: &impl Fn(&'a str) -> Cow<'a, str>) -> String {
        match self {
            Self::Text(text) => quoted(text),
            Self::Raw(raw) => shown(raw).into_owned(),
            Self::List(elements) => {
                let elements: Vec<_> = elements.iter().map(|element| element.text(shown)).collect();
                format!("[{}]", elements.join(","))
            }
            Self::Map(members) => {
                let members: Vec<_> = members
                    .iter()
                    .map(|(key, value)| format!("{}:{}", quoted(key), value.text(shown)))
                    .collect();
                format!("{{{}}}", members.join(","))
            }
        }
    }

    /// The value in lines for people, indented by two for each level; `name` stands before the
    /// first.
    pub fn lines(&self, name: &str, level: usize, out: &mut Vec<String>) {
        let indent = "  ".repeat(level);
        match self {
            Self::Map(members) if !members.is_empty() => {
                out.push(format!("{indent}{name}{{"));
                for (key, value) in members {
                    value.lines(&format!("{}: ", quoted(key)), level + 1, out);
                }
                out.push(format!("{indent}}}"));
            }
            Self::List(elements) if !elements.is_empty() => {
                out.push(format!("{indent}{name}["));
                elements.iter().for_each(|element| element.lines("", level + 1, out));
                out.push(format!("{indent}]"));
            }
            _ => out.push(format!("{indent}{name}{}", self.canonical())),
        }
    }

    /// Calls `look` with every text in it, keys included, and with values that are too deep to
    /// read.
    pub fn each_text(&self, look: &mut impl FnMut(&str)) {
        match self {
            Self::Text(text) => look(text),
            Self::Raw(raw) => look(raw),
            Self::List(elements) => elements.iter().for_each(|element| element.each_text(look)),
            Self::Map(members) => {
                for (key, value) in members {
                    look(key);
                    value.each_text(look);
                }
            }
        }
    }
}

/// Reads values, and notes what is not clear in them.
#[derive(Default)]
struct Reader {
    /// The first that was found.
    unclear: Option<Unclear>,
}

impl Reader {
    fn value<'a>(&mut self, json: &'a RawValue, depth: usize) -> Node<'a> {
        let text = json.get();
        match text.as_bytes().first() {
            Some(b'{' | b'[') if depth >= MAX_DEPTH => {
                self.unclear.get_or_insert(Unclear::TooDeep);
                Node::Raw(text)
            }
            Some(b'{') => Node::Map(self.members(text, depth)),
            Some(b'[') => {
                let elements = json::elements(text).expect("it is a JSON array");
                Node::List(
                    elements.into_iter().map(|element| self.value(element, depth + 1)).collect(),
                )
            }
            Some(b'"') => Node::Text(self.string(text)),
            _ => {
                if number::double(text).is_some_and(f64::is_infinite) {
                    self.unclear.get_or_insert(Unclear::Number);
                }
                Node::Raw(text)
            }
        }
    }

    fn members<'a>(&mut self, text: &'a str, depth: usize) -> Vec<(String, Node<'a>)> {
        let mut members = Vec::new();
        // Keys as they were written: half of a surrogate pair may stand in one.
        json::each_entry(text, |key: &RawValue, value| {
            members.push((self.string(key.get()), self.value(value, depth + 1)));
        })
        .expect("it is a JSON object");
        // Stable: duplicates keep their order, which says which one counts.
        members.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
        if let Some([(key, _), _]) = members.array_windows().find(|[a, b]| a.0 == b.0) {
            self.unclear.get_or_insert_with(|| Unclear::Twice(key.clone()));
        }
        members
    }

    fn string(&mut self, literal: &str) -> String {
        serde_json::from_str(literal).unwrap_or_else(|_half_a_pair| {
            self.unclear.get_or_insert(Unclear::HalfAPair);
            json::lossy(literal).map(Cow::into_owned).unwrap_or_default()
        })
    }
}

#[cfg(test)]
mod tests;
