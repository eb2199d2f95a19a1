//! What is said of other products' keys in bridge.yaml.

use std::path::Path;

use super::{ForeignKey, foreign_key};
use crate::config::{Config, Environment};

/// A key, and what its cure says.
struct Pasted {
    entry: &'static str,
    cure: &'static str,
}

const fn pasted(entry: &'static str, cure: &'static str) -> Pasted {
    Pasted { entry, cure }
}

#[test]
fn pasted_key_of_another_product_is_refused_with_what_to_write() {
    for Pasted { entry, cure } in [
        pasted("command: x, excludeTools: [rm]", "`tools: {deny: [NAME, …]}`"),
        pasted("command: x, disabledTools: [rm]", "`tools: {deny: [NAME, …]}`"),
        pasted("command: x, disabled_tools: [rm]", "`tools: {deny: [NAME, …]}`"),
        pasted("command: x, includeTools: [ls]", "`tools: {allow: [NAME, …]}`"),
        pasted("command: x, enabled_tools: [ls]", "`tools: {allow: [NAME, …]}`"),
        pasted("command: x, tools: [ls]", "`tools: {allow: [NAME, …]}`"),
        pasted("command: x, tools: ['*']", "`tools: {allow: [NAME, …]}`"),
        pasted("command: x, isActive: false", "`disabled: true` in place of `isActive: false`"),
        pasted("command: x, enabled: false", "`disabled: true` in place of `enabled: false`"),
        pasted("command: x, active: false", "`disabled: true` in place of `active: false`"),
        pasted("command: x, alwaysAllow: [ls]", "`approve`"),
        pasted("command: x, default_tools_approval_mode: prompt", "`approve: [NAME, …]`"),
        pasted("httpUrl: 'https://x.test'", "`url`, and `transport: streamable-http`"),
        pasted("cmd: x", "write it as `command`"),
        pasted("command: x, envs: {A: b}", "write it as `env`"),
        pasted("command: x, timeout: 60", "`call_timeout: 60s`"),
        pasted("command: x, startup_timeout_sec: 60", "`start_timeout: 60s`"),
        pasted("url: 'https://x.test', bearer_token_env_var: T", "`auth: {bearer:"),
        pasted("url: 'https://x.test', oauth: {}", "`auth: {oauth:"),
        pasted("command: x, iconPath: /a.png", "leave it out"),
    ] {
        for section in ["mcp", "mcpServers"] {
            let text = format!(
                "upstream: {{sandbox: true}}\nstate_dir: /s\n{section}: {{a: {{{entry}}}}}"
            );
            let errors = Config::parse(&text, Path::new("/b.yaml"), &Environment::bare());
            let errors = errors.expect_err(entry).problems;
            let cures: Vec<_> = errors.iter().filter_map(|one| one.cure.as_deref()).collect();
            assert!(cures.iter().any(|one| one.contains(cure)), "{entry}: {cures:?}");
        }
    }
}

#[test]
fn pasted_section_of_another_product_names_import() {
    for section in ["servers", "context_servers", "mcp_servers", "extensions", "projects"] {
        let text = format!("upstream: {{sandbox: true}}\nstate_dir: /s\n{section}: {{}}");
        let errors = Config::parse(&text, Path::new("/b.yaml"), &Environment::bare());
        let shown = errors.expect_err(section).to_string();
        assert!(shown.contains("mantyx-bridge import FILE"), "{shown}");
    }
}

#[test]
fn foreign_key_is_the_same_in_every_spelling() {
    for key in ["excludeTools", "exclude_tools", "exclude-tools", "ExcludeTools"] {
        assert_eq!(foreign_key(key), Some(ForeignKey::Denied), "{key}");
    }
    assert_eq!(foreign_key("no_such_key"), None);
}

#[test]
fn foreign_keys_are_each_there_once() {
    let mut names: Vec<&str> =
        super::KEYS.iter().flat_map(|(_, names)| names.split_whitespace()).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn timeout_of_an_agent_is_told_to_be_call_timeout() {
    let text = "upstream: {sandbox: true}\nstate_dir: /s\n\
                a2a: {h: {url: 'https://x.test', timeout: 30}}";
    let errors = Config::parse(text, Path::new("/b.yaml"), &Environment::bare());
    let cure = errors.unwrap_err().problems.remove(0).cure.unwrap();
    assert!(cure.contains("`call_timeout: 60s`"), "{cure}");
}
