//! Globs of bridge.yaml that choose tools, by the backend's own names.
//!
//! Pure.
//!
//! Must not: know what becomes of the tools that match.

use std::iter::once;

use globset::{GlobSet, GlobSetBuilder};
use serde_json::value::RawValue;

use super::{
    catalog::{Catalog, Content, Tool},
    ids::BackendName,
    rights::{Rights, Rules},
    rules::Rule,
    visible::first,
};

/// Globs, some of which match only calls with certain arguments.
#[derive(Debug, Clone, Default)]
pub struct Globs {
    set: GlobSet,
    /// In the order of the set.
    rules: Vec<Rule>,
}

impl Globs {
    /// # Errors
    ///
    /// They cannot be compiled together.
    pub fn new(rules: Vec<Rule>) -> Result<Self, globset::Error> {
        let mut set = GlobSetBuilder::new();
        for rule in &rules {
            set.add(rule.glob.clone());
        }
        Ok(Self { set: set.build()?, rules })
    }

    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
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
        self.matching(name).find(|rule| rule.holds(arguments))
    }

    fn matching(&self, name: &str) -> impl Iterator<Item = &Rule> {
        self.set.matches(name).into_iter().filter_map(|at| self.rules.get(at))
    }

    /// Says of each that has no effect on any of `tools` why, and its place.
    fn idle(&self, tools: &[Tool]) -> impl Iterator<Item = String> {
        let mut matched = vec![Vec::new(); self.rules.len()];
        for tool in tools {
            let schema = tool.input.schema().map_or("true", RawValue::get);
            self.set.matches(&tool.name).into_iter().for_each(|at| matched[at].push(schema));
        }
        self.rules.iter().zip(matched).filter_map(|(rule, schemas)| {
            let with = match rule.unknown_path(&schemas) {
                _ if schemas.is_empty() => String::new(),
                path => format!(" with `{}`", path?),
            };
            Some(format!("`{}`{with} ({})", rule.glob, rule.place))
        })
    }
}

/// Names the globs for the tools of `backend`, in its own entry and in those of apps, that match none
/// of the tools that its server has, the rules whose arguments none of these has, and the tools that
/// it has not, and that are renamed. A mistyped `approve` or `deny` lets calls pass.
pub fn idle<'a>(
    backend: &BackendName,
    catalog: &Catalog,
    rules: Rules<'a>,
    apps: impl Iterator<Item = &'a Rights>,
) -> Option<String> {
    let Content::Mcp { tools, .. } = catalog.content() else { return None };
    let filters = once(&rules.naming.tools).chain(apps.filter_map(|app| app.tools.get(backend)));
    let globs = filters.flat_map(|filter| filter.allow.iter().chain([&filter.deny]));
    let globs = globs
        .chain([&rules.approve.tools, &rules.naming.always])
        .flat_map(|globs| globs.idle(tools));
    let is_gone = |name: &&String| !tools.iter().any(|tool| tool.name == **name);
    let renamed = rules.naming.rename.keys().filter(is_gone);
    let renamed = renamed.map(|name| format!("`{name}` (tools.rename of {backend})"));
    let idle: Vec<String> = globs.chain(renamed).collect();
    let is_any = !tools.is_empty() && !idle.is_empty();
    is_any.then(|| format!("Of its {} tools, none matches {}.", tools.len(), first(&idle)))
}

/// What to do about the text of [`idle`].
pub const CURE: &str = "Correct the glob, the name or the path, or leave it out: it has no effect. \
                        Globs match the server's own names, without the prefix; paths lead into the \
                        arguments. `mantyx-bridge tools` shows both.";

#[cfg(test)]
pub(crate) fn globs(all: &[&str]) -> Globs {
    let rule = |(at, glob): (usize, &&str)| Rule {
        glob: globset::Glob::new(glob).unwrap(),
        when: Vec::new(),
        place: format!("[{at}]"),
    };
    Globs::new(all.iter().enumerate().map(rule).collect()).unwrap()
}

#[cfg(test)]
mod tests {
    //! Which globs have no effect.

    use super::*;
    use crate::model::{
        approval::Policy,
        naming::{Naming, ToolFilter},
        rules::{Condition, Test, keys},
    };

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
            "Of its 2 tools, none matches `rm` ([1]), `raed` ([1]), `destructiv` (a), `w*` with \
             `/pth` (c), `raed` (tools.rename of fs)."
        );
        let (empty, _) = Catalog::mcp(None, Vec::new());
        assert_eq!(idle(&fs, &empty, rules, [].into_iter()), None);
        let six: Vec<String> = (0..6).map(|number| format!("no{number}")).collect();
        let six: Vec<&str> = six.iter().map(String::as_str).collect();
        let tools = ToolFilter { allow: None, deny: globs(&six) };
        let naming = Naming { tools, ..Naming::default() };
        let rules = Rules { naming: &naming, approve: &Policy::default() };
        let told = idle(&fs, &catalog, rules, [].into_iter()).unwrap();
        assert!(told.ends_with("and 1 more."), "{told}");
    }
}
