//! JSON in one form (after RFC 8785): members sorted, no whitespace, texts escaped in one way. Two
//! documents with the same form say the same.
//!
//! Numbers stay as they were written, and duplicate members stay, since readers differ in what they
//! make of either. Half of a surrogate pair, which no text can hold, becomes U+FFFD, which counts as
//! hidden. [`Node::jcs`] is the RFC's own form, where numbers are doubles; documents that
//! readers understand differently have no such form ([`Node::read_clear`]).
//!
//! Must not: be sent anywhere; it is for comparing, for what was signed, and for people.

mod number;

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::json;

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
        Reader { text: json.get(), at: 0, unclear: None }.value(0)
    }

    /// Reads a whole value that has a form of RFC 8785.
    pub fn read_clear(json: &'a RawValue) -> Result<Self, Unclear> {
        let mut reader = Reader { text: json.get(), at: 0, unclear: None };
        let node = reader.value(0);
        reader.unclear.map_or(Ok(node), Err)
    }

    /// Its canonical form.
    pub fn canonical(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, &|raw| raw.into());
        out
    }

    /// The form of RFC 8785, for a node from [`Self::read_clear`].
    pub fn jcs(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, &|raw| number::double(raw).map_or(raw.into(), number::text));
        out
    }

    fn write(&self, out: &mut String, shown: &impl Fn(&'a str) -> Cow<'a, str>) {
        match self {
            Self::Text(text) => out.push_str(&quoted(text)),
            Self::Raw(raw) => out.push_str(&shown(raw)),
            Self::List(elements) => {
                out.push('[');
                for (at, element) in elements.iter().enumerate() {
                    out.push_str(if at > 0 { "," } else { "" });
                    element.write(out, shown);
                }
                out.push(']');
            }
            Self::Map(members) => {
                out.push('{');
                for (at, (key, value)) in members.iter().enumerate() {
                    out.push_str(if at > 0 { "," } else { "" });
                    out.push_str(&quoted(key));
                    out.push(':');
                    value.write(out, shown);
                }
                out.push('}');
            }
        }
    }

    /// The value in lines for people, indented by two for each level; `name` stands before the first.
    pub fn lines(&self, name: &str, level: usize, out: &mut Vec<String>) {
        let indent = "  ".repeat(level);
        let (open, close) = match self {
            Self::Map(members) if !members.is_empty() => ('{', '}'),
            Self::List(elements) if !elements.is_empty() => ('[', ']'),
            _ => {
                out.push(format!("{indent}{name}{}", self.canonical()));
                return;
            }
        };
        out.push(format!("{indent}{name}{open}"));
        match self {
            Self::Map(members) => {
                for (key, value) in members {
                    value.lines(&format!("{}: ", quoted(key)), level + 1, out);
                }
            }
            Self::List(elements) => {
                elements.iter().for_each(|element| element.lines("", level + 1, out));
            }
            Self::Text(_) | Self::Raw(_) => {}
        }
        out.push(format!("{indent}{close}"));
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

fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("a string can be written")
}

/// Goes through JSON text that is known to be JSON, once.
struct Reader<'a> {
    text: &'a str,
    at: usize,
    /// The first that was found.
    unclear: Option<Unclear>,
}

impl<'a> Reader<'a> {
    fn value(&mut self, depth: usize) -> Node<'a> {
        match self.peek() {
            Some(b'{' | b'[') if depth >= MAX_DEPTH => {
                self.unclear.get_or_insert(Unclear::TooDeep);
                Node::Raw(self.skip_brackets())
            }
            Some(b'{') => Node::Map(self.members(depth)),
            Some(b'[') => {
                let mut elements = Vec::new();
                while self.has_next(b']') {
                    elements.push(self.value(depth + 1));
                }
                Node::List(elements)
            }
            Some(b'"') => Node::Text(self.string()),
            _ => {
                let rest = self.text.get(self.at..).unwrap_or_default();
                let ends = |c: char| matches!(c, ',' | ']' | '}') || c.is_ascii_whitespace();
                let end = rest.find(ends).unwrap_or(rest.len());
                let raw = self.take(end);
                if number::double(raw).is_some_and(f64::is_infinite) {
                    self.unclear.get_or_insert(Unclear::Number);
                }
                Node::Raw(raw)
            }
        }
    }

    fn members(&mut self, depth: usize) -> Vec<(String, Node<'a>)> {
        let mut members = Vec::new();
        while self.has_next(b'}') {
            let key = self.string();
            self.peek();
            // The colon.
            self.at += 1;
            let value = self.value(depth + 1);
            members.push((key, value));
        }
        // Stable: duplicates keep their order, which says which one counts.
        members.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
        if let Some([(key, _), _]) = members.array_windows().find(|[a, b]| a.0 == b.0) {
            self.unclear.get_or_insert_with(|| Unclear::Twice(key.clone()));
        }
        members
    }

    fn string(&mut self) -> String {
        let raw = self.skip_string();
        serde_json::from_str(raw).unwrap_or_else(|_half_a_pair| {
            self.unclear.get_or_insert(Unclear::HalfAPair);
            json::lossy(raw).map(Cow::into_owned).unwrap_or_default()
        })
    }

    /// Moves behind the opening bracket or the comma; `false` behind `close`.
    fn has_next(&mut self, close: u8) -> bool {
        let mut seen = self.peek();
        if matches!(seen, Some(b',' | b'{' | b'[')) && seen != Some(close) {
            self.at += 1;
            seen = self.peek();
        }
        match seen {
            None => false,
            Some(byte) if byte == close => {
                self.at += 1;
                false
            }
            Some(_) => true,
        }
    }

    /// The next byte that is no whitespace.
    fn peek(&mut self) -> Option<u8> {
        let rest = self.text.as_bytes().get(self.at..)?;
        self.at += rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        self.text.as_bytes().get(self.at).copied()
    }

    fn take(&mut self, len: usize) -> &'a str {
        let start = self.at;
        self.at += len.max(1);
        self.text.get(start..self.at).unwrap_or_default()
    }

    /// A string with its quotes, as it was written.
    fn skip_string(&mut self) -> &'a str {
        self.peek();
        let start = self.at;
        let mut escaped = false;
        let rest = self.text.as_bytes().get(start + 1..).unwrap_or_default();
        let end = rest.iter().position(|byte| {
            let ends = *byte == b'"' && !escaped;
            escaped = *byte == b'\\' && !escaped;
            ends
        });
        self.at = start + 2 + end.unwrap_or(rest.len());
        self.text.get(start..self.at).unwrap_or_default()
    }

    /// An array or an object, as it was written.
    fn skip_brackets(&mut self) -> &'a str {
        let start = self.at;
        let mut open = 0_usize;
        loop {
            match self.peek() {
                Some(b'{' | b'[') => open += 1,
                Some(b'}' | b']') => open = open.saturating_sub(1),
                Some(b'"') => {
                    self.skip_string();
                    continue;
                }
                Some(_) => {}
                None => break,
            }
            self.at += 1;
            if open == 0 {
                break;
            }
        }
        self.text.get(start..self.at).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
