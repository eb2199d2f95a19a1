//! What of a server's result a client of each era gets.

use serde_json::value::RawValue;

use super::{fitted, prompt};

/// The result for clients without and with sessions.
fn both(result: &str) -> [String; 2] {
    let raw = RawValue::from_string(result.to_owned()).unwrap();
    [true, false].map(|is_stateless| fitted(&raw, is_stateless).unwrap_or(result.to_owned()))
}

#[test]
fn result_in_form_keeps_its_bytes() {
    for result in [
        r#"{ "content": [ {"type":"text", "text":"a\u0041"} ], "isError" : false }"#,
        r#"{"content":[],"structuredContent":{"a":1.0},"_meta":{"b":null},"x":null}"#,
        r#"{"content":[{"type":"image","data":"aGk=","mimeType":"image/png"}]}"#,
    ] {
        assert_eq!(both(result), [result, result]);
    }
}

#[test]
fn null_members_are_left_out() {
    let result = r#"{"content":[{"type":"text","text":"a","annotations":null}],"isError":null,"_meta":null,"resultType":null}"#;
    let expected = r#"{"content":[{"type":"text","text":"a"}]}"#;
    assert_eq!(both(result), [expected, expected]);
}

#[test]
fn structured_content_that_is_no_object_is_for_the_newest_revision_alone() {
    let text = r#"{"text":"[1]","type":"text"}"#;
    let [stateless, session] = both(&format!(r#"{{"content":[{text}],"structuredContent":[1]}}"#));
    assert_eq!(stateless, format!(r#"{{"content":[{text}],"structuredContent":[1]}}"#));
    assert_eq!(session, format!(r#"{{"content":[{text}]}}"#));
    // Its text is not lost with it.
    let [stateless, session] = both(r#"{"content":[],"structuredContent":[1]}"#);
    assert_eq!(stateless, r#"{"content":[],"structuredContent":[1]}"#);
    assert_eq!(session, format!(r#"{{"content":[{text}]}}"#));
    let null = r#"{"content":[],"structuredContent":null}"#;
    assert_eq!(both(null), [null, r#"{"content":[]}"#]);
}

#[test]
fn missing_content_becomes_the_text_of_the_structure() {
    let content = r#""content":[{"text":"{\"a\":1}","type":"text"}]"#;
    let structured = r#""structuredContent":{"a":1}"#;
    for result in [format!("{{{structured}}}"), format!(r#"{{"content":null,{structured}}}"#)] {
        let expected = format!("{{{content},{structured}}}");
        assert_eq!(both(&result), [expected.clone(), expected]);
    }
}

#[test]
fn block_that_clients_cannot_read_is_told_as_to_the_model() {
    let result = r#"{"content":[{"type":"image","data":"aGk","mimeType":"image/png"},{"type":"image","data":"a_k="},{"type":"hologram","z":1}]}"#;
    let [stateless, session] = both(result);
    assert_eq!(stateless, session);
    assert!(stateless.contains(r#"{"type":"image","data":"aGk","mimeType":"image/png"}"#));
    assert!(stateless.contains("not passed on, as it has no MIME type"), "{stateless}");
    assert!(stateless.contains("[hologram, 25 bytes: not passed on]"), "{stateless}");
}

#[test]
fn message_of_a_prompt_is_one_that_clients_read() {
    let good = r#"{"messages":[{"role":"user","content":{"type":"text","text":"a"}}], "x":1}"#;
    assert_eq!(prompt(good), good);
    let odd = r#"{"description":null,"messages":[{"role":"user","content":"a"},{"role":"user","content":{"type":"text","text":"b","_meta":null}}]}"#;
    let expected = r#"{"messages":[{"role":"user","content":{"text":"a","type":"text"}},{"role":"user","content":{"type":"text","text":"b"}}]}"#;
    assert_eq!(prompt(odd), expected);
}
