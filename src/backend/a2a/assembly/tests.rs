//! What streams tell, put together.

use super::*;
use crate::backend::a2a::result::{Outcome, Stage};
use crate::backend::a2a::update;
use crate::model::Answer;

async fn assembled(events: &[&str]) -> Assembly {
    let mut assembly = Assembly::new(PartEncoding::Plain);
    for event in events {
        let event: &RawValue = serde_json::from_str(event).unwrap();
        assembly.take(update::read(event).unwrap()).await.unwrap();
    }
    assembly
}

async fn text(events: &[&str]) -> String {
    let reply = assembled(events).await.reply().unwrap().expect("there is a reply");
    match reply.outcome {
        Outcome::Final(Answer::Result { text, .. }) => text,
        other => panic!("{other:?}"),
    }
}

const BEGUN: &str = r#"{"kind":"task","id":"t","contextId":"c","status":{"state":"submitted"}}"#;
const ENDED: &str =
    r#"{"kind":"status-update","taskId":"t","status":{"state":"completed"},"final":true}"#;

fn piece(text: &str, more: &str) -> String {
    format!(
        r#"{{"kind":"artifact-update","taskId":"t","artifact":{{"artifactId":"a","parts":[{{"kind":"text","text":"{text}"}}]}}{more}}}"#
    )
}

fn status(state: &str, id: &str, text: &str) -> String {
    format!(
        r#"{{"kind":"status-update","taskId":"t","status":{{"state":"{state}","message":{{"messageId":"{id}","parts":[{{"text":"{text}"}}]}}}}}}"#
    )
}

#[tokio::test]
async fn appended_pieces_are_one_text_and_parts_are_paragraphs() {
    let (first, second) = (piece("Hel", ""), piece("lo", r#","append":true"#));
    assert_eq!(text(&[BEGUN, &first, &second, ENDED]).await, "Hello");
    let both = r#"{"artifactUpdate":{"taskId":"t","artifact":{"parts":[{"text":"Title"},{"text":"Paragraph one."}]}}}"#;
    assert_eq!(text(&[BEGUN, both, ENDED]).await, "Title\nParagraph one.");
}

#[tokio::test]
async fn artifact_that_is_sent_again_replaces_the_first() {
    assert_eq!(text(&[BEGUN, &piece("draft", ""), &piece("final", ""), ENDED]).await, "final");
}

#[tokio::test]
async fn pieces_out_of_order_are_doubted() {
    let more = r#","append":true"#;
    let last = r#","append":true,"lastChunk":true"#;
    for (events, doubted) in [
        (vec![piece("a", ""), piece("b", more), piece("c", last)], false),
        (vec![piece("a", more)], true),
        (vec![piece("a", ""), piece("b", last), piece("c", more)], true),
        (vec![piece("a", ""), piece("b", more), piece("b", more)], true),
        (vec![piece("a", ""), piece("a", "")], false),
    ] {
        let events: Vec<&str> = events.iter().map(String::as_str).collect();
        assert_eq!(assembled(&events).await.doubt().is_some(), doubted, "{events:?}");
    }
}

#[tokio::test]
async fn words_are_the_answer_where_nothing_was_made() {
    let (looking, answer) = (status("working", "1", "looking"), status("working", "2", "42"));
    // The same status again says nothing new.
    assert_eq!(text(&[BEGUN, &looking, &answer, &answer, ENDED]).await, "looking\n42");
    assert_eq!(text(&[BEGUN, &looking, &piece("made", ""), ENDED]).await, "made");
    let message = |text: &str| {
        format!(
            r#"{{"kind":"message","message_id":"m","task_id":"t","parts":[{{"text":"{text}"}}]}}"#
        )
    };
    assert_eq!(text(&[BEGUN, &message("on"), &message("e"), ENDED]).await, "one");
    // The whole task says it again.
    let task = r#"{"kind":"task","id":"t","status":{"state":"completed"},"history":[{"role":"agent","parts":[{"text":"one"}]}]}"#;
    assert_eq!(text(&[BEGUN, &message("on"), &message("e"), ENDED, task]).await, "one");
}

#[tokio::test]
async fn message_without_a_task_is_the_reply() {
    let assembly = assembled(&[r#"{"message":{"contextId":"c","parts":[{"text":"hi"}]}}"#]).await;
    let reply = assembly.reply().unwrap().unwrap();
    assert_eq!((reply.outcome, reply.task_id), (Outcome::Final(Answer::text("hi")), None));
    assert_eq!(assembly.stage(), Stage::Ended);
}

#[tokio::test]
async fn failure_keeps_what_was_made() {
    let assembly = assembled(&[BEGUN, &piece("letter 1 was sent", "")]).await;
    let reply = assembly.failed("A2A error -32603: boom").unwrap();
    let Outcome::Final(Answer::Error(text)) = reply.outcome else { panic!("{reply:?}") };
    assert!(text.starts_with("A2A error -32603: boom\n"), "{text}");
    assert!(text.ends_with("\nletter 1 was sent"), "{text}");
}

#[tokio::test]
async fn ten_thousand_pieces_are_one_text() {
    let mut assembly = assembled(&[BEGUN, &piece("x", "")]).await;
    for number in 0..10_000 {
        let event = piece(&format!("{number},"), r#","append":true"#);
        let event: &RawValue = serde_json::from_str(&event).unwrap();
        assembly.take(update::read(event).unwrap()).await.unwrap();
    }
    assert!(assembly.bytes < 100_000, "{}", assembly.bytes);
    let end: &RawValue = serde_json::from_str(ENDED).unwrap();
    assembly.take(update::read(end).unwrap()).await.unwrap();
    let reply = assembly.reply().unwrap().unwrap();
    let Outcome::Final(Answer::Result { text, .. }) = reply.outcome else { panic!("{reply:?}") };
    assert!(text.starts_with("x0,1,") && text.ends_with("9999,"), "{}", text.len());
}

#[tokio::test]
async fn replaced_part_is_not_counted() {
    let before = assembled(&[BEGUN, &piece("x", "")]).await.bytes;
    let mut assembly = assembled(&[BEGUN, &piece("x", "")]).await;
    let task = r#"{"kind":"task","id":"t","contextId":"c","status":{"state":"submitted"},"artifacts":[{"artifactId":"a","parts":[{"text":"x"}]}],"history":[{"role":"agent","parts":[{"text":"w"}]}]}"#;
    for event in [task, &piece("x", ""), task, &piece("x", ""), task] {
        let event: &RawValue = serde_json::from_str(event).unwrap();
        assembly.take(update::read(event).unwrap()).await.unwrap();
    }
    assert_eq!(assembly.bytes, before + total(&assembly.messages));
}

#[tokio::test]
async fn more_than_a_reply_may_have_is_refused() {
    let mut assembly = assembled(&[BEGUN]).await;
    let text = "x".repeat(1 << 20);
    let refused = async {
        loop {
            let event = piece(&text, r#","append":true"#);
            let event: &RawValue = serde_json::from_str(&event).unwrap();
            if let Err(failure) = assembly.take(update::read(event).unwrap()).await {
                break failure;
            }
        }
    };
    let failure = refused.await;
    assert!(
        matches!(failure, A2aFailure::Call(CallError::NotRead(NotRead::TooLarge { .. }))),
        "{failure:?}"
    );
    assert!(assembly.bytes <= MAX_REPLY + (1 << 20) + 100, "{}", assembly.bytes);
}
