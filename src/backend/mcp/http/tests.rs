//! The dialer against scripted HTTP servers: what real servers do on a bad day.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ::http::{HeaderMap, HeaderValue};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use url::Url;

mod answers;
mod handshake;
mod param_headers;
mod pauses;
mod replies;
mod sessions;
mod streams;

use crate::backend::fake::{request, tool_call};
use crate::backend::mcp::{LIMIT, McpDialer, dialer};
use crate::backend::peer::{CallError, Dial as _, NotRead, Peer, TASK_SILENCE, ToolCall};
use crate::config::{HttpTransport, Mcp};
use crate::error_chain::error_chain;
use crate::fake_http::hurried;
use crate::http_client;
use crate::model::answer::Answer;
use crate::model::catalog::Content;
use crate::model::ids::BackendName;

pub(in crate::backend::mcp) const PATIENCE: Duration = Duration::from_secs(30);
pub(in crate::backend::mcp) const SECRET: &str = "s3cret-t0ken";

/// One request as it came in.
#[derive(Debug, Clone)]
pub(in crate::backend::mcp) struct Seen {
    pub(in crate::backend::mcp) line: String,
    headers: String,
    pub(in crate::backend::mcp) body: String,
}

impl Seen {
    pub(in crate::backend::mcp) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.headers.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    pub(in crate::backend::mcp) fn is(&self, method: &str) -> bool {
        self.body.contains(&format!("\"method\":\"{method}\""))
    }

    pub(in crate::backend::mcp) fn id(&self) -> Value {
        let body: Value = serde_json::from_str(&self.body).unwrap_or_default();
        body.get("id").cloned().unwrap_or_default()
    }

    /// A response with this JSON text as its result.
    fn result(&self, result: &str) -> Vec<u8> {
        json(200, &format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, self.id()))
    }
}

pub(in crate::backend::mcp) fn response(
    status: u16,
    headers: &[(&str, &str)],
    body: &str,
) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 {status} x\r\nconnection: close\r\n");
    for (key, value) in headers {
        write!(text, "{key}: {value}\r\n").unwrap();
    }
    write!(text, "content-length: {}\r\n\r\n{body}", body.len()).unwrap();
    text.into_bytes()
}

pub(in crate::backend::mcp) fn json(status: u16, body: &str) -> Vec<u8> {
    response(status, &[("content-type", "application/json")], body)
}

/// What follows the status of a response whose body has no end.
const ENDLESS: &str = " endless\r\n";

/// A response of this media type that begins with `body`, and has no end.
fn endless(media_type: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200{ENDLESS}content-type: {media_type}\r\n\r\n{body}").into_bytes()
}

/// An event stream that the end of the connection ends; `length` may promise more than there is.
fn events(body: &str, length: usize) -> Vec<u8> {
    let head = "HTTP/1.1 200 x\r\nconnection: close\r\ncontent-type: text/event-stream\r\n";
    format!("{head}content-length: {length}\r\n\r\n{body}").into_bytes()
}

/// What any server answers: `None` leaves it to the test.
fn usual(seen: &Seen, session: &str) -> Option<Vec<u8>> {
    if seen.line.starts_with("GET") || seen.line.starts_with("DELETE") {
        return Some(response(405, &[], ""));
    }
    if seen.is("server/discover") {
        return Some(json(
            400,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"no"}}"#,
        ));
    }
    if seen.is("initialize") {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{},"result":{{"protocolVersion":"2025-11-25","capabilities":{{"tools":{{}}}},"serverInfo":{{"name":"{session}","version":"1","x":1e400}}}}}}"#,
            seen.id()
        );
        let headers = [("content-type", "application/json"), ("mcp-session-id", session)];
        return Some(response(200, &headers, &body));
    }
    seen.body.contains("\"method\":\"notifications/").then(|| response(202, &[], ""))
}

struct Server {
    url: Url,
    seen: Arc<Mutex<Vec<Seen>>>,
    _tasks: JoinSet<()>,
}

impl Server {
    fn count(&self, method: &str) -> usize {
        self.seen.lock().unwrap().iter().filter(|seen| seen.is(method)).count()
    }
}

/// A server that answers each request with the bytes that `answer` gives, and closes.
async fn server(answer: impl Fn(&Seen) -> Vec<u8> + Send + Sync + 'static) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap()).parse().unwrap();
    let seen = Arc::<Mutex<Vec<Seen>>>::default();
    let mut tasks = JoinSet::new();
    let log = Arc::clone(&seen);
    let answer = Arc::new(answer);
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let (log, answer) = (Arc::clone(&log), Arc::clone(&answer));
            connections.spawn(async move {
                let Some(request) = read(&mut stream).await else { return };
                log.lock().unwrap().push(request.clone());
                let bytes = answer(&request);
                // Empty means that the server says nothing and keeps the connection.
                if bytes.is_empty() {
                    std::future::pending::<()>().await;
                }
                stream.write_all(&bytes).await.ok();
                if bytes.get(12..).is_some_and(|rest| rest.starts_with(ENDLESS.as_bytes())) {
                    std::future::pending::<()>().await;
                }
                stream.shutdown().await.ok();
            });
        }
    });
    Server { url, seen, _tasks: tasks }
}

pub(in crate::backend::mcp) async fn read(stream: &mut TcpStream) -> Option<Seen> {
    let mut text = Vec::new();
    loop {
        let whole = String::from_utf8_lossy(&text).into_owned();
        if let Some((head, body)) = whole.split_once("\r\n\r\n") {
            let (line, headers) = head.split_once("\r\n").unwrap();
            let seen =
                Seen { line: line.to_owned(), headers: headers.to_owned(), body: body.to_owned() };
            let length = seen.header("content-length").map_or(0, |n| n.parse().unwrap());
            if body.len() >= length {
                return Some(seen);
            }
        }
        if stream.read_buf(&mut text).await.ok()? == 0 {
            return None;
        }
    }
}

async fn try_dial(url: &Url) -> Result<Arc<dyn Peer>, String> {
    let dialled = timeout(PATIENCE, dialer_to(url).dial()).await.expect("in time");
    dialled.map_err(|error| error_chain(&error))
}

fn dialer_to(url: &Url) -> McpDialer {
    dialer_for(url, true)
}

/// A dialer for the server at `url`.
fn dialer_for(url: &Url, listen: bool) -> McpDialer {
    let mut headers = HeaderMap::new();
    let mut secret = HeaderValue::from_static(SECRET);
    secret.set_sensitive(true);
    headers.insert("x-api-key", secret);
    let transport = HttpTransport::Streamable;
    let config = Mcp::Http {
        url: url.clone().into(),
        headers,
        socket: None,
        transport,
        oauth: None,
        tls: None,
        listen,
        sessions: false,
    };
    let name = BackendName::parse("scripted").unwrap();
    dialer(&name, &config, None, http_client::new())
}

/// The way to a server that is not there.
pub(in crate::backend::mcp) fn streamable() -> Arc<super::Streamable> {
    let url = Url::parse("http://127.0.0.1:9/").unwrap();
    super::Streamable::new(Arc::new(super::Endpoint::new(
        http_client::new(),
        url,
        HeaderMap::new(),
        None,
        None,
    )))
}

async fn dial(server: &Server) -> Arc<dyn Peer> {
    try_dial(&server.url).await.expect("a connection")
}

pub(in crate::backend::mcp) fn order(arguments: &str) -> ToolCall {
    tool_call(request("t", arguments))
}

async fn call(peer: &Arc<dyn Peer>) -> Result<Answer, CallError> {
    timeout(PATIENCE, peer.call(order("{}"))).await.expect("in time").map(|outcome| outcome.answer)
}

fn text(text: &str) -> Answer {
    Answer::text(text)
}

const HELLO: &str = r#"{"content":[{"type":"text","text":"hello"}]}"#;

#[tokio::test]
async fn json_and_event_answers_are_kept_byte_for_byte() {
    let tool = r#"{"b":1,"name":"t", "x":1e400,"n":123456789012345678901234567890,"x":"\u00e9\/"}"#;
    let server = server(move |seen| {
        usual(seen, "one").unwrap_or_else(|| {
            let body = if seen.is("tools/list") {
                format!(r#"{{"tools":[{tool}],"x":1e400}}"#)
            } else {
                r#"{"structuredContent":{"z":1e400, "a":1.10}}"#.to_owned()
            };
            let message = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{body}}}"#, seen.id());
            if seen.is("tools/list") {
                return json(200, &message);
            }
            let progress = r#"{"jsonrpc":"2.0","method":"notifications/x","params":{"n":1e400}}"#;
            let body = format!(
                ": hi\n\ndata: {progress}\n\nevent: ping\ndata: x\n\nid: 1\ndata: {message}\n\n"
            );
            events(&body, body.len())
        })
    })
    .await;
    let peer = dial(&server).await;
    assert_eq!(
        peer.about().server_info.unwrap().get(),
        r#"{"name":"one","version":"1","x":1e400}"#
    );
    let catalog = peer.resolve().await.unwrap();
    let Content::Mcp { tools, .. } = catalog.content() else { panic!("MCP") };
    assert_eq!(tools.first().unwrap().raw.get(), tool);
    assert_eq!(call(&peer).await.unwrap(), text(r#"{"z":1e400, "a":1.10}"#));
}

#[tokio::test]
async fn an_answer_that_is_cut_off_is_lost_at_once() {
    let server = server(|seen| {
        usual(seen, "s").unwrap_or_else(|| events("data: {\"jsonrpc\":\"2.0\",\"resu", 5000))
    })
    .await;
    let peer = dial(&server).await;
    let lost = timeout(Duration::from_secs(5), call(&peer)).await.expect("soon");
    assert!(matches!(lost, Err(CallError::Lost(_))), "{lost:?}");
    assert_eq!(server.count("tools/call"), 1, "what may have run is not sent again");
}

#[tokio::test]
async fn an_answer_that_ends_after_an_event_id_is_not_waited_for_in_vain() {
    let server = server(|seen| {
        usual(seen, "s").unwrap_or_else(|| events("id: 7\nretry: 10\ndata:\n\n", 5000))
    })
    .await;
    let peer = dial(&server).await;
    let lost = timeout(Duration::from_secs(10), call(&peer)).await.expect("soon");
    assert!(matches!(lost, Err(CallError::Lost(_))), "{lost:?}");
    let seen = server.seen.lock().unwrap();
    assert!(seen.iter().any(|seen| seen.header("last-event-id") == Some("7")));
}

#[tokio::test]
async fn answer_that_is_too_large_fails_its_call_alone() {
    let server = server(|seen| {
        usual(seen, "s").unwrap_or_else(|| {
            let large = "x".repeat(LIMIT + 10);
            let message = |text: &str| {
                seen.result(&format!(r#"{{"content":[{{"type":"text","text":"{text}"}}]}}"#))
            };
            if seen.body.contains("\"how\":1") {
                return message(&large);
            }
            if seen.body.contains("\"how\":2") {
                return events(&format!("data: {large}"), LIMIT * 3);
            }
            message("hello")
        })
    })
    .await;
    let peer = dial(&server).await;
    for how in [r#"{"how":1}"#, r#"{"how":2}"#] {
        let why = timeout(PATIENCE, peer.call(order(how))).await.unwrap().unwrap_err();
        let CallError::NotRead(NotRead::TooLarge { limit: LIMIT, size }) = why else {
            panic!("{why:?}")
        };
        // The header of one says how large it is; the other is an event.
        assert_eq!(size.is_some(), how.contains('1'), "{size:?}");
    }
    assert_eq!(call(&peer).await.unwrap(), text("hello"));
}

#[tokio::test]
async fn failed_request_is_judged_by_its_status() {
    let statuses = [
        (500, r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"boom"}}"#),
        (403, "<html>forbidden</html>"),
        (503, ""),
        (502, "bad gateway"),
        (504, ""),
        (524, ""),
        (200, "<html>not MCP</html>"),
        (200, ""),
    ];
    let number = AtomicUsize::new(0);
    let server = server(move |seen| {
        usual(seen, "s").unwrap_or_else(|| {
            let (status, body) = statuses.get(number.fetch_add(1, Ordering::Relaxed)).unwrap();
            json(*status, body)
        })
    })
    .await;
    let peer = dial(&server).await;
    let mut outcomes = Vec::new();
    for _ in 0..8 {
        outcomes.push(match call(&peer).await.unwrap_err() {
            CallError::Refused(why)
            | CallError::Denied(why)
            | CallError::RefusedWith { why, .. } => {
                format!("refused: {why}")
            }
            CallError::Lost(_) => "lost".to_owned(),
            CallError::NotSent(_) | CallError::NoSession(_) => "not sent".to_owned(),
            CallError::Unreadable(_) | CallError::Unclear { .. } | CallError::NotRead(_) => {
                "unreadable".to_owned()
            }
        });
    }
    assert_eq!(
        outcomes,
        [
            "refused: boom (JSON-RPC error -32603)",
            "refused: HTTP 403 Forbidden",
            "refused: HTTP 503 Service Unavailable",
            "lost",
            "lost",
            "lost",
            "unreadable",
            "unreadable",
        ]
    );
}

#[tokio::test]
async fn redirects_stay_with_their_origin() {
    let elsewhere = server(|seen| usual(seen, "elsewhere").unwrap_or_default()).await;
    let target = elsewhere.url.to_string();
    let server = server(move |seen| {
        if seen.line.contains(" /mcp ") {
            response(307, &[("location", "/mcp/")], "")
        } else if seen.line.contains(" /away ") {
            response(308, &[("location", target.as_str())], "")
        } else if seen.line.contains(" /circle ") {
            response(307, &[("location", "/circle")], "")
        } else if seen.line.contains(" /get ") {
            response(302, &[("location", "/mcp/")], "")
        } else {
            usual(seen, "s").unwrap_or_else(|| seen.result(HELLO))
        }
    })
    .await;
    assert_eq!(call(&dial(&server).await).await.unwrap(), text("hello"));

    let url = |path: &str| server.url.join(path).unwrap();
    let why = try_dial(&url("/away")).await.unwrap_err();
    assert!(why.contains("not followed") && why.contains("127.0.0.1"), "{why}");
    assert!(elsewhere.seen.lock().unwrap().is_empty());
    for path in ["/circle", "/get"] {
        assert!(try_dial(&url(path)).await.unwrap_err().contains("redirects"), "{path}");
    }
}

#[tokio::test]
async fn errors_name_the_refusal_and_no_secret() {
    let server = server(|seen| {
        let key = seen.header("x-api-key").unwrap_or_default().to_owned();
        response(401, &[("www-authenticate", "Bearer")], &format!("bad key\u{1b}[2J {key}"))
    })
    .await;
    let why = try_dial(&server.url).await.unwrap_err();
    assert!(why.contains("HTTP 401") && why.contains("another authorization"), "{why}");
    assert!(!why.contains(SECRET), "{why}");
    assert_eq!(server.count("initialize"), 0, "another handshake would not help");

    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut url: Url =
        format!("http://{}/x?key={SECRET}", closed.local_addr().unwrap()).parse().unwrap();
    url.set_password(Some(SECRET)).unwrap();
    drop(closed);
    let why = try_dial(&url).await.unwrap_err();
    assert!(why.contains("refused") && !why.contains(SECRET), "{why}");
}

#[tokio::test]
async fn a_server_that_fails_at_discover_is_reached_by_initialize() {
    for status in [500, 404, 405] {
        let server = server(move |seen| {
            if seen.is("server/discover") {
                return response(status, &[], "what?");
            }
            usual(seen, "s").unwrap_or_else(|| seen.result(HELLO))
        })
        .await;
        let peer = dial(&server).await;
        assert_eq!(peer.about().protocol_version.as_deref(), Some("2025-11-25"));
    }
}

#[tokio::test]
async fn the_stateless_revision_has_its_headers_and_verbatim_arguments() {
    let tools = r#"{"resultType":"complete","ttlMs":99999,"cacheScope":"private","tools":[{"name":"bad","inputSchema":true},{"name":"t","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}},"x":1}}]}"#;
    let server = server(move |seen| {
        if seen.is("server/discover") {
            seen.result(r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{"version":"1","name":"m","x":1e400}}}"#)
        } else if seen.is("tools/list") {
            seen.result(tools)
        } else {
            let body = format!("data: {{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{HELLO}}}\n\n", seen.id());
            events(&body, body.len())
        }
    })
    .await;
    let peer = dial(&server).await;
    let about = peer.about();
    assert_eq!(about.protocol_version.as_deref(), Some("2026-07-28"));
    assert_eq!(about.server_info.unwrap().get(), r#"{"version":"1","name":"m","x":1e400}"#);
    assert_eq!(peer.resolve().await.unwrap().tool_count(), 2);

    let arguments = r#"{"region":"eu", "n":123456789012345678901234567890}"#;
    let answer = timeout(PATIENCE, peer.call(order(arguments))).await.unwrap().unwrap();
    assert_eq!(answer.answer, text("hello"));
    let seen = server.seen.lock().unwrap();
    let call = seen.iter().find(|seen| seen.is("tools/call")).unwrap();
    assert_eq!(call.header("mcp-method"), Some("tools/call"));
    assert_eq!(call.header("mcp-name"), Some("t"));
    assert_eq!(call.header("mcp-param-region"), Some("eu"));
    assert_eq!(call.header("x-api-key"), Some(SECRET));
    assert!(call.body.contains(&format!("\"arguments\":{arguments}}}")), "{}", call.body);
}

#[tokio::test]
async fn a_dropped_call_is_cancelled() {
    let server = server(|seen| usual(seen, "s").unwrap_or_default()).await;
    let peer = dial(&server).await;
    assert!(timeout(Duration::from_millis(200), peer.call(order("{}"))).await.is_err());
    let cancelled = async {
        while server.count("notifications/cancelled") == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, cancelled).await.expect("it is told");
}

/// A server that makes a task of every call, and answers the questions for it with `answer`, which
/// is given the number of the question.
async fn task_server(answer: impl Fn(&Seen, usize) -> Vec<u8> + Send + Sync + 'static) -> Server {
    let asked = AtomicUsize::new(0);
    let task = r#"{"resultType":"task","taskId":"é","status":"working","pollIntervalMs":0}"#;
    server(move |seen| match usual(seen, "s") {
        Some(usual) => usual,
        None if seen.is("tasks/get") => answer(seen, asked.fetch_add(1, Ordering::Relaxed)),
        None => seen.result(task),
    })
    .await
}

#[tokio::test]
async fn a_task_is_asked_for_again_where_the_way_to_it_is_bad() {
    let server = task_server(|seen, number| match number {
        0 => response(503, &[], "restarting"),
        1 => response(502, &[], ""),
        2 => json(200, "<html>log in</html>"),
        _ => seen.result(
            r#"{"taskId":"é","status":"completed","result":{"content":[{"type":"text","text":"done"}]}}"#,
        ),
    })
    .await;
    assert_eq!(call(&dial(&server).await).await.unwrap(), text("done"));
    assert_eq!((server.count("tools/call"), server.count("tasks/get")), (1, 4));
}

#[tokio::test]
async fn a_task_that_cannot_be_asked_for_is_lost_in_the_end() {
    let server = task_server(|_, _| response(401, &[], "")).await;
    let peer = dial(&server).await;
    let start = Instant::now();
    let lost = hurried(|| server.count("tasks/get") > 0, peer.call(order("{}"))).await.unwrap_err();
    assert!(matches!(&lost, CallError::Lost(why) if why.contains("HTTP 401")), "{lost:?}");
    assert!(start.elapsed() >= TASK_SILENCE, "{:?}", start.elapsed());
    assert_eq!(server.count("tools/call"), 1);
}

#[tokio::test]
async fn the_end_of_a_session_s_stream_is_the_end_of_the_connection() {
    let gets = AtomicUsize::new(0);
    let server = server(move |seen| {
        if seen.line.starts_with("GET") {
            return match gets.fetch_add(1, Ordering::Relaxed) {
                0 => events(": hello\n\n", 5000),
                _ => json(404, "no such session"),
            };
        }
        usual(seen, "s").unwrap_or_default()
    })
    .await;
    let peer = dial(&server).await;
    let why = timeout(PATIENCE, peer.closed()).await.expect("it is told");
    assert!(error_chain(&why).contains("session"), "{why}");
    timeout(PATIENCE, peer.close()).await.expect("in time");
}
