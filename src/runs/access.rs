//! Whether MANTYX serves a run's stream, for apps and the status.
//!
//! Must not: open a stream, or decide when the next attempt is made (driver.rs does).

use std::sync::Arc;

use tokio::time::Instant;

use crate::upstream::OpenError;

/// The state of a run's stream.
#[derive(Debug, Clone, Default)]
pub enum Access {
    /// The driver has not heard from MANTYX yet.
    #[default]
    Untried,
    /// It is being read.
    Open,
    /// It was open, and the driver is about to open it again.
    Broken,
    Failing(Arc<StreamFailure>),
}

/// The stream cannot be opened.
#[derive(Debug)]
pub struct StreamFailure {
    /// The error of the last attempt.
    pub error: OpenError,
    /// The time of the first failure since the stream was last open.
    pub since: Instant,
}

impl Access {
    /// The failure, if there is one.
    pub fn failure(&self) -> Option<&Arc<StreamFailure>> {
        match self {
            Self::Failing(failure) => Some(failure),
            Self::Untried | Self::Open | Self::Broken => None,
        }
    }

    /// The failure, if it is an answer of MANTYX. A network failure is none: then the app's stream
    /// waits until the network works, as the driver does.
    pub(super) fn answer(&self) -> Option<&Arc<StreamFailure>> {
        self.failure().filter(|failure| failure.error.is_answer())
    }
}
