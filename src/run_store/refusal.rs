//! Runs that were refused to their apps, as the journal could not keep their beginnings.
//!
//! MANTYX has accepted such a run, and its app may submit it again. So the bridge answers the run's
//! calls as cancelled, in this process and after a restart, and asks MANTYX to cancel the run until
//! that is done.
//!
//! Must not: decide which runs are refused (the proxy does, as it answers their apps).

use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use super::{DrivenRun, RunStore};
use crate::backoff::Backoff;
use crate::error_chain::error_chain;

/// How long MANTYX may take to cancel a run.
const CANCEL_WITHIN: Duration = Duration::from_secs(15);
/// For how long one process asks MANTYX to cancel a run.
const ASK_FOR: Duration = Duration::from_secs(60 * 60);

impl RunStore {
    /// Cancels the calls of a run that its app is told is not driven, and the run at MANTYX.
    /// Returns after the first attempt at the latter.
    ///
    /// The journal gets the refusal as soon as it can be written. Without it, the next process
    /// would drive the run and make its calls, and also those of the run that the app has submitted
    /// in its place.
    pub async fn refuse(self: &Arc<Self>, run: &Arc<DrivenRun>) {
        warn!(
            name: "run_refused",
            run = %run.key.run, app = %run.app,
            "a run that cannot be kept is refused to its app; its calls are cancelled"
        );
        run.refuse();
        self.journal().write(run.changes());
        // Another replica may take the run over before that is written.
        self.cancel_everywhere(run);
        if !self.cancels_at_mantyx(run).await {
            self.cancel_in_the_end(run);
        }
    }

    /// Asks MANTYX to cancel a refused run until MANTYX has, or the run has ended.
    pub(super) fn cancel_in_the_end(self: &Arc<Self>, run: &Arc<DrivenRun>) {
        let (runs, run) = (Arc::clone(self), Arc::clone(run));
        self.calls.tracker.spawn(async move {
            let until = Instant::now() + ASK_FOR;
            let mut backoff = Backoff::for_connections();
            loop {
                tokio::select! {
                    () = sleep(backoff.next_wait()) => {}
                    // The next process finds the refusal in the journal.
                    () = runs.calls.drain.cancelled() => return,
                }
                // A run that another replica has taken over counts as ended here, and is not.
                if run.lost.is_cancelled() {
                    runs.cancel_everywhere(&run);
                } else if run.has_ended() {
                    return;
                }
                if runs.cancels_at_mantyx(&run).await {
                    return;
                }
                if Instant::now() > until {
                    warn!(
                        run = %run.key.run, app = %run.app,
                        "MANTYX does not cancel a refused run; its calls are answered as cancelled"
                    );
                    return;
                }
            }
        });
    }

    /// Asks MANTYX once to cancel the run, and returns whether the run has ended. A run that MANTYX
    /// does not know may be one that it does not show yet, so it counts as not cancelled.
    async fn cancels_at_mantyx(&self, run: &DrivenRun) -> bool {
        let path = format!("{}/cancel", run.key.path());
        let credential = self.context.credential_of(run);
        let response = self.upstream.send((Method::POST, &path), &credential, |request| {
            Ok(request.body(Vec::new()).timeout(CANCEL_WITHIN))
        });
        let (cancelled, outcome) = match response.await.map(|response| response.status()) {
            Ok(status @ (StatusCode::CONFLICT | StatusCode::GONE)) => (true, status.to_string()),
            Ok(status) => (status.is_success(), status.to_string()),
            Err(error) => (false, error_chain(&error)),
        };
        info!(
            run = %run.key.run, app = %run.app, outcome,
            "asked MANTYX to cancel a run that was refused to its app"
        );
        cancelled
    }
}
