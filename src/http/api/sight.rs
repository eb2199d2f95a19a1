//! Which of an app's runs, calls and questions one caller may see.
//!
//! Where the app brings its own credential, several people may share the app's token for the
//! bridge, and the credential tells them apart. These routes do not ask MANTYX: they leave out
//! everything that is not known to be the caller's. An app that shares the bridge with others reads
//! no name of theirs.
//!
//! Must not: decide which app a caller is (auth does).

use http::HeaderMap;

use super::Api;
use crate::http::Caller;
use crate::http::proxy::forward;
use crate::model::{AppName, RunId, RunKey};
use crate::run_store::RunStore;
use crate::runs::DrivenRun;
use crate::upstream::UpstreamCredential;

/// Whether the caller may know of the app or runtime `name`: the operator, that app, and an app
/// that shares the bridge with runtimes alone.
pub(super) fn sees_app(api: &Api, caller: &Caller, name: &AppName) -> bool {
    caller.sees().is_none_or(|own| name == own) || shares_with_none(api, caller)
}

/// Whether the caller is the operator, or the one app of the bridge beside runtimes.
pub(super) fn shares_with_none(api: &Api, caller: &Caller) -> bool {
    let Some(own) = caller.sees() else { return true };
    let settings = api.runs.calls.settings();
    let runtimes = api.facts.runtimes.all();
    let mut others = settings.apps.iter().map(|entry| &entry.app.name).filter(|app| *app != own);
    others.all(|app| runtimes.iter().any(|runtime| runtime.name == *app))
}

/// What one caller may see among the data of its app.
#[derive(Debug)]
pub(super) struct Sight {
    /// The caller's own credential. `None` where it does not count: for the operator, and for an
    /// app that uses the bridge's credential.
    brought: Option<UpstreamCredential>,
}

impl Sight {
    pub(super) fn new(runs: &RunStore, caller: &Caller, headers: &HeaderMap) -> Self {
        if caller.is_operator {
            return Self { brought: None };
        }
        let credential = forward::credential(runs, caller, headers);
        Self { brought: if credential.is_callers() { Some(credential) } else { None } }
    }

    pub(super) fn has_run(&self, runs: &RunStore, run: &DrivenRun) -> bool {
        self.brought.as_ref().is_none_or(|shown| runs.context.may_read(run, shown))
    }

    /// [`Self::has_run`] by the run's key; a run that the bridge does not know is not shown.
    pub(super) fn has_run_of(&self, runs: &RunStore, key: &RunKey) -> bool {
        self.brought
            .as_ref()
            .is_none_or(|shown| runs.get(key).is_some_and(|run| runs.context.may_read(&run, shown)))
    }

    /// Whether the caller may see a call of the agent run `run` of `app`. The bridge does not know
    /// which credential a call by hand (`None`) came with.
    pub(super) fn has_call(&self, runs: &RunStore, app: &AppName, run: Option<&RunId>) -> bool {
        self.brought
            .as_ref()
            .is_none_or(|shown| run.is_some_and(|run| runs.may_read_call((app, run), shown)))
    }
}
