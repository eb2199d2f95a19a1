//! A replica that is cut off from the database, from MANTYX, or from both, and then no more: what
//! it has sent meanwhile arrives then.
//!
//! Must not: assert on anything that depends on when the cut struck.

use std::time::Duration;

use tokio::time::sleep_until;

use super::{ENDED_WITHIN, Gateway, REPLICAS, Reproduce, Tally, Ways, number};
use crate::{
    mantyx::Mantyx,
    peers,
    postgres::{Postgres, url_at},
    relay::Relay,
};

/// For so long: survivors have taken over by then, and MANTYX waits still.
const CUT: Duration = Duration::from_secs(15);
/// The replica that is cut off.
const ALONE: usize = 1;

/// What the replica is cut off from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum From {
    Database,
    Mantyx,
    Both,
}

async fn cycles(from: From, count: usize) {
    let seed = number("CRASH_SEED").unwrap_or_else(rand::random);
    let count = number("CRASH_CYCLES").map_or(count, |n| usize::try_from(n).expect("64 bits"));
    let mut reproduce = Reproduce { seed, cycle: 0 };
    let (mantyx, postgres) = (Mantyx::start().await, Postgres::start().await);
    let to_database = Relay::to(postgres.addr()).await;
    let to_mantyx = Relay::to(mantyx.addr()).await;
    let url = postgres.url();
    // All replicas of a group know MANTYX under one name.
    let env = vec![
        ("LD_PRELOAD", peers::wires().display().to_string()),
        ("WIRE_FROM", mantyx.addr().port().to_string()),
        ("WIRE_TO", to_mantyx.addr().port().to_string()),
    ];
    let ways = |index| match index {
        ALONE => Ways { database: url_at(to_database.addr()), env: env.clone() },
        _ => Ways { database: url.clone(), env: Vec::new() },
    };
    let mut gateway = Gateway::with(seed, mantyx, postgres, ways).await;
    let mut tally = Tally::default();
    for cycle in 0..count {
        reproduce.cycle = cycle;
        let apps = gateway.start_apps().await;
        let open = gateway.open_runs(&apps);
        let end = open.since + CUT;
        let took = if from == From::Mantyx {
            to_mantyx.cut();
            sleep_until(end).await;
            to_mantyx.restore();
            gateway.wait_ended("the cut", open).await
        } else {
            to_database.cut();
            if from == From::Both {
                to_mantyx.cut();
            }
            let took = gateway.wait_ended("the cut", open).await;
            gateway.wait_members("the one should be taken over", REPLICAS - 1).await;
            sleep_until(end).await;
            to_database.restore();
            to_mantyx.restore();
            took
        };
        gateway.wait_whole().await;
        let apps = apps.end(ENDED_WITHIN).await;
        println!(
            "cycle {cycle}: the runs that were open ended {took:?} after the cut from {from:?}"
        );
        gateway.assert_lawful(&apps, 1, &mut tally).await;
    }
    println!("cut off from {from:?} {count} times with CRASH_SEED={seed}: {tally}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_is_cut_off_from_the_database_is_taken_over() {
    cycles(From::Database, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "half a minute; cut_off_200 has it, too"]
async fn a_replica_that_is_cut_off_from_mantyx_answers_later() {
    cycles(From::Mantyx, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "half a minute; cut_off_200 has it, too"]
async fn a_replica_that_is_cut_off_from_all_is_taken_over() {
    cycles(From::Both, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes hours"]
async fn cut_off_200() {
    for from in [From::Database, From::Mantyx, From::Both] {
        cycles(from, 200).await;
    }
}
