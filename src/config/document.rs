//! The YAML text as a tree in which every value knows its place in the file.
//!
//! Must not: know any key of bridge.yaml. The expected shape of the tree is in `file_format`.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde::de::value::SeqAccessDeserializer;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_saphyr::{
    DuplicateKeyPolicy, Error as YamlError, Location, MessageFormatter as _, NonFiniteFloatPolicy,
    Spanned, UserMessageFormatter,
};

use super::mistakes::{self, MistakeText};

/// The largest configuration file that is read, in bytes. That of a large intranet has some 100
/// KiB.
pub(super) const MAX_FILE_BYTES: usize = 1 << 20;

/// Deep enough for every shape, and for the JSON Schemas that a local tool may carry.
const MAX_DEPTH: usize = 32;

/// One value of the document, or its key: an index into the table of places.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
pub struct NodeId {
    pub(super) index: u32,
    #[serde(skip)]
    is_key: bool,
}

/// The whole file.
pub(super) const ROOT: NodeId = NodeId::of_value(0);

impl NodeId {
    pub(super) const fn of_value(index: u32) -> Self {
        Self { index, is_key: false }
    }

    /// The key of this value.
    pub(super) fn key(self) -> Self {
        Self { is_key: true, ..self }
    }
}

/// A place in the file; lines and columns count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub line: usize,
    pub column: usize,
    /// Characters to underline.
    pub width: usize,
}

/// A parsed file.
pub(super) struct Document {
    pub root: Node,
}

/// One value and the values in it.
pub(super) struct Node {
    pub id: NodeId,
    pub kind: Kind,
    /// Its source, in bytes of the file.
    pub source: Range<usize>,
    /// Where it begins.
    at: Place,
    /// The place of its key, for a value in a map.
    key: Option<Place>,
    /// The source of its key, in bytes of the file.
    pub key_source: Range<usize>,
}

/// What a value is.
pub(super) enum Kind {
    Null,
    Bool(bool),
    /// A number, with its source text.
    Int(i128, String),
    Float(f64, String),
    Str(String),
    Seq(Vec<Node>),
    Map(Vec<(String, Node)>),
}

/// Why the text cannot be read as YAML.
#[derive(Debug)]
pub(super) struct NotYaml {
    pub place: Option<Place>,
    pub message: String,
    pub cure: String,
}

impl NotYaml {
    fn new(place: Option<Place>, text: MistakeText) -> Self {
        Self { place, message: text.message, cure: text.cure }
    }
}

impl Document {
    /// Parses `text`.
    pub(super) fn parse(text: &str) -> Result<Self, NotYaml> {
        if text.len() > MAX_FILE_BYTES {
            return Err(NotYaml::new(None, mistakes::too_large(text.len(), MAX_FILE_BYTES)));
        }
        let mut root: Node = serde_saphyr::from_str_with_options(text, options())
            .map_err(|error| not_yaml(error.without_snippet()))?;
        root.complete(text, &mut 0);
        Ok(Self { root })
    }

    /// Where the value begins, or its key. A value in no map stands for its key.
    pub(super) fn place(&self, id: NodeId) -> Place {
        let node = self.node(id);
        node.key.filter(|_| id.is_key).unwrap_or(node.at)
    }

    /// The path of the value, such as `mcp.fs.args[1]`; empty for the whole file.
    pub(super) fn path(&self, id: NodeId) -> String {
        self.find(id).1
    }

    /// The map or the list that the value stands in.
    pub(super) fn parent(&self, id: NodeId) -> Option<NodeId> {
        self.find(id).2
    }

    /// The value itself.
    pub(super) fn node(&self, id: NodeId) -> &Node {
        self.find(id).0
    }

    /// The value, its path, and the value that it stands in.
    fn find(&self, id: NodeId) -> (&Node, String, Option<NodeId>) {
        let (mut node, mut path, mut parent) = (&self.root, String::new(), None);
        while node.id.index != id.index {
            // Each value is numbered before those in it and those behind it.
            let next = match &node.kind {
                Kind::Seq(items) => {
                    let at = items.partition_point(|item| item.id <= id).saturating_sub(1);
                    path.push_str(&format!("[{at}]"));
                    items.get(at)
                }
                Kind::Map(entries) => {
                    let at = entries.partition_point(|(_, node)| node.id <= id).saturating_sub(1);
                    let entry = entries.get(at);
                    let key = entry.map_or("", |(key, _)| key.as_str());
                    path.push_str(if path.is_empty() { "" } else { "." });
                    path.push_str(&key_text(key));
                    entry.map(|(_, value)| value)
                }
                _ => None,
            };
            parent = Some(node.id);
            node = next.expect("an id is that of a value in this file");
        }
        (node, path, parent)
    }
}

/// The name in a key that has more than a name, such as `NAME=value`, and the rest, which may be a
/// secret.
pub(super) fn shown_key(key: &str) -> Option<(&str, &str)> {
    let at = key.find(['=', ':'])?;
    let (name, rest) = key.split_at(at);
    let rest = rest.trim_start_matches(|c: char| matches!(c, '=' | ':') || c.is_whitespace());
    if rest.is_empty() { None } else { Some((name, rest)) }
}

/// `key` as messages have it.
pub(super) fn key_text(key: &str) -> Cow<'_, str> {
    match shown_key(key) {
        Some((name, _)) => format!("{name}=***").into(),
        None => key.into(),
    }
}

fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: 200_000,
            max_nodes: 50_000,
            max_depth: MAX_DEPTH,
            flow_nesting_limit: MAX_DEPTH,
            max_aliases: 1_000,
            max_documents: 2,
            max_total_scalar_bytes: 4 * MAX_FILE_BYTES,
        },
        duplicate_keys: DuplicateKeyPolicy::Error,
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 50_000,
            max_replay_stack_depth: 16,
        },
        // `auth: off` is a word here, not the boolean of YAML 1.1.
        strict_booleans: true,
        // Such a number may be a token without quotes; it is an error if a number is expected.
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
        with_snippet: false,
    }
}

fn not_yaml(error: &YamlError) -> NotYaml {
    let place = error.location().map(|location| place_of(location, 1));
    if let YamlError::DuplicateMappingKey { key, .. } = error {
        let key = key.as_deref().unwrap_or("this key");
        let place = place.map(|place| Place { width: key.chars().count(), ..place });
        return NotYaml::new(place, mistakes::key_twice(key_text(key)));
    }
    let cause = match error {
        YamlError::AliasError { error, .. } => error,
        other => other,
    };
    match cause {
        YamlError::MultipleDocuments { .. } => NotYaml::new(place, mistakes::two_documents()),
        YamlError::Budget { .. }
        | YamlError::AliasReplayLimitExceeded { .. }
        | YamlError::AliasReplayStackDepthExceeded { .. } => {
            NotYaml::new(place, mistakes::too_deep())
        }
        other => {
            let why = UserMessageFormatter.format_message(other);
            NotYaml::new(place, mistakes::not_yaml(why))
        }
    }
}

fn place_of(location: Location, width: usize) -> Place {
    let [line, column] = [location.line(), location.column()]
        .map(|number| usize::try_from(number).unwrap_or(usize::MAX).max(1));
    Place { line, column, width }
}

impl Node {
    /// Numbers the value and those in it, and sets what only the whole `text` tells.
    fn complete(&mut self, text: &str, next: &mut u32) {
        self.id = NodeId::of_value(*next);
        // The budget keeps the number of nodes far below the largest.
        *next += 1;
        let source = text.get(self.source.clone()).unwrap_or_default();
        let first_line = source.lines().next().unwrap_or_default().trim_end();
        self.at.width = first_line.chars().count().max(1);
        match &mut self.kind {
            // The value is empty, so an error shows the key.
            Kind::Null if source.is_empty() => self.at = self.key.unwrap_or(self.at),
            Kind::Int(_, written) | Kind::Float(_, written) => *written = source.to_owned(),
            Kind::Seq(items) => {
                self.at.width = 1;
                items.iter_mut().for_each(|item| item.complete(text, next));
            }
            Kind::Map(entries) => {
                self.at.width = 1;
                entries.iter_mut().for_each(|(_, value)| value.complete(text, next));
            }
            Kind::Null | Kind::Bool(_) | Kind::Str(_) => (),
        }
    }
}

/// The source of a value.
fn source_range(location: Location) -> Range<usize> {
    let span = location.span();
    let range = span.byte_offset().zip(span.byte_len()).and_then(|(offset, len)| {
        let start = usize::try_from(offset).ok()?;
        Some(start..start.checked_add(usize::try_from(len).ok()?)?)
    });
    range.unwrap_or_default()
}

/// Without its number and what else [`Node::complete`] sets.
impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Spanned { value: kind, defined, .. } = Spanned::deserialize(deserializer)?;
        let at = place_of(defined, 1);
        let source = source_range(defined);
        Ok(Self { id: ROOT, kind, source, at, key: None, key_source: 0..0 })
    }
}

impl<'de> Deserialize<'de> for Kind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(KindVisitor)
    }
}

struct KindVisitor;

impl<'de> Visitor<'de> for KindVisitor {
    type Value = Kind;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> Result<Kind, E> {
        Ok(Kind::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Kind, E> {
        Ok(Kind::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Kind, E> {
        Ok(Kind::Int(value.into(), String::new()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Kind, E> {
        Ok(Kind::Int(value.into(), String::new()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Kind, E> {
        Ok(Kind::Float(value, String::new()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Kind, E> {
        Ok(Kind::Str(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Kind, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(seq)).map(Kind::Seq)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Kind, A::Error> {
        let mut entries = Vec::new();
        while let Some((key, mut value)) = map.next_entry::<Spanned<String>, Node>()? {
            value.key_source = source_range(key.defined);
            value.key = Some(place_of(key.defined, key.value.chars().count().max(1)));
            entries.push((key.value, value));
        }
        Ok(Kind::Map(entries))
    }
}
