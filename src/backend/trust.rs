//! Logs the differences between a catalog and what the operator accepted.
//!
//! Must not: decide anything (`model::pin` does).

use std::sync::Arc;

use tracing::{info, warn};

use crate::model::pin::{Change, Finding, Mode, Subject};
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
            Mode::Enforce => "withdrawn until accepted",
            Mode::Off | Mode::Warn => "offered nevertheless",
        };
        for Finding { subject, tool, change, hidden, .. } in self.open().take(MAX_TOLD) {
            let what = match subject {
                Subject::Tool => "a tool is",
                Subject::Card => "the card of the agent is",
                Subject::Instructions => "the server's instructions are",
            };
            let odd = if hidden.is_empty() { "" } else { ", with invisible characters" };
            let change = change.as_str();
            let tool = visible::shown(tool);
            warn!(%backend, tool, change, "{what} not what was accepted{odd}; {becomes}");
        }
        if let Some(more) = self.open().count().checked_sub(MAX_TOLD).filter(|more| *more > 0) {
            warn!(%backend, more, "further tools are not what was accepted; {becomes}");
        }
        let gone = self.now.news(before).filter(|found| found.change == Change::Gone);
        for Finding { subject, tool, .. } in gone.take(MAX_TOLD) {
            let what = match subject {
                Subject::Tool => "a tool",
                Subject::Card => "the card",
                Subject::Instructions => "a text of instructions",
            };
            info!(%backend, tool = visible::shown(tool), "{what} that was accepted is gone");
        }
    }
}
