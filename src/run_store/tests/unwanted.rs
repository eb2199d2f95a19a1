//! Answers that MANTYX does not want while it does not show their run: where they are kept, how
//! many, and that they are posted again.

use serde_json::Value;

use super::harness::{Harness, call, known_run};
use super::*;
use crate::backend::fake::{Mood, World};
use crate::journal::room;
use crate::model::ending::Ending;
use crate::model::recovery::Stage;
use crate::runs::answer::{self, Task};
use crate::runs::log::EventLog;

/// Has `call` answered by `task`, until MANTYX has said what it thinks of the answer.
async fn answer(harness: &Harness, run: &Arc<DrivenRun>, id: &str, task: Task) {
    let entry = harness.recorder(run, &call(id));
    harness.runs.journal().write(vec![entry.change()]);
    let context = Arc::clone(&harness.runs.context);
    answer::answer(context, Arc::clone(run), call(id), task, entry).await;
}

async fn posted(harness: &Harness, id: &str, count: usize) -> Vec<Value> {
    let mut at_least = count;
    loop {
        let all = harness.posted(at_least).await;
        let of_it: Vec<Value> = all.into_iter().filter(|post| post["toolUseId"] == id).collect();
        if of_it.len() >= count {
            return of_it;
        }
        at_least += 1;
    }
}

#[tokio::test]
async fn an_unwanted_answer_is_kept_on_disk_and_posted_again_whatever_others_take() {
    let harness = Harness::start(None).await;
    let of_others = EventLog::new(&harness.runs.context.log_room);
    of_others.push(Some(1), Bytes::from(vec![b'x'; 65 << 20]));
    harness.is_forgetful.store(true, Ordering::SeqCst);
    let run = known_run(&harness, 1, "a");
    answer(&harness, &run, "tu_0", Task::Refuse("no".to_owned(), Ending::Denied)).await;
    let kept = harness.kept().await;
    let call = &kept.runs[0].calls[0];
    assert_eq!((call.record.stage, call.answer.is_some()), (Stage::Answered, true));

    run.give_up();
    harness.is_forgetful.store(false, Ordering::SeqCst);
    assert!(harness.runs.revive(&run));
    let posts = posted(&harness, "tu_0", 2).await;
    assert_eq!(posts[0], posts[1]);
    assert_eq!(posts[0]["error"], "no");
    assert!(run.take_unwanted().is_empty());
}

/// The driver has stopped reading by then, so that an open stream says nothing any more.
#[tokio::test]
async fn an_answer_that_is_unwanted_while_the_bridge_stops_is_kept() {
    let harness = Harness::start(None).await;
    harness.is_forgetful.store(true, Ordering::SeqCst);
    harness.world.calling.send_replace(Mood::Hanging);
    let run = harness.drive().await;
    while World::count(&harness.world.calls) == 0 {
        tokio::task::yield_now().await;
    }
    harness.runs.draining().cancel();
    while !run.has_ended() {
        tokio::task::yield_now().await;
    }
    harness.world.calling.send_replace(Mood::Well);
    harness.posted(1).await;
    harness.runs.drain().await;
    let kept = harness.kept().await;
    let call = &kept.runs[0].calls[0];
    assert_eq!((call.record.stage, call.answer.is_some()), (Stage::Answered, true));
}

#[tokio::test]
async fn each_app_has_its_share_of_the_journal_for_them() {
    let harness = Harness::start(None).await;
    let [first, second, of_b] =
        [(1, "a"), (2, "a"), (3, "b")].map(|(slot, app)| known_run(&harness, slot, app));
    let keep = |run: &Arc<DrivenRun>, id: &str, size: usize| {
        answer::keep_unwanted(&harness.runs.context, run, &harness.recorder(run, &call(id)), size)
    };
    assert!(keep(&first, "tu_1", room::UNWANTED_ANSWERS - 10));
    assert!(keep(&second, "tu_1", 10), "there is room for it");
    assert!(!keep(&second, "tu_2", 1), "there is no more");
    assert!(keep(&of_b, "tu_1", room::UNWANTED_ANSWERS), "it has its own");
    assert_eq!(first.take_unwanted().len(), 1);
    assert!(keep(&second, "tu_2", 1), "there is room again");
}

#[tokio::test]
async fn answer_that_the_journal_has_lost_is_an_unknown_outcome() {
    let harness = Harness::start(None).await;
    let run = known_run(&harness, 1, "a");
    answer(&harness, &run, "tu_0", Task::PostAgain).await;
    let error = posted(&harness, "tu_0", 1).await[0]["error"].as_str().unwrap().to_owned();
    assert!(error.starts_with("OUTCOME_UNKNOWN"), "{error}");
}
