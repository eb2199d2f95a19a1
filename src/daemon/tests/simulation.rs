//! The whole daemon in one thread, in a world where chance decides: MANTYX, peers, apps, the
//! operator and the disk do what a seed says, faults and crashes included. The daemon runs as it
//! is; time is paused, so that hours take milliseconds. `laws` says what must hold whatever
//! happens.
//!
//! A seed that breaks a law is shown with a shortened list of its steps. `SIMULATION_SEED=7` runs
//! one seed again, `SIMULATION_SEEDS=10000` that many, from that one on.
//!
//! docs/design/simulation.md says what it is not, and how it came about.

mod apps;
mod disk;
mod laws;
mod life;
mod mantyx;
mod operator;
mod peers;
mod replicas;
mod tape;
mod troubles;
mod world;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{env, panic, thread};

use self::life::live;
use self::replicas::live_together;
use self::world::Plan;

/// The seeds of an everyday run: of one daemon, and of two that share a database.
const SEEDS: u64 = 200;
const TOGETHER: u64 = 40;

/// How a plan is lived through.
type Live = fn(Plan) -> Outcome;

/// What a seed has shown.
#[derive(Debug, Default, Clone)]
pub(super) struct Outcome {
    /// The laws that were broken, in words.
    broken: Vec<String>,
    /// What happened, a line for each step.
    trace: Vec<String>,
    /// How many faults and acts there were, and how often the process began.
    faults: usize,
    acts: usize,
    lives: usize,
    calls: usize,
    effects: usize,
}

/// Lives through `plan`; a panic of the daemon's breaks a law, too.
fn outcome(live: Live, plan: Plan) -> Outcome {
    panic::catch_unwind(|| live(plan)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let broken = vec![format!("a panic: {}", text.unwrap_or_default())];
        Outcome { broken, ..Outcome::default() }
    })
}

/// The smallest plan with the seed of `plan` that still breaks a law, by halving what may happen.
fn shortened(live: Live, plan: Plan, whole: &Outcome) -> (Plan, Outcome) {
    let mut best = (plan, whole.clone());
    type Limit = fn(&mut Plan, usize);
    let set: [(Limit, usize); 3] = [
        (|plan, most| plan.lives = most, whole.lives),
        (|plan, most| plan.acts = most, whole.acts),
        (|plan, most| plan.faults = most, whole.faults),
    ];
    for (set, most) in set {
        let (mut fails, mut holds) = (most, 0);
        while fails > holds + 1 {
            let middle = holds.midpoint(fails);
            let mut plan = best.0;
            set(&mut plan, middle);
            let outcome = outcome(live, plan);
            if outcome.broken.is_empty() {
                holds = middle;
            } else {
                (fails, best) = (middle, (plan, outcome));
            }
        }
    }
    best
}

/// Runs `count` seeds from `first` on, on two threads; panics with the first one that breaks a law.
fn run(live: Live, first: u64, count: u64) {
    let next = AtomicU64::new(first);
    let failed = Mutex::new(None::<(Plan, Outcome)>);
    let total = Mutex::new(Outcome::default());
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count || failed.lock().unwrap().is_some() {
                        return;
                    }
                    let plan = Plan::from_seed(seed);
                    let seen = outcome(live, plan);
                    if seen.broken.is_empty() {
                        let mut total = total.lock().unwrap();
                        total.lives += seen.lives;
                        total.faults += seen.faults;
                        total.acts += seen.acts;
                        total.calls += seen.calls;
                        total.effects += seen.effects;
                    } else {
                        failed.lock().unwrap().get_or_insert((plan, seen));
                    }
                }
            });
        }
    });
    if let Some((plan, whole)) = failed.into_inner().unwrap() {
        let (plan, short) = match env::var_os("SIMULATION_WHOLE") {
            Some(_) => (plan, whole),
            None => shortened(live, plan, &whole),
        };
        panic!(
            "seed {} breaks the laws:\n  {}\n{plan:?}\n{}\n",
            plan.seed,
            short.broken.join("\n  "),
            short.trace.join("\n")
        );
    }
    let Outcome { faults, acts, lives, calls, effects, .. } = total.into_inner().unwrap();
    println!(
        "{count} seeds: {lives} lives, {acts} acts, {faults} faults, {calls} calls, {effects} effects"
    );
    assert!(count < TOGETHER || (calls > 0 && effects > 0), "the simulation does something");
}

fn number(name: &str) -> Option<u64> {
    env::var(name).ok()?.parse().ok()
}

#[test]
fn seeds_hold_the_laws() {
    run_all(live, SEEDS);
}

#[test]
fn replicas_hold_the_laws() {
    run_all(live_together, TOGETHER);
}

fn run_all(live: Live, everyday: u64) {
    match number("SIMULATION_SEED") {
        Some(seed) => run(live, seed, number("SIMULATION_SEEDS").unwrap_or(1)),
        None => run(live, 0, number("SIMULATION_SEEDS").unwrap_or(everyday)),
    }
}

/// Without this, a seed would not bring its failure back.
#[test]
fn the_same_seed_has_the_same_trace() {
    have_the_same_trace(live);
}

#[test]
fn the_same_seed_of_replicas_has_the_same_trace() {
    have_the_same_trace(live_together);
}

fn have_the_same_trace(live: Live) {
    for seed in 1_000_000..1_000_000 + number("SIMULATION_SEEDS").unwrap_or(5) {
        let plan = Plan::from_seed(seed);
        let (one, two) = (outcome(live, plan), outcome(live, plan));
        let same = one.trace.iter().zip(&two.trace).take_while(|(a, b)| a == b).count();
        let around = |trace: &[String]| {
            trace[same.saturating_sub(3)..].iter().take(6).cloned().collect::<Vec<_>>().join("\n")
        };
        assert!(
            one.trace == two.trace,
            "seed {seed} differs from step {same} on:\n{}\n--- and\n{}",
            around(&one.trace),
            around(&two.trace)
        );
    }
}
