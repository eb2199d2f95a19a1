//! Reads the tree into the types of `file_format`, and continues after a mistake to find the next.
//!
//! A serde error ends the whole read. So the read leaves out the value that caused the error, and
//! starts again. That works because every key of the file format is optional.
//!
//! Must not: know any key of bridge.yaml, or judge a value beyond its type.

use std::collections::BTreeMap;
use std::fmt;
use std::iter::once;

use schemars::JsonSchema;
use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{DeserializeOwned, Deserializer, IntoDeserializer, Unexpected, Visitor};
use serde::{Deserialize, de, forward_to_deserialize_any};

use super::document::{Kind, Node, ROOT, key_text};
use super::error::{did_you_mean, one_of};
use super::mistakes::MistakeText;
use super::{Document, NodeId};

use crate::model::maps::HashSet;

/// The most mistakes that one read reports: more than a person reads at once.
pub(super) const MAX_MISTAKES: usize = 50;

/// For a text; a number or a boolean without quotes counts as the text that was written.
pub(super) const SCALAR: &str = "$Scalar";
/// For a value that its visitor reads as it is.
pub(super) const ANY: &str = "$Any";
/// The same, but a text is read as a list of this one text.
pub(super) const LIST: &str = "$List";

// A value that knows where it was written. In the schema, it is as without its place, so that a doc
// comment would replace the one of its type.
#[derive(Clone, Deserialize, JsonSchema)]
#[schemars(transparent)]
pub struct At<T> {
    pub value: T,
    #[schemars(skip)]
    pub node: NodeId,
}

/// A list that knows where it and its items were written.
pub type List<T> = At<Vec<At<T>>>;

/// A section of named values that knows where it and its values were written.
pub type Named<T> = At<BTreeMap<String, At<T>>>;

/// A value that does not fit the expected type.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub(super) struct Mistake {
    /// The value, or its key, if that is to blame.
    pub node: NodeId,
    pub message: String,
    pub cure: Option<String>,
    /// The file itself is right: what it refers to is missing, or cannot be used.
    pub is_outside: bool,
    /// The value has another shape than its key asks for, so it may be a secret of another key.
    pub is_unfit: bool,
}

/// Reads `document`, without the values in `left_out`. Values that do not fit are added to
/// `left_out` and reported to `report`. `None` if nothing at all could be read.
pub(super) fn read<T: DeserializeOwned>(
    document: &Document,
    left_out: &mut HashSet<NodeId>,
    mut report: impl FnMut(Mistake),
) -> Option<T> {
    for _ in 0..MAX_MISTAKES {
        let reader = Reader { node: &document.root, left_out };
        let mistake = match T::deserialize(reader) {
            Ok(value) => return Some(value),
            Err(mistake) => mistake,
        };
        let node = mistake.node;
        report(mistake);
        if node == ROOT || !left_out.insert(NodeId::of_value(node.index)) {
            return None;
        }
    }
    None
}

#[derive(Clone, Copy)]
struct Reader<'d> {
    node: &'d Node,
    left_out: &'d HashSet<NodeId>,
}

impl Mistake {
    /// A mistake of the whole file, until [`Self::at`] knows better.
    fn new(message: String, cure: Option<String>) -> Self {
        Self { node: ROOT, message, cure, is_outside: false, is_unfit: false }
    }

    /// A mistake of a value that does not fit, and so is not shown.
    fn unfit(message: String, cure: Option<String>) -> Self {
        Self { is_unfit: true, ..Self::new(message, cure) }
    }

    /// Keeps the innermost place, which is the right one.
    pub(super) fn at(mut self, node: NodeId) -> Self {
        if self.node == ROOT {
            self.node = node;
        }
        self
    }
}

impl From<MistakeText> for Mistake {
    fn from(text: MistakeText) -> Self {
        Self::new(text.message, Some(text.cure))
    }
}

impl de::Error for Mistake {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::unfit(message.to_string(), None)
    }

    fn invalid_type(unexpected: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        // Replaces serde's own words for two types.
        let (wanted, form) = match expected.to_string().as_str() {
            "a sequence" => ("a list".to_owned(), Some("write a list: […]")),
            "a boolean" => ("true or false".to_owned(), None),
            "f64" => ("a number".to_owned(), None),
            other => (other.to_owned(), None),
        };
        let advice = match unexpected {
            Unexpected::Unsigned(_)
            | Unexpected::Signed(_)
            | Unexpected::Float(_)
            | Unexpected::Bool(_)
                if wanted.starts_with("a string") =>
            {
                Some("put it in quotes")
            }
            Unexpected::Bool(_) if wanted.starts_with("a glob") => {
                Some("write `[\"*\"]` for all, `[]` for none")
            }
            Unexpected::Map if wanted.starts_with("a glob") => Some("write a list: […]"),
            _ => form,
        };
        let cure = advice.map(str::to_owned);
        if let Unexpected::Str(word) = unexpected
            && wanted == "true or false"
            && ["yes", "no", "on", "off"].contains(&word.to_ascii_lowercase().as_str())
        {
            return Self::new(format!("expected {wanted}, found the text `{word}`"), cure);
        }
        Self::unfit(format!("expected {wanted}, found {}", kind_of(unexpected)), cure)
    }

    fn invalid_value(unexpected: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        let text = match unexpected {
            Unexpected::Str(text) if !is_quantity(text) => {
                return Self::unfit(format!("expected {expected}, found another text"), None);
            }
            Unexpected::Str(text) => format!("the text `{text}`"),
            Unexpected::Unsigned(value) => format!("the number {value}"),
            Unexpected::Signed(value) => format!("the number {value}"),
            Unexpected::Float(value) => format!("the number {value}"),
            other => {
                return Self::unfit(format!("expected {expected}, found {}", kind_of(other)), None);
            }
        };
        Self::new(format!("expected {expected}, found {text}"), None)
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        let expected_words = one_of(expected);
        match did_you_mean(variant, expected.iter().copied()) {
            Some(known) => Self::new(
                format!("`{variant}` is not known here, expected {expected_words}"),
                Some(format!("did you mean `{known}`?")),
            ),
            // It may be a token in the place of a word.
            None => Self::unfit(format!("expected {expected_words}, found another text"), None),
        }
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        let mut keys = expected.to_vec();
        keys.sort_unstable();
        let hint = match did_you_mean(field, keys.iter().copied()) {
            Some(key) => format!("did you mean `{key}`? "),
            None => String::new(),
        };
        let cure = format!("{hint}Known keys here: {}", keys.join(", "));
        Self::unfit(format!("unknown key `{}`", key_text(field)), Some(cure))
    }

    fn duplicate_field(field: &'static str) -> Self {
        let cure = format!("remove one of the two names of `{field}`");
        Self::new(format!("`{field}` is here twice, under two names"), Some(cure))
    }
}

/// What was found, without its value.
fn kind_of(unexpected: Unexpected<'_>) -> &'static str {
    match unexpected {
        Unexpected::Bool(true) => "the boolean true",
        Unexpected::Bool(false) => "the boolean false",
        Unexpected::Unsigned(_) | Unexpected::Signed(_) | Unexpected::Float(_) => "a number",
        Unexpected::Str(_) => "a text",
        Unexpected::Unit | Unexpected::Option => "nothing",
        Unexpected::Seq => "a list",
        Unexpected::Map => "a map",
        _ => "another value",
    }
}

/// Whether `text` is a number with a unit, such as `5 mins`: a time or a size that is only written
/// otherwise than here.
fn is_quantity(text: &str) -> bool {
    let number = text.trim_start_matches('-');
    let digits = number.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
    let unit = number.get(digits..).unwrap_or_default().trim_start();
    matches!(digits, 1..=6) && unit.len() <= 7 && unit.bytes().all(|b| b.is_ascii_alphabetic())
}

impl<'d> Reader<'d> {
    fn located<T>(self, result: Result<T, Mistake>) -> Result<T, Mistake> {
        result.map_err(|error| error.at(self.node.id))
    }

    fn visit<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        match &self.node.kind {
            Kind::Null => visitor.visit_unit(),
            Kind::Bool(value) => visitor.visit_bool(*value),
            Kind::Int(value, _) => match (u64::try_from(*value), i64::try_from(*value)) {
                (Ok(value), _) => visitor.visit_u64(value),
                (_, Ok(value)) => visitor.visit_i64(value),
                _ => visitor.visit_i128(*value),
            },
            Kind::Float(value, _) => visitor.visit_f64(*value),
            Kind::Str(value) => visitor.visit_str(value),
            Kind::Seq(items) => {
                let items = items.iter().filter(|node| !self.left_out.contains(&node.id));
                visitor.visit_seq(SeqDeserializer::new(items.map(|node| Self { node, ..self })))
            }
            Kind::Map(entries) => {
                let entries = entries.iter().filter(|(_, node)| !self.left_out.contains(&node.id));
                visitor.visit_map(MapDeserializer::new(
                    entries.map(|(key, node)| {
                        (Key { text: key, node: node.id }, Self { node, ..self })
                    }),
                ))
            }
        }
    }
}

impl<'de> Deserializer<'de> for Reader<'_> {
    type Error = Mistake;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        self.located(self.visit(visitor))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        let result = match self.node.kind {
            Kind::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        };
        self.located(result)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        let result = match (name, &self.node.kind) {
            (SCALAR, Kind::Int(_, text) | Kind::Float(_, text)) => visitor.visit_str(text),
            (SCALAR, Kind::Bool(value)) => visitor.visit_string(value.to_string()),
            (LIST, Kind::Str(_)) => visitor.visit_seq(SeqDeserializer::new(once(self))),
            (SCALAR | ANY | LIST, _) => self.visit(visitor),
            _ => visitor.visit_newtype_struct(self),
        };
        self.located(result)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        let result = match (name, &self.node.kind) {
            // Both fields come of this value: what it is, and where it is.
            ("At", _) => visitor.visit_seq(SeqDeserializer::new([self, self].into_iter())),
            ("NodeId", _) => visitor.visit_seq(SeqDeserializer::new(once(self.node.id.index))),
            // serde would accept a list as the values without their keys.
            (_, Kind::Seq(_)) => Err(de::Error::invalid_type(Unexpected::Seq, &visitor)),
            _ => self.visit(visitor),
        };
        self.located(result)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        let result = match &self.node.kind {
            Kind::Str(word) => visitor.visit_enum(word.as_str().into_deserializer()),
            _ => self.visit(OneOf(variants)).map(|never| match never {}),
        };
        self.located(result)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map identifier ignored_any
    }
}

/// Accepts no value: it only gives serde the words for what was expected.
struct OneOf(&'static [&'static str]);

impl Visitor<'_> for OneOf {
    type Value = std::convert::Infallible;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&one_of(self.0))
    }
}

/// A key of a map; a mistake in it is at the key, not at the value.
struct Key<'d> {
    text: &'d str,
    node: NodeId,
}

impl<'de> Deserializer<'de> for Key<'_> {
    type Error = Mistake;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        visitor.visit_str(self.text).map_err(|error: Mistake| error.at(self.node.key()))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier
        ignored_any
    }
}

impl<'de> IntoDeserializer<'de, Mistake> for Key<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> IntoDeserializer<'de, Mistake> for Reader<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}
