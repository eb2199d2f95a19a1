//! Whether the calls of one app may be made, by the configuration and the quotas at the moment of
//! the dispatch.
//!
//! Must not: decide what a permission is (model/rights.rs does), or ask a person.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::sync::watch;

use super::Calls;
use crate::backend::calls::Backends;
use crate::backend::peer;
use crate::config::Backend;
use crate::limits::quota;
use crate::model::rights::permission;
use crate::model::{AppName, CallRequest, Permission, Rights};
use crate::settings::Settings;
use crate::tasks::{LARGE, in_background};

/// The permission of one call.
#[derive(Debug)]
pub(super) struct PermissionCheck {
    app: AppName,
    settings: watch::Receiver<Arc<Settings>>,
    backends: Arc<Backends>,
    approval: Mutex<Approval>,
    /// What the rules say of the call. They look at all of its arguments, so each set of rules is
    /// asked once.
    decision: Mutex<Option<Decision>>,
}

/// What decides about a call, by the configuration at one moment.
#[derive(Debug)]
struct Rules {
    rights: Option<Arc<Rights>>,
    backend: Option<Arc<Backend>>,
}

#[derive(Debug)]
struct Decision {
    /// Kept alive with the decision: `are` compares addresses, and the memory of rules that were
    /// dropped could be given to other rules.
    rules: Rules,
    /// What the rules say of the call before a person has approved it.
    permission: Permission,
}

impl Rules {
    fn decide(self, call: &CallRequest) -> Decision {
        let backend = self.backend.as_ref().map(|backend| backend.rules());
        let CallRequest { route, arguments, .. } = call;
        let permission =
            permission(self.rights.as_deref(), backend, route, arguments.get(), false).0;
        Decision { rules: self, permission }
    }

    /// Whether these are the same rules, and not only equal ones.
    fn are(&self, other: &Self) -> bool {
        is_same(self.rights.as_ref(), other.rights.as_ref())
            && is_same(self.backend.as_ref(), other.backend.as_ref())
    }
}

fn is_same<T>(one: Option<&Arc<T>>, other: Option<&Arc<T>>) -> bool {
    one.map(Arc::as_ptr) == other.map(Arc::as_ptr)
}

/// What a person has approved.
#[derive(Debug, Clone, Default)]
enum Approval {
    #[default]
    Nothing,
    /// The call, whatever its tool says of itself.
    Call,
    /// The call, as long as its tool has the definition that the person was shown: another one may
    /// do something else with the same arguments.
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

    fn rules(&self, call: &CallRequest) -> Rules {
        let settings = Arc::clone(&self.settings.borrow());
        let rights = settings.app(&self.app).map(|known| Arc::clone(&known.app.rights));
        Rules { rights, backend: self.backends.rules(&call.route.backend) }
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

    /// Whether a person has approved the call as it would be made now. Without the comparison of
    /// definitions, a server could show a harmless tool while the person decides, and another one
    /// under the same name afterwards.
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
    /// Asked right before each dispatch, and not once when the call begins: a call can wait for
    /// minutes in a queue or for a person, and a reload may have taken its permission meanwhile.
    /// The decision of before counts only if it was made by the very rules of now.
    fn now(&self, call: &CallRequest) -> Permission {
        let rules = self.rules(call);
        let permission = {
            let mut last = self.decision.lock();
            let decision = match last.take() {
                Some(decision) if decision.rules.are(&rules) => decision,
                _ => rules.decide(call),
            };
            last.insert(decision).permission.clone()
        };
        match permission {
            Permission::Ask if self.is_approved(call) => Permission::Given,
            permission => permission,
        }
    }

    /// Decides about large arguments on another thread, before the dispatch. `now` would hold up
    /// all other calls for as long as the rules read them.
    fn prepare<'a>(&'a self, call: &'a Arc<CallRequest>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let rules = self.rules(call);
            let decided =
                self.decision.lock().as_ref().is_some_and(|decision| decision.rules.are(&rules));
            if decided || call.arguments.get().len() < LARGE {
                return;
            }
            let request = Arc::clone(call);
            // If it has panicked, so will `now`, and the call is answered with an error.
            if let Ok(decision) = in_background(move || rules.decide(&request)).await {
                *self.decision.lock() = Some(decision);
            }
        })
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
            decision: Mutex::default(),
        })
    }
}

#[cfg(test)]
mod tests {
    //! When the rules are asked again.

    use std::time::Duration;

    use super::peer::PermissionCheck as _;
    use super::*;
    use crate::backend::fake;
    use crate::config::{App, Calls};
    use crate::model::rights::CallRefusal;

    fn settings(app: &AppName, rights: Rights) -> Arc<Settings> {
        let limits = Calls {
            timeout: Duration::from_secs(1),
            pending_timeout: Duration::from_secs(1),
            max_concurrent: 1,
        };
        let app = App { name: app.clone(), rights: Arc::new(rights), ..App::default() };
        Arc::new(Settings::new(limits, vec![app], None))
    }

    #[tokio::test]
    async fn decision_on_large_arguments_is_prepared_and_lasts_until_a_reload() {
        let large = format!("{{\"text\":\"{}\"}}", "x".repeat(LARGE));
        for (arguments, is_prepared) in [("{}", false), (&large, true)] {
            let call = Arc::new(fake::request("ls", arguments));
            let (reload, read) = watch::channel(settings(&call.app, Rights::default()));
            let check = PermissionCheck {
                app: call.app.clone(),
                settings: read,
                backends: Arc::new(Backends::new(Arc::default())),
                approval: Mutex::default(),
                decision: Mutex::default(),
            };
            check.prepare(&call).await;
            assert_eq!(check.decision.lock().is_some(), is_prepared);
            assert_eq!(check.now(&call), Permission::Refused(CallRefusal::Removed));
            // It is not asked for again: what stands there is the answer.
            check.decision.lock().as_mut().unwrap().permission = Permission::Ask;
            check.prepare(&call).await;
            assert_eq!(check.now(&call), Permission::Ask);
            check.approve();
            assert_eq!(check.now(&call), Permission::Given);
            let none = Rights { backends: Some(<_>::default()), ..Rights::default() };
            reload.send_replace(settings(&call.app, none));
            assert_eq!(check.now(&call), Permission::Refused(CallRefusal::Backend));
        }
    }
}
