//! A call through what else stands before MCP servers for its apps, beside the bridge: the same
//! servers behind each, on stdio and over HTTP, and the same plain client in front.
//!
//! No other gateway answers the events of a run; so the bridge is asked by its own API, which runs
//! a call as a run's would be. Must not: leave out what a gateway needs by default; fail because of
//! another gateway than the bridge.

mod contextforge;
pub(super) mod mcp_proxy;

use std::{
    fs::{self, File},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use serde_json::{Map, Value, json};
use tokio::{
    process::{Child, Command},
    task::JoinSet,
    time::timeout,
};

use super::Setting;
use crate::{
    clock::{self, SECOND},
    daemon::Daemon,
    direct::{TEXT, Tool, own_time},
    process::{self, PATIENCE},
    report::{Findings, Table},
    run::Outcome,
    stats::{self, Samples},
    wire::{Client, header},
    world::World,
};

/// Calls at a time, each on a connection of its own.
const FLIGHTS: &[usize] = &[1, 8, 64];
const SHORT_FLIGHTS: &[usize] = &[1, 2];
/// The servers behind: what the tables and the bridge call them.
const SERVERS: [(&str, &str); 2] = [("stdio", "MCP over stdio"), ("http", "MCP over HTTP")];

/// How the names of the bridge's rows begin.
const BRIDGE: &str = "bridge";
/// Where the tool's words are in the answer of an MCP server.
pub(super) const WORDS: &str = "/result/content/0/text";
/// What an MCP client over HTTP takes as an answer.
pub(super) const ACCEPT: &str = "application/json, text/event-stream";

/// One that is asked for the tool of one server.
pub(super) struct Gateway {
    name: &'static str,
    /// Which of [`SERVERS`] is behind it.
    server: &'static str,
    /// As many as are ever in flight. None, once it has failed.
    pub(super) clients: Vec<Client>,
    question: Question,
    /// Where the numbers of its calls come from.
    numbers: Arc<AtomicU64>,
    /// Its own process, if that is one.
    process: Option<u32>,
}

/// How a gateway is asked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Question {
    pub(super) target: &'static str,
    /// What the tool is called there.
    pub(super) tool: &'static str,
    /// The body of call `number` of the tool.
    pub(super) body: fn(&'static str, u64) -> Value,
    /// Where in the answer the tool's words are.
    pub(super) words: &'static str,
}

/// What the rounds of one of the compared ones have found.
#[derive(Default)]
struct Rounds {
    samples: Samples,
    /// How long they have lasted.
    nanos: u64,
    /// The processor time of the process, in seconds.
    processor: f64,
}

impl Rounds {
    fn add(&mut self, took: Vec<u64>, begun: u64, processor: f64) {
        if !took.is_empty() {
            self.samples.round(took);
            self.nanos += clock::now() - begun;
            self.processor += processor;
        }
    }
}

pub(super) async fn run(setting: &Setting, findings: &mut Findings) -> Outcome<()> {
    let world = World::start().await?;
    let (dir, program) = (setting.dir.join("gateways"), &setting.arguments.daemon);
    let daemon = Daemon::start(program, dir, world.mantyx, &world.fast_tools()?).await?;
    let gateways = bridge(&daemon, most(setting)).await?;
    beside_others(setting, findings, &world, gateways).await?;
    daemon.stop().await
}

/// The most calls that are in flight at a time.
pub(super) fn most(setting: &Setting) -> usize {
    setting.size(FLIGHTS, SHORT_FLIGHTS).iter().copied().max().unwrap_or(1)
}

/// Compares `gateways`, which are those of the bridge, with all others.
pub(super) async fn beside_others(
    setting: &Setting,
    findings: &mut Findings,
    world: &World,
    // The bridge is first, in all tables.
    mut gateways: Vec<Gateway>,
) -> Outcome<()> {
    let most = most(setting);
    let mut children = Vec::new();
    for (name, outcome) in [
        (mcp_proxy::PYTHON, mcp_proxy::of_python(setting, most).await),
        (mcp_proxy::CARGO, mcp_proxy::of_cargo(setting, world, most).await),
        (contextforge::NAME, contextforge::start(setting, world, most).await),
    ] {
        match outcome {
            Ok((child, more)) => {
                children.push(child);
                gateways.extend(more);
            }
            Err(error) => findings.note(format!("{name} is left out: {error}")),
        }
    }
    for (server, title) in SERVERS {
        let mut compared: Vec<&mut Gateway> =
            gateways.iter_mut().filter(|gateway| gateway.server == server).collect();
        let direct = Tool::start(server, world).await?;
        for flight in setting.size(FLIGHTS, SHORT_FLIGHTS) {
            compare(setting, findings, (server, title), &mut compared, &direct, *flight).await?;
        }
        direct.end().await?;
    }
    drop(children);
    Ok(())
}

async fn compare(
    setting: &Setting,
    findings: &mut Findings,
    (server, title): (&str, &str),
    gateways: &mut [&mut Gateway],
    direct: &Tool,
    flight: usize,
) -> Outcome<()> {
    let span = setting.size(800, 100) * (SECOND / 1_000);
    let mut all: Vec<Rounds> = (0..=gateways.len()).map(|_| Rounds::default()).collect();
    for _ in 0..setting.size(3, 1) {
        for (gateway, rounds) in gateways.iter_mut().zip(&mut all) {
            let (begun, processor) = (clock::now(), gateway.processor());
            match gateway.round(flight, span).await {
                Ok(took) => rounds.add(took, begun, gateway.processor() - processor),
                Err(error) if gateway.name.starts_with(BRIDGE) => return Err(error),
                Err(error) => {
                    let name = gateway.name;
                    findings.note(format!("{title}, {flight} in flight: {name} fails: {error}"));
                    *rounds = Rounds::default();
                }
            }
        }
        if let Some(rounds) = all.last_mut() {
            let begun = clock::now();
            rounds.add(direct.load(flight, span / 2).await?, begun, 0.0);
        }
    }
    let title = format!("{title}: {flight} in flight");
    let head: Vec<&str> = ["the whole way, less the tool"]
        .into_iter()
        .chain(stats::COLUMNS)
        .chain(["to bridge", "calls a second", "processor, s for 1,000 calls"])
        .collect();
    let mut table = Table::new(&title, &head);
    let bridge = all.first().and_then(|rounds| rounds.samples.quantiles());
    let bridge = bridge.map_or(0, |found| found.p50);
    let mut json = Map::new();
    let names = gateways.iter().map(|gateway| gateway.name).chain(["called directly, by rmcp"]);
    for (name, rounds) in names.zip(&all) {
        let Some(found) = rounds.samples.quantiles() else { continue };
        let rate = found.count as f64 / clock::seconds(rounds.nanos);
        let processor = rounds.processor / (found.count as f64 / 1e3);
        let ratio = stats::ratio(found.p50, bridge);
        let more = [ratio, format!("{rate:.0}"), format!("{processor:.3}")];
        table.row([name.to_owned()].into_iter().chain(found.cells()).chain(more));
        let one = json!({
            "added": found.json(), "callsPerSecond": rate, "processorSecondsPer1000Calls": processor,
        });
        json.insert(name.to_owned(), one);
    }
    findings.tables.push(table);
    findings.json.insert(format!("{server}-{flight}-in-flight"), json.into());
    Ok(())
}

impl Gateway {
    /// Connects to it `most` times. The first call of each connection is made here, and does not
    /// count: with it, some gateways get a session with the server behind.
    pub(super) async fn open(
        name: &'static str,
        server: &'static str,
        question: Question,
        most: usize,
        connect: impl AsyncFn() -> Outcome<Client>,
    ) -> Outcome<Self> {
        let numbers = Arc::new(AtomicU64::new(0));
        let (clients, process) = (Vec::new(), None);
        let mut gateway =
            Self { name, server, clients, question, numbers: Arc::clone(&numbers), process };
        let opened = timeout(PATIENCE, async {
            for _ in 0..most {
                let mut client = connect().await?;
                question.ask(&mut client, &numbers).await?;
                gateway.clients.push(client);
            }
            Outcome::Ok(())
        });
        opened.await.map_err(|late| format!("its first calls get no answer: {late}"))??;
        Ok(gateway)
    }

    /// One that speaks MCP over Streamable HTTP, in sessions: one for each connection. `client` is
    /// what its requests have in common.
    pub(super) async fn of_mcp(
        name: &'static str,
        server: &'static str,
        (target, tool): (&'static str, &'static str),
        most: usize,
        client: impl Fn() -> Client,
    ) -> Outcome<Self> {
        let body = |tool, number| {
            json!({
                "jsonrpc": "2.0", "id": number, "method": "tools/call",
                "params": { "name": tool, "arguments": arguments(number) },
            })
        };
        let question = Question { target, tool, body, words: WORDS };
        Self::open(name, server, question, most, async || session(client(), target).await).await
    }

    /// Has the processor time of `process` counted as its own.
    pub(super) fn of_process(mut self, process: Option<u32>) -> Self {
        self.process = process;
        self
    }

    /// The processor time that it has used, in seconds. It may have ended.
    fn processor(&self) -> f64 {
        self.process.and_then(|id| process::processor_seconds(id).ok()).unwrap_or(0.0)
    }

    /// Calls the tool for `span` nanoseconds, on so many connections at once; gives for each call
    /// the time that was not the tool's own. Nothing, once it has failed.
    async fn round(&mut self, flight: usize, span: u64) -> Outcome<Vec<u64>> {
        let (end, question) = (clock::now() + span, self.question);
        let mut callers = JoinSet::new();
        for mut client in self.clients.drain(..flight.min(self.clients.len())) {
            let numbers = Arc::clone(&self.numbers);
            callers.spawn(async move {
                let mut took = Vec::new();
                while clock::now() < end {
                    took.push(question.ask(&mut client, &numbers).await?);
                }
                Outcome::Ok((client, took))
            });
        }
        let whole = timeout(PATIENCE, async {
            let mut all = Vec::new();
            while let Some(caller) = callers.join_next().await {
                let (client, took) = caller.map_err(|error| error.to_string())??;
                self.clients.push(client);
                all.extend(took);
            }
            Outcome::Ok(all)
        });
        let outcome = whole.await.map_err(|late| format!("calls get no answer: {late}").into());
        outcome.flatten().inspect_err(|_| self.clients.clear())
    }
}

impl Question {
    /// Makes the next call; gives the time that was not the tool's own.
    async fn ask(self, client: &mut Client, numbers: &AtomicU64) -> Outcome<u64> {
        let number = numbers.fetch_add(1, Ordering::Relaxed);
        let body = (self.body)(self.tool, number).to_string();
        let answer = client.post(self.target, body.as_bytes()).await?;
        let whole = answer.done - answer.sent;
        let answer = answer.json()?;
        let text = answer.pointer(self.words).and_then(Value::as_str);
        let text = text.ok_or_else(|| format!("a call is answered with {answer}"))?;
        Ok(whole.saturating_sub(own_time(text, number)?))
    }
}

pub(super) fn arguments(number: u64) -> Value {
    json!({ "id": number, "text": TEXT })
}

async fn bridge(daemon: &Daemon, most: usize) -> Outcome<Vec<Gateway>> {
    let body = |server, number| {
        json!({
            "toolUseId": format!("tu_{server}_{number}"), "kind": "mcp_local", "mcpServer": server,
            "name": format!("{server}_echo"), "args": arguments(number),
        })
    };
    let mut gateways = Vec::new();
    for (server, _) in SERVERS {
        let question = Question { target: "/v1/tool-calls", tool: server, body, words: "/result" };
        let name = "bridge: POST /v1/tool-calls";
        let connect = async || Ok(daemon.client());
        let gateway = Gateway::open(name, server, question, most, connect).await?;
        gateways.push(gateway.of_process(Some(daemon.id()?)));
    }
    Ok(gateways)
}

/// Opens a session with an MCP server at `target`, of the newest revision that has sessions; gives
/// the client that is in it.
pub(super) async fn session(client: Client, target: &str) -> Outcome<Client> {
    let mut client = client.header("Accept", ACCEPT);
    let hello = json!({
        "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "bench", "version": "1.0.0" },
        },
    });
    let answer = client.post(target, hello.to_string().as_bytes()).await?;
    let session = header(&answer.head, "mcp-session-id").map(str::to_owned);
    let answer = answer.json()?;
    let revision = answer["result"]["protocolVersion"].as_str();
    let revision = revision.ok_or_else(|| format!("`initialize` is answered with {answer}"))?;
    client = client.header("MCP-Protocol-Version", revision);
    if let Some(session) = session {
        client = client.header("Mcp-Session-Id", &session);
    }
    let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    client.post(target, ready.to_string().as_bytes()).await?.good()?;
    Ok(client)
}

/// A new directory for a gateway.
fn place(setting: &Setting, name: &str) -> Outcome<PathBuf> {
    let dir = setting.dir.join(name);
    fs::remove_dir_all(&dir).ok();
    fs::create_dir_all(&dir)?;
    Ok(dir)
}

/// Starts a gateway in `dir`, where its log is, and waits until it listens at `addr`.
async fn listening(mut command: Command, dir: &Path, addr: SocketAddr) -> Outcome<Child> {
    let path = dir.join("log");
    let log = File::create(&path)?;
    command.current_dir(dir).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    let mut child = command.kill_on_drop(true).spawn()?;
    if !process::comes_to_listen(&mut child, addr).await? {
        return Err(format!("it does not start; its log is {}", path.display()).into());
    }
    Ok(child)
}
