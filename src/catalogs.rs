//! The last good catalog of every backend, on disk: after a restart, the tools of a peer that is
//! away are still on offer. The resources and prompts of an MCP server are kept with it, as a
//! program that is idle is not asked for them.
//!
//! Must not: be trusted for more than that. If a file cannot be read, or was written for another
//! address or command, the bridge logs that, ignores the file, and asks the peer.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::backend::registry::Registry;
use crate::model::{
    BackendName, Catalog, Content, Feature, Features, FormerTool, Identity, Instructions,
};
use crate::state_dir::{StateDir, check_format, has_later_format};

/// The interval between attempts to write a file.
const AGAIN: Duration = Duration::from_secs(15);
/// The format of the files; files of other formats are ignored.
const VERSION: u32 = 1;

/// The content of a file.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct File<'a> {
    version: u32,
    identity: &'a str,
    /// For an MCP server.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    tools: Option<Vec<&'a RawValue>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    server_info: Option<&'a RawValue>,
    /// For an MCP server; empty for one that has none. A file of an earlier version does not say.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    instructions: Option<Cow<'a, str>>,
    /// The places of tools that are no longer listed.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    gone: Cow<'a, [FormerTool]>,
    /// For an MCP server: its [`FeatureLists`]. They are read by themselves, so that damage in them
    /// does not take the tools away.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    features: Option<&'a RawValue>,
    /// For an A2A agent: its public card.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    card: Option<&'a RawValue>,
    /// For an A2A agent whose extended card is offered.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    extended_card: Option<&'a RawValue>,
}

/// The definitions of resources, templates and prompts.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct FeatureLists<'a> {
    completes: bool,
    #[serde(borrow)]
    resources: Vec<&'a RawValue>,
    #[serde(borrow)]
    resource_templates: Vec<&'a RawValue>,
    #[serde(borrow)]
    prompts: Vec<&'a RawValue>,
}

/// What is kept of one backend.
#[derive(Debug)]
pub struct StoredCatalog {
    pub catalog: Arc<Catalog>,
    pub features: Arc<Features>,
}

/// The content of a file.
#[derive(Debug)]
pub struct CatalogFile {
    pub identity: Identity,
    pub catalog: Catalog,
    /// Or why they cannot be read.
    pub features: Result<Features, String>,
}

/// What is stored of `name`, if it belongs to `identity`.
pub fn load(state: &StateDir, name: &BackendName, identity: &Identity) -> Option<StoredCatalog> {
    let text = match state.read_kept(&file(name)) {
        Ok(text) => text?,
        Err(error) => {
            warn!(backend = %name, %error, "the kept catalog cannot be read");
            return None;
        }
    };
    match read(&text) {
        Ok(stored) if stored.identity == *identity => {
            let features = stored.features.unwrap_or_else(|error| {
                warn!(backend = %name, error, "the stored resources and prompts are damaged and are ignored");
                Features::default()
            });
            Some(StoredCatalog { catalog: Arc::new(stored.catalog), features: Arc::new(features) })
        }
        Ok(_) => {
            debug!(backend = %name, "the stored catalog belongs to another peer and is ignored");
            None
        }
        Err(error) => {
            warn!(backend = %name, error, "the stored catalog is damaged and is ignored");
            None
        }
    }
}

/// Writes every new catalog on `registry` into `state` until `stop`, and then the ones that are
/// still unwritten.
pub async fn keep(registry: Arc<Registry>, state: StateDir, stop: CancellationToken) {
    let mut kept = BTreeMap::new();
    loop {
        let news = stop.run_until_cancelled(registry.wait_for(|now| fresh(now, &kept))).await;
        // At the stop, a catalog may be there whose write has not been announced yet.
        let Some(news) = news.or_else(|| fresh(&registry, &kept)) else { return };
        let mut failed = false;
        for Fresh { name, identity, catalog, features } in news {
            let digests = Digests::new(&identity, &catalog, &features);
            let (on_disk, of) = (digests.clone(), name.clone());
            let written = state.in_background(move |state| {
                // The catalog may come from this file.
                let stored = load(state, &of, &identity)
                    .map(|stored| Digests::new(&identity, &stored.catalog, &stored.features));
                if stored.is_some_and(|stored| stored == digests) {
                    return Ok(());
                }
                state.write_noted(&file(&of), &write(&catalog, &features, &identity))
            });
            if let Err(error) = written.await {
                failed = true;
                warn!(backend = %name, error, "the catalog was not kept; a restart may be without it");
            } else {
                debug!(backend = %name, "catalog kept");
                kept.insert(name, on_disk);
            }
        }
        if failed && stop.run_until_cancelled(sleep(AGAIN)).await.is_none() {
            return;
        }
    }
}

/// What is stored of one backend, in short.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Digests {
    identity: Identity,
    catalog: String,
    features: u64,
}

impl Digests {
    fn new(identity: &Identity, catalog: &Catalog, features: &Features) -> Self {
        let catalog = catalog.digest().to_owned();
        Self { identity: identity.clone(), catalog, features: features.digest() }
    }
}

/// What is to be written of one backend.
struct Fresh {
    name: BackendName,
    identity: Identity,
    catalog: Arc<Catalog>,
    features: Arc<Features>,
}

/// The catalogs that are not stored yet; `None` if all are. A local tool's catalog is not stored,
/// as it is in the configuration.
fn fresh(registry: &Registry, kept: &BTreeMap<BackendName, Digests>) -> Option<Vec<Fresh>> {
    let mut news = Vec::new();
    for (name, snapshot) in registry.snapshots() {
        let (Some(identity), Some(catalog)) = (snapshot.identity, snapshot.catalog) else {
            continue;
        };
        let is_local = matches!(catalog.content(), Content::Local { .. });
        let digests = Digests::new(&identity, &catalog, &snapshot.features);
        if !is_local && kept.get(&name) != Some(&digests) {
            news.push(Fresh { name, identity, catalog, features: snapshot.features });
        }
    }
    if news.is_empty() { None } else { Some(news) }
}

fn file(name: &BackendName) -> PathBuf {
    Path::new("catalogs").join(format!("{name}.json"))
}

pub fn write(catalog: &Catalog, features: &Features, identity: &Identity) -> String {
    let lists = write_features(features);
    let mut file = File {
        version: VERSION,
        identity: &identity.0,
        tools: None,
        server_info: None,
        instructions: None,
        gone: catalog.gone().into(),
        features: None,
        card: None,
        extended_card: None,
    };
    match catalog.content() {
        Content::Mcp { server_info, tools } => {
            file.server_info = server_info.as_deref();
            file.instructions = match catalog.instructions() {
                Instructions::Unknown => None,
                known => Some(known.text().map_or("", |text| text).into()),
            };
            file.tools = Some(tools.iter().map(|tool| tool.raw.as_ref()).collect());
            file.features = lists.as_deref();
        }
        Content::A2a { .. } => {
            // A bridge that knows no extended cards offers the public one.
            file.card = catalog.public_card();
            file.extended_card = catalog.extended_card();
        }
        // Not stored.
        Content::Local { .. } => (),
    }
    serde_json::to_string(&file).expect("raw JSON and strings can be written")
}

/// The lists of `features` as JSON; `None` for a server that has none.
fn write_features(features: &Features) -> Option<Box<RawValue>> {
    let lists = FeatureLists {
        completes: features.has_completion(),
        resources: definitions(features, Feature::RESOURCE),
        resource_templates: definitions(features, Feature::TEMPLATE),
        prompts: definitions(features, Feature::PROMPT),
    };
    if !lists.completes
        && Feature::ALL.iter().all(|kind| features.definitions(*kind).next().is_none())
    {
        return None;
    }
    serde_json::value::to_raw_value(&lists).ok()
}

fn definitions(features: &Features, kind: Feature) -> Vec<&RawValue> {
    let definitions = features.definitions(kind);
    definitions.filter_map(|definition| serde_json::from_str(definition).ok()).collect()
}

fn read_features(text: &str) -> Result<Features, String> {
    let lists: FeatureLists<'_> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let mut features = Features::new(lists.completes);
    for (kind, list) in [
        (Feature::RESOURCE, lists.resources),
        (Feature::TEMPLATE, lists.resource_templates),
        (Feature::PROMPT, lists.prompts),
    ] {
        features.add(kind, list.into_iter().map(ToOwned::to_owned).collect());
    }
    features.left_out().map_or(Ok(features), Err)
}

/// Whether a later version wrote this file, in a form that this one does not know.
pub fn is_later(text: &str) -> bool {
    has_later_format(text, VERSION)
}

pub fn read(text: &str) -> Result<CatalogFile, String> {
    let file: File<'_> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    check_format(file.version, VERSION)?;
    let identity = Identity(file.identity.to_owned());
    // A file of an earlier version has none.
    let features =
        file.features.map_or_else(|| Ok(Features::default()), |lists| read_features(lists.get()));
    let catalog = match (file.tools, file.card) {
        (Some(tools), None) => {
            let tools = tools.into_iter().map(ToOwned::to_owned).collect();
            let (catalog, left_out) = Catalog::mcp(file.server_info.map(ToOwned::to_owned), tools);
            if let Some(tool) = left_out.first() {
                return Err(format!("tool number {}: {}", tool.index, tool.why));
            }
            let instructions = file.instructions.map(|text| Instructions::from_text(&text));
            let catalog = catalog.with_gone(file.gone.into_owned());
            catalog.with_instructions(instructions.unwrap_or_default())
        }
        (None, Some(card)) => {
            let public = Catalog::a2a(card.to_owned());
            match file.extended_card {
                Some(extended) => public.with_extended_card(extended.to_owned()),
                None => public,
            }
        }
        _ => return Err("it holds neither tools nor a card".to_owned()),
    };
    Ok(CatalogFile { identity, catalog, features })
}

#[cfg(test)]
mod tests;
