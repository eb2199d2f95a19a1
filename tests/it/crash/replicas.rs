//! Replicas that share a PostgreSQL: whatever befalls one of them, the others answer its calls, and
//! no effect happens twice.
//!
//! `CRASH_SEED` and `CRASH_CYCLES` set the seed and the number of cycles. Must not: assert on
//! anything that depends on when the fault struck.

use std::time::Duration;

use rand::{SeedableRng as _, rngs::StdRng};
use rustix::process::Signal;
use tokio::time::sleep;

use super::{
    Ledger, Reproduce, assert_lawful,
    cycle::{Call, Cycle, Server},
    gate::Gate,
    judge::Tally,
    number,
};
use crate::{bridge::Bridge, frames::Script, mantyx::Mantyx, postgres::Postgres, wait};

/// A dead replica is noticed after 10 s, and its calls are answered soon afterwards.
const ANSWERED_WITHIN: Duration = Duration::from_secs(60);
const JOINED_WITHIN: Duration = Duration::from_secs(30);

/// What befalls a replica, or the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Killed,
    /// It does not run for a while, and then goes on as if nothing had happened.
    Frozen,
    /// It is asked to stop, as for an upgrade.
    Stopped,
    DatabaseRestarts,
}

struct Group {
    replicas: Vec<Bridge>,
    mantyx: Mantyx,
    trusted: Ledger,
    untrusted: Ledger,
    postgres: Postgres,
}

impl Group {
    async fn start(count: usize) -> Self {
        let (mantyx, postgres) = (Mantyx::start().await, Postgres::start().await);
        let (trusted, untrusted) = (Ledger::new(), Ledger::new());
        let config = format!(
            "{}state: {{postgres: \"{}\"}}\nmcp:\n  sure: {}\n  plain: {}\n",
            mantyx.upstream(),
            postgres.url(),
            trusted.effects.trusted_server(),
            untrusted.effects.server()
        );
        let mut replicas = Vec::new();
        for _ in 0..count {
            replicas.push(Bridge::ready(&config).await);
        }
        let this = Self { replicas, mantyx, trusted, untrusted, postgres };
        for replica in &this.replicas {
            for server in Server::ALL {
                replica.wait_backend(server.name(), "ready").await;
            }
        }
        this.wait_joined().await;
        this
    }

    /// Waits until every replica is a member of the group, and nothing else is.
    async fn wait_joined(&self) {
        wait::until("all should be members", JOINED_WITHIN, async || {
            let members = "select count(*) from mantyx_bridge.replica where generation = 1";
            (self.postgres.query(members) == [self.replicas.len().to_string()]).then_some(())
        })
        .await;
    }

    /// Waits until no replica holds a call any more: one that it has lost would keep its permit.
    async fn wait_idle(&self) {
        for replica in &self.replicas {
            for server in Server::ALL {
                wait::until("every call should be let go of", JOINED_WITHIN, async || {
                    let backend = replica.backend(server.name()).await;
                    (backend["callsInFlight"] == 0).then_some(())
                })
                .await;
            }
        }
    }

    /// Starts the runs of `cycle`, has one replica meet `fault`, waits until all is answered and
    /// judges what has happened.
    async fn live_through(&mut self, cycle: &Cycle, fault: Fault, at: usize, tally: &mut Tally) {
        let mut runs = Vec::new();
        for (index, run) in cycle.runs.iter().enumerate() {
            for call in &run.calls {
                self.mantyx.replies(&call.id, call.replies.iter().copied());
            }
            self.mantyx.script(run.script());
            // Together, two runs have more calls than the servers take at once: some wait for a
            // permit.
            let apart = if fault == Fault::Frozen { 0 } else { index };
            let to = &self.replicas[(at + apart) % self.replicas.len()];
            runs.push(to.post_run(r#"{"modelId":"m","prompt":"hi"}"#).await.run_id);
        }
        sleep(cycle.kill_after).await;
        let replica = &mut self.replicas[at];
        match fault {
            Fault::Killed => {
                replica.kill9();
                replica.wait_childless().await;
            }
            Fault::Frozen => replica.process().signal(Signal::STOP),
            Fault::Stopped => replica.stop().await,
            Fault::DatabaseRestarts => {
                self.postgres.stop().await;
                self.postgres.restart().await;
            }
        }
        let calls: Vec<&Call> = cycle.runs.iter().flat_map(|run| &run.calls).collect();
        let what = format!("all should be answered and every run at its end: {cycle:#?}");
        wait::until(&what, ANSWERED_WITHIN, async || {
            let answered = calls.iter().all(|call| self.mantyx.is_answered(&call.id));
            (answered && runs.iter().all(|run| self.mantyx.has_ended(run))).then_some(())
        })
        .await;
        let replica = &mut self.replicas[at];
        match fault {
            Fault::Killed | Fault::Stopped => replica.restart().await,
            Fault::Frozen => replica.process().signal(Signal::CONT),
            Fault::DatabaseRestarts => {}
        }
        self.wait_joined().await;
        for server in Server::ALL {
            self.replicas[at].wait_backend(server.name(), "ready").await;
        }
        self.wait_idle().await;
        let ledgers = [&mut self.trusted, &mut self.untrusted];
        assert_lawful(cycle, ledgers, &self.mantyx, tally);
    }
}

async fn cycles(fault: Fault, count: usize) {
    let seed = number("CRASH_SEED").unwrap_or_else(rand::random);
    let count = number("CRASH_CYCLES").map_or(count, |n| usize::try_from(n).expect("64 bits"));
    let mut reproduce = Reproduce { seed, cycle: 0 };
    let mut group = Group::start(2).await;
    let mut tally = Tally::default();
    for index in 0..count {
        reproduce.cycle = index;
        let mut rng = StdRng::seed_from_u64(seed.wrapping_add(index as u64));
        let cycle = Cycle { kill_again_after: None, ..Cycle::draw(index, &mut rng) };
        group.live_through(&cycle, fault, index % 2, &mut tally).await;
    }
    for replica in &group.replicas {
        let panicked = replica.log().lines().any(|line| line.contains("panicked"));
        assert!(!panicked, "the bridge panicked: {}", replica.log());
    }
    println!("{count} times {fault:?} with CRASH_SEED={seed}: {tally}");
}

#[tokio::test]
async fn a_killed_replica_is_taken_over() {
    cycles(Fault::Killed, 2).await;
}

#[tokio::test]
async fn a_frozen_replica_is_taken_over_and_joins_anew() {
    cycles(Fault::Frozen, 2).await;
}

/// What a run's end removes waits at the gate, with all that it has locked.
const REMOVED_CALLS: &str = "
    create constraint trigger gate after delete on mantyx_bridge.record
        deferrable initially deferred
        for each row when (old.kind = 'call') execute function mantyx_bridge.gate()";

/// A replica that thaws brings an answer at the very moment at which the other one, which has
/// answered the call, removes it: the answer must not pass for the call's first. (It is posted if
/// this replica has not yet heard that the run has ended.)
#[tokio::test]
async fn late_answer_of_a_call_that_is_being_removed_is_not_kept() {
    let mut group = Group::start(2).await;
    Gate::build(&group.postgres, REMOVED_CALLS);
    let called = Script::new().mcp("tu_late", "plain", "plain_destructive", r#"{"ms":200}"#);
    group.mantyx.script(called.answered("tu_late").done());
    group.replicas[0].post_run(r#"{"modelId":"m","prompt":"hi"}"#).await;
    group.untrusted.effects.wait_begun("tu_late", 1).await;
    group.replicas[0].process().signal(Signal::STOP);
    let gate = Gate::shut(&group.postgres).await;
    wait::until("the other replica should answer", ANSWERED_WITHIN, async || {
        group.mantyx.is_answered("tu_late").then_some(())
    })
    .await;
    gate.wait_waiting().await;
    group.replicas[0].process().signal(Signal::CONT);
    wait::soon("the late answer should wait for the removal", async || {
        let waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'";
        (group.postgres.query(waiting) == ["2"]).then_some(())
    })
    .await;
    gate.open();
    group.wait_joined().await;
    group.wait_idle().await;
    let answers = "select count(*) from mantyx_bridge.record where kind = 'answer'";
    assert_eq!(group.postgres.query(answers), ["0"], "the late one should not be kept");
    let deliveries = group.mantyx.deliveries("tu_late");
    assert_eq!(deliveries.len(), 1, "MANTYX should get one answer: {deliveries:#?}");
}

#[tokio::test]
async fn a_stopped_replica_hands_its_runs_over() {
    cycles(Fault::Stopped, 3).await;
}

#[tokio::test]
async fn a_database_that_restarts_costs_no_call() {
    cycles(Fault::DatabaseRestarts, 3).await;
}

#[tokio::test]
#[ignore = "takes hours"]
async fn replicas_200() {
    for fault in [Fault::Killed, Fault::Frozen, Fault::Stopped, Fault::DatabaseRestarts] {
        cycles(fault, 200).await;
    }
}
