//! How many connections there may be. Where all places are taken, the connection that has been
//! unused for the longest gives way: whoever opens many and does nothing with them keeps nobody out.
//! Where requests are being answered on all of them, a place is waited for while places get free.
//!
//! Must not: cut a connection on which a request is being answered.

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

/// Places do not get free where none has for so long.
const STANDSTILL: Duration = Duration::from_secs(1);

/// The places of one listener.
#[derive(Debug)]
pub(super) struct Places {
    most: usize,
    taken: Mutex<Taken>,
    freed: Notify,
}

#[derive(Debug)]
struct Taken {
    last: u64,
    /// When a place was last taken.
    moved: Instant,
    places: HashMap<u64, (Arc<Activity>, CancellationToken)>,
    evicted: u64,
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

impl Places {
    pub(super) fn new(most: usize) -> Self {
        let (moved, places) = (Instant::now(), HashMap::new());
        let taken = Mutex::new(Taken { last: 0, moved, places, evicted: 0 });
        Self { most, taken, freed: Notify::new() }
    }

    /// A place for a connection. `None`: requests are being answered on all others, and nothing says
    /// that they are about to end.
    pub(super) async fn place(self: &Arc<Self>) -> Option<Place> {
        let mut over = false;
        loop {
            match self.take() {
                None if !over => {
                    let by = self.lock().moved + STANDSTILL;
                    over = timeout_at(by, self.freed.notified()).await.is_err();
                }
                place => return place,
            }
        }
    }

    fn take(self: &Arc<Self>) -> Option<Place> {
        let mut taken = self.lock();
        if taken.places.len() >= self.most && !taken.evict() {
            return None;
        }
        taken.last += 1;
        taken.moved = Instant::now();
        let id = taken.last;
        let (activity, evicted) = (Arc::new(Activity::new()), CancellationToken::new());
        taken.places.insert(id, (Arc::clone(&activity), evicted.clone()));
        Some(Place { id, places: Arc::clone(self), activity, evicted })
    }

    /// Cuts the connection that has been unused for the longest.
    pub(super) fn evict(&self) {
        self.lock().evict();
    }

    /// How many have been cut since this was asked.
    pub(super) fn evicted(&self) -> u64 {
        std::mem::take(&mut self.lock().evicted)
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    /// Whether there was one to cut.
    fn evict(&mut self) -> bool {
        let unused = self
            .places
            .iter()
            .filter_map(|(id, (activity, _))| Some((activity.unused_since()?, *id)));
        let Some((_, id)) = unused.min() else { return false };
        if let Some((_, cut)) = self.places.remove(&id) {
            cut.cancel();
            self.evicted += 1;
        }
        true
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.places.lock().places.remove(&self.id).is_some() {
            self.places.freed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    //! Who gives way, and who does not.

    use std::time::Duration;

    use futures_util::FutureExt as _;
    use tokio::time::advance;

    use super::*;

    async fn taken(places: &Arc<Places>) -> Place {
        places.place().await.expect("there is one")
    }

    #[tokio::test(start_paused = true)]
    async fn the_one_that_is_unused_for_the_longest_gives_way() {
        let places = Arc::new(Places::new(3));
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
        assert!(places.place().await.is_none(), "all are used");
        assert_eq!(begun.elapsed(), STANDSTILL);
        assert!(places.place().now_or_never().flatten().is_none(), "at once, from then on");
        drop((open, second, fourth_open));
        assert!(places.place().now_or_never().flatten().is_some());
    }

    #[tokio::test]
    async fn a_place_that_is_given_back_is_waited_for() {
        let places = Arc::new(Places::new(1));
        let only = taken(&places).await;
        let open = only.activity.request();
        let mut next = std::pin::pin!(places.place());
        assert!(next.as_mut().now_or_never().is_none());
        drop((only, open));
        assert!(next.await.is_some());
    }
}
