//! A program that the bridge starts, and the files that it may access.
//!
//! Must not: look at the file system.

use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Secret, Secrets, Written};

/// A program that is started without a shell.
#[derive(Debug, Clone)]
pub struct Program {
    /// A bare name is searched for in PATH.
    pub command: String,
    pub args: Vec<Written<String>>,
    /// Its environment, besides the few variables that every program gets.
    pub env: BTreeMap<String, Secret>,
    pub cwd: Option<PathBuf>,
    pub sandbox: ProgramSandbox,
    /// The bridge's own files and directories, which the program must not read. Absolute, in order,
    /// and none of them below another.
    pub hidden: Arc<[PathBuf]>,
    /// The secrets that it must not repeat into the log or into errors.
    pub secrets: Arc<Secrets>,
}

// Destructured, so that the compiler finds a new field.
impl PartialEq for Program {
    fn eq(&self, other: &Self) -> bool {
        // A change of another backend's secret is no reason to restart the program.
        let Self { command, args, env, cwd, sandbox, hidden, secrets: _ } = self;
        (command, args, env, cwd) == (&other.command, &other.args, &other.env, &other.cwd)
            && (sandbox, hidden) == (&other.sandbox, &other.hidden)
    }
}

impl Program {
    /// Its name and its arguments, as they may be shown.
    pub fn argv(&self) -> Vec<String> {
        let args = self.args.iter().map(ToString::to_string);
        iter::once(self.command.clone()).chain(args).collect()
    }

    /// The same as a reader can type it. The bridge itself uses no shell.
    pub fn command_line(&self) -> String {
        quoted(&self.argv())
    }

    /// Adds `path` to the files that the program must not read.
    pub fn hide(&mut self, path: PathBuf) {
        if !self.hidden.iter().any(|hidden| path.starts_with(hidden)) {
            self.hidden = outermost(self.hidden.iter().cloned().chain([path]));
        }
    }
}

/// `all` in one line, with quotes around one that a reader could not tell from the next.
pub fn quoted(all: &[String]) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:=@+,%*{}$".contains(c);
    let quoted = |one: &String| match !one.is_empty() && one.chars().all(plain) {
        true => one.clone(),
        false => format!("{one:?}"),
    };
    all.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// `paths` without those that lie below another of them.
pub fn outermost(paths: impl IntoIterator<Item = PathBuf>) -> Arc<[PathBuf]> {
    let paths: BTreeSet<PathBuf> = paths.into_iter().collect();
    let below = |path: &Path| path.ancestors().skip(1).any(|above| paths.contains(above));
    paths.iter().filter(|path| !below(path)).cloned().collect()
}

/// How a program is kept from files that the daemon's user may read (`backend::program`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ProgramSandbox {
    /// The bridge's own files are hidden from it by mounts, if the system allows that.
    #[default]
    Masked,
    /// The program may read all files of the daemon's user.
    Off,
    /// Landlock keeps it from the bridge's own files, and from new files on the way to them.
    Secrets,
    /// Landlock keeps it from every file that is not listed.
    Listed(Confinement),
}

/// The files that a sandboxed program may access, besides those that it needs to run at all
/// (`backend::program::confine`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Confinement {
    /// Files and directories, with everything below them, to read and to run.
    pub read: Vec<PathBuf>,
    /// The same, also to change.
    pub write: Vec<PathBuf>,
}
