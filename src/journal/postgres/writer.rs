//! The thread that writes batches of changes to the database, as far as this replica owns their
//! runs.
//!
//! Must not: take over a run.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};
use tracing::warn;

use super::database::{Member, Queried, Verdict};
use super::rows::{RowKey, Rows, run_of};
use super::{AGAIN, Database, Replica};
use crate::error_chain::error_chain;
use crate::journal::NotWritten;
use crate::journal::batch::{Batch, Group, Job, Waiter, gather};
use crate::journal::live::json;
use crate::journal::record::{Change, Key, Slot};
use crate::model::maps::HashSet;

/// How long the last writes may take at the stop while the database fails.
const LAST: Duration = Duration::from_secs(5);

/// The thread that writes.
pub(in crate::journal) struct Writer {
    replica: Arc<Replica>,
    session: Option<Session>,
    /// The digests of routes that the table has.
    routes: HashSet<Box<str>>,
}

/// A connection for writing. The database accepts the writes of the latest session alone.
struct Session {
    database: Database,
    /// For whom it writes.
    member: Member,
    number: i64,
}

/// How often a batch was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attempt {
    First,
    /// An earlier attempt has failed without an answer, and may have written the batch.
    Repeated,
}

impl Writer {
    pub(in crate::journal) fn new(replica: Arc<Replica>) -> Self {
        Self { replica, session: None, routes: HashSet::default() }
    }

    /// Writes until the journal is closed. Blocks the thread, which reads its connection itself: a
    /// write wakes no other.
    pub(in crate::journal) fn run(mut self, runtime: &Runtime, jobs: &mpsc::Receiver<Job>) {
        while let Some(batch) = gather(jobs) {
            if runtime.block_on(self.take(batch)) {
                break;
            }
        }
        runtime.block_on(self.leave());
    }

    /// Leaves the group, after the last heartbeat, so that others take over the runs at once.
    pub(super) async fn leave(self) {
        if let Some(Session { database, member, .. }) = &self.session
            && let Err(error) = database.leave(*member).await
        {
            warn!(
                error = error_chain(&error),
                "cannot leave the group; others wait until it counts as dead"
            );
        }
    }

    /// Writes a batch, and tells those who wait for it. Returns whether it was the last one.
    ///
    /// A batch whose write failed is written again before any later one: changes of one run must
    /// reach the table in the order in which they were given. An attempt without an answer may have
    /// written the batch. So the next attempt has a new session, which waits for the end of all
    /// statements of the session before; otherwise an old statement could overwrite what a later
    /// batch has written.
    pub(super) async fn take(&mut self, batch: Batch) -> bool {
        let Batch { changes, groups, weight, stop } = batch;
        let replica = Arc::clone(&self.replica);
        let mut closed_at = None;
        let mut attempt = Attempt::First;
        let verdict = loop {
            let start = Instant::now();
            let error = match self.write(&changes, &groups).await {
                Ok(verdict) => {
                    replica.shared.metrics.commits.observe(start.elapsed());
                    break verdict;
                }
                Err(error) => error,
            };
            self.session = None;
            attempt = Attempt::Repeated;
            replica.shared.metrics.errors.inc();
            replica.shared.note_failure(&error_chain(&error));
            if replica.shared.closing.is_cancelled()
                && closed_at.get_or_insert(start).elapsed() > LAST
            {
                break Verdict::default();
            }
            sleep(AGAIN).await;
        };
        tell(&replica, &changes, groups, verdict, attempt);
        replica.shared.queue.remove(weight);
        stop
    }

    /// Writes what can be written of `changes`: a statement has only the rows of runs that this
    /// replica owns, and the database checks that once more. A replica that was fenced joins the
    /// group again, and then writes what is left for it to write.
    async fn write(&mut self, changes: &[Change], groups: &[Group]) -> Queried<Verdict> {
        let replica = Arc::clone(&self.replica);
        loop {
            let Some(member) = replica.joined().await else {
                return Ok(Verdict::default());
            };
            // While nothing was written, nothing has read what PostgreSQL sent.
            for _ in 0..2 {
                yield_now().await;
            }
            if !self.session.as_ref().is_some_and(|session| session.serves(member)) {
                self.session = None;
                let database = Database::connect(&replica.settings).await?;
                let Some(number) = database.begin(member).await? else {
                    replica.leave_place(member).await;
                    continue;
                };
                self.session = Some(Session { database, member, number });
            }
            let rows = self.rows(changes, groups);
            let Some(session) = &self.session else { continue };
            if rows.is_empty() {
                return Ok(Verdict { lives: true, ..Verdict::default() });
            }
            let verdict = session.database.write((member, session.number), &rows).await?;
            if !verdict.lives {
                replica.leave_place(member).await;
                continue;
            }
            replica.shared.note_success();
            self.settle(rows, &verdict).await;
            return Ok(verdict);
        }
    }

    /// The rows of `changes`, without those whose callers have stopped waiting: such a caller acts
    /// as if nothing was written. A dispatch that was written after all would have a later driver
    /// answer OUTCOME_UNKNOWN to a call that was never sent.
    pub(super) fn rows(&self, changes: &[Change], groups: &[Group]) -> Rows {
        let epochs = self.replica.epochs.lock();
        let mut rows = Rows::default();
        for Group { range, waiter, regained } in groups {
            if matches!(waiter, Waiter::Commit(done) if done.is_closed()) {
                continue;
            }
            for change in changes.get(range.clone()).unwrap_or_default() {
                if !self.replica.is_of_earlier(change, *regained) {
                    rows.add(change, &epochs, &self.routes);
                }
            }
        }
        rows
    }

    /// Notes which runs the database has confirmed as this replica's. A run that it did not confirm
    /// is another's: its driver must end before it sends a call that the other driver sends, too.
    async fn settle(&mut self, rows: Rows, verdict: &Verdict) {
        self.routes.extend(rows.routes);
        {
            let mut epochs = self.replica.epochs.lock();
            for (slot, epoch) in &rows.owned {
                epochs.insert(*slot, verdict.held.contains(slot).then_some(*epoch));
            }
            for slot in rows.forgotten.iter().chain(&rows.released) {
                epochs.remove(slot);
                self.replica.regained.lock().1.remove(slot);
            }
        }
        let slots = rows.owned.into_keys();
        let lost_runs: Vec<Slot> = slots.filter(|slot| !verdict.held.contains(slot)).collect();
        if !lost_runs.is_empty() {
            self.replica.report_lost(lost_runs).await;
        }
    }
}

impl Session {
    fn serves(&self, member: Member) -> bool {
        !self.database.is_closed() && self.member == member
    }
}

impl Replica {
    /// Waits until this process is a member of its group. `None`: the journal is closed.
    async fn joined(&self) -> Option<Member> {
        let mut members = self.member.subscribe();
        let membership = members.wait_for(Option::is_some);
        let member = self.shared.closing.run_until_cancelled(membership).await?;
        *member.ok()?
    }
}

/// Tells those who wait for `changes` what the database made of them.
///
/// A caller that is told `Ok` may dispatch its call, so a dispatch is confirmed only if the run is
/// this replica's and the database has let this row be the one that dispatches. If the batch was
/// repeated, the row that came first may be the one of the earlier attempt. Then the caller is told
/// that the write failed: after "taken", the driver would end, and nothing would drive the run.
pub(super) fn tell(
    replica: &Replica,
    changes: &[Change],
    groups: Vec<Group>,
    mut verdict: Verdict,
    attempt: Attempt,
) {
    for Group { range, waiter, regained } in groups {
        let changes = changes.get(range).unwrap_or_default();
        let owner_gave = |change: &Change| {
            run_of(change).is_none_or(|run| verdict.held.contains(&run))
                && !replica.is_of_earlier(change, regained)
        };
        // The caller may have gone away.
        match waiter {
            Waiter::Commit(done) => {
                let all_owned = changes.iter().all(owner_gave);
                let all_may_go = changes.iter().all(|change| may_go(&verdict, change));
                let outcome = if !verdict.lives {
                    Err(NotWritten::Failed)
                } else if all_owned && all_may_go {
                    Ok(())
                } else if all_owned && attempt == Attempt::Repeated {
                    Err(NotWritten::Failed)
                } else {
                    Err(NotWritten::Taken)
                };
                done.send(outcome).ok();
            }
            Waiter::Keep(done) => drop(done.map(|done| done.send(()))),
            Waiter::First(done) => {
                let first = &mut verdict.first;
                let all_win = changes.iter().all(|change| wins(first, change, owner_gave(change)));
                done.send(all_win).ok();
            }
            Waiter::Answer(_, done) => drop(done.send(None)),
        }
    }
}

/// Whether the database lets `change` send its call, if it is one that dispatches.
fn may_go(verdict: &Verdict, change: &Change) -> bool {
    match change {
        Change::Dispatch(key, _) => verdict.first.contains(&json(&Key::Call(key.clone()))),
        _ => true,
    }
}

/// Whether `change` is the first of its key, if only the first one counts. Two drivers of a run
/// that was lost and got back may answer a call in one batch: the first of them takes the key from
/// `first`, and the second is told that it came too late. Otherwise both answers would be posted.
fn wins(first: &mut HashSet<RowKey>, change: &Change, is_owned: bool) -> bool {
    match change {
        // The owner may have sent the call since, and its answer is the one that was written.
        Change::Refuse(..) if !is_owned => false,
        Change::Answer(key, _) | Change::Refuse(key, _) => {
            first.remove(&json(&Key::Answer(key.clone())))
        }
        Change::Begin(key, _) => first.remove(&json(&Key::Request(key.clone()))),
        Change::Replace(..) => is_owned,
        _ => true,
    }
}
