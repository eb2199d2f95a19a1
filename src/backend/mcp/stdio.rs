//! The stdio transport: one JSON-RPC message a line on a child's stdin and stdout.
//!
//! Must not: start or stop the child, or decide what a message means.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rmcp::RoleClient;
use rmcp::model::ServerJsonRpcMessage;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::process::ChildStdin;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::Instant;

use super::LIMIT;
use super::lines::{Line, Lines};
use super::verbatim::{ConnectionState, Incoming, raw_request_of};
use crate::backend::NotRead;
use crate::backend::log::{Budget, LINE_LIMIT};
use crate::budget;
use crate::model::BackendName;

/// How many bytes of messages may wait for a server that does not read its stdin. One message may
/// always wait. The backend's settings bound the number of calls at a time.
const QUEUE: usize = 16 << 20;
const IS_NOT_READ: &str = "the server does not read its stdin";
/// The bytes that a waiting message counts in addition to its text.
const OVERHEAD: usize = 1 << 10;

/// The two pipes of a child, seen by rmcp as a transport.
pub(super) struct Stdio<R, W> {
    backend: BackendName,
    state: Arc<ConnectionState>,
    /// The reader, and what gets it when the transport is dropped: a server may fail if its stdout
    /// closes before its stdin.
    reader: Option<(R, oneshot::Sender<R>)>,
    lines: Lines,
    /// The budget of a partly received line.
    held: budget::Held,
    writer: Arc<Mutex<Option<W>>>,
    /// Ends when the message before has been written. So messages keep their order, although rmcp
    /// writes each in a task of its own.
    turn: oneshot::Receiver<()>,
    /// Has a permit for each byte of messages that may wait to be written.
    queue: Arc<Semaphore>,
    /// How many bytes were written, calls past rmcp apart.
    written: Arc<AtomicU64>,
    garbage: Budget,
    /// Its lines that are no messages are logged at debug.
    is_quiet: Arc<AtomicBool>,
}

/// The way to a child's stdin for calls that go past rmcp.
#[derive(Debug)]
pub(super) struct Pipe {
    stdin: Arc<Mutex<Option<ChildStdin>>>,
    queue: Arc<Semaphore>,
    written: Arc<AtomicU64>,
}

impl Pipe {
    /// Writes a line that fits; the error says why nothing was written. Dropping the future leaves
    /// nothing half written, as the kernel takes all of so few bytes or none.
    pub(super) async fn write(&self, line: &[u8]) -> Result<(), String> {
        let Some(_place) = in_queue(&self.queue, OVERHEAD + line.len()) else {
            return Err(IS_NOT_READ.to_owned());
        };
        let mut stdin = self.stdin.lock().await;
        let stdin = stdin.as_mut().ok_or("its stdin is closed")?;
        let written = stdin.write(line).await.map_err(|error| error.to_string())?;
        if written == line.len() { Ok(()) } else { Err("its stdin took a part".to_owned()) }
    }

    /// Whether the server has read anything during the handshake. One that ends without having read
    /// the first message did not fail because of it; and one that has read nothing yet may still be
    /// busy with its own installation, so that it must not be ended.
    pub(super) fn is_read(&self) -> bool {
        let Ok(stdin) = self.stdin.try_lock() else { return false };
        let Some(Ok(unread)) = stdin.as_ref().map(rustix::io::ioctl_fionread) else { return false };
        unread < self.written.load(Ordering::Relaxed)
    }

    /// Whether a line of `size` bytes can be written (`PIPE_BUF`).
    pub(super) fn fits(size: usize) -> bool {
        size <= 4096
    }
}

impl<R> Stdio<R, ChildStdin> {
    pub(super) fn pipe(&self) -> Pipe {
        Pipe {
            stdin: Arc::clone(&self.writer),
            queue: Arc::clone(&self.queue),
            written: Arc::clone(&self.written),
        }
    }
}

impl<R, W> Stdio<R, W> {
    /// The transport, and a receiver that gets the reader when the transport is dropped.
    pub(super) fn new(
        backend: BackendName,
        state: Arc<ConnectionState>,
        (reader, writer): (R, W),
        is_quiet: Arc<AtomicBool>,
    ) -> (Self, oneshot::Receiver<R>) {
        let (_nothing_before, turn) = oneshot::channel();
        let (rest, rest_receiver) = oneshot::channel();
        let stdio = Self {
            backend,
            state,
            reader: Some((reader, rest)),
            lines: Lines::new(LIMIT),
            held: budget::Budget::of_process().hold(),
            writer: Arc::new(Mutex::new(Some(writer))),
            turn,
            queue: Arc::new(Semaphore::new(QUEUE)),
            written: Arc::default(),
            garbage: Budget::new(Instant::now()),
            is_quiet,
        };
        (stdio, rest_receiver)
    }

    fn read(&mut self, line: &Line) -> Option<ServerJsonRpcMessage> {
        match line {
            Line::Whole(line) => match self.state.incoming(&String::from_utf8_lossy(line)) {
                Incoming::Message(message) => Some(*message),
                Incoming::Ignored(why) => {
                    tracing::debug!(backend = %self.backend, "ignored a message: {why}");
                    None
                }
                Incoming::Garbage => {
                    self.log_garbage(line);
                    None
                }
            },
            Line::TooLong { id, size } => {
                let why = NotRead::TooLarge { limit: LIMIT, size: Some(*size) };
                let message = id.as_ref().and_then(|id| self.state.not_read(id, why));
                if message.is_none() {
                    tracing::warn!(
                        backend = %self.backend,
                        "skipped a line of {size} bytes on stdout: at most {LIMIT} are read"
                    );
                }
                message
            }
        }
    }

    fn log_garbage(&mut self, line: &[u8]) {
        let now = Instant::now();
        if let Some(sum) = self.garbage.settle(now) {
            tracing::warn!(
                backend = %self.backend,
                "dropped {} lines ({} bytes) of stdout that were no MCP messages: over the limit of a minute",
                sum.lines,
                sum.bytes
            );
        }
        if self.garbage.admit(line.len().min(LINE_LIMIT), now) {
            let line = self.state.line(line);
            self.state.oddities.printed(&line);
            let backend = &self.backend;
            if self.is_quiet.load(Ordering::Relaxed) {
                tracing::debug!(%backend, "stdout has a line that is no MCP message: {line}");
            } else {
                tracing::warn!(%backend, "stdout has a line that is no MCP message: {line}");
            }
        }
    }
}

impl<R, W> Transport<RoleClient> for Stdio<R, W>
where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin + Send + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        let text = self.state.outgoing(&message);
        let raw_request = raw_request_of(&message);
        let (writer, written_bytes) = (Arc::clone(&self.writer), Arc::clone(&self.written));
        let size = OVERHEAD + text.as_ref().map_or(0, Vec::len);
        let place = in_queue(&self.queue, size).map(|place| {
            let (written, next_turn) = oneshot::channel::<()>();
            (std::mem::replace(&mut self.turn, next_turn), written, place)
        });
        async move {
            let Some((turn, written, place)) = place else {
                return Err(io::Error::other(IS_NOT_READ));
            };
            let mut text = text?;
            text.push(b'\n');
            // No value is ever sent: the wait ends when the message before drops its sender.
            let _ended = turn.await;
            let mut writer = writer.lock().await;
            let Some(writer) = writer.as_mut() else {
                return Err(io::ErrorKind::BrokenPipe.into());
            };
            raw_request.set_written(true);
            let outcome = async {
                writer.write_all(&text).await?;
                writer.flush().await
            };
            let outcome = outcome.await;
            // Without its end, the server cannot have read the line as a message.
            raw_request.set_written(outcome.is_ok());
            if outcome.is_ok() {
                written_bytes.fetch_add(text.len() as u64, Ordering::Relaxed);
            }
            drop((written, place));
            outcome
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        // Safe to drop: `read_buf` loses nothing, and what was read stays in `lines`.
        loop {
            self.state.has_room().await;
            if let Some(line) = self.lines.next_line() {
                match self.read(&line) {
                    Some(message) => return Some(message),
                    None => continue,
                }
            }
            self.held.follow(self.lines.buffer.len());
            let (reader, _rest) = self.reader.as_mut()?;
            match reader.read_buf(&mut self.lines.buffer).await {
                Ok(0) => {
                    // A last line without its end.
                    let rest = self.lines.buffer.split();
                    if !rest.is_empty() {
                        self.log_garbage(&rest);
                    }
                    return None;
                }
                Ok(_) => (),
                Err(error) => {
                    self.state.lose(format!("its stdout cannot be read: {error}"));
                    return None;
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), io::Error> {
        // A stuck write holds the lock. It ends when rmcp drops it, and closes stdin then.
        if let Ok(mut writer) = self.writer.try_lock() {
            *writer = None;
        }
        Ok(())
    }
}

impl<R, W> Drop for Stdio<R, W> {
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

#[cfg(test)]
mod tests {
    //! How much waits for a server that does not read, and how much of one is read.

    use super::super::verbatim::tests::full;
    use super::*;

    #[tokio::test]
    async fn a_line_waits_until_the_calls_have_taken_the_responses_before_it() {
        let (state, raw_request) = full();
        let line = &b"{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"method\":\"ping\"}\n"[..];
        let name = BackendName::parse("a").unwrap();
        let (mut stdio, _rest) =
            Stdio::new(name, Arc::new(state), (line, tokio::io::sink()), Arc::default());
        let mut received = Box::pin(stdio.receive());
        assert!(futures_util::poll!(&mut received).is_pending());
        raw_request.take_outcome().unwrap().unwrap().unwrap();
        received.await.expect("the line");
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
