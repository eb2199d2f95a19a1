//! Which callers may see the calls of an agent run.
//!
//! Must not: ask MANTYX.

use super::{Inner, RunStore};
use crate::model::{AppName, RunId, RunKey, RunKind};
use crate::runs::DrivenRun;
use crate::upstream::UpstreamCredential;

impl RunStore {
    /// Whether a caller with this credential may see a call of this agent run of `app`, which may
    /// be one of an eval. `false` for a run that is no longer known: the bridge then cannot tell
    /// one user of the app from another.
    pub fn may_read_call(&self, (app, id): (&AppName, &RunId), shown: &UpstreamCredential) -> bool {
        let inner = self.inner.lock();
        let own = inner.runs.values().filter(|run| run.app == *app);
        let mut drivers = own.filter(|run| inner.answers_calls_of(run, id)).peekable();
        drivers.peek().is_some() && drivers.all(|run| self.context.may_read(run, shown))
    }
}

impl Inner {
    /// Whether the driver of `run` answers calls of the agent run `id`.
    fn answers_calls_of(&self, run: &DrivenRun, id: &RunId) -> bool {
        let RunKey { workspace, kind, run: own } = &run.key;
        match kind {
            RunKind::Agent => own == id,
            RunKind::Eval => {
                let key = RunKey::agent(workspace, id.clone());
                self.eval_key_of(&key).as_ref() == Some(&run.key)
            }
        }
    }
}
