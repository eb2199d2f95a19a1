//! What one cycle of the crash loop does, drawn from a seed.
//!
//! Must not: do any of it.

use std::{collections::VecDeque, time::Duration};

use rand::{Rng, rngs::StdRng, seq::IndexedRandom as _};

use crate::{effects::Kind, frames::Script, mantyx::Reply};

/// Calls in a run: more than the lanes of both servers hold at once.
const CALLS: usize = 8;

/// The two servers; they do the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Server {
    /// Its annotations are believed.
    Sure,
    Plain,
}

impl Server {
    pub(super) const ALL: [Self; 2] = [Self::Sure, Self::Plain];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Sure => "sure",
            Self::Plain => "plain",
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Call {
    /// The tool use, unique over all cycles.
    pub(super) id: String,
    pub(super) server: Server,
    pub(super) kind: Kind,
    pub(super) takes_ms: u64,
    /// What its result meets before it is taken.
    pub(super) replies: Vec<Reply>,
}

impl Call {
    /// Whether it may be made twice.
    pub(super) fn is_repeatable(&self) -> bool {
        self.server == Server::Sure && self.kind.is_harmless()
    }
}

#[derive(Debug)]
pub(super) struct Run {
    pub(super) calls: Vec<Call>,
    /// Every event comes several times, and old ones come again.
    repeated: bool,
    /// A resumed stream begins so many events early.
    rewind: u64,
    /// After so many bytes the first, second, … connection breaks.
    cuts: VecDeque<usize>,
}

#[derive(Debug)]
pub(super) struct Cycle {
    pub(super) runs: Vec<Run>,
    pub(super) kill_after: Duration,
    /// The bridge is killed while it recovers.
    pub(super) kill_again_after: Option<Duration>,
}

impl Cycle {
    pub(super) fn draw(number: usize, rng: &mut StdRng) -> Self {
        let runs = rng.random_range(1..=2);
        Self {
            runs: (0..runs).map(|run| Run::draw(&format!("tu_{number}_{run}"), rng)).collect(),
            kill_after: Duration::from_millis(rng.random_range(0..400)),
            kill_again_after: rng
                .random_bool(0.25)
                .then(|| Duration::from_millis(rng.random_range(0..300))),
        }
    }

    pub(super) fn kills(&self) -> usize {
        1 + usize::from(self.kill_again_after.is_some())
    }
}

impl Run {
    fn draw(prefix: &str, rng: &mut StdRng) -> Self {
        let mut cuts = VecDeque::new();
        while rng.random_bool(0.3) {
            cuts.push_back(rng.random_range(1..3000));
        }
        Self {
            calls: (0..CALLS).map(|call| Call::draw(format!("{prefix}_{call}"), rng)).collect(),
            repeated: rng.random_bool(0.3),
            rewind: if rng.random_bool(0.3) { rng.random_range(1..50) } else { 0 },
            cuts,
        }
    }

    /// All calls at once, then their answers, then the end.
    pub(super) fn script(&self) -> Script {
        let called = self.calls.iter().fold(Script::new().delta("hm"), |script, call| {
            let (server, takes) = (call.server.name(), call.takes_ms);
            let name = format!("{server}_{}", call.kind.tool());
            script.mcp(&call.id, server, &name, &format!(r#"{{"ms":{takes}}}"#))
        });
        let answered = self.calls.iter().fold(called, |script, call| script.answered(&call.id));
        let mut script = answered.done().cut(self.cuts.iter().copied());
        script.rewind = self.rewind;
        if self.repeated { script.repeated() } else { script }
    }
}

impl Call {
    fn draw(id: String, rng: &mut StdRng) -> Self {
        let odd = [Reply::Status(503), Reply::Reset, Reply::TakenAndReset];
        let mut replies = Vec::new();
        while rng.random_bool(0.2) {
            replies.extend(odd.choose(rng));
        }
        Self {
            id,
            server: *Server::ALL.choose(rng).expect("there are two"),
            kind: *Kind::ALL.choose(rng).expect("there are five"),
            takes_ms: rng.random_range(0..400),
            replies,
        }
    }
}
