//! The names of backends that are made of other products' names: addresses, packages, free text.
//!
//! Must not: know which names are taken.

use serde_json::Value;
use url::{Host, Url};

use super::looks::is_everyday;
use crate::model::naming::legal;

/// Words that say that something is an MCP server, and not which one.
const COMMON: &str = "mcp mcps server servers api app apps www sse http https stream streamable \
                      remote v1 v2 v3 gateway main master tree blob src dist index latest";

/// The names that are tried for a server called `name`, the best one first.
pub(super) fn names_for(name: &str) -> Vec<String> {
    if let Some((_, rest)) = name.split_once("://") {
        return of_address(name, rest);
    }
    // A package.
    if name.starts_with('@') || name.contains('/') {
        return vec![of_package(name)];
    }
    vec![if name.is_empty() { "server".to_owned() } else { tidy(name) }]
}

/// `name` without what may be a secret in it, if it is an address.
pub(super) fn shown(name: &str) -> String {
    let Some((scheme, rest)) = name.split_once("://") else { return name.to_owned() };
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().unwrap_or_default();
    let path = path.split('/').map(|part| if is_everyday(part) { part } else { "…" });
    format!("{scheme}://{host}{}", path.collect::<Vec<_>>().join("/"))
}

/// The name of a server that has none, of its address or of its package.
pub(super) fn name_of_entry(entry: &Value) -> String {
    let keys = ["url", "httpUrl", "serverUrl", "uri"];
    if let Some(url) = keys.iter().find_map(|key| entry[*key].as_str()) {
        return url.to_owned();
    }
    let parts = entry["command"].as_array().or_else(|| entry["args"].as_array());
    let words = parts.into_iter().flatten().filter_map(Value::as_str);
    let command = entry["command"].as_str().or_else(|| entry["cmd"].as_str()).unwrap_or_default();
    let program = command.rsplit('/').next().unwrap_or_default();
    let launchers = ["npx", "uvx", "bunx", "pnpx", "pipx", "uv", "npm", "pnpm", "bun", "deno"];
    let subcommands = ["run", "x", "exec", "dlx", "tool"];
    // The word behind an option may be its value, and a secret.
    let mut option_pending = false;
    let mut candidates = words.filter(|word| {
        let behind_option = std::mem::replace(&mut option_pending, takes_value(word));
        !word.starts_with('-') && !behind_option
    });
    let launched = candidates.find(|word| !subcommands.contains(word) && !launchers.contains(word));
    match launched.filter(|_| command.is_empty() || launchers.contains(&program)) {
        Some(package) => format!("@/{package}"),
        None => program.to_owned(),
    }
}

fn takes_value(word: &str) -> bool {
    let alone = ["-y", "--yes", "-q", "--quiet", "--bun", "-A", "--allow-all"];
    word.starts_with('-') && !word.contains('=') && !alone.contains(&word)
}

/// Of `https://mcp.linear.app/sse`, `linear`; and if that is taken, with a part of the path.
fn of_address(address: &str, rest: &str) -> Vec<String> {
    // A reference in it, such as `${HOST}`, makes it no URL.
    let url = Url::parse(address).ok();
    let host = url.as_ref().and_then(Url::host);
    let path = url.as_ref().map_or("", Url::path);
    // A single letter tells nothing.
    let path_words: Vec<String> =
        path.split('/').filter_map(telling).filter(|word| word.len() > 1).collect();
    let last = path_words.last();
    let word = match host {
        Some(Host::Domain(domain)) if is_code_host(domain) => last.cloned(),
        Some(Host::Domain(domain)) => of_package_page(path).or_else(|| of_domain(domain)),
        Some(Host::Ipv4(_) | Host::Ipv6(_)) => last.cloned(),
        None => telling(rest.split('/').next().unwrap_or_default()),
    };
    let base = word.or_else(|| last.cloned()).unwrap_or_else(|| "server".to_owned());
    let mut names = vec![base.clone()];
    if let Some(last) = last.filter(|last| **last != base) {
        names.push(format!("{base}_{last}"));
    }
    names
}

fn is_code_host(domain: &str) -> bool {
    ["github.com", "gitlab.com", "bitbucket.org"].contains(&domain)
}

/// The name of the package whose page is at `path`, such as `/package/@scope/NAME/v/1.2` or
/// `/project/NAME/1.2`. The host of such a page is a registry, whose name would fit every package.
fn of_package_page(path: &str) -> Option<String> {
    let mut words = path.split('/').filter(|word| !word.is_empty());
    if !matches!(words.next()?, "package" | "project") {
        return None;
    }
    let first = words.next().filter(|word| !is_version(word))?;
    let package = if first.starts_with('@') {
        format!("{first}/{}", words.next()?)
    } else {
        first.to_owned()
    };
    // With more behind it, this is the path of a server.
    if words.all(is_version) { Some(of_package(&package)) } else { None }
}

/// Whether `word` is a part of a version in a path: `v`, `1.2.0`.
fn is_version(word: &str) -> bool {
    word == "v" || word.starts_with(|c: char| c.is_ascii_digit())
}

/// The first part of a host's name that tells one server from another.
fn of_domain(domain: &str) -> Option<String> {
    let labels: Vec<&str> = domain.trim_end_matches('.').split('.').collect();
    let (_top, inner) = labels.split_last()?;
    // `localhost`, or a host of the intranet, has no top-level domain.
    let candidates = if inner.is_empty() { &labels[..] } else { inner };
    candidates.iter().find_map(|label| telling(label))
}

/// Of `@scope/mcp-server-files@1.2`, `files`; of `@playwright/mcp`, `playwright`.
fn of_package(package: &str) -> String {
    let mut words = package.rsplit('/').filter_map(|word| telling(without_version(word)));
    words.next().unwrap_or_else(|| "server".to_owned())
}

fn without_version(word: &str) -> &str {
    let word = word.strip_prefix('@').unwrap_or(word);
    word.split(['@', '#', '?', ':']).next().unwrap_or_default()
}

/// `word` without what only says that it is an MCP server; `None` if nothing else is in it, or if
/// it may be a secret.
fn telling(word: &str) -> Option<String> {
    let name = word.strip_suffix(".git").unwrap_or(word);
    let pieces = name.split(|c: char| !c.is_ascii_alphanumeric());
    let parts: Vec<&str> = pieces.filter(|part| !part.is_empty()).collect();
    let first = parts.iter().take_while(|part| is_common(part)).count();
    let last = parts.iter().rev().take_while(|part| is_common(part)).count();
    let distinct = parts.get(first..parts.len().saturating_sub(last))?;
    if distinct.is_empty() || !is_everyday(name) { None } else { Some(distinct.join("_")) }
}

fn is_common(part: &str) -> bool {
    COMMON.split_whitespace().any(|common| common.eq_ignore_ascii_case(part))
}

/// `name` with `_` in place of what a name cannot have, and with none at its ends.
fn tidy(name: &str) -> String {
    let legal = legal(name);
    let trimmed = legal.trim_matches('_');
    if trimmed.is_empty() || legal == name { legal } else { trimmed.to_owned() }
}
