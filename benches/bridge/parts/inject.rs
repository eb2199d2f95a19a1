//! `POST agent-runs` through the bridge, straight to MANTYX, and through plain reverse proxies.
//!
//! What reaches MANTYX from the bridge has the tools in it, and the app never sent them. So the
//! others are given the same bytes to carry, and the app's own small body as well. Must not:
//! compare what does not reach MANTYX as the same bytes without saying so.

use std::net::SocketAddr;

use serde_json::json;

use super::{IN_MEMORY, Setting};
use crate::{
    daemon::Daemon,
    nginx::Nginx,
    process::Process,
    report::{Findings, Table},
    run::Outcome,
    stats::{self, Samples},
    wire::Client,
    world::{SPEC, World, runs_path},
};

/// How many tools the backends have.
const CATALOGS: [usize; 4] = [10, 100, 500, 2_000];
/// The attachment, as it stands in the spec.
const ATTACHMENT: usize = 5 << 20;

/// One of the compared ones.
struct Way {
    name: String,
    client: Client,
    /// Whether the app's body is the small one.
    small: bool,
    is_bridge: bool,
    samples: Samples,
}

/// What is posted.
struct Case {
    name: String,
    key: String,
    tools: usize,
    spec: Vec<u8>,
}

pub(super) async fn run(setting: &Setting, findings: &mut Findings) -> Outcome<()> {
    let world = World::start().await?;
    let (_proxy, hyper) = Process::listening("proxy", &[&world.mantyx.to_string()]).await?;
    let nginx = Nginx::start(&setting.dir.join("nginx"), world.mantyx).await?;
    if nginx.is_none() {
        findings.note("nginx is not installed: left out.");
    }
    let mut proxies = vec![("straight", world.mantyx), ("hyper proxy", hyper)];
    proxies.extend(nginx.as_ref().map(|nginx| ("nginx", nginx.addr)));

    let entry =
        |tools| format!("  c{tools}: {{url: \"http://{}/catalog/{tools}\"}}\n", world.tools);
    let config = format!("mcp:\n{}", CATALOGS.map(entry).concat());
    let mut daemons = setting.bridges("inject", &world, &config).await?;
    let memory = setting.bridge_in_memory(&world, &config).await?;
    // The directory lives until the bridge has ended.
    let _dir = memory.map(|(daemon, dir)| {
        daemons.push((IN_MEMORY, daemon));
        dir
    });
    for case in cases() {
        measure(setting, findings, &case, &proxies, &daemons).await?;
    }
    for (_, daemon) in daemons {
        daemon.stop().await?;
    }
    Ok(())
}

fn cases() -> Vec<Case> {
    let plain = |tools: usize| Case {
        name: format!("{tools} tools"),
        key: format!("tools-{tools}"),
        tools,
        spec: SPEC.to_vec(),
    };
    let mut cases: Vec<Case> = CATALOGS.into_iter().map(plain).collect();
    let attachment = json!({
        "type": "input_file", "mimeType": "application/pdf", "filename": "report.pdf",
        "data": "QUJD".repeat(ATTACHMENT / 4),
    });
    let message =
        json!({ "role": "user", "content": "What is in it?", "attachments": [attachment] });
    let spec = json!({ "modelId": "m", "systemPrompt": "s", "messages": [message] });
    cases.push(Case {
        name: "10 tools and an attachment of 5 MiB".into(),
        key: "attachment".into(),
        tools: 10,
        spec: spec.to_string().into_bytes(),
    });
    cases
}

async fn measure(
    setting: &Setting,
    findings: &mut Findings,
    case: &Case,
    proxies: &[(&str, SocketAddr)],
    daemons: &[(&str, Daemon)],
) -> Outcome<()> {
    let header = format!("X-Bridge-Backends: c{}\r\n", case.tools);
    let lines = format!("Content-Type: application/json\r\n{header}");
    let (_, first) = daemons.first().ok_or("there is a bridge")?;
    let whole =
        first.client().send("POST", "/v1/specs/inject", &lines, &case.spec).await?.good()?;
    check(&whole, case.tools)?;

    let mut ways = Vec::new();
    for (name, daemon) in daemons {
        ways.push(Way::new(format!("{name}: injects"), daemon.client(), true, true));
    }
    for (name, addr) in proxies {
        ways.push(Way::new(format!("{name}, tools in the body"), Client::new(*addr), false, false));
        ways.push(Way::new(format!("{name}, no tools"), Client::new(*addr), true, false));
    }
    let requests = setting.size(if whole.len() > 1 << 20 { 60 } else { 200 }, 3);
    for round in 0..=setting.size(5, 1) {
        for way in &mut ways {
            let body = if way.small { &case.spec } else { &whole };
            let lines = if way.is_bridge { &lines } else { "Content-Type: application/json\r\n" };
            let mut took = Vec::new();
            for _ in 0..requests {
                let answer = way.client.send("POST", &runs_path("end"), lines, body).await?;
                took.push(answer.done - answer.sent);
                answer.good()?;
            }
            // In the first round, connections are made and caches are filled.
            if round > 0 || setting.arguments.short {
                way.samples.round(took);
            }
        }
    }
    tell(findings, case, whole.len(), &ways);
    Ok(())
}

/// What the bridge would send has so many tools.
fn check(spec: &[u8], tools: usize) -> Outcome<()> {
    let spec: serde_json::Value = serde_json::from_slice(spec)?;
    let refs = spec["tools"].as_array().into_iter().flatten();
    let found: usize = refs.filter_map(|entry| entry["tools"].as_array()).map(Vec::len).sum();
    if found == tools {
        return Ok(());
    }
    Err(format!("of {tools} tools {found} were injected").into())
}

fn tell(findings: &mut Findings, case: &Case, bytes: usize, ways: &[Way]) {
    let title = format!("POST agent-runs, {}: {} KiB reach MANTYX", case.name, bytes / 1024);
    let head: Vec<&str> =
        ["to the answer's end"].into_iter().chain(stats::COLUMNS).chain(["to straight"]).collect();
    let mut table = Table::new(&title, &head);
    let straight = ways.iter().find(|way| way.name.starts_with("straight, tools"));
    let straight = straight.and_then(|way| way.samples.quantiles()).map_or(0, |found| found.p50);
    let mut json = serde_json::Map::new();
    for way in ways {
        let Some(found) = way.samples.quantiles() else { continue };
        let cells = found.cells().into_iter();
        let ratio = stats::ratio(found.p50, straight);
        table.row([way.name.clone()].into_iter().chain(cells).chain([ratio]));
        json.insert(way.name.clone(), found.json());
    }
    findings.tables.push(table);
    findings.json.insert(case.key.clone(), json!({ "bytes": bytes, "ways": json }));
}

impl Way {
    fn new(name: String, client: Client, small: bool, is_bridge: bool) -> Self {
        Self { name, client, small, is_bridge, samples: Samples::default() }
    }
}
