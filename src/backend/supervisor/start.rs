//! One attempt to reach a backend. A program waits for its turn, and then has minutes to start: the
//! first start of a package installs it.
//!
//! Must not: decide when the next attempt is.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, interval_at, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{Outage, Supervisor};
use crate::backend::peer::StartLog;
use crate::backend::registry::StartStage;
use crate::backend::turns::{PLACE, Rank, StartKeys, Turn, Turns, Waiting};
use crate::backend::{Peer, PeerError};

/// How often the log says that a program still starts.
const REPORT: Duration = Duration::from_secs(60);
/// How long the end of a start that was given up may take: a program gets 5 s after SIGTERM, so
/// that an installation is not cut off in the middle of a file; the rest is a margin.
const END_TIMEOUT: Duration = Duration::from_secs(8);

/// How the program of a backend takes its turn.
#[derive(Debug, Clone)]
pub struct ProgramStart {
    pub turns: Arc<Turns>,
    pub keys: StartKeys,
}

impl ProgramStart {
    /// Joins the queue for a turn.
    pub fn join(&self, rank: Rank) -> Waiting {
        self.turns.join(self.keys.clone(), rank)
    }
}

/// The outcome of an attempt.
#[derive(Debug)]
pub(super) enum Established {
    Connected {
        peer: Arc<dyn Peer>,
        /// How long the first read of the catalog may take.
        first_read: Duration,
    },
    Failed(PeerError),
    /// The daemon stops, another supervisor has the backend, or the backend was removed.
    Over,
}

impl Supervisor {
    /// Makes one attempt to reach the backend.
    pub(super) async fn establish(
        &mut self,
        outage: &Outage,
        stop: &CancellationToken,
    ) -> Established {
        match self.program.clone() {
            Some(program) => self.start(&program, outage, stop).await,
            None => self.dial(stop).await,
        }
    }

    /// Dials a peer that is no program.
    async fn dial(&self, stop: &CancellationToken) -> Established {
        let patience = self.timing.borrow().timeout;
        let dialled = tokio::select! {
            () = stop.cancelled() => return Established::Over,
            () = self.lease.lost() => return Established::Over,
            dialled = timeout(patience, self.dial.dial()) => dialled,
        };
        match dialled {
            Ok(Ok(peer)) => Established::Connected { peer, first_read: patience },
            Ok(Err(error)) => Established::Failed(error),
            Err(_elapsed) => {
                let what = format!("no connection within {patience:?}");
                Established::Failed(self.dial.overdue(what))
            }
        }
    }

    /// Starts a program, once it is its turn.
    async fn start(
        &mut self,
        program: &ProgramStart,
        outage: &Outage,
        stop: &CancellationToken,
    ) -> Established {
        self.starting(StartStage::Queued, outage);
        let Some(turn) = self.turn(program, outage, stop).await else { return Established::Over };
        self.starting(StartStage::Running, outage);
        let start = Instant::now();
        let patience = self.timing.borrow().start_timeout;
        self.dial.log_starts(if outage.is_over() { StartLog::Full } else { StartLog::Quiet });
        let dialled = {
            let mut dial = pin!(self.dial.dial());
            let mut reports = interval_at(start + REPORT, REPORT);
            let mut holds_place = true;
            loop {
                tokio::select! {
                    biased;
                    dialled = &mut dial => break Some(dialled),
                    () = stop.cancelled() => break None,
                    () = self.lease.lost() => break None,
                    () = sleep_until(start + patience) => {
                        let what = format!("it did not finish its start within {patience:?}");
                        break Some(Err(self.dial.overdue(what)));
                    }
                    () = sleep_until(start + PLACE), if holds_place => {
                        turn.give_place_back();
                        holds_place = false;
                    }
                    _ = reports.tick() => self.report_start(start),
                }
            }
            // Here the attempt is dropped, if it has not ended.
        };
        if !matches!(dialled, Some(Ok(_))) {
            // The turn ends when no process of it is left: the next start of this package, or of
            // this entry after a reload, must not meet it.
            self.until_ended().await;
        }
        drop(turn);
        match dialled {
            Some(Ok(peer)) => {
                // A machine that is too busy to start the program in time is too busy for its list.
                let remaining = patience.saturating_sub(start.elapsed());
                let first_read = remaining.max(self.timing.borrow().timeout);
                Established::Connected { peer, first_read }
            }
            Some(Err(error)) => Established::Failed(error),
            None => Established::Over,
        }
    }

    /// Waits for the turn; `None` if there is to be no start. What a call waits for goes first.
    async fn turn(
        &mut self,
        program: &ProgramStart,
        outage: &Outage,
        stop: &CancellationToken,
    ) -> Option<Turn> {
        let mut waiting = self.first_turn.take().unwrap_or_else(|| {
            let first_rank = self.timing.borrow().rank;
            let rank = if outage.start_failed { first_rank.after_failure() } else { first_rank };
            program.join(rank)
        });
        let mut in_hurry = false;
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return None,
                () = self.lease.lost() => return None,
                turn = waiting.granted() => return Some(turn),
                () = self.demand.wanted(), if !in_hurry => {
                    waiting.hurry();
                    in_hurry = true;
                }
            }
        }
    }

    fn last_output(&self) -> Option<String> {
        self.dial.stderr().pop()
    }

    fn report_start(&self, begun: Instant) {
        let seconds = begun.elapsed().as_secs();
        let stderr = self.last_output();
        info!(backend = %self.lease.name, seconds, stderr, "still starting");
    }

    async fn until_ended(&self) {
        if timeout(END_TIMEOUT, self.dial.processes_ended()).await.is_err() {
            warn!(backend = %self.lease.name, "a process of its start has not ended within {END_TIMEOUT:?}");
        }
    }
}
