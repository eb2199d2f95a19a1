//! Prepares a peer's output outside its protocol for the bridge's log and for errors: without
//! secrets, cut, escaped, and limited in volume.
//!
//! Must not: do IO or read the clock.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::config::{Backend, LiveSecrets, Secrets};
use crate::metrics::Counter;
use crate::model::Redaction;
use crate::telemetry::is_plain;

/// The longest line that is logged, in bytes.
pub(super) const LINE_LIMIT: usize = 8 * 1024;

/// How much of a text is kept to remove secrets from, of which a part is shown.
pub(super) const SEEN: usize = 64 * 1024;

/// What one server may have logged in a [`WINDOW`]: enough for a trace, and at most 100 MB a day.
pub(super) const BYTES_PER_WINDOW: usize = 64 * 1024;

/// The time over which [`BYTES_PER_WINDOW`] counts.
pub(super) const WINDOW: Duration = Duration::from_secs(60);

/// What stands around a line in the log: the time, the backend, and words. Without it, a program
/// that writes empty lines would write a hundred times as much into the log.
pub(super) const AROUND: usize = 160;

/// Decides which lines are logged.
#[derive(Debug)]
pub(super) struct LogQuota {
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

impl LogQuota {
    pub(super) fn new(now: Instant) -> Self {
        Self { window: now, spent: 0, left_out: Sum::default() }
    }

    /// Whether a line of `bytes` is to be logged, and [`AROUND`] it.
    pub(super) fn admit(&mut self, bytes: usize, now: Instant) -> bool {
        if now >= self.window_end() {
            self.window = now;
            self.spent = 0;
        }
        let fits = self.spent + AROUND + bytes <= BYTES_PER_WINDOW;
        if fits {
            self.spent += AROUND + bytes;
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
        if self.left_out == Sum::default() { None } else { Some(self.window_end()) }
    }

    fn window_end(&self) -> Instant {
        self.window + WINDOW
    }
}

/// The last lines that a server wrote, for people, and for the diagnosis of its end.
#[derive(Debug, Default)]
pub(super) struct LastLines(VecDeque<String>);

impl LastLines {
    /// How many lines are kept. The message of an error in Node.js stands before its trace, which
    /// has 30 lines and more if it lists the modules that were loaded.
    const KEPT: usize = 100;
    /// How many of them people are shown.
    const SHOWN: usize = 20;
    /// How many bytes of each.
    const WIDTH: usize = 500;

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

    pub(super) fn all(&self) -> Vec<String> {
        self.0.iter().cloned().collect()
    }

    /// Those that people are shown.
    pub(super) fn shown(&self) -> Vec<String> {
        let from = self.0.len().saturating_sub(Self::SHOWN);
        self.0.range(from..).cloned().collect()
    }

    pub(super) fn last(&self) -> Option<&str> {
        self.0.back().map(String::as_str)
    }
}

/// What is removed from a peer's output before it is cut: half a secret is not recognized.
#[derive(Debug, Clone, Default)]
pub(super) struct Redactor {
    pub(super) secrets: Arc<Secrets>,
    pub(super) redact: Arc<Redaction>,
    /// Counts what `redact` matches.
    pub(super) redacted: Counter,
}

impl Redactor {
    /// `text` without secrets; counts what `redact` matches in it.
    pub(super) fn text(&self, text: String, count: &mut u64) -> String {
        let text = self.secrets.hide(text);
        self.redact.apply(&text, count).unwrap_or(text)
    }

    /// `bytes` without secrets, and the same of a `part` of them; `None` where that is all of them.
    fn both(&self, bytes: &[u8], part: &[u8]) -> (String, Option<String>) {
        let mut count = 0;
        let whole = self.text(String::from_utf8_lossy(bytes).into_owned(), &mut count);
        self.redacted.inc_by(count);
        if part.len() == bytes.len() {
            return (whole, None);
        }
        // Counted above already.
        let part = self.text(String::from_utf8_lossy(part).into_owned(), &mut 0);
        (whole, Some(part))
    }

    /// The first `most` of `bytes` without secrets. What the cut divides does not read the same
    /// with the rest and without it, and is left out.
    pub(super) fn head(&self, bytes: &[u8], most: usize) -> String {
        let (mut whole, part) = self.both(bytes, bytes.get(..most).unwrap_or(bytes));
        let Some(part) = part else { return whole };
        let same = whole.bytes().zip(part.bytes()).take_while(|(a, b)| a == b).count();
        whole.truncate(whole.floor_char_boundary(same));
        whole
    }

    /// [`Self::head`] for the last `most` of `bytes`.
    pub(super) fn tail(&self, bytes: &[u8], most: usize) -> String {
        let part = bytes.split_at(bytes.len().saturating_sub(most)).1;
        let (mut whole, part) = self.both(bytes, part);
        let Some(part) = part else { return whole };
        let same = whole.bytes().rev().zip(part.bytes().rev()).take_while(|(a, b)| a == b);
        whole.split_off(whole.ceil_char_boundary(whole.len() - same.count()))
    }

    /// A line for the log, at most [`LINE_LIMIT`] of it; `more` is how much of it was not read.
    pub(super) fn line(&self, bytes: &[u8], more: usize) -> String {
        let bytes = bytes.trim_ascii_end();
        let text = self.head(bytes.get(..SEEN).unwrap_or(bytes), LINE_LIMIT);
        match more + bytes.len().saturating_sub(LINE_LIMIT) {
            0 => printable(&text),
            more => format!("{} [{more} bytes more]", printable(&text)),
        }
    }
}

/// What is removed from the texts of one backend: what the latest configuration says, and the
/// secrets that the bridge sends.
#[derive(Debug, Clone, Default)]
pub struct LiveRedaction {
    redact: watch::Sender<Arc<Redaction>>,
    secrets: Arc<Secrets>,
    /// The tokens of its login.
    tokens: LiveSecrets,
}

impl LiveRedaction {
    pub fn new(redact: Arc<Redaction>, secrets: Arc<Secrets>) -> Self {
        Self { redact: watch::Sender::new(redact), secrets, tokens: LiveSecrets::default() }
    }

    /// The one of `backend`.
    pub fn for_backend(backend: &Backend) -> Self {
        Self::new(Arc::clone(&backend.redact), Arc::clone(&backend.secrets))
    }

    /// Hides the tokens of a login as well.
    pub fn with_tokens(self, tokens: LiveSecrets) -> Self {
        Self { tokens, ..self }
    }

    pub fn set(&self, redact: &Arc<Redaction>) {
        self.redact.send_replace(Arc::clone(redact));
    }

    pub(super) fn redactor(&self) -> Redactor {
        let redact = Arc::clone(&self.redact.borrow());
        Redactor { secrets: self.tokens.with(&self.secrets), redact, ..Redactor::default() }
    }
}

/// `text` in a form that cannot write to a terminal or fake a log line.
fn printable(text: &str) -> String {
    let mut new = String::with_capacity(text.len());
    for c in text.chars() {
        if is_plain(c) {
            new.push(c);
        } else {
            new.extend(c.escape_unicode());
        }
    }
    new
}

/// The lines of `text` in such a form.
pub(super) fn printable_lines(text: &str) -> String {
    let lines = text.trim_ascii_end().split('\n').map(|line| printable(line.trim_ascii_end()));
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests;
