//! The serving side.
//!
//! Must not: know a route.

use std::{io, net::SocketAddr};

use bytes::{Buf as _, BytesMut};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use super::{find, header};
use crate::clock;

/// One request, with its whole body.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// Path and query.
    pub(crate) target: String,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    /// When its first byte was there.
    pub(crate) first: u64,
    /// When its last byte was there.
    pub(crate) last: u64,
}

/// A connection of a client.
#[derive(Debug)]
pub(crate) struct Served {
    stream: TcpStream,
    buffer: BytesMut,
    /// When the latest bytes came.
    came: u64,
}

impl Served {
    /// The next request; `None` where the client has closed.
    pub(crate) async fn request(&mut self) -> io::Result<Option<Request>> {
        if self.buffer.is_empty() && !self.more().await? {
            return Ok(None);
        }
        let first = self.came;
        let end = loop {
            if let Some(at) = find(&self.buffer, b"\r\n\r\n") {
                break at;
            }
            self.must_have_more().await?;
        };
        let head = String::from_utf8_lossy(&self.buffer.split_to(end)).into_owned();
        self.buffer.advance(4);
        let body = match header(&head, "content-length").and_then(|text| text.parse().ok()) {
            Some(length) => self.take(length).await?,
            None if header(&head, "transfer-encoding").is_some() => self.chunks().await?,
            None => Vec::new(),
        };
        let mut words = head.split([' ', '\r']).map(str::to_owned);
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        Ok(Some(Request { method, target, head, body, first, last: self.came }))
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Waits until the client hangs up.
    pub(crate) async fn hung_up(&mut self) {
        // What a client sends behind its request for a stream is nothing to us.
        while self.more().await.unwrap_or(false) {
            self.buffer.clear();
        }
    }

    async fn more(&mut self) -> io::Result<bool> {
        self.buffer.reserve(16 * 1024);
        let read = self.stream.read_buf(&mut self.buffer).await?;
        self.came = clock::now();
        Ok(read > 0)
    }

    async fn must_have_more(&mut self) -> io::Result<()> {
        if self.more().await? { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    async fn take(&mut self, length: usize) -> io::Result<Vec<u8>> {
        self.buffer.reserve(length.saturating_sub(self.buffer.len()));
        while self.buffer.len() < length {
            self.must_have_more().await?;
        }
        Ok(self.buffer.split_to(length).into())
    }

    async fn chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let end = loop {
                if let Some(at) = find(&self.buffer, b"\r\n") {
                    break at;
                }
                self.must_have_more().await?;
            };
            let size = String::from_utf8_lossy(&self.buffer.split_to(end)).into_owned();
            self.buffer.advance(2);
            let size = usize::from_str_radix(size.trim(), 16).map_err(io::Error::other)?;
            let piece = self.take(size + 2).await?;
            body.extend_from_slice(piece.get(..size).unwrap_or_default());
            if size == 0 {
                return Ok(body);
            }
        }
    }
}

/// Serves every connection on a port that is free, each with `serve`; the address is told to
/// whoever has started this process.
pub(crate) async fn listen<F>(serve: impl Fn(Served) -> F) -> io::Result<()>
where
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
    crate::roles::listening(listener.local_addr()?).await?;
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let served = Served { stream, buffer: BytesMut::new(), came: 0 };
        connections.spawn(serve(served));
        while connections.try_join_next().is_some() {}
    }
}

/// A whole answer with a body of JSON.
pub(crate) fn response(status: u16, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status} Benchmark\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Appends `payload` as one chunk.
pub(crate) fn chunk(out: &mut Vec<u8>, payload: &[u8]) {
    out.extend_from_slice(format!("{:x}\r\n", payload.len()).as_bytes());
    out.extend_from_slice(payload);
    out.extend_from_slice(b"\r\n");
}
