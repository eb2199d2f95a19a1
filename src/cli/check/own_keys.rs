//! What the text of `check` says of a backend: in the keys of bridge.yaml, and only what differs
//! from their defaults. The JSON has everything.
//!
//! Must not: leave out what a person has to have written.

use serde_json::{Value, json};

use super::Member;

/// The members for people, under the keys of bridge.yaml.
pub(super) fn own_keys(name: &Value, kind: &Value, members: &[Member]) -> Vec<(String, Value)> {
    let reached = members.iter().find(|(key, _)| *key == "reached");
    let reached = reached.and_then(|(_, value)| value.as_str()).unwrap_or_default();
    let mut rows = Vec::new();
    for (key, value) in members {
        // The rules say more than whether there are some.
        if *key == "approve" || *value == default_of(key, name, kind, reached) {
            continue;
        }
        // An empty text would not be seen, and nor would `false`, where that is not the default.
        let value = match value {
            Value::String(text) if text.is_empty() => json!("\"\""),
            Value::Bool(false) if *key == "listen" => json!("false"),
            value => value.clone(),
        };
        rows.push((own_key(key, kind).to_owned(), value));
    }
    rows
}

/// The key of bridge.yaml.
fn own_key<'a>(key: &'a str, kind: &Value) -> &'a str {
    match key {
        "callTimeout" if *kind == "local" => "timeout",
        "argv" => "command",
        "path" => "card_file",
        "trustAnnotations" => "trust_annotations",
        "onUnavailable" => "on_unavailable",
        "callTimeout" => "call_timeout",
        "pendingAfter" => "pending_after",
        "toolsAllow" => "tools.allow",
        "toolsDeny" => "tools.deny",
        "toolsRename" => "tools.rename",
        "approveRules" => "approve",
        "maxResult" => "max_result",
        "startTimeout" => "start_timeout",
        "idleStop" => "idle_stop",
        other => other,
    }
}

/// What holds where the file says nothing of it.
fn default_of(key: &str, name: &Value, kind: &Value, reached: &str) -> Value {
    let is_agent = *kind == "a2a";
    match key {
        // The other keys say it.
        "reached" if matches!(reached, "bundled" | "internal" | "unresolved") => Value::Null,
        "reached" => json!(reached),
        "prefix" => json!(format!("{}_", name.as_str().unwrap_or_default())),
        "pin" if *kind == "local" || reached == "bundled" => json!("off"),
        "pin" => json!("warn"),
        "onUnavailable" => json!("stale"),
        "listen" => json!(true),
        "refresh" => json!("5m"),
        "callTimeout" => json!(if is_agent { "1h" } else { "285s" }),
        "pendingAfter" if is_agent => json!("4m"),
        "concurrency" => json!(if matches!(reached, "stdio" | "command") { 4 } else { 16 }),
        _ => Value::Null,
    }
}
