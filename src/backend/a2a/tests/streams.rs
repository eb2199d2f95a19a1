//! Agents that stream: what their events lead to, and what is done when a stream goes wrong.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

use super::*;
use crate::backend::peer::NotRead;

/// A 1.0 card whose agent streams.
fn streaming_card() -> String {
    card().replacen('{', r#"{"capabilities":{"streaming":true},"#, 1)
}

/// An agent that says it streams, and answers each JSON-RPC method as `answer` says.
pub(super) async fn streaming(
    answer: impl Fn(&str, &Seen) -> Reply + Send + Sync + 'static,
) -> Agent {
    Agent::start(move |seen| match seen.path.as_str() {
        "/.well-known/agent-card.json" => Reply::json(streaming_card()),
        "/rpc" => answer(&method(seen), seen),
        _ => Reply::status(404),
    })
    .await
}

pub(super) fn method(seen: &Seen) -> String {
    let body: Value = serde_json::from_str(&seen.body).unwrap_or_default();
    body["method"].as_str().unwrap_or_default().to_owned()
}

/// How often the agent was asked for `wanted`.
pub(super) fn count(agent: &Agent, wanted: &str) -> usize {
    agent.seen().iter().filter(|seen| method(seen) == wanted).count()
}

pub(super) fn event(result: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": 1, "result": result}).to_string()
}

pub(super) fn refusal(code: i32) -> String {
    json!({"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": "no"}}).to_string()
}

fn status(task: &str, state: &str) -> Value {
    json!({"statusUpdate": {"taskId": task, "contextId": "c", "status": {"state": state}}})
}

fn artifact(task: &str, text: &str, append: bool) -> Value {
    let artifact = json!({"artifactId": "a", "parts": [{"text": text}]});
    json!({"artifactUpdate": {
        "taskId": task, "contextId": "c", "artifact": artifact, "append": append,
    }})
}

/// The whole of a task, in five events.
fn work() -> Vec<String> {
    [
        json!({"task": {"id": "t1", "contextId": "c", "status": {"state": "TASK_STATE_SUBMITTED"}}}),
        status("t1", "TASK_STATE_WORKING"),
        artifact("t1", "do", false),
        artifact("t1", "ne", true),
        status("t1", "TASK_STATE_COMPLETED"),
    ]
    .iter()
    .map(event)
    .collect()
}

#[tokio::test]
async fn events_become_one_answer() {
    let agent = streaming(|_, _| Reply::events(&work(), Then::Hang)).await;
    let peer = dial(&agent).await;
    assert_eq!(peer.call(hello()).await.unwrap(), ok("done"), "nobody waits for the stream's end");
    peer.close().await;
    let seen = agent.seen();
    assert_eq!(seen.len(), 2, "the card and the message");
    assert!(seen[1].header("accept").starts_with("text/event-stream"));
}

/// What an agent does when it is asked for the events of a task again.
#[derive(Debug, Clone, Copy)]
enum Again {
    /// Begins with the task as it stands.
    Snapshot,
    /// Goes on with what happens next, and what was missed is lost.
    Rest,
    Refuse,
    /// Cuts each stream before the first event.
    Nothing,
}

#[tokio::test]
async fn a_stream_may_be_cut_at_every_event() {
    let mut cuts = Vec::new();
    for then in [Then::Close, Then::Break] {
        for again in [Again::Snapshot, Again::Rest, Again::Refuse, Again::Nothing] {
            cuts.extend((1..work().len()).map(|cut| async move {
                let agent = cut_at(cut, then, again).await;
                let peer = dial(&agent).await;
                let answer = peer.call(hello()).await;
                assert_eq!(answer.unwrap(), ok("done"), "{then:?} {again:?} {cut}");
                peer.close().await;
                assert_eq!(count(&agent, "SendStreamingMessage"), 1, "{then:?} {again:?} {cut}");
                assert_eq!(count(&agent, "SendMessage"), 0, "{then:?} {again:?} {cut}");
                assert_eq!(count(&agent, "CancelTask"), 0, "{then:?} {again:?} {cut}");
            }));
        }
    }
    futures_util::future::join_all(cuts).await;
}

/// An agent whose first stream ends after `cut` events, and whose task is done at the second look.
async fn cut_at(cut: usize, then: Then, again: Again) -> Agent {
    let looks = AtomicUsize::new(0);
    streaming(move |method, _| match (method, again) {
        ("SendStreamingMessage", _) => Reply::events(&work()[..cut], then),
        ("SubscribeToTask", Again::Snapshot) => {
            let snapshot = event(&json!({"task": task("TASK_STATE_WORKING", "do")}));
            // The artifact of the snapshot has no id: what is appended goes to the last one.
            let mut append = artifact("t1", "ne", true);
            append["artifactUpdate"]["artifact"]["artifactId"] = Value::Null;
            let events = [snapshot, event(&append), event(&status("t1", "TASK_STATE_COMPLETED"))];
            Reply::events(&events, Then::Hang)
        }
        ("SubscribeToTask", Again::Rest) => {
            Reply::events(&[event(&status("t1", "TASK_STATE_COMPLETED"))], Then::Hang)
        }
        ("SubscribeToTask", Again::Refuse) => Reply::json(refusal(-32004)),
        ("SubscribeToTask", Again::Nothing) => Reply::events::<String>(&[], then),
        ("GetTask", _) => match looks.fetch_add(1, Ordering::SeqCst) {
            0 => result(&task("TASK_STATE_WORKING", "do")),
            _ => result(&task("TASK_STATE_COMPLETED", "done")),
        },
        (other, _) => panic!("{other}"),
    })
    .await
}

#[tokio::test]
async fn a_stream_that_says_nothing_may_have_run() {
    for then in [Then::Close, Then::Break] {
        let agent = streaming(move |_, _| Reply::events::<String>(&[], then)).await;
        let error = dial(&agent).await.call(hello()).await.unwrap_err();
        assert!(matches!(error, CallError::Lost(_)), "{then:?}: {error}");
        assert_eq!(agent.seen().len(), 2, "it is not sent again");
    }
}

#[tokio::test]
async fn a_restart_in_the_middle_of_a_stream_is_waited_for() {
    let asked = AtomicUsize::new(0);
    let agent = streaming(move |method, _| match method {
        "SendStreamingMessage" => Reply::events(&work()[..2], Then::Break),
        _ => match asked.fetch_add(1, Ordering::SeqCst) {
            0 => Reply::hang_up(),
            1 => Reply::status(503),
            _ if method == "SubscribeToTask" => Reply::json(refusal(-32601)),
            _ => result(&task("TASK_STATE_COMPLETED", "done")),
        },
    })
    .await;
    assert_eq!(dial(&agent).await.call(hello()).await.unwrap(), ok("done"));
}

#[tokio::test]
async fn a_plain_reply_is_a_reply() {
    let agent = streaming(|method, _| match method {
        "SendStreamingMessage" => result(&json!({"message": {"parts": [{"text": "hi"}]}})),
        other => panic!("{other}"),
    })
    .await;
    assert_eq!(dial(&agent).await.call(hello()).await.unwrap(), ok("hi"));

    let agent = streaming(|method, _| match method {
        "SendStreamingMessage" => result(&json!({"task": task("TASK_STATE_WORKING", "")})),
        "GetTask" => result(&task("TASK_STATE_COMPLETED", "done")),
        other => panic!("{other}"),
    })
    .await;
    assert_eq!(dial(&agent).await.call(hello()).await.unwrap(), ok("done"));
}

#[tokio::test]
async fn an_agent_that_does_not_stream_after_all_is_asked_without() {
    type Refuse = fn() -> Reply;
    let refusals: [Refuse; 4] = [
        || Reply::json(refusal(-32004)),
        || Reply::json(refusal(-32601)),
        || Reply::events(&[refusal(-32004)], Then::Close),
        || Reply::status(405),
    ];
    for refuse in refusals {
        let agent = streaming(move |method, _| match method {
            "SendStreamingMessage" => refuse(),
            "SendMessage" => result(&json!({"message": {"parts": [{"text": "hi"}]}})),
            other => panic!("{other}"),
        })
        .await;
        let peer = dial(&agent).await;
        for _ in 0..3 {
            assert_eq!(peer.call(hello()).await.unwrap(), ok("hi"));
        }
        assert_eq!(count(&agent, "SendStreamingMessage"), 1, "that is remembered");
        assert_eq!(count(&agent, "SendMessage"), 3);
    }
}

#[tokio::test]
async fn other_refusals_are_the_answer() {
    for events in [false, true] {
        let agent = streaming(move |_, _| match events {
            true => Reply::events(&[refusal(-32603)], Then::Close),
            false => Reply::json(refusal(-32603)),
        })
        .await;
        let error = dial(&agent).await.call(hello()).await.unwrap_err();
        assert!(matches!(&error, CallError::Refused(why) if why.contains("-32603")), "{error}");
        assert_eq!(agent.seen().len(), 2, "it is not sent again");
    }
}

#[tokio::test]
async fn a_refusal_in_the_middle_of_a_stream_is_looked_into() {
    let agent = streaming(|method, _| match method {
        "SendStreamingMessage" => {
            let events = [work()[..2].to_vec(), vec![refusal(-32004)]].concat();
            Reply::events(&events, Then::Close)
        }
        "SubscribeToTask" => Reply::json(refusal(-32004)),
        "GetTask" => {
            let status =
                json!({"state": "TASK_STATE_FAILED", "message": {"parts": [{"text": "burnt"}]}});
            result(&json!({"id": "t1", "status": status}))
        }
        other => panic!("{other}"),
    })
    .await;
    let answer = dial(&agent).await.call(hello()).await.unwrap();
    assert_eq!(answer, Answer::Error("burnt".to_owned()));
}

#[tokio::test]
async fn events_of_another_task_are_neither_shown_nor_followed_nor_cancelled() {
    let agent = streaming(|method, _| match method {
        "SendStreamingMessage" => {
            let mut events = work();
            for (at, forged) in [
                artifact("victim", "secret", false),
                status("victim", "TASK_STATE_FAILED"),
                json!({"task": {"id": "victim", "status": {"state": "TASK_STATE_WORKING"}}}),
            ]
            .iter()
            .enumerate()
            {
                events.insert(at + 1, event(forged));
            }
            Reply::events(&events, Then::Hang)
        }
        other => panic!("{other}"),
    })
    .await;
    let peer = dial(&agent).await;
    assert_eq!(peer.call(hello()).await.unwrap(), ok("done"));

    let agent = streaming(|method, _| match method {
        "SendStreamingMessage" => Reply::events(&work()[..1], Then::Close),
        "SubscribeToTask" => Reply::json(refusal(-32004)),
        "GetTask" => {
            let stolen = json!({"parts": [{"text": "secret"}]});
            let completed = json!({"state": "TASK_STATE_COMPLETED"});
            result(&json!({"id": "victim", "status": completed, "artifacts": [stolen]}))
        }
        _ => Reply::json(refusal(-32002)),
    })
    .await;
    let peer = dial(&agent).await;
    let error = peer.call(hello()).await.unwrap_err();
    assert!(matches!(error, CallError::Unreadable(_)), "{error}");
    peer.close().await;
    assert!(!agent.seen().iter().any(|seen| seen.body.contains("victim")));
}

#[tokio::test]
async fn events_that_cannot_be_read_end_the_call_and_the_task() {
    let huge = format!("{{\"x\":\"{}\"}}", "x".repeat(link::MAX_REPLY));
    for (bad, too_large) in [("<html>".to_owned(), false), (huge, true)] {
        let agent = streaming(move |method, _| match method {
            "SendStreamingMessage" => Reply::events(&[work()[0].clone(), bad.clone()], Then::Hang),
            _ => result(&task("TASK_STATE_CANCELED", "")),
        })
        .await;
        let peer = dial(&agent).await;
        let error = peer.call(hello()).await.unwrap_err();
        match error {
            CallError::NotRead(NotRead::TooLarge { .. }) => assert!(too_large),
            CallError::Unreadable(_) => assert!(!too_large),
            other => panic!("{other}"),
        }
        peer.close().await;
        assert_eq!(count(&agent, "CancelTask"), 1);
    }
}

#[tokio::test]
async fn a_call_dropped_in_the_middle_of_a_stream_cancels_its_task() {
    let agent = streaming(|method, _| match method {
        "SendStreamingMessage" => Reply::events(&work()[..1], Then::Hang),
        _ => result(&task("TASK_STATE_CANCELED", "")),
    })
    .await;
    // A call that is dropped before its first event has come knows of no task: a busy machine gets
    // more time.
    for patience in [100, 1_000, 10_000] {
        let peer = dial(&agent).await;
        let patience = Duration::from_millis(patience);
        assert!(tokio::time::timeout(patience, peer.call(hello())).await.is_err());
        peer.close().await;
        if count(&agent, "CancelTask") > 0 {
            return;
        }
    }
    panic!("the task was not cancelled");
}

#[tokio::test]
async fn a_call_dropped_while_its_stream_is_resumed_cancels_its_task() {
    let (asked, mut is_asked) = tokio::sync::watch::channel(false);
    let agent = streaming(move |method, _| match method {
        "SendStreamingMessage" => Reply::events(&work()[..1], Then::Break),
        "SubscribeToTask" => {
            asked.send_replace(true);
            Reply::events::<String>(&[], Then::Hang)
        }
        "GetTask" => result(&task("TASK_STATE_WORKING", "")),
        _ => result(&task("TASK_STATE_CANCELED", "")),
    })
    .await;
    let peer = dial(&agent).await;
    tokio::select! {
        answer = peer.call(hello()) => panic!("{answer:?}"),
        asked = is_asked.wait_for(|asked| *asked) => drop(asked.unwrap()),
    }
    peer.close().await;
    assert_eq!(count(&agent, "CancelTask"), 1);
}
