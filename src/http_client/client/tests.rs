//! Servers that close connections while requests are on their way to them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::StatusCode;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{advance, pause, resume, sleep, timeout};

use super::*;
use crate::http_client;

mod sharing;

/// A server that answers with `head` and closes connections that were idle for `wait`.
struct Server {
    url: String,
    connections: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl Server {
    async fn start(head: &'static str, wait: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let (connections, requests) = (Arc::<AtomicUsize>::default(), Arc::default());
        let counted = (Arc::clone(&connections), Arc::clone(&requests));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                counted.0.fetch_add(1, Ordering::SeqCst);
                open.spawn(Self::serve(stream, head, wait, Arc::clone(&counted.1)));
            }
        });
        Self { url, connections, requests, _tasks: tasks }
    }

    async fn serve(
        mut stream: TcpStream,
        head: &'static str,
        wait: Duration,
        requests: Arc<AtomicUsize>,
    ) {
        while let Ok(Some(())) = timeout(wait, request(&mut stream)).await {
            requests.fetch_add(1, Ordering::SeqCst);
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n{head}\r\n");
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

/// Reads a request without a body.
async fn request(stream: &mut TcpStream) -> Option<()> {
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\n") {
        if stream.read_buf(&mut text).await.ok()? == 0 {
            return None;
        }
    }
    Some(())
}

/// Lets everything that comes through arrive `delay` later, ends included.
async fn delayed(url: &str, delay: Duration) -> (String, JoinSet<()>) {
    async fn carry(
        mut from: impl AsyncRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
        delay: Duration,
    ) {
        let mut bytes = [0; 4096];
        while let Ok(length @ 1..) = from.read(&mut bytes).await {
            sleep(delay).await;
            if to.write_all(&bytes[..length]).await.is_err() {
                return;
            }
        }
        sleep(delay).await;
        to.shutdown().await.ok();
    }
    let server = url.trim_start_matches("http://").trim_end_matches('/').to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut open = JoinSet::new();
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(&server).await.unwrap();
            let (from_client, to_client) = client.into_split();
            let (from_server, to_server) = server.into_split();
            open.spawn(carry(from_client, to_server, delay));
            open.spawn(carry(from_server, to_client, delay));
        }
    });
    (url, tasks)
}

/// Everybody's clocks are set forward.
async fn after(time: Duration) {
    pause();
    advance(time).await;
    resume();
}

async fn post(client: &Client, url: &str) -> reqwest::Result<StatusCode> {
    let response = client.send(client.post(url)).await?;
    let status = response.status();
    response.bytes().await?;
    Ok(status)
}

const MINUTES: Duration = Duration::from_secs(300);

#[tokio::test]
async fn a_connection_is_used_again_for_less_time_than_its_server_waits() {
    struct Case {
        head: &'static str,
        reused: u64,
        too_old: u64,
    }
    for Case { head, reused, too_old } in [
        Case { head: "", reused: 800, too_old: 1000 },
        Case { head: "Keep-Alive: timeout=5\r\n", reused: 3900, too_old: 4100 },
        Case { head: "Keep-Alive: timeout=30, max=100\r\n", reused: 28_900, too_old: 29_100 },
        Case { head: "Keep-Alive: timeout=2\r\n", reused: 800, too_old: 1000 },
    ] {
        let server = Server::start(head, MINUTES).await;
        let client = http_client::new();
        // The first answer may lead to another pool, and so to a second connection.
        for _ in 0..3 {
            post(&client, &server.url).await.unwrap();
        }
        let before = server.connections();
        assert!(before <= 2, "{head:?}: requests back to back share a connection: {before}");
        after(Duration::from_millis(reused)).await;
        post(&client, &server.url).await.unwrap();
        assert_eq!(server.connections(), before, "{head:?}: the connection is young enough");
        after(Duration::from_millis(too_old)).await;
        post(&client, &server.url).await.unwrap();
        assert_eq!(server.connections(), before + 1, "{head:?}: the connection is too old");
    }
}

#[tokio::test]
async fn a_server_that_waits_for_a_second_or_less_has_no_connection_used_twice() {
    let server = Server::start("Keep-Alive: timeout=1\r\n", MINUTES).await;
    let client = http_client::new();
    for _ in 0..4 {
        post(&client, &server.url).await.unwrap();
    }
    assert_eq!(server.connections(), 4);
}

/// The server's end is on its way while the next request is on its own way.
#[tokio::test]
async fn no_request_is_lost_at_the_age_at_which_connections_are_closed() {
    const DELAY: Duration = Duration::from_millis(2);
    for (head, wait) in [
        ("", 1),
        ("", 2),
        ("", 5),
        ("Keep-Alive: timeout=2\r\n", 2),
        ("Keep-Alive: timeout=5\r\n", 5),
        ("Keep-Alive: timeout=30\r\n", 30),
    ] {
        let wait = Duration::from_secs(wait);
        let server = Server::start(head, wait).await;
        let (url, _delaying) = delayed(&server.url, DELAY).await;
        let client = http_client::new();
        for offset in 0..20 {
            // From 10 ms before the server's own time to 10 ms after it.
            let age = wait - Duration::from_millis(10) + Duration::from_millis(offset);
            post(&client, &url).await.unwrap();
            after(age).await;
            let sent = post(&client, &url).await;
            assert!(sent.is_ok(), "{head:?}, {age:?}: {sent:?}");
        }
        assert_eq!(server.requests(), 40, "each was made once");
    }
}

#[tokio::test]
async fn broken_request_is_sent_again_only_if_it_reads() {
    // The second request on a connection is read and never answered.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let seen = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&seen);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            request(&mut stream).await;
            counted.fetch_add(1, Ordering::SeqCst);
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            if request(&mut stream).await.is_some() {
                counted.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    let client = http_client::new();
    post(&client, &url).await.unwrap();
    let lost = post(&client, &url).await.unwrap_err();
    assert!(is_broken(&lost), "{lost:?}");
    assert_eq!(seen.load(Ordering::SeqCst), 2, "the call was made once");

    post(&client, &url).await.unwrap();
    let answered = client.send_repeatable(client.post(&url)).await.unwrap();
    assert_eq!(answered.status(), StatusCode::OK);
    assert_eq!(seen.load(Ordering::SeqCst), 5, "and the question twice");
}

/// What HTTP/2 gives back unseen is sent again, and what may have been seen is not.
#[tokio::test]
async fn over_http2_what_the_server_gives_back_is_sent_again() {
    const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
    const REFUSED_STREAM: &[u8] = &[0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, 7];
    const INTERNAL_ERROR: &[u8] = &[0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, 2];
    /// The last stream that was looked at is 0, and nothing went wrong.
    const GOAWAY: &[u8] = &[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    /// HEADERS with END_STREAM and END_HEADERS: `:status: 200`.
    const OK: &[u8] = &[0, 0, 1, 1, 5, 0, 0, 0, 1, 0x88];

    for (first, again) in [(REFUSED_STREAM, true), (GOAWAY, true), (INTERNAL_ERROR, false)] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let (mut tasks, streams) = (JoinSet::new(), Arc::<AtomicUsize>::default());
        let counted = Arc::clone(&streams);
        tasks.spawn(async move {
            let mut answers = [first, OK].into_iter();
            while let Ok((mut stream, _)) = listener.accept().await {
                stream.write_all(SETTINGS).await.unwrap();
                let mut read = Vec::new();
                stream.read_exact(&mut [0; 24]).await.unwrap();
                while let Ok(1..) = stream.read_buf(&mut read).await {
                    while let Some(frame) = frame(&mut read) {
                        // HEADERS
                        if frame.0 == 1 {
                            counted.fetch_add(1, Ordering::SeqCst);
                            let mut answer = answers.next().unwrap().to_vec();
                            if answer == REFUSED_STREAM || answer == OK || answer == INTERNAL_ERROR
                            {
                                answer[5..9].copy_from_slice(&frame.1);
                            }
                            stream.write_all(&answer).await.unwrap();
                        }
                    }
                }
            }
        });
        let client = http_client::http2(None);
        let sent = client.send(client.post(&url).body("x")).await;
        assert_eq!(sent.is_ok(), again, "{sent:?}");
        assert_eq!(streams.load(Ordering::SeqCst), if again { 2 } else { 1 });
    }
}

/// The type and the stream of the next whole frame.
fn frame(read: &mut Vec<u8>) -> Option<(u8, [u8; 4])> {
    let length = match read.get(..3)? {
        [a, b, c] => usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c),
        _ => return None,
    };
    if read.len() < 9 + length {
        return None;
    }
    let frame: Vec<u8> = read.drain(..9 + length).collect();
    Some((frame[3], frame[5..9].try_into().unwrap()))
}
