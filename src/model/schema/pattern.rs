//! The cost of a schema's regular expressions, to compile and to match, estimated from their form.
//!
//! Must not: compile one, or be exact: a doubt counts as expensive.

use regex_syntax::hir::{Hir, HirKind, Repetition};
use serde_json::Value;

/// The most regular expressions of one schema, and the most bytes of them all.
const MAX_PATTERNS: usize = 64;
const MAX_TEXT: usize = 16 * 1024;
/// The most memory that all of them may take when compiled, and one of them.
const MAX_COMPILED: usize = 2 * 1024 * 1024;
const MAX_PATTERN: usize = 512 * 1024;
/// What any match counts, and how many bytes of its pattern, and how many of its steps, count as
/// much as a visit.
const MATCH: usize = 20;
const BYTES_OF_A_VISIT: usize = 4;
const STEPS_OF_A_VISIT: usize = 16;

/// How much memory each regular expression of `schema` may take, so that all of them stay within
/// the bounds.
pub(super) fn room(schema: &Value) -> Result<usize, &'static str> {
    let mut patterns = Vec::new();
    gather(schema, &mut patterns);
    if patterns.len() > MAX_PATTERNS {
        return Err("its schema has too many regular expressions");
    }
    if patterns.iter().map(|pattern| pattern.len()).sum::<usize>() > MAX_TEXT {
        return Err("its schema has regular expressions that are too long");
    }
    Ok((MAX_COMPILED / patterns.len().max(1)).min(MAX_PATTERN))
}

/// `pattern` without the escapes `\<` and `\>`: in every language of servers, each stands for the
/// character itself, but here for the beginning and the end of a word.
pub(super) fn plain(pattern: &str) -> String {
    let mut plain = String::with_capacity(pattern.len());
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match (c, chars.as_str().chars().next()) {
            ('\\', Some('<' | '>')) => {}
            ('\\', Some(escaped)) => {
                plain.extend(['\\', escaped]);
                chars.next();
            }
            (c, _) => plain.push(c),
        }
    }
    plain
}

/// Adds the regular expressions of a schema to `patterns`.
fn gather<'a>(value: &'a Value, patterns: &mut Vec<&'a String>) {
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                match (key.as_str(), value) {
                    ("pattern", Value::String(pattern)) => patterns.push(pattern),
                    ("patternProperties", Value::Object(schemas)) => {
                        patterns.extend(schemas.keys());
                    }
                    _ => {}
                }
                gather(value, patterns);
            }
        }
        Value::Array(elements) => elements.iter().for_each(|element| gather(element, patterns)),
        _ => {}
    }
}

/// The visits that a match counts as, with the reading of the pattern. The engine is linear: every
/// character meets every place of the pattern at most once.
pub(super) fn match_cost(pattern: &str, text: &str) -> usize {
    let reading = MATCH + pattern.len() / BYTES_OF_A_VISIT;
    let places = regex_syntax::parse(pattern).map_or(usize::MAX, |pattern| places(&pattern));
    reading.saturating_add(text.len().saturating_mul(places) / STEPS_OF_A_VISIT)
}

/// How many places a match may be at, with counted repetitions written out.
fn places(pattern: &Hir) -> usize {
    match pattern.kind() {
        HirKind::Empty | HirKind::Look(_) | HirKind::Class(_) => 1,
        HirKind::Literal(literal) => literal.0.len(),
        HirKind::Capture(group) => places(&group.sub),
        HirKind::Repetition(Repetition { min, max, sub, .. }) => {
            let times = max.unwrap_or(*min).max(1);
            places(sub).saturating_mul(usize::try_from(times).unwrap_or(usize::MAX))
        }
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            parts.iter().map(places).fold(0, usize::saturating_add)
        }
    }
}

#[cfg(test)]
mod tests {
    //! What is counted, and what is refused before it is compiled.

    use serde_json::json;

    use super::*;

    #[test]
    fn places_are_those_of_the_pattern_written_out() {
        for (pattern, expected) in [
            ("", 1),
            ("abc", 3),
            ("[ab]*a[ab]{100}c", 103),
            ("(a{10}b){10}", 110),
            ("(?:a{2,5}|b{3,}|[cd]{1,4})", 12),
            (r"^\{3}[\]{9}]{2}$", 7),
        ] {
            assert_eq!(places(&regex_syntax::parse(pattern).unwrap()), expected, "{pattern}");
        }
        for unreadable in ["((a", "a)b", "a{99999999999999999999999}b", "(?=a)"] {
            assert!(match_cost(unreadable, "a") > usize::MAX / 20, "{unreadable}");
        }
    }

    #[test]
    fn angle_brackets_are_themselves() {
        for (pattern, expected) in [
            (r"^\<[a-z]+\>$", "^<[a-z]+>$"),
            (r"[\<\>]", "[<>]"),
            (r"\\<", r"\\<"),
            (r"\\\<\d\", r"\\<\d\"),
            ("<é>", "<é>"),
        ] {
            assert_eq!(plain(pattern), expected, "{pattern}");
        }
    }

    #[test]
    fn a_long_text_is_dear_if_the_pattern_is() {
        let text = "a".repeat(1600);
        assert_eq!(match_cost("a", &text), 20 + 100);
        assert_eq!(match_cost("[ab]{1000}", &text), 20 + 2 + 100_000);
    }

    #[test]
    fn many_patterns_have_less_room_each() {
        let of = |pattern: &str| room(&json!({ "pattern": pattern }));
        assert_eq!(of("^[a-z]{1,64}$"), Ok(MAX_PATTERN));
        assert!(of(&"a".repeat(MAX_TEXT + 1)).is_err());
        let many: Vec<_> = (0..MAX_PATTERNS).map(|_| json!({"pattern": "a"})).collect();
        assert_eq!(room(&json!({ "anyOf": many })), Ok(MAX_COMPILED / MAX_PATTERNS));
    }
}
