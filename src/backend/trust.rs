//! Logs the differences between a catalog and what the operator accepted.
//!
//! Must not: decide anything (`model::pin` does).

use std::sync::Arc;

use tracing::{info, warn};

use crate::model::pin::{CARD, Change, Finding, Mode};
use crate::model::{BackendName, Review, visible};

/// The most findings that are logged one by one.
const MAX_TOLD: usize = 20;

/// The findings of a comparison that the one before did not have.
#[derive(Debug)]
#[must_use]
pub(super) struct News {
    pub(super) backend: BackendName,
    pub(super) before: Arc<Review>,
    pub(super) now: Arc<Review>,
}

impl News {
    /// How many tools have changed since the last comparison.
    pub(super) fn changes(&self) -> u64 {
        u64::try_from(self.open().count()).unwrap_or(u64::MAX)
    }

    fn open(&self) -> impl Iterator<Item = &Finding> {
        self.now.news(&self.before).filter(|found| found.change != Change::Gone)
    }

    /// Logs the findings.
    pub(super) fn tell(&self) {
        let Self { backend, before, now } = self;
        if now.damaged.is_some() && now.damaged != before.damaged {
            warn!(%backend, "the pins are damaged; `mantyx-bridge trust` shows the backend's tools");
        }
        let becomes = match now.mode {
            Mode::Enforce => "it is withdrawn until it is accepted",
            Mode::Off | Mode::Warn => "it is offered all the same",
        };
        for Finding { tool, change, hidden, .. } in self.open().take(MAX_TOLD) {
            let what = if tool == CARD { "the card of the agent" } else { "a tool" };
            let odd = if hidden.is_empty() { "" } else { ", with invisible characters" };
            let change = change.as_str();
            let tool = visible::shown(tool);
            warn!(%backend, tool, change, "{what} is not what was accepted{odd}; {becomes}");
        }
        if let Some(more) = self.open().count().checked_sub(MAX_TOLD).filter(|more| *more > 0) {
            warn!(%backend, more, "further tools are not what was accepted; {becomes}");
        }
        let gone = self.now.news(before).filter(|found| found.change == Change::Gone);
        for Finding { tool, .. } in gone.take(MAX_TOLD) {
            info!(%backend, tool = visible::shown(tool), "a tool that was accepted is gone");
        }
    }
}
