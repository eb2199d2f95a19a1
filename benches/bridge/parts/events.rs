//! Events a second: MANTYX writes as fast as it is read, apps count.
//!
//! Beside the bridge, apps read straight from MANTYX, which is the most that this machine's writer
//! and readers can do, and through a plain proxy. Must not: count what came twice or not at all.

use std::net::SocketAddr;

use serde_json::json;

use super::Setting;
use crate::{
    clock,
    daemon::Daemon,
    process::Process,
    report::{Findings, Table},
    roles::{Order, Seen},
    run::Outcome,
    wire::Client,
    world::{World, create},
};

/// One of the compared ones.
pub(super) struct Way {
    name: &'static str,
    addr: SocketAddr,
    token: String,
}

/// What came of one round.
pub(super) struct Through {
    /// Events a second and reader.
    rate: f64,
    /// How often readers were closed and came back.
    resumed: u64,
}

impl Way {
    pub(super) fn bridge(name: &'static str, daemon: &Daemon) -> Self {
        Self { name, addr: daemon.addr(), token: daemon.token().to_owned() }
    }
}

pub(super) async fn run(setting: &Setting, findings: &mut Findings) -> Outcome<()> {
    let mut world = World::start().await?;
    let (_proxy, hyper) = Process::listening("proxy", &[&world.mantyx.to_string()]).await?;
    let mut reader = Process::role("reader", &[])?;
    let daemons = setting.bridges("events", &world, &world.fast_tools()?).await?;
    let mut ways: Vec<Way> =
        daemons.iter().map(|(name, daemon)| Way::bridge(name, daemon)).collect();
    for (name, addr) in [("straight", world.mantyx), ("hyper proxy", hyper)] {
        ways.push(Way { name, addr, token: String::new() });
    }
    for (readers, events) in [(1, setting.size(400_000, 5_000)), (10, setting.size(100_000, 2_000))]
    {
        let mut rounds: Vec<Vec<Through>> = ways.iter().map(|_| Vec::new()).collect();
        for _ in 0..setting.size(5, 1) {
            for (way, found) in ways.iter().zip(&mut rounds) {
                found.push(through(&mut world, &mut reader, way, readers, events).await?);
            }
        }
        tell(findings, &ways, &rounds, readers, events);
    }
    for (_, daemon) in daemons {
        daemon.stop().await?;
    }
    Ok(())
}

/// One run of so many events, read by so many apps.
pub(super) async fn through(
    world: &mut World,
    reader: &mut Process,
    way: &Way,
    readers: usize,
    events: u64,
) -> Outcome<Through> {
    world.gate(false).await?;
    let mut client = Client::new(way.addr).bearer(&way.token);
    let (_, target) = create(&mut client, &format!("gated-events-{events}")).await?;
    let (addr, token) = (way.addr.to_string(), way.token.clone());
    reader.order(&Order { addr, token, target, readers }).await?;
    reader.line().await?;
    world.gate(true).await?;
    let seen: Vec<Seen> = serde_json::from_str(&reader.line().await?)?;
    world.forget().await?;
    // The end of the run is an event as well.
    if let Some(short) = seen.iter().find(|seen| seen.events != events + 1 || seen.gaps > 0) {
        return Err(format!("{}: of {events} events and the end: {short:?}", way.name).into());
    }
    let first = seen.iter().map(|seen| seen.first).min().unwrap_or(0);
    let last = seen.iter().map(|seen| seen.last).max().unwrap_or(0);
    let rate = events as f64 / clock::seconds(last.saturating_sub(first).max(1));
    Ok(Through { rate, resumed: seen.iter().map(|seen| seen.resumed).sum() })
}

fn tell(
    findings: &mut Findings,
    ways: &[Way],
    rounds: &[Vec<Through>],
    readers: usize,
    events: u64,
) {
    let title =
        format!("{events} events through one run to {readers} app(s), events a second each");
    let head = ["", "median", "lowest", "highest", "to straight", "streams closed and resumed"];
    let mut table = Table::new(&title, &head);
    let sorted = |found: &[Through]| {
        let mut rates: Vec<f64> = found.iter().map(|one| one.rate).collect();
        rates.sort_by(f64::total_cmp);
        rates
    };
    let median = |rates: &[f64]| rates.get(rates.len() / 2).copied().unwrap_or(0.0);
    let straight = ways.iter().zip(rounds).find(|(way, _)| way.name == "straight");
    let straight = straight.map_or(0.0, |(_, found)| median(&sorted(found)));
    let mut json = serde_json::Map::new();
    for (way, found) in ways.iter().zip(rounds) {
        let rates = sorted(found);
        let resumed: u64 = found.iter().map(|one| one.resumed).sum();
        let (low, high) = (rates.first().copied(), rates.last().copied());
        let (low, high) = (low.unwrap_or(0.0), high.unwrap_or(0.0));
        let share = median(&rates) / straight;
        table.row([
            way.name.to_owned(),
            format!("{:.0}", median(&rates)),
            format!("{low:.0}"),
            format!("{high:.0}"),
            format!("{share:.2}×"),
            resumed.to_string(),
        ]);
        json.insert(way.name.into(), json!({ "perSecond": rates, "resumed": resumed }));
    }
    findings.tables.push(table);
    let whole = json!({ "readers": readers, "events": events, "ways": json });
    findings.json.insert(format!("apps-{readers}"), whole);
}
