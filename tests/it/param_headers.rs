//! `x-mcp-header`: what an MCP server of 2026-07-28 that writes its header lines down is sent.

use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use crate::{frames::Script, harness::Harness};

const TOOLS: &str = r#"[
    {"name":"ask","inputSchema":{"type":"object","properties":{
        "text":{"type":"string","x-mcp-header":"Text"},
        "deep":{"type":"object","properties":{"n":{"type":"integer","x-mcp-header":"N"}}}}}},
    {"name":"number","inputSchema":{"properties":{"n":{"type":"number","x-mcp-header":"N"}}}},
    {"name":"line","inputSchema":{"properties":{"a":{"type":"string","x-mcp-header":"A\r\nX-Evil: 1"}}}},
    {"name":"plain","inputSchema":{"type":"object"}}]"#;

/// The heads of all requests that were calls, as they came.
type Heads = Arc<Mutex<Vec<String>>>;

/// Answers each request of the connection's one, and closes it.
async fn serve(mut stream: TcpStream, heads: Heads) -> Option<()> {
    let mut read = Vec::new();
    let (head, body) = loop {
        if stream.read_buf(&mut read).await.ok()? == 0 {
            return None;
        }
        let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let (head, body) = (read.get(..end)?, read.get(end + 4..)?);
        let head = String::from_utf8_lossy(head).into_owned();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if body.len() >= length.map_or(0, |length| length.parse().expect("a length")) {
            break (head, body.to_vec());
        }
    };
    let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
    let common = r#""resultType":"complete","ttlMs":0,"cacheScope":"private""#;
    let result = match asked["method"].as_str() {
        Some("server/discover") => format!(
            r#"{{{common},"supportedVersions":["2026-07-28"],"capabilities":{{"tools":{{}}}},"_meta":{{}}}}"#
        ),
        Some("tools/list") => format!(r#"{{{common},"tools":{TOOLS}}}"#),
        Some("tools/call") => {
            heads.lock().expect("no holder panics").push(head);
            r#"{"resultType":"complete","content":[{"type":"text","text":"heard"}]}"#.to_owned()
        }
        _ => return None,
    };
    let answer = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, asked["id"]);
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close";
    let answer = format!("{head}\r\nContent-Length: {}\r\n\r\n{answer}", answer.len());
    stream.write_all(answer.as_bytes()).await.ok()
}

/// A30, A31: the five examples of the specification, and values that would be lines of their own.
#[tokio::test]
async fn marked_arguments_are_headers_and_bad_marks_cost_their_tool_alone() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
    let url = format!("http://{}/mcp", listener.local_addr().expect("it is bound"));
    let heads = Heads::default();
    let (log, mut accepting) = (Arc::clone(&heads), JoinSet::new());
    accepting.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            connections.spawn(serve(stream, Arc::clone(&log)));
        }
    });
    let rig =
        Harness::bare(&format!("mcp:\n  m: {{url: '{url}', transport: streamable-http}}\n")).await;
    rig.bridge.wait_backend("m", "ready").await;
    assert_eq!(rig.bridge.backend("m").await["tools"], 2, "of four");
    for name in ["number", "line"] {
        let told =
            |line: &str| line.contains("left out") && line.contains(&format!("\\\"{name}\\\""));
        assert!(rig.bridge.log().lines().any(told), "{name}: {}", rig.bridge.log());
    }
    for (n, (text, expected)) in [
        ("us-west1", "us-west1"),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ("a\r\nX-Evil: 1\0", "=?base64?YQ0KWC1FdmlsOiAxAA==?="),
    ]
    .into_iter()
    .enumerate()
    {
        let args = serde_json::json!({"text": text, "deep": {"n": n}}).to_string();
        let id = format!("tu_{n}");
        rig.run(Script::new().mcp(&id, "m", "m_ask", &args).answered(&id).done()).await;
        assert_eq!(rig.mantyx.answer(&id).await["result"], "heard");
        let head = heads.lock().expect("no holder panics").pop().expect("a call came");
        let lines: Vec<&str> = head.split("\r\n").collect();
        assert!(lines.contains(&&*format!("mcp-param-text: {expected}")), "{text:?}: {head}");
        assert!(lines.contains(&&*format!("mcp-param-n: {n}")), "{head}");
        assert!(lines.contains(&"mcp-name: ask"), "{head}");
        let is_plain = |line: &&str| line.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        assert!(lines.iter().all(is_plain), "{head:?}");
        assert!(!lines.iter().any(|line| line.to_lowercase().starts_with("x-evil")), "{head}");
    }
}
