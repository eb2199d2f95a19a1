//! Polls and cancellations that fail while the agent has a task.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::time::Instant;

use super::*;
use crate::fake_http::hurried;

/// What an agent, or a gateway before it, answers for a while.
const TROUBLE: [fn() -> Reply; 13] = [
    || Reply::status(503),
    || Reply::status(502),
    || Reply::status(504),
    || Reply::status(401),
    || Reply::status(403),
    || Reply::status(408),
    || Reply::status(429).with("retry-after", "3"),
    || Reply::json("404 page not found".to_owned()).but(404),
    || Reply::json("<html>log in</html>".to_owned()),
    || Reply::json(refusal(-32603)),
    || result(&json!({"id": "another", "status": {"state": "TASK_STATE_COMPLETED"}})),
    Reply::hang_up,
    // Another replica has the task.
    || Reply::json(refusal(-32001)),
];

/// An agent that takes a task, and answers the polls of it as `poll` says, counted from 0.
async fn worker(poll: impl Fn(usize) -> Reply + Send + Sync + 'static) -> Agent {
    let polls = AtomicUsize::new(0);
    json_rpc(move |seen| match method(seen).as_str() {
        "SendMessage" => result(&json!({"task": task("TASK_STATE_WORKING", "")})),
        "GetTask" => poll(polls.fetch_add(1, Ordering::SeqCst)),
        _ => result(&task("TASK_STATE_CANCELED", "")),
    })
    .await
}

#[tokio::test]
async fn a_task_outlasts_polls_that_fail() {
    let agent = worker(|poll| match TROUBLE.get(poll) {
        Some(trouble) => trouble(),
        None => result(&task("TASK_STATE_COMPLETED", "done")),
    })
    .await;
    let peer = dial(&agent).await;
    assert_eq!(
        hurried(|| count(&agent, "GetTask") > 0, peer.call(hello())).await.unwrap().answer,
        ok("done")
    );
    peer.close().await;
    assert_eq!(count(&agent, "CancelTask"), 0);
}

#[tokio::test]
async fn a_task_without_news_for_a_minute_has_an_unknown_outcome() {
    let unknown_task = || Reply::json(refusal(-32001));
    let paused = || result(&task("paused", ""));
    for (trouble, expected) in [
        (TROUBLE[0], "HTTP 503"),
        (TROUBLE[3], "HTTP 401"),
        (TROUBLE[9], "A2A error -32603"),
        (TROUBLE[11], "connection lost"),
        (unknown_task, "no longer knows the task"),
        (paused, "its task is in the state `paused`, which A2A does not know"),
    ] {
        // The minute begins with the last news.
        let agent = worker(move |poll| match poll {
            20 => result(&task("TASK_STATE_WORKING", "")),
            _ => trouble(),
        })
        .await;
        let peer = dial(&agent).await;
        let start = Instant::now();
        let error = hurried(|| count(&agent, "GetTask") > 0, peer.call(hello())).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert!(start.elapsed() >= Duration::from_secs(70), "{:?}", start.elapsed());
        peer.close().await;
        let cancels = if expected.contains("no longer knows") { 0 } else { 1 };
        assert_eq!(count(&agent, "CancelTask"), cancels, "{expected}");
    }
}

#[tokio::test]
async fn a_poll_that_is_refused_for_good_is_no_refusal_of_the_call() {
    for code in [-32601, -32602] {
        let agent = worker(move |_| Reply::json(refusal(code))).await;
        let peer = dial(&agent).await;
        let error = peer.call(hello()).await.unwrap_err();
        assert!(matches!(error, CallError::Unclear { .. }), "{code}: {error:?}");
        peer.close().await;
        assert_eq!((count(&agent, "GetTask"), count(&agent, "CancelTask")), (1, 1));
    }
}

#[tokio::test]
async fn a_message_that_a_gateway_gave_up_on_may_have_been_taken() {
    for status in [502, 504] {
        let agent = json_rpc(move |_| Reply::json("<html></html>".to_owned()).but(status)).await;
        let error = dial(&agent).await.call(hello()).await.unwrap_err();
        assert!(matches!(error, CallError::Lost(_)), "{status}: {error:?}");
    }
}

#[tokio::test]
async fn a_cancellation_that_fails_is_tried_again() {
    let cancels = AtomicUsize::new(0);
    let agent = json_rpc(move |seen| match method(seen).as_str() {
        "CancelTask" if cancels.fetch_add(1, Ordering::SeqCst) < 2 => Reply::status(503),
        _ => result(&json!({"task": task("TASK_STATE_WORKING", "")})),
    })
    .await;
    let peer = dial(&agent).await;
    let asked = async {
        while count(&agent, "GetTask") == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        answer = peer.call(hello()) => panic!("{answer:?}"),
        () = asked => (),
    }
    let again = async {
        while count(&agent, "CancelTask") < 3 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let again = tokio::time::timeout(Duration::from_secs(100), again);
    hurried(|| count(&agent, "CancelTask") > 0, again).await.expect("it is tried again");
}
