//! The body of an answer, and where it is cut.

use super::files::{Attachments, DescribedFile};
use super::*;

fn written(answer: &Answer) -> String {
    serde_json::to_string(answer).unwrap()
}

#[test]
fn an_answer_is_what_mantyx_takes() {
    assert_eq!(written(&Answer::text("a\n")), r#"{"result":"a\n"}"#);
    assert_eq!(written(&Answer::Error("no".to_owned())), r#"{"error":"no"}"#);
    let mut files = Attachments::default();
    let mime_type = Some("image/png");
    let text = files.add(DescribedFile {
        kind: "image",
        name: None,
        mime_type,
        data: "AAAA",
        twice: false,
    });
    let answer = Answer::Result { text, files: files.files };
    assert_eq!(
        written(&answer),
        r#"{"result":"[file image-1.png image/png, 3 bytes: attached]","files":[{"filename":"image-1.png","mimeType":"image/png","data":"AAAA"}]}"#
    );
    assert!(!format!("{answer:?}").contains("AAAA"), "no bytes in a log");
    assert_eq!(answer.clone().within_limits(), answer);
}

#[test]
fn a_text_is_cut_and_its_files_stay() {
    let mut files = Attachments::default();
    files.add(DescribedFile {
        kind: "a",
        name: Some("a.txt"),
        mime_type: None,
        data: "",
        twice: false,
    });
    let text = "é".repeat(Answer::MAX_RESULT);
    let Answer::Result { text, files } =
        (Answer::Result { text, files: files.files }).within_limits()
    else {
        panic!("a result");
    };
    assert!(text.len() <= Answer::MAX_RESULT && text.ends_with("bytes are missing]"));
    assert_eq!(files.len(), 1);
}

#[test]
fn the_length_in_json_is_known_before() {
    for text in ["", "plain", "é\u{2028}", "\0\u{8}\u{1f}\n\t\r\"\\/"] {
        let answer = Answer::Error(text.to_owned());
        let written = serde_json::to_string(text).unwrap().len() - 2;
        assert!((written..=written + 4).contains(&answer.json_len()), "{text:?}");
    }
}
