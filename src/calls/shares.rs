//! How many bytes of the journal the open calls of each app hold: arguments, and answers that
//! MANTYX has not taken yet. Without a limit, an app whose answers MANTYX does not take could fill
//! the journal, and then no call of any app is made.
//!
//! Must not: know what a call is, or write to the journal.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::journal::room::OPEN_CALLS;
use crate::model::AppName;
use crate::model::maps::HashMap;
use crate::settings::Settings;

/// What the open calls of all apps hold.
#[derive(Debug, Clone)]
pub(super) struct Shares(Arc<Mutex<Held>>);

#[derive(Debug)]
struct Held {
    settings: watch::Receiver<Arc<Settings>>,
    by_app: HashMap<AppName, usize>,
}

/// The bytes that one call holds; released on drop.
#[derive(Debug)]
pub(super) struct Share {
    all: Shares,
    app: AppName,
    bytes: Mutex<usize>,
}

impl Shares {
    /// The shares of the apps in `settings`. No call holds anything yet.
    pub(super) fn new(settings: watch::Receiver<Arc<Settings>>) -> Self {
        Self(Arc::new(Mutex::new(Held { settings, by_app: HashMap::default() })))
    }

    /// The share of a call of `app`, which holds nothing yet.
    pub(super) fn of(&self, app: &AppName) -> Share {
        Share { all: self.clone(), app: app.clone(), bytes: Mutex::default() }
    }
}

impl Held {
    /// Whether `app` holds no more than its share and the free part of the common half.
    fn fits(&self, app: &AppName) -> bool {
        let half = OPEN_CALLS / 2;
        let share = half / self.settings.borrow().apps.len().max(1);
        let common = |bytes: &usize| bytes.saturating_sub(share);
        let own = self.by_app.get(app).map_or(0, common);
        own == 0 || self.by_app.values().map(common).sum::<usize>() <= half
    }
}

impl Share {
    /// Sets what the call holds to `bytes`. Returns whether there is room for it.
    pub(super) fn hold(&self, bytes: usize) -> bool {
        let mut own = self.bytes.lock();
        let mut held = self.all.0.lock();
        let before = std::mem::replace(&mut *own, bytes);
        let of_app = held.by_app.entry(self.app.clone()).or_default();
        *of_app = *of_app - before + bytes;
        if *of_app == 0 {
            held.by_app.remove(&self.app);
        }
        held.fits(&self.app)
    }

    /// Whether there is room for all that the call's app holds.
    pub(super) fn fits(&self) -> bool {
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
    use std::time::Duration;

    use super::*;
    use crate::config::{App, Calls};

    #[test]
    fn each_app_has_its_share_whatever_another_holds() {
        let settings = |names: &[&str]| {
            let limits = Calls {
                timeout: Duration::ZERO,
                pending_timeout: Duration::ZERO,
                max_concurrent: 1,
            };
            let apps = names.iter().copied().map(App::named).collect();
            Arc::new(Settings::new(limits, apps, None))
        };
        let (reload, read) = watch::channel(settings(&["a", "b"]));
        let shares = Shares::new(read);
        let [a, more_of_a, b, more_of_b] =
            ["a", "a", "b", "b"].map(|app| shares.of(&AppName::from(app)));
        let half = OPEN_CALLS / 2;
        let share = OPEN_CALLS / 4;
        assert!(a.hold(share + half), "what is common is for whoever needs it");
        assert!(!more_of_a.hold(1) && !a.fits());
        assert!(b.hold(share) && b.fits(), "it has its own");
        assert!(!more_of_b.hold(1));
        drop(more_of_a);
        more_of_b.hold(0);
        assert!(a.fits() && b.fits());
        a.hold(share);
        assert!(b.fits() && more_of_b.hold(half));
        reload.send_replace(settings(&["a"]));
        assert!(a.fits(), "what was within its share is");
        drop((a, b, more_of_b));
        assert!(shares.0.lock().by_app.is_empty(), "all of it is given back");
    }
}
