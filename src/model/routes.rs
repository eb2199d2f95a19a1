//! Where the model-facing names of one offer lead. A run needs nothing else of the offer that it
//! was created with, so the routes alone are written to the journal, without cards and
//! descriptions.
//!
//! Must not: know refs, or how names are made (offer.rs and naming.rs do).

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use super::catalog::hex;
use super::{BackendName, Call, InputSchema, Own, RefKind};

use crate::model::maps::{HashMap, HashSet};

/// Where a model-facing name leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The name of a tool, which is no backend, for [`Target::Own`].
    pub backend: BackendName,
    /// The `kind` that the ref had; an event for the name must carry the same.
    pub kind: RefKind,
    pub target: Target,
    /// Whether making the call twice has no more effect than making it once, by the operator's word
    /// or that of a server that the operator trusts. The bridge may make such a call again if its
    /// outcome was lost.
    pub repeatable: bool,
    /// Whether a call may destroy something, as far as an MCP server says about its own tool.
    pub destructive: bool,
}

impl Route {
    /// The route to the bridge itself.
    pub fn to(own: Own) -> Self {
        let (backend, target) = (own.backend(), Target::Own(own));
        // Another tool's call may hide in it.
        let repeatable = own != Own::Call;
        Self { backend, kind: RefKind::Local, target, repeatable, destructive: false }
    }

    /// Whether `call`, which has the name of this route, agrees with its kind and its server.
    pub fn is_meant_by(&self, call: &Call) -> bool {
        call.kind == Some(self.kind)
            && call.mcp_server.as_ref().is_none_or(|server| self.is_of_server(server))
    }

    /// Whether `server` is the name of a ref of the backend's: `fs`, or `fs__2` for the second one
    /// of a large server.
    fn is_of_server(&self, server: &str) -> bool {
        let rest = server.strip_prefix(self.backend.as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("__"))
    }
}

/// The target of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// The peer's own name for the tool; empty for an A2A agent and a local tool.
    Tool {
        name: Arc<str>,
        /// The schema of its arguments; an agent has none.
        input: Option<Arc<InputSchema>>,
    },
    /// No tool: the answer says that the backend is unavailable.
    Stub,
    /// The bridge itself.
    Own(Own),
}

impl Target {
    /// The peer's own name for the tool; empty for an agent and for targets without a peer.
    pub fn tool(&self) -> &str {
        match self {
            Self::Tool { name, .. } => name,
            Self::Stub | Self::Own(_) => "",
        }
    }
}

/// All routes of one offer. Immutable.
#[derive(Debug, Default)]
pub struct Routes {
    by_name: HashMap<Arc<str>, Route>,
    /// The names that no run is shown: a model finds them by a search.
    searched: HashSet<Arc<str>>,
    /// The names that lead to the bridge's own tools.
    own: BTreeMap<Own, Arc<str>>,
    /// A digest of each backend's refs, which tells whether runs would get other refs.
    digests: BTreeMap<BackendName, String>,
    stored: OnceLock<Stored>,
}

/// [`Routes`] as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// SHA-256 of the text, in hex: the journal keeps equal routes once.
    pub digest: Arc<str>,
    pub text: Arc<str>,
}

/// The text was not written by [`Routes::stored`].
#[derive(Debug, thiserror::Error)]
#[error("stored routes cannot be read: {0}")]
pub struct Unreadable(#[from] serde_json::Error);

#[derive(Serialize, Deserialize)]
struct Text<'a> {
    digests: BTreeMap<BackendName, String>,
    #[serde(borrow)]
    routes: Vec<RouteRecord<'a>>,
}

#[derive(Serialize, Deserialize)]
struct RouteRecord<'a> {
    name: Arc<str>,
    backend: BackendName,
    kind: RefKind,
    /// `None` for a stub, and for the bridge's own tool, which its backend identifies.
    tool: Option<Arc<str>>,
    #[serde(borrow, default)]
    input: Option<&'a RawValue>,
    repeatable: bool,
    /// Absent in routes of earlier versions.
    #[serde(default = "unsaid")]
    destructive: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    searched: bool,
}

fn unsaid() -> bool {
    true
}

impl Routes {
    pub fn new(by_name: HashMap<Arc<str>, Route>, digests: BTreeMap<BackendName, String>) -> Self {
        let own = by_name
            .iter()
            .filter_map(|(name, route)| match route.target {
                Target::Own(own) => Some((own, Arc::clone(name))),
                Target::Tool { .. } | Target::Stub => None,
            })
            .collect();
        let searched = HashSet::default();
        Self { by_name, searched, own, digests, stored: OnceLock::new() }
    }

    /// The same routes, of which runs are not shown the names `searched`.
    pub fn with_searched(self, searched: HashSet<Arc<str>>) -> Self {
        Self { searched, ..self }
    }

    /// Where `name` leads, if runs are shown it. A name that a run is not shown is free for the
    /// run's caller: a call of it is a call of the caller's tool.
    pub fn shown(&self, name: &str) -> Option<&Route> {
        self.get(name).filter(|_| !self.searched.contains(name))
    }

    /// Where `name` leads, be it shown or found by a search.
    pub fn get(&self, name: &str) -> Option<&Route> {
        self.by_name.get(name)
    }

    /// The name of one of the bridge's own tools.
    pub fn own(&self, own: Own) -> Option<&Arc<str>> {
        self.own.get(&own)
    }

    /// Every name and where it leads, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Route)> {
        self.by_name.iter()
    }

    /// Whether `backend` is offered with the same refs in both.
    pub fn agree_on(&self, other: &Self, backend: &BackendName) -> bool {
        self.digests.get(backend) == other.digests.get(backend)
    }

    /// The routes as text; written once.
    pub fn stored(&self) -> &Stored {
        self.stored.get_or_init(|| {
            let records = self.iter().map(|(name, route)| RouteRecord {
                searched: self.searched.contains(name),
                ..RouteRecord::new((name, route))
            });
            let mut routes: Vec<RouteRecord<'_>> = records.collect();
            routes.sort_by(|a, b| a.name.cmp(&b.name));
            let record = Text { digests: self.digests.clone(), routes };
            let text = serde_json::to_string(&record).expect("strings and JSON can be written");
            let digest = hex(&Sha256::digest(&text));
            Stored { digest: digest.into(), text: text.into() }
        })
    }

    /// Reads the text of [`Self::stored`].
    pub fn restore(text: &str) -> Result<Self, Unreadable> {
        let Text { digests, routes } = serde_json::from_str::<Text<'_>>(text)?;
        let searched = routes
            .iter()
            .filter(|record| record.searched)
            .map(|record| Arc::clone(&record.name))
            .collect();
        let by_name = routes.into_iter().map(RouteRecord::route).collect();
        Ok(Self::new(by_name, digests).with_searched(searched))
    }
}

impl<'a> RouteRecord<'a> {
    fn new((name, route): (&Arc<str>, &'a Route)) -> Self {
        let (tool, input) = match &route.target {
            Target::Tool { name, input } => (Some(Arc::clone(name)), input.as_ref()),
            Target::Stub | Target::Own(_) => (None, None),
        };
        Self {
            name: Arc::clone(name),
            backend: route.backend.clone(),
            kind: route.kind,
            tool,
            input: input.and_then(|input| input.schema()),
            repeatable: route.repeatable,
            destructive: route.destructive,
            searched: false,
        }
    }

    fn route(self) -> (Arc<str>, Route) {
        let Self { name, backend, kind, tool, repeatable, destructive, .. } = self;
        let input = self.input.map(|schema| Arc::new(InputSchema::alone(schema)));
        let target = match tool {
            Some(name) => Target::Tool { name, input },
            None => Own::named(backend.as_str()).map_or(Target::Stub, Target::Own),
        };
        (name, Route { backend, kind, target, repeatable, destructive })
    }
}

#[cfg(test)]
mod tests {
    //! Out and in again.

    use super::*;

    fn route(backend: &str, kind: RefKind, target: Target, repeatable: bool) -> Route {
        let backend = BackendName::parse(backend).unwrap();
        Route { backend, kind, target, repeatable, destructive: !repeatable }
    }

    fn tool(name: &str, input: Option<&str>) -> Target {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        let input = input.map(|text| Arc::new(InputSchema::new(raw(text).into())));
        Target::Tool { name: name.into(), input }
    }

    fn some() -> Routes {
        let schema = r#"{"name":"ls","inputSchema":{"maximum" : 1e400}}"#;
        let all = [
            ("fs_ls", route("fs", RefKind::McpLocal, tool("ls", Some(schema)), true)),
            ("fs_any", route("fs", RefKind::McpLocal, tool("any", Some("{}")), false)),
            ("hr", route("hr", RefKind::A2aLocal, tool("", None), false)),
            ("x_unavailable", route("x", RefKind::Local, Target::Stub, false)),
            ("fetch", route(Own::Results.name(), RefKind::Local, Target::Own(Own::Results), true)),
        ];
        let by_name = all.into_iter().map(|(name, route)| (name.into(), route)).collect();
        let digests = BTreeMap::from([(BackendName::parse("fs").unwrap(), "abc".to_owned())]);
        Routes::new(by_name, digests).with_searched(HashSet::from_iter(["fs_any".into()]))
    }

    #[test]
    fn written_routes_are_read_again() {
        let before = some();
        let stored = before.stored();
        assert!(stored.text.contains(r#"{"maximum" : 1e400}"#), "verbatim: {}", stored.text);
        let after = Routes::restore(&stored.text).unwrap();
        assert_eq!(after.stored(), stored);
        assert_eq!(after.get("fs_ls").unwrap().target.tool(), "ls");
        assert!(after.shown("fs_ls").is_some() && after.get("fs_any").is_some());
        assert!(after.shown("fs_any").is_none(), "a name that runs are not shown stays one");
        assert!(after.get("fs_ls").unwrap().repeatable && !after.get("hr").unwrap().repeatable);
        assert!(!after.get("fs_ls").unwrap().destructive && after.get("hr").unwrap().destructive);
        assert_eq!(after.get("x_unavailable").unwrap().target, Target::Stub);
        assert_eq!(after.get("fetch").unwrap().target, Target::Own(Own::Results));
        assert_eq!(&**after.own(Own::Results).unwrap(), "fetch");
        assert_eq!(after.get("x_unavailable").unwrap().kind, RefKind::Local);
        let fs = BackendName::parse("fs").unwrap();
        assert!(before.agree_on(&after, &fs) && !before.agree_on(&Routes::default(), &fs));
    }

    #[test]
    fn tool_of_an_earlier_version_may_destroy() {
        let stored = some().stored().text.replace(",\"destructive\":false", "");
        assert!(Routes::restore(&stored).unwrap().get("fs_ls").unwrap().destructive);
    }

    #[test]
    fn text_that_is_no_routes_is_refused() {
        for text in ["", "{}", r#"{"digests":{"a b":""},"routes":[]}"#] {
            assert!(Routes::restore(text).is_err(), "{text}");
        }
        let stored = some().stored().text.replace("a2a_local", "b2b_local");
        assert!(Routes::restore(&stored).is_err());
    }
}
