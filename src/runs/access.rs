//! How a run's stream stands with MANTYX, as apps and the status are told.
//!
//! Must not: open a stream, or decide when the next attempt is made (driver.rs does).

use std::sync::Arc;

use tokio::time::Instant;

use crate::upstream::OpenError;

/// How the stream of a run stands.
#[derive(Debug, Clone, Default)]
pub enum Access {
    /// The driver has not heard from MANTYX yet.
    #[default]
    Untried,
    /// It is being read.
    Open,
    /// It was, and is about to be opened anew.
    Broken,
    Failing(Arc<Failure>),
}

/// The stream cannot be opened.
#[derive(Debug)]
pub struct Failure {
    /// What came of the last attempt.
    pub error: OpenError,
    /// When the first one failed of those that did since the stream was open.
    pub since: Instant,
}

impl Failure {
    /// One that has only begun.
    pub(super) fn new(error: OpenError) -> Self {
        Self { error, since: Instant::now() }
    }
}

impl Access {
    /// What is wrong, if something is.
    pub fn failure(&self) -> Option<&Arc<Failure>> {
        match self {
            Self::Failing(failure) => Some(failure),
            Self::Untried | Self::Open | Self::Broken => None,
        }
    }

    /// MANTYX's answer in place of the stream. A network that fails gives none: the app's stream then
    /// waits for it, as the driver does.
    pub(super) fn answer(&self) -> Option<&Arc<Failure>> {
        self.failure().filter(|failure| failure.error.is_answer())
    }
}
