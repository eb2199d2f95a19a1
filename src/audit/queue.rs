//! The lines that wait for one thread, which writes or sends them: bounded, counted, and reported
//! to the operator when they cannot go.
//!
//! Must not: make a caller wait.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use std::{io, thread};

use parking_lot::Mutex;
use tracing::{error, info, warn};

use super::Line;

/// The most lines and bytes that may wait, for a thread and with it.
const WAITING_LINES: usize = 10_000;
pub(super) const WAITING_BYTES: usize = 16 << 20;
/// How long the end of the process waits for a thread.
pub(super) const CLOSE: Duration = Duration::from_secs(5);

/// The way to a thread.
#[derive(Debug)]
pub(super) struct Queue {
    /// `None` once the queue is closed.
    lines: Mutex<Option<mpsc::SyncSender<Arc<Line>>>>,
    /// Says that the thread has ended, by being closed.
    ended: Mutex<mpsc::Receiver<()>>,
    /// `None` once the thread was joined.
    thread: Mutex<Option<thread::JoinHandle<()>>>,
    shared: Arc<Shared>,
    /// The most bytes of a line.
    longest: usize,
}

/// The state of one place where lines go.
#[derive(Debug, Clone, Default)]
pub struct Health {
    /// For operators: why lines cannot go there now.
    pub error: Option<String>,
    pub written: u64,
    /// Lines that were dropped before they were accepted.
    pub lost: u64,
}

/// What a queue and its thread know of each other.
#[derive(Debug)]
pub(super) struct Shared {
    /// Where the lines go, for the log: `file` or `syslog`.
    name: &'static str,
    health: Mutex<Health>,
    /// Lines that wait, with a thread as well as for it, and their bytes.
    waiting_lines: AtomicUsize,
    waiting_bytes: AtomicUsize,
}

impl Queue {
    /// Starts a thread that runs `run`, which takes lines until the queue is closed and empty.
    pub(super) fn start(
        shared: Arc<Shared>,
        longest: usize,
        run: impl FnOnce(&mpsc::Receiver<Arc<Line>>) + Send + 'static,
    ) -> io::Result<Self> {
        let (lines, given) = mpsc::sync_channel(WAITING_LINES);
        let (end, ended) = mpsc::channel();
        let name = format!("audit-{}", shared.name);
        let thread = thread::Builder::new().name(name).spawn(move || {
            let _end: mpsc::Sender<()> = end;
            run(&given);
        })?;
        Ok(Self {
            lines: Mutex::new(Some(lines)),
            ended: Mutex::new(ended),
            thread: Mutex::new(Some(thread)),
            shared,
            longest,
        })
    }

    /// Takes `line`; false if it is too long, or if there is no room for it.
    pub(super) fn offer(&self, line: &Arc<Line>) -> bool {
        line.len() <= self.longest && self.take(line)
    }

    /// Takes `line`, of any length, or counts it as lost.
    pub(super) fn push(&self, line: &Arc<Line>) {
        if !self.take(line) {
            self.shared.lost(1);
        }
    }

    fn take(&self, line: &Arc<Line>) -> bool {
        let bytes = line.len();
        if !self.shared.reserve(bytes) {
            return false;
        }
        let lines = self.lines.lock();
        // The channel is full, or the thread has ended.
        let is_taken = lines.as_ref().is_some_and(|lines| lines.try_send(Arc::clone(line)).is_ok());
        if !is_taken {
            self.shared.free(1, bytes);
        }
        is_taken
    }

    pub(super) fn health(&self) -> Health {
        self.shared.health()
    }

    /// Has the thread take all lines that wait, and waits until it has ended, at most for
    /// [`CLOSE`].
    pub(super) fn close(&self) {
        // The thread ends once it has got all of them.
        drop(self.lines.lock().take());
        if self.ended.lock().recv_timeout(CLOSE) == Err(mpsc::RecvTimeoutError::Timeout) {
            warn!(of = self.shared.name, "lines of the audit log still wait, and are lost");
            return;
        }
        if self.thread.lock().take().is_some_and(|thread| thread.join().is_err()) {
            error!(of = self.shared.name, "the thread of the audit log has panicked");
        }
    }
}

impl Shared {
    pub(super) fn new(name: &'static str) -> Self {
        let [waiting_lines, waiting_bytes] = [0, 0].map(AtomicUsize::new);
        Self { name, health: Mutex::default(), waiting_lines, waiting_bytes }
    }

    pub(super) fn health(&self) -> Health {
        self.health.lock().clone()
    }

    /// Reserves room for a line of `bytes` that waits; false if there is none.
    fn reserve(&self, bytes: usize) -> bool {
        let lines = self.waiting_lines.fetch_add(1, Ordering::Relaxed) + 1;
        let all_bytes = self.waiting_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let has_room = lines <= WAITING_LINES && all_bytes <= WAITING_BYTES;
        if !has_room {
            self.free(1, bytes);
        }
        has_room
    }

    /// Frees the room of so many lines and bytes.
    pub(super) fn free(&self, lines: usize, bytes: usize) {
        self.waiting_lines.fetch_sub(lines, Ordering::Relaxed);
        self.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Notes the outcome of an attempt: how many lines went, or why they did not.
    pub(super) fn attempted(&self, outcome: Result<u64, String>) {
        let mut health = self.health.lock();
        let before = health.error.take();
        match outcome {
            Ok(lines) => {
                health.written += lines;
                if before.is_some() {
                    info!(of = self.name, "the lines of the audit log go again");
                }
            }
            Err(error) => {
                if before.is_none() {
                    error!(of = self.name, %error, "the lines of the audit log cannot go; they wait");
                }
                health.error = Some(error);
            }
        }
    }

    /// Counts lines that are lost.
    pub(super) fn lost(&self, lines: u64) {
        let mut health = self.health.lock();
        let before = health.lost;
        health.lost += lines;
        // Logs the first lost line, and then each time that the number has doubled.
        if lines > 0 && (before == 0 || before.ilog2() != health.lost.ilog2()) {
            error!(of = self.name, lost = health.lost, "lines of the audit log are lost");
        }
    }
}

#[cfg(test)]
mod tests {
    //! How much waits.

    use std::time::SystemTime;

    use super::*;

    #[test]
    fn lines_that_a_thread_holds_count_as_waiting() {
        let shared = Arc::new(Shared::new("syslog"));
        let (held, is_held) = mpsc::channel();
        let queue = Queue::start(Arc::clone(&shared), usize::MAX, move |lines| {
            // Its receiver is away.
            let mut waiting = Vec::new();
            while let Ok(line) = lines.recv() {
                waiting.push(line);
                held.send(()).ok();
            }
        });
        let queue = queue.expect("a thread can be started");
        let line = Arc::new(Line { time: SystemTime::UNIX_EPOCH, text: "{}".to_owned() });
        for _ in 0..WAITING_LINES {
            queue.push(&line);
            is_held.recv().expect("the thread takes it");
        }
        assert_eq!(queue.health().lost, 0);
        queue.push(&line);
        assert_eq!(queue.health().lost, 1);
        shared.free(1, line.len());
        queue.push(&line);
        assert_eq!(queue.health().lost, 1, "there is room for one again");
    }
}
