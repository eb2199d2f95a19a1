//! The mistakes in a configuration, and how they are shown to a person.
//!
//! Must not: hold or print a secret. Source lines are masked before they come in here.

use std::fmt;
use std::ops::Range;

use serde::Serialize;
use strsim::osa_distance;

use super::document::Place;
use super::mistakes::MistakeText;

/// All mistakes in one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors {
    pub file: String,
    /// In the order of the file, those that only single backends have last; never empty.
    pub problems: Vec<Problem>,
}

/// One mistake.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The path of the value, such as `mcp.fs.command`; empty if no value is at fault.
    pub path: String,
    pub line: Option<usize>,
    pub column: Option<usize>,
    pub message: String,
    /// How to fix it.
    pub cure: Option<String>,
    #[serde(skip)]
    pub snippet: Option<Snippet>,
}

/// The source line of a mistake, as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snippet {
    pub text: String,
    /// Characters before the caret.
    indent: usize,
    width: usize,
}

/// The longest piece of a line that is shown.
const MAX_SHOWN: usize = 140;

impl ConfigErrors {
    /// A mistake without a place in a file: the file is missing, or cannot be read.
    pub(super) fn without_place(file: String, text: MistakeText) -> Self {
        let MistakeText { message, cure } = text;
        let problem = Problem { message, cure: Some(cure), ..Problem::default() };
        Self { file, problems: vec![problem] }
    }

    /// The first mistake in one line, with its place.
    pub fn summary(&self) -> String {
        let Some(first) = self.problems.first() else { return self.file.clone() };
        let place = first.place(&self.file);
        let message = &first.message;
        let path = if first.path.is_empty() { String::new() } else { format!("{}: ", first.path) };
        let more = match self.problems.len() {
            1 => String::new(),
            all => format!(" (and {} more)", all - 1),
        };
        format!("{place}: {path}{message}{more}")
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.problems.iter().enumerate() {
            if at > 0 {
                writeln!(f)?;
            }
            problem.render(&self.file, f)?;
        }
        if self.problems.len() > 1 {
            writeln!(f, "\n{} errors in {}", self.problems.len(), self.file)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

impl Problem {
    /// Its place: `file:line:column`, as far as that is known.
    pub fn place(&self, file: &str) -> String {
        match (self.line, self.column) {
            (Some(line), Some(column)) => format!("{file}:{line}:{column}"),
            _ => file.to_owned(),
        }
    }

    fn render(&self, file: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "error: {}", self.message)?;
        let number = self.line.map(|line| line.to_string()).unwrap_or_default();
        let gutter = " ".repeat(number.len());
        write!(f, "{gutter}--> {}", self.place(file))?;
        match self.path.as_str() {
            "" => writeln!(f)?,
            path => writeln!(f, " ({path})")?,
        }
        if let Some(Snippet { text, indent, width }) = &self.snippet {
            let blank = " ".repeat(*indent);
            let carets = "^".repeat(*width);
            writeln!(f, "{gutter} |\n{number} | {text}\n{gutter} | {blank}{carets}")?;
        }
        self.cure.iter().try_for_each(|cure| writeln!(f, "{gutter} = {cure}"))
    }
}

impl Snippet {
    /// `line`, which `place` is in, with `mask` for each of the `hidden` parts; these are in order,
    /// and in bytes of the line.
    pub(super) fn new(line: &str, place: Place, hidden: &[Range<usize>], mask: &str) -> Self {
        let byte_of =
            |column: usize| line.char_indices().nth(column).map_or(line.len(), |(at, _)| at);
        let start = place.column.saturating_sub(1);
        let marked = byte_of(start)..byte_of(start.saturating_add(place.width));
        let mut whole = String::new();
        let mut end = 0;
        let (mut from, mut to) = (None, None);
        // A caret that begins or ends inside a hidden part has the whole mask.
        let line_end = line.len()..line.len();
        for part in hidden.iter().cloned().chain(std::iter::once(line_end)) {
            let before = whole.chars().count();
            let plain = line.get(end..part.start).unwrap_or_default();
            let shown_until = |at: usize| {
                let piece = line.get(end..at.max(end)).unwrap_or_default();
                before + piece.chars().count()
            };
            if from.is_none() && marked.start < part.end.max(part.start + 1) {
                from = Some(shown_until(marked.start.min(part.start)));
            }
            if to.is_none() && marked.end <= part.start {
                to = Some(shown_until(marked.end));
            }
            whole.push_str(plain);
            if !part.is_empty() {
                whole.push_str(mask);
            }
            if to.is_none() && marked.end <= part.end {
                to = Some(whole.chars().count());
            }
            end = part.end;
        }
        let length = whole.chars().count();
        let mut indent = from.unwrap_or(length);
        let mut width = to.unwrap_or(length).saturating_sub(indent);
        let mut shown: Vec<char> =
            whole.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        if shown.len() > MAX_SHOWN {
            let first = indent.saturating_sub(MAX_SHOWN / 2).min(shown.len() - MAX_SHOWN);
            shown = shown[first..first + MAX_SHOWN].to_vec();
            indent -= first;
            width = width.min(MAX_SHOWN - indent);
        }
        Self { text: String::from_iter(shown).trim_end().to_owned(), indent, width: width.max(1) }
    }
}

/// The word of `known` that `word` probably stands for.
pub fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Keys are shorter; a longer text is no misspelled one.
    let head: String = word.chars().take(128).collect();
    let misspelled: String = folded(&head).chars().take(64).collect();
    let limit = match misspelled.len() {
        0 | 1 => 0,
        2..6 => 1,
        longer => longer / 3,
    };
    let rated = known.into_iter().map(|known| (osa_distance(&misspelled, &folded(known)), known));
    rated
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

/// `word` without what people mix up in keys: `pendingAfter`, `pending-after`.
fn folded(word: &str) -> String {
    word.to_ascii_lowercase().replace(['-', '_'], "")
}

/// `a, b or c`, each in backticks.
pub(super) fn one_of(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}
