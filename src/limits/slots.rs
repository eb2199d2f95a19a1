//! Slots of which an app has no more than it leaves to the others: half of them if no other app has
//! any.
//!
//! Must not: know what a slot is for.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::model::AppName;
use crate::model::maps::HashMap;

/// A number of slots. Clones share them.
#[derive(Debug, Clone)]
pub struct Slots(Arc<Mutex<Counts>>);

#[derive(Debug)]
struct Counts {
    max: usize,
    all: usize,
    by_app: HashMap<AppName, usize>,
}

/// A slot that an app has; free again on drop.
#[derive(Debug)]
pub struct Slot {
    slots: Slots,
    app: AppName,
}

impl Slots {
    /// `max` slots, of which no app has one yet.
    pub fn new(max: usize) -> Self {
        Self(Arc::new(Mutex::new(Counts { max, all: 0, by_app: HashMap::default() })))
    }

    /// One more slot for `app`; `None` if the app has as many as it leaves to others.
    pub fn take(&self, app: &AppName) -> Option<Slot> {
        let mut counts = self.0.lock();
        let all = counts.all + 1;
        let own = counts.by_app.get(app).map_or(1, |count| count + 1);
        // Each app may have one, so that no two apps can shut out a third.
        if own > 1 && all + own > counts.max {
            return None;
        }
        counts.all = all;
        counts.by_app.insert(app.clone(), own);
        drop(counts);
        Some(Slot { slots: self.clone(), app: app.clone() })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut counts = self.slots.0.lock();
        counts.all -= 1;
        let Some(own) = counts.by_app.get_mut(&self.app) else { return };
        *own -= 1;
        if *own == 0 {
            counts.by_app.remove(&self.app);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::iter::from_fn;

    use super::*;

    #[test]
    fn app_has_no_more_slots_than_it_leaves_to_others() {
        let slots = Slots::new(64);
        let [a, b, c] = ["a", "b", "c"].map(AppName::from);
        let mut of_a: Vec<_> = from_fn(|| slots.take(&a)).collect();
        assert_eq!(of_a.len(), 32);
        let of_b: Vec<_> = from_fn(|| slots.take(&b)).collect();
        assert_eq!(of_b.len(), 16);
        of_a.pop();
        assert!(slots.take(&a).is_none(), "the second app has left less to the first");
        of_a.truncate(16);
        assert!(slots.take(&a).is_some());
        assert!(slots.take(&c).is_some());
        drop((of_a, of_b));
        assert_eq!(slots.0.lock().all, 0);
        assert!(slots.0.lock().by_app.is_empty());
    }
}
