//! Turns to start programs. Sixteen servers that need five seconds of a processor each are ready
//! one after the other; started at once on two cores, all of them take so long that all are given
//! up.
//!
//! A [`Turn`] has two parts. Its *place* is one of a few that there are at a time: it is given back
//! after a while even if the program still starts, so that a silent program holds up no other. Its
//! *keys* are held until the start has ended: two `npx` of one package damage their cache, and an
//! entry that a reload changes must not run twice.
//!
//! Must not: start a program, or know how long a start may take.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::config::Program;
use crate::model::BackendName;

/// How many programs start at once on a machine with one core.
const LEAST_PLACES: usize = 2;
/// How long a start holds its place: one that is silent for longer does not hold up those behind
/// it.
pub const PLACE: Duration = Duration::from_secs(45);

/// Decides which programs may start now. All programs of a process share one.
#[derive(Debug)]
pub struct Turns {
    queue: Mutex<Queue>,
}

/// What must not be started twice at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartKeys {
    pub backend: BackendName,
    /// The package that a launcher such as `npx` would install; `None` if the program is no
    /// launcher.
    pub package: Option<String>,
}

/// The order of those that wait: what a call waits for, what the operator requires, what has not
/// failed yet, then the place in the file. A program that fails at each start would otherwise take
/// a turn after each short wait, before those behind it in the file have had their first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    is_unwanted: bool,
    is_optional: bool,
    has_failed: bool,
    place: usize,
}

impl Rank {
    /// The rank of a backend that no call waits for. `place` is its place in bridge.yaml.
    pub fn new(required: bool, place: usize) -> Self {
        Self { is_unwanted: true, is_optional: !required, has_failed: false, place }
    }

    /// This rank for a program whose last start has failed.
    pub fn after_failure(self) -> Self {
        Self { has_failed: true, ..self }
    }

    /// This rank, now that a call waits for the backend.
    fn wanted(self) -> Self {
        Self { is_unwanted: false, ..self }
    }
}

/// A place in the queue. Its drop leaves the queue.
#[derive(Debug)]
pub struct Waiting {
    turns: Arc<Turns>,
    id: u64,
    granted: oneshot::Receiver<()>,
}

/// The right to start a program. Its drop ends the turn.
#[derive(Debug)]
pub struct Turn {
    turns: Arc<Turns>,
    id: u64,
}

impl Turns {
    /// As many places as the machine has cores, and at least two: most of a start is waiting for
    /// the network and the disk.
    pub fn for_this_machine() -> Arc<Self> {
        let cores = available_parallelism().map_or(LEAST_PLACES, usize::from);
        Self::with_places(cores.max(LEAST_PLACES))
    }

    fn with_places(places: usize) -> Arc<Self> {
        let queue = Queue { places, last: 0, entries: BTreeMap::new() };
        Arc::new(Self { queue: Mutex::new(queue) })
    }

    /// Joins the queue.
    pub fn join(self: &Arc<Self>, keys: StartKeys, rank: Rank) -> Waiting {
        let (grant, granted) = oneshot::channel();
        let id = {
            let mut queue = self.queue.lock();
            let id = queue.join(keys, rank, grant);
            queue.advance();
            id
        };
        Waiting { turns: Arc::clone(self), id, granted }
    }

    fn leave(&self, id: u64) {
        let mut queue = self.queue.lock();
        queue.entries.remove(&id);
        queue.advance();
    }
}

impl Waiting {
    /// Moves it before all that no call waits for.
    pub fn hurry(&self) {
        let mut queue = self.turns.queue.lock();
        if let Some(entry) = queue.entries.get_mut(&self.id) {
            entry.rank = entry.rank.wanted();
        }
    }

    /// Waits for the turn. Dropping the future loses nothing.
    pub async fn granted(&mut self) -> Turn {
        // The sender is in the queue until `self` is dropped.
        drop((&mut self.granted).await);
        // The turn takes the entry over: from now on `self` has none to remove.
        let id = std::mem::take(&mut self.id);
        Turn { turns: Arc::clone(&self.turns), id }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.turns.leave(self.id);
    }
}

impl Turn {
    /// Does `work`, whose beginning is the start of a program, in this turn.
    pub async fn during<T>(self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        tokio::select! {
            done = &mut work => return done,
            () = sleep(PLACE) => self.give_place_back(),
        }
        work.await
    }

    /// Gives the place to the next program. The keys stay with this turn.
    pub fn give_place_back(&self) {
        let mut queue = self.turns.queue.lock();
        if let Some(entry) = queue.entries.get_mut(&self.id) {
            entry.stage = Stage::Starting { has_place: false };
        }
        queue.advance();
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.leave(self.id);
    }
}

/// Those that wait and those that start, by their order of arrival.
#[derive(Debug)]
struct Queue {
    places: usize,
    /// The last id; none is 0.
    last: u64,
    entries: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    keys: StartKeys,
    rank: Rank,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Waiting(oneshot::Sender<()>),
    Starting { has_place: bool },
}

impl Queue {
    fn join(&mut self, keys: StartKeys, rank: Rank, grant: oneshot::Sender<()>) -> u64 {
        self.last += 1;
        self.entries.insert(self.last, Entry { keys, rank, stage: Stage::Waiting(grant) });
        self.last
    }

    /// Gives free places to those that may start, the first in order first. One whose keys are
    /// taken does not hold up those behind it.
    fn advance(&mut self) {
        while self.has_free_place() {
            let startable = self.entries.iter().filter(|(_, entry)| self.may_start(entry));
            let Some(id) =
                startable.min_by_key(|(id, entry)| (entry.rank, **id)).map(|(id, _)| *id)
            else {
                return;
            };
            let Some(entry) = self.entries.get_mut(&id) else { return };
            let stage = std::mem::replace(&mut entry.stage, Stage::Starting { has_place: true });
            if let Stage::Waiting(grant) = stage {
                // If the receiver is being dropped, its drop ends this turn.
                let _received = grant.send(()).is_ok();
            }
        }
    }

    fn has_free_place(&self) -> bool {
        let entries = self.entries.values();
        entries.filter(|entry| matches!(entry.stage, Stage::Starting { has_place: true })).count()
            < self.places
    }

    fn may_start(&self, entry: &Entry) -> bool {
        matches!(entry.stage, Stage::Waiting(_))
            && !self.entries.values().any(|other| {
                matches!(other.stage, Stage::Starting { .. }) && entry.keys.clash(&other.keys)
            })
    }
}

impl StartKeys {
    pub fn new(backend: BackendName, program: &Program) -> Self {
        let args = program.args.iter().map(|arg| arg.as_str());
        Self { backend, package: package(&program.command, args) }
    }

    fn clash(&self, other: &Self) -> bool {
        let same_package = self.package.is_some() && self.package == other.package;
        self.backend == other.backend || same_package
    }
}

/// A launcher that installs a package before it runs it.
struct Launcher {
    command: &'static str,
    /// The words between the command and its options, such as `dlx`.
    subcommand: &'static [&'static str],
    /// The options that take the package as their value.
    package: &'static [&'static str],
    /// Other options that take a value.
    with_value: &'static [&'static str],
}

const LAUNCHERS: [Launcher; 8] = [
    Launcher {
        command: "npx",
        subcommand: &[],
        package: &["-p", "--package"],
        with_value: &["-c", "--call", "-w", "--workspace", "--prefix", "--cache", "--registry"],
    },
    Launcher {
        command: "npm",
        subcommand: &["exec"],
        package: &["-p", "--package"],
        with_value: &["-c", "--call", "-w", "--workspace", "--prefix", "--cache", "--registry"],
    },
    Launcher {
        command: "pnpm",
        subcommand: &["dlx"],
        package: &["--package"],
        with_value: &["--dir", "-C", "--registry"],
    },
    Launcher {
        command: "yarn",
        subcommand: &["dlx"],
        package: &["-p", "--package"],
        with_value: &[],
    },
    Launcher { command: "bunx", subcommand: &[], package: &["-p", "--package"], with_value: &[] },
    Launcher { command: "uvx", subcommand: &[], package: &["--from"], with_value: UV_OPTIONS },
    Launcher {
        command: "uv",
        subcommand: &["tool", "run"],
        package: &["--from"],
        with_value: UV_OPTIONS,
    },
    Launcher {
        command: "pipx",
        subcommand: &["run"],
        package: &["--spec"],
        with_value: &["--python", "--index-url", "-i", "--pip-args"],
    },
];

const UV_OPTIONS: &[&str] = &[
    "--with",
    "--with-editable",
    "--with-requirements",
    "-p",
    "--python",
    "-i",
    "--index",
    "--index-url",
    "--default-index",
    "--extra-index-url",
    "-f",
    "--find-links",
    "--cache-dir",
    "--directory",
    "--project",
    "--config-file",
    "--env-file",
];

/// The launcher and the package of a command line, without the package's version: another version
/// shares the cache's lock files. `None` if the command is no launcher.
fn package<'a>(command: &str, args: impl Iterator<Item = &'a str>) -> Option<String> {
    let file_name = command.rsplit('/').next()?;
    let name = file_name.strip_suffix(".cmd").unwrap_or(file_name);
    let mut args = args.peekable();
    let launcher = LAUNCHERS.iter().find(|launcher| launcher.command == name)?;
    for word in launcher.subcommand {
        if args.next()? != *word {
            return None;
        }
    }
    while let Some(arg) = args.next() {
        let (option, value) = match arg.split_once('=') {
            Some((option, value)) if arg.starts_with('-') => (option, Some(value)),
            _ => (arg, None),
        };
        if launcher.package.contains(&option) {
            let package = value.or_else(|| args.next())?;
            return Some(format!("{name} {}", without_version(package)));
        }
        if !arg.starts_with('-') {
            return Some(format!("{name} {}", without_version(arg)));
        }
        if value.is_none() && launcher.with_value.contains(&option) {
            args.next();
        }
    }
    None
}

/// `@scope/name@1.2` is `@scope/name`, and `name==1.2` is `name`.
fn without_version(package: &str) -> &str {
    let scope = usize::from(package.starts_with('@'));
    let unscoped = package.split_at(scope).1;
    let end = unscoped.find(['@', '=', '[', '<', '>', '~']).unwrap_or(unscoped.len());
    package.split_at(scope + end).0
}

#[cfg(test)]
mod tests;
