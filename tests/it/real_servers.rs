//! More than thirty servers that people really use, from npm and PyPI, in one bridge and with cold
//! caches. None of them needs an account; their own statistics are switched off.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::Path,
    time::{Duration, SystemTime},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{process::Command, time::Instant};

use crate::{
    bridge::Bridge,
    harness::new_dir,
    peers::{fetch, repository},
    process, wait,
};

/// The installation of all servers takes minutes on two cores.
const ALL_READY: Duration = Duration::from_secs(30 * 60);
const ONE_READY: Duration = Duration::from_secs(5 * 60);

/// Variables without which npm and uv may not reach their registries.
const NETWORK: [&str; 8] = [
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
];

/// In `args`, `DATA` stands for a directory of the test.
struct Server {
    name: &'static str,
    args: &'static [&'static str],
}

const fn server(name: &'static str, args: &'static [&'static str]) -> Server {
    Server { name, args }
}

/// Started by `npx -y`.
const NPM: &[Server] = &[
    server("fs", &["@modelcontextprotocol/server-filesystem@2026.8.31", "DATA"]),
    server("memory", &["@modelcontextprotocol/server-memory@2026.8.31"]),
    server("thinking", &["@modelcontextprotocol/server-sequential-thinking@2026.8.31"]),
    server("everything", &["@modelcontextprotocol/server-everything@2026.8.31"]),
    server("pdf", &["@modelcontextprotocol/server-pdf@2.0.4", "--stdio"]),
    server("map", &["@modelcontextprotocol/server-map@2.0.3", "--stdio"]),
    server("puppeteer", &["@modelcontextprotocol/server-puppeteer@2025.5.12"]),
    server("playwright", &["@playwright/mcp@0.0.83"]),
    server("devtools", &["chrome-devtools-mcp@1.11.0", "--no-usage-statistics"]),
    server("context7", &["@upstash/context7-mcp@4.1.1"]),
    server("desktop", &["@wonderwhy-er/desktop-commander@0.2.52"]),
    server("eslint", &["@eslint/mcp@0.3.13"]),
    server("chart", &["@antv/mcp-server-chart@0.9.10"]),
    server("kubernetes", &["mcp-server-kubernetes@4.1.7"]),
    server("mongodb", &["mongodb-mcp-server@3.0.4"]),
    server("knip", &["@knip/mcp@0.0.36"]),
    server("tasks", &["@kazuph/mcp-taskmanager@1.1.1"]),
    server("graph", &["@itseasy21/mcp-knowledge-graph@1.0.7"]),
    server("coderunner", &["mcp-server-code-runner@0.1.8"]),
    server("commands", &["@agent-infra/mcp-server-commands@1.2.18"]),
    server("npmgit", &["@cyanheads/git-mcp-server@2.15.3"]),
];

const POWERPOINT: &str = "office-powerpoint-mcp-server==2.0.7";

/// Started by `uvx`.
const PYPI: &[Server] = &[
    server("time", &["mcp-server-time==2026.10.19", "--local-timezone", "UTC"]),
    server("git", &["mcp-server-git==2026.10.19"]),
    server("fetch", &["mcp-server-fetch==2026.10.24"]),
    // This one and `powerpoint` were written for the first generation of the SDK, without saying
    // so.
    server(
        "sqlite",
        &["--with", "mcp<2", "mcp-server-sqlite==2025.4.25", "--db-path", "DATA/sqlite.db"],
    ),
    server("duckdb", &["mcp-server-motherduck==1.1.0", "--db-path", ":memory:", "--read-write"]),
    server("markitdown", &["markitdown-mcp==0.0.1a8"]),
    server("arxiv", &["arxiv-mcp-server==0.8.2", "--storage-path", "DATA/arxiv"]),
    server("excel", &["excel-mcp-server==2.2.2", "stdio"]),
    server("word", &["--from", "office-word-mcp-server==1.1.11", "word_mcp_server"]),
    server("powerpoint", &["--with", "mcp<2", "--from", POWERPOINT, "ppt_mcp_server"]),
    server("wikipedia", &["wikipedia-mcp==2.0.1"]),
    server("calculator", &["mcp-server-calculator==0.2.1"]),
    server("ddg", &["duckduckgo-mcp-server==0.7.0"]),
    server("shell", &["mcp-shell-server==1.1.14"]),
];

/// The server that is killed, and the one that a reload restarts.
const KILLED: &str = "calculator";
const RELOADED: &str = "time";

/// The directories and the environment that the servers share.
struct Fleet {
    dir: TempDir,
}

impl Fleet {
    fn new() -> Self {
        let dir = new_dir();
        for part in ["data", "home/.claude-server-commander"] {
            fs::create_dir_all(dir.path().join(part)).expect("a new directory is empty");
        }
        // The one server whose statistics no variable switches off.
        let settings = dir.path().join("home/.claude-server-commander/config.json");
        fs::write(settings, r#"{"telemetryEnabled": false}"#).expect("a new directory");
        Self { dir }
    }

    fn path(&self, part: &str) -> String {
        self.dir.path().join(part).display().to_string()
    }

    /// What `programs.env` gives to all of them: cold caches, and no word to their makers.
    fn env(&self) -> BTreeMap<&'static str, String> {
        let off = |text: &str| text.to_owned();
        BTreeMap::from([
            ("HOME", self.path("home")),
            ("npm_config_cache", self.path("npm")),
            ("npm_config_update_notifier", off("false")),
            ("UV_CACHE_DIR", self.path("uv")),
            ("UV_TOOL_DIR", self.path("uv-tools")),
            ("UV_PYTHON_DOWNLOADS", off("never")),
            ("PUPPETEER_SKIP_DOWNLOAD", off("1")),
            ("MDB_MCP_TELEMETRY", off("disabled")),
            ("DO_NOT_TRACK", off("1")),
            ("ALLOW_COMMANDS", off("echo")),
            ("MEMORY_FILE_PATH", self.path("data/memory.jsonl")),
        ])
    }

    /// The command line of each server, by its name.
    fn commands(&self) -> BTreeMap<&'static str, Vec<String>> {
        let data = self.path("data");
        let uvx = fetch::uvx().display().to_string();
        let mut commands = BTreeMap::new();
        for (launcher, servers) in [(vec!["npx", "-y"], NPM), (vec![&*uvx], PYPI)] {
            for server in servers {
                let words = launcher.iter().chain(server.args);
                let command = words.map(|word| word.replace("DATA", &data)).collect();
                commands.insert(server.name, command);
            }
        }
        commands
    }

    fn config(&self) -> String {
        let env = json!(self.env());
        let mut text = format!("upstream: {{sandbox: true}}\nprograms: {{env: {env}}}\nmcp:\n");
        for (name, command) in self.commands() {
            let (program, args) = command.split_first().expect("a command");
            let args = json!(args);
            text +=
                &format!("  {name}: {{command: {program}, args: {args}, env: {{OF: {name}}}}}\n");
        }
        text
    }

    /// What tests/peers/real_servers.py reads.
    fn order(&self) -> Value {
        let mut env = json!(self.env());
        for (name, value) in network() {
            env[name] = value.into();
        }
        env["PATH"] = env::var("PATH").expect("a PATH").into();
        let mut servers = json!({});
        for (name, command) in self.commands() {
            let (program, args) = command.split_first().expect("a command");
            servers[name] = json!({"command": program, "args": args, "env": env});
        }
        let calls = json!({
            "fs": {"tool": "list_allowed_directories", "args": {}},
            "everything": {"tool": "echo", "args": {"message": "hi"}},
            "memory": {"tool": "read_graph", "args": {}},
            "calculator": {"tool": "calculate", "args": {"expression": "6*7"}},
            "sqlite": {"tool": "list_tables", "args": {}},
            "time": {"tool": "convert_time", "args": {
                "source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}},
        });
        json!({ "servers": servers, "calls": calls })
    }
}

/// The variables of [`NETWORK`] that this process has.
fn network() -> Vec<(&'static str, String)> {
    NETWORK.into_iter().filter_map(|name| Some((name, env::var(name).ok()?))).collect()
}

/// What the log tells of one backend.
#[derive(Debug, Default)]
struct History {
    started: Vec<(SystemTime, i32)>,
    ended: usize,
    ready: Option<SystemTime>,
}

impl History {
    /// How long the first start took.
    fn start_time(&self) -> Duration {
        let (begun, _pid) = self.started[0];
        let ready = self.ready.expect("it was ready");
        ready.duration_since(begun).expect("it was started before")
    }
}

fn histories(bridge: &Bridge) -> BTreeMap<String, History> {
    let mut histories: BTreeMap<String, History> = BTreeMap::new();
    for line in bridge.log().lines() {
        let Ok(event) = serde_json::from_str::<Value>(line) else { continue };
        let Some(backend) = event["backend"].as_str() else { continue };
        let history = histories.entry(backend.to_owned()).or_default();
        let timestamp = event["timestamp"].as_str().expect("a time");
        let at = humantime::parse_rfc3339(timestamp).expect("a time");
        match event["message"].as_str().unwrap_or_default() {
            "started the server" => {
                let pid = event["pid"].as_i64().expect("a process id");
                history.started.push((at, i32::try_from(pid).expect("a process id")));
            }
            "ready" => history.ready = history.ready.or(Some(at)),
            text if text.starts_with("the server ended") => history.ended += 1,
            _ => {}
        }
    }
    histories
}

async fn wait_all_ready(bridge: &Bridge) {
    wait::until("all servers should be ready", ALL_READY, async || {
        let status = bridge.status().await;
        let backends = status["backends"].as_array().expect("backends").clone();
        backends.iter().all(|backend| backend["state"] == "ready").then_some(())
    })
    .await;
}

/// Waits until the server `name` was started a second time and is ready.
async fn wait_started_again(bridge: &Bridge, name: &str) {
    wait::until(&format!("{name} should start again"), ONE_READY, async || {
        let is_ready = bridge.backend(name).await["state"] == "ready";
        let history = &histories(bridge)[name];
        (is_ready && history.started.len() == 2 && history.ended == 1).then_some(())
    })
    .await;
}

/// Fails unless each server was started once, and `twice` a second time; none of the others has
/// ended.
fn check_starts(bridge: &Bridge, twice: &[&str]) {
    for (name, history) in histories(bridge) {
        let again = usize::from(twice.contains(&&*name));
        assert_eq!((history.started.len(), history.ended), (1 + again, again), "{name}");
    }
}

fn print_times(bridge: &Bridge, elapsed: Duration) {
    let mut times = Vec::new();
    for (name, history) in histories(bridge) {
        times.push((history.start_time(), name));
    }
    times.sort();
    let sum: Duration = times.iter().map(|(time, _name)| *time).sum();
    for (time, name) in &times {
        println!("  {:6.1} s {name}", time.as_secs_f64());
    }
    println!(
        "{} servers were ready after {:.0} s; the sum of their starts, divided by two, is {:.0} s",
        times.len(),
        elapsed.as_secs_f64(),
        sum.as_secs_f64() / 2.0
    );
}

/// Fails where the bridge shows other tools or another result than the server itself.
async fn check_definitions(bridge: &Bridge, fleet: &Fleet) {
    let order = fleet.path("order.json");
    fs::write(&order, fleet.order().to_string()).expect("a new file");
    let mut client = Command::new(fetch::python_mcp1());
    client.arg(repository("tests/peers/real_servers.py"));
    client.args([&format!("{}/mcp", bridge.url()), bridge.token(), &order]);
    client.current_dir(fleet.path("data")).kill_on_drop(true);
    let output = client.output().await.expect("python3 runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let seen: BTreeMap<String, [Value; 2]> =
        serde_json::from_slice(&output.stdout).expect("the client prints JSON");
    assert_eq!(seen.len(), NPM.len() + PYPI.len());
    for (name, [bridged, direct]) in &seen {
        assert!(
            direct["tools"].as_array().is_some_and(|tools| !tools.is_empty()),
            "{name}: {direct}"
        );
        assert_eq!(bridged, direct, "{name}");
    }
}

/// The marks of all programs that the bridge has started (docs/programs.md).
fn marks(bridge: &Bridge) -> BTreeSet<String> {
    let mut marks = BTreeSet::new();
    for pid in bridge.children() {
        let path = format!("/proc/{}/environ", pid.as_raw_nonzero());
        let environment = fs::read(Path::new(&path)).unwrap_or_default();
        let variables = environment.split(|byte| *byte == 0).map(String::from_utf8_lossy);
        let mark = variables.filter(|variable| variable.starts_with("MANTYX_BRIDGE_PROGRAM="));
        marks.extend(mark.map(|mark| mark.into_owned()));
    }
    marks
}

#[tokio::test]
#[ignore = "installs a gigabyte of servers, with cold caches"]
async fn more_than_thirty_real_servers_are_ready_by_themselves() {
    let fleet = Fleet::new();
    let config = fleet.config();
    let network = network();
    let mut env: Vec<_> = network.iter().map(|(name, value)| (*name, &**value)).collect();
    // By default, the log does not tell of a start that follows a failure.
    env.push(("RUST_LOG", "info,mantyx_bridge::backend::mcp::child=debug"));
    let begun = Instant::now();
    let mut bridge = Bridge::start_with(&config, &env).await;
    wait_all_ready(&bridge).await;
    print_times(&bridge, begun.elapsed());
    check_starts(&bridge, &[]);
    check_definitions(&bridge, &fleet).await;
    check_starts(&bridge, &[]);

    let (_at, pid) = histories(&bridge)[KILLED].started[0];
    kill_process(Pid::from_raw(pid).expect("a process id"), Signal::KILL).expect("it runs");
    wait_started_again(&bridge, KILLED).await;
    bridge.change_config("OF: time", "OF: clock");
    bridge.process().signal(Signal::HUP);
    wait_started_again(&bridge, RELOADED).await;
    wait_all_ready(&bridge).await;
    check_starts(&bridge, &[KILLED, RELOADED]);

    let marks = marks(&bridge);
    assert!(marks.len() >= NPM.len() + PYPI.len(), "{marks:?}");
    bridge.stop().await;
    for mark in marks {
        assert_eq!(process::marked(&mark, None), [], "{mark}");
    }
}
