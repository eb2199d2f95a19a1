//! Keeps one backend connected and its catalog fresh.
//!
//! ```text
//! connecting --dial ok--> connected: refresh, then wait for a reason to refresh again
//!   ^    ^                    |  |
//!   |    |   connection lost, |  | a program that nothing has used for `idle_stop`
//!   |    | or three refreshes |  v
//!   |    |    failed in a row | idle: wait for a call, an ask, or a day
//!   |    +------ backoff -----+  |
//!   +----------------------------+
//! ```
//!
//! If a reload changes or removes the backend, the supervisor loses its lease. It then lets the
//! calls on the connection finish and closes the connection.
//!
//! Each backend has a task of its own, so a backend that hangs or dies delays no other. Programs
//! take turns to start (`start`). A refresh reads the whole catalog, whatever the reason, and never
//! retries inside: the next reason retries.
//!
//! Must not: know MCP or A2A, or make calls.

mod checkups;
mod outage;
mod start;
mod states;

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use self::checkups::Checkups;
use self::outage::Outage;
use self::start::Established;
pub use self::start::ProgramStart;
use super::circuit_breaker::CircuitBreaker;
use super::demand::Demand;
use super::registry::{Connection, Lease, Phase, Registry};
use super::switch::SwitchReader;
use super::turns::{Rank, Waiting};
use super::{Dial, LiveRedaction, Peer, PeerError};
use crate::model::Catalog;
use crate::model::words::words;
use crate::random;

/// The least time between two refreshes that the peer itself asks for. It bounds the cost of a
/// catalog that changes all the time. The first such refresh is at once.
const LIST_CHANGED_GAP: Duration = Duration::from_secs(5);
/// The least time between two refreshes that an operator or an app asks for.
const ASKED_GAP: Duration = Duration::from_secs(1);
/// After this many failed refreshes in a row, the supervisor treats the connection as dead and
/// reconnects.
const FAILURES_TO_REDIAL: u32 = 3;
/// The longest wait after a failed refresh; a shorter interval wins.
const RETRY_REFRESH: Duration = Duration::from_secs(15);
/// How long a peer may take to close. A program gets 3 s after its stdin closes, 3 s after SIGTERM,
/// then SIGKILL; the rest is a margin.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(8);
/// How often an idle program is started to be read: it may have other tools by then.
const DAILY: Duration = Duration::from_secs(24 * 60 * 60);
/// The range of a `ttlMs` that takes the place of the timer (MCP 2026-07-28): a shorter one would
/// ask the server all the time, and with a longer one a change would not be seen for hours.
const LEAST_TTL: Duration = Duration::from_secs(30);
const MAX_TTL: Duration = Duration::from_secs(60 * 60);

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
    /// The entry itself says `interval`, so that no `ttlMs` replaces it.
    pub interval_is_own: bool,
    /// The share of `interval` by which each wait varies, 0 to 1.
    pub jitter: f64,
    /// How long one connect or one refresh may take.
    pub timeout: Duration,
    /// How long the start of a program may take, from its turn to its handshake.
    pub start_timeout: Duration,
    /// A program with a kept catalog is started by its first call.
    pub is_lazy: bool,
    /// A program that nothing has used for so long is ended.
    pub idle_stop: Option<Duration>,
    /// The order in which programs start.
    pub rank: Rank,
}

impl Timing {
    /// Takes the place of `self`; whether that is a reason to refresh.
    pub fn replaces(self, old: &mut Self) -> bool {
        let rank = self.rank;
        let new = Self { rank: old.rank, ..self };
        let refresh = new != *old;
        *old = Self { rank, ..new };
        refresh
    }

    fn jittered(&self, time: Duration) -> Duration {
        let share = self.jitter * (random::share() * 2.0 - 1.0);
        time.mul_f64((1.0 + share).max(0.0))
    }

    /// The wait from one refresh to the next, if the peer says that its catalog holds for `ttl`.
    fn next_refresh(&self, ttl: Option<Duration>) -> Duration {
        match ttl.filter(|ttl| !self.interval_is_own && !ttl.is_zero()) {
            // Not jittered above what the server has said.
            Some(ttl) => ttl.clamp(LEAST_TTL, MAX_TTL),
            None => self.jittered(self.interval),
        }
    }
}

/// Asks a supervisor for a refresh. The supervisor answers after the attempt, failed or not.
pub type Ask = oneshot::Sender<()>;

/// Supervises one backend.
#[derive(Debug)]
pub struct Supervisor {
    pub lease: Lease,
    pub dial: Arc<dyn Dial>,
    /// For a backend that is a program.
    pub program: Option<ProgramStart>,
    /// The program's place in the queue for its first start, if it has joined the queue already.
    pub first_turn: Option<Waiting>,
    pub timing: watch::Receiver<Timing>,
    pub registry: Arc<Registry>,
    /// Closed by every new connection that works.
    pub breaker: Arc<CircuitBreaker>,
    pub asks: mpsc::Receiver<Ask>,
    /// The calls that wait for the connection.
    pub demand: Demand,
    /// What the operator wants of the backend until the bridge restarts.
    pub switch: SwitchReader,
    pub redact: LiveRedaction,
}

/// Why a connection is no longer to be used.
#[derive(Debug)]
enum End {
    Lost(PeerError),
    /// The program was not used; the registry says so already.
    Idle,
    /// The daemon stops, another supervisor has the backend, or the backend was removed.
    Over,
}

/// How long a connection is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stay {
    /// As long as it works, or until nothing has used it for `idle_stop`.
    InUse,
    /// Until the catalog was read.
    ToBeRead,
}

/// How a new connection is kept.
#[derive(Debug, Clone, Copy)]
struct Keep {
    /// How long the first read of the catalog may take.
    first_read: Duration,
    stay: Stay,
}

/// When the catalog was read, and when it is read again.
#[derive(Debug, Clone, Copy)]
struct RefreshTimes {
    refreshed: Instant,
    due: Instant,
    /// The earliest refresh that the peer itself asks for.
    not_before: Instant,
    /// A program that nothing has used for so long is ended.
    idle_stop: Option<Duration>,
}

/// Why an idle program is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wake {
    /// A call or an ask needs it, or it is no longer to be idle.
    Wanted,
    /// It was idle for a day.
    Daily,
    /// Not at all: see [`End::Over`].
    Over,
}

/// Ends when the connection to `peer` is no longer to be used.
async fn over(lease: &Lease, peer: &dyn Peer, stop: &CancellationToken) -> End {
    tokio::select! {
        () = stop.cancelled() => End::Over,
        () = lease.lost() => End::Over,
        error = peer.closed() => End::Lost(error),
    }
}

impl Supervisor {
    /// Runs until the lease is lost or `stop` is cancelled, then closes the connection.
    ///
    /// Each time the operator disables or restarts the backend, the supervision is stopped as a
    /// whole, and calls in flight with it: a restart is asked for where a program hangs. What
    /// follows begins as after a start of the bridge, without the waits of an earlier outage.
    pub async fn run(mut self, stop: CancellationToken) {
        while self.enabled(&stop).await {
            let stop_now = stop.child_token();
            let mut switch = self.switch.copy();
            let stop_if_moved = async {
                switch.moved().await;
                stop_now.cancel();
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = self.supervise(&stop_now) => {}
                () = stop_if_moved => {}
            }
        }
    }

    /// Waits until the operator wants the backend connected; `false` if its time is over.
    async fn enabled(&mut self, stop: &CancellationToken) -> bool {
        let mut begins_again = self.switch.is_moved();
        while self.switch.read_is_off() {
            begins_again = true;
            // Other programs must not wait behind one that is not to start.
            self.first_turn = None;
            self.switched(Phase::Disabled);
            info!(backend = %self.lease.name, "disabled by the operator until the bridge restarts");
            loop {
                tokio::select! {
                    () = stop.cancelled() => return false,
                    () = self.lease.lost() => return false,
                    () = self.switch.moved() => break,
                    ask = next_ask(&mut self.asks, Instant::now()) => answer(&mut vec![ask]),
                }
            }
        }
        if begins_again {
            self.switched(Phase::Connecting);
            info!(backend = %self.lease.name, "connecting, as the operator asked");
        }
        !stop.is_cancelled() && !self.lease.is_lost()
    }

    /// Keeps the backend connected until the lease is lost or `stop` is cancelled.
    async fn supervise(&mut self, stop: &CancellationToken) {
        let mut outage = Outage::new(self.program.is_some());
        let mut waiting = Vec::new();
        let mut stay = Stay::InUse;
        if self.may_begin_idle() {
            self.first_turn = None;
            match self.idle(&mut waiting, stop).await {
                Wake::Wanted => {}
                Wake::Daily => stay = Stay::ToBeRead,
                Wake::Over => return,
            }
        }
        loop {
            match self.establish(&outage, stop).await {
                Established::Over => return,
                Established::Failed(error) => {
                    outage.attempt_failed(&error, Instant::now());
                    self.down(&error, &mut outage);
                }
                Established::Connected { peer, first_read } => {
                    let connection = Connection::new(peer);
                    let since = Instant::now();
                    let keep = Keep { first_read, stay };
                    let end =
                        self.connected(&connection, keep, &mut outage, &mut waiting, stop).await;
                    match &end {
                        End::Lost(error) => {
                            outage.connection_lost(error, since.elapsed(), Instant::now());
                            // Before closing, which may take seconds: new calls must not get the
                            // broken connection meanwhile.
                            self.down(error, &mut outage);
                        }
                        End::Idle => outage.retired(),
                        End::Over => {
                            waiting.clear();
                            if self.switch.is_moved() {
                                // Before closing, as above.
                                self.switched(Phase::Connecting);
                            }
                            self.finish(&connection, stop).await;
                        }
                    }
                    self.close(&connection).await;
                    match end {
                        End::Lost(_) => {}
                        End::Idle => match self.idle(&mut waiting, stop).await {
                            Wake::Wanted => {
                                stay = Stay::InUse;
                                continue;
                            }
                            Wake::Daily => {
                                stay = Stay::ToBeRead;
                                continue;
                            }
                            Wake::Over => return,
                        },
                        End::Over => return,
                    }
                }
            }
            answer(&mut waiting);
            if !self.wait_for_next_attempt(&mut outage, &mut waiting, stop).await {
                return;
            }
        }
    }

    /// Keeps the catalog fresh while the connection lives.
    async fn connected(
        &mut self,
        connection: &Connection,
        Keep { first_read, stay }: Keep,
        outage: &mut Outage,
        waiting: &mut Vec<Ask>,
        stop: &CancellationToken,
    ) -> End {
        let peer = &connection.peer;
        let mut reason = Reason::Connected;
        let mut failures = 0;
        let mut not_before = Instant::now();
        let mut checkups = Checkups::new(peer.health());
        loop {
            let timing = self.timing.borrow_and_update().clone();
            let idle_stop = self.program.as_ref().and(timing.idle_stop);
            let patience = if reason == Reason::Connected { first_read } else { timing.timeout };
            let resolved = match self.read(peer.as_ref(), patience, stop).await {
                Ok(resolved) => resolved,
                Err(end) => return end,
            };
            let refreshed = Instant::now();
            let wait = match resolved {
                Ok(catalog) => {
                    failures = 0;
                    let wait = timing.next_refresh(peer.ttl());
                    self.ready(connection, catalog, reason, wait, outage);
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
                        return End::Lost(error);
                    }
                    let wait = timing.jittered(timing.interval).min(RETRY_REFRESH);
                    self.degraded(connection, &error, wait, outage);
                    wait
                }
            };
            if let Err(end) = self.check_up(peer.as_ref(), reason, &mut checkups, stop).await {
                return end;
            }
            answer(waiting);
            tokio::select! {
                end = over(&self.lease, peer.as_ref(), stop) => return end,
                () = self.features(peer.as_ref(), timing.timeout, outage) => {}
            }
            // A call that waits for the connection gets it in a moment.
            if stay == Stay::ToBeRead
                && !self.demand.is_wanted()
                && self.registry.retire(&self.lease)
            {
                return End::Idle;
            }
            let times = RefreshTimes { refreshed, due: refreshed + wait, not_before, idle_stop };
            let next = self.next_reason(connection, &times, waiting, &mut checkups, stop);
            reason = match next.await {
                Ok(reason) => reason,
                Err(end) => return end,
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

    /// Waits for a reason to read the catalog again; until then, looks after the endpoint. The
    /// error is the end of the connection.
    async fn next_reason(
        &mut self,
        connection: &Connection,
        times: &RefreshTimes,
        waiting: &mut Vec<Ask>,
        checkups: &mut Checkups,
        stop: &CancellationToken,
    ) -> Result<Reason, End> {
        let peer = connection.peer.as_ref();
        let RefreshTimes { refreshed, due, not_before, idle_stop } = *times;
        loop {
            // No arm awaits in its body, and every arm is safe to drop: an unread change stays
            // noted in the peer, and an unread ask stays in the channel.
            return Ok(tokio::select! {
                end = over(&self.lease, peer, stop) => return Err(end),
                () = sleep_until(due) => Reason::Timer,
                // Once the sender is gone, the timing stays as it is.
                Ok(()) = self.timing.changed() => Reason::Timer,
                () = sleep_until(not_before).then(|()| peer.changed()) => Reason::ListChanged,
                ask = next_ask(&mut self.asks, refreshed + ASKED_GAP) => {
                    waiting.push(ask);
                    Reason::Asked
                }
                () = unused(&self.registry, &self.lease, connection, idle_stop) => {
                    return Err(End::Idle);
                }
                () = self.dial.login_changed() => Reason::Asked,
                occasion = checkups.due() => {
                    if let Some(occasion) = occasion {
                        self.probe(peer, occasion, checkups, stop).await?;
                    }
                    self.tell_readiness(&checkups.readiness(), checkups);
                    continue;
                }
            });
        }
    }

    /// Reads the whole catalog of `peer`. The outer error is the end of the connection.
    async fn read(
        &self,
        peer: &dyn Peer,
        patience: Duration,
        stop: &CancellationToken,
    ) -> Result<Result<Arc<Catalog>, PeerError>, End> {
        let resolved = tokio::select! {
            end = over(&self.lease, peer, stop) => return Err(end),
            resolved = timeout(patience, peer.resolve()) => resolved,
        };
        Ok(resolved.unwrap_or_else(|_elapsed| {
            Err(self.dial.overdue(format!("the refresh took longer than {patience:?}")))
        }))
    }

    /// Whether the program is started by its first call: its tools are known already.
    fn may_begin_idle(&self) -> bool {
        self.program.is_some()
            && self.timing.borrow().is_lazy
            && self.registry.has_catalog(&self.lease)
    }

    /// Waits for a reason to start the program that is idle.
    async fn idle(&mut self, waiting: &mut Vec<Ask>, stop: &CancellationToken) -> Wake {
        self.rests();
        loop {
            let day = self.timing.borrow_and_update().jittered(DAILY);
            return tokio::select! {
                () = stop.cancelled() => Wake::Over,
                () = self.lease.lost() => Wake::Over,
                () = self.demand.wanted() => Wake::Wanted,
                ask = next_ask(&mut self.asks, Instant::now()) => {
                    waiting.push(ask);
                    Wake::Wanted
                }
                () = sleep(day) => Wake::Daily,
                Ok(()) = self.timing.changed() => {
                    let Timing { is_lazy, idle_stop, .. } = *self.timing.borrow();
                    if is_lazy || idle_stop.is_some() {
                        continue;
                    }
                    Wake::Wanted
                }
            };
        }
    }

    /// Waits until it is time for the next attempt; `false` if there is to be none.
    async fn wait_for_next_attempt(
        &mut self,
        outage: &mut Outage,
        waiting: &mut Vec<Ask>,
        stop: &CancellationToken,
    ) -> bool {
        let wait = outage.next_wait();
        debug!(backend = %self.lease.name, ?wait, "next connection attempt");
        let until = Instant::now() + wait;
        loop {
            tokio::select! {
                () = stop.cancelled() => return false,
                () = self.lease.lost() => return false,
                () = sleep_until(until) => return true,
                // A person has just done what the refusal asked for.
                () = self.dial.login_changed() => return true,
                () = wanted_by_call(&self.demand, outage.next_call_at()) => return true,
                ask = next_ask(&mut self.asks, outage.next_ask_at(Instant::now())) => {
                    if outage.takes_ask(Instant::now()) {
                        waiting.push(ask);
                        return true;
                    }
                    answer(&mut vec![ask]);
                }
            }
        }
    }

    /// Waits for the calls on a connection that gets no new ones. This ends, since each call has a
    /// deadline.
    async fn finish(&mut self, connection: &Connection, stop: &CancellationToken) {
        if stop.is_cancelled() {
            return;
        }
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

    async fn close(&self, connection: &Connection) {
        if timeout(CLOSE_TIMEOUT, connection.peer.close()).await.is_err() {
            warn!(backend = %self.lease.name, "close timed out after {CLOSE_TIMEOUT:?}; dropping the connection");
        }
    }
}

/// Ends when the program behind `connection` was made idle, which is only so after nothing has used
/// it for `idle_stop`.
async fn unused(
    registry: &Registry,
    lease: &Lease,
    connection: &Connection,
    idle_stop: Option<Duration>,
) {
    let Some(time) = idle_stop else { return std::future::pending().await };
    loop {
        connection.idle_for(time).await;
        if registry.retire(lease) {
            return;
        }
        // A call came in between, or the last refresh has failed: look again later.
        sleep(time).await;
    }
}

/// Ends when a call waits, but not before `from`; without `from`, never.
async fn wanted_by_call(demand: &Demand, from: Option<Instant>) {
    let Some(from) = from else { return std::future::pending().await };
    sleep_until(from).await;
    demand.wanted().await;
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
