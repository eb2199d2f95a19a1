//! Processes that a program has detached from its group, such as browsers and language servers:
//! they end with the program.
//!
//! The process group of a program does not have them, as they have made a session of their own. So
//! each program gets a random [`Mark`] in its environment, which all that it starts inherits, and
//! this process becomes the parent of their orphans ([`adopt`]). The keeper, a thread, looks at
//! those orphans whenever a child ends:
//!
//! 1. One that has ended is waited for, by its own number. Other parts wait for the processes that
//!    they have started, so those are left alone ([`start_own`]).
//! 2. One that lives and has the mark of a program that has ended is killed. Its own children are
//!    then orphans, and come next.
//! 3. If no process with the mark is left, the guard may forget the mark. If this process is killed
//!    before, the guard kills what has the mark.
//!
//! Must not: wait for a process that another part has started, or kill one without a mark.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::num::NonZeroI32;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fs, io};

use parking_lot::Mutex;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions, getpid, kill_process, pidfd_open,
    pidfd_send_signal, set_child_subreaper, waitid, waitpid,
};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use tracing::warn;

use super::guard;
use crate::model::maps::HashMap;
use crate::random;

/// The variable with the mark of a program.
pub(super) const VARIABLE: &str = "MANTYX_BRIDGE_PROGRAM";

/// How much of an environment is read. The kernel allows 6 MiB for it and the arguments together.
const MAX_ENVIRONMENT: u64 = 8 << 20;

/// How long the end of a program is delayed for the processes that it has detached. The keeper
/// needs a few milliseconds for them, and continues later.
const PATIENCE: Duration = Duration::from_secs(2);

/// The pauses between two looks while a program's processes are left: the first, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(1)];

/// The word in the environment of one program, and of everything that it starts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Mark(String);

impl Mark {
    pub(super) fn new() -> Self {
        Self(random::uuid().simple().to_string())
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// Reads what [`Self::as_str`] has given.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            Some(Self(text.to_owned()))
        } else {
            None
        }
    }
}

/// Whether this process is the parent of orphans.
static ADOPTS: AtomicBool = AtomicBool::new(false);

/// The processes that parts of this program have started, and wait for. Locked while one is
/// started: otherwise the keeper could find the process before its number is here.
static OWN: Mutex<BTreeSet<NonZeroI32>> = Mutex::new(BTreeSet::new());

/// The programs that have ended, of which something may be left: their marks and processes.
static ENDED: Mutex<BTreeMap<Mark, NonZeroI32>> = Mutex::new(BTreeMap::new());

/// How long a process may show no environment before it counts as one that has none. One that
/// becomes another program shows none until the kernel has read that program from the disk.
const MAX_EMPTY: Duration = Duration::from_secs(1);

/// How long a process may take to end before it counts as one that hangs, such as on a disk that
/// does not answer. The end of each program waits for those in doubt ([`PATIENCE`]), also of
/// others.
const MAX_ENDING: Duration = Duration::from_secs(10);

/// How often one look reads the list of children while it changes.
const MAX_READS: usize = 16;

/// Wakes the keeper.
static NEWS: Notify = Notify::const_new();

/// Told after each look of the keeper.
static LOOKED: Notify = Notify::const_new();

/// Makes this process the parent of all orphans below it, and starts the keeper. Without that,
/// detached processes outlive their program, until the guard kills them after the end of this
/// process.
pub fn adopt() {
    if ADOPTS.swap(true, Ordering::AcqRel) {
        return;
    }
    if let Err(error) = start_keeper() {
        ADOPTS.store(false, Ordering::Release);
        warn!(%error, "processes that programs detach are not ended with them");
    }
}

fn start_keeper() -> io::Result<()> {
    set_child_subreaper(Some(getpid()))?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let keeper = std::thread::Builder::new().name("orphans".to_owned());
    keeper.spawn(move || runtime.block_on(keep()))?;
    Ok(())
}

/// A command of the standard library or of tokio.
pub(crate) trait OwnCommand {
    type Process;

    fn start(&mut self) -> io::Result<Self::Process>;

    fn id(process: &Self::Process) -> Option<u32>;
}

impl OwnCommand for std::process::Command {
    type Process = std::process::Child;

    fn start(&mut self) -> io::Result<Self::Process> {
        self.spawn()
    }

    fn id(process: &Self::Process) -> Option<u32> {
        Some(process.id())
    }
}

impl OwnCommand for tokio::process::Command {
    type Process = tokio::process::Child;

    fn start(&mut self) -> io::Result<Self::Process> {
        self.spawn()
    }

    fn id(process: &Self::Process) -> Option<u32> {
        process.id()
    }
}

/// Starts a process that its starter waits for. The keeper would take one that was started in
/// another way for an orphan, and take its exit status from its starter.
pub(crate) fn start_own<C: OwnCommand>(command: &mut C) -> io::Result<C::Process> {
    let mut own = OWN.lock();
    let process = command.start()?;
    if ADOPTS.load(Ordering::Acquire) {
        own.extend(C::id(&process).and_then(|id| NonZeroI32::new(id.cast_signed())));
    }
    Ok(process)
}

/// Has everything with `mark` ended, as the program, whose process is `leader`, has ended or has
/// been killed.
pub(super) fn ended(mark: &Mark, leader: NonZeroI32) {
    if ADOPTS.load(Ordering::Acquire) {
        ENDED.lock().insert(mark.clone(), leader);
        NEWS.notify_one();
    } else {
        guard::forget(mark);
    }
}

/// Waits until nothing with `mark` is left, or for [`PATIENCE`].
pub(super) async fn gone(mark: &Mark) {
    let all = async {
        loop {
            let looked = LOOKED.notified();
            if !ENDED.lock().contains_key(mark) {
                return;
            }
            looked.await;
        }
    };
    if timeout(PATIENCE, all).await.is_err() {
        warn!("processes that a program has detached are still being ended");
    }
}

/// Looks at the orphans when a child has ended or a program has, and until nothing of the ended
/// programs is left.
async fn keep() {
    let mut child_ends = match signal(SignalKind::child()) {
        Ok(signal) => signal,
        Err(error) => return warn!(%error, "orphans are not waited for"),
    };
    let [first, longest] = PAUSES;
    let mut pause = first;
    let mut empty = HashMap::default();
    loop {
        let may_be_left = look(&mut empty);
        LOOKED.notify_waiters();
        tokio::select! {
            _ = child_ends.recv() => (),
            () = NEWS.notified() => pause = first,
            // What an orphan leaves behind when it ends is not announced.
            () = sleep(pause), if may_be_left => pause = longest.min(2 * pause),
        }
    }
}

/// One look at the orphans. Returns whether something of an ended program may be left. `empty` has
/// the orphans that show no environment, and since when.
///
/// The guard forgets a mark only if no orphan is missing or in doubt: one that becomes another
/// program shows no environment for a moment, and with a forgotten mark it would outlive the
/// bridge.
fn look(empty: &mut HashMap<Pid, Instant>) -> bool {
    // Before the orphans: what a program has detached is an orphan once its parent has ended.
    let programs = ENDED.lock().clone();
    let over: Vec<&Mark> =
        programs.iter().filter(|(_, leader)| has_ended(**leader)).map(|(mark, _)| mark).collect();
    let Orphans { living, is_complete } = living_orphans();
    empty.retain(|orphan, _| living.contains(orphan));
    let mut living_marks = BTreeSet::new();
    let mut any_in_doubt = !is_complete;
    for orphan in living {
        match shown_mark(orphan) {
            EnvironmentMark::Mark(mark) if programs.contains_key(&mark) => {
                // Its number cannot become another process's: only this thread waits for it.
                let _sent = kill_process(orphan, Signal::KILL).is_ok();
                living_marks.insert(mark);
            }
            EnvironmentMark::Mark(_) | EnvironmentMark::Unmarked => drop(empty.remove(&orphan)),
            EnvironmentMark::Empty => {
                let since = *empty.entry(orphan).or_insert_with(Instant::now);
                let limit = if is_ending(orphan) { MAX_ENDING } else { MAX_EMPTY };
                any_in_doubt |= since.elapsed() < limit;
            }
        }
    }
    let mut remaining = ENDED.lock();
    if !any_in_doubt {
        for mark in over.into_iter().filter(|mark| !living_marks.contains(mark)) {
            remaining.remove(mark);
            guard::forget(mark);
        }
    }
    !remaining.is_empty()
}

/// Whether the process of a program has ended, be it that its starter has yet to wait for it.
fn has_ended(leader: NonZeroI32) -> bool {
    let Some(pid) = Pid::from_raw(leader.get()) else { return true };
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(waitid(WaitId::Pid(pid), options), Ok(None))
}

/// The orphans that live.
struct Orphans {
    living: Vec<Pid>,
    /// No orphan is missing.
    is_complete: bool,
}

/// Finds the orphans that live, and waits for those that have ended.
///
/// The kernel's list of children lacks some if another part waits for a child while it is read; and
/// what has ended since may have left orphans behind. So the list is read until it stays as it is.
/// A program that detaches processes without end would keep it changing: after [`MAX_READS`], the
/// caller gets those that were found, and other programs can be started again.
fn living_orphans() -> Orphans {
    let mut own = OWN.lock();
    let mut children = listed_children();
    let mut reads = 1;
    loop {
        let again = listed_children();
        let stable = again == children;
        children = again;
        reads += 1;
        if stable {
            // What its starter has waited for is no longer a child.
            own.retain(|id| children.contains(id));
        }
        let orphans = children.difference(&own).filter_map(|id| Pid::from_raw(id.get()));
        let (ended, living): (Vec<_>, Vec<_>) = orphans
            .partition(|pid| matches!(waitpid(Some(*pid), WaitOptions::NOHANG), Ok(Some(_))));
        let complete = stable && ended.is_empty();
        if complete || reads == MAX_READS {
            return Orphans { living, is_complete: complete };
        }
    }
}

fn listed_children() -> BTreeSet<NonZeroI32> {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists: Vec<String> = threads
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok())
        .collect();
    if lists.is_empty() {
        // A kernel without these lists.
        let own = getpid();
        return processes().filter(|id| parent_of(*id) == Some(own)).collect();
    }
    let ids = lists.iter().flat_map(|list| list.split_whitespace());
    ids.filter_map(|id| id.parse().ok()).collect()
}

/// All processes of this system that can be seen.
fn processes() -> impl Iterator<Item = NonZeroI32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn parent_of(id: NonZeroI32) -> Option<Pid> {
    stat(id, PARENT)?.parse().ok().and_then(Pid::from_raw)
}

/// Whether a process is on its way to its end. Its children are no orphans yet.
fn is_ending(pid: Pid) -> bool {
    /// `PF_EXITING` of the kernel's include/linux/sched.h.
    const ENDING: u64 = 0x4;
    let flags = stat(pid.as_raw_nonzero(), FLAGS).and_then(|flags| flags.parse::<u64>().ok());
    flags.is_some_and(|flags| flags & ENDING != 0)
}

/// Fields of proc_pid_stat(5), counted from the one behind the name.
const PARENT: usize = 1;
const FLAGS: usize = 6;

fn stat(id: NonZeroI32, field: usize) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name of a process may have blanks and brackets in it.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(field).map(str::to_owned)
}

/// What the environment of a process shows.
#[derive(Debug, PartialEq, Eq)]
enum EnvironmentMark {
    Mark(Mark),
    /// It has variables, and no mark among them; or it may not be read.
    Unmarked,
    /// It is empty or gone. So is the one of a process that is about to end, whose children are no
    /// orphans yet, and of one that is just becoming another program.
    Empty,
}

/// Reads the environment of a process. A sandboxed process lies in a user namespace that this user
/// owns, so that its environment can be read, too.
fn shown_mark(pid: Pid) -> EnvironmentMark {
    let environment = match File::open(format!("/proc/{}/environ", pid.as_raw_nonzero())) {
        Ok(environment) => environment,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return EnvironmentMark::Unmarked;
        }
        // It is about to end, and has no memory left.
        Err(_) => return EnvironmentMark::Empty,
    };
    let variables = BufReader::new(environment.take(MAX_ENVIRONMENT)).split(0);
    let mut result = EnvironmentMark::Empty;
    for variable in variables.map_while(Result::ok) {
        let text = str::from_utf8(&variable).unwrap_or_default();
        let value = text.strip_prefix(VARIABLE).and_then(|rest| rest.strip_prefix('='));
        if let Some(mark) = value.and_then(Mark::parse) {
            return EnvironmentMark::Mark(mark);
        }
        result = EnvironmentMark::Unmarked;
    }
    result
}

/// Kills all processes of this system that have one of `marks`: for the guard, when the daemon has
/// died, and its orphans have got another parent.
pub(super) fn kill_marked(marks: &BTreeSet<Mark>) {
    const MAX_ROUNDS: usize = 60;
    /// A process that is just becoming another program shows its mark a moment later.
    const EMPTY_ROUNDS: usize = 6;
    const PAUSE: Duration = Duration::from_millis(50);
    let mut empty = 0;
    for _ in 0..MAX_ROUNDS {
        let processes: Vec<OwnedFd> = processes().filter_map(|id| marked(id, marks)).collect();
        empty = if processes.is_empty() { empty + 1 } else { 0 };
        if empty == EMPTY_ROUNDS {
            return;
        }
        for process in processes {
            let _sent = pidfd_send_signal(process.as_fd(), Signal::KILL).is_ok();
        }
        #[expect(clippy::disallowed_methods, reason = "the guard has no runtime")]
        std::thread::sleep(PAUSE);
    }
}

/// The process `id`, if it has one of `marks`. The descriptor is opened first: it then stands for
/// the process whose environment is read, or for one that has ended.
fn marked(id: NonZeroI32, marks: &BTreeSet<Mark>) -> Option<OwnedFd> {
    let pid = Pid::from_raw(id.get())?;
    let process = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    match shown_mark(pid) {
        EnvironmentMark::Mark(mark) if marks.contains(&mark) => Some(process),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    //! Marks, and the children of a process. That orphans are ended needs the real binary and is in
    //! the integration tests.

    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn mark_is_read_from_the_environment_of_a_process() {
        let mark = Mark::new();
        assert_eq!(Mark::parse(mark.as_str()), Some(mark.clone()));
        for other in ["", "x", &"g".repeat(32), &"0".repeat(33)] {
            assert_eq!(Mark::parse(other), None, "{other}");
        }
        let mut command = Command::new("cat");
        command.env(VARIABLE, mark.as_str()).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut process = command.spawn().unwrap();
        let id = NonZeroI32::new(process.id().cast_signed()).unwrap();
        // A list can lack it while another test waits for a child.
        assert!((0..MAX_READS).any(|_| listed_children().contains(&id)));
        assert_eq!(parent_of(id), Some(getpid()));
        let pid = Pid::from_child(&process);
        assert_eq!(shown_mark(pid), EnvironmentMark::Mark(mark.clone()));
        assert_eq!(shown_mark(getpid()), EnvironmentMark::Unmarked);
        assert!(!has_ended(id) && !is_ending(pid));
        kill_marked(&BTreeSet::from([Mark::new(), mark]));
        assert!(has_ended(id), "it can be waited for");
        assert!(is_ending(pid), "and has no memory left");
        assert_eq!(shown_mark(pid), EnvironmentMark::Empty);
        assert!(!process.wait().unwrap().success(), "it was killed");
        assert!(has_ended(id));
    }
}
