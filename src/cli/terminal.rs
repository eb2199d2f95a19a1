//! What the subcommands write: the one place that does, so that no text of a peer steers a terminal
//! or hides a part of itself. Also the width of a terminal.
//!
//! Must not: know the content.

use std::borrow::Cow;
use std::io;
use std::io::{IsTerminal, Write as _};
use std::os::fd::AsFd;

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use super::Outcome;
use super::page::{Page, Paper};
use crate::model::visible;
use crate::telemetry::plain_json;

/// Whether `stream` is a terminal that wants colours (<https://no-color.org>).
pub(super) fn colours(stream: &impl IsTerminal) -> bool {
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    stream.is_terminal() && !no_color && !dumb
}

/// The width of the terminal `stream`, in characters; `None` if it is no terminal.
pub(super) fn columns(stream: &(impl IsTerminal + AsFd)) -> Option<usize> {
    if !stream.is_terminal() {
        return None;
    }
    match rustix::termios::tcgetwinsize(stream) {
        // Some terminals report 0 for an unknown size.
        Ok(size) if size.ws_col > 0 => Some(usize::from(size.ws_col)),
        Ok(_) | Err(_) => Some(80),
    }
}

/// A peer's text without characters that control the terminal or hide others.
pub(super) fn plain(text: &str) -> String {
    text.replace("\r\n", "\n").replace(visible::hides, "\u{fffd}")
}

/// The same on one line.
pub(super) fn one_line(text: &str) -> String {
    plain(text.trim()).replace(['\n', '\t'], " ")
}

/// A peer's text of several lines as a part of a message: none but the first begins a line, or a
/// peer could write a line that looks like the bridge's.
pub(super) fn inset(text: &str) -> String {
    plain(text.trim()).replace('\n', "\n  ")
}

/// JSON in which what steers a terminal is escaped, also where a program reads it: to a JSON
/// reader, both are the same text.
fn json(text: &str) -> String {
    text.split_inclusive('\n').map(plain_json).collect()
}

/// `text` for an output that `is_terminal`: unchanged if a program reads it.
fn for_output(text: &str, is_terminal: bool) -> Cow<'_, str> {
    if is_terminal { plain(text).into() } else { text.into() }
}

fn write_out(text: &str) -> Outcome {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Writes text to stdout. It may be a peer's.
pub(super) fn print(text: &str) -> Outcome {
    write_out(&for_output(text, io::stdout().is_terminal()))
}

/// Writes JSON to stdout.
pub(super) fn print_json(text: &str) -> Outcome {
    write_out(&json(text))
}

/// Writes messages of a protocol to stdout, unchanged for the program that reads them.
pub(super) fn print_message(text: &str) -> Outcome {
    if io::stdout().is_terminal() { print_json(text) } else { write_out(text) }
}

/// Writes a page to stdout, in colours on a terminal.
pub(super) fn print_page(page: &Page) -> Outcome {
    write_out(&page.text(Paper::stdout()))
}

/// Writes a page to stdout: on a terminal, in the place of what it shows.
pub(super) fn print_in_place(page: &Page) -> Outcome {
    // The codes of ECMA-48 that empty a terminal: to its first place, and erase what follows.
    let clear = if io::stdout().is_terminal() { "\x1b[H\x1b[J" } else { "" };
    write_out(&format!("{clear}{}", page.text(Paper::stdout())))
}

/// Writes a message to stderr. It may have a peer's words.
pub(super) fn complain(text: &str) {
    let text = plain(text.trim_end());
    if !text.is_empty() {
        // Without stderr, only the exit code can report the failure.
        let _closed = writeln!(io::stderr(), "{text}");
    }
}

/// Writes a page to stderr, in colours on a terminal.
pub(super) fn complain_page(page: &Page) {
    // Without stderr, only the exit code can report anything.
    let _closed = write!(io::stderr(), "{}", page.text(Paper::stderr()));
}

/// Whether a person can read a question and answer it.
pub(super) fn has_person() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Writes one line about the progress of something to stderr, cut to the width of a terminal.
pub(super) fn tell(line: &str) {
    let err = io::stderr();
    let line = one_line(line);
    let Some(columns) = columns(&err) else { return complain(&line) };
    let (on, off) = if colours(&err) { ("\x1b[2m", "\x1b[0m") } else { ("", "") };
    // Without stderr, there is no one to inform.
    let _closed = writeln!(err.lock(), "{on}{}{off}", cut(&line, columns));
}

/// Writes a question to stderr, and stays in its line.
pub(super) fn ask(question: &str) -> io::Result<()> {
    let mut out = io::stderr();
    write!(out, "{}", plain(question))?;
    out.flush()
}

/// `text` in at most `columns` columns.
pub(super) fn cut(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let mut used = 0;
    let mut out = String::new();
    for c in text.chars() {
        used += c.width().unwrap_or(0);
        // One column is for the ellipsis.
        if used >= columns {
            break;
        }
        out.push(c);
    }
    out.push('…');
    out
}

#[cfg(test)]
mod tests {
    //! What a terminal gets of a peer's text.

    use super::*;

    const HOSTILE: &str = "a\u{9b}2J\u{1b}]0;x\u{7}\u{2028}b\u{202e}c\u{2066}d\u{7f}\r";

    #[test]
    fn text_for_a_terminal_has_nothing_that_steers_it() {
        let shown = for_output(HOSTILE, true);
        assert!(!shown.chars().any(visible::hides), "{shown:?}");
        assert_eq!(for_output(HOSTILE, false), HOSTILE, "a program reads what was said");
    }

    #[test]
    fn json_is_escaped_and_means_the_same() {
        let value = serde_json::json!({ "said": HOSTILE, "n": 1.50 });
        for written in [value.to_string() + "\n", format!("{value:#}\n")] {
            let shown = json(&written);
            assert!(!shown.chars().any(|c| c != '\n' && visible::hides(c)), "{shown:?}");
            assert_eq!(shown.lines().count(), written.lines().count());
            assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
        }
    }

    #[test]
    fn line_of_a_peer_begins_no_line_of_a_message() {
        let forged = "it fails\nother was refreshed\r\nthird: ready\n";
        assert_eq!(inset(forged), "it fails\n  other was refreshed\n  third: ready");
        assert_eq!(one_line(forged), "it fails other was refreshed third: ready");
    }
}
