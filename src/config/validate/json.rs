//! A value of the file as JSON text: its keys in their order, its numbers as they are written.
//!
//! Must not: know the purpose of the value.

use super::{Validator, all};
use crate::config::document::{Kind, Node};

impl Validator<'_> {
    /// The JSON text of a value of the file. A value that JSON cannot express is reported as a
    /// mistake.
    pub(super) fn json(&self, Node { id, kind, .. }: &Node) -> Option<String> {
        Some(match kind {
            Kind::Null => "null".to_owned(),
            Kind::Bool(value) => value.to_string(),
            // YAML has more forms of a number than JSON.
            Kind::Int(_, written) | Kind::Float(_, written) if is_json(written) => written.clone(),
            Kind::Int(value, _) => value.to_string(),
            Kind::Float(value, _) if value.is_finite() => value.to_string(),
            Kind::Float(..) => {
                let cure = "write a finite number, or a text in quotes";
                return self.refuse(*id, "JSON has no such number", cure);
            }
            Kind::Str(value) => quoted(value),
            Kind::Seq(items) => {
                let items: Vec<_> = all(items.iter().map(|item| self.json(item)))?;
                format!("[{}]", items.join(","))
            }
            Kind::Map(entries) => {
                let member = |(key, value): &(String, Node)| {
                    Some(format!("{}:{}", quoted(key), self.json(value)?))
                };
                let members: Vec<_> = all(entries.iter().map(member))?;
                format!("{{{}}}", members.join(","))
            }
        })
    }
}

/// Whether a number is written as in JSON.
fn is_json(written: &str) -> bool {
    written.starts_with(|c: char| c == '-' || c.is_ascii_digit())
        && serde_json::from_str::<serde::de::IgnoredAny>(written).is_ok()
}

pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
