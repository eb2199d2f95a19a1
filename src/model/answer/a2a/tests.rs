//! Replies of both wires, and the same answer for both.

use super::*;

#[track_caller]
fn outcome(result: &str) -> Outcome {
    read(result, DataParts::Plain).unwrap().outcome
}

fn done(text: &str) -> Outcome {
    Outcome::Final(Answer::Result(text.to_owned()))
}

fn failed(text: &str) -> Outcome {
    Outcome::Final(Answer::Error(text.to_owned()))
}

#[test]
fn messages_of_every_wire() {
    let v10 = r#"{"message":{"messageId":"1","role":"ROLE_AGENT","contextId":"c","parts":[{"text":"a"},{"text":"b"}]}}"#;
    let v03 = r#"{"kind":"message","messageId":"1","role":"agent","contextId":"c","parts":[{"kind":"text","text":"a"},{"kind":"text","text":"b"}]}"#;
    let v03_proto = r#"{"message":{"messageId":"1","role":"ROLE_AGENT","contextId":"c","content":[{"text":"a"},{"text":"b"}]}}"#;
    for result in [v10, v03, v03_proto] {
        let reply = read(result, DataParts::Nested).unwrap();
        assert_eq!(reply.outcome, done("a\nb"));
        assert_eq!(reply.context_id.as_deref(), Some("c"));
        assert_eq!(reply.task_id, None);
    }
}

#[test]
fn a_completed_task_is_its_artifacts() {
    let v10 = r#"{"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_COMPLETED","message":{"parts":[{"text":"ignored"}]}},"artifacts":[{"parts":[{"text":"a"}]},{"parts":[{"text":"b"},{"text":"c"}]}]}}"#;
    let reply = read(v10, DataParts::Plain).unwrap();
    assert_eq!(reply.outcome, done("a\nb\nc"));
    assert_eq!(reply.task_id.as_deref(), Some("t"));
    assert_eq!(reply.left_out.len(), 1);
    let v03 = r#"{"kind":"task","id":"t","status":{"state":"completed"},"artifacts":[{"parts":[{"kind":"text","text":"a"}]}]}"#;
    assert_eq!(outcome(v03), done("a"));
}

#[test]
fn a_completed_task_without_artifacts_is_its_status_message() {
    let result = r#"{"id":"t","status":{"state":"TASK_STATE_COMPLETED","message":{"parts":[{"text":"done"}]}}}"#;
    assert_eq!(outcome(result), done("done"));
    assert_eq!(outcome(r#"{"id":"t","status":{"state":"completed"}}"#), done(""));
}

#[test]
fn tasks_that_go_on() {
    for state in ["submitted", "working", "TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"] {
        let result = format!(r#"{{"id":"t","status":{{"state":"{state}"}}}}"#);
        assert_eq!(outcome(&result), Outcome::Unfinished, "{state}");
    }
    let result = r#"{"status":{"state":"working"}}"#;
    assert_eq!(read(result, DataParts::Plain), Err(Unreadable::NoTaskId));
}

#[test]
fn tasks_that_failed() {
    for state in [
        "failed",
        "rejected",
        "canceled",
        "TASK_STATE_FAILED",
        "TASK_STATE_REJECTED",
        "TASK_STATE_CANCELED",
        "TASK_STATE_CANCELLED",
    ] {
        let said = format!(
            r#"{{"id":"t","status":{{"state":"{state}","message":{{"parts":[{{"text":"no"}}]}}}}}}"#
        );
        assert_eq!(outcome(&said), failed("no"), "{state}");
        let mute = format!(r#"{{"id":"t","status":{{"state":"{state}"}}}}"#);
        assert!(matches!(outcome(&mute), Outcome::Final(Answer::Error(text)) if !text.is_empty()));
    }
}

#[test]
fn tasks_that_wait() {
    let result = r#"{"kind":"task","id":"t","status":{"state":"input-required","message":{"parts":[{"kind":"text","text":"Which day?"}]}}}"#;
    assert_eq!(
        outcome(result),
        Outcome::Waiting(Answer::Result(format!("Which day?\n{WAITS_FOR_INPUT}")))
    );
    let result = r#"{"task":{"id":"t","status":{"state":"TASK_STATE_AUTH_REQUIRED"}}}"#;
    assert_eq!(
        outcome(result),
        Outcome::Waiting(Answer::Result(WAITS_FOR_AUTHORIZATION.to_owned()))
    );
}

#[test]
fn data_is_verbatim() {
    let part = |part: &str| format!(r#"{{"message":{{"parts":[{part}]}}}}"#);
    assert_eq!(outcome(&part(r#"{"data":{"n":1.0,"b":1e400}}"#)), done(r#"{"n":1.0,"b":1e400}"#));
    assert_eq!(outcome(&part(r#"{"kind":"data","data":[1]}"#)), done("[1]"));
    let nested = part(r#"{"data":{"data":{"n":1}}}"#);
    assert_eq!(read(&nested, DataParts::Nested).unwrap().outcome, done(r#"{"n":1}"#));
    assert_eq!(outcome(&nested), done(r#"{"data":{"n":1}}"#));
}

#[test]
fn files_are_named() {
    let line = |part: &str| match outcome(&format!(r#"{{"message":{{"parts":[{part}]}}}}"#)) {
        Outcome::Final(Answer::Result(text)) => text,
        other => panic!("{other:?}"),
    };
    let content = "A".repeat(16_460);
    let expected = "[file report.pdf application/pdf, 12,345 bytes: not passed on]";
    assert_eq!(
        line(&format!(
            r#"{{"raw":"{content}","filename":"report.pdf","mediaType":"application/pdf"}}"#
        )),
        expected
    );
    assert_eq!(
        line(&format!(
            r#"{{"kind":"file","file":{{"bytes":"{content}","name":"report.pdf","mimeType":"application/pdf"}}}}"#
        )),
        expected
    );
    assert_eq!(
        line(&format!(
            r#"{{"file":{{"fileWithBytes":"{content}","name":"report.pdf","mimeType":"application/pdf"}}}}"#
        )),
        expected
    );
    assert_eq!(
        line(r#"{"url":"https://x/r.pdf","filename":"r.pdf","mediaType":"application/pdf"}"#),
        "[file r.pdf application/pdf: https://x/r.pdf]"
    );
    assert_eq!(
        line(r#"{"kind":"file","file":{"uri":"https://x/r\n.pdf"}}"#),
        "[file: https://x/r .pdf]"
    );
    assert_eq!(line(r#"{"raw":"AAA=\n"}"#), "[file, 2 bytes: not passed on]");
    assert_eq!(line(r#"{"hologram":1}"#), "[a part of an unknown kind, 9 bytes: not passed on]");
}

#[test]
fn what_is_no_reply() {
    assert!(matches!(read("[]", DataParts::Plain), Err(Unreadable::NotAnObject(_))));
    assert_eq!(read("{}", DataParts::Plain), Err(Unreadable::NeitherMessageNorTask));
    for result in [r#"{"id":"t","status":{}}"#, r#"{"task":{"id":"t"}}"#] {
        assert_eq!(read(result, DataParts::Plain), Err(Unreadable::UnknownState));
    }
    assert_eq!(
        read(r#"{"id":"t","status":{"state":"TASK_STATE_UNSPECIFIED"}}"#, DataParts::Plain),
        Err(Unreadable::UnknownState)
    );
}

#[test]
fn thousands_have_commas() {
    for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
        assert_eq!(thousands(number), text);
    }
}
