//! Answers without an end, bombs and JSON that no one should write: from every side they cost an
//! error and little memory, and nobody else's call.

use std::{
    collections::HashMap,
    io,
    net::SocketAddr,
    process::Command,
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use serde_json::Value;
use tokio::{
    io::{AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use crate::{
    bridge::{API, Bridge},
    frames::Script,
    http::{Connection, Head},
    mantyx::Mantyx,
    peers, process, wait,
};

/// What any of it may cost, with the bridge as it was built for the tests.
const ROOM: u64 = 64 << 20;
/// More than this no one takes of an answer.
const SENT: u64 = 64 << 20;

/// A server whose answers do not end. What it answers is the first part of the path.
struct Flood {
    addr: SocketAddr,
    /// By path, how much was sent before the client hung up.
    refused: Arc<Mutex<HashMap<String, u64>>>,
    /// Every head of a request.
    heads: Arc<Mutex<Vec<String>>>,
    _accepting: JoinSet<()>,
}

impl Flood {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
        let addr = listener.local_addr().expect("a bound listener has an address");
        let (refused, heads) = (Arc::default(), Arc::default());
        let mut accepting = JoinSet::new();
        let (notes, seen) = (Arc::clone(&refused), Arc::clone(&heads));
        accepting.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let (notes, seen) = (Arc::clone(&notes), Arc::clone(&seen));
                connections.spawn(async move {
                    // That the client hangs up is what is waited for.
                    answer(client, &notes, &seen).await.ok();
                });
            }
        });
        Self { addr, refused, heads, _accepting: accepting }
    }

    fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Waits until the client has hung up on `path`; how much it was sent.
    async fn wait_refused(&self, path: &str) -> u64 {
        wait::until(&format!("{path} should be refused"), Duration::from_secs(60), async || {
            self.refused.lock().expect("no holder panics").get(path).copied()
        })
        .await
    }
}

/// 300 MiB in a few hundred KiB.
fn bomb() -> &'static [u8] {
    static BOMB: OnceLock<Vec<u8>> = OnceLock::new();
    BOMB.get_or_init(|| {
        let script = "import gzip, sys; sys.stdout.buffer.write(gzip.compress(bytes(300 << 20)))";
        let out = Command::new(peers::fetch::interpreter()).args(["-c", script]).output();
        out.expect("an interpreter compresses").stdout
    })
}

async fn answer(
    client: TcpStream,
    refused: &Mutex<HashMap<String, u64>>,
    heads: &Mutex<Vec<String>>,
) -> io::Result<()> {
    let (reader, mut writer) = client.into_split();
    let mut reader = BufReader::new(reader);
    let Some(head) = Head::read(&mut reader).await? else { return Ok(()) };
    head.framing(false).whole(&mut reader).await?;
    heads.lock().expect("no holder panics").push(format!("{head:?}"));
    let path = head.line.split(' ').nth(1).unwrap_or_default().to_owned();
    let kind = path.split('/').nth(1).unwrap_or_default();
    let (first, rest) = match kind {
        "json" => ("application/json\r\n\r\n{\"result\":\"", vec![b'a'; 1 << 16]),
        "depth" => ("application/json\r\n\r\n", vec![b'['; 1 << 16]),
        "event" => ("text/event-stream\r\n\r\ndata: ", vec![b'a'; 1 << 16]),
        "text" => ("text/plain\r\n\r\n", vec![b'a'; 1 << 16]),
        "head" => ("text/plain\r\n", b"X-More: and more\r\n".repeat(1 << 12)),
        _ => {
            let start = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: {kind}\r\n\
                 Content-Length: {}\r\n\r\n",
                bomb().len()
            );
            writer.write_all(start.as_bytes()).await?;
            let done = writer.write_all(bomb()).await;
            refused.lock().expect("no holder panics").insert(path, bomb().len() as u64);
            return done;
        }
    };
    let mut sent = 0;
    let start = format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: {first}");
    let mut ended = writer.write_all(start.as_bytes()).await;
    while ended.is_ok() && sent < 2 * SENT {
        ended = writer.write_all(&rest).await;
        sent += rest.len() as u64;
    }
    refused.lock().expect("no holder panics").insert(path, sent);
    ended
}

/// A bridge that is measured.
struct Measured {
    bridge: Bridge,
    before: u64,
}

impl Measured {
    async fn start(config: &str) -> Self {
        let ok = "  ok: {description: d, parameters: {type: object}, command: [echo, hi]}\n";
        let config = match config.contains("local:\n") {
            true => config.replace("local:\n", &format!("local:\n{ok}")),
            false => format!("{config}local:\n{ok}"),
        };
        let mut bridge = Bridge::start(&config).await;
        let before = process::resident(bridge.process().pid());
        Self { bridge, before }
    }

    async fn call(&self, name: &str) -> Value {
        let call =
            format!(r#"{{"toolUseId":"tu_{name}","name":"{name}","args":{{"message":"x"}}}}"#);
        self.bridge.api("POST", "/v1/tool-calls", Some(&call)).await.expect(200)
    }

    /// What came from all sides has cost little, and others are served.
    async fn is_well(&mut self, what: &str) {
        assert_eq!(self.call("ok").await["result"], "hi", "{what}: another call");
        let most = process::most_resident(self.bridge.process().pid());
        let grown = most.saturating_sub(self.before);
        assert!(grown <= ROOM, "{what}: it took {} MiB more", grown >> 20);
        assert!(!self.bridge.log().contains("panicked"), "{what}: {}", self.bridge.log());
    }
}

/// A20: from the servers of MCP, agents, whoever issues tokens, and local tools.
#[tokio::test]
async fn no_answer_of_a_backend_takes_more_than_its_room() {
    let flood = Flood::start().await;
    let url = flood.url();
    let sides = [
        ("mcp", "url: 'URL', transport: streamable-http"),
        ("mcp", "url: 'URL', transport: sse"),
        (
            "mcp",
            "url: 'http://127.0.0.1:9/mcp', auth: {oauth: {client_id: b, client_secret: c, token_url: 'URL'}}",
        ),
        ("a2a", "card_url: 'URL'"),
    ];
    for kind in ["json", "event", "head", "depth", "gzip", "br", "zstd"] {
        let mut config = String::from("upstream: {sandbox: true}\n");
        for section in ["mcp", "a2a"] {
            config.push_str(&format!("{section}:\n"));
            for (n, (_, entry)) in sides.iter().enumerate().filter(|(_, one)| one.0 == section) {
                let entry = entry.replace("URL", &format!("{url}/{kind}/{n}"));
                config.push_str(&format!("  bad_{n}: {{{entry}}}\n"));
            }
        }
        let mut measured = Measured::start(&config).await;
        for n in 0..sides.len() {
            let sent = flood.wait_refused(&format!("/{kind}/{n}")).await;
            assert!(sent < SENT, "{kind} to {n} was read for {sent} bytes");
            wait::soon(&format!("{kind} from {n} should be an error"), async || {
                let bad = measured.bridge.backend(&format!("bad_{n}")).await;
                bad["lastError"].as_str().map(|error| assert!(error.len() <= 8_000, "{error}"))
            })
            .await;
        }
        measured.is_well(kind).await;
    }
    let heads = flood.heads.lock().expect("no holder panics").join("\n");
    let compressed = heads.replace(r#"("accept-encoding", "identity")"#, "");
    assert!(!compressed.contains("accept-encoding"), "nothing compressed is asked for: {heads}");
}

const TOOL: &str = "description: d, parameters: {type: object}";

/// A20: what a call brings: from an agent, and from a local tool that is a request.
#[tokio::test]
async fn no_answer_to_a_call_takes_more_than_its_room() {
    let (flood, card) = (Flood::start().await, Mantyx::start().await);
    let ok = ["HTTP/1.1 200 OK", "Content-Type: application/json"];
    for kind in ["json", "event", "head", "depth", "text", "gzip"] {
        let url = flood.url();
        let text = format!(
            r#"{{"protocolVersion":"0.3.0","name":"hr","description":"d","version":"1","url":"{url}/{kind}/rpc","preferredTransport":"JSONRPC","capabilities":{{"streaming":{}}},"skills":[]}}"#,
            kind == "event"
        );
        card.canned("GET", "/card", &ok, &text);
        let config = format!(
            "upstream: {{sandbox: true}}\na2a:\n  \
             agent: {{card_url: '{}/card', allow_hosts: ['{}'], pending_after: off}}\n\
             local:\n  page: {{{TOOL}, http: {{url: '{url}/{kind}/page'}}}}\n",
            card.url(),
            flood.addr
        );
        let mut measured = Measured::start(&config).await;
        measured.bridge.wait_backend("agent", "ready").await;
        let answer = measured.call("agent").await;
        let error = answer["error"].as_str().unwrap_or_else(|| panic!("{kind}: {answer}"));
        assert!(error.len() <= 8_000, "{kind}: {} bytes", error.len());
        let answer = measured.call("page").await;
        let text = answer["result"].as_str().or(answer["error"].as_str()).expect("an answer");
        assert!(text.len() <= 2_000_000, "{kind}: {} bytes", text.len());
        for way in ["rpc", "page"] {
            let sent = flood.wait_refused(&format!("/{kind}/{way}")).await;
            assert!(sent < SENT, "{kind}/{way} was read for {sent} bytes");
        }
        measured.is_well(kind).await;
    }
}

/// A20: from programs: a server on stdio whose line does not end, and a local tool's output.
#[tokio::test]
async fn no_program_takes_more_than_its_room() {
    // The backslash is doubled for YAML.
    let endless = "tr '\\\\0' a < /dev/zero";
    let config = format!(
        "upstream: {{sandbox: true}}\nrefresh: {{timeout: 5s}}\nprograms: {{start_timeout: 5s}}\n\
         mcp:\n  line: {{command: sh, args: [-c, \"{endless}\"]}}\n\
         local:\n  program: {{{TOOL}, command: [sh, -c, \"{endless}\"]}}\n"
    );
    let mut measured = Measured::start(&config).await;
    let answer = measured.call("program").await;
    assert!(answer["error"].as_str().is_some_and(|error| error.len() <= 8_000), "{answer}");
    wait::soon("a line without an end should be an error", async || {
        let line = measured.bridge.backend("line").await;
        line["lastError"].as_str().map(|error| assert!(error.len() <= 8_000, "{error}"))
    })
    .await;
    measured.is_well("programs").await;
}

/// JSON that is odd, and some of it none.
fn oddities() -> Vec<(&'static str, String)> {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    vec![
        ("129 deep", nested(129)),
        ("100,000 deep", nested(100_000)),
        ("a long number", "9".repeat(100_000)),
        ("a long fraction", format!("0.{}e-400", "1".repeat(100_000))),
        ("the same key twice", r#"{"a":1,"a":{"a":2,"a":3}}"#.to_owned()),
        ("a lone surrogate", r#""\ud800x\udfff""#.to_owned()),
        ("half a surrogate", r#""\ud800"#.to_owned()),
    ]
}

/// A20: from apps, MANTYX's stream and agents.
#[tokio::test]
async fn odd_json_breaks_nothing() {
    let (mantyx, peer) = (Mantyx::start().await, Mantyx::start().await);
    let ok = ["HTTP/1.1 200 OK", "Content-Type: application/json"];
    let mut a2a = String::new();
    for (n, (_, odd)) in oddities().iter().enumerate() {
        let card = |more: &str| {
            format!(
                r#"{{"protocolVersion":"0.3.0","name":"hr","description":"d","version":"1","url":"/rpc_{n}","preferredTransport":"JSONRPC","capabilities":{{}},"skills":[]{more}}}"#
            )
        };
        peer.canned("GET", &format!("/card_{n}"), &ok, &card(""));
        peer.canned("GET", &format!("/odd_{n}"), &ok, &card(&format!(r#","x":{odd}"#)));
        let reply = format!(
            r#"{{"jsonrpc":"2.0","id":1,"result":{{"kind":"message","messageId":"m","role":"agent","parts":[{{"kind":"data","data":{{"x":{odd}}}}}]}}}}"#
        );
        peer.canned("POST", &format!("/rpc_{n}"), &ok, &reply);
        let url = peer.url();
        a2a.push_str(&format!("  agent_{n}: {{card_url: '{url}/card_{n}'}}\n"));
        a2a.push_str(&format!("  odd_{n}: {{card_url: '{url}/odd_{n}'}}\n"));
    }
    let mut measured = Measured::start(&format!("{}a2a:\n{a2a}", mantyx.upstream())).await;
    for (n, (what, odd)) in oddities().iter().enumerate() {
        measured.bridge.wait_backend(&format!("agent_{n}"), "ready").await;
        measured.call(&format!("agent_{n}")).await;
        for body in [
            odd.clone(),
            format!(r#"{{"prompt":"x","more":{odd}}}"#),
            format!(r#"{{"prompt":"x","tools":{odd}}}"#),
            format!(r#"{{"toolUseId":"tu_odd","name":"ok","args":{{"a":{odd}}}}}"#),
            format!(r#"{{"toolUseId":{odd},"name":"ok","args":{odd}}}"#),
        ] {
            for target in [&format!("{API}/agent-runs"), "/v1/specs/inject", "/v1/tool-calls"] {
                let answer = measured.bridge.api("POST", target, Some(&body)).await;
                assert!(answer.status < 500, "{what} to {target}: {}", answer.status);
                let is_error = answer.status >= 400;
                assert!(!is_error || answer.body.len() <= 8_000, "{what}: {}", answer.body.len());
            }
        }
        let id = format!("tu_{n}");
        let call = format!(r#"{{"toolUseId":"{id}","name":"ok","args":{{"a":{odd}}}}}"#);
        let after = format!("{id}_after");
        let script = Script::new()
            .event("local_tool_call", &call)
            .raw(&format!("event: x\ndata: {odd}\n\n"))
            .local(&after, "ok", "{}")
            .answered(&after);
        mantyx.script(script.done());
        measured.bridge.post_run(r#"{"prompt":"x"}"#).await;
        assert_eq!(mantyx.answer(&after).await["result"], "hi", "{what}: the run goes on");
        measured.is_well(what).await;
    }
}

/// A20, A10: an event that does not end, and an answer that does not.
#[tokio::test]
async fn nothing_of_mantyx_takes_more_than_its_room() {
    let mantyx = Mantyx::start().await;
    let mut measured = Measured::start(&mantyx.upstream()).await;
    let giant = "a".repeat(40 << 20);
    let call = format!(
        r#"data: {{"seq":1,"type":"local_tool_call","data":{{"toolUseId":"tu_1","name":"ok","args":{{"a":"{giant}"}}}}}}"#
    );
    let script = Script::new().raw_event(&format!("id: 1\n{call}\n\n"));
    mantyx.script(script.local("tu_2", "ok", "{}").answered("tu_2").done());
    let run = measured.bridge.post_run(r#"{"prompt":"x"}"#).await;
    assert_eq!(mantyx.answer("tu_2").await["result"], "hi", "what comes after it is read");
    assert_eq!(mantyx.opened(&run.run_id), 1, "another stream would bring the same");
    let refused = mantyx.answer("tu_1").await["error"].to_string();
    assert!(refused.contains("tool_input_invalid"), "what was not read is not made: {refused}");
    let is_told = |line: &str| line.contains("ERROR") && line.contains(&run.run_id);
    assert!(measured.bridge.log().lines().any(is_told), "it is told");
    measured.is_well("an event of 40 MiB").await;
    let body = format!(r#"{{"runId":"run_1","x":"{giant}"}}"#);
    mantyx.canned("POST", &format!("{API}/agent-runs"), &["HTTP/1.1 202 Accepted"], &body);
    let answer = measured.bridge.api("POST", "/v1/runs", Some(r#"{"prompt":"x"}"#)).await;
    assert!(answer.status >= 400 && answer.body.len() <= 8_000, "{}", answer.status);
    measured.is_well("an answer of 40 MiB").await;
}

/// A20: from an app, a body without an end.
#[tokio::test]
async fn no_body_of_an_app_takes_more_than_its_room() {
    let mut measured = Measured::start("upstream: {sandbox: true}\n").await;
    for target in ["/v1/tool-calls", "/v1/specs/inject"] {
        let mut connection = Connection::open(measured.bridge.addr()).await;
        let head = format!(
            "POST {target} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
            measured.bridge.addr(),
            measured.bridge.token()
        );
        connection.write(head.as_bytes()).await;
        let chunk = [b"10000\r\n".as_slice(), &vec![b' '; 1 << 16], b"\r\n"].concat();
        let sent = connection.flood(&chunk, 2 * (SENT as usize) / chunk.len()).await;
        assert!(sent.is_err(), "{target} should be refused before it has ended");
    }
    // A spec carries attachments: its limit is 64 MiB. As the length is not known, the allocator
    // copies the body when it grows.
    measured.before += 2 * (64 << 20);
    measured.is_well("bodies").await;
}
