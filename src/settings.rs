//! The configured apps and the limits of their calls, as one value that a reload replaces whole.
//!
//! Authentication and calls read the same value, so that an app that was removed is unknown to both
//! at the same moment.
//!
//! Must not: change; a call keeps the settings that it began with.

use std::sync::Arc;

use tokio::sync::watch;

use crate::config::{App, Calls};
use crate::limits::queue::AdmissionQueue;
use crate::limits::quota::Meter;
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
    /// and its quota, and so the counts of its calls: with new counts, a reload of any other key
    /// would let the app make as many calls again.
    pub fn new(limits: Calls, apps: Vec<App>, before: Option<&Self>) -> Self {
        let mut settings = Vec::with_capacity(apps.len());
        for app in apps {
            let earlier = before.and_then(|before| before.app(&app.name));
            settings.push(AppSettings::new(app, earlier));
        }
        Self { limits, apps: settings }
    }

    /// Counts the apps of the newest settings of `receiver`, for [`crate::limits::shares`].
    pub fn app_count(receiver: &watch::Receiver<Arc<Self>>) -> impl Fn() -> usize + Send + 'static {
        let receiver = receiver.clone();
        move || receiver.borrow().apps.len()
    }

    /// The app of this name.
    pub fn app(&self, name: &AppName) -> Option<&AppSettings> {
        self.apps.iter().find(|settings| settings.app.name == *name)
    }
}

impl AppSettings {
    fn new(app: App, earlier: Option<&Self>) -> Self {
        let limit = app.max_concurrent_calls;
        let queue = match earlier {
            Some(earlier) if earlier.app.max_concurrent_calls == limit => earlier.queue.clone(),
            _ => limit.map(AdmissionQueue::new),
        };
        let earlier_quota = earlier.and_then(|earlier| earlier.quota.as_ref());
        let quota = Meter::after(earlier_quota, &format!("The app `{}`", app.name), app.quota);
        Self { app: Arc::new(app), queue, quota }
    }
}
