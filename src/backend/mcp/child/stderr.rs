//! Reads a server's stderr into the log until it ends. Without a reader, the server would stop when
//! the pipe is full.
//!
//! Must not: keep more than a line and the last few lines in memory.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::time::{Instant, sleep_until};

use crate::backend::LiveRedaction;
use crate::backend::log::{LastLines, LogQuota, Redactor, SEEN, Sum};
use crate::model::BackendName;

/// Logs `stderr` until it ends; at debug while `is_quiet` is set.
pub(super) async fn drain(
    backend: &BackendName,
    mut stderr: impl AsyncRead + Unpin,
    redact: &LiveRedaction,
    last_lines: &Mutex<LastLines>,
    is_quiet: &AtomicBool,
) {
    let mut budget = LogQuota::new(Instant::now());
    let mut line = PartialLine::default();
    let mut chunk = vec![0; 4096];
    let write = |line: &mut PartialLine, budget: &mut LogQuota| {
        let text = line.take(&redact.redactor());
        last_lines.lock().push(&text);
        if is_quiet.load(Ordering::Relaxed) {
            tracing::debug!(%backend, "stderr: {text}");
        } else if !text.is_empty() && budget.admit(text.len(), Instant::now()) {
            tracing::info!(%backend, "stderr: {text}");
        }
    };
    loop {
        let due = budget.due();
        // Dropping either future loses nothing.
        let read = tokio::select! {
            read = stderr.read(&mut chunk) => read,
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                tell(backend, &mut budget, Instant::now());
                continue;
            }
        };
        let Some(bytes) = read.ok().filter(|read| *read > 0).and_then(|read| chunk.get(..read))
        else {
            break;
        };
        let mut pieces = bytes.split(|byte| *byte == b'\n');
        line.push(pieces.next().unwrap_or_default());
        for piece in pieces {
            write(&mut line, &mut budget);
            line.push(piece);
        }
        tell(backend, &mut budget, Instant::now());
    }
    write(&mut line, &mut budget);
    if let Some(due) = budget.due() {
        tell(backend, &mut budget, due);
    }
}

fn tell(backend: &BackendName, budget: &mut LogQuota, now: Instant) {
    if let Some(Sum { lines, bytes }) = budget.settle(now) {
        tracing::warn!(%backend, "dropped {lines} lines ({bytes} bytes) of stderr: over the limit of a minute");
    }
}

/// The line that is being read.
#[derive(Default)]
struct PartialLine {
    kept: Vec<u8>,
    more: usize,
    /// For how many bytes a private key may go on that an earlier line has begun. Without this
    /// bound, a message that has only the first line of a key would be the last.
    key_left: usize,
}

impl PartialLine {
    fn push(&mut self, bytes: &[u8]) {
        let fits = bytes.len().min(SEEN - self.kept.len());
        self.kept.extend_from_slice(bytes.get(..fits).unwrap_or_default());
        self.more += bytes.len() - fits;
    }

    fn take(&mut self, redactor: &Redactor) -> String {
        let line = String::from_utf8_lossy(&self.kept);
        let mut in_key = self.key_left > 0;
        let left = if in_key { self.key_left.saturating_sub(line.len() + self.more) } else { SEEN };
        let rest = redactor.redact.after_key(&line, &mut in_key);
        self.key_left = if in_key { left } else { 0 };
        let more = if rest.is_empty() { 0 } else { self.more };
        let text = redactor.line(rest.as_bytes(), more);
        self.kept.clear();
        self.more = 0;
        text
    }
}

#[cfg(test)]
mod tests;
