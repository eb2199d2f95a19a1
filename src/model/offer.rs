//! What runs can be given at one moment: the tool refs of every backend, written out once, and the
//! way from each model-facing name back to the tool behind it.
//!
//! An [`Offer`] is immutable. A run keeps the one that it was created with, so its names lead where
//! they led at the start, whatever a later refresh brings.
//!
//! Must not: know connections, or change a byte of what a peer sent other than a tool's name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::{iter, mem};

use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::Digest as _;

use seen::Views;

use super::catalog::{Tool, hash_of, hex};
use super::catalog_search::Index;
use super::json::quoted;
use super::naming::Nameless;
use super::pin::{CARD, INSTRUCTIONS, Mode};
pub use super::routes::{Route, Target};
use super::words::words;
use super::{
    BackendName, Catalog, Content, InputSchema, Naming, Own, Review, Routes, hints, json, naming,
};

use crate::model::maps::HashMap;

pub mod cost;
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

/// How a model learns of tools; the `offer` of bridge.yaml.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum OfferMode {
    // All of them are in the run's spec.
    #[default]
    All,
    // It searches for them.
    Search,
    // It searches for those of a backend that has many.
    Auto,
}

/// With [`OfferMode::Auto`], a model searches for the tools of a backend that has more than these,
/// or whose refs take more than these tokens.
const AUTO_TOOLS: usize = 100;
const AUTO_TOKENS: usize = 20_000;

words! {
    /// The kinds of tool refs that the bridge makes; MANTYX's `kind` (agent-runs-protocol §1).
    #[derive(Hash, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum RefKind {
        Local = "local",
        A2aLocal = "a2a_local",
        McpLocal = "mcp_local",
    }
}

/// The present state of one backend, from which an [`Offer`] is built.
#[derive(Debug, Clone)]
pub struct Source {
    pub name: BackendName,
    /// Its place in bridge.yaml: backends are offered in this order.
    pub place: usize,
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
            Some(Content::Local(input)) => {
                hints::local_tool_is_repeatable(input.definition().get())
            }
            Some(Content::A2a { .. }) | None => false,
        }
    }

    /// The instructions of an MCP server, unless the operator has not accepted them.
    fn instructions(&self) -> Option<Arc<str>> {
        let text = self.catalog.as_deref()?.instructions().text()?;
        if self.review.withdraws(INSTRUCTIONS) { None } else { Some(Arc::clone(text)) }
    }

    /// Whether an MCP server says that `tool` is safe to repeat, and the operator trusts it.
    fn vouches_for(&self, tool: &Tool) -> bool {
        self.trusted && hints::mcp_tool_is_repeatable(tool.raw.get())
    }
}

/// All that runs can be given at one moment. The default is nothing.
#[derive(Debug, Default)]
pub struct Offer {
    backends: BTreeMap<BackendName, Offered>,
    /// Where all names lead.
    pub routes: Arc<Routes>,
    /// The bridge's own tools; see [`Self::own`] for which of them a run needs.
    own: BTreeMap<Own, Arc<Ref>>,
    /// All tools, those included that this view does not show.
    index: Arc<Index>,
    digest: OnceLock<String>,
    views: Views,
}

/// What one backend contributes.
#[derive(Debug)]
pub struct Offered {
    /// The kind that a placeholder for the backend has.
    pub kind: RefKind,
    place: usize,
    naming: Arc<Naming>,
    refs: Vec<Arc<Ref>>,
    /// The tools that are only found by a search.
    hidden: Vec<Arc<Ref>>,
    /// Tools in `refs`; what `X-Bridge-Injected` counts.
    pub tools: usize,
    /// Runs that ask for it are refused (`on_unavailable: fail`).
    pub refused: bool,
    /// It has tools whose calls may become long calls.
    pub can_pend: bool,
    /// Its tools are its peer's: it is no stub.
    has_peer: bool,
    /// What an MCP server tells models about its tools. No ref and no digest has it.
    instructions: Option<Arc<str>>,
}

/// One written tool ref.
#[derive(Debug)]
pub struct Ref {
    /// The ref as JSON text.
    pub json: Bytes,
    head: String,
    tail: &'static str,
    items: Vec<Item>,
    /// The bridge's own tools that its text names, by their names in the offer.
    others: Vec<(Own, Arc<str>)>,
    /// Which of its tools' output schemas MCP clients can use.
    outputs: OnceLock<Vec<Output>>,
}

/// The `outputSchema` of a tool.
#[derive(Debug, Clone, Copy)]
enum Output {
    None,
    /// It cannot be checked against.
    Unusable,
    OfObject,
    /// Output that may be no object, which 2026-07-28 brought.
    Any,
}

/// One name in a ref, and the text around it.
#[derive(Debug, Clone)]
struct Item {
    name: Arc<str>,
    before: String,
    after: String,
}

impl Offer {
    /// Names every tool of every source, and writes the refs. Names are given to all at once: two
    /// backends may have tools of one name, and each name must lead to one tool.
    pub fn build(sources: &[Source]) -> Self {
        let mut plans: Vec<Plan<'_>> = sources.iter().map(Plan::new).collect();
        let tools = plans.iter_mut().flat_map(|plan| mem::take(&mut plan.tools));
        let own = Own::ALL.map(|own| {
            let name = own.name();
            (Nameless { backend: name, tool: "", wanted: name.to_owned() }, Route::to(own))
        });
        let (nameless, routes): (Vec<_>, Vec<_>) = tools.chain(own).unzip();
        let names: Vec<Arc<str>> = naming::assign(&nameless).into_iter().map(Arc::from).collect();
        let routes = names.iter().cloned().zip(routes).collect();

        let mut backends = BTreeMap::new();
        let mut names = names.into_iter();
        for Plan { source, refs, has_peer, .. } in plans {
            let refs: Vec<_> =
                refs.into_iter().map(|one| Arc::new(one.named(&mut names))).collect();
            let offered = Offered {
                kind: source.kind,
                place: source.place,
                naming: Arc::clone(&source.naming),
                hidden: Vec::new(),
                tools: count(&refs),
                refused: !has_peer && source.on_unavailable == OnUnavailable::Fail,
                can_pend: has_peer && source.can_pend && !refs.is_empty(),
                has_peer,
                instructions: source.instructions().filter(|_| has_peer),
                refs,
            };
            backends.insert(source.name.clone(), offered);
        }
        let own_names: Vec<(Own, Arc<str>)> = Own::ALL.into_iter().zip(names).collect();
        let mut own_refs = BTreeMap::new();
        for (own, name) in &own_names {
            let mut one = Unnamed::local(own.definition()).named(&mut iter::once(Arc::clone(name)));
            one.others = own_names.clone();
            one.others.retain(|(other, _)| own.definition().get().contains(other.name()));
            one.json = one.with_names(Arc::clone);
            own_refs.insert(*own, Arc::new(one));
        }
        let refs = backends.values().flat_map(|offered: &Offered| &offered.refs).cloned();
        let index = Arc::new(Index::new(refs.collect()));
        Self::assemble(backends, routes, own_refs, index)
    }

    fn assemble(
        backends: BTreeMap<BackendName, Offered>,
        routes: HashMap<Arc<str>, Route>,
        own: BTreeMap<Own, Arc<Ref>>,
        index: Arc<Index>,
    ) -> Self {
        // A session gets fresh routes when tools change that its model can only find.
        let digests = backends
            .iter()
            .map(|(name, one)| (name.clone(), digest_of(one.refs().chain(one.hidden()))));
        let of_own = own.iter().map(|(own, one)| (own.backend(), digest_of([one.as_ref()])));
        let searched = backends.values().flat_map(Offered::hidden).flat_map(Ref::names).cloned();
        let table = Routes::new(routes, digests.chain(of_own).collect());
        let routes = Arc::new(table.with_searched(searched.collect()));
        Self { backends, routes, own, index, digest: OnceLock::new(), views: Views::default() }
    }

    /// Where `name` leads, if a model is shown it.
    pub fn route(&self, name: &str) -> Option<&Route> {
        self.routes.shown(name).filter(|route| self.needs(route))
    }

    /// Where `name` leads, be it that of a tool that a model has to find. Only for names that can
    /// be nothing but the bridge's: a caller may have a tool of its own under a name that is not
    /// shown.
    pub fn searched_route(&self, name: &str) -> Option<&Route> {
        self.routes.get(name).filter(|route| self.needs(route))
    }

    fn needs(&self, route: &Route) -> bool {
        match route.target {
            Target::Own(own) => self.own(|_| true).any(|(needed, _)| needed == own),
            Target::Tool { .. } | Target::Stub => true,
        }
    }

    pub fn backend(&self, name: &str) -> Option<&Offered> {
        self.backends.get(name)
    }

    /// All backends, by name.
    pub fn backends(&self) -> impl Iterator<Item = (&BackendName, &Offered)> {
        self.backends.iter()
    }

    /// The names of the backends that `is_chosen` takes, in the order of bridge.yaml.
    pub fn in_order(&self, is_chosen: impl Fn(&BackendName) -> bool) -> Vec<&BackendName> {
        let mut chosen: Vec<_> = self.backends.iter().filter(|(name, _)| is_chosen(name)).collect();
        chosen.sort_by_key(|(_, offered)| offered.place);
        chosen.into_iter().map(|(name, _)| name).collect()
    }

    /// The bridge's own tools that a run with the backends needs which `is_chosen` takes.
    pub fn own(
        &self,
        is_chosen: impl Fn(&BackendName) -> bool,
    ) -> impl Iterator<Item = (Own, &Ref)> {
        let (mut can_pend, mut hides) = (false, false);
        for (_, offered) in self.backends.iter().filter(|(name, _)| is_chosen(name)) {
            can_pend |= offered.can_pend;
            hides |= !offered.hidden.is_empty();
        }
        self.own
            .iter()
            .filter(move |(own, _)| if **own == Own::Results { can_pend } else { hides })
            .map(|(own, one)| (*own, &**one))
    }

    /// The instructions of those of these backends that have some, in the order of bridge.yaml.
    pub fn instructions(&self, backends: &BTreeSet<BackendName>) -> Vec<(&BackendName, &str)> {
        let names = self.in_order(|name| backends.contains(name)).into_iter();
        names
            .filter_map(|name| Some((name, self.backends[name].instructions.as_deref()?)))
            .collect()
    }

    /// The instructions of the server behind the tool `name`, if it has some.
    pub fn instructions_of(&self, name: &str) -> Option<(&BackendName, &str)> {
        let backend = &self.routes.get(name)?.backend;
        Some((backend, self.backends.get(backend)?.instructions.as_deref()?))
    }

    /// All refs that a run with these backends is given.
    pub fn refs(&self, backends: &BTreeSet<BackendName>) -> impl Iterator<Item = &Ref> {
        let names = self.in_order(|name| backends.contains(name));
        let refs = names.into_iter().flat_map(move |name| self.backends[name].refs());
        refs.chain(self.own(|name| backends.contains(name)).map(|(_, own_ref)| own_ref))
    }

    /// SHA-256 over the refs of `backends`, in hex: the digest of `/v1/tool-refs`.
    pub fn digest(&self, backends: &BTreeSet<BackendName>) -> String {
        digest_of(self.refs(backends))
    }

    /// [`Self::digest`] over all backends. It is computed once, as each poll of a client asks for
    /// it.
    pub fn digest_of_all(&self) -> &str {
        self.digest.get_or_init(|| self.digest(&self.backends.keys().cloned().collect()))
    }
}

/// The tools in `refs`: one of an MCP server has many.
fn count(refs: &[Arc<Ref>]) -> usize {
    refs.iter().map(|one| one.items.len()).sum()
}

fn digest_of<'a>(refs: impl IntoIterator<Item = &'a Ref>) -> String {
    hex(&hash_of(refs.into_iter().map(|one| &one.json)).finalize())
}

impl Offered {
    /// Its refs, in order.
    pub fn refs(&self) -> impl Iterator<Item = &Ref> {
        self.refs.iter().map(Arc::as_ref)
    }

    /// The refs of the tools that are only found by a search.
    pub fn hidden(&self) -> impl Iterator<Item = &Ref> {
        self.hidden.iter().map(Arc::as_ref)
    }
}

impl Ref {
    fn new(head: String, items: Vec<Item>, tail: &'static str) -> Self {
        let (json, others, outputs) = (Bytes::new(), Vec::new(), OnceLock::new());
        let mut this = Self { json, head, tail, items, others, outputs };
        this.json = this.with_names(Arc::clone);
        this
    }

    /// The model-facing names in it.
    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.items.iter().map(|item| &item.name)
    }

    /// Those, and the names of other tools in its text.
    pub fn names_in_text(&self) -> impl Iterator<Item = &Arc<str>> {
        self.names().chain(self.others.iter().map(|(_, name)| name))
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
            text.extend([&item.before, "\"", &rename(&item.name), "\"", &item.after]);
        }
        text.push_str(self.tail);
        for (own, name) in &self.others {
            text = text.replace(own.name(), &rename(name));
        }
        Bytes::from(text)
    }
}

/// What one source contributes, before names are known.
struct Plan<'a> {
    source: &'a Source,
    /// Its tools, each with the place where its name will lead.
    tools: Vec<(Nameless<'a>, Route)>,
    /// Its refs, whose tools are in the same order.
    refs: Vec<Unnamed>,
    /// It has a catalog that can be used; otherwise it is a stub, or nothing.
    has_peer: bool,
}

/// A ref whose tools have no names yet, and the text before and after the name of each.
struct Unnamed {
    head: String,
    around: Vec<(String, String)>,
    tail: &'static str,
}

impl Unnamed {
    /// The ref of one tool: its members before its name, and after it.
    fn of_one(head: &str, after: String) -> Self {
        Self { head: head.to_owned(), around: vec![(String::new(), after)], tail: "}" }
    }

    /// The ref of a local tool, its members in the order of the definition.
    fn local(definition: &RawValue) -> Self {
        let members = match json::Members::read(definition.get()) {
            Ok(members) => members.0,
            Err(_no_object) => Vec::new(),
        };
        let after = members.iter().map(|(key, value)| format!(",{}:{value}", quoted(key)));
        Self::of_one(LOCAL_HEAD, after.collect())
    }

    fn named(self, names: &mut impl Iterator<Item = Arc<str>>) -> Ref {
        let mut items = Vec::with_capacity(self.around.len());
        for ((before, after), name) in self.around.into_iter().zip(names) {
            items.push(Item { name, before, after });
        }
        Ref::new(self.head, items, self.tail)
    }
}

impl<'a> Plan<'a> {
    fn new(source: &'a Source) -> Self {
        let usable = match (source.available, source.on_unavailable) {
            (true, _) | (false, OnUnavailable::Stale) => source.catalog.as_deref(),
            (false, OnUnavailable::Stub | OnUnavailable::Omit | OnUnavailable::Fail) => None,
        };
        let mut plan =
            Self { source, tools: Vec::new(), refs: Vec::new(), has_peer: usable.is_some() };
        match (usable.map(Catalog::content), source.on_unavailable) {
            (Some(Content::Mcp { server_info, tools }), _) => {
                let mut offered: Vec<&Tool> = tools.iter().collect();
                offered.retain(|tool| {
                    source.naming.tools.passes(&tool.name) && !source.review.withdraws(&tool.name)
                });
                for (at, tools) in offered.chunks(MAX_TOOLS_PER_REF).enumerate() {
                    plan.add_server(at, server_info.as_deref(), tools);
                }
            }
            (Some(Content::A2a { .. }), _) if source.review.withdraws(CARD) => {}
            (Some(Content::A2a { card, .. }), _) => plan.add_agent(card),
            (Some(Content::Local(input)), _) => plan.add_local(input),
            (None, OnUnavailable::Stub | OnUnavailable::Stale) => plan.add_stub(),
            (None, OnUnavailable::Omit | OnUnavailable::Fail) => {}
        }
        plan
    }

    fn add(
        &mut self,
        tool: &'a str,
        wanted: String,
        target: Target,
        repeatable: bool,
        destructive: bool,
    ) {
        let Source { name, kind, .. } = self.source;
        let kind = if target == Target::Stub { RefKind::Local } else { *kind };
        let route = Route { backend: name.clone(), kind, target, repeatable, destructive };
        self.tools.push((Nameless { backend: name.as_str(), tool, wanted }, route));
    }

    fn add_stub(&mut self) {
        let backend = &self.source.name;
        let description = quoted(&format!(
            "The tools of `{backend}` are not available at the moment. Call this to learn why."
        ));
        let after = format!(
            ",\"description\":{description},\
             \"parameters\":{{\"type\":\"object\",\"properties\":{{}}}},\"readOnly\":true"
        );
        self.refs.push(Unnamed::of_one(LOCAL_HEAD, after));
        self.add("", format!("{backend}{STUB}"), Target::Stub, false, false);
    }

    fn add_agent(&mut self, card: &RawValue) {
        let description = match &self.source.description {
            Some(text) => format!(",\"description\":{}", quoted(text)),
            None => String::new(),
        };
        let after = format!("{description},\"agentCard\":{card}");
        self.refs.push(Unnamed::of_one("{\"kind\":\"a2a_local\",\"name\":", after));
        let target = Target::Tool { name: "".into(), input: None };
        self.add("", self.source.name.to_string(), target, false, false);
    }

    fn add_local(&mut self, input: &Arc<InputSchema>) {
        self.refs.push(Unnamed::local(input.definition()));
        let repeatable = hints::local_tool_is_repeatable(input.definition().get());
        let target = Target::Tool { name: "".into(), input: Some(Arc::clone(input)) };
        self.add("", self.source.name.to_string(), target, repeatable, false);
    }

    /// Adds a ref of an MCP server, which is the one at the place `at` of them.
    fn add_server(&mut self, at: usize, server_info: Option<&RawValue>, tools: &[&'a Tool]) {
        let source = self.source;
        let label =
            if at == 0 { source.name.to_string() } else { format!("{}__{}", source.name, at + 1) };
        let info = server_info.map(|info| format!(",\"serverInfo\":{info}")).unwrap_or_default();
        let head = format!("{{\"kind\":\"mcp_local\",\"name\":\"{label}\"{info},\"tools\":[");
        let mut around = Vec::with_capacity(tools.len());
        for &tool in tools {
            let text = json::around(tool.raw.get(), "name");
            let (before, after) = text.expect("a catalog holds only tools that have a name");
            around.push((before.to_owned(), after.to_owned()));
            let name = source.naming.wanted(&tool.name);
            let destructive = hints::mcp_tool_is_destructive(tool.raw.get());
            let input = Some(Arc::clone(&tool.input));
            let target = Target::Tool { name: tool.name.as_str().into(), input };
            self.add(&tool.name, name, target, source.vouches_for(tool), destructive);
        }
        self.refs.push(Unnamed { head, around, tail: "]}" });
    }
}

#[cfg(test)]
pub(crate) mod tests;
