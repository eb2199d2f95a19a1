//! The audit log: one line of JSON for each call that has ended, or that has got a first answer and
//! continues as a long call. docs/audit.md has the fields.
//!
//! One thread writes. It keeps lines that the disk does not accept, up to a limit, and tries again.
//! Beyond the limit, lines are lost, counted and logged. If the file was renamed or removed, the
//! thread creates a new one.
//!
//! Must not: delay a call, or serve as a record of calls (the journal does).

mod writer;

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{io, thread};

use parking_lot::Mutex;
use serde::Serialize;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};
use tracing::error;

use self::writer::Writer;
use crate::model::catalog::hex;
use crate::{clock, telemetry};

/// The most lines and bytes that may wait to be written.
const WAITING_LINES: usize = 10_000;
const WAITING_BYTES: usize = 16 << 20;

/// The audit log. After a drop, its thread writes the lines that it has got, and ends.
#[derive(Debug)]
pub struct Audit {
    /// The thread that writes, and the way to it; `None` once the log is closed.
    writer: Mutex<Option<(mpsc::SyncSender<String>, JoinHandle<()>)>>,
    shared: Arc<Shared>,
    /// Whether arguments are written, beside their digest.
    arguments: bool,
}

/// The state of the audit log.
#[derive(Debug, Clone, Default)]
pub struct Health {
    /// For operators: why lines cannot be written now.
    pub error: Option<String>,
    pub written: u64,
    /// Lines that were dropped before the disk accepted them.
    pub lost: u64,
}

/// A call, as the audit log describes it.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Call {
    pub app: String,
    /// The agent run that made it; `None` for a call by hand.
    pub run: Option<String>,
    pub session: Option<String>,
    pub workspace: Option<String>,
    pub tool_use_id: String,
    /// The name that the model called.
    pub name: String,
    /// `None` for the bridge's own tool that fetches results.
    pub backend: Option<String>,
    /// The peer's own name of the tool; empty for an agent and a local tool.
    pub tool: String,
    #[serde(flatten)]
    pub arguments: Arguments,
}

/// The arguments of a call, as far as the log shows them.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Arguments {
    /// The hash of their exact bytes, in hex; `None` if they are no longer known.
    arguments_sha256: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<Box<RawValue>>,
    /// The log should show them, but there was no room.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    arguments_left_out: bool,
}

/// What a person was asked about a call.
#[derive(Debug, Clone, Default, Serialize)]
pub struct PersonAnswers {
    /// Only for a call that needed approval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
    /// What its server has asked, in that order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<Approval>,
}

/// The outcome of asking a person.
#[derive(Debug, Clone, Serialize)]
pub struct Approval {
    /// [`crate::model::approval::Outcome`].
    pub outcome: &'static str,
    /// The app through which a person decided; `None` if no person did.
    pub by: Option<String>,
    pub reason: Option<String>,
    /// How long the call waited, in milliseconds.
    pub ms: u64,
}

#[derive(Serialize)]
struct AuditLine<'a> {
    time: String,
    #[serde(flatten)]
    call: &'a Call,
    outcome: &'a str,
    ms: u64,
    #[serde(flatten)]
    asked: &'a PersonAnswers,
}

#[derive(Debug, Default)]
struct Shared {
    health: Mutex<Health>,
    /// Bytes that wait to be written.
    waiting: AtomicUsize,
}

impl Audit {
    /// Opens the audit log at `path`; creates it with mode 0600 if it does not exist.
    ///
    /// # Errors
    ///
    /// The file cannot be opened. The daemon then does not start: an operator who wants an audit
    /// log wants no calls without one.
    pub fn open(path: &Path, arguments: bool) -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let (lines, given) = mpsc::sync_channel(WAITING_LINES);
        let writer = Writer::open(path.to_owned(), Arc::clone(&shared))?;
        let thread =
            thread::Builder::new().name("audit".to_owned()).spawn(move || writer.run(&given))?;
        Ok(Self { writer: Mutex::new(Some((lines, thread))), shared, arguments })
    }

    /// The part of these arguments that the log shows.
    pub fn arguments(&self, arguments: &RawValue) -> Arguments {
        Arguments {
            arguments_sha256: Some(hex(&Sha256::digest(arguments.get()))),
            arguments: self.arguments.then(|| arguments.to_owned()),
            arguments_left_out: false,
        }
    }

    /// Logs the outcome of `call` in a word, with a person's decisions. Never waits.
    pub fn tell(&self, call: &Call, outcome: &str, took: Duration, asked: &PersonAnswers) {
        let line = AuditLine {
            time: clock::rfc3339(clock::now()),
            call,
            outcome,
            ms: clock::millis_of(took),
            asked,
        };
        let mut text = line.text();
        let mut has_room = self.shared.reserve(text.len());
        if !has_room && call.arguments.arguments.is_some() {
            let mut call = call.clone();
            call.arguments.arguments = None;
            call.arguments.arguments_left_out = true;
            text = AuditLine { call: &call, ..line }.text();
            has_room = self.shared.reserve(text.len());
        }
        if !has_room {
            self.shared.lost(1);
            return;
        }
        let bytes = text.len();
        let writer = self.writer.lock();
        // The channel is full, or the thread has ended.
        if writer.as_ref().is_none_or(|(lines, _)| lines.try_send(text).is_err()) {
            self.shared.free(bytes);
            self.shared.lost(1);
        }
    }

    pub fn health(&self) -> Health {
        self.shared.health.lock().clone()
    }

    /// Writes all queued lines, and ends the thread. Blocks.
    pub fn close(&self) {
        let Some((lines, thread)) = self.writer.lock().take() else { return };
        // Ends the thread, once it has got all of them.
        drop(lines);
        if thread.join().is_err() {
            error!("the audit log's thread panicked");
        }
    }
}

impl AuditLine<'_> {
    fn text(&self) -> String {
        let json = serde_json::to_string(self).expect("strings, numbers and JSON can be written");
        let mut line = telemetry::plain_json(&json);
        line.push('\n');
        line
    }
}

impl Shared {
    /// Reserves room for `bytes` that wait; false if there is none.
    fn reserve(&self, bytes: usize) -> bool {
        let has_room = self.waiting.fetch_add(bytes, Ordering::Relaxed) + bytes <= WAITING_BYTES;
        if !has_room {
            self.free(bytes);
        }
        has_room
    }

    /// Frees the room of `bytes`.
    fn free(&self, bytes: usize) {
        self.waiting.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Counts lines that are lost.
    fn lost(&self, lines: u64) {
        let mut health = self.health.lock();
        let before = health.lost;
        health.lost += lines;
        // Logs the first lost line, and then each time that the number has doubled.
        if lines > 0 && (before == 0 || before.ilog2() != health.lost.ilog2()) {
            error!(lost = health.lost, "lines of the audit log are lost: they cannot be written");
        }
    }
}

#[cfg(test)]
mod tests;
