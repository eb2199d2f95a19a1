//! The peers of the tests: real MCP servers, A2A agents and the official MANTYX SDK, fetched once
//! with the ordinary clients of their registries, and started on demand.
//!
//! They live in `target/test-peers`, each part with a stamp of what is in it, so that a part is
//! fetched anew when its versions change and only then. Must not: name a registry (the clients' own
//! configuration decides), or fall back to a fake when a real peer is missing.

pub(crate) mod debian;
pub(crate) mod fetch;

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
    time::Duration,
};

use rustix::process::Pid;
use tempfile::TempDir;

use crate::{ports, process::Group, wait};

/// Interpreters and servers on two busy cores take their time to start.
const START: Duration = Duration::from_secs(60);

/// A peer that listens on a port of its own; it and its children die with the guard.
#[derive(Debug)]
pub(crate) struct Peer {
    url: String,
    port: u16,
    start: Start,
    process: Option<Group>,
    // The last field: the process writes its log there.
    dir: TempDir,
}

#[derive(Debug)]
struct Start {
    program: PathBuf,
    args: Vec<String>,
    /// The port, `PORT` in the environment too, is added to these.
    port_flag: Option<&'static str>,
    /// What the peer prints once it listens; the rest of that line does not matter.
    ready: &'static str,
}

impl Peer {
    async fn start(start: Start) -> Self {
        let port = ports::free().port();
        let dir = TempDir::new().expect("the temporary directory is writable");
        let mut peer = Self { url: String::new(), port, start, process: None, dir };
        peer.restart().await;
        peer
    }

    /// Starts the peer again on the port that it had.
    pub(crate) async fn restart(&mut self) {
        assert!(self.process.is_none(), "kill the peer before it is started again");
        let log = self.dir.path().join("log");
        std::fs::remove_file(&log).ok();
        let mut command = Command::new(&self.start.program);
        command.args(&self.start.args).env("PYTHONUNBUFFERED", "1");
        command.env("PORT", self.port.to_string());
        if let Some(flag) = self.start.port_flag {
            command.arg(flag).arg(self.port.to_string());
        }
        let process = self.process.insert(Group::spawn(&mut command, &log));
        let ready = self.start.ready;
        let line = wait::until("a peer should listen", START, async || {
            let text = process.log();
            assert!(process.exited().is_none(), "a peer ended at its start: {text}");
            let mut lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
            lines.find(|line| line.contains(ready)).map(|line| line.trim().to_owned())
        })
        .await;
        if let Some(url) = line.strip_prefix("READY ") {
            self.port = url.rsplit(':').next().and_then(|port| port.parse().ok()).unwrap_or(0);
        }
        self.url = format!("http://127.0.0.1:{}", self.port);
    }

    /// Kills the peer, as a crash of its host does.
    pub(crate) fn kill9(&mut self) {
        drop(self.process.take());
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// What the peer has printed since its start.
    pub(crate) fn log(&self) -> String {
        self.process.as_ref().map(Group::log).unwrap_or_default()
    }
}

/// What a bridge.yaml says of a stdio server.
fn stdio(program: &Path, args: &[&str]) -> String {
    let program = serde_json::to_string(program).expect("a path of the tests is UTF-8");
    format!("{{command: {program}, args: {}}}", serde_json::json!(args))
}

/// A flow map with further keys.
pub(crate) fn with(entry: &str, keys: &str) -> String {
    let open = entry.strip_suffix('}').expect("an entry is a flow map");
    format!("{open}, {keys}}}")
}

/// A file of the repository.
pub(crate) fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// `mcp-server-time` over stdio: the Python SDK, and the revision without a handshake.
pub(crate) fn mcp_time() -> String {
    stdio(&fetch::python(), &["-m", "mcp_server_time", "--local-timezone", "UTC"])
}

/// `server-everything` over stdio: the TypeScript SDK.
pub(crate) fn everything_stdio() -> String {
    let script = fetch::everything();
    let script = script.to_str().expect("a path of the tests is UTF-8");
    stdio(&fetch::node(), &[script, "stdio"])
}

/// `server-everything` over Streamable HTTP; `url()` + `/mcp` is its endpoint.
pub(crate) async fn everything_http() -> Peer {
    let script = fetch::everything().display().to_string();
    let start = Start {
        program: fetch::node(),
        args: vec![script, "streamableHttp".to_owned()],
        port_flag: None,
        ready: "listening on port",
    };
    Peer::start(start).await
}

/// `server-everything` over the older HTTP+SSE; `url()` + `/sse` is its endpoint.
pub(crate) async fn everything_sse() -> Peer {
    let script = fetch::everything().display().to_string();
    let start = Start {
        program: fetch::node(),
        args: vec![script, "sse".to_owned()],
        port_flag: None,
        ready: "Server is running on port",
    };
    Peer::start(start).await
}

/// An MCP server behind a login, and the issuer of its tokens, which live for so many seconds.
pub(crate) async fn issuer(seconds: u64) -> Peer {
    let args = [repository("tests/peers/issuer.mjs"), fetch::oidc_provider()];
    let args = args.iter().map(|path| path.display().to_string());
    let start = Start {
        program: fetch::mcp_node().node,
        args: args.chain([seconds.to_string()]).collect(),
        port_flag: None,
        ready: "listening",
    };
    Peer::start(start).await
}

/// A server behind a login that others have written.
#[derive(Debug)]
pub(crate) struct Login {
    _peer: Peer,
    /// Its endpoint.
    pub(crate) url: String,
    pub(crate) issuer: String,
}

/// A server of fastmcp, which is its own issuer.
pub(crate) async fn fastmcp_login() -> Login {
    let start = Start {
        program: fetch::python_fastmcp(),
        args: vec![repository("tests/peers/fastmcp_login.py").display().to_string()],
        port_flag: None,
        ready: "Uvicorn running on",
    };
    let peer = Peer::start(start).await;
    let issuer = peer.url().to_owned();
    Login { url: format!("{issuer}/mcp"), issuer, _peer: peer }
}

/// The example of MCP's TypeScript SDK, whose issuer has a port to itself.
pub(crate) async fn sdk_login() -> Login {
    let fetch::McpNode { node, modules } = fetch::mcp_node();
    let issuer = ports::free().port();
    let example = "@modelcontextprotocol/sdk/dist/esm/examples/server/simpleStreamableHttp.js";
    let args = [repository("tests/peers/sdk_login.mjs"), modules.join(example)];
    let args = args.iter().map(|path| path.display().to_string());
    let start = Start {
        program: node,
        args: args.chain([issuer.to_string()]).collect(),
        port_flag: None,
        ready: "MCP Streamable HTTP Server listening",
    };
    let peer = Peer::start(start).await;
    // It calls itself so.
    let url = format!("http://localhost:{}/mcp", peer.port);
    Login { url, issuer: format!("http://localhost:{issuer}/"), _peer: peer }
}

/// Stand-ins of the APIs of models.
pub(crate) async fn model_apis() -> Peer {
    let script = repository("tests/peers/model_apis.py").display().to_string();
    let start = Start {
        program: fetch::python_models(),
        args: vec![script],
        port_flag: None,
        ready: "READY ",
    };
    Peer::start(start).await
}

/// Stand-ins of other runtimes.
pub(crate) async fn runtimes() -> Peer {
    let script = repository("tests/peers/runtimes.py").display().to_string();
    let start = Start {
        program: fetch::interpreter(),
        args: vec![script],
        port_flag: None,
        ready: "READY ",
    };
    Peer::start(start).await
}

/// A server on the Python SDK that listens on the unix socket `socket`.
pub(crate) async fn mcp_uds(socket: &Path, args: &[&str]) -> Peer {
    let script = repository("tests/peers/mcp_uds.py");
    let paths = [&script, socket].map(|path| path.display().to_string());
    let args = args.iter().map(|arg| (*arg).to_owned());
    let start = Start {
        program: fetch::python(),
        args: paths.into_iter().chain(args).collect(),
        port_flag: None,
        ready: "READY ",
    };
    Peer::start(start).await
}

/// A server on the Python SDK that makes tasks of calls (2026-07-28); `url()` + `/mcp` is its
/// endpoint.
pub(crate) async fn mcp_tasks() -> Peer {
    python_listener(fetch::python(), "mcp_tasks.py", &[]).await
}

/// A server that forgets its sessions, and says so as its path wants it
/// (tests/peers/forgetful_mcp.py).
pub(crate) async fn forgetful() -> Peer {
    python_listener(fetch::interpreter(), "forgetful_mcp.py", &[]).await
}

/// The server that MCP's conformance suite asks for (tests/peers/conformance_mcp.py); `url()` +
/// `/mcp` is its endpoint.
pub(crate) async fn conformance_mcp(args: &[&str]) -> Peer {
    python_listener(fetch::python(), "conformance_mcp.py", args).await
}

/// An A2A agent on the SDK of 1.x, whose card is of the revision `card` (`1.0`, `0.3`, `both`).
pub(crate) async fn a2a_v1(card: &str) -> Peer {
    python_listener(fetch::python(), "a2a_v1_agent.py", &["--card", card]).await
}

/// The same, behind another address that it is reached at, with what else its card has to say.
pub(crate) async fn a2a_behind(public: &str, arguments: &[&str]) -> Peer {
    let arguments = [&["--public", public], arguments].concat();
    python_listener(fetch::python(), "a2a_v1_agent.py", &arguments).await
}

/// An A2A agent on the SDK of 0.3.
pub(crate) async fn a2a_v03() -> Peer {
    python_listener(fetch::python_v03(), "a2a_v03_agent.py", &[]).await
}

/// An agent on the SDK of 0.2, 0.3 or 1 that is called well or wrongly, as `arguments` say
/// (tests/peers/a2a_ready_agent.py).
pub(crate) async fn a2a_ready(sdk: &str, arguments: &[&str]) -> Peer {
    let python = match sdk {
        "0.2" => fetch::python_v02(),
        "0.3" => fetch::python_v03(),
        _ => fetch::python(),
    };
    python_listener(python, "a2a_ready_agent.py", arguments).await
}

/// An agent on the JavaScript SDK of 0.3 or 1 whose card prefers `binding`
/// (tests/peers/a2a_ready_agent.mjs).
pub(crate) async fn a2a_js_ready(sdk: &str, binding: &str) -> Peer {
    let script = repository("tests/peers/a2a_ready_agent.mjs").display().to_string();
    let modules = if sdk == "0.3" { fetch::a2a_node_v03() } else { fetch::a2a_node_v1() };
    let start = Start {
        program: fetch::node(),
        args: vec![script, modules.display().to_string(), binding.to_owned()],
        port_flag: None,
        ready: "READY ",
    };
    Peer::start(start).await
}

/// Cards that the A2A SDKs have signed, of 1.x and of 0.3 (tests/peers/sign_cards.py).
pub(crate) fn signed_cards() -> Vec<serde_json::Value> {
    let sign = |python: PathBuf| {
        let output = Command::new(python).arg(repository("tests/peers/sign_cards.py")).output();
        let output = output.expect("the SDK's interpreter starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        String::from_utf8(output.stdout).expect("JSON is UTF-8")
    };
    let lines = sign(fetch::python()) + &sign(fetch::python_v03());
    lines.lines().map(|line| serde_json::from_str(line).expect("a line is a card")).collect()
}

/// A server over TLS whose certificate nobody knows and that lets nobody in; the scheme of its
/// `url()` is to be replaced.
pub(crate) async fn tls() -> Peer {
    python_listener(fetch::interpreter(), "tls_server.py", &[]).await
}

/// The same certificate before the server at `url`, for clients that show tests/peers/client.pem.
pub(crate) async fn tls_before(url: &str) -> Peer {
    let client = repository("tests/peers/client.pem");
    let client = client.to_str().expect("a path of the tests is UTF-8");
    let before = url.trim_start_matches("http://");
    let args = ["--before", before, "--client-ca", client];
    python_listener(fetch::interpreter(), "tls_server.py", &args).await
}

/// HTTP/2 and HTTP/1.1 over TLS before the server at `url`, with the same certificate, by Node; the
/// scheme of its `url()` is to be replaced.
pub(crate) async fn http2_before(url: &str) -> Peer {
    let script = repository("tests/peers/http2_front.mjs").display().to_string();
    let before = url.trim_start_matches("http://").to_owned();
    let start = Start {
        program: "node".into(),
        args: vec![script, before],
        port_flag: None,
        ready: "READY ",
    };
    Peer::start(start).await
}

/// A collector of OTLP's traces that answers so (tests/peers/otlp_collector.py).
pub(crate) async fn otlp_collector(answers: &str) -> Peer {
    python_listener(fetch::python_otlp(), "otlp_collector.py", &["--answers", answers]).await
}

/// A script of tests/peers that takes a port and tells it.
async fn python_listener(python: PathBuf, script: &str, args: &[&str]) -> Peer {
    let script = repository("tests/peers").join(script).display().to_string();
    let args = args.iter().map(|arg| (*arg).to_owned());
    let start = Start {
        program: python,
        args: [script].into_iter().chain(args).collect(),
        port_flag: Some("--port"),
        ready: "READY ",
    };
    Peer::start(start).await
}

/// A server over the older HTTP+SSE that answers `notifications/initialized` with `status`
/// (tests/peers/sse_mcp.py).
pub(crate) async fn refusing_initialized(status: &str) -> Peer {
    python_listener(fetch::interpreter(), "sse_mcp.py", &["--initialized", status]).await
}

/// The stdio server of the repository that writes down every call (tests/peers/ledger_mcp.py). It
/// needs a Python and nothing else, so most tests use it.
pub(crate) fn ledger(ledger: &Path, args: &[&str]) -> String {
    let script = repository("tests/peers/ledger_mcp.py");
    let paths = [script.to_str(), ledger.to_str()].map(|path| path.expect("a path is UTF-8"));
    stdio(&fetch::interpreter(), &[&paths, args].concat())
}

/// The stdio server that starts when the test lets it (tests/peers/starting_mcp.py).
pub(crate) fn starting(name: &str, directory: &str) -> String {
    let script = repository("tests/peers/starting_mcp.py");
    let script = script.to_str().expect("a path is UTF-8");
    stdio(&fetch::interpreter(), &[script, name, directory])
}

/// The stdio server that asks the user back (tests/peers/asking_mcp.py).
pub(crate) fn asking() -> String {
    asking_into(&[])
}

/// The same, with the file that shows its effects.
pub(crate) fn asking_into(ledger: &[&str]) -> String {
    let script = repository("tests/peers/asking_mcp.py");
    let script = [script.to_str().expect("a path is UTF-8")];
    stdio(&fetch::python(), &[&script, ledger].concat())
}

/// The stdio server that asks whatever it is told to (tests/peers/eliciting_mcp.py).
pub(crate) fn eliciting() -> String {
    let script = repository("tests/peers/eliciting_mcp.py");
    stdio(&fetch::interpreter(), &[script.to_str().expect("a path is UTF-8")])
}

/// The stdio server that says whatever it is told to (tests/peers/saying_mcp.py).
pub(crate) fn saying(text: &str) -> String {
    let script = repository("tests/peers/saying_mcp.py");
    stdio(&fetch::interpreter(), &[script.to_str().expect("a path is UTF-8"), text])
}

/// The stdio server that writes what careless servers write (tests/peers/nasty_mcp.py), of
/// `sessions` or `stateless`.
pub(crate) fn nasty(era: &str) -> String {
    let script = repository("tests/peers/nasty_mcp.py");
    stdio(&fetch::interpreter(), &[script.to_str().expect("a path is UTF-8"), era])
}

/// The stdio server whose tools have effects (tests/peers/effects_mcp.py).
pub(crate) fn effects(ledger: &Path, args: &[&str]) -> String {
    let script = repository("tests/peers/effects_mcp.py");
    let paths = [script.to_str(), ledger.to_str()].map(|path| path.expect("a path is UTF-8"));
    stdio(&fetch::interpreter(), &[&paths, args].concat())
}

/// The stdio server whose catalog is the file `catalog` (tests/peers/changing_mcp.py).
pub(crate) fn changing(catalog: &Path, args: &[&str]) -> String {
    let script = repository("tests/peers/changing_mcp.py");
    let paths = [script.to_str(), catalog.to_str()].map(|path| path.expect("a path is UTF-8"));
    stdio(&fetch::interpreter(), &[&paths, args].concat())
}

/// The stdio server whose instructions are in `file` (tests/peers/instructing_mcp.py).
pub(crate) fn instructing(file: &Path, args: &[&str]) -> String {
    let script = repository("tests/peers/instructing_mcp.py");
    let paths = [script.to_str(), file.to_str()].map(|path| path.expect("a path is UTF-8"));
    stdio(&fetch::interpreter(), &[&paths, args].concat())
}

/// The stdio server that does what no server should (tests/peers/hostile_mcp.py).
pub(crate) fn hostile_mcp(args: &[&str]) -> String {
    let script = repository("tests/peers/hostile_mcp.py");
    let script = script.to_str().expect("a path of the tests is UTF-8");
    stdio(&fetch::interpreter(), &[&[script], args].concat())
}

/// Where the interpreter of the scripts has its library.
pub(crate) fn python_home() -> PathBuf {
    let home = fetch::interpreter().parent().and_then(Path::parent).map(Path::to_owned);
    home.expect("an interpreter is at HOME/bin/python3")
}

/// A library that moves the wall clock of whoever preloads it by `CLOCK_MOVED_BY` seconds.
pub(crate) fn clock() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| library("clock")).clone()
}

/// A library that says what names below `.test` mean, and writes down who is connected to.
pub(crate) fn names() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| library("names")).clone()
}

/// A library that leads connections to the port `WIRE_FROM` to the port `WIRE_TO`.
pub(crate) fn wires() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| library("wires")).clone()
}

/// Builds the library `name` out of tests/peers.
fn library(name: &str) -> PathBuf {
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.so"));
    // Another test process may be about to load it, so it is put in place whole.
    let draft = library.with_extension(std::process::id().to_string());
    let source = repository("tests/peers").join(format!("{name}.c"));
    let args = ["-shared", "-fPIC", "-O1", "-o"];
    let status = Command::new("cc").args(args).arg(&draft).arg(source).status();
    let status = status.expect("a C compiler is there: ring needs one to be built");
    assert!(status.success(), "cc: {status}");
    std::fs::rename(&draft, &library).expect("the directory is Cargo's own for this");
    library
}

/// A run of one of the SDK's scripts in `tests/sdk`.
pub(crate) fn sdk(script: &str) -> tokio::process::Command {
    let mut command = tokio::process::Command::new(fetch::python());
    command.arg(repository("tests/sdk").join(script)).kill_on_drop(true);
    command
}

/// The child of a bridge whose command line holds `part`.
pub(crate) fn child_running(children: &[Pid], part: &str) -> Option<Pid> {
    children.iter().copied().find(|pid| {
        let path = format!("/proc/{}/cmdline", pid.as_raw_nonzero());
        std::fs::read(path).is_ok_and(|line| String::from_utf8_lossy(&line).contains(part))
    })
}
