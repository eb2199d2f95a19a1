//! The statements for what replicas share beside records.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use uuid::Uuid;

use super::super::tables::{ApprovalRow, Lock, Tx};
use super::is_member;
use crate::journal::postgres::database::Member;
use crate::journal::postgres::{SharedApproval, SharedFile};

pub(in crate::journal::postgres::tests::simulated) fn files(
    tx: Tx,
    known: &BTreeMap<String, i64>,
) -> (Tx, Vec<SharedFile>) {
    let is_new =
        |(name, (version, _)): &(&String, &(i64, String))| known.get(*name) != Some(version);
    let file = |(name, (version, text)): (&String, &(i64, String))| SharedFile {
        name: name.clone(),
        version: *version,
        text: text.clone(),
    };
    let found = tx.snapshot.files.iter().filter(is_new).map(file).collect();
    (tx, found)
}

pub(in crate::journal::postgres::tests::simulated) async fn write_file(
    mut tx: Tx,
    name: String,
    known: Option<i64>,
    text: String,
) -> (Tx, Option<i64>) {
    tx.lock(Lock::File(name.clone()), true).await;
    let version = match tx.latest().files.get(&name) {
        None => 1,
        Some((version, _)) if known == Some(*version) => version + 1,
        Some(_) => return (tx, None),
    };
    tx.write(move |tables| drop(tables.files.insert(name, (version, text))));
    (tx, Some(version))
}

pub(in crate::journal::postgres::tests::simulated) async fn ask(
    mut tx: Tx,
    member: Member,
    id: String,
    value: Vec<u8>,
    deadline: SystemTime,
) -> (Tx, ()) {
    if !is_member(&tx.snapshot, member) {
        return (tx, ());
    }
    tx.lock(Lock::Approval(id.clone()), true).await;
    let latest = tx.latest();
    let row = match latest.approvals.get(&id) {
        None => ApprovalRow {
            holder: member.id,
            value,
            deadline,
            ended: None,
            ended_at: None,
            by_person: false,
        },
        Some(row) => ApprovalRow {
            holder: member.id,
            deadline,
            ended: row.ended.clone().filter(|_| row.by_person),
            ended_at: row.ended_at.filter(|_| row.by_person),
            ..row.clone()
        },
    };
    tx.write(move |tables| drop(tables.approvals.insert(id, row)));
    (tx, ())
}

pub(in crate::journal::postgres::tests::simulated) async fn end(
    mut tx: Tx,
    id: String,
    holder: Option<Uuid>,
    ended: Vec<u8>,
) -> (Tx, Option<Option<Vec<u8>>>) {
    let is_it = |row: &ApprovalRow| holder.is_none_or(|holder| row.holder == holder);
    if !tx.snapshot.approvals.get(&id).is_some_and(is_it) {
        return (tx, None);
    }
    tx.lock(Lock::Approval(id.clone()), true).await;
    let now = tx.now();
    let latest = tx.latest();
    let Some(row) = latest.approvals.get(&id).filter(|row| is_it(row)) else { return (tx, None) };
    let before = row.ended.clone();
    let row = ApprovalRow {
        ended: before.clone().or(Some(ended)),
        ended_at: row.ended_at.or(Some(now)),
        by_person: row.by_person || (before.is_none() && holder.is_none()),
        ..row.clone()
    };
    tx.write(move |tables| drop(tables.approvals.insert(id, row)));
    (tx, Some(before))
}

pub(in crate::journal::postgres::tests::simulated) async fn cancel(
    mut tx: Tx,
    id: String,
    value: Vec<u8>,
) -> (Tx, ()) {
    tx.lock(Lock::Cancellation(id.clone()), true).await;
    let now = tx.now();
    tx.write(move |tables| {
        tables.cancellations.entry(id).or_insert((value, now)).1 = now;
    });
    (tx, ())
}

pub(in crate::journal::postgres::tests::simulated) async fn cancellations(
    mut tx: Tx,
) -> (Tx, Vec<Vec<u8>>) {
    let before = tx.now() - Duration::from_secs(30);
    let snapshot = tx.snapshot.clone();
    let (old, new): (Vec<_>, Vec<_>) =
        snapshot.cancellations.iter().partition(|(_, (_, since))| *since < before);
    for (id, _) in old {
        tx.lock(Lock::Cancellation(id.clone()), true).await;
        if tx.latest().cancellations.get(id).is_some_and(|(_, since)| *since < before) {
            let id = id.clone();
            tx.write(move |tables| drop(tables.cancellations.remove(&id)));
        }
    }
    (tx, new.into_iter().map(|(_, (value, _))| value.clone()).collect())
}

pub(in crate::journal::postgres::tests::simulated) async fn approvals(
    mut tx: Tx,
    known: BTreeSet<String>,
) -> (Tx, Vec<SharedApproval>) {
    let before = tx.now() - Duration::from_mins(1);
    let is_old = |row: &ApprovalRow| {
        row.ended_at.map_or(row.deadline, |ended| ended.min(row.deadline)) < before
    };
    let snapshot = tx.snapshot.clone();
    let mut old = BTreeSet::new();
    for (id, _) in snapshot.approvals.iter().filter(|(_, row)| is_old(row)) {
        tx.lock(Lock::Approval(id.clone()), true).await;
        if tx.latest().approvals.get(id).is_some_and(is_old) {
            old.insert(id.clone());
            let id = id.clone();
            tx.write(move |tables| drop(tables.approvals.remove(&id)));
        }
    }
    let found = snapshot.approvals.iter().filter(|(id, _)| !old.contains(*id));
    let found = found.map(|(id, row)| SharedApproval {
        id: id.clone(),
        ended: row.ended.clone(),
        by_person: row.by_person,
        asked: (!known.contains(id)).then(|| row.value.clone()),
    });
    let found = found.collect();
    (tx, found)
}
