//! A program that the bridge starts, and the files that it may access.
//!
//! Must not: look at the file system.

use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::{Secret, Secrets, Written};

/// The variables of proxies and certificates that programs get from the environment of the bridge,
/// if it has them. Without them, a program reaches nothing where this machine has no other way out.
pub const PASSED_ON: [&str; 16] = [
    "HTTPS_PROXY",
    "https_proxy",
    "HTTP_PROXY",
    "http_proxy",
    "ALL_PROXY",
    "all_proxy",
    "NO_PROXY",
    "no_proxy",
    "SSL_CERT_FILE",
    "ssl_cert_file",
    "SSL_CERT_DIR",
    "ssl_cert_dir",
    "NODE_EXTRA_CA_CERTS",
    "node_extra_ca_certs",
    "REQUESTS_CA_BUNDLE",
    "requests_ca_bundle",
];

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

    /// What to write in place of a command line for Windows: `npx -y x` for `cmd /c npx -y x`, and
    /// for `npx.cmd -y x`. Files of other products are written on one system and read on another,
    /// where such a program does not exist.
    pub fn without_windows(&self) -> Option<String> {
        let name = self.command.rsplit(['/', '\\']).next().unwrap_or_default();
        let (stem, extension) = name.rsplit_once('.').unwrap_or((name, ""));
        let args: Vec<String> = self.args.iter().map(ToString::to_string).collect();
        if stem.eq_ignore_ascii_case("cmd")
            && ["", "exe"].iter().any(|ending| ending.eq_ignore_ascii_case(extension))
        {
            let options = args.iter().take_while(|arg| arg.starts_with('/')).count();
            let (options, line) = args.split_at(options);
            let runs =
                options.last().is_some_and(|last| ["/c", "/k", "/C", "/K"].contains(&&**last));
            return match line {
                // All of it in one argument.
                [line] if runs => Some(line.clone()),
                [_, ..] if runs => Some(quoted(line)),
                _ => None,
            };
        }
        if !["cmd", "exe", "bat"].iter().any(|ending| ending.eq_ignore_ascii_case(extension)) {
            return None;
        }
        Some(quoted(&[vec![stem.to_owned()], args].concat()))
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
    all.iter().map(|word| quoted_word(word)).collect::<Vec<_>>().join(" ")
}

fn quoted_word(word: &str) -> String {
    if word.is_empty()
        || word.contains(|c: char| !c.is_alphanumeric() && !"-_./:=@+,%*{}$".contains(c))
    {
        return format!("{word:?}");
    }
    word.to_owned()
}

/// `paths` without those that lie below another of them.
pub fn outermost(paths: impl IntoIterator<Item = PathBuf>) -> Arc<[PathBuf]> {
    let paths: BTreeSet<PathBuf> = paths.into_iter().collect();
    let highest =
        paths.iter().filter(|path| !path.ancestors().skip(1).any(|above| paths.contains(above)));
    highest.cloned().collect()
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

/// When the program of an MCP server runs, and how long it may take to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// From its turn to the end of its handshake.
    pub timeout: Duration,
    /// With a kept catalog, it is started by its first call.
    pub is_lazy: bool,
    /// It is ended when nothing has used it for so long.
    pub idle_stop: Option<Duration>,
}

impl Default for Start {
    /// A first start installs the program: five minutes are enough for a package and its
    /// dependencies on a slow line.
    fn default() -> Self {
        Self { timeout: Duration::from_secs(5 * 60), is_lazy: false, idle_stop: None }
    }
}
