//! The stdio transport: one JSON-RPC message a line on a child's stdin and stdout.
//!
//! Must not: start or stop the child, or decide what a message means.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::process::ChildStdin;
use tokio::sync::{Mutex, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::LIMIT;
use super::lines::{Line, Lines};
use super::rpc::{Incoming, Message, Rpc};
use crate::backend::NotRead;
use crate::backend::log::{LINE_LIMIT, LogQuota};
use crate::budget;

/// How many bytes of messages may wait for a server that does not read its stdin. One message may
/// always wait. The backend's settings bound the number of calls at a time.
const QUEUE: usize = 16 << 20;
const IS_NOT_READ: &str = "the server does not read its stdin";
const IS_CLOSED: &str = "its stdin is closed";
/// The bytes that a waiting message counts in addition to its text.
const OVERHEAD: usize = 1 << 10;
/// The longest line that the kernel takes as a whole or not at all (`PIPE_BUF`).
const ATOMIC: usize = 4096;

/// What messages are written to.
pub(super) trait Stdin: AsyncWrite + Send + Unpin {
    /// How many bytes the server has not read yet, if that can be said.
    fn unread(&self) -> Option<u64>;
}

impl Stdin for ChildStdin {
    fn unread(&self) -> Option<u64> {
        rustix::io::ioctl_fionread(self).ok()
    }
}

/// A child's stdin, until it is closed.
type Writer = Option<Box<dyn Stdin>>;

/// The way to a child's stdin. Its drop closes stdin.
pub(super) struct Pipe {
    /// Callers get it in their order, so messages keep theirs.
    stdin: Arc<Mutex<Writer>>,
    /// Has a permit for each byte of messages that may wait to be written.
    queue: Arc<Semaphore>,
    /// How many bytes were written.
    written: Arc<AtomicU64>,
    /// Cancelled when stdin closes: ends the writing of a large line that is not read.
    closed: CancellationToken,
    /// Write large lines.
    writings: TaskTracker,
}

impl Pipe {
    pub(super) fn new(stdin: impl Stdin + 'static) -> Self {
        Self::over(Some(Box::new(stdin)))
    }

    fn over(stdin: Writer) -> Self {
        Self {
            stdin: Arc::new(Mutex::new(stdin)),
            queue: Arc::new(Semaphore::new(QUEUE)),
            written: Arc::default(),
            closed: CancellationToken::new(),
            writings: TaskTracker::new(),
        }
    }

    /// One that leads nowhere.
    #[cfg(any(test, fuzzing))]
    pub(super) fn closed() -> Self {
        Self::over(None)
    }

    /// Writes `message`; the error says why the server cannot have read it. A dropped future leaves
    /// no half line: a short one is taken as a whole or not at all, and a task writes a long one to
    /// its end, for which later messages wait.
    pub(super) async fn send(&self, message: Message) -> Result<(), String> {
        let Message { mut text, request, .. } = message;
        text.push(b'\n');
        let Some(place) = in_queue(&self.queue, OVERHEAD + text.len()) else {
            return Err(IS_NOT_READ.to_owned());
        };
        let stdin = Arc::clone(&self.stdin).lock_owned().await;
        let written = if text.len() <= ATOMIC {
            write_at_once(stdin, &text, &self.written).await
        } else {
            if let Some(request) = &request {
                request.set_written(true);
            }
            let (count, closed) = (Arc::clone(&self.written), self.closed.clone());
            let writing = self.writings.spawn(async move {
                let _place = place;
                let written = closed.run_until_cancelled(write(stdin, &text, &count)).await;
                written.unwrap_or_else(|| Err(IS_CLOSED.to_owned()))
            });
            writing.await.unwrap_or_else(|_panic| Err(IS_CLOSED.to_owned()))
        };
        if let Some(request) = &request {
            // Without its end, the server cannot have read the line as a message.
            request.set_written(written.is_ok());
        }
        written
    }

    /// Closes stdin, whatever waits for it.
    pub(super) async fn close(&self) {
        self.closed.cancel();
        *self.stdin.lock().await = None;
    }

    /// Whether the server has read anything during the handshake. One that ends without having read
    /// the first message did not fail because of it; and one that has read nothing yet may still be
    /// busy with its own installation, so that it must not be ended.
    pub(super) fn is_read(&self) -> bool {
        let Ok(stdin) = self.stdin.try_lock() else { return false };
        let Some(unread) = stdin.as_ref().and_then(|stdin| stdin.unread()) else { return false };
        unread < self.written.load(Ordering::Relaxed)
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.closed.cancel();
    }
}

/// Writes a short line, as the kernel takes it: as a whole.
async fn write_at_once(
    mut writer: OwnedMutexGuard<Writer>,
    line: &[u8],
    count: &AtomicU64,
) -> Result<(), String> {
    let stdin = writer.as_mut().ok_or(IS_CLOSED)?;
    let written = stdin.write(line).await.map_err(|error| error.to_string())?;
    count.fetch_add(written as u64, Ordering::Relaxed);
    if written == line.len() { Ok(()) } else { Err("its stdin took a part".to_owned()) }
}

/// Writes a line piece by piece, as the server reads.
async fn write(
    mut writer: OwnedMutexGuard<Writer>,
    line: &[u8],
    count: &AtomicU64,
) -> Result<(), String> {
    let stdin = writer.as_mut().ok_or(IS_CLOSED)?;
    stdin.write_all(line).await.map_err(|error| error.to_string())?;
    count.fetch_add(line.len() as u64, Ordering::Relaxed);
    Ok(())
}

/// Reads a child's stdout.
pub(super) struct Stdout<R> {
    rpc: Arc<Rpc>,
    /// The reader, and what gets it when this is dropped: a server may fail if its stdout closes
    /// before its stdin.
    reader: Option<(R, oneshot::Sender<R>)>,
    lines: Lines,
    /// The budget of a partly received line.
    held: budget::Held,
    garbage: LogQuota,
    /// Its lines that are no messages are logged at debug.
    is_quiet: Arc<AtomicBool>,
}

impl<R: AsyncRead + Unpin> Stdout<R> {
    /// The reading side, and a receiver that gets `stdout` when reading has ended.
    pub(super) fn new(
        rpc: Arc<Rpc>,
        stdout: R,
        is_quiet: Arc<AtomicBool>,
    ) -> (Self, oneshot::Receiver<R>) {
        let (rest, rest_receiver) = oneshot::channel();
        let stdout = Self {
            rpc,
            reader: Some((stdout, rest)),
            lines: Lines::new(LIMIT),
            held: budget::Budget::of_process().hold(),
            garbage: LogQuota::new(Instant::now()),
            is_quiet,
        };
        (stdout, rest_receiver)
    }

    /// Reads until the server or the bridge ends the connection.
    pub(super) async fn run(mut self) {
        let rpc = Arc::clone(&self.rpc);
        if rpc.ended.run_until_cancelled(self.read_all()).await.is_some() {
            rpc.end();
        }
    }

    async fn read_all(&mut self) {
        loop {
            self.rpc.wait_for_room().await;
            if let Some(line) = self.lines.next_line() {
                self.take(&line);
                continue;
            }
            self.held.follow(self.lines.buffer.len());
            let Some((reader, _rest)) = self.reader.as_mut() else { return };
            match reader.read_buf(&mut self.lines.buffer).await {
                Ok(0) => {
                    // A last line without its end.
                    let rest = self.lines.buffer.split();
                    if !rest.is_empty() {
                        self.log_garbage(&rest);
                    }
                    return;
                }
                Ok(_) => (),
                Err(error) => {
                    return self.rpc.lose(format!("its stdout cannot be read: {error}"));
                }
            }
        }
    }

    fn take(&mut self, line: &Line) {
        let backend = &self.rpc.backend;
        match line {
            Line::Whole(line) => match self.rpc.incoming(&String::from_utf8_lossy(line)) {
                Incoming::Taken => (),
                Incoming::Ignored(why) => tracing::debug!(%backend, "ignored a message: {why}"),
                Incoming::Garbage => self.log_garbage(line),
            },
            Line::TooLong { id, size } => {
                let why = NotRead::TooLarge { limit: LIMIT, size: Some(*size) };
                if !id.as_ref().is_some_and(|id| self.rpc.not_read(id, why)) {
                    tracing::warn!(
                        %backend,
                        "skipped a line of {size} bytes on stdout: at most {LIMIT} are read"
                    );
                }
            }
        }
    }

    fn log_garbage(&mut self, line: &[u8]) {
        let backend = &self.rpc.backend;
        let now = Instant::now();
        if let Some(sum) = self.garbage.settle(now) {
            tracing::warn!(
                %backend,
                "dropped {} lines ({} bytes) of stdout that were no MCP messages: over the limit of a minute",
                sum.lines,
                sum.bytes
            );
        }
        if self.garbage.admit(line.len().min(LINE_LIMIT), now) {
            let line = self.rpc.line(line);
            self.rpc.oddities.printed(&line);
            if self.is_quiet.load(Ordering::Relaxed) {
                tracing::debug!(%backend, "stdout has a line that is no MCP message: {line}");
            } else {
                tracing::warn!(%backend, "stdout has a line that is no MCP message: {line}");
            }
        }
    }
}

impl<R> Drop for Stdout<R> {
    fn drop(&mut self) {
        if let Some((reader, rest)) = self.reader.take() {
            // If the receiver is gone, the reader is dropped here.
            drop(rest.send(reader));
        }
    }
}

/// The place of a message in the queue, released on drop. One that is larger than the queue takes
/// all of it.
fn in_queue(queue: &Arc<Semaphore>, size: usize) -> Option<OwnedSemaphorePermit> {
    let size = u32::try_from(size.min(QUEUE)).ok()?;
    Arc::clone(queue).try_acquire_many_owned(size).ok()
}

/// A connection over `pipe`, whose other end is the server.
#[cfg(test)]
pub(super) fn linked(name: &str, pipe: tokio::io::DuplexStream) -> super::rpc::Link {
    let (reader, writer) = tokio::io::split(pipe);
    let name = crate::model::BackendName::parse(name).expect("a name");
    let transport = super::transport::Transport::Pipe(Pipe::new(writer));
    let rpc = Rpc::new(name, transport, &Default::default(), true, Arc::default());
    let (stdout, _rest) = Stdout::new(Arc::clone(&rpc), reader, Arc::default());
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(stdout.run());
    super::rpc::Link { rpc, tasks }
}

#[cfg(test)]
impl Stdin for tokio::io::WriteHalf<tokio::io::DuplexStream> {
    fn unread(&self) -> Option<u64> {
        None
    }
}

#[cfg(test)]
mod tests {
    //! How much waits for a server that does not read, and how much of one is read.

    use tokio::io::{AsyncBufReadExt as _, BufReader, split};

    use super::super::rpc::tests::full;
    use super::super::rpc::{Kind, OpenRequest};
    use super::*;

    #[tokio::test]
    async fn large_line_is_written_to_its_end_although_its_caller_has_gone() {
        let (ours, theirs) = tokio::io::duplex(1 << 10);
        let pipe = Pipe::new(split(ours).1);
        let message = |id: i64, piece: &str| {
            let request = Arc::new(OpenRequest::new(id, "x", Kind::Call));
            Message::request(&request, None, &[piece])
        };
        let large = "\"x\":".repeat(ATOMIC);
        {
            let mut sending = Box::pin(pipe.send(message(1, &large)));
            assert!(futures_util::poll!(&mut sending).is_pending());
        }
        let mut next = Box::pin(pipe.send(message(2, "")));
        assert!(futures_util::poll!(&mut next).is_pending(), "it waits for its turn");
        let mut lines = BufReader::new(theirs).lines();
        let read = async {
            let first = lines.next_line().await.unwrap().unwrap();
            (first, lines.next_line().await.unwrap().unwrap())
        };
        let ((first, second), sent) = tokio::join!(read, next);
        sent.unwrap();
        assert!(first.ends_with(&format!("{large}}}}}")), "it is whole");
        assert!(second.contains(r#""id":2"#), "{second}");
    }

    #[tokio::test]
    async fn a_line_waits_until_the_calls_have_taken_the_responses_before_it() {
        let (rpc, request) = full();
        let before = rpc.messages();
        let line = &b"{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"method\":\"ping\"}\n"[..];
        let (stdout, _rest) = Stdout::new(Arc::clone(&rpc), line, Arc::default());
        let mut reading = Box::pin(stdout.run());
        assert!(futures_util::poll!(&mut reading).is_pending());
        assert_eq!(rpc.messages(), before);
        request.take_outcome().unwrap().unwrap().unwrap();
        reading.await;
        assert_eq!(rpc.messages(), before + 1);
    }

    #[test]
    fn a_burst_of_calls_may_wait_and_what_is_never_read_is_bounded() {
        let queue = Arc::new(Semaphore::new(QUEUE));
        let few = OVERHEAD + 200;
        let burst: Vec<_> = (0..1_000).map_while(|_| in_queue(&queue, few)).collect();
        assert_eq!(burst.len(), 1_000, "what one backend may be asked at once gets through");
        let rest = std::iter::repeat_with(|| in_queue(&queue, few)).take(QUEUE);
        let rest: Vec<_> = rest.map_while(|place| place).collect();
        assert_eq!(burst.len() + rest.len(), QUEUE / few);
        drop((burst, rest));
        let large = in_queue(&queue, 2 * QUEUE);
        assert!(large.is_some(), "one may in any case");
        assert!(in_queue(&queue, few).is_none());
        drop(large);
        assert!(in_queue(&queue, few).is_some());
        assert_eq!(queue.available_permits(), QUEUE, "all was given back");
    }
}
