//! When it opens, for how long, and that one call at a time finds out whether it may close.

use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// Fails as many calls as it takes to open a closed breaker.
fn open(breaker: &mut Breaker, now: Instant) {
    for nth in 1..=FAILURES_TO_OPEN {
        let ticket = breaker.admit(now).unwrap();
        let expected = (nth == FAILURES_TO_OPEN).then_some(Change::Opened(FIRST_WAIT));
        assert_eq!(
            breaker.record_outcome(ticket, CallEvidence::Failed, now),
            expected,
            "failure {nth}"
        );
    }
}

fn opened() -> (Breaker, Instant) {
    let (mut breaker, now) = (Breaker::default(), Instant::now());
    open(&mut breaker, now);
    (breaker, now)
}

#[test]
fn seven_failures_in_a_row_open_it() {
    let (mut breaker, now) = (Breaker::default(), Instant::now());
    for _ in 0..20 {
        for _ in 1..FAILURES_TO_OPEN {
            let ticket = breaker.admit(now).unwrap();
            assert_eq!(breaker.record_outcome(ticket, CallEvidence::Failed, now), None);
        }
        let ticket = breaker.admit(now).unwrap();
        assert_eq!(
            breaker.record_outcome(ticket, CallEvidence::Alive, now),
            None,
            "the row is broken"
        );
    }
    for _ in 0..20 {
        let ticket = breaker.admit(now).unwrap();
        assert_eq!(
            breaker.record_outcome(ticket, CallEvidence::Inconclusive, now),
            None,
            "no sign is no failure"
        );
    }
    open(&mut breaker, now);
    assert_eq!(breaker.admit(now), Err(BreakerOpen { retry_after: SECOND }));
    assert_eq!(breaker.admit(now + SECOND / 4), Err(BreakerOpen { retry_after: 3 * SECOND / 4 }));
}

#[test]
fn a_probe_that_fails_doubles_the_wait_and_one_that_is_answered_closes() {
    let (mut breaker, mut now) = opened();
    now += FIRST_WAIT;
    for seconds in [2, 4, 8, 16, 32, 60, 60, 60] {
        let probe = breaker.admit(now).unwrap();
        assert_eq!(breaker.admit(now), Err(BreakerOpen { retry_after: SECOND }), "one at a time");
        assert_eq!(breaker.state(now), (BreakerState::HalfOpen, None));
        let wait = seconds * SECOND;
        assert_eq!(
            breaker.record_outcome(probe, CallEvidence::Failed, now),
            Some(Change::Reopened(wait))
        );
        assert_eq!(breaker.state(now), (BreakerState::Open, Some(wait)));
        now += wait - Duration::from_nanos(1);
        assert!(breaker.admit(now).is_err());
        now += Duration::from_nanos(1);
        assert_eq!(breaker.state(now), (BreakerState::HalfOpen, None));
    }
    let probe = breaker.admit(now).unwrap();
    assert_eq!(breaker.record_outcome(probe, CallEvidence::Alive, now), Some(Change::Closed));
    assert_eq!(breaker.state(now), (BreakerState::Closed, None));
    // The next time it begins with the shortest wait.
    open(&mut breaker, now);
}

#[test]
fn a_probe_without_a_sign_frees_the_place() {
    let (mut breaker, now) = opened();
    let now = now + FIRST_WAIT;
    let probe = breaker.admit(now).unwrap();
    assert_eq!(breaker.record_outcome(probe, CallEvidence::Inconclusive, now), None);
    let probe = breaker.admit(now).unwrap();
    let wait = 2 * FIRST_WAIT;
    assert_eq!(
        breaker.record_outcome(probe, CallEvidence::Failed, now),
        Some(Change::Reopened(wait))
    );
}

#[test]
fn calls_from_before_count_where_they_are_answered() {
    let (mut breaker, now) = (Breaker::default(), Instant::now());
    let slow: Vec<Ticket> = (0..20).map(|_| breaker.admit(now).unwrap()).collect();
    open(&mut breaker, now);
    for ticket in &slow {
        assert!(!breaker.admits(*ticket));
        assert_eq!(
            breaker.record_outcome(*ticket, CallEvidence::Failed, now),
            None,
            "not counted again"
        );
    }
    let now = now + FIRST_WAIT;
    let probe = breaker.admit(now).unwrap();
    assert_eq!(
        breaker.record_outcome(slow[0], CallEvidence::Inconclusive, now),
        None,
        "not the probe"
    );
    assert_eq!(breaker.admit(now), Err(BreakerOpen { retry_after: SECOND }));
    assert_eq!(
        breaker.record_outcome(slow[1], CallEvidence::Alive, now),
        Some(Change::Closed),
        "an answer is one"
    );
    assert_eq!(breaker.record_outcome(probe, CallEvidence::Failed, now), None);
    for ticket in &slow {
        assert_eq!(breaker.record_outcome(*ticket, CallEvidence::Failed, now), None);
    }
    assert_eq!(breaker.state(now), (BreakerState::Closed, None));
}

#[test]
fn a_new_connection_closes_it() {
    let (mut breaker, now) = opened();
    assert_eq!(breaker.close(), Some(Change::Closed));
    assert_eq!(breaker.close(), None);
    // What broke with the old connection is not held against the new one.
    let old: Vec<Ticket> = (0..FAILURES_TO_OPEN).map(|_| breaker.admit(now).unwrap()).collect();
    breaker.close();
    for ticket in old {
        assert_eq!(breaker.record_outcome(ticket, CallEvidence::Failed, now), None);
    }
    assert_eq!(breaker.state(now), (BreakerState::Closed, None));
}

#[derive(Debug, Clone)]
enum Step {
    Call,
    /// The call at this place, of those on their way, ends so.
    End(prop::sample::Index, CallEvidence),
    Pass(u64),
    Reconnect,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let sign = prop_oneof![1 => Just(CallEvidence::Alive), 6 => Just(CallEvidence::Failed), 1 => Just(CallEvidence::Inconclusive)];
    let end = (any::<prop::sample::Index>(), sign).prop_map(|(at, sign)| Step::End(at, sign));
    let step = prop_oneof![
        20 => Just(Step::Call),
        16 => end,
        4 => (0u64..70_000).prop_map(Step::Pass),
        1 => Just(Step::Reconnect),
    ];
    prop::collection::vec(step, 1..400)
}

proptest! {
    #[test]
    fn one_probe_at_a_time_and_never_shut_for_good(steps in steps()) {
        let (mut breaker, mut now) = (Breaker::default(), Instant::now());
        // Each call on its way, and whether it was let through as a probe.
        let mut on_their_way: Vec<(Ticket, bool)> = Vec::new();
        for step in steps {
            match step {
                Step::Call => {
                    let closed = breaker.state(now).0 == BreakerState::Closed;
                    match breaker.admit(now) {
                        Ok(ticket) => on_their_way.push((ticket, !closed)),
                        Err(BreakerOpen { retry_after }) => prop_assert!(!closed && retry_after <= LONGEST_WAIT),
                    }
                }
                Step::End(at, sign) if !on_their_way.is_empty() => {
                    let (ticket, _) = on_their_way.swap_remove(at.index(on_their_way.len()));
                    breaker.record_outcome(ticket, sign, now);
                }
                Step::End(..) => (),
                Step::Pass(ms) => now += Duration::from_millis(ms),
                Step::Reconnect => {
                    breaker.close();
                }
            }
            let probes = on_their_way.iter().filter(|(t, probe)| *probe && breaker.admits(*t));
            prop_assert!(probes.count() <= 1, "more than one probe");
        }
        // Once nothing is on its way, the next call is at most the longest wait away.
        for (ticket, _) in on_their_way {
            breaker.record_outcome(ticket, CallEvidence::Inconclusive, now);
        }
        prop_assert!(breaker.admit(now + LONGEST_WAIT).is_ok());
    }
}
