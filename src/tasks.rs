//! Spawns every task that lives as long as the daemon, gives it a name, and waits for it at
//! shutdown. If one ends early, that is an error: the daemon stops, and systemd restarts it.
//!
//! Must not: hold short work; that lives in the `JoinSet` of its owner.

use std::panic::resume_unwind;
use std::time::Duration;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

/// The long-lived tasks of the daemon.
#[derive(Debug, Default)]
pub struct Tasks {
    set: JoinSet<&'static str>,
    stop: CancellationToken,
}

/// A task ended before it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    #[error("the task {0:?} ended by itself")]
    Ended(&'static str),
    #[error("a task panicked")]
    Panicked(#[source] JoinError),
}

/// Runs `work`, which may block, on a thread for such work.
///
/// # Errors
///
/// It panicked.
pub async fn in_background<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    #[cfg(test)]
    if crate::simulated::world().is_some() {
        return Ok(work());
    }
    tokio::task::spawn_blocking(work).await
}

/// From so many bytes on, a look at all of them may take longer than a millisecond.
pub const LARGE: usize = 32 << 10;

/// [`in_background`] if `bytes`, the size of what `work` looks at, are many; otherwise at once. A
/// panic of `work` is one here in both cases.
pub async fn in_background_if_large<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    if bytes < LARGE {
        return work();
    }
    match in_background(work).await {
        Ok(done) => done,
        Err(error) => resume_unwind(error.into_panic()),
    }
}

/// `work` at once. If `bytes`, the size of what it looks at, are many, tokio's other tasks leave
/// this thread meanwhile.
///
/// It is for what must not be dropped half way: the caller of an answer that has arrived may go
/// away at each `await`, and the answer with it.
pub fn in_place_if_large<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    let runtime = Handle::try_current().map(|runtime| runtime.runtime_flavor());
    // Where there is one thread alone, nothing can leave it.
    if bytes < LARGE || !matches!(runtime, Ok(RuntimeFlavor::MultiThread)) {
        return work();
    }
    tokio::task::block_in_place(work)
}

impl Tasks {
    /// Cancelled when the daemon shuts down.
    pub fn stop_token(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Spawns a task that must live until [`Tasks::stop_token`] is cancelled.
    pub fn spawn(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.set.spawn(async move {
            task.await;
            name
        });
    }

    /// Spawns a task that is dropped when the daemon shuts down, and does not end before.
    pub fn spawn_until_stop(
        &mut self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let stop = self.stop_token();
        self.spawn(name, async move {
            stop.run_until_cancelled(task).await;
        });
    }

    /// Resolves when a task ends too early; pends for ever while none is running.
    pub async fn failed(&mut self) -> TaskError {
        match self.set.join_next().await {
            Some(Ok(name)) => TaskError::Ended(name),
            Some(Err(error)) => TaskError::Panicked(error),
            None => std::future::pending().await,
        }
    }

    /// Asks every task to stop and waits; returns how many had to be aborted after `grace`.
    pub async fn shut_down(mut self, grace: Duration) -> usize {
        self.stop.cancel();
        let drained = async { while self.set.join_next().await.is_some() {} };
        match tokio::time::timeout(grace, drained).await {
            Ok(()) => 0,
            Err(_elapsed) => {
                let stuck = self.set.len();
                self.set.shutdown().await;
                stuck
            }
        }
    }
}
