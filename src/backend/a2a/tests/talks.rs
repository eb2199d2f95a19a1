//! Conversations: who goes on with what, and what happens when the agent will not.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt as _;
use serde_json::Value;

use super::*;
use crate::fake_http::hurried;

/// A call of `run`, in `session` if there is one.
fn of(run: &str, session: Option<&str>, message: &str) -> ToolCall {
    let arguments = json!({"message": message}).to_string();
    let request = request_of(run, session, "", &arguments);
    tool_call(CallRequest { tool_use: message.into(), ..request })
}

/// The message in a request.
fn sent(seen: &Seen) -> Value {
    let body: Value = serde_json::from_str(&seen.body).unwrap();
    body["params"]["message"].clone()
}

/// Asks back to `ask`, says `echo` back, and completes the task with all else.
fn reply(seen: &Seen) -> Value {
    let message = sent(seen);
    let text = message["parts"][0]["text"].as_str().unwrap();
    let context = message["contextId"].as_str().unwrap_or("c1");
    let id = message["taskId"].as_str().unwrap_or("t1");
    let part = json!({"parts": [{"text": format!("{context} {id}: {text}")}]});
    match text {
        "ask" => json!({"task": {
            "id": "t1", "contextId": "c1",
            "status": {"state": "TASK_STATE_INPUT_REQUIRED", "message": part},
        }}),
        "echo" => json!({"message": {"contextId": context, "parts": part["parts"]}}),
        _ => json!({"task": {
            "id": id, "contextId": context,
            "status": {"state": "TASK_STATE_COMPLETED"}, "artifacts": [part],
        }}),
    }
}

async fn talker() -> Agent {
    json_rpc(|seen| result(&reply(seen))).await
}

/// The ids that the last message went to.
fn last(agent: &Agent) -> (Option<String>, Option<String>) {
    let message = sent(agent.seen().last().unwrap());
    let id = |key: &str| message[key].as_str().map(str::to_owned);
    (id("contextId"), id("taskId"))
}

fn ids(context: Option<&str>, task: Option<&str>) -> (Option<String>, Option<String>) {
    (context.map(str::to_owned), task.map(str::to_owned))
}

#[track_caller]
fn asks_back(answer: &Answer) {
    assert!(
        matches!(answer, Answer::Result { text, .. }
            if text.contains("[the agent waits for input: call this tool again with the answer")),
        "{answer:?}"
    );
}

#[tokio::test]
async fn a_conversation_goes_on_with_a_dialer_that_is_configured_anew() {
    let agent = talker().await;
    let conversations = Conversations::default();
    let dial = async || {
        let card = CardSource::Base(agent.url.clone().into());
        dialer_of(card, conversations.clone()).dial().await.unwrap()
    };
    asks_back(&dial().await.call(of("r", None, "ask")).await.unwrap().answer);
    dial().await.call(of("r", None, "Monday")).await.unwrap();
    assert_eq!(last(&agent), ids(Some("c1"), Some("t1")));
}

#[tokio::test]
async fn a_run_goes_on_where_the_agent_waits_for_it() {
    let agent = talker().await;
    let peer = dial(&agent).await;
    asks_back(&peer.call(of("r", None, "ask")).await.unwrap().answer);
    assert_eq!(last(&agent), ids(None, None));
    let other = peer.call(of("other", None, "Monday")).await.unwrap().answer;
    assert_eq!(other, ok("c1 t1: Monday"));
    assert_eq!(last(&agent), ids(None, None), "what one run began is no other's");
    assert_eq!(peer.call(of("r", None, "Friday")).await.unwrap().answer, ok("c1 t1: Friday"));
    assert_eq!(last(&agent), ids(Some("c1"), Some("t1")));
    // The task has ended, and the conversation has not.
    assert_eq!(peer.call(of("r", None, "echo")).await.unwrap().answer, ok("c1 t1: echo"));
    assert_eq!(last(&agent), ids(Some("c1"), None));
    assert_eq!(peer.call(of("r", None, "more")).await.unwrap().answer, ok("c1 t1: more"));
    assert_eq!(last(&agent), ids(Some("c1"), None));
    peer.close().await;
    assert_eq!(count(&agent, "CancelTask"), 0);
}

#[tokio::test]
async fn the_runs_of_a_session_have_one_conversation_which_outlives_connections() {
    let agent = talker().await;
    let dialer = dialer(CardSource::Base(agent.url.clone().into()));
    let first = dialer.dial().await.unwrap();
    asks_back(&first.call(of("r1", Some("s"), "ask")).await.unwrap().answer);
    first.close().await;
    let second = dialer.dial().await.unwrap();
    second.call(of("r2", Some("other"), "Monday")).await.unwrap();
    assert_eq!(last(&agent), ids(None, None));
    second.call(of("r2", Some("s"), "Friday")).await.unwrap();
    assert_eq!(last(&agent), ids(Some("c1"), Some("t1")));
}

#[tokio::test]
async fn calls_of_no_run_have_no_conversation() {
    let agent = talker().await;
    let peer = dial(&agent).await;
    for _ in 0..2 {
        let call = tool_call(request("", r#"{"message": "ask"}"#));
        asks_back(&peer.call(call).await.unwrap().answer);
        assert_eq!(last(&agent), ids(None, None));
    }
}

#[tokio::test]
async fn a_conversation_that_the_agent_rejects_is_started_anew() {
    for code in [-32001, -32004, -32602] {
        let answer = move |seen: &Seen| {
            let message = sent(seen);
            let goes_on = message["contextId"].is_string() || message["taskId"].is_string();
            match goes_on {
                true => Reply::json(refusal(code)),
                false => result(&reply(seen)),
            }
        };
        let agent = json_rpc(answer).await;
        let peer = dial(&agent).await;
        asks_back(&peer.call(of("r", None, "ask")).await.unwrap().answer);
        assert_eq!(peer.call(of("r", None, "Friday")).await.unwrap().answer, ok("c1 t1: Friday"));
        assert_eq!(last(&agent), ids(None, None), "{code}");
        peer.close().await;
        assert_eq!(count(&agent, "CancelTask"), 0, "what was refused is not cancelled");
    }
}

#[tokio::test]
async fn a_refusal_of_another_kind_keeps_the_conversation() {
    let fails = std::sync::atomic::AtomicBool::new(false);
    let agent = json_rpc(move |seen| {
        let text = sent(seen)["parts"][0]["text"].clone();
        if text == "Friday" && !fails.swap(true, Ordering::SeqCst) {
            return Reply::status(503);
        }
        result(&reply(seen))
    })
    .await;
    let peer = dial(&agent).await;
    asks_back(&peer.call(of("r", None, "ask")).await.unwrap().answer);
    let error = peer.call(of("r", None, "Friday")).await.unwrap_err();
    assert!(matches!(error, CallError::Refused(_)), "{error}");
    assert_eq!(peer.call(of("r", None, "Friday")).await.unwrap().answer, ok("c1 t1: Friday"));
    assert_eq!(last(&agent), ids(Some("c1"), Some("t1")));
}

#[tokio::test]
async fn a_task_that_goes_on_is_cancelled_with_its_call() {
    let (asked, mut is_asked) = tokio::sync::watch::channel(false);
    let answer = move |seen: &Seen| match method(seen).as_str() {
        "SendMessage" if seen.body.contains("Friday") => {
            asked.send_replace(true);
            Reply::events::<String>(&[])
        }
        "CancelTask" => result(&task("TASK_STATE_CANCELED", "")),
        "GetTask" => Reply::status(503),
        _ => result(&reply(seen)),
    };
    let agent = json_rpc(answer).await;
    let peer = dial(&agent).await;
    asks_back(&peer.call(of("r", None, "ask")).await.unwrap().answer);
    tokio::select! {
        answer = peer.call(of("r", None, "Friday")) => panic!("{answer:?}"),
        asked = is_asked.wait_for(|asked| *asked) => drop(asked.unwrap()),
    }
    peer.close().await;
    assert_eq!(count(&agent, "CancelTask"), 1);
}

#[tokio::test]
async fn an_answer_that_got_lost_is_looked_for_at_its_task() {
    let answer = |seen: &Seen| match method(seen).as_str() {
        "GetTask" => result(&task("TASK_STATE_COMPLETED", "done")),
        _ if seen.body.contains("Friday") => Reply::hang_up(),
        _ => result(&reply(seen)),
    };
    let agent = json_rpc(answer).await;
    let peer = dial(&agent).await;
    asks_back(&peer.call(of("r", None, "ask")).await.unwrap().answer);
    assert_eq!(peer.call(of("r", None, "Friday")).await.unwrap().answer, ok("done"));
}

/// An agent that asks back, does not reply to the answer before its end, if `pends`, or hangs up,
/// and shows its task in the `states`, one after another.
async fn slow_answerer(pends: bool, states: &'static [&'static str]) -> Agent {
    let polls = AtomicUsize::new(0);
    json_rpc(move |seen| match method(seen).as_str() {
        "GetTask" => {
            let poll = polls.fetch_add(1, Ordering::SeqCst);
            result(&task(states[poll.min(states.len() - 1)], "done"))
        }
        "CancelTask" => result(&task("TASK_STATE_CANCELED", "")),
        _ if seen.body.contains("Friday") && pends => Reply::events::<String>(&[]),
        _ if seen.body.contains("Friday") => Reply::hang_up(),
        _ => result(&reply(seen)),
    })
    .await
}

#[tokio::test]
async fn the_work_on_an_answer_is_progress() {
    const STATES: &[&str] =
        &["TASK_STATE_INPUT_REQUIRED", "TASK_STATE_WORKING", "TASK_STATE_COMPLETED"];
    let agent = slow_answerer(true, STATES).await;
    let peer = dial(&agent).await;
    asks_back(&peer.call(of("r", None, "ask")).await.unwrap().answer);
    let answer = of("r", None, "Friday");
    let progress = answer.progress.clone();
    let called = hurried(|| count(&agent, "GetTask") > 0, peer.call(answer));
    let told = tokio::time::timeout(Duration::from_secs(100), called).await;
    assert_eq!(told.expect("the polls tell the end").unwrap().answer, ok("done"));
    assert!(progress.touched().now_or_never().is_some());
    peer.close().await;
    assert_eq!((count(&agent, "SendMessage"), count(&agent, "CancelTask")), (2, 0));
}

#[tokio::test]
async fn a_state_from_before_the_answer_is_no_reply_to_it() {
    for state in [&["TASK_STATE_INPUT_REQUIRED"], &["TASK_STATE_CANCELED"]] {
        let agent = slow_answerer(true, state).await;
        let peer = dial(&agent).await;
        asks_back(&peer.call(of("r", None, "ask")).await.unwrap().answer);
        let answer = of("r", None, "Friday");
        let progress = answer.progress.clone();
        let polled = || count(&agent, "GetTask");
        // More than a minute: the message is still on its way.
        let often = async {
            while polled() < 45 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let often = tokio::time::timeout(Duration::from_secs(300), often);
        tokio::select! {
            told = hurried(|| polled() > 0, peer.call(answer)) => panic!("{state:?}: {told:?}"),
            polled = often => polled.expect("the task is polled"),
        }
        assert!(progress.touched().now_or_never().is_none(), "nothing shows that it works");
    }
}

#[tokio::test]
async fn an_answer_that_was_worked_on_is_not_sent_again() {
    for trouble in [refusal(-32001), refusal(-32602)] {
        let (tell, told) = tokio::sync::oneshot::channel();
        let (tell, told) = (Mutex::new(Some(tell)), Mutex::new(Some(told)));
        let polls = AtomicUsize::new(0);
        let agent = json_rpc(move |seen| match method(seen).as_str() {
            "GetTask" => match polls.fetch_add(1, Ordering::SeqCst) {
                0 | 1 => result(&task("TASK_STATE_WORKING", "")),
                2 => {
                    tell.lock().unwrap().take().map(|tell| tell.send(()));
                    result(&task("TASK_STATE_WORKING", ""))
                }
                // The message has come to its end before.
                3..10 => result(&task("TASK_STATE_WORKING", "")),
                _ => result(&task("TASK_STATE_COMPLETED", "done")),
            },
            _ if seen.body.contains("Friday") => {
                let told = told.lock().unwrap().take().expect("it is sent once");
                Reply::json_after(told, trouble.clone())
            }
            _ => result(&reply(seen)),
        })
        .await;
        let peer = dial(&agent).await;
        asks_back(&peer.call(of("r", None, "ask")).await.unwrap().answer);
        assert_eq!(peer.call(of("r", None, "Friday")).await.unwrap().answer, ok("done"));
        peer.close().await;
        assert_eq!((count(&agent, "SendMessage"), count(&agent, "CancelTask")), (2, 0));
    }
}

#[tokio::test]
async fn a_question_is_no_reply_to_an_answer_that_got_lost() {
    let agent = slow_answerer(false, &["TASK_STATE_INPUT_REQUIRED"]).await;
    let peer = dial(&agent).await;
    asks_back(&peer.call(of("r", None, "ask")).await.unwrap().answer);
    let called = peer.call(of("r", None, "Friday"));
    let error = hurried(|| count(&agent, "GetTask") > 0, called).await.unwrap_err();
    assert!(matches!(error, CallError::Lost(_)), "{error:?}");
    // A new question is one that follows work.
    let states = &["TASK_STATE_WORKING", "TASK_STATE_INPUT_REQUIRED"];
    let agent = slow_answerer(false, states).await;
    let peer = dial(&agent).await;
    asks_back(&peer.call(of("r", None, "ask")).await.unwrap().answer);
    asks_back(&peer.call(of("r", None, "Friday")).await.unwrap().answer);
}
