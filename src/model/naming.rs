//! From the names that peers give their tools to the names that the model sees.
//!
//! MANTYX takes `^[a-zA-Z0-9_]{1,64}$` and never prefixes `mcp_local` names itself
//! (agent-runs-protocol §4.3), so prefixes, illegal characters, length and clashes are settled
//! here. The result depends on the set of tools, never on their order.
//!
//! Must not: know refs, runs or connections.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

use super::OfferMode;
use super::catalog::hex;
use super::globs::Globs;

use crate::model::maps::HashMap;

/// The longest model-facing name, in bytes.
pub const MAX_LEN: usize = 64;
/// How many bytes of a name are kept before a hash suffix (`_` and 8 hex digits).
const KEPT: usize = MAX_LEN - 1 - HASH_LEN;
const HASH_LEN: usize = 8;

/// How the tools of one backend are filtered and named. An A2A agent has the default.
#[derive(Debug, Clone, Default)]
pub struct Naming {
    pub prefix: String,
    /// The tools that are offered, by the server's own names.
    pub tools: ToolFilter,
    /// Maps the server's name for a tool to the name that replaces it, before the prefix.
    pub rename: BTreeMap<String, String>,
    /// Whether a model is given the tools, or searches for them.
    pub offer: OfferMode,
    /// The tools that it is given in any case, by the server's own names.
    pub always: Globs,
}

/// Some of a server's tools, by its own names. The default is all of them.
#[derive(Debug, Clone, Default)]
pub struct ToolFilter {
    /// Tools whose name matches; `None` means all.
    pub allow: Option<Globs>,
    /// Tools that are left out, even where `allow` names them.
    pub deny: Globs,
}

impl ToolFilter {
    /// Whether the tool that the server calls `tool` is among them.
    pub fn passes(&self, tool: &str) -> bool {
        self.allow.as_ref().is_none_or(|allow| allow.is_match(tool)) && !self.deny.is_match(tool)
    }
}

impl Naming {
    /// The name for `tool`, if it is short enough and no other tool wants it.
    pub fn wanted(&self, tool: &str) -> String {
        let name = self.rename.get(tool).map_or(tool, String::as_str);
        let doubled = name.starts_with(&self.prefix);
        let prefix = if doubled { "" } else { self.prefix.as_str() };
        legal(&[prefix, name].concat())
    }
}

/// One tool that has no final name yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nameless<'a> {
    pub backend: &'a str,
    /// The peer's own name for the tool; empty for an A2A agent.
    pub tool: &'a str,
    /// The result of [`Naming::wanted`].
    pub wanted: String,
}

/// The final names of `tools`, in their order: all legal, no two alike.
pub fn assign(tools: &[Nameless<'_>]) -> Vec<String> {
    let mut names: Vec<String> = tools
        .iter()
        .map(|tool| match tool.wanted.len() {
            1..=MAX_LEN => tool.wanted.clone(),
            _ => suffixed(&tool.wanted, tool.backend, tool.tool, 0),
        })
        .collect();
    // The first round gives every tool of a clash its suffix. A suffixed name can equal a name that
    // a server chose to look like it; further rounds take other hashes for both.
    for round in 0.. {
        let mut holders: HashMap<&str, usize> = HashMap::default();
        for name in &names {
            *holders.entry(name).or_default() += 1;
        }
        let clashes: Vec<bool> = names.iter().map(|name| holders[name.as_str()] > 1).collect();
        if !clashes.contains(&true) {
            break;
        }
        let clashing = names.iter_mut().zip(tools).zip(clashes).filter(|(_, clashes)| *clashes);
        for ((name, tool), _) in clashing {
            *name = suffixed(&tool.wanted, tool.backend, tool.tool, round);
        }
    }
    names
}

/// `name` for a tool that cannot have it: its beginning and a hash of the tool's identity.
pub fn suffixed(name: &str, backend: &str, tool: &str, round: u32) -> String {
    let round = if round > 0 { format!("#{round}") } else { String::new() };
    let digest = hex(&Sha256::digest(format!("{backend}/{tool}{round}")));
    let beginning: String = name.chars().take(KEPT).collect();
    let hash: String = digest.chars().take(HASH_LEN).collect();
    format!("{beginning}_{hash}")
}

/// `name` with every character that MANTYX does not take replaced by `_`.
pub fn legal(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests;
