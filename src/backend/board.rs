//! What is known of every backend at this moment, and the offer that follows from it.
//!
//! Supervisors write here, everyone else reads. Writing rebuilds the offer before it returns, so
//! that whoever waited for a refresh sees its result.
//!
//! Must not: await anything under the lock, or decide when to refresh.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use tokio::{sync::watch, time::timeout};
use tracing::warn;

use super::peer::{About, Peer};
use crate::model::{
    catalog::Catalog,
    ids::BackendName,
    offer::{Offer, Source},
};

/// How a backend is doing; the `state` of `/v1/status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The first attempt has not ended yet.
    Connecting,
    /// Connected, and the last refresh succeeded.
    Ready,
    /// Connected, but the last refresh failed; the last good catalog is in use.
    Degraded,
    /// No connection: the last attempt failed, or the connection broke.
    Down,
}

impl Phase {
    pub const ALL: [Self; 4] = [Self::Connecting, Self::Ready, Self::Degraded, Self::Down];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Ready => "ready",
            Self::Degraded => "degraded",
            Self::Down => "down",
        }
    }
}

/// What is known of one backend.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub phase: Phase,
    /// The live connection, if there is one.
    pub peer: Option<Arc<dyn Peer>>,
    /// What the last handshake told; kept when the connection is gone.
    pub about: About,
    /// The last good catalog.
    pub catalog: Option<Arc<Catalog>>,
    pub last_refresh: Option<SystemTime>,
    pub next_refresh: Option<SystemTime>,
    /// For operators; cleared by the next success.
    pub last_error: Option<String>,
    /// Connections that were made and gave a catalog.
    pub connections: u64,
    /// Refreshes, and attempts to connect, that failed.
    pub failures: u64,
}

impl Snapshot {
    fn new() -> Self {
        Self {
            phase: Phase::Connecting,
            peer: None,
            about: About::default(),
            catalog: None,
            last_refresh: None,
            next_refresh: None,
            last_error: None,
            connections: 0,
            failures: 0,
        }
    }

    /// Whether the catalog is older than the connection says it should be.
    pub fn is_stale(&self) -> bool {
        self.catalog.is_some() && self.phase != Phase::Ready
    }
}

/// The state of all backends.
#[derive(Debug)]
pub struct Board {
    inner: Mutex<Inner>,
    offer: watch::Sender<Arc<Offer>>,
    /// Bumped with every write.
    version: watch::Sender<u64>,
    /// Whether the first attempts have ended, or have had their time.
    started: watch::Sender<bool>,
}

#[derive(Debug)]
struct Inner {
    snapshots: BTreeMap<BackendName, Snapshot>,
    /// Per backend, what the offer was last built of.
    sources: BTreeMap<BackendName, Source>,
}

impl Board {
    /// A board of backends that are all still connecting. The sources say how each is offered, and
    /// bring the catalogs that were kept.
    pub fn new(sources: Vec<Source>) -> Self {
        let offer = Arc::new(Offer::build(&sources));
        let known =
            |source: &Source| Snapshot { catalog: source.catalog.clone(), ..Snapshot::new() };
        let snapshots = sources.iter().map(|source| (source.name.clone(), known(source))).collect();
        let sources = sources.into_iter().map(|source| (source.name.clone(), source)).collect();
        Self {
            inner: Mutex::new(Inner { snapshots, sources }),
            offer: watch::Sender::new(offer),
            version: watch::Sender::new(0),
            started: watch::Sender::new(false),
        }
    }

    /// Changes what is known of `name`, and the offer where that changes what is offered.
    pub fn write(&self, name: &BackendName, change: impl FnOnce(&mut Snapshot)) {
        let mut inner = self.lock();
        let Inner { snapshots, sources } = &mut *inner;
        let (Some(snapshot), Some(source)) = (snapshots.get_mut(name), sources.get_mut(name))
        else {
            return;
        };
        change(snapshot);
        let available = snapshot.peer.is_some();
        let same_catalog = match (&source.catalog, &snapshot.catalog) {
            (Some(old), Some(new)) => old.digest() == new.digest(),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        if !same_catalog || source.available != available {
            source.catalog.clone_from(&snapshot.catalog);
            source.available = available;
            let all: Vec<Source> = sources.values().cloned().collect();
            self.offer.send_replace(Arc::new(Offer::build(&all)));
        }
        drop(inner);
        self.version.send_modify(|version| *version += 1);
    }

    /// What runs can be given now.
    pub fn offer(&self) -> Arc<Offer> {
        Arc::clone(&self.offer.borrow())
    }

    pub fn snapshot(&self, name: &str) -> Option<Snapshot> {
        self.lock().snapshots.get(name).cloned()
    }

    pub fn snapshots(&self) -> BTreeMap<BackendName, Snapshot> {
        self.lock().snapshots.clone()
    }

    /// Changes with every write.
    pub fn version(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Waits until `found` gives something, looking after every write.
    pub async fn wait_for<T>(&self, mut found: impl FnMut(&Self) -> Option<T>) -> T {
        let mut version = self.version.subscribe();
        loop {
            version.mark_unchanged();
            if let Some(value) = found(self) {
                return value;
            }
            if version.changed().await.is_err() {
                // The sender is ours and lives as long as `self`.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Gives the first attempts at most `patience`; from then on the board counts as started.
    pub async fn start_within(&self, patience: Duration) {
        if timeout(patience, self.settled()).await.is_err() {
            warn!("some backends are still being tried for the first time; going on without them");
        }
        self.started.send_replace(true);
    }

    pub fn is_started(&self) -> bool {
        *self.started.borrow()
    }

    /// Waits until the board counts as started.
    pub async fn started(&self) {
        // The sender is ours, so that waiting cannot fail.
        drop(self.started.subscribe().wait_for(|started| *started).await);
    }

    /// Waits until every backend has a catalog, if only a kept one, or the first attempt at it has
    /// failed.
    pub async fn settled(&self) {
        let settled = |board: &Self| {
            let inner = board.lock();
            let connecting =
                |known: &Snapshot| known.phase == Phase::Connecting && known.catalog.is_none();
            (!inner.snapshots.values().any(connecting)).then_some(())
        };
        self.wait_for(settled).await;
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic in `change` or in `Offer::build` leaves whole snapshots behind.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
