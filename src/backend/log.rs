//! Prepares a peer's output outside its protocol for the bridge's log and for errors: escaped, cut,
//! and limited in volume.
//!
//! Must not: do IO or read the clock.

use std::{collections::VecDeque, fmt::Write as _, time::Duration};

use tokio::time::Instant;

use crate::telemetry::is_plain;

/// The longest line that is logged, in bytes.
pub(super) const LINE_LIMIT: usize = 8 * 1024;

/// What one server may have logged in a [`WINDOW`]: enough for a trace, too little to fill a disk
/// in a night.
pub(super) const BYTES_PER_WINDOW: usize = 64 * 1024;

/// The time over which [`BYTES_PER_WINDOW`] counts.
pub(super) const WINDOW: Duration = Duration::from_secs(1);

/// Decides which lines are logged.
#[derive(Debug)]
pub(super) struct Budget {
    window: Instant,
    spent: usize,
    left_out: Sum,
}

/// How much of a server's output was not logged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) lines: usize,
    pub(super) bytes: usize,
}

impl Budget {
    pub(super) fn new(now: Instant) -> Self {
        Self { window: now, spent: 0, left_out: Sum::default() }
    }

    /// Whether a line of `bytes` is to be logged.
    pub(super) fn admit(&mut self, bytes: usize, now: Instant) -> bool {
        if now >= self.window_end() {
            self.window = now;
            self.spent = 0;
        }
        let fits = self.spent + bytes <= BYTES_PER_WINDOW;
        if fits {
            self.spent += bytes;
        } else {
            self.left_out.lines += 1;
            self.left_out.bytes += bytes;
        }
        fits
    }

    /// The sum of the lines that were left out and not yet reported, once the window is over.
    pub(super) fn settle(&mut self, now: Instant) -> Option<Sum> {
        if self.left_out == Sum::default() || now < self.window_end() {
            return None;
        }
        Some(std::mem::take(&mut self.left_out))
    }

    /// When [`Self::settle`] has a sum to report.
    pub(super) fn due(&self) -> Option<Instant> {
        (self.left_out != Sum::default()).then(|| self.window_end())
    }

    fn window_end(&self) -> Instant {
        self.window + WINDOW
    }
}

/// The last lines that a server wrote, for the error that reports its end.
#[derive(Debug, Default)]
pub(super) struct LastLines(VecDeque<String>);

impl LastLines {
    /// How many lines are kept.
    const KEPT: usize = 5;
    /// How many bytes of each.
    const WIDTH: usize = 300;

    pub(super) fn push(&mut self, line: &str) {
        if line.is_empty() {
            return;
        }
        if self.0.len() == Self::KEPT {
            self.0.pop_front();
        }
        let mut line = line.to_owned();
        line.truncate(line.floor_char_boundary(Self::WIDTH));
        self.0.push_back(line);
    }

    /// The lines in one, `None` if there is none.
    pub(super) fn text(&self) -> Option<String> {
        let lines: Vec<&str> = self.0.iter().map(String::as_str).collect();
        (!lines.is_empty()).then(|| lines.join(" | "))
    }
}

/// `bytes` as text that cannot write to a terminal or fake a log line, at most [`LINE_LIMIT`] long;
/// `more` is how much of the line was not read.
pub(super) fn printable(bytes: &[u8], more: usize) -> String {
    let bytes = bytes.trim_ascii_end();
    let kept = bytes.get(..LINE_LIMIT).unwrap_or(bytes);
    let mut text = String::with_capacity(kept.len());
    for c in String::from_utf8_lossy(kept).chars() {
        match c {
            _ if is_plain(c) => text.push(c),
            _ => {
                write!(text, "\\u{{{:x}}}", u32::from(c)).expect("writing to a String cannot fail");
            }
        }
    }
    let more = more + (bytes.len() - kept.len());
    if more > 0 {
        write!(text, " [{more} bytes more]").expect("writing to a String cannot fail");
    }
    text
}

/// `bytes` as text of as many lines as it has, each of them [`printable`].
pub(super) fn printable_lines(bytes: &[u8]) -> String {
    let lines = bytes.trim_ascii_end().split(|byte| *byte == b'\n');
    lines.map(|line| printable(line, 0)).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests;
