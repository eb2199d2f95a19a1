//! The YAML text as a tree in which every value knows its place in the file.
//!
//! Must not: know any key of bridge.yaml. The expected shape of the tree is in `file_format`.

use std::{fmt, ops::Range};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor, value::SeqAccessDeserializer},
};
use serde_saphyr::{
    DuplicateKeyPolicy, Error as YamlError, Location, MessageFormatter as _, NonFiniteFloatPolicy,
    Spanned, UserMessageFormatter,
};

/// The largest configuration file that is read, in bytes. That of a large intranet has some 100
/// KiB.
pub(super) const MAX_FILE_BYTES: usize = 1 << 20;

/// Deep enough for every shape, and for the JSON Schemas that a local tool may carry.
const MAX_DEPTH: usize = 32;

/// The remedy for mistakes in YAML's own syntax.
const NOT_YAML: &str = "this is not YAML; the mistake may stand before this place. Indent with \
                        spaces; a text with `: ` in it, or that begins with `*`, stands in quotes";

/// One value of the document, or its key: an index into the table of places.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId {
    pub(super) index: u32,
    is_key: bool,
}

impl NodeId {
    pub(super) fn of_value(index: u32) -> Self {
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
#[derive(Debug)]
pub(super) struct Document {
    pub root: Node,
    nodes: Vec<Info>,
}

/// One value and the values in it.
pub(super) struct Node {
    pub id: NodeId,
    pub kind: Kind,
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

#[derive(Debug)]
struct Info {
    at: Place,
    /// The place of the key, for a value in a map.
    key: Option<Place>,
    parent: Option<NodeId>,
    /// Its source, in bytes of the text.
    source: Range<usize>,
    /// The key, or the position in a list.
    label: String,
}

/// Why the text cannot be read as YAML.
#[derive(Debug)]
pub(super) struct NotYaml {
    pub place: Option<Place>,
    pub message: String,
    pub cure: Option<String>,
}

impl Document {
    /// Parses `text`.
    pub(super) fn parse(text: &str) -> Result<Self, NotYaml> {
        if text.len() > MAX_FILE_BYTES {
            return Err(NotYaml {
                place: None,
                message: format!("the file has {} bytes", text.len()),
                cure: Some(format!("a configuration has at most {MAX_FILE_BYTES} bytes")),
            });
        }
        let raw: Spanned<Raw> = serde_saphyr::from_str_with_options(text, options())
            .map_err(|error| not_yaml(error.without_snippet()))?;
        let mut nodes = Vec::new();
        let root = Builder { text, nodes: &mut nodes }.build(raw, None, None, String::new());
        Ok(Self { root, nodes })
    }

    /// Where the value begins, or its key. A value in no map stands for its key.
    pub(super) fn place(&self, node: NodeId) -> Place {
        let info = self.info(node);
        info.key.filter(|_| node.is_key).unwrap_or(info.at)
    }

    pub(super) fn parent(&self, node: NodeId) -> Option<NodeId> {
        self.info(node).parent
    }

    /// The source of the value, in bytes of the file.
    pub(super) fn source(&self, node: NodeId) -> Range<usize> {
        self.info(node).source.clone()
    }

    /// The path of the value, such as `mcp.fs.args[1]`; empty for the whole file.
    pub(super) fn path(&self, node: NodeId) -> String {
        let info = self.info(node);
        let Some(parent) = info.parent else { return String::new() };
        let above = self.path(parent);
        match (above.is_empty(), info.label.starts_with('[')) {
            (true, _) => info.label.clone(),
            (false, true) => format!("{above}{}", info.label),
            (false, false) => format!("{above}.{}", info.label),
        }
    }

    /// The value itself.
    pub(super) fn node(&self, id: NodeId) -> Option<&Node> {
        let mut node = &self.root;
        while node.id != id {
            // Each value is numbered before those in it and those behind it.
            let last = |before: usize| before.checked_sub(1);
            node = match &node.kind {
                Kind::Seq(items) => items.get(last(items.partition_point(|it| it.id <= id))?)?,
                Kind::Map(entries) => {
                    &entries.get(last(entries.partition_point(|(_, it)| it.id <= id))?)?.1
                }
                _ => return None,
            };
        }
        Some(node)
    }

    fn info(&self, node: NodeId) -> &Info {
        &self.nodes[node.index as usize]
    }
}

// The values may be secrets.
impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("id", &self.id).finish_non_exhaustive()
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
        return NotYaml {
            place: place.map(|place| Place { width: key.chars().count(), ..place }),
            message: format!("`{key}` is here twice"),
            cure: Some("a key may stand once in a map: remove one of the two".into()),
        };
    }
    let cause = match error {
        YamlError::AliasError { error, .. } => error,
        other => other,
    };
    let (message, cure) = match cause {
        YamlError::MultipleDocuments { .. } => {
            ("the file holds more than one YAML document".into(), "remove the `---` line")
        }
        YamlError::Budget { .. }
        | YamlError::AliasReplayLimitExceeded { .. }
        | YamlError::AliasReplayStackDepthExceeded { .. } => (
            "the file is nested too deep or expands to too much".into(),
            "write it with less nesting and fewer aliases",
        ),
        other => {
            let message = UserMessageFormatter.format_message(other).into_owned();
            (message, NOT_YAML)
        }
    };
    NotYaml { place, message, cure: Some(cure.into()) }
}

fn place_of(location: Location, width: usize) -> Place {
    let number = |n: u64| usize::try_from(n).unwrap_or(usize::MAX).max(1);
    Place { line: number(location.line()), column: number(location.column()), width }
}

/// A value from the YAML library.
enum Raw {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(String),
    Seq(Vec<Spanned<Self>>),
    Map(Vec<(Spanned<String>, Spanned<Self>)>),
}

struct Builder<'a> {
    text: &'a str,
    nodes: &'a mut Vec<Info>,
}

impl Builder<'_> {
    fn build(
        &mut self,
        raw: Spanned<Raw>,
        parent: Option<NodeId>,
        key: Option<Place>,
        label: String,
    ) -> Node {
        // The budget keeps the number of nodes far below this bound.
        let id = NodeId::of_value(u32::try_from(self.nodes.len()).unwrap_or(u32::MAX));
        let is_collection = matches!(raw.value, Raw::Seq(_) | Raw::Map(_));
        let range = source_range(raw.defined);
        let source = self.text.get(range.clone()).unwrap_or_default().to_owned();
        let first_line = source.lines().next().unwrap_or_default().trim_end();
        let is_empty = source.is_empty() && matches!(raw.value, Raw::Null);
        let width = if is_collection { 1 } else { first_line.chars().count().max(1) };
        // The value is empty, so an error shows the key.
        let at = key.filter(|_| is_empty).unwrap_or_else(|| place_of(raw.defined, width));
        self.nodes.push(Info { at, key, parent, source: range, label });
        let kind = match raw.value {
            Raw::Null => Kind::Null,
            Raw::Bool(value) => Kind::Bool(value),
            Raw::Int(value) => Kind::Int(value, source),
            Raw::Float(value) => Kind::Float(value, source),
            Raw::Str(value) => Kind::Str(value),
            Raw::Seq(items) => Kind::Seq(
                items
                    .into_iter()
                    .enumerate()
                    .map(|(at, item)| self.build(item, Some(id), None, format!("[{at}]")))
                    .collect(),
            ),
            Raw::Map(entries) => Kind::Map(
                entries
                    .into_iter()
                    .map(|(key, value)| {
                        let width = key.value.chars().count().max(1);
                        let place = place_of(key.defined, width);
                        let node = self.build(value, Some(id), Some(place), key.value.clone());
                        (key.value, node)
                    })
                    .collect(),
            ),
        };
        Node { id, kind }
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

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Raw, E> {
        Ok(Raw::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Raw, E> {
        Ok(Raw::Int(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Raw, E> {
        Ok(Raw::Int(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Raw, E> {
        Ok(Raw::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Raw, E> {
        Ok(Raw::Str(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Raw, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(seq)).map(Raw::Seq)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Raw, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Raw::Map(entries))
    }
}
