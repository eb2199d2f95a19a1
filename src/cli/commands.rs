//! Programs of others that a subcommand runs to their end: the commands of MCP clients, and
//! systemctl.
//!
//! Must not: run in the daemon, which waits for its children in another way; have a secret in a
//! command, which every user of the machine can see.

use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};

use super::terminal::inset;
use super::{Outcome, failures};
use crate::backend::program::on_path;
use crate::config::Environment;

/// The program of this name on the PATH.
pub(super) fn which(name: &str, env: &Environment) -> Option<PathBuf> {
    on_path(name, env.var("PATH")?)
}

/// The command as a person would type it.
pub(super) fn line(words: &[String]) -> String {
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

/// Whether a shell takes the character as it is.
fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_./=:@,+%".contains(c)
}

fn quoted(word: &str) -> String {
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// What a command printed, and how it ended.
pub(super) struct CommandOutput {
    status: ExitStatus,
    pub(super) out: String,
    err: String,
}

impl CommandOutput {
    /// What the command printed.
    ///
    /// # Errors
    ///
    /// It failed; the message is the last that it said.
    pub(super) fn success(self, words: &[String]) -> Outcome<String> {
        let Self { status, out, err } = self;
        if status.success() {
            return Ok(out);
        }
        let message = if err.is_empty() { out } else { err };
        Err(failures::command_failed(line(words), format!("{status}: {}", inset(&message))))
    }
}

/// Runs the command without input to its end.
///
/// # Errors
///
/// It cannot be started.
pub(super) fn output(words: &[String]) -> Outcome<CommandOutput> {
    let (program, args) = words.split_first().expect("a command has a program");
    let output = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| failures::command_failed(line(words), error.to_string()))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    Ok(CommandOutput {
        status: output.status,
        out: text(&output.stdout),
        err: text(&output.stderr),
    })
}

/// Runs the command without input; what it printed.
///
/// # Errors
///
/// It cannot be started, or fails; the message is the last that it said.
pub(super) fn run(words: &[String]) -> Outcome<String> {
    output(words)?.success(words)
}
