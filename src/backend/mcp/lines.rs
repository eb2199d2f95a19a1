//! Cuts a child's output into lines, in bounded memory. A line over the limit is skipped. Only the
//! id of its JSON-RPC message is kept, so that the call which it answers gets an error.
//!
//! Must not: do IO, or know what a line means.

use std::ops::ControlFlow;

use bytes::{Bytes, BytesMut};
use rmcp::model::RequestId;

/// A line, or a note of one that was too long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Line {
    /// A line without its end, never empty.
    Whole(Bytes),
    /// A line that was longer than the limit, with its top-level `id`.
    TooLong {
        id: Option<RequestId>,
        /// How many bytes it had.
        size: u64,
    },
}

/// Cuts pushed bytes into lines, wherever the pushes cut them.
#[derive(Debug)]
pub(super) struct Lines {
    /// Where the next bytes go: as much as there is of a line that has not ended.
    pub(super) buffer: BytesMut,
    /// How far `buffer` has been searched.
    searched: usize,
    /// Set while the rest of a line that is too long is skipped.
    past: Option<IdFinder>,
    limit: usize,
}

impl Lines {
    /// Lines of at most `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self { buffer: BytesMut::new(), searched: 0, past: None, limit }
    }

    /// The next line, `None` until more bytes are there.
    pub(super) fn next_line(&mut self) -> Option<Line> {
        loop {
            let unsearched = self.buffer.get(self.searched..).unwrap_or_default();
            let Some(end) = unsearched.iter().position(|byte| *byte == b'\n') else {
                self.searched = self.buffer.len();
                self.shed();
                return None;
            };
            let mut line = self.buffer.split_to(self.searched + end + 1).freeze();
            self.searched = 0;
            line.truncate(line.len() - 1);
            if let Some(mut finder) = self.past.take() {
                finder.read(&line);
                return Some(finder.line());
            }
            if line.last() == Some(&b'\r') {
                line.truncate(line.len() - 1);
            }
            if line.len() > self.limit {
                return Some(IdFinder::after(&line).line());
            }
            if !line.is_empty() {
                return Some(Line::Whole(line));
            }
        }
    }

    /// Drops the searched part of a line that is too long.
    fn shed(&mut self) {
        if self.past.is_none() && self.buffer.len() > self.limit {
            self.past = Some(IdFinder::default());
        }
        if let Some(finder) = &mut self.past {
            finder.read(&self.buffer);
            self.buffer.clear();
            self.searched = 0;
        }
    }
}

/// Finds the `id` member of the object that it is shown piece by piece, whatever comes before it.
#[derive(Debug, Default)]
pub(super) struct IdFinder {
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// The token of depth 1 that is being read, as far as it may matter.
    token: Vec<u8>,
    /// Whether the token before the last colon of depth 1 was `"id"`.
    after_id: bool,
    found: Option<Vec<u8>>,
    /// Whether the object has ended.
    ended: bool,
    /// How many bytes it was shown.
    pub(super) size: u64,
}

/// The longest `id` that is looked for, quotes included.
const LONGEST_ID: usize = 256;

impl IdFinder {
    /// One that was shown `bytes`.
    pub(super) fn after(bytes: &[u8]) -> Self {
        let mut finder = Self::default();
        finder.read(bytes);
        finder
    }

    pub(super) fn read(&mut self, bytes: &[u8]) {
        self.size += bytes.len() as u64;
        if self.found.is_none() && !self.ended {
            let _whether_found = bytes.iter().try_for_each(|byte| self.step(*byte));
        }
    }

    /// The line that it was shown.
    fn line(self) -> Line {
        let (id, size) = self.found();
        Line::TooLong { id, size }
    }

    /// The id, and how many bytes were shown.
    pub(super) fn found(self) -> (Option<RequestId>, u64) {
        (self.found.and_then(|id| serde_json::from_slice(&id).ok()), self.size)
    }

    fn step(&mut self, byte: u8) -> ControlFlow<()> {
        if self.in_string {
            self.take(byte);
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => (),
            }
            return ControlFlow::Continue(());
        }
        match byte {
            b'"' => {
                self.in_string = true;
                self.take(byte);
            }
            b'{' | b'[' => self.depth += 1,
            b':' if self.depth == 1 => {
                self.after_id = self.token == br#""id""#;
                self.token.clear();
            }
            b',' | b'}' | b']' => {
                if self.depth == 1 && self.after_id && !self.token.is_empty() {
                    self.found = Some(std::mem::take(&mut self.token));
                    return ControlFlow::Break(());
                }
                self.depth = self.depth.saturating_sub(usize::from(byte != b','));
                self.token.clear();
                if self.depth == 0 && byte != b',' {
                    self.ended = true;
                    return ControlFlow::Break(());
                }
            }
            _ if byte.is_ascii_whitespace() => (),
            _ => self.take(byte),
        }
        ControlFlow::Continue(())
    }

    fn take(&mut self, byte: u8) {
        if self.depth == 1 && self.token.len() < LONGEST_ID {
            self.token.push(byte);
        }
    }
}

#[cfg(test)]
mod tests;
