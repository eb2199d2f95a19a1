//! The runs that the bridge drives: their streams, their event logs, and the answers of their
//! calls.
//!
//! `driver` reads the stream of a run and has `answer` answer its calls. `log` keeps its recent
//! events, and `app_stream` serves them to apps. Which runs there are, and whose, the store of all
//! runs knows (`run_store`); a driver asks it by [`Ownership`].
//!
//! docs/design/runs.md says what it is not, and how it came about.
//!
//! Must not: inject, route HTTP, know what kind of backend answers, or know the other runs.

mod access;
pub mod answer;
pub mod app_stream;
mod credential;
pub mod driven;
pub mod driver;
pub mod log;
mod mask;

use std::fmt;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

pub use self::access::{Access, StreamFailure};
pub use self::driven::DrivenRun;
use self::log::Room;
use crate::calls::{Calls, changes};
use crate::journal::{Journal, room};
use crate::limits::shares::Shares;
use crate::metrics;
use crate::model::{AppName, Call, RunId, RunKey, SessionId, Table, Workspace};
use crate::settings::Settings;
use crate::traces::{Context, Traces};
use crate::upstream::{Upstream, UpstreamCredential};

/// A run that is to be driven.
#[derive(Debug)]
pub struct NewRun {
    pub key: RunKey,
    pub app: AppName,
    pub session: Option<SessionId>,
    pub credential: UpstreamCredential,
    pub table: Arc<Table>,
    /// The first words of its prompt, for people. No record has them, so that a restart forgets
    /// them.
    pub prompt: Box<str>,
    /// Other clients have answered its calls so far, so that a call in its log may have been
    /// answered.
    pub has_past: bool,
    /// The bridge may have driven the run before and has lost its record. A call in the run's log
    /// without an answer may therefore have been made.
    pub past_is_lost: bool,
    /// The trace context of the request that created or attached the run.
    pub trace: Context,
}

/// What all drivers share.
#[derive(Debug)]
pub struct RunContext {
    pub calls: Arc<Calls>,
    pub upstream: Arc<Upstream>,
    /// The metrics of runs and of apps' streams.
    pub metrics: metrics::Runs,
    /// The exporter of spans.
    pub traces: Traces,
    /// For the events of all runs.
    pub log_room: Room,
    /// The answers of each app that MANTYX refused as it did not know their runs.
    unwanted: Shares,
}

/// Which driver makes a call, and whose an agent run is. The same call can stand in two streams,
/// that of its agent run and that of an eval, and be read at two replicas. A driver that did not
/// ask would make it a second time.
pub trait Ownership: fmt::Debug + Send + Sync {
    /// Claims `call` for the driver of `run`. `false`: another driver makes the call, or it belongs
    /// to another run, so this driver must not make it.
    fn claim(&self, run: &DrivenRun, call: &Call) -> bool;

    /// By what a driver of `run` claims a call over all replicas: the agent run that asks for it.
    /// `None` if no other driver can read the call. The claims in memory are one replica's; a
    /// driver at another one would not see them, and the call would be made at both.
    fn claim_over_replicas(
        &self,
        run: &RunKey,
        agent_run: Option<&RunId>,
    ) -> Option<(Workspace, RunId)>;

    /// Whether another driver may read the calls of the run. Then claims are kept as long as the
    /// run.
    fn may_be_driven_by_others(&self, run: &RunKey) -> bool;

    /// Makes the app of `eval` the owner of an agent run that the eval's stream has named.
    fn adopt(&self, eval: &DrivenRun, agent_run: &RunId);

    /// Has this replica drive on a run whose replica has died, if an app reads it here. Does not
    /// wait.
    fn claim_guest(self: Arc<Self>, guest: &DrivenRun);
}

impl RunContext {
    /// Without runs yet. `calls` makes the calls of the runs that follow.
    pub fn new(upstream: Arc<Upstream>, calls: Arc<Calls>, traces: Traces) -> Self {
        let unwanted = Shares::new(Settings::app_count(&calls.settings), room::UNWANTED_ANSWERS, 0);
        Self {
            upstream,
            metrics: metrics::Runs::default(),
            traces,
            log_room: Room::default(),
            unwanted,
            calls,
        }
    }

    /// The journal of runs and calls.
    pub fn journal(&self) -> &Journal {
        &self.calls.journal
    }

    /// Cancelled when the daemon shuts down.
    pub fn draining(&self) -> &CancellationToken {
        &self.calls.drain
    }

    /// Announces that the state of `run` has changed.
    pub fn tell(&self, run: &DrivenRun) {
        self.calls.changes.tell(|| changes::Change::Run(run.app.clone(), run.key.clone()));
    }
}

#[cfg(test)]
pub mod tests;
