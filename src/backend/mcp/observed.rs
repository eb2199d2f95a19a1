//! What is kept of a program from its start, so that its failure can be told with its cause.
//!
//! Must not: decide what the cause is (`backend::diagnosis` does).

use std::sync::Arc;

use parking_lot::Mutex;
use secrecy::ExposeSecret as _;

use super::oddities::Oddities;
use crate::backend::diagnosis::{Cause, Diagnosis, End, Evidence, Remark, Variables, diagnosis};
use crate::backend::log::LastLines;
use crate::backend::{PeerError, PeerErrorKind, program};
use crate::config::Program;

/// One program, from its start on.
#[derive(Debug, Clone)]
pub(super) struct Observed {
    pub(super) program: Program,
    pub(super) stderr: Arc<Mutex<LastLines>>,
    pub(super) oddities: Arc<Oddities>,
}

impl Observed {
    /// The error of a program that has ended.
    pub(super) fn ended(&self, end: &End) -> PeerError {
        let what = format!("`{}` {end}", self.program.command);
        match self.diagnosis(end.clone()) {
            Some(diagnosis) => diagnosis.error(PeerErrorKind::Program, &what, &self.program),
            None => PeerError::new(PeerErrorKind::Program, what),
        }
    }

    /// The error of a program that runs, and has not done in time `what` says.
    pub(super) fn overdue(&self, what: &str) -> PeerError {
        match self.diagnosis(End::Running) {
            Some(diagnosis) => diagnosis.error(PeerErrorKind::Timeout, what, &self.program),
            None => match self.stderr.lock().last() {
                Some(line) => {
                    let text = format!("{what}; its last line on stderr: {line}");
                    PeerError::new(PeerErrorKind::Timeout, text)
                }
                None => PeerError::new(
                    PeerErrorKind::Timeout,
                    format!("{what}; it has written nothing to stderr"),
                ),
            },
        }
    }

    /// The error of a program that runs, though its connection has failed with `error`.
    pub(super) fn failed(&self, error: &PeerError) -> PeerError {
        let what = format!("`{}`: {error}", self.program.command);
        // An answer that refuses is the cause itself.
        let diagnosis = match error.kind {
            PeerErrorKind::Connect => self.diagnosis(End::Running),
            _ => None,
        };
        match diagnosis {
            Some(diagnosis) => diagnosis.error(error.kind, &what, &self.program),
            None => match self.stderr.lock().last() {
                Some(line) => error.reworded(format!("{what}; its last line on stderr: {line}")),
                None => error.reworded(what),
            },
        }
    }

    /// What a program shows that has not answered the handshake yet. A line on stdout alone is no
    /// cause: it may be an installer's.
    pub(super) fn starting_remark(&self) -> Option<Remark> {
        match self.diagnosis(End::Running).filter(|found| found.cause != Cause::NotServer) {
            Some(found) => Some(Remark {
                message: format!("It still runs, and {found}"),
                cure: found.cause.cure(&self.program),
                quote: None,
            }),
            None => self.oddities.remark(),
        }
    }

    fn diagnosis(&self, end: End) -> Option<Diagnosis> {
        let configured = &self.program.env;
        let variables = Variables::new(|name| {
            let value = configured.get(name).map(|value| value.expose_secret().to_owned());
            value.or_else(|| program::inherited(name)?.into_string().ok())
        });
        diagnosis(&Evidence {
            program: &self.program,
            end,
            stderr: &self.stderr.lock().all(),
            stdout: &self.oddities.lines(),
            stray_id: self.oddities.stray_id(),
            worked: self.oddities.has_shaken_hands(),
            variables,
        })
    }
}
