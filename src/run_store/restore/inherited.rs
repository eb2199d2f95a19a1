//! Runs that had two drivers, one after the other: an app had attached a run before the bridge knew
//! that MANTYX was creating it for another app.
//!
//! Pure. Must not: decide what becomes of a call.

use std::collections::hash_map::Entry;

use crate::journal::record::{Change, Slot, StoredCall, StoredRun};
use crate::model::maps::HashMap;

/// The runs, each once: the calls of all its drivers are those of its last one. Only that one is
/// driven, and has the app and the credential that the run belongs to.
///
/// `runs` are in the order of their slots. The changes are for the journal, in one piece.
pub(super) fn by_the_last(runs: Vec<StoredRun>) -> (Vec<StoredRun>, Vec<Change>) {
    let mut changes = Vec::new();
    let mut places: HashMap<_, _> = HashMap::default();
    let mut all: Vec<StoredRun> = Vec::with_capacity(runs.len());
    for run in runs {
        match places.entry(run.record.key.clone()) {
            Entry::Vacant(place) => {
                place.insert(all.len());
                all.push(run);
            }
            Entry::Occupied(place) => {
                let earlier = std::mem::replace(&mut all[*place.get()], run);
                changes.push(Change::ForgetRun(earlier.slot));
                inherit(&mut all[*place.get()], earlier.calls, &mut changes);
            }
        }
    }
    (all, changes)
}

/// Gives `calls`, those of an earlier driver, to the last one.
///
/// A call that the last driver has itself stays as it is. If that driver has only noted that the
/// call is another's, the earlier record takes the place of the note. Without it, no driver would
/// answer the call after the restart.
fn inherit(heir: &mut StoredRun, calls: Vec<StoredCall>, changes: &mut Vec<Change>) {
    let slot = heir.slot;
    for call in calls.into_iter().filter(|call| !call.record.is_others) {
        let place = heir.calls.iter().position(|own| {
            own.key.agent_run == call.key.agent_run && own.key.tool_use == call.key.tool_use
        });
        match place {
            Some(place) if !heir.calls[place].record.is_others => continue,
            Some(place) => drop(heir.calls.swap_remove(place)),
            None => (),
        }
        let inherited = moved(call, slot);
        changes.push(Change::Call(inherited.key.clone(), inherited.record.clone()));
        if let Some(body) = &inherited.answer {
            changes.push(Change::Answer(inherited.key.clone(), body.clone()));
        }
        heir.calls.push(inherited);
    }
}

fn moved(mut call: StoredCall, to: Slot) -> StoredCall {
    call.key.slot = to;
    // The first driver's table may have had fewer tools: its place tells nothing of the heir's
    // calls.
    call.record.seq = 0;
    call
}

#[cfg(test)]
mod tests {
    //! Which calls the last driver of a run inherits, and under which number.

    use bytes::Bytes;

    use super::*;
    use crate::model::recovery::Stage;
    use crate::run_store::restore::tests::run;

    fn of(slot: u64, id: &str, tool_use: &str, stage: Stage) -> StoredRun {
        let mut run = run(id, "", tool_use, stage);
        run.slot = Slot(slot);
        run.calls[0].key.slot = Slot(slot);
        run
    }

    fn calls(run: &StoredRun) -> Vec<(u64, &str, Stage, u64)> {
        let calls = run.calls.iter().map(|StoredCall { key, record, .. }| {
            (key.slot.0, key.tool_use.as_str(), record.stage, record.seq)
        });
        let mut calls: Vec<_> = calls.collect();
        calls.sort_by_key(|(_, tool_use, ..)| *tool_use);
        calls
    }

    #[test]
    fn the_last_driver_has_the_calls_of_all() {
        let mut first = of(1, "r", "t", Stage::Answered);
        first.calls[0].answer = Some(Bytes::from_static(b"{}"));
        let second = of(2, "r", "u", Stage::Dispatched);
        let other = of(3, "q", "t", Stage::Received);
        // The last driver has come upon the first one's call, and has left it alone.
        let mut last = of(4, "r", "t", Stage::Closed);
        last.calls[0].record.is_others = true;
        let (runs, changes) = by_the_last(vec![first, second, other, last]);
        let slots: Vec<u64> = runs.iter().map(|run| run.slot.0).collect();
        assert_eq!(slots, [4, 3]);
        assert_eq!(calls(&runs[0]), [(4, "t", Stage::Answered, 0), (4, "u", Stage::Dispatched, 0)]);
        assert!(runs[0].calls.iter().all(|call| !call.record.is_others));
        assert_eq!(calls(&runs[1]), [(3, "t", Stage::Received, 1)], "as it was");
        let is_answer = |change: &&Change| matches!(change, Change::Answer(key, _) if key.slot == Slot(4) && key.tool_use.as_str() == "t");
        assert_eq!(changes.iter().filter(is_answer).count(), 1, "{changes:?}");
        let forgotten = changes.iter().filter_map(|change| match change {
            Change::ForgetRun(slot) => Some(slot.0),
            _ => None,
        });
        assert_eq!(forgotten.collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn claim_of_the_last_driver_stays_as_it_is() {
        let first = of(1, "r", "t", Stage::Received);
        let last = of(2, "r", "t", Stage::Answered);
        let (runs, changes) = by_the_last(vec![first, last]);
        assert_eq!(calls(&runs[0]), [(2, "t", Stage::Answered, 1)]);
        assert!(matches!(&changes[..], [Change::ForgetRun(Slot(1))]), "{changes:?}");
    }
}
