//! Child processes of the tests: each in a group of its own, its output in a file, killed with its
//! whole group when the guard drops.
//!
//! Must not: find processes by name. Only ids of children that this guard started are signalled.

use std::{
    fs::{self, File},
    os::unix::process::{CommandExt as _, ExitStatusExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::wait;

/// A running child and its group.
#[derive(Debug)]
pub(crate) struct Group {
    child: Child,
    log: PathBuf,
    reaped: Option<ExitStatus>,
}

impl Group {
    /// Starts `command`, with stdout and stderr appended to `log`.
    pub(crate) fn spawn(command: &mut Command, log: &Path) -> Self {
        let file = File::options().create(true).append(true).open(log);
        let file = file.expect("the log is in a directory of the test");
        let errors = file.try_clone().expect("a file can be opened twice");
        command.stdin(Stdio::null()).stdout(file).stderr(errors).process_group(0);
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Self { child, log: log.into(), reaped: None }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn log(&self) -> String {
        fs::read(&self.log)
            .map_or_else(|_| String::new(), |bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The exit status, once there is one.
    pub(crate) fn exited(&mut self) -> Option<ExitStatus> {
        if self.reaped.is_none() {
            self.reaped = self.child.try_wait().expect("the child is ours to wait for");
        }
        self.reaped
    }

    /// Sends `signal` to the child alone.
    pub(crate) fn signal(&mut self, signal: Signal) {
        if self.exited().is_none() {
            kill_process(self.pid(), signal).expect("a child that was not reaped can be signalled");
        }
    }

    /// Kills the child alone, as an operator's `kill -9` does, and waits for its end.
    pub(crate) fn kill9(&mut self) {
        self.signal(Signal::KILL);
        self.reap();
    }

    /// Waits for the child's own end.
    pub(crate) async fn ended(&mut self, deadline: Duration) -> ExitStatus {
        wait::until("the process should end", deadline, async || self.exited()).await
    }

    fn reap(&mut self) {
        if self.reaped.is_none() {
            self.reaped = self.child.wait().ok();
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.exited().is_none() {
            // The group exists as long as its leader is not reaped, so the id is still ours.
            kill_process_group(self.pid(), Signal::KILL).ok();
            self.reap();
        }
    }
}

/// How a process ended, in words.
pub(crate) fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}

/// The ids of all processes whose environment holds `mark`, `own` left out.
pub(crate) fn marked(mark: &str, own: Option<Pid>) -> Vec<Pid> {
    let own = own.map(Pid::as_raw_nonzero);
    let entries = fs::read_dir("/proc").expect("the tests run on Linux");
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(Pid::from_raw)
        .filter(|pid| Some(pid.as_raw_nonzero()) != own)
        .filter(|pid| {
            let path = format!("/proc/{}/environ", pid.as_raw_nonzero());
            // A process that ended meanwhile, or that belongs to someone else, is none of ours.
            let environment = fs::read(path).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|entry| entry == mark.as_bytes())
        })
        .collect()
}

/// The resident memory of a process in bytes.
pub(crate) fn resident(pid: Pid) -> u64 {
    memory(pid, "VmRSS:")
}

/// The most that it ever was.
pub(crate) fn most_resident(pid: Pid) -> u64 {
    memory(pid, "VmHWM:")
}

fn memory(pid: Pid, name: &str) -> u64 {
    let path = format!("/proc/{}/status", pid.as_raw_nonzero());
    let status = fs::read_to_string(path).expect("the process should be alive");
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.expect("a live process has a resident size") * 1024
}
