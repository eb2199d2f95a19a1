//! The audit log: one line of JSON for each call that has ended, or that has got a first answer and
//! continues as a long call. docs/audit.md has the fields.
//!
//! The lines go to a file (`writer`), to a syslog receiver (`syslog`), or to both. Each has a
//! thread and a queue (`queue`). A line that is not accepted waits, up to a limit; beyond it, lines
//! are lost, counted and logged.
//!
//! Must not: delay a call, or serve as a record of calls (the journal does).

mod queue;
pub mod syslog;
mod writer;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

pub use self::queue::Health;
use self::queue::{Queue, Shared};
use self::syslog::Receiver;
use self::writer::Writer;
use crate::model::catalog::hex;
use crate::{clock, telemetry};

/// The audit log. After a drop, its threads write the lines that they have got, and end.
#[derive(Debug)]
pub struct Audit {
    file: Option<Queue>,
    syslog: Option<Queue>,
    /// Whether arguments are written, beside their digest.
    arguments: bool,
}

/// A line of the log.
#[derive(Debug)]
struct Line {
    time: SystemTime,
    /// Without its line end.
    text: String,
}

impl Line {
    /// Its bytes, with its line end.
    const fn len(&self) -> usize {
        self.text.len() + 1
    }
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

#[derive(Clone, Serialize)]
struct AuditLine<'a> {
    time: String,
    #[serde(flatten)]
    call: &'a Call,
    outcome: &'a str,
    ms: u64,
    #[serde(flatten)]
    asked: &'a PersonAnswers,
}

impl Audit {
    /// Opens the audit log in `file`, which is created with mode 0600 if it does not exist, and to
    /// the receiver `syslog`.
    ///
    /// # Errors
    ///
    /// The file cannot be opened. The daemon then does not start: an operator who wants an audit
    /// log wants no calls without one. A receiver that is away is waited for: the start must not
    /// depend on another service.
    pub fn open(
        file: Option<&Path>,
        syslog: Option<&Receiver>,
        arguments: bool,
    ) -> io::Result<Self> {
        let file = file.map(|path| {
            let shared = Arc::<Shared>::new(Shared::new("file"));
            let writer = Writer::open(path.to_owned(), Arc::clone(&shared))?;
            Queue::start(shared, usize::MAX, move |lines| writer.run(lines))
        });
        let syslog = syslog.map(|receiver| {
            let shared = Arc::<Shared>::new(Shared::new("syslog"));
            let sender = syslog::Sender::new(receiver.clone(), Arc::clone(&shared));
            Queue::start(shared, syslog::LONGEST, move |lines| sender.run(lines))
        });
        Ok(Self { file: file.transpose()?, syslog: syslog.transpose()?, arguments })
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
        let time = clock::now();
        let ms = clock::millis_of(took);
        let line = AuditLine { time: clock::rfc3339(time), call, outcome, ms, asked };
        let whole = Arc::new(Line { time, text: line.text() });
        for queue in self.queues() {
            if queue.offer(&whole) {
                continue;
            }
            if call.arguments.arguments.is_none() {
                queue.push(&whole);
                continue;
            }
            let mut call = call.clone();
            call.arguments.arguments = None;
            call.arguments.arguments_left_out = true;
            let text = AuditLine { call: &call, ..line.clone() }.text();
            queue.push(&Arc::new(Line { time, text }));
        }
    }

    /// The state of the file; `None` if none is configured.
    pub fn file_health(&self) -> Option<Health> {
        self.file.as_ref().map(Queue::health)
    }

    /// The state of what goes to syslog; `None` if no receiver is configured.
    pub fn syslog_health(&self) -> Option<Health> {
        self.syslog.as_ref().map(Queue::health)
    }

    /// Writes all queued lines, and ends the threads. Blocks, at most for [`queue::CLOSE`] each.
    pub fn close(&self) {
        for queue in self.queues() {
            queue.close();
        }
    }

    fn queues(&self) -> impl Iterator<Item = &Queue> {
        self.file.iter().chain(&self.syslog)
    }
}

impl AuditLine<'_> {
    fn text(&self) -> String {
        let json = serde_json::to_string(self).expect("strings, numbers and JSON can be written");
        telemetry::plain_json(&json)
    }
}

#[cfg(test)]
mod tests;
