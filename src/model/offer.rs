//! What runs can be given at one moment: the tool refs of every backend, written out once, and the
//! way from each model-facing name back to the tool behind it.
//!
//! An [`Offer`] is immutable. A run keeps the one that it was created with, so its names lead where
//! they led at the start, whatever a later refresh brings.
//!
//! Must not: know connections, or change a byte of what a peer sent other than a tool's name.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use seen::Seen;

pub use super::routes::{Route, Target};
use super::{
    catalog::{Catalog, Content, Tool, hex},
    hints,
    ids::BackendName,
    json,
    naming::{self, Nameless, Naming},
    pending,
    pin::{CARD, Mode, Review},
    routes::Routes,
    schema::InputSchema,
    words::{Listed as _, words},
};

mod definitions;
mod seen;

/// The most tools that one `mcp_local` ref may carry (agent-runs-protocol §4.3).
pub const MAX_TOOLS_PER_REF: usize = 64;

/// The end of the name of a stub: the tool that stands for a backend which is down.
pub const STUB: &str = "_unavailable";

/// The beginning of the ref of a local tool.
const LOCAL_HEAD: &str = "{\"kind\":\"local\",\"name\":";

/// What a run is offered of a backend that is down; the `on_unavailable` of bridge.yaml.
// A doc comment at a value would change the schema of bridge.yaml.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum OnUnavailable {
    // One tool whose answer says why the backend is unavailable.
    Stub,
    // The last good catalog; a stub if there is none.
    Stale,
    // Nothing.
    Omit,
    // The run is refused.
    Fail,
}

words! {
    /// The kinds of tool refs that the bridge makes; MANTYX's `kind` (agent-runs-protocol §1).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum RefKind {
        Local = "local",
        A2aLocal = "a2a_local",
        McpLocal = "mcp_local",
    }
}

impl RefKind {
    pub fn parse(kind: &str) -> Option<Self> {
        Self::ALL.iter().find(|known| known.as_str() == kind).copied()
    }
}

/// The present state of one backend, from which an [`Offer`] is built.
#[derive(Debug, Clone)]
pub struct Source {
    pub name: BackendName,
    /// The kind of its refs when it is available.
    pub kind: RefKind,
    pub naming: Arc<Naming>,
    /// Replaces an agent's description.
    pub description: Option<String>,
    pub on_unavailable: OnUnavailable,
    /// The last good catalog.
    pub catalog: Option<Arc<Catalog>>,
    /// Whether it can be called now.
    pub available: bool,
    /// Whether its calls may become long calls (`pending_after`).
    pub can_pend: bool,
    /// Whether the operator trusts what an MCP server says about its own tools.
    pub trusted: bool,
    /// What happens to tools that the operator has not accepted.
    pub pin: Mode,
    /// The catalog, compared with what was accepted.
    pub review: Arc<Review>,
}

impl Source {
    /// Whether its tool `name` is marked as safe to repeat, by the operator or by a server that the
    /// operator trusts.
    pub fn is_repeatable(&self, name: &str) -> bool {
        match self.catalog.as_deref().map(Catalog::content) {
            Some(Content::Mcp { tools, .. }) => {
                let mut tools = tools.iter();
                tools.find(|tool| tool.name == name).is_some_and(|tool| self.vouches_for(tool))
            }
            Some(Content::Local { definition, .. }) => {
                hints::local_tool_is_repeatable(definition.get())
            }
            Some(Content::A2a { .. }) | None => false,
        }
    }

    /// Whether an MCP server says that `tool` is safe to repeat, and the operator trusts it.
    fn vouches_for(&self, tool: &Tool) -> bool {
        self.trusted && hints::mcp_tool_is_repeatable(tool.raw.get())
    }
}

/// All that runs can be given at one moment.
#[derive(Debug)]
pub struct Offer {
    backends: BTreeMap<BackendName, Offered>,
    routes: Arc<Routes>,
    /// The tool that fetches results later; present if a backend needs it.
    results: Option<Arc<Ref>>,
    digest: OnceLock<String>,
    seen: Seen,
}

/// What one backend contributes.
#[derive(Debug)]
pub struct Offered {
    /// The kind that a placeholder for the backend has.
    pub kind: RefKind,
    refs: Vec<Arc<Ref>>,
    /// Tools in all refs; what `X-Bridge-Injected` counts.
    pub tools: usize,
    /// Runs that ask for it are refused (`on_unavailable: fail`).
    pub refused: bool,
    /// It has tools whose calls may become long calls.
    pub can_pend: bool,
}

/// One written tool ref.
#[derive(Debug)]
pub struct Ref {
    /// The ref as JSON text.
    pub json: Bytes,
    head: String,
    tail: &'static str,
    items: Vec<Item>,
}

/// One name in a ref, and the text around it.
#[derive(Debug, Clone)]
struct Item {
    name: Arc<str>,
    before: String,
    after: String,
}

impl Offer {
    /// The offer of nothing.
    pub fn empty() -> Self {
        let routes = Arc::default();
        let digest = OnceLock::new();
        Self { backends: BTreeMap::new(), routes, results: None, digest, seen: Seen::default() }
    }

    /// Names every tool of every source and writes the refs.
    pub fn build(sources: &[Source]) -> Self {
        let plans: Vec<Plan<'_>> = sources.iter().map(Plan::of).collect();
        let mut nameless: Vec<Nameless<'_>> =
            plans.iter().flat_map(|plan| plan.tools.iter().cloned()).collect();
        if plans.iter().any(Plan::can_pend) {
            let wanted = pending::TOOL.to_owned();
            nameless.push(Nameless { backend: pending::TOOL, tool: "", wanted });
        }
        let names: Vec<Arc<str>> = naming::assign(&nameless).into_iter().map(Arc::from).collect();

        let mut backends = BTreeMap::new();
        let mut routes = HashMap::new();
        let mut names = names.into_iter();
        for plan in plans {
            let names: Vec<Arc<str>> = names.by_ref().take(plan.tools.len()).collect();
            for (at, name) in names.iter().enumerate() {
                routes.insert(Arc::clone(name), plan.route(at));
            }
            let offered = Offered {
                kind: plan.source.kind,
                refs: plan.write(&names).into_iter().map(Arc::new).collect(),
                tools: names.len(),
                refused: plan.refused,
                can_pend: plan.can_pend(),
            };
            backends.insert(plan.source.name.clone(), offered);
        }
        let results = names.next().map(|name| {
            let one = local(&name, pending::definition());
            routes.insert(name, to_results());
            Arc::new(one)
        });
        Self::of(backends, routes, results)
    }

    fn of(
        backends: BTreeMap<BackendName, Offered>,
        routes: HashMap<Arc<str>, Route>,
        results: Option<Arc<Ref>>,
    ) -> Self {
        let digests = backends.iter().map(|(name, one)| (name.clone(), digest_of(one.refs())));
        let of_results = results.iter().map(|one| (pending::backend(), digest_of([one.as_ref()])));
        let routes = Arc::new(Routes::new(routes, digests.chain(of_results).collect()));
        Self { backends, routes, results, digest: OnceLock::new(), seen: Seen::default() }
    }

    /// Where `name` leads.
    pub fn route(&self, name: &str) -> Option<&Route> {
        self.routes.get(name)
    }

    /// Where all names lead.
    pub fn routes(&self) -> &Arc<Routes> {
        &self.routes
    }

    pub fn backend(&self, name: &str) -> Option<&Offered> {
        self.backends.get(name)
    }

    /// All backends, by name.
    pub fn backends(&self) -> impl Iterator<Item = (&BackendName, &Offered)> {
        self.backends.iter()
    }

    /// The tool that fetches results later, if any backend needs it.
    pub fn results(&self) -> Option<&Ref> {
        self.results.as_deref()
    }

    /// The same, if a run with these backends needs it.
    pub fn results_for(&self, backends: &BTreeSet<BackendName>) -> Option<&Ref> {
        let can_pend = |name| self.backends.get(name).is_some_and(|offered| offered.can_pend);
        self.results().filter(|_| backends.iter().any(can_pend))
    }

    /// All refs that a run with these backends is given.
    pub fn refs(&self, backends: &BTreeSet<BackendName>) -> impl Iterator<Item = &Ref> {
        let offered = backends.iter().filter_map(|name| self.backends.get(name));
        offered.flat_map(Offered::refs).chain(self.results_for(backends))
    }

    /// SHA-256 over the refs of `backends`, in hex: the digest of `/v1/tool-refs`.
    pub fn digest(&self, backends: &BTreeSet<BackendName>) -> String {
        digest_of(self.refs(backends))
    }

    /// The same over all backends; computed once.
    pub fn digest_of_all(&self) -> &str {
        self.digest.get_or_init(|| self.digest(&self.backends.keys().cloned().collect()))
    }
}

fn digest_of<'a>(refs: impl IntoIterator<Item = &'a Ref>) -> String {
    let mut hash = Sha256::new();
    for tool_ref in refs {
        hash.update((tool_ref.json.len() as u64).to_be_bytes());
        hash.update(&tool_ref.json);
    }
    hex(&hash.finalize())
}

impl Offered {
    /// Its refs, in order.
    pub fn refs(&self) -> impl Iterator<Item = &Ref> {
        self.refs.iter().map(Arc::as_ref)
    }
}

impl Ref {
    fn new(head: String, items: Vec<Item>, tail: &'static str) -> Self {
        let mut this = Self { json: Bytes::new(), head, tail, items };
        this.json = this.with_names(Arc::clone);
        this
    }

    /// The model-facing names in it.
    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.items.iter().map(|item| &item.name)
    }

    /// The ref with other names, for a run whose caller has taken some.
    pub fn with_names(&self, rename: impl Fn(&Arc<str>) -> Arc<str>) -> Bytes {
        let inside: usize =
            self.items.iter().map(|item| item.before.len() + item.after.len() + 67).sum();
        let mut text = String::with_capacity(self.head.len() + inside + self.tail.len());
        text.push_str(&self.head);
        for (at, item) in self.items.iter().enumerate() {
            if at > 0 {
                text.push(',');
            }
            text.push_str(&item.before);
            text.push('"');
            text.push_str(&rename(&item.name));
            text.push('"');
            text.push_str(&item.after);
        }
        text.push_str(self.tail);
        Bytes::from(text)
    }
}

/// What one source contributes, before names are known.
struct Plan<'a> {
    source: &'a Source,
    shape: Shape<'a>,
    tools: Vec<Nameless<'a>>,
    refused: bool,
}

enum Shape<'a> {
    Nothing,
    Stub,
    Mcp { server_info: Option<&'a RawValue>, tools: Vec<&'a Tool> },
    A2a { card: &'a RawValue },
    Local { definition: &'a RawValue, input: &'a Arc<InputSchema> },
}

impl<'a> Plan<'a> {
    fn of(source: &'a Source) -> Self {
        let usable = match (source.available, source.on_unavailable) {
            (true, _) | (false, OnUnavailable::Stale) => source.catalog.as_deref(),
            (false, OnUnavailable::Stub | OnUnavailable::Omit | OnUnavailable::Fail) => None,
        };
        let backend = source.name.as_str();
        let (shape, tools) = match (usable.map(Catalog::content), source.on_unavailable) {
            (Some(Content::Mcp { server_info, tools }), _) => {
                let is_offered = |tool: &&Tool| {
                    source.naming.tools.passes(&tool.name) && !source.review.withdraws(&tool.name)
                };
                let offered: Vec<_> = tools.iter().filter(is_offered).collect();
                let nameless = offered.iter().map(|tool| Nameless {
                    backend,
                    tool: &tool.name,
                    wanted: source.naming.wanted(&tool.name),
                });
                let nameless = nameless.collect();
                let server_info = server_info.as_deref();
                (Shape::Mcp { server_info, tools: offered }, nameless)
            }
            (Some(Content::A2a { .. }), _) if source.review.withdraws(CARD) => {
                (Shape::Nothing, Vec::new())
            }
            (Some(Content::A2a { card }), _) => {
                let nameless = Nameless { backend, tool: "", wanted: backend.to_owned() };
                (Shape::A2a { card }, vec![nameless])
            }
            (Some(Content::Local { definition, input }), _) => {
                let nameless = Nameless { backend, tool: "", wanted: backend.to_owned() };
                (Shape::Local { definition, input }, vec![nameless])
            }
            (None, OnUnavailable::Stub | OnUnavailable::Stale) => {
                let wanted = format!("{backend}{STUB}");
                (Shape::Stub, vec![Nameless { backend, tool: "", wanted }])
            }
            (None, OnUnavailable::Omit | OnUnavailable::Fail) => (Shape::Nothing, Vec::new()),
        };
        let refused = usable.is_none() && source.on_unavailable == OnUnavailable::Fail;
        Self { source, shape, tools, refused }
    }

    /// Whether a call of one of its tools may become a long call.
    fn can_pend(&self) -> bool {
        let has_peer = !matches!(self.shape, Shape::Nothing | Shape::Stub);
        self.source.can_pend && has_peer && !self.tools.is_empty()
    }

    /// Where the tool at `at` in [`Self::tools`] is.
    fn route(&self, at: usize) -> Route {
        let name: Arc<str> = self.tools.get(at).map_or("", |tool| tool.tool).into();
        let source = self.source;
        let (kind, target, repeatable, destructive) = match &self.shape {
            Shape::Stub => (RefKind::Local, Target::Stub, false, false),
            Shape::Mcp { tools, .. } => {
                let tool = tools.get(at);
                let input = tool.map(|tool| Arc::clone(&tool.input));
                let repeatable = tool.is_some_and(|tool| source.vouches_for(tool));
                let destructive =
                    tool.is_none_or(|tool| hints::mcp_tool_is_destructive(tool.raw.get()));
                (source.kind, Target::Tool { name, input }, repeatable, destructive)
            }
            Shape::Local { definition, input } => {
                let target = Target::Tool { name, input: Some(Arc::clone(input)) };
                (source.kind, target, hints::local_tool_is_repeatable(definition.get()), false)
            }
            Shape::Nothing | Shape::A2a { .. } => {
                (source.kind, Target::Tool { name, input: None }, false, false)
            }
        };
        Route { backend: source.name.clone(), kind, target, repeatable, destructive }
    }

    fn write(&self, names: &[Arc<str>]) -> Vec<Ref> {
        match &self.shape {
            Shape::Nothing => Vec::new(),
            Shape::Stub => names.iter().map(|name| self.stub(name)).collect(),
            Shape::A2a { card } => names.iter().map(|name| self.agent(name, card)).collect(),
            Shape::Local { definition, .. } => {
                names.iter().map(|name| local(name, definition)).collect()
            }
            Shape::Mcp { server_info, tools } => names
                .chunks(MAX_TOOLS_PER_REF)
                .zip(tools.chunks(MAX_TOOLS_PER_REF))
                .enumerate()
                .map(|(at, (names, tools))| self.server(at, *server_info, names, tools))
                .collect(),
        }
    }

    fn stub(&self, name: &Arc<str>) -> Ref {
        let backend = &self.source.name;
        let description = quote(&format!(
            "The tools of `{backend}` are not available at the moment. Call this to learn why."
        ));
        let after = format!(
            ",\"description\":{description},\
             \"parameters\":{{\"type\":\"object\",\"properties\":{{}}}},\"readOnly\":true"
        );
        let item = Item { name: Arc::clone(name), before: String::new(), after };
        Ref::new(LOCAL_HEAD.to_owned(), vec![item], "}")
    }

    fn agent(&self, name: &Arc<str>, card: &RawValue) -> Ref {
        let mut after = String::new();
        if let Some(description) = &self.source.description {
            after.push_str(",\"description\":");
            after.push_str(&quote(description));
        }
        after.push_str(",\"agentCard\":");
        after.push_str(card.get());
        let item = Item { name: Arc::clone(name), before: String::new(), after };
        Ref::new("{\"kind\":\"a2a_local\",\"name\":".to_owned(), vec![item], "}")
    }

    fn server(
        &self,
        at: usize,
        server_info: Option<&RawValue>,
        names: &[Arc<str>],
        tools: &[&Tool],
    ) -> Ref {
        let label = match at {
            0 => self.source.name.to_string(),
            _ => format!("{}__{}", self.source.name, at + 1),
        };
        let mut head = format!("{{\"kind\":\"mcp_local\",\"name\":\"{label}\"");
        if let Some(info) = server_info {
            head.push_str(",\"serverInfo\":");
            head.push_str(info.get());
        }
        head.push_str(",\"tools\":[");
        let items =
            names.iter().zip(tools).map(|(name, tool)| around_name(name, &tool.raw)).collect();
        Ref::new(head, items, "]}")
    }
}

/// The route to the bridge itself.
fn to_results() -> Route {
    let backend = pending::backend();
    let target = Target::Results;
    Route { backend, kind: RefKind::Local, target, repeatable: true, destructive: false }
}

/// The ref of a local tool, its members in the order of the definition.
fn local(name: &Arc<str>, definition: &RawValue) -> Ref {
    let members = json::Members::read(definition.get()).map(|members| members.0);
    let after =
        members.unwrap_or_default().iter().fold(String::new(), |mut after, (key, value)| {
            after.push(',');
            after.push_str(&quote(key));
            after.push(':');
            after.push_str(value.get());
            after
        });
    let item = Item { name: Arc::clone(name), before: String::new(), after };
    Ref::new(LOCAL_HEAD.to_owned(), vec![item], "}")
}

/// The text of a tool before and after the value of its `name`.
fn around_name(name: &Arc<str>, raw: &RawValue) -> Item {
    let (before, after) =
        json::around(raw.get(), "name").expect("a catalog holds only tools that have a name");
    Item { name: Arc::clone(name), before: before.to_owned(), after: after.to_owned() }
}

fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
pub(crate) mod tests;
