//! What the runs of the apps ask for: drawn from a seed, so that the test and the scripted MANTYX
//! know the same of each.
//!
//! Must not: do any of it.

use rand::{Rng as _, SeedableRng as _, rngs::StdRng, seq::IndexedRandom as _};

use crate::{effects::Kind, frames::Script};

/// All runs of a test.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    pub(super) seed: u64,
    /// Whether a run has all of its calls at once, when [`GO`] is released, and the first of them
    /// may be made once only.
    pub(super) at_once: bool,
}

pub(super) const GO: &str = "go";

#[derive(Debug)]
pub(super) struct Call {
    pub(super) id: String,
    /// What it is for, which stands in its arguments. The server's ledger has it, whatever id the
    /// call is made under.
    pub(super) intent: String,
    pub(super) kind: Kind,
    takes_ms: u64,
    /// The `seq` of its event.
    pub(super) seq: u64,
}

#[derive(Debug)]
pub(super) struct Run {
    pub(super) script: Script,
    pub(super) calls: Vec<Call>,
}

/// How many calls a run has on average.
pub(super) const CALLS: u32 = 6;

impl Plan {
    /// What the run `run_N` is to do, given N.
    pub(super) fn run(self, number: usize) -> Run {
        if self.at_once { Self::run_at_once(number) } else { self.run_in_rounds(number) }
    }

    fn run_at_once(number: usize) -> Run {
        let mut script = Script::new().delta("hm").until(GO);
        let mut calls = Vec::new();
        for kind in [Kind::Destructive, Kind::Unsaid, Kind::Additive, Kind::Read] {
            let call = Call::new(&format!("{number}_{}", calls.len()), kind, 0, &script);
            script = call.asked_in(script);
            calls.push(call);
        }
        let script = calls.iter().fold(script, |script, call| script.answered(&call.id)).done();
        Run { script, calls }
    }

    /// One or two calls at once, and the next when both are answered.
    fn run_in_rounds(self, number: usize) -> Run {
        let mut rng = StdRng::seed_from_u64(self.seed.wrapping_add(number as u64));
        let (mut script, mut calls) = (Script::new().delta("hm"), Vec::new());
        for round in 0..4 {
            let first = calls.len();
            for at in 0..rng.random_range(1..=2) {
                let kind = *Kind::ALL.choose(&mut rng).expect("there are five");
                let takes_ms = rng.random_range(0..300);
                let call = Call::new(&format!("{number}_{round}_{at}"), kind, takes_ms, &script);
                script = call.asked_in(script);
                calls.push(call);
            }
            let asked = calls.get(first..).unwrap_or_default();
            script = asked.iter().fold(script, |script, call| script.answered(&call.id));
            script = script.delta("on");
        }
        Run { script: script.done(), calls }
    }
}

impl Call {
    /// Whether it may be made twice.
    pub(super) fn is_repeatable(&self) -> bool {
        self.kind.is_harmless()
    }

    /// The call that comes next in `script`.
    fn new(name: &str, kind: Kind, takes_ms: u64, script: &Script) -> Self {
        let (id, intent) = (format!("tu_{name}"), format!("in_{name}"));
        Self { id, intent, kind, takes_ms, seq: script.last_seq() + 1 }
    }

    fn asked_in(&self, script: Script) -> Script {
        let arguments = format!(r#"{{"ms":{},"intent":"{}"}}"#, self.takes_ms, self.intent);
        script.mcp(&self.id, "sure", &format!("sure_{}", self.kind.tool()), &arguments)
    }
}

/// The N of `run_N`.
pub(super) fn number_of(run: &str) -> usize {
    run.strip_prefix("run_").and_then(|number| number.parse().ok()).expect("an id of ours")
}
