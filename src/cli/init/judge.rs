//! Has the configuration's own checks judge what was said, so that `init` writes no invalid file.
//!
//! Must not: dial an address.

use std::path::Path;

use serde_json::Value;

use crate::config::{Config, Environment};

/// Whether a workspace can have this name; the error says why not.
pub(super) fn workspace(name: &str) -> Result<(), String> {
    let name = Value::from(name);
    judged(&format!("upstream: {{sandbox: true, workspace: {name}}}\n"), &Environment::bare())
}

/// Whether a backend of `section` can be at `url`; the error says why not.
pub(super) fn url(section: &str, url: &str, env: &Environment) -> Result<(), String> {
    let url = Value::from(url);
    judged(&format!("upstream: {{sandbox: true}}\n{section}: {{probe: {{url: {url}}}}}\n"), env)
        .map_err(|why| format!("this is no address: {why}"))
}

fn judged(text: &str, env: &Environment) -> Result<(), String> {
    let text = format!("state_dir: /nonexistent\n{text}");
    let judged = Config::parse(&text, Path::new("(what was said)"), env);
    judged.map(drop).map_err(|errors| {
        let first = errors.problems.into_iter().next();
        first
            .map(|first| [first.message, first.cure.unwrap_or_default()].join("; "))
            .unwrap_or_default()
    })
}
