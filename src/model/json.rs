//! Looks into JSON text without changing it: the members of an object and where they stand.
//!
//! Must not: build a `Value` (it loses big numbers, key order and duplicate keys).

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// `{}`.
pub fn no_members() -> Box<RawValue> {
    RawValue::from_string("{}".to_owned()).expect("the constant is JSON")
}

/// `text` as a string of JSON.
pub fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("a string can be written")
}

/// The JSON `text` on one line. It has raw line ends between tokens only, so a space in their place
/// changes no value.
pub fn one_line(text: String) -> Vec<u8> {
    let mut text = text.into_bytes();
    for byte in text.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')) {
        *byte = b' ';
    }
    text
}

/// The members of a JSON object in their order, duplicates included.
#[derive(Debug)]
pub struct Members<'a>(pub Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Members<'a> {
    /// Reads `text`, which must be one JSON object.
    pub fn read(text: &'a str) -> Result<Self, serde_json::Error> {
        let mut members = Vec::new();
        each_member(text, |key, value| members.push((key, value)))?;
        Ok(Self(members))
    }

    /// Like [`Self::read`], for texts of unknown origin: there may be at most `most` members, and
    /// no more than one beyond these is kept.
    pub fn read_at_most(text: &'a str, most: usize) -> Result<Self, Unread> {
        let mut few = Vec::new();
        let end = each_member(text, |key, value| {
            if few.len() <= most {
                few.push((key, value));
            }
        });
        match end {
            _ if few.len() > most => Err(Unread::TooMany),
            Ok(()) => Ok(Self(few)),
            Err(error) => Err(Unread::NotJson(error)),
        }
    }

    /// The value of the first member called `key`.
    pub fn get(&self, key: &str) -> Option<&'a RawValue> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| *value)
    }

    /// The text under `key`.
    pub fn string(&self, key: &str) -> Option<String> {
        serde_json::from_str(self.get(key)?.get()).ok()
    }

    /// The object under `key`.
    pub fn object(&self, key: &str) -> Option<Self> {
        Self::read(self.get(key)?.get()).ok()
    }

    /// The elements of the array under `key`.
    pub fn array(&self, key: &str) -> Option<Vec<&'a RawValue>> {
        elements(self.get(key)?.get()).ok()
    }

    /// The objects of the array under `key`; other elements are skipped.
    pub fn objects(&self, key: &str) -> Vec<Self> {
        let elements = self.array(key).unwrap_or_default();
        elements.into_iter().filter_map(|element| Self::read(element.get()).ok()).collect()
    }

    /// The first duplicate key.
    pub fn duplicate(&self) -> Option<&str> {
        let mut keys = crate::model::maps::HashSet::default();
        self.0.iter().map(|(key, _)| key.as_ref()).find(|key| !keys.insert(*key))
    }
}

/// The elements of the JSON array `text` in their order.
pub fn elements(text: &str) -> Result<Vec<&RawValue>, serde_json::Error> {
    serde_json::from_str(text)
}

/// Like [`elements`], for texts of unknown origin: there may be at most `most` elements, and no
/// more than one beyond these is kept.
pub fn elements_at_most(text: &str, most: usize) -> Result<Vec<&RawValue>, Unread> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let mut elements = Vec::new();
    deserializer
        .deserialize_seq(EachElement(|element| {
            if elements.len() <= most {
                elements.push(element);
            }
        }))
        .map_err(Unread::NotJson)?;
    if elements.len() > most {
        return Err(Unread::TooMany);
    }
    deserializer.end().map(|()| elements).map_err(Unread::NotJson)
}

/// Calls `take` with each element of the array `text`, in their order, and keeps none. An error if
/// `text` is not one JSON array.
pub fn each_element<'a>(
    text: &'a str,
    take: impl FnMut(&'a RawValue),
) -> Result<(), serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    deserializer.deserialize_seq(EachElement(take))?;
    deserializer.end()
}

/// Why a text cannot be used.
#[derive(Debug)]
pub enum Unread {
    NotJson(serde_json::Error),
    TooMany,
}

/// Calls `take` with each member of the object `text`, in their order, and keeps none. An error if
/// `text` is not one JSON object.
pub fn each_member<'a>(
    text: &'a str,
    mut take: impl FnMut(Cow<'a, str>, &'a RawValue),
) -> Result<(), serde_json::Error> {
    each_entry(text, |Key(key), value| take(key, value))
}

/// [`each_member`], where keys are no texts of Rust.
pub(super) fn each_entry<'a, K: Deserialize<'a>>(
    text: &'a str,
    take: impl FnMut(K, &'a RawValue),
) -> Result<(), serde_json::Error> {
    struct Show<F, K>(F, PhantomData<K>);
    impl<'de, K: Deserialize<'de>, F: FnMut(K, &'de RawValue)> Visitor<'de> for Show<F, K> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a JSON object")
        }

        fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
            while let Some((key, value)) = map.next_entry()? {
                (self.0)(key, value);
            }
            Ok(())
        }
    }
    let mut deserializer = serde_json::Deserializer::from_str(text);
    deserializer.deserialize_map(Show(take, PhantomData))?;
    deserializer.end()
}

/// The value under `key` in the object `text`. `None` if `text` is no object, or the key is absent
/// or a duplicate.
pub fn member<'a>(text: &'a str, key: &str) -> Option<&'a RawValue> {
    let mut member = None;
    let mut duplicate = false;
    each_member(text, |name, value| {
        if name == key {
            duplicate |= member.replace(value).is_some();
        }
    })
    .ok()?;
    member.filter(|_| !duplicate)
}

/// The string under `key` in the object `text`. `None` if [`member`] gives nothing, or no string.
pub fn string_member(text: &str, key: &str) -> Option<String> {
    serde_json::from_str(member(text, key)?.get()).ok()
}

/// The text of the JSON string `json`, in which U+FFFD stands for lone surrogates; `None` if it is
/// no string.
pub fn lossy(json: &str) -> Option<Cow<'_, str>> {
    match serde_json::from_str::<Lossy<'_>>(json).ok()?.0 {
        Cow::Borrowed(bytes) => Some(utf8(bytes)),
        Cow::Owned(bytes) => Some(utf8(&bytes).into_owned().into()),
    }
}

/// The bytes of JSON text that stand in no string, with their places.
pub fn outside_strings(text: &str) -> impl Iterator<Item = (usize, u8)> {
    let mut in_string = false;
    let mut escaped = false;
    text.bytes().enumerate().filter(move |(_, byte)| {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ => return !in_string,
        }
        false
    })
}

/// The text of the object `whole` before and after the value of `key`.
pub fn around<'a>(whole: &'a str, key: &str) -> Option<(&'a str, &'a str)> {
    let at = span(whole, Members::read(whole).ok()?.get(key)?);
    Some((whole.get(..at.start)?, whole.get(at.end..)?))
}

/// The range of `part` in `whole`, in bytes. `part` must be borrowed from `whole`.
pub fn span(whole: &str, part: &RawValue) -> Range<usize> {
    let start = (part.get().as_ptr() as usize) - (whole.as_ptr() as usize);
    debug_assert!(whole.get(start..).is_some_and(|rest| rest.starts_with(part.get())));
    start..start + part.get().len()
}

/// An object key, borrowed where it has no escapes.
#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

/// The bytes of a JSON string, which may have lone surrogates (`"\ud800"`) that no Rust string can
/// hold.
#[derive(Deserialize)]
struct Lossy<'a>(#[serde(borrow)] Cow<'a, [u8]>);

/// Checks first whether all is UTF-8, which is far faster than the search for invalid bytes.
fn utf8(bytes: &[u8]) -> Cow<'_, str> {
    str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

/// Shows each element of an array.
struct EachElement<F>(F);

impl<'de, F: FnMut(&'de RawValue)> Visitor<'de> for EachElement<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON array")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<(), A::Error> {
        while let Some(element) = seq.next_element()? {
            (self.0)(element);
        }
        Ok(())
    }
}
