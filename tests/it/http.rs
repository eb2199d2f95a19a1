//! HTTP/1.1 over TCP, or what else carries bytes, for the tests: every byte of a request is the
//! test's own, and bodies can be read chunk by chunk.
//!
//! Must not: follow redirects, reuse connections or add headers beyond `Host` and the framing.

use std::{io, net::SocketAddr, time::Duration};

use serde_json::Value;
use tokio::{
    io::{
        AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite,
        AsyncWriteExt as _, BufReader, ReadHalf, WriteHalf, split,
    },
    net::TcpStream,
    time::timeout,
};

/// No answer of the bridge takes this long unless it hangs; tests that measure say so themselves.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// The first line and the headers of a message, names in lower case.
#[derive(Debug, Clone)]
pub(crate) struct Head {
    pub(crate) line: String,
    pub(crate) headers: Vec<(String, String)>,
}

impl Head {
    /// Reads a head; `None` where the connection ends before its first byte.
    pub(crate) async fn read(reader: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Option<Self>> {
        let Some(line) = line(reader).await? else { return Ok(None) };
        let mut headers = Vec::new();
        loop {
            let text = line_or_eof(reader).await?;
            if text.is_empty() {
                return Ok(Some(Self { line, headers }));
            }
            let (name, value) = text.split_once(':').ok_or(io::ErrorKind::InvalidData)?;
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }

    /// The value of the first header called `name` (lower case).
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// How the body after this head is framed; `response` decides what no framing means.
    pub(crate) fn framing(&self, response: bool) -> Framing {
        if self.header("transfer-encoding").is_some_and(|value| value.contains("chunked")) {
            return Framing::Chunked;
        }
        match self.header("content-length").and_then(|value| value.parse().ok()) {
            Some(length) => Framing::Sized(length),
            None if response => Framing::ToEnd,
            None => Framing::Sized(0),
        }
    }
}

/// Where a body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    Sized(usize),
    Chunked,
    ToEnd,
    Done,
}

impl Framing {
    /// The next piece of the body, `None` at its proper end; a body that breaks off is an error.
    pub(crate) async fn chunk(
        &mut self,
        reader: &mut (impl AsyncBufRead + Unpin),
    ) -> io::Result<Option<Vec<u8>>> {
        match *self {
            Self::Done | Self::Sized(0) => Ok(None),
            Self::ToEnd => {
                let piece = reader.fill_buf().await?.to_vec();
                reader.consume(piece.len());
                Ok(if piece.is_empty() { None } else { Some(piece) })
            }
            Self::Sized(left) => {
                let mut piece = reader.fill_buf().await?.to_vec();
                if piece.is_empty() {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                piece.truncate(left);
                reader.consume(piece.len());
                *self = Self::Sized(left - piece.len());
                Ok(Some(piece))
            }
            Self::Chunked => {
                let size = line_or_eof(reader).await?;
                let digits = size.split(';').next().unwrap_or_default().trim();
                let size = usize::from_str_radix(digits, 16)
                    .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
                let mut piece = vec![0; size];
                reader.read_exact(&mut piece).await?;
                if size > 0 {
                    line_or_eof(reader).await?;
                    return Ok(Some(piece));
                }
                while !line_or_eof(reader).await?.is_empty() {}
                *self = Self::Done;
                Ok(None)
            }
        }
    }

    /// The whole body.
    pub(crate) async fn whole(
        mut self,
        reader: &mut (impl AsyncBufRead + Unpin),
    ) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        while let Some(piece) = self.chunk(reader).await? {
            body.extend_from_slice(&piece);
        }
        Ok(body)
    }
}

async fn line(reader: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Option<String>> {
    let mut text = String::new();
    let read = reader.read_line(&mut text).await?;
    Ok((read > 0).then(|| text.trim_end_matches(['\r', '\n']).to_owned()))
}

async fn line_or_eof(reader: &mut (impl AsyncBufRead + Unpin)) -> io::Result<String> {
    line(reader).await?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

/// A request that is being put together.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    method: String,
    target: String,
    headers: Vec<(String, String)>,
    body: Option<Vec<u8>>,
}

impl Request {
    pub(crate) fn new(method: &str, target: &str) -> Self {
        Self { method: method.into(), target: target.into(), headers: Vec::new(), body: None }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Removes the headers called `name`.
    pub(crate) fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(key, _)| key != name);
        self
    }

    pub(crate) fn bearer(self, token: &str) -> Self {
        self.header("Authorization", &format!("Bearer {token}"))
    }

    /// A JSON body, sent with its length.
    pub(crate) fn json(self, body: impl Into<Vec<u8>>) -> Self {
        self.body("application/json", body)
    }

    /// A body of this type, sent with its length.
    pub(crate) fn body(self, kind: &str, body: impl Into<Vec<u8>>) -> Self {
        let mut request = self.header("Content-Type", kind);
        request.body = Some(body.into());
        request
    }

    /// Sends the request on a connection of its own and reads the head of the answer.
    pub(crate) async fn send(self, to: SocketAddr) -> Response {
        self.send_on(Connection::open(to).await, &to.to_string()).await
    }

    /// Sends the request to `host`, to which `connection` leads.
    pub(crate) async fn send_on(self, mut connection: Connection, host: &str) -> Response {
        connection.write(&self.bytes(host)).await;
        connection.response().await
    }

    /// Sends the request on a connection of its own, which may break at any time, and reads the
    /// head of the answer.
    pub(crate) async fn try_send(self, to: SocketAddr) -> io::Result<Response> {
        let stream = TcpStream::connect(to).await?;
        stream.set_nodelay(true)?;
        let mut connection = Connection::over(stream);
        connection.writer.write_all(&self.bytes(&to.to_string())).await?;
        connection.try_response().await
    }

    fn bytes(self, host: &str) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.target);
        if !self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            head.push_str(&format!("Host: {host}\r\n"));
        }
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(body) = &self.body {
            head.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend(self.body.unwrap_or_default());
        bytes
    }

    /// Sends the request and reads the whole answer.
    pub(crate) async fn answer(self, to: SocketAddr) -> Answer {
        self.send(to).await.answer().await
    }
}

/// What carries a connection.
pub(crate) trait Carrier: AsyncRead + AsyncWrite + std::fmt::Debug + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + std::fmt::Debug + Send + Unpin> Carrier for T {}

/// A raw connection for tests that write a request piece by piece.
#[derive(Debug)]
pub(crate) struct Connection {
    reader: BufReader<ReadHalf<Box<dyn Carrier>>>,
    /// Held for as long as the answer is read: a server takes a closed half for a client that went
    /// away.
    writer: WriteHalf<Box<dyn Carrier>>,
}

impl Connection {
    pub(crate) async fn open(to: SocketAddr) -> Self {
        let stream = TcpStream::connect(to).await.expect("the server should accept connections");
        stream.set_nodelay(true).expect("a connected socket takes the option");
        Self::over(stream)
    }

    pub(crate) fn over(carrier: impl Carrier + 'static) -> Self {
        let (reader, writer) = split::<Box<dyn Carrier>>(Box::new(carrier));
        Self { reader: BufReader::new(reader), writer }
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        self.writer.write_all(bytes).await.expect("the server should read the request");
    }

    /// Writes `bytes` again and again; fails when the server takes no more.
    pub(crate) async fn flood(&mut self, bytes: &[u8], times: usize) -> io::Result<()> {
        for _ in 0..times {
            timeout(PATIENCE, self.writer.write_all(bytes)).await??;
        }
        Ok(())
    }

    /// Waits until the server closes the connection.
    pub(crate) async fn closed(mut self) {
        let mut rest = Vec::new();
        // A reset is an end as well.
        self.reader.read_to_end(&mut rest).await.ok();
    }

    /// Reads the head of the answer.
    pub(crate) async fn response(self) -> Response {
        self.try_response().await.expect("the server should answer before it closes the connection")
    }

    async fn try_response(mut self) -> io::Result<Response> {
        let head = timeout(PATIENCE, Head::read(&mut self.reader))
            .await
            .expect("the server should answer in time")?
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        let status = head.line.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.expect("an answer starts with its status");
        let framing = if matches!(status, 204 | 304) { Framing::Done } else { head.framing(true) };
        Ok(Response { status, head, framing, connection: self })
    }
}

/// An answer whose body is still to be read.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: Head,
    framing: Framing,
    connection: Connection,
}

impl Response {
    /// The next piece of the body; `None` at its end, however it ends.
    pub(crate) async fn chunk(&mut self) -> Option<Vec<u8>> {
        let piece = self.framing.chunk(&mut self.connection.reader);
        timeout(PATIENCE, piece).await.expect("the body should go on in time").ok().flatten()
    }

    /// Sends more of the request's body.
    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        self.connection.write(bytes).await;
    }

    pub(crate) async fn answer(self) -> Answer {
        self.answer_and_connection().await.0
    }

    /// The whole answer, if the connection does not break before its end.
    pub(crate) async fn try_answer(mut self) -> io::Result<Answer> {
        let whole = self.framing.whole(&mut self.connection.reader);
        let body = timeout(PATIENCE, whole).await.expect("the body should end in time")?;
        Ok(Answer { status: self.status, head: self.head, body })
    }

    /// The whole answer, and the connection for another request.
    pub(crate) async fn answer_and_connection(mut self) -> (Answer, Connection) {
        let whole = self.framing.whole(&mut self.connection.reader);
        let body = timeout(PATIENCE, whole)
            .await
            .expect("the body should end in time")
            .expect("the body should come whole");
        (Answer { status: self.status, head: self.head, body }, self.connection)
    }
}

/// Reads JSON that may hold `1e400`, the number that hostile peers send: it is valid, and more than
/// a `Value` holds.
pub(crate) fn read_json(bytes: &[u8]) -> serde_json::Result<Value> {
    serde_json::from_slice(bytes).or_else(|_too_large| {
        serde_json::from_str(&String::from_utf8_lossy(bytes).replace("1e400", "1e300"))
    })
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: Head,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.header(name)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON, which it must be.
    #[track_caller]
    pub(crate) fn value(&self) -> Value {
        read_json(&self.body).unwrap_or_else(|error| panic!("not JSON ({error}): {}", self.text()))
    }

    /// Asserts the status and returns the body as JSON.
    #[track_caller]
    pub(crate) fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "status of an answer with the body {}", self.text());
        self.value()
    }

    /// Asserts that this is an error in one of the two shapes that errors have, and returns it.
    #[track_caller]
    pub(crate) fn expect_error(&self, status: u16) -> Value {
        let body = self.expect(status);
        let keys = if body["code"].is_null() { ["error", "message"] } else { ["error", "hint"] };
        for key in keys {
            assert!(body[key].is_string(), "an error should carry a string {key}: {body}");
        }
        body
    }
}
