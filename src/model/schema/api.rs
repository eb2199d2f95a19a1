//! Schemas for the APIs of models, which refuse the whole list of tools for one keyword that is
//! none of JSON Schema 2020-12.
//!
//! Must not: change more of a schema than these keywords.

use serde_json::Value;

use super::output::is_pattern;
use super::read;
use super::usable::Located;
use super::walk::{Step, escaped, steps};
use crate::model::Members;
use crate::model::json::{elements, quoted};

/// The most changes of one schema.
const MAX: usize = 32;

/// `schema` without the keywords that such an API refuses, and their places. A subschema that is
/// none becomes `{}`.
pub fn for_api(schema: &str) -> (String, Vec<String>) {
    let mut text = schema.to_owned();
    let mut places = Vec::new();
    while places.len() < MAX {
        let Ok(value) = read(&text) else { break };
        let Some(place) = refused(&value) else { break };
        let Some(Located { place, keyword, .. }) = Located::new(&value, &place) else { break };
        let (place, instead) = match keyword {
            Some(keyword) => (format!("{place}/{}", escaped(&keyword)), None),
            None if place.is_empty() => break,
            None => (place, Some("{}")),
        };
        match edited(&text, &place, instead) {
            Some(changed) => text = changed,
            None => break,
        }
        places.push(place);
    }
    (text, places)
}

/// The first place of `schema` that an API refuses, as a JSON pointer.
fn refused(schema: &Value) -> Option<String> {
    let validator = jsonschema::draft202012::meta::validator();
    match validator.validate(schema) {
        Err(error) => Some(error.instance_path().as_str().to_owned()),
        Ok(()) => bad_pattern(schema, ""),
    }
}

/// The first pattern that is no regular expression.
fn bad_pattern(schema: &Value, place: &str) -> Option<String> {
    let keywords = schema.as_object()?;
    let pattern = keywords.get("pattern").and_then(Value::as_str);
    if pattern.is_some_and(|pattern| !is_pattern(pattern)) {
        return Some(format!("{place}/pattern"));
    }
    let properties = keywords.get("patternProperties").and_then(Value::as_object);
    if properties.is_some_and(|all| !all.keys().all(|pattern| is_pattern(pattern))) {
        return Some(format!("{place}/patternProperties"));
    }
    let below = steps(keywords, place);
    below.into_iter().find_map(|Step { place, schema, .. }| bad_pattern(schema, &place))
}

/// The JSON `text` without the value at `pointer`, or with another in its place; all other values
/// keep their bytes.
fn edited(text: &str, pointer: &str, instead: Option<&str>) -> Option<String> {
    let (key, rest) = match pointer.strip_prefix('/')?.split_once('/') {
        Some((key, rest)) => (key, format!("/{rest}")),
        None => (pointer.strip_prefix('/')?, String::new()),
    };
    let change = |value: &str| {
        if rest.is_empty() {
            return instead.map(str::to_owned);
        }
        Some(edited(value, &rest, instead).unwrap_or_else(|| value.to_owned()))
    };
    if text.trim_start().starts_with('[') {
        let place: usize = key.parse().ok()?;
        let items = elements(text).ok()?.into_iter().enumerate();
        let texts = items.filter_map(|(at, item)| {
            if at == place { change(item.get()) } else { Some(item.get().to_owned()) }
        });
        return Some(format!("[{}]", texts.collect::<Vec<_>>().join(",")));
    }
    let members = Members::read(text).ok()?.0.into_iter();
    let texts = members.filter_map(|(name, value)| {
        let value =
            if escaped(&name) == key { change(value.get())? } else { value.get().to_owned() };
        Some(format!("{}:{value}", quoted(&name)))
    });
    Some(format!("{{{}}}", texts.collect::<Vec<_>>().join(",")))
}
