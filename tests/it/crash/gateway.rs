//! Three replicas behind haproxy, with apps that submit runs there and read them there, while a
//! replica or the database fails. What the tools wrote down, what MANTYX got and what the apps saw
//! must agree.
//!
//! `CRASH_SEED` and `CRASH_CYCLES` are as in the crash loop, and `GATEWAY_CALLS` sets the calls a
//! second. Must not: assert on anything that depends on when a fault struck.

mod apps;
mod between;
mod cut_off;
mod laws;
mod plan;
mod promotion;
mod takeover;

use std::time::Duration;

use rustix::process::Signal;
use tokio::{
    sync::{Mutex, MutexGuard},
    time::{Instant, sleep_until},
};

use self::{
    apps::{App, Apps},
    laws::{OfRun, Tally, Witnessed},
    plan::Plan,
};
use super::{Ledger, Reproduce, number};
use crate::{
    bridge::Bridge,
    haproxy::{HOST, Haproxy},
    http::Request,
    mantyx::Mantyx,
    owners::token,
    peers, ports,
    postgres::Postgres,
    wait,
};

const REPLICAS: usize = 3;
/// A dead replica is noticed after 10 to 12 s; then its runs go on where they were.
const ENDED_WITHIN: Duration = Duration::from_secs(120);
const JOINED_WITHIN: Duration = Duration::from_secs(40);
/// What is 0 where nothing goes on.
const BUSY: [&str; 2] = ["mantyx_bridge_runs_driven", "mantyx_bridge_calls_in_flight"];

/// Replicas, and what is around them. Fields drop in their order: the bridges before what they talk
/// to.
pub(super) struct Gateway {
    haproxy: Haproxy,
    replicas: Vec<Bridge>,
    postgres: Postgres,
    mantyx: Mantyx,
    ledger: Ledger,
    plan: Plan,
    _turn: MutexGuard<'static, ()>,
}

/// A small machine bears one gateway under load at a time.
static TURN: Mutex<()> = Mutex::const_new(());

/// Runs that were open at some moment.
struct Open {
    runs: Vec<String>,
    since: Instant,
}

/// How a replica reaches what it needs.
struct Ways {
    /// The URL of the database.
    database: String,
    env: Vec<(&'static str, String)>,
}

impl Gateway {
    async fn start(seed: u64) -> Self {
        let (mantyx, postgres) = (Mantyx::start().await, Postgres::start().await);
        let url = postgres.url();
        let ways = |_| Ways { database: url.clone(), env: Vec::new() };
        Self::with(seed, mantyx, postgres, ways).await
    }

    /// A gateway whose replicas reach the database and MANTYX as `ways` says of each.
    async fn with(
        seed: u64,
        mantyx: Mantyx,
        postgres: Postgres,
        ways: impl Fn(usize) -> Ways,
    ) -> Self {
        let turn = TURN.lock().await;
        let ledger = Ledger::new();
        let server =
            peers::with(&ledger.effects.trusted_server(), "required: true, concurrency: 32");
        let (mut replicas, mut addresses) = (Vec::new(), Vec::new());
        for index in 0..REPLICAS {
            let (ways, addr) = (ways(index), ports::free());
            let config = format!(
                "listen: {{tcp: \"{addr}\", hosts: [{HOST}]}}\n{}state: {{postgres: \"{}\"}}\n\
                 apps:\n  a: {{token: {}}}\nmcp:\n  sure: {server}\n",
                mantyx.upstream(),
                ways.database,
                token("a"),
            );
            let env: Vec<_> =
                ways.env.iter().map(|(name, value)| (*name, value.as_str())).collect();
            replicas.push(Bridge::start_with(&config, &env).await);
            addresses.push(addr);
        }
        let haproxy = Haproxy::before(&addresses).await;
        let plan = Plan { seed, at_once: false };
        let mut this = Self { haproxy, replicas, postgres, mantyx, ledger, plan, _turn: turn };
        this.follow(plan);
        this.wait_whole().await;
        this
    }

    /// From now on, runs do what `plan` says.
    fn follow(&mut self, plan: Plan) {
        self.plan = plan;
        self.mantyx.author(move |number| plan.run(number).script);
    }

    /// Waits until every replica is a member of the group and nothing else is, and haproxy asks
    /// each.
    async fn wait_whole(&self) {
        for replica in &self.replicas {
            replica.wait_ready().await;
        }
        self.wait_members("all replicas should be members", self.replicas.len()).await;
        for index in 0..self.replicas.len() {
            self.haproxy.wait_up(index).await;
        }
    }

    /// Waits until the group has so many members: the dead are none once they are taken over.
    async fn wait_members(&self, what: &str, count: usize) {
        wait::until(what, JOINED_WITHIN, async || {
            let members = "select count(*) from mantyx_bridge.replica where generation = 1";
            (self.postgres.query(members) == [count.to_string()]).then_some(())
        })
        .await;
    }

    /// Starts apps, and waits until they are in the middle of their work.
    async fn start_apps(&self) -> Apps {
        let calls = number("GATEWAY_CALLS").unwrap_or(CALLS_A_SECOND);
        let calls = u32::try_from(calls).expect("no machine bears more");
        let apps = Apps::start(self.haproxy.addr(), f64::from(calls) / f64::from(plan::CALLS));
        wait::soon("the apps' first runs should end", async || {
            let ended = |run: &String| self.mantyx.has_ended(run);
            (apps.accepted().iter().filter(|run| ended(run)).count() > REPLICAS * 3).then_some(())
        })
        .await;
        apps
    }

    /// The runs that are open now, of those that apps know of.
    fn open_runs(&self, apps: &Apps) -> Open {
        let mut runs = apps.accepted();
        runs.retain(|run| !self.mantyx.has_ended(run));
        Open { runs, since: Instant::now() }
    }

    /// Waits until they have ended; how long that took.
    async fn wait_ended(&self, what: &str, open: Open) -> Duration {
        let what = format!("after {what}, the {} open runs should end", open.runs.len());
        wait::until(&what, ENDED_WITHIN, async || {
            open.runs.iter().all(|run| self.mantyx.has_ended(run)).then_some(())
        })
        .await;
        open.since.elapsed()
    }

    /// Waits until no replica drives a run or makes a call. Runs of which no app was told are
    /// driven to their end, too.
    async fn wait_idle(&self) {
        for replica in &self.replicas {
            wait::until("its runs should end", ENDED_WITHIN, async || {
                let request = Request::new("GET", "/metrics").bearer(&token("a"));
                let metrics = request.answer(replica.addr()).await.text();
                let is_zero = |name: &&str| {
                    let mut values = metrics.lines().filter_map(|line| line.strip_prefix(name));
                    let first = values.next().expect("the bridge tells it");
                    first.ends_with(" 0.0") && values.all(|value| value.ends_with(" 0.0"))
                };
                BUSY.iter().all(is_zero).then_some(())
            })
            .await;
        }
    }

    /// Judges all that has happened since the last time.
    async fn assert_lawful(&mut self, apps: &[App], faults: usize, tally: &mut Tally) {
        self.wait_idle().await;
        let ledger = self.ledger.news();
        let ids = self.mantyx.runs().into_iter();
        let runs = ids.map(|id| OfRun::of(id, self.plan, &self.mantyx)).collect();
        let seen = Witnessed { runs, apps, ledger: &ledger, faults };
        let offences = laws::offences(&seen, tally);
        assert!(offences.is_empty(), "{} offences: {offences:#?}\n{tally}", offences.len());
        for replica in &self.replicas {
            let log = replica.log();
            let panicked = log.lines().find(|line| line.contains("panicked"));
            assert!(panicked.is_none(), "the bridge panicked: {panicked:?}");
        }
        self.mantyx.forget();
    }
}

/// So many calls the apps' runs have in a second, in the everyday test.
const CALLS_A_SECOND: u64 = 60;

/// One replica is killed and started again, another one freezes and goes on, the database restarts.
async fn cycles(count: usize, frozen_for: Duration) {
    let seed = number("CRASH_SEED").unwrap_or_else(rand::random);
    let count = number("CRASH_CYCLES").map_or(count, |n| usize::try_from(n).expect("64 bits"));
    let mut reproduce = Reproduce { seed, cycle: 0 };
    let mut gateway = Gateway::start(seed).await;
    let mut tally = Tally::default();
    for cycle in 0..count {
        reproduce.cycle = cycle;
        gateway.live_through_faults(cycle, frozen_for, &mut tally).await;
    }
    println!("{count} cycles with CRASH_SEED={seed}: {tally}");
}

impl Gateway {
    async fn live_through_faults(&mut self, cycle: usize, frozen_for: Duration, tally: &mut Tally) {
        let apps = self.start_apps().await;

        let killed = cycle % REPLICAS;
        let open = self.open_runs(&apps);
        self.replicas[killed].kill9();
        let after_kill = self.wait_ended("the kill", open).await;
        self.wait_members("the killed replica should be taken over", REPLICAS - 1).await;
        self.replicas[killed].restart().await;
        self.wait_whole().await;

        let frozen = (cycle + 1) % REPLICAS;
        let open = self.open_runs(&apps);
        let since = open.since;
        self.replicas[frozen].process().signal(Signal::STOP);
        let after_freeze = self.wait_ended("the freeze", open).await;
        self.wait_members("the frozen replica should be taken over", REPLICAS - 1).await;
        // What is tested is a process that has not run for so long.
        sleep_until(since + frozen_for).await;
        self.replicas[frozen].process().signal(Signal::CONT);
        self.wait_whole().await;

        let open = self.open_runs(&apps);
        self.postgres.stop().await;
        self.postgres.restart().await;
        let after_restart = self.wait_ended("the restart of the database", open).await;
        self.wait_whole().await;

        let apps = apps.end(ENDED_WITHIN).await;
        println!(
            "cycle {cycle}: the runs that were open ended {after_kill:?} after the kill, \
             {after_freeze:?} after the freeze, {after_restart:?} after the restart of the database"
        );
        // A repeatable call may be cut off by each.
        self.assert_lawful(&apps, 3, tally).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn apps_of_a_gateway_miss_nothing_while_it_fails_in_parts() {
    cycles(1, Duration::ZERO).await;
}

/// An upgrade: one replica after the other stops and starts again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_fails_no_request_and_leaves_no_outcome_open() {
    let seed = number("CRASH_SEED").unwrap_or_else(rand::random);
    let _reproduce = Reproduce { seed, cycle: 0 };
    let mut gateway = Gateway::start(seed).await;
    let mut tally = Tally::default();
    let apps = gateway.start_apps().await;
    for index in 0..REPLICAS {
        let replica = &mut gateway.replicas[index];
        replica.stop().await;
        gateway.haproxy.wait_down(index).await;
        gateway.replicas[index].restart().await;
        gateway.wait_whole().await;
    }
    let apps = apps.end(ENDED_WITHIN).await;
    gateway.assert_lawful(&apps, 0, &mut tally).await;
    println!("a rolling restart with CRASH_SEED={seed}: {tally}");
    assert_eq!(tally.unknown, 0, "all calls are shorter than the drain: {tally}");
    let failed: Vec<_> = apps.iter().flat_map(App::failures).collect();
    assert!(failed.is_empty(), "no connection was cut, and yet: {failed:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes hours"]
async fn gateway_200() {
    cycles(200, Duration::from_secs(30)).await;
}
