//! Changes to files that a person has written: bridge.yaml, and the lists of servers of other
//! programs.
//!
//! `yaml` and `json` change one entry of a text, `file` reads and replaces files. A library makes
//! the change; here it is held against what may change at all: one place of the text, and one entry
//! of its tree.
//!
//! Must not: write a change that was not shown.

pub(super) mod file;
pub(super) mod json;
pub(super) mod yaml;

use std::fmt::Write as _;
use std::ops::Range;

use super::init::ask::Asker;
use super::terminal::has_person;
use super::{Outcome, failures};

/// The one place in which two texts differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Splice {
    /// Where it begins, in bytes.
    at: usize,
    /// What stood there, and what stands there now.
    old: String,
    new: String,
}

/// A text with a change.
#[derive(Debug, Clone)]
pub(super) struct Edit {
    pub(super) text: String,
    pub(super) splice: Splice,
}

impl Splice {
    /// What differs between the texts. It begins at the start of a line if it can: `  c: 1` before
    /// `  d: 1`, and not `c: 1` and the spaces behind it.
    fn between(old: &str, new: &str) -> Self {
        let start = common(old.chars(), new.chars());
        let [old_tail, new_tail] = [old, new].map(|text| text.get(start..).unwrap_or_default());
        let end = common(old_tail.chars().rev(), new_tail.chars().rev());
        let line = old.get(..start).and_then(|front| front.rfind('\n')).map_or(0, |at| at + 1);
        let shift = start - line;
        let longer = if new.len() > old.len() { new } else { old };
        let behind = longer.len() - end;
        let repeats_line_start = old.len().abs_diff(new.len()) >= shift
            && longer.get(behind - shift..behind) == longer.get(line..start);
        // Within a line, a member of a map is what is added or removed: `"c":1,` before `"d":1`,
        // and not `c":1,"`.
        let shorter_end = old.len().min(new.len()) - end;
        let repeats_quote = start > line
            && shorter_end == start
            && longer.get(start - 1..start) == Some("\"")
            && longer.get(start..=start) != Some(",")
            && longer.get(behind - 1..behind) == Some("\"");
        let at = match (repeats_line_start, repeats_quote) {
            (true, _) => line,
            (false, true) => start - 1,
            (false, false) => start,
        };
        let end = end + (start - at);
        let part = |text: &str| text.get(at..text.len() - end).unwrap_or_default().to_owned();
        Self { at, old: part(old), new: part(new) }
    }

    /// Whether only text was added, but for white space and an empty map that it took the place of.
    fn only_adds(&self) -> bool {
        is_nothing(&self.old)
    }

    /// Whether only text was removed.
    fn only_removes(&self) -> bool {
        is_nothing(&self.new)
    }
}

/// How many bytes the texts begin with in common.
fn common(a: impl Iterator<Item = char>, b: impl Iterator<Item = char>) -> usize {
    a.zip(b).take_while(|(a, b)| a == b).map(|(c, _)| c.len_utf8()).sum()
}

/// White space, separators, and the brackets of an empty map.
fn is_nothing(text: &str) -> bool {
    text.chars().all(|c| c.is_whitespace() || matches!(c, '{' | '}' | ',' | '~'))
}

/// The change as a person reads it: the line where it begins, and its lines. `old_lines` gives the
/// lines of these numbers that go away, without their secrets.
pub(super) fn difference(
    path: &str,
    before: &str,
    splice: &Splice,
    old_lines: impl FnOnce(Range<usize>) -> Vec<String>,
) -> String {
    let front = before.get(..splice.at).unwrap_or_default();
    let first = front.matches('\n').count() + 1;
    let count = if is_nothing(&splice.old) { 0 } else { splice.old.trim_end().lines().count() };
    let mut text = format!("{path}:{first}\n");
    let old = if count == 0 { Vec::new() } else { old_lines(first..first + count) };
    for line in old.iter().filter(|line| !line.trim().is_empty()) {
        writeln!(text, "- {line}").expect("writing to a String cannot fail");
    }
    for line in splice.new.lines().filter(|line| !line.trim().is_empty()) {
        writeln!(text, "+ {line}").expect("writing to a String cannot fail");
    }
    text
}

/// Asks whether a change that was shown is made. `yes` answers in the person's place.
///
/// # Errors
///
/// The person does not agree, or there is none to ask: a script would change a file that no person
/// has agreed to.
pub(super) fn agree(question: &str, yes: bool) -> Outcome {
    if yes {
        return Ok(());
    }
    if !has_person() {
        return Err(failures::no_person());
    }
    let mut asker = Asker::at_terminal();
    // At the end of the input, nobody has agreed.
    if asker.yes(question)? && asker.on { Ok(()) } else { Err(failures::not_agreed()) }
}

#[cfg(test)]
mod tests;
