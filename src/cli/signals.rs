//! What ends a command before its time.
//!
//! Must not: end it; whoever waits does, and cleans up before.

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::Failure;

/// Ctrl-C, SIGTERM, and the end of the terminal, from when this is made.
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

    /// Until the next of them.
    pub(super) async fn asked(&mut self) {
        let Self([interrupt, terminate, hangup]) = self;
        tokio::select! {
            _ = interrupt.recv() => (),
            _ = terminate.recv() => (),
            _ = hangup.recv() => (),
        }
    }
}
