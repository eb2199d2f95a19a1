//! The configured apps and the limits of their calls, as one value that a reload replaces whole.
//!
//! Authentication and calls read the same value, so that an app that was removed is unknown to both
//! at the same moment.
//!
//! Must not: change; a call keeps the settings that it began with.

use std::sync::Arc;

use crate::backend::queue::AdmissionQueue;
use crate::backend::quota::Meter;
use crate::config::{App, Calls};
use crate::model::AppName;

/// The configured apps and limits.
#[derive(Debug)]
pub struct Settings {
    pub limits: Calls,
    /// In the order of bridge.yaml.
    pub apps: Vec<AppSettings>,
}

#[derive(Debug, Clone)]
pub struct AppSettings {
    pub app: Arc<App>,
    /// The queue of its calls, if the app has a limit of calls that run at once.
    pub queue: Option<AdmissionQueue>,
    /// Counts its calls, if it has a quota.
    pub quota: Option<Arc<Meter>>,
}

impl Settings {
    /// Makes the settings that follow `before`. An app whose limits did not change keeps its queue
    /// and its quota, and so the counts of its calls.
    pub fn new(limits: Calls, apps: Vec<App>, before: Option<&Self>) -> Self {
        let settings = |app: App| {
            let limit = app.max_concurrent_calls;
            let known = before.and_then(|before| before.app(&app.name));
            let same = known.filter(|known| known.app.max_concurrent_calls == limit);
            let queue = match same {
                Some(known) => known.queue.clone(),
                None => limit.map(AdmissionQueue::new),
            };
            let counted = known.and_then(|known| known.quota.as_ref());
            let quota = Meter::after(counted, &format!("The app `{}`", app.name), app.quota);
            AppSettings { app: Arc::new(app), queue, quota }
        };
        Self { limits, apps: apps.into_iter().map(settings).collect() }
    }

    /// The app of this name.
    pub fn app(&self, name: &AppName) -> Option<&AppSettings> {
        self.apps.iter().find(|known| known.app.name == *name)
    }
}
