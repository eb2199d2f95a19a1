//! A value of the file as JSON text: its keys in their order, its numbers as they are written.
//!
//! Must not: know the purpose of the value.

use super::Validator;
use crate::config::document::{Kind, Node, NodeId};

impl Validator<'_> {
    /// The JSON text of a value of the file. A value that JSON cannot express is reported as a
    /// mistake.
    pub(super) fn json(&self, id: NodeId) -> Option<String> {
        let mut text = String::new();
        self.write_json(self.document.node(id)?, &mut text).then_some(text)
    }

    fn write_json(&self, node: &Node, text: &mut String) -> bool {
        match &node.kind {
            Kind::Null => text.push_str("null"),
            Kind::Bool(value) => text.push_str(if *value { "true" } else { "false" }),
            // YAML has more forms of a number than JSON.
            Kind::Int(_, written) | Kind::Float(_, written) if is_json(written) => {
                text.push_str(written);
            }
            Kind::Int(value, _) => text.push_str(&value.to_string()),
            Kind::Float(value, _) if value.is_finite() => text.push_str(&value.to_string()),
            Kind::Float(..) => {
                let message = "JSON has no such number";
                self.error(node.id, message, "write a finite number, or a text in quotes");
                return false;
            }
            Kind::Str(value) => text.push_str(&quoted(value)),
            Kind::Seq(items) => {
                return self.write_all('[', items.iter().map(|i| (None, i)), ']', text);
            }
            Kind::Map(entries) => {
                let entries = entries.iter().map(|(key, node)| (Some(key.as_str()), node));
                return self.write_all('{', entries, '}', text);
            }
        }
        true
    }

    fn write_all<'n>(
        &self,
        open: char,
        parts: impl Iterator<Item = (Option<&'n str>, &'n Node)>,
        close: char,
        text: &mut String,
    ) -> bool {
        let mut complete = true;
        text.push(open);
        for (at, (key, node)) in parts.enumerate() {
            if at > 0 {
                text.push(',');
            }
            if let Some(key) = key {
                text.push_str(&quoted(key));
                text.push(':');
            }
            complete &= self.write_json(node, text);
        }
        text.push(close);
        complete
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
