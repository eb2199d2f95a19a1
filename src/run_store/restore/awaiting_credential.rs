//! Runs of an earlier process that wait for their app's credential: for how long, how many, and how
//! much of the journal their calls take. The limits are needed as their app may never come back.
//!
//! Must not: resume a run, or write to the journal.

use std::time::Duration;

use tracing::info;

use crate::clock;
use crate::journal::record::{Change, Key, Millis, StoredCall, StoredRun};
use crate::journal::room;
use crate::limits::oldest::{Entry, over_bytes, over_count};
use crate::model::recovery::LOCAL_TOOL_TIMEOUT;
use crate::model::{AppName, Moment};
use crate::run_store::{Inner, KEEP_COUNT, KEEP_ENDED, RunStore};

impl RunStore {
    /// How many runs of `app`, or of all apps, wait for their app's credential.
    pub fn awaiting_credential(&self, app: Option<&AppName>) -> usize {
        let inner = self.inner.lock();
        let runs = inner.awaiting_credential.values();
        runs.filter(|run| app.is_none_or(|app| run.record.app == *app)).count()
    }
}

impl Inner {
    /// Forgets the runs whose last start, end or call is over a day ago, and those beyond the limit
    /// of an app; of the others, the arguments and answers that their calls no longer need. `since`
    /// tells how long ago a moment was.
    pub(in crate::run_store) fn sweep_awaiting(
        &mut self,
        since: impl Fn(Moment) -> Option<Duration>,
    ) -> Vec<Change> {
        let mut changes = Vec::new();
        let now = u128::from(clock::millis());
        let (mut old, mut recent) = (Vec::new(), Vec::new());
        for (key, run) in &self.awaiting_credential {
            if self.may_come_back(key, run.record.given_up) {
                continue;
            }
            let at = last_sign(run);
            if now.saturating_sub(u128::from(at)) > KEEP_ENDED.as_millis() {
                old.push(key.clone());
            } else {
                recent.push((&run.record.app, (at, key.clone())));
            }
        }
        let too_many = over_count(KEEP_COUNT, recent.into_iter());
        let forgotten = old
            .into_iter()
            .map(|key| (key, "its last start, end or call is over a day ago"))
            .chain(too_many.into_iter().map(|key| (key, "its app has too many such runs")));
        for (key, why) in forgotten {
            let Some(run) = self.awaiting_credential.remove(&key) else { continue };
            info!(
                run = %run.record.key.run,
                app = %run.record.app,
                why,
                "forgot a run that waited for its app's credential"
            );
            self.claims.forget(run.slot);
            changes.push(Change::ForgetRun(run.slot));
        }
        for call in self.awaiting_credential.values_mut().flat_map(|run| &mut run.calls) {
            let received = Moment { wall: call.record.received_at, up: call.record.received_up };
            let too_late = since(received).is_none_or(|ago| ago >= LOCAL_TOOL_TIMEOUT);
            // Work that its peer has named is asked for, however late it is.
            if too_late && call.record.handle.is_none() && call.record.args.take().is_some() {
                changes.push(Change::Call(call.key.clone(), call.record.clone()));
            }
        }
        changes.extend(self.make_room_for_awaiting());
        changes
    }

    /// Drops arguments and answers until the rest fits: the oldest of the app that has most. A call
    /// without its arguments is not made; if it may have been made, its outcome is unknown.
    fn make_room_for_awaiting(&mut self) -> Vec<Change> {
        let calls = self.awaiting_credential.iter().flat_map(|(key, run)| {
            let with_content = run.calls.iter().enumerate().filter(|(_, call)| size(call) > 0);
            with_content.map(move |(at, call)| {
                let order = call.record.received_at;
                (&run.record.app, Entry { order, bytes: size(call), key: (key.clone(), at) })
            })
        });
        let mut changes = Vec::new();
        for (key, at) in over_bytes(room::AWAITING_CALLS, calls) {
            let run = self.awaiting_credential.get_mut(&key);
            let Some(call) = run.and_then(|run| run.calls.get_mut(at)) else { continue };
            (call.record.args, call.record.handle, call.answer) = (None, None, None);
            changes.push(Change::Call(call.key.clone(), call.record.clone()));
            changes.push(Change::Forget(Key::Answer(call.key.clone())));
        }
        changes
    }
}

/// The latest sign that the run is in use: its start, its end, or a call.
fn last_sign(run: &StoredRun) -> Millis {
    let calls = run.calls.iter().map(|call| call.record.received_at);
    let later = run.record.ended_at.into_iter().chain(calls).max();
    later.map_or(run.record.started_at, |at| at.max(run.record.started_at))
}

/// The bytes of the journal that a call's arguments and answer take.
fn size(call: &StoredCall) -> usize {
    call.record.args.as_ref().map_or(0, |args| args.get().len())
        + call.answer.as_ref().map_or(0, bytes::Bytes::len)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::value::RawValue;

    use super::super::tests::run;
    use super::*;
    use crate::journal::record::Slot;
    use crate::model::recovery::Stage;

    const HOUR: u64 = 60 * 60 * 1000;

    /// Puts a run with one call into `inner`, which came `ago` milliseconds ago.
    fn lay(inner: &mut Inner, slot: u64, stage: Stage, ago: u64) {
        let mut kept = run(&format!("r{slot}"), "", "t", stage);
        (kept.slot, kept.calls[0].key.slot) = (Slot(slot), Slot(slot));
        let at = clock::millis() - ago;
        (kept.record.started_at, kept.calls[0].record.received_at) = (at, at);
        let args = RawValue::from_string("{\"n\":1}".to_owned()).unwrap();
        kept.calls[0].record.args = Some(args);
        inner.awaiting_credential.insert(kept.record.key.clone(), kept);
    }

    fn since(moment: Moment) -> Option<Duration> {
        Some(Duration::from_millis(clock::millis() - moment.wall))
    }

    #[test]
    fn a_run_that_nobody_wakes_is_forgotten_after_a_day() {
        let mut inner = Inner::default();
        lay(&mut inner, 1, Stage::Dispatched, 25 * HOUR);
        lay(&mut inner, 2, Stage::Dispatched, 23 * HOUR);
        lay(&mut inner, 3, Stage::Dispatched, 0);
        let changes = inner.sweep_awaiting(since);
        let [Change::ForgetRun(Slot(1)), Change::Call(key, record)] = &changes[..] else {
            panic!("{changes:?}")
        };
        assert_eq!((key.slot, record.args.is_none()), (Slot(2), true), "its time is over");
        assert_eq!(inner.awaiting_credential.len(), 2);
        assert!(inner.sweep_awaiting(since).is_empty(), "once");
    }

    #[test]
    fn calls_of_runs_without_a_credential_are_bounded() {
        let mut inner = Inner::default();
        for slot in 1..=3 {
            lay(&mut inner, slot, Stage::Answered, HOUR * (4 - slot));
        }
        for run in inner.awaiting_credential.values_mut() {
            run.calls[0].answer = Some(Bytes::from(vec![b'x'; room::AWAITING_CALLS / 2]));
        }
        let changes = inner.sweep_awaiting(since);
        let forgotten = changes.iter().filter_map(|change| match change {
            Change::Forget(Key::Answer(key)) => Some(key.slot),
            _ => None,
        });
        assert_eq!(forgotten.collect::<Vec<_>>(), [Slot(1)], "the oldest");
        let kept = inner.awaiting_credential.values().filter(|run| run.calls[0].answer.is_some());
        assert_eq!(kept.count(), 2);
    }
}
