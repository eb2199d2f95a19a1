//! Kept as long as promised, given to whom it belongs, and heard by who waits.

use super::*;
use crate::backend::fake::request;
use crate::clock;
use crate::model::ids::{RunKey, RunKind};

fn scope(app: &str, of: CallOwner) -> Scope {
    Scope { app: app.into(), of }
}

fn session(id: &str) -> CallOwner {
    CallOwner::Session { workspace: "acme".into(), session: id.into() }
}

fn run(driven: &str, agent_run: &str) -> CallOwner {
    CallOwner::Run { driven: key(driven), agent_run: agent_run.into() }
}

fn key(run: &str) -> RunKey {
    RunKey { workspace: "acme".into(), kind: RunKind::Eval, run: run.into() }
}

/// A call of `hr` goes on.
fn begin(calls: &LongCalls, id: CallId, scope: Scope) -> CancellationToken {
    let stop = CancellationToken::new();
    calls.begin(id, LongCall::new(scope, "hr", None, None, stop.clone()));
    stop
}

/// A call `id` of the app `a`, made by hand, that has ended with `text`.
fn finished(calls: &LongCalls, id: &str, text: &str) {
    begin(calls, id.into(), scope("a", CallOwner::App));
    calls.finish(&id.into(), Answer::text(text));
}

/// A call of `hr` that runs; nothing is known of how far it is.
fn runs() -> Fetched {
    Fetched::Running { tool: "hr".to_owned(), waits: false }
}

fn fetch(calls: &LongCalls, id: &str) -> Option<String> {
    match calls.fetch(&id.into(), &scope("a", CallOwner::App)) {
        Fetched::Finished(answer, _) => match &*answer {
            Answer::Result { text, .. } => Some(text.clone()),
            Answer::Error(_) => panic!("{answer:?}"),
        },
        Fetched::Unknown => None,
        running @ Fetched::Running { .. } => panic!("{running:?}"),
    }
}

#[tokio::test]
async fn a_call_is_its_sessions_or_its_runs_alone() {
    let owners = [
        scope("a", session("s")),
        scope("b", session("s")),
        scope("a", session("t")),
        scope("a", CallOwner::Session { workspace: "other".into(), session: "s".into() }),
        scope("a", run("r", "r")),
        scope("a", run("r", "q")),
        scope("b", run("r", "r")),
        scope("a", CallOwner::App),
        scope("b", CallOwner::App),
    ];
    for (at, owner) in owners.iter().enumerate() {
        let calls = LongCalls::default();
        let id = CallId::from("call_1");
        begin(&calls, id.clone(), owner.clone());
        for finished in [false, true] {
            if finished {
                calls.finish(&id, Answer::text("x"));
            }
            let may: Vec<usize> = (0..owners.len())
                .filter(|&other| calls.fetch(&id, &owners[other]) != Fetched::Unknown)
                .collect();
            assert_eq!(may, [at], "{owner:?}");
        }
    }
}

#[tokio::test]
async fn a_result_can_be_fetched_again() {
    let calls = LongCalls::default();
    let id = CallId::from("call_1");
    begin(&calls, id.clone(), scope("a", CallOwner::App));
    let fetch = || calls.fetch(&id, &scope("a", CallOwner::App));
    assert_eq!(fetch(), runs());
    let answer = Answer::Error("it failed".to_owned());
    calls.finish(&id, answer.clone());
    for _ in 0..2 {
        assert_eq!(fetch(), Fetched::Finished(Arc::new(answer.clone()), None));
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_is_kept_for_a_day() {
    let calls = LongCalls::default();
    finished(&calls, "call_1", "x");
    begin(&calls, "call_2".into(), scope("a", CallOwner::App));
    tokio::time::advance(KEEP - Duration::from_millis(1)).await;
    assert_eq!(fetch(&calls, "call_1").as_deref(), Some("x"));
    tokio::time::advance(Duration::from_millis(1)).await;
    assert_eq!(fetch(&calls, "call_1"), None);
    finished(&calls, "call_3", "y");
    assert_eq!(calls.calls.lock().len(), 2, "its memory is given back, and what runs stays");
}

#[tokio::test(start_paused = true)]
async fn the_oldest_results_of_an_app_go_first() {
    let calls = LongCalls::default();
    begin(&calls, "other".into(), scope("b", CallOwner::App));
    calls.finish(&"other".into(), Answer::text("x"));
    for number in 0..KEEP_COUNT + 2 {
        tokio::time::advance(Duration::from_millis(1)).await;
        finished(&calls, &format!("call_{number}"), "x");
    }
    assert_eq!((fetch(&calls, "call_1"), fetch(&calls, "call_2")), (None, Some("x".to_owned())));
    assert_ne!(calls.fetch(&"other".into(), &scope("b", CallOwner::App)), Fetched::Unknown);

    let large = "x".repeat(room::LONG_RESULTS / 2 - 1_000);
    for id in ["large_1", "large_2"] {
        tokio::time::advance(Duration::from_millis(1)).await;
        finished(&calls, id, &large);
    }
    assert_eq!(fetch(&calls, "call_500"), None, "no byte is left for it");
    let others = calls.fetch(&"other".into(), &scope("b", CallOwner::App));
    assert_ne!(others, Fetched::Unknown, "no app pushes out another's");
    assert!(fetch(&calls, "large_1").is_some() && fetch(&calls, "large_2").is_some());
    tokio::time::advance(Duration::from_millis(1)).await;
    finished(&calls, "call_x", "x");
    assert_eq!(fetch(&calls, "large_1"), None);
    assert!(fetch(&calls, "large_2").is_some() && fetch(&calls, "call_x").is_some());
}

#[tokio::test(start_paused = true)]
async fn fetch_that_waits_is_answered_at_the_end_of_the_call() {
    let calls = LongCalls::default();
    let (id, owner) = (CallId::from("call_1"), scope("a", CallOwner::App));
    begin(&calls, id.clone(), owner.clone());
    let begin = Instant::now();
    let (fetched, ()) =
        tokio::join!(calls.fetch_by(&id, &owner, begin + Duration::from_secs(20)), async {
            sleep(Duration::from_secs(5)).await;
            // The end of another one wakes nobody for long.
            finished(&calls, "call_2", "y");
            sleep(Duration::from_secs(5)).await;
            calls.finish(&id, Answer::text("x"));
        });
    assert_eq!(fetched, Fetched::Finished(Arc::new(Answer::text("x")), None));
    assert_eq!(begin.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_longer_than_asked_or_for_nothing() {
    let calls = LongCalls::default();
    let (id, owner) = (CallId::from("call_1"), scope("a", CallOwner::App));
    let wait = async || {
        let begin = Instant::now();
        let fetched = calls.fetch_by(&id, &owner, begin + Duration::from_secs(20)).await;
        (fetched, begin.elapsed().as_secs())
    };
    assert_eq!(wait().await, (Fetched::Unknown, 0));
    begin(&calls, id.clone(), owner.clone());
    assert_eq!(wait().await, (runs(), 20));
}

#[tokio::test(start_paused = true)]
async fn call_that_has_ended_is_forgotten() {
    let calls = LongCalls::default();
    for (id, of) in [("1", run("e", "r")), ("2", run("f", "r")), ("3", session("s"))] {
        begin(&calls, id.into(), scope("a", of));
    }
    let known = || {
        let mut known: Vec<String> = calls.calls.lock().keys().map(ToString::to_string).collect();
        known.sort_unstable();
        known.concat()
    };
    calls.forget(|of| of.is_run(&key("e")));
    assert_eq!(known(), "23");
    let is_dead = |id: &str| calls.reaches(&id.into(), None, |_| ()).is_err();
    assert!(is_dead("1") && !is_dead("2"), "what is forgotten is not made");
    calls.finish(&"1".into(), Answer::text("too late"));
    assert_eq!(known(), "23", "what ends afterwards is not kept");
    calls.forget(|of| of.is_session(&"other".into(), &"s".into()));
    calls.forget(|of| of.is_session(&"acme".into(), &"t".into()));
    assert_eq!(known(), "23");
    calls.forget(|of| of.is_session(&"acme".into(), &"s".into()));
    assert_eq!(known(), "2");
}

#[tokio::test]
async fn call_that_is_forgotten_or_cancelled_with_its_run_ends() {
    let calls = LongCalls::default();
    let stops = ["e", "f", "g"].map(|id| begin(&calls, id.into(), scope("a", run(id, "r"))));
    calls.forget(|of| of.is_run(&key("e")));
    calls.cancel_of(&key("f"));
    assert_eq!(stops.map(|stop| stop.is_cancelled()), [true, true, false]);
    let is_dead = |id: &str| calls.reaches(&id.into(), None, |_| ()).is_err();
    assert_eq!(["e", "f", "g"].map(is_dead), [true, true, false]);
}

/// What the journal has of a call that ended before it reached its tool, as a person has denied it.
#[tokio::test]
async fn the_arguments_of_a_call_that_has_ended_are_not_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let journal = Arc::new(Journal::open(&path, false).unwrap().0);
    let calls = LongCalls::kept_in(Arc::clone(&journal));
    // Each copy has a name of its own: the thread of an earlier one may not have closed its file
    // yet.
    let kept = async |copy: &str| {
        journal.commit(Vec::new()).await.unwrap();
        let copy = dir.path().join(copy);
        std::fs::copy(&path, &copy).unwrap();
        let (_, kept) = Journal::open(&copy, false).unwrap();
        let [(_, record)] = <[_; 1]>::try_from(kept.long).unwrap();
        (record.arguments.is_some(), record.ended.is_some())
    };
    let id = CallId::from("call_1");
    let request = Arc::new(request("ls", "{}"));
    let begun = clock::moment();
    let work = LongWork { request, slot: None, handle: None, peer: None, waits: true, begun };
    let stop = CancellationToken::new();
    calls
        .begin(id.clone(), LongCall::new(scope("a", CallOwner::App), "hr", Some(work), None, stop));
    assert_eq!(kept("running").await, (true, false), "it is made after a restart");
    calls.finish(&id, Answer::Error("denied".to_owned()));
    assert_eq!(kept("ended").await, (false, true));
}
