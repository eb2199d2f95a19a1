//! Whose a run or a session is, as far as the bridge knows.
//!
//! Apps may share one credential, with which MANTYX would show each what is another's.
//!
//! Must not: ask MANTYX.

use std::sync::Arc;

use super::{Inner, RunKey, Runs};
use crate::model::ids::{AppName, RunKind, SessionId};

/// What belongs to an app.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thing {
    Run,
    Session,
}

impl Runs {
    /// What `id` is in `workspace`, where it is known to be another app's than `app`.
    pub fn others(&self, workspace: &str, id: &str, app: &AppName) -> Option<Thing> {
        let workspace: Arc<str> = workspace.into();
        let key = |kind| RunKey { workspace: Arc::clone(&workspace), kind, run: id.into() };
        let inner = self.lock();
        for kind in [RunKind::Agent, RunKind::Eval] {
            if inner.owner_of(&key(kind)).is_some_and(|owner| owner != app.as_str()) {
                return Some(Thing::Run);
            }
        }
        let session = inner.sessions.get(&(Arc::clone(&workspace), SessionId::from(id)));
        if session.is_some_and(|session| session.app != *app) {
            return Some(Thing::Session);
        }
        drop(inner);
        // An agent run of an eval is its eval's.
        let eval = self.eval_of(&key(RunKind::Agent));
        eval.is_some_and(|eval| eval.app != *app).then_some(Thing::Run)
    }
}

impl Inner {
    fn owner_of(&self, key: &RunKey) -> Option<&str> {
        let asleep = || self.asleep.get(key).map(|run| run.record.app.as_str());
        self.runs.get(key).map(|run| run.app.as_str()).or_else(asleep)
    }
}
