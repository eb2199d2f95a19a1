//! A stdio server's process and all that it starts: one process group, ended as one.
//!
//! Must not: use a shell, hand down our environment or descriptors, or read the server's stdout.

use std::{
    collections::BTreeMap,
    fmt, io,
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::{
    process::{Child as Process, ChildStdin, ChildStdout, Command},
    sync::{oneshot, watch},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    launcher,
    log::{LastLines, Secrets},
    spawner,
};
use crate::{backend::peer::PeerError, model::ids::BackendName};

mod path;
mod stderr;

/// How long a server has to end by itself after its stdin is closed, and again after SIGTERM.
const GRACE: Duration = Duration::from_secs(3);

/// What a server inherits of our environment.
const INHERITED: [&str; 4] = ["PATH", "HOME", "LANG", "TMPDIR"];

/// The program of a stdio server, as configured.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) command: String,
    pub(super) args: Vec<String>,
    pub(super) env: BTreeMap<String, SecretString>,
    pub(super) cwd: Option<PathBuf>,
}

/// A running server. Dropped, it is killed with everything that it has started.
pub(super) struct Child {
    group: Arc<Group>,
    stop: CancellationToken,
    exit: watch::Receiver<Option<String>>,
    /// Changes when stderr has ended.
    stderr_ended: watch::Receiver<bool>,
    last_lines: Arc<Mutex<LastLines>>,
    /// Read what the server writes and wait for its end; aborted on drop.
    tasks: JoinSet<()>,
}

impl Program {
    /// Starts the program, through `launcher` if there is one.
    pub(super) async fn start(
        &self,
        backend: &BackendName,
        launcher: Option<&Path>,
    ) -> Result<(Child, ChildStdin, ChildStdout), PeerError> {
        let path = self.variable("PATH").unwrap_or_default();
        let program = path::find(&self.command, &path, self.cwd.as_deref()).map_err(PeerError)?;
        let mut command = match launcher {
            Some(launcher) => {
                let mut command = Command::new(launcher);
                command.args(launcher::arguments(&program, &self.args));
                command
            }
            None => {
                let mut command = Command::new(&program);
                command.args(&self.args);
                command
            }
        };
        command
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        for key in INHERITED {
            if let Some(value) = std::env::var_os(key) {
                command.env(key, value);
            }
        }
        for (key, value) in &self.env {
            command.env(key, value.expose_secret());
        }
        if let Some(cwd) = &self.cwd {
            command.current_dir(cwd);
        }
        let started = spawner::spawn(command).await.map_err(|error| {
            let cwd = self.cwd.as_ref().map(|cwd| format!(" in {}", cwd.display()));
            let through = launcher.map(|path| format!(" through {}", path.display()));
            PeerError(format!(
                "cannot start `{}`{}{}: {error}",
                self.command,
                cwd.unwrap_or_default(),
                through.unwrap_or_default()
            ))
        })?;
        let secrets = Secrets::new(self.env.values());
        Ok(Child::supervise(backend, started, secrets))
    }

    /// A variable as the program will see it.
    fn variable(&self, key: &str) -> Option<String> {
        let configured = self.env.get(key).map(|value| value.expose_secret().to_owned());
        configured.or_else(|| std::env::var(key).ok())
    }
}

impl Child {
    fn supervise(
        backend: &BackendName,
        started: Started,
        secrets: Secrets,
    ) -> (Self, ChildStdin, ChildStdout) {
        let Started { mut process, group } = started;
        let stdin = process.stdin.take().expect("stdin was asked for as a pipe");
        let stdout = process.stdout.take().expect("stdout was asked for as a pipe");
        let stderr = process.stderr.take().expect("stderr was asked for as a pipe");
        tracing::info!(%backend, pid = group.leader.as_raw_nonzero(), "started the server");

        let stop = CancellationToken::new();
        let (exit_sender, exit) = watch::channel(None);
        let (stderr_sender, stderr_ended) = watch::channel(false);
        let last_lines = Arc::<Mutex<LastLines>>::default();
        let mut tasks = JoinSet::new();
        tasks.spawn({
            let (backend, last_lines) = (backend.clone(), Arc::clone(&last_lines));
            async move {
                stderr::drain(&backend, stderr, &secrets, &last_lines).await;
                stderr_sender.send_replace(true);
            }
        });
        tasks.spawn({
            let (backend, group, stop) = (backend.clone(), Arc::clone(&group), stop.clone());
            async move {
                let exit = wait(process, &group, &stop).await;
                tracing::info!(%backend, "the server ended: {exit}");
                exit_sender.send_replace(Some(exit));
            }
        });
        let child = Self { group, stop, exit, stderr_ended, last_lines, tasks };
        (child, stdin, stdout)
    }

    /// How the server ended and what it said last, once it has ended or `patience` is over. `None`
    /// if it is still running.
    pub(super) async fn obituary(&self, patience: Duration) -> Option<String> {
        let mut exit = self.exit.clone();
        let ended = timeout(patience, exit.wait_for(Option::is_some)).await;
        let exit = ended.ok()?.ok()?.clone()?;
        // What it printed is usually read by now; a grandchild may hold stderr open for ever.
        let mut stderr_ended = self.stderr_ended.clone();
        let all_read = timeout(Duration::from_millis(200), stderr_ended.wait_for(|ended| *ended));
        let _in_time = all_read.await.is_ok();
        Some(match self.last_words() {
            Some(words) => format!("it ended with {exit}; its last words on stderr: {words}"),
            None => format!("it ended with {exit} and wrote nothing to stderr"),
        })
    }

    /// Reads on, once nobody else does, so that the server can end in its own way.
    pub(super) fn drain_stdout(&mut self, rest: oneshot::Receiver<ChildStdout>) {
        self.tasks.spawn(async move {
            if let Ok(mut stdout) = rest.await {
                let _whole = tokio::io::copy(&mut stdout, &mut tokio::io::sink()).await.is_ok();
            }
        });
    }

    /// The last lines on stderr.
    pub(super) fn last_words(&self) -> Option<String> {
        self.last_lines.lock().unwrap_or_else(PoisonError::into_inner).text()
    }

    /// Ends the server, gently at first. Its stdin must have been closed.
    pub(super) async fn stop(&self) {
        self.stop.cancel();
        let mut exit = self.exit.clone();
        // An error means that the task which waits for the end is gone, and the group with it.
        drop(exit.wait_for(Option::is_some).await);
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.group.kill();
    }
}

impl fmt::Debug for Child {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Child").field("group", &self.group).finish_non_exhaustive()
    }
}

/// Waits for the process to end, by itself or because it is told to, and ends what is left of its
/// group. Says how it ended.
async fn wait(mut process: Process, group: &Group, stop: &CancellationToken) -> String {
    let status = tokio::select! {
        status = process.wait() => status,
        () = stop.cancelled() => end(&mut process, group).await,
    };
    if stop.is_cancelled() {
        group.wind_up().await;
    }
    group.kill();
    match status {
        Ok(status) => describe(status),
        Err(error) => format!("an unknown status ({error})"),
    }
}

/// Ends a process whose stdin is closed.
async fn end(process: &mut Process, group: &Group) -> io::Result<ExitStatus> {
    for signal in [Signal::TERM, Signal::KILL] {
        if let Ok(status) = timeout(GRACE, process.wait()).await {
            return status;
        }
        group.signal(signal);
    }
    process.wait().await
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}

/// A process that has just been started, and its group.
pub(super) struct Started {
    process: Process,
    group: Arc<Group>,
}

impl Started {
    pub(super) fn new(process: Process) -> io::Result<Self> {
        let leader = process.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let leader = leader.ok_or_else(|| io::Error::other("it has no process id"))?;
        Ok(Self { process, group: Arc::new(Group { leader, gone: AtomicBool::new(false) }) })
    }
}

/// The process group that a server leads. Dropped, it is killed.
#[derive(Debug)]
struct Group {
    leader: Pid,
    /// Set when the leader has been reaped and the rest killed: from then on the number may be
    /// another group's.
    gone: AtomicBool,
}

impl Group {
    /// Sends `signal` to all processes of the group.
    fn signal(&self, signal: Signal) {
        if !self.gone.load(Ordering::Acquire) {
            // It fails only when there is no process left.
            let _sent = kill_process_group(self.leader, signal).is_ok();
        }
    }

    /// Kills what is left of the group, for good.
    fn kill(&self) {
        if !self.gone.swap(true, Ordering::AcqRel) {
            let _sent = kill_process_group(self.leader, Signal::KILL).is_ok();
        }
    }

    /// Gives the processes that the leader has left behind the time to end by themselves.
    async fn wind_up(&self) {
        const STEP: Duration = Duration::from_millis(20);
        self.signal(Signal::TERM);
        let emptied = async {
            while test_kill_process_group(self.leader).is_ok() {
                sleep(STEP).await;
            }
        };
        let _in_time = timeout(GRACE, emptied).await.is_ok();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}
