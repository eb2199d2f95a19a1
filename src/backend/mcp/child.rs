//! A stdio server's process and everything that it starts: watched while it runs, and stopped
//! gently.
//!
//! Must not: start a program its own way (`backend::program` does), or read the server's stdout.

use std::io;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::Signal;
use tokio::process::{Child as Process, ChildStdin, ChildStdout};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

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

/// A running server. Its drop kills it and everything that it has started.
pub(super) struct Child {
    group: Arc<Group>,
    stop: CancellationToken,
    exit: watch::Receiver<Option<End>>,
    /// Cancelled when stderr has ended.
    stderr_ended: CancellationToken,
    pub(super) last_lines: Arc<Mutex<LastLines>>,
    /// Read what the server writes and wait for its end; aborted on drop.
    tasks: JoinSet<()>,
}

impl Child {
    /// Starts the server, through `launcher` if there is one.
    pub(super) async fn start(
        backend: &BackendName,
        program: &Program,
        launcher: Option<&Path>,
        redact: &LiveRedaction,
    ) -> Result<(Self, ChildStdin, ChildStdout, Coverage), PeerError> {
        let started = program::start(program, launcher).await?;
        let Started { mut process, group, coverage } = started;
        let stdin = process.stdin.take().expect("stdin was asked for as a pipe");
        let stdout = process.stdout.take().expect("stdout was asked for as a pipe");
        let stderr = process.stderr.take().expect("stderr was asked for as a pipe");
        tracing::info!(%backend, pid = group.leader(), "started the server");

        let stop = CancellationToken::new();
        let (exit_sender, exit) = watch::channel(None);
        let stderr_ended = CancellationToken::new();
        let last_lines = Arc::<Mutex<LastLines>>::default();
        let mut tasks = JoinSet::new();
        tasks.spawn({
            let backend = backend.clone();
            let last_lines = Arc::clone(&last_lines);
            let secrets = Arc::clone(&program.secrets);
            let redact = redact.clone();
            let ended = stderr_ended.clone();
            async move {
                stderr::drain(&backend, stderr, &secrets, &redact, &last_lines).await;
                ended.cancel();
            }
        });
        tasks.spawn({
            let backend = backend.clone();
            let group = Arc::clone(&group);
            let stop = stop.clone();
            async move {
                let exit = wait(process, &group, &stop).await;
                tracing::info!(%backend, "the server {exit}");
                exit_sender.send_replace(Some(exit));
            }
        });
        let child = Self { group, stop, exit, stderr_ended, last_lines, tasks };
        Ok((child, stdin, stdout, coverage))
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
        self.stop.cancel();
        // An error means that the task which waits for the end is gone, and so is the group.
        drop(self.exit.clone().wait_for(Option::is_some).await);
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.group.kill();
    }
}

/// Waits for the process to end, by itself or after `stop`, and ends the rest of its group. Returns
/// how it ended.
async fn wait(mut process: Process, group: &Group, stop: &CancellationToken) -> End {
    let status = tokio::select! {
        status = process.wait() => status,
        () = stop.cancelled() => end(&mut process, group).await,
    };
    if stop.is_cancelled() {
        // What it has left behind.
        group.signal(Signal::TERM);
        let _in_time = timeout(GRACE, group.emptied()).await.is_ok();
    }
    group.kill();
    status.into()
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
