//! The resources, resource templates and prompts of MCP servers, as the bridge's own MCP clients
//! see them. Prompts are named as tools are; URIs stay as they are.
//!
//! Must not: change a byte of a server's definition other than the name of a prompt and members
//! that are `null`, or know a connection.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, OnceLock};

use serde_json::value::RawValue;

use super::catalog::{MAX_FLAW, listed};
use super::naming::Nameless;
use super::visible::{brief, line};
use super::{BackendName, Naming, form, json, naming, string_member};

use crate::model::maps::{HashSet, fingerprint};

/// What a server may offer beside its tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Feature {
    /// The method that lists them.
    pub method: &'static str,
    /// The member of the method's result that has them.
    pub list: &'static str,
    /// The member that identifies each.
    key: &'static str,
}

impl Feature {
    pub const RESOURCE: Self = Self { method: "resources/list", list: "resources", key: "uri" };
    pub const TEMPLATE: Self =
        Self { method: "resources/templates/list", list: "resourceTemplates", key: "uriTemplate" };
    pub const PROMPT: Self = Self { method: "prompts/list", list: "prompts", key: "name" };
    pub const ALL: [Self; 3] = [Self::RESOURCE, Self::TEMPLATE, Self::PROMPT];

    fn shape(self) -> &'static form::Shape {
        match self.list {
            "resources" => &form::RESOURCE,
            "resourceTemplates" => &form::TEMPLATE,
            _ => &form::PROMPT,
        }
    }
}

/// The most features of one server, and the most bytes of them: the bridge keeps them all.
const MAX: usize = 5_000;
const MAX_BYTES: usize = 4 << 20;

/// The features of one server, each in the server's order.
#[derive(Debug, Default)]
pub struct Features {
    items: Vec<Item>,
    bytes: usize,
    completes: bool,
    /// The definitions that clients do not get, and why.
    left_out: Vec<String>,
    /// Each change of any backend asks for it.
    digest: OnceLock<u64>,
}

#[derive(Debug, Hash)]
struct Item {
    list: &'static str,
    id: String,
    json: Box<str>,
}

impl Features {
    /// `completes`: whether the server completes the arguments of prompts and templates.
    pub fn new(completes: bool) -> Self {
        Self { completes, ..Self::default() }
    }

    /// Adds the definitions of one kind, without members that are `null`. Those that are too many
    /// are left out, and those that clients cannot read, as a client refuses the whole list for one
    /// of them.
    pub fn add(&mut self, kind: Feature, definitions: Vec<Box<RawValue>>) {
        self.digest = OnceLock::new();
        for (place, definition) in definitions.into_iter().enumerate() {
            let json = form::trimmed(definition.get(), kind.shape());
            let id = string_member(&json, kind.key);
            let fits = self.items.len() < MAX && self.bytes + json.len() <= MAX_BYTES;
            let flaw = form::flaw(&json, kind.shape());
            match id {
                Some(id) if fits && flaw.is_none() => {
                    self.bytes += json.len();
                    self.items.push(Item { list: kind.list, id, json: json.into() });
                }
                id => {
                    let id_text = id.map(|id| format!(" {:?}", brief(&id))).unwrap_or_default();
                    let too_many = "it is one more than a server may have".to_owned();
                    let reason = match flaw {
                        _ if !fits => too_many,
                        Some(flaw) => flaw,
                        None => format!("`{}` is not there once", kind.key),
                    };
                    let why = line(&reason, MAX_FLAW);
                    self.left_out.push(format!("number {place} of {}{id_text} ({why})", kind.list));
                }
            }
        }
    }

    /// Notes why the list of this kind was not read to its end.
    pub fn cut(&mut self, kind: Feature, why: &str) {
        self.left_out.push(format!("the rest of {} ({why})", kind.list));
    }

    /// The definitions that clients do not get, in a sentence.
    pub fn left_out(&self) -> Option<String> {
        let definitions = listed(self.left_out.iter().cloned());
        if definitions.is_empty() {
            return None;
        }
        Some(format!("MCP clients do not get: {definitions}."))
    }

    /// Whether the server completes arguments.
    pub fn has_completion(&self) -> bool {
        self.completes
    }

    /// The definitions of one kind, without those that are left out.
    pub fn definitions(&self, kind: Feature) -> impl Iterator<Item = &str> {
        self.of(kind).map(|item| &*item.json)
    }

    /// A number that changes with the definitions. It is not the same in another process.
    pub fn digest(&self) -> u64 {
        *self.digest.get_or_init(|| fingerprint(&(&self.items, self.completes)))
    }

    /// The first resource whose URI `other` has, too.
    pub fn shared_with(&self, other: &Self) -> Option<&str> {
        let uris: HashSet<&str> = other.of(Feature::RESOURCE).map(|item| &*item.id).collect();
        self.of(Feature::RESOURCE).map(|item| &*item.id).find(|uri| uris.contains(uri))
    }

    fn of(&self, kind: Feature) -> impl Iterator<Item = &Item> {
        self.items.iter().filter(move |item| item.list == kind.list)
    }
}

/// The features of several servers together.
#[derive(Debug)]
pub struct FeatureView {
    servers: Vec<FeatureSource>,
    /// The names of all prompts, in their order.
    prompts: Vec<String>,
    /// Many streams ask for it at each change of any backend.
    digest_of_resources: OnceLock<u64>,
    digest_of_prompts: OnceLock<u64>,
}

/// What one server adds to a view.
pub type FeatureSource = (BackendName, Arc<Naming>, Arc<Features>);

impl FeatureView {
    /// The servers come in the order in which they win where two have the same URI.
    pub fn new(servers: Vec<FeatureSource>) -> Self {
        let mut nameless = Vec::new();
        for (backend, naming, features) in &servers {
            for Item { id, .. } in features.of(Feature::PROMPT) {
                nameless.push(Nameless {
                    backend: backend.as_str(),
                    tool: id,
                    wanted: naming.wanted(id),
                });
            }
        }
        let prompts = naming::assign(&nameless);
        let (digest_of_resources, digest_of_prompts) = (OnceLock::new(), OnceLock::new());
        Self { servers, prompts, digest_of_resources, digest_of_prompts }
    }

    /// Whether the view was made of exactly these.
    pub fn is_of(&self, servers: &[FeatureSource]) -> bool {
        self.servers.len() == servers.len()
            && self.servers.iter().zip(servers).all(|(own, other)| {
                own.0 == other.0 && Arc::ptr_eq(&own.1, &other.1) && Arc::ptr_eq(&own.2, &other.2)
            })
    }

    /// All features of one kind: the server, the identity for clients, and the definition.
    fn items(&self, kind: Feature) -> impl Iterator<Item = (&BackendName, &str, &Item)> {
        let mut names = self.prompts.iter();
        let items = self.servers.iter().flat_map(move |(backend, _, features)| {
            features.of(kind).map(move |item| (backend, item))
        });
        items.map(move |(backend, item)| {
            let name = names.next().filter(|_| kind == Feature::PROMPT);
            (backend, name.unwrap_or(&item.id).as_str(), item)
        })
    }

    /// The names of all prompts, as clients know them.
    pub fn prompt_names(&self) -> impl Iterator<Item = &str> {
        self.prompts.iter().map(String::as_str)
    }

    /// The definitions for clients. Of two with one URI, the first server's is there.
    pub fn definitions(&self, kind: Feature) -> Vec<String> {
        let mut ids = HashSet::default();
        let mut definitions = Vec::new();
        for (_, id, item) in self.items(kind) {
            if !ids.insert(id) {
                continue;
            }
            definitions.push(match json::around(&item.json, "name") {
                Some((before, after)) if kind == Feature::PROMPT => {
                    format!("{before}{}{after}", serde_json::Value::from(id))
                }
                _ => item.json.to_string(),
            });
        }
        definitions
    }

    /// The server of a feature, and the server's own identity of it.
    pub fn find(&self, kind: Feature, id: &str) -> Option<(&BackendName, &str)> {
        let mut items = self.items(kind);
        items.find(|(_, own, _)| *own == id).map(|(backend, _, item)| (backend, item.id.as_str()))
    }

    /// The server that has the resource `uri`, or a template for it.
    pub fn server_of(&self, uri: &str) -> Option<&BackendName> {
        if let Some((backend, _)) = self.find(Feature::RESOURCE, uri) {
            return Some(backend);
        }
        // The template that says most of the URI: one that fits everything takes nothing of others.
        let mut best = None;
        for (backend, _, item) in self.items(Feature::TEMPLATE) {
            let literal = fits(&item.id, uri);
            if literal > best.map(|(literal, _)| literal) {
                best = literal.map(|literal| (literal, backend));
            }
        }
        best.map(|(_, backend)| backend)
    }

    /// Whether `backend` completes arguments.
    pub fn completes(&self, backend: &BackendName) -> bool {
        self.servers.iter().any(|(name, _, features)| name == backend && features.completes)
    }

    /// A number that changes with the resources and their templates.
    pub fn digest_of_resources(&self) -> u64 {
        *self
            .digest_of_resources
            .get_or_init(|| self.digest(&[Feature::RESOURCE, Feature::TEMPLATE]))
    }

    /// A number that changes with the prompts.
    pub fn digest_of_prompts(&self) -> u64 {
        *self.digest_of_prompts.get_or_init(|| self.digest(&[Feature::PROMPT]))
    }

    fn digest(&self, kinds: &[Feature]) -> u64 {
        let mut hasher = DefaultHasher::new();
        for item in kinds.iter().flat_map(|kind| self.items(*kind)) {
            item.hash(&mut hasher);
        }
        hasher.finish()
    }
}

/// How many bytes of `uri` a template (RFC 6570) says literally, if it can come of it; an
/// expression stands for any text.
fn fits(template: &str, uri: &str) -> Option<usize> {
    let mut parts = template.split('{').peekable();
    let first = parts.next()?;
    let mut rest = uri.strip_prefix(first)?;
    let mut literal_bytes = first.len();
    while let Some(part) = parts.next() {
        let literal = part.split_once('}').map_or("", |(_, literal)| literal);
        literal_bytes += literal.len();
        if parts.peek().is_none() {
            return if rest.ends_with(literal) { Some(literal_bytes) } else { None };
        }
        rest = rest.get(rest.find(literal)? + literal.len()..)?;
    }
    if rest.is_empty() { Some(literal_bytes) } else { None }
}

#[cfg(test)]
mod tests;
