//! A replica that freezes between the commit of a dispatch and the first byte to the tool. A
//! trigger in the database makes the commit wait until the replica is about to be frozen; the
//! program has no part in it.
//!
//! Must not: take it for granted that the freeze struck there; the answers tell.

use std::time::Duration;

use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use rustix::process::Signal;
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{ENDED_WITHIN, Gateway, Plan, REPLICAS, Reproduce, Tally, apps, number, plan::GO};
use crate::{crash::gate::Gate, wait};

/// Dispatches wait while the gate is shut.
const TRIGGER: &str = "
    create trigger gate before insert or update on mantyx_bridge.record
        for each row when (new.dispatches) execute function mantyx_bridge.gate()";

/// Freezes a replica so many microseconds after its dispatch can be committed; 0: before that.
async fn freeze(gateway: &mut Gateway, frozen: usize, after: u64, tally: &mut Tally) {
    let (replica, behind) = (gateway.replicas[frozen].addr(), gateway.haproxy.addr());
    let mut app = JoinSet::new();
    app.spawn(apps::one(replica, behind));
    wait::soon("the run should be driven", async || {
        let run = gateway.mantyx.runs().pop()?;
        gateway.mantyx.sent_at(&run, 1)
    })
    .await;
    let gate = Gate::shut(&gateway.postgres).await;
    gateway.mantyx.release(GO);
    gate.wait_waiting().await;
    if after == 0 {
        gateway.replicas[frozen].process().signal(Signal::STOP);
        gate.open();
    } else {
        gate.open();
        // The moment is what is looked for.
        sleep(Duration::from_micros(after)).await;
        gateway.replicas[frozen].process().signal(Signal::STOP);
    }
    gateway.wait_members("the frozen replica should be taken over", REPLICAS - 1).await;
    let app = timeout(ENDED_WITHIN, app.join_next()).await.expect("the app's run should end");
    let app = app.expect("there is an app").expect("an app does not panic");
    gateway.replicas[frozen].process().signal(Signal::CONT);
    gateway.wait_whole().await;
    // What it would still send, it sends before it is idle.
    gateway.assert_lawful(&[app], 1, tally).await;
}

async fn start(seed: u64) -> Gateway {
    let mut gateway = Gateway::start(seed).await;
    gateway.follow(Plan { seed, at_once: true });
    Gate::build(&gateway.postgres, TRIGGER);
    gateway
}

/// A lease that ran out while the replica was frozen lets nothing through, although the dispatch is
/// durable.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_freezes_after_the_commit_sends_nothing_when_it_goes_on() {
    let (mut gateway, mut tally) = (start(0).await, Tally::default());
    freeze(&mut gateway, 0, 0, &mut tally).await;
    println!("frozen between commit and call: {tally}");
    assert!(tally.unknown > 0, "the dispatch should have been durable: {tally}");
    assert_eq!(tally.needless, tally.unknown, "nothing should have been sent: {tally}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes an hour"]
async fn between_200() {
    let seed = number("CRASH_SEED").unwrap_or_else(rand::random);
    let count = number("CRASH_CYCLES").unwrap_or(200);
    let mut reproduce = Reproduce { seed, cycle: 0 };
    let (mut gateway, mut tally) = (start(seed).await, Tally::default());
    for cycle in 0..usize::try_from(count).expect("64 bits") {
        reproduce.cycle = cycle;
        let mut rng = StdRng::seed_from_u64(seed.wrapping_add(cycle as u64));
        // Beside the moment itself, those around it.
        let after = if rng.random_bool(0.3) { 0 } else { rng.random_range(1..20_000) };
        freeze(&mut gateway, cycle % REPLICAS, after, &mut tally).await;
    }
    println!("{count} times frozen about a commit with CRASH_SEED={seed}: {tally}");
}
