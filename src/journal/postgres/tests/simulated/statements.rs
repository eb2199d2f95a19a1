//! What each statement does. A row that it locks counts as it is once it has the lock; all else is
//! as the snapshot shows it.
//!
//! The clauses on which safety rests are looked up in the text of the statement (`Clauses`):
//! without one, the statement works without it.

mod claims;
mod notices;
mod shared;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use uuid::Uuid;

pub(super) use self::claims::{owned_runs, take_over, take_waiting_run};
pub(super) use self::notices::{claim_notices, settle_notices};
pub(super) use self::shared::{approvals, ask, cancel, cancellations, end, files, write_file};
use super::tables::{Batch, Given, Lock, RecordRow, ReplicaRow, RunRow, Tables, Tx};
use crate::journal::postgres::database::{Beat, Member, Verdict};
use crate::journal::postgres::rows::{Id, RowKey};
use crate::journal::record::Slot;

/// What the texts of the statements say.
struct Clauses;

impl Clauses {
    const WRITE: &str = include_str!("../../sql/write.sql");

    /// How a write looks for its replica.
    fn me() -> &'static str {
        Self::WRITE.split_once(" begun as (").expect("it begins with its replica").0
    }

    /// A write locks its replica.
    fn locks_replica() -> bool {
        Self::me().contains("for share\n")
    }

    /// A write is of one connection.
    fn compares_session() -> bool {
        Self::me().contains("session = $3")
    }

    /// A write is for runs that its replica owns.
    fn compares_owner() -> bool {
        Self::WRITE
            .contains("and run.epoch = given.epoch and run.owner is not distinct from me.id\n")
    }

    /// A run that was created begins once.
    fn begins_first() -> bool {
        Self::WRITE.contains("where row.owner is null or (\n")
    }

    /// A write locks the runs that it is for.
    fn locks_runs() -> bool {
        Self::WRITE.contains("for share of run\n")
    }

    /// A dispatch is written once.
    fn compares() -> bool {
        Self::WRITE
            .contains("where not excluded.dispatches or record.attempts < excluded.attempts\n")
    }

    /// The first answer stays.
    fn first_wins() -> bool {
        Self::WRITE.matches("on conflict (grp, id) do nothing\n").count() == 1
    }

    /// A late answer waits for what the run's owner does at that moment.
    fn locks_late_runs() -> bool {
        Self::WRITE.contains("and not is_over\n  order by slot for no key update\n")
    }

    /// An answer to a call that was not sent is the run's owner's.
    fn fences_refusals() -> bool {
        Self::WRITE.contains("where (not row.is_owners or row.run in (select slot from held))\n")
    }

    /// Of the drivers that may read a call, one sends it.
    fn claims() -> bool {
        Self::WRITE
            .contains("\n    and (row.claim is null or row.claim in (select id from claimed))\n")
    }

    /// Of those drivers, one refuses it.
    fn claims_refusals() -> bool {
        Self::WRITE
            .contains("\n  and (row.claim is null or row.claim in (select id from claimed))\n")
    }

    /// Each new owner of a run has an epoch of its own.
    fn raises_epochs() -> bool {
        include_str!("../../sql/take_over.sql").contains("epoch = run.epoch + 1,")
    }
}

fn slot(number: i64) -> Slot {
    Slot(number.unsigned_abs())
}

type Records = Vec<(RowKey, Vec<u8>)>;

fn values<'a>(records: impl Iterator<Item = &'a RecordRow>) -> Records {
    records.map(|row| (row.key.clone(), row.value.to_vec())).collect()
}

fn is_member(tables: &Tables, member: Member) -> bool {
    tables.replicas.get(&member.id).is_some_and(|row| row.generation == member.generation)
}

/// Locks the row of `member`; whether no other has taken its place.
async fn locks_member(tx: &mut Tx, member: Member, is_exclusive: bool) -> bool {
    if !is_member(&tx.snapshot, member) {
        return false;
    }
    tx.lock(Lock::Replica(member.id), is_exclusive).await;
    is_member(&tx.latest(), member)
}

pub(super) fn join(mut tx: Tx, id: Uuid, host: String) -> (Tx, Member) {
    let now = tx.now();
    tx.write(move |tables| {
        let backends = BTreeMap::new();
        let row = ReplicaRow { generation: 1, session: 0, host, since: now, backends };
        tables.replicas.insert(id, row);
        tables.heartbeats.insert(id, 1);
    });
    (tx, Member { id, generation: 1 })
}

/// Changes the row of `member` with `change`, if no other has taken its place; the row then.
async fn update_replica(
    mut tx: Tx,
    member: Member,
    change: impl FnOnce(&mut ReplicaRow) + Send,
) -> (Tx, Option<ReplicaRow>) {
    if !is_member(&tx.snapshot, member) {
        return (tx, None);
    }
    tx.lock(Lock::Replica(member.id), true).await;
    let latest = tx.latest();
    let row = latest.replicas.get(&member.id).filter(|row| row.generation == member.generation);
    let Some(mut row) = row.cloned() else { return (tx, None) };
    change(&mut row);
    let new = row.clone();
    tx.write(move |tables| drop(tables.replicas.insert(member.id, new)));
    (tx, Some(row))
}

pub(super) async fn publish(
    tx: Tx,
    member: Member,
    backends: BTreeMap<String, String>,
) -> (Tx, ()) {
    let (tx, _) = update_replica(tx, member, |row| row.backends = backends).await;
    (tx, ())
}

pub(super) async fn begin(tx: Tx, member: Member) -> (Tx, Option<i64>) {
    let (tx, row) = update_replica(tx, member, |row| row.session += 1).await;
    (tx, row.map(|row| row.session))
}

pub(super) async fn fence(tx: Tx, dead: Member) -> (Tx, ()) {
    let (tx, _) = update_replica(tx, dead, |row| row.generation += 1).await;
    (tx, ())
}

pub(super) async fn beat(mut tx: Tx, member: Member) -> (Tx, Option<Vec<Beat>>) {
    if !is_member(&tx.snapshot, member) || !tx.snapshot.heartbeats.contains_key(&member.id) {
        return (tx, None);
    }
    tx.lock(Lock::Heartbeat(member.id), true).await;
    if !tx.latest().heartbeats.contains_key(&member.id) {
        return (tx, None);
    }
    tx.write(move |tables| {
        if let Some(counter) = tables.heartbeats.get_mut(&member.id) {
            *counter += 1;
        }
    });
    let beats = tx.snapshot.replicas.iter().filter_map(|(id, row)| {
        Some(Beat {
            replica: *id,
            generation: row.generation,
            counter: *tx.snapshot.heartbeats.get(id)?,
            host: row.host.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            since: row.since,
            backends: row.backends.clone(),
        })
    });
    let beats = beats.collect();
    (tx, Some(beats))
}

/// Adds the runs that begin with this batch; those that are new.
async fn add_runs(tx: &mut Tx, member: Member, batch: &Batch) -> BTreeSet<i64> {
    let mut begun = BTreeSet::new();
    for (slot, name, needs, owner) in batch.begun.clone() {
        let owner = owner.and_then(|owner| tx.snapshot.records.get(&owner));
        if Clauses::begins_first() && owner.is_some_and(|it| it.holder != Some(member.id)) {
            continue;
        }
        let is_over = batch.ended.contains(&slot);
        tx.lock(Lock::Run(slot), true).await;
        let is_free = loop {
            if !is_over {
                tx.lock(Lock::Name(name), true).await;
            }
            let latest = tx.latest();
            let same = |(at, run): (&i64, &RunRow)| {
                *at == slot || (!is_over && !run.is_over && run.name == name)
            };
            let other = latest.runs.iter().find(|(at, run)| same((at, run))).map(|(at, _)| *at);
            match other {
                None => break true,
                // It may end, or be forgotten.
                Some(other) if tx.is_changing(&Lock::Run(other)) => tx.wait().await,
                Some(_) => break false,
            }
        };
        if is_free {
            begun.insert(slot);
            let row =
                RunRow { name, owner: Some(member.id), epoch: 1, needs, is_over, waits: false };
            tx.write(move |tables| drop(tables.runs.insert(slot, row)));
        }
    }
    begun
}

/// The runs of the batch that this replica owns.
async fn own_runs(tx: &mut Tx, member: Member, batch: &Batch) -> BTreeSet<i64> {
    let mut mine = BTreeSet::new();
    let is_mine = |tables: &Tables, slot: i64, epoch: i64| {
        let run = tables.runs.get(&slot);
        let is_own = |run: &RunRow| run.epoch == epoch && run.owner == Some(member.id);
        run.is_some_and(|run| is_own(run) || !Clauses::compares_owner())
    };
    for (slot, epoch) in batch.owned.clone() {
        if !is_mine(&tx.snapshot, slot, epoch) {
            continue;
        }
        if Clauses::locks_runs() {
            tx.lock(Lock::Run(slot), false).await;
            if !is_mine(&tx.latest(), slot, epoch) {
                continue;
            }
        }
        mine.insert(slot);
    }
    mine
}

pub(super) async fn write(mut tx: Tx, member: Member, session: i64, batch: Batch) -> (Tx, Verdict) {
    let is_me = |tables: &Tables| {
        let row = tables.replicas.get(&member.id);
        let is_session = |row: &ReplicaRow| row.session == session || !Clauses::compares_session();
        row.is_some_and(|row| row.generation == member.generation && is_session(row))
    };
    let mut lives = is_me(&tx.snapshot);
    if lives && Clauses::locks_replica() {
        tx.lock(Lock::Replica(member.id), false).await;
        lives = is_me(&tx.latest());
    }
    let mut verdict = Verdict { lives, ..Verdict::default() };
    let (mut begun, mut mine) = (BTreeSet::new(), BTreeSet::new());
    if lives {
        begun = add_runs(&mut tx, member, &batch).await;
        mine = own_runs(&mut tx, member, &batch).await;
    } else {
        tx.step("is fenced");
    }
    let held: BTreeSet<i64> = begun.union(&mine).copied().collect();
    let holds = |run: Option<i64>| run.is_some_and(|run| held.contains(&run));
    verdict.held.extend(held.iter().map(|number| slot(*number)));
    add_first(&mut tx, member, &batch, &holds, &mut verdict).await;
    if lives {
        put(&mut tx, member, &batch, &holds, &mut verdict).await;
        remove(&mut tx, member, &batch, &holds).await;
        end_runs(&mut tx, &batch, &mine).await;
    }
    (tx, verdict)
}

/// Keeps what no other has kept before.
async fn add_first(
    tx: &mut Tx,
    member: Member,
    batch: &Batch,
    holds: &(impl Fn(Option<i64>) -> bool + Sync),
    verdict: &mut Verdict,
) {
    for Given { id, call, row, is_owners, claim, .. } in batch.first.clone() {
        if is_owners && Clauses::fences_refusals() && !holds(row.run) {
            continue;
        }
        let is_claimed = take_claim(tx, claim, row.run.filter(|_| holds(row.run))).await;
        if Clauses::claims_refusals() && !is_claimed {
            continue;
        }
        let is_over = |run: i64| tx.snapshot.runs.get(&run).is_some_and(|run| run.is_over);
        let goes_on = holds(row.run) && !row.run.is_some_and(is_over);
        let is_with_call = || goes_on && batch.kept.iter().any(|kept| kept.id == call);
        let may = (tx.snapshot.records.contains_key(&call)
            && (holds(row.run) || may_be_late(tx, row.run).await))
            || is_with_call()
            || (row.run.is_none() && verdict.lives);
        if !may {
            continue;
        }
        tx.lock(Lock::Record(id), true).await;
        if Clauses::first_wins() && tx.latest().records.contains_key(&id) {
            continue;
        }
        verdict.first.insert(row.key.clone());
        let holder = verdict.lives.then_some(member.id);
        tx.write(move |tables| drop(tables.records.insert(id, RecordRow { holder, ..row })));
    }
}

/// Whether an answer may come although another replica drives `run`.
async fn may_be_late(tx: &mut Tx, run: Option<i64>) -> bool {
    let Some(run) = run else { return false };
    if !Clauses::locks_late_runs() {
        return true;
    }
    tx.lock(Lock::Run(run), true).await;
    tx.latest().runs.get(&run).is_some_and(|run| !run.is_over)
}

/// Claims a call for `run`; `false` if another run's driver has claimed it.
async fn take_claim(tx: &mut Tx, claim: Option<Id>, run: Option<i64>) -> bool {
    let (Some(claim), Some(run)) = (claim, run) else { return claim.is_none() };
    tx.lock(Lock::Claim(claim), true).await;
    if tx.latest().claims.get(&claim).is_some_and(|by| *by != run) {
        tx.step("finds a call claimed");
        return false;
    }
    tx.write(move |tables| {
        tables.claims.insert(claim, run);
    });
    true
}

async fn put(
    tx: &mut Tx,
    member: Member,
    batch: &Batch,
    holds: &(impl Fn(Option<i64>) -> bool + Sync),
    verdict: &mut Verdict,
) {
    for Given { id, row, dispatches, claim, .. } in batch.kept.clone() {
        if row.run.is_some() && !holds(row.run) {
            continue;
        }
        if !take_claim(tx, claim, row.run).await && Clauses::claims() {
            continue;
        }
        tx.lock(Lock::Record(id), true).await;
        let latest = tx.latest();
        let before = latest.records.get(&id);
        let is_later = before.is_none_or(|before| {
            before.attempts.zip(row.attempts).is_some_and(|(before, now)| before < now)
        });
        if dispatches && Clauses::compares() && !is_later {
            tx.step("finds a call dispatched");
            continue;
        }
        if dispatches {
            verdict.first.insert(row.key.clone());
        }
        // The key, the kind and the run stay.
        let new = match before {
            Some(before) => RecordRow {
                value: row.value,
                attempts: row.attempts,
                holder: Some(member.id),
                ..before.clone()
            },
            None => RecordRow { holder: Some(member.id), ..row },
        };
        tx.write(move |tables| drop(tables.records.insert(id, new)));
    }
}

fn is_lost(row: &RecordRow) -> bool {
    let value: Value = serde_json::from_slice(&row.value).unwrap_or_default();
    value["lost"] == true
}

async fn remove(
    tx: &mut Tx,
    member: Member,
    batch: &Batch,
    holds: &(impl Fn(Option<i64>) -> bool + Sync),
) {
    let written: BTreeSet<Id> =
        batch.kept.iter().chain(&batch.first).map(|given| given.id).collect();
    let goes = |id: &Id, row: &RecordRow| {
        let is_cleared = row.run.is_some_and(|run| batch.cleared.contains(&run))
            && holds(row.run)
            && matches!(row.kind.as_str(), "call" | "answer")
            && !written.contains(id);
        let is_own = holds(row.run)
            || ((row.run.is_none() || row.kind == "long")
                && (row.kind != "request" || (row.holder == Some(member.id) && !is_lost(row))));
        is_cleared || (batch.gone.contains(id) && is_own)
    };
    let snapshot = tx.snapshot.clone();
    for (id, _) in snapshot.records.iter().filter(|(id, row)| goes(id, row)) {
        let id = *id;
        tx.lock(Lock::Record(id), true).await;
        if tx.latest().records.get(&id).is_some_and(|row| goes(&id, row)) {
            tx.write(move |tables| drop(tables.records.remove(&id)));
        }
    }
}

/// A run that is forgotten and ended at once is forgotten: the later clause of a statement is done
/// first.
async fn end_runs(tx: &mut Tx, batch: &Batch, mine: &BTreeSet<i64>) {
    for slot in batch.forgotten.intersection(mine).copied() {
        tx.lock(Lock::Run(slot), true).await;
        tx.write(move |tables| {
            tables.runs.remove(&slot);
            tables.claims.retain(|_, run| *run != slot);
        });
    }
    let ending = batch.released.union(&batch.ended).copied().collect::<BTreeSet<_>>();
    for slot in ending.intersection(mine).copied().filter(|slot| !batch.forgotten.contains(slot)) {
        tx.lock(Lock::Run(slot), true).await;
        let (is_released, is_ended) = (batch.released.contains(&slot), batch.ended.contains(&slot));
        tx.write(move |tables| {
            let Some(run) = tables.runs.get_mut(&slot) else { return };
            if is_released {
                run.owner = None;
                run.epoch += 1;
            }
            run.is_over |= is_ended;
        });
    }
}

pub(super) fn of_runs(tx: Tx, runs: &[Slot]) -> (Tx, Records) {
    let is_of = |row: &&RecordRow| row.run.is_some_and(|run| runs.contains(&slot(run)));
    let found = values(tx.snapshot.records.values().filter(is_of));
    (tx, found)
}

pub(super) async fn inherit(mut tx: Tx, member: Member, dead: Vec<Uuid>) -> (Tx, Records) {
    if !locks_member(&mut tx, member, false).await {
        return (tx, Vec::new());
    }
    let snapshot = tx.snapshot.clone();
    let is_left = |row: &RecordRow| {
        let holder = row.holder;
        row.run.is_none()
            && matches!(row.kind.as_str(), "long" | "request")
            && (holder.is_some_and(|holder| dead.contains(&holder))
                || holder.is_none_or(|holder| !snapshot.replicas.contains_key(&holder)))
    };
    let mut found = Vec::new();
    for (id, _) in snapshot.records.iter().filter(|(_, row)| is_left(row)) {
        let id = *id;
        tx.lock(Lock::Record(id), true).await;
        let latest = tx.latest();
        let Some(row) = latest.records.get(&id).filter(|row| is_left(row)) else { continue };
        let mut value = row.value.clone();
        let mut request: Value = serde_json::from_slice(&value).unwrap_or_default();
        if row.kind == "request" && request["answer"].is_null() {
            request["lost"] = Value::Bool(true);
            value = request.to_string().into();
        }
        found.push((row.key.clone(), value.to_vec()));
        tx.write(move |tables| {
            if let Some(row) = tables.records.get_mut(&id) {
                (row.holder, row.value) = (Some(member.id), value);
            }
        });
    }
    (tx, found)
}

pub(super) fn find(tx: Tx, ids: &[Id], names: &[Id]) -> (Tx, Records) {
    let tables = tx.snapshot.clone();
    let mut found = values(ids.iter().filter_map(|id| tables.records.get(id)));
    let is_named = |row: &&RecordRow| {
        let run = row.run.and_then(|run| tables.runs.get(&run));
        run.is_some_and(|run| names.contains(&run.name))
            && matches!(row.kind.as_str(), "run" | "call")
    };
    if !names.is_empty() {
        found.extend(values(tables.records.values().filter(is_named)));
    }
    (tx, found)
}

pub(super) fn owned(tx: Tx, key_start: &[u8], value_start: &[u8]) -> (Tx, Records) {
    let tables = tx.snapshot.clone();
    let is_owned = |row: &&RecordRow| {
        row.kind == "owner" && row.key.starts_with(key_start) && row.value.starts_with(value_start)
    };
    let found = values(tables.records.values().filter(is_owned));
    (tx, found)
}

pub(super) fn elsewhere(tx: Tx, own: Option<Uuid>, named: Option<&str>) -> (Tx, Records) {
    let tables = tx.snapshot.clone();
    let is_named = |row: &RecordRow| {
        let Some(named) = named else { return true };
        let value: Value = serde_json::from_slice(&row.value).unwrap_or_default();
        value["run"].as_str().is_some_and(|run| run.eq_ignore_ascii_case(named))
    };
    let is_found = |row: &&RecordRow| {
        let run = row.run.and_then(|run| tables.runs.get(&run));
        row.kind == "run"
            && run.is_some_and(|run| run.owner != own && (!run.is_over || named.is_some()))
            && is_named(row)
    };
    let slots = tables.records.values().filter(is_found).filter_map(|row| row.run);
    let slots: BTreeSet<i64> = slots.take(1000).collect();
    let is_of = |row: &&RecordRow| {
        row.run.is_some_and(|run| slots.contains(&run))
            && matches!(row.kind.as_str(), "run" | "call")
    };
    let found = values(tables.records.values().filter(is_of));
    (tx, found)
}

pub(super) async fn leave(mut tx: Tx, member: Member) -> (Tx, ()) {
    if !locks_member(&mut tx, member, true).await {
        return (tx, ());
    }
    tx.write(move |tables| {
        tables.replicas.remove(&member.id);
        tables.heartbeats.remove(&member.id);
    });
    let is_owned = |run: &RunRow| run.owner == Some(member.id);
    let snapshot = tx.snapshot.clone();
    for (number, _) in snapshot.runs.iter().filter(|(_, run)| is_owned(run)) {
        let number = *number;
        tx.lock(Lock::Run(number), true).await;
        if tx.latest().runs.get(&number).is_some_and(is_owned) {
            tx.write(move |tables| {
                if let Some(run) = tables.runs.get_mut(&number) {
                    run.owner = None;
                    run.epoch += 1;
                }
            });
        }
    }
    (tx, ())
}

pub(super) async fn bury(mut tx: Tx, dead: Vec<Uuid>) -> (Tx, ()) {
    let snapshot = tx.snapshot.clone();
    let is_free = |id: &&Uuid| {
        snapshot.replicas.contains_key(id)
            && snapshot.runs.values().all(|run| run.owner.as_ref() != Some(id))
    };
    for id in dead.iter().filter(is_free).copied() {
        tx.lock(Lock::Replica(id), true).await;
        tx.write(move |tables| {
            tables.replicas.remove(&id);
            tables.heartbeats.remove(&id);
        });
    }
    (tx, ())
}
