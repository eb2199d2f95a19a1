//! Terminals: text that is safe for one, its size, and a screen that is redrawn in place.
//!
//! Must not: know the content.

use std::{
    borrow::Cow,
    convert::Infallible,
    io::{self, IsTerminal, Write as _},
    os::fd::AsFd,
    time::Duration,
};

use tokio::time::{Instant, interval, sleep};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use super::{Failure, Outcome, print};
use crate::model::visible;

/// How long an operation may take before its duration is shown.
const QUIET: Duration = Duration::from_secs(2);

/// Whether `stream` is a terminal that wants colours (<https://no-color.org>).
pub(super) fn colours(stream: &impl IsTerminal) -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    stream.is_terminal() && !set("NO_COLOR") && !is_dumb
}

/// The size of a terminal in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) columns: usize,
    pub(super) rows: usize,
}

impl Size {
    /// The size of the terminal `stream`; `None` where it is no terminal.
    pub(super) fn of(stream: &(impl IsTerminal + AsFd)) -> Option<Self> {
        if !stream.is_terminal() {
            return None;
        }
        // Some terminals report 0 for an unknown size.
        let known = |cells: u16, usual| if cells == 0 { usual } else { usize::from(cells) };
        let told = rustix::termios::tcgetwinsize(stream);
        let (columns, rows) = told.map_or((0, 0), |size| (size.ws_col, size.ws_row));
        Some(Self { columns: known(columns, 80), rows: known(rows, 24) })
    }
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
    match io::stdout().is_terminal() {
        true => plain(text).into(),
        false => text.into(),
    }
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

/// A screen of its own. Dropping it restores the earlier contents of the terminal.
#[derive(Debug)]
pub(super) struct Screen(());

impl Screen {
    const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
    const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

    pub(super) fn enter() -> Result<Self, Failure> {
        print(Self::ENTER)?;
        Ok(Self(()))
    }

    /// Replaces the contents by `lines`, in one write, so that the screen does not flicker.
    pub(super) fn draw(&self, lines: &[String], rows: usize) -> Outcome {
        let mut frame = String::from("\x1b[H");
        for (at, line) in lines.iter().take(rows).enumerate() {
            let start = if at == 0 { "" } else { "\n" };
            frame.extend([start, line, "\x1b[K"]);
        }
        frame.push_str("\x1b[J");
        print(&frame)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // If the terminal is gone, there is nothing to restore.
        let _gone = print(Self::LEAVE);
    }
}

/// Shows on stderr how long `what` takes, if that is a terminal; removes the line at the end.
pub(super) async fn tell_time(what: &str) -> Infallible {
    let begun = Instant::now();
    if !io::stderr().is_terminal() {
        std::future::pending::<()>().await;
    }
    sleep(QUIET).await;
    let _line = StatusLine;
    let mut second = interval(Duration::from_secs(1));
    loop {
        second.tick().await;
        let took = humantime::format_duration(Duration::from_secs(begun.elapsed().as_secs()));
        let columns = Size::of(&io::stderr()).map_or(80, |size| size.columns);
        let text = cut(&format!("{what}: {took} (Ctrl-C gives up)"), columns.saturating_sub(1));
        // Without stderr, there is no one to inform.
        let _closed = write!(io::stderr(), "\r{text}\x1b[K");
    }
}

/// The line of stderr that is overwritten with each update, and removed at the end.
struct StatusLine;

impl Drop for StatusLine {
    fn drop(&mut self) {
        let _closed = write!(io::stderr(), "\r\x1b[K");
    }
}
