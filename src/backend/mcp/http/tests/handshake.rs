//! Handshakes over Streamable HTTP that a server refuses at first, or is slow to answer.

use super::*;
use crate::backend::mcp::Proposal;

/// Whether the message proposes this revision.
fn proposes(seen: &Seen, revision: &str) -> bool {
    seen.is("initialize") && seen.body.contains(&format!("\"protocolVersion\":\"{revision}\""))
}

/// A server that answers `initialize` with this status and body unless it proposes `revision`.
async fn picky(status: u16, body: &'static str, revision: &'static str) -> Server {
    server(move |seen| {
        if seen.is("initialize") && !proposes(seen, revision) {
            return json(status, body);
        }
        usual(seen, "s").unwrap_or_else(|| seen.result(HELLO))
    })
    .await
}

#[tokio::test]
async fn refused_revision_is_followed_by_one_that_the_server_has() {
    struct Row {
        status: u16,
        body: &'static str,
        initializes: usize,
    }
    let rows = [
        Row {
            status: 400,
            body: r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32602,"message":"Unsupported protocol version","data":{"supported":["2025-03-26"],"requested":"2025-11-25"}}}"#,
            initializes: 2,
        },
        Row {
            status: 200,
            body: r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32602,"message":"no","data":{"expected":["2025-03-26"]}}}"#,
            initializes: 2,
        },
        Row {
            status: 400,
            body: "Bad Request: Unsupported protocol version (supported versions: 2025-03-26)",
            initializes: 2,
        },
        Row { status: 400, body: "{\"error\":\"bad request\"}", initializes: 3 },
        Row { status: 500, body: "Internal Server Error", initializes: 3 },
    ];
    for Row { status, body, initializes } in rows {
        let server = picky(status, body, "2025-03-26").await;
        let peer = dial(&server).await;
        assert_eq!(call(&peer).await.unwrap(), text("hello"), "{status} {body}");
        assert_eq!(server.count("initialize"), initializes, "{status} {body}");
        assert_eq!(server.count("notifications/initialized"), 1, "{status} {body}");
    }
}

#[tokio::test]
async fn capabilities_that_a_server_cannot_read_are_left_out() {
    let server = server(|seen| {
        if seen.is("initialize") && seen.body.contains("\"form\"") {
            let error = r#"{"code":-32603,"message":"Unrecognized field \"form\""}"#;
            let body = format!(r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#, seen.id());
            return json(500, &body);
        }
        usual(seen, "s").unwrap_or_else(|| seen.result(HELLO))
    })
    .await;
    let peer = dial(&server).await;
    assert_eq!(call(&peer).await.unwrap(), text("hello"));
    let seen = server.seen.lock().unwrap().clone();
    let last = seen.iter().rfind(|seen| proposes(seen, "2025-11-25")).expect("it is accepted");
    assert!(last.body.contains(r#""elicitation":{}"#), "{}", last.body);
}

#[tokio::test]
async fn server_that_refuses_every_proposal_is_told_with_what_was_tried() {
    let server = picky(400, "Bad Request", "never").await;
    let why = try_dial(&server.url).await.err().unwrap();
    assert!(why.contains("HTTP 400"), "{why}");
    assert!(why.contains("tried with 2025-11-25, 2025-06-18, 2025-03-26, 2024-11-05"), "{why}");
    assert!(!why.contains("no MCP server"), "{why}");
    assert!(server.count("initialize") <= 8, "{}", server.count("initialize"));
}

#[tokio::test]
async fn status_that_is_about_something_else_ends_the_handshake() {
    for status in [404, 405, 429, 503] {
        let server = picky(status, "no", "2025-03-26").await;
        try_dial(&server.url).await.err().unwrap();
        assert_eq!(server.count("initialize"), 1, "HTTP {status}");
    }
}

/// A dialer whose waits a test need not sit through.
fn dialer_of(server: &Server) -> McpDialer {
    let config = Mcp::Http {
        url: server.url.clone().into(),
        headers: HeaderMap::new(),
        socket: None,
        transport: HttpTransport::Streamable,
        oauth: None,
        tls: None,
        listen: true,
        sessions: false,
    };
    let name = BackendName::parse("scripted").unwrap();
    let mut dialer = dialer(&name, &config, None, http_client::new());
    dialer.waits.discover = Duration::from_millis(20);
    dialer.waits.late = Duration::from_millis(20);
    dialer
}

#[tokio::test]
async fn server_that_is_silent_at_discover_is_reached_by_initialize_and_remembered() {
    let server = server(|seen| {
        if seen.is("server/discover") {
            return Vec::new();
        }
        usual(seen, "s").unwrap_or_else(|| seen.result(HELLO))
    })
    .await;
    let dialer = dialer_of(&server);
    for _ in 0..2 {
        let peer = timeout(PATIENCE, dialer.dial()).await.expect("in time").expect("a connection");
        assert_eq!(call(&peer).await.unwrap(), text("hello"));
    }
    assert_eq!(server.count("server/discover"), 1, "it begins with what worked last");
    assert_eq!(dialer.memory.proposal(), Proposal::newest());
}

#[tokio::test]
async fn server_of_which_sessions_are_wanted_is_not_asked_for_the_newer_revision() {
    let server = server(|seen| {
        if seen.is("server/discover") {
            return seen.result(HELLO);
        }
        usual(seen, "s").unwrap_or_else(|| seen.result(HELLO))
    })
    .await;
    let mut dialer = dialer_of(&server);
    dialer.memory.wants_sessions = true;
    for _ in 0..2 {
        timeout(PATIENCE, dialer.dial()).await.expect("in time").expect("a connection");
    }
    assert_eq!((server.count("server/discover"), server.count("initialize")), (0, 2));
}

#[tokio::test]
async fn proposal_that_was_accepted_is_the_first_at_the_next_dial() {
    let server = picky(400, "no", "2025-03-26").await;
    let dialer = dialer_of(&server);
    for initializes in [3, 4] {
        timeout(PATIENCE, dialer.dial()).await.expect("in time").expect("a connection");
        assert_eq!(server.count("initialize"), initializes);
    }
}
