//! One decision for each question, in time, by its own app; bounded, and told to whoever looks on.

use std::time::Duration;

use tokio::time::advance;

use super::*;
use crate::backend::fake::request_of;

fn asked(app: &str, tool_use: &str, arguments: &str) -> CallRequest {
    let (app, tool_use) = (app.into(), tool_use.into());
    CallRequest { app, tool_use, ..request_of("run_1", None, "rm", arguments) }
}

fn in_a_minute() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

fn says(approved: bool, reason: Option<&str>) -> Decision {
    let outcome = if approved { Outcome::Approved } else { Outcome::Denied };
    Decision {
        outcome,
        content: None,
        by: Some("operator".to_owned()),
        reason: reason.map(str::to_owned),
    }
}

/// The states of the app's questions.
fn states(approvals: &Approvals, app: &str) -> Vec<(String, Option<Outcome>)> {
    let all = approvals.of(Some(&app.into()));
    all.iter().map(|one| (one.tool_use.to_string(), one.outcome())).collect()
}

fn id_of(approvals: &Approvals, app: &str) -> String {
    approvals.of(Some(&app.into())).first().expect("a question").id.to_string()
}

#[tokio::test(start_paused = true)]
async fn a_decision_is_heard_once() {
    for approved in [true, false] {
        let approvals = Approvals::default();
        let question = approvals.ask(&asked("a", "t", "{}"), None, in_a_minute()).unwrap();
        let (a, b, id) = ("a".into(), "b".into(), id_of(&approvals, "a"));
        assert!(matches!(
            approvals.decide(Some(&b), &id, says(true, None)),
            Err(Undecidable::Unknown)
        ));
        assert!(approvals.get(Some(&b), &id).is_none() && approvals.of(Some(&b)).is_empty());
        assert_eq!((approvals.waiting(None), approvals.waiting(Some(&b))), (1, 0));
        let decided = approvals.decide(Some(&a), &id, says(approved, Some("so"))).unwrap();
        let outcome = if approved { Outcome::Approved } else { Outcome::Denied };
        assert_eq!(decided.outcome(), Some(outcome));
        let again = approvals.decide(Some(&a), &id, says(!approved, None));
        let Err(Undecidable::Ended(first)) = again else { panic!("{again:?}") };
        assert_eq!(first.outcome(), Some(outcome), "the first one holds");
        assert_eq!(question.decided().await, says(approved, Some("so")));
        assert_eq!(approvals.ended.of(outcome).get(), 1);
        assert_eq!(approvals.waiting(None), 0);
        assert!(approvals.get(Some(&a), &id).expect("remembered").arguments.is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn approval_without_a_decision_expires() {
    let approvals = Approvals::default();
    let question = approvals.ask(&asked("a", "t", "{}"), None, in_a_minute()).unwrap();
    assert_eq!(question.decided().await, Decision::none(Outcome::Expired));
    let expired = [("t".to_owned(), Some(Outcome::Expired))];
    assert_eq!(states(&approvals, "a"), expired);
    let id = id_of(&approvals, "a");
    let late = approvals.decide(Some(&"a".into()), &id, says(true, None));
    assert!(matches!(late, Err(Undecidable::Ended(_))), "{late:?}");
    assert_eq!(states(&approvals, "a"), expired);
}

#[tokio::test(start_paused = true)]
async fn a_decision_in_the_last_moment_counts() {
    let approvals = Approvals::default();
    let question = approvals.ask(&asked("a", "t", "{}"), None, in_a_minute()).unwrap();
    // Nobody has looked at the question when its time is over.
    advance(Duration::from_secs(61)).await;
    approvals.decide(Some(&"a".into()), &id_of(&approvals, "a"), says(true, None)).unwrap();
    assert_eq!(question.decided().await, says(true, None));
    assert_eq!(states(&approvals, "a"), [("t".to_owned(), Some(Outcome::Approved))]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_nobody_wants_any_more_is_withdrawn() {
    let approvals = Approvals::default();
    drop(approvals.ask(&asked("a", "t", "{}"), None, in_a_minute()).unwrap());
    let question = approvals.ask(&asked("a", "u", "{}"), None, in_a_minute()).unwrap();
    drop(question.decided());
    let withdrawn = Some(Outcome::Withdrawn);
    assert_eq!(
        states(&approvals, "a"),
        [("u".to_owned(), withdrawn), ("t".to_owned(), withdrawn)],
        "the latest first"
    );
    assert_eq!(approvals.ended.of(Outcome::Withdrawn).get(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_decision_that_comes_while_the_call_is_dropped_is_none() {
    let approvals = Approvals::default();
    let mut question = approvals.ask(&asked("a", "t", "{}"), None, in_a_minute()).unwrap();
    question.decision.close();
    let said = approvals.decide(Some(&"a".into()), &id_of(&approvals, "a"), says(true, None));
    let Err(Undecidable::Ended(approval)) = said else { panic!("{said:?}") };
    assert_eq!(approval.outcome(), Some(Outcome::Withdrawn));
}

#[tokio::test(start_paused = true)]
async fn waiting_approvals_are_bounded_for_each_app() {
    let approvals = Approvals::default();
    let mut waiting = Vec::new();
    for number in 0..MAX {
        let one = approvals.ask(&asked("a", &number.to_string(), "{}"), None, in_a_minute());
        waiting.push(one.unwrap());
    }
    let one_more = || approvals.ask(&asked("a", "more", "{}"), None, in_a_minute());
    assert_eq!(one_more().err(), Some(TooMany));
    let another = approvals.ask(&asked("b", "t", "{}"), None, in_a_minute());
    assert!(another.is_ok(), "another app's");
    waiting.pop();
    assert!(one_more().is_ok(), "there is room again");

    let large = format!("\"{}\"", "x".repeat(MAX_BYTES / 2));
    let large = |id: &str| approvals.ask(&asked("c", id, &large), None, in_a_minute());
    let first = large("1");
    assert_eq!(large("2").err(), Some(TooMany), "two are too large");
    drop(first);
    assert!(large("3").is_ok());
}

#[tokio::test(start_paused = true)]
async fn the_oldest_are_forgotten_and_every_change_is_told() {
    let changes = Changes::default();
    let mut heard = changes.subscribe();
    let approvals = Approvals::telling(changes);
    for number in 0..KEEP + 2 {
        drop(approvals.ask(&asked("a", &number.to_string(), "{}"), None, in_a_minute()).unwrap());
    }
    let known = states(&approvals, "a");
    assert_eq!((known.len(), known.last().unwrap().0.as_str()), (KEEP, "2"));
    let told = std::iter::from_fn(|| heard.try_recv().ok());
    assert_eq!(told.count(), 2 * (KEEP + 2));
}

#[tokio::test(start_paused = true)]
async fn calls_by_hand_that_look_alike_are_asked_about_each() {
    let approvals = Approvals::default();
    let by_hand =
        || approvals.ask(&CallRequest { run: None, ..asked("a", "t", "{}") }, None, in_a_minute());
    let (_one, _two) = (by_hand().unwrap(), by_hand().unwrap());
    let all = approvals.of(Some(&"a".into()));
    assert_ne!(all[0].id, all[1].id);
}

#[tokio::test(start_paused = true)]
async fn second_question_about_a_call_says_why() {
    let approvals = Approvals::default();
    let why = || approvals.of(None).first().and_then(|one| one.asked_again.clone());
    let call = asked("a", "t", "{}");
    drop(approvals.ask(&call, None, in_a_minute()).unwrap());
    assert_eq!(why(), None);
    let again = approvals.ask_again(&call, None, Some("It has changed."), in_a_minute()).unwrap();
    assert_eq!(why().as_deref(), Some("It has changed."));
    drop(again);
}
