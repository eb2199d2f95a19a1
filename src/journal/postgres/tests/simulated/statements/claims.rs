//! Runs that a replica takes.

use serde_json::Value;
use uuid::Uuid;

use super::{Clauses, locks_member, slot};
use crate::journal::postgres::database::Member;
use crate::journal::postgres::rows::Id;
use crate::journal::postgres::tests::simulated::tables::{Lock, ReplicaRow, RunRow, Tables, Tx};
use crate::journal::record::Slot;

/// How many runs `claim` takes at once.
const BITE: usize = 200;

pub(in crate::journal::postgres::tests::simulated) async fn take_over(
    mut tx: Tx,
    member: Member,
    dead: Vec<Uuid>,
    backends: Vec<String>,
) -> (Tx, Vec<(Slot, i64)>) {
    if !locks_member(&mut tx, member, false).await {
        return (tx, Vec::new());
    }
    let snapshot = tx.snapshot.clone();
    let others: Vec<&ReplicaRow> = snapshot
        .replicas
        .iter()
        .filter(|(id, _)| !dead.contains(id) && **id != member.id)
        .map(|(_, row)| row)
        .collect();
    let is_free = |run: &RunRow| {
        let is_left = run.owner.is_none_or(|owner| dead.contains(&owner));
        let served =
            |other: &&ReplicaRow| run.needs.iter().all(|it| other.backends.contains_key(it));
        is_left
            && (run.needs.iter().all(|need| backends.contains(need)) || !others.iter().any(served))
    };
    let mut claimed = Vec::new();
    for (number, _) in snapshot.runs.iter().filter(|(_, run)| is_free(run)).take(BITE) {
        let number = *number;
        if !tx.try_lock(Lock::Run(number), true) {
            continue;
        }
        let latest = tx.latest();
        let Some(run) = latest.runs.get(&number).filter(|run| is_free(run)) else { continue };
        let epoch = run.epoch + i64::from(Clauses::raises_epochs());
        claimed.push((slot(number), epoch));
        let waits = waits(&snapshot, number);
        tx.write(move |tables| {
            let Some(run) = tables.runs.get_mut(&number) else { return };
            run.owner = Some(member.id);
            run.epoch = epoch;
            run.waits = waits;
        });
    }
    (tx, claimed)
}

pub(in crate::journal::postgres::tests::simulated) async fn take_waiting_run(
    mut tx: Tx,
    member: Member,
    name: Id,
) -> (Tx, Vec<(Slot, i64)>) {
    if !locks_member(&mut tx, member, false).await {
        return (tx, Vec::new());
    }
    let is_it = |run: &RunRow| run.name == name && run.waits && !run.is_over;
    let snapshot = tx.snapshot.clone();
    let mut claimed = Vec::new();
    for (number, _) in snapshot.runs.iter().filter(|(_, run)| is_it(run)) {
        let number = *number;
        tx.lock(Lock::Run(number), true).await;
        let latest = tx.latest();
        let Some(run) = latest.runs.get(&number).filter(|run| is_it(run)) else { continue };
        let epoch = run.epoch + 1;
        claimed.push((slot(number), epoch));
        tx.write(move |tables| {
            let Some(run) = tables.runs.get_mut(&number) else { return };
            (run.owner, run.epoch, run.waits) = (Some(member.id), epoch, false);
        });
    }
    (tx, claimed)
}

pub(in crate::journal::postgres::tests::simulated) async fn owned_runs(
    mut tx: Tx,
    member: Member,
    known: Vec<(Slot, i64)>,
) -> (Tx, Vec<(Slot, i64)>) {
    let snapshot = tx.snapshot.clone();
    let is_it = |number: i64, run: &RunRow| {
        run.owner == Some(member.id) && run.epoch > 1 && !known.contains(&(slot(number), run.epoch))
    };
    let mut claimed = Vec::new();
    for (number, _) in snapshot.runs.iter().filter(|(number, run)| is_it(**number, run)) {
        let number = *number;
        tx.lock(Lock::Run(number), true).await;
        let latest = tx.latest();
        let Some(run) = latest.runs.get(&number).filter(|run| is_it(number, run)) else { continue };
        claimed.push((slot(number), run.epoch));
        let waits = waits(&snapshot, number);
        tx.write(move |tables| {
            tables.runs.entry(number).and_modify(|run| run.waits = waits);
        });
    }
    (tx, claimed)
}

fn waits(tables: &Tables, run: i64) -> bool {
    let of_run = tables.records.values().find(|row| row.run == Some(run) && row.kind == "run");
    let record = of_run.and_then(|row| serde_json::from_slice::<Value>(&row.value).ok());
    record.is_some_and(|record| record["callers_credential"] == true)
}
