//! The guard: a process beside the daemon that outlives it for a moment. The daemon reports every
//! process group that it starts. When the daemon has died, for whatever reason, the guard kills the
//! groups that are left. The kernel alone would kill the programs (`launcher`), but not the
//! processes that they have started.
//!
//! Must not: kill anything while the daemon lives.

use std::collections::BTreeSet;
use std::io;
use std::io::{BufRead, Write as _};
use std::num::NonZeroI32;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};
use tracing::warn;

/// The hidden subcommand of the daemon's binary that calls [`stand`].
pub const SUBCOMMAND: &str = "__guard";

/// The number of a process group.
type Id = NonZeroI32;

/// The groups of this process. Not more than one guard: its end is the process's end. Nothing panics
/// between two steps that belong together.
static GROUPS: Mutex<Groups> = Mutex::new(Groups { living: BTreeSet::new(), guard: None });

/// The living groups, and the guard that knows them.
struct Groups {
    living: BTreeSet<Id>,
    guard: Option<Guard>,
}

/// The guard as the daemon sees it.
struct Guard {
    binary: PathBuf,
    process: Child,
    /// Its stdin; never waited for.
    line: UnixStream,
}

/// Makes the guard kill `group` when this process dies. `binary` is the daemon's own.
pub(super) fn add(group: Id, binary: &Path) {
    let mut groups = GROUPS.lock();
    groups.living.insert(group);
    match &groups.guard {
        Some(_) => groups.tell('+', group),
        None => groups.post(binary.to_owned()),
    }
}

/// Undoes [`add`]: `group` is gone, and its number may soon belong to another group.
pub(super) fn remove(group: Id) {
    let mut groups = GROUPS.lock();
    if groups.living.remove(&group) {
        groups.tell('-', group);
    }
}

impl Groups {
    /// Reports a change to the guard. If the guard is dead or does not read, starts another one.
    fn tell(&mut self, sign: char, group: Id) {
        let Some(guard) = &mut self.guard else { return };
        let Err(error) = guard.tell(sign, group) else { return };
        warn!(%error, "the guard of the programs does not listen: another one takes its place");
        let binary = guard.binary.clone();
        self.guard = None;
        self.post(binary);
    }

    /// Starts a guard and reports all groups to it. Without a guard, programs die with the daemon,
    /// but the processes that they have started may not.
    fn post(&mut self, binary: PathBuf) {
        let told = Guard::start(binary).and_then(|mut guard| {
            self.living.iter().try_for_each(|group| guard.tell('+', *group))?;
            Ok(guard)
        });
        match told {
            Ok(guard) => self.guard = Some(guard),
            Err(error) => warn!(
                %error,
                "no guard could be started: if the bridge is killed, what programs have started \
                 may outlive it"
            ),
        }
    }
}

impl Guard {
    fn start(binary: PathBuf) -> io::Result<Self> {
        let (line, stdin) = UnixStream::pair()?;
        line.set_nonblocking(true)?;
        let process = Command::new(&binary)
            .arg(SUBCOMMAND)
            .env_clear()
            .current_dir("/")
            // Signals from a terminal are for the daemon.
            .process_group(0)
            .stdin(OwnedFd::from(stdin))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self { binary, process, line })
    }

    fn tell(&mut self, sign: char, group: Id) -> io::Result<()> {
        // One write: the socket takes a short line as a whole or not at all.
        self.line.write_all(format!("{sign}{group}\n").as_bytes())
    }
}

/// Kills the guard before its stdin closes: it would take that for the daemon's end.
impl Drop for Guard {
    fn drop(&mut self) {
        let _ended = self.process.kill().and_then(|()| self.process.wait()).is_ok();
    }
}

/// Stands guard: reads from stdin which groups there are, until the daemon has died, and kills those
/// that are left.
pub fn stand() -> ExitCode {
    for group in left(io::stdin().lock()) {
        // This fails if the group has ended by itself.
        let group = Pid::from_raw(group.get());
        let _killed = group.map(|group| kill_process_group(group, Signal::KILL).is_ok());
    }
    ExitCode::SUCCESS
}

/// The groups that are there when `lines` end. A line that was cut off counts for nothing: it may be
/// the beginning of another number.
fn left(mut lines: impl BufRead) -> BTreeSet<Id> {
    let mut groups = BTreeSet::new();
    let mut line = String::new();
    while lines.read_line(&mut line).is_ok() && line.ends_with('\n') {
        let group = line.trim_end().get(1..).and_then(|id| id.parse::<Id>().ok());
        // 1 is no program of a backend, and -1 would mean every process.
        if let Some(group) = group.filter(|group| group.get() > 1) {
            match line.as_bytes().first() {
                Some(b'+') => groups.insert(group),
                Some(b'-') => groups.remove(&group),
                _ => false,
            };
        }
        line.clear();
    }
    groups
}

#[cfg(test)]
mod tests;
