//! Results that are longer than a model is given at once (`max_result`): their first part, and the
//! parts that it asks for.
//!
//! Must not: keep a result.

use serde_json::json;

use super::CallId;
use super::answer::files::grouped;
use super::json::outside_strings;
use super::sentences::sentence;

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
    sentence("too_large", &[("size", &size), ("max", &max), ("rest", &rest)])
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

/// Where a part ends that begins at `begin`: after a line or an element of JSON, if there is one in
/// its second half; never within a character.
fn end_of_part(text: &str, begin: usize, max: usize) -> usize {
    let rest = text.get(begin..).unwrap_or_default();
    if rest.len() <= max {
        return text.len();
    }
    // At least one character, however small the part is.
    let end = rest.floor_char_boundary(max).max(rest.ceil_char_boundary(1));
    let part = rest.get(..end).unwrap_or_default();
    let line = part.rfind('\n').map(|at| at + 1);
    let is_json = text.trim_start().starts_with(['{', '[']);
    let element = || is_json.then(|| end_of_element(text, begin..begin + end)).flatten();
    let whole = line.filter(|at| *at > end / 2).or_else(element).filter(|at| *at > end / 2);
    begin + whole.unwrap_or(end)
}

/// The place after the last comma in `part` of a JSON text that is not in a string, from the start of
/// the part.
fn end_of_element(text: &str, part: std::ops::Range<usize>) -> Option<usize> {
    let before = outside_strings(text).take_while(|(at, _)| *at < part.end);
    let commas = before.filter(|(at, byte)| *byte == b',' && *at >= part.start);
    commas.last().map(|(at, _)| at + 1 - part.start)
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
