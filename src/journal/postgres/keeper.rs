//! The task that keeps this process a member of its group: its heartbeats, and the runs of replicas
//! that died or left.
//!
//! Must not: write the records of a run.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use uuid::Uuid;

use super::database::{Beat, DatabaseError, Member, OwnedRuns, Queried};
use super::membership::{BEAT, Peers};
use super::rows::id_of;
use super::{Database, Event, Postgres, Replica};
use crate::clock;
use crate::error_chain::error_chain;
use crate::journal::live::Live;
use crate::journal::record::Key;
use crate::model::maps::HashSet;

/// How long a heartbeat may take before its connection counts as broken.
const ANSWERS_WITHIN: Duration = Duration::from_secs(3);
/// How long a statement of the keeper may take, whatever `statement_timeout` says: no heartbeat is
/// sent meanwhile.
const KEEPS_WITHIN: Duration = Duration::from_secs(5);

/// The task that keeps this process a member of its group.
#[derive(Debug)]
pub struct Keeper {
    replica: Arc<Replica>,
    peers: Peers,
    database: Option<Database>,
    /// A takeover may have succeeded without an answer.
    takeover_in_doubt: bool,
    /// The replicas of the last heartbeat.
    members: HashSet<Uuid>,
}

impl Keeper {
    pub(in crate::journal) fn new(replica: Arc<Replica>) -> Self {
        Self {
            replica,
            peers: Peers::default(),
            database: None,
            takeover_in_doubt: false,
            members: <_>::default(),
        }
    }

    /// Sends heartbeats for as long as it is polled; takes nothing over once `leaving` is
    /// cancelled.
    pub async fn run(mut self, leaving: CancellationToken) {
        loop {
            let turn_start = clock::since_boot();
            if let Err(error) = self.turn(turn_start, &leaving).await {
                self.peers.note_gap();
                let (shared, why) = (&self.replica.shared, error_chain(&error));
                if error.lasts() {
                    shared.note_refusal(&why, error.cure());
                } else {
                    shared.note_failure(&why);
                }
            }
            sleep(BEAT.saturating_sub(clock::since_boot().saturating_sub(turn_start))).await;
        }
    }

    /// One heartbeat, and what it shows. After an error, the next one has a new connection.
    ///
    /// `turn_start` is the time before the heartbeat was sent, and the dispatch window counts from
    /// then. If it counted from the answer, a slow answer would have this replica dispatch calls
    /// after others took over its runs.
    async fn turn(&mut self, turn_start: Duration, leaving: &CancellationToken) -> Queried {
        let database = match self.database.take() {
            Some(open) if !open.is_closed() => open,
            _ => {
                let settings = &self.replica.settings;
                let statement_timeout = settings.statement_timeout.min(KEEPS_WITHIN);
                Database::open(&Postgres { statement_timeout, ..settings.clone() }).await?
            }
        };
        let member = *self.replica.member.borrow();
        match member {
            None => self.join(&database, turn_start).await?,
            Some(member) => match send_heartbeat(&database, member).await? {
                None => self.replica.leave_place(member).await,
                Some(beats) => {
                    self.replica.dispatch_window.extend(turn_start);
                    // A heartbeat is a write, too. There may be no other one that shows this.
                    self.replica.shared.note_success();
                    self.replica.group.lock().clone_from(&beats);
                    self.publish(&database, member, &beats).await?;
                    if !leaving.is_cancelled() {
                        let dead = self.peers.look(turn_start, member.id, &beats);
                        let members = beats.iter().map(|beat| beat.replica).collect();
                        self.take_over(&database, member, &dead, members).await?;
                    }
                }
            },
        }
        self.database = Some(database);
        Ok(())
    }

    /// Writes the backends of this replica, if its last heartbeat shows others: a replica takes
    /// over only the runs whose backends it has.
    async fn publish(&self, database: &Database, member: Member, beats: &[Beat]) -> Queried {
        let backends = self.replica.backends.lock().clone();
        match beats.iter().find(|beat| beat.replica == member.id) {
            Some(own) if own.backends != backends => database.publish(member, &backends).await,
            _ => Ok(()),
        }
    }

    /// Makes this process a member of the group.
    ///
    /// The address of MANTYX is compared before: replicas of another MANTYX would take over runs
    /// that their MANTYX does not know. [`Event::Joined`] comes before the member's id is set, so
    /// that the daemon knows the records of the group before anything is written.
    async fn join(&self, database: &Database, turn_start: Duration) -> Queried {
        let replica = &self.replica;
        let ids_of_group = [Key::Upstream, Key::Lost].map(|key| id_of(&key));
        let mut records = Live::of_rows(database.find(&ids_of_group, &[]).await?).records();
        if let Some(other) = records.upstream.take_if(|url| *url != replica.upstream) {
            return Err(DatabaseError::OtherUpstream(other));
        }
        let facts = database.facts(&replica.settings.schema).await?;
        *replica.doubt.lock() = facts.doubt();
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let member = database.join(&host).await?;
        replica.dispatch_window.extend(turn_start);
        let group = &replica.settings.group;
        info!(group, host, replica = %member.id, "joined the group of replicas");
        replica.events.send(Event::Joined(records)).await.ok();
        replica.shared.note_success();
        replica.member.send_replace(Some(member));
        Ok(())
    }

    /// Takes over the runs of dead replicas, and those that have no owner.
    ///
    /// 1. Each dead replica is fenced. Without the fence, one that only was slow could still write,
    ///    and a call would be dispatched by two drivers.
    /// 2. Takeovers without an answer are looked up: their runs would otherwise have an owner that
    ///    does not drive them.
    /// 3. Long calls and requests of replicas that are gone are inherited.
    /// 4. Runs are taken over until there are none left. The rows of the dead go last, as a
    ///    takeover tells by them which runs are free.
    async fn take_over(
        &mut self,
        database: &Database,
        member: Member,
        dead: &[Beat],
        members: HashSet<Uuid>,
    ) -> Queried {
        let replica = Arc::clone(&self.replica);
        for beat in dead {
            warn!(replica = %beat.replica, "a replica has died; taking over its runs");
            database.fence(beat).await?;
        }
        let dead_ids: Vec<_> = dead.iter().map(|beat| beat.replica).collect();
        self.takeover_in_doubt |= replica.takeover_in_doubt.swap(false, Ordering::Relaxed);
        // Until the takeovers below have been answered, they are in doubt, too.
        if std::mem::replace(&mut self.takeover_in_doubt, true) {
            let epochs = replica.owned_epochs();
            self.adopt(database, database.owned_runs(member, epochs).await?).await?;
        }
        // What is not of a run is looked at only when a replica is gone.
        if !dead_ids.is_empty() || self.members != members {
            let inherited = database.inherit(member, &dead_ids).await?;
            replica.events.send(Event::TakenOver(Live::of_rows(inherited).records())).await.ok();
            self.members = members;
        }
        loop {
            let backends: Vec<String> = replica.backends.lock().keys().cloned().collect();
            let dead_runs = database.take_over(member, &dead_ids, &backends).await?;
            if dead_runs.is_empty() {
                database.bury(&dead_ids).await?;
                self.takeover_in_doubt = false;
                return Ok(());
            }
            self.adopt(database, dead_runs).await?;
        }
    }

    /// Hands on the records of runs that are this replica's now.
    async fn adopt(&self, database: &Database, runs: OwnedRuns) -> Queried {
        if runs.is_empty() {
            return Ok(());
        }
        let replica = &self.replica;
        let records = replica.take_possession(database, runs).await?;
        info!(runs = records.runs.len(), "took over runs of other replicas");
        replica.shared.metrics.taken_over.inc_by(records.runs.len() as u64);
        replica.events.send(Event::TakenOver(records)).await.ok();
        Ok(())
    }
}

impl Replica {
    /// The runs that this replica owns, with their epochs.
    fn owned_epochs(&self) -> OwnedRuns {
        let epochs = self.epochs.lock();
        epochs.iter().filter_map(|(slot, epoch)| Some((*slot, (*epoch)?))).collect()
    }
}

/// Sends a heartbeat, which is tried again before the dispatch window has closed, however long
/// other statements may take.
async fn send_heartbeat(database: &Database, member: Member) -> Queried<Option<Vec<Beat>>> {
    timeout(ANSWERS_WITHIN, database.beat(member))
        .await
        .map_err(|_elapsed| DatabaseError::Slow(ANSWERS_WITHIN))?
}
