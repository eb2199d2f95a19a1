//! The last step before a server's program, run as a process of its own. It asks the kernel to kill
//! the program when the daemon dies, for whatever reason. It lets the program inherit stdin, stdout
//! and stderr alone, and hides the bridge's files from it or sandboxes it. Then it becomes the
//! program.
//!
//! Must not: read the configuration, start threads, or write to stdout, which is the program's.

use std::{
    convert::Infallible,
    ffi::{OsStr, OsString},
    io::Write as _,
    os::unix::{ffi::OsStrExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Command, ExitCode, ExitStatus},
};

use rustix::{
    process::{Signal, set_parent_process_death_signal},
    thread::{CapabilitySet, set_no_new_privs},
};

use super::{confine, hiding::Kept, mask, powers};
use crate::{
    config::{Confinement, Program, ProgramSandbox},
    descriptors,
};

/// The hidden subcommand of the daemon's binary that calls [`exec`].
pub const SUBCOMMAND: &str = "__exec";

/// What precedes the process id of the daemon that the program must not outlive.
const PARENT: &str = "--parent=";

/// What precedes the number of files that the program may have open.
const FILES: &str = "--files=";

/// Says that the program gets mounts of its own.
const MASKED: &str = "--masked";

/// What precedes a path that is hidden there.
const MASK: &str = "--mask=";

/// What precedes a path that Landlock keeps the program from.
const FORBID: &str = "--forbid=";

/// Says that the program is sandboxed by Landlock.
const SHUT_IN: &str = "--sandbox";

/// What precedes a path that the sandboxed program may read, or write.
const READ: &str = "--read=";
const WRITE: &str = "--write=";

/// The beginning of the launcher's error on stderr if it could not become the program.
const APOLOGY: &str = "mantyx-bridge: ";

/// The exit code for a program that could not be started, as shells have it.
const CANNOT_START: u8 = 127;

/// The arguments after the binary's own name that make it run `program`, which is the file `file`,
/// without what is `kept` from it.
pub(super) fn arguments(file: &Path, program: &Program, kept: &Kept) -> Vec<OsString> {
    let mut line =
        vec![OsString::from(SUBCOMMAND), OsString::from(format!("{PARENT}{}", std::process::id()))];
    if let Some(files) = descriptors::started_with() {
        line.push(format!("{FILES}{files}").into());
    }
    if let Some(masks) = &kept.masks {
        line.push(MASKED.into());
        line.extend(masks.iter().map(|path| option(MASK, path)));
    }
    line.extend(kept.forbidden.iter().map(|path| option(FORBID, path)));
    if let ProgramSandbox::Listed(Confinement { read, write }) = &program.sandbox {
        line.push(SHUT_IN.into());
        line.extend(read.iter().map(|path| option(READ, path)));
        line.extend(write.iter().map(|path| option(WRITE, path)));
    }
    line.push("--".into());
    line.push(file.as_os_str().to_owned());
    line.extend(program.args.iter().map(|arg| OsStr::new(arg.as_str()).to_owned()));
    line
}

/// The arguments that tell, by the exit code, whether this system lets anything be masked. The
/// program that would be run is the binary itself.
pub(super) fn probe(binary: &Path) -> Vec<OsString> {
    [SUBCOMMAND, MASKED, "--"]
        .map(OsString::from)
        .into_iter()
        .chain([binary.into(), "--version".into()])
        .collect()
}

/// The launcher's own error on stderr, after it could not become a program.
pub(super) fn apology(stderr: &[u8]) -> String {
    let said = String::from_utf8_lossy(stderr);
    said.trim().strip_prefix(APOLOGY).unwrap_or("it ended without a reason").to_owned()
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

/// Becomes the program that `args`, those after the subcommand, name: `[--parent=PID] [--files=N]
/// [--masked [--mask=PATH]...] [--forbid=PATH]... [--sandbox [--read=PATH]... [--write=PATH]...] --
/// PROG ARGS...`. Comes back only where that failed, and has then said why on stderr.
///
/// Call it before any thread is started: the signal is bound to the calling thread's parent.
pub fn exec(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let Err(why) = Order::read(args).map_err(str::to_owned).and_then(Order::follow);
    // If stderr is closed, the exit code alone reports the failure.
    drop(writeln!(std::io::stderr(), "{APOLOGY}{why}"));
    ExitCode::from(CANNOT_START)
}

/// What to run.
#[derive(Debug, PartialEq, Eq)]
struct Order {
    parent: Option<u32>,
    files: Option<u64>,
    masks: Option<Vec<PathBuf>>,
    forbidden: Vec<PathBuf>,
    sandbox: Option<Confinement>,
    program: OsString,
    args: Vec<OsString>,
}

impl Order {
    fn read(args: impl IntoIterator<Item = OsString>) -> Result<Self, &'static str> {
        const USAGE: &str = "this subcommand is internal: __exec [--parent=PID] [--files=N] \
                             [--masked [--mask=PATH]...] [--forbid=PATH]... [--sandbox [--read=PATH]... [--write=PATH]...] -- PROGRAM ARGS";
        let mut args = args.into_iter();
        let mut parent = None;
        let mut files = None;
        let mut masks = None::<Vec<PathBuf>>;
        let mut forbidden = Vec::new();
        let mut sandbox = None;
        loop {
            let arg = args.next().ok_or(USAGE)?;
            if arg == OsStr::new("--") {
                break;
            }
            if arg == OsStr::new(SHUT_IN) {
                sandbox.get_or_insert_with(Confinement::default);
            } else if arg == OsStr::new(MASKED) {
                masks.get_or_insert_default();
            } else if let Some(path) = value(&arg, MASK) {
                masks.as_mut().ok_or(USAGE)?.push(path);
            } else if let Some(path) = value(&arg, FORBID) {
                forbidden.push(path);
            } else if let Some(path) = value(&arg, READ) {
                sandbox.as_mut().ok_or(USAGE)?.read.push(path);
            } else if let Some(path) = value(&arg, WRITE) {
                sandbox.as_mut().ok_or(USAGE)?.write.push(path);
            } else if let Some(number) = arg.to_str().and_then(|arg| arg.strip_prefix(FILES)) {
                files = Some(number.parse().ok().ok_or(USAGE)?);
            } else {
                let pid = arg.to_str().and_then(|arg| arg.strip_prefix(PARENT)).ok_or(USAGE)?;
                parent = Some(pid.parse().ok().ok_or(USAGE)?);
            }
        }
        let program = args.next().ok_or(USAGE)?;
        let args = args.collect();
        Ok(Self { parent, files, masks, forbidden, sandbox, program, args })
    }

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
        self.shut_in()?;
        // Ask again: a change of the process's privileges can clear the request.
        die_with_parent()?;
        let error = Command::new(&self.program).args(self.args).exec();
        Err(format!("cannot start {}: {error}", self.program.display()))
    }

    /// Takes from the process what the program must not have.
    fn shut_in(&self) -> Result<(), String> {
        if let Some(masks) = &self.masks {
            mask::enter(masks)?;
        }
        if self.sandbox.is_some() || !self.forbidden.is_empty() {
            // Some capabilities override Landlock, such as to inspect other processes.
            set_no_new_privs(true)
                .map_err(|error| format!("cannot renounce privileges: {error}"))?;
            powers::keep(CapabilitySet::empty())?;
        }
        if !self.forbidden.is_empty() {
            confine::forbid(&self.forbidden)?;
        }
        match &self.sandbox {
            Some(sandbox) => confine::enter(sandbox, &self.program),
            None => Ok(()),
        }
    }
}

/// The path behind an option's name.
fn value(arg: &OsStr, name: &str) -> Option<PathBuf> {
    let path = arg.as_bytes().strip_prefix(name.as_bytes())?;
    Some(OsStr::from_bytes(path).into())
}

fn die_with_parent() -> Result<(), String> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| format!("cannot bind the program's life to the daemon's: {error}"))
}

#[cfg(test)]
mod tests;
