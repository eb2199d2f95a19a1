//! What the configuration says of apps and their calls, as one value that a reload replaces.
//!
//! Must not: change; a call keeps the one that it began with.

use std::{collections::HashMap, sync::Arc};

use crate::{
    backend::queue::AdmissionQueue,
    config::{App, Calls as CallLimits},
    model::ids::AppName,
};

/// The configured limits and apps.
#[derive(Debug)]
pub(super) struct Settings {
    pub limits: CallLimits,
    pub apps: HashMap<AppName, AppSettings>,
}

#[derive(Debug, Clone)]
pub(super) struct AppSettings {
    pub app: Arc<App>,
    /// The queue of its calls, if the app has a limit of calls that run at once.
    pub queue: Option<Arc<AdmissionQueue>>,
}

impl Settings {
    /// Makes settings. An app whose limit did not change keeps its queue, and so the count of its
    /// calls.
    pub(super) fn new(limits: &CallLimits, apps: &[App], before: Option<&Self>) -> Self {
        let settings = |app: &App| {
            let limit = app.max_concurrent_calls;
            let known = before.and_then(|before| before.apps.get(&app.name));
            let same = known.filter(|known| known.app.max_concurrent_calls == limit);
            let queue = match same {
                Some(known) => known.queue.clone(),
                None => limit.map(|limit| Arc::new(AdmissionQueue::new(limit))),
            };
            (app.name.clone(), AppSettings { app: Arc::new(app.clone()), queue })
        };
        Self { limits: limits.clone(), apps: apps.iter().map(settings).collect() }
    }
}
