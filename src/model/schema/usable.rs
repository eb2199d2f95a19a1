//! The part of a schema that arguments can be checked against.
//!
//! Servers write keywords that their draft does not have, patterns of other languages, and
//! references that lead nowhere. One of them leaves its own part of the schema unchecked; what
//! remains never refuses arguments that the whole schema takes.
//!
//! Must not: change what travels on (a copy is what is changed here).

use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::{Map, Value, json};

use super::pattern;
use super::walk::{Step, each_subschema, steps};
use crate::model::visible;

/// The most parts that one schema may have unchecked. With more, none of it is checked.
const MAX_LEFT_OUT: usize = 32;
/// The longest reason for one, in bytes.
const MAX_WHY: usize = 120;

/// A schema as far as it can be used.
#[derive(Debug)]
pub(super) struct Usable {
    pub schema: Value,
    pub validator: Validator,
    /// The parts that are left out of it, each with its place and the reason.
    pub left_out: Vec<String>,
}

/// A part of a schema that cannot be used.
struct Bad {
    /// Its place, as a JSON pointer.
    place: String,
    why: String,
}

/// What to leave out of a schema.
#[derive(Debug, PartialEq, Eq)]
enum Cut {
    /// The keywords that belong to this one, of the schema at the place.
    Keyword(String, String),
    /// The whole schema at the place.
    Schema(String),
}

/// The keywords whose value is a reference.
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// Keywords that turn a subschema around: if less of it is checked, more is refused.
const TURNING: [&str; 4] = ["not", "oneOf", "if", "contains"];

impl Usable {
    /// As much of `schema` as can be used. The error says why nothing of it can.
    pub(super) fn read(mut schema: Value) -> Result<Self, String> {
        prepare(&mut schema);
        let mut left_out = Vec::new();
        loop {
            let room = pattern::room(&schema)?;
            let bad = match unfollowed(&schema) {
                Some(bad) => bad,
                None => match build(&schema, room) {
                    Ok(validator) => return Ok(Self { schema, validator, left_out }),
                    Err(error) => Bad::of_error(&error),
                },
            };
            let description = bad.description();
            match Cut::new(&schema, &bad.place) {
                Some(cut) if left_out.len() < MAX_LEFT_OUT => cut.apply(&mut schema),
                _ => return Err(format!("its schema cannot be used: {description}")),
            }
            left_out.push(description);
            relax(&mut schema);
        }
    }
}

impl Bad {
    fn of_error(error: &ValidationError<'_>) -> Self {
        let why = error.masked_with("it").to_string();
        Self { place: error.instance_path().as_str().to_owned(), why }
    }

    fn description(&self) -> String {
        let place = if self.place.is_empty() { "the schema" } else { &self.place };
        visible::line(&format!("{place}: {}", self.why), MAX_WHY)
    }
}

fn build(schema: &Value, room: usize) -> Result<Validator, ValidationError<'static>> {
    // The linear engine, as a few bytes of pattern and text can make an engine that backtracks take
    // seconds. It rejects look-around and backreferences.
    let patterns = PatternOptions::regex().size_limit(room).dfa_size_limit(room);
    jsonschema::options()
        .offline()
        .with_pattern_options(patterns)
        // Only some drafts say that `format` rejects values, and servers differ in what they
        // reject.
        .should_validate_formats(false)
        .build(schema)
}

/// Brings spellings that servers use into those of JSON Schema: `null` for a keyword that is left
/// out, `nullable` of OpenAPI, and escapes that are a character alone in every language but this
/// one.
fn prepare(schema: &mut Value) {
    let Value::Object(keywords) = schema else { return };
    // `null` is a value only here.
    keywords.retain(|key, value| !value.is_null() || matches!(key.as_str(), "const" | "default"));
    if let Some(Value::String(text)) = keywords.get_mut("pattern") {
        *text = pattern::plain(text);
    }
    if let Some(Value::Object(schemas)) = keywords.get_mut("patternProperties") {
        *schemas =
            std::mem::take(schemas).into_iter().map(|(k, v)| (pattern::plain(&k), v)).collect();
    }
    let branch_took_null = unify_branches(keywords);
    each_subschema(keywords, &mut |schema| {
        prepare(schema);
        drop_base(schema);
    });
    if branch_took_null || takes_null(keywords) {
        take_null(keywords);
    }
}

/// Takes `nullable` from schemas that their keyword turns around; whether a branch of `oneOf` had
/// it, so that the schema itself is to take `null`. If two branches took it, `oneOf` would refuse
/// it.
fn unify_branches(keywords: &mut Map<String, Value>) -> bool {
    for key in ["not", "if"] {
        if let Some(schema) = keywords.get_mut(key) {
            forget_null(schema);
        }
    }
    let mut branch_took_null = false;
    if let Some(Value::Array(branches)) = keywords.get_mut("oneOf") {
        for branch in branches {
            branch_took_null |= forget_null(branch);
        }
    }
    branch_took_null
}

/// Takes from `schema` what [`takes_null`] looks for; whether there was something.
fn forget_null(schema: &mut Value) -> bool {
    let Value::Object(keywords) = schema else { return false };
    let took_null = takes_null(keywords);
    if took_null {
        keywords.retain(|key, _| !matches!(key.as_str(), "nullable" | "x-nullable" | "default"));
    }
    took_null
}

/// Takes the base of its references from a subschema that has none.
fn drop_base(schema: &mut Value) {
    if !has_reference(schema)
        && let Value::Object(keywords) = schema
    {
        keywords.retain(|key, value| !(matches!(key.as_str(), "$id" | "id") && value.is_string()));
    }
}

/// Whether a schema says in another way than by `type` that it takes `null`.
fn takes_null(keywords: &Map<String, Value>) -> bool {
    ["nullable", "x-nullable"].iter().any(|key| keywords.get(*key) == Some(&Value::Bool(true)))
        || keywords.get("default") == Some(&Value::Null)
}

/// Lets a schema take `null`. Keywords for other types take it already.
fn take_null(keywords: &mut Map<String, Value>) {
    const COMBINING: [&str; 10] = [
        "$ref",
        "$dynamicRef",
        "$recursiveRef",
        "allOf",
        "anyOf",
        "oneOf",
        "not",
        "if",
        "then",
        "else",
    ];
    match keywords.get_mut("type") {
        Some(Value::Array(types)) if !types.contains(&json!("null")) => types.push(json!("null")),
        Some(Value::String(kind)) if kind != "null" => {
            let both = json!([kind, "null"]);
            keywords.insert("type".to_owned(), both);
        }
        _ => {}
    }
    if let Some(Value::Array(values)) = keywords.get_mut("enum")
        && !values.contains(&Value::Null)
    {
        values.push(Value::Null);
    }
    if let Some(value) = keywords.remove("const") {
        // A second list of values is rare, and the narrower of the two.
        keywords.insert("enum".to_owned(), json!([value, null]));
    }
    let mut combined = Map::new();
    for key in COMBINING {
        if let Some(value) = keywords.remove(key) {
            combined.insert(key.to_owned(), value);
        }
    }
    if !combined.is_empty() {
        keywords.insert("anyOf".to_owned(), json!([{ "type": "null" }, combined]));
    }
}

/// The first reference that is not followed, or schema with a base of its own.
fn unfollowed(root: &Value) -> Option<Bad> {
    fn search(root: &Value, schema: &Value, place: &str) -> Option<Bad> {
        let keywords = schema.as_object()?;
        if references(keywords).any(|target| followed(root, target).is_none()) {
            let why = "the reference is not followed".to_owned();
            return Some(Bad { place: format!("{place}/$ref"), why });
        }
        let base_key = ["$id", "id"]
            .into_iter()
            .find(|key| matches!(keywords.get(*key), Some(Value::String(_))));
        if let Some(key) = base_key.filter(|_| !place.is_empty()) {
            let why = "references below it have a base of their own".to_owned();
            return Some(Bad { place: format!("{place}/{key}"), why });
        }
        steps(keywords, place)
            .into_iter()
            .find_map(|Step { place, schema, .. }| search(root, schema, &place))
    }
    search(root, root, "")
}

/// The references of a schema with these keywords.
pub(super) fn references(keywords: &Map<String, Value>) -> impl Iterator<Item = &str> {
    let keys = REFERENCES.iter();
    keys.filter_map(|key| keywords.get(*key)?.as_str())
}

/// The target of a reference within the schema. Anchors and whole addresses are rare, and are not
/// followed.
pub(super) fn followed<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    let pointer = reference.strip_prefix('#')?;
    // A JSON pointer that is the same text in an address.
    if pointer.is_empty() || pointer.starts_with('/') && !pointer.contains('%') {
        return root.pointer(pointer);
    }
    None
}

/// Where a part of a schema belongs.
#[derive(Debug)]
pub(super) struct Located {
    /// The innermost schema around it.
    pub place: String,
    /// The keyword of that schema that it is in; `None` if it is the whole schema.
    pub keyword: Option<String>,
    /// The keyword and the place of the outermost schema that turns it around.
    turned: Option<(String, &'static str)>,
}

impl Located {
    /// Where the part at the pointer `bad` of `root` belongs.
    pub(super) fn new(root: &Value, bad: &str) -> Option<Self> {
        let mut schema = root;
        let mut place = String::new();
        let mut turned = None;
        loop {
            let keywords = schema.as_object();
            let next = keywords.into_iter().flat_map(|keywords| steps(keywords, &place));
            let Some(step) = next.into_iter().find(|step| is_within(bad, &step.place)) else {
                break;
            };
            if turned.is_none() && TURNING.contains(&step.keyword) {
                turned = Some((place.clone(), step.keyword));
            }
            if step.place == bad && step.keyword == "patternProperties" && is_schema(step.schema) {
                // The pattern is the bad part.
                return Some(Self { place, keyword: Some(step.keyword.to_owned()), turned });
            }
            (schema, place) = (step.schema, step.place);
        }
        let rest = bad.strip_prefix(&*place)?;
        let keyword = match rest.strip_prefix('/') {
            Some(rest) => {
                rest.split('/').next().map(|key| key.replace("~1", "/").replace("~0", "~"))
            }
            None => None,
        };
        Some(Self { place, keyword, turned })
    }
}

/// Whether the pointer `inner` is `outer`, or leads further.
fn is_within(inner: &str, outer: &str) -> bool {
    inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl Cut {
    /// What to leave out of `root`, of which the part at the pointer `bad` cannot be used; `None`
    /// if nothing would remain.
    fn new(root: &Value, bad: &str) -> Option<Self> {
        let Located { place, keyword, turned } = Located::new(root, bad)?;
        if let Some((place, keyword)) = turned {
            return Some(Self::Keyword(place, keyword.to_owned()));
        }
        match keyword.as_deref() {
            // Up to draft 7, the keywords beside a reference mean nothing.
            None | Some("$ref" | "$dynamicRef" | "$recursiveRef" | "$id" | "id") => {
                if place.is_empty() { None } else { Some(Self::Schema(place)) }
            }
            Some("$schema") => None,
            Some(keyword) => Some(Self::Keyword(place, keyword.to_owned())),
        }
    }

    fn apply(&self, root: &mut Value) {
        match self {
            Self::Schema(place) => {
                if let Some(schema) = root.pointer_mut(place) {
                    *schema = Value::Bool(true);
                }
            }
            Self::Keyword(place, keyword) => {
                let keywords = root.pointer_mut(place).and_then(Value::as_object_mut);
                if let Some(keywords) = keywords {
                    keywords.retain(|key, _| !belong_together(key, keyword));
                }
            }
        }
    }
}

/// Whether the meaning of `one` depends on `other`: without the one, the other could refuse more.
fn belong_together(one: &str, other: &str) -> bool {
    const GROUPS: [&[&str]; 6] = [
        &["properties", "patternProperties", "additionalProperties"],
        &["items", "prefixItems", "additionalItems"],
        &["contains", "minContains", "maxContains"],
        &["if", "then", "else"],
        &["minimum", "exclusiveMinimum"],
        &["maximum", "exclusiveMaximum"],
    ];
    one == other || GROUPS.iter().any(|group| group.contains(&one) && group.contains(&other))
}

/// Takes out of `schema` what refuses more when other parts of it are left out: `unevaluated…`, and
/// keywords that turn a reference around, as its target may be one of those parts.
fn relax(schema: &mut Value) {
    let Value::Object(keywords) = schema else { return };
    keywords.retain(|key, value| {
        let turns_reference = TURNING.contains(&key.as_str()) && has_reference(value);
        !key.starts_with("unevaluated") && !turns_reference
    });
    each_subschema(keywords, &mut relax);
}

fn has_reference(value: &Value) -> bool {
    match value {
        Value::Object(members) => {
            references(members).next().is_some() || members.values().any(has_reference)
        }
        Value::Array(items) => items.iter().any(has_reference),
        _ => false,
    }
}

fn is_schema(value: &Value) -> bool {
    value.is_object() || value.is_boolean()
}

#[cfg(test)]
mod tests;
