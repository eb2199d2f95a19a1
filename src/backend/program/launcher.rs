//! The last step before a server's program, run as a process of its own. It asks the kernel to kill
//! the program when the daemon dies, for whatever reason. It lets the program inherit stdin, stdout
//! and stderr alone, and hides the bridge's files from it or sandboxes it. Then it becomes the
//! program.
//!
//! Must not: read the configuration, start threads, or write to stdout, which is the program's.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};

use clap::Parser;
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::{CapabilitySet, set_no_new_privs};

use super::hiding::Hidden;
use super::{confine, mask, powers};
use crate::config::{Confinement, Program, ProgramSandbox};
use crate::descriptors;

/// The hidden subcommand of the daemon's binary that calls [`exec`].
pub const SUBCOMMAND: &str = "__exec";

/// The beginning of the launcher's error on stderr if it could not become the program.
const APOLOGY: &str = "mantyx-bridge: ";

/// The exit code for a program that could not be started, as shells have it.
const CANNOT_START: u8 = 127;

/// The arguments after the binary's own name that make it run `program`, which is the file `file`,
/// without what is `hidden` from it.
pub(super) fn arguments(file: &Path, program: &Program, hidden: &Hidden) -> Vec<OsString> {
    let parent = format!("--parent={}", std::process::id());
    let mut line = vec![OsString::from(SUBCOMMAND), parent.into()];
    if let Some(files) = descriptors::started_with() {
        line.push(format!("--files={files}").into());
    }
    if let Some(masks) = &hidden.masks {
        line.push("--masked".into());
        line.extend(masks.iter().map(|path| option("--mask=", path)));
    }
    line.extend(hidden.forbidden.iter().map(|path| option("--forbid=", path)));
    if let ProgramSandbox::Listed(Confinement { read, write }) = &program.sandbox {
        line.push("--sandbox".into());
        line.extend(read.iter().map(|path| option("--read=", path)));
        line.extend(write.iter().map(|path| option("--write=", path)));
    }
    line.push("--".into());
    line.push(file.as_os_str().to_owned());
    line.extend(program.args.iter().map(|arg| OsStr::new(arg.as_str()).to_owned()));
    line
}

/// The arguments that tell, by the exit code, whether this system lets anything be masked. The
/// program that would be run is the binary itself.
pub(super) fn probe(binary: &Path) -> Vec<OsString> {
    vec![SUBCOMMAND.into(), "--masked".into(), "--".into(), binary.into(), "--version".into()]
}

/// The launcher's own error on stderr, after it could not become a program.
pub(super) fn apology(stderr: &[u8]) -> String {
    let said = String::from_utf8_lossy(stderr);
    said.trim().strip_prefix(APOLOGY).unwrap_or("it ended without a reason").to_owned()
}

/// What the launcher says in this line of stderr, if it is the launcher's.
pub(in crate::backend) fn apology_in(line: &str) -> Option<&str> {
    line.strip_prefix(APOLOGY)
}

fn option(name: &str, path: &Path) -> OsString {
    let mut option = OsString::from(name);
    option.push(path);
    option
}

/// Whether the launcher ended with this status and stderr, and not the program.
pub(in crate::backend) fn could_not_start(status: ExitStatus, stderr: &[u8]) -> bool {
    status.code() == Some(CANNOT_START.into()) && stderr.starts_with(APOLOGY.as_bytes())
}

/// Becomes the program that `args`, those after the subcommand, name ([`Order`]). Comes back only
/// where that failed, and has then said why on stderr.
///
/// Call it before any thread is started: the signal is bound to the calling thread's parent.
pub fn exec(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let order = Order::try_parse_from(args).map_err(|error| error.to_string());
    let Err(why) = order.and_then(Order::follow);
    // If stderr is closed, the exit code alone reports the failure.
    drop(writeln!(std::io::stderr(), "{APOLOGY}{why}"));
    ExitCode::from(CANNOT_START)
}

/// What to run.
#[derive(Debug, PartialEq, Eq, Parser)]
#[command(name = SUBCOMMAND, no_binary_name = true, disable_help_flag = true)]
struct Order {
    /// The process id of the daemon that the program must not outlive
    #[arg(long)]
    parent: Option<u32>,
    /// The number of files that the program may have open
    #[arg(long)]
    files: Option<u64>,
    /// The program gets mounts of its own
    #[arg(long)]
    masked: bool,
    /// A path that is hidden there
    #[arg(long, requires = "masked")]
    mask: Vec<PathBuf>,
    /// A path that Landlock keeps the program from
    #[arg(long)]
    forbid: Vec<PathBuf>,
    /// The program is sandboxed by Landlock
    #[arg(long)]
    sandbox: bool,
    /// A path that the sandboxed program may read
    #[arg(long, requires = "sandbox")]
    read: Vec<PathBuf>,
    /// A path that it may write
    #[arg(long, requires = "sandbox")]
    write: Vec<PathBuf>,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    line: Vec<OsString>,
}

impl Order {
    /// Comes back only with what went wrong.
    fn follow(self) -> Result<Infallible, String> {
        die_with_parent()?;
        // The daemon may have died before the kernel was asked.
        if self.parent.is_some_and(|parent| parent != std::os::unix::process::parent_id()) {
            return Err("the daemon that wanted the program has ended".to_owned());
        }
        // Descriptors that the daemon itself inherited must not reach the program either.
        close_fds::set_fds_cloexec(3, &[]);
        if let Some(files) = self.files {
            descriptors::give_back(files);
        }
        let (program, args) = self.line.split_first().ok_or("there is no program to start")?;
        self.shut_in(program)?;
        // Ask again: a change of the process's privileges can clear the request.
        die_with_parent()?;
        let error = Command::new(program).args(args).exec();
        Err(format!("cannot start {}: {error}", program.display()))
    }

    /// Takes from the process what `program` must not have.
    fn shut_in(&self, program: &OsStr) -> Result<(), String> {
        if self.masked {
            mask::enter(&self.mask)?;
        }
        if self.sandbox || !self.forbid.is_empty() {
            // Some capabilities override Landlock, such as to inspect other processes.
            set_no_new_privs(true)
                .map_err(|error| format!("cannot renounce privileges: {error}"))?;
            powers::keep(CapabilitySet::empty())?;
        }
        if !self.forbid.is_empty() {
            confine::forbid(&self.forbid)?;
        }
        if self.sandbox {
            let lists = Confinement { read: self.read.clone(), write: self.write.clone() };
            confine::enter(&lists, program)?;
        }
        Ok(())
    }
}

fn die_with_parent() -> Result<(), String> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| format!("cannot bind the program's life to the daemon's: {error}"))
}

#[cfg(test)]
mod tests;
