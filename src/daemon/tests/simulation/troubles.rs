//! When faults were, by which a law may excuse what was late.
//!
//! Must not: cause a fault.

use std::time::Duration;

/// For how long calls may have been held up by faults before they need no answer.
const HELD_UP: Duration = Duration::from_secs(60);
/// How long after it was asked for an answer may be posted that is not kept, if the database is
/// away.
const UNKEPT_AFTER: Duration = Duration::from_secs(200);

/// When replicas or their database could not do what they should.
#[derive(Debug, Default, Clone)]
pub(super) struct Troubles {
    pub(super) of_replicas: Vec<(Duration, Duration)>,
    pub(super) of_database: Vec<(Duration, Duration)>,
}

impl Troubles {
    /// Whether a call that was open all this time need not have an answer.
    pub(super) fn excuse(&self, from: Duration, until: Duration) -> bool {
        let both = self.of_replicas.iter().chain(&self.of_database);
        let held_up: Duration =
            both.map(|(begun, ended)| until.min(*ended).saturating_sub(from.max(*begun))).sum();
        held_up > HELD_UP
    }

    /// Whether anything was wrong at some time in between.
    pub(super) fn touch(&self, from: Duration, until: Duration) -> bool {
        let mut both = self.of_replicas.iter().chain(&self.of_database);
        both.any(|(begun, ended)| *begun < until && *ended > from)
    }

    /// Whether an answer to a call of the time `asked` may be posted at `now` without being kept.
    pub(super) fn may_be_unkept(&self, asked: Duration, now: Duration) -> bool {
        now > asked + UNKEPT_AFTER && self.of_database.iter().any(|(_, ended)| *ended >= asked)
    }
}
