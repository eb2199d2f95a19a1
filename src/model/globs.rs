//! Globs of bridge.yaml that choose tools, by the backend's own names.
//!
//! Pure.
//!
//! Must not: know what becomes of the tools that match.

use globset::{Glob, GlobSet, GlobSetBuilder};

use super::{
    catalog::{Catalog, Content},
    ids::{AppName, BackendName},
    rights::{Rights, Rules},
    visible::first,
};

#[derive(Debug, Clone, Default)]
pub struct Globs {
    set: GlobSet,
    /// As they stand in the file, in the order of the set.
    written: Vec<String>,
}

impl Globs {
    /// # Errors
    ///
    /// They cannot be compiled together.
    pub fn new(globs: &[Glob]) -> Result<Self, globset::Error> {
        let mut set = GlobSetBuilder::new();
        for glob in globs {
            set.add(glob.clone());
        }
        let written = globs.iter().map(|glob| glob.glob().to_owned()).collect();
        Ok(Self { set: set.build()?, written })
    }

    pub fn is_empty(&self) -> bool {
        self.written.is_empty()
    }

    pub fn is_match(&self, name: &str) -> bool {
        self.set.is_match(name)
    }

    /// Those that match none of `names`.
    fn idle(&self, names: &[&str]) -> impl Iterator<Item = &str> {
        let mut used = vec![false; self.written.len()];
        for place in names.iter().flat_map(|name| self.set.matches(name)) {
            used[place] = true;
        }
        self.written.iter().zip(used).filter_map(|(glob, used)| (!used).then_some(glob.as_str()))
    }
}

/// Names the globs for the tools of `backend`, in its own entry and in those of apps, that match none
/// of the tools that its server has. A mistyped `approve` or `deny` lets calls pass.
pub fn idle<'a>(
    backend: &BackendName,
    catalog: &Catalog,
    rules: Rules<'_>,
    apps: impl Iterator<Item = (&'a AppName, &'a Rights)>,
) -> Option<String> {
    let Content::Mcp { tools, .. } = catalog.content() else { return None };
    if tools.is_empty() {
        return None;
    }
    let own = [
        ("tools.allow".to_owned(), rules.tools.allow.as_ref()),
        ("tools.deny".to_owned(), Some(&rules.tools.deny)),
        ("approve".to_owned(), Some(&rules.approve.tools)),
    ];
    let of_apps = apps.filter_map(|(app, rights)| Some((app, rights.tools.get(backend)?)));
    let of_apps = of_apps.flat_map(|(app, filter)| {
        let place = |key| format!("tools.{backend}.{key} of {app}");
        [(place("allow"), filter.allow.as_ref()), (place("deny"), Some(&filter.deny))]
    });
    let written = own.into_iter().chain(of_apps);
    let written = written.filter_map(|(place, globs)| Some((place, globs?)));
    let written: Vec<_> = written.filter(|(_, globs)| !globs.is_empty()).collect();
    if written.is_empty() {
        return None;
    }
    let names: Vec<&str> = tools.iter().map(|tool| &*tool.name).collect();
    let idle = written.iter().flat_map(|(place, globs)| {
        globs.idle(&names).map(move |glob| format!("`{glob}` (in {place})"))
    });
    let idle: Vec<String> = idle.collect();
    let (count, named) = (names.len(), first(&idle));
    (!idle.is_empty()).then(|| format!("Of its {count} tools, none matches {named}."))
}

/// What to do about the text of [`idle`].
pub const CURE: &str = "Correct the glob, or leave it out: it has no effect. Globs match the server's \
                        own names, without the prefix; `mantyx-bridge tools` shows them.";

#[cfg(test)]
pub(crate) fn globs(all: &[&str]) -> Globs {
    let all: Vec<_> = all.iter().map(|glob| Glob::new(glob).unwrap()).collect();
    Globs::new(&all).unwrap()
}

#[cfg(test)]
mod tests {
    //! Which globs have no effect.

    use super::*;
    use crate::model::{approval::Policy, naming::ToolFilter};

    #[test]
    fn globs_without_a_tool_are_named_with_their_places() {
        let tool = |name: &str| {
            let text = format!(r#"{{"name":"{name}","inputSchema":{{}}}}"#);
            serde_json::value::RawValue::from_string(text).unwrap()
        };
        let (catalog, _) = Catalog::mcp(None, vec![tool("read"), tool("write")]);
        let fs = BackendName::parse("fs").unwrap();
        let filter = ToolFilter { allow: Some(globs(&["*"])), deny: globs(&["writ?", "rm"]) };
        let approve = Policy { tools: globs(&["destructiv", "write"]), destructive: true };
        let rules = Rules { tools: &filter, approve: &approve };
        let of_app = ToolFilter { allow: Some(globs(&["read", "raed"])), deny: Globs::default() };
        let rights = Rights { tools: [(fs.clone(), of_app)].into(), ..Rights::default() };
        let app = AppName::from("billing");
        let told = idle(&fs, &catalog, rules, [(&app, &rights)].into_iter());
        assert_eq!(
            told.unwrap(),
            "Of its 2 tools, none matches `rm` (in tools.deny), `destructiv` (in approve), `raed` \
             (in tools.fs.allow of billing)."
        );
        let (empty, _) = Catalog::mcp(None, Vec::new());
        assert_eq!(idle(&fs, &empty, rules, [].into_iter()), None);
        let six: Vec<String> = (0..6).map(|number| format!("no{number}")).collect();
        let six: Vec<&str> = six.iter().map(String::as_str).collect();
        let deny = ToolFilter { allow: None, deny: globs(&six) };
        let rules = Rules { tools: &deny, approve: &Policy::default() };
        let told = idle(&fs, &catalog, rules, [].into_iter()).unwrap();
        assert!(told.ends_with("and 1 more."), "{told}");
    }
}
