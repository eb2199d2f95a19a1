//! The beginning of a request whose calls are made once: its record is written before the first of
//! them is sent, and no earlier. A person may take hours to approve a call, and a crash in that time
//! must not leave a record that says of it that it may have been made.
//!
//! Must not: know what a request asks for, or send a call.

use std::sync::Arc;

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

    pub(super) fn refusal(&self) -> Option<NotBegun> {
        self.written.get()?.as_ref().err().cloned()
    }
}
