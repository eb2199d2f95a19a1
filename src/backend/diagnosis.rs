//! Why a program did not start, is no MCP server, or has ended: a cause with a sentence, with what
//! an operator does about it, and with the one line of output that says it.
//!
//! An exit status and the end of a trace leave the reader to find the cause. The same few causes
//! account for most failed starts, and each shows itself in the output in a known way.
//!
//! Must not: do IO, or start or ask anything.

use std::fmt;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::ExitStatus;

use super::{PeerError, PeerErrorKind};
use crate::config::Program;

mod cause;
mod installers;
mod paths;
pub(super) mod redirect;
mod signs;
mod telling_line;

pub(super) use cause::Cause;
use telling_line::telling_line;

/// What is known of a program that has failed.
#[derive(Debug)]
pub(super) struct Evidence<'a> {
    pub(super) program: &'a Program,
    pub(super) end: End,
    /// The last lines on stderr, without secrets.
    pub(super) stderr: &'a [String],
    /// The first lines on stdout that were no messages, without secrets.
    pub(super) stdout: &'a [String],
    /// The id of responses that answered no open request.
    pub(super) stray_id: Option<i64>,
    /// Whether the handshake had succeeded: then it is an MCP server, whatever it printed.
    pub(super) worked: bool,
    pub(super) variables: Variables,
}

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display)]
pub(super) enum End {
    #[display("still runs")]
    Running,
    #[display("ended with exit status {_0}")]
    Exit(i32),
    #[display("ended with signal {_0}")]
    Signal(i32),
    #[display("ended with an unknown status ({_0})")]
    Unknown(String),
}

impl From<io::Result<ExitStatus>> for End {
    fn from(status: io::Result<ExitStatus>) -> Self {
        match status {
            Err(error) => Self::Unknown(error.to_string()),
            Ok(status) => match (status.code(), status.signal()) {
                (Some(code), _) => Self::Exit(code),
                (None, Some(signal)) => Self::Signal(signal),
                (None, None) => Self::Unknown(status.to_string()),
            },
        }
    }
}

/// The variables that name a proxy, in upper case; programs know them in lower case, too.
const PROXY: [&str; 3] = ["HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"];

/// What the program has of the variables that decide how it reaches a registry, and where it keeps
/// what it installs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Variables {
    pub(super) has_proxy: bool,
    pub(super) home: Option<PathBuf>,
    /// npm's cache.
    pub(super) npm_cache: Option<PathBuf>,
}

impl Variables {
    /// Those that a program has, where `value` gives the value of one.
    pub(super) fn new(value: impl Fn(&str) -> Option<String>) -> Self {
        let npm_cache = value("npm_config_cache").or_else(|| value("NPM_CONFIG_CACHE"));
        let home = value("HOME").map(PathBuf::from);
        let in_home = home.as_ref().map(|home| home.join(".npm"));
        Self {
            has_proxy: PROXY
                .iter()
                .any(|name| value(name).is_some() || value(&name.to_lowercase()).is_some()),
            npm_cache: npm_cache.map(PathBuf::from).or(in_home),
            home,
        }
    }
}

/// What is wrong with a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Diagnosis {
    pub(super) cause: Cause,
    /// The line of the output that says it.
    pub(super) line: Option<String>,
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.cause)?;
        match &self.line {
            Some(line) => write!(f, ": {line}"),
            None => Ok(()),
        }
    }
}

impl Diagnosis {
    /// The error that says this of `program`, after `what` has happened, with its cure.
    pub(super) fn error(&self, kind: PeerErrorKind, what: &str, program: &Program) -> PeerError {
        let error = PeerError::new(kind, format!("{what}: {self}"));
        error.cured(self.cause.cure(program)).with_plain_cause(self.cause.plain())
    }
}

/// Why the program of `evidence` has failed. `None` if it still runs, and has shown no cause.
pub(super) fn diagnosis(evidence: &Evidence<'_>) -> Option<Diagnosis> {
    let telling = telling_line(evidence.stderr);
    let by_sign = signs::launcher(evidence)
        .or_else(|| signs::killed(evidence))
        .or_else(|| signs::installer(evidence))
        .or_else(|| signs::loader(evidence))
        .or_else(|| signs::stdout(evidence))
        .or_else(|| signs::own_words(evidence, telling.as_deref()));
    if by_sign.is_some() || evidence.end == End::Running {
        return by_sign;
    }
    Some(signs::otherwise(evidence, telling))
}

/// One thing that is odd about a server that works: a sentence, and what to do about it.
#[derive(
    Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
pub struct Remark {
    pub message: String,
    pub cure: String,
    /// A sentence with the server's own words that show it, for operators alone.
    #[serde(skip)]
    pub quote: Option<String>,
}

impl Remark {
    /// This remark, with the server's own words in its message.
    pub fn with_quote(mut self) -> Self {
        if let Some(quote) = self.quote.take() {
            self.message = format!("{} {quote}", self.message);
        }
        self
    }
}

/// All of `remarks` as one; `None` if there is none.
pub(super) fn all_in_one<'r>(
    remarks: impl IntoIterator<Item = &'r Option<Remark>>,
) -> Option<Remark> {
    remarks.into_iter().flatten().cloned().reduce(|all, next| Remark {
        message: format!("{} {}", all.message, next.message),
        cure: format!("{} {}", all.cure, next.cure),
        quote: match (all.quote, next.quote) {
            (Some(first), Some(second)) => Some(format!("{first} {second}")),
            (first, second) => first.or(second),
        },
    })
}

#[cfg(test)]
mod tests;
