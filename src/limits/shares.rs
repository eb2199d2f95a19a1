//! Bytes that apps hold, of which each app has an equal part; and a common part that any of them
//! may use. Without it, an app whose answers MANTYX does not take could fill the journal, and then
//! no call of any app is made.
//!
//! Must not: know what the bytes are.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::model::AppName;
use crate::model::maps::HashMap;

/// What all apps hold. Clones share it.
#[derive(Debug, Clone)]
pub struct Shares(Arc<Mutex<Ledger>>);

#[derive(derive_more::Debug)]
struct Ledger {
    /// Counts the apps that there are: a reload may change their number.
    #[debug(skip)]
    count_apps: Box<dyn Fn() -> usize + Send>,
    /// How many bytes are divided among the apps, and how many any of them may use beyond that.
    divided: usize,
    common: usize,
    by_app: HashMap<AppName, usize>,
}

/// The bytes that one owner holds for its app; released on drop.
#[derive(Debug)]
pub struct Share {
    all: Shares,
    app: AppName,
    bytes: Mutex<usize>,
}

impl Shares {
    /// The shares of as many apps as `count_apps` counts at the time, which hold nothing yet: equal
    /// parts of `divided` bytes, and `common` bytes for any app that needs them.
    pub fn new(
        count_apps: impl Fn() -> usize + Send + 'static,
        divided: usize,
        common: usize,
    ) -> Self {
        let (count_apps, by_app) = (Box::new(count_apps), HashMap::default());
        Self(Arc::new(Mutex::new(Ledger { count_apps, divided, common, by_app })))
    }

    /// A part of the share of `app`, which holds nothing yet.
    pub fn share(&self, app: &AppName) -> Share {
        Share { all: self.clone(), app: app.clone(), bytes: Mutex::default() }
    }
}

impl Ledger {
    /// Whether `app` holds no more than its part, or the common part has room for what all apps
    /// hold beyond theirs. An app within its part always fits: the excess of another app is that
    /// app's to reduce. The parts follow a reload at once.
    fn fits(&self, app: &AppName) -> bool {
        let own_part = self.divided / (self.count_apps)().max(1);
        if self.by_app.get(app).is_none_or(|bytes| *bytes <= own_part) {
            return true;
        }
        let excess = self.by_app.values().map(|bytes| bytes.saturating_sub(own_part));
        excess.sum::<usize>() <= self.common
    }
}

impl Share {
    /// Sets what is held to `bytes`. Returns whether there is room for it.
    ///
    /// The bytes are counted also if there is none, as the caller may have to keep them: it then
    /// refuses the work, or drops the bytes by another `hold`.
    pub fn hold(&self, bytes: usize) -> bool {
        // The share's own lock is taken first, and held to the end: of two calls at once, the later
        // value is the one that counts in both places.
        let mut own = self.bytes.lock();
        let mut ledger = self.all.0.lock();
        let before = std::mem::replace(&mut *own, bytes);
        let of_app = ledger.by_app.entry(self.app.clone()).or_default();
        *of_app = *of_app - before + bytes;
        if *of_app == 0 {
            ledger.by_app.remove(&self.app);
        }
        ledger.fits(&self.app)
    }

    /// Whether there is room for all that the app holds, by this share and its others.
    pub fn fits(&self) -> bool {
        self.all.0.lock().fits(&self.app)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.hold(0);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn each_app_has_its_share_whatever_another_holds() {
        let app_count = Arc::new(AtomicUsize::new(2));
        let current = Arc::clone(&app_count);
        let half = 1_000;
        let shares = Shares::new(move || current.load(Ordering::Relaxed), half, half);
        let [a, more_of_a, b, more_of_b] =
            ["a", "a", "b", "b"].map(|app| shares.share(&AppName::from(app)));
        let share = half / 2;
        assert!(a.hold(share + half), "any app may use the common part");
        assert!(!more_of_a.hold(1) && !a.fits());
        assert!(b.hold(share) && b.fits(), "b has its own part");
        assert!(!more_of_b.hold(1));
        drop(more_of_a);
        more_of_b.hold(0);
        assert!(a.fits() && b.fits());
        a.hold(share);
        assert!(b.fits() && more_of_b.hold(half));
        app_count.store(1, Ordering::Relaxed);
        assert!(a.fits(), "what was within its share is");
        drop((a, b, more_of_b));
        assert!(shares.0.lock().by_app.is_empty(), "all of it is given back");
    }
}
