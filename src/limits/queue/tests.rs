//! Who waits, who is sent away and when. Time is paused.

mod turns;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use tokio::time::{advance, sleep};

use super::*;

/// The app whose calls come, where it does not matter which.
fn one() -> AppName {
    AppName::from("one")
}

impl AdmissionQueue {
    fn waiting(&self) -> usize {
        self.0.lock().waiting.values().map(BTreeMap::len).sum()
    }
}

const HOUR: Duration = Duration::from_secs(60 * 60);

/// `count` that come now, and hold their permits for `each`; how it went, and when.
async fn come(
    queue: &AdmissionQueue,
    count: usize,
    each: Duration,
) -> Vec<(Result<(), Rejected>, u64)> {
    let begun = Instant::now();
    let app = one();
    let call = async || match queue.acquire(&app, begun + HOUR).await {
        Ok(_turn) => {
            let got = begun.elapsed().as_secs();
            sleep(each).await;
            (Ok(()), got)
        }
        Err(no) => (Err(no), begun.elapsed().as_secs()),
    };
    join_all((0..count).map(|_| call())).await
}

#[tokio::test(start_paused = true)]
async fn a_line_that_moves_is_waited_in_however_long_it_is() {
    let queue = AdmissionQueue::new(4);
    let went = come(&queue, 1000, Duration::from_secs(2)).await;
    assert!(went.iter().all(|(permit, _)| permit.is_ok()), "{went:?}");
    assert_eq!(went.last(), Some(&(Ok(()), 249 * 2)));
}

#[tokio::test(start_paused = true)]
async fn queue_that_stands_still_keeps_32_calls() {
    let queue = AdmissionQueue::new(4);
    let went = come(&queue, 500, Duration::from_secs(60)).await;
    let (got, sent_away): (Vec<_>, Vec<_>) =
        went.into_iter().partition(|(permit, _)| permit.is_ok());
    assert_eq!(got.len(), 4 + 32, "the first ones");
    assert!(sent_away.iter().all(|away| *away == (Err(Rejected::QueueFull), 3)), "{sent_away:?}");
}

#[tokio::test(start_paused = true)]
async fn call_at_a_queue_that_stands_still_is_refused_at_once() {
    let queue = AdmissionQueue::new(1);
    let _held = queue.acquire(&one(), Instant::now()).await.unwrap();
    let mut waiting = Box::pin(come(&queue, 32, Duration::ZERO));
    assert!(waiting.as_mut().now_or_never().is_none());
    advance(STANDSTILL).await;
    let begun = Instant::now();
    assert_eq!(queue.acquire(&one(), begun + HOUR).await.err(), Some(Rejected::QueueFull));
    assert!(begun.elapsed().is_zero());
    let app = one();
    let mut begun_before = Box::pin(queue.acquire_unbounded(&app, begun + HOUR));
    assert!(begun_before.as_mut().now_or_never().is_none(), "but not what has begun");
    // Whoever gives up leaves the place to others.
    drop((waiting, begun_before));
    assert_eq!(queue.acquire(&one(), begun + STANDSTILL).await.err(), Some(Rejected::Late));
    assert_eq!(queue.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn no_line_is_longer_than_its_bound() {
    let queue = AdmissionQueue::new(1);
    let _held = queue.acquire(&one(), Instant::now()).await.unwrap();
    let mut waiting = Box::pin(come(&queue, MAX_WAITING, Duration::ZERO));
    assert!(waiting.as_mut().now_or_never().is_none());
    assert_eq!(queue.acquire(&one(), Instant::now() + HOUR).await.err(), Some(Rejected::QueueFull));
    assert_eq!(queue.waiting(), MAX_WAITING);
}

#[tokio::test(start_paused = true)]
async fn queue_moves_again_when_a_turn_is_free() {
    let queue = AdmissionQueue::new(1);
    let held = queue.acquire(&one(), Instant::now()).await.unwrap();
    let mut waiting = Box::pin(come(&queue, 32, Duration::ZERO));
    assert!(waiting.as_mut().now_or_never().is_none());
    advance(HOUR / 2).await;
    drop(held);
    assert!(waiting.await.iter().all(|(permit, _)| permit.is_ok()));
    assert!(queue.acquire(&one(), Instant::now()).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn apps_take_turns() {
    let queue = AdmissionQueue::new(1);
    let held = queue.acquire(&one(), Instant::now()).await.unwrap();
    let mut many = Box::pin(come(&queue, 32, Duration::from_secs(10)));
    assert!(many.as_mut().now_or_never().is_none());
    let other = AppName::from("other");
    let by = Instant::now() + HOUR;
    let call = async {
        drop(queue.acquire(&other, by).await.unwrap());
        by - Instant::now()
    };
    let mut call = Box::pin(call);
    assert!(call.as_mut().now_or_never().is_none());
    drop(held);
    let (_, left) = tokio::join!(many, call);
    assert_eq!(left, HOUR - Duration::from_secs(10), "it waits for one call of the other app");
}

#[tokio::test(start_paused = true)]
async fn app_with_too_many_calls_keeps_no_other_out() {
    let queue = AdmissionQueue::new(1);
    let held = queue.acquire(&one(), Instant::now()).await.unwrap();
    let mut many = Box::pin(come(&queue, 500, HOUR));
    assert!(many.as_mut().now_or_never().is_none());
    advance(STANDSTILL).await;
    let full = queue.acquire(&one(), Instant::now() + HOUR).await;
    assert_eq!(full.err(), Some(Rejected::QueueFull));
    let other = AppName::from("other");
    let mut waits = Box::pin(queue.acquire(&other, Instant::now() + HOUR));
    assert!(waits.as_mut().now_or_never().is_none(), "it waits");
    drop(many);
    drop(held);
    assert!(waits.await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn permit_of_a_call_that_gave_up_goes_to_the_next() {
    let queue = AdmissionQueue::new(1);
    let held = queue.acquire(&one(), Instant::now()).await.unwrap();
    let app = one();
    let by = Instant::now() + HOUR;
    let mut first = Box::pin(queue.acquire(&app, by));
    let mut second = Box::pin(queue.acquire(&app, by));
    assert!(first.as_mut().now_or_never().is_none());
    assert!(second.as_mut().now_or_never().is_none());
    drop(held);
    // It was sent its permit, and does not take it.
    drop(first);
    drop(second.await.unwrap());
    assert!(queue.acquire(&app, Instant::now()).await.is_ok(), "it is free again");
}
