//! Turns between apps, in orders that a seed decides: calls come, hold their permits, and give up.
//!
//! The laws: a waiting call that is the only one of its app is passed by at most one call of each
//! other app; an app's own calls keep their order; no more calls run at once than may; and at the
//! end all permits are free. `SIMULATION_SEEDS=10000` tries that many seeds.

use std::env;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::runtime::Builder;
use tokio::task::JoinSet;

use super::*;

const APPS: usize = 4;
const CALLS: u64 = 60;
/// The seeds of an everyday run.
const SEEDS: u64 = 200;

/// A call that waits.
#[derive(Debug)]
struct Queued {
    call: u64,
    app: usize,
    /// No other call of its app waited when it came.
    is_alone: bool,
    /// How many calls of each app have got permits since.
    passed_by: [usize; APPS],
}

#[derive(Debug, Default)]
struct Ledger {
    waiting: Vec<Queued>,
    running: usize,
    broken: Option<String>,
}

/// What one call does, in steps of a time that no other call uses: what one of them causes is over
/// before the next one acts.
#[derive(Debug, Clone, Copy)]
struct Plan {
    call: u64,
    app: usize,
    comes: u64,
    patience: u64,
    holds: u64,
}

impl Plan {
    fn new(call: u64, rng: &mut StdRng) -> Self {
        Self {
            call,
            app: rng.random_range(0..APPS),
            comes: rng.random_range(0..100),
            patience: rng.random_range(1..200),
            holds: rng.random_range(1..40),
        }
    }

    /// The moment of its own, so many steps after `step`.
    fn moment(&self, begun: Instant, step: u64) -> Instant {
        begun + Duration::from_millis(step * CALLS + self.call)
    }
}

impl Ledger {
    fn comes(&mut self, plan: Plan) {
        let is_alone = self.waiting.iter().all(|queued| queued.app != plan.app);
        let Plan { call, app, .. } = plan;
        self.waiting.push(Queued { call, app, is_alone, passed_by: [0; APPS] });
    }

    fn leaves(&mut self, plan: Plan) {
        self.waiting.retain(|queued| queued.call != plan.call);
    }

    fn gets_permit(&mut self, plan: Plan, at_once: usize) {
        let place = self.waiting.iter().position(|queued| queued.call == plan.call);
        let place = place.expect("the call waits");
        let queued = self.waiting.remove(place);
        if let Some(earlier) = self.waiting[..place].iter().find(|it| it.app == plan.app) {
            self.breaks(format!("call {} came before {}", earlier.call, queued.call));
        }
        let passed_by = queued.passed_by.iter().enumerate();
        let mut others = passed_by.filter(|(app, _)| *app != plan.app).map(|(_, count)| *count);
        if queued.is_alone && others.any(|count| count > 1) {
            self.breaks(format!(
                "call {} of {} waited for {:?}",
                plan.call, plan.app, queued.passed_by
            ));
        }
        for other in &mut self.waiting {
            other.passed_by[plan.app] += 1;
        }
        self.running += 1;
        if self.running > at_once {
            self.breaks(format!("{} calls run at once, and not {at_once}", self.running));
        }
    }

    fn breaks(&mut self, what: String) {
        self.broken.get_or_insert(what);
    }
}

/// Has a call come, wait, and hold its permit.
async fn live(queue: AdmissionQueue, ledger: Arc<Mutex<Ledger>>, plan: Plan, at_once: usize) {
    let begun = Instant::now();
    sleep_until(plan.moment(begun, plan.comes)).await;
    ledger.lock().comes(plan);
    let app = AppName::from(format!("app_{}", plan.app).as_str());
    let by = plan.moment(begun, plan.comes + plan.patience);
    let Ok(_permit) = queue.acquire_unbounded(&app, by).await else {
        return ledger.lock().leaves(plan);
    };
    ledger.lock().gets_permit(plan, at_once);
    let step = u64::try_from(begun.elapsed().as_millis()).expect("not that long") / CALLS;
    sleep_until(plan.moment(begun, step + plan.holds)).await;
    ledger.lock().running -= 1;
}

/// What the seed breaks.
fn outcome(seed: u64) -> Option<String> {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime can be built").block_on(async {
        let mut rng = StdRng::seed_from_u64(seed);
        let at_once = rng.random_range(1..4);
        let (queue, ledger) = (AdmissionQueue::new(at_once), Arc::<Mutex<Ledger>>::default());
        let mut calls = JoinSet::new();
        for call in 0..CALLS {
            let plan = Plan::new(call, &mut rng);
            calls.spawn(live(queue.clone(), Arc::clone(&ledger), plan, at_once));
        }
        calls.join_all().await;
        let state = queue.0.lock();
        let mut ledger = ledger.lock();
        if state.free != at_once || !state.waiting.is_empty() || !state.apps.is_empty() {
            ledger.breaks(format!("at the end: {state:?}"));
        }
        ledger.broken.take()
    })
}

#[test]
fn turns_hold_the_laws() {
    let count = env::var("SIMULATION_SEEDS").ok().and_then(|count| count.parse().ok());
    for seed in 0..count.unwrap_or(SEEDS) {
        if let Some(what) = outcome(seed) {
            panic!("seed {seed} breaks the laws:\n  {what}");
        }
    }
}
