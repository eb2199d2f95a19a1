//! What the model may write, and what it reads.

use serde_json::{Value, json};

use super::*;

fn seconds(wait: f64) -> Duration {
    Duration::from_secs_f64(wait)
}

#[test]
fn good_arguments_of_a_fetch_are_taken() {
    for (arguments, wait) in [
        (r#"{"callId":"call_1"}"#, WAIT),
        (r#"{"callId":"call_1","wait":0}"#, Duration::ZERO),
        (r#"{ "wait" : 1.5, "callId":"call_1", "more":[] }"#, seconds(1.5)),
        (r#"{"callId":"call_1","wait":240}"#, MAX_WAIT),
    ] {
        let fetch = Fetch { call: "call_1".into(), wait, part: None };
        assert_eq!(read(arguments), Ok(fetch), "{arguments}");
    }
}

#[test]
fn a_part_of_a_result_may_be_asked() {
    for (arguments, part) in [
        (r#"{"callId":"c","offset":7}"#, (7, None)),
        (r#"{"callId":"c","limit":10}"#, (0, Some(10))),
        (r#"{"callId":"c","offset":0,"limit":1000000}"#, (0, Some(1_000_000))),
        (r#"{"callId":"c","offset":2.0,"limit":1e3}"#, (2, Some(1000))),
    ] {
        assert_eq!(read(arguments).unwrap().part, Some(part), "{arguments}");
    }
}

#[test]
fn bad_arguments_of_a_fetch_are_refused() {
    for (arguments, expected) in [
        ("{}", "callId"),
        (r#"{"callId":7}"#, "/callId"),
        (r#"{"callId":"call_1","wait":-1}"#, "/wait"),
        (r#"{"callId":"call_1","wait":241}"#, "/wait"),
        (r#"{"callId":"call_1","wait":"20"}"#, "/wait"),
        (r#"{"callId":"call_1","wait":null}"#, "/wait"),
        (r#"{"callId":"call_1","wait":1e400}"#, "/wait"),
        (r#"{"callId":"call_1","offset":1e400}"#, "/offset"),
        (r#"{"callId":"call_1","offset":1e30}"#, "/offset"),
        (r#"{"callId":"call_1","offset":123456789012345678901234567890}"#, "/offset"),
        (r#"{"callId":"call_1","offset":2.5}"#, "/offset"),
        (r#"{"callId":"call_1","callId":"call_2"}"#, "/callId"),
        (r#"{"callId":"call_1","offset":-1}"#, "/offset"),
        (r#"{"callId":"call_1","limit":0}"#, "/limit"),
        (r#"{"callId":"call_1","limit":1000001}"#, "/limit"),
        ("[]", "object"),
    ] {
        let error = read(arguments).unwrap_err();
        assert!(error.starts_with("tool_input_invalid: ") && error.contains(expected), "{error}");
    }
}

#[test]
fn the_definition_is_what_mantyx_takes() {
    let definition: Value = serde_json::from_str(Own::Results.definition().get()).unwrap();
    assert_eq!(definition["readOnly"], true);
    assert_eq!(definition["parameters"]["type"], "object");
    let wait = &definition["parameters"]["properties"]["wait"];
    assert_eq!(wait["maximum"], json!(MAX_WAIT.as_secs()));
    let default = format!("Default: {}.", WAIT.as_secs());
    assert!(wait["description"].as_str().unwrap().ends_with(&default), "{wait}");
}

#[test]
fn a_pending_answer_names_the_call_and_the_way_to_its_result() {
    let id = call_id([0, 1, 2, 3, 4, 5, 6, 255]);
    assert_eq!(id.as_str(), "call_00010203040506ff");
    for answer in [goes_on(&id, "hr", "fetch_it"), still(&id, "hr", "fetch_it", false)] {
        let Answer::Result { text, files } = answer else { panic!("{answer:?}") };
        assert!(text.starts_with(r#"{"status":"pending","callId":"call_00010203040506ff","#));
        let text: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(text["tool"], "hr");
        assert!(text["message"].as_str().unwrap().contains("fetch_it"), "{text}");
        assert_eq!(files, []);
    }
}
