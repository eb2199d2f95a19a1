//! A stdio server's process and everything that it starts: watched while it runs, and stopped
//! gently.
//!
//! Must not: start a program its own way (`backend::program` does), or read the server's stdout.

use std::io;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::Signal;
use tokio::process::{Child as Process, ChildStdin, ChildStdout};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::backend::diagnosis::End;
use crate::backend::log::LastLines;
use crate::backend::program::hiding::Coverage;
use crate::backend::program::{Group, Started};
use crate::backend::{LiveRedaction, PeerError, program};
use crate::config::Program;
use crate::model::BackendName;

mod stderr;

/// How long a server has to end by itself after its stdin is closed, and again after SIGTERM.
const GRACE: Duration = Duration::from_secs(3);

/// How long a server that still starts has after SIGTERM: it may be installing itself, and an
/// installation that is cut off leaves a damaged cache.
const START_GRACE: Duration = Duration::from_secs(5);

/// How long a server that has failed before must live until the log tells of it again.
const QUIET: Duration = Duration::from_secs(30);

/// A running server. Its drop ends it and everything that it has started: at once, or while it
/// starts in a task of `Starts::endings`.
pub(super) struct Child {
    group: Arc<Group>,
    stop: watch::Sender<Option<Stop>>,
    exit: watch::Receiver<Option<End>>,
    /// Cancelled when stderr has ended.
    stderr_ended: CancellationToken,
    pub(super) last_lines: Arc<Mutex<LastLines>>,
    /// Read what the server writes and wait for its end; aborted on drop.
    tasks: JoinSet<()>,
    /// While the server starts: where its end is waited for if the start is given up.
    starting: Option<TaskTracker>,
    is_quiet: Arc<AtomicBool>,
}

/// How a server is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// Its stdin is closed; it gets SIGTERM if it does not end by that.
    Gently,
    /// It still starts, and does not read its stdin.
    WhileStarting,
}

/// What the starts of one backend have in common.
#[derive(Debug, Default)]
pub(super) struct Starts {
    /// Ends servers whose start was given up.
    pub(super) endings: TaskTracker,
    /// The next start is not told by the log.
    pub(super) is_quiet: AtomicBool,
}

impl Child {
    /// Starts the server, through `launcher` if there is one.
    pub(super) async fn start(
        backend: &BackendName,
        program: &Program,
        launcher: Option<&Path>,
        redact: &LiveRedaction,
        starts: &Starts,
    ) -> Result<(Self, ChildStdin, ChildStdout, Coverage), PeerError> {
        let started = program::start(program, launcher).await?;
        let Started { mut process, group, coverage } = started;
        let stdin = process.stdin.take().expect("stdin was asked for as a pipe");
        let stdout = process.stdout.take().expect("stdout was asked for as a pipe");
        let stderr = process.stderr.take().expect("stderr was asked for as a pipe");
        let is_quiet = Arc::new(AtomicBool::new(starts.is_quiet.load(Ordering::Relaxed)));
        let pid = group.leader();
        if is_quiet.load(Ordering::Relaxed) {
            tracing::debug!(%backend, pid, "started the server");
        } else {
            tracing::info!(%backend, pid, "started the server");
        }

        let stop = watch::Sender::new(None);
        let (exit_sender, exit) = watch::channel(None);
        let stderr_ended = CancellationToken::new();
        let last_lines = Arc::<Mutex<LastLines>>::default();
        let mut tasks = JoinSet::new();
        tasks.spawn({
            let backend = backend.clone();
            let last_lines = Arc::clone(&last_lines);
            let redact = redact.clone();
            let ended = stderr_ended.clone();
            let is_quiet = Arc::clone(&is_quiet);
            async move {
                stderr::drain(&backend, stderr, &redact, &last_lines, &is_quiet).await;
                ended.cancel();
            }
        });
        tasks.spawn({
            let backend = backend.clone();
            let group = Arc::clone(&group);
            let stop = stop.subscribe();
            let is_quiet = Arc::clone(&is_quiet);
            async move {
                let exit = wait(process, &group, stop).await;
                if is_quiet.load(Ordering::Relaxed) {
                    tracing::debug!(%backend, "the server {exit}");
                } else {
                    tracing::info!(%backend, "the server {exit}");
                }
                exit_sender.send_replace(Some(exit));
            }
        });
        // A tracker that is closed still takes tasks, and can be waited for.
        starts.endings.close();
        let starting = Some(starts.endings.clone());
        let child = Self { group, stop, exit, stderr_ended, last_lines, tasks, starting, is_quiet };
        Ok((child, stdin, stdout, coverage))
    }

    /// Notes that the handshake is done: the drop kills from now on. The log tells all again once
    /// the server has lived for [`QUIET`]: one that ends right after each handshake is no news.
    pub(super) fn handshake_done(&mut self) {
        self.starting = None;
        let is_quiet = Arc::clone(&self.is_quiet);
        self.tasks.spawn(async move {
            sleep(QUIET).await;
            is_quiet.store(false, Ordering::Relaxed);
        });
    }

    /// Whether the log says nothing of the server, as it has failed before.
    pub(super) fn is_quiet(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_quiet)
    }

    /// How the server ended. Waits for its end at most `patience`, and for what it has written;
    /// `None` if the server is still running then.
    pub(super) async fn end(&self, patience: Duration) -> Option<End> {
        let mut exit = self.exit.clone();
        let ended = timeout(patience, exit.wait_for(Option::is_some)).await;
        let exit = ended.ok()?.ok()?.clone()?;
        // Its stderr is usually read by now. Do not wait for its end: a grandchild may hold stderr
        // open for ever.
        let all_read = timeout(Duration::from_millis(200), self.stderr_ended.cancelled());
        let _in_time = all_read.await.is_ok();
        Some(exit)
    }

    /// Reads the rest of stdout after the transport has stopped, so that a full pipe does not keep
    /// the server from ending.
    pub(super) fn drain_stdout(&mut self, rest: oneshot::Receiver<ChildStdout>) {
        self.tasks.spawn(async move {
            if let Ok(mut stdout) = rest.await {
                let _whole = tokio::io::copy(&mut stdout, &mut tokio::io::sink()).await.is_ok();
            }
        });
    }

    /// Ends the server, gently at first. Its stdin must have been closed.
    pub(super) async fn stop(&self) {
        self.stop.send_replace(Some(Stop::Gently));
        // An error means that the task which waits for the end is gone, and so is the group.
        drop(self.exit.clone().wait_for(Option::is_some).await);
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let Some(endings) = self.starting.take().filter(|_| self.exit.borrow().is_none()) else {
            return self.group.kill();
        };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return self.group.kill() };
        self.stop.send_replace(Some(Stop::WhileStarting));
        // The tasks go on until the server has ended: they read its output and wait for its end.
        let tasks = std::mem::take(&mut self.tasks);
        let mut exit = self.exit.clone();
        let stop = self.stop.clone();
        let group = Arc::clone(&self.group);
        endings.spawn_on(
            async move {
                // An error means that the task which waits for the end is gone.
                drop(exit.wait_for(Option::is_some).await);
                group.kill();
                drop((tasks, stop));
            },
            &runtime,
        );
    }
}

/// Waits for the process to end, by itself or after `stop`, and ends the rest of its group and what
/// it has detached. Returns how it ended.
async fn wait(mut process: Process, group: &Group, mut stop: watch::Receiver<Option<Stop>>) -> End {
    let status = tokio::select! {
        status = process.wait() => status,
        how = stopped(&mut stop) => match how {
            Stop::Gently => end(&mut process, group).await,
            Stop::WhileStarting => end_start(&mut process, group).await,
        },
    };
    let how = *stop.borrow();
    if let Some(how) = how {
        // What it has left behind.
        group.signal(Signal::TERM);
        let grace = if how == Stop::Gently { GRACE } else { START_GRACE };
        let _in_time = timeout(grace, group.emptied()).await.is_ok();
    }
    group.kill();
    group.detached_gone().await;
    status.into()
}

/// Waits for a stop.
async fn stopped(stop: &mut watch::Receiver<Option<Stop>>) -> Stop {
    let how = stop.wait_for(Option::is_some).await.ok().and_then(|how| *how);
    match how {
        Some(how) => how,
        // The child was dropped without a stop, and so was killed.
        None => std::future::pending().await,
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

/// Ends a process that still starts.
async fn end_start(process: &mut Process, group: &Group) -> io::Result<ExitStatus> {
    group.signal(Signal::TERM);
    if let Ok(status) = timeout(START_GRACE, process.wait()).await {
        return status;
    }
    group.signal(Signal::KILL);
    process.wait().await
}
