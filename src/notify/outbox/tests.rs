//! What a receiver is told, when, and how often.

use super::*;

const T0: u64 = 1_800_000_000;

fn wall(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(T0 + seconds)
}

fn subject(topic: Topic, number: usize, until: Option<u64>) -> Subject {
    Subject {
        key: format!("{}/{number:03}", topic.as_str()),
        topic,
        name: format!("fs_tool_{number}"),
        app: Some("billing".to_owned()),
        backend: Some("fs".to_owned()),
        run: None,
        approval: Some(format!("apr_{number}")),
        since: wall(0),
        until: until.map(wall),
        summary: None,
        cure: None,
        receiver: None,
        details: Details::default(),
    }
}

fn approval(number: usize) -> Subject {
    subject(Topic::Approval, number, Some(300))
}

fn view(subjects: impl IntoIterator<Item = Subject>) -> View {
    let open = subjects.into_iter().map(|subject| (subject.key.clone(), subject)).collect();
    View { open, ..View::default() }
}

fn ended(number: usize, outcome: &str) -> View {
    let ending = Ending { outcome: outcome.to_owned(), by: None, reason: None };
    View { endings: [(approval(number).key, ending)].into(), ..View::default() }
}

/// A receiver of a bridge without replicas, and what it gets.
struct Desk {
    outbox: Outbox,
    now: Instant,
}

impl Desk {
    fn new() -> Self {
        Self { outbox: Outbox::new(false), now: Instant::now() }
    }

    fn next(&mut self) -> Option<Notice> {
        match self.outbox.next(self.now, wall(0), || "msg_several".to_owned()) {
            Next::Send(notice) => Some(*notice),
            Next::Wait(_) => None,
        }
    }

    fn attempt(&mut self, attempt: Attempt) -> Notice {
        let notice = self.next().expect("a notice is due");
        self.outbox.attempted(&notice.id, attempt, self.now);
        notice
    }

    /// Delivers all that is due; the kinds of it.
    fn deliver(&mut self) -> Vec<&'static str> {
        let mut kinds = Vec::new();
        while let Some(notice) = self.next() {
            self.outbox.attempted(&notice.id, Attempt::Delivered, self.now);
            kinds.push(notice.news.kind());
        }
        kinds
    }
}

#[tokio::test(start_paused = true)]
async fn notice_is_delivered_once_and_its_end_too() {
    let mut desk = Desk::new();
    desk.outbox.update(&view([approval(1)]), wall(0));
    assert_eq!(desk.deliver(), ["approval.waiting"]);
    desk.outbox.update(&view([approval(1)]), wall(5));
    assert_eq!(desk.deliver(), [""; 0]);
    desk.outbox.update(&ended(1, "denied"), wall(10));
    let end = desk.attempt(Attempt::Delivered);
    let News::Ended(_, ending) = &end.news else { panic!("an end: {end:?}") };
    assert_eq!((end.news.kind(), ending.outcome.as_str()), ("approval.decided", "denied"));
    desk.outbox.update(&ended(1, "denied"), wall(15));
    assert_eq!(desk.deliver(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn notice_keeps_its_id_until_it_is_delivered_and_goes_behind_others() {
    let mut desk = Desk::new();
    desk.outbox.update(&view([approval(1), approval(2)]), wall(0));
    let first = desk.attempt(Attempt::NotDelivered);
    let second = desk.attempt(Attempt::Delivered);
    assert_ne!(first.id, second.id);
    let again = desk.attempt(Attempt::Delivered);
    assert_eq!(first, again, "the same in each attempt");
    assert_eq!(approval(1).message_id(), first.id, "a restart knows it, too");
}

#[tokio::test(start_paused = true)]
async fn end_before_the_delivery_is_told_only_if_the_notice_may_have_arrived() {
    struct Case {
        attempt: Option<Attempt>,
        told: &'static [&'static str],
    }
    for Case { attempt, told } in [
        Case { attempt: None, told: &[] },
        Case { attempt: Some(Attempt::NotDelivered), told: &[] },
        Case { attempt: Some(Attempt::Unclear), told: &["approval.decided"] },
    ] {
        let mut desk = Desk::new();
        desk.outbox.update(&view([approval(1)]), wall(0));
        if let Some(attempt) = attempt {
            desk.attempt(attempt);
        }
        desk.outbox.update(&ended(1, "approved"), wall(10));
        assert_eq!(desk.deliver(), told, "{attempt:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn end_during_an_attempt_waits_for_what_comes_of_it() {
    let mut desk = Desk::new();
    desk.outbox.update(&view([approval(1)]), wall(0));
    let notice = desk.next().expect("it is due");
    desk.outbox.update(&ended(1, "approved"), wall(1));
    desk.outbox.attempted(&notice.id, Attempt::Delivered, desk.now);
    desk.outbox.update(&ended(1, "approved"), wall(2));
    assert_eq!(desk.deliver(), ["approval.decided"]);
}

#[tokio::test(start_paused = true)]
async fn more_than_ten_at_once_are_one_notice_with_their_number() {
    let mut desk = Desk::new();
    desk.outbox.update(&view((0..10).map(approval)), wall(0));
    assert_eq!(desk.deliver(), ["approval.waiting"; 10]);
    let mut desk = Desk::new();
    desk.outbox.update(&view((0..11).map(approval)), wall(0));
    let several = desk.attempt(Attempt::Unclear);
    let News::Several(sum) = &several.news else { panic!("one for all: {several:?}") };
    assert_eq!((several.id.as_str(), sum.count()), ("msg_several", 11));
    desk.outbox.update(&view((0..12).map(approval)), wall(1));
    assert_eq!(desk.attempt(Attempt::Delivered), several, "it says what it said");
    assert_eq!(desk.deliver(), ["approval.waiting"], "the one that came later");
    let all_ended = View::default();
    desk.outbox.update(&all_ended, wall(2));
    let News::Several(sum) = desk.attempt(Attempt::Delivered).news else { panic!("twelve ends") };
    assert_eq!((sum.ended, sum.count()), (12, 12));
}

#[tokio::test(start_paused = true)]
async fn beyond_256_notices_are_counted_and_the_number_is_told() {
    let mut desk = Desk::new();
    assert_eq!(desk.outbox.update(&view((0..300).map(approval)), wall(0)), 44);
    assert_eq!(desk.outbox.update(&view((0..300).map(approval)), wall(1)), 0, "counted once");
    assert_eq!(desk.outbox.waiting(), MAX_WAITING);
    let News::Several(sum) = desk.attempt(Attempt::Delivered).news else { panic!("one for all") };
    assert_eq!((sum.dropped, sum.count()), (44, 300));
    assert_eq!(desk.deliver(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn notice_of_an_earlier_process_is_told_once_under_its_id() {
    let mut desk = Desk::new();
    desk.outbox.update(&view([approval(1), approval(2)]), wall(0));
    let delivered = desk.attempt(Attempt::Delivered);
    let left = desk.outbox.take_change().expect("it has changed");
    let text = left.write();
    assert_eq!(desk.outbox.take_change(), None, "it is written once");
    let mut desk = Desk::new();
    desk.outbox = Outbox::restored(false, Stored::read(&text).expect("it was written so"));
    // The calls are not asked about again yet.
    desk.outbox.update(&View::default(), wall(5));
    let again = desk.attempt(Attempt::Delivered);
    assert_ne!(again.id, delivered.id, "what was delivered is not told again");
    desk.outbox.update(&view([approval(1), approval(2)]), wall(6));
    assert_eq!(desk.deliver(), [""; 0]);
    desk.outbox.update(&view([approval(2)]), wall(7));
    assert_eq!(desk.deliver(), ["approval.decided"]);
}

#[tokio::test(start_paused = true)]
async fn call_that_is_not_asked_about_again_ends_when_its_time_is_over() {
    let mut desk = Desk::new();
    desk.outbox.update(&view([approval(1)]), wall(0));
    desk.deliver();
    let left = desk.outbox.take_change().expect("it has changed");
    desk.outbox = Outbox::restored(false, left);
    let complete = View { is_complete: true, ..View::default() };
    desk.outbox.update(&complete, wall(299));
    assert_eq!(desk.deliver(), [""; 0]);
    desk.outbox.update(&complete, wall(300));
    let News::Ended(_, ending) = desk.attempt(Attempt::Delivered).news else { panic!("an end") };
    assert_eq!(ending.outcome, "withdrawn");
}

#[tokio::test(start_paused = true)]
async fn problem_of_an_earlier_process_ends_once_all_problems_are_known() {
    let mut desk = Desk::new();
    let problem = subject(Topic::Problem, 1, None);
    desk.outbox.update(&view([problem]), wall(0));
    assert_eq!(desk.deliver(), ["problem.began"]);
    let left = desk.outbox.take_change().expect("it has changed");
    desk.outbox = Outbox::restored(false, left);
    desk.outbox.update(&View::default(), wall(100));
    assert_eq!(desk.deliver(), [""; 0]);
    desk.outbox.update(&View { is_complete: true, ..View::default() }, wall(150));
    assert_eq!(desk.deliver(), ["problem.ended"]);
}

#[tokio::test(start_paused = true)]
async fn end_that_cannot_be_told_for_an_hour_is_no_news() {
    let mut desk = Desk::new();
    desk.outbox.update(&view([approval(1)]), wall(0));
    desk.deliver();
    desk.outbox.update(&ended(1, "approved"), wall(10));
    desk.attempt(Attempt::NotDelivered);
    desk.outbox.update(&View::default(), wall(10 + 3599));
    assert_eq!(desk.outbox.waiting(), 1);
    desk.outbox.update(&View::default(), wall(10 + 3600));
    assert_eq!(desk.outbox.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn end_that_may_be_taken_back_is_not_told_yet() {
    let mut desk = Desk::new();
    desk.outbox.update(&view([approval(1)]), wall(0));
    desk.deliver();
    let held = [approval(1).key].into();
    desk.outbox.update(&View { held, ..ended(1, "withdrawn") }, wall(10));
    assert_eq!(desk.deliver(), [""; 0]);
    desk.outbox.update(&view([approval(1)]), wall(20));
    assert_eq!(desk.deliver(), [""; 0], "it is asked about again, and was told");
    desk.outbox.update(&ended(1, "withdrawn"), wall(60));
    assert_eq!(desk.deliver(), ["approval.decided"]);
}

#[tokio::test(start_paused = true)]
async fn damaged_and_later_files_are_not_read() {
    let mut desk = Desk::new();
    desk.outbox.update(&view([approval(1)]), wall(0));
    let text = desk.outbox.take_change().expect("it has changed").write();
    assert!(Stored::read(&text).is_ok());
    for text in
        ["", "{}", text.trim_end_matches('}'), &text.replace("\"version\":1", "\"version\":2")]
    {
        assert!(Stored::read(text).is_err(), "{text}");
    }
}

/// Two replicas of one receiver.
fn shared(subjects: &View) -> Outbox {
    let mut outbox = Outbox::new(true);
    outbox.update(subjects, wall(0));
    outbox
}

fn keys(outbox: &Outbox, now: Instant) -> Vec<String> {
    outbox.unclaimed(now).into_iter().map(|(key, _)| key).collect()
}

fn own(message: &str) -> Claimed {
    Claimed::Own { message: message.to_owned() }
}

#[tokio::test(start_paused = true)]
async fn replica_sends_only_what_it_has_claimed_under_the_id_of_the_claim() {
    let now = Instant::now();
    let mut outbox = shared(&view([approval(1), approval(2)]));
    let [one, two] = [1, 2].map(|number| approval(number).key);
    assert_eq!(keys(&outbox, now), [one.clone(), two.clone()]);
    outbox.claimed(&one, &own("msg_first"), now);
    outbox.claimed(&two, &Claimed::Elsewhere, now);
    let Next::Send(notice) = outbox.next(now, wall(0), String::new) else { panic!("one is due") };
    assert_eq!(notice.id, "msg_first");
    outbox.attempted(&notice.id, Attempt::Delivered, now);
    assert_eq!(outbox.take_rows().settled, [one]);
    assert_eq!(outbox.waiting(), 0, "the other one waits at the other replica");
    let later = now + ASK_AGAIN;
    assert_eq!(outbox.next(now, wall(0), String::new), Next::Wait(Some(later)));
    assert_eq!(keys(&outbox, later), [two.as_str()]);
    outbox.claimed(&two, &Claimed::Told, later);
    outbox.update(&View::default(), wall(20));
    let ends = keys(&outbox, later);
    assert_eq!(ends.len(), 2, "each replica offers both ends, and one row is of one replica");
    assert!(ends.iter().all(|key| key.contains("/end/")), "{ends:?}");
}

#[tokio::test(start_paused = true)]
async fn problem_that_another_replica_has_told_is_told_here_when_that_one_has_it_no_more() {
    let now = Instant::now();
    let problem = subject(Topic::Problem, 1, None);
    let key = problem.key.clone();
    let present = view([problem]);
    let (mut one, mut two) = (shared(&present), shared(&present));
    one.claimed(&key, &own("msg_p"), now);
    two.claimed(&key, &Claimed::Elsewhere, now);
    let Next::Send(notice) = one.next(now, wall(0), String::new) else { panic!("it is due") };
    one.attempted(&notice.id, Attempt::Delivered, now);
    assert_eq!(
        keys(&one, now + CLAIM),
        [key.as_str()],
        "it keeps the row while it has the problem"
    );
    one.update(&View::default(), wall(60));
    assert_eq!(one.take_rows().released, [key.as_str()]);
    let later = now + ASK_AGAIN;
    assert_eq!(keys(&two, later), [key.as_str()]);
    two.claimed(&key, &own("msg_q"), later);
    assert!(matches!(two.next(later, wall(60), String::new), Next::Send(_)));
}

#[tokio::test(start_paused = true)]
async fn problem_is_told_without_the_database_which_may_be_the_problem() {
    let now = Instant::now();
    let problem = subject(Topic::Problem, 1, None);
    let keys = [problem.key.clone(), approval(1).key];
    let mut outbox = shared(&view([problem, approval(1)]));
    for key in &keys {
        outbox.claimed(key, &Claimed::Unknown, now);
    }
    let Next::Send(notice) = outbox.next(now, wall(0), String::new) else { panic!("it is due") };
    assert_eq!(notice.news.kind(), "problem.began");
    outbox.attempted(&notice.id, Attempt::Delivered, now);
    assert!(matches!(outbox.next(now, wall(0), String::new), Next::Wait(Some(_))));
}
