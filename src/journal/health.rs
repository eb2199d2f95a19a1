//! What the journal and its thread know of each other: how much waits to be written, and how
//! writing goes.
//!
//! Must not: write anything.

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use super::record::LossRecord;
use crate::metrics;

/// If about this many bytes wait for the thread, drivers stop reading their runs.
pub(super) const QUEUE_BYTES: usize = 32 << 20;
/// The error of a database that has not been asked yet.
pub(super) const NOT_ASKED: &str = "PostgreSQL has not answered yet";

/// What the journal shares with its thread.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) queue: Queue,
    pub(super) health: Mutex<Health>,
    pub(super) metrics: metrics::Journal,
    /// Cancelled when the journal closes. What is given from then on may not be written. The thread
    /// gives up on a database that fails, so that the daemon can stop.
    pub(super) closing: CancellationToken,
}

/// The state of the journal.
#[derive(Debug, Clone, Default)]
pub struct Health {
    /// For operators: why the journal cannot be written at the moment.
    pub error: Option<String>,
    /// The disk works, but the file has reached its largest size.
    pub is_full: bool,
    /// The size of the file.
    pub bytes: u64,
    /// What the journal lost last.
    pub lost: Option<LossRecord>,
    /// What another program did to the file, which was then written again from memory.
    pub rewritten: Option<String>,
}

/// Counts the bytes that wait for the thread.
#[derive(Debug, Default)]
pub(super) struct Queue(pub(super) watch::Sender<usize>);

impl Queue {
    pub(super) fn add(&self, bytes: usize) {
        self.0.send_if_modified(|queued| {
            *queued += bytes;
            false
        });
    }

    pub(super) fn remove(&self, bytes: usize) {
        self.0.send_if_modified(|queued| {
            let was_full = *queued >= QUEUE_BYTES;
            *queued -= bytes;
            was_full && *queued < QUEUE_BYTES
        });
    }
}

impl Shared {
    /// Notes that the database fails, and logs the first failure after a success. A failure of the
    /// first attempt counts as that, though there was no success.
    pub(super) fn note_failure(&self, why: &str) {
        let before = self.health.lock().error.replace(why.to_owned());
        if before.is_none_or(|before| before == NOT_ASKED) {
            error!(
                name: "journal_failed",
                why, "the journal cannot be written; no calls are made until it can"
            );
        }
    }

    /// Notes that the database works and is of no use to this bridge. Unlike a failure, that does
    /// not pass by itself, so it is logged whatever has failed before.
    pub(super) fn note_refusal(&self, why: &str, cure: &str) {
        let last_error = self.health.lock().error.replace(why.to_owned());
        if last_error.as_deref() != Some(why) {
            error!(
                why,
                cure, "the journal in PostgreSQL is not for this bridge; no calls are made"
            );
        }
    }

    /// Notes that the database works.
    pub(super) fn note_success(&self) {
        if self.health.lock().error.take().is_some() {
            info!("the journal can be written");
        }
    }
}
