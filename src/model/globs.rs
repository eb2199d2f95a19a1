//! Globs of bridge.yaml that choose tools, by the backend's own names.
//!
//! Pure.
//!
//! Must not: know what becomes of the tools that match.

use std::cell::LazyCell;
use std::iter::once;

use globset::GlobSet;
use serde_json::Value;
use serde_json::value::RawValue;

use super::catalog::Tool;
use super::rights::Rules;
use super::rules::{Condition, ConditionTree, Rule};
use super::visible::at_most;
use super::{BackendName, Catalog, Content, Rights, ToolFilter};

/// The most mistakes that are named: a long configuration is corrected in one go.
const MAX_IDLE: usize = 50;

/// Globs, some of which match only calls with certain arguments.
#[derive(Debug, Clone, Default)]
pub struct Globs {
    set: GlobSet,
    /// In the order of the set.
    rules: Vec<Rule>,
    conditions: ConditionTree,
}

impl Globs {
    /// # Errors
    ///
    /// They cannot be compiled together.
    pub fn new(rules: Vec<Rule>) -> Result<Self, globset::Error> {
        let set = GlobSet::new(rules.iter().map(|rule| &rule.glob))?;
        Ok(Self { set, conditions: ConditionTree::new(&rules), rules })
    }

    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The rules in the order of the file.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Whether one of them matches all calls of the tool `name`.
    pub fn is_match(&self, name: &str) -> bool {
        self.matching(name).any(|rule| rule.when.is_empty())
    }

    /// Whether one of them matches some calls of the tool `name`.
    pub fn has(&self, name: &str) -> bool {
        self.set.is_match(name)
    }

    /// The first that matches a call of the tool `name` with these arguments.
    pub fn of_call(&self, name: &str, arguments: &str) -> Option<&Rule> {
        self.rules.get(self.conditions.first(&self.set.matches(name), arguments)?)
    }

    fn matching(&self, name: &str) -> impl Iterator<Item = &Rule> {
        self.set.matches(name).into_iter().filter_map(|at| self.rules.get(at))
    }

    /// Says of each that has no effect on any of `tools` why, and its place.
    fn idle(&self, tools: &[Tool]) -> impl Iterator<Item = String> {
        // For each rule, the conditions that the tool does not know which knows most of them.
        let mut unknown = vec![None::<Vec<&Condition>>; self.rules.len()];
        for tool in tools {
            let schema = LazyCell::new(|| -> Value {
                let text = tool.input.schema().map_or("null", RawValue::get);
                serde_json::from_str(text).unwrap_or_default()
            });
            for at in self.set.matches(&tool.name) {
                let of_tool = self.rules[at].when.iter().filter(|one| !one.is_known(&schema));
                match &mut unknown[at] {
                    Some(least) if least.is_empty() => {}
                    Some(least) if least.len() <= of_tool.clone().count() => {}
                    least => *least = Some(of_tool.collect()),
                }
            }
        }
        self.rules.iter().zip(unknown).filter_map(|(rule, unknown)| {
            let with = match unknown {
                None => String::new(),
                Some(unknown) => format!(" with `{}`", unknown.first()?.path),
            };
            Some(format!("`{}`{with} ({})", rule.glob, rule.place))
        })
    }
}

/// Names the globs for the tools of `backend`, in its own entry and in those of apps, that match
/// none of the tools that its server has, the rules whose arguments none of these has, and the
/// tools that it has not, and that are renamed. A mistyped `approve` or `deny` lets calls pass.
pub fn idle<'a>(
    backend: &BackendName,
    catalog: &Catalog,
    rules: Rules<'a>,
    apps: impl Iterator<Item = &'a Rights>,
) -> Option<String> {
    let Content::Mcp { tools, .. } = catalog.content() else { return None };
    let mut filters: Vec<&ToolFilter> = vec![&rules.naming.tools];
    filters.extend(apps.filter_map(|app| app.tools.get(backend)));
    // First those whose mistake lets calls pass.
    let globs = once(&rules.approve.tools)
        .chain(filters.iter().map(|filter| &filter.deny))
        .chain(filters.iter().filter_map(|filter| filter.allow.as_ref()))
        .chain([&rules.naming.always])
        .flat_map(|globs| globs.idle(tools));
    let mut idle: Vec<String> = globs.collect();
    for name in rules.naming.rename.keys() {
        if !tools.iter().any(|tool| tool.name == *name) {
            idle.push(format!("`{name}` (tools.rename of {backend})"));
        }
    }
    if tools.is_empty() || idle.is_empty() {
        return None;
    }
    Some(format!("Of its {} tools, none matches {}.", tools.len(), at_most(&idle, MAX_IDLE)))
}

/// What to do about the text of [`idle`].
pub const CURE: &str = "Correct the glob, the name or the path, or leave it out: it has no effect. \
                        Globs match the server's own names, without the prefix; paths lead into the \
                        arguments. `mantyx-bridge tools` shows both.";

#[cfg(test)]
pub(crate) fn globs(all: &[&str]) -> Globs {
    let rules = all.iter().enumerate().map(|(at, glob)| Rule {
        glob: globset::Glob::new(glob).unwrap(),
        when: Vec::new(),
        place: format!("[{at}]"),
    });
    Globs::new(rules.collect()).unwrap()
}

#[cfg(test)]
mod tests {
    //! Which globs have no effect.

    use super::*;
    use crate::model::approval::Policy;
    use crate::model::naming::{Naming, ToolFilter};
    use crate::model::rules::{Condition, Test, keys};

    #[test]
    fn globs_without_a_tool_are_named_with_their_places() {
        let tool = |name: &str| {
            let schema = r#"{"properties":{"path":{}}}"#;
            RawValue::from_string(format!(r#"{{"name":"{name}","inputSchema":{schema}}}"#)).unwrap()
        };
        let (catalog, _) = Catalog::mcp(None, vec![tool("read"), tool("write")]);
        let fs = BackendName::parse("fs").unwrap();
        let tools = ToolFilter { allow: Some(globs(&["*"])), deny: globs(&["writ?", "rm"]) };
        let rename = [("read", "r"), ("raed", "s")].map(|(old, new)| (old.into(), new.into()));
        let naming = Naming { tools, rename: rename.into(), ..Naming::default() };
        let with = |glob: &str, path: &str, place: &str| Rule {
            glob: globset::Glob::new(glob).unwrap(),
            when: vec![Condition {
                path: path.into(),
                keys: keys(path).unwrap(),
                test: Test::Gt(1.0),
            }],
            place: place.to_owned(),
        };
        let asked = vec![
            with("destructiv", "/path", "a"),
            with("write", "/path", "b"),
            with("w*", "/pth", "c"),
        ];
        let approve = Policy { tools: Globs::new(asked).unwrap(), destructive: true };
        let rules = Rules { naming: &naming, approve: &approve };
        let of_app = ToolFilter { allow: Some(globs(&["read", "raed"])), deny: Globs::default() };
        let rights = Rights { tools: [(fs.clone(), of_app)].into(), ..Rights::default() };
        let told = idle(&fs, &catalog, rules, once(&rights));
        assert_eq!(
            told.unwrap(),
            "Of its 2 tools, none matches `destructiv` (a), `w*` with `/pth` (c), `rm` ([1]), \
             `raed` ([1]), `raed` (tools.rename of fs)."
        );
        let (empty, _) = Catalog::mcp(None, Vec::new());
        assert_eq!(idle(&fs, &empty, rules, [].into_iter()), None);
        let many: Vec<String> = (0..=MAX_IDLE).map(|number| format!("no{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let tools = ToolFilter { allow: None, deny: globs(&many) };
        let naming = Naming { tools, ..Naming::default() };
        let rules = Rules { naming: &naming, approve: &Policy::default() };
        let told = idle(&fs, &catalog, rules, [].into_iter()).unwrap();
        assert!(told.contains("`no49`") && told.ends_with("and 1 more."), "{told}");
    }

    /// A rule holds if all of its conditions do, so one tool must have all of its arguments.
    #[test]
    fn one_tool_has_all_paths_of_a_rule() {
        let tool = |name: &str, properties: &str| {
            let schema = format!(r#"{{"properties":{properties}}}"#);
            let text = format!(r#"{{"name":"{name}","inputSchema":{schema}}}"#);
            RawValue::from_string(text).unwrap()
        };
        let tools =
            [tool("x", r#"{"a":{}}"#), tool("y", r#"{"a":{},"b":{}}"#), tool("z", r#"{"c":{}}"#)];
        let (catalog, _) = Catalog::mcp(None, tools.into());
        let told = |paths: &[&str]| {
            let when = |path: &&str| Condition {
                path: (*path).to_owned(),
                keys: keys(path).unwrap(),
                test: Test::Gt(1.0),
            };
            let rule = Rule {
                glob: globset::Glob::new("*").unwrap(),
                when: paths.iter().map(when).collect(),
                place: "p".to_owned(),
            };
            let approve = Policy { tools: Globs::new(vec![rule]).unwrap(), destructive: false };
            let rules = Rules { naming: &Naming::default(), approve: &approve };
            idle(&BackendName::parse("fs").unwrap(), &catalog, rules, [].into_iter())
        };
        assert_eq!(told(&["/a", "/b"]), None);
        assert!(told(&["/a", "/c"]).unwrap().contains("`*` with `/c` (p)"));
    }
}
