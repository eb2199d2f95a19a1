//! Globs and rules for tools and their calls: which are offered, and which calls a person must
//! approve. And quotas.
//!
//! Must not: know the tools of any server, or how a person is asked.

use globset::Glob;

use super::{MAX_REFRESH, Validator, all};
use crate::config::file_format::Condition as Comparison;
use crate::config::scalars::Globs as Written;
use crate::config::{At, GlobOrRule, List, NodeId, Quota, ToolFilter, file_format};
use crate::model::globs::Globs;
use crate::model::rules::{Condition, Rule, Test, keys};
use crate::model::{BackendName, Policy};

/// The most globs and rules of one list, and conditions of one rule: all may be tried at each call.
const MAX_RULES: usize = 100;
const MAX_CONDITIONS: usize = 20;
/// The most calls of a quota, as the bridge keeps the time of each.
const MAX_CALLS: usize = 100_000;

impl Validator<'_> {
    /// The filter of `allow` and `deny` in `tools`.
    pub(super) fn tool_filter(
        &self,
        allow: Option<&List<String>>,
        deny: Option<&At<Written>>,
    ) -> ToolFilter {
        let denied = |list: &At<Written>| self.rules(list.node, &list.value.0);
        ToolFilter {
            allow: allow.map(|at| self.plain_globs(at)),
            deny: deny.map(denied).unwrap_or_default(),
        }
    }

    pub(super) fn plain_globs(&self, list: &List<String>) -> Globs {
        self.globs(list.node, list.value.iter().filter_map(|at| self.rule(at.node, at, &[])))
    }

    /// The globs and rules of the list `whole`.
    pub(super) fn rules<'g>(
        &self,
        whole: NodeId,
        list: impl IntoIterator<Item = &'g At<GlobOrRule>>,
    ) -> Globs {
        let rules = list.into_iter().filter_map(|At { value, node }| match value {
            GlobOrRule::Glob(glob) => {
                self.rule(*node, &At { value: glob.clone(), node: *node }, &[])
            }
            GlobOrRule::Rule(file_format::Rule { tool, when }) => {
                let cure = "write `tool: GLOB`; `\"*\"` is for all";
                let tool = self.needed(*node, tool, "nothing says of which tools this is", cure)?;
                let Some(when) = when.as_ref().filter(|when| !when.value.is_empty()) else {
                    let cure = "write `when: [{path: /amount, gt: 1000}]`, or the glob alone";
                    return self.missing(*node, "nothing says of which calls this is", cure);
                };
                self.at_most(when.node, when.value.len(), MAX_CONDITIONS, "conditions");
                self.rule(*node, tool, &when.value)
            }
        });
        self.globs(whole, rules)
    }

    fn globs(&self, whole: NodeId, rules: impl Iterator<Item = Rule>) -> Globs {
        let rules: Vec<Rule> = rules.collect();
        let with_conditions = rules.iter().filter(|rule| !rule.when.is_empty()).count();
        self.at_most(whole, with_conditions, MAX_RULES, "rules");
        Globs::new(rules).unwrap_or_else(|error| {
            let cure = "write fewer or shorter globs";
            self.error(whole, format!("the globs cannot be compiled: {error}"), cure);
            Globs::default()
        })
    }

    /// The rule, or the glob, `node`.
    fn rule(&self, node: NodeId, tool: &At<String>, when: &[At<Comparison>]) -> Option<Rule> {
        let cure = "write a tool's name, with * for any characters and ? for one";
        let when = all(when.iter().map(|at| self.condition(at)));
        let (glob, when) = (self.glob(tool, cure)?, when?);
        let place = format!("{}, line {}", self.document.path(node), self.line(node));
        Some(Rule { glob, when, place })
    }

    fn glob(&self, At { value, node }: &At<String>, cure: &str) -> Option<Glob> {
        let told = |error: globset::Error| format!("`{value}` is no glob: {}", error.kind());
        Glob::new(value).map_err(|error| self.error(*node, told(error), cure)).ok()
    }

    fn condition(&self, At { value, node }: &At<Comparison>) -> Option<Condition> {
        let Comparison { path, gt, lt, glob } = value;
        let cure = "write `path: /amount`: a JSON Pointer into the arguments";
        let message = "nothing says which argument this is about";
        let At { value: path, node: path_node } = self.needed(*node, path, message, cure)?;
        let keys = keys(path).or_else(|| {
            let cure = "write `/` before each key, such as /options/force; `~1` stands for a `/` in \
                        a key, `~0` for a `~`";
            self.refuse(*path_node, format!("`{path}` is no JSON Pointer to an argument"), cure)
        });
        let cure = "write a text as the argument has it, with * for any characters";
        let tests = [
            gt.as_ref().map(|at| Some(Test::Gt(self.limit(at)?))),
            lt.as_ref().map(|at| Some(Test::Lt(self.limit(at)?))),
            glob.as_ref().map(|at| Some(Test::Glob(self.glob(at, cure)?.compile_matcher()))),
        ];
        let mut tests = tests.into_iter().flatten();
        match (tests.next(), tests.next()) {
            (Some(test), None) => Some(Condition { path: path.clone(), keys: keys?, test: test? }),
            (None, _) => {
                let cure = "write one of `gt`, `lt` and `glob` into it";
                self.missing(*node, "this compares the argument with nothing", cure)
            }
            (Some(_), Some(_)) => {
                let cure = "write a condition for each; all of `when` must hold";
                self.refuse(*node, "a condition has one comparison", cure)
            }
        }
    }

    fn limit(&self, &At { value, node }: &At<f64>) -> Option<f64> {
        let cure = "write a number with digits, such as 1000";
        let refuse = || self.refuse(node, "nothing can be compared with this number", cure);
        if value.is_finite() { Some(value) } else { refuse() }
    }

    /// Reads an MCP server's `approve`: globs of the server's names, and the word.
    pub(super) fn approve(&self, at: Option<&At<Written>>) -> Policy {
        let Some(At { value: Written(written), node }) = at else { return Policy::default() };
        let (words, rules): (Vec<_>, Vec<_>) = written.iter().partition(|at| is_word(at));
        Policy { tools: self.rules(*node, rules), destructive: !words.is_empty() }
    }

    /// Reads an agent's `approve`: its one tool goes by the agent's name, and has no hints.
    pub(super) fn approve_agent(&self, name: &BackendName, at: Option<&At<Written>>) -> Policy {
        let policy = self.approve(at);
        let Some(At { value: Written(written), node }) = at else { return policy };
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

    pub(super) fn quota(&self, at: &At<file_format::Quota>) -> Option<Quota> {
        let file_format::Quota { calls, per, identical } = &at.value;
        let length = self.duration(per.as_ref(), MAX_REFRESH, "");
        let missing = |what, cure| self.missing(at.node, what, cure);
        let of_time = match (calls, length) {
            (Some(calls), Some(length)) => {
                self.at_most(calls.node, calls.value.0, MAX_CALLS, "calls");
                Some((calls.value.0, length))
            }
            (None, None) if identical.is_some() => None,
            (None, None) => {
                return missing("this limits nothing", "write `calls: 100` and `per: 1h`");
            }
            (Some(_), None) => return missing("`per` is missing", "write `per: 1h` to it"),
            (None, Some(_)) => return missing("`calls` is missing", "write `calls: 100` to it"),
        };
        Some(Quota { calls: of_time, identical: identical.as_ref().map(|at| at.value.0) })
    }

    fn at_most(&self, node: NodeId, count: usize, most: usize, what: &str) {
        if count > most {
            self.error(node, format!("these are {count} {what}"), format!("write at most {most}"));
        }
    }
}

/// Whether this is the word among the globs that stands for all tools which may destroy something.
fn is_word(at: &At<GlobOrRule>) -> bool {
    matches!(&at.value, GlobOrRule::Glob(glob) if glob == "destructive")
}
