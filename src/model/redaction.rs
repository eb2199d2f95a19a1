//! Texts in results that neither a model nor a log may see: what the operator's patterns match is
//! replaced, and counted.
//!
//! Numbers are left as they are, so that JSON stays JSON.
//!
//! Must not: know where a result comes from.

use std::{borrow::Cow, cmp::Ordering};

use regex::{Captures, Regex};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Deserializer, Value, value::RawValue};

use super::json;

/// Patterns that the bridge knows; the `use` of bridge.yaml.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Known {
    // Blocks of PEM and of OpenPGP.
    PrivateKeys,
    // By the beginnings that their issuers gave them, JSON Web Tokens, and what follows `Bearer`.
    AccessTokens,
    // 13 to 19 digits with a right check digit (ISO/IEC 7812), also beside other digits.
    CardNumbers,
}

const PRIVATE_KEYS: &str = r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----(?s:.*?)(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\z)";
const ACCESS_TOKENS: &str = r"(?-u)\b(?:gh[opsur]_[A-Za-z0-9]{30,}|github_pat_\w{22,}|glpat-[\w-]{20,}|xox[abeoprs]-[\w-]{10,}|(?:AKIA|ASIA)[A-Z0-9]{16}|AIza[\w-]{35}|sk-[\w-]{20,}|[rs]k_(?:live|test)_\w{16,}|npm_[A-Za-z0-9]{36}|pypi-[\w-]{50,}|mantyx_\w{16,}|eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]*)|(?i:\bbearer )[\w.~+/-]{16,}=*";
/// Groups of digits, in which card numbers are searched.
const CARD_NUMBERS: &str = r"(?-u)\b\d(?:[ -]?\d){12,}\b";

/// Members of MCP's results with content blocks. Their keys are the protocol's.
const BLOCKS: [&str; 3] = [r#""content""#, r#""contents""#, r#""messages""#];
/// Members of these blocks with bytes in base64, which no pattern is for.
const BYTES: [&str; 2] = [r#""data""#, r#""blob""#];

/// The strings of a JSON text that are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// All, keys of objects included.
    Whole,
    /// The same of an MCP server's result, without the protocol's own keys and its base64.
    Result,
    /// The member `message` of MCP's parameters alone.
    Message,
}

/// What is replaced in the results of one backend. The default is nothing.
#[derive(Debug, Clone, Default)]
pub struct Redaction(pub Vec<Pattern>);

#[derive(Debug, Clone)]
pub struct Pattern {
    regex: Regex,
    with: String,
    is_card: bool,
}

impl Pattern {
    /// # Errors
    ///
    /// It is no regular expression, or one that takes too much memory.
    pub fn new(pattern: &str, with: Option<&str>) -> Result<Self, regex::Error> {
        let regex = Regex::new(pattern)?;
        Ok(Self { regex, with: with.unwrap_or("[removed]").to_owned(), is_card: false })
    }

    /// Whether it matches an empty text.
    pub fn matches_nothing(&self) -> bool {
        self.regex.is_match("")
    }

    pub fn known(known: Known, with: Option<&str>) -> Self {
        let (pattern, instead) = match known {
            Known::PrivateKeys => (PRIVATE_KEYS, "[private key removed]"),
            Known::AccessTokens => (ACCESS_TOKENS, "[access token removed]"),
            Known::CardNumbers => (CARD_NUMBERS, "[card number removed]"),
        };
        let regex = Regex::new(pattern).expect("a test compiles it");
        let is_card = known == Known::CardNumbers;
        Self { regex, with: with.unwrap_or(instead).to_owned(), is_card }
    }

    fn replace<'t>(&self, text: &'t str, count: &mut u64) -> Cow<'t, str> {
        self.regex.replace_all(text, |found: &Captures<'_>| {
            if self.is_card && !is_card(&found[0]) {
                return without_cards(&found[0], &self.with, count);
            }
            *count += 1;
            self.with.clone()
        })
    }
}

/// Whether `number` has 13 to 19 digits, the last of which checks the others (Luhn).
fn is_card(number: &str) -> bool {
    let digits = number.bytes().rev().filter(u8::is_ascii_digit).map(|digit| digit - b'0');
    // Others would be long to look at.
    let digits: Vec<u8> = digits.take(20).collect();
    let weighted = digits.iter().zip([1, 2].iter().cycle()).map(|(digit, weight)| digit * weight);
    (13..=19).contains(&digits.len()) && weighted.map(|it| it / 10 + it % 10).sum::<u8>() % 10 == 0
}

/// `digits`, in groups, without the card numbers that begin and end with one of the groups. In these,
/// each group but the last has four digits or more: a long list of small numbers would have many
/// right check digits by chance.
fn without_cards(digits: &str, with: &str, count: &mut u64) -> String {
    let groups: Vec<&str> = digits.split_inclusive([' ', '-']).collect();
    let (mut new, mut card_end) = (String::new(), 0);
    for (at, group) in groups.iter().enumerate() {
        let ends_card = |end: &usize| {
            let number = groups.get(at..*end).unwrap_or_default();
            number.iter().rev().skip(1).all(|group| group.len() > 4) && is_card(&number.concat())
        };
        // At most four groups of four digits, and one of three.
        if let Some(end) = (at + 1..=groups.len().min(at + 5)).rev().find(ends_card) {
            if at >= card_end {
                new.push_str(with);
                *count += 1;
            }
            card_end = card_end.max(end);
        }
        match (at + 1).cmp(&card_end) {
            Ordering::Greater => new.push_str(group),
            Ordering::Equal => new.push_str(group.trim_start_matches(|c: char| c.is_ascii_digit())),
            Ordering::Less => {}
        }
    }
    new
}

impl Redaction {
    /// Replaces what matches in `text`, and in the strings of JSON that it is or that one of its lines
    /// is; `None` if nothing does. `count` goes up by one for each place.
    pub fn apply(&self, text: &str, count: &mut u64) -> Option<String> {
        if self.0.is_empty() || is_json(text) {
            return self.in_strings(text, Part::Whole, count);
        }
        let before = *count;
        let mut replaced = text.to_owned();
        for pattern in &self.0 {
            replaced = pattern.replace(&replaced, count).into_owned();
        }
        // After that, as what matches may have several lines.
        let in_line = |line: &str| {
            let replaced = is_json(line).then(|| self.in_strings(line, Part::Whole, count));
            replaced.flatten().unwrap_or_else(|| line.to_owned())
        };
        let replaced: String = replaced.split_inclusive('\n').map(in_line).collect();
        (*count > before).then_some(replaced)
    }

    /// Replaces what matches in `part` of what an MCP server has sent.
    pub fn apply_to(&self, json: &mut Box<RawValue>, part: Part, count: &mut u64) {
        if let Some(changed) = self.in_strings(json.get(), part, count) {
            *json = RawValue::from_string(changed).expect("only its strings have changed");
        }
    }

    fn in_strings(&self, json: &str, part: Part, count: &mut u64) -> Option<String> {
        if self.0.is_empty() {
            return None;
        }
        let (mut new, mut rest, mut is_changed) = (String::new(), json, false);
        // The last key, that of the outermost object, and how many objects and arrays are open.
        let (mut key, mut member, mut depth) = ("", "", 0);
        while let Some((before, literal, after)) = first_string(rest) {
            rest = after;
            new.push_str(before);
            depth += before.matches(['{', '[']).count();
            depth -= before.matches(['}', ']']).count();
            let is_key = after.trim_start().starts_with(':');
            let is_bytes = BYTES.contains(&std::mem::take(&mut key)) && is_base64(literal);
            if is_key {
                key = literal;
                member = if depth == 1 { literal } else { member };
            }
            let is_left = match part {
                Part::Whole => false,
                Part::Result => (is_key || is_bytes) && (depth == 1 || BLOCKS.contains(&member)),
                Part::Message => is_key || member != r#""message""#,
            };
            let text = json::lossy(literal).filter(|_| !is_left);
            match text.and_then(|text| self.apply(&text, count)) {
                Some(replaced) => {
                    new.push_str(&Value::from(replaced).to_string());
                    is_changed = true;
                }
                None => new.push_str(literal),
            }
        }
        new.push_str(rest);
        is_changed.then_some(new)
    }
}

fn is_json(text: &str) -> bool {
    text.trim_start().starts_with(['{', '[', '"'])
        && serde_json::from_str::<&RawValue>(text).is_ok()
}

/// The first string in a JSON text with its quotes, and the text before and after it.
fn first_string(json: &str) -> Option<(&str, &str, &str)> {
    let (before, string) = json.split_at_checked(json.find('"')?)?;
    let literal = Deserializer::from_str(string).into_iter::<&RawValue>().next()?.ok()?.get();
    Some((before, literal, string.get(literal.len()..)?))
}

fn is_base64(literal: &str) -> bool {
    let text = literal.trim_matches('"');
    text.len() > 64 && text.bytes().all(|it| it.is_ascii_alphanumeric() || b"+/=\\".contains(&it))
}

#[cfg(test)]
mod tests {
    //! What is found, and what stays as it is.

    use super::*;

    fn redacted(known: &[Known], text: &str) -> (String, u64) {
        let all = known.iter().map(|known| Pattern::known(*known, Some("X"))).collect();
        let mut count = 0;
        let replaced = Redaction(all).apply(text, &mut count);
        (replaced.unwrap_or_else(|| text.to_owned()), count)
    }

    #[test]
    fn known_secrets_are_found() {
        use Known::{AccessTokens, CardNumbers, PrivateKeys};
        let ghp = format!("ghp_{}", "aB3".repeat(12));
        let jwt = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0.abc-_";
        for (known, text, expected, count) in [
            (AccessTokens, format!("a {ghp}, {ghp}."), "a X, X.", 2),
            (
                AccessTokens,
                format!("Authorization: bearer {}", "x".repeat(20)),
                "Authorization: X",
                1,
            ),
            (AccessTokens, format!("t={jwt};"), "t=X;", 1),
            (
                AccessTokens,
                "AKIAIOSFODNN7EXAMPLE and a bearer of news".into(),
                "X and a bearer of news",
                1,
            ),
            (
                PrivateKeys,
                "a -----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY----- b".into(),
                "a X b",
                1,
            ),
            (PrivateKeys, "-----BEGIN PRIVATE KEY-----\nMII cut".into(), "X", 1),
            (PrivateKeys, "-----BEGIN CERTIFICATE-----".into(), "-----BEGIN CERTIFICATE-----", 0),
            (
                CardNumbers,
                "4111 1111 1111 1111 or 4111111111111112".into(),
                "X or 4111111111111112",
                1,
            ),
            (CardNumbers, "order 20261122143000123".into(), "order 20261122143000123", 0),
        ] {
            assert_eq!(redacted(&[known], &text), (expected.to_owned(), count), "{text}");
        }
    }

    #[test]
    fn of_json_only_strings_change() {
        let all = [Known::CardNumbers, Known::AccessTokens];
        for (text, expected) in [
            (
                r#"{ "4111111111111111" : 4111111111111111, "s":"4111111111111111"}"#.to_owned(),
                r#"{ "X" : 4111111111111111, "s":"X"}"#.to_owned(),
            ),
            (
                r#"["a\"4111111111111111\u0041", 1.0e400]"#.into(),
                r#"["a\"4111111111111111A", 1.0e400]"#.into(),
            ),
            (
                r#"[{"text":"{\"n\":4111111111111111}"},"\\", "5500000000000004"]"#.into(),
                r#"[{"text":"{\"n\":4111111111111111}"},"\\", "X"]"#.into(),
            ),
            (r#""\u0034111111111111111 \ud800""#.into(), "\"X \u{fffd}\u{fffd}\u{fffd}\"".into()),
            // No JSON at all.
            ("{4111111111111111".into(), "{X".into()),
        ] {
            let (changed, _) = redacted(&all, &text);
            if text.contains("u0041") {
                assert_eq!(changed, text, "a word goes on behind the number");
            } else {
                assert_eq!(changed, expected);
            }
        }
    }

    #[test]
    fn a_card_number_is_found_beside_other_digits() {
        for (text, expected, count) in [
            ("4111 1111 1111 1111 123", "X 123", 1),
            ("4111111111111111 12/27", "X 12/27", 1),
            ("1 4111 1111 1111 1111", "1 X", 1),
            ("2 5500000000000004", "2 X", 1),
            ("5500-0000-0000-0004-1", "X-1", 1),
            ("2026-11-22 4111-1111-1111-1111 5500000000000004-7", "2026-11-22 X X-7", 2),
            ("3782 822463 10005 1", "X 1", 1),
            ("12 4111111111111112", "12 4111111111111112", 0),
            // The earlier of two that overlap does not end the search for the later.
            ("1004 4111 1111 1111 1111", "X", 1),
            // In small groups, only if nothing else is there.
            ("4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1", "X", 1),
            ("4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 2 3", "4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 2 3", 0),
        ] {
            assert_eq!(
                redacted(&[Known::CardNumbers], text),
                (expected.to_owned(), count),
                "{text}"
            );
        }
        let long = "1234 ".repeat(1 << 16);
        assert_eq!(redacted(&[Known::CardNumbers], &long).0, long, "1234 four times is none");
    }

    #[test]
    fn lines_of_json_are_read_as_json() {
        let (key, rest) = ("-----BEGIN PRIVATE KEY-----", "\nMII\n-----END PRIVATE KEY-----");
        let known = [Known::AccessTokens, Known::PrivateKeys];
        let token = r"\u0041KIAIOSFODNN7EXAMPLE";
        for (text, expected) in [
            (
                format!("{{\"a\":\"{token}\"}}\r\n[1]\n\"{token}\"\nb"),
                "{\"a\":\"X\"}\r\n[1]\n\"X\"\nb",
            ),
            (format!("x\n{{\"a\":\"{token}\"}}"), "x\n{\"a\":\"X\"}"),
            // A key that begins in such a line goes on behind it.
            (format!("\"{key}\"{rest}"), "\"X"),
        ] {
            assert_eq!(
                redacted(&known, &text),
                (expected.to_owned(), expected.matches('X').count() as u64),
                "{text}"
            );
        }
    }

    #[test]
    fn of_a_servers_result_the_protocols_own_stays() {
        let bytes = format!("AKIAIOSFODNN7EXAMPLE/{}", "A".repeat(60));
        let redact = Redaction(vec![Pattern::new("AKIA[A-Z0-9]+|content", Some("X")).unwrap()]);
        let apply = |part, text: String| {
            let (mut json, mut count) = (RawValue::from_string(text).unwrap(), 0);
            redact.apply_to(&mut json, part, &mut count);
            (Box::<str>::from(json).into_string(), count)
        };
        let result = |bytes: &str, rest: &str| {
            format!(
                r#"{{"content":[{{"type":"image","data":"{bytes}"}},{{"type":"resource","resource":{{"blob":"{bytes}"}}}},{rest}}}"#
            )
        };
        let before = r#"{"type":"text","text":"AKIA1","data":"AKIA2"}],"structuredContent":{"AKIA3":{"content":1},"data":"B"}"#;
        let after = r#"{"type":"text","text":"X","data":"X"}],"structuredContent":{"X":{"X":1},"data":"X/A"}"#;
        let long = format!("\"{bytes}\"");
        assert_eq!(
            apply(Part::Result, result(&bytes, &before.replace("\"B\"", &long))),
            (result(&bytes, &after.replace("X/A", &bytes.replace("AKIAIOSFODNN7EXAMPLE", "X"))), 5)
        );
        // In a text, nothing is the protocol's.
        let text = format!(r#"{{"content":[{{"type":"image","data":"{bytes}"}}]}}"#);
        let replaced = redact.apply(&text, &mut 0).unwrap();
        assert!(replaced.starts_with(r#"{"X":[{"type":"image","data":"X/AAA"#), "{replaced}");
        let params = r#"{"message":"AKIA1","requestedSchema":{"message":"AKIA2"},"url":"AKIA3"}"#;
        assert_eq!(apply(Part::Message, params.to_owned()), (params.replace("AKIA1", "X"), 1));
    }

    #[test]
    fn a_pattern_is_checked() {
        assert!(Pattern::new("(", None).is_err());
        assert!(Pattern::new(r"(\w{1000}){1000}", None).is_err(), "too large");
        assert!(Pattern::new("a*", None).unwrap().matches_nothing());
        let pattern = Pattern::new("secret-[0-9]+", Some("$0")).unwrap();
        let mut count = 0;
        let replaced = Redaction(vec![pattern]).apply("a secret-12", &mut count);
        assert_eq!((replaced.as_deref(), count), (Some("a $0"), 1), "as it is written");
        assert_eq!(Redaction::default().apply("secret-12", &mut count), None);
    }
}
