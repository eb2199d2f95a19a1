//! What is told of what there is, and when.

use std::sync::Arc;

use tokio::time::advance;

use super::*;
use crate::backend::fake::request_of;
use crate::calls::approvals::{Approvals, Decision};
use crate::clock;
use crate::config::{NoticeWay, Unresolved};
use crate::model::BackendName;
use crate::model::Naming;
use crate::model::approval::Outcome;
use crate::model::catalog::Catalog;
use crate::model::pin::{Accepted, Mode, Pins};

fn trouble(subject: &str, summary: &str) -> Trouble {
    Trouble {
        subject: subject.to_owned(),
        backend: None,
        summary: summary.to_owned(),
        reason: Some("said by a peer".to_owned()),
        cure: "Look.".to_owned(),
        receiver: None,
    }
}

/// The keys of what is told of these troubles.
fn told(watcher: &mut Watcher, troubles: &[Trouble]) -> Vec<String> {
    let present = Present { troubles: troubles.to_vec(), ..Present::default() };
    let wall = SystemTime::UNIX_EPOCH;
    watcher.view(present, &BTreeSet::new(), Instant::now(), wall).open.into_keys().collect()
}

#[tokio::test(start_paused = true)]
async fn problem_is_told_once_it_has_lasted_two_minutes_without_a_break() {
    let mut watcher = Watcher::new(Instant::now());
    let down = [trouble("fs", "There is no connection.")];
    assert!(told(&mut watcher, &down).is_empty());
    advance(PROBLEM_LASTS - Duration::from_secs(1)).await;
    assert!(told(&mut watcher, &down).is_empty());
    assert!(told(&mut watcher, &[]).is_empty(), "it is over");
    advance(Duration::from_secs(1)).await;
    assert!(told(&mut watcher, &down).is_empty(), "it has begun again");
    advance(PROBLEM_LASTS).await;
    assert_eq!(told(&mut watcher, &down).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn problem_with_other_numbers_is_the_same_and_with_other_words_another() {
    let mut watcher = Watcher::new(Instant::now());
    let first = told(&mut watcher, &[trouble("memory", "512 MiB were held.")]);
    assert!(first.is_empty());
    advance(PROBLEM_LASTS).await;
    let same = told(&mut watcher, &[trouble("memory", "498 MiB were held.")]);
    assert_eq!(same.len(), 1);
    let other = told(&mut watcher, &[trouble("memory", "It is full.")]);
    assert!(other.is_empty(), "it has to last, too");
}

/// A backend that has a tool beside those that were accepted.
fn review(tool: &str, digest: &str) -> Arc<Review> {
    let raw = serde_json::value::RawValue::from_string(format!(r#"{{"name":"{tool}"}}"#));
    let (catalog, _) = Catalog::mcp(None, vec![raw.expect("JSON")]);
    let mut accepted = Accepted::Pins(Arc::new(Pins([("ls".to_owned(), "{}".into())].into())));
    let review = accepted.judge(Mode::Enforce, Some(&catalog), &Naming::default());
    Arc::new(Review { digest: digest.to_owned(), ..review })
}

#[tokio::test(start_paused = true)]
async fn changes_of_a_backend_are_told_at_once_and_then_at_most_every_five_minutes() {
    let mut watcher = Watcher::new(Instant::now());
    let mut look = |review: Arc<Review>| {
        let present = Present { reviews: vec![("fs".to_owned(), review)], ..Present::default() };
        let wall = SystemTime::UNIX_EPOCH;
        let view = watcher.view(present, &BTreeSet::new(), Instant::now(), wall);
        view.open.into_keys().next()
    };
    assert_eq!(look(review("a", "d1")).as_deref(), Some("trust/fs/d1"));
    assert_eq!(look(review("a", "d1")).as_deref(), Some("trust/fs/d1"));
    assert_eq!(look(review("b", "d2")), None, "the server changes at each look");
    advance(TRUST_GAP).await;
    assert_eq!(look(review("b", "d2")).as_deref(), Some("trust/fs/d2"));
    assert_eq!(look(Arc::default()), None, "it is accepted");
}

#[tokio::test(start_paused = true)]
async fn waiting_call_is_told_with_the_texts_that_are_asked_for_and_then_its_decision() {
    let approvals = Approvals::default();
    let call = request_of("run_1", None, "rm", r#"{"path":"/x"}"#);
    let until = Instant::now() + Duration::from_secs(60);
    let question = approvals.ask(&call, None, until).expect("there is room");
    let mut watcher = Watcher::new(Instant::now());
    let mut view = |with: &[Detail]| {
        let present = Present { approvals: approvals.of(None), ..Present::default() };
        let with = with.iter().copied().collect();
        watcher.view(present, &with, Instant::now(), clock::now())
    };
    let shown = view(&[Detail::Arguments]);
    let subject = shown.open.values().next().expect("it waits");
    assert_eq!(subject.details.arguments.as_deref(), Some(r#"{"path":"/x"}"#));
    assert_eq!(subject.run.as_deref(), Some("run_1"));
    assert_eq!(view(&[]).open.values().next().expect("it waits").details, Details::default());
    let id = subject.approval.clone().expect("a decision names it");
    let denied = Decision {
        outcome: Outcome::Denied,
        content: None,
        by: Some("operator".to_owned()),
        reason: Some("no".to_owned()),
    };
    approvals.decide(None, &id, denied).expect("it waits");
    let after = view(&[]);
    assert!(after.open.is_empty());
    assert_eq!(after.endings[&subject.key].outcome, "denied");
    drop(question);
}

#[tokio::test(start_paused = true)]
async fn receiver_is_told_of_its_topics_and_backends_and_not_of_its_own_trouble() {
    let receiver = |backends: Option<&str>| NoticeReceiver {
        name: BackendName::parse("ops").expect("a name"),
        on: [Topic::Problem].into(),
        backends: backends.map(|name| [BackendName::parse(name).expect("a name")].into()),
        with: BTreeSet::new(),
        way: NoticeWay::Unresolved(Unresolved::default()),
    };
    let mut watcher = Watcher::new(Instant::now());
    let own = Trouble { receiver: Some("ops".to_owned()), ..trouble("notify", "Not delivered.") };
    let of_fs = Trouble { backend: Some("fs".to_owned()), ..trouble("fs", "Away.") };
    let all = [own, of_fs, trouble("journal", "Full.")];
    told(&mut watcher, &all);
    advance(PROBLEM_LASTS).await;
    let present = Present {
        troubles: all.to_vec(),
        reviews: vec![("fs".to_owned(), review("a", "d1"))],
        ..Present::default()
    };
    let view = watcher.view(present, &BTreeSet::new(), Instant::now(), SystemTime::UNIX_EPOCH);
    let names = |backends| {
        let view = view.for_receiver(&receiver(backends));
        let mut names: Vec<String> = view.open.into_values().map(|one| one.name).collect();
        names.sort();
        names
    };
    assert_eq!(names(None), ["fs", "journal"]);
    assert_eq!(names(Some("fs")), ["fs"]);
    assert_eq!(names(Some("hr")), [""; 0]);
    let subject = view.for_receiver(&receiver(Some("fs"))).open.into_values().next();
    assert_eq!(subject.expect("of fs").details.reason, None, "a peer's words are not asked for");
}
