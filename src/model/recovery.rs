//! Decides what becomes of a call that was under way when the bridge crashed: its effect happens at
//! most once, and every call gets one answer.
//!
//! Must not: know how stages are kept (the journal does), or what a peer is.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How long MANTYX waits for a result (`localToolTimeoutMs`, wire-protocol §5). After that, posting
/// an answer has no use.
pub const LOCAL_TOOL_TIMEOUT: Duration = Duration::from_secs(300);

/// The bridge does not make a call with less time than this left until its deadline.
pub const LEAST_REMAINING: Duration = Duration::from_secs(10);

/// How far a call is. Each stage is recorded before the bridge takes the step that only the next
/// stage allows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Its event was read. The call has not reached its tool.
    #[default]
    Received,
    /// The call may have reached its tool.
    Dispatched,
    /// It has an answer, which is recorded. MANTYX may have it.
    Answered,
    /// MANTYX has taken the answer, or does not want it.
    Closed,
}

/// What the record of a call says after a crash.
#[derive(Debug, Clone, Copy)]
pub struct RecoveryFacts {
    pub stage: Stage,
    /// How often it was dispatched.
    pub attempts: u32,
    /// The peer has named the work, so that it can be asked for.
    pub has_handle: bool,
    /// Making the call twice does no harm ([`super::routes::Route::repeatable`]).
    pub repeatable: bool,
    /// How much is left of the time that MANTYX gave the call.
    pub remaining: Duration,
}

/// What to do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// Make it, unless its answer is in the run's log.
    Make,
    /// Ask the peer for the work that the call began.
    Resume,
    /// Post the recorded answer.
    Post,
    /// Answer that it was not made: its time ran out while the bridge was down.
    TooLate,
    /// Answer that its outcome is unknown.
    Unknown,
    /// Nothing is left to do.
    Nothing,
}

/// What to do about a call after a crash.
///
/// A call is repeated at most once, even one that only reads: a call that crashes the bridge would
/// otherwise crash it again after every restart.
pub fn decide(facts: RecoveryFacts) -> Recovery {
    let RecoveryFacts { stage, attempts, has_handle, repeatable, remaining } = facts;
    match stage {
        Stage::Closed => Recovery::Nothing,
        Stage::Answered => Recovery::Post,
        Stage::Received if remaining < LEAST_REMAINING => Recovery::TooLate,
        Stage::Received => Recovery::Make,
        Stage::Dispatched if has_handle => Recovery::Resume,
        Stage::Dispatched if repeatable && attempts < 2 && remaining >= LEAST_REMAINING => {
            Recovery::Make
        }
        Stage::Dispatched => Recovery::Unknown,
    }
}

/// A run counts as younger than a loss only if it is younger by more than this, as MANTYX's clock
/// is known to the second.
const SAME_TIME: Duration = Duration::from_secs(2);

/// Whether a lost journal may have had calls of a run: unless the run is known to be younger than
/// the loss. `None` is an age that is not known.
pub fn may_have_been_driven(run: Option<Duration>, loss: Option<Duration>) -> bool {
    run.zip(loss).is_none_or(|(run, loss)| run + SAME_TIME >= loss)
}

#[cfg(test)]
mod tests {
    //! The table, cell by cell.

    use super::*;

    const PLENTY: Duration = Duration::from_secs(60);

    #[track_caller]
    fn check(stage: Stage, change: impl FnOnce(&mut RecoveryFacts), expected: Recovery) {
        let attempts = u32::from(stage != Stage::Received);
        let remaining = PLENTY;
        let mut facts =
            RecoveryFacts { stage, attempts, has_handle: false, repeatable: false, remaining };
        change(&mut facts);
        assert_eq!(decide(facts), expected, "{facts:?}");
    }

    #[test]
    fn undispatched_call_is_made_while_there_is_time() {
        check(Stage::Received, |_| (), Recovery::Make);
        check(Stage::Received, |facts| facts.repeatable = true, Recovery::Make);
        check(Stage::Received, |facts| facts.remaining = Duration::from_secs(9), Recovery::TooLate);
    }

    #[test]
    fn dispatched_call_is_never_made_twice() {
        check(Stage::Dispatched, |_| (), Recovery::Unknown);
        check(Stage::Dispatched, |facts| facts.remaining = Duration::ZERO, Recovery::Unknown);
    }

    #[test]
    fn unless_that_does_no_harm_and_then_once() {
        check(Stage::Dispatched, |facts| facts.repeatable = true, Recovery::Make);
        let again = |facts: &mut RecoveryFacts| (facts.repeatable, facts.attempts) = (true, 2);
        check(Stage::Dispatched, again, Recovery::Unknown);
        let late = |facts: &mut RecoveryFacts| {
            (facts.repeatable, facts.remaining) = (true, Duration::ZERO);
        };
        check(Stage::Dispatched, late, Recovery::Unknown);
    }

    #[test]
    fn only_a_run_that_is_younger_than_the_loss_is_as_any_other() {
        let seconds = |seconds: Option<u64>| seconds.map(Duration::from_secs);
        struct Case {
            run: Option<u64>,
            loss: Option<u64>,
            expected: bool,
        }
        for Case { run, loss, expected } in [
            Case { run: Some(10), loss: Some(20), expected: false },
            Case { run: Some(17), loss: Some(20), expected: false },
            Case { run: Some(18), loss: Some(20), expected: true },
            Case { run: Some(300), loss: Some(20), expected: true },
            Case { run: None, loss: Some(20), expected: true },
            Case { run: Some(10), loss: None, expected: true },
        ] {
            let told = format!("{run:?} {loss:?}");
            assert_eq!(may_have_been_driven(seconds(run), seconds(loss)), expected, "{told}");
        }
    }

    #[test]
    fn work_that_has_a_name_is_asked_for() {
        for repeatable in [true, false] {
            let named = |facts: &mut RecoveryFacts| {
                (facts.has_handle, facts.repeatable) = (true, repeatable);
            };
            check(Stage::Dispatched, named, Recovery::Resume);
        }
    }

    #[test]
    fn an_answer_is_posted_however_late() {
        check(Stage::Answered, |facts| facts.remaining = Duration::ZERO, Recovery::Post);
        check(Stage::Answered, |facts| facts.has_handle = true, Recovery::Post);
        check(Stage::Closed, |facts| facts.repeatable = true, Recovery::Nothing);
    }
}
