//! What a server asks is put to a person within the call's time, and within the app's bounds.

use serde_json::json;
use serde_json::value::to_raw_value;
use tokio::time::timeout;

use super::harness::Harness;
use super::*;
use crate::backend::CallOutcome;
use crate::backend::fake;
use crate::backend::peer::MAX_QUESTION;
use crate::calls::approvals::{Approval, Decision, KEEP};
use crate::model::answer::Answer;
use crate::model::approval::Outcome;
use crate::model::ending::Ending;

/// A backend whose tool asks for a name, with this message.
async fn asking(message: &str) -> Harness {
    let harness = Harness::start(None).await;
    let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}});
    let params = to_raw_value(&json!({"message": message, "requestedSchema": schema})).unwrap();
    *harness.world.asking.lock().unwrap() = Some(params);
    harness
}

fn error(made: &CallOutcome) -> &str {
    match &made.answer {
        Answer::Error(why) => why,
        Answer::Result { .. } => panic!("{made:?}"),
    }
}

/// Waits until a person is asked.
async fn asked(harness: &Harness) -> Approval {
    loop {
        if let Some(one) = harness.runs.calls.approvals.of(None).into_iter().next() {
            return one;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn the_server_is_told_in_time_that_nobody_answers() {
    let harness = asking("Who?").await;
    let begun = Instant::now();
    // Not before the journal's thread has done its part: paused time does not wait for a thread.
    let pause = async {
        asked(&harness).await;
        tokio::time::pause();
    };
    let (made, ()) = tokio::join!(harness.by_hand(), pause);
    let told = error(&made);
    assert!(told.starts_with(r#"{"action":"cancel"} "#), "{told}");
    assert!(told.ends_with("nobody answered it in time."), "{told}");
    assert_eq!(made.ending, Ending::Refused, "it has not timed out");
    // The idle time of the backend is 60 s, and the call has 285 s.
    let waited = begun.elapsed().as_secs();
    assert!((274..285).contains(&waited), "{waited}");
    let ended = harness.runs.calls.approvals.of(None).remove(0);
    assert_eq!((ended.outcome(), ended.kind()), (Some(Outcome::Expired), "question"));
    assert!(ended.question.is_none(), "what has ended takes no room");
}

#[tokio::test]
async fn a_decision_becomes_the_servers_result() {
    struct Case {
        outcome: Outcome,
        content: Option<&'static str>,
        result: &'static str,
        told: &'static str,
    }
    for Case { outcome, content, result, told } in [
        Case {
            outcome: Outcome::Answered,
            content: Some(r#"{"name":"Ada"}"#),
            result: r#"{"action":"accept","content":{"name":"Ada"}}"#,
            told: "",
        },
        Case {
            outcome: Outcome::Denied,
            content: None,
            result: r#"{"action":"decline"}"#,
            told: "declined. The reason: so",
        },
    ] {
        let harness = asking("Who?").await;
        let decided = async {
            let id = asked(&harness).await.id;
            let decision = Decision {
                outcome,
                content: content.map(str::to_owned),
                by: Some("operator".to_owned()),
                reason: Some("so".to_owned()),
            };
            harness.runs.calls.approvals.decide(None, id.as_str(), decision).unwrap();
        };
        let (made, ()) = tokio::join!(harness.by_hand(), decided);
        let why = error(&made);
        assert!(why.starts_with(result) && why.ends_with(told), "{outcome:?}: {why}");
        assert!(!told.is_empty() || why == result, "an answer needs no word: {why}");
    }
}

#[tokio::test]
async fn question_beyond_the_limit_is_cancelled_at_once() {
    let harness = asking("Who?").await;
    let approvals = &harness.runs.calls.approvals;
    let request = fake::request("ls", "{}");
    let until = Instant::now() + Duration::from_secs(3600);
    let mut others = Vec::new();
    while let Ok(other) = approvals.ask(&request, None, until) {
        others.push(other);
    }
    assert!(others.len() > KEEP);
    let made = timeout(Duration::from_secs(60), harness.by_hand()).await.expect("at once");
    let told = error(&made);
    assert!(told.starts_with(r#"{"action":"cancel"} "#) && told.contains("too many"), "{told}");
    drop(others);

    let harness = asking(&"x".repeat(MAX_QUESTION)).await;
    let made = timeout(Duration::from_secs(60), harness.by_hand()).await.expect("at once");
    assert!(error(&made).contains("too long"), "{made:?}");
    assert!(harness.runs.calls.approvals.of(None).is_empty(), "no person is asked");
}

#[tokio::test]
async fn a_stop_cancels_what_no_next_process_could_ask() {
    let harness = asking("Who?").await;
    let stopped = async {
        asked(&harness).await;
        harness.runs.draining().cancel();
    };
    let (made, ()) = tokio::join!(harness.by_hand(), stopped);
    assert_eq!(error(&made), r#"{"action":"cancel"}"#);
}
