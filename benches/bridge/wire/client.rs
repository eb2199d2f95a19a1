//! The asking side: one connection, kept open.
//!
//! Must not: ask again by itself.

use std::{io::ErrorKind, net::SocketAddr};

use bytes::{Buf as _, BytesMut};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::{find, header};
use crate::{clock, run::Outcome};

/// A whole answer and its times.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// The status line and the headers.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    /// Before the first byte of the request was written.
    pub(crate) sent: u64,
    /// When the last byte of the answer was there.
    pub(crate) done: u64,
}

impl Answer {
    /// The body, if the status is one of those of success.
    pub(crate) fn good(self) -> Outcome<Vec<u8>> {
        if (200..300).contains(&self.status) {
            return Ok(self.body);
        }
        let text = String::from_utf8_lossy(&self.body).into_owned();
        Err(format!("HTTP {}: {text}", self.status).into())
    }

    /// The body as JSON, if the status is one of those of success.
    pub(crate) fn json(self) -> Outcome<serde_json::Value> {
        Ok(serde_json::from_slice(&self.good()?)?)
    }
}

/// Asks one server.
#[derive(Debug)]
pub(crate) struct Client {
    addr: SocketAddr,
    /// Lines that each request has, CRLF behind each.
    lines: String,
    stream: Option<TcpStream>,
    buffer: BytesMut,
}

impl Client {
    pub(crate) fn new(addr: SocketAddr) -> Self {
        Self { addr, lines: String::new(), stream: None, buffer: BytesMut::new() }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.lines.push_str(&format!("{name}: {value}\r\n"));
        self
    }

    pub(crate) fn bearer(self, token: &str) -> Self {
        self.header("Authorization", &format!("Bearer {token}"))
    }

    pub(crate) async fn get(&mut self, target: &str) -> Outcome<Answer> {
        self.send("GET", target, "", b"").await
    }

    pub(crate) async fn post(&mut self, target: &str, body: &[u8]) -> Outcome<Answer> {
        self.send("POST", target, "Content-Type: application/json\r\n", body).await
    }

    /// One exchange; `lines` are further headers.
    pub(crate) async fn send(
        &mut self,
        method: &str,
        target: &str,
        lines: &str,
        body: &[u8],
    ) -> Outcome<Answer> {
        let (mut message, addr) = (Vec::with_capacity(body.len() + 512), self.addr);
        let head = format!(
            "{method} {target} HTTP/1.1\r\nHost: {addr}\r\n{}{lines}Content-Length: {}\r\n\r\n",
            self.lines,
            body.len()
        );
        message.extend_from_slice(head.as_bytes());
        message.extend_from_slice(body);
        // A server closes what has been unused for long; where there is nothing to read, it has
        // not.
        let kept = self.stream.take().filter(|stream| {
            let read = stream.try_read(&mut [0]);
            read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
        });
        let mut stream = match kept {
            Some(stream) => stream,
            None => connect(addr).await?,
        };
        self.buffer.clear();
        let sent = clock::now();
        stream.write_all(&message).await?;
        let (status, head) = self.head(&mut stream).await?;
        let mut body = Vec::new();
        if let Some(length) = header(&head, "content-length") {
            let length: usize = length.parse()?;
            while self.buffer.len() < length {
                more(&mut stream, &mut self.buffer).await?;
            }
            body.extend_from_slice(&self.buffer.split_to(length));
        } else if header(&head, "transfer-encoding").is_some() {
            let mut chunks = Dechunk::default();
            while !chunks.feed(&mut self.buffer, &mut body) {
                more(&mut stream, &mut self.buffer).await?;
            }
        } else if status != 204 {
            return Err(format!("{method} {target}: an answer without an end").into());
        }
        let done = clock::now();
        if header(&head, "connection").is_none_or(|value| !value.eq_ignore_ascii_case("close")) {
            self.stream = Some(stream);
        }
        Ok(Answer { status, head, body, sent, done })
    }

    /// Closes the connection; the next request opens another.
    pub(crate) fn hang_up(&mut self) {
        self.stream = None;
    }

    /// Asks for an endless body, and gives the connection and what has come of it already.
    pub(crate) async fn open(mut self, target: &str) -> Outcome<(TcpStream, BytesMut)> {
        let mut stream = connect(self.addr).await?;
        let head = format!(
            "GET {target} HTTP/1.1\r\nHost: {}\r\nAccept: text/event-stream\r\n{}\r\n",
            self.addr, self.lines
        );
        stream.write_all(head.as_bytes()).await?;
        let (status, head) = self.head(&mut stream).await?;
        if status != 200 || header(&head, "transfer-encoding").is_none() {
            return Err(format!("{target} is no stream: {head}").into());
        }
        Ok((stream, self.buffer))
    }

    async fn head(&mut self, stream: &mut TcpStream) -> Outcome<(u16, String)> {
        let end = loop {
            if let Some(at) = find(&self.buffer, b"\r\n\r\n") {
                break at;
            }
            more(stream, &mut self.buffer).await?;
        };
        let head = String::from_utf8_lossy(&self.buffer.split_to(end)).into_owned();
        self.buffer.advance(4);
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        Ok((status.ok_or("an answer without a status")?, head))
    }
}

async fn connect(addr: SocketAddr) -> Outcome<TcpStream> {
    let stream = TcpStream::connect(addr).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

async fn more(stream: &mut TcpStream, buffer: &mut BytesMut) -> Outcome<()> {
    buffer.reserve(64 * 1024);
    if stream.read_buf(buffer).await? == 0 {
        return Err("the server closed the connection in the middle of an answer".into());
    }
    Ok(())
}

/// Takes the chunks off a body, wherever the reads have cut it.
#[derive(Debug, Default)]
pub(crate) struct Dechunk {
    /// Bytes left of a chunk, its CRLF included.
    left: usize,
}

impl Dechunk {
    /// Moves what is there of the payload from `from` to `out`; true behind the last chunk.
    pub(crate) fn feed(&mut self, from: &mut BytesMut, out: &mut Vec<u8>) -> bool {
        loop {
            if self.left > 2 {
                let piece = from.len().min(self.left - 2);
                out.extend_from_slice(from.get(..piece).unwrap_or_default());
                from.advance(piece);
                self.left -= piece;
            }
            if self.left > 2 || (self.left == 2 && from.len() < 2) {
                return false;
            }
            from.advance(self.left);
            self.left = 0;
            let Some(end) = find(from, b"\r\n") else { return false };
            let line = String::from_utf8_lossy(from.get(..end).unwrap_or_default()).into_owned();
            let Ok(size) = usize::from_str_radix(line.trim(), 16) else { return true };
            if size == 0 && from.len() < end + 4 {
                return false;
            }
            from.advance(end + 2);
            if size == 0 {
                from.advance(2);
                return true;
            }
            self.left = size + 2;
        }
    }
}
