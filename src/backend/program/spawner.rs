//! Starts programs on a thread that lives as long as the process. The kernel treats the end of the
//! *thread* that started a child as the parent's death, and a runtime's threads come and go.
//!
//! Must not: know what is started.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::mpsc::{SyncSender, sync_channel};

use tokio::process::Command;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::orphans::Mark;
use super::{Started, orphans};

type Job = Box<dyn FnOnce() + Send>;

/// How many programs may wait to be started. A full queue is reported, not waited for.
const QUEUE: usize = 64;

static JOBS: OnceLock<Option<SyncSender<Job>>> = OnceLock::new();

/// Starts `command`, whose program has `mark`. Must be called in a runtime.
pub(super) async fn spawn(mut command: Command, mark: Mark) -> io::Result<Started> {
    let runtime = Handle::current();
    let (reply, started) = oneshot::channel();
    let job: Job = Box::new(move || {
        let _in_runtime = runtime.enter();
        // If the caller is gone, the reply is dropped here, which kills the program.
        let process = orphans::start_own(&mut command);
        drop(reply.send(process.and_then(|process| Started::new(process, mark))));
    });
    let jobs = JOBS.get_or_init(start).as_ref();
    jobs.and_then(|jobs| jobs.try_send(job).ok())
        .ok_or_else(|| io::Error::other("the thread that starts programs is not keeping up"))?;
    started.await.map_err(|_gone| io::Error::other("the thread that starts programs has ended"))?
}

/// Starts the thread; `None` if the system gives none.
fn start() -> Option<SyncSender<Job>> {
    let (sender, jobs) = sync_channel::<Job>(QUEUE);
    let thread = std::thread::Builder::new().name("start-programs".to_owned());
    // A job that panics must not end the thread: then no program of any backend could be started.
    // The caller of that job learns of it, as its reply is dropped.
    let running = thread.spawn(move || {
        jobs.into_iter().for_each(|job| drop(catch_unwind(AssertUnwindSafe(job))));
    });
    if running.is_ok() { Some(sender) } else { None }
}
