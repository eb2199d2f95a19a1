//! The bridge as an MCP server (`/mcp`): a call through it, what a session of a client holds, and
//! how many programs there are for many clients.
//!
//! A call is measured as `gateways` does, beside the same others. Must not: have a client of its
//! own.

use std::time::Duration;

use serde_json::json;
use tokio::{net::TcpStream, time::sleep};

use super::{
    Setting,
    gateways::{self, ACCEPT, Gateway, Question, WORDS, arguments, mcp_proxy},
    memory::{mebibytes, row},
};
use crate::{
    daemon::Daemon,
    process::{Memory, below},
    report::{Findings, Table},
    run::Outcome,
    wire::Client,
    world::World,
};

const PATH: &str = "/mcp";
const PING: &[u8] = br#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#;
/// The servers and the names that the bridge gives their tools.
const TOOLS: [(&str, &str); 2] = [("stdio", "stdio_echo"), ("http", "http_echo")];
/// So many clients use one server on stdio.
const CLIENTS: usize = 10;

pub(super) async fn run(setting: &Setting, findings: &mut Findings) -> Outcome<()> {
    calls(setting, findings).await?;
    sessions(setting, findings).await?;
    clients(setting, findings).await
}

async fn start(setting: &Setting, world: &World) -> Outcome<Daemon> {
    let (dir, program) = (setting.dir.join("mcp"), &setting.arguments.daemon);
    Daemon::start(program, dir, world.mantyx, &world.fast_tools()?).await
}

/// A call by clients of both kinds of revision.
async fn calls(setting: &Setting, findings: &mut Findings) -> Outcome<()> {
    let world = World::start().await?;
    let daemon = start(setting, &world).await?;
    let most = gateways::most(setting);
    let mut ways = Vec::new();
    for (server, tool) in TOOLS {
        ways.push(with_session(&daemon, server, tool, most).await?);
    }
    for (server, tool) in TOOLS {
        ways.push(stateless(&daemon, server, tool, most).await?);
    }
    gateways::beside_others(setting, findings, &world, ways).await?;
    daemon.stop().await
}

async fn with_session(
    daemon: &Daemon,
    server: &'static str,
    tool: &'static str,
    most: usize,
) -> Outcome<Gateway> {
    let name = "bridge: /mcp, 2025-11-25";
    let gateway = Gateway::of_mcp(name, server, (PATH, tool), most, || daemon.client()).await?;
    Ok(gateway.of_process(Some(daemon.id()?)))
}

/// As a client of 2026-07-28: each request says all, in its body and again in its headers.
async fn stateless(
    daemon: &Daemon,
    server: &'static str,
    tool: &'static str,
    most: usize,
) -> Outcome<Gateway> {
    let body = |tool, number| {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        json!({
            "jsonrpc": "2.0", "id": number, "method": "tools/call",
            "params": { "name": tool, "arguments": arguments(number), "_meta": meta },
        })
    };
    let question = Question { target: PATH, tool, body, words: WORDS };
    let connect = async || {
        let client = daemon.client().header("Accept", ACCEPT);
        let client = client.header("MCP-Protocol-Version", "2026-07-28");
        Ok(client.header("Mcp-Method", "tools/call").header("Mcp-Name", tool))
    };
    let name = "bridge: /mcp, 2026-07-28";
    let gateway = Gateway::open(name, server, question, most, connect).await?;
    Ok(gateway.of_process(Some(daemon.id()?)))
}

/// What idle sessions hold: alone, each with a connection, and each with its stream.
async fn sessions(setting: &Setting, findings: &mut Findings) -> Outcome<()> {
    let head = ["", "VmRSS", "Pss", "RssAnon", "highest", "a session"];
    let mut table = Table::new("memory of idle sessions, of 2025-11-25", &head);
    let world = World::start().await?;
    let daemon = start(setting, &world).await?;
    let many = setting.size(1_000, 20);
    // The first ones of all make the program use code and tables that it keeps.
    open_sessions(&daemon, many / 20).await?;
    let none = row(setting, findings, &mut table, &daemon, "no sessions").await?;

    let mut clients = open_sessions(&daemon, many).await?;
    let name = format!("{many} sessions");
    let alone = row(setting, findings, &mut table, &daemon, &name).await?;
    each(findings, &mut table, &name, (none, alone), many);

    for client in &mut clients {
        client.post(PATH, PING).await?.good()?;
    }
    let name = format!("{many} sessions, a connection each");
    let connected = row(setting, findings, &mut table, &daemon, &name).await?;
    each(findings, &mut table, &name, (none, connected), many);

    // The streams need the connections' slots.
    clients.iter_mut().for_each(Client::hang_up);
    let mut streams: Vec<TcpStream> = Vec::new();
    for client in clients {
        streams.push(client.open(PATH).await?.0);
    }
    let name = format!("{many} sessions, a stream each");
    let streaming = row(setting, findings, &mut table, &daemon, &name).await?;
    each(findings, &mut table, &name, (none, streaming), many);
    findings.tables.push(table);
    drop(streams);
    daemon.stop().await
}

/// So many clients that have begun as MCP's do, know the tools, and have hung up.
async fn open_sessions(daemon: &Daemon, many: usize) -> Outcome<Vec<Client>> {
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }).to_string();
    let mut clients = Vec::new();
    for _ in 0..many {
        let mut client = gateways::session(daemon.client(), PATH).await?;
        let answer = client.post(PATH, list.as_bytes()).await?.json()?;
        if answer["result"]["tools"].as_array().is_none_or(Vec::is_empty) {
            return Err(format!("`tools/list` is answered with {answer}").into());
        }
        client.hang_up();
        clients.push(client);
    }
    Ok(clients)
}

/// Notes what each of `many` holds.
fn each(
    findings: &mut Findings,
    table: &mut Table,
    name: &str,
    (before, after): (Memory, Memory),
    many: usize,
) {
    let bytes = after.resident.saturating_sub(before.resident) / many as u64;
    findings.json.insert(format!("{name}, bytes each"), json!(bytes));
    table.amend(format!("{:.1} KiB", bytes as f64 / 1024.0));
}

/// One server on stdio for ten clients, and the memory of what stands before it for many.
async fn clients(setting: &Setting, findings: &mut Findings) -> Outcome<()> {
    let many = setting.size(1_000, CLIENTS * 2);
    let programs = format!("programs for {CLIENTS} clients");
    let held = format!("a client, of {many}");
    let head = ["", &programs, "VmRSS then", &held];
    let mut table =
        Table::new("clients of one server on stdio, each with a session and a call", &head);
    for name in ["bridge", mcp_proxy::PYTHON, mcp_proxy::CARGO] {
        let few = clients_of(setting, name, CLIENTS).await;
        let all = match few {
            Ok(few) => clients_of(setting, name, many).await.map(|all| (few, all)),
            Err(error) => Err(error),
        };
        match all {
            Ok((few, all)) => {
                let more = (all.clients - few.clients).max(1);
                let bytes = all.memory.resident.saturating_sub(few.memory.resident) / more;
                let resident = few.memory.resident;
                table.row([
                    name.to_owned(),
                    few.programs.to_string(),
                    format!("{:.1} MiB", mebibytes(resident)),
                    format!("{:.1} KiB", bytes as f64 / 1024.0),
                ]);
                let found = json!({
                    "programs": few.programs, "rss": resident, "bytesEach": bytes,
                });
                findings.json.insert(format!("clients, {name}"), found);
            }
            Err(error) if name == "bridge" => return Err(error),
            Err(error) => findings.note(format!("{name} is left out: {error}")),
        }
    }
    findings.tables.push(table);
    Ok(())
}

/// What stands before a server, with its clients.
struct Crowd {
    clients: u64,
    /// How often the server runs.
    programs: usize,
    memory: Memory,
}

/// Starts the one that is called `name`, with so many clients.
async fn clients_of(setting: &Setting, name: &str, many: usize) -> Outcome<Crowd> {
    let world = World::start().await?;
    let (mut daemon, mut other) = (None, None);
    let (id, gateways) = match name {
        "bridge" => {
            let daemon = daemon.insert(start(setting, &world).await?);
            (daemon.id()?, vec![with_session(daemon, "stdio", "stdio_echo", many).await?])
        }
        _ => {
            let (child, gateways) = match name {
                mcp_proxy::PYTHON => mcp_proxy::of_python(setting, many).await?,
                _ => mcp_proxy::of_cargo(setting, &world, many).await?,
            };
            (other.insert(child).id().ok_or("it has ended")?, gateways)
        }
    };
    sleep(Duration::from_millis(setting.size(3_000, 100))).await;
    let clients = gateways.iter().map(|gateway| gateway.clients.len() as u64).sum();
    let found = Crowd { clients, programs: below(id, "stdio-tool")?, memory: Memory::of(id)? };
    drop(gateways);
    match daemon {
        Some(daemon) => daemon.stop().await?,
        None => drop(other),
    }
    Ok(found)
}
