//! The value of `approve`: which calls of a backend a person must approve.
//!
//! Must not: know how a person is asked.

use super::Validator;
use crate::config::{At, GlobOrRule, Globs};
use crate::model::{BackendName, Policy};

/// Whether this is the word among the globs that stands for all tools which may destroy something.
fn is_word(at: &At<GlobOrRule>) -> bool {
    matches!(&at.value, GlobOrRule::Glob(glob) if glob == "destructive")
}

impl Validator<'_> {
    /// Reads an MCP server's `approve`: globs of the server's names, and the word.
    pub(super) fn approve(&self, at: Option<&At<Globs>>) -> Policy {
        let Some(At { value: Globs(written), node }) = at else { return Policy::default() };
        let (words, rules): (Vec<_>, Vec<_>) = written.iter().partition(|at| is_word(at));
        Policy { tools: self.rules(*node, rules), destructive: !words.is_empty() }
    }

    /// Reads an agent's `approve`: its one tool goes by the agent's name, and has no hints.
    pub(super) fn approve_agent(&self, name: &BackendName, at: Option<&At<Globs>>) -> Policy {
        let policy = self.approve(at);
        let Some(At { value: Globs(written), node }) = at else { return policy };
        let cure =
            "write `approve: [\"*\"]` to be asked before every message to it, or leave it out";
        for at in written.iter().filter(|at| is_word(at)) {
            self.error(at.node, "an agent does not say what may destroy something", cure);
        }
        let conditions = written.iter().filter_map(|at| match &at.value {
            GlobOrRule::Rule(rule) => rule.when.as_ref(),
            GlobOrRule::Glob(_) => None,
        });
        let paths = conditions.flat_map(|when| &when.value).filter_map(|at| at.value.path.as_ref());
        for path in paths.filter(|path| !path.value.eq_ignore_ascii_case("/message")) {
            let message = format!("an agent has no argument `{}`", path.value);
            self.error(path.node, message, "write `path: /message`, its only argument");
        }
        let asks_nothing = !policy.tools.is_empty() && !policy.tools.has(name.as_str());
        if asks_nothing && !policy.destructive {
            let message = format!("no glob matches `{name}`, the name of this agent's one tool");
            self.error(*node, message, cure);
        }
        policy
    }
}
