//! The beginning of a request whose calls are made once: its record is written before the first of
//! them is sent, and no earlier. A person may take hours to approve a call, and a crash in that
//! time must not leave a record that says of it that it may have been made.
//!
//! Must not: know what a request asks for, or send a call.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::OnceCell;

use crate::backend::NotRecorded;
use crate::journal::Journal;
use crate::journal::record::{RequestKey, RequestRecord};

/// Writes the record of one request, once.
#[derive(Debug)]
pub struct RequestStart {
    journal: Arc<Journal>,
    key: RequestKey,
    record: RequestRecord,
    /// Whether a write has begun.
    is_tried: AtomicBool,
    written: OnceCell<Result<(), NotBegun>>,
}

/// Why a request has no record of its own, so that none of its calls may be sent.
#[derive(Debug, Clone)]
pub(super) struct NotBegun {
    /// The record of another replica that got the request before. `None`: the record could not be
    /// written, or the database does not say.
    pub first: Option<RequestRecord>,
}

impl RequestStart {
    pub(super) fn new(journal: &Arc<Journal>, key: &RequestKey, record: &RequestRecord) -> Self {
        Self {
            journal: Arc::clone(journal),
            key: key.clone(),
            record: record.clone(),
            is_tried: AtomicBool::new(false),
            written: OnceCell::new(),
        }
    }

    /// Returns when the record is on disk. All calls of the request wait for one write; if one of
    /// them is dropped meanwhile, the next one writes it again, with the same nonce.
    ///
    /// # Errors
    ///
    /// It could not be written, or another replica has the request. No call may be sent.
    pub async fn begin(&self) -> Result<(), NotRecorded> {
        let written = self.written.get_or_init(async || {
            self.is_tried.store(true, Ordering::Relaxed);
            match self.journal.begin(&self.key, &self.record).await {
                Ok(None) if self.journal.is_open() => Ok(()),
                Ok(first) => Err(NotBegun { first }),
                Err(_) => Err(NotBegun { first: None }),
            }
        });
        match written.await {
            Ok(()) => Ok(()),
            Err(_) if self.journal.replica().is_some() => Err(NotRecorded::Elsewhere),
            Err(_) => Err(NotRecorded::Unwritable),
        }
    }

    /// Whether the journal has refused the request: its calls have not been sent.
    pub fn is_refused(&self) -> bool {
        self.refusal().is_some()
    }

    /// Whether the record is written.
    pub(super) fn has_begun(&self) -> bool {
        self.written.get().is_some_and(Result::is_ok)
    }

    /// Whether the record may still be written, or be written already, although this does not know
    /// of it.
    pub(super) fn is_in_doubt(&self) -> bool {
        match self.written.get() {
            Some(Ok(())) => false,
            Some(Err(not_begun)) => not_begun.first.is_none(),
            // A call that was dropped may have given it to the journal.
            None => self.is_tried.load(Ordering::Relaxed),
        }
    }

    pub(super) fn refusal(&self) -> Option<NotBegun> {
        self.written.get()?.as_ref().err().cloned()
    }
}
