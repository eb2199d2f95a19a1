//! Sends the lines of the audit log to a syslog receiver: a unix socket of this host, or a server
//! over TCP or TLS.
//!
//! A line that the kernel has taken counts as sent, since syslog has no acknowledgements: the end
//! of a receiver can lose the lines that were under way. The file has them.
//!
//! Must not: make a call wait, or decide what a line says.

mod message;

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver as Lines, RecvTimeoutError};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use tokio::time::Instant;

use self::message::Origin;
use super::Line;
use super::queue::Shared;
use crate::backoff::Backoff;
use crate::error_chain::error_chain;
use crate::http_client::{self, Tls, is_link_local};

/// The most bytes of a line with its arguments. rsyslog cuts longer messages if it is not told
/// otherwise, and half a line of JSON cannot be read.
pub const LONGEST: usize = 8_000;

/// How long an attempt to reach the receiver may take, and how long it may take no bytes.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long the first line of a connection waits for the receiver's refusal. A receiver that wants
/// another certificate says so only after the handshake of TLS 1.3, and a proxy without a receiver
/// takes the connection first.
const FIRST_LOOK: Duration = Duration::from_millis(250);
/// How long sent bytes may stay unacknowledged, in milliseconds.
const USER_TIMEOUT_MS: u32 = 10_000;

/// Where the lines go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Receiver {
    /// The datagram socket of this host's syslog or journald.
    Unix(PathBuf),
    Tcp(Server),
    /// `None`: with the authorities of this machine.
    Tls(Server, Option<Tls>),
}

/// A receiver's host, without brackets, and its port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    pub host: String,
    pub port: u16,
}

/// The thread's own: the connection, and the lines that have not gone.
pub(super) struct Sender {
    receiver: Receiver,
    origin: Origin,
    connection: Option<Connection>,
    waiting: VecDeque<Arc<Line>>,
    shared: Arc<Shared>,
}

enum Connection {
    Unix(UnixDatagram),
    Tcp(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl fmt::Display for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(server) => write!(f, "tcp://{server}"),
            Self::Tls(server, _) => write!(f, "tls://{server}"),
        }
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl Sender {
    pub(super) fn new(receiver: Receiver, shared: Arc<Shared>) -> Self {
        let origin = Origin::of_this_process();
        Self { receiver, origin, connection: None, waiting: VecDeque::new(), shared }
    }

    /// Sends the lines that come, until no more can come.
    pub(super) fn run(mut self, given: &Lines<Arc<Line>>) {
        let mut backoff = Backoff::for_connections();
        let mut retry_at: Option<Instant> = None;
        loop {
            let first = match retry_at {
                None => given.recv().map_err(|_closed| RecvTimeoutError::Disconnected),
                Some(at) => given.recv_timeout(at.saturating_duration_since(Instant::now())),
            };
            let is_closed = matches!(first, Err(RecvTimeoutError::Disconnected));
            self.waiting.extend(first);
            self.waiting.extend(given.try_iter());
            // A receiver that is away is not tried at each line.
            if !is_closed && retry_at.is_some_and(|at| Instant::now() < at) {
                continue;
            }
            retry_at = match self.send_waiting() {
                Ok(()) => {
                    backoff.reset();
                    None
                }
                Err(error) => {
                    self.connection = None;
                    let error = error_chain(&error);
                    self.shared.attempted(Err(format!("{}: {error}", self.receiver)));
                    Some(Instant::now() + backoff.next_wait())
                }
            };
            if is_closed {
                self.shared.lost(self.waiting.len() as u64);
                return;
            }
        }
    }

    fn send_waiting(&mut self) -> io::Result<()> {
        while let Some(line) = self.waiting.front() {
            if self.connection.as_mut().is_some_and(|connection| !connection.is_open()) {
                self.connection = None;
                let why = "the connection has ended; lines that were under way may be lost";
                self.shared.attempted(Err(format!("{}: {why}", self.receiver)));
            }
            let is_new = self.connection.is_none();
            let connection = match &mut self.connection {
                Some(connection) => connection,
                none => none.insert(Connection::open(&self.receiver)?),
            };
            let sent = match connection.send(line, &self.origin) {
                Ok(()) if is_new && connection.ends_within(FIRST_LOOK) => {
                    Err(io::Error::other("it closes the connection at the first line"))
                }
                outcome => outcome,
            };
            match sent {
                // No later attempt would do better.
                Err(error) if error.raw_os_error() == Some(Errno::MSGSIZE.raw_os_error()) => {
                    self.shared.lost(1);
                }
                outcome => {
                    outcome?;
                    self.shared.attempted(Ok(1));
                }
            }
            self.shared.free(1, line.len());
            self.waiting.pop_front();
        }
        Ok(())
    }
}

impl Connection {
    fn open(receiver: &Receiver) -> io::Result<Self> {
        match receiver {
            Receiver::Unix(path) => {
                let socket = UnixDatagram::unbound()?;
                socket.connect(path)?;
                socket.set_write_timeout(Some(PATIENCE))?;
                Ok(Self::Unix(socket))
            }
            Receiver::Tcp(server) => Ok(Self::Tcp(connect(server)?)),
            Receiver::Tls(server, tls) => {
                let settings = http_client::tls_settings(tls.as_ref()).map_err(io::Error::other)?;
                let name = ServerName::try_from(server.host.clone()).map_err(io::Error::other)?;
                let connection =
                    ClientConnection::new(Arc::new(settings), name).map_err(io::Error::other)?;
                let mut stream = StreamOwned::new(connection, connect(server)?);
                // Until now, nothing was read: a certificate that is not trusted is told before a
                // line is taken for sent.
                while stream.conn.is_handshaking() {
                    stream.conn.complete_io(&mut stream.sock)?;
                }
                Ok(Self::Tls(Box::new(stream)))
            }
        }
    }

    /// Whether the receiver has not closed the connection. The kernel takes a line that follows the
    /// end, loses it, and says so only at the next one.
    fn is_open(&mut self) -> bool {
        match self {
            // There, each datagram has its own answer.
            Self::Unix(_) => true,
            Self::Tcp(stream) => is_silent(stream, |stream| stream),
            Self::Tls(stream) => is_silent(&mut **stream, |stream| &stream.sock),
        }
    }

    /// Whether the receiver closes the connection within `wait`.
    fn ends_within(&mut self, wait: Duration) -> bool {
        match self {
            Self::Unix(_) => false,
            Self::Tcp(stream) => !is_silent_for(stream, wait, |stream| stream),
            Self::Tls(stream) => !is_silent_for(&mut **stream, wait, |stream| &stream.sock),
        }
    }

    fn send(&mut self, line: &Line, origin: &Origin) -> io::Result<()> {
        match self {
            Self::Unix(socket) => {
                socket.send(origin.local(line).as_bytes())?;
                Ok(())
            }
            Self::Tcp(stream) => stream.write_all(origin.framed(line).as_bytes()),
            Self::Tls(stream) => {
                stream.write_all(origin.framed(line).as_bytes())?;
                stream.flush()
            }
        }
    }
}

/// Whether a receiver says nothing: it has nothing to say but its end.
fn is_silent<S: Read>(stream: &mut S, socket: impl Fn(&S) -> &TcpStream) -> bool {
    if socket(stream).set_nonblocking(true).is_err() {
        return false;
    }
    let outcome = stream.read(&mut [0; 64]);
    let would_block = outcome.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
    would_block && socket(stream).set_nonblocking(false).is_ok()
}

/// [`is_silent`] for as long as `wait`, on a stream that blocks.
fn is_silent_for<S: Read>(
    stream: &mut S,
    wait: Duration,
    socket: impl Fn(&S) -> &TcpStream,
) -> bool {
    if socket(stream).set_read_timeout(Some(wait)).is_err() {
        return false;
    }
    let outcome = stream.read(&mut [0; 64]);
    let would_block = outcome.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
    would_block && socket(stream).set_read_timeout(Some(PATIENCE)).is_ok()
}

/// Connects to the first address of `server` that answers.
fn connect(server: &Server) -> io::Result<TcpStream> {
    let mut failure = io::Error::other("the name has no address");
    for address in (server.host.as_str(), server.port).to_socket_addrs()? {
        if is_link_local(address.ip()) {
            failure = io::Error::other("a link-local address is never dialled");
            continue;
        }
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                // A host that vanishes says nothing: without a limit, the kernel would take lines
                // for it for a quarter of an hour.
                sockopt::set_tcp_user_timeout(&stream, USER_TIMEOUT_MS)?;
                return Ok(stream);
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

#[cfg(test)]
mod tests;
