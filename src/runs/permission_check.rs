//! Whether the calls of one app may be made, by the configuration and the quotas at the moment of the
//! dispatch.
//!
//! Must not: decide what a permission is (model/rights.rs does), or ask a person.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

use super::calls::Calls;
use crate::backend::calls::Backends;
use crate::backend::{peer, quota};
use crate::model::{AppName, CallRequest, Permission};
use crate::settings::Settings;

/// The permission of one call.
#[derive(Debug)]
pub(super) struct PermissionCheck {
    app: AppName,
    settings: watch::Receiver<Arc<Settings>>,
    backends: Arc<Backends>,
    /// A person has approved the call.
    is_approved: AtomicBool,
}

impl PermissionCheck {
    pub(super) fn approve(&self) {
        self.is_approved.store(true, Ordering::Relaxed);
    }
}

impl peer::PermissionCheck for PermissionCheck {
    fn now(&self, call: &CallRequest) -> Permission {
        let settings = Arc::clone(&self.settings.borrow());
        let rights = settings.app(&self.app).map(|known| known.app.rights.as_ref());
        self.backends.permission(rights, call, self.is_approved.load(Ordering::Relaxed))
    }

    fn count(&self, call: &CallRequest) -> Result<(), String> {
        let settings = Arc::clone(&self.settings.borrow());
        let handles = self.backends.handles();
        let app = settings.app(&self.app).and_then(|known| known.quota.as_deref());
        let backend = handles.get(&call.route.backend).and_then(|known| known.quota.as_deref());
        let meters: Vec<_> = app.into_iter().chain(backend).collect();
        quota::count(&meters, call)
    }
}

impl Calls {
    /// The permission check of a new call of `app`.
    pub(super) fn permission_check(&self, app: &AppName) -> Arc<PermissionCheck> {
        Arc::new(PermissionCheck {
            app: app.clone(),
            settings: self.settings.clone(),
            backends: Arc::clone(&self.backends),
            is_approved: AtomicBool::new(false),
        })
    }
}
