//! Results that are longer than a model is given at once (`max_result`): their first part, and the
//! parts that it asks for.
//!
//! Must not: keep a result.

use std::ops::Range;

use serde_json::json;

use super::CallId;
use super::answer::files::grouped;
use super::json::outside_strings;
use super::sentences;

/// The bytes of a part, unless the model or the backend's `max_result` says how many.
pub const PART: usize = 64 << 10;

/// The most bytes of the line that says how to go on.
const LINE: usize = 200;

/// The first part of `text`, at most `max` bytes. Its last line says how to go on: by the tool
/// `fetch`, where the rest is kept.
pub fn first(text: &str, max: usize, kept: Option<(&str, &CallId)>) -> String {
    let end = end_of_part(text, 0, max.saturating_sub(LINE));
    let [here, total] = [end, text.len()].map(grouped);
    let rest = match kept {
        Some((fetch, id)) => {
            format!("Call {fetch} with callId {id} and offset {end} for the rest.")
        }
        None => "The rest is lost: ask for less.".to_owned(),
    };
    let head = text.get(..end).unwrap_or_default().trim_end_matches('\n');
    format!("{head}\n[cut by the bridge: these are {here} of {total} bytes. {rest}]")
}

/// The error in place of a result of `size` bytes that has a schema, and so cannot be cut.
pub fn too_large(size: usize, max: usize, kept: Option<(&str, &CallId)>) -> String {
    let [size, max] = [size, max].map(grouped);
    let rest = match kept {
        Some((fetch, id)) => format!("read it in parts: call {fetch} with callId {id}"),
        None => "ask for less".to_owned(),
    };
    sentences::result_too_large(size, max, rest)
}

/// The part of `text` at `offset`, as JSON; the error is a sentence for the model.
pub fn part(text: &str, offset: usize, limit: usize) -> Result<String, String> {
    if offset >= text.len() && offset > 0 {
        let total = text.len();
        return Err(format!("There is nothing at offset {offset}: the result has {total} bytes."));
    }
    let begin = text.floor_char_boundary(offset);
    let end = end_of_part(text, begin, limit);
    let next = (end < text.len()).then_some(end);
    Ok(json!({ "total": text.len(), "next": next, "text": text.get(begin..end) }).to_string())
}

/// Where a part ends that begins at `begin`: after an element of JSON or a line, if there is one in
/// its second half; never within a character.
fn end_of_part(text: &str, begin: usize, max: usize) -> usize {
    let rest = text.get(begin..).unwrap_or_default();
    if rest.len() <= max {
        return text.len();
    }
    // At least one character, however small the part is.
    let end = rest.floor_char_boundary(max).max(rest.ceil_char_boundary(1));
    let part = begin..begin + end;
    let whole = match Shape::of_text(text) {
        // Its lines may end within elements.
        Shape::OneValue => end_of_element(text, &part).or_else(|| end_of_line(text, &part)),
        Shape::Values => end_of_line(text, &part).or_else(|| end_of_element(text, &part)),
        Shape::Other => end_of_line(text, &part),
    };
    whole.unwrap_or(part.end)
}

/// What a text is made of.
enum Shape {
    /// One array or object.
    OneValue,
    /// Several, such as one a line; or lines that begin like one.
    Values,
    Other,
}

impl Shape {
    fn of_text(text: &str) -> Self {
        if !text.trim_start().starts_with(['{', '[']) {
            return Self::Other;
        }
        let mut depth = 0_usize;
        for (at, byte) in outside_strings(text) {
            match byte {
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth = depth.saturating_sub(1),
                _ => continue,
            }
            if depth == 0 {
                let rest = text.get(at + 1..).unwrap_or_default();
                return if rest.trim_ascii().is_empty() { Self::OneValue } else { Self::Values };
            }
        }
        Self::Values
    }
}

/// The place after the last line end in the second half of `part`.
fn end_of_line(text: &str, part: &Range<usize>) -> Option<usize> {
    let second_half = part.start + part.len() / 2;
    let end = text.get(part.clone())?.rfind('\n').map(|at| part.start + at + 1);
    end.filter(|end| *end > second_half)
}

/// The place after a comma in the second half of `part` of a JSON text: the last one of those that
/// stand in the fewest arrays and objects. A comma further inside would cut an element in two, and
/// the model would read half a record as a whole one.
fn end_of_element(text: &str, part: &Range<usize>) -> Option<usize> {
    let second_half = part.start + part.len() / 2;
    let mut depth = 0_usize;
    let mut best: Option<(usize, usize)> = None;
    for (at, byte) in outside_strings(text).take_while(|(at, _)| *at < part.end) {
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' if at + 1 > second_half && best.is_none_or(|(least, _)| depth <= least) => {
                best = Some((depth, at + 1));
            }
            _ => {}
        }
    }
    best.map(|(_, end)| end)
}

#[cfg(test)]
mod tests {
    //! Where parts end, and that together they are the whole.

    use serde_json::Value;

    use super::*;

    #[test]
    fn the_first_part_ends_with_a_line_or_an_element() {
        let id = CallId::from("call_1");
        let told = |text: &str, max| first(text, LINE + max, Some(("bridge_call_result", &id)));
        assert_eq!(
            told("one\ntwo\nthree\n", 10),
            "one\ntwo\n[cut by the bridge: these are 8 of 14 bytes. Call bridge_call_result with \
             callId call_1 and offset 8 for the rest.]"
        );
        assert!(told(r#"[{"a":"x,y"},{"a":"z,z"}]"#, 19).starts_with("[{\"a\":\"x,y\"},\n[cut"));
        assert!(
            told(r#"["a\",\"b,c",1]"#, 13).starts_with("[\"a\\\",\\\"b,c\",\n"),
            "not in a string"
        );
        // A line in the first half would waste the second.
        assert!(told("a\nbbbbbbbbbbbbbbb", 8).starts_with("a\nbbbbbb\n[cut"));
        assert!(told("ééééé", 3).starts_with("é\n[cut"), "no half characters");
        assert!(
            first("aaaa", LINE + 2, None)
                .ends_with("these are 2 of 4 bytes. The rest is lost: ask for less.]")
        );
    }

    #[test]
    fn cut_of_json_falls_between_elements_and_not_inside_one() {
        let row =
            |i: usize| format!(r#"{{"i": {i}, "tags": ["a", "b"], "in": {{"x": 1, "y": 2}}}}"#);
        let rows: Vec<String> = (0..40).map(row).collect();
        let rows = rows.join(", ");
        let pretty: Value = serde_json::from_str(&format!("[{rows}]")).unwrap();
        for text in [
            format!("[{rows}]"),
            format!("{{\"total\": 40, \"rows\": [{rows}]}}"),
            format!("{{\"data\": {{\"rows\": [{rows}], \"next\": null}}}}"),
            serde_json::to_string_pretty(&pretty).unwrap(),
        ] {
            let mut begin = 0;
            while begin < text.len() {
                let end = end_of_part(&text, begin, 400);
                let part = text.get(begin..end).expect("a cut at a character");
                let is_last = end == text.len();
                assert!(is_last || part.trim_end().ends_with("},"), "{part}");
                assert!(part.len() <= 400 && end > begin, "{part}");
                begin = end;
            }
        }
    }

    #[test]
    fn cut_of_an_element_that_is_larger_than_a_part_falls_at_one_in_it() {
        let text = format!("[{{\"list\": [{}]}}]", vec!["[1, 2, 3]"; 100].join(", "));
        let end = end_of_part(&text, 0, 200);
        let part = text.get(..end).expect("a cut at a character");
        assert!(part.ends_with("[1, 2, 3],"), "{part}");
    }

    #[test]
    fn cut_of_lines_that_look_like_json_falls_at_a_line() {
        let records = "{\"a\": 1, \"b\": [2, 3]}\n".repeat(20);
        let log = "[INFO] one, two, three\n".repeat(20);
        for text in [records, log] {
            let part = text.get(..end_of_part(&text, 0, 150)).expect("a cut at a character");
            assert!(part.ends_with('\n'), "{text}");
        }
    }

    #[test]
    fn the_parts_are_the_whole() {
        for text in ["one\ntwo\n\nthree", r#"{"a":[1,2,3,"é,é"],"b":{}}"#, "éé😀é", ""] {
            for limit in 1..12 {
                let (mut whole, mut next) = (String::new(), Some(0));
                while let Some(offset) = next {
                    let part = part(text, usize::try_from(offset).unwrap(), limit).unwrap();
                    let part: Value = serde_json::from_str(&part).unwrap();
                    assert_eq!(part["total"], text.len());
                    whole.push_str(part["text"].as_str().unwrap());
                    next = part["next"].as_u64();
                }
                assert_eq!(whole, text, "{limit}");
            }
        }
        let beyond = part("abc", 3, 5).unwrap_err();
        assert_eq!(beyond, "There is nothing at offset 3: the result has 3 bytes.");
    }
}
