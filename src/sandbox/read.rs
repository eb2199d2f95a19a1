//! Reads a client's JSON: checks it against `bodies.json`, the schema of all bodies, and gives its
//! members to serde.
//!
//! Must not: know what the members mean.

use std::sync::LazyLock;

use jsonschema::Validator;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::model::answer::files::is_allowed;
use crate::model::maps::HashMap;

/// The mistake in a body, as the `message` of a 400 `invalid_request`.
pub(super) type Invalid = String;

/// The definitions of `bodies.json` that values are checked against.
static VALIDATORS: LazyLock<HashMap<&str, Validator>> = LazyLock::new(|| {
    let document: Value =
        serde_json::from_str(include_str!("bodies.json")).expect("the file is JSON");
    let mut validators = HashMap::default();
    for name in ["spec", "attachments", "toolResult"] {
        let path = format!("#/$defs/{name}");
        let schema = json!({"$ref": path, "$defs": document["$defs"]});
        let options = jsonschema::options()
            .offline()
            .should_validate_formats(true)
            .with_format("attachment-type", is_allowed);
        validators.insert(name, options.build(&schema).expect("the file is a schema"));
    }
    validators
});

/// Reads a whole body, which must be a JSON object that fits the definition `definition`. If a key
/// occurs twice, the last one counts, as in `JSON.parse`.
pub(super) fn body(bytes: &[u8], definition: &str) -> Result<Value, Invalid> {
    let body = serde_json::from_slice(bytes)
        .map_err(|error| format!("the body must be one JSON object: {error}"))?;
    check(&body, definition, "")?;
    Ok(body)
}

/// Checks `value`, whose place in its body is `place`. The error has the place of the mistake as a
/// JSON pointer.
pub(super) fn check(value: &Value, definition: &str, place: &str) -> Result<(), Invalid> {
    let Err(error) = VALIDATORS[definition].validate(value) else { return Ok(()) };
    let pointer = format!("{place}{}", error.instance_path());
    let subject = if pointer.is_empty() { "the body" } else { &pointer };
    Err(format!("{subject}: {}", error.masked_with("the value")))
}

/// Reads the members of `value`, which has been checked.
pub(super) fn members<'a, T: Deserialize<'a>>(value: &'a Value) -> Result<T, Invalid> {
    T::deserialize(value).map_err(|error| error.to_string())
}

/// Refuses `count` bytes of `place` if only `max` fit.
pub(super) fn fits(place: &str, count: usize, max: usize) -> Result<(), Invalid> {
    if count <= max {
        return Ok(());
    }
    Err(format!("{place}: has {count} bytes, {max} fit"))
}
