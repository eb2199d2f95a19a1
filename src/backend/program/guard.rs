//! The guard: a process beside the daemon that outlives it for a moment. The daemon reports every
//! process group that it starts, and the mark of its program. When the daemon has died, for
//! whatever reason, the guard kills the groups that are left, and what has one of the marks. The
//! kernel alone would kill the programs (`launcher`), but not the processes that they have started.
//!
//! Must not: kill anything while the daemon lives.

use std::collections::BTreeSet;
use std::io::{BufRead, Write as _};
use std::num::NonZeroI32;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::{fmt, io};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};
use tracing::warn;

use super::orphans;
use super::orphans::Mark;

/// The hidden subcommand of the daemon's binary that calls [`stand`].
pub const SUBCOMMAND: &str = "__guard";

/// The number of a process group.
type Id = NonZeroI32;

/// What the guard is to kill after the daemon's death.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Prey {
    Group(Id),
    /// All processes with this mark.
    Marked(Mark),
}

/// One line to the guard has a sign and this.
impl fmt::Display for Prey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Group(group) => write!(f, "{group}"),
            Self::Marked(mark) => write!(f, "={}", mark.as_str()),
        }
    }
}

impl Prey {
    fn parse(text: &str) -> Option<Self> {
        if let Some(mark) = text.strip_prefix('=') {
            return Mark::parse(mark).map(Self::Marked);
        }
        // 1 is no program of a backend, and -1 would mean every process.
        text.parse().ok().filter(|group: &Id| group.get() > 1).map(Self::Group)
    }
}

/// The groups of this process. Not more than one guard: its end is the process's end. Nothing
/// panics between two steps that belong together.
static GROUPS: Mutex<Groups> = Mutex::new(Groups { living: BTreeSet::new(), guard: None });

/// The living groups and marks, and the guard that knows them.
struct Groups {
    living: BTreeSet<Prey>,
    guard: Option<Guard>,
}

/// The guard as the daemon sees it.
struct Guard {
    binary: PathBuf,
    process: Child,
    /// Its stdin; never waited for.
    line: UnixStream,
}

/// Makes the guard kill `group`, and all that has `mark`, when this process dies. `binary` is the
/// daemon's own.
pub(super) fn add(group: Id, mark: &Mark, binary: &Path) {
    let mut groups = GROUPS.lock();
    let prey = [Prey::Group(group), Prey::Marked(mark.clone())];
    groups.living.extend(prey.clone());
    if groups.guard.is_none() {
        return groups.post(binary.to_owned());
    }
    for one in &prey {
        groups.tell('+', one);
    }
}

/// Undoes [`add`] for `group`: it is gone, and its number may soon belong to another group.
pub(super) fn remove(group: Id) {
    GROUPS.lock().remove(&Prey::Group(group));
}

/// Has the guard forget `mark`, once no process has it.
pub(super) fn forget(mark: &Mark) {
    GROUPS.lock().remove(&Prey::Marked(mark.clone()));
}

impl Groups {
    fn remove(&mut self, prey: &Prey) {
        if self.living.remove(prey) {
            self.tell('-', prey);
        }
    }

    /// Reports a change to the guard. If the guard is dead or does not read, starts another one.
    fn tell(&mut self, sign: char, prey: &Prey) {
        let Some(guard) = &mut self.guard else { return };
        let Err(error) = guard.tell(sign, prey) else { return };
        warn!(%error, "the guard of the programs does not listen: another one takes its place");
        let binary = guard.binary.clone();
        self.guard = None;
        self.post(binary);
    }

    /// Starts a guard and reports all groups to it. Without a guard, programs die with the daemon,
    /// but the processes that they have started may not.
    fn post(&mut self, binary: PathBuf) {
        let guard = Guard::start(binary).and_then(|mut guard| {
            self.living.iter().try_for_each(|prey| guard.tell('+', prey))?;
            Ok(guard)
        });
        match guard {
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
        let mut command = Command::new(&binary);
        command
            .arg(SUBCOMMAND)
            .env_clear()
            .current_dir("/")
            // Signals from a terminal are for the daemon.
            .process_group(0)
            .stdin(OwnedFd::from(stdin))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let process = orphans::start_own(&mut command)?;
        Ok(Self { binary, process, line })
    }

    fn tell(&mut self, sign: char, prey: &Prey) -> io::Result<()> {
        // One write: the socket takes a short line as a whole or not at all.
        self.line.write_all(format!("{sign}{prey}\n").as_bytes())
    }
}

/// Kills the guard before its stdin closes: it would take that for the daemon's end.
impl Drop for Guard {
    fn drop(&mut self) {
        let _ended = self.process.kill().and_then(|()| self.process.wait()).is_ok();
    }
}

/// Stands guard: reads from stdin what there is, until the daemon has died, and kills what is left.
pub fn stand() -> ExitCode {
    let mut marks = BTreeSet::new();
    for prey in living_prey(io::stdin().lock()) {
        match prey {
            Prey::Group(group) => {
                // This fails if the group has ended by itself.
                let group = Pid::from_raw(group.get());
                let _killed = group.map(|group| kill_process_group(group, Signal::KILL).is_ok());
            }
            Prey::Marked(mark) => drop(marks.insert(mark)),
        }
    }
    orphans::kill_marked(&marks);
    ExitCode::SUCCESS
}

/// What is there when `lines` end. A line that was cut off counts for nothing: it may be the
/// beginning of another number.
fn living_prey(mut lines: impl BufRead) -> BTreeSet<Prey> {
    let mut living = BTreeSet::new();
    let mut line = String::new();
    while lines.read_line(&mut line).is_ok() && line.ends_with('\n') {
        if let Some(prey) = line.trim_end().get(1..).and_then(Prey::parse) {
            match line.as_bytes().first() {
                Some(b'+') => living.insert(prey),
                Some(b'-') => living.remove(&prey),
                _ => false,
            };
        }
        line.clear();
    }
    living
}

#[cfg(test)]
mod tests;
