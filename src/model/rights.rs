//! What an app may use: backends, and of an MCP server some of its tools. And whether a call is
//! permitted now, as its permission may have changed since its run began.
//!
//! Must not: know offers; `offer::seen` applies it to them.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    approval::Policy,
    ids::BackendName,
    naming::ToolFilter,
    offer::OfferMode,
    routes::{Route, Target},
};

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

    /// Whether the app may use everything.
    pub fn are_all(&self) -> bool {
        self.backends.is_none() && self.tools.is_empty() && self.offer.is_none()
    }
}

/// The part of a backend's configuration that concerns the permission of its calls.
#[derive(Debug, Clone, Copy)]
pub struct Rules<'a> {
    /// The tools that it offers.
    pub tools: &'a ToolFilter,
    /// The calls that a person must approve.
    pub approve: &'a Policy,
}

/// Whether a call may be made by the present configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    Given,
    /// A person must approve it first.
    Ask,
    Refused(CallRefusal),
}

/// Why a call is refused: what the operator has taken away since the run was given the tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CallRefusal {
    #[error("the app is not configured any more")]
    App,
    #[error("the app may not use the backend any more")]
    Backend,
    #[error("the tool may not be used any more")]
    Tool,
    #[error("the backend was removed from the configuration")]
    Removed,
}

impl CallRefusal {
    /// The model's answer.
    pub fn for_model(self, backend: &BackendName) -> String {
        let what = match self {
            Self::App => "The operator has removed the app that this run belongs to".to_owned(),
            Self::Backend => format!("The operator has withdrawn `{backend}` from this app"),
            Self::Tool => format!("The operator has withdrawn this tool of `{backend}`"),
            Self::Removed => format!("`{backend}` is not configured any more"),
        };
        format!("{what}. The call was not made; do without it.")
    }
}

/// Whether a call along `route` may be made for an app with these rights, by these rules of its
/// backend. `None` stands for an app or a backend that is not configured.
///
/// A run's routes are fixed when it begins, and a run may live for hours. So the bridge asks this
/// for each call just before the dispatch: the permission at the run's start proves nothing by
/// then.
pub fn permission(
    app: Option<&Rights>,
    backend: Option<Rules<'_>>,
    route: &Route,
    is_approved: bool,
) -> Permission {
    let Some(rights) = app else { return Permission::Refused(CallRefusal::App) };
    // Results of earlier calls belong to the run; a tool that is found is permitted when it is called.
    if matches!(route.target, Target::Own(_)) {
        return Permission::Given;
    }
    if !rights.include(&route.backend) {
        return Permission::Refused(CallRefusal::Backend);
    }
    let Some(rules) = backend else { return Permission::Refused(CallRefusal::Removed) };
    let Target::Tool { name, .. } = &route.target else { return Permission::Given };
    if !rights.include_tool(&route.backend, name) || !rules.tools.passes(name) {
        return Permission::Refused(CallRefusal::Tool);
    }
    match rules.approve.asks(route) && !is_approved {
        true => Permission::Ask,
        false => Permission::Given,
    }
}

#[cfg(test)]
mod tests {
    //! Every right that can be taken away.

    use super::*;
    use crate::model::{globs::globs, offer::RefKind, own::Own};

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

    #[test]
    fn permission_is_what_is_configured_now() {
        let tool = route(Target::Tool { name: "rm".into(), input: None });
        let all = || Rights::default();
        let only = |names: &[&str]| Rights {
            backends: Some(names.iter().map(|name| backend(name)).collect()),
            ..all()
        };
        let without = |tools: &[&str]| Rights {
            tools: BTreeMap::from([(backend("fs"), deny(tools))]),
            ..all()
        };
        let refused = Permission::Refused;
        for (rights, denied, asked, approved, expected) in [
            (Some(all()), &[][..], &[][..], false, Permission::Given),
            (None, &[], &[], true, refused(CallRefusal::App)),
            (Some(only(&["fs"])), &[], &[], false, Permission::Given),
            (Some(only(&[])), &[], &[], true, refused(CallRefusal::Backend)),
            (Some(only(&["hr"])), &[], &["rm"], false, refused(CallRefusal::Backend)),
            (Some(without(&["ls"])), &[], &[], false, Permission::Given),
            (Some(without(&["r*"])), &[], &[], true, refused(CallRefusal::Tool)),
            (Some(all()), &["rm"], &["rm"], true, refused(CallRefusal::Tool)),
            (Some(all()), &["ls"], &["rm"], false, Permission::Ask),
            (Some(all()), &["ls"], &["rm"], true, Permission::Given),
        ] {
            let tools = deny(denied);
            let approve = Policy { tools: globs(asked), destructive: false };
            let rules = Rules { tools: &tools, approve: &approve };
            let told = format!("{rights:?} {denied:?} {asked:?} {approved}");
            let given = permission(rights.as_ref(), Some(rules), &tool, approved);
            assert_eq!(given, expected, "{told}");
        }
        let gone = permission(Some(&all()), None, &tool, true);
        assert_eq!(gone, refused(CallRefusal::Removed));
    }

    #[test]
    fn results_are_fetched_as_long_as_there_is_an_app() {
        let results = route(Target::Own(Own::Results));
        assert_eq!(permission(Some(&Rights::default()), None, &results, false), Permission::Given);
        let gone = permission(None, None, &results, false);
        assert_eq!(gone, Permission::Refused(CallRefusal::App));
    }

    #[test]
    fn the_model_is_told_that_nothing_was_made() {
        for refusal in
            [CallRefusal::App, CallRefusal::Backend, CallRefusal::Tool, CallRefusal::Removed]
        {
            let told = refusal.for_model(&backend("fs"));
            assert!(told.contains("was not made"), "{told}");
        }
    }
}
