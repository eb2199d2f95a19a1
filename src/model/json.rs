//! Looks into JSON text without changing it: the members of an object and where they stand.
//!
//! Must not: build a `Value` (it loses big numbers, key order and duplicate keys).

use std::{borrow::Cow, fmt, ops::Range};

use serde::{
    Deserialize,
    de::{Deserializer, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

/// The members of a JSON object in their order, duplicates included.
#[derive(Debug)]
pub struct Members<'a>(pub Vec<(Cow<'a, str>, &'a RawValue)>);

/// The elements of a JSON array in their order.
#[derive(Debug)]
pub struct Elements<'a>(pub Vec<&'a RawValue>);

impl<'a> Members<'a> {
    /// Reads `text`, which must be one JSON object.
    pub fn read(text: &'a str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// The value of the first member called `key`.
    pub fn get(&self, key: &str) -> Option<&'a RawValue> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| *value)
    }

    /// The first key that stands twice.
    pub fn duplicate(&self) -> Option<&str> {
        let mut seen = std::collections::HashSet::new();
        self.0.iter().map(|(key, _)| key.as_ref()).find(|key| !seen.insert(*key))
    }
}

impl<'a> Elements<'a> {
    /// Reads `text`, which must be one JSON array.
    pub fn read(text: &'a str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }
}

/// The value that stands under `key` in the object `text`: `None` where `text` is no object, or the
/// key is absent or stands twice.
pub fn member<'a>(text: &'a str, key: &str) -> Option<&'a RawValue> {
    let members = Members::read(text).ok()?;
    let mut values = members.0.iter().filter(|(name, _)| name == key);
    let (_, value) = values.next()?;
    values.next().is_none().then_some(*value)
}

/// The string that stands under `key` in the object `text`: `None` where [`member`] gives nothing,
/// or something else.
pub fn string_member(text: &str, key: &str) -> Option<String> {
    serde_json::from_str(member(text, key)?.get()).ok()
}

/// Where `part` stands in `whole`, in bytes. `part` must have been borrowed out of `whole`.
pub fn span(whole: &str, part: &RawValue) -> Range<usize> {
    let start = (part.get().as_ptr() as usize) - (whole.as_ptr() as usize);
    debug_assert!(whole.get(start..).is_some_and(|rest| rest.starts_with(part.get())));
    start..start + part.get().len()
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Vec<(Cow<'de, str>, &'de RawValue)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some((Key(key), value)) = map.next_entry()? {
                    members.push((key, value));
                }
                Ok(members)
            }
        }
        deserializer.deserialize_map(Collect).map(Members)
    }
}

/// An object key, borrowed where it has no escapes.
#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Elements<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Vec<&'de RawValue>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON array")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut elements = Vec::new();
                while let Some(element) = seq.next_element()? {
                    elements.push(element);
                }
                Ok(elements)
            }
        }
        deserializer.deserialize_seq(Collect).map(Elements)
    }
}
