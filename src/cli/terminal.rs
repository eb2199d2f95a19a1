//! Terminals: text that is safe for one, and its width.
//!
//! Must not: know the content.

use std::borrow::Cow;
use std::io;
use std::io::IsTerminal;
use std::os::fd::AsFd;

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::model::visible;

/// Whether `stream` is a terminal that wants colours (<https://no-color.org>).
pub(super) fn colours(stream: &impl IsTerminal) -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    stream.is_terminal() && !set("NO_COLOR") && !is_dumb
}

/// The width of the terminal `stream`, in characters; `None` if it is no terminal.
pub(super) fn columns(stream: &(impl IsTerminal + AsFd)) -> Option<usize> {
    let told = rustix::termios::tcgetwinsize(stream);
    // Some terminals report 0 for an unknown size.
    let known = told.ok().map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0);
    stream.is_terminal().then(|| known.unwrap_or(80))
}

/// A peer's text without characters that control the terminal or hide others.
pub(super) fn plain(text: &str) -> String {
    let safe = |c: char| if visible::hides(c) { '\u{fffd}' } else { c };
    text.replace("\r\n", "\n").chars().map(safe).collect()
}

/// The same on one line.
pub(super) fn one_line(text: &str) -> String {
    plain(text.trim()).replace(['\n', '\t'], " ")
}

/// A peer's text for stdout: unchanged if a program reads it.
pub(super) fn for_stdout(text: &str) -> Cow<'_, str> {
    if io::stdout().is_terminal() { plain(text).into() } else { text.into() }
}

/// `text` in at most `columns` columns.
pub(super) fn cut(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let mut used = 0;
    let fits = |c: &char| {
        used += c.width().unwrap_or(0);
        // One column is for the ellipsis.
        used < columns
    };
    text.chars().take_while(fits).chain(['…']).collect()
}
