//! HTTP/2 over TLS: frames that are the test's own.

use std::{fs, net::SocketAddr, time::Duration};

use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::client::TlsStream;

use crate::{
    bridge::Bridge,
    certs::{Authority, Client},
    http::PATIENCE,
    owners::token,
    process,
};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// The types of frames (RFC 9113 §6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

#[derive(Debug)]
struct Frame {
    kind: u8,
    stream: u32,
    payload: Vec<u8>,
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("it is short").to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Header fields, written out (RFC 7541 §6.2.2).
fn fields(pairs: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in pairs {
        block.push(0);
        for text in [name, value] {
            block
                .push(u8::try_from(text.len()).ok().filter(|len| *len < 127).expect("it is short"));
            block.extend(text.as_bytes());
        }
    }
    block
}

struct Speaker {
    stream: TlsStream<TcpStream>,
    host: String,
}

impl Speaker {
    async fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes).await
    }

    fn get(&self, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
        let mut pairs = vec![
            (":method", "GET"),
            (":scheme", "https"),
            (":path", path),
            (":authority", &self.host),
        ];
        pairs.extend(more);
        fields(&pairs)
    }

    /// The next frame; `None` at the end of the connection.
    async fn next(&mut self) -> Option<Frame> {
        self.next_within(PATIENCE).await
    }

    async fn next_within(&mut self, limit: Duration) -> Option<Frame> {
        let mut head = [0; 9];
        let read = timeout(limit, self.stream.read_exact(&mut head)).await;
        read.expect("there should be a frame, or the end").ok()?;
        let [a, b, c, kind, _, s0, s1, s2, s3] = head;
        let mut payload = vec![0; usize::try_from(u32::from_be_bytes([0, a, b, c])).ok()?];
        self.stream.read_exact(&mut payload).await.ok()?;
        Some(Frame { kind, stream: u32::from_be_bytes([s0, s1, s2, s3]), payload })
    }

    /// Waits for a frame of this kind, or for the end.
    async fn until(&mut self, kind: u8) -> Option<Frame> {
        loop {
            let frame = self.next().await?;
            if frame.kind == kind {
                return Some(frame);
            }
        }
    }
}

struct Gateway {
    bridge: Bridge,
    client: Client,
    _dir: TempDir,
}

impl Gateway {
    async fn start() -> Self {
        Self::with("").await
    }

    /// A gateway whose configuration has `more` sections.
    async fn with(more: &str) -> Self {
        let (authority, dir) = (Authority::new(), TempDir::new().expect("it is writable"));
        let pair = authority.sign(&["127.0.0.1"]);
        for (name, text) in [("cert.pem", &pair.cert), ("key.pem", &pair.key)] {
            fs::write(dir.path().join(name), text).expect("a new file");
        }
        let at = dir.path().display();
        let config = format!(
            "listen: {{tcp: '127.0.0.1:0', tls: {{cert: {at}/cert.pem, key: {at}/key.pem}}}}\n\
             upstream: {{sandbox: true}}\n{more}"
        );
        let client = Client::new(&authority.pem(), None).h2();
        Self { bridge: Bridge::start(&config).await, client, _dir: dir }
    }

    fn addr(&self) -> SocketAddr {
        self.bridge.addr()
    }

    /// A connection on which the settings have been exchanged.
    async fn connect(&self) -> Speaker {
        let stream = self.client.connect(self.addr()).await.expect("a handshake");
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]), "HTTP/2 is offered");
        let mut speaker = Speaker { stream, host: self.addr().to_string() };
        let hello = [PREFACE.to_vec(), frame(SETTINGS, 0, 0, &[])].concat();
        speaker.send(&hello).await.expect("it reads");
        speaker.until(SETTINGS).await.expect("its settings");
        speaker
    }

    /// Whether a request is answered on a connection of its own.
    async fn is_well(&self) -> bool {
        let mut speaker = self.connect().await;
        let block = speaker.get("/healthz", &[]);
        let request = frame(HEADERS, END_HEADERS | END_STREAM, 1, &block);
        speaker.send(&request).await.expect("it reads");
        let body = speaker.until(DATA).await.expect("an answer");
        body.payload == br#"{"status":"ok"}"#
    }
}

#[tokio::test]
async fn requests_share_a_connection() {
    let gateway = Gateway::start().await;
    let mut speaker = gateway.connect().await;
    let token = format!("Bearer {}", gateway.bridge.token());
    let mut requests = Vec::new();
    for stream in [1, 3, 5] {
        let block = speaker.get("/v1/status", &[("authorization", &token)]);
        requests.extend(frame(HEADERS, END_HEADERS | END_STREAM, stream, &block));
    }
    // The host that counts is that of the target.
    let foreign = [("host", "evil.com"), ("authorization", token.as_str())];
    let block = speaker.get("/v1/status", &foreign);
    requests.extend(frame(HEADERS, END_HEADERS | END_STREAM, 7, &block));
    speaker.send(&requests).await.expect("it reads");
    let mut answered = std::collections::BTreeMap::new();
    while answered.len() < 4 {
        let body = speaker.until(DATA).await.expect("answers");
        let text = String::from_utf8_lossy(&body.payload).into_owned();
        answered.entry(body.stream).or_insert_with(String::new).push_str(&text);
    }
    for stream in [1, 3, 5] {
        assert!(answered[&stream].contains("\"uptimeSeconds\""), "{answered:?}");
    }
    assert!(answered[&7].contains("host_refused"), "{answered:?}");
}

/// Opens `count` event streams on `speaker` as the app with this token; returns how many were
/// refused.
async fn open_streams(speaker: &mut Speaker, token: &str, count: u32) -> usize {
    let block = speaker.get("/v1/events", &[("authorization", &format!("Bearer {token}"))]);
    // All answers come, although no data is acknowledged.
    let mut requests = frame(WINDOW_UPDATE, 0, 0, &(64_u32 << 20).to_be_bytes());
    for at in 0..count {
        requests.extend(frame(HEADERS, END_HEADERS | END_STREAM, 2 * at + 1, &block));
    }
    speaker.send(&requests).await.expect("it reads");
    let mut refused = 0;
    let mut answered = std::collections::BTreeSet::new();
    while answered.len() < usize::try_from(count).expect("a few") {
        let data = speaker.until(DATA).await.expect("answers");
        if answered.insert(data.stream) {
            let text = String::from_utf8_lossy(&data.payload).into_owned();
            refused += usize::from(text.contains("too_many_connections"));
        }
    }
    refused
}

#[tokio::test]
async fn app_with_many_streams_on_a_connection_leaves_requests_to_the_others() {
    let [a, b] = ["a", "b"].map(token);
    let apps = format!("apps:\n  a: {{token: {a}}}\n  b: {{token: {b}}}\n");
    let gateway = Gateway::with(&apps).await;
    let mut open = Vec::new();
    let mut refused = 0;
    for _ in 0..21 {
        let mut speaker = gateway.connect().await;
        refused += open_streams(&mut speaker, &a, 100).await;
        open.push(speaker);
    }
    assert_eq!(refused, 2100 - 2048, "one app has half of the 4,096 requests");
    let mut other = gateway.connect().await;
    assert_eq!(open_streams(&mut other, &b, 100).await, 0);
    open.truncate(1);
    crate::wait::soon("the app should have streams again", async || {
        let mut speaker = gateway.connect().await;
        (open_streams(&mut speaker, &a, 1).await == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn stranger_with_many_requests_on_a_connection_loses_it() {
    let gateway = Gateway::start().await;
    let mut speaker = gateway.connect().await;
    // SETTINGS_INITIAL_WINDOW_SIZE: no answer is taken.
    let mut requests = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    let block = speaker.get("/v1/status", &[]);
    for stream in (1..=2 * 40).step_by(2) {
        requests.extend(frame(HEADERS, END_HEADERS | END_STREAM, stream, &block));
    }
    speaker.send(&requests).await.expect("it reads");
    while speaker.next().await.is_some() {}
    assert!(gateway.is_well().await);
}

/// A21: an answer that its client does not take is given up, and the connection goes on.
#[tokio::test]
async fn an_answer_that_nobody_takes_is_given_up() {
    let gateway = Gateway::start().await;
    let mut speaker = gateway.connect().await;
    // SETTINGS_INITIAL_WINDOW_SIZE
    speaker.send(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0])).await.expect("it reads");
    let block = speaker.get("/healthz", &[]);
    speaker.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &block)).await.expect("it reads");
    let reset = loop {
        let frame = speaker.next_within(PATIENCE * 2).await.expect("it goes on");
        match frame.kind {
            RST_STREAM => break frame,
            // They come while nothing else does.
            PING => {
                let pong = self::frame(PING, ACK, 0, &frame.payload);
                speaker.send(&pong).await.expect("it reads");
            }
            kind => assert_ne!(kind, DATA, "there is no room for it"),
        }
    };
    assert_eq!(reset.stream, 1);
    speaker.send(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 255, 255])).await.expect("it reads");
    speaker.send(&frame(HEADERS, END_HEADERS | END_STREAM, 3, &block)).await.expect("it reads");
    assert_eq!(speaker.until(DATA).await.expect("an answer").stream, 3);
}

/// A31: a field that belongs to a connection is an error of its stream.
#[tokio::test]
async fn fields_of_http_1_are_refused() {
    let gateway = Gateway::start().await;
    let mut speaker = gateway.connect().await;
    for (at, field) in
        [("transfer-encoding", "chunked"), ("connection", "close")].iter().enumerate()
    {
        let stream = u32::try_from(at * 2 + 1).expect("a few");
        let block = speaker.get("/healthz", &[*field]);
        speaker
            .send(&frame(HEADERS, END_HEADERS | END_STREAM, stream, &block))
            .await
            .expect("it reads");
        let reset = speaker.until(RST_STREAM).await.expect("it is refused");
        assert_eq!((reset.stream, &reset.payload[..]), (stream, &[0, 0, 0, 1][..]), "{field:?}");
    }
}

/// A31: streams that are opened and reset without end end their connection.
#[tokio::test]
async fn a_flood_of_resets_ends_its_connection() {
    let mut gateway = Gateway::start().await;
    assert!(gateway.is_well().await);
    let before = resident(&mut gateway);
    let mut speaker = gateway.connect().await;
    let block = speaker.get("/healthz", &[]);
    let mut flood = Vec::new();
    for stream in (1..20_000).step_by(2) {
        flood.extend(frame(HEADERS, END_HEADERS | END_STREAM, stream, &block));
        flood.extend(frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]));
    }
    // It hangs up in the middle.
    drop(speaker.send(&flood).await);
    let end = speaker.until(GOAWAY).await;
    if let Some(end) = end {
        assert_eq!(end.payload.get(4..8), Some(&[0, 0, 0, 11][..]), "ENHANCE_YOUR_CALM");
    }
    assert!(speaker.until(GOAWAY).await.is_none(), "the connection has ended");
    assert!(gateway.is_well().await);
    assert!(resident(&mut gateway) < before + (32 << 20));
}

/// A31: headers without an end are given up.
#[tokio::test]
async fn a_flood_of_continuations_ends_its_connection() {
    let mut gateway = Gateway::start().await;
    assert!(gateway.is_well().await);
    let before = resident(&mut gateway);
    let mut speaker = gateway.connect().await;
    let mut block = speaker.get("/healthz", &[]);
    speaker.send(&frame(HEADERS, END_STREAM, 1, &block)).await.expect("it reads");
    block = fields(&[("x-more", "y".repeat(100).as_str()); 100]);
    let more = frame(CONTINUATION, 0, 1, &block);
    let mut sent = 0;
    while sent < 256 << 20 && speaker.send(&more).await.is_ok() {
        sent += more.len();
    }
    assert!(sent < 64 << 20, "it takes {sent} bytes of headers");
    assert!(gateway.is_well().await);
    assert!(resident(&mut gateway) < before + (32 << 20));
}

fn resident(gateway: &mut Gateway) -> u64 {
    process::resident(gateway.bridge.process().pid())
}
