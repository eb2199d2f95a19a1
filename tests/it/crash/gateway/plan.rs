//! What the runs of the apps ask for: drawn from a seed, so that the test and the scripted MANTYX know
//! the same of each.
//!
//! Must not: do any of it.

use rand::{Rng as _, SeedableRng as _, rngs::StdRng, seq::IndexedRandom as _};

use crate::{effects::Kind, frames::Script};

/// All runs of a test.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    pub(super) seed: u64,
}

#[derive(Debug)]
pub(super) struct Call {
    pub(super) id: String,
    /// What it is for, which stands in its arguments. The server's ledger has it, whatever id the call
    /// is made under.
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
    /// What the run `run_N` is to do, given N: one or two calls at once, and the next when both are
    /// answered.
    pub(super) fn run(self, number: usize) -> Run {
        let mut rng = StdRng::seed_from_u64(self.seed.wrapping_add(number as u64));
        let (mut script, mut calls) = (Script::new().delta("hm"), Vec::new());
        for round in 0..4 {
            let first = calls.len();
            for at in 0..rng.random_range(1..=2) {
                let call = Call {
                    id: format!("tu_{number}_{round}_{at}"),
                    intent: format!("in_{number}_{round}_{at}"),
                    kind: *Kind::ALL.choose(&mut rng).expect("there are five"),
                    takes_ms: rng.random_range(0..300),
                    seq: script.last_seq() + 1,
                };
                script = script.mcp(&call.id, "sure", &call.tool(), &call.arguments());
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

    fn tool(&self) -> String {
        format!("sure_{}", self.kind.tool())
    }

    fn arguments(&self) -> String {
        format!(r#"{{"ms":{},"intent":"{}"}}"#, self.takes_ms, self.intent)
    }
}

/// The N of `run_N`.
pub(super) fn number_of(run: &str) -> usize {
    run.strip_prefix("run_").and_then(|number| number.parse().ok()).expect("an id of ours")
}
