//! The signals that end a command early.
//!
//! Must not: end it; the code that waits for them does, and cleans up first.

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::Failure;

/// Receives SIGINT, SIGTERM and SIGHUP from the moment when it is made.
#[derive(Debug)]
pub(super) struct Stop([Signal; 3]);

impl Stop {
    pub(super) fn new() -> Result<Self, Failure> {
        Ok(Self([
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
        ]))
    }

    /// Waits for the next of these signals.
    pub(super) async fn asked(&mut self) {
        let Self([interrupt, terminate, hangup]) = self;
        tokio::select! {
            _ = interrupt.recv() => (),
            _ = terminate.recv() => (),
            _ = hangup.recv() => (),
        }
    }
}
