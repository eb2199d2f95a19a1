//! The tools that the bridge has itself, and offers beside those of backends.
//!
//! Must not: keep anything.

use std::str::FromStr;
use std::sync::LazyLock;

use serde_json::value::RawValue;

use super::schema::refusal;
use super::{BackendName, InputSchema, Verdict, member, pending, string_member};

/// One of the bridge's own tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Own {
    /// Fetches the result of an earlier call, or a part of it.
    Results,
    /// Finds tools that the model was not given.
    Find,
    /// Calls one of them.
    Call,
}

/// The members of each tool's ref besides `kind` and `name`.
static DEFINITIONS: LazyLock<[InputSchema; 3]> = LazyLock::new(|| {
    [
        include_str!("own/call_result.json"),
        include_str!("own/find_tools.json"),
        include_str!("own/call_tool.json"),
    ]
    .map(|text| {
        // On one line: each run pays for its bytes.
        let line: String = text.lines().map(str::trim_start).collect();
        let definition = RawValue::from_string(line).expect("the file is JSON, tests say so");
        InputSchema::of_local(definition.into())
    })
});

impl Own {
    pub const ALL: [Self; 3] = [Self::Results, Self::Find, Self::Call];

    /// Its name, unless a run's caller has taken it; no backend may have this name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Results => pending::TOOL,
            Self::Find => "bridge_find_tools",
            Self::Call => "bridge_call_tool",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|own| own.name() == name)
    }

    /// Takes the place of a backend's name in its route.
    pub fn backend(self) -> BackendName {
        BackendName::parse(self.name()).expect("it is short and has no odd character")
    }

    /// The members of its ref besides `kind` and `name`.
    pub fn definition(self) -> &'static RawValue {
        DEFINITIONS[self as usize].definition()
    }

    /// Checks the arguments of a call of it; the error is an answer for the model.
    pub fn check(self, arguments: &str) -> Result<(), String> {
        match DEFINITIONS[self as usize].check(arguments) {
            Verdict::Invalid(mistakes) => Err(mistakes),
            _ => Ok(()),
        }
    }
}

/// The text under `key` of `arguments`; the error is an answer for the model.
pub(super) fn string(arguments: &str, key: &str) -> Result<String, String> {
    string_member(arguments, key).ok_or_else(|| refusal(&format!("/{key}: it must be one string")))
}

/// The number under `key`, if there is one; a whole one may be written `2.0`, as a schema's
/// `integer` may. The error is an answer for the model.
pub(super) fn number<T: FromStr>(arguments: &str, key: &str) -> Result<Option<T>, String> {
    let Some(argument) = member(arguments, key) else { return Ok(None) };
    let double = argument.get().parse::<f64>().ok().filter(|double| double.is_finite());
    match double.and_then(|double| double.to_string().parse().ok()) {
        Some(number) => Ok(Some(number)),
        None => Err(refusal(&format!("/{key}: the number is out of range"))),
    }
}
