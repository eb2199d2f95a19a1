//! The last good catalog of every backend, on disk: after a restart, the tools of a peer that is
//! away are still on offer.
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
use crate::model::{BackendName, Catalog, Content, Gone, Identity};
use crate::state_dir::{StateDir, check_format};

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
    /// The places of tools that are not listed any more.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    gone: Cow<'a, [Gone]>,
    /// For an A2A agent.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    card: Option<&'a RawValue>,
}

/// The stored catalog of `name`, if it belongs to `identity`.
pub fn load(state: &StateDir, name: &BackendName, identity: &Identity) -> Option<Arc<Catalog>> {
    let text = match state.read_kept(&file(name)) {
        Ok(text) => text?,
        Err(error) => {
            warn!(backend = %name, %error, "the kept catalog cannot be read");
            return None;
        }
    };
    match read(&text) {
        Ok((kept, catalog)) if kept == *identity => Some(Arc::new(catalog)),
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
        for (name, identity, catalog) in news {
            let on_disk = (identity.clone(), catalog.digest().to_owned());
            let of = name.clone();
            let written = state.in_background(move |state| {
                // The catalog may come from this file.
                let known = load(state, &of, &identity);
                if known.is_some_and(|old| old.digest() == catalog.digest()) {
                    return Ok(());
                }
                state.write_noted(&file(&of), &write(&catalog, &identity))
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

/// For each backend, the stored catalog: its identity and its digest.
type OnDisk = BTreeMap<BackendName, (Identity, String)>;

/// The catalogs that are not stored yet; `None` if all are. A local tool's catalog is not stored,
/// as it is in the configuration.
fn fresh(registry: &Registry, kept: &OnDisk) -> Option<Vec<(BackendName, Identity, Arc<Catalog>)>> {
    let known = registry.snapshots().into_iter();
    let catalogs = known.filter_map(|(name, known)| Some((name, known.identity?, known.catalog?)));
    let is_kept = |name: &BackendName, identity: &Identity, catalog: &Catalog| {
        kept.get(name).is_some_and(|(of, digest)| of == identity && digest == catalog.digest())
    };
    let news: Vec<_> = catalogs
        .filter(|(_, _, catalog)| !matches!(catalog.content(), Content::Local { .. }))
        .filter(|(name, identity, catalog)| !is_kept(name, identity, catalog))
        .collect();
    (!news.is_empty()).then_some(news)
}

fn file(name: &BackendName) -> PathBuf {
    Path::new("catalogs").join(format!("{name}.json"))
}

pub fn write(catalog: &Catalog, identity: &Identity) -> String {
    let mut file = File {
        version: VERSION,
        identity: &identity.0,
        tools: None,
        server_info: None,
        gone: catalog.gone().into(),
        card: None,
    };
    match catalog.content() {
        Content::Mcp { server_info, tools } => {
            file.server_info = server_info.as_deref();
            file.tools = Some(tools.iter().map(|tool| tool.raw.as_ref()).collect());
        }
        Content::A2a { card } => file.card = Some(card),
        // Not stored.
        Content::Local { .. } => (),
    }
    serde_json::to_string(&file).expect("raw JSON and strings can be written")
}

pub fn read(text: &str) -> Result<(Identity, Catalog), String> {
    let file: File<'_> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    check_format(file.version, VERSION)?;
    let identity = Identity(file.identity.to_owned());
    match (file.tools, file.card) {
        (Some(tools), None) => {
            let tools = tools.into_iter().map(ToOwned::to_owned).collect();
            let (catalog, left_out) = Catalog::mcp(file.server_info.map(ToOwned::to_owned), tools);
            match left_out.first() {
                None => Ok((identity, catalog.with_gone(file.gone.into_owned()))),
                Some(tool) => Err(format!("tool number {}: {}", tool.index, tool.why)),
            }
        }
        (None, Some(card)) => Ok((identity, Catalog::a2a(card.to_owned()))),
        _ => Err("it holds neither tools nor a card".to_owned()),
    }
}

#[cfg(test)]
mod tests;
