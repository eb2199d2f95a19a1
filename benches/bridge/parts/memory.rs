//! What the bridge holds: idle, with idle runs, after a load; how soon it is ready; how large it
//! is.
//!
//! Must not: measure a bridge that is still busy with what came before.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use super::{
    Setting,
    events::{self, Way},
    runs::{self, Load},
};
use crate::{
    clock,
    daemon::Daemon,
    process::{self, Memory, Process},
    report::{Findings, Table},
    run::Outcome,
    stats::{self, Samples},
    world::{World, create},
};

/// How often memory is looked at in the middle of a long load.
const LOOK: u64 = 10 * 60 * clock::SECOND;
/// Each open run takes a connection of the bridge and one of MANTYX.
const SPARE_DESCRIPTORS: u64 = 500;

pub(super) async fn run(setting: &Setting, findings: &mut Findings) -> Outcome<()> {
    let mut table = Table::new("memory", &["", "VmRSS", "Pss", "RssAnon", "highest", "a run"]);
    let program = setting.arguments.daemon.clone();

    let world = World::start().await?;
    let dir = setting.dir.join("memory");
    let mut daemon = Daemon::start(&program, dir, world.mantyx, &ten_backends(&world)?).await?;
    start(setting, findings, &mut daemon).await?;
    daemon.wait_backends().await?;
    let mut last = row(setting, findings, &mut table, &daemon, "10 backends, no runs").await?;

    let descriptors = process::descriptors().saturating_sub(SPARE_DESCRIPTORS);
    let (mut client, mut open) = (daemon.client(), 0_u64);
    for wanted in [setting.size(1_000, 20), setting.size(10_000, 100)] {
        if wanted > descriptors {
            findings.note(format!(
                "{wanted} runs are left out: a process may have {} descriptors here (ulimit -n).",
                process::descriptors()
            ));
            continue;
        }
        let more = wanted - open;
        for _ in 0..more {
            create(&mut client, "idle").await?;
        }
        open = wanted;
        let driven = client.get("/v1/status").await?.json()?["runs"]["driven"].as_u64();
        if driven != Some(wanted) {
            return Err(format!("of {wanted} idle runs {driven:?} are driven").into());
        }
        let name = format!("{wanted} idle runs");
        let found = row(setting, findings, &mut table, &daemon, &name).await?;
        let each = found.resident.saturating_sub(last.resident) / more;
        findings.json.insert(format!("{name}, bytes each"), json!(each));
        table.amend(format!("{:.1} KiB", each as f64 / 1024.0));
        last = found;
    }
    daemon.stop().await?;
    after_load(setting, findings, &mut table).await?;

    findings.tables.push(table);
    let bytes = process::size(&program)?;
    findings.json.insert("binaryBytes".into(), json!(bytes));
    findings.note(format!("the program is {:.1} MiB large", mebibytes(bytes)));
    Ok(())
}

/// The load of `events` and `runs`, as long as is asked for, and a bridge that has it behind
/// itself.
async fn after_load(setting: &Setting, findings: &mut Findings, table: &mut Table) -> Outcome<()> {
    let mut world = World::start().await?;
    let mut reader = Process::role("reader", &[])?;
    let dir = setting.dir.join("memory-load");
    let program = setting.arguments.daemon.clone();
    let daemon = Daemon::start(&program, dir, world.mantyx, &world.fast_tools()?).await?;
    let way = Way::bridge("bridge", &daemon);
    row(setting, findings, table, &daemon, "before a load").await?;
    let minutes = setting.arguments.soak_minutes.unwrap_or(0);
    let end = clock::now() + minutes * 60 * clock::SECOND;
    let (mut rounds, first) = (0, setting.size(2, 1));
    let (begun, mut looks) = (clock::now(), 1);
    while rounds < first || clock::now() < end {
        runs::round(&mut world, &[&daemon], Load::paced(setting)).await?;
        events::through(&mut world, &mut reader, &way, 10, setting.size(50_000, 1_000)).await?;
        rounds += 1;
        if rounds == 1 {
            row(setting, findings, table, &daemon, "after the load, once").await?;
        }
        if clock::now() - begun > looks * LOOK {
            let minutes = (clock::now() - begun) / (60 * clock::SECOND);
            let name = format!("after {minutes} minutes of it, {rounds} times");
            row(setting, findings, table, &daemon, &name).await?;
            looks += 1;
        }
    }
    row(setting, findings, table, &daemon, &format!("after the load, {rounds} times")).await?;
    sleep(setting.size(Duration::from_secs(120), Duration::ZERO)).await;
    row(setting, findings, table, &daemon, "two minutes later").await?;
    daemon.stop().await
}

/// 2 servers on stdio, 6 on HTTP, 2 agents; all have to be there before the bridge is ready.
fn ten_backends(world: &World) -> Outcome<String> {
    let program = std::env::current_exe()?;
    let mut config = String::from("mcp:\n");
    for number in 0..2 {
        config.push_str(&format!(
            "  stdio{number}: {{command: {program:?}, args: [--role, stdio-tool], required: true}}\n"
        ));
    }
    for number in 0..6 {
        let url = format!("http://{}/catalog/20", world.tools);
        config.push_str(&format!("  http{number}: {{url: \"{url}\", required: true}}\n"));
    }
    config.push_str("a2a:\n");
    for number in 0..2 {
        let card = world.card_url();
        config.push_str(&format!("  agent{number}: {{card_url: \"{card}\", required: true}}\n"));
    }
    Ok(config)
}

/// Starts it again and again on the catalogs that it has kept.
async fn start(setting: &Setting, findings: &mut Findings, daemon: &mut Daemon) -> Outcome<()> {
    let mut took = Vec::new();
    for _ in 0..setting.size(11, 3) {
        took.push(daemon.restart(&setting.arguments.daemon).await?);
        daemon.wait_backends().await?;
    }
    let mut samples = Samples::default();
    samples.round(took);
    let head: Vec<&str> = [""].into_iter().chain(stats::COLUMNS).collect();
    let mut table = Table::new("start to /readyz, 10 required backends, catalogs kept", &head);
    if let Some(found) = samples.quantiles() {
        table.row(["bridge".to_owned()].into_iter().chain(found.cells()));
        findings.json.insert("start".into(), found.json());
    }
    findings.tables.push(table);
    Ok(())
}

pub(super) async fn row(
    setting: &Setting,
    findings: &mut Findings,
    table: &mut Table,
    daemon: &Daemon,
    name: &str,
) -> Outcome<Memory> {
    // What the last requests have left is given back, or is not.
    sleep(Duration::from_millis(setting.size(3_000, 100))).await;
    let found = Memory::of(daemon.id()?)?;
    let sizes = [found.resident, found.proportional, found.anonymous, found.most];
    let cells = sizes.map(|bytes| format!("{:.1} MiB", mebibytes(bytes)));
    table.row([name.to_owned()].into_iter().chain(cells));
    findings.json.insert(name.to_owned(), found.json());
    Ok(found)
}

pub(super) fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
