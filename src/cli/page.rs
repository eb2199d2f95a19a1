//! Formats text for people: lines of styled pieces, and tables, within the width of the output.
//!
//! Must not: know its content.

use std::array;
use std::io;
use std::time::{Duration, SystemTime};

use clap::builder::styling::{AnsiColor, Style};
use unicode_width::UnicodeWidthStr as _;

use super::terminal::{colours, columns, cut, one_line, plain};

/// The looks of a piece.
pub(super) const PLAIN: Style = Style::new();
pub(super) const HEADING: Style = Style::new().bold();
pub(super) const GOOD: Style = AnsiColor::Green.on_default();
pub(super) const DOUBTFUL: Style = AnsiColor::Yellow.on_default();
pub(super) const BAD: Style = AnsiColor::Red.on_default();

/// The properties of an output.
#[derive(Debug, Clone, Copy)]
pub(super) struct Paper {
    pub(super) colours: bool,
    /// Lines are cut at this width.
    pub(super) columns: Option<usize>,
}

impl Paper {
    /// The properties of stdout.
    pub(super) fn stdout() -> Self {
        let out = io::stdout();
        Self { colours: colours(&out), columns: columns(&out) }
    }

    /// The properties of stderr.
    pub(super) fn stderr() -> Self {
        let err = io::stderr();
        Self { colours: colours(&err), columns: columns(&err) }
    }
}

/// A piece of text in its style.
pub(super) type Piece = (Style, String);

/// Lines to be shown.
#[derive(Debug, Default)]
pub(super) struct Page(Vec<PageLine>);

#[derive(Debug)]
struct PageLine {
    pieces: Vec<Piece>,
    /// The line may take more than one line of a terminal.
    is_whole: bool,
}

impl Page {
    /// Adds a line that is cut to the width of the output.
    pub(super) fn line(&mut self, style: Style, text: impl AsRef<str>) {
        self.0.push(PageLine { pieces: vec![(style, one_line(text.as_ref()))], is_whole: false });
    }

    /// Adds a line that the terminal may wrap.
    pub(super) fn note(&mut self, style: Style, text: impl AsRef<str>) {
        self.0.push(PageLine { pieces: vec![(style, one_line(text.as_ref()))], is_whole: true });
    }

    /// Adds a line that keeps its spaces, and that the terminal may wrap.
    pub(super) fn verbatim(&mut self, style: Style, text: &str) {
        self.pieces([(style, text.to_owned())]);
    }

    /// Adds a line of several pieces that keep their spaces, and that the terminal may wrap.
    pub(super) fn pieces(&mut self, pieces: impl IntoIterator<Item = Piece>) {
        let pieces = pieces.into_iter().map(|(style, text)| (style, in_line(&text))).collect();
        self.0.push(PageLine { pieces, is_whole: true });
    }

    /// Adds an empty line, unless nothing stands before it.
    pub(super) fn space(&mut self) {
        if !self.0.is_empty() {
            self.line(PLAIN, "");
        }
    }

    /// Adds the lines of `page`.
    pub(super) fn append(&mut self, page: Self) {
        self.0.extend(page.0);
    }

    /// Adds a table: a heading, and columns as wide as their contents.
    pub(super) fn table<const N: usize>(&mut self, heading: [&str; N], rows: Vec<[Piece; N]>) {
        let heading = heading.map(|text| (HEADING, text.to_owned()));
        let rows: Vec<[Piece; N]> = std::iter::once(heading)
            .chain(rows)
            .map(|row| row.map(|(style, text)| (style, one_line(&text))))
            .collect();
        let widths: [usize; N] =
            array::from_fn(|at| rows.iter().map(|row| row[at].1.width()).max().unwrap_or_default());
        for row in rows {
            let mut pieces = Vec::new();
            for (at, ((style, text), width)) in row.into_iter().zip(widths).enumerate() {
                let fill = if at + 1 == N { 0 } else { width - text.width() + 2 };
                pieces.extend([(style, text), (PLAIN, " ".repeat(fill))]);
            }
            self.0.push(PageLine { pieces, is_whole: false });
        }
    }

    /// The whole page for `paper`.
    pub(super) fn text(&self, paper: Paper) -> String {
        let mut text = String::new();
        for line in &self.0 {
            let columns = if line.is_whole { None } else { paper.columns };
            text += &write(&line.pieces, paper.colours, columns);
            text.push('\n');
        }
        text
    }
}

/// `text` in one line, with its spaces.
fn in_line(text: &str) -> String {
    plain(text).replace(['\n', '\t'], " ")
}

/// `1 tool`, or `7 tools`.
pub(super) fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// The distance between `time` and `now`, in either direction, in whole seconds.
pub(super) fn away(time: &str, now: SystemTime) -> String {
    let Ok(time) = humantime::parse_rfc3339(time) else { return "?".to_owned() };
    let distance = time.duration_since(now).or_else(|_past| now.duration_since(time));
    let seconds = Duration::from_secs(distance.unwrap_or_default().as_secs());
    humantime::format_duration(seconds).to_string()
}

fn write(pieces: &[Piece], colours: bool, columns: Option<usize>) -> String {
    let mut out = String::new();
    let mut room = columns.unwrap_or(usize::MAX);
    let end = pieces.iter().rposition(|(_, text)| !text.trim().is_empty()).map_or(0, |at| at + 1);
    for (style, text) in pieces.iter().take(end) {
        if room == 0 {
            break;
        }
        let text = cut(text, room);
        room -= text.width();
        let style = if colours { *style } else { PLAIN };
        out += &format!("{style}{text}{style:#}");
    }
    out
}

#[cfg(test)]
mod tests;
