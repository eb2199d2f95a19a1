//! Keeps one backend connected and its catalog fresh.
//!
//! ```text
//! connecting --dial ok--> connected: refresh, then wait for a reason to refresh again
//!     ^                       | connection lost, or three refreshes failed in a row
//!     +------- backoff -------+
//! ```
//!
//! If a reload changes or removes the backend, the supervisor loses its lease. It then lets the
//! calls on the connection finish and closes the connection.
//!
//! Each backend has a task of its own, so a backend that hangs or dies delays no other. A refresh
//! reads the whole catalog, whatever the reason, and never retries inside: the next reason retries.
//!
//! Must not: know MCP or A2A, or make calls.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::circuit_breaker::CircuitBreaker;
use super::registry::{Connection, Lease, Phase, Registry};
use super::{Dial, LiveRedaction, Peer, PeerError, PeerErrorKind};
use crate::backoff::Backoff;
use crate::error_chain::error_chain;
use crate::model::words::words;
use crate::{clock, random};

/// A connection that lived this long resets the backoff when it is lost.
const PROOF_OF_LIFE: Duration = Duration::from_secs(30);
/// The least wait after a peer refused the authorization (HTTP 401 or 403): trying sooner is of no
/// use, and may lock an account.
const REFUSED: Duration = Duration::from_secs(60);
/// The least time between two refreshes that the peer itself asks for. It bounds the cost of a
/// catalog that changes all the time. The first such refresh is at once.
const LIST_CHANGED_GAP: Duration = Duration::from_secs(5);
/// The least time between an attempt and one that an operator or app asks for.
const ASKED_GAP: Duration = Duration::from_secs(1);
/// After this many failed refreshes in a row, the supervisor treats the connection as dead and
/// reconnects.
const FAILURES_TO_REDIAL: u32 = 3;
/// The longest wait after a failed refresh; a shorter interval wins.
const RETRY_REFRESH: Duration = Duration::from_secs(15);
/// How long a peer may take to close. A program gets 3 s after its stdin closes, 3 s after SIGTERM,
/// then SIGKILL; the rest is a margin.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(8);

words! {
    /// Why a refresh happens.
    pub enum Reason {
        /// A connection was made, the first or a later one.
        Connected = "connected",
        Timer = "timer",
        /// The peer said that its catalog changed.
        ListChanged = "list_changed",
        /// An [`Ask`] came in.
        Asked = "asked",
    }
}

/// How often the supervisor refreshes, and how long it waits for the peer.
#[derive(Debug, Clone, PartialEq)]
pub struct Timing {
    pub interval: Duration,
    /// The share of `interval` by which each wait varies, 0 to 1.
    pub jitter: f64,
    /// How long one connect or one refresh may take.
    pub timeout: Duration,
}

impl Timing {
    fn jittered(&self) -> Duration {
        let share = self.jitter * (random::share() * 2.0 - 1.0);
        self.interval.mul_f64((1.0 + share).max(0.0))
    }
}

/// Asks a supervisor for a refresh. The supervisor answers after the attempt, failed or not.
pub type Ask = oneshot::Sender<()>;

/// Supervises one backend.
#[derive(Debug)]
pub struct Supervisor {
    pub lease: Lease,
    pub dial: Arc<dyn Dial>,
    pub timing: watch::Receiver<Timing>,
    pub registry: Arc<Registry>,
    /// Closed by every new connection that works.
    pub breaker: Arc<CircuitBreaker>,
    pub asks: mpsc::Receiver<Ask>,
    pub redact: LiveRedaction,
}

/// Ends when the connection to `peer` is not to be used any more. With an error, it was lost; without
/// one, the daemon stops, another supervisor has the backend, or the backend was removed.
async fn over(lease: &Lease, peer: &dyn Peer, stop: &CancellationToken) -> Option<PeerError> {
    tokio::select! {
        () = stop.cancelled() => None,
        () = lease.lost() => None,
        error = peer.closed() => Some(error),
    }
}

impl Supervisor {
    /// Runs until the lease is lost or `stop` is cancelled, then closes the connection.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut backoff = Backoff::for_connections();
        let mut waiting = Vec::new();
        // How often it failed since it last worked.
        let mut failures = 0;
        loop {
            let patience = self.timing.borrow().timeout;
            let dialled = tokio::select! {
                () = stop.cancelled() => return,
                () = self.lease.lost() => return,
                dialled = timeout(patience, self.dial.dial()) => dialled,
            };
            let dialled = dialled.unwrap_or_else(|_elapsed| {
                let text = format!("no connection within {patience:?}");
                Err(PeerError::new(PeerErrorKind::Timeout, text))
            });
            let mut least = Duration::ZERO;
            match dialled {
                Ok(peer) => {
                    let connection = Connection::new(peer);
                    let since = Instant::now();
                    let lost = self.connected(&connection, &mut waiting, &stop).await;
                    if let Some(error) = &lost {
                        if since.elapsed() >= PROOF_OF_LIFE {
                            backoff.reset();
                            failures = 0;
                        }
                        failures += 1;
                        // Before closing, which may take seconds: new calls must not get the
                        // broken connection meanwhile.
                        least = self.down(error, failures);
                    } else {
                        waiting.clear();
                        self.finish(&connection, &stop).await;
                    }
                    if timeout(CLOSE_TIMEOUT, connection.peer.close()).await.is_err() {
                        warn!(backend = %self.lease.name, "close timed out after {CLOSE_TIMEOUT:?}; dropping the connection");
                    }
                    if lost.is_none() {
                        return;
                    }
                }
                Err(error) => {
                    failures += 1;
                    least = self.down(&error, failures);
                }
            }
            answer(&mut waiting);
            let wait = backoff.next_wait().max(least);
            debug!(backend = %self.lease.name, ?wait, "next connection attempt");
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.lease.lost() => return,
                asked = next_attempt(&mut self.asks, wait, least) => waiting.extend(asked),
            }
        }
    }

    /// Keeps the catalog fresh while the connection lives. The end is as [`over`] says it.
    async fn connected(
        &mut self,
        connection: &Connection,
        waiting: &mut Vec<Ask>,
        stop: &CancellationToken,
    ) -> Option<PeerError> {
        let peer = &connection.peer;
        let mut reason = Reason::Connected;
        let mut failures = 0;
        let mut not_before = Instant::now();
        loop {
            let timing = self.timing.borrow_and_update().clone();
            let resolved = tokio::select! {
                end = over(&self.lease, peer.as_ref(), stop) => return end,
                resolved = timeout(timing.timeout, peer.resolve()) => resolved,
            };
            let resolved = resolved.unwrap_or_else(|_elapsed| {
                let text = format!("the refresh took longer than {:?}", timing.timeout);
                Err(PeerError::new(PeerErrorKind::Timeout, text))
            });
            let refreshed = Instant::now();
            let wait = match resolved {
                Ok(catalog) => {
                    failures = 0;
                    let wait = timing.jittered();
                    self.ready(connection, catalog, reason, wait);
                    if reason == Reason::Connected {
                        self.breaker.reconnected();
                    }
                    wait
                }
                Err(error) => {
                    let pause = error.pause();
                    // A peer that asks for a pause is there, and so is the connection.
                    failures += u32::from(pause.is_zero());
                    if failures == FAILURES_TO_REDIAL || !self.registry.has_catalog(&self.lease) {
                        return Some(error);
                    }
                    let wait = timing.jittered().min(RETRY_REFRESH).max(pause);
                    self.degraded(connection, &error, wait);
                    wait
                }
            };
            answer(waiting);
            tokio::select! {
                end = over(&self.lease, peer.as_ref(), stop) => return end,
                () = self.features(peer.as_ref(), timing.timeout) => {}
            }
            // No arm awaits in its body, and every arm is safe to drop: an unread change stays
            // noted in the peer, and an unread ask stays in the channel.
            reason = tokio::select! {
                end = over(&self.lease, peer.as_ref(), stop) => return end,
                () = sleep_until(refreshed + wait) => Reason::Timer,
                // Once the sender is gone, the timing stays as it is.
                Ok(()) = self.timing.changed() => Reason::Timer,
                () = sleep_until(not_before).then(|()| peer.changed()) => Reason::ListChanged,
                ask = next_ask(&mut self.asks, refreshed + ASKED_GAP) => {
                    waiting.push(ask);
                    Reason::Asked
                }
            };
            if reason == Reason::ListChanged {
                not_before = Instant::now() + LIST_CHANGED_GAP;
            }
            // One refresh answers all asks that have come in by now.
            while let Ok(ask) = self.asks.try_recv() {
                waiting.push(ask);
            }
        }
    }

    /// Waits for the calls on a connection that gets no new ones. This ends, since each call has a
    /// deadline.
    async fn finish(&mut self, connection: &Connection, stop: &CancellationToken) {
        // Drop the waiting asks: a refresh request must not wait for the calls.
        self.asks.close();
        while self.asks.try_recv().is_ok() {}
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = connection.unused() => {
                info!(backend = %self.lease.name, "all calls on the earlier connection ended");
            }
        }
    }

    fn ready(
        &self,
        connection: &Connection,
        catalog: Arc<crate::model::catalog::Catalog>,
        reason: Reason,
        wait: Duration,
    ) {
        let now = clock::now();
        let tools = catalog.tool_count();
        let mut news = false;
        self.registry.write(&self.lease, |known| {
            let before = known.catalog.as_ref().map(|catalog| catalog.digest().to_owned());
            news = known.phase != Phase::Ready || before.as_deref() != Some(catalog.digest());
            known.phase = Phase::Ready;
            known.connection = Some(connection.clone());
            known.about = connection.peer.about();
            known.catalog = Some(catalog);
            known.last_refresh = Some(now);
            known.next_refresh = Some(now + wait);
            known.last_error = None;
            known.last_failure = None;
            known.connections += u64::from(reason == Reason::Connected);
        });
        if news {
            info!(backend = %self.lease.name, tools, reason = reason.as_str(), "ready");
        } else {
            debug!(backend = %self.lease.name, tools, reason = reason.as_str(), "refreshed, nothing new");
        }
    }

    /// Asks for what the peer offers beside its tools, after them: it must not delay them. After a
    /// failure, the last ones stay.
    async fn features(&self, peer: &dyn Peer, patience: Duration) {
        match timeout(patience, peer.features()).await {
            Ok(Ok(features)) => self.registry.write(&self.lease, |known| {
                known.features = Arc::new(features);
            }),
            Ok(Err(error)) => {
                let error = self.words(&error);
                warn!(backend = %self.lease.name, error, "resources and prompts were not listed");
            }
            Err(_elapsed) => {
                warn!(backend = %self.lease.name, ?patience, "resources and prompts were not listed in time");
            }
        }
    }

    fn degraded(&self, connection: &Connection, failure: &PeerError, wait: Duration) {
        let error = self.words(failure);
        warn!(backend = %self.lease.name, error, "refresh failed; the last good catalog stays");
        self.registry.write(&self.lease, |known| {
            known.phase = Phase::Degraded;
            known.connection = Some(connection.clone());
            known.about = connection.peer.about();
            known.next_refresh = Some(clock::now() + wait);
            known.last_error = Some(error);
            known.last_failure = Some(failure.clone());
            known.failures += 1;
        });
    }

    /// `error` for operators; it may repeat what the peer has said.
    fn words(&self, error: &PeerError) -> String {
        let text = error_chain(error);
        self.redact.borrow().apply(&text, &mut 0).unwrap_or(text)
    }

    /// Notes that there is no connection, which failed so often by now; the least time until the next
    /// attempt.
    fn down(&self, failure: &PeerError, failures: u32) -> Duration {
        let error = self.words(failure);
        // Less and less often: at the failures 1, 4, 16, 64 and so on.
        let news = failures.is_power_of_two() && failures.trailing_zeros().is_multiple_of(2);
        self.registry.write(&self.lease, |known| {
            known.phase = Phase::Down;
            known.connection = None;
            known.next_refresh = None;
            known.last_error = Some(error.clone());
            known.last_failure = Some(failure.clone());
            known.failures += 1;
        });
        let is_unresolved = failure.kind == PeerErrorKind::Unresolved;
        if news && is_unresolved {
            warn!(backend = %self.lease.name, error, "down, until what its entry refers to is there");
        } else if news {
            warn!(backend = %self.lease.name, error, failures, "down; the bridge keeps trying to connect");
        } else {
            debug!(backend = %self.lease.name, error, "still down");
        }
        let is_refused = failure.kind == PeerErrorKind::Unauthorized;
        let least = if is_refused || is_unresolved { REFUSED } else { Duration::ZERO };
        least.max(failure.pause())
    }
}

/// Ends after `wait`, or sooner with an ask, but not before `least` is over: the peer's
/// authentication may count refused attempts and lock the account. An ask before that is answered
/// without an attempt.
async fn next_attempt(
    asks: &mut mpsc::Receiver<Ask>,
    wait: Duration,
    least: Duration,
) -> Option<Ask> {
    let tried = Instant::now();
    loop {
        let ask = next_ask(asks, tried + ASKED_GAP);
        let ask = timeout_at(tried + wait, ask).await.ok()?;
        if tried.elapsed() >= least {
            return Some(ask);
        }
        answer(&mut vec![ask]);
    }
}

/// Takes the next ask, but not before `not_before`.
async fn next_ask(asks: &mut mpsc::Receiver<Ask>, not_before: Instant) -> Ask {
    sleep_until(not_before).await;
    match asks.recv().await {
        Some(ask) => ask,
        // All senders are gone: the lease is lost, or the daemon is going down.
        None => std::future::pending().await,
    }
}

fn answer(waiting: &mut Vec<Ask>) {
    for ask in waiting.drain(..) {
        // The caller may have gone away.
        let _gone = ask.send(());
    }
}

#[cfg(test)]
mod tests;
