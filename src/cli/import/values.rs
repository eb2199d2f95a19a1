//! Single values of other products' entries: lists of names, times, references.
//!
//! Must not: know which key a value belongs to.

use std::time::Duration;

use serde_json::Value;

use crate::config::foreign::TimeUnit;
use crate::config::value::parse_duration;

/// The name in `$NAME`, and in what Copilot's agent takes for the name of a secret.
pub(super) fn variable(text: &str) -> Option<&str> {
    let name = match text.strip_prefix('$') {
        Some(name) => name,
        None if text.starts_with("COPILOT_MCP_") => text,
        None => return None,
    };
    if !name.starts_with(|c: char| c.is_ascii_uppercase() || c == '_') {
        return None;
    }
    if name.contains(|c: char| !c.is_ascii_uppercase() && !c.is_ascii_digit() && c != '_') {
        return None;
    }
    Some(name)
}

/// The texts of a list, or of one text.
pub(super) fn texts(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::String(text) => {
            let names = text.split([',', ' ']).filter(|name| !name.is_empty());
            Some(names.map(str::to_owned).collect())
        }
        Value::Array(items) => items.iter().map(|item| item.as_str().map(str::to_owned)).collect(),
        _ => None,
    }
}

pub(super) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        _ => false,
    }
}

/// A glob that matches this name alone.
pub(super) fn literal(name: &str) -> String {
    bracketed(name, "*?[]{}")
}

/// A glob that matches this name and, as it restricts, what its stars stand for.
pub(super) fn glob(name: &str) -> String {
    bracketed(name, "[]{}")
}

fn bracketed(name: &str, special: &str) -> String {
    let mut glob = String::new();
    for c in name.chars() {
        if special.contains(c) {
            glob.extend(['[', c, ']']);
        } else {
            glob.push(c);
        }
    }
    glob
}

pub(super) fn duration(value: &Value, unit: TimeUnit) -> Option<Duration> {
    let number = match value {
        Value::String(text) => match parse_duration(text) {
            Some(time) => return Some(time).filter(|time| !time.is_zero()),
            None => text.parse().ok()?,
        },
        value => value.as_f64()?,
    };
    let in_milliseconds = match unit {
        TimeUnit::Seconds => false,
        TimeUnit::Milliseconds => true,
        // People write 30, 60 and 3600 for seconds, and 1500 and 30000 for milliseconds.
        TimeUnit::Unclear => number > 3600.0 || (number >= 1000.0 && number % 500.0 == 0.0),
    };
    let seconds = if in_milliseconds { number / 1000.0 } else { number };
    let time = Duration::try_from_secs_f64(seconds).ok()?;
    let milliseconds = u64::try_from(time.as_millis()).ok().filter(|time| *time > 0)?;
    Some(Duration::from_millis(milliseconds))
}
