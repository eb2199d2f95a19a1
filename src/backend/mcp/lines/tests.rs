//! Lines, however the bytes arrive, and the ids of those that are too long.

use bytes::Bytes;

use super::{Line, Lines};

/// The lines of `text`, pushed in pieces of `step` bytes, of at most 32 bytes each.
fn cut(text: &str, step: usize) -> Vec<Line> {
    let mut lines = Lines::new(32);
    let mut found = Vec::new();
    for piece in text.as_bytes().chunks(step) {
        lines.buffer.extend_from_slice(piece);
        while let Some(line) = lines.next_line() {
            found.push(line);
        }
        assert!(lines.buffer.len() <= 32 + step);
    }
    found
}

#[track_caller]
fn check(text: &str, expected: &[Line]) {
    for step in [1, 2, 3, 7, 1000] {
        assert_eq!(cut(text, step), expected, "in steps of {step}");
    }
}

fn whole(text: &'static str) -> Line {
    Line::Whole(Bytes::from_static(text.as_bytes()))
}

fn too_long(id: Option<&str>, line: &str) -> Line {
    let id = id.map(|id| serde_json::from_str(id).unwrap());
    Line::TooLong { id, size: line.len() as u64 }
}

#[test]
fn lines_end_with_a_newline_and_empty_ones_are_none() {
    check("a\nbc\r\n\n\r\nd\ne", &[whole("a"), whole("bc"), whole("d")]);
}

#[test]
fn a_line_that_is_too_long_leaves_its_id_and_its_size() {
    let long = "x".repeat(100);
    for (line, id) in [
        (format!("{{\"id\":17,\"result\":\"{long}\"}}"), "17"),
        (format!("{{\"result\":\"{long}\", \"id\" : \"s-1\" }}"), "\"s-1\""),
        (format!("{{\"result\":[\"{long}\"],\"id\":5}}"), "5"),
    ] {
        check(&format!("{line}\na\n"), &[too_long(Some(id), &line), whole("a")]);
    }
}

#[test]
fn only_the_id_of_the_message_itself_counts() {
    let inner = r#"{"id":1,"x":["id",{"id":2}],"y":"\",\"id\":3"}"#;
    let line = format!("{{\"result\":{inner},\"z\":\"id\",\"id\":4}}");
    check(&format!("{line}\n"), &[too_long(Some("4"), &line)]);
    let line = format!("{{\"result\":{inner}}}{{\"id\":4}}");
    check(&format!("{line}\n"), &[too_long(None, &line)]);
}

#[test]
fn garbage_without_end_is_read_past() {
    let long = "]}\"{".repeat(100);
    check(&format!("{long}\na\n"), &[too_long(None, &long), whole("a")]);
}
