//! Replies of both wires, and the same answer for both.

use super::*;

#[track_caller]
fn outcome(result: &str) -> Outcome {
    read(result, PartEncoding::Plain, false).unwrap().outcome
}

fn done(text: &str) -> Outcome {
    Outcome::Final(Answer::text(text))
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
        let reply = read(result, PartEncoding::Nested, false).unwrap();
        assert_eq!(reply.outcome, done("a\nb"));
        assert_eq!(reply.context_id.as_deref(), Some("c"));
        assert_eq!(reply.task_id, None);
    }
}

#[test]
fn a_completed_task_is_its_artifacts() {
    let v10 = r#"{"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_COMPLETED","message":{"parts":[{"text":"d"}]}},"artifacts":[{"parts":[{"text":"a"}]},{"parts":[{"text":"b"},{"text":"c"}]}]}}"#;
    let reply = read(v10, PartEncoding::Plain, false).unwrap();
    assert_eq!(reply.outcome, done("a\nb\nc\nd"));
    assert_eq!(reply.task_id.as_deref(), Some("t"));
    let v03 = r#"{"kind":"task","id":"t","status":{"state":"completed"},"artifacts":[{"parts":[{"kind":"text","text":"a"}]}]}"#;
    assert_eq!(outcome(v03), done("a"));
}

#[test]
fn a_text_that_was_made_piece_by_piece_is_one() {
    let result = r#"{"id":"t","status":{"state":"completed","message":{"parts":[{"text":"x "},{"text":"y"}]}},"artifacts":[{"parts":[{"text":"a"},{"text":" b"},{"data":1},{"text":"c"}]},{"parts":[{"text":"Title"},{"text":"Text."}]}]}"#;
    let outcome = |in_pieces| read(result, PartEncoding::Plain, in_pieces).unwrap().outcome;
    assert_eq!(outcome(true), done("a b\n1\nc\nTitle\nText.\nx \ny"));
    assert_eq!(outcome(false), done("a\n b\n1\nc\nTitle\nText.\nx \ny"));
}

#[test]
fn a_completed_task_without_artifacts_is_its_status_message() {
    let result = r#"{"id":"t","status":{"state":"TASK_STATE_COMPLETED","message":{"parts":[{"text":"done"}]}}}"#;
    assert_eq!(outcome(result), done("done"));
    assert_eq!(outcome(r#"{"id":"t","status":{"state":"completed"}}"#), done(EMPTY_TASK));
}

#[test]
fn tasks_that_go_on() {
    for state in ["submitted", "working", "TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"] {
        let result = format!(r#"{{"id":"t","status":{{"state":"{state}"}}}}"#);
        assert_eq!(outcome(&result), Outcome::Unfinished, "{state}");
    }
    let result = r#"{"status":{"state":"working"}}"#;
    assert_eq!(read(result, PartEncoding::Plain, false), Err(Unreadable::NoTaskId));
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
        Outcome::Waiting(Answer::text(format!("Which day?\n{WAITS_FOR_INPUT}")))
    );
    let result = r#"{"task":{"id":"t","status":{"state":"TASK_STATE_AUTH_REQUIRED"}}}"#;
    assert_eq!(outcome(result), Outcome::Waiting(Answer::text(WAITS_FOR_AUTHORIZATION)));
}

#[test]
fn member_that_is_null_counts_as_left_out() {
    let part = r#"{"text":"a","data":null,"url":null,"file":null}"#;
    let message = format!(r#"{{"kind":null,"status":null,"task":null,"parts":[{part}]}}"#);
    assert_eq!(outcome(&message), done("a"));
    let file = r#"{"text":null,"data":null,"url":"https://a.example/b"}"#;
    let message = format!(r#"{{"kind":"message","parts":[{file}]}}"#);
    assert_eq!(outcome(&message), done("[file: https://a.example/b]"));
}

#[test]
fn data_is_verbatim() {
    let part = |part: &str| format!(r#"{{"message":{{"parts":[{part}]}}}}"#);
    assert_eq!(outcome(&part(r#"{"data":{"n":1.0,"b":1e400}}"#)), done(r#"{"n":1.0,"b":1e400}"#));
    assert_eq!(outcome(&part(r#"{"kind":"data","data":[1]}"#)), done("[1]"));
    let nested = part(r#"{"data":{"data":{"n":1}}}"#);
    assert_eq!(read(&nested, PartEncoding::Nested, false).unwrap().outcome, done(r#"{"n":1}"#));
    assert_eq!(outcome(&nested), done(r#"{"data":{"n":1}}"#));
}

/// The text of a message with this one part, and its files.
#[track_caller]
fn part_of(encoding: PartEncoding, part: &str) -> (String, Vec<File>) {
    let result = format!(r#"{{"message":{{"parts":[{part}]}}}}"#);
    match read(&result, encoding, false).unwrap().outcome {
        Outcome::Final(Answer::Result { text, files }) => (text, files),
        other => panic!("{other:?}"),
    }
}

#[test]
fn files_of_every_wire_are_passed_on() {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    let content = STANDARD.encode([b'x'; 12_345]);
    let twice = STANDARD.encode(&content);
    let v10 = |data: &str| {
        format!(r#"{{"raw":"{data}","filename":"report.pdf","mediaType":"application/pdf"}}"#)
    };
    let v03 = |key: &str, data: &str| {
        format!(
            r#"{{"kind":"file","file":{{"{key}":"{data}","name":"report.pdf","mimeType":"application/pdf"}}}}"#
        )
    };
    for (encoding, part) in [
        (PartEncoding::Plain, v10(&content)),
        (PartEncoding::Plain, v03("bytes", &content)),
        (PartEncoding::Plain, v03("fileWithBytes", &content)),
        (PartEncoding::Nested, v03("bytes", &content)),
        (PartEncoding::Nested, v03("fileWithBytes", &twice)),
    ] {
        let (text, files) = part_of(encoding, &part);
        assert_eq!(
            text, "[file report.pdf application/pdf, 12,345 bytes: attached]",
            "{encoding:?}"
        );
        assert_eq!(files.len(), 1);
        assert_eq!(files[0].data(), content, "{encoding:?}");
    }
    // Bytes that are written once, as the protocol has it.
    let (text, files) = part_of(PartEncoding::Nested, &v03("fileWithBytes", "JVBERi0="));
    assert_eq!(text, "[file report.pdf application/pdf, 5 bytes: attached]");
    assert_eq!(files[0].data(), "JVBERi0=");
}

#[test]
fn files_without_bytes_are_named() {
    let line = |part: &str| part_of(PartEncoding::Plain, part).0;
    assert_eq!(
        line(r#"{"url":"https://x/r.pdf","filename":"r.pdf","mediaType":"application/pdf"}"#),
        "[file r.pdf application/pdf: https://x/r.pdf]"
    );
    assert_eq!(
        line(r#"{"kind":"file","file":{"uri":"https://x/r\n.pdf"}}"#),
        "[file: https://x/r .pdf]"
    );
    assert_eq!(
        line(r#"{"raw":"AAA=\n"}"#),
        "[file file-1, 2 bytes: not passed on, as it has no MIME type]"
    );
    assert_eq!(line(r#"{"hologram":1}"#), "[a part of an unknown kind, 9 bytes: not passed on]");
}

#[test]
fn files_of_artifacts_and_of_the_status_are_passed_on() {
    let part = r#"{"raw":"AAAA","filename":"NAME","mediaType":"text/plain"}"#;
    let task = |state: &str| {
        let said = part.replace("NAME", "said.txt");
        let made = part.replace("NAME", "made.txt");
        format!(
            r#"{{"id":"t","status":{{"state":"{state}","message":{{"parts":[{said}]}}}},"artifacts":[{{"parts":[{made}]}},{{"parts":[{made}]}}]}}"#
        )
    };
    let names = |state: &str| match outcome(&task(state)) {
        Outcome::Final(Answer::Result { files, .. })
        | Outcome::Waiting(Answer::Result { files, .. }) => {
            files.iter().map(|file| file.filename().to_owned()).collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(names("completed"), ["made.txt", "made-2.txt", "said.txt"]);
    assert_eq!(names("input-required"), ["made.txt", "made-2.txt", "said.txt"]);
    let line = |name: &str| {
        format!("[file {name} text/plain, 3 bytes: not passed on, as an error carries no files]")
    };
    let made = [line("made.txt"), line("made.txt")].join("\n");
    let expected = [line("said.txt"), MADE_BEFORE.to_owned(), made].join("\n");
    assert_eq!(outcome(&task("failed")), failed(&expected));
}

#[test]
fn reply_without_a_message_or_a_known_state_is_refused() {
    assert!(matches!(read("[]", PartEncoding::Plain, false), Err(Unreadable::NotAnObject(_))));
    assert_eq!(read("{}", PartEncoding::Plain, false), Err(Unreadable::NeitherMessageNorTask));
    for result in [r#"{"id":"t","status":{}}"#, r#"{"task":{"id":"t"}}"#] {
        assert_eq!(read(result, PartEncoding::Plain, false), Err(Unreadable::NoState));
    }
    for name in ["TASK_STATE_UNSPECIFIED", "paused"] {
        let result = format!(r#"{{"id":"t","status":{{"state":"{name}"}}}}"#);
        assert_eq!(outcome(&result), Outcome::Unknown(name.to_owned()));
    }
}

/// A task in `state`, whose status has the text `closing`, with artifacts or a history.
fn task_with(state: &str, closing: Option<&str>, more: &str) -> String {
    let message = closing.map(|text| format!(r#","message":{{"parts":[{{"text":"{text}"}}]}}"#));
    let message = message.unwrap_or_default();
    format!(r#"{{"id":"t","status":{{"state":"{state}"{message}}},{more}}}"#)
}

const MADE: &str = r#""artifacts":[{"parts":[{"text":"letter 1 was sent"}]}]"#;

#[test]
fn task_that_made_something_says_all_of_it() {
    assert_eq!(
        outcome(&task_with("completed", Some("Anything else?"), MADE)),
        done("letter 1 was sent\nAnything else?")
    );
    assert_eq!(
        outcome(&task_with("input-required", Some("Send letter 2?"), MADE)),
        Outcome::Waiting(Answer::text(format!(
            "letter 1 was sent\nSend letter 2?\n{WAITS_FOR_INPUT}"
        )))
    );
    assert_eq!(
        outcome(&task_with("failed", Some("no paper"), MADE)),
        failed(&format!("no paper\n{MADE_BEFORE}\nletter 1 was sent"))
    );
    // What is said twice is one thing.
    assert_eq!(
        outcome(&task_with("completed", Some("letter 1 was sent"), MADE)),
        done("letter 1 was sent")
    );
}

#[test]
fn answer_in_the_history_counts_where_there_is_no_other() {
    const HISTORY: &str = r#""history":[
        {"role":"agent","parts":[{"text":"old"}]},{"role":"user","parts":[{"text":"hi"}]},
        {"role":"ROLE_AGENT","parts":[{"text":"looking"}]},{"role":"agent","parts":[{"text":"42"}]}]"#;
    let reply = read(&task_with("completed", None, HISTORY), PartEncoding::Plain, false).unwrap();
    assert_eq!((reply.outcome, reply.content), (done("looking\n42"), Content::History));
    assert_eq!(outcome(&task_with("completed", Some("done"), HISTORY)), done("done"));
    assert_eq!(
        outcome(&task_with("failed", None, HISTORY)),
        failed("the agent failed the task and gave no reason\nlooking\n42")
    );
    let of_user = r#""history":[{"role":"user","parts":[{"text":"hi"}]}]"#;
    let reply = read(&task_with("completed", None, of_user), PartEncoding::Plain, false).unwrap();
    assert_eq!((reply.outcome, reply.content), (done(EMPTY_TASK), Content::None));
}

#[test]
fn empty_message_says_so() {
    let reply = read(r#"{"message":{"parts":[{"text":""}]}}"#, PartEncoding::Plain, false).unwrap();
    assert_eq!((reply.outcome, reply.content), (done(EMPTY_MESSAGE), Content::None));
}

#[test]
fn file_in_a_data_url_is_passed_on() {
    let part = r#"{"kind":"file","file":{"uri":"data:text/csv;base64,YSxi","name":"a.csv"}}"#;
    let (text, files) = part_of(PartEncoding::Plain, part);
    assert_eq!(text, "[file a.csv text/csv, 3 bytes: attached]");
    assert_eq!((files[0].mime_type(), files[0].data()), ("text/csv", "YSxi"));
}

#[test]
fn names_of_another_language_are_read() {
    let result = r#"{"kind":"task","id":"t","context_id":"c","status":{"state":"completed"},"artifacts":[{"artifact_id":"a","parts":[{"kind":"file","file":{"bytes":"YSxi","mime_type":"text/csv"}}]}]}"#;
    let reply = read(result, PartEncoding::Plain, false).unwrap();
    assert_eq!(reply.context_id.as_deref(), Some("c"));
    assert!(
        matches!(&reply.outcome, Outcome::Final(Answer::Result { files, .. }) if files.len() == 1),
        "{reply:?}"
    );
}
