//! Keeps account of one call for those who look: the history, and the metrics.
//!
//! Must not: decide anything, or wait.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    Runs,
    history::{Begun, Outcome, Running},
};
use crate::{metrics, model::ending::Ending};

/// The account of a call that runs. Dropped without [`Account::ends`], the call was cancelled or,
/// where the bridge goes down, left to the next process.
#[derive(Debug)]
pub(super) struct Account {
    running: Running,
    /// `None` for what is no call to a backend: fetching a result.
    metrics: Option<Arc<metrics::Calls>>,
    begun: Instant,
    leaving: CancellationToken,
    has_ended: AtomicBool,
}

impl Runs {
    /// A call begins.
    pub(super) fn account(&self, begun: Begun) -> Account {
        let metrics = self.backends.metrics(&begun.backend).cloned();
        Account {
            running: self.history.begin(begun),
            metrics,
            begun: Instant::now(),
            leaving: self.leave.clone(),
            has_ended: AtomicBool::new(false),
        }
    }
}

impl Account {
    /// The call has had a first answer, and goes on.
    pub(super) fn goes_on(&self) {
        self.running.pending();
    }

    /// The call has ended.
    pub(super) fn ends(&self, ending: Ending) {
        if self.has_ended.swap(true, Ordering::Relaxed) {
            return;
        }
        self.running.end(Outcome::of(ending));
        if let Some(metrics) = &self.metrics {
            metrics.ended.of(ending).inc();
            // A call that is left has not come to its end.
            if ending != Ending::Left {
                metrics.duration.observe(self.begun.elapsed());
            }
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let left = self.leaving.is_cancelled();
        self.ends(if left { Ending::Left } else { Ending::Cancelled });
    }
}
