//! Every kind of result that a server may send, and what the model is told of it.

use serde_json::value::RawValue;

use super::{OUT_OF_FORM, from_mcp, is_in_form, of_any, result_type};
use crate::model::answer::Answer;
use crate::model::answer::files::File;

#[track_caller]
fn check(result: &str, expected: Answer) {
    let result = RawValue::from_string(result.to_owned()).unwrap();
    // The short way gives the same.
    assert_eq!([from_mcp(&result), of_any(&result)], [expected.clone(), expected]);
}

/// Checks a result that is none of MCP's, and what of it the model is told before the line that
/// says so.
#[track_caller]
fn check_out_of_form(result: &str, text: &str) {
    let text = format!("{text}\n{OUT_OF_FORM}");
    check(result, Answer::text(text));
    let result = RawValue::from_string(result.to_owned()).unwrap();
    assert!(!is_in_form(&result), "{result}");
}

fn result(text: &str) -> Answer {
    Answer::text(text)
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
    check(r#"{"content":[]}"#, result(""));
    check(r#"{"content":[],"structuredContent":null,"isError":null}"#, result(""));
}

#[test]
fn result_of_another_form_is_its_own_text() {
    for whole in [
        "{}",
        "[]",
        "null",
        "7",
        r#"["a"]"#,
        r#""text""#,
        r#"{"rows":3}"#,
        r#"{"resultType":"complete","rows":12345678901234567890123}"#,
        r#"{"toolResult":{"temperature":20}}"#,
        r#"{"content":null}"#,
        r#"{"content":null,"rows":[1]}"#,
        r#"{"content":7}"#,
        r#"{"structuredContent":null,"rows":3}"#,
    ] {
        check_out_of_form(whole, whole);
    }
}

#[test]
fn content_without_its_list_is_read_as_what_it_is() {
    check_out_of_form(r#"{"content":"it is \"here\""}"#, "it is \"here\"");
    check_out_of_form(r#"{"content":{"type":"text","text":"hi"}}"#, "hi");
    check_out_of_form(r#"{"content":{"rows":3}}"#, r#"{"rows":3}"#);
    check_out_of_form(r#"{"content":["a",{"rows":3},7]}"#, "a\n{\"rows\":3}\n7");
    check_out_of_form(r#"{"content":[{"type":"text","text":{"a":1.0}}]}"#, r#"{"a":1.0}"#);
}

#[test]
fn failure_of_another_form_keeps_its_words() {
    let told = |text: &str| error(&format!("{text}\n{OUT_OF_FORM}"));
    let whole = r#"{"isError":true,"error":"no disk"}"#;
    check(whole, told(whole));
    check(r#"{"isError":true,"content":"no disk"}"#, told("no disk"));
    check(r#"{"isError":true}"#, error("the tool failed and gave no message"));
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

/// The text of a result, and its files as `name type data`.
fn with_files(json: &str) -> (String, Vec<String>) {
    let Answer::Result { text, files } = from_mcp(&RawValue::from_string(json.to_owned()).unwrap())
    else {
        panic!("a result");
    };
    let shown = |file: &File| format!("{} {} {}", file.filename(), file.mime_type(), file.data());
    (text, files.iter().map(shown).collect())
}

#[test]
fn content_that_is_no_text_becomes_a_file_and_a_line() {
    let (text, files) = with_files(
        r#"{"content":[
            {"type":"text","text":"look"},
            {"type":"image","mimeType":"image/png","data":"aGVsbG8="},
            {"type":"audio","mimeType":"audio/wav","data":"aGVsbG8h"},
            {"type":"resource","resource":{"uri":"x://h/a/b.pdf?q=1","blob":"AAAA","mimeType":"application/pdf"}},
            {"type":"resource","resource":{"uri":"x:y","blob":"AAAA","mimeType":"application/zip"}},
            {"type":"resource","resource":{"uri":"x://y","blob":"AAAA"}}
        ]}"#,
    );
    assert_eq!(
        text,
        "look\n\
         [file image-1.png image/png, 5 bytes: attached]\n\
         [file audio-2.wav audio/wav, 6 bytes: attached]\n\
         [file b.pdf application/pdf, 3 bytes: attached]\n\
         [file x_y application/zip, 3 bytes: not passed on, as its type is not allowed]\n\
         [file file-5, 3 bytes: not passed on, as it has no MIME type]"
    );
    assert_eq!(
        files,
        [
            "image-1.png image/png aGVsbG8=",
            "audio-2.wav audio/wav aGVsbG8h",
            "b.pdf application/pdf AAAA"
        ]
    );
}

#[test]
fn an_error_names_its_files_and_carries_none() {
    check(
        r#"{"isError":true,"content":[
            {"type":"text","text":"it broke"},
            {"type":"image","mimeType":"image/png","data":"aGVsbG8="}
        ]}"#,
        error(
            "it broke\n\
             [file image-1.png image/png, 5 bytes: not passed on, as an error carries no files]",
        ),
    );
}

#[test]
fn an_image_beside_a_structure_keeps_both() {
    let (text, files) = with_files(
        r#"{"content":[{"type":"image","mimeType":"image/png","data":"AAAA"}],
            "structuredContent":{"w":1}}"#,
    );
    assert_eq!(text, "[file image-1.png image/png, 3 bytes: attached]\n{\"w\":1}");
    assert_eq!(files, ["image-1.png image/png AAAA"]);
}

#[test]
fn broken_and_unknown_blocks_are_named_and_break_nothing() {
    check(
        r#"{"content":[
            {"type":"text","text":"a","annotations":{"priority":1e400},"x":{"y":[]}},
            {"type":"hologram","mimeType":"x/\u0000y","z":1e400},
            {"type":"text","text":5},
            {"type":"text","text":null},
            {"type":"image"},
            {"type":"resource"},
            {"no":"type"},
            7
        ]}"#,
        result(&format!(
            "a\n\
             [hologram x/y, 52 bytes: not passed on]\n\
             5\n\
             [text, 27 bytes: not passed on]\n\
             [image without data, 16 bytes: not passed on]\n\
             [resource without content, 19 bytes: not passed on]\n\
             {{\"no\":\"type\"}}\n\
             7\n\
             {OUT_OF_FORM}"
        )),
    );
}

#[test]
fn a_lone_surrogate_is_replaced_and_the_rest_survives() {
    let Answer::Result { text, .. } = from_mcp(
        &RawValue::from_string(r#"{"content":[{"type":"text","text":"a\ud800b\u00e9"}]}"#.into())
            .unwrap(),
    ) else {
        panic!("a result");
    };
    assert!(text.starts_with('a') && text.ends_with("bé"), "{text:?}");
}

#[test]
fn the_type_of_a_result_is_found_where_its_key_has_escapes() {
    let found = |text: &str| result_type(&RawValue::from_string(text.to_owned()).unwrap());
    assert_eq!(found(r#"{"resultType":"task"}"#).as_deref(), Some("task"));
    assert_eq!(found(r#"{"result\u0054ype":"task"}"#).as_deref(), Some("task"));
    assert_eq!(found(r#"{"content":[{"text":"resultType \u00fc"}]}"#), None);
}
