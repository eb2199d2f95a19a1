//! The last good catalog of every backend, on disk: after a restart, the tools of a peer that is
//! away are still there.
//!
//! Must not: be trusted for more than that. A file that cannot be read, or that was written for
//! another address or command, is left out with a line in the log, and the peer is asked anyway.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::{
    backend::board::Board,
    model::{
        catalog::{Catalog, Content, hex},
        ids::BackendName,
    },
    state::{StateDir, StateError},
};

/// The format of the files; another one is not read.
const VERSION: u32 = 1;

/// What a catalog belongs to: a hash of how its backend is reached, so that a catalog of one server
/// is never offered as that of another which took its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity(String);

/// One file.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct File<'a> {
    version: u32,
    identity: &'a str,
    /// Of an MCP server.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    tools: Option<Vec<&'a RawValue>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    server_info: Option<&'a RawValue>,
    /// Of an A2A agent.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    card: Option<&'a RawValue>,
}

impl Identity {
    /// Of a backend that is reached as `text` says.
    pub fn of(text: &str) -> Self {
        Self(hex(&Sha256::digest(text)))
    }
}

/// The kept catalog of `name`, if it is one of `identity`.
pub fn load(state: &StateDir, name: &BackendName, identity: &Identity) -> Option<Arc<Catalog>> {
    let text = match state.read_catalog(&file(name)) {
        Ok(text) => text?,
        Err(error) => {
            warn!(backend = %name, %error, "the kept catalog cannot be read");
            return None;
        }
    };
    match read(&text) {
        Ok((kept, catalog)) if kept == *identity => Some(Arc::new(catalog)),
        Ok(_) => {
            debug!(backend = %name, "the kept catalog is that of another peer; left out");
            None
        }
        Err(error) => {
            warn!(backend = %name, error, "the kept catalog is damaged; left out");
            None
        }
    }
}

/// Writes every new catalog on `board` into `state`, until `stop`.
pub async fn keep(
    board: Arc<Board>,
    state: StateDir,
    identities: BTreeMap<BackendName, Identity>,
    mut kept: BTreeMap<BackendName, String>,
    stop: CancellationToken,
) {
    loop {
        let news = tokio::select! {
            () = stop.cancelled() => return,
            news = board.wait_for(|board| fresh(board, &kept)) => news,
        };
        for (name, catalog) in news {
            let Some(identity) = identities.get(&name) else { continue };
            kept.insert(name.clone(), catalog.digest().to_owned());
            let (state, path, text) = (state.clone(), file(&name), write(&catalog, identity));
            let written = tokio::task::spawn_blocking(move || state.write_catalog(&path, &text));
            match written.await {
                Ok(Ok(())) => debug!(backend = %name, "catalog kept"),
                Ok(Err(error)) => told(&name, &error),
                Err(error) => warn!(backend = %name, %error, "the catalog was not kept"),
            }
        }
    }
}

fn told(name: &BackendName, error: &StateError) {
    let error = crate::http_client::chain(error);
    warn!(backend = %name, error, "the catalog was not kept; a restart may be without it");
}

/// The catalogs that are not kept yet; `None` if all are.
fn fresh(
    board: &Board,
    kept: &BTreeMap<BackendName, String>,
) -> Option<Vec<(BackendName, Arc<Catalog>)>> {
    let known = board.snapshots().into_iter();
    let catalogs = known.filter_map(|(name, known)| Some((name, known.catalog?)));
    let news: Vec<_> = catalogs
        // A local tool is in the configuration, whole.
        .filter(|(_, catalog)| !matches!(catalog.content(), Content::Local { .. }))
        .filter(|(name, catalog)| kept.get(name).is_none_or(|digest| digest != catalog.digest()))
        .collect();
    (!news.is_empty()).then_some(news)
}

fn file(name: &BackendName) -> PathBuf {
    Path::new("catalogs").join(format!("{name}.json"))
}

fn write(catalog: &Catalog, identity: &Identity) -> String {
    let mut file = File {
        version: VERSION,
        identity: &identity.0,
        tools: None,
        server_info: None,
        card: None,
    };
    match catalog.content() {
        Content::Mcp { server_info, tools } => {
            file.server_info = server_info.as_deref();
            file.tools = Some(tools.iter().map(|tool| tool.raw.as_ref()).collect());
        }
        Content::A2a { card } => file.card = Some(card),
        // Never kept.
        Content::Local { .. } => (),
    }
    serde_json::to_string(&file).expect("raw JSON and strings can be written")
}

fn read(text: &str) -> Result<(Identity, Catalog), String> {
    let file: File<'_> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if file.version != VERSION {
        return Err(format!(
            "it has the format {}, and this version writes {VERSION}",
            file.version
        ));
    }
    let identity = Identity(file.identity.to_owned());
    match (file.tools, file.card) {
        (Some(tools), None) => {
            let tools = tools.into_iter().map(ToOwned::to_owned).collect();
            let (catalog, left_out) = Catalog::mcp(file.server_info.map(ToOwned::to_owned), tools);
            match left_out.first() {
                None => Ok((identity, catalog)),
                Some(tool) => Err(format!("tool number {}: {}", tool.index, tool.why)),
            }
        }
        (None, Some(card)) => Ok((identity, Catalog::a2a(card.to_owned()))),
        _ => Err("it holds neither tools nor a card".to_owned()),
    }
}

#[cfg(test)]
mod tests;
