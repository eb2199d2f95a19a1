//! Which callers may see the calls of an agent run.
//!
//! Must not: ask MANTYX.

use std::sync::Arc;

use super::RunStore;
use crate::model::{AppName, RunId, RunKey, RunKind};
use crate::runs::DrivenRun;
use crate::upstream::UpstreamCredential;

impl RunStore {
    /// Whether a caller with this credential may see a call of this agent run of `app`, which may be one
    /// of an eval. `false` for a run that is no longer known.
    pub fn call_may_be_told(
        &self,
        (app, id): (&AppName, &RunId),
        shown: &UpstreamCredential,
    ) -> bool {
        let inner = self.inner.lock();
        let is_of = |run: &&Arc<DrivenRun>| {
            let RunKey { workspace, kind, run: own } = &run.key;
            let is_it = match kind {
                RunKind::Agent => own == id,
                RunKind::Eval => {
                    let key = RunKey::agent(workspace, id.clone());
                    inner.eval_key_of(&key).as_ref() == Some(&run.key)
                }
            };
            is_it && run.app == *app
        };
        let mut of = inner.runs.values().filter(is_of).peekable();
        of.peek().is_some() && of.all(|run| self.context.may_be_told(run, shown))
    }
}
