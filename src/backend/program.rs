//! Programs that backends start. Each has a process group and an environment of its own, and is
//! ended together with everything that it has started.
//!
//! docs/design/programs.md says what it is not, and how it came about.
//!
//! Must not: use a shell, pass on the bridge's environment or descriptors, or read the output.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use secrecy::ExposeSecret as _;
use tokio::process::{Child as Process, Command};
use tokio::time::sleep;

use self::hiding::{Coverage, Exposure, Hidden};
use self::orphans::Mark;
use super::diagnosis::{Cause, Diagnosis};
use super::{PeerError, PeerErrorKind};
use crate::config::ProgramSandbox::{Listed, Secrets};
use crate::config::{PASSED_ON, Program};

pub mod guard;
pub mod hiding;
pub mod launcher;
pub mod mask;
pub mod orphans;

mod confine;
mod powers;
mod spawner;

/// The variables that a program inherits from the bridge's environment, besides [`PASSED_ON`].
const INHERITED: [&str; 4] = ["PATH", "HOME", "LANG", "TMPDIR"];

/// The most bytes that Linux reads of the first line of a script.
const MAX_FIRST_LINE: u64 = 256;

/// The environment that `program` gets. What its entry says comes last, and so wins.
fn environment(program: &Program) -> BTreeMap<String, OsString> {
    let mut variables = BTreeMap::new();
    for key in INHERITED.iter().chain(&PASSED_ON) {
        if let Some(value) = std::env::var_os(key) {
            variables.insert((*key).to_owned(), value);
        }
    }
    for (key, value) in &program.env {
        variables.insert(key.clone(), value.expose_secret().into());
    }
    variables
}

/// The value of a variable that programs inherit from the bridge's environment.
pub(super) fn inherited(name: &str) -> Option<OsString> {
    if INHERITED.contains(&name) || PASSED_ON.contains(&name) {
        std::env::var_os(name)
    } else {
        None
    }
}

/// Starts `program`, its three streams as pipes, through `launcher` if there is one.
pub(super) async fn start(
    program: &Program,
    launcher: Option<&Path>,
) -> Result<Started, PeerError> {
    let file = locate(program)?;
    let (hidden, exposure) = look_for_exposure(program, &file, launcher).await?;
    let mark = Mark::new();
    let mut command = Command::new(launcher.unwrap_or(&file));
    match launcher {
        Some(_) => command.args(launcher::arguments(&file, program, &hidden)),
        None if matches!(program.sandbox, Secrets | Listed(_)) => {
            let why = "its `sandbox` needs the bridge's own binary, which cannot be found: restart \
                       the bridge";
            return Err(PeerError::new(PeerErrorKind::Program, why));
        }
        None => command.args(&program.args),
    };
    command
        .env_clear()
        .envs(environment(program))
        .env(orphans::VARIABLE, mark.as_str())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    if let Some(cwd) = &program.cwd {
        command.current_dir(cwd);
    }
    let mut started = spawner::spawn(command, mark).await.map_err(|error| {
        let cwd = program.cwd.as_ref().map(|cwd| format!(" in {}", cwd.display()));
        let through = launcher.map(|path| format!(" through {}", path.display()));
        let [cwd, through] = [cwd, through].map(Option::unwrap_or_default);
        let text = format!("cannot start `{}`{cwd}{through}", program.command);
        PeerError::new(PeerErrorKind::Program, text).because(error)
    })?;
    // With Landlock, a file that replaces a forbidden one is forbidden as well.
    let masks = hidden.masks.as_deref().filter(|_| hidden.forbidden.is_empty());
    started.coverage = Coverage::new(exposure, masks);
    if let Some(binary) = launcher {
        guard::add(started.group.leader(), &started.group.mark, binary);
    }
    Ok(started)
}

/// Finds out what to hide from `program`, which is the file `file`, and why the program can read
/// some files of the bridge nevertheless. Runs on a thread that may block: this reads the file
/// system and, once, starts a program.
async fn look_for_exposure(
    program: &Program,
    file: &Path,
    launcher: Option<&Path>,
) -> Result<(Hidden, Option<Exposure>), PeerError> {
    let program = program.clone();
    let file = file.to_owned();
    let launcher = launcher.map(Path::to_owned);
    let looking = tokio::task::spawn_blocking(move || {
        let possible = hiding::possible(launcher.as_deref());
        let exposure = hiding::exposure(&program, &possible);
        (hiding::hidden(&program, &file, possible.is_ok()), exposure)
    });
    looking.await.map_err(|error| {
        let text = "cannot find out which files to hide from it";
        PeerError::new(PeerErrorKind::Program, text).because(error)
    })
}

/// The file that is started for `program`, as a shell would find it: a path as it is (relative to
/// `cwd`), a bare name out of PATH as the program will see it. What is missing is reported with its
/// cure before anything is started.
pub fn locate(program: &Program) -> Result<PathBuf, PeerError> {
    find(program).map_err(|cause| {
        let what = format!("`{}` cannot be started", program.command);
        Diagnosis { cause, line: None }.error(PeerErrorKind::Program, &what, program)
    })
}

fn find(program: &Program) -> Result<PathBuf, Cause> {
    let Program { command, cwd, env, .. } = program;
    if let Some(cwd) = cwd {
        match cwd.metadata() {
            Ok(facts) if facts.is_dir() => (),
            Ok(_) => return Err(Cause::CwdIsFile(cwd.clone())),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(Cause::NoAccess(cwd.clone()));
            }
            Err(_) => return Err(Cause::NoDirectory(cwd.clone())),
        }
    }
    if command.contains('/') {
        let file = cwd.as_ref().map_or_else(|| PathBuf::from(command), |cwd| cwd.join(command));
        return match std::path::absolute(&file) {
            Ok(file) if is_program(&file) => with_good_first_line(file),
            Ok(file) if file.is_dir() => Err(Cause::IsDirectory(file)),
            Ok(file) if file.exists() => Err(Cause::NotExecutable(file)),
            _ => Err(Cause::NoProgram),
        };
    }
    let configured = env.get("PATH").map(|value| value.expose_secret().to_owned());
    let path = configured.or_else(|| std::env::var("PATH").ok()).unwrap_or_default();
    on_path(command, &path)
        .ok_or_else(|| program.without_windows().map_or(Cause::NotInPath, Cause::OfWindows))
        .and_then(with_good_first_line)
}

/// The program of this name in one of the directories of a PATH.
pub fn on_path(name: &str, path: &str) -> Option<PathBuf> {
    let mut files = std::env::split_paths(path).map(|directory| directory.join(name));
    files.find(|file| file.is_absolute() && is_program(file))
}

/// The program `file`, unless it is a script whose first line ends with a carriage return. That
/// character becomes part of the interpreter's name, and the system says only that a file is
/// missing.
fn with_good_first_line(file: PathBuf) -> Result<PathBuf, Cause> {
    let mut start = Vec::new();
    let outcome =
        File::open(&file).and_then(|script| script.take(MAX_FIRST_LINE).read_to_end(&mut start));
    if outcome.is_err() {
        return Ok(file);
    }
    let first_line = start.split(|byte| *byte == b'\n').next().unwrap_or_default();
    if first_line.starts_with(b"#!") && first_line.ends_with(b"\r") {
        return Err(Cause::WindowsLineEnd(Some(file)));
    }
    Ok(file)
}

fn is_program(file: &Path) -> bool {
    file.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

/// How a program ended, in words.
pub(super) fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}

/// A process that has just been started, and its group.
pub(super) struct Started {
    pub(super) process: Process,
    pub(super) group: Arc<Group>,
    /// The files of the bridge that the program can read.
    pub(super) coverage: Coverage,
}

impl Started {
    fn new(process: Process, mark: Mark) -> io::Result<Self> {
        let leader = process
            .id()
            .and_then(|id| Pid::from_raw(id.cast_signed()))
            .ok_or_else(|| io::Error::other("it has no process id"))?;
        let [gone, has_ended] = [false, false].map(AtomicBool::new);
        let group = Arc::new(Group { leader, gone, mark, has_ended });
        Ok(Self { process, group, coverage: Coverage::default() })
    }
}

/// The process group that a program leads, and what the program has detached from it. Its drop
/// kills all of them.
#[derive(Debug)]
pub(super) struct Group {
    leader: Pid,
    /// Set when the leader has been reaped and the rest killed: from then on the number may be
    /// another group's.
    gone: AtomicBool,
    /// In the environment of all that the program starts.
    mark: Mark,
    /// Set when what the program has detached is to end.
    has_ended: AtomicBool,
}

impl Group {
    /// The process id of the program.
    pub(super) fn leader(&self) -> std::num::NonZeroI32 {
        self.leader.as_raw_nonzero()
    }

    /// Sends `signal` to all processes of the group.
    pub(super) fn signal(&self, signal: Signal) {
        if !self.gone.load(Ordering::Acquire) {
            // This fails only if no process is left.
            let _sent = kill_process_group(self.leader, signal).is_ok();
        }
    }

    /// Kills the rest of the group, and what the program has detached; no signal goes to the group
    /// afterwards.
    pub(super) fn kill(&self) {
        if !self.gone.swap(true, Ordering::AcqRel) {
            let _sent = kill_process_group(self.leader, Signal::KILL).is_ok();
            guard::remove(self.leader());
        }
        if !self.has_ended.swap(true, Ordering::AcqRel) {
            orphans::ended(&self.mark, self.leader());
        }
    }

    /// Waits, after [`Self::kill`], until nothing is left that the program has detached.
    pub(super) async fn detached_gone(&self) {
        orphans::gone(&self.mark).await;
    }

    /// Marks the group as gone, as no process of it is left: no signal goes to it afterwards.
    pub(super) fn forget(&self) {
        if !self.gone.swap(true, Ordering::AcqRel) {
            guard::remove(self.leader());
        }
    }

    /// Whether [`Self::forget`] or [`Self::kill`] came before.
    pub(super) fn is_forgotten(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Waits until no process is left. The leader must be waited for elsewhere.
    pub(super) async fn emptied(&self) {
        const STEP: Duration = Duration::from_millis(20);
        while !self.is_empty() {
            sleep(STEP).await;
        }
    }

    /// Whether no process is left; one that has not been waited for counts as left.
    pub(super) fn is_empty(&self) -> bool {
        test_kill_process_group(self.leader).is_err()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(test)]
mod tests;
