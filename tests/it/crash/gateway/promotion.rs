//! The database's server dies, and its synchronous standby takes its place.
//!
//! Must not: assert on anything that depends on when the server died.

use std::mem::replace;

use super::{ENDED_WITHIN, Gateway, Reproduce, Tally, Ways, number};
use crate::{
    mantyx::Mantyx,
    postgres::{Postgres, url_at},
    relay::Relay,
};

async fn cycles(count: usize) {
    let seed = number("CRASH_SEED").unwrap_or_else(rand::random);
    let count = number("CRASH_CYCLES").map_or(count, |n| usize::try_from(n).expect("64 bits"));
    let mut reproduce = Reproduce { seed, cycle: 0 };
    let (mantyx, postgres) = (Mantyx::start().await, Postgres::start().await);
    // As a name would, or an address that moves.
    let to_database = Relay::to(postgres.addr()).await;
    let ways = |_| Ways { database: url_at(to_database.addr()), env: Vec::new() };
    let mut gateway = Gateway::with(seed, mantyx, postgres, ways).await;
    let mut tally = Tally::default();
    for cycle in 0..count {
        reproduce.cycle = cycle;
        let standby = gateway.postgres.standby().await;
        let apps = gateway.start_apps().await;
        let open = gateway.open_runs(&apps);
        let mut primary = replace(&mut gateway.postgres, standby);
        primary.kill9();
        // For a moment, they find a server that only reads.
        to_database.lead_to(gateway.postgres.addr());
        gateway.postgres.promote();
        let took = gateway.wait_ended("the promotion", open).await;
        gateway.wait_whole().await;
        let apps = apps.end(ENDED_WITHIN).await;
        println!("cycle {cycle}: the runs that were open ended {took:?} after the primary's death");
        gateway.assert_lawful(&apps, 1, &mut tally).await;
    }
    println!("{count} promotions with CRASH_SEED={seed}: {tally}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_effect_is_doubled_over_a_promotion() {
    cycles(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes hours"]
async fn promotion_200() {
    cycles(200).await;
}
