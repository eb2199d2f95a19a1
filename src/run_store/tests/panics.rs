//! A call whose task panics is answered, in a run, as a long call and by hand; so is every other.

use serde_json::Value;
use serde_json::value::RawValue;

use super::harness::{CONCURRENCY, Harness, RUN};
use super::*;
use crate::backend::CallOutcome;
use crate::backend::fake::{Mood, World};
use crate::backend::peer::{McpClient, Modes};
use crate::calls::{CalledBy, long};
use crate::model::answer::Answer;
use crate::model::call::CallOwner;
use crate::model::ending::Ending;
use crate::model::event::Call;
use crate::model::offer::RefKind;
use crate::traces::Context;

impl Harness {
    pub(super) async fn by_hand(&self) -> CallOutcome {
        self.by_client(None).await
    }

    async fn by_client(&self, client: Option<Arc<McpClient>>) -> CallOutcome {
        let offer = self.runs.calls.backends.registry.offer();
        let call = Call {
            tool_use: "by hand".into(),
            agent_run: None,
            name: "fs_ls".to_owned(),
            kind: Some(RefKind::McpLocal),
            args: RawValue::from_string("{}".to_owned()).unwrap(),
            mcp_server: None,
        };
        let (app, route) = ("a".into(), offer.route("fs_ls").unwrap());
        self.runs
            .calls
            .call_by_hand(
                &app,
                route,
                call,
                &Context::default(),
                CalledBy { client, ..CalledBy::default() },
            )
            .await
    }
}

#[track_caller]
fn assert_unknown(error: &str) {
    assert!(error.starts_with("OUTCOME_UNKNOWN: "), "{error}");
}

#[tokio::test]
async fn a_call_whose_task_panics_is_answered_once() {
    let harness = Harness::start(None).await;
    harness.world.calling.send_replace(Mood::Panicking);
    harness.drive().await;
    let posted = harness.posted(1).await;
    assert_eq!(posted[0]["toolUseId"], "tu_1");
    assert_unknown(posted[0]["error"].as_str().unwrap());
    assert_eq!(World::count(&harness.world.calls), 1, "it may have had its effect");
}

#[tokio::test]
async fn a_panic_before_the_tool_is_reached_says_so() {
    let made = CallOutcome::internal("fs_ls", false);
    let Answer::Error(why) = made.answer else { panic!("no error") };
    assert!(!why.contains("OUTCOME_UNKNOWN"), "{why}");
    assert_eq!(made.ending, Ending::Internal);
}

#[tokio::test]
async fn a_call_by_hand_that_panics_is_answered() {
    let harness = Harness::start(None).await;
    harness.world.calling.send_replace(Mood::Panicking);
    let Answer::Error(why) = harness.by_hand().await.answer else { panic!("no error") };
    assert_unknown(&why);
}

#[tokio::test]
async fn a_call_by_hand_that_outlasts_the_shutdown_is_answered() {
    let harness = Harness::start(None).await;
    harness.world.calling.send_replace(Mood::Hanging);
    let cut = async {
        while World::count(&harness.world.calls) == 0 {
            tokio::task::yield_now().await;
        }
        harness.runs.cut();
    };
    let (made, ()) = tokio::join!(harness.by_hand(), cut);
    let Answer::Error(why) = made.answer else { panic!("no error") };
    assert_unknown(&why);
}

/// Those that run are cut off; what waited for one of them does not begin then.
#[tokio::test]
async fn a_call_by_hand_that_waits_at_the_shutdown_is_not_begun() {
    let harness = Harness::start(None).await;
    harness.world.calling.send_replace(Mood::Hanging);
    let cut = async {
        while World::count(&harness.world.calls) < CONCURRENCY {
            tokio::task::yield_now().await;
        }
        harness.runs.cut();
    };
    let all = (0..=CONCURRENCY).map(|_| harness.by_hand());
    let (all, ()) = tokio::join!(futures_util::future::join_all(all), cut);
    let not_begun = all.iter().filter(|made| made.ending.is_of_no_call()).count();
    assert_eq!((not_begun, World::count(&harness.world.calls)), (1, CONCURRENCY));
}

#[tokio::test]
async fn a_call_of_a_run_that_still_waits_at_the_end_is_left_to_the_next_process() {
    let harness = Harness::start(None).await;
    harness.runs.calls.leave.cancel();
    let run = harness.drive().await;
    while run.in_flight() == 0 {
        tokio::task::yield_now().await;
    }
    // Those by hand come behind it, and are not left to anyone.
    for _ in 0..100 {
        harness.runs.settled().await;
        assert_eq!(harness.by_hand().await.ending, Ending::Result);
    }
    assert_eq!(World::count(&harness.world.calls), 100);
}

#[tokio::test]
async fn a_call_with_an_open_question_becomes_no_long_call() {
    let harness = Harness::start(Some(Duration::from_secs(5))).await;
    harness.world.calling.send_replace(Mood::Hanging);
    let (asks, _questions) = tokio::sync::mpsc::channel(1);
    let stop = CancellationToken::new();
    let client = McpClient::new(&"a".into(), None, asks, Modes::default(), stop);
    client.open_questions.store(1, Ordering::Relaxed);
    let client = Arc::new(client);
    tokio::time::pause();
    let mut call = std::pin::pin!(harness.by_client(Some(Arc::clone(&client))));
    let in_time = timeout(Duration::from_secs(30), &mut call).await;
    assert!(in_time.is_err(), "it waits for the user: {in_time:?}");
    client.open_questions.store(0, Ordering::Relaxed);
    let Answer::Result { text, .. } = call.await.answer else { panic!("no result") };
    assert!(text.contains("pending"), "{text}");
}

#[tokio::test]
async fn a_long_call_that_panics_has_a_result() {
    let harness = Harness::start(Some(Duration::from_millis(20))).await;
    harness.world.calling.send_replace(Mood::Hanging);
    harness.drive().await;
    let first: Value =
        serde_json::from_str(harness.posted(1).await[0]["result"].as_str().unwrap()).unwrap();
    assert_eq!(first["status"], "pending", "{first}");
    harness.world.calling.send_replace(Mood::Panicking);
    let call = first["callId"].as_str().unwrap().into();
    let driven = harness::key(RUN);
    let of = CallOwner::Run { driven, agent_run: RUN.into() };
    let scope = long::Scope { app: "a".into(), of };
    let answer = loop {
        match harness.runs.calls.long.fetch(&call, &scope) {
            long::Fetched::Finished(answer, _) => break answer,
            long::Fetched::Running { .. } => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            long::Fetched::Unknown => panic!("it is forgotten"),
        }
    };
    let Answer::Error(why) = &*answer else { panic!("no error: {answer:?}") };
    assert_unknown(why);
}
