//! The signals that end a command early.
//!
//! Must not: end it; the code that waits for them does, and cleans up first.

use futures_util::future::select_all;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::Outcome;

/// Receives signals from the moment when it is made.
#[derive(Debug)]
pub(super) struct Stop(Vec<Signal>);

impl Stop {
    /// SIGINT, SIGTERM and SIGHUP.
    pub(super) fn new() -> Outcome<Self> {
        Self::on(&[SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()])
    }

    pub(super) fn on(kinds: &[SignalKind]) -> Outcome<Self> {
        Ok(Self(kinds.iter().map(|kind| signal(*kind)).collect::<Result<_, _>>()?))
    }

    /// Waits for the next of these signals.
    pub(super) async fn asked(&mut self) {
        select_all(self.0.iter_mut().map(|one| Box::pin(one.recv()))).await;
    }
}
