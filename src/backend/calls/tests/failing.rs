//! A backend that keeps failing is left alone, and is found out about by one call at a time.

use futures_util::future::{BoxFuture, join_all};

use super::*;
use crate::backend::circuit_breaker::{BreakerOpen, BreakerState};
use crate::backend::peer::{ErrorReply, NotRead, NotRecorded};
use crate::model::mcp::error_code;

const SECOND: Duration = Duration::from_secs(1);

/// A backend `fs` for `concurrency` calls at once, of which so many break now that its breaker is
/// open.
async fn start_open(concurrency: usize) -> (Arc<World>, Harness) {
    let world = World::new();
    let harness = start(&[("fs", &world)], concurrency);
    world.calling.send_replace(Mood::Failing);
    for _ in 0..7 {
        assert_eq!(harness.make("fs_ls").await.ending, Ending::ConnectionLost);
    }
    assert_eq!(state(&harness), (BreakerState::Open, Some(SECOND)));
    (world, harness)
}

fn state(harness: &Harness) -> (BreakerState, Option<Duration>) {
    harness.backends.handles()["fs"].breaker.state()
}

/// Makes `count` calls at once; how many were refused at once, and the outcomes of the others.
async fn call_many(harness: &Harness, count: usize) -> (usize, Vec<CallOutcome>) {
    let begin = Instant::now();
    let one = async || (harness.make("fs_ls").await, begin.elapsed());
    let all = join_all((0..count).map(|_| one())).await;
    let (refused, made): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|(made, _)| made.ending == Ending::BreakerOpen);
    assert!(refused.iter().all(|(_, took)| took.is_zero()), "at once: {refused:?}");
    (refused.len(), made.into_iter().map(|(made, _)| made).collect())
}

#[tokio::test(start_paused = true)]
async fn calls_are_refused_at_once_and_told_when_to_come_back() {
    let (world, harness) = start_open(4).await;
    let before = harness.backends.handles()["fs"].last_call(None);
    for (after, wait) in [(0, " 1 s"), (999, " 1 s")] {
        tokio::time::advance(Duration::from_millis(after)).await;
        let begin = Instant::now();
        let made = harness.make("fs_ls").await;
        assert!(begin.elapsed().is_zero());
        check_failed(&made, Ending::BreakerOpen, &["`fs`", wait]);
    }
    assert_eq!(World::count(&world.calls), 7);
    let backend = &harness.backends.handles()["fs"];
    assert_eq!((backend.in_flight(None), backend.last_call(None)), (0, before), "none was made");
}

#[tokio::test(start_paused = true)]
async fn one_call_at_a_time_finds_out_whether_it_works_again() {
    let (world, harness) = start_open(16).await;
    world.calling.send_replace(Mood::Hanging);
    let mut calls = 7;
    for wait in [1, 2, 4, 8, 16, 32, 60, 60] {
        assert_eq!(state(&harness), (BreakerState::Open, Some(wait * SECOND)));
        assert_eq!(call_many(&harness, 20).await.0, 20, "{wait} s are not over");
        tokio::time::advance(wait * SECOND).await;
        assert_eq!(state(&harness), (BreakerState::HalfOpen, None));
        let (refused, made) = call_many(&harness, 20).await;
        calls += 1;
        assert_eq!((refused, World::count(&world.calls)), (19, calls), "one is at the peer");
        for made in made {
            check_failed(&made, Ending::TimedOut, &["60 s"]);
        }
    }
    tokio::time::advance(60 * SECOND).await;
    world.calling.send_replace(Mood::Well);
    assert!(matches!(harness.call("fs_ls").await, Answer::Result { .. }));
    assert_eq!(state(&harness), (BreakerState::Closed, None));
    assert_eq!(call_many(&harness, 20).await.0, 0, "all are made again");
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_is_cancelled_frees_its_place() {
    let (world, harness) = start_open(4).await;
    world.calling.send_replace(Mood::Hanging);
    tokio::time::advance(SECOND).await;
    for calls in 8..12 {
        let probe = timeout(SECOND, harness.call("fs_ls")).await;
        assert!(probe.is_err(), "it hangs, and is dropped");
        assert_eq!(World::count(&world.calls), calls);
        assert_eq!(state(&harness), (BreakerState::HalfOpen, None));
    }
    world.calling.send_replace(Mood::Well);
    assert!(matches!(harness.call("fs_ls").await, Answer::Result { .. }));
}

#[tokio::test(start_paused = true)]
async fn calls_that_waited_for_their_turn_are_not_made_when_it_opens() {
    let world = World::new();
    let harness = start(&[("fs", &world)], 1);
    harness.backends.registry.settled().await;
    world.calling.send_replace(Mood::Failing);
    let all = join_all((0..20).map(|_| harness.make("fs_ls"))).await;
    assert_eq!(World::count(&world.calls), 7);
    for made in all.into_iter().skip(7) {
        assert_eq!(made.ending, Ending::BreakerOpen);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_got_no_turn_or_was_cancelled_says_nothing() {
    let world = World::new();
    let harness = start(&[("fs", &world)], 1);
    harness.backends.registry.settled().await;
    world.calling.send_replace(Mood::Hanging);
    let made = join_all((0..10).map(|_| harness.make("fs_ls"))).await;
    let busy = made.iter().filter(|made| made.ending == Ending::Busy);
    assert_eq!(busy.count(), 9);
    for _ in 0..10 {
        assert!(timeout(SECOND, harness.call("fs_ls")).await.is_err());
    }
    assert_eq!(state(&harness), (BreakerState::Closed, None));
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_is_away_is_not_waited_for_each_time_and_closes_when_it_is_back() {
    let world = World::new();
    let harness = start(&[("fs", &world)], 4);
    harness.backends.registry.settled().await;
    harness.lose(&world).await;
    for _ in 0..7 {
        assert_eq!(harness.make("fs_ls").await.ending, Ending::Unavailable);
    }
    assert_eq!(state(&harness), (BreakerState::Open, Some(SECOND)));
    assert_eq!(call_many(&harness, 5).await.0, 5);
    world.dialling.send_replace(Mood::Well);
    let live = |registry: &Registry| registry.snapshot("fs").and_then(|known| known.connection);
    harness.backends.registry.wait_for(live).await;
    tokio::task::yield_now().await;
    assert_eq!(state(&harness), (BreakerState::Closed, None), "a new connection is proof of life");
    assert!(matches!(harness.call("fs_ls").await, Answer::Result { .. }));
}

fn too_large(size: Option<u64>) -> CallError {
    CallError::NotRead(NotRead::TooLarge { limit: 8 << 20, size })
}

#[test]
fn the_model_is_told_how_large_an_answer_is() {
    let fs = BackendName::parse("fs").unwrap();
    for (size, told) in [
        (Some(12_900_000), "12.4 MiB"),
        (Some((8 << 20) + 1), "8.1 MiB"),
        (None, "more than 8 MiB"),
    ] {
        let text = CallFailure::Call(too_large(size)).for_model(&fs);
        assert!(text.contains(told) && text.matches(" 8 MiB").count() > 0, "{text}");
    }
}

#[test]
fn outcome_of_a_call_is_a_sign_of_its_backend() {
    let fs = BackendName::parse("fs").unwrap();
    let why = || "why".to_owned();
    let wait = Duration::from_secs(1);
    let error = ErrorReply { code: error_code::URL_FIRST, message: why(), data: None };
    let failures = [
        (CallFailure::NotConnected, CallEvidence::Failed),
        (CallFailure::TimedOut(wait), CallEvidence::Failed),
        (CallFailure::Call(CallError::NotSent(why())), CallEvidence::Failed),
        (CallFailure::Call(CallError::Lost(why())), CallEvidence::Failed),
        (CallFailure::Call(CallError::Unreadable(why())), CallEvidence::Failed),
        (CallFailure::Call(CallError::Refused(why())), CallEvidence::Alive),
        (CallFailure::Call(CallError::RefusedWith { why: why(), error }), CallEvidence::Alive),
        (CallFailure::Call(too_large(None)), CallEvidence::Alive),
        (CallFailure::Rejected(Rejected::Late, wait), CallEvidence::Inconclusive),
        (CallFailure::Rejected(Rejected::QueueFull, wait), CallEvidence::Inconclusive),
        (CallFailure::NotRecorded(NotRecorded::Unwritable), CallEvidence::Inconclusive),
        (CallFailure::BreakerOpen(BreakerOpen { retry_after: wait }), CallEvidence::Inconclusive),
    ];
    for (failure, expected) in failures {
        let words = failure.to_string();
        let is_unknown = matches!(
            failure.ending(),
            Ending::TimedOut | Ending::ConnectionLost | Ending::Unreadable
        );
        let told = failure.for_model(&fs);
        assert_eq!(told.starts_with(OUTCOME_UNKNOWN), is_unknown, "{told}");
        assert_eq!(evidence::<()>(&Err(failure)), expected, "{words}");
    }
    assert_eq!(evidence(&Ok(Answer::text("x"))), CallEvidence::Alive);
    assert_eq!(
        evidence(&Ok(Answer::Error(why()))),
        CallEvidence::Alive,
        "a tool's own error is an answer"
    );
}

/// The model would take "not made" for true, and make the call again.
#[tokio::test(start_paused = true)]
async fn a_call_that_was_sent_before_a_restart_is_never_said_not_to_be_made() {
    #[derive(Debug)]
    struct Unwritable;

    impl Recorder for Unwritable {
        fn dispatching(&self, _: Option<&Identity>) -> BoxFuture<'_, Result<(), NotRecorded>> {
            Box::pin(async { Err(NotRecorded::Unwritable) })
        }

        fn named(&self, _: &Handle) {}
    }

    let world = World::new();
    *world.tools.lock().unwrap() = vec!["reads"];
    let harness = start(&[("fs", &world)], 1);
    harness.backends.registry.settled().await;
    let route = harness.backends.registry.offer().route("fs_reads").unwrap().clone();
    let call = |peer: Option<&str>| CallContext {
        peer: peer.map(Identity::from_text),
        recorder: Arc::new(Unwritable),
        ..context(&route, "{}")
    };
    let made = harness.backends.call(&call(None)).await;
    check_failed(&made, Ending::Storage, &["was not made"]);
    let made = harness.backends.call(&call(Some("fs"))).await;
    check_failed(&made, Ending::ConnectionLost, &[OUTCOME_UNKNOWN, "restarted"]);
    assert_eq!(World::count(&world.calls), 0);
}
