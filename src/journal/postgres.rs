//! The journal of several replicas, in PostgreSQL. Each run has one owner among them; the other replicas
//! can read what is kept of it, and take it over when its owner has died or leaves.
//!
//! A thread writes, as for the file: all that waits goes into one statement, which fails for the runs
//! that this replica has lost. The keeper is a task: it sends heartbeats, notices the death of others,
//! and takes over their runs. The two have a connection each, and reading has a third.
//!
//! docs/design/replicas.md says what it is not, and how it came about.
//!
//! Must not: decide what becomes of a run's calls (model/recovery.rs does).

#[cfg_attr(test, expect(dead_code, reason = "in tests, tests::simulated stands in"))]
mod database;
mod membership;
mod reading;
mod rows;
mod shared;

use std::collections::BTreeMap;
use std::fmt;
use std::fmt::{Display, Formatter};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Runtime;
use tokio::sync;
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::config::Host;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use uuid::Uuid;

#[cfg(not(test))]
use self::database::Database;
pub use self::database::{Beat, DatabaseError, Facts};
use self::database::{Claimed, Member, Queried, Verdict};
use self::membership::{BEAT, Lease, Peers};
use self::rows::{Epochs, Regained, RowKey, Rows, id_of, is_of_earlier, run_of};
pub use self::shared::{SharedApproval, SharedFile};
#[cfg(test)]
use self::tests::simulated::Database;
use super::batch::{Batch, Job, Waiter, Waiting, gather};
use super::live::{Live, json};
use super::record::{Change, Kept, Key, Slot};
use super::{NOT_ASKED, NotWritten, Shared};
use crate::clock;
use crate::error_chain::error_chain;
use crate::model::maps::HashSet;

/// The time between two attempts to write a batch.
const AGAIN: Duration = Duration::from_millis(500);
/// How long a heartbeat may take before its connection counts as broken.
const ANSWERS_WITHIN: Duration = Duration::from_secs(3);
/// How long a statement of the keeper may take, whatever `statement_timeout` says: no heartbeat is sent
/// meanwhile.
const KEEPS_WITHIN: Duration = Duration::from_secs(5);
/// How long the last writes may take at the stop while the database fails.
const LAST: Duration = Duration::from_secs(5);

/// How the database is reached (`state`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Postgres {
    pub url: tokio_postgres::Config,
    /// The authorities that may sign its certificate; `None`: the machine's.
    pub ca: Option<PathBuf>,
    pub schema: String,
    /// The replicas of a group share their runs.
    pub group: String,
    /// How long a statement may take before its connection is dropped.
    pub statement_timeout: Duration,
}

impl Display for Postgres {
    /// Where it is; neither its user nor a password.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { url, schema, group, .. } = self;
        let hosts = url.get_hosts().iter().map(|host| match host {
            Host::Tcp(name) => name.clone(),
            Host::Unix(path) => path.display().to_string(),
        });
        let hosts = hosts.collect::<Vec<_>>().join(", ");
        write!(f, "{hosts}, schema {schema}, group {group}")
    }
}

/// What has happened to the runs of this replica.
#[derive(Debug)]
pub enum Event {
    /// It has joined the group, in which these records are kept for all.
    Joined(Kept),
    /// These runs were another's, and are its own now.
    TakenOver(Kept),
    /// Another replica drives these runs now.
    Lost(Vec<Slot>),
}

/// This process as a replica.
#[derive(Debug)]
pub struct Replica {
    settings: Postgres,
    /// The address of MANTYX, which is one for all replicas of the group.
    upstream: String,
    shared: Arc<Shared>,
    /// `None`: it has not joined yet, or another has taken its place.
    member: watch::Sender<Option<Member>>,
    lease: Lease,
    epochs: Mutex<Epochs>,
    /// How often it has got runs from others, and which.
    regained: Mutex<(u64, Regained)>,
    events: sync::mpsc::Sender<Event>,
    /// For the records that a caller asks for.
    reader: sync::Mutex<Option<Arc<Database>>>,
    /// The group, by its last heartbeats.
    group: Mutex<Vec<Beat>>,
    /// What the database's settings put at risk.
    doubt: Mutex<Option<&'static str>>,
    /// The identities of this replica's backends, by their names.
    backends: Mutex<BTreeMap<String, String>>,
    /// A run may have become this replica's without an answer that says so.
    doubts: AtomicBool,
    /// Cancelled when the journal closes.
    closing: CancellationToken,
}

impl Replica {
    /// A replica that joins its group once its keeper runs; and what happens to its runs.
    pub(super) fn new(
        settings: Postgres,
        upstream: String,
        shared: Arc<Shared>,
    ) -> (Arc<Self>, sync::mpsc::Receiver<Event>) {
        let (events, happens) = sync::mpsc::channel(16);
        shared.health.lock().error = Some(NOT_ASKED.to_owned());
        let this = Self {
            settings,
            upstream,
            shared,
            member: watch::Sender::default(),
            lease: Lease::default(),
            epochs: Mutex::default(),
            regained: Mutex::default(),
            events,
            reader: sync::Mutex::default(),
            group: Mutex::default(),
            doubt: Mutex::default(),
            backends: Mutex::default(),
            doubts: AtomicBool::default(),
            closing: CancellationToken::new(),
        };
        (Arc::new(this), happens)
    }

    /// Whether it may dispatch calls: no other replica can have taken its place.
    pub(super) fn holds_lease(&self) -> bool {
        self.lease.holds(clock::since_boot())
    }

    /// Whether the database has answered lately.
    pub(super) fn is_heard(&self) -> bool {
        self.lease.is_fresh(clock::since_boot())
    }

    /// Whether another replica owns the run.
    pub(super) fn has_lost(&self, run: Slot) -> bool {
        self.epochs.lock().get(&run) == Some(&None)
    }

    /// How often it has got runs from others.
    pub(super) fn regained(&self) -> u64 {
        self.regained.lock().0
    }

    /// Whether `change`, given at such a count, is of a driver that its run had before.
    fn is_of_earlier(&self, change: &Change, times: u64) -> bool {
        is_of_earlier(change, times, &self.regained.lock().1)
    }

    pub(super) fn close(&self) {
        self.closing.cancel();
    }

    /// The replicas of the group, and the id of this one.
    pub fn members(&self) -> (Vec<Beat>, Option<Uuid>) {
        (self.group.lock().clone(), self.member.borrow().map(|member| member.id))
    }

    /// Says which backends this replica has, and how each is reached: it takes over the runs that it can
    /// serve.
    pub fn has_backends(&self, backends: BTreeMap<String, String>) {
        *self.backends.lock() = backends;
    }

    /// A backend that another replica reaches in another way.
    pub fn disagreement(&self) -> Option<String> {
        let own = self.backends.lock();
        let member = self.member.borrow().map(|member| member.id);
        let group = self.group.lock();
        let others = group.iter().filter(|beat| Some(beat.replica) != member);
        let mut theirs = others.flat_map(|beat| beat.backends.iter().map(|it| (&beat.host, it)));
        let differs =
            |(name, identity): (&String, &String)| own.get(name).is_some_and(|own| own != identity);
        let (host, (name, _)) = theirs.find(|(_, backend)| differs(*backend))?;
        Some(format!("The replica at {host} reaches `{name}` in another way than this one."))
    }

    /// What the settings of the database put at risk.
    pub fn doubt(&self) -> Option<&'static str> {
        *self.doubt.lock()
    }

    /// Another replica has taken the place of `member`, and drives all of its runs.
    async fn is_fenced(&self, member: Member) {
        if self.member.send_if_modified(|known| known.take_if(|it| *it == member).is_some()) {
            self.lease.end();
            warn!(
                "another replica has taken over the runs of this one, which joins the group again"
            );
            let lost: Vec<Slot> = {
                let mut epochs = self.epochs.lock();
                epochs.iter_mut().filter_map(|(slot, epoch)| epoch.take().map(|_| *slot)).collect()
            };
            self.loses(lost).await;
        }
    }

    async fn loses(&self, runs: Vec<Slot>) {
        self.shared.metrics.lost.inc_by(runs.len() as u64);
        self.events.send(Event::Lost(runs)).await.ok();
    }
}

/// Connects as the daemon does, makes nothing, and reads what the server says of itself.
pub async fn probe(settings: &Postgres) -> Queried<Facts> {
    Database::connect(settings).await?.facts(&settings.schema).await
}

/// A heartbeat, which is tried again before the lease has run out, however long other statements may
/// take.
async fn beat(database: &Database, member: Member) -> Queried<Option<Vec<Beat>>> {
    let slow = |_elapsed| DatabaseError::Slow(ANSWERS_WITHIN);
    timeout(ANSWERS_WITHIN, database.beat(member)).await.map_err(slow)?
}

/// The task that keeps this process a member of its group.
#[derive(Debug)]
pub struct Keeper {
    replica: Arc<Replica>,
    peers: Peers,
    database: Option<Database>,
    /// A claim may have succeeded without an answer.
    doubts: bool,
    /// The replicas of the last heartbeat.
    known: HashSet<Uuid>,
}

impl Keeper {
    pub(super) fn new(replica: Arc<Replica>) -> Self {
        Self {
            replica,
            peers: Peers::default(),
            database: None,
            doubts: false,
            known: <_>::default(),
        }
    }

    /// Sends heartbeats for as long as it is polled; takes nothing over once `leaving` is cancelled.
    pub async fn run(mut self, leaving: CancellationToken) {
        loop {
            let begun = clock::since_boot();
            if let Err(error) = self.turn(begun, &leaving).await {
                self.peers.is_broken();
                let (shared, why) = (&self.replica.shared, error_chain(&error));
                if error.lasts() {
                    shared.is_refused(&why, error.cure());
                } else {
                    shared.fails(&why);
                }
            }
            sleep(BEAT.saturating_sub(clock::since_boot().saturating_sub(begun))).await;
        }
    }

    /// One heartbeat, and what it shows. After an error, the next one has a new connection.
    async fn turn(&mut self, begun: Duration, leaving: &CancellationToken) -> Queried {
        let database = match self.database.take() {
            Some(open) if !open.is_closed() => open,
            _ => {
                let settings = &self.replica.settings;
                let statement_timeout = settings.statement_timeout.min(KEEPS_WITHIN);
                Database::open(&Postgres { statement_timeout, ..settings.clone() }).await?
            }
        };
        let known = *self.replica.member.borrow();
        match known {
            None => self.join(&database, begun).await?,
            Some(member) => match beat(&database, member).await? {
                None => self.replica.is_fenced(member).await,
                Some(beats) => {
                    self.replica.lease.extend(begun);
                    // A heartbeat is a write, too. There may be no other one that shows this.
                    self.replica.shared.works();
                    self.replica.group.lock().clone_from(&beats);
                    let backends = self.replica.backends.lock().clone();
                    let own = beats.iter().find(|beat| beat.replica == member.id);
                    if own.is_some_and(|own| own.backends != backends) {
                        database.publish(member, &backends).await?;
                    }
                    if !leaving.is_cancelled() {
                        let dead = self.peers.look(begun, member.id, &beats);
                        let all = beats.iter().map(|beat| beat.replica).collect();
                        self.take_over(&database, member, &dead, all).await?;
                    }
                }
            },
        }
        self.database = Some(database);
        Ok(())
    }

    /// Makes this process a member of the group.
    async fn join(&self, database: &Database, begun: Duration) -> Queried {
        let replica = &self.replica;
        let of_all = [Key::Upstream, Key::Lost].map(|key| id_of(&key));
        let mut kept = Live::of_rows(database.find(&of_all, &[]).await?).kept();
        if let Some(other) = kept.upstream.take_if(|it| *it != replica.upstream) {
            return Err(DatabaseError::OtherUpstream(other));
        }
        let facts = database.facts(&replica.settings.schema).await?;
        *replica.doubt.lock() = facts.doubt();
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let member = database.join(&host).await?;
        replica.lease.extend(begun);
        let group = &replica.settings.group;
        info!(group, host, replica = %member.id, "joined the group of replicas");
        replica.events.send(Event::Joined(kept)).await.ok();
        replica.shared.works();
        replica.member.send_replace(Some(member));
        Ok(())
    }

    /// Takes over the runs of dead replicas, and those that have no owner.
    async fn take_over(
        &mut self,
        database: &Database,
        member: Member,
        dead: &[Beat],
        all: HashSet<Uuid>,
    ) -> Queried {
        let replica = Arc::clone(&self.replica);
        for one in dead {
            warn!(replica = %one.replica, "a replica has died; taking over its runs");
            database.fence(one).await?;
        }
        let dead: Vec<_> = dead.iter().map(|beat| beat.replica).collect();
        self.doubts |= replica.doubts.swap(false, Ordering::Relaxed);
        if std::mem::replace(&mut self.doubts, true) {
            let known = replica
                .epochs
                .lock()
                .iter()
                .filter_map(|(slot, epoch)| Some((*slot, (*epoch)?)))
                .collect();
            self.adopt(database, database.claimed(member, known).await?).await?;
        }
        // What is not of a run is looked at only when a replica is gone.
        if !dead.is_empty() || self.known != all {
            let inherited = database.inherit(member, &dead).await?;
            replica.events.send(Event::TakenOver(Live::of_rows(inherited).kept())).await.ok();
            self.known = all;
        }
        loop {
            let backends: Vec<String> = replica.backends.lock().keys().cloned().collect();
            let claimed = database.claim(member, &dead, &backends).await?;
            if claimed.is_empty() {
                database.bury(&dead).await?;
                self.doubts = false;
                return Ok(());
            }
            self.adopt(database, claimed).await?;
        }
    }

    /// Hands on the records of runs that are this replica's now.
    async fn adopt(&self, database: &Database, runs: Claimed) -> Queried {
        if runs.is_empty() {
            return Ok(());
        }
        let replica = &self.replica;
        let kept = replica.kept_of(database, runs).await?;
        info!(runs = kept.runs.len(), "took over runs of other replicas");
        replica.shared.metrics.taken_over.inc_by(kept.runs.len() as u64);
        replica.events.send(Event::TakenOver(kept)).await.ok();
        Ok(())
    }
}

/// The thread that writes.
pub(super) struct Writer {
    replica: Arc<Replica>,
    /// The connection, and for whom it writes in which session.
    session: Option<(Database, Member, i64)>,
    /// The digests of routes that the table has.
    routes: HashSet<Box<str>>,
}

impl Writer {
    pub(super) fn new(replica: Arc<Replica>) -> Self {
        Self { replica, session: None, routes: HashSet::default() }
    }

    /// Writes until the journal is closed. Blocks the thread, which reads its connection itself: a write
    /// wakes no other.
    pub(super) fn run(mut self, runtime: &Runtime, given: &mpsc::Receiver<Job>) {
        while let Some(batch) = gather(given) {
            if runtime.block_on(self.take(batch)) {
                break;
            }
        }
        runtime.block_on(self.leave());
    }

    /// Leaves the group. The heartbeats have ended.
    async fn leave(self) {
        if let Some((database, member, _)) = &self.session
            && let Err(error) = database.leave(*member).await
        {
            warn!(
                error = error_chain(&error),
                "cannot leave the group; others wait until it counts as dead"
            );
        }
    }

    /// Writes a batch, and tells those who wait for it. Whether it was the last one.
    async fn take(&mut self, batch: Batch) -> bool {
        let Batch { changes, waiting, weight, stop } = batch;
        let replica = Arc::clone(&self.replica);
        let mut closed_at = None;
        let mut is_repeated = false;
        let verdict = loop {
            let begun = Instant::now();
            let error = match self.write(&changes, &waiting).await {
                Ok(verdict) => {
                    replica.shared.metrics.commits.observe(begun.elapsed());
                    break verdict;
                }
                Err(error) => error,
            };
            // Its statements may go on. The next session waits for their end.
            self.session = None;
            is_repeated = true;
            replica.shared.metrics.errors.inc();
            replica.shared.fails(&error_chain(&error));
            if replica.closing.is_cancelled() && closed_at.get_or_insert(begun).elapsed() > LAST {
                break Verdict::default();
            }
            sleep(AGAIN).await;
        };
        tell(&replica, &changes, waiting, verdict, is_repeated);
        replica.shared.queue.remove(weight);
        stop
    }

    /// Writes what can be written of `changes`.
    async fn write(&mut self, changes: &[Change], waiting: &[Waiting]) -> Queried<Verdict> {
        let replica = Arc::clone(&self.replica);
        loop {
            let mut members = replica.member.subscribe();
            let joined = members.wait_for(Option::is_some);
            let joined = replica.closing.run_until_cancelled(joined).await;
            let Some(member) = joined.and_then(|member| *member.ok()?) else {
                return Ok(Verdict::default());
            };
            // While nothing was written, nothing has read what PostgreSQL sent.
            for _ in 0..2 {
                yield_now().await;
            }
            if self.session.as_ref().is_none_or(|(open, of, _)| open.is_closed() || *of != member) {
                self.session = None;
                let database = Database::connect(&replica.settings).await?;
                let Some(session) = database.begin(member).await? else {
                    replica.is_fenced(member).await;
                    continue;
                };
                self.session = Some((database, member, session));
            }
            let rows = self.rows(changes, waiting);
            let Some((database, _, session)) = &self.session else { continue };
            if rows.is_empty() {
                return Ok(Verdict { lives: true, ..Verdict::default() });
            }
            let verdict = database.write((member, *session), &rows).await?;
            if !verdict.lives {
                replica.is_fenced(member).await;
                continue;
            }
            replica.shared.works();
            self.settle(rows, &verdict).await;
            return Ok(verdict);
        }
    }

    /// The rows of `changes`, without those whose callers have stopped waiting.
    fn rows(&self, changes: &[Change], waiting: &[Waiting]) -> Rows {
        let epochs = self.replica.epochs.lock();
        let mut rows = Rows::default();
        for (range, waiter, times) in waiting {
            let is_left = matches!(waiter, Waiter::Told(done) if done.is_closed());
            for change in changes.get(range.clone()).filter(|_| !is_left).unwrap_or_default() {
                if !self.replica.is_of_earlier(change, *times) {
                    rows.add(change, &epochs, &self.routes);
                }
            }
        }
        rows
    }

    /// Takes in what came of a write.
    async fn settle(&mut self, rows: Rows, verdict: &Verdict) {
        self.routes.extend(rows.routes);
        let lost: Vec<Slot> = {
            let mut epochs = self.replica.epochs.lock();
            for (slot, epoch) in &rows.owned {
                let epoch = verdict.held.contains(slot).then_some(*epoch);
                epochs.insert(*slot, epoch);
            }
            for slot in rows.forgotten.iter().chain(&rows.released) {
                epochs.remove(slot);
                self.replica.regained.lock().1.remove(slot);
            }
            rows.owned.into_keys().filter(|slot| !verdict.held.contains(slot)).collect()
        };
        if !lost.is_empty() {
            self.replica.loses(lost).await;
        }
    }
}

/// Tells those who wait for `changes` what the database made of them.
fn tell(
    replica: &Replica,
    changes: &[Change],
    waiting: Vec<Waiting>,
    mut verdict: Verdict,
    is_repeated: bool,
) {
    for (range, waiter, times) in waiting {
        let changes = changes.get(range).unwrap_or_default();
        let is_held = |change: &Change| {
            run_of(change).is_none_or(|it| verdict.held.contains(&it))
                && !replica.is_of_earlier(change, times)
        };
        let is_sent = |change: &Change| match change {
            Change::Dispatch(key, _) => verdict.first.contains(&json(&Key::Call(key.clone()))),
            _ => true,
        };
        // Two drivers of a run that was lost and got back may answer a call in one batch.
        let is_first = |first: &mut HashSet<RowKey>, change: &Change| match change {
            // The owner may have sent the call since, and its answer is the one that was written.
            Change::Refuse(..) if !is_held(change) => false,
            Change::Answer(key, _) | Change::Refuse(key, _) => {
                first.remove(&json(&Key::Answer(key.clone())))
            }
            Change::Begin(key, _) => first.remove(&json(&Key::Request(key.clone()))),
            Change::Replace(..) => is_held(change),
            _ => true,
        };
        // The caller may have gone away.
        match waiter {
            Waiter::Told(done) => {
                let written = match (changes.iter().all(is_held), changes.iter().all(is_sent)) {
                    _ if !verdict.lives => Err(NotWritten::Failed),
                    (true, true) => Ok(()),
                    // The first attempt may have written it.
                    (true, false) if is_repeated => Err(NotWritten::Failed),
                    _ => Err(NotWritten::Taken),
                };
                done.send(written).ok();
            }
            Waiter::Kept(done) => drop(done.map(|done| done.send(()))),
            Waiter::First(done) => {
                let is_first = |change| is_first(&mut verdict.first, change);
                done.send(changes.iter().all(is_first)).ok();
            }
            Waiter::Answer(_, done) => drop(done.send(None)),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
