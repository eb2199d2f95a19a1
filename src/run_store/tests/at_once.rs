//! What two threads decide at once of one run, and what is on disk afterwards.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::harness::{Harness, call, key};
use super::*;
use crate::backend::peer::Recorder as _;
use crate::journal::record::StoredRecords;
use crate::model::recovery::Stage;
use crate::runs::Access;

/// Has two threads begin each round at the same moment, as nearly as they can: one is a little
/// later, by another span each time. What both have to say of each round.
fn at_once<T: Send>(rounds: usize, work: [&(dyn Fn(usize) -> T + Sync); 2]) -> Vec<Vec<T>> {
    let (arrived, runtime) = (AtomicUsize::new(0), tokio::runtime::Handle::current());
    let (arrived, runtime) = (&arrived, &runtime);
    let go = |late: usize, work: &(dyn Fn(usize) -> T + Sync)| {
        let _entered = runtime.enter();
        let one = |round: usize| {
            arrived.fetch_add(1, Ordering::SeqCst);
            while arrived.load(Ordering::SeqCst) < 2 * (round + 1) {
                thread::yield_now();
            }
            (0..late * (round % 64)).for_each(|_| std::hint::spin_loop());
            work(round)
        };
        (0..rounds).map(one).collect::<Vec<T>>()
    };
    thread::scope(|scope| {
        let threads = work.into_iter().zip([0, 1]);
        let threads = threads.map(|(work, late)| scope.spawn(move || go(late, work)));
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[tokio::test]
async fn a_run_that_is_asked_for_twice_at_once_wakes_once() {
    let before = Harness::start(None).await;
    let ids: Vec<String> = (0..256).map(|number| format!("run_{number}")).collect();
    for id in &ids {
        before.runs.start(before.new_run(id)).await.unwrap();
    }
    let mut kept = before.kept().await;
    for run in &mut kept.runs {
        run.record.callers_credential = true;
    }
    let harness = Harness::start(None).await;
    let upstream = Some(harness.runs.upstream.base.to_string());
    harness.runs.restore(StoredRecords { upstream, ..kept });
    let (app, credential) = ("a".into(), harness.runs.upstream.own().unwrap());
    assert!(ids.iter().all(|id| harness.runs.awaits_credential(&key(id), &app)));
    let resume = |round: usize| harness.runs.get_or_resume(&key(&ids[round]), &app, &credential);
    let resumed = at_once(ids.len(), [&resume, &resume]);
    for (one, other) in resumed[0].iter().zip(&resumed[1]) {
        assert!(Arc::ptr_eq(one.as_ref().unwrap(), other.as_ref().unwrap()));
    }
    assert_eq!(harness.runs.context.metrics.started.get(), 256, "each has one driver");
}

#[tokio::test]
async fn run_that_is_given_up_and_revived_at_once_is_kept_as_it_stands() {
    let harness = Harness::start(None).await;
    let mut runs = Vec::new();
    for number in 0..100 {
        let run = harness.runs.start(harness.new_run(&format!("run_{number}"))).await.unwrap();
        run.give_up();
        runs.push(run);
    }
    let revive = |round: usize| assert!(harness.runs.revive(&runs[round]));
    at_once(runs.len(), [&revive, &|round| harness.runs.give_up(&runs[round])]);
    let kept = harness.kept().await;
    for (run, kept) in runs.iter().zip(&kept.runs) {
        assert_eq!(kept.record.key, run.key);
        assert_eq!(kept.record.given_up, run.is_given_up(), "{}", run.key.run);
    }
}

/// An answer comes back unwanted while the stream is opened: either it is posted again by the
/// driver, or it is not kept.
#[tokio::test]
async fn an_answer_that_is_unwanted_while_the_stream_opens_is_posted_again_or_given_up() {
    let harness = Harness::start(None).await;
    let new = |number| {
        DrivenRun::new(Slot(number), harness.new_run("run"), &harness.runs.context.log_room)
    };
    let runs: Vec<DrivenRun> = (0..10_000).map(new).collect();
    let entry = harness.recorder(&runs[0], &call("tu"));
    let keep = |round: usize| {
        let share = harness.runs.calls.keeping(&"a".into()).share;
        runs[round].keep_unwanted(&entry, share)
    };
    let open = |round: usize| {
        runs[round].access.send_replace(Access::Open);
        !runs[round].take_unwanted().is_empty()
    };
    let done = at_once(runs.len(), [&keep, &open]);
    assert_eq!(done[0], done[1], "kept, and never posted");
}

/// The journal has how far a call is, where its dispatch was taken back before the bridge crashed.
#[tokio::test]
async fn a_dispatch_that_was_taken_back_was_not_made_for_the_next_process_either() {
    let harness = Harness::start(None).await;
    let run = DrivenRun::new(Slot(1), harness.new_run("run"), &harness.runs.context.log_room);
    harness.runs.journal().write(run.changes());
    let [never, once, both] = ["never", "once", "both"].map(|id| harness.recorder(&run, &call(id)));
    for entry in [&never, &once, &both] {
        harness.runs.journal().write(vec![entry.change()]);
        entry.dispatching(None).await.unwrap();
    }
    never.not_dispatched();
    for entry in [&once, &both] {
        entry.dispatching(None).await.unwrap();
    }
    once.not_dispatched();
    let kept = harness.kept().await;
    let stages = kept.runs[0]
        .calls
        .iter()
        .map(|call| (call.key.tool_use.as_str(), call.record.stage, call.record.attempts));
    let mut stages: Vec<_> = stages.collect();
    stages.sort_by_key(|(id, ..)| *id);
    let dispatched = Stage::Dispatched;
    assert_eq!(
        stages,
        [("both", dispatched, 2), ("never", Stage::Received, 0), ("once", dispatched, 1)]
    );
}
