//! What restricts a backend: which of its tools are offered, which calls wait for a person, and the
//! limits of its calls and of its program.
//!
//! Must not: show a pattern of `redact`, which may be a part of a secret.

use humantime::format_duration;
use serde_json::{Value, json};

use super::Member;
use crate::config::{Backend, Quota, Start};
use crate::model::globs::Globs;
use crate::model::{OfferMode, Policy};

/// The members; `null` where the file says nothing.
pub(super) fn limits(backend: &Backend) -> Vec<Member> {
    let Backend { naming, approve, redact, max_result, quota, start, .. } = backend;
    let defaults = Start::default();
    let start_timeout = if start.timeout == defaults.timeout {
        Value::Null
    } else {
        json!(format_duration(start.timeout).to_string())
    };
    let offer = if naming.offer == OfferMode::All { Value::Null } else { json!(naming.offer) };
    let rename = if naming.rename.is_empty() { Value::Null } else { json!(naming.rename) };
    vec![
        ("toolsAllow", naming.tools.allow.as_ref().map_or(Value::Null, list)),
        ("toolsDeny", unless_empty(&naming.tools.deny)),
        ("toolsRename", rename),
        ("offer", offer),
        ("always", unless_empty(&naming.always)),
        ("approveRules", approvals(approve)),
        ("redact", redacted(redact.0.len())),
        ("maxResult", json!(max_result)),
        ("quota", quota.as_ref().map_or(Value::Null, allowance)),
        ("start", if start.is_lazy { json!("lazy") } else { Value::Null }),
        ("startTimeout", start_timeout),
        ("idleStop", json!(start.idle_stop.map(|time| format_duration(time).to_string()))),
    ]
}

/// The globs, as they stand in the file; one with conditions is marked.
fn list(globs: &Globs) -> Value {
    let texts = globs.rules().iter().map(|rule| {
        let mark = if rule.when.is_empty() { "" } else { " (some calls)" };
        format!("{}{mark}", rule.glob.glob())
    });
    json!(texts.collect::<Vec<_>>())
}

fn unless_empty(globs: &Globs) -> Value {
    if globs.is_empty() { Value::Null } else { list(globs) }
}

fn approvals(policy: &Policy) -> Value {
    let mut rules = list(&policy.tools);
    if policy.destructive
        && let Some(texts) = rules.as_array_mut()
    {
        texts.push(json!("destructive"));
    }
    if policy.is_empty() { Value::Null } else { rules }
}

fn redacted(count: usize) -> Value {
    match count {
        0 => Value::Null,
        1 => json!("1 pattern"),
        _ => json!(format!("{count} patterns")),
    }
}

fn allowance(quota: &Quota) -> Value {
    let calls = quota.calls.map(|(calls, per)| format!("{calls} per {}", format_duration(per)));
    json!({ "calls": calls, "identical": quota.identical })
}
