//! Globs and rules for tools and their calls: which are offered, and which calls a person must
//! approve. And quotas.
//!
//! Must not: know the tools of any server, or how a person is asked.

use globset::Glob;

use super::{MAX_REFRESH, Validator, all, mistakes};
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
        ToolFilter {
            allow: allow.map(|at| self.plain_globs(at)),
            deny: deny.map(|list| self.rules(list.node, &list.value.0)).unwrap_or_default(),
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
                let tool = self.needed(*node, tool, mistakes::rule_tool())?;
                let Some(when) = when.as_ref().filter(|when| !when.value.is_empty()) else {
                    return self.missing(*node, mistakes::rule_when());
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
            self.error(whole, mistakes::no_globs(error));
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
        match Glob::new(value) {
            Ok(glob) => Some(glob),
            Err(error) => self.refuse(*node, mistakes::no_glob(value, error.kind(), cure)),
        }
    }

    fn condition(&self, At { value, node }: &At<Comparison>) -> Option<Condition> {
        let Comparison { path, gt, lt, glob } = value;
        let At { value: path, node: path_node } =
            self.needed(*node, path, mistakes::condition_path())?;
        let keys = keys(path).or_else(|| self.refuse(*path_node, mistakes::no_pointer(path)));
        let cure = "write a text as the argument has it, with * for any characters";
        let comparisons = [
            gt.as_ref().map(|at| Some(Test::Gt(self.limit(at)?))),
            lt.as_ref().map(|at| Some(Test::Lt(self.limit(at)?))),
            glob.as_ref().map(|at| Some(Test::Glob(self.glob(at, cure)?.compile_matcher()))),
        ];
        let mut tests = comparisons.into_iter().flatten();
        match (tests.next(), tests.next()) {
            (Some(test), None) => Some(Condition { path: path.clone(), keys: keys?, test: test? }),
            (None, _) => self.missing(*node, mistakes::no_comparison()),
            (Some(_), Some(_)) => self.refuse(*node, mistakes::two_comparisons()),
        }
    }

    fn limit(&self, &At { value, node }: &At<f64>) -> Option<f64> {
        if value.is_finite() { Some(value) } else { self.refuse(node, mistakes::no_limit()) }
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
        for at in written.iter().filter(|at| is_word(at)) {
            self.error(at.node, mistakes::agent_destroys());
        }
        let conditions = written.iter().filter_map(|at| match &at.value {
            GlobOrRule::Rule(rule) => rule.when.as_ref(),
            GlobOrRule::Glob(_) => None,
        });
        let paths = conditions.flat_map(|when| &when.value).filter_map(|at| at.value.path.as_ref());
        for path in paths.filter(|path| !path.value.eq_ignore_ascii_case("/message")) {
            self.error(path.node, mistakes::agent_argument(&path.value));
        }
        let asks_nothing = !policy.tools.is_empty() && !policy.tools.has(name.as_str());
        if asks_nothing && !policy.destructive {
            self.error(*node, mistakes::agent_glob(name));
        }
        policy
    }

    pub(super) fn quota(&self, at: &At<file_format::Quota>) -> Option<Quota> {
        let file_format::Quota { calls, per, identical } = &at.value;
        let length = self.duration(per.as_ref(), MAX_REFRESH, "");
        let calls_per = match (calls, length) {
            (Some(calls), Some(length)) => {
                self.at_most(calls.node, calls.value.0, MAX_CALLS, "calls");
                Some((calls.value.0, length))
            }
            (None, None) if identical.is_some() => None,
            (None, None) => return self.missing(at.node, mistakes::empty_quota()),
            (Some(_), None) => return self.missing(at.node, mistakes::no_per()),
            (None, Some(_)) => return self.missing(at.node, mistakes::no_calls()),
        };
        Some(Quota { calls: calls_per, identical: identical.as_ref().map(|at| at.value.0) })
    }

    fn at_most(&self, node: NodeId, count: usize, most: usize, what: &str) {
        if count > most {
            self.error(node, mistakes::too_many(count, what, most));
        }
    }
}

/// `destructive` is no glob: it stands for all tools that may destroy something.
fn is_word(at: &At<GlobOrRule>) -> bool {
    matches!(&at.value, GlobOrRule::Glob(glob) if glob == "destructive")
}
