//! The last step before a server's program, run as a process of its own: it asks the kernel to
//! kill the program when the daemon dies, whatever the daemon dies of, lets it inherit stdin, stdout
//! and stderr alone, and becomes the program.
//!
//! Must not: read the configuration, start threads, or write to stdout, which is the program's.

use std::{
    ffi::{OsStr, OsString},
    io::Write as _,
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Command, ExitCode, ExitStatus},
};

/// The hidden subcommand of the daemon's binary that calls [`exec`].
pub const SUBCOMMAND: &str = "__exec";

/// What precedes the process id of the daemon that the program must not outlive.
const PARENT: &str = "--parent=";

/// How the words on stderr begin of a launcher that could not become the program.
const APOLOGY: &str = "mantyx-bridge: ";

/// The exit code for a program that could not be started, as shells have it.
const CANNOT_START: u8 = 127;

/// The arguments after the binary's own name that make it run `program`.
pub(super) fn arguments(program: &Path, args: &[impl AsRef<OsStr>]) -> Vec<OsString> {
    let mut line = vec![
        OsString::from(SUBCOMMAND),
        OsString::from(format!("{PARENT}{}", std::process::id())),
        OsString::from("--"),
        program.as_os_str().to_owned(),
    ];
    line.extend(args.iter().map(|arg| arg.as_ref().to_owned()));
    line
}

/// Whether it was the launcher that ended so, with these words, and not the program.
pub(in crate::backend) fn could_not_start(status: ExitStatus, stderr: &[u8]) -> bool {
    status.code() == Some(CANNOT_START.into()) && stderr.starts_with(APOLOGY.as_bytes())
}

/// Becomes the program that `args`, those after the subcommand, name: `[--parent=PID] -- PROG
/// ARGS...`. Comes back only where that failed, and has then said why on stderr.
///
/// Call it before any thread is started: the signal is bound to the calling thread's parent.
pub fn exec(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let why = match Order::read(args) {
        Ok(order) => order.follow(),
        Err(why) => why.to_owned(),
    };
    // With stderr closed there is nobody to tell; the exit code says it.
    drop(writeln!(std::io::stderr(), "{APOLOGY}{why}"));
    ExitCode::from(CANNOT_START)
}

/// What to run.
#[derive(Debug, PartialEq, Eq)]
struct Order {
    parent: Option<u32>,
    program: OsString,
    args: Vec<OsString>,
}

impl Order {
    fn read(args: impl IntoIterator<Item = OsString>) -> Result<Self, &'static str> {
        const USAGE: &str = "this subcommand is internal: __exec [--parent=PID] -- PROGRAM ARGS";
        let mut args = args.into_iter();
        let mut parent = None;
        loop {
            let arg = args.next().ok_or(USAGE)?;
            if arg == OsStr::new("--") {
                break;
            }
            let pid = arg.to_str().and_then(|arg| arg.strip_prefix(PARENT)).ok_or(USAGE)?;
            parent = Some(pid.parse().ok().ok_or(USAGE)?);
        }
        Ok(Self { parent, program: args.next().ok_or(USAGE)?, args: args.collect() })
    }

    /// Comes back with what went wrong.
    fn follow(self) -> String {
        if let Err(error) = die_with_parent() {
            return format!("cannot bind the program's life to the daemon's: {error}");
        }
        // The daemon may have died before the kernel was asked.
        if self.parent.is_some_and(|parent| parent != std::os::unix::process::parent_id()) {
            return "the daemon that wanted the program has ended".to_owned();
        }
        // What the daemon itself inherited from whoever started it is not the program's either.
        close_fds::set_fds_cloexec(3, &[]);
        let error = Command::new(&self.program).args(self.args).exec();
        format!("cannot start {}: {error}", self.program.display())
    }
}

#[cfg(target_os = "linux")]
fn die_with_parent() -> std::io::Result<()> {
    use rustix::process::{Signal, set_parent_process_death_signal};
    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// Other systems have no such request; there, a server ends when its stdin does.
#[cfg(not(target_os = "linux"))]
fn die_with_parent() -> std::io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests;
