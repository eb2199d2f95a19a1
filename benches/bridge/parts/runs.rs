//! Many runs at once with calls in each: what is lost, what is added, what it costs the processor.
//!
//! `paced` is what agents do, which think between their calls; `at once` keeps a call of every run
//! outstanding, so that each waits for all the others, and shows what the bridge can take. Must
//! not: take a figure of a round in which a call was lost.

use std::time::Duration;

use serde_json::json;

use super::Setting;
use crate::{
    clock,
    daemon::Daemon,
    process::processor_seconds,
    report::{Findings, Table},
    run::Outcome,
    stats::{self, Samples},
    world::{World, create},
};

/// How a round goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    name: &'static str,
    pub(super) runs: usize,
    /// Milliseconds over which calls are made.
    span: u64,
    /// Milliseconds between the calls of a run, on average.
    pause: u64,
}

impl Load {
    pub(super) fn paced(setting: &Setting) -> Self {
        let (runs, span) = (setting.size(1_000, 50), setting.size(6_000, 300));
        Self { name: "paced", runs, span, pause: setting.size(1_000, 50) }
    }

    /// As many as a busy gateway has in a moment: what is added is not yet the wait for a core.
    pub(super) fn few(setting: &Setting) -> Self {
        let (runs, span) = (setting.size(48, 6), setting.size(2_000, 100));
        Self { name: "few at once", runs, span, pause: 0 }
    }

    pub(super) fn at_once(setting: &Setting) -> Self {
        let (runs, span) = (setting.size(1_000, 50), setting.size(2_000, 100));
        Self { name: "at once", runs, span, pause: 0 }
    }
}

/// What came of a round.
#[derive(Debug)]
pub(super) struct Round {
    pub(super) added: Vec<u64>,
    /// Seconds of the daemons' processor time.
    pub(super) processor: f64,
    pub(super) seconds: f64,
}

#[derive(Debug, Default)]
struct Sum {
    samples: Samples,
    calls: usize,
    processor: f64,
    seconds: f64,
}

pub(super) async fn run(setting: &Setting, findings: &mut Findings) -> Outcome<()> {
    let mut world = World::start().await?;
    let daemons = setting.bridges("runs", &world, &world.fast_tools()?).await?;
    for load in [Load::paced(setting), Load::at_once(setting)] {
        let mut sums: Vec<Sum> = daemons.iter().map(|_| Sum::default()).collect();
        for _ in 0..setting.size(3, 1) {
            for ((_, daemon), sum) in daemons.iter().zip(&mut sums) {
                let round = round(&mut world, &[daemon], load).await?;
                sum.calls += round.added.len();
                sum.processor += round.processor;
                sum.seconds += round.seconds;
                sum.samples.round(round.added);
            }
        }
        let names = daemons.iter().map(|(name, _)| *name);
        tell(findings, load, names.zip(&sums));
    }
    for (_, daemon) in daemons {
        daemon.stop().await?;
    }
    findings.note("Lost: none, or this part would have failed.");
    Ok(())
}

/// All runs are created, at the daemons in turn, begin together, and each makes its calls. An error
/// if one was lost.
pub(super) async fn round(world: &mut World, daemons: &[&Daemon], load: Load) -> Outcome<Round> {
    world.gate(false).await?;
    let plan = format!("gated-calls-mix-1-{}-100000-{}", load.span, load.pause);
    let mut clients: Vec<_> = daemons.iter().map(|daemon| daemon.client()).collect();
    let mut ids = Vec::with_capacity(load.runs);
    while ids.len() < load.runs {
        for client in &mut clients {
            ids.push(create(client, &plan).await?.0);
        }
    }
    let (processor, begun) = (processor_of(daemons)?, clock::now());
    world.gate(true).await?;
    let patience = Duration::from_millis(load.span) + Duration::from_secs(60);
    let mut records = Vec::with_capacity(load.runs);
    for id in &ids {
        records.push(world.ended(id, patience).await.map_err(|error| {
            let logs: Vec<_> = daemons.iter().map(|daemon| daemon.log()).collect();
            format!("{error}\nthe bridge's log ends with:\n{}", logs.join("\n\n"))
        })?);
    }
    let seconds = clock::seconds_since(begun);
    let processor = processor_of(daemons)? - processor;
    world.forget().await?;
    let mut added = Vec::new();
    for record in &records {
        record.check("bridge")?;
        added.extend(record.added(0));
    }
    Ok(Round { added, processor, seconds })
}

fn processor_of(daemons: &[&Daemon]) -> Outcome<f64> {
    daemons.iter().map(|daemon| processor_seconds(daemon.id()?)).sum()
}

fn tell<'a>(
    findings: &mut Findings,
    load: Load,
    sums: impl Iterator<Item = (&'static str, &'a Sum)>,
) {
    let title = match load.pause {
        0 => format!("{} runs, each with a call outstanding at any time", load.runs),
        pause => format!("{} runs, each with a call about every {pause} ms", load.runs),
    };
    let head: Vec<&str> = ["added to a call"]
        .into_iter()
        .chain(stats::COLUMNS)
        .chain(["calls a second", "processor, s for 1,000 calls"])
        .collect();
    let mut table = Table::new(&title, &head);
    let mut json = serde_json::Map::new();
    for (name, sum) in sums {
        let Some(found) = sum.samples.quantiles() else { continue };
        let rate = sum.calls as f64 / sum.seconds;
        let processor = sum.processor / (sum.calls as f64 / 1e3);
        let cells = found.cells().into_iter();
        let more = [format!("{rate:.0}"), format!("{processor:.3}")];
        table.row([name.to_owned()].into_iter().chain(cells).chain(more));
        let one = json!({
            "added": found.json(), "callsPerSecond": rate, "processorSecondsPer1000Calls": processor,
            "lost": 0,
        });
        json.insert(name.into(), one);
    }
    findings.tables.push(table);
    findings.json.insert(load.name.replace(' ', "-"), json!({ "runs": load.runs, "ways": json }));
}
