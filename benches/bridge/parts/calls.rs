//! The time that is added to a call: from right before the write of its event's last byte at MANTYX
//! to the first byte of the result's POST there, less the tool's own time.
//!
//! Beside the bridge: the official Python SDK that answers the same calls itself, the tool called
//! directly, an exchange over loopback, and a record on the same disk. The bridge is there twice,
//! as its journal is synced before it calls a tool and before it posts: once with its state on the
//! disk, and once in memory, where a sync costs nothing. Must not: leave a call out that was slow.

use std::{path::PathBuf, time::Duration};

use serde_json::{Map, json};
use tempfile::TempDir;

use super::{IN_MEMORY, Setting};
use crate::{
    clock::SECOND,
    daemon::Daemon,
    direct::{self, Tool},
    postgres::Database,
    process::{Process, processor_seconds, waits},
    python,
    report::{Findings, Table},
    run::Outcome,
    stats::{self, Samples},
    world::{World, create},
};

/// The bridge as a replica.
const IN_POSTGRES: &str = "bridge, journal in PostgreSQL";
const TOOLS: [&str; 3] = ["stdio", "http", "agent"];
/// The length of what is posted, and of a call in the journal, give or take.
const POSTED: usize = 200;
const JOURNALED: usize = 400;

/// How many calls at a time there are in each of how many runs.
#[derive(Debug, Clone, Copy)]
struct Shape {
    flight: usize,
    runs: usize,
}

const SHAPES: &[Shape] = &[
    Shape { flight: 1, runs: 1 },
    Shape { flight: 8, runs: 1 },
    Shape { flight: 64, runs: 1 },
    Shape { flight: 1, runs: 8 },
    Shape { flight: 1, runs: 64 },
];
const SHORT: &[Shape] = &[Shape { flight: 1, runs: 1 }, Shape { flight: 2, runs: 2 }];

/// The compared ones.
struct Compared {
    world: World,
    daemons: Vec<(&'static str, Daemon)>,
    sdk: Option<Process>,
    loopback: std::net::SocketAddr,
    _loopback: Process,
    dir: PathBuf,
    // Behind what writes there.
    _memory: Option<TempDir>,
    database: Option<Database>,
}

pub(super) async fn run(setting: &Setting, findings: &mut Findings) -> Outcome<()> {
    let mut compared = Compared::start(setting, findings).await?;
    for tool in TOOLS {
        let direct = Tool::start(tool, &compared.world).await?;
        for shape in setting.size(SHAPES, SHORT) {
            let cell = cell(setting, &mut compared, tool, &direct, *shape).await?;
            tell(findings, tool, *shape, &cell);
        }
        direct.end().await?;
    }
    for (name, mut daemon) in compared.daemons {
        let name_of = |end| format!("mantyx_bridge_journal_commit_duration_seconds_{end} ");
        let sum = daemon.metric(&name_of("sum")).await?;
        let count = daemon.metric(&name_of("count")).await?;
        let mean = stats::time((sum / count * 1e9) as u64);
        findings.note(format!("{name}: {count:.0} writes of its journal, {mean} on average."));
        daemon.stop().await?;
    }
    match compared.database {
        Some(database) => database.drop_schema().await,
        None => Ok(()),
    }
}

impl Compared {
    async fn start(setting: &Setting, findings: &mut Findings) -> Outcome<Self> {
        let world = World::start().await?;
        let config = world.fast_tools()?;
        let mut daemons = setting.bridges("calls", &world, &config).await?;
        let mut memory = None;
        match setting.bridge_in_memory(&world, &config).await? {
            Some((daemon, dir)) => {
                daemons.push((IN_MEMORY, daemon));
                memory = Some(dir);
            }
            None => findings.note("there is no file system in memory: that bridge is left out."),
        }
        let mut database = None;
        if let Some(url) = &setting.arguments.postgres {
            let there = Database::open(url).await?;
            let config = format!("{config}{}", there.state());
            database = Some(there);
            let (program, dir) = (&setting.arguments.daemon, setting.dir.join("calls-postgres"));
            daemons.push((IN_POSTGRES, Daemon::start(program, dir, world.mantyx, &config).await?));
        }
        let sdk = match python::prepare(&setting.dir, python::SDK).await {
            Ok(python) => Some(python::sdk(&python)?),
            Err(error) => {
                findings.note(format!("the Python SDK cannot be had, and is left out: {error}"));
                None
            }
        };
        let (_loopback, loopback) = Process::listening("loopback", &[]).await?;
        let dir = setting.dir.clone();
        Ok(Self { world, daemons, sdk, loopback, _loopback, dir, _memory: memory, database })
    }
}

/// What the compared ones took, by name and in the order of the table.
type Cell = Vec<(&'static str, Samples, Spent)>;

/// What a daemon has spent on calls.
#[derive(Debug, Default)]
struct Spent {
    calls: u64,
    waits: u64,
    seconds: f64,
}

impl Spent {
    /// For one call: waits of its threads, and processor time.
    fn cells(&self) -> [String; 2] {
        if self.calls == 0 {
            return Default::default();
        }
        let calls = self.calls as f64;
        let time = stats::time((self.seconds / calls * 1e9) as u64);
        [format!("{:.1}", self.waits as f64 / calls), time]
    }
}

async fn cell(
    setting: &Setting,
    compared: &mut Compared,
    tool: &str,
    direct: &Tool,
    shape: Shape,
) -> Outcome<Cell> {
    let Compared { world, daemons, sdk, loopback, dir, .. } = compared;
    let others = ["Python SDK", "called directly", "loopback exchange", "fdatasync of a record"];
    let names = daemons.iter().map(|(name, _)| *name).chain(others);
    let mut cell: Cell = names.map(|name| (name, <_>::default(), <_>::default())).collect();
    let millis = setting.size(800, 100);
    let (span, all) = (millis * (SECOND / 1_000), shape.flight * shape.runs);
    let plan = format!("calls-{tool}-{}-{millis}-50000-0", shape.flight);
    for _ in 0..setting.size(3, 1) {
        let mut round = Vec::new();
        for ((name, daemon), (_, _, spent)) in daemons.iter().zip(&mut cell) {
            let id = daemon.id()?;
            let before = (waits(id)?, processor_seconds(id)?);
            let (samples, calls) = through_bridge(world, name, daemon, &plan, shape).await?;
            spent.calls += calls as u64;
            spent.waits += waits(id)? - before.0;
            spent.seconds += processor_seconds(id)? - before.1;
            round.push(samples);
        }
        round.push(match sdk {
            Some(sdk) => through_sdk(world, sdk, tool, &plan, shape).await?,
            None => Vec::new(),
        });
        round.push(warm(direct.load(all, span / 2).await?, all));
        round.push(warm(direct::loopback(*loopback, all, span / 4, POSTED).await?, all));
        round.push(direct::records(dir, setting.size(100, 10), JOURNALED)?);
        for ((_, samples, _), found) in cell.iter_mut().zip(round) {
            samples.round(found);
        }
    }
    Ok(cell)
}

/// All but what warmed up.
fn warm(mut samples: Vec<u64>, flight: usize) -> Vec<u64> {
    samples.drain(..skipped(samples.len(), flight));
    samples
}

/// How many of the first calls of a run do not count.
fn skipped(of: usize, flight: usize) -> usize {
    (flight + 5).min(of / 4)
}

async fn through_bridge(
    world: &mut World,
    name: &str,
    daemon: &Daemon,
    plan: &str,
    shape: Shape,
) -> Outcome<(Vec<u64>, usize)> {
    let mut client = daemon.client();
    let mut ids = Vec::new();
    for _ in 0..shape.runs {
        ids.push(create(&mut client, plan).await?.0);
    }
    added(world, name, &ids, shape)
        .await
        .map_err(|error| format!("{error}\nits log ends with:\n{}", daemon.log()).into())
}

async fn through_sdk(
    world: &mut World,
    sdk: &mut Process,
    tool: &str,
    plan: &str,
    shape: Shape,
) -> Outcome<Vec<u64>> {
    let program = std::env::current_exe()?;
    sdk.order(&json!({
        "base_url": format!("http://{}", world.mantyx), "plan": plan, "runs": shape.runs,
        "tool": tool, "stdio": [program, "--role", "stdio-tool"],
        "http": format!("http://{}/mcp", world.tools), "agent": world.card_url(),
    }))
    .await?;
    let said: serde_json::Value = serde_json::from_str(&sdk.line().await?)?;
    let ids: Vec<String> = serde_json::from_value(said["runs"].clone())?;
    Ok(added(world, "Python SDK", &ids, shape).await?.0)
}

/// The time added to each call that counts, and the number of all calls.
async fn added(
    world: &mut World,
    name: &str,
    ids: &[String],
    shape: Shape,
) -> Outcome<(Vec<u64>, usize)> {
    let (mut all, mut calls) = (Vec::new(), 0);
    for id in ids {
        let record = world.ended(id, Duration::from_secs(60)).await?;
        record.check(name)?;
        calls += record.samples.len();
        all.extend(record.added(skipped(record.samples.len(), shape.flight)));
    }
    world.forget().await?;
    Ok((all, calls))
}

fn tell(findings: &mut Findings, tool: &str, shape: Shape, cell: &Cell) {
    let where_to = match tool {
        "stdio" => "MCP over stdio",
        "http" => "MCP over HTTP",
        _ => "A2A over JSON-RPC",
    };
    let Shape { flight, runs } = shape;
    let title = format!("{where_to}: {} in flight, in {runs} run(s)", flight * runs);
    let more = ["to bridge", "waits a call", "processor"];
    let head: Vec<&str> =
        ["added to a call"].into_iter().chain(stats::COLUMNS).chain(more).collect();
    let mut table = Table::new(&title, &head);
    let bridge = cell.first().and_then(|(_, samples, _)| samples.quantiles());
    let bridge = bridge.map_or(0, |found| found.p50);
    let mut json = Map::new();
    for (name, samples, spent) in cell {
        let Some(found) = samples.quantiles() else { continue };
        let cells = found.cells().into_iter();
        let ratio = stats::ratio(found.p50, bridge);
        let spent = spent.cells();
        let mut json_of = found.json();
        json_of["waitsACall"] = json!(spent[0].parse::<f64>().ok());
        table.row([(*name).to_owned()].into_iter().chain(cells).chain([ratio]).chain(spent));
        json.insert((*name).to_owned(), json_of);
    }
    findings.tables.push(table);
    let key = format!("{tool}-{flight}-in-flight-{runs}-runs");
    findings.json.insert(key, json.into());
}
