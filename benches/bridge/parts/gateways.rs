//! A call through what else stands before an MCP server for its apps, beside the bridge: the same
//! server on stdio behind each, and the same plain client in front.
//!
//! No other gateway answers the events of a run; so the bridge is asked by its own API, which runs a
//! call as a run's would be. Must not: leave out what a gateway needs by default.

use std::{net::SocketAddr, time::Duration};

use serde_json::{Map, Value, json};
use tokio::{
    net::TcpStream,
    process::{Child, Command},
    task::JoinSet,
    time::sleep,
};

use super::Setting;
use crate::{
    clock::{self, SECOND},
    daemon::Daemon,
    direct::{TEXT, Tool, own_time},
    process::PATIENCE,
    python::{self, Packages},
    report::{Findings, Table},
    run::Outcome,
    stats::{self, Samples},
    wire::Client,
    world::World,
};

/// Calls at a time, each on a connection of its own.
const FLIGHTS: &[usize] = &[1, 8, 64];
const MCP_PROXY: Packages = Packages { name: "mcp-proxy", packages: &["mcp-proxy==0.13.0"] };

/// One that is asked.
struct Gateway {
    name: &'static str,
    client: Box<dyn Fn() -> Client>,
    target: &'static str,
    /// The body of call `number`.
    body: fn(u64) -> Value,
    /// Where in the answer the tool's words are.
    words: &'static str,
}

pub(super) async fn run(setting: &Setting, findings: &mut Findings) -> Outcome<()> {
    let world = World::start().await?;
    let dir = setting.dir.join("gateways");
    let program = &setting.arguments.daemon;
    let daemon = Daemon::start(program, dir, world.mantyx, &world.fast_tools()?).await?;
    let (addr, token) = (daemon.addr(), daemon.token().to_owned());
    let mut gateways = vec![Gateway {
        name: "bridge: POST /v1/tool-calls",
        client: Box::new(move || Client::new(addr).bearer(&token)),
        target: "/v1/tool-calls",
        body: |number| {
            json!({
                "toolUseId": format!("tu_{number}"), "kind": "mcp_local", "mcpServer": "stdio",
                "name": "stdio_echo", "args": arguments(number),
            })
        },
        words: "/result",
    }];
    let proxy = match mcp_proxy(setting).await {
        Ok((child, addr)) => {
            gateways.push(Gateway {
                name: "mcp-proxy 0.13 (PyPI)",
                client: Box::new(move || {
                    Client::new(addr).header("Accept", "application/json, text/event-stream")
                }),
                target: "/mcp",
                body: |number| {
                    json!({
                        "jsonrpc": "2.0", "id": number, "method": "tools/call",
                        "params": { "name": "echo", "arguments": arguments(number) },
                    })
                },
                words: "/result/content/0/text",
            });
            Some(child)
        }
        Err(error) => {
            findings.note(format!("mcp-proxy of PyPI cannot be had, and is left out: {error}"));
            None
        }
    };
    let direct = Tool::start("stdio", &world).await?;
    for flight in setting.size(FLIGHTS, &[1, 2]) {
        compare(setting, findings, &gateways, &direct, *flight).await?;
    }
    direct.end().await?;
    drop(proxy);
    daemon.stop().await
}

async fn compare(
    setting: &Setting,
    findings: &mut Findings,
    gateways: &[Gateway],
    direct: &Tool,
    flight: usize,
) -> Outcome<()> {
    let span = setting.size(800, 100) * (SECOND / 1_000);
    let mut all: Vec<Samples> = (0..=gateways.len()).map(|_| Samples::default()).collect();
    for _ in 0..setting.size(3, 1) {
        for (gateway, samples) in gateways.iter().zip(&mut all) {
            samples.round(gateway.load(flight, span).await?);
        }
        if let Some(samples) = all.last_mut() {
            samples.round(direct.load(flight, span / 2).await?);
        }
    }
    let title = format!("MCP over stdio: {flight} in flight");
    let head: Vec<&str> = ["the whole way, less the tool"]
        .into_iter()
        .chain(stats::COLUMNS)
        .chain(["to bridge"])
        .collect();
    let mut table = Table::new(&title, &head);
    let bridge = all.first().and_then(Samples::quantiles).map_or(0, |found| found.p50);
    let mut json = Map::new();
    let names = gateways.iter().map(|gateway| gateway.name).chain(["called directly, by rmcp"]);
    for (name, samples) in names.zip(&all) {
        let Some(found) = samples.quantiles() else { continue };
        let ratio = stats::ratio(found.p50, bridge);
        table.row([name.to_owned()].into_iter().chain(found.cells()).chain([ratio]));
        json.insert(name.to_owned(), found.json());
    }
    findings.tables.push(table);
    findings.json.insert(format!("{flight}-in-flight"), json.into());
    Ok(())
}

impl Gateway {
    /// Calls the tool for `span` nanoseconds, on so many connections at once; gives for each call the
    /// time that was not the tool's own.
    async fn load(&self, flight: usize, span: u64) -> Outcome<Vec<u64>> {
        let end = clock::now() + span;
        let mut callers = JoinSet::new();
        for first in 0..flight as u64 {
            let mut client = (self.client)();
            let (target, body, words) = (self.target, self.body, self.words);
            callers.spawn(async move {
                let (mut took, mut number) = (Vec::new(), first);
                while clock::now() < end {
                    let answer = client.post(target, body(number).to_string().as_bytes()).await?;
                    let whole = answer.done - answer.sent;
                    let answer = answer.json()?;
                    let text = answer.pointer(words).and_then(Value::as_str).unwrap_or_default();
                    took.push(whole.saturating_sub(own_time(text, number)?));
                    number += flight as u64;
                }
                Outcome::Ok(took)
            });
        }
        let mut all = Vec::new();
        while let Some(took) = callers.join_next().await {
            all.extend(took.map_err(|error| error.to_string())??);
        }
        Ok(all)
    }
}

fn arguments(number: u64) -> Value {
    json!({ "id": number, "text": TEXT })
}

/// Starts mcp-proxy before the server on stdio. Without `--stateless` it wants a session.
async fn mcp_proxy(setting: &Setting) -> Outcome<(Child, SocketAddr)> {
    let python = python::prepare(&setting.dir, MCP_PROXY).await?;
    let addr = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let mut command = Command::new(python);
    command.args(["-m", "mcp_proxy", "--stateless", "--log-level", "WARNING"]);
    command.args(["--port", &addr.port().to_string(), "--"]);
    command.arg(std::env::current_exe()?).args(["--role", "stdio-tool"]);
    let mut child = command.kill_on_drop(true).spawn()?;
    let end = clock::now() + PATIENCE.as_nanos() as u64;
    while TcpStream::connect(addr).await.is_err() {
        if child.try_wait()?.is_some() || clock::now() > end {
            return Err("it does not start".into());
        }
        sleep(Duration::from_millis(5)).await;
    }
    Ok((child, addr))
}
