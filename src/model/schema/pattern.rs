//! The cost of a schema's regular expressions, to compile and to match, estimated from their text.
//!
//! Must not: compile one, or be exact: a doubt counts as expensive.

use serde_json::Value;

/// The most regular expressions of one schema, and the most bytes of them all.
const MAX_PATTERNS: usize = 64;
const MAX_TEXT: usize = 16 * 1024;
/// The most memory that all of them may take when compiled, and one of them.
const MAX_COMPILED: usize = 2 * 1024 * 1024;
const MAX_PATTERN: usize = 512 * 1024;
/// What any match counts, and how many steps of one count as much as a visit.
const MATCH: usize = 20;
const STEPS_OF_A_VISIT: usize = 16;

/// The regular expressions of a schema.
#[derive(Debug, Default)]
struct Patterns {
    count: usize,
    /// The bytes of all of them.
    text: usize,
}

/// How much memory each regular expression of `schema` may take, so that all of them stay within
/// the bounds.
pub(super) fn room(schema: &Value) -> Result<usize, &'static str> {
    let mut patterns = Patterns::default();
    patterns.gather(schema);
    if patterns.count > MAX_PATTERNS {
        return Err("its schema has too many regular expressions");
    }
    if patterns.text > MAX_TEXT {
        return Err("its schema has regular expressions that are too long");
    }
    Ok((MAX_COMPILED / patterns.count.max(1)).min(MAX_PATTERN))
}

impl Patterns {
    fn gather(&mut self, value: &Value) {
        match value {
            Value::Object(members) => {
                for (key, value) in members {
                    match (key.as_str(), value) {
                        ("pattern", Value::String(pattern)) => self.add(pattern),
                        ("patternProperties", Value::Object(patterns)) => {
                            patterns.keys().for_each(|pattern| self.add(pattern));
                        }
                        _ => {}
                    }
                    self.gather(value);
                }
            }
            Value::Array(elements) => elements.iter().for_each(|element| self.gather(element)),
            _ => {}
        }
    }

    fn add(&mut self, pattern: &str) {
        self.count += 1;
        self.text += pattern.len();
    }
}

/// The visits that a match counts as. The engine is linear: every character meets every place of the
/// pattern at most once.
pub(super) fn match_cost(pattern: &str, text: &str) -> usize {
    MATCH + text.len().saturating_mul(places(pattern)) / STEPS_OF_A_VISIT
}

/// How many places a match may be at, with counted repetitions written out.
fn places(pattern: &str) -> usize {
    let mut outer = Vec::new();
    let mut group = Group::default();
    let mut rest = pattern.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        match byte {
            b'(' => outer.push(std::mem::take(&mut group)),
            b')' => {
                if let Some(before) = outer.pop() {
                    let whole = std::mem::replace(&mut group, before).places();
                    group.add(whole);
                }
            }
            b'{' => match times(rest) {
                Some((times, behind)) => {
                    rest = behind;
                    group.last = group.last.saturating_mul(times);
                }
                None => group.add(1),
            },
            b'\\' => {
                rest = rest.get(1..).unwrap_or_default();
                group.add(1);
            }
            b'[' => {
                rest = behind_class(rest);
                group.add(1);
            }
            _ => group.add(1),
        }
    }
    outer.iter().map(Group::places).fold(group.places(), usize::saturating_add)
}

/// The part of a group that was read.
#[derive(Debug, Default)]
struct Group {
    before: usize,
    /// What a number of times would be about.
    last: usize,
}

impl Group {
    fn add(&mut self, places: usize) {
        self.before = self.places();
        self.last = places;
    }

    fn places(&self) -> usize {
        self.before.saturating_add(self.last)
    }
}

/// The most times that `3}`, `3,}`, `3,9}` or `,9}` asks for, and what stands behind it.
fn times(text: &[u8]) -> Option<(usize, &[u8])> {
    let end = text.iter().position(|&byte| byte == b'}')?;
    let range = text.get(..end)?;
    let behind = text.get(end + 1..)?;
    let range = std::str::from_utf8(range).ok()?.replace(' ', "");
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let numbers = range.split(',').filter(|number| !number.is_empty());
    let numbers: Option<Vec<usize>> = numbers
        .map(|number| is_number(number).then(|| number.parse().unwrap_or(usize::MAX)))
        .collect();
    Some((numbers?.into_iter().max()?.max(1), behind))
}

/// What stands behind the class whose `[` has been read.
fn behind_class(text: &[u8]) -> &[u8] {
    let mut rest = text;
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        match byte {
            b']' => return rest,
            b'\\' => rest = rest.get(1..).unwrap_or_default(),
            _ => {}
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    //! What is counted, and what is refused before it is compiled.

    use serde_json::json;

    use super::*;

    #[test]
    fn places_are_those_of_the_pattern_written_out() {
        for (pattern, expected) in [
            ("", 0),
            ("abc", 3),
            ("[ab]*a[ab]{100}c", 104),
            ("(a{10}b){10}", 110),
            ("(?:a{2,5}|b{3,}|c{,4})", 16),
            (r"\{3}[\]{9}]{2}", 5),
            ("a{x}", 4),
            ("((a", 1),
            ("a)b", 2),
            ("a{99999999999999999999999}b", usize::MAX),
        ] {
            assert_eq!(places(pattern), expected, "{pattern}");
        }
    }

    #[test]
    fn a_long_text_is_dear_if_the_pattern_is() {
        let text = "a".repeat(1600);
        assert_eq!(match_cost("a", &text), 20 + 100);
        assert_eq!(match_cost("[ab]{1000}", &text), 20 + 100_000);
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
