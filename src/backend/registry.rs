//! The registry of backends: the known state of each backend, and the offer that follows from it.
//!
//! Supervisors write here, and everything else reads. A write rebuilds the offer before it returns,
//! so that a caller who waited for a refresh sees its result.
//!
//! A supervisor writes with its lease. If a reload changes how a backend is reached, a second
//! supervisor gets a lease for the same slot. The first one keeps the slot, and its connection
//! serves, until the second has its first result. So if a reload names a server that does not
//! respond, the tools stay.
//!
//! Must not: await anything under the lock, or decide when to refresh.

mod connection;
mod snapshot;

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::info;

pub use self::connection::{Connection, InUse};
pub use self::snapshot::{Phase, Snapshot, StartStage};
use super::trust::News;
use crate::clock;
use crate::model::catalog::Tool;
use crate::model::offer::Source;
use crate::model::pin::{Accepted, NotTaken, Pins};
use crate::model::{
    BackendName, Catalog, Content, FeatureSource, FeatureView, Features, Identity, Offer, RefKind,
    Rights, Route, Target,
};

/// How many states of a backend are remembered.
const STATES: usize = 100;

/// The right of one supervisor to write to a slot of the registry.
#[derive(Debug, Clone)]
pub struct Lease {
    pub name: BackendName,
    token: CancellationToken,
    id: u64,
}

impl Lease {
    /// Ends when the slot goes to another lease or is removed. From then on, no call gets the
    /// connection of this lease.
    pub async fn lost(&self) {
        self.token.cancelled().await;
    }

    pub fn is_lost(&self) -> bool {
        self.token.is_cancelled()
    }
}

/// A backend as it is configured.
#[derive(Debug)]
pub struct RegistryEntry {
    /// The lease of the backend's supervisor. A reload keeps it while the way to reach the backend
    /// stays the same.
    pub lease: Lease,
    /// How the backend is offered. A catalog in it is one that was kept on disk; only a new lease
    /// uses it.
    pub source: Source,
    /// What was kept on disk with the catalog; only a new lease uses it.
    pub features: Arc<Features>,
    pub identity: Option<Identity>,
    /// What the operator accepted before, for a backend that is not in the registry yet.
    pub accepted: Accepted,
}

/// The state of all backends.
#[derive(Debug, Default)]
pub struct Registry {
    /// A panic in the `change` of [`Self::write`] or in `Offer::build` leaves the snapshots
    /// complete, so the state stays usable.
    inner: Mutex<Inner>,
    offer: watch::Sender<Arc<Offer>>,
    /// Incremented by every write.
    version: watch::Sender<u64>,
    /// Whether all first attempts have ended or run out of time.
    started: watch::Sender<bool>,
    /// The last view of each set of backends that apps may see: to name thousands of prompts takes
    /// milliseconds, which each request and each stream would take again.
    feature_views: Mutex<BTreeMap<Vec<BackendName>, Arc<FeatureView>>>,
}

/// The most views that are kept. There is one for each set of backends that some app may see.
const MAX_VIEWS: usize = 64;

#[derive(Debug, Default)]
struct Inner {
    slots: BTreeMap<BackendName, Slot>,
    last_lease: u64,
}

/// The slot of one backend.
#[derive(Debug)]
struct Slot {
    holder: Holder,
    /// The lease that gets the slot with its first result.
    next: Option<Holder>,
    /// What the operator has accepted of the backend. The slot holds it, not a lease, so that a
    /// reload does not lose it.
    accepted: Accepted,
    /// The pins that are on disk; they lag behind `accepted` until they are written.
    pins_on_disk: Option<Arc<Pins>>,
    /// Its states, and since when, the earliest first.
    states: VecDeque<(SystemTime, Phase)>,
}

/// Whether a change gives its lease the slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// It does: the first result of a second supervisor replaces the first supervisor's.
    Result,
    Progress,
}

#[derive(Debug)]
struct Holder {
    lease: Lease,
    snapshot: Snapshot,
    /// The offer is built from this.
    source: Source,
}

impl Holder {
    fn new(RegistryEntry { lease, source, features, identity, .. }: RegistryEntry) -> Self {
        let catalog = source.catalog.clone();
        let snapshot = Snapshot { catalog, features, identity, ..Snapshot::default() };
        Self { lease, snapshot, source }
    }

    /// Takes the settings of `source`, and keeps the catalog, availability and review found here.
    fn offer_as(&mut self, source: Source) {
        let Source { catalog, available, review, .. } = &mut self.source;
        let review = mem::take(review);
        self.source = Source { catalog: catalog.take(), available: *available, review, ..source };
    }
}

impl Slot {
    fn new(mut entry: RegistryEntry) -> Self {
        let accepted = mem::take(&mut entry.accepted);
        let pins_on_disk = accepted.pins().cloned();
        let states = VecDeque::from([(clock::now(), Phase::Connecting)]);
        Self { holder: Holder::new(entry), next: None, accepted, pins_on_disk, states }
    }

    /// The slot after a reload that brings `entry`.
    fn follow(mut self, entry: RegistryEntry) -> Self {
        // Filters and names hold at once, even while the earlier supervisor still serves.
        if self.holder.source.kind == entry.source.kind {
            self.holder.offer_as(entry.source.clone());
        }
        let latest = self.next.as_mut().unwrap_or(&mut self.holder);
        if latest.lease.id == entry.lease.id {
            latest.offer_as(entry.source);
            return self;
        }
        let mut next = Holder::new(entry);
        // The catalog of a local tool is in the configuration, which may have changed.
        if next.source.kind != RefKind::Local
            && next.snapshot.identity.is_some()
            && next.snapshot.identity == self.holder.snapshot.identity
        {
            next.snapshot.catalog.clone_from(&self.holder.snapshot.catalog);
            next.source.catalog.clone_from(&self.holder.snapshot.catalog);
            next.snapshot.features.clone_from(&self.holder.snapshot.features);
        }
        if let Some(skipped) = self.next.replace(next) {
            skipped.lease.token.cancel();
        }
        if self.holder.snapshot.connection.is_none() {
            self.hand_over();
        }
        self
    }

    /// Compares the catalog with what the operator accepted; returns what changed since the last
    /// comparison.
    fn judge(&mut self) -> Option<News> {
        let Holder { snapshot, source, .. } = &mut self.holder;
        let catalog = source.catalog.as_deref();
        let review = Arc::new(self.accepted.judge(source.pin, catalog, &source.naming));
        let before = mem::replace(&mut source.review, Arc::clone(&review));
        snapshot.review = Arc::clone(&review);
        if before == review {
            return None;
        }
        let news = News { backend: source.name.clone(), before, now: review };
        snapshot.changes += news.changes();
        Some(news)
    }

    /// Whether nothing is known of the backend yet, and its first attempt has not ended.
    fn is_on_first_attempt(&self) -> bool {
        let snapshot = &self.holder.snapshot;
        matches!(snapshot.phase, Phase::Connecting | Phase::Starting) && snapshot.catalog.is_none()
    }

    /// Gives the slot to the next lease.
    fn hand_over(&mut self) {
        if let Some(mut next) = self.next.take() {
            // The earlier findings are in the log already. Carry them over, or each would be logged
            // again.
            next.source.review = Arc::clone(&self.holder.source.review);
            mem::replace(&mut self.holder, next).lease.token.cancel();
        }
    }
}

impl Registry {
    /// A new lease. [`Self::set`] puts it into its slot.
    pub fn lease(&self, name: BackendName) -> Lease {
        let mut inner = self.inner.lock();
        inner.last_lease += 1;
        Lease { name, token: CancellationToken::new(), id: inner.last_lease }
    }

    /// Replaces the backends by `entries`. A backend without an entry is removed. A backend with a
    /// new lease starts over, and its earlier lease serves until the new one has a result.
    pub fn set(&self, entries: Vec<RegistryEntry>) {
        let mut inner = self.inner.lock();
        let mut before = mem::take(&mut inner.slots);
        for entry in entries {
            let name = entry.lease.name.clone();
            let slot = match before.remove(&name) {
                Some(slot) => slot.follow(entry),
                None => Slot::new(entry),
            };
            inner.slots.insert(name, slot);
        }
        let news: Vec<News> = inner.slots.values_mut().filter_map(Slot::judge).collect();
        self.rebuild_offer(&inner);
        for holder in before.into_values().flat_map(|slot| [Some(slot.holder), slot.next]).flatten()
        {
            holder.lease.token.cancel();
        }
        self.written(inner, &news);
    }

    /// Changes the known state of a backend by a result of its supervisor, and rebuilds the offer
    /// if the change affects it. A write with a lost lease has no effect.
    pub fn write(&self, lease: &Lease, change: impl FnOnce(&mut Snapshot)) {
        self.change(lease, Reach::Result, change);
    }

    /// Changes the known state of a backend by what is on the way to a result. An earlier
    /// supervisor whose connection still serves keeps the slot.
    pub fn note(&self, lease: &Lease, change: impl FnOnce(&mut Snapshot)) {
        self.change(lease, Reach::Progress, change);
    }

    /// Changes the state of the backend whose slot `lease` has, or gets by this change.
    ///
    /// The offer is rebuilt before the lock is given back: a caller that waited for a refresh then
    /// sees its result. A lease that has lost its slot changes nothing, or the answers of an old
    /// server would stand beside the catalog of the new one.
    fn change(&self, lease: &Lease, reach: Reach, change: impl FnOnce(&mut Snapshot)) {
        let mut inner = self.inner.lock();
        let Some(slot) = inner.slots.get_mut(&lease.name) else { return };
        let takes_over = reach == Reach::Result
            && slot.next.as_ref().is_some_and(|next| next.lease.id == lease.id);
        let before = slot.holder.source.catalog.clone();
        if takes_over {
            slot.hand_over();
        }
        let Holder { lease: held, snapshot, source } = &mut slot.holder;
        if held.id != lease.id {
            return;
        }
        change(snapshot);
        if slot.states.back().is_none_or(|(_, phase)| *phase != snapshot.phase) {
            if slot.states.len() == STATES {
                slot.states.pop_front();
            }
            slot.states.push_back((clock::now(), snapshot.phase));
        }
        if let (Some(before), Some(new)) = (before, &snapshot.catalog)
            && !Arc::ptr_eq(&before, new)
        {
            snapshot.catalog = Some(new.ordered_after(&before, clock::millis() / 1_000));
        }
        let available = snapshot.is_available();
        let [old, new] = [&source.catalog, &snapshot.catalog];
        let same_catalog =
            old.as_deref().map(Catalog::digest) == new.as_deref().map(Catalog::digest);
        if !takes_over && same_catalog && source.available == available {
            return self.written(inner, &[]);
        }
        source.catalog.clone_from(&snapshot.catalog);
        source.available = available;
        self.judged(inner, &lease.name);
    }

    /// Ends a write that may have changed the offer: compares the catalog of `name` with what was
    /// accepted, and only then builds the offer, so that no app sees a tool that is withdrawn.
    fn judged(&self, mut inner: MutexGuard<'_, Inner>, name: &BackendName) {
        let news = inner.slots.get_mut(name).and_then(Slot::judge);
        self.rebuild_offer(&inner);
        self.written(inner, news.as_slice());
    }

    /// Ends a write: tells all who wait, and logs what is new.
    fn written(&self, inner: MutexGuard<'_, Inner>, news: &[News]) {
        drop(inner);
        self.version.send_modify(|version| *version += 1);
        news.iter().for_each(News::tell);
    }

    /// Accepts the present catalog of a backend, as the operator has seen it: `digest` is that of
    /// [`Snapshot::review`]. Without `tools`, accepts all of it. `None`: there is no such backend.
    pub fn accept(
        &self,
        name: &BackendName,
        digest: &str,
        tools: Option<&[String]>,
    ) -> Option<Result<(), NotTaken>> {
        let mut inner = self.inner.lock();
        let slot = inner.slots.get_mut(name)?;
        let review = Arc::clone(&slot.holder.source.review);
        if let Err(error) = slot.accepted.accept(&review, digest, tools) {
            return Some(Err(error));
        }
        self.judged(inner, name);
        Some(Ok(()))
    }

    /// Takes over what the operator has accepted at another replica; whether it is new.
    pub fn accepted_elsewhere(&self, name: &BackendName, pins: Arc<Pins>) -> bool {
        let mut inner = self.inner.lock();
        let Some(slot) = inner.slots.get_mut(name) else { return false };
        if slot.accepted.pins() == Some(&pins) {
            return false;
        }
        slot.accepted = Accepted::Pins(pins);
        self.judged(inner, name);
        true
    }

    /// Takes over the order of the catalog that another replica has of the same peer, or all of it
    /// while this one has none.
    pub fn cataloged_elsewhere(&self, name: &BackendName, identity: &Identity, other: Catalog) {
        let mut inner = self.inner.lock();
        let Some(Slot { holder, .. }) = inner.slots.get_mut(name) else { return };
        let Holder { snapshot, source, .. } = holder;
        if snapshot.identity.as_ref() != Some(identity) {
            return;
        }
        let catalog = match &snapshot.catalog {
            Some(catalog) => catalog.ordered_after(&other, clock::millis() / 1_000),
            None => Arc::new(other),
        };
        (snapshot.catalog, source.catalog) = (Some(Arc::clone(&catalog)), Some(catalog));
        self.judged(inner, name);
    }

    /// What the operator has accepted of each backend.
    pub fn pins(&self) -> Vec<(BackendName, Arc<Pins>)> {
        self.pins_of(|_| true)
    }

    fn pins_of(&self, selects: fn(&Slot) -> bool) -> Vec<(BackendName, Arc<Pins>)> {
        let inner = self.inner.lock();
        let slots = inner.slots.iter().filter(|(_, slot)| selects(slot));
        slots
            .filter_map(|(name, slot)| Some((name.clone(), slot.accepted.pins()?.clone())))
            .collect()
    }

    /// The accepted pins that are not on disk; `None` if all of them are.
    pub fn pins_not_on_disk(&self) -> Option<Vec<(BackendName, Arc<Pins>)>> {
        let pins = self.pins_of(|slot| slot.accepted.pins() != slot.pins_on_disk.as_ref());
        if pins.is_empty() { None } else { Some(pins) }
    }

    /// Notes that the `pins` of `name` are on disk or, with an `error`, why they are not.
    pub fn note_pins_on_disk(&self, name: &BackendName, pins: Arc<Pins>, error: Option<String>) {
        let mut inner = self.inner.lock();
        if let Some(slot) = inner.slots.get_mut(name) {
            if error.is_none() {
                slot.pins_on_disk = Some(pins);
            }
            slot.holder.snapshot.pins_error = error;
        }
        self.written(inner, &[]);
    }

    /// Whether the accepted pins of `name` are on disk, or writing them has failed.
    pub fn pins_are_settled(&self, name: &BackendName) -> bool {
        let inner = self.inner.lock();
        inner.slots.get(name).is_none_or(|slot| {
            slot.holder.snapshot.pins_error.is_some()
                || slot.accepted.pins() == slot.pins_on_disk.as_ref()
        })
    }

    /// Whether `tool` of `name` is withdrawn: the bridge neither offers nor calls it.
    pub fn withdraws(&self, name: &BackendName, tool: &str) -> bool {
        let inner = self.inner.lock();
        inner.slots.get(name).is_some_and(|slot| slot.holder.source.review.withdraws(tool))
    }

    fn rebuild_offer(&self, inner: &Inner) {
        let all: Vec<Source> =
            inner.slots.values().map(|slot| slot.holder.source.clone()).collect();
        self.offer.send_replace(Arc::new(Offer::build(&all)));
    }

    /// Whether `lease` has a catalog, be it one that was kept on disk.
    pub fn has_catalog(&self, lease: &Lease) -> bool {
        let inner = self.inner.lock();
        let Some(slot) = inner.slots.get(&lease.name) else { return false };
        let mut both = [Some(&slot.holder), slot.next.as_ref()].into_iter().flatten();
        both.any(|holder| holder.lease.id == lease.id && holder.snapshot.catalog.is_some())
    }

    /// The live connection to `name`, counted as in use.
    pub fn connection(&self, name: &BackendName) -> Option<InUse> {
        let inner = self.inner.lock();
        let snapshot = &inner.slots.get(name)?.holder.snapshot;
        Some(snapshot.connection.as_ref()?.in_use(snapshot.identity.clone()))
    }

    /// Makes the backend of `lease` idle, unless its connection is in use; whether it did. Both are
    /// one decision under the lock: a call that has got the connection is never cut off by this,
    /// and a call that comes later starts the program again.
    pub fn retire(&self, lease: &Lease) -> bool {
        let mut idle = false;
        self.write(lease, |snapshot| {
            let unused = snapshot.connection.as_ref().is_some_and(|one| one.users.is_empty());
            if unused && snapshot.phase == Phase::Ready {
                snapshot.becomes_idle();
                idle = true;
            }
        });
        idle
    }

    /// The definition of the tool that `route` leads to, as its server gives it now.
    pub fn definition(&self, route: &Route) -> Option<Tool> {
        let Target::Tool { name, .. } = &route.target else { return None };
        let inner = self.inner.lock();
        let catalog = inner.slots.get(&route.backend)?.holder.snapshot.catalog.as_ref()?;
        let Content::Mcp { tools, .. } = catalog.content() else { return None };
        tools.iter().find(|tool| *tool.name == **name).cloned()
    }

    /// What the connected servers offer beside their tools, to an app with these rights. An app
    /// that may use only some tools of a server sees nothing else of it.
    pub fn features(&self, rights: &Rights) -> Arc<FeatureView> {
        let sources = self.feature_sources(rights);
        let names: Vec<BackendName> = sources.iter().map(|(name, ..)| name.clone()).collect();
        let mut views = self.feature_views.lock();
        if let Some(view) = views.get(&names).filter(|view| view.is_of(&sources)) {
            return Arc::clone(view);
        }
        if views.len() >= MAX_VIEWS {
            views.clear();
        }
        let view = Arc::new(FeatureView::new(sources));
        views.insert(names, Arc::clone(&view));
        view
    }

    fn feature_sources(&self, rights: &Rights) -> Vec<FeatureSource> {
        let inner = self.inner.lock();
        let open = inner.slots.iter().filter(|(name, slot)| {
            rights.include_features(name) && slot.holder.snapshot.is_available()
        });
        let features = open.map(|(name, Slot { holder: Holder { snapshot, source, .. }, .. })| {
            (name.clone(), Arc::clone(&source.naming), Arc::clone(&snapshot.features))
        });
        features.collect()
    }

    /// A resource of `name` that MCP clients cannot read, as an earlier server has its URI, too;
    /// the text names both.
    pub fn shadowed(&self, name: &BackendName) -> Option<String> {
        let inner = self.inner.lock();
        let own = &inner.slots.get(name)?.holder.snapshot.features;
        inner.slots.range(..name.clone()).find_map(|(earlier, slot)| {
            let uri = own.shared_with(&slot.holder.snapshot.features)?.to_owned();
            Some(format!("Clients read {uri} from `{earlier}`, which has the same URI."))
        })
    }

    /// The tools that a new run can get now.
    pub fn offer(&self) -> Arc<Offer> {
        Arc::clone(&self.offer.borrow())
    }

    /// The tools that a run could get if all backends with a known catalog were connected. A
    /// backend that is offered as a stub now may be connected when its tools are called.
    pub fn offer_of_known(&self) -> Offer {
        let inner = self.inner.lock();
        let sources = inner.slots.values().map(|slot| {
            let source = slot.holder.source.clone();
            Source { available: source.available || source.catalog.is_some(), ..source }
        });
        Offer::build(&sources.collect::<Vec<_>>())
    }

    /// Whether a call by `route` may be made twice: its tool was marked as safe to repeat when the
    /// run began, and still is.
    pub fn is_repeatable(&self, route: &Route) -> bool {
        let Target::Tool { name, .. } = &route.target else { return false };
        let inner = self.inner.lock();
        let slot = inner.slots.get(&route.backend);
        route.repeatable && slot.is_some_and(|slot| slot.holder.source.is_repeatable(name))
    }

    /// The states that `name` went through, and since when, the earliest first.
    pub fn states(&self, name: &BackendName) -> Vec<(SystemTime, Phase)> {
        let inner = self.inner.lock();
        inner.slots.get(name).map(|slot| slot.states.iter().copied().collect()).unwrap_or_default()
    }

    pub fn snapshot(&self, name: &str) -> Option<Snapshot> {
        self.inner.lock().slots.get(name).map(|slot| slot.holder.snapshot.clone())
    }

    pub fn snapshots(&self) -> BTreeMap<BackendName, Snapshot> {
        let inner = self.inner.lock();
        let slots = inner.slots.iter();
        slots.map(|(name, slot)| (name.clone(), slot.holder.snapshot.clone())).collect()
    }

    /// A number that changes with every write.
    pub fn version(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Waits until `look` returns a value; calls it now and after every write.
    pub async fn wait_for<T>(&self, mut look: impl FnMut(&Self) -> Option<T>) -> T {
        let mut version = self.version.subscribe();
        loop {
            version.mark_unchanged();
            if let Some(value) = look(self) {
                return value;
            }
            version.changed().await.expect("the sender is in `self`");
        }
    }

    /// Waits at most `patience` for the first attempts, then marks the registry as started.
    pub async fn start_within(&self, patience: Duration) {
        if timeout(patience, self.settled()).await.is_err() {
            info!("some backends have not answered yet; the bridge is ready without them");
        }
        self.started.send_replace(true);
    }

    pub fn is_started(&self) -> bool {
        *self.started.borrow()
    }

    /// Waits until the registry counts as started.
    pub async fn started(&self) {
        // The sender belongs to `self`, so waiting cannot fail.
        drop(self.started.subscribe().wait_for(|started| *started).await);
    }

    /// Waits until every backend has a catalog (one kept on disk counts), or its first attempt has
    /// failed.
    pub async fn settled(&self) {
        self.wait_for(|registry| {
            let inner = registry.inner.lock();
            if inner.slots.values().any(Slot::is_on_first_attempt) { None } else { Some(()) }
        })
        .await;
    }
}
