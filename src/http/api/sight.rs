//! What of an app's runs, calls and questions one caller is shown.
//!
//! Where the app brings its own credential, that says who the caller is, as several people may share
//! the app's token for the bridge. MANTYX is not asked here: what is not known to be the caller's is
//! left out.
//!
//! Must not: decide which app a caller is (auth does).

use http::HeaderMap;

use crate::{
    http::{auth::Caller, proxy::forward},
    model::ids::{AppName, RunId},
    runs::{DrivenRun, Runs},
    upstream::Authority,
};

/// The sight of one caller over what is its app's.
#[derive(Debug)]
pub(super) struct Sight {
    /// The credential that the caller has brought; `None` where it does not count: for the operator,
    /// and for an app whose credential is the bridge's.
    brought: Option<Authority>,
}

impl Sight {
    pub(super) fn of(runs: &Runs, caller: &Caller, headers: &HeaderMap) -> Self {
        let shown = || forward::authority(runs, caller, headers);
        let brought = (!caller.is_operator).then(shown).filter(Authority::is_callers);
        Self { brought }
    }

    pub(super) fn has_run(&self, runs: &Runs, run: &DrivenRun) -> bool {
        self.brought.as_ref().is_none_or(|shown| runs.may_be_told(run, shown))
    }

    /// Whether the caller sees a call of the agent run `run` of `app`. By whose credential a call by
    /// hand (`None`) came is not known.
    pub(super) fn has_call(&self, runs: &Runs, app: &AppName, run: Option<&RunId>) -> bool {
        self.brought
            .as_ref()
            .is_none_or(|shown| run.is_some_and(|run| runs.call_may_be_told((app, run), shown)))
    }
}
