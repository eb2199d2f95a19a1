//! How many connections there may be, and who gives way where there are too many.
//!
//! A connection is unknown until a request on it has been let in. Unknown connections have half of
//! the places, and one peer half of those, so that whoever opens many and shows nothing cannot keep
//! apps out: where there are too many, the oldest makes room, whatever it is doing. Each has a moment
//! in which it is left alone, so that a burst of newcomers does not cut itself off.
//!
//! Where all places are taken, the connection that has been unused for the longest gives way. Where
//! requests of apps are being answered on all of them, a place is waited for while places get free.
//!
//! Must not: cut a connection on which a request that was let in is being answered.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;

use super::activity::Activity;
use crate::door::{LetIn, failures::Peer};

/// Places do not get free where none has for so long.
const STANDSTILL: Duration = Duration::from_secs(1);
/// How long a connection has to show who it is, whatever else there is: more than a program needs,
/// TLS included.
const GRACE: Duration = Duration::from_millis(500);

/// The places of one listener.
#[derive(Debug)]
pub(super) struct Places {
    most: usize,
    most_unknown: usize,
    taken: Mutex<Taken>,
    /// A place is free, or an unknown connection no longer is one.
    freed: Notify,
}

#[derive(Debug)]
struct Taken {
    last: u64,
    /// When a place was last taken.
    moved: Instant,
    places: HashMap<u64, Entry>,
    /// How many unknown connections each peer has.
    unknown: HashMap<Peer, usize>,
    evicted: u64,
}

#[derive(Debug)]
struct Entry {
    activity: Arc<Activity>,
    evicted: CancellationToken,
    peer: Peer,
    since: Instant,
    unknown: bool,
}

/// The place of one connection; free again when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    id: u64,
    places: Arc<Places>,
    pub(super) activity: Arc<Activity>,
    /// Another connection needs the place.
    pub(super) evicted: CancellationToken,
}

/// Why there is no place.
enum Full {
    /// The peer has too many connections on which it has shown nothing.
    OfPeer,
    /// So have all together; one of them may be cut then.
    Unknown(Instant),
    /// Requests are being answered on all.
    Used,
}

impl Places {
    /// `most` places, of which unknown connections have `most_unknown`.
    pub(super) fn new(most: usize, most_unknown: usize) -> Self {
        let taken = Mutex::new(Taken {
            last: 0,
            moved: Instant::now(),
            places: HashMap::new(),
            unknown: HashMap::new(),
            evicted: 0,
        });
        Self { most, most_unknown, taken, freed: Notify::new() }
    }

    /// A place for a connection of `peer`. `None`: requests are being answered on all others, and
    /// nothing says that they are about to end; or the peer has its share.
    pub(super) async fn place(self: &Arc<Self>, peer: Peer) -> Option<Place> {
        let mut over = false;
        loop {
            match self.take(peer) {
                Ok(place) => return Some(place),
                Err(Full::Unknown(until)) => drop(timeout_at(until, self.freed.notified()).await),
                Err(Full::Used) if !over => {
                    let by = self.lock().moved + STANDSTILL;
                    over = timeout_at(by, self.freed.notified()).await.is_err();
                }
                Err(Full::Used | Full::OfPeer) => return None,
            }
        }
    }

    fn take(self: &Arc<Self>, peer: Peer) -> Result<Place, Full> {
        let (mut taken, now) = (self.lock(), Instant::now());
        let of_peer = taken.unknown.get(&peer).copied().unwrap_or_default();
        let has_share = !peer.is_shared() && of_peer >= self.most_unknown.div_ceil(2);
        if has_share && !taken.evict_unknown(Some(peer), now) {
            return Err(Full::OfPeer);
        }
        let unknown: usize = taken.unknown.values().sum();
        if unknown >= self.most_unknown && !taken.evict_unknown(None, now) {
            let unknown = taken.places.values().filter(|entry| entry.unknown);
            let oldest = unknown.map(|entry| entry.since).min().unwrap_or(now);
            return Err(Full::Unknown(oldest + GRACE));
        }
        let full = taken.places.len() >= self.most;
        if full && !taken.evict() && !taken.evict_unknown(None, now) {
            return Err(Full::Used);
        }
        taken.last += 1;
        taken.moved = now;
        let id = taken.last;
        let (activity, evicted) = (Arc::new(Activity::new()), CancellationToken::new());
        *taken.unknown.entry(peer).or_default() += 1;
        let entry = Entry {
            activity: Arc::clone(&activity),
            evicted: evicted.clone(),
            peer,
            since: now,
            unknown: true,
        };
        taken.places.insert(id, entry);
        Ok(Place { id, places: Arc::clone(self), activity, evicted })
    }

    /// Cuts the connection that has been unused for the longest.
    pub(super) fn evict(&self) {
        self.lock().evict();
    }

    /// How many have been cut since this was asked.
    pub(super) fn evicted(&self) -> u64 {
        std::mem::take(&mut self.lock().evicted)
    }

    fn let_in(&self, id: u64) {
        self.lock().let_in(id);
        self.freed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    /// Whether there was one to cut.
    fn evict(&mut self) -> bool {
        let unused = self.places.iter();
        let unused = unused.filter_map(|(id, entry)| Some((entry.activity.unused_since()?, *id)));
        let Some((_, id)) = unused.min() else { return false };
        self.cut(id);
        true
    }

    /// Cuts the oldest unknown connection, of `peer` or of the one that has most of them; whether
    /// there was one.
    fn evict_unknown(&mut self, peer: Option<Peer>, now: Instant) -> bool {
        let unknown = self.places.iter().filter(|(_, entry)| {
            entry.unknown
                && peer.is_none_or(|peer| peer == entry.peer)
                && now.saturating_duration_since(entry.since) >= GRACE
        });
        let worst = unknown.max_by_key(|(id, entry)| {
            (self.unknown.get(&entry.peer), std::cmp::Reverse((entry.since, **id)))
        });
        let Some((&id, _)) = worst else { return false };
        self.cut(id);
        true
    }

    fn cut(&mut self, id: u64) {
        if let Some(entry) = self.remove(id) {
            entry.evicted.cancel();
            self.evicted += 1;
        }
    }

    fn remove(&mut self, id: u64) -> Option<Entry> {
        self.let_in(id);
        self.places.remove(&id)
    }

    /// The connection is not an unknown one any more.
    fn let_in(&mut self, id: u64) {
        let Some(entry) = self.places.get_mut(&id).filter(|entry| entry.unknown) else { return };
        entry.unknown = false;
        if let Some(count) = self.unknown.get_mut(&entry.peer) {
            *count -= 1;
            if *count == 0 {
                self.unknown.remove(&entry.peer);
            }
        }
    }
}

impl Place {
    /// For the first request on the connection that is let in.
    pub(super) fn let_in(&self) -> LetIn {
        let (places, id) = (Arc::clone(&self.places), self.id);
        LetIn::new(move || places.let_in(id))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.places.lock().remove(self.id).is_some() {
            self.places.freed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    //! Who gives way, and who does not.

    use std::{
        net::{IpAddr, Ipv4Addr},
        time::Duration,
    };

    use futures_util::FutureExt as _;
    use tokio::time::advance;

    use super::*;

    const APP: Peer = Peer::User(1);
    const STRANGER: Peer = Peer::User(2);
    const LOOPBACK: Peer = Peer::Address(IpAddr::V4(Ipv4Addr::LOCALHOST));

    /// A place of a connection on which a request was let in.
    async fn taken(places: &Arc<Places>) -> Place {
        let place = places.place(APP).await.expect("there is one");
        place.let_in().tell();
        place
    }

    #[tokio::test(start_paused = true)]
    async fn the_one_that_is_unused_for_the_longest_gives_way() {
        let places = Arc::new(Places::new(3, 3));
        let mut all = Vec::new();
        for _ in 0..3 {
            all.push(taken(&places).await);
            advance(Duration::from_secs(1)).await;
        }
        // The first is used, and the second has just been.
        let open = all[0].activity.request();
        drop(all[1].activity.request());
        let fourth = taken(&places).await;
        let cut: Vec<bool> = all.iter().map(|place| place.evicted.is_cancelled()).collect();
        assert_eq!(cut, [false, false, true]);
        assert_eq!((places.evicted(), places.evicted()), (1, 0));

        // What was cut has no place any more to give back.
        drop(all.pop());
        let (second, fourth_open) = (all[1].activity.request(), fourth.activity.request());
        let begun = Instant::now();
        assert!(places.place(APP).await.is_none(), "all are used");
        assert_eq!(begun.elapsed(), STANDSTILL);
        assert!(places.place(APP).now_or_never().flatten().is_none(), "at once, from then on");
        drop((open, second, fourth_open));
        assert!(places.place(APP).now_or_never().flatten().is_some());
    }

    #[tokio::test]
    async fn a_place_that_is_given_back_is_waited_for() {
        let places = Arc::new(Places::new(1, 1));
        let only = taken(&places).await;
        let open = only.activity.request();
        let mut next = std::pin::pin!(places.place(APP));
        assert!(next.as_mut().now_or_never().is_none());
        drop((only, open));
        assert!(next.await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_show_nothing_keep_nobody_out() {
        let places = Arc::new(Places::new(8, 4));
        let (mut strangers, mut requests) = (Vec::new(), Vec::new());
        for _ in 0..4 {
            let place = places.place(LOOPBACK).await.unwrap();
            // As far as anybody can see, a request is on its way in.
            requests.push(place.activity.request());
            strangers.push(place);
        }
        let begun = Instant::now();
        let app = places.place(APP).await.unwrap();
        assert_eq!(begun.elapsed(), GRACE, "newcomers have a moment to show who they are");
        assert!(strangers[0].evicted.is_cancelled(), "then the oldest makes room");
        assert!(strangers[1..].iter().all(|place| !place.evicted.is_cancelled()));

        // Whoever was let in takes no place of the unknown.
        app.let_in().tell();
        app.let_in().tell();
        requests.push(app.activity.request());
        assert!(places.place(LOOPBACK).now_or_never().flatten().is_some());
        advance(GRACE).await;
        for _ in 0..8 {
            strangers.push(places.place(LOOPBACK).await.unwrap());
            advance(GRACE).await;
        }
        assert!(!app.evicted.is_cancelled());
        drop((app, strangers));
        assert!(places.lock().unknown.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_shows_nothing_has_its_share() {
        let places = Arc::new(Places::new(8, 4));
        let first = places.place(STRANGER).await.unwrap();
        let second = places.place(STRANGER).await.unwrap();
        let third = places.place(STRANGER).now_or_never().expect("it is told at once");
        assert!(third.is_none());
        assert!(places.place(APP).now_or_never().flatten().is_some());
        advance(GRACE).await;
        let third = places.place(STRANGER).now_or_never().flatten();
        assert!(third.is_some() && first.evicted.is_cancelled(), "its own oldest makes room");
        assert!(!second.evicted.is_cancelled());
    }

    #[tokio::test]
    async fn a_burst_of_apps_goes_on_as_they_are_let_in() {
        let places = Arc::new(Places::new(8, 2));
        let first = places.place(LOOPBACK).await.unwrap();
        let second = places.place(LOOPBACK).await.unwrap();
        let mut third = std::pin::pin!(places.place(LOOPBACK));
        assert!(third.as_mut().now_or_never().is_none());
        first.let_in().tell();
        assert!(third.await.is_some());
        assert!(!first.evicted.is_cancelled() && !second.evicted.is_cancelled());
    }
}
