//! Texts in results that neither a model nor a log may see: what the operator's patterns match is
//! replaced, and counted.
//!
//! Numbers are left as they are, so that JSON stays JSON.
//!
//! Must not: know where a result comes from.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::LazyLock;

use regex::{Captures, Match, Regex};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Deserializer, Value};

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

/// From a first line to its last line, or to the end of the text; and lines of base64 before a last
/// line, as a key whose beginning was cut off.
const PRIVATE_KEYS: &str = r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----(?s:.*?)(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\z)|(?m:^[A-Za-z0-9+/=]+\r?\n)+-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----";
/// The first and the last line of such a key.
static KEY_MARK: LazyLock<Regex> = LazyLock::new(|| {
    let mark = "-----(?:BEGIN|END) [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----";
    Regex::new(mark).expect("a test compiles it")
});
/// Behind `Bearer`, a short text counts if it has a letter and a digit: words follow it, too.
const ACCESS_TOKENS: &str = include_str!("redaction/access_tokens.txt");
/// Groups of digits as on a card, or any, in which card numbers are searched. Behind other letters
/// than these begin numbers of cards alone; behind the letters A to F, digits are often
/// hexadecimal.
const CARD_NUMBERS: &str = include_str!("redaction/card_numbers.txt");
/// Between groups as on a card; others are in tables, and dots in decimal numbers.
const SEPARATOR: &str =
    r"(?:\ {2}|[\ -]?[\t.\u{a0}\u{2000}-\u{200a}\u{202f}\u{2010}-\u{2015}\u{2212}\u{3000}])";

/// Members of MCP's messages with content blocks or questions.
const BLOCKS: &str = "content contents messages elicitations";
/// Members of these blocks with bytes in base64, which no pattern is for.
const BYTES: &str = "data blob";
/// Members of MCP's parameters whose values the server or the client needs as they are.
const NEEDED: &str = "requestedSchema url mode elicitationId progressToken requiredCapabilities";
/// The protocol's own keys in results and blocks, and the types of blocks.
const OWN: &str = include_str!("redaction/own.txt");

/// The strings of a JSON text that are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// All, keys of objects included.
    Whole,
    /// Those with escapes, which hide what matches.
    Escaped,
    /// All of an MCP server's result, without the protocol's own keys and its base64.
    Result,
    /// The same of MCP's parameters and of an error's data, without what is needed as it is.
    Params,
}

/// What is replaced in the results of one backend. The default is nothing.
#[derive(Debug, Clone, Default)]
pub struct Redaction(pub Vec<Pattern>);

#[derive(Debug, Clone)]
pub struct Pattern {
    regex: Regex,
    with: String,
    known: Option<Known>,
}

impl Pattern {
    /// # Errors
    ///
    /// It is no regular expression, or one that takes too much memory.
    pub fn new(pattern: &str, with: Option<&str>) -> Result<Self, regex::Error> {
        let regex = Regex::new(pattern)?;
        Ok(Self { regex, with: with.unwrap_or("[removed]").to_owned(), known: None })
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
        let regex =
            Regex::new(&pattern.replace("SEPARATOR", SEPARATOR)).expect("a test compiles it");
        Self { regex, with: with.unwrap_or(instead).to_owned(), known: Some(known) }
    }

    fn replace<'t>(&self, text: &'t str, count: &mut u64) -> Cow<'t, str> {
        self.regex.replace_all(text, |captures: &Captures<'_>| {
            if self.known == Some(Known::CardNumbers) {
                let digits = captures[0].trim_start_matches(|c: char| !c.is_ascii_digit());
                return captures[0].replace(digits, &without_cards(digits, &self.with, count));
            }
            *count += 1;
            self.with.clone()
        })
    }
}

/// Whether `number` has 13 to 19 digits, the last of which checks the others (Luhn).
fn is_card(number: &str) -> bool {
    // More digits are no card, and would be long to look at.
    let digits: Vec<u8> = number
        .bytes()
        .rev()
        .filter(u8::is_ascii_digit)
        .map(|digit| digit - b'0')
        .take(20)
        .collect();
    let weighted = digits.iter().zip([1, 2].iter().cycle()).map(|(digit, weight)| digit * weight);
    (13..=19).contains(&digits.len())
        && weighted.map(|product| product / 10 + product % 10).sum::<u8>() % 10 == 0
}

/// `digits`, in groups, without the card numbers that begin and end with one of the groups. In
/// these, unless they are all there is, each group but the last has four digits or more: a long
/// list of small numbers would have many right check digits by chance.
fn without_cards(digits: &str, with: &str, count: &mut u64) -> String {
    if is_card(digits) {
        *count += 1;
        return with.to_owned();
    }
    let groups: Vec<&str> = digits.split_inclusive([' ', '-']).collect();
    let (mut new, mut card_end) = (String::new(), 0);
    for (at, group) in groups.iter().enumerate() {
        // At most four groups of four digits, and one of three.
        let mut ends = (at + 1..=groups.len().min(at + 5)).rev();
        if let Some(end) = ends.find(|end| are_card(groups.get(at..*end).unwrap_or_default())) {
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

fn are_card(groups: &[&str]) -> bool {
    groups.iter().rev().skip(1).all(|group| group.len() > 4) && is_card(&groups.concat())
}

impl Redaction {
    /// Replaces what matches in `text`, and in the strings of JSON that it is or has; `None` if
    /// nothing does. `count` goes up by one for each place.
    pub fn apply(&self, text: &str, count: &mut u64) -> Option<String> {
        if self.0.is_empty() || is_json(text) {
            return self.in_strings(text, Part::Whole, count);
        }
        let before = *count;
        let mut new = text.to_owned();
        for pattern in &self.0 {
            new = pattern.replace(&new, count).into_owned();
        }
        // After that, as what matches may have several lines.
        if let Some(unescaped) = self.in_strings(&new, Part::Escaped, count) {
            new = unescaped;
        }
        if *count > before { Some(new) } else { None }
    }

    /// `json`, a part of what an MCP server has sent, without what matches; `None` if nothing does.
    pub fn in_json(&self, json: &RawValue, part: Part, count: &mut u64) -> Option<Box<RawValue>> {
        let changed = self.in_strings(json.get(), part, count)?;
        Some(RawValue::from_string(changed).expect("only its strings have changed"))
    }

    /// What `line` has behind a private key that an earlier line has begun: nothing while the key
    /// goes on. `in_key` says so, before this line and then behind it.
    pub fn after_key<'t>(&self, line: &'t str, in_key: &mut bool) -> &'t str {
        let hides_keys = self.0.iter().any(|pattern| pattern.known == Some(Known::PrivateKeys));
        if !hides_keys && !*in_key {
            return line;
        }
        let marks: Vec<_> = KEY_MARK.find_iter(line).filter(|_| hides_keys).collect();
        let rest = match marks.iter().find(|mark| ends_key(mark)) {
            _ if !*in_key => line,
            Some(end) => line.split_at(end.end()).1,
            None => "",
        };
        *in_key = marks.last().map_or(*in_key, |mark| !ends_key(mark));
        rest
    }

    fn in_strings(&self, json: &str, part: Part, count: &mut u64) -> Option<String> {
        if self.0.is_empty() {
            return None;
        }
        let (mut new, mut rest, mut differs) = (String::new(), json, false);
        // The last key, that of the outermost object, and how many objects and arrays are open.
        let (mut key, mut member, mut depth) = ("", "", 0);
        let mut in_key = false;
        let last_mark = json.rfind("PRIVATE KEY").unwrap_or_default();
        while let Some((before, literal, after)) = first_string(rest) {
            rest = after;
            new.push_str(before);
            depth += before.matches(['{', '[']).count();
            depth = depth.saturating_sub(before.matches(['}', ']']).count());
            let names_member = after.trim_start().starts_with(':');
            let its_key = std::mem::take(&mut key);
            if names_member {
                key = literal;
                member = if depth == 1 { literal } else { member };
            }
            let in_block = depth == 1 || is_in(BLOCKS, member);
            // A word of MCP's own: without it, the client could not read the message.
            let protocol_word = (names_member || its_key == r#""type""#) && is_in(OWN, literal);
            let stays = match part {
                Part::Whole => false,
                Part::Escaped => !literal.contains('\\'),
                Part::Result => {
                    in_block && (protocol_word || is_in(BYTES, its_key) && is_base64(literal))
                }
                Part::Params if is_in(BLOCKS, member) => protocol_word || is_in(NEEDED, its_key),
                Part::Params => in_block && protocol_word || is_in(NEEDED, member),
            };
            let text = json::lossy(literal).filter(|_| !stays);
            let replaced = text.and_then(|text| {
                if names_member {
                    return self.apply(&text, count);
                }
                // A list of lines has a key in several strings, if its last line is among them.
                let was_in_key = in_key;
                let rest = self.after_key(&text, &mut in_key);
                in_key = in_key && json.len() - after.len() < last_mark;
                match self.apply(rest, count) {
                    None if was_in_key => Some(rest.to_owned()),
                    new => new,
                }
            });
            match replaced {
                Some(replaced) => {
                    new.push_str(&Value::from(replaced).to_string());
                    differs = true;
                }
                None => new.push_str(literal),
            }
        }
        new.push_str(rest);
        if differs { Some(new) } else { None }
    }
}

/// Whether `mark`, a match of [`KEY_MARK`], is the last line of a key.
fn ends_key(mark: &Match<'_>) -> bool {
    mark.as_str().starts_with("-----END")
}

fn is_in(words: &str, literal: &str) -> bool {
    words.split_whitespace().any(|word| literal.trim_matches('"') == word)
}

fn is_json(text: &str) -> bool {
    text.trim_start().starts_with(['{', '[', '"'])
        && serde_json::from_str::<&RawValue>(text).is_ok()
}

/// The first string of JSON in a text with its quotes, and the text before and after it.
fn first_string(text: &str) -> Option<(&str, &str, &str)> {
    let mut from = 0;
    loop {
        let at = from + text.get(from..)?.find('"')?;
        let (before, string) = text.split_at_checked(at)?;
        match Deserializer::from_str(string).into_iter::<&RawValue>().next()? {
            Ok(literal) => {
                return Some((before, literal.get(), string.get(literal.get().len()..)?));
            }
            // The next quote of this line may be that string's last.
            Err(_) => from = at + string.find('\n')?,
        }
    }
}

fn is_base64(literal: &str) -> bool {
    let text = literal.trim_matches('"');
    text.len() > 64
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=\\".contains(&byte))
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
    fn json_changes_only_in_its_strings() {
        let all = [Known::CardNumbers, Known::AccessTokens];
        for (text, expected) in [
            (
                r#"{ "4111111111111111" : 4111111111111111, "s":"4111111111111111"}"#.to_owned(),
                r#"{ "X" : 4111111111111111, "s":"X"}"#.to_owned(),
            ),
            (r#"["a\"4111111111111111\u0041", 1.0e400]"#.into(), r#"["a\"XA", 1.0e400]"#.into()),
            (
                r#"[{"text":"{\"n\":4111111111111111}"},"\\", "5500000000000004"]"#.into(),
                r#"[{"text":"{\"n\":4111111111111111}"},"\\", "X"]"#.into(),
            ),
            (r#""\u0034111111111111111 \ud800""#.into(), "\"X \u{fffd}\u{fffd}\u{fffd}\"".into()),
            // No JSON at all.
            ("{4111111111111111".into(), "{X".into()),
        ] {
            assert_eq!(redacted(&all, &text).0, expected);
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
    fn a_card_number_is_found_beside_letters_and_in_groups() {
        for text in [
            "%B4111111111111111^DOE/J^27121010000?",
            "x4111111111111111y",
            "no4111 1111 1111 1111",
            "_4111111111111111_",
            "4111.1111.1111.1111",
            "4111\u{a0}1111\u{a0}1111\u{a0}1111",
            "4111\u{202f}1111\u{202f}1111\u{202f}1111",
            "4111\u{2009}1111\u{2009}1111\u{2009}1111",
            "4111\t1111\t1111\t1111",
            "4111  1111  1111  1111",
            "4111\u{2013}1111\u{2013}1111\u{2013}1111",
            "4111\u{2011}1111\u{2011}1111\u{2011}1111",
            "3782.822463.10005",
            "2026 4111.1111.1111.1111",
        ] {
            let (new, count) = redacted(&[Known::CardNumbers], text);
            assert!(count == 1 && new.contains('X') && !new.contains("11"), "{text}: {new}");
        }
        for text in [
            // Each with a right check digit.
            "id1700000000006",
            "f4111111111111111 of a hash",
            "1111.4444444444440",
            "1700000000.1234569",
            "2019\t2020\t2021\t2025",
            "4111.1111 1111.1111",
        ] {
            assert_eq!(redacted(&[Known::CardNumbers], text), (text.to_owned(), 0));
        }
    }

    #[test]
    fn tokens_are_found_by_their_issuers() {
        let r = "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9aB3dE5gH7jK9mN1pQ3sT5vW7";
        let hex = "0123456789abcdef".repeat(4);
        for token in [
            format!("glpat-{}.0a.1b2c3d4e5", r.split_at(27).0),
            format!("glrt-{}", r.split_at(20).0),
            format!("glptt-{}", hex.split_at(40).0),
            format!("glcbt-64_{}", r.split_at(20).0),
            format!("gldt-{}", r.split_at(20).0),
            format!("xapp-1-A0123ABC-1234567890-{hex}"),
            format!("xoxc-1-2-3-{r}"),
            format!("xoxd-{r}%2B{r}%3D"),
            format!("whsec_{}+/=", r.split_at(32).0),
            format!("ya29.{r}"),
            format!("GOCSPX-{}", r.split_at(28).0),
            format!("SG.{}.{}", r.split_at(22).0, r.split_at(43).0),
            format!("hf_{}", r.split_at(34).0),
            format!("hvs.{r}"),
            format!("dckr_pat_{}", r.split_at(27).0),
            format!("dop_v1_{hex}"),
            format!("shpat_{}", hex.split_at(32).0),
            format!("eyJhbGciOiJSU0EtT0FFUCJ9.{r}.{r}.{r}.{r}"),
            format!("eyJhbGciOiJkaXIiLCJl..{r}.{r}.{r}"),
        ] {
            let text = format!("a {token} b");
            assert_eq!(redacted(&[Known::AccessTokens], &text), ("a X b".to_owned(), 1), "{text}");
        }
        for (text, expected) in [
            ("Bearer  aB3dE5gH7jK9mN1pQ3", "X"),
            ("bearer\tabc123", "X"),
            ("Bearer: abc123", "X"),
            ("Bearer \"abc123\"", "X\""),
            ("Bearer abc123,", "X,"),
            ("Bearer 12|aB3dE5gH7jK9mN1pQ3", "X"),
            (r#"{"h":"Bearer \"abc123\""}"#, r#"{"h":"X\""}"#),
        ] {
            assert_eq!(redacted(&[Known::AccessTokens], text), (expected.to_owned(), 1));
        }
        for text in [
            "the bearer of 3 letters",
            "OAuth 2.0 Bearer tokens are short-lived",
            "Bearer realm=\"x\", error=\"invalid_token\"",
            "| Bearer |\n|--------|",
            "token_type: bearer\nscope1: x",
            "hf_transfer, SG.rules, xapp-my-application and glpat-x",
        ] {
            assert_eq!(redacted(&[Known::AccessTokens], text), (text.to_owned(), 0));
        }
    }

    #[test]
    fn a_private_key_is_found_in_parts() {
        let first = "-----BEGIN PRIVATE KEY-----";
        let last = "-----END PRIVATE KEY-----";
        let list = format!(r#"{{"a":["x","{first}","MII1","MII2","{last} y","z"],"b":"MII3"}}"#);
        for (text, expected) in [
            (list.as_str(), r#"{"a":["x","X","",""," y","z"],"b":"MII3"}"#),
            // The last line alone, as of the end of a file.
            (&format!("a\nMIIB+/=\r\nMII=\n{last}\nb"), "X\nb"),
            (&format!("see {last}"), &format!("see {last}")),
            // What has no last line is no list.
            (&format!(r#"["{first}","b"]"#), r#"["X","b"]"#),
        ] {
            assert_eq!(redacted(&[Known::PrivateKeys], text).0, expected, "{text}");
        }
        let redact = Redaction(vec![Pattern::known(Known::PrivateKeys, None)]);
        let mut in_key = false;
        let mut after = |line: &str| redact.after_key(line, &mut in_key).to_owned();
        let begun = format!("a {first}");
        assert_eq!(after(&begun), begun);
        assert_eq!([after("MII"), after(&format!("MII {last} b")), after("c")], ["", " b", "c"]);
        let whole = format!("{first}MII{last}");
        assert_eq!([after(&whole), after("c")], [&whole, "c"]);
    }

    #[test]
    fn json_in_a_text_is_read_as_json() {
        let (key, rest) = ("-----BEGIN PRIVATE KEY-----", "\nMII\n-----END PRIVATE KEY-----");
        let known = [Known::AccessTokens, Known::PrivateKeys];
        let token = r"\u0041KIAIOSFODNN7EXAMPLE";
        for (text, expected) in [
            (
                format!("{{\"a\":\"{token}\"}}\r\n[1]\n\"{token}\"\nb"),
                "{\"a\":\"X\"}\r\n[1]\n\"X\"\nb",
            ),
            (format!("x\n{{\"a\":\"{token}\"}}"), "x\n{\"a\":\"X\"}"),
            (
                format!("```json\n{{\n \"a\": \"{token}\"\n}}\n```"),
                "```json\n{\n \"a\": \"X\"\n}\n```",
            ),
            (format!("# It\n[\n\"{token}\"]\nb"), "# It\n[\n\"X\"]\nb"),
            (format!("\u{feff}{{\"a\":\"{token}\"}}"), "\u{feff}{\"a\":\"X\"}"),
            (format!("data: [\"{token}\"]\r5\" }}}}\n\"{token}\""), "data: [\"X\"]\r5\" }}\n\"X\""),
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
    fn result_of_a_server_keeps_the_protocols_own_members() {
        let bytes = format!("AKIAIOSFODNN7EXAMPLE/{}", "A".repeat(60));
        let redact = Redaction(vec![Pattern::new("AKIA[A-Z0-9]+|content", Some("X")).unwrap()]);
        let apply = |part, text: String| {
            let (json, mut count) = (RawValue::from_string(text).unwrap(), 0);
            let json = redact.in_json(&json, part, &mut count).unwrap_or(json);
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
        let params = r#"{"message":"AKIA1","requestedSchema":{"message":"AKIA2"},"url":"AKIA3","_meta":{"AKIA1":"AKIA1"},"progressToken":"AKIA4"}"#;
        assert_eq!(apply(Part::Params, params.to_owned()), (params.replace("AKIA1", "X"), 3));
        let data = r#"{"elicitations":[{"url":"AKIA2","message":"AKIA1","AKIA1":1}],"a":"AKIA1"}"#;
        assert_eq!(apply(Part::Params, data.to_owned()), (data.replace("AKIA1", "X"), 3));
        // Keys that the protocol does not know.
        let result = r#"{"content":[{"type":"content","text":"AKIA1","AKIA1":1,"annotations":{"AKIA1":1},"_meta":{"AKIA1":1}}],"AKIA1":1}"#;
        assert_eq!(apply(Part::Result, result.to_owned()), (result.replace("AKIA1", "X"), 5));
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
