//! Every kind of result that a server may send, and what the model is told of it.

use serde_json::value::RawValue;

use super::{Unreadable, decoded_size, from_mcp, grouped};
use crate::model::answer::Answer;

#[track_caller]
fn check(result: &str, expected: Answer) {
    let result = RawValue::from_string(result.to_owned()).unwrap();
    assert_eq!(from_mcp(&result), Ok(expected));
}

fn result(text: &str) -> Answer {
    Answer::Result(text.to_owned())
}

fn error(text: &str) -> Answer {
    Answer::Error(text.to_owned())
}

#[test]
fn texts_are_joined_with_a_newline() {
    check(
        r#"{"content":[{"type":"text","text":"a"},{"type":"text","text":"b\nc"}]}"#,
        result("a\nb\nc"),
    );
}

#[test]
fn a_structure_alone_is_its_json_byte_for_byte() {
    let json = r#"{ "z":1.0,"a":123456789012345678901234567890, "x":1e400,"a":2 }"#;
    check(&format!(r#"{{"structuredContent":{json}}}"#), result(json));
    check(&format!(r#"{{"content":[],"structuredContent":{json}}}"#), result(json));
}

#[test]
fn a_structure_beside_a_text_is_the_text_twice() {
    check(
        r#"{"content":[{"type":"text","text":"{\"a\":1}"}],"structuredContent":{"a":1}}"#,
        result(r#"{"a":1}"#),
    );
}

#[test]
fn nothing_at_all_is_an_empty_result() {
    check("{}", result(""));
    check(r#"{"content":[],"structuredContent":null,"isError":false}"#, result(""));
    check(r#"{"content":null}"#, result(""));
}

#[test]
fn a_failure_is_told_with_what_there_is_of_it() {
    check(r#"{"isError":true,"content":[{"type":"text","text":"no disk"}]}"#, error("no disk"));
    check(r#"{"isError":true,"structuredContent":{"code":7}}"#, error(r#"{"code":7}"#));
    check(r#"{"isError":true,"content":[]}"#, error("the tool failed and gave no message"));
}

#[test]
fn links_and_embedded_texts_are_text() {
    check(
        r#"{"content":[
            {"type":"resource_link","uri":"file:///a","name":"a"},
            {"type":"resource","resource":{"uri":"file:///b","mimeType":"text/plain","text":"b"}}
        ]}"#,
        result("file:///a\nb"),
    );
}

#[test]
fn what_is_no_text_is_named_with_its_size() {
    check(
        r#"{"content":[
            {"type":"text","text":"look"},
            {"type":"image","mimeType":"image/png","data":"aGVsbG8="},
            {"type":"audio","mimeType":"audio/wav","data":"aGVsbG8h"},
            {"type":"resource","resource":{"uri":"x:y","blob":"AAAA","mimeType":"application/pdf"}},
            {"type":"resource","resource":{"uri":"x:y","blob":"AAAA"}}
        ]}"#,
        result(
            "look\n\
             [image image/png, 5 bytes: not passed on]\n\
             [audio audio/wav, 6 bytes: not passed on]\n\
             [resource application/pdf, 3 bytes: not passed on]\n\
             [resource, 3 bytes: not passed on]",
        ),
    );
}

#[test]
fn an_image_beside_a_structure_keeps_both() {
    check(
        r#"{"content":[{"type":"image","mimeType":"image/png","data":"AAAA"}],
            "structuredContent":{"w":1}}"#,
        result("[image image/png, 3 bytes: not passed on]\n{\"w\":1}"),
    );
}

#[test]
fn broken_and_unknown_blocks_are_named_and_break_nothing() {
    check(
        r#"{"content":[
            {"type":"text","text":"a","annotations":{"priority":1e400},"x":{"y":[]}},
            {"type":"hologram","mimeType":"x/\u0000y","z":1e400},
            {"type":"text","text":5},
            {"type":"image"},
            {"type":"resource"},
            {"no":"type"},
            7
        ]}"#,
        result(
            "a\n\
             [hologram x/y, 52 bytes: not passed on]\n\
             [text, 24 bytes: not passed on]\n\
             [image without data, 16 bytes: not passed on]\n\
             [resource without content, 19 bytes: not passed on]\n\
             [content without a type, 13 bytes: not passed on]\n\
             [content that is not an object, 1 byte: not passed on]",
        ),
    );
}

#[test]
fn a_lone_surrogate_is_replaced_and_the_rest_survives() {
    let Ok(Answer::Result(text)) = from_mcp(
        &RawValue::from_string(r#"{"content":[{"type":"text","text":"a\ud800b\u00e9"}]}"#.into())
            .unwrap(),
    ) else {
        panic!("a result");
    };
    assert!(text.starts_with('a') && text.ends_with("bé"), "{text:?}");
}

#[test]
fn a_result_of_another_shape_is_unreadable() {
    let read = |text: &str| from_mcp(&RawValue::from_string(text.to_owned()).unwrap());
    assert_eq!(read("[]"), Err(Unreadable("it is not a JSON object")));
    assert_eq!(read(r#"{"content":"text"}"#), Err(Unreadable("`content` is not an array")));
}

#[test]
fn sizes_are_counted_and_written_for_people() {
    assert_eq!(decoded_size(""), 0);
    assert_eq!(decoded_size("YQ=="), 1);
    assert_eq!(decoded_size("YWI="), 2);
    assert_eq!(decoded_size("YWJj\nYWJj"), 6);
    assert_eq!(grouped(0), "0");
    assert_eq!(grouped(999), "999");
    assert_eq!(grouped(1_024), "1,024");
    assert_eq!(grouped(12_345_678), "12,345,678");
}
