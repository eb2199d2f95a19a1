//! What goes into a statement, and an exhaustive model of the fence, the handover and the takeover.

mod model;
pub(crate) mod simulated;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::database::Verdict;
use super::rows::{Epochs, Rows, id, name};
use super::writer::{Attempt, tell};
use super::{Postgres, Replica, Writer};
use crate::journal::batch::{Group, Waiter};
use crate::journal::live::json;
use crate::journal::record::{CallKey, CallRecord, Change, Key, Slot};
use crate::model::maps::HashSet;
use crate::model::{RunKey, RunKind, Stage};

fn call(slot: u64, stage: Stage) -> Change {
    let key = CallKey { slot: Slot(slot), agent_run: None, tool_use: "tu".into() };
    Change::Call(key, CallRecord { stage, ..CallRecord::received(1) })
}

fn answer(slot: u64, body: &'static str) -> Change {
    let key = CallKey { slot: Slot(slot), agent_run: None, tool_use: "tu".into() };
    Change::Answer(key, body.into())
}

fn rows(changes: &[Change], epochs: &Epochs) -> Rows {
    let mut rows = Rows::default();
    changes.iter().for_each(|change| rows.add(change, epochs, &HashSet::default()));
    rows
}

fn owned(slots: &[(u64, Option<i64>)]) -> Epochs {
    slots.iter().map(|(slot, epoch)| (Slot(*slot), *epoch)).collect()
}

#[test]
fn a_run_that_is_lost_is_written_no_more_but_for_its_answers() {
    let epochs = owned(&[(1, Some(3)), (2, None)]);
    let changes = [call(1, Stage::Received), call(2, Stage::Received), answer(2, "{}")];
    let rows = rows(&changes, &epochs);
    assert_eq!(rows.owned.into_iter().collect::<Vec<_>>(), [(Slot(1), 3)]);
    assert_eq!(rows.records.len(), 1, "that of the run 1");
    assert_eq!(rows.first.len(), 1, "a replica that was taken over may bring the first answer");
}

/// One that has not joined its group.
fn replica() -> Arc<Replica> {
    let settings = Postgres {
        url: tokio_postgres::Config::new(),
        ca: None,
        schema: "s".to_owned(),
        group: "g".to_owned(),
        statement_timeout: Duration::from_secs(1),
    };
    Replica::new(settings, "u".to_owned(), Arc::default()).0
}

/// Changes may wait for the database for so long that this replica loses a run and gets it back.
#[test]
fn record_of_an_earlier_driver_is_not_written() {
    let replica = replica();
    *replica.epochs.lock() = owned(&[(1, Some(3)), (2, Some(5))]);
    *replica.regained.lock() = (3, [(Slot(2), 3)].into_iter().collect());
    let writer = Writer::new(Arc::clone(&replica));
    let changes = [call(1, Stage::Closed), call(2, Stage::Closed), answer(2, "{}")];
    let slots = |times| {
        let group = Group { range: 0..3, waiter: Waiter::Keep(None), regained: times };
        let rows = writer.rows(&changes, &[group]);
        assert_eq!(rows.first.len(), 1, "the first answer counts, of any replica");
        rows.owned.into_keys().collect::<Vec<_>>()
    };
    assert_eq!(slots(2), [Slot(1)]);
    assert_eq!(slots(3), [Slot(1), Slot(2)], "they are the new driver's");
    assert!(replica.is_of_earlier(&changes[1], 2) && !replica.is_of_earlier(&changes[2], 2));
}

/// The refusal waited while another replica owned the run, and may have sent the call.
#[test]
fn refusal_of_an_earlier_driver_is_not_told_as_the_answer_of_the_present_one() {
    let replica = replica();
    *replica.regained.lock() = (3, [(Slot(2), 3)].into_iter().collect());
    let Change::Answer(key, body) = answer(2, "{}") else { unreachable!("it is one") };
    let changes = [Change::Refuse(key.clone(), body.clone()), Change::Answer(key.clone(), body)];
    let (refusal, refusal_is_first) = oneshot::channel();
    let (answer, answer_is_first) = oneshot::channel();
    let groups = vec![
        Group { range: 0..1, waiter: Waiter::First(refusal), regained: 2 },
        Group { range: 1..2, waiter: Waiter::First(answer), regained: 3 },
    ];
    let verdict = Verdict {
        held: [Slot(2)].into_iter().collect(),
        first: [json(&Key::Answer(key))].into_iter().collect(),
        lives: true,
    };
    tell(&replica, &changes, groups, verdict, Attempt::First);
    let are_first = [refusal_is_first, answer_is_first].map(|first| first.blocking_recv());
    assert_eq!(are_first, [Ok(false), Ok(true)]);
}

/// Another replica may be about to send the call.
#[test]
fn an_answer_to_a_call_that_was_not_sent_is_the_owners() {
    let refused = |slot| {
        let Change::Answer(key, body) = answer(slot, "{}") else { unreachable!("it is one") };
        Change::Refuse(key, body)
    };
    let epochs = owned(&[(1, Some(3)), (2, None)]);
    let rows = rows(&[refused(1), refused(2)], &epochs);
    assert_eq!(rows.owned.into_iter().collect::<Vec<_>>(), [(Slot(1), 3)]);
    let first: Vec<_> = rows.first.values().map(|row| (row.run, row.from_owner_only)).collect();
    assert_eq!(first, [(Some(Slot(1)), true)]);
}

/// A replica may have two drivers of a run that it has lost and got back.
#[test]
fn first_of_two_answers_in_a_batch_is_written() {
    let rows = rows(&[answer(1, "{}"), answer(1, "[]")], &owned(&[(1, Some(1))]));
    let values: Vec<_> = rows.first.values().map(|row| row.value.clone()).collect();
    assert_eq!(values, [Some(b"{}".to_vec())]);
}

#[test]
fn the_last_value_of_a_key_counts() {
    let epochs = owned(&[(1, Some(1))]);
    let closed = Change::Forget(Key::Answer(CallKey {
        slot: Slot(1),
        agent_run: None,
        tool_use: "tu".into(),
    }));
    let rows = rows(&[answer(1, "{}"), closed, call(1, Stage::Closed)], &epochs);
    assert!(rows.first.is_empty());
    let values: Vec<_> = rows.records.values().map(|row| row.value.clone()).collect();
    assert!(
        values.contains(&Some(Vec::new())),
        "an empty answer stays, which no later one replaces"
    );
}

#[test]
fn record_that_is_forgotten_in_its_batch_is_not_written() {
    let epochs = owned(&[(1, Some(1)), (10, Some(1))]);
    let changes = [call(1, Stage::Received), call(10, Stage::Received), Change::ForgetRun(Slot(1))];
    let rows = rows(&changes, &epochs);
    let kept = rows.records.values().filter(|row| row.value.is_some());
    assert_eq!(kept.map(|row| row.run).collect::<Vec<_>>(), [Some(Slot(10))]);
    assert!(rows.cleared.contains(&Slot(1)) && rows.forgotten.contains(&Slot(1)));
}

#[test]
fn ids_of_mantyx_count_without_letter_case() {
    let key =
        |run: &str| RunKey { workspace: "acme".into(), kind: RunKind::Agent, run: run.into() };
    assert_eq!(name(&key("Run_1")), name(&key("rUN_1")));
    assert_ne!(name(&key("run_1")), name(&key("run_2")));
    let owner = |id: &str| format!(r#"{{"owner":["acme","agent-runs","{id}"]}}"#);
    assert_eq!(id(owner("Run_1").as_bytes()), id(owner("run_1").as_bytes()));
    let call = |id: &str| format!(r#"{{"call":[7,"","{id}"]}}"#);
    assert_ne!(id(call("TU").as_bytes()), id(call("tu").as_bytes()), "a tool use is the model's");
}
