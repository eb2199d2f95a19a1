//! Puts tool refs into a run spec: the `tools` of the spec change, and no other byte of it.
//!
//! Must not: copy the spec's text (it may carry 50 MiB of attachments) or read it into values.

mod prompt;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::json::{Unread, each_member, elements_at_most, span};
use super::offer::Ref;
use super::routes::Stored;
use super::words::Words as _;
use super::{
    BackendName, Call, Members, Offer, Own, RefKind, Route, Routes, RunKind, Target, naming,
    string_member,
};

use crate::model::maps::{HashMap, HashSet};

/// The most entries of `tools`, with the tools inside of them. MANTYX takes 64 of each.
const MAX_TOOLS: usize = 4096;
/// The most members of the spec itself.
const MAX_MEMBERS: usize = 1 << 16;

/// A spec as the caller sent it, with the position of its `tools`. All positions are offsets in
/// `body`, of which the spec may be a part.
#[derive(Debug)]
pub struct Spec {
    body: Bytes,
    /// The value of `tools`, if the spec has one.
    tools: Option<Range<usize>>,
    /// Where a new member can be inserted: right after the opening brace.
    open: usize,
    is_empty: bool,
    refs: Vec<CallerRef>,
    /// The first words of `prompt`, for people; empty without one.
    prompt: Box<str>,
    /// Whether `refs` differ from those in the body.
    is_replaced: bool,
}

/// One entry of the caller's own `tools`.
#[derive(Debug)]
struct CallerRef {
    text: Bytes,
    /// The names under which the model sees it, as far as its text says; none if a backend fills
    /// it.
    names: Vec<String>,
    /// The kind and the name of a placeholder: a ref that may name a backend of the bridge and
    /// leave the content to it. A ref of any kind but `local` has no other meaning.
    placeholder: Option<(RefKind, String)>,
}

/// Why the bridge cannot inject into a body. The text is for the caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    #[error("the body is not JSON: {0}")]
    NotJson(String),
    #[error("the body is not a JSON object")]
    NotAnObject,
    #[error("the key {0:?} stands twice in the body")]
    DuplicateKey(String),
    #[error("`tools` is not an array")]
    ToolsNotAnArray,
    #[error("`agent` is not an object")]
    AgentNotAnObject,
    #[error("`tools` has more than {MAX_TOOLS} entries, the tools inside of them included")]
    TooManyTools,
    #[error("it has more than {MAX_MEMBERS} members")]
    TooManyMembers,
}

/// Why the requested refs cannot be given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InjectError {
    #[error("the bridge has no backend {name:?} of the kind asked for that this app may use")]
    UnknownBackend { name: String, candidates: Vec<String> },
    #[error(
        "the backend {0} is down, and its configuration refuses runs then (on_unavailable: fail)"
    )]
    Refused(BackendName),
}

/// Which backends a run gets if its spec has no placeholder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// All that the app may use.
    All,
    /// Exactly these (`X-Bridge-Backends`).
    Named(Vec<String>),
}

/// A spec with its refs, and the run's table.
#[derive(Debug)]
pub struct Injected {
    /// The new body, in pieces.
    pub body: Vec<Bytes>,
    pub table: Table,
    /// Tools per backend, for `X-Bridge-Injected`.
    pub counts: BTreeMap<BackendName, usize>,
    /// The first words of the run's prompt, for people; empty if it has none.
    pub prompt: Box<str>,
}

/// The names that the bridge owns in one run and where they lead. Fixed for the run's life.
#[derive(Debug, Clone)]
pub struct Table {
    routes: Arc<Routes>,
    /// All else. The digest in it is filled in when it is written.
    rest: StoredTable,
}

/// The record of a [`Table`] without its routes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredTable {
    /// The digest of the routes, which the journal keeps once for all runs that have them.
    pub routes: Arc<str>,
    backends: Arc<BTreeSet<BackendName>>,
    /// Maps the names that the caller took, and the names given in their place, to the offer's
    /// names.
    renamed: BTreeMap<String, Arc<str>>,
    taken: BTreeSet<Arc<str>>,
    /// It has the tool that fetches results.
    #[serde(default)]
    results: bool,
    /// It has the two tools of a search.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    search: bool,
    /// Whether the app, and not the bridge, put the names into the run: then a name alone proves
    /// nothing.
    assumed: bool,
}

impl StoredTable {
    /// Whether the run has this tool of the bridge.
    fn has(&self, own: Own) -> bool {
        if own == Own::Results { self.results } else { self.search }
    }

    fn give(&mut self, own: Own) {
        *(if own == Own::Results { &mut self.results } else { &mut self.search }) = true;
    }
}

impl Table {
    /// The table of a run without any tool of the bridge.
    pub fn empty() -> Self {
        Self::new(Arc::default(), BTreeSet::new())
    }

    fn new(routes: Arc<Routes>, backends: BTreeSet<BackendName>) -> Self {
        let backends = Arc::new(backends);
        Self { routes, rest: StoredTable { backends, ..StoredTable::default() } }
    }

    /// The table of a run that its app submitted itself, with refs of `backends` that the app had
    /// from the bridge.
    ///
    /// If the app's own names clashed with the bridge's, [`Spec::inject`] gave the latter a suffix;
    /// the table has these names as well.
    pub fn assumed(offer: &Offer, backends: BTreeSet<BackendName>) -> Self {
        let mut table = Self::new(Arc::clone(&offer.routes), backends);
        let backends = Arc::clone(&table.rest.backends);
        for name in offer.refs(&backends).flat_map(Ref::names) {
            let Some(route) = offer.route(name) else { continue };
            let suffixed = naming::suffixed(name, route.backend.as_str(), route.target.tool(), 0);
            if offer.route(&suffixed).is_none() {
                table.rest.renamed.insert(suffixed, Arc::clone(name));
            }
        }
        offer.own(|name| backends.contains(name)).for_each(|(own, _)| table.rest.give(own));
        table.rest.assumed = true;
        table
    }

    /// The record of the table, and its routes.
    pub fn stored(&self) -> (StoredTable, &Stored) {
        let routes = self.routes.stored();
        (StoredTable { routes: Arc::clone(&routes.digest), ..self.rest.clone() }, routes)
    }

    /// Restores the table; `routes` are those of its digest.
    pub fn restore(stored: &StoredTable, routes: Arc<Routes>) -> Self {
        Self { routes, rest: stored.clone() }
    }

    /// Restores a table whose routes are lost. `routes` are others, by which its names may lead
    /// elsewhere.
    pub fn remade(stored: &StoredTable, routes: Arc<Routes>) -> Self {
        Self { routes, rest: StoredTable { assumed: true, ..stored.clone() } }
    }

    /// Where `call` leads, if the bridge is to answer it.
    ///
    /// If the bridge wrote the run's refs, the name decides. Otherwise the app may have a tool of
    /// the same name, so kind and server must agree as well.
    pub fn route_of_call(&self, call: &Call) -> Option<&Route> {
        let route = self.route(&call.name)?;
        if self.rest.assumed && !route.is_meant_by(call) {
            return None;
        }
        Some(route)
    }

    /// Where `name` leads in this run, if the run was shown it as the bridge's.
    ///
    /// A name of a tool that the model has to find leads nowhere here. The spec has no such tool,
    /// so a call of it is meant for a tool of the caller: of its own ref, or of a ref whose tools
    /// the bridge does not know.
    pub fn route(&self, name: &str) -> Option<&Route> {
        self.routes.shown(self.original(name)?).filter(|route| match route.target {
            Target::Own(own) => self.rest.has(own),
            Target::Tool { .. } | Target::Stub => self.backends().contains(&route.backend),
        })
    }

    /// Where `name` leads in a call of [`Own::Call`], be it that of a tool that the model has to
    /// find.
    pub fn tool(&self, name: &str) -> Option<&Route> {
        let route = self.routes.get(self.original(name)?)?;
        if !matches!(route.target, Target::Tool { .. }) {
            return None;
        }
        if self.backends().contains(&route.backend) { Some(route) } else { None }
    }

    /// The offer's name for what this run calls `name`; `None` if it is the caller's.
    fn original<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        match self.rest.renamed.get(name) {
            Some(original) => Some(original),
            None if self.rest.taken.contains(name) => None,
            None => Some(name),
        }
    }

    /// This run's name for the tool that an offer calls `name`; `None` if the run has no such tool.
    /// `route` is where the offer's name leads, which may be elsewhere than where this run's does.
    pub fn name_of<'a>(&'a self, name: &'a str, route: &Route) -> Option<&'a str> {
        let own = if self.rest.taken.contains(name) { self.replacement(name)? } else { name };
        let tool = self.tool(own)?;
        if tool.backend != route.backend || tool.target.tool() != route.target.tool() {
            return None;
        }
        Some(own)
    }

    /// The name in place of `original`, which the caller has for a tool of its own.
    fn replacement(&self, original: &str) -> Option<&str> {
        let mut renamed = self.rest.renamed.iter();
        renamed.find(|(_, name)| ***name == *original).map(|(new, _)| new.as_str())
    }

    /// The name of the tool that fetches results later, if the run has it.
    pub fn results(&self) -> Option<&str> {
        let name = self.routes.own(Own::Results).filter(|_| self.rest.results)?;
        if self.rest.taken.contains(name) { self.replacement(name) } else { Some(name) }
    }

    /// The backends whose tools the run has.
    pub fn backends(&self) -> &BTreeSet<BackendName> {
        &self.rest.backends
    }

    /// Whether `offer` has other refs for the run's backends than the run was given.
    pub fn differs_from(&self, offer: &Offer) -> bool {
        let (old, new) = (&self.routes, &offer.routes);
        if Arc::ptr_eq(old, new) {
            return false;
        }
        let mut own_tools = Own::ALL.into_iter().filter(|own| self.rest.has(*own));
        let offered_own = offer.own(|name| self.backends().contains(name)).map(|(own, _)| own);
        !offered_own.eq(own_tools.clone())
            || !self.backends().iter().all(|name| old.agree_on(new, name))
            || !own_tools.all(|own| old.agree_on(new, &own.backend()))
    }

    /// About how many bytes [`Self::stored`] takes beside the routes.
    pub fn size(&self) -> usize {
        let backends = self.backends().iter().map(|name| name.as_str().len());
        let renamed = self.rest.renamed.iter().map(|(new, name)| new.len() + name.len());
        let taken = self.rest.taken.iter().map(|name| name.len());
        backends.chain(renamed).chain(taken).map(|bytes| bytes + 8).sum()
    }

    /// Whether the run has none of the bridge's tools.
    pub fn is_empty(&self) -> bool {
        self.backends().is_empty()
    }

    /// The text of `one` for this run, with other names in place of those that the caller has
    /// taken.
    fn settle(&mut self, one: &Ref, caller: &HashSet<&str>) -> Bytes {
        if !one.names_in_text().any(|name| caller.contains(name.as_ref())) {
            return one.json.clone();
        }
        let replacements = self.rename(one.names_in_text(), caller);
        one.with_names(|name| replacements.get(name).unwrap_or(name).clone())
    }

    /// Gives other names to those of `names` that the caller has for its own tools. The table keeps
    /// both: the caller's name leads nowhere here, and the new one to the bridge's tool.
    fn rename<'a>(
        &mut self,
        names: impl Iterator<Item = &'a Arc<str>>,
        caller: &HashSet<&str>,
    ) -> HashMap<Arc<str>, Arc<str>> {
        let mut replacements = HashMap::default();
        for name in names.filter(|name| caller.contains(name.as_ref())) {
            let Some(route) = self.routes.get(name) else { continue };
            let tool = route.target.tool();
            // A handful of rounds at most: each takes another hash.
            let free = (0..)
                .map(|round| naming::suffixed(name, route.backend.as_str(), tool, round))
                .find(|new| !caller.contains(new.as_str()) && self.routes.get(new).is_none());
            if let Some(new) = free {
                self.rest.taken.insert(Arc::clone(name));
                self.rest.renamed.insert(new.clone(), Arc::clone(name));
                replacements.insert(Arc::clone(name), Arc::<str>::from(new));
            }
        }
        replacements
    }
}

impl Spec {
    /// Reads what injection needs from `body`, which starts a run of this kind. In an eval that has
    /// its agent inline, the spec is that agent.
    pub fn read(kind: RunKind, body: Bytes) -> Result<Self, SpecError> {
        let text = std::str::from_utf8(&body)
            .map_err(|error| SpecError::NotJson(format!("it is not UTF-8 ({error})")))?;
        let whole = members(text)?;
        let agent = whole.get("agent").filter(|agent| agent.get() != "null");
        let prompt = prompt::first_words(whole.get("prompt"));
        let (members, at) = match (kind, agent) {
            (RunKind::Eval, Some(agent)) => {
                let members = members(agent.get()).map_err(|error| match error {
                    SpecError::NotAnObject => SpecError::AgentNotAnObject,
                    other => other,
                })?;
                (members, span(text, agent).start)
            }
            _ => (whole, 0),
        };
        let tools = members.get("tools").map(|value| span(text, value));
        let refs = match &tools {
            Some(at) => CallerRef::read_all(&body.slice(at.clone()))?,
            None => Vec::new(),
        };
        let open = at + text.bytes().skip(at).take_while(|&byte| byte != b'{').count() + 1;
        let is_empty = members.0.is_empty();
        Ok(Self { is_empty, body, tools, open, refs, prompt, is_replaced: false })
    }

    /// The caller's own `tools`, as text, if the spec has the key.
    pub fn tools(&self) -> Option<Bytes> {
        // A copy: a session remembers it, and a slice would keep the whole spec in memory.
        Some(Bytes::copy_from_slice(self.body.get(self.tools.clone()?)?))
    }

    /// Whether the spec has `tools` of its caller's.
    pub fn has_tools(&self) -> bool {
        self.tools.is_some()
    }

    /// The body as it came.
    pub fn untouched(&self) -> Vec<Bytes> {
        vec![self.body.clone()]
    }

    /// The spec with `tools`, from an earlier [`Spec::tools`], in place of its own.
    pub fn with_tools(mut self, tools: &Bytes) -> Result<Self, SpecError> {
        self.refs = CallerRef::read_all(tools)?;
        self.is_replaced = true;
        Ok(self)
    }

    /// Injects the refs of `offer` into the spec: those that placeholders name, or else those of
    /// `selection`.
    pub fn inject(&self, offer: &Offer, selection: &Selection) -> Result<Injected, InjectError> {
        let mut in_place = Vec::with_capacity(self.refs.len());
        for own in &self.refs {
            in_place.push(match &own.placeholder {
                None => None,
                // A local tool without `parameters` may also be the caller's own.
                Some((RefKind::Local, name)) => pick(offer, name, Some(RefKind::Local)).ok(),
                Some((kind, name)) => Some(pick(offer, name, Some(*kind))?),
            });
        }
        let mut chosen: BTreeSet<BackendName> = in_place.iter().flatten().cloned().collect();
        match selection {
            Selection::Named(names) => {
                for name in names {
                    chosen.insert(pick(offer, name, None)?);
                }
            }
            Selection::All if !chosen.is_empty() => {}
            Selection::All => chosen.extend(offer.backends().map(|(name, _)| name.clone())),
        }
        for name in &chosen {
            if offer.backend(name.as_str()).is_some_and(|offered| offered.refused) {
                return Err(InjectError::Refused(name.clone()));
            }
        }
        if chosen.is_empty() && !self.is_replaced {
            // The run gets no ref, so the body stays untouched.
            return Ok(Injected {
                body: self.untouched(),
                table: Table::empty(),
                counts: BTreeMap::new(),
                prompt: self.prompt.clone(),
            });
        }
        Ok(self.write(offer, chosen, &in_place))
    }

    /// Writes the refs and the run's table from one offer, so that every name in the run leads
    /// where its definition came from. The caller's refs keep their text and names. A tool of the
    /// bridge with a name of the caller's gets another one: otherwise its calls would reach the
    /// wrong tool.
    fn write(
        &self,
        offer: &Offer,
        chosen: BTreeSet<BackendName>,
        in_place: &[Option<BackendName>],
    ) -> Injected {
        let own_refs = self.refs.iter().zip(in_place).filter(|(_, filled)| filled.is_none());
        let caller: HashSet<&str> =
            own_refs.flat_map(|(own, _)| &own.names).map(String::as_str).collect();
        let mut table = Table::new(Arc::clone(&offer.routes), chosen);
        let backends = Arc::clone(&table.rest.backends);
        let mut counts = BTreeMap::new();
        let mut hides = false;
        let mut texts: HashMap<&BackendName, Vec<Bytes>> = HashMap::default();
        let in_order = offer.in_order(|name| backends.contains(name));
        for &name in &in_order {
            let Some(offered) = offer.backend(name.as_str()) else { continue };
            counts.insert(name.clone(), offered.tools);
            hides |= offered.hidden().next().is_some();
            table.rename(offered.hidden().flat_map(Ref::names), &caller);
            let refs = offered.refs().map(|one| table.settle(one, &caller)).collect();
            texts.insert(name, refs);
        }

        let mut list: Vec<Bytes> = Vec::new();
        for (own, filled) in self.refs.iter().zip(in_place) {
            match filled {
                // A second placeholder for a backend adds nothing: its refs are in the list.
                Some(name) => list.extend(texts.remove(name).unwrap_or_default()),
                None => list.push(own.text.clone()),
            }
        }
        list.extend(in_order.into_iter().filter_map(|name| texts.remove(name)).flatten());
        for (own, one) in offer.own(|name| backends.contains(name)) {
            table.rest.give(own);
            list.push(table.settle(one, &caller));
        }
        // A run with backends that contribute nothing (omitted, or without tools) has no tool of
        // the bridge.
        if !hides && counts.values().all(|&tools| tools == 0) {
            table.rest.backends = Arc::default();
        }
        Injected { body: self.splice(list), table, counts, prompt: self.prompt.clone() }
    }

    /// The body with `list` as its `tools`, in pieces of the text that came. Reading the spec into
    /// values and writing it again would change its numbers, escapes and order, and would copy its
    /// attachments.
    fn splice(&self, list: Vec<Bytes>) -> Vec<Bytes> {
        if list.is_empty() && self.refs.is_empty() {
            return self.untouched();
        }
        let (until, from, before, after) = match &self.tools {
            Some(at) => (at.start, at.end, "[", "]"),
            None if self.is_empty => (self.open, self.open, "\"tools\":[", "]"),
            None => (self.open, self.open, "\"tools\":[", "],"),
        };
        let mut body = vec![self.body.slice(..until), Bytes::from_static(before.as_bytes())];
        for (at, one) in list.into_iter().enumerate() {
            if at > 0 {
                body.push(Bytes::from_static(b","));
            }
            body.push(one);
        }
        body.push(Bytes::from_static(after.as_bytes()));
        body.push(self.body.slice(from..));
        body
    }
}

/// The backend of `offer` that a caller calls `name`, of this kind or of any.
fn pick(offer: &Offer, name: &str, kind: Option<RefKind>) -> Result<BackendName, InjectError> {
    let candidates: Vec<&BackendName> = offer
        .backends()
        .filter(|(_, offered)| kind.is_none_or(|kind| offered.kind == kind))
        .map(|(name, _)| name)
        .collect();
    match candidates.iter().find(|candidate| candidate.as_str() == name) {
        Some(backend) => Ok(BackendName::clone(backend)),
        None => Err(InjectError::UnknownBackend {
            name: name.to_owned(),
            candidates: candidates.iter().map(ToString::to_string).collect(),
        }),
    }
}

/// The members of an object somewhere in a body.
fn members(text: &str) -> Result<Members<'_>, SpecError> {
    if !text.trim_ascii_start().starts_with('{') {
        return Err(serde_json::from_str::<serde::de::IgnoredAny>(text).map_or_else(
            |error| SpecError::NotJson(error.to_string()),
            |_| SpecError::NotAnObject,
        ));
    }
    let members = Members::read_at_most(text, MAX_MEMBERS).map_err(|why| match why {
        Unread::NotJson(error) => SpecError::NotJson(error.to_string()),
        Unread::TooMany => SpecError::TooManyMembers,
    })?;
    match members.duplicate() {
        Some(key) => Err(SpecError::DuplicateKey(key.to_owned())),
        None => Ok(members),
    }
}

impl CallerRef {
    /// Reads the value of `tools`.
    fn read_all(tools: &Bytes) -> Result<Vec<Self>, SpecError> {
        let text = std::str::from_utf8(tools).unwrap_or_default();
        if text == "null" {
            return Ok(Vec::new());
        }
        let elements = elements(text, MAX_TOOLS)?;
        let mut room = MAX_TOOLS - elements.len();
        elements
            .iter()
            .map(|raw| Self::read(tools.slice(span(text, raw)), raw.get(), &mut room))
            .collect()
    }

    /// Reads one entry; `room` is for the tools inside.
    fn read(whole: Bytes, text: &str, room: &mut usize) -> Result<Self, SpecError> {
        let name = string_member(text, "name");
        let kind_word = string_member(text, "kind");
        let kind = kind_word.as_deref().and_then(RefKind::parse);
        let mut tools = None;
        let mut agent_card = false;
        let mut parameters = false;
        let outcome = each_member(text, |key, value| match key.as_ref() {
            "tools" => tools = tools.or(Some(value)),
            "agentCard" => agent_card = true,
            "parameters" => parameters = true,
            _ => (),
        });
        if outcome.is_err() {
            // MANTYX refuses such an entry.
            (tools, agent_card, parameters) = (None, false, false);
        }
        let lacks_content = match kind {
            Some(RefKind::McpLocal) => tools.is_none(),
            Some(RefKind::A2aLocal) => !agent_card,
            Some(RefKind::Local) => !parameters,
            None => false,
        };
        let placeholder = if lacks_content { kind.zip(name.clone()) } else { None };
        let names = match (kind, tools) {
            // The name of an `mcp_local` ref is a label; the model sees its tools' names.
            (Some(RefKind::McpLocal), Some(tools)) => {
                let tools = match elements(tools.get(), *room) {
                    Err(SpecError::ToolsNotAnArray) => Vec::new(),
                    elements => elements?,
                };
                *room -= tools.len();
                tools.iter().filter_map(|tool| string_member(tool.get(), "name")).collect()
            }
            _ => name.into_iter().collect(),
        };
        Ok(Self { text: whole, names, placeholder })
    }
}

/// The elements of a list of tools, `most` of them.
fn elements(text: &str, most: usize) -> Result<Vec<&RawValue>, SpecError> {
    elements_at_most(text, most).map_err(|why| match why {
        Unread::NotJson(_not_an_array) => SpecError::ToolsNotAnArray,
        Unread::TooMany => SpecError::TooManyTools,
    })
}

#[cfg(test)]
mod tests;
