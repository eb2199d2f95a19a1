//! What a call tells while it goes on, and what becomes of its task after a restart.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::*;
use crate::backend::peer::{Handle, NotRecorded, Recorder};
use crate::fake_http::hurried;
use crate::model::catalog::Identity;

/// Remembers what it was told.
#[derive(Debug, Default)]
struct Notes(Mutex<Vec<Handle>>);

impl Recorder for Notes {
    fn dispatching(&self, _: Option<&Identity>) -> BoxFuture<'_, Result<(), NotRecorded>> {
        Box::pin(async { Ok(()) })
    }

    fn named(&self, handle: &Handle) {
        self.0.lock().push(handle.clone());
    }
}

/// An agent whose task is seen at work once and is then in `state`, with `text` in its artifact and
/// its message.
async fn worker(state: &'static str, text: &'static str) -> Agent {
    let task = move |state: &str| {
        let mut task = task(state, text);
        task["contextId"] = "c1".into();
        task["status"]["message"] = json!({"parts": [{"text": text}]});
        json!({ "task": task })
    };
    let looks = AtomicUsize::new(0);
    let answer = move |seen: &Seen| match method(seen).as_str() {
        "SendMessage" => result(&task("TASK_STATE_SUBMITTED")),
        "GetTask" => match looks.fetch_add(1, Ordering::SeqCst) {
            0 => result(&task("TASK_STATE_WORKING")["task"]),
            _ => result(&task(state)["task"]),
        },
        "CancelTask" => result(&task("TASK_STATE_CANCELED")["task"]),
        other => panic!("{other}"),
    };
    json_rpc(answer).await
}

fn handle(text: &str) -> Handle {
    Handle(text.to_owned())
}

fn t1() -> Handle {
    handle(r#"{"task":"t1","context":"c1"}"#)
}

#[track_caller]
fn nothing_was_sent(agent: &Agent) {
    for seen in agent.seen() {
        assert!(!seen.body.contains("message"), "{}", seen.body);
    }
}

#[tokio::test]
async fn a_call_tells_that_it_lives_and_what_its_task_is_called() {
    let agent = worker("TASK_STATE_COMPLETED", "done").await;
    let (notes, mut call) = (Arc::new(Notes::default()), hello());
    call.recorder = notes.clone();
    let progress = call.progress.clone();
    assert_eq!(dial(&agent).await.call(call).await.unwrap().answer, ok("done"));
    assert_eq!(*notes.0.lock(), [t1()]);
    assert!(progress.touched().now_or_never().is_some());
}

#[tokio::test]
async fn task_that_ends_at_once_needs_no_name() {
    let agent = Agent::start(|seen| match seen.path.as_str() {
        "/rpc" if seen.body.contains("task") => {
            result(&json!({ "task": task("TASK_STATE_COMPLETED", "done") }))
        }
        "/rpc" => result(&json!({"message": {"parts": [{"text": "hi"}]}})),
        _ => Reply::json(card()),
    })
    .await;
    let peer = dial(&agent).await;
    for message in ["a task", "hello"] {
        let (notes, mut call) = (Arc::new(Notes::default()), call(&json!({ "message": message })));
        call.recorder = notes.clone();
        let progress = call.progress.clone();
        peer.call(call).await.unwrap();
        assert!(notes.0.lock().is_empty(), "{message}");
        assert!(progress.touched().now_or_never().is_none(), "{message}");
    }
}

#[tokio::test]
async fn a_task_with_an_endless_name_is_followed_and_not_noted_down() {
    let long = "t".repeat(2_000);
    let named = json!({"id": long, "status": {"state": "TASK_STATE_WORKING"}});
    let mut done = named.clone();
    done["status"]["state"] = "TASK_STATE_COMPLETED".into();
    let agent = json_rpc(move |seen| match method(seen).as_str() {
        "SendMessage" => result(&json!({ "task": named })),
        _ => result(&done),
    })
    .await;
    let (notes, mut call) = (Arc::new(Notes::default()), hello());
    call.recorder = notes.clone();
    let answer = dial(&agent).await.call(call).await.unwrap().answer;
    assert_eq!(answer, ok("[the agent completed the task and gave no answer]"));
    assert!(notes.0.lock().is_empty());
}

#[tokio::test]
async fn a_task_is_picked_up_where_it_is() {
    let failed = Answer::Error("burnt".to_owned());
    for (state, text, expected) in [
        ("TASK_STATE_COMPLETED", "done", ok("done")),
        ("TASK_STATE_FAILED", "burnt", failed.clone()),
    ] {
        let agent = worker(state, text).await;
        let (notes, mut call) = (Arc::new(Notes::default()), hello());
        call.recorder = notes.clone();
        let progress = call.progress.clone();
        let peer = dial(&agent).await;
        assert_eq!(peer.resume(t1(), call).await.unwrap().answer, expected);
        peer.close().await;
        assert!(progress.touched().now_or_never().is_some());
        assert_eq!(*notes.0.lock(), [t1()]);
        assert_eq!(count(&agent, "CancelTask"), 0);
        nothing_was_sent(&agent);
    }
}

#[tokio::test]
async fn a_task_that_asks_back_goes_on_with_the_next_call() {
    let agent = worker("TASK_STATE_INPUT_REQUIRED", "Which day?").await;
    let peer = dial(&agent).await;
    let answer = peer.resume(t1(), hello()).await.unwrap().answer;
    assert!(
        matches!(&answer, Answer::Result { text, .. }
            if text.starts_with("Which day?\n[")),
        "{answer:?}"
    );
    drop(peer.call(hello()).await);
    let seen = agent.seen();
    let sent = seen.iter().find(|seen| method(seen).starts_with("Send")).unwrap();
    let body: serde_json::Value = serde_json::from_str(&sent.body).unwrap();
    let message = &body["params"]["message"];
    assert_eq!((&message["taskId"], &message["contextId"]), (&"t1".into(), &"c1".into()));
}

#[tokio::test]
async fn task_of_which_the_agent_tells_nothing_is_lost() {
    for code in [-32001, -32602, -32601] {
        let agent = json_rpc(move |_| Reply::json(refusal(code))).await;
        let peer = dial(&agent).await;
        let resumed = peer.resume(t1(), hello());
        let error = hurried(|| count(&agent, "GetTask") > 0, resumed).await.unwrap_err();
        assert!(matches!(error, CallError::Unclear { .. }), "{code}: {error:?}");
        nothing_was_sent(&agent);
    }
    let agent = json_rpc(|_| panic!("nothing must be asked")).await;
    let peer = dial(&agent).await;
    for bad in ["", "{}", "t1", r#"{"task":7}"#] {
        let error = peer.resume(handle(bad), hello()).await.unwrap_err();
        assert!(matches!(error, CallError::Lost(_)), "{bad}: {error:?}");
    }
}

#[tokio::test]
async fn a_later_version_may_note_down_more() {
    let agent = worker("TASK_STATE_COMPLETED", "done").await;
    let more = handle(r#"{"v":2,"task":"t1","history":[]}"#);
    assert_eq!(dial(&agent).await.resume(more, hello()).await.unwrap().answer, ok("done"));
}

#[tokio::test]
async fn a_call_that_was_picked_up_and_dropped_cancels_its_task() {
    let (asked, mut is_asked) = tokio::sync::watch::channel(false);
    let answer = move |seen: &Seen| match method(seen).as_str() {
        "CancelTask" => result(&task("TASK_STATE_CANCELED", "")),
        _ => {
            asked.send_replace(true);
            result(&task("TASK_STATE_WORKING", ""))
        }
    };
    let agent = json_rpc(answer).await;
    let peer = dial(&agent).await;
    tokio::select! {
        answer = peer.resume(t1(), hello()) => panic!("{answer:?}"),
        asked = is_asked.wait_for(|asked| *asked) => drop(asked.unwrap()),
    }
    peer.close().await;
    assert_eq!(count(&agent, "CancelTask"), 1);
}
