//! Programs of others that a subcommand runs to their end: the commands of MCP clients, and
//! systemctl.
//!
//! Must not: run in the daemon, which waits for its children in another way; have a secret in a
//! command, which every user of the machine can see.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::fs::{Access, access};

use super::terminal::inset;
use super::{Outcome, failures};
use crate::config::Environment;

/// The program of this name on the PATH.
pub(super) fn which(name: &str, env: &Environment) -> Option<PathBuf> {
    let directories = std::env::split_paths(env.var("PATH")?);
    let mut paths = directories.map(|directory| directory.join(name));
    paths.find(|path| path.is_file() && access(path, Access::EXEC_OK).is_ok())
}

/// The command as a person would type it.
pub(super) fn line(words: &[String]) -> String {
    let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    words.join(" ")
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

/// Runs the command without input; what it printed.
///
/// # Errors
///
/// It cannot be started, or fails; the message is the last that it said.
pub(super) fn run(words: &[String]) -> Outcome<String> {
    let failed = |why: String| failures::command_failed(line(words), why);
    let Some((program, args)) = words.split_first() else { return Ok(String::new()) };
    let output = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| failed(error.to_string()))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    if output.status.success() {
        return Ok(out);
    }
    let said = if err.is_empty() { out } else { err };
    Err(failed(format!("{}: {}", output.status, inset(&said))))
}
