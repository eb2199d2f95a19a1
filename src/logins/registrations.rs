//! The clients that the bridge has registered: one for each issuer and redirect URI. An issuer may
//! have forgotten one; a login that does not come back, or an error of the token endpoint, is the
//! sign of it.
//!
//! Must not: register without end.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;
use tracing::{info, warn};
use url::Url;

use super::failure::{self, LoginResult};
use super::flows::Unreturned;
use super::record::Client;
use super::store::Store;

/// How many clients are registered within an hour for one issuer and redirect URI.
const MOST: usize = 5;
const HOUR: Duration = Duration::from_secs(60 * 60);

#[derive(Debug)]
pub(super) struct Registrations {
    store: Arc<Store>,
    entries: Mutex<BTreeMap<(String, Url), Entry>>,
    /// Held while one is registered.
    turn: AsyncMutex<()>,
}

#[derive(Debug, Default)]
struct Entry {
    /// The issuer may have forgotten the client.
    is_doubtful: bool,
    /// When clients were registered.
    times: VecDeque<Instant>,
}

impl Entry {
    fn may_register(&mut self, now: Instant) -> bool {
        self.times.retain(|at| now.duration_since(*at) < HOUR);
        self.times.len() < MOST
    }
}

impl Registrations {
    pub(super) fn new(store: Arc<Store>) -> Self {
        Self { store, entries: Mutex::default(), turn: AsyncMutex::default() }
    }

    /// Notes that the issuer may have forgotten the client.
    pub(super) fn doubt(&self, Unreturned { issuer, redirect_uri }: Unreturned) {
        let mut entries = self.entries.lock();
        entries.entry((issuer, redirect_uri)).or_default().is_doubtful = true;
    }

    /// Notes that the issuer knows the client.
    pub(super) fn confirm(&self, issuer: &str, client: &Client) {
        let key = (issuer.to_owned(), client.redirect_uri.clone());
        if let Some(entry) = self.entries.lock().get_mut(&key) {
            entry.is_doubtful = false;
        }
    }

    /// The client for a login: the one that was registered before, or else the one that `register`
    /// brings. One is registered at a time, so that two logins do not make two.
    pub(super) async fn client(
        &self,
        issuer: &str,
        redirect_uri: &Url,
        register: impl Future<Output = LoginResult<Client>>,
    ) -> LoginResult<Client> {
        let _turn = self.turn.lock().await;
        let key = (issuer.to_owned(), redirect_uri.clone());
        let kept = self.store.registration(issuer, redirect_uri);
        let may_register = {
            let mut entries = self.entries.lock();
            let entry = entries.entry(key.clone()).or_default();
            if let Some(client) = kept.clone().filter(|_| !entry.is_doubtful) {
                return Ok(client);
            }
            entry.may_register(Instant::now())
        };
        if !may_register {
            return kept.ok_or_else(|| failure::too_many_registrations(issuer, MOST));
        }
        let client = register.await?;
        if let Err(why) = self.store.write_registration(issuer, &client).await {
            // The next login registers another one.
            warn!("a registered client cannot be kept: {why}");
        }
        info!(issuer, "the bridge has registered itself as a client");
        let mut entries = self.entries.lock();
        let entry = entries.entry(key).or_default();
        entry.is_doubtful = false;
        entry.times.push_back(Instant::now());
        Ok(client)
    }
}

#[cfg(test)]
mod tests {
    //! When a client is registered, in paused time.

    use std::sync::atomic::{AtomicUsize, Ordering};

    use tempfile::TempDir;
    use tokio::time::advance;

    use super::super::record::tests::record;
    use super::*;
    use crate::state_dir::StateDir;

    #[tokio::test(start_paused = true)]
    async fn client_is_registered_again_only_where_the_last_one_is_doubtful() {
        let dir = TempDir::new().unwrap();
        let store = Arc::new(Store::new(StateDir::new(dir.path().to_owned()), &[]));
        let registrations = Registrations::new(store);
        let uri = record().client.redirect_uri;
        let count = AtomicUsize::new(0);
        let client = async || {
            let register = async {
                let number = count.fetch_add(1, Ordering::SeqCst);
                Ok(Client { id: format!("c{number}"), ..record().client })
            };
            let client = registrations.client("https://as.test", &uri, register).await;
            client.unwrap().id
        };
        let doubt = || {
            let redirect_uri = uri.clone();
            registrations.doubt(Unreturned { issuer: "https://as.test".to_owned(), redirect_uri });
        };
        assert_eq!(client().await, "c0");
        assert_eq!(client().await, "c0", "it is kept");
        doubt();
        assert_eq!(client().await, "c1");
        for _ in 0..10 {
            doubt();
            client().await;
        }
        assert_eq!(count.load(Ordering::SeqCst), MOST, "within an hour");
        advance(HOUR).await;
        assert_eq!(client().await, "c5");
        assert_eq!(client().await, "c5");
    }
}
