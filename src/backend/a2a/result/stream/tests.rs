//! Replies gathered out of events, in every wire.

use super::*;
use crate::model::answer::Answer;

const LIMIT: usize = 10_000;

fn fresh() -> Gathering {
    Gathering::new(PartEncoding::Plain, LIMIT, None, None)
}

/// The reply that `events` lead to with the last of them, and not before.
#[track_caller]
fn gathered(mut gathering: Gathering, events: &[&str]) -> Reply {
    for (place, event) in events.iter().enumerate() {
        match gathering.push(event).unwrap() {
            Step::Done(reply) if place + 1 == events.len() => return reply,
            Step::Done(reply) => panic!("{event}: {reply:?}"),
            Step::More | Step::LeftOut(_) => {}
        }
    }
    panic!("{gathering:?}");
}

fn done(text: &str) -> Outcome {
    Outcome::Final(Answer::text(text))
}

const TASK: &str =
    r#"{"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_SUBMITTED"}}}"#;
const COMPLETED: &str =
    r#"{"statusUpdate":{"taskId":"t","contextId":"c","status":{"state":"TASK_STATE_COMPLETED"}}}"#;

fn artifact(artifact: &str, flags: &str) -> String {
    format!(r#"{{"artifactUpdate":{{"taskId":"t","contextId":"c","artifact":{artifact}{flags}}}}}"#)
}

#[test]
fn a_task_of_every_wire() {
    let v10 = [
        TASK,
        r#"{"statusUpdate":{"taskId":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}}"#,
        r#"{"artifactUpdate":{"taskId":"t","contextId":"c","artifact":{"artifactId":"a","parts":[{"text":"x"},{"data":{"n":1e400}}]}}}"#,
        COMPLETED,
    ];
    let v03 = [
        r#"{"kind":"task","id":"t","contextId":"c","status":{"state":"submitted"}}"#,
        r#"{"kind":"status-update","taskId":"t","contextId":"c","final":false,"status":{"state":"working"}}"#,
        r#"{"kind":"artifact-update","taskId":"t","contextId":"c","artifact":{"artifactId":"a","parts":[{"kind":"text","text":"x"},{"kind":"data","data":{"n":1e400}}]}}"#,
        r#"{"kind":"status-update","taskId":"t","contextId":"c","final":true,"status":{"state":"completed"}}"#,
    ];
    for events in [v10, v03] {
        let reply = gathered(fresh(), &events);
        assert_eq!(reply.outcome, done("x\n{\"n\":1e400}"));
        assert_eq!(reply.task_id.as_deref(), Some("t"));
        assert_eq!(reply.context_id.as_deref(), Some("c"));
    }
    let nested = Gathering::new(PartEncoding::Nested, LIMIT, None, None);
    let data = r#"{"artifactUpdate":{"taskId":"t","artifact":{"artifactId":"a","parts":[{"data":{"data":{"n":1}}}]}}}"#;
    assert_eq!(gathered(nested, &[TASK, data, COMPLETED]).outcome, done(r#"{"n":1}"#));
}

#[test]
fn a_message_is_the_reply() {
    for event in [
        r#"{"message":{"contextId":"c","parts":[{"text":"hi"}]}}"#,
        r#"{"message":{"contextId":"c","content":[{"text":"hi"}]}}"#,
        r#"{"kind":"message","contextId":"c","parts":[{"kind":"text","text":"hi"}]}"#,
    ] {
        let reply = gathered(fresh(), &[event]);
        assert_eq!(reply.outcome, done("hi"));
        assert_eq!((reply.task_id, reply.context_id.as_deref()), (None, Some("c")));
    }
    let mut gathering = fresh();
    assert_eq!(gathering.push(TASK), Ok(Step::More));
    let beside = gathering.push(r#"{"message":{"parts":[{"text":"on my way"}]}}"#);
    assert!(matches!(beside, Ok(Step::LeftOut(_))), "{beside:?}");
}

#[test]
fn artifacts_grow_and_are_replaced() {
    let chunk = |id: &str, text: &str, flags: &str| {
        artifact(&format!(r#"{{"artifactId":"{id}","parts":[{{"text":"{text}"}}]}}"#), flags)
    };
    let append = r#","append":true"#;
    let events = [
        TASK.to_owned(),
        chunk("a", "draft", ""),
        chunk("a", "He", r#","append":false"#),
        chunk("b", "1", ""),
        chunk("a", "ll", append),
        chunk("b", "2", append),
        chunk("a", "o \\u00e9", r#","append":true,"lastChunk":true"#),
        artifact(r#"{"artifactId":"a","parts":[{"data":{}},{"text":"!"}]}"#, append),
        chunk("c", "new", append),
        artifact(r#"{"parts":[{"text":"er"}]}"#, append),
        artifact(r#"{"parts":[{"text":"nameless"}]}"#, ""),
        COMPLETED.to_owned(),
    ];
    let events: Vec<&str> = events.iter().map(String::as_str).collect();
    let expected = "Hello \u{e9}\n{}\n!\n12\nnewer\nnameless";
    assert_eq!(gathered(fresh(), &events).outcome, done(expected));
}

#[test]
fn a_task_as_it_stands_replaces_what_was_gathered() {
    let chunk = artifact(r#"{"artifactId":"a","parts":[{"text":"1"}]}"#, "");
    let more = artifact(r#"{"artifactId":"a","parts":[{"text":"3"}]}"#, r#","append":true"#);
    let snapshot = r#"{"task":{"id":"t","status":{"state":"TASK_STATE_WORKING"},"artifacts":[{"artifactId":"a","parts":[{"text":"1"},{"text":"2"}]}]}}"#;
    let mut gathering = fresh();
    for event in [TASK, &chunk] {
        assert_eq!(gathering.push(event), Ok(Step::More));
    }
    gathering.resumed();
    assert!(gathering.has_gap());
    assert_eq!(gathering.push(snapshot), Ok(Step::More));
    assert!(!gathering.has_gap(), "nothing is missing in a whole task");
    assert_eq!(gathered(gathering, &[&more, COMPLETED]).outcome, done("1\n23"));
}

#[test]
fn what_waits_or_fails_ends_the_reply() {
    let status = |state: &str| {
        format!(
            r#"{{"kind":"status-update","taskId":"t","final":false,"status":{{"state":"{state}","message":{{"parts":[{{"text":"Which day?"}}]}}}}}}"#
        )
    };
    let reply = gathered(fresh(), &[TASK, &status("input-required")]);
    assert!(
        matches!(&reply.outcome, Outcome::Waiting(Answer::Result { text, .. }) if text.starts_with("Which day?\n[")),
        "{reply:?}"
    );
    let reply = gathered(fresh(), &[TASK, &status("failed")]);
    assert_eq!(reply.outcome, Outcome::Final(Answer::Error("Which day?".to_owned())));
}

#[test]
fn a_task_that_waited_is_not_taken_for_one_that_waits_again() {
    let waits =
        r#"{"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_INPUT_REQUIRED"}}}"#;
    let continued = || Gathering::new(PartEncoding::Plain, LIMIT, Some("t"), Some("c"));
    assert_eq!(gathered(continued(), &[waits, COMPLETED]).outcome, done(""));
    let again = r#"{"statusUpdate":{"taskId":"t","status":{"state":"TASK_STATE_INPUT_REQUIRED"}}}"#;
    assert!(matches!(gathered(continued(), &[waits, again]).outcome, Outcome::Waiting(_)));
    assert!(matches!(gathered(continued(), &[again]).outcome, Outcome::Waiting(_)));
    // On a stream that was asked for anew, it is the truth.
    let mut resumed = continued();
    resumed.resumed();
    assert!(matches!(gathered(resumed, &[waits]).outcome, Outcome::Waiting(_)));
}

#[test]
fn events_of_other_tasks_are_left_out() {
    let other = [
        r#"{"task":{"id":"x","contextId":"c","status":{"state":"TASK_STATE_COMPLETED"},"artifacts":[{"parts":[{"text":"secret"}]}]}}"#,
        r#"{"statusUpdate":{"taskId":"x","contextId":"c","status":{"state":"TASK_STATE_FAILED"}}}"#,
        r#"{"artifactUpdate":{"taskId":"x","contextId":"c","artifact":{"artifactId":"a","parts":[{"text":"secret"}]}}}"#,
    ];
    let mut gathering = fresh();
    assert_eq!(gathering.push(TASK), Ok(Step::More));
    for event in other {
        assert_eq!(gathering.push(event), Ok(Step::LeftOut(FOREIGN)), "{event}");
        assert_eq!(gathering.task(), Some("t"));
    }
    assert_eq!(gathered(gathering, &[COMPLETED]).outcome, done(""));
}

#[test]
fn a_message_may_be_answered_with_another_task_of_the_conversation() {
    let next = r#"{"task":{"id":"t2","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}}"#;
    let mut gathering = Gathering::new(PartEncoding::Plain, LIMIT, Some("t"), Some("c"));
    assert_eq!(gathering.push(next), Ok(Step::More));
    assert_eq!(gathering.task(), Some("t2"));
    let mut gathering = Gathering::new(PartEncoding::Plain, LIMIT, Some("t"), Some("d"));
    assert_eq!(gathering.push(next), Ok(Step::LeftOut(FOREIGN)));
    assert_eq!(gathering.task(), Some("t"));
}

#[test]
fn events_that_nobody_knows_are_left_out() {
    let mut gathering = fresh();
    for event in [
        "{}",
        r#"{"kind":"hologram"}"#,
        r#"{"heartbeat":{}}"#,
        r#"{"statusUpdate":{"taskId":"t","status":{"state":"dreaming"}}}"#,
        r#"{"artifactUpdate":{"taskId":"t","artifact":[]}}"#,
    ] {
        assert!(matches!(gathering.push(event), Ok(Step::LeftOut(_))), "{event}");
    }
    assert!(matches!(gathering.push("[]"), Err(Unreadable::NotAnObject(_))));
}

#[test]
fn a_stream_has_an_end_of_its_size() {
    let chunk = artifact(
        &format!(r#"{{"artifactId":"a","parts":[{{"text":"{}"}}]}}"#, "x".repeat(999)),
        r#","append":true"#,
    );
    let mut gathering = fresh();
    assert_eq!(gathering.push(TASK), Ok(Step::More));
    let taken = (0..).take_while(|_| gathering.push(&chunk) == Ok(Step::More)).count();
    assert!((8..10).contains(&taken), "{taken}");
    assert_eq!(gathering.push(&chunk), Err(Unreadable::TooLarge));

    let replaced = chunk.replace("true", "false");
    let mut gathering = fresh();
    assert!((0..100).all(|_| gathering.push(&replaced) == Ok(Step::More)), "it does not grow");
}
