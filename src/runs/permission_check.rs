//! Whether the calls of one app may be made, by the configuration and the quotas at the moment of the
//! dispatch.
//!
//! Must not: decide what a permission is (model/rights.rs does), or ask a person.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::value::RawValue;
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
    approval: Mutex<Approval>,
}

/// What a person has approved.
#[derive(Debug, Clone, Default)]
enum Approval {
    #[default]
    Nothing,
    /// The call, whatever its tool says of itself.
    Call,
    /// The call, as long as its tool has the definition that the person was shown: another one may do
    /// something else with the same arguments.
    CallOf(Option<Arc<RawValue>>),
}

impl PermissionCheck {
    /// Notes that the call was approved, whatever its tool says of itself.
    pub(super) fn approve(&self) {
        *self.approval.lock() = Approval::Call;
    }

    /// Notes that the call was approved when its tool was `shown` like this.
    pub(super) fn approve_as(&self, shown: Option<Arc<RawValue>>) {
        *self.approval.lock() = Approval::CallOf(shown);
    }

    /// The present definition of the tool of `call`, as its server gives it.
    pub(super) fn definition(&self, call: &CallRequest) -> Option<Arc<RawValue>> {
        self.backends.registry.definition(&call.route).map(|tool| tool.raw)
    }

    /// Why a person is asked about the call once more, if one has approved it.
    pub(super) fn why_again(&self) -> Option<&'static str> {
        match *self.approval.lock() {
            Approval::CallOf(_) => Some(
                "A person has approved this call, and the definition of its tool has changed since.",
            ),
            Approval::Nothing | Approval::Call => None,
        }
    }

    fn is_approved(&self, call: &CallRequest) -> bool {
        let approval = self.approval.lock().clone();
        match approval {
            Approval::Nothing => false,
            Approval::Call => true,
            Approval::CallOf(shown) => {
                let now = self.definition(call);
                now.as_deref().map(RawValue::get) == shown.as_deref().map(RawValue::get)
            }
        }
    }
}

impl peer::PermissionCheck for PermissionCheck {
    fn now(&self, call: &CallRequest) -> Permission {
        let settings = Arc::clone(&self.settings.borrow());
        let rights = settings.app(&self.app).map(|known| known.app.rights.as_ref());
        self.backends.permission(rights, call, self.is_approved(call))
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
            approval: Mutex::default(),
        })
    }
}
