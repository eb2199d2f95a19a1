//! One replica, three, and a journal in a file, under the same load: what they take, what it costs
//! the processors of both sides, and what a call is for PostgreSQL.
//!
//! On a machine without cores to spare, three replicas take from each other and from PostgreSQL;
//! the table says how many cores were busy. Must not: take a figure of a round in which a call was
//! lost.

use serde_json::json;

use super::{
    Setting,
    runs::{self, Load},
};
use crate::{
    daemon::Daemon,
    postgres::{Counts, Database},
    report::{Findings, Table},
    run::Outcome,
    stats::{self, Samples},
    world::World,
};

/// Those that share a load.
struct Group {
    name: &'static str,
    daemons: Vec<Daemon>,
    samples: Samples,
    calls: f64,
    seconds: f64,
    /// Seconds of processor time: the bridges' and PostgreSQL's.
    processor: f64,
    of_database: f64,
    counts: Vec<Counts>,
}

pub(super) async fn run(setting: &Setting, findings: &mut Findings) -> Outcome<()> {
    let Some(url) = &setting.arguments.postgres else {
        findings.note("this part is left out: it wants --postgres");
        return Ok(());
    };
    let (mut world, database) = (World::start().await?, Database::open(url).await?);
    let tools = world.fast_tools()?;
    let in_database = format!("{tools}{}", database.state());
    let mut groups = Vec::new();
    for (name, count, config) in [
        ("journal in a file", 1, &tools),
        ("one replica", 1, &in_database),
        ("three replicas", 3, &in_database),
    ] {
        let mut daemons = Vec::new();
        for _ in 0..count {
            let dir = setting.dir.join(format!("replicas-{}-{}", groups.len(), daemons.len()));
            let program = &setting.arguments.daemon;
            daemons.push(Daemon::start(program, dir, world.mantyx, config).await?);
        }
        groups.push(Group::new(name, daemons));
    }
    for load in [Load::few(setting), Load::at_once(setting)] {
        for _ in 0..setting.size(3, 1) {
            for group in &mut groups {
                group.round(&mut world, &database, load).await?;
            }
        }
        tell(findings, load, &mut groups);
    }
    for daemon in groups.into_iter().flat_map(|group| group.daemons) {
        daemon.stop().await?;
    }
    database.drop_schema().await
}

impl Group {
    fn new(name: &'static str, daemons: Vec<Daemon>) -> Self {
        Self {
            name,
            daemons,
            samples: Samples::default(),
            calls: 0.0,
            seconds: 0.0,
            processor: 0.0,
            of_database: 0.0,
            counts: Vec::new(),
        }
    }

    async fn round(&mut self, world: &mut World, database: &Database, load: Load) -> Outcome<()> {
        let daemons: Vec<_> = self.daemons.iter().collect();
        let (before, processor) = (database.counts().await?, database.processor().await?);
        let round = runs::round(world, &daemons, load).await?;
        let processor = database.processor().await? - processor;
        let calls = round.added.len() as f64;
        self.counts.push(database.counts().await?.since(before, calls));
        self.calls += calls;
        self.seconds += round.seconds;
        self.processor += round.processor;
        self.of_database += processor;
        self.samples.round(round.added);
        Ok(())
    }
}

fn tell(findings: &mut Findings, load: Load, groups: &mut [Group]) {
    let title = format!("{} runs, each with a call outstanding at any time", load.runs);
    let head: Vec<&str> = ["added to a call"]
        .into_iter()
        .chain(stats::COLUMNS)
        .chain([
            "calls a second",
            "bridge, s for 1,000 calls",
            "PostgreSQL",
            "cores busy with both",
        ])
        .collect();
    let mut table = Table::new(&title, &head);
    let title = format!("of this, for each call, in PostgreSQL ({} runs)", load.runs);
    let head = ["", "rows", "commits", "syncs of its log", "bytes of its log"];
    let mut costs = Table::new(&title, &head);
    let mut json = serde_json::Map::new();
    for group in groups {
        let Some(found) = group.samples.quantiles() else { continue };
        let (thousands, rate) = (group.calls / 1e3, group.calls / group.seconds);
        let busy = (group.processor + group.of_database) / group.seconds;
        let (own, of_database) = (group.processor / thousands, group.of_database / thousands);
        let more = [
            format!("{rate:.0}"),
            format!("{own:.3}"),
            format!("{of_database:.3}"),
            format!("{busy:.2}"),
        ];
        table.row([group.name.to_owned()].into_iter().chain(found.cells()).chain(more));
        let mean = |of: fn(&Counts) -> f64| {
            group.counts.iter().map(of).sum::<f64>() / group.counts.len() as f64
        };
        let [rows, commits, syncs, log]: [f64; 4] =
            [mean(|it| it.rows), mean(|it| it.commits), mean(|it| it.syncs), mean(|it| it.log)];
        let cells = [rows, commits, syncs].map(|count| format!("{count:.2}"));
        costs.row([group.name.to_owned()].into_iter().chain(cells).chain([format!("{log:.0}")]));
        let one = json!({
            "added": found.json(), "callsPerSecond": rate, "processorSecondsPer1000Calls": own,
            "ofPostgres": of_database, "coresBusy": busy,
            "perCall": { "rows": rows, "commits": commits, "syncs": syncs, "walBytes": log },
        });
        json.insert(group.name.to_owned(), one);
        *group = Group::new(group.name, std::mem::take(&mut group.daemons));
    }
    findings.tables.extend([table, costs]);
    findings.json.insert(format!("{}-runs", load.runs), json.into());
}
