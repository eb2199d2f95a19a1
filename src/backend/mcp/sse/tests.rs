//! The older HTTP transport against scripted servers.

use std::sync::Arc;
use std::sync::Mutex;

use ::http::{HeaderMap, HeaderValue};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::super::http::tests::{PATIENCE, SECRET, Seen, json, order, read, response};
use super::*;
use crate::backend::mcp::{Era, LIMIT, McpDialer, dialer};
use crate::backend::peer::{CallError, Dial as _, NotRead, Peer, PeerErrorKind};
use crate::config::{HttpTransport, Mcp};
use crate::error_chain::error_chain;
use crate::http_client;
use crate::model::BackendName;
use crate::model::answer::Answer;
use crate::model::catalog::Content;

const HEAD: &str = "HTTP/1.1 200 x\r\nconnection: close\r\ncontent-type: text/event-stream\r\n\r\n";
const TOOL: &str = r#"{"b":1,"name":"t", "x":1e400,"x":"\u00e9\/"}"#;

/// The stream of the latest GET; dropped, it ends.
#[derive(Clone, Default)]
struct Say(Arc<Mutex<Option<mpsc::Sender<String>>>>);

impl Say {
    fn text(&self, text: String) {
        if let Some(stream) = &*self.0.lock().unwrap() {
            stream.try_send(text).expect("the server's queue has room");
        }
    }

    fn event(&self, data: &str) {
        self.text(format!("event: message\r\ndata: {data}\r\n\r\n"));
    }

    fn result(&self, seen: &Seen, result: &str) {
        self.event(&format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, seen.id()));
    }

    fn hello(&self, seen: &Seen) {
        self.result(seen, r#"{"content":[{"type":"text","text":"hello"}]}"#);
    }

    fn end(&self) {
        *self.0.lock().unwrap() = None;
    }
}

struct Server {
    url: Url,
    seen: Arc<Mutex<Vec<Seen>>>,
    _tasks: JoinSet<()>,
}

impl Server {
    fn requests(&self, start: &str) -> Vec<Seen> {
        let seen = self.seen.lock().unwrap();
        seen.iter().filter(|seen| seen.line.starts_with(start)).cloned().collect()
    }
}

/// A server that answers a GET with `greeting`, behind which what is said follows if there is an
/// address for messages in it, and a POST with what `answer` gives.
async fn server(
    greeting: &str,
    answer: impl Fn(&Seen, &Say) -> Vec<u8> + Send + Sync + 'static,
) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/sse", listener.local_addr().unwrap()).parse().unwrap();
    let seen = Arc::<Mutex<Vec<Seen>>>::default();
    let (log, stream, answer) = (Arc::clone(&seen), Say::default(), Arc::new(answer));
    let greeting = greeting.to_owned();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((mut connection, _)) = listener.accept().await {
            let (log, stream, answer) = (Arc::clone(&log), stream.clone(), Arc::clone(&answer));
            let greeting = greeting.clone();
            connections.spawn(async move {
                let Some(request) = read(&mut connection).await else { return };
                log.lock().unwrap().push(request.clone());
                if request.line.starts_with("POST") {
                    connection.write_all(&answer(&request, &stream)).await.ok();
                } else {
                    let (sender, mut said) = mpsc::channel(8);
                    if greeting.contains("event: endpoint") {
                        *stream.0.lock().unwrap() = Some(sender);
                    } else {
                        drop(sender);
                    }
                    connection.write_all(greeting.as_bytes()).await.ok();
                    while let Some(text) = said.recv().await {
                        connection.write_all(text.as_bytes()).await.ok();
                    }
                }
                connection.shutdown().await.ok();
            });
        }
    });
    Server { url, seen, _tasks: tasks }
}

/// A server whose messages go to `/messages`, and whose calls are answered by `call`.
async fn usual(call: impl Fn(&Seen, &Say) -> Vec<u8> + Send + Sync + 'static) -> Server {
    let greeting = format!("{HEAD}: hi\n\nevent: endpoint\ndata: /messages?sessionId=7\n\n");
    server(&greeting, move |seen, say| {
        if !seen.line.contains(" /messages?sessionId=7 ") {
            return response(405, &[], "use GET");
        }
        if seen.is("initialize") {
            say.result(seen, r#"{"protocolVersion":"2024-11-05","capabilities":{"tools":{}},"serverInfo":{"name":"old","version":"1","x":1e400}}"#);
        } else if seen.is("tools/list") {
            say.result(seen, &format!(r#"{{"tools":[{TOOL}]}}"#));
        } else if seen.is("tools/call") {
            return call(seen, say);
        }
        response(202, &[], "Accepted")
    })
    .await
}

fn dialer_of(url: &Url, transport: HttpTransport) -> McpDialer {
    let mut secret = HeaderValue::from_static(SECRET);
    secret.set_sensitive(true);
    let mut headers = HeaderMap::new();
    headers.insert("x-api-key", secret);
    let config = Mcp::Http {
        url: url.clone().into(),
        headers,
        socket: None,
        transport,
        oauth: None,
        tls: None,
        listen: true,
        sessions: false,
    };
    dialer(&BackendName::parse("old").unwrap(), &config, None, http_client::new())
}

async fn try_dial(dialer: &McpDialer) -> Result<Arc<dyn Peer>, String> {
    timeout(PATIENCE, dialer.dial()).await.expect("in time").map_err(|error| error_chain(&error))
}

async fn dial(server: &Server) -> Arc<dyn Peer> {
    try_dial(&dialer_of(&server.url, HttpTransport::Sse)).await.expect("a connection")
}

async fn call(peer: &Arc<dyn Peer>, arguments: &str) -> Result<Answer, CallError> {
    timeout(PATIENCE, peer.call(order(arguments)))
        .await
        .expect("in time")
        .map(|outcome| outcome.answer)
}

async fn why_closed(peer: &Arc<dyn Peer>) -> String {
    error_chain(&timeout(PATIENCE, peer.closed()).await.expect("it is told"))
}

#[tokio::test]
async fn a_connection_keeps_every_byte_and_carries_the_headers() {
    let server = usual(|seen, say| {
        say.text(": beat\n\n".to_owned());
        say.result(seen, r#"{"structuredContent":{"z":1e400, "a":1.10}}"#);
        response(202, &[], "")
    })
    .await;
    let peer = dial(&server).await;
    let about = peer.about();
    assert_eq!(about.protocol_version.as_deref(), Some("2024-11-05"));
    assert_eq!(about.server_info.unwrap().get(), r#"{"name":"old","version":"1","x":1e400}"#);
    let catalog = peer.resolve().await.unwrap();
    let Content::Mcp { tools, .. } = catalog.content() else { panic!("MCP") };
    assert_eq!(tools.first().unwrap().raw.get(), TOOL);
    let answer =
        call(&peer, r#"{"n":123456789012345678901234567890, "n":"\u00e9"}"#).await.unwrap();
    assert_eq!(answer, Answer::text(r#"{"z":1e400, "a":1.10}"#.to_owned()));

    let seen = server.seen.lock().unwrap().clone();
    assert!(seen.iter().all(|seen| seen.header("x-api-key") == Some(SECRET)));
    assert!(seen.first().unwrap().line.starts_with("GET /sse "), "{seen:?}");
    assert!(
        seen.last()
            .unwrap()
            .body
            .contains(r#""arguments":{"n":123456789012345678901234567890, "n":"\u00e9"}}"#)
    );
    timeout(PATIENCE, peer.close()).await.expect("in time");
    assert_eq!(server.requests("GET").len(), 1);
}

#[tokio::test]
async fn question_of_the_server_is_answered_by_post() {
    let server = usual(|seen, say| {
        say.event(r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#);
        say.event(r#"{"jsonrpc":"2.0","id":"r","method":"roots/list"}"#);
        say.hello(seen);
        response(202, &[], "")
    })
    .await;
    let peer = dial(&server).await;
    call(&peer, "{}").await.unwrap();
    let answered = async {
        loop {
            let posts = server.requests("POST");
            let has = |text: &str| posts.iter().any(|post| post.body.contains(text));
            if has(r#""id":"p","result":{}"#) && has(r#""id":"r","error":{"code":-32601"#) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, answered).await.expect("both are answered");
}

#[tokio::test]
async fn an_answer_may_come_before_the_post_is_answered() {
    let server = usual(|seen, say| {
        say.hello(seen);
        // The connection says nothing and ends.
        Vec::new()
    })
    .await;
    let peer = dial(&server).await;
    assert_eq!(call(&peer, "{}").await.unwrap(), Answer::text("hello".to_owned()));
}

#[tokio::test]
async fn the_end_of_the_stream_is_the_end_of_the_connection() {
    let server = usual(|_, say| {
        say.end();
        response(202, &[], "")
    })
    .await;
    let peer = dial(&server).await;
    let (lost, why) = tokio::join!(call(&peer, "{}"), why_closed(&peer));
    assert!(matches!(lost, Err(CallError::Lost(_))), "{lost:?}");
    assert_eq!(why, "the server ended its event stream");
    assert!(matches!(call(&peer, "{}").await, Err(CallError::NotSent(_))));
    timeout(PATIENCE, peer.close()).await.expect("in time");
}

#[tokio::test]
async fn an_event_that_is_too_large_fails_its_call_alone() {
    let server = usual(|seen, say| {
        if seen.body.contains("\"how\":1") {
            // The id stands at the end, as the TypeScript SDK writes it.
            let large = "x".repeat(LIMIT + 10);
            say.event(&format!(r#"{{"result":"{large}","jsonrpc":"2.0","id":{}}}"#, seen.id()));
        } else {
            say.hello(seen);
        }
        response(202, &[], "")
    })
    .await;
    let peer = dial(&server).await;
    let why = call(&peer, r#"{"how":1}"#).await.unwrap_err();
    let CallError::NotRead(NotRead::TooLarge { size: Some(size), .. }) = why else {
        panic!("{why:?}")
    };
    assert!(size > LIMIT as u64, "{size}");
    assert!(matches!(call(&peer, "{}").await, Ok(Answer::Result { .. })));
}

#[tokio::test]
async fn an_event_that_is_too_large_and_answers_nothing_ends_the_connection() {
    let server = usual(|_, say| {
        say.text(format!("data: {}\n\n", "x".repeat(LIMIT + 10)));
        response(202, &[], "")
    })
    .await;
    let peer = dial(&server).await;
    let (lost, why) = tokio::join!(call(&peer, "{}"), why_closed(&peer));
    assert!(matches!(lost, Err(CallError::Lost(_))), "{lost:?}");
    assert!(why.contains("8 MiB"), "{why}");
}

#[tokio::test]
async fn refused_message_is_judged_by_its_status() {
    let server = usual(|seen, _| {
        let status = if seen.body.contains("\"how\":1") { 503 } else { 404 };
        response(status, &[], "Could not find session")
    })
    .await;
    let peer = dial(&server).await;
    let why = call(&peer, r#"{"how":1}"#).await.unwrap_err();
    assert!(matches!(&why, CallError::Refused(why) if why.contains("503")), "{why:?}");
    let (why, closed) = tokio::join!(call(&peer, "{}"), why_closed(&peer));
    assert!(matches!(why, Err(CallError::NoSession(_))), "{why:?}");
    assert!(closed.contains("forgotten"), "{closed}");
}

#[tokio::test]
async fn messages_go_to_the_servers_own_origin_alone() {
    let elsewhere = server(HEAD, |_, _| response(202, &[], "")).await;
    let named = elsewhere.url.join("/messages").unwrap();
    let own = |server: &Server| format!("http://user@{}/", server.url.authority());
    let own = own(&elsewhere);
    for address in [named.as_str(), "//127.0.0.2/m", "https:/m", "data:x", &own] {
        let greeting = format!("{HEAD}event: endpoint\ndata: {address}\n\n");
        let server = server(&greeting, |_, _| response(202, &[], "")).await;
        let dialer = dialer_of(&server.url, HttpTransport::Sse);
        let error = timeout(PATIENCE, dialer.dial()).await.expect("in time").err().unwrap();
        assert_eq!(error.kind, PeerErrorKind::Protocol, "{address}: {error}");
        assert!(server.requests("POST").is_empty());
    }
    assert!(elsewhere.seen.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_stream_that_names_no_address_is_given_up() {
    let why = async |greeting: &str| {
        let server = server(greeting, |_, _| Vec::new()).await;
        try_dial(&dialer_of(&server.url, HttpTransport::Sse)).await.err().unwrap()
    };
    let html = "HTTP/1.1 200 x\r\ncontent-type: text/html\r\ncontent-length: 2\r\n\r\nhi";
    assert!(why(html).await.contains("with a web page"));
    let text = "HTTP/1.1 200 x\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\nhi";
    assert_eq!(why(text).await, "it answers with no event stream");
    let silent = format!("{HEAD}: nothing\n\n");
    assert_eq!(why(&silent).await, "its event stream names no address for messages");
    let refused = "HTTP/1.1 401 x\r\ncontent-length: 0\r\n\r\n";
    assert!(why(refused).await.contains("wants another authorization"));
}

#[tokio::test]
async fn an_older_server_is_found_out_and_remembered() {
    let server = usual(|seen, say| {
        say.hello(seen);
        response(202, &[], "")
    })
    .await;
    let dialer = dialer_of(&server.url, HttpTransport::Either);
    assert_eq!(dialer.transport(), "streamable-http");
    let peer = try_dial(&dialer).await.unwrap();
    assert_eq!(call(&peer, "{}").await.unwrap(), Answer::text("hello".to_owned()));
    assert_eq!((dialer.transport(), dialer.memory.era()), ("sse", Some(Era::Oldest)));
    let tries = server.requests("POST /sse ").len();
    assert!((1..=2).contains(&tries), "discover and initialize: {tries}");
    try_dial(&dialer).await.unwrap();
    assert_eq!(server.requests("POST /sse ").len(), tries, "it is not tried again");

    let why = try_dial(&dialer_of(&server.url, HttpTransport::Streamable)).await.err().unwrap();
    assert!(why.contains("HTTP 405") && !why.contains("SSE"), "{why}");
}

#[tokio::test]
async fn a_server_of_neither_transport_is_told_so_once() {
    let nothing = "HTTP/1.1 404 x\r\ncontent-length: 0\r\n\r\n";
    let neither = server(nothing, |_, _| response(404, &[], "")).await;
    let why = try_dial(&dialer_of(&neither.url, HttpTransport::Either)).await.err().unwrap();
    assert!(why.contains("HTTP 404") && why.contains("HTTP+SSE"), "{why}");
    assert_eq!(neither.requests("GET").len(), 1);
    // An error in JSON-RPC comes from a server of Streamable HTTP.
    let error = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"no"}}"#;
    let server = server(nothing, |_, _| json(400, error)).await;
    let why = try_dial(&dialer_of(&server.url, HttpTransport::Either)).await.err().unwrap();
    assert!(!why.contains("SSE"), "{why}");
    assert!(server.requests("GET").is_empty());
}

#[tokio::test]
async fn refused_revision_is_followed_by_one_that_the_server_has() {
    struct Row {
        /// The refusal, in the answer to the POST; empty if it comes on the stream.
        body: &'static str,
        initializes: usize,
    }
    let error = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32602,"message":"no","data":{"supported":["2024-11-05"]}}}"#;
    let rows = [
        Row { body: "", initializes: 2 },
        Row { body: error, initializes: 2 },
        Row { body: "Unsupported protocol version", initializes: 4 },
    ];
    for Row { body, initializes } in rows {
        let greeting = format!("{HEAD}event: endpoint\ndata: /messages\n\n");
        let server = server(&greeting, move |seen, say| {
            let is_accepted = seen.body.contains("\"protocolVersion\":\"2024-11-05\"");
            if !seen.line.contains(" /messages ") {
                return response(405, &[], "use GET");
            } else if !seen.is("initialize") {
                return response(202, &[], "");
            } else if is_accepted {
                say.result(seen, r#"{"protocolVersion":"2024-11-05","capabilities":{},"serverInfo":{"name":"old","version":"1"}}"#);
                return response(202, &[], "");
            } else if body.is_empty() {
                say.event(&error.replace("null", &seen.id().to_string()));
                return response(202, &[], "");
            }
            response(400, &[("content-type", "application/json")], body)
        })
        .await;
        let dialer = dialer_of(&server.url, HttpTransport::Either);
        for count in [initializes, initializes + 1] {
            let peer = try_dial(&dialer).await.unwrap_or_else(|why| panic!("{body}: {why}"));
            assert_eq!(peer.about().protocol_version.as_deref(), Some("2024-11-05"));
            let posts = server.requests("POST /messages");
            let seen = posts.iter().filter(|post| post.is("initialize")).count();
            assert_eq!(seen, count, "{body}: what was accepted is remembered");
        }
    }
}

/// How a server ends a POST whose answer comes on the stream.
fn bad_endings() -> Vec<Vec<u8>> {
    let cut = "HTTP/1.1 200 x\r\nconnection: close\r\ncontent-length: 99\r\n\r\nAcc";
    vec![
        Vec::new(),
        cut.as_bytes().to_vec(),
        "HTTP/1.1 202 x\r\nconnec".as_bytes().to_vec(),
        response(200, &[], ""),
        response(504, &[], "too late"),
    ]
}

#[tokio::test]
async fn answer_on_the_stream_counts_however_its_post_has_ended() {
    for ending in bad_endings() {
        let described = String::from_utf8_lossy(&ending).into_owned();
        let first = Arc::<Mutex<Option<Seen>>>::default();
        let unanswered = Arc::clone(&first);
        // The first call is answered when its POST is over and the second call has come.
        let server = usual(move |seen, say| {
            let mut earlier = unanswered.lock().unwrap();
            if let Some(earlier) = earlier.take() {
                say.hello(&earlier);
                say.hello(seen);
                return response(202, &[], "");
            }
            *earlier = Some(seen.clone());
            ending.clone()
        })
        .await;
        let peer = dial(&server).await;
        let is_there = async {
            while first.lock().unwrap().is_none() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            call(&peer, "{}").await
        };
        let (slow, fast) = tokio::join!(call(&peer, "{}"), is_there);
        let hello = Answer::text("hello".to_owned());
        assert_eq!((slow.unwrap(), fast.unwrap()), (hello.clone(), hello), "{described}");
        assert_eq!(server.requests("POST").iter().filter(|seen| seen.is("tools/call")).count(), 2);
    }
}

/// A server at `/app/sse` behind a gateway that removes `/app`; it takes messages where `is_there`
/// says so.
async fn behind_gateway(is_there: fn(&str) -> bool) -> Server {
    let greeting = format!("{HEAD}event: endpoint\ndata: /messages?sessionId=7\n\n");
    let mut server = server(&greeting, move |seen, say| {
        if !is_there(&seen.line) {
            return response(404, &[], "no route");
        }
        if seen.is("initialize") {
            say.result(seen, r#"{"protocolVersion":"2024-11-05","capabilities":{"tools":{}},"serverInfo":{"name":"old","version":"1"}}"#);
        } else if seen.is("tools/call") {
            say.hello(seen);
        }
        response(202, &[], "")
    })
    .await;
    server.url = server.url.join("/app/sse").unwrap();
    server
}

#[tokio::test]
async fn address_without_the_prefix_that_a_gateway_removes_is_found_below_it() {
    let server = behind_gateway(|line| line.contains(" /app/messages?sessionId=7 ")).await;
    let peer = dial(&server).await;
    assert_eq!(call(&peer, "{}").await.unwrap(), Answer::text("hello".to_owned()));
    assert_eq!(server.requests("POST /messages").len(), 1, "the right one is remembered");
}

#[tokio::test]
async fn address_that_leads_nowhere_is_told_with_the_cure() {
    let server = behind_gateway(|_| false).await;
    let why = try_dial(&dialer_of(&server.url, HttpTransport::Sse)).await.err().unwrap();
    assert!(why.contains("names /messages for messages"), "{why}");
    assert!(why.contains("HTTP 404") && why.contains("gateway"), "{why}");
}

#[test]
fn prefixes_are_tried_from_the_deepest_on() {
    for (stream, named, expected) in [
        ("http://h/a/b/sse?k=1", "/messages?s=1", &["/a/b/messages", "/a/messages"][..]),
        ("http://h/a/b/sse", "/b/m", &["/a/b/b/m", "/a/b/m"]),
        ("http://h/app/sse", "/app/m", &[]),
        ("http://h/app/sse", "/application/m", &["/app/application/m"]),
        ("http://h/sse", "/m", &[]),
        (
            "http://h/1/2/3/4/5/6/sse",
            "/m",
            &["/1/2/3/4/5/6/m", "/1/2/3/4/5/m", "/1/2/3/4/m", "/1/2/3/m"],
        ),
    ] {
        let stream: Url = stream.parse().unwrap();
        let named = stream.join(named).unwrap();
        let candidates = below_prefixes(&stream, &named);
        assert!(candidates.iter().all(|url| url.query() == named.query()));
        let paths: Vec<&str> = candidates.iter().map(Url::path).collect();
        assert_eq!(paths, expected, "{stream}");
    }
}

#[tokio::test]
async fn older_server_that_answers_a_post_with_its_stream_is_reached_by_get() {
    let event = "event: endpoint\ndata: /messages?sessionId=7\n\n";
    let greeting = format!("{HEAD}{event}");
    let server = server(&greeting, move |seen, say| {
        if seen.line.contains(" /sse ") {
            // Of the bytes that it promises, the server sends a part.
            let length = "connection: close\r\ncontent-length: 999";
            let head = HEAD.replace("connection: close", length);
            return format!("{head}{event}").into_bytes();
        }
        if seen.is("initialize") {
            say.result(seen, r#"{"protocolVersion":"2024-11-05","capabilities":{"tools":{}},"serverInfo":{"name":"old","version":"1"}}"#);
        } else if seen.is("tools/call") {
            say.hello(seen);
        }
        response(202, &[], "")
    })
    .await;
    let dialer = dialer_of(&server.url, HttpTransport::Either);
    let peer = try_dial(&dialer).await.unwrap();
    assert_eq!(call(&peer, "{}").await.unwrap(), Answer::text("hello".to_owned()));
    assert_eq!(dialer.transport(), "sse");
    assert_eq!(server.requests("POST /sse").len(), 1, "one such answer says enough");
}
