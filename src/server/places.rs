//! How many connections there may be. Where all places are taken, the connection that has been
//! unused for the longest gives way: whoever opens many and does nothing with them keeps nobody out.
//!
//! Must not: cut a connection on which a request is being answered.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::activity::Activity;

/// The places of one listener.
#[derive(Debug)]
pub(super) struct Places {
    most: usize,
    taken: Mutex<Taken>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct Taken {
    last: u64,
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
        Self { most, taken: Mutex::default(), freed: Notify::new() }
    }

    /// A place for a connection; waits while requests are being answered on all others.
    pub(super) async fn place(self: &Arc<Self>) -> Place {
        loop {
            if let Some(place) = self.take() {
                return place;
            }
            self.freed.notified().await;
        }
    }

    fn take(self: &Arc<Self>) -> Option<Place> {
        let mut taken = self.lock();
        if taken.places.len() >= self.most && !taken.evict() {
            return None;
        }
        taken.last += 1;
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

    #[tokio::test(start_paused = true)]
    async fn the_one_that_is_unused_for_the_longest_gives_way() {
        let places = Arc::new(Places::new(3));
        let mut all = Vec::new();
        for _ in 0..3 {
            all.push(places.place().await);
            advance(Duration::from_secs(1)).await;
        }
        // The first is used, and the second has just been.
        let open = all[0].activity.request();
        drop(all[1].activity.request());
        let fourth = places.place().await;
        let cut: Vec<bool> = all.iter().map(|place| place.evicted.is_cancelled()).collect();
        assert_eq!(cut, [false, false, true]);
        assert_eq!((places.evicted(), places.evicted()), (1, 0));

        // What was cut has no place any more to give back.
        drop(all.pop());
        let (second, fourth_open) = (all[1].activity.request(), fourth.activity.request());
        assert!(places.place().now_or_never().is_none(), "all are used");
        drop((open, second, fourth_open));
        assert!(places.place().now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_place_that_is_given_back_is_waited_for() {
        let places = Arc::new(Places::new(1));
        let only = places.place().await;
        let open = only.activity.request();
        let mut next = std::pin::pin!(places.place());
        assert!(next.as_mut().now_or_never().is_none());
        drop((only, open));
        next.await;
    }
}
