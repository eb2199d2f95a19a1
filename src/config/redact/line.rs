//! The parts of one line that are hidden for how they look, without a tree of the file.
//!
//! Must not: be asked for what a tree tells.

use std::ops::Range;
use std::sync::LazyLock;

use regex::{Captures, Regex};

use crate::config::reference::{looks_secret, reference_end};

/// `user:password@` in a URL.
static USER_INFO: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#"://([^/?# "'`]*)@"#).expect("a test compiles it"));
/// `NAME=value`, also as a parameter of a URL or an option of a program.
static ASSIGNMENT: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#"([A-Za-z0-9_.-]+)=([^?&# "'`,}\]]+)"#).expect("a test compiles it")
});
/// `--name value` in one text.
static OPTION: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#"(--?[A-Za-z][A-Za-z0-9_-]*) +([^ "'`,}\]]+)"#).expect("a test compiles it")
});
/// A key, with what stands before it in its line.
static KEY: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#"^\s*(?:- +)*["']?[A-Za-z_][A-Za-z0-9_.-]{0,39}["']?\s*:(?:\s+|$)"#)
        .expect("a test compiles it")
});

/// What looks like a secret in the URLs of `text`, a message.
pub(super) fn in_urls(text: &str) -> Vec<Range<usize>> {
    let parameter = |captures: Captures<'_>| {
        let (name, value) = (captures.get(1)?, captures.get(2)?);
        let is_parameter = text.get(..name.start())?.ends_with(['?', '&']);
        let is_reference = reference_end(text, value.start()).is_some();
        (is_parameter && looks_secret(name.as_str()) && !is_reference).then(|| value.range())
    };
    let users = USER_INFO.captures_iter(text).filter_map(|captures| Some(captures.get(1)?.range()));
    users.chain(ASSIGNMENT.captures_iter(text).filter_map(parameter)).collect()
}

/// What looks like a secret in `text`, a line of the file.
pub(super) fn by_looks(text: &str) -> Vec<Range<usize>> {
    let value = |captures: Captures<'_>| {
        let (name, value) = (captures.get(1)?, captures.get(2)?);
        let is_reference = reference_end(text, value.start()).is_some();
        (looks_secret(name.as_str()) && !is_reference).then(|| value.range())
    };
    let users = USER_INFO.captures_iter(text).filter_map(|captures| Some(captures.get(1)?.range()));
    let assigned = ASSIGNMENT.captures_iter(text).filter_map(value);
    let options = OPTION.captures_iter(text).filter_map(value);
    users.chain(assigned).chain(options).filter(|range| !range.is_empty()).collect()
}

/// All of a line behind its first key; all of it, if it has no key: it may belong to a value of
/// several lines.
pub(super) fn after_key(line: &str) -> Option<Range<usize>> {
    let indent = line.len() - line.trim_start().len();
    let start = KEY.find(line).map_or(indent, |key| key.end());
    let end = line.trim_end().len();
    let value = line.get(start..end).unwrap_or_default();
    let is_plain = matches!(value, "true" | "false") || !value.contains(char::is_alphanumeric);
    if is_plain { None } else { Some(start..end) }
}

/// The comment in a line whose keys and values are at `tokens`.
pub(super) fn comment(line: &str, tokens: &[Range<usize>]) -> Option<Range<usize>> {
    let is_free = |at: usize| {
        let before = line.get(..at).unwrap_or_default();
        let stands_alone = before.is_empty() || before.ends_with([' ', '\t']);
        stands_alone && !tokens.iter().any(|token| token.contains(&at))
    };
    let at = line.match_indices('#').map(|(at, _)| at).find(|at| is_free(*at))?;
    Some(at..line.trim_end().len())
}

/// `ranges` in their order, with those that overlap or touch as one.
pub(super) fn merged(mut ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    ranges.sort_by_key(|range| (range.start, range.end));
    let mut merged: Vec<Range<usize>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}
