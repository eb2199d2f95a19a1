//! Runs as they are shown: what is said once and whole, and how they end.

use super::*;

/// All that is said, all that is told, and the end.
#[track_caller]
fn show(events: &[&str]) -> (String, Vec<String>, Option<RunEnd>) {
    let mut transcript = Transcript::default();
    let (mut said, mut told, mut end) = (String::new(), Vec::new(), None);
    for event in events {
        assert_eq!(end, None, "nothing comes after the end");
        let (shown, ended) = transcript.take(&Event::read(event).unwrap());
        for piece in shown {
            match piece {
                Piece::Text(text) => said.push_str(&text),
                Piece::Line(line) => told.push(line),
            }
        }
        end = ended;
    }
    (said, told, end)
}

const DELTA: &str = r#"{"seq":1,"type":"assistant_delta","data":{"text":"Hel"}}"#;
const DELTA_2: &str = r#"{"seq":2,"type":"assistant_delta","data":{"text":"lo"}}"#;
const MESSAGE: &str = r#"{"seq":3,"type":"assistant_message","data":{"text":"Hello"}}"#;
const RESULT: &str = r#"{"seq":9,"type":"result","data":{"subtype":"success","text":"Hello"}}"#;

#[test]
fn an_answer_is_said_once_however_it_comes() {
    let ends = Some(RunEnd::Well);
    for events in [
        &[DELTA, DELTA_2, MESSAGE, RESULT][..],
        &[DELTA, DELTA_2, RESULT],
        &[MESSAGE, RESULT],
        &[RESULT],
    ] {
        let (said, told, end) = show(events);
        assert_eq!((said.as_str(), &end), ("Hello\n", &ends), "{events:?}");
        assert!(told.is_empty(), "{told:?}");
    }
    let (said, ..) = show(&[DELTA, DELTA_2, MESSAGE, MESSAGE, RESULT]);
    assert_eq!(said, "Hello\nHello\n", "a second message that had no deltas");
}

#[test]
fn calls_have_a_line_each_and_no_line_is_torn() {
    let call = r#"{"type":"tool_call","data":{"toolUseId":"t1","name":"add","input":{"a": 1.0}}}"#;
    let answered = r#"{"type":"local_tool_result_in","data":{"toolUseId":"t1","output":"3"}}"#;
    let failed = r#"{"type":"local_tool_result_in","data":{"toolUseId":"t1","error":"no"}}"#;
    let remote = r#"{"type":"tool_result","data":{"toolUseId":"t2","name":"web","ok":false,"summary":"off"}}"#;
    let (said, told, _) = show(&[DELTA, call, answered, call, failed, remote, RESULT]);
    assert_eq!(said, "Hel\n", "the line ends before the call is told");
    assert_eq!(
        told,
        [
            "-> add {\"a\": 1.0}",
            "<- add: 3",
            "-> add {\"a\": 1.0}",
            "<- add failed: no",
            "<- web failed: off",
        ]
    );
}

#[test]
fn a_run_that_fails_says_why() {
    let bad = |event: &str| match show(&[DELTA, event]) {
        (said, _, Some(RunEnd::Badly(why))) => {
            assert_eq!(said, "Hel\n");
            why
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(
        bad(r#"{"type":"error","data":{"error":"too long","code":"truncation"}}"#),
        "too long"
    );
    assert_eq!(bad(r#"{"type":"error","data":{}}"#), "the run failed");
    let timeout =
        r#"{"type":"result","data":{"subtype":"error_local_tool_timeout","error":"late"}}"#;
    assert_eq!(bad(timeout), "late");
    assert_eq!(bad(r#"{"type":"result","data":{"subtype":"error_max_turns"}}"#), "error_max_turns");
    assert_eq!(bad(r#"{"type":"cancelled","data":{"reason":"user"}}"#), "the run is cancelled");
}

#[test]
fn unknown_or_odd_event_is_passed_over() {
    assert!(Event::read("[]").is_none() && Event::read("{\"type\":\"x\"}").is_none());
    let odd = r#"{"type":"thinking_delta","data":{"text":"hm"}}"#;
    assert_eq!(show(&[odd, RESULT]).0, "Hello\n");
    let long =
        format!(r#"{{"type":"tool_call","data":{{"name":"x","input":"{}"}}}}"#, "é".repeat(999));
    let (_, told, _) = show(&[&long]);
    assert_eq!(told[0].chars().count(), "-> x ".len() + MUCH + 1);
}
