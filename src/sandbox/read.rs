//! Reads a client's JSON member by member. Its errors name the mistake and its place, such as
//! ``tools[2].name: must match …``.
//!
//! Must not: build a `Value`, or know what the members mean.

use std::{fmt, ops::RangeInclusive};

use serde_json::value::RawValue;

use crate::model::json::{Elements, Members};

/// The mistake in a body, as the `message` of a 400 `invalid_request`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Invalid(pub(super) String);

/// One JSON value, and its place in the body.
#[derive(Debug, Clone)]
pub(super) struct Value<'a> {
    pub(super) raw: &'a RawValue,
    path: String,
}

/// One JSON object, and its place in the body.
#[derive(Debug)]
pub(super) struct Object<'a> {
    members: Members<'a>,
    path: String,
}

/// Reads a whole body, which must be one JSON object.
pub(super) fn body(bytes: &[u8]) -> Result<Object<'_>, Invalid> {
    let text = std::str::from_utf8(bytes)
        .map_err(|error| Invalid(format!("the body is not UTF-8: {error}")))?;
    let members = Members::read(text)
        .map_err(|error| Invalid(format!("the body must be one JSON object: {error}")))?;
    Ok(Object { members, path: String::new() })
}

impl<'a> Object<'a> {
    /// The value under `key`. If the key occurs twice, the last one counts, as in `JSON.parse`.
    pub(super) fn get(&self, key: &str) -> Option<Value<'a>> {
        let (_, raw) = self.members.0.iter().rev().find(|(name, _)| name == key)?;
        Some(self.at(key, raw))
    }

    /// The value under `key`, which must be there.
    pub(super) fn need(&self, key: &str) -> Result<Value<'a>, Invalid> {
        self.get(key).ok_or_else(|| {
            let path = join(&self.path, key);
            Invalid(format!("{path}: is required"))
        })
    }

    /// All members in their order.
    pub(super) fn members(&self) -> impl Iterator<Item = (&str, Value<'a>)> {
        self.members.0.iter().map(|(key, raw)| (key.as_ref(), self.at(key, raw)))
    }

    pub(super) fn len(&self) -> usize {
        self.members.0.len()
    }

    pub(super) fn string(&self, key: &str) -> Result<Option<String>, Invalid> {
        self.get(key).map(|value| value.string()).transpose()
    }

    pub(super) fn non_empty(&self, key: &str) -> Result<Option<String>, Invalid> {
        self.get(key).map(|value| value.non_empty()).transpose()
    }

    pub(super) fn boolean(&self, key: &str) -> Result<Option<bool>, Invalid> {
        self.get(key).map(|value| value.boolean()).transpose()
    }

    pub(super) fn object(&self, key: &str) -> Result<Option<Self>, Invalid> {
        self.get(key).map(|value| value.object()).transpose()
    }

    /// The error that the object as a whole is invalid.
    pub(super) fn invalid(&self, problem: impl fmt::Display) -> Invalid {
        if self.path.is_empty() {
            Invalid(problem.to_string())
        } else {
            Invalid(format!("{}: {problem}", self.path))
        }
    }

    fn at(&self, key: &str, raw: &'a RawValue) -> Value<'a> {
        Value { raw, path: join(&self.path, key) }
    }
}

impl<'a> Value<'a> {
    pub(super) fn object(&self) -> Result<Object<'a>, Invalid> {
        match Members::read(self.raw.get()) {
            Ok(members) => Ok(Object { members, path: self.path.clone() }),
            Err(_) if !self.is_object() => Err(self.wrong_type("an object")),
            Err(error) => Err(self.invalid(format_args!("cannot be read: {error}"))),
        }
    }

    pub(super) fn array(&self) -> Result<Vec<Self>, Invalid> {
        let Ok(elements) = Elements::read(self.raw.get()) else {
            return Err(self.wrong_type("an array"));
        };
        let place = |(index, raw)| Self { raw, path: format!("{}[{index}]", self.path) };
        Ok(elements.0.into_iter().enumerate().map(place).collect())
    }

    pub(super) fn string(&self) -> Result<String, Invalid> {
        serde_json::from_str(self.raw.get()).map_err(|_error| self.wrong_type("a string"))
    }

    pub(super) fn boolean(&self) -> Result<bool, Invalid> {
        serde_json::from_str(self.raw.get()).map_err(|_error| self.wrong_type("true or false"))
    }

    pub(super) fn integer(&self, range: RangeInclusive<i64>) -> Result<i64, Invalid> {
        match serde_json::from_str::<i64>(self.raw.get()) {
            Ok(number) if range.contains(&number) => Ok(number),
            _ => Err(self.invalid(format_args!(
                "must be an integer from {} to {}, not {}",
                range.start(),
                range.end(),
                excerpt(self.raw.get())
            ))),
        }
    }

    /// A text that is not empty.
    pub(super) fn non_empty(&self) -> Result<String, Invalid> {
        let text = self.string()?;
        if text.is_empty() { Err(self.invalid("must not be empty")) } else { Ok(text) }
    }

    /// Refuses more of `what` than fit.
    pub(super) fn fits(&self, count: usize, max: usize, what: &str) -> Result<(), Invalid> {
        if count <= max {
            return Ok(());
        }
        Err(self.invalid(format_args!("has {count} {what}, {max} fit")))
    }

    /// Refuses a value whose text is longer than `max` bytes.
    pub(super) fn is_short(&self, max: usize) -> Result<(), Invalid> {
        if self.raw.get().len() <= max {
            return Ok(());
        }
        Err(self.invalid(format_args!("is longer than {max} bytes of JSON")))
    }

    pub(super) fn is_object(&self) -> bool {
        self.raw.get().starts_with('{')
    }

    pub(super) fn invalid(&self, problem: impl fmt::Display) -> Invalid {
        Invalid(format!("{}: {problem}", self.path))
    }

    pub(super) fn wrong_type(&self, wanted: &str) -> Invalid {
        self.invalid(format_args!("must be {wanted}, not {}", excerpt(self.raw.get())))
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// The start of a JSON text, short enough for a message.
fn excerpt(text: &str) -> String {
    const LONGEST: usize = 40;
    let end = text.floor_char_boundary(LONGEST);
    match text.get(..end) {
        Some(start) if end < text.len() => format!("{start}…"),
        _ => text.to_owned(),
    }
}
