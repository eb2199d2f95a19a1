//! How a stream ends, and how the driver of its run does.
//!
//! Must not: read a stream.

use serde::Deserialize;
use tracing::info;

use super::Driver;
use crate::model::ending::RunEnding;
use crate::model::ids::RunKind;
use crate::runs::DrivenRun;
use crate::upstream::OpenError;

/// Why a stream ended.
pub(super) enum StreamEnd {
    /// The run has ended.
    Terminal(RunEnding),
    Drain,
    Broken(String),
    Refused(OpenError),
}

/// What the driver expects of a stream that it cannot read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outlook {
    /// A later attempt may open it.
    Returns,
    /// MANTYX does not serve it any longer.
    Gone,
}

/// Why a driver stopped.
#[derive(Debug, PartialEq, Eq)]
pub enum DriverEnd {
    Ended(RunEnding),
    ShuttingDown,
    GivenUp,
    /// The run belongs to another app, which has its own driver for it.
    HandedOver,
}

impl DriverEnd {
    pub(super) fn ending(&self) -> RunEnding {
        match self {
            Self::Ended(ending) => *ending,
            Self::ShuttingDown => RunEnding::Left,
            Self::GivenUp | Self::HandedOver => RunEnding::GivenUp,
        }
    }

    pub(super) fn log(&self, run: &DrivenRun) {
        let (id, app) = (&run.key.run, &run.app);
        match self {
            Self::Ended(_) => {
                info!(name: "run_driver_ended", run = %id, %app, "the run has ended");
            }
            Self::ShuttingDown => info!(
                name: "run_driver_ended", run = %id, %app,
                "the bridge shuts down; the next process continues the run"
            ),
            Self::GivenUp => {
                info!(name: "run_driver_gave_up", run = %id, %app, "the run driver gave up");
            }
            Self::HandedOver => info!(
                name: "run_driver_ended", run = %id, %app,
                "the run has another driver, for another app or at another replica; this one stopped"
            ),
        }
    }
}

impl Driver {
    /// How the run has ended, if MANTYX's snapshot says so although the stream does not. MANTYX
    /// need not replay the events of an eval: if the stream broke before the last event, that event
    /// never comes. And the last event of any run may be too large to read.
    pub(super) async fn ending_by_snapshot(&self) -> Option<RunEnding> {
        #[derive(Deserialize)]
        struct Snapshot {
            status: String,
        }
        let key = &self.run.key;
        let credential = self.context.credential_of(&self.run);
        let may_have_ended = self.riddle || !self.news && key.kind == RunKind::Eval;
        if !may_have_ended {
            return None;
        }
        let path = key.path();
        let snapshot = async {
            let upstream = &self.context.upstream;
            let answer = upstream.ask(&path, &credential).await.ok()?;
            let text = upstream.text(answer).await.ok()?;
            serde_json::from_slice::<Snapshot>(&text).ok()
        };
        let snapshot = tokio::select! {
            snapshot = snapshot => snapshot,
            () = self.context.draining().cancelled() => None,
        };
        match snapshot?.status.as_str() {
            "succeeded" => Some(RunEnding::Result),
            "failed" => Some(RunEnding::Error),
            "cancelled" => Some(RunEnding::Cancelled),
            _ => None,
        }
    }
}
