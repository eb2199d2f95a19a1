//! Limits the connections of a listener, and chooses one to evict where there are too many.
//!
//! A connection is unknown until one of its requests has been authenticated. Unknown connections
//! have half of the slots, and one peer has half of those. A client that opens many connections and
//! authenticates on none can therefore not keep apps out: beyond these limits, the oldest unknown
//! connection is evicted, whatever it is doing. Each is safe for a moment ([`GRACE`]), so that a
//! burst of new connections does not evict itself.
//!
//! If all slots are taken, the connection that has been unused the longest is evicted. If all of
//! them answer requests of apps, a new connection gets none. Where there are several apps, one has
//! no more connections in use than it leaves free for the others ([`Slot::has_room_for`]).
//!
//! Must not: cut a connection on which an authenticated request is being answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::activity::Activity;
use crate::http::ClientKey;
use crate::model::AppName;
use crate::model::maps::HashMap;

/// How long a new connection is safe from eviction: more than a program needs to authenticate, TLS
/// included.
const GRACE: Duration = Duration::from_millis(500);

/// The slots of one listener.
#[derive(Debug)]
pub(super) struct ConnectionLimit {
    most: usize,
    most_unknown: usize,
    table: Mutex<SlotTable>,
    /// Notifies that a slot is free, or that an unknown connection has authenticated.
    freed: Notify,
}

#[derive(Debug, Default)]
struct SlotTable {
    last: u64,
    slots: HashMap<u64, Arc<SlotEntry>>,
    evicted: u64,
}

#[derive(Debug)]
pub(super) struct SlotEntry {
    id: u64,
    pub(super) activity: Arc<Activity>,
    /// Cancelled when another connection needs the slot.
    pub(super) evicted: CancellationToken,
    peer: ClientKey,
    since: Instant,
    unknown: AtomicBool,
    /// The app of its last request.
    app: Mutex<Option<AppName>>,
}

/// The slot of one connection; it gets free on drop.
#[derive(Debug, derive_more::Deref)]
pub(super) struct Slot {
    #[deref(forward)]
    entry: Arc<SlotEntry>,
    limit: Arc<ConnectionLimit>,
}

/// Why there is no slot.
enum Full {
    /// All connections answer requests, or the peer has its share of unknown connections and none
    /// of them may be evicted yet.
    Used,
    /// The listener has its share of unknown connections; one may be evicted at this time.
    Unknown(Instant),
}

impl ConnectionLimit {
    /// A limit of `most` slots, of which unknown connections may have `most_unknown`.
    pub(super) fn new(most: usize, most_unknown: usize) -> Self {
        Self { most, most_unknown, table: Mutex::default(), freed: Notify::new() }
    }

    /// A slot for a connection of `peer`. `None` if all others answer requests, or if the peer has
    /// its share.
    pub(super) async fn slot(self: &Arc<Self>, peer: ClientKey) -> Option<Slot> {
        loop {
            match self.take(peer) {
                Ok(slot) => return Some(slot),
                Err(Full::Unknown(until)) => drop(timeout_at(until, self.freed.notified()).await),
                Err(Full::Used) => return None,
            }
        }
    }

    fn take(self: &Arc<Self>, peer: ClientKey) -> Result<Slot, Full> {
        let mut table = self.table.lock();
        let now = Instant::now();
        let of_peer = table.unknown().filter(|entry| entry.peer == peer).count();
        let peer_has_share = !peer.is_shared() && of_peer >= self.most_unknown.div_ceil(2);
        if peer_has_share && !table.evict_unknown(Some(peer), now) {
            return Err(Full::Used);
        }
        if table.unknown().count() >= self.most_unknown && !table.evict_unknown(None, now) {
            let oldest = table.unknown().map(|entry| entry.since).min().unwrap_or(now);
            return Err(Full::Unknown(oldest + GRACE));
        }
        if table.slots.len() >= self.most && !table.evict() && !table.evict_unknown(None, now) {
            return Err(Full::Used);
        }
        table.last += 1;
        let entry = Arc::new(SlotEntry {
            id: table.last,
            activity: Arc::new(Activity::new()),
            evicted: CancellationToken::new(),
            peer,
            since: now,
            unknown: AtomicBool::new(true),
            app: Mutex::default(),
        });
        table.slots.insert(entry.id, Arc::clone(&entry));
        Ok(Slot { entry, limit: Arc::clone(self) })
    }

    /// Evicts the connection that has been unused the longest.
    pub(super) fn evict(&self) {
        self.table.lock().evict();
    }

    /// Takes the number of connections that were evicted since the last call, for the metrics.
    pub(super) fn evicted(&self) -> u64 {
        std::mem::take(&mut self.table.lock().evicted)
    }
}

impl SlotTable {
    fn unknown(&self) -> impl Iterator<Item = &SlotEntry> {
        self.slots.values().map(|entry| &**entry).filter(|entry| entry.is_unknown())
    }

    /// Evicts the connection that has been unused the longest; false if there is none.
    fn evict(&mut self) -> bool {
        let longest_unused = self
            .slots
            .iter()
            .filter_map(|(id, entry)| Some((entry.activity.unused_since()?, *id)))
            .min();
        let Some((_, id)) = longest_unused else { return false };
        self.cut(id);
        true
    }

    /// Evicts the oldest unknown connection: of `peer`, or else of the peer that has the most.
    /// False if there is none.
    fn evict_unknown(&mut self, peer: Option<ClientKey>, now: Instant) -> bool {
        let mut of_peers: HashMap<ClientKey, usize> = HashMap::default();
        for entry in self.unknown() {
            *of_peers.entry(entry.peer).or_default() += 1;
        }
        let unknown = self.slots.iter().filter(|(_, entry)| {
            entry.is_unknown()
                && peer.is_none_or(|peer| peer == entry.peer)
                && now.saturating_duration_since(entry.since) >= GRACE
        });
        let worst = unknown.max_by_key(|(id, entry)| {
            (of_peers.get(&entry.peer), std::cmp::Reverse((entry.since, **id)))
        });
        let Some((&id, _)) = worst else { return false };
        self.cut(id);
        true
    }

    fn cut(&mut self, id: u64) {
        if let Some(entry) = self.slots.remove(&id) {
            entry.evicted.cancel();
            self.evicted += 1;
        }
    }
}

impl SlotEntry {
    /// No request on the connection was authenticated yet.
    pub(super) fn is_unknown(&self) -> bool {
        self.unknown.load(Ordering::Relaxed)
    }
}

impl Slot {
    /// A request on the connection was authenticated.
    pub(super) fn let_in(&self) {
        if self.unknown.swap(false, Ordering::Relaxed) {
            self.limit.freed.notify_one();
        }
    }
}

impl Slot {
    /// Whether the connection may be used for a request of `app`, which is one of several: open
    /// streams of one app must leave connections to the others.
    pub(super) fn has_room_for(&self, app: &AppName) -> bool {
        let mut of_slot = self.app.lock();
        if of_slot.as_ref() != Some(app) {
            *of_slot = Some(app.clone());
        }
        drop(of_slot);
        let table = self.limit.table.lock();
        // It saves most requests the count.
        if 2 * table.slots.len() <= self.limit.most {
            return true;
        }
        let in_use = table.slots.values().filter(|entry| entry.activity.unused_since().is_none());
        let (mut all, mut own) = (0, 0);
        for entry in in_use {
            all += 1;
            own += usize::from(entry.app.lock().as_ref() == Some(app));
        }
        own <= 1 || all + own <= self.limit.most
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if self.limit.table.lock().slots.remove(&self.id).is_some() {
            self.limit.freed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    //! Who gives way, and who does not.

    use std::net::{IpAddr, Ipv4Addr};
    use std::time::Duration;

    use futures_util::FutureExt as _;
    use tokio::time::advance;

    use super::*;

    const APP: ClientKey = ClientKey::User(1);
    const STRANGER: ClientKey = ClientKey::User(2);
    const LOOPBACK: ClientKey = ClientKey::Address(IpAddr::V4(Ipv4Addr::LOCALHOST));

    /// A slot of a connection on which a request was let in.
    async fn taken(limit: &Arc<ConnectionLimit>) -> Slot {
        let slot = limit.slot(APP).await.expect("there is one");
        slot.let_in();
        slot
    }

    #[tokio::test(start_paused = true)]
    async fn the_one_that_is_unused_for_the_longest_gives_way() {
        let limit = Arc::new(ConnectionLimit::new(3, 3));
        let mut all = Vec::new();
        for _ in 0..3 {
            all.push(taken(&limit).await);
            advance(Duration::from_secs(1)).await;
        }
        // The first is used, and the second has just been.
        let open = all[0].activity.request();
        drop(all[1].activity.request());
        let fourth = taken(&limit).await;
        let cut: Vec<bool> = all.iter().map(|slot| slot.evicted.is_cancelled()).collect();
        assert_eq!(cut, [false, false, true]);
        assert_eq!((limit.evicted(), limit.evicted()), (1, 0));

        // What was cut has no slot any more to give back.
        drop(all.pop());
        let second = all[1].activity.request();
        let fourth_open = fourth.activity.request();
        let none = limit.slot(APP).now_or_never().expect("it is told at once");
        assert!(none.is_none(), "all are used");
        drop((open, second, fourth_open));
        assert!(limit.slot(APP).now_or_never().flatten().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn connections_without_a_request_keep_no_client_out() {
        let limit = Arc::new(ConnectionLimit::new(8, 4));
        let mut strangers = Vec::new();
        let mut requests = Vec::new();
        for _ in 0..4 {
            let slot = limit.slot(LOOPBACK).await.unwrap();
            // As far as anybody can see, a request is on its way in.
            requests.push(slot.activity.request());
            strangers.push(slot);
        }
        let begun = Instant::now();
        let app = limit.slot(APP).await.unwrap();
        assert_eq!(begun.elapsed(), GRACE, "newcomers have a moment to show who they are");
        assert!(strangers[0].evicted.is_cancelled(), "then the oldest makes room");
        assert!(strangers[1..].iter().all(|slot| !slot.evicted.is_cancelled()));

        // Whoever was let in takes no slot of the unknown.
        app.let_in();
        app.let_in();
        requests.push(app.activity.request());
        assert!(limit.slot(LOOPBACK).now_or_never().flatten().is_some());
        advance(GRACE).await;
        for _ in 0..8 {
            strangers.push(limit.slot(LOOPBACK).await.unwrap());
            advance(GRACE).await;
        }
        assert!(!app.evicted.is_cancelled());
        drop((app, strangers));
        assert!(limit.table.lock().unknown().next().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_shows_nothing_has_its_share() {
        let limit = Arc::new(ConnectionLimit::new(8, 4));
        let first = limit.slot(STRANGER).await.unwrap();
        let second = limit.slot(STRANGER).await.unwrap();
        let third = limit.slot(STRANGER).now_or_never().expect("it is told at once");
        assert!(third.is_none());
        assert!(limit.slot(APP).now_or_never().flatten().is_some());
        advance(GRACE).await;
        let third = limit.slot(STRANGER).now_or_never().flatten();
        assert!(third.is_some() && first.evicted.is_cancelled(), "its own oldest makes room");
        assert!(!second.evicted.is_cancelled());
    }

    #[tokio::test]
    async fn app_leaves_connections_to_the_others() {
        let limit = Arc::new(ConnectionLimit::new(8, 8));
        let (a, b) = (AppName::from("a"), AppName::from("b"));
        let mut open = Vec::new();
        for count in 1..=5 {
            let slot = taken(&limit).await;
            let request = slot.activity.request();
            assert_eq!(slot.has_room_for(&a), count <= 4, "{count}");
            open.push((slot, request));
        }
        // The refused request has been answered.
        let (refused, request) = open.pop().unwrap();
        drop(request);
        let other = taken(&limit).await;
        let _request = other.activity.request();
        assert!(other.has_room_for(&b));
        let _again = refused.activity.request();
        assert!(!refused.has_room_for(&a), "with the other app, there is less for this one");
        drop(open.drain(..2));
        assert!(refused.has_room_for(&a));
    }

    #[tokio::test]
    async fn a_burst_of_apps_goes_on_as_they_are_let_in() {
        let limit = Arc::new(ConnectionLimit::new(8, 2));
        let first = limit.slot(LOOPBACK).await.unwrap();
        let second = limit.slot(LOOPBACK).await.unwrap();
        let mut third = std::pin::pin!(limit.slot(LOOPBACK));
        assert!(third.as_mut().now_or_never().is_none());
        first.let_in();
        assert!(third.await.is_some());
        assert!(!first.evicted.is_cancelled() && !second.evicted.is_cancelled());
    }
}
