//! Tests of the tests: the scripted MANTYX sends what its script says, and the real peers start.

use std::time::Duration;

use crate::{
    frames::Script,
    http::{Connection, Request},
    mantyx::Mantyx,
    peers,
    process::{self, Group},
    wait,
};

const RUNS: &str = "/api/v1/workspaces/acme/agent-runs";

fn mantyx_addr(mantyx: &Mantyx) -> std::net::SocketAddr {
    mantyx.url().trim_start_matches("http://").parse().expect("an address")
}

#[tokio::test]
async fn a_script_is_sent_byte_for_byte_and_resumed_by_seq() {
    let mantyx = Mantyx::start().await;
    let addr = mantyx_addr(&mantyx);
    let script = Script::new().delta("a").raw(": beat\n\n").delta("b").done().crlf().pieces(7);
    let bytes = script.bytes();
    mantyx.script(script.cut([30]));
    let created = Request::new("POST", RUNS).json("{}").answer(addr).await.expect(202);
    let stream = created["streamUrl"].as_str().expect("a stream").to_owned();

    let mut first = Request::new("GET", &stream).send(addr).await;
    let mut got = Vec::new();
    while let Some(piece) = first.chunk().await {
        assert!(piece.len() <= 7, "pieces of at most 7 bytes");
        got.extend(piece);
    }
    assert_eq!(got, bytes.get(..30).expect("the script is longer"), "the stream up to its cut");
    let whole = Request::new("GET", &stream).answer(addr).await;
    assert_eq!(whole.body, bytes, "the second connection is not cut");
    let rest = Request::new("GET", &format!("{stream}?lastSeq=2")).answer(addr).await;
    assert!(bytes.ends_with(&rest.body) && rest.text().starts_with("id: 3\r\n"), "after seq 2");
    assert_eq!(mantyx.recorded().len(), 4, "every request is recorded");
}

#[tokio::test]
async fn a_script_waits_for_its_answer() {
    let mantyx = Mantyx::start().await;
    let addr = mantyx_addr(&mantyx);
    mantyx.script(Script::one_call("tu_1", "s", "s_t", "{}"));
    let created = Request::new("POST", RUNS).json("{}").answer(addr).await.expect(202);
    let mut stream =
        Request::new("GET", created["streamUrl"].as_str().expect("a stream")).send(addr).await;
    let mut text = String::new();
    while !text.contains("local_tool_call") {
        text.push_str(&String::from_utf8_lossy(&stream.chunk().await.expect("a call")));
    }
    let body = r#"{"toolUseId":"tu_1","result":"x"}"#;
    Request::new("POST", "/r/tool-results").json(body).answer(addr).await.expect(200);
    let rest = stream.answer().await;
    assert!(rest.text().contains("local_tool_result_in") && rest.text().contains("event: result"));
}

#[tokio::test]
async fn bodies_are_echoed_while_they_are_sent() {
    let mantyx = Mantyx::start().await;
    let mut connection = Connection::open(mantyx_addr(&mantyx)).await;
    let head = "POST /echo-stream HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    connection.write(head.as_bytes()).await;
    connection.write(b"3\r\none\r\n").await;
    let mut response = connection.response().await;
    assert_eq!(response.chunk().await.as_deref(), Some(b"one".as_slice()), "before the rest");
    response.write(b"3\r\ntwo\r\n0\r\n\r\n").await;
    assert_eq!(response.answer().await.body, b"two");
}

#[tokio::test]
async fn the_agents_and_the_http_server_start_and_start_again() {
    for mut agent in
        [peers::a2a_v1("1.0").await, peers::a2a_v1("0.3").await, peers::a2a_v03().await]
    {
        let url = agent.url().to_owned();
        let addr = url.trim_start_matches("http://").parse().expect("an address");
        let card = Request::new("GET", "/.well-known/agent-card.json").answer(addr).await;
        assert!(card.expect(200)["name"].is_string(), "a card has a name");
        agent.kill9();
        agent.restart().await;
        assert_eq!(agent.url(), url, "a peer comes back where it was");
    }
    let mut server = peers::everything_http().await;
    server.kill9();
    server.restart().await;
    let addr = server.url().trim_start_matches("http://").parse().expect("an address");
    wait::until("the server should answer", Duration::from_secs(5), async || {
        let answer = Request::new("POST", "/mcp").json("{}").answer(addr).await;
        (answer.status >= 400).then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_stdio_servers_answer_a_handshake() {
    let dir = tempfile::TempDir::new().expect("the temporary directory is writable");
    let ledger = peers::ledger(&crate::harness::ledger_in(&dir), &[]);
    for entry in [peers::mcp_time(), peers::everything_stdio(), ledger] {
        // The flow map of a configuration is JSON but for its two bare keys.
        let json = entry.replace("{command:", "{\"command\":").replace(" args:", " \"args\":");
        let entry: serde_json::Value = serde_json::from_str(&json).expect("a stdio entry");
        let args = entry["args"].as_array().expect("a list").iter().filter_map(|arg| arg.as_str());
        let mut child = tokio::process::Command::new(entry["command"].as_str().expect("a program"))
            .args(args)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("the server should start");
        let hello = concat!(
            r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"#,
            r#""2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#,
            "\n"
        );
        let mut stdin = child.stdin.take().expect("piped");
        tokio::io::AsyncWriteExt::write_all(&mut stdin, hello.as_bytes()).await.expect("it reads");
        let mut lines = tokio::io::BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        tokio::io::AsyncBufReadExt::read_line(&mut lines, &mut line).await.expect("it answers");
        assert!(line.contains("\"serverInfo\""), "an answer to initialize: {line}");
    }
}

#[tokio::test]
async fn the_sdk_runs_against_the_scripted_mantyx() {
    let mantyx = Mantyx::start().await;
    let script = Script::new().delta("hm").local("tu_1", "add_numbers", r#"{"a":2,"b":3}"#);
    mantyx.script(script.answered("tu_1").done());
    let mut command = peers::sdk("async_run.py");
    let output = command.arg(mantyx.url()).args(["key", "hi"]).output().await.expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let seen: serde_json::Value = serde_json::from_str(&text).expect(&errors);
    assert_eq!(seen["text"], "done");
    assert_eq!(seen["ownCalls"][0]["a"], 2, "{seen}");
    assert_eq!(mantyx.answer("tu_1").await["result"], "5");
}

#[tokio::test]
async fn a_guard_finds_and_kills_the_whole_group() {
    let dir = tempfile::TempDir::new().expect("the temporary directory is writable");
    let mark = format!("TMPDIR={}", dir.path().display());
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "sleep 600 & wait"]).env("TMPDIR", dir.path());
    let group = Group::spawn(&mut command, &dir.path().join("log"));
    wait::soon("both processes should be found", async || {
        (process::marked(&mark, None).len() == 2).then_some(())
    })
    .await;
    assert!(process::resident(group.pid()) > 0);
    assert_eq!(process::marked(&mark, Some(group.pid())).len(), 1, "the leader left out");
    drop(group);
    wait::soon("both should be gone", async || {
        process::marked(&mark, None).is_empty().then_some(())
    })
    .await;
}
