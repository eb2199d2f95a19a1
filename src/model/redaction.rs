//! Texts in results that neither a model nor a log may see: what the operator's patterns match is
//! replaced, and counted.
//!
//! Numbers are left as they are, so that JSON stays JSON.
//!
//! Must not: know where a result comes from.

mod agent_place;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::LazyLock;

use regex::{Captures, Match, Regex};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Deserializer, Value};

use self::agent_place::AgentPlace;
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
    /// All of an A2A agent's result, without ids, the protocol's own words and bytes in base64.
    AgentResult,
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
        let mut place = AgentPlace::default();
        let last_mark = json.rfind("PRIVATE KEY").unwrap_or_default();
        while let Some((before, literal, after)) = first_string(rest) {
            rest = after;
            new.push_str(before);
            depth += before.matches(['{', '[']).count();
            depth = depth.saturating_sub(before.matches(['}', ']']).count());
            let names_member = after.trim_start().starts_with(':');
            if part == Part::AgentResult {
                place.pass(before);
            }
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
                Part::AgentResult => place.keeps(literal, names_member),
            };
            if names_member {
                place.enter(literal);
            }
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
mod tests;
