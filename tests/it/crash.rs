//! The bridge is killed at random moments, again and again, and what really happened is compared
//! with what MANTYX was told: no effect twice, no call without its one answer.
//!
//! `CRASH_SEED` and `CRASH_CYCLES` set the seed and the number of cycles; a failure prints both
//! seed and cycle. Must not: assert on anything that depends on when the kill struck.

mod cycle;
mod gate;
mod gateway;
mod judge;
mod replicas;

use std::time::Duration;

use rand::{SeedableRng as _, rngs::StdRng};
use tokio::time::{Instant, sleep};

use self::{
    cycle::{Call, Cycle, Server},
    judge::{Tally, Witnessed},
};
use crate::{
    bridge::Bridge,
    effects::{Effects, Entry},
    mantyx::Mantyx,
    wait,
};

/// All calls of a cycle are answered so long after the last start; the slowest takes 0.4 s, and not
/// all can run at once.
const ANSWERED_WITHIN: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_bridge_that_is_killed_repeats_no_effect_and_leaves_no_call_unanswered() {
    crash_loop(15).await;
}

#[tokio::test]
#[ignore = "takes half an hour"]
async fn crash_loop_1000() {
    crash_loop(1000).await;
}

/// Says at a failure how to see it again.
pub(crate) struct Reproduce {
    pub(crate) seed: u64,
    pub(crate) cycle: usize,
}

impl Drop for Reproduce {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed in cycle {} with CRASH_SEED={}", self.cycle, self.seed);
        }
    }
}

pub(crate) fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number")))
}

async fn crash_loop(cycles: usize) {
    let seed = number("CRASH_SEED").unwrap_or_else(rand::random);
    let cycles = number("CRASH_CYCLES").map_or(cycles, |n| usize::try_from(n).expect("64 bits"));
    let mut reproduce = Reproduce { seed, cycle: 0 };
    let mut rig = Harness::start().await;
    let mut tally = Tally::default();
    for cycle in 0..cycles {
        reproduce.cycle = cycle;
        // Of its own seed, so that what a cycle does hangs on no cycle before.
        let mut rng = StdRng::seed_from_u64(seed.wrapping_add(cycle as u64));
        let cycle = Cycle::draw(cycle, &mut rng);
        rig.live_through(&cycle, &mut tally).await;
    }
    let panicked = rig.bridge.log().lines().any(|line| line.contains("panicked"));
    assert!(!panicked, "the bridge panicked: {}", rig.bridge.log());
    println!("{cycles} cycles with CRASH_SEED={seed}: {tally}");
}

/// Asserts that what the ledgers and MANTYX have seen of `cycle` is what the judge allows.
fn assert_lawful(cycle: &Cycle, ledgers: [&mut Ledger; 2], mantyx: &Mantyx, tally: &mut Tally) {
    let ledger = ledgers.into_iter().flat_map(Ledger::news).collect();
    let calls = cycle.runs.iter().flat_map(|run| &run.calls);
    let deliveries = calls.map(|call| (call.id.clone(), mantyx.deliveries(&call.id))).collect();
    let witnessed = Witnessed { ledger, deliveries };
    let violations = judge::judge(cycle, &witnessed, tally);
    assert!(violations.is_empty(), "{violations:#?}\nin {cycle:#?}\nledger {witnessed:#?}");
    mantyx.forget_requests();
}

/// A bridge with one server that is trusted and one that is not, whose effects are written down.
struct Harness {
    bridge: Bridge,
    mantyx: Mantyx,
    trusted: Ledger,
    untrusted: Ledger,
}

/// A ledger, of which the lines of earlier cycles have been read.
struct Ledger {
    effects: Effects,
    read: usize,
}

impl Ledger {
    fn new() -> Self {
        Self { effects: Effects::new(), read: 0 }
    }

    /// The lines that came since the last time.
    fn news(&mut self) -> Vec<Entry> {
        let mut entries = self.effects.entries();
        let news = entries.split_off(self.read);
        self.read += news.len();
        news
    }
}

impl Harness {
    async fn start() -> Self {
        let (mantyx, trusted, untrusted) = (Mantyx::start().await, Ledger::new(), Ledger::new());
        let sure = trusted.effects.trusted_server();
        let plain = untrusted.effects.server();
        let config = format!("{}mcp:\n  sure: {sure}\n  plain: {plain}\n", mantyx.upstream());
        let bridge = Bridge::ready(&config).await;
        for server in Server::ALL {
            bridge.wait_backend(server.name(), "ready").await;
        }
        Self { bridge, mantyx, trusted, untrusted }
    }

    /// Starts the runs of `cycle`, kills the bridge, starts it again, waits until all is answered
    /// and judges what has happened.
    async fn live_through(&mut self, cycle: &Cycle, tally: &mut Tally) {
        let mut runs = Vec::new();
        for run in &cycle.runs {
            for call in &run.calls {
                self.mantyx.replies(&call.id, call.replies.iter().copied());
            }
            self.mantyx.script(run.script());
            runs.push(self.bridge.post_run(r#"{"modelId":"m","prompt":"hi"}"#).await.run_id);
        }
        sleep(cycle.kill_after).await;
        self.kill().await;
        if let Some(soon) = cycle.kill_again_after {
            self.bridge.spawn();
            sleep(soon).await;
            self.kill().await;
        }
        let calls: Vec<&Call> = cycle.runs.iter().flat_map(|run| &run.calls).collect();
        let open_at_kill: Vec<_> =
            calls.iter().filter(|call| !self.mantyx.is_answered(&call.id)).collect();
        let restarted = Instant::now();
        self.bridge.restart().await;
        let what = format!("all should be answered and every run at its end: {cycle:#?}");
        wait::until(&what, ANSWERED_WITHIN, async || {
            let answered = calls.iter().all(|call| self.mantyx.is_answered(&call.id));
            (answered && runs.iter().all(|run| self.mantyx.has_ended(run))).then_some(())
        })
        .await;
        if !open_at_kill.is_empty() {
            let resumed = runs.iter().filter_map(|run| self.mantyx.first_request(run, restarted));
            tally.resumed.extend(resumed.min().map(|at| at - restarted));
        }
        for call in open_at_kill {
            let deliveries = self.mantyx.deliveries(&call.id);
            let accepted = deliveries.iter().find(|delivery| delivery.accepted);
            tally.answered.extend(accepted.map(|delivery| delivery.at - restarted));
        }
        let ledgers = [&mut self.trusted, &mut self.untrusted];
        assert_lawful(cycle, ledgers, &self.mantyx, tally);
    }

    async fn kill(&mut self) {
        self.bridge.kill9();
        self.bridge.wait_childless().await;
    }
}
