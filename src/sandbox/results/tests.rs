//! What a tool result may be.

use super::*;
use crate::model::answer::files::{Attachments, DescribedFile, MAX_BYTES, MAX_FILES};

#[track_caller]
fn bad(text: &str, start: &str) {
    let message = read(text.as_bytes()).unwrap_err();
    assert!(message.starts_with(start), "{message:?} does not start with {start:?}");
}

#[test]
fn exactly_one_of_result_and_error() {
    bad(r#"{"result":"x"}"#, "the body: \"toolUseId\" is a required");
    bad(r#"{"toolUseId":""}"#, "/toolUseId: the value is shorter");
    bad(r#"{"toolUseId":"t"}"#, "`result` or `error` is required");
    bad(r#"{"toolUseId":"t","result":"x","error":"y"}"#, "send `result` or `error`");
    bad(r#"{"toolUseId":"t","result":{"a":1}}"#, "/result: the value is not");
    let read = read(br#"{"toolUseId":"t","result":""}"#).unwrap();
    assert_eq!(read.answer, Answer::text(""));
}

#[test]
fn lengths() {
    let result = |length| format!(r#"{{"toolUseId":"t","result":"{}"}}"#, "x".repeat(length));
    read(result(2_000_000).as_bytes()).unwrap();
    bad(&result(2_000_001), "/result: has 2000001 bytes, 2000000 fit");
    let error = |length| format!(r#"{{"toolUseId":"t","error":"{}"}}"#, "x".repeat(length));
    read(error(8_000).as_bytes()).unwrap();
    bad(&error(8_001), "/error: has 8001 bytes, 8000 fit");
}

#[test]
fn files_go_with_a_result_only() {
    let file = |mime| format!(r#"{{"filename":"f","mimeType":"{mime}","data":"aGk="}}"#);
    let with = |kind, files: &str| format!(r#"{{"toolUseId":"t","{kind}":"x","files":[{files}]}}"#);
    let found = read(with("result", &file("text/plain")).as_bytes()).unwrap().files;
    assert_eq!((found.len(), found[0].size_bytes), (1, 2));
    bad(&with("result", &file("video/mp4")), "/files/0/mimeType: the value is not");
    bad(
        &with("result", &vec![file("text/plain"); 21].join(",")),
        "/files: the value has more than 20 items",
    );
    assert!(read(with("error", &file("video/mp4")).as_bytes()).unwrap().files.is_empty());
}

#[test]
fn base64() {
    let with = |data: &str| {
        let file = format!(r#"{{"filename":"f","mimeType":"text/plain","data":"{data}"}}"#);
        format!(r#"{{"toolUseId":"t","result":"x","files":[{file}]}}"#)
    };
    for (data, size) in [("", 0), ("aGk=", 2), ("aA==", 1), ("aGkh", 3)] {
        assert_eq!(read(with(data).as_bytes()).unwrap().files[0].size_bytes, size);
    }
    for data in ["a===", "aGk", "data:text/plain;base64,aGk="] {
        bad(&with(data), "/files/0/data: the value does not match");
    }
}

#[test]
fn as_many_files_as_the_bridge_attaches() {
    let each = MAX_BYTES / MAX_FILES;
    // Three bytes are four digits.
    let data = format!("{}AA==", "AAAA".repeat((each - 1) / 3));
    let mut files = Attachments::default();
    let mime_type = Some("text/plain");
    let mut add =
        || files.add(DescribedFile { kind: "f", name: None, mime_type, data: &data, twice: false });
    let lines: Vec<String> = (0..=MAX_FILES).map(|_| add()).collect();
    assert!(lines.last().is_some_and(|line| line.contains("not passed on")), "{lines:?}");
    let answer = Answer::Result { text: lines.join("\n"), files: files.files };
    let mut body = serde_json::to_value(&answer).unwrap();
    body["toolUseId"] = "t".into();
    let taken = read(body.to_string().as_bytes()).unwrap();
    let sizes: Vec<usize> = taken.files.iter().map(|file| file.size_bytes).collect();
    assert_eq!(sizes, [each; MAX_FILES]);
}
