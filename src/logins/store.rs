//! Logins and registered clients on disk: a file each, for the daemon's user alone.
//!
//! Must not: hold anything in memory, or show what a file holds.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use url::Url;

use super::authorization::digest;
use super::record::{Client, Record, Sealer, StoredClient};
use super::seal::Seal;
use crate::config::SealKey;
use crate::error_chain::error_chain;
use crate::model::BackendName;
use crate::model::catalog::hex;
use crate::state_dir::{LOGINS, REGISTRATIONS, StateDir, check_format};

/// The file of the bridge's own login at a backend. Those of people are named by a hash.
const BRIDGE: &str = "bridge.json";
/// The format of registrations.
const FORMAT: u32 = 1;

#[derive(Debug)]
pub(super) struct Store {
    state: StateDir,
    seal: Seal,
}

/// A registration in its file.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredRegistration {
    format: u32,
    issuer: String,
    client: StoredClient,
}

impl Store {
    pub(super) fn new(state: StateDir, keys: &[SealKey]) -> Self {
        Self { state, seal: Seal::new(keys) }
    }

    /// The login at `backend`, if there is one. The error says what to do.
    pub(super) fn read(&self, backend: &BackendName) -> Result<Option<Record>, String> {
        let path = path(backend);
        let place = self.state.path().join(&path);
        let text = self.state.read_kept(&path).map_err(|error| error_chain(&error))?;
        let Some(text) = text else { return Ok(None) };
        let record = Record::read(&text, backend.as_str(), &self.seal);
        record.map(Some).map_err(|why| format!("{} cannot be used: {why}", place.display()))
    }

    /// Writes the login, whole or not at all, and syncs it.
    pub(super) async fn write(&self, backend: &BackendName, record: &Record) -> Result<(), String> {
        let text = record.write(backend.as_str(), &self.seal)?;
        self.write_text(path(backend), text).await
    }

    pub(super) async fn remove(&self, backend: &BackendName) -> Result<(), String> {
        let path = path(backend);
        self.state.in_background(move |state| state.remove_kept(&path)).await
    }

    /// The client that the bridge has registered for this issuer and this redirect URI. A file that
    /// cannot be read is as good as none: the bridge registers another client.
    pub(super) fn registration(&self, issuer: &str, redirect_uri: &Url) -> Option<Client> {
        let path = registration_path(issuer, redirect_uri);
        let text = self.state.read_kept(&path).ok().flatten()?;
        let stored: StoredRegistration = serde_json::from_str(&text).ok()?;
        check_format(stored.format, FORMAT).ok()?;
        let client = self.sealer(issuer, redirect_uri).read_client(stored.client).ok()?;
        let is_it = stored.issuer == issuer && client.redirect_uri == *redirect_uri;
        if is_it { Some(client) } else { None }
    }

    pub(super) async fn write_registration(
        &self,
        issuer: &str,
        client: &Client,
    ) -> Result<(), String> {
        let sealer = self.sealer(issuer, &client.redirect_uri);
        let stored = StoredRegistration {
            format: FORMAT,
            issuer: issuer.to_owned(),
            client: sealer.store_client(client)?,
        };
        let text = serde_json::to_string(&stored).map_err(|error| error.to_string())?;
        self.write_text(registration_path(issuer, &client.redirect_uri), text).await
    }

    fn sealer(&self, issuer: &str, redirect_uri: &Url) -> Sealer<'_> {
        Sealer { seal: &self.seal, owner: format!("registration\n{issuer}\n{redirect_uri}") }
    }

    async fn write_text(&self, path: PathBuf, text: String) -> Result<(), String> {
        self.state.in_background(move |state| state.write_noted(&path, &text)).await
    }
}

fn path(backend: &BackendName) -> PathBuf {
    Path::new(LOGINS).join(backend.as_str()).join(BRIDGE)
}

fn registration_path(issuer: &str, redirect_uri: &Url) -> PathBuf {
    let name = hex(&digest(&format!("{issuer}\n{redirect_uri}")));
    Path::new(REGISTRATIONS).join(format!("{name}.json"))
}

#[cfg(test)]
mod tests {
    //! What is left on disk, and who can read it.

    use std::os::unix::fs::PermissionsExt as _;

    use secrecy::ExposeSecret as _;
    use tempfile::TempDir;

    use super::super::record::tests::record;
    use super::*;

    fn store(dir: &TempDir) -> Store {
        Store::new(StateDir::new(dir.path().join("state")), &[])
    }

    #[tokio::test]
    async fn login_is_on_disk_for_its_owner_alone_until_it_is_removed() {
        let dir = TempDir::new().unwrap();
        let store = store(&dir);
        let name = BackendName::parse("notion").unwrap();
        assert!(store.read(&name).unwrap().is_none());
        store.write(&name, &record()).await.unwrap();
        let read = store.read(&name).unwrap().unwrap();
        assert_eq!(read.refresh.unwrap().expose_secret(), "canary-refresh");
        let file = dir.path().join("state/logins/notion/bridge.json");
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
        store.remove(&name).await.unwrap();
        store.remove(&name).await.unwrap();
        assert!(store.read(&name).unwrap().is_none());
    }

    #[tokio::test]
    async fn damaged_login_is_an_error_with_its_place() {
        let dir = TempDir::new().unwrap();
        let store = store(&dir);
        let name = BackendName::parse("notion").unwrap();
        store.write(&name, &record()).await.unwrap();
        let file = dir.path().join("state/logins/notion/bridge.json");
        std::fs::write(&file, "{").unwrap();
        let why = store.read(&name).unwrap_err();
        assert!(why.contains("logins/notion/bridge.json") && why.contains("damaged"), "{why}");
    }

    #[tokio::test]
    async fn registration_is_that_of_its_issuer_and_its_redirect_uri() {
        let dir = TempDir::new().unwrap();
        let store = store(&dir);
        let client = record().client;
        store.write_registration("https://as.test", &client).await.unwrap();
        let uri = client.redirect_uri.clone();
        assert_eq!(store.registration("https://as.test", &uri).unwrap().id, "c");
        assert!(store.registration("https://other.test", &uri).is_none());
        assert!(store.registration("https://as.test", &uri.join("/x").unwrap()).is_none());
    }
}
