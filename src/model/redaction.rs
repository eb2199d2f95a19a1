//! Texts in results that neither a model nor a log may see: what the operator's patterns match is
//! replaced, and counted.
//!
//! Numbers are left as they are, so that JSON stays JSON.
//!
//! Must not: know where a result comes from.

use std::borrow::Cow;

use regex::{Captures, Regex};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

/// Patterns that the bridge knows; the `use` of bridge.yaml.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Known {
    // Blocks of PEM and of OpenPGP.
    PrivateKeys,
    // By the beginnings that their issuers gave them, JSON Web Tokens, and what follows `Bearer`.
    AccessTokens,
    // 13 to 19 digits with a right check digit (ISO/IEC 7812).
    CardNumbers,
}

const PRIVATE_KEYS: &str = r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----(?s:.*?)(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\z)";
const ACCESS_TOKENS: &str = r"(?-u)\b(?:gh[opsur]_[A-Za-z0-9]{30,}|github_pat_\w{22,}|glpat-[\w-]{20,}|xox[abeoprs]-[\w-]{10,}|(?:AKIA|ASIA)[A-Z0-9]{16}|AIza[\w-]{35}|sk-[\w-]{20,}|[rs]k_(?:live|test)_\w{16,}|npm_[A-Za-z0-9]{36}|pypi-[\w-]{50,}|mantyx_\w{16,}|eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]*)|(?i:\bbearer )[\w.~+/-]{16,}=*";
const CARD_NUMBERS: &str = r"(?-u)\b\d(?:[ -]?\d){12,18}\b";

/// Members of MCP's content blocks with bytes in base64, which no pattern is for.
const BYTES: [&str; 2] = ["data", "blob"];

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
            let found = &found[0];
            if self.is_card && !has_check_digit(found) {
                return found.to_owned();
            }
            *count += 1;
            self.with.clone()
        })
    }
}

/// Luhn's check digit.
fn has_check_digit(number: &str) -> bool {
    let digits = number.bytes().rev().filter(u8::is_ascii_digit).map(|digit| digit - b'0');
    let sum = digits.enumerate().map(|(place, digit)| match (place % 2, digit * 2) {
        (0, _) => u32::from(digit),
        (_, double) => u32::from(double / 10 + double % 10),
    });
    sum.sum::<u32>() % 10 == 0
}

impl Redaction {
    /// Replaces what matches in `text` and, if that is JSON, in its strings alone; `None` if nothing
    /// does. `count` goes up by one for each place.
    pub fn apply(&self, text: &str, count: &mut u64) -> Option<String> {
        let may_be_json = !self.0.is_empty() && text.trim_start().starts_with(['{', '[']);
        if may_be_json && serde_json::from_str::<&RawValue>(text).is_ok() {
            return self.in_strings(text, count);
        }
        let replaced = self.0.iter().fold(Cow::Borrowed(text), |text, pattern| {
            match pattern.replace(&text, count) {
                Cow::Borrowed(_) => text,
                Cow::Owned(replaced) => Cow::Owned(replaced),
            }
        });
        match replaced {
            Cow::Owned(replaced) => Some(replaced),
            Cow::Borrowed(_) => None,
        }
    }

    fn in_strings(&self, json: &str, count: &mut u64) -> Option<String> {
        let (mut new, mut rest, mut key, mut is_changed) = (String::new(), json, "", false);
        while let Some((before, literal, after)) = first_string(rest) {
            rest = after;
            new.push_str(before);
            let is_key = after.trim_start().starts_with(':');
            let is_bytes = BYTES.contains(&std::mem::take(&mut key)) && is_base64(literal);
            if is_key {
                key = literal.trim_matches('"');
            }
            let text = serde_json::from_str::<Cow<'_, str>>(literal).ok();
            let text = text.filter(|_| !is_key && !is_bytes);
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

/// The first string in a JSON text with its quotes, and the text before and after it.
fn first_string(json: &str) -> Option<(&str, &str, &str)> {
    let (before, string) = json.split_at_checked(json.find('"')?)?;
    let mut escaped = false;
    let close = string.bytes().skip(1).position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    });
    let (literal, after) = string.split_at_checked(close? + 2)?;
    Some((before, literal, after))
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
        let bytes = "41111111111111110".repeat(8);
        for (text, expected) in [
            (
                r#"{ "4111111111111111" : 4111111111111111, "s":"4111111111111111"}"#.to_owned(),
                r#"{ "4111111111111111" : 4111111111111111, "s":"X"}"#.to_owned(),
            ),
            (
                r#"["a\"4111111111111111\u0041", 1.0e400]"#.into(),
                r#"["a\"4111111111111111A", 1.0e400]"#.into(),
            ),
            (
                r#"[{"text":"{\"n\":4111111111111111}"},"\\", "5500000000000004"]"#.into(),
                r#"[{"text":"{\"n\":4111111111111111}"},"\\", "X"]"#.into(),
            ),
            (
                format!(r#"{{"data":"{bytes}","blob":"4111111111111111"}}"#),
                format!(r#"{{"data":"{bytes}","blob":"X"}}"#),
            ),
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
