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
    let parameters = ASSIGNMENT.captures_iter(text).filter_map(|captures| {
        let before = text.get(..captures.get(1)?.start())?;
        if before.ends_with(['?', '&']) { secret_value(text, &captures) } else { None }
    });
    let users = USER_INFO.captures_iter(text).filter_map(|captures| Some(captures.get(1)?.range()));
    users.chain(parameters).collect()
}

/// What looks like a secret in `text`, a line of the file.
pub(super) fn by_looks(text: &str) -> Vec<Range<usize>> {
    let users = USER_INFO.captures_iter(text).filter_map(|captures| Some(captures.get(1)?.range()));
    let assignments = ASSIGNMENT.captures_iter(text);
    let values = assignments.chain(OPTION.captures_iter(text));
    let secrets = values.filter_map(|captures| secret_value(text, &captures));
    users.chain(secrets).filter(|range| !range.is_empty()).collect()
}

/// The value in `captures`, if its name says that it is a secret. A reference may be shown.
fn secret_value(text: &str, captures: &Captures<'_>) -> Option<Range<usize>> {
    let (name, value) = (captures.get(1)?, captures.get(2)?);
    if !looks_secret(name.as_str()) || reference_end(text, value.start()).is_some() {
        return None;
    }
    Some(value.range())
}

/// All of a line behind its first key; all of it, if it has no key: it may belong to a value of
/// several lines.
pub(super) fn after_key(line: &str) -> Option<Range<usize>> {
    let indent = line.len() - line.trim_start().len();
    let start = KEY.find(line).map_or(indent, |key| key.end());
    let end = line.trim_end().len();
    let value = line.get(start..end).unwrap_or_default();
    if matches!(value, "true" | "false") || !value.contains(char::is_alphanumeric) {
        return None;
    }
    Some(start..end)
}

/// The comment in a line whose keys and values are at `tokens`.
pub(super) fn comment(line: &str, tokens: &[Range<usize>]) -> Option<Range<usize>> {
    for (at, _) in line.match_indices('#') {
        let before = line.get(..at).unwrap_or_default();
        let stands_alone = before.is_empty() || before.ends_with([' ', '\t']);
        if stands_alone && !tokens.iter().any(|token| token.contains(&at)) {
            return Some(at..line.trim_end().len());
        }
    }
    None
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
