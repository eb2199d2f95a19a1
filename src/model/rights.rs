//! What an app may use: backends, and of an MCP server some of its tools. And whether a call is
//! permitted now, as its permission may have changed since its run began.
//!
//! Must not: know offers; `offer::seen` applies it to them.

use std::collections::{BTreeMap, BTreeSet};

use super::routes::{Route, Target};
use super::sentences;
use super::{BackendName, Naming, OfferMode, Policy, ToolFilter};

/// What one app may use. The default is everything.
#[derive(Debug, Clone, Default)]
pub struct Rights {
    /// These backends; `None` means all.
    pub backends: Option<BTreeSet<BackendName>>,
    /// For these backends, only the tools that pass, by the server's own names.
    pub tools: BTreeMap<BackendName, ToolFilter>,
    /// Whether its models are given the tools, or search for them; `None`: as each backend has it.
    pub offer: Option<OfferMode>,
}

impl Rights {
    /// Whether the backend may be used at all.
    pub fn include(&self, backend: &BackendName) -> bool {
        self.backends.as_ref().is_none_or(|backends| backends.contains(backend))
    }

    /// Whether the tool that `backend` calls `tool` may be used.
    pub fn include_tool(&self, backend: &BackendName, tool: &str) -> bool {
        self.include(backend) && self.tools.get(backend).is_none_or(|filter| filter.passes(tool))
    }

    /// Whether the resources and prompts of `backend` may be read: by an app that may use all of
    /// its tools, as no list says which tool they belong to.
    pub fn include_features(&self, backend: &BackendName) -> bool {
        self.include(backend) && !self.tools.contains_key(backend)
    }

    /// These rights, of no other backends than these.
    pub fn within(&self, backends: &BTreeSet<BackendName>) -> Self {
        let backends = backends.iter().filter(|name| self.include(name)).cloned().collect();
        Self { backends: Some(backends), ..self.clone() }
    }

    /// Whether the app may use everything.
    pub fn are_all(&self) -> bool {
        self.backends.is_none() && self.tools.is_empty() && self.offer.is_none()
    }
}

/// The part of a backend's configuration that concerns the permission of its calls.
#[derive(Debug, Clone, Copy)]
pub struct Rules<'a> {
    /// The tools that it offers.
    pub naming: &'a Naming,
    /// The calls that a person must approve.
    pub approve: &'a Policy,
}

/// Whether a call may be made by the present configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Permission {
    Given,
    /// A person must approve it first.
    Ask,
    Refused(CallRefusal),
}

/// A permission, and the rule of bridge.yaml that decided it, by its place there.
pub type Decision<'a> = (Permission, Option<&'a str>);

/// Why a call is refused: what the operator has taken away since the run was given the tool, or
/// does not allow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallRefusal {
    #[error("the app is not configured any more")]
    App,
    #[error("the app may not use the backend any more")]
    Backend,
    #[error("the tool may not be used any more")]
    Tool,
    /// It has the conditions that a rule denies.
    #[error("the tool may not be used where {0}")]
    Arguments(String),
    #[error("the backend was removed from the configuration")]
    Removed,
}

impl CallRefusal {
    /// The model's answer.
    pub fn for_model(&self, backend: &BackendName) -> String {
        match self {
            Self::App => sentences::app_removed(),
            Self::Backend => sentences::backend_withdrawn(backend),
            Self::Tool => sentences::tool_withdrawn(backend),
            Self::Arguments(when) => sentences::arguments_denied(backend, when),
            Self::Removed => sentences::backend_removed(backend),
        }
    }
}

/// A refusal that no rule of bridge.yaml is the place of.
fn refusal<'a>(reason: CallRefusal) -> Decision<'a> {
    (Permission::Refused(reason), None)
}

/// Whether a call along `route` with these arguments may be made for an app with these rights, by
/// these rules of its backend. `None` stands for an app or a backend that is not configured.
///
/// A run's routes are fixed when it begins, and a run may live for hours. So the bridge asks this
/// for each call just before the dispatch: the permission at the run's start proves nothing by
/// then.
pub fn permission<'a>(
    app: Option<&'a Rights>,
    backend: Option<Rules<'a>>,
    route: &Route,
    arguments: &str,
    is_approved: bool,
) -> Decision<'a> {
    let Some(rights) = app else { return refusal(CallRefusal::App) };
    // Results of earlier calls belong to the run; a tool that is found is permitted when it is
    // called.
    if matches!(route.target, Target::Own(_)) {
        return (Permission::Given, None);
    }
    if !rights.include(&route.backend) {
        return refusal(CallRefusal::Backend);
    }
    let Some(rules) = backend else { return refusal(CallRefusal::Removed) };
    let Target::Tool { name, .. } = &route.target else { return (Permission::Given, None) };
    let of_app = rights.tools.get(&route.backend);
    for filter in of_app.into_iter().chain([&rules.naming.tools]) {
        if let Some(rule) = filter.deny.of_call(name, arguments) {
            let reason = if rule.when.is_empty() {
                CallRefusal::Tool
            } else {
                CallRefusal::Arguments(rule.conditions())
            };
            return (Permission::Refused(reason), Some(&rule.place));
        }
        if !filter.passes(name) {
            return refusal(CallRefusal::Tool);
        }
    }
    match rules.approve.asks(route, arguments).filter(|_| !is_approved) {
        Some(place) => (Permission::Ask, Some(place)),
        None => (Permission::Given, None),
    }
}

#[cfg(test)]
mod tests {
    //! Every right that can be taken away.

    use super::*;
    use crate::model::globs::{Globs, globs};
    use crate::model::offer::RefKind;
    use crate::model::own::Own;
    use crate::model::rules::{Condition, Rule, Test};

    fn backend(name: &str) -> BackendName {
        BackendName::parse(name).unwrap()
    }

    fn route(target: Target) -> Route {
        let kind = RefKind::McpLocal;
        Route { backend: backend("fs"), kind, target, repeatable: false, destructive: true }
    }

    fn deny(all: &[&str]) -> ToolFilter {
        ToolFilter { allow: None, deny: globs(all) }
    }

    fn only(names: &[&str]) -> Rights {
        let backends = Some(names.iter().map(|name| backend(name)).collect());
        Rights { backends, ..Rights::default() }
    }

    fn without(tools: &[&str]) -> Rights {
        let tools = BTreeMap::from([(backend("fs"), deny(tools))]);
        Rights { tools, ..Rights::default() }
    }

    fn refused(refusal: CallRefusal) -> Permission {
        Permission::Refused(refusal)
    }

    /// What is configured, and what becomes of a call of `rm` of the backend `fs`.
    struct Configured {
        rights: Option<Rights>,
        denied: &'static [&'static str],
        asked: &'static [&'static str],
        approved: bool,
        expected: Permission,
    }

    fn configured() -> [Configured; 10] {
        [
            Configured {
                rights: Some(Rights::default()),
                denied: &[],
                asked: &[],
                approved: false,
                expected: Permission::Given,
            },
            Configured {
                rights: None,
                denied: &[],
                asked: &[],
                approved: true,
                expected: refused(CallRefusal::App),
            },
            Configured {
                rights: Some(only(&["fs"])),
                denied: &[],
                asked: &[],
                approved: false,
                expected: Permission::Given,
            },
            Configured {
                rights: Some(only(&[])),
                denied: &[],
                asked: &[],
                approved: true,
                expected: refused(CallRefusal::Backend),
            },
            Configured {
                rights: Some(only(&["hr"])),
                denied: &[],
                asked: &["rm"],
                approved: false,
                expected: refused(CallRefusal::Backend),
            },
            Configured {
                rights: Some(without(&["ls"])),
                denied: &[],
                asked: &[],
                approved: false,
                expected: Permission::Given,
            },
            Configured {
                rights: Some(without(&["r*"])),
                denied: &[],
                asked: &[],
                approved: true,
                expected: refused(CallRefusal::Tool),
            },
            Configured {
                rights: Some(Rights::default()),
                denied: &["rm"],
                asked: &["rm"],
                approved: true,
                expected: refused(CallRefusal::Tool),
            },
            Configured {
                rights: Some(Rights::default()),
                denied: &["ls"],
                asked: &["rm"],
                approved: false,
                expected: Permission::Ask,
            },
            Configured {
                rights: Some(Rights::default()),
                denied: &["ls"],
                asked: &["rm"],
                approved: true,
                expected: Permission::Given,
            },
        ]
    }

    #[test]
    fn permission_is_what_is_configured_now() {
        let tool = route(Target::Tool { name: "rm".into(), input: None });
        for Configured { rights, denied, asked, approved, expected } in configured() {
            let tools = deny(denied);
            let naming = Naming { tools, ..Naming::default() };
            let approve = Policy { tools: globs(asked), destructive: false };
            let rules = Rules { naming: &naming, approve: &approve };
            let told = format!("{rights:?} {denied:?} {asked:?} {approved}");
            let given = permission(rights.as_ref(), Some(rules), &tool, "{}", approved);
            assert_eq!(given.0, expected, "{told}");
        }
        let all = Rights::default();
        let gone = permission(Some(&all), None, &tool, "{}", true);
        assert_eq!(gone, (refused(CallRefusal::Removed), None));
    }

    /// A call, and what the rules of the app, of the server and of approvals say.
    struct Decided {
        tool: &'static str,
        arguments: &'static str,
        approved: bool,
        expected: Decision<'static>,
    }

    fn decided() -> [Decided; 11] {
        let denied = || CallRefusal::Arguments("`/n` is greater than 50".to_owned());
        let denied_to_app = || CallRefusal::Arguments("`/n` is greater than 100".to_owned());
        [
            Decided {
                tool: "pay",
                arguments: r#"{"n":1}"#,
                approved: false,
                expected: (Permission::Given, None),
            },
            Decided {
                tool: "pay",
                arguments: "{}",
                approved: false,
                expected: (Permission::Given, None),
            },
            Decided {
                tool: "pay",
                arguments: r#"{"n":11}"#,
                approved: false,
                expected: (Permission::Ask, Some("first")),
            },
            Decided {
                tool: "pay",
                arguments: r#"{"n":11}"#,
                approved: true,
                expected: (Permission::Given, None),
            },
            Decided {
                tool: "look",
                arguments: r#"{"n":11}"#,
                approved: false,
                expected: (Permission::Given, None),
            },
            Decided {
                tool: "look",
                arguments: r#"{"n":21}"#,
                approved: false,
                expected: (Permission::Ask, Some("second")),
            },
            Decided {
                tool: "look",
                arguments: r#"{"n":51}"#,
                approved: true,
                expected: (Permission::Given, None),
            },
            Decided {
                tool: "pay",
                arguments: r#"{"n":51}"#,
                approved: true,
                expected: (Permission::Refused(denied()), Some("of the server")),
            },
            Decided {
                tool: "pay",
                arguments: r#"{"n":1,"n":51}"#,
                approved: true,
                expected: (Permission::Refused(denied()), Some("of the server")),
            },
            Decided {
                tool: "look",
                arguments: r#"{"n":101}"#,
                approved: true,
                expected: (Permission::Refused(denied_to_app()), Some("of the app")),
            },
            Decided {
                tool: "pay",
                arguments: r#"{"n":"11"}"#,
                approved: true,
                expected: (Permission::Refused(denied_to_app()), Some("of the app")),
            },
        ]
    }

    #[test]
    fn rules_on_arguments_decide_on_single_calls() {
        let rule = |glob: &str, limit: f64, place: &str| Rule {
            glob: globset::Glob::new(glob).unwrap(),
            when: vec![Condition {
                path: "/n".into(),
                keys: vec!["n".into()],
                test: Test::Gt(limit),
            }],
            place: place.to_owned(),
        };
        let one = |rule: Rule| Globs::new(vec![rule]).unwrap();
        let filter = |deny| ToolFilter { allow: None, deny };
        let rights = Rights {
            backends: None,
            tools: [(backend("fs"), filter(one(rule("*", 100.0, "of the app"))))].into(),
            offer: None,
        };
        let tools = filter(one(rule("p*", 50.0, "of the server")));
        assert!(tools.passes("pay"), "it stays on offer");
        let naming = Naming { tools, ..Naming::default() };
        let asked = vec![rule("pay", 10.0, "first"), rule("*", 20.0, "second")];
        let approve = Policy { tools: Globs::new(asked).unwrap(), destructive: false };
        let rules = Rules { naming: &naming, approve: &approve };
        for Decided { tool, arguments, approved, expected } in decided() {
            let route = route(Target::Tool { name: tool.into(), input: None });
            let decided = permission(Some(&rights), Some(rules), &route, arguments, approved);
            assert_eq!(decided, expected, "{tool} {arguments} {approved}");
        }
    }

    #[test]
    fn results_are_fetched_as_long_as_there_is_an_app() {
        let results = route(Target::Own(Own::Results));
        let all = Rights::default();
        let given = permission(Some(&all), None, &results, "{}", false);
        assert_eq!(given.0, Permission::Given);
        let gone = permission(None, None, &results, "{}", false);
        assert_eq!(gone.0, Permission::Refused(CallRefusal::App));
    }

    #[test]
    fn the_model_is_told_that_nothing_was_made() {
        for refusal in [
            CallRefusal::App,
            CallRefusal::Backend,
            CallRefusal::Tool,
            CallRefusal::Arguments("`/n` is 1".to_owned()),
            CallRefusal::Removed,
        ] {
            let told = refusal.for_model(&backend("fs"));
            assert!(told.contains("was not made"), "{told}");
        }
    }
}
