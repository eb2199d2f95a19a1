//! Who waits, who is sent away and when. Time is paused.

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use tokio::time::{advance, sleep};

use super::*;

const HOUR: Duration = Duration::from_secs(60 * 60);

/// `count` that come now, and hold their permits for `each`; how it went, and when.
async fn come(
    queue: &AdmissionQueue,
    count: usize,
    each: Duration,
) -> Vec<(Result<(), Rejected>, u64)> {
    let begun = Instant::now();
    let one = async || match queue.acquire(begun + HOUR).await {
        Ok(_turn) => {
            let got = begun.elapsed().as_secs();
            sleep(each).await;
            (Ok(()), got)
        }
        Err(no) => (Err(no), begun.elapsed().as_secs()),
    };
    join_all((0..count).map(|_| one())).await
}

#[tokio::test(start_paused = true)]
async fn a_line_that_moves_is_waited_in_however_long_it_is() {
    let queue = AdmissionQueue::new(4);
    let went = come(&queue, 1000, Duration::from_secs(2)).await;
    assert!(went.iter().all(|(permit, _)| permit.is_ok()), "{went:?}");
    assert_eq!(went.last(), Some(&(Ok(()), 249 * 2)));
}

#[tokio::test(start_paused = true)]
async fn of_one_that_stands_still_32_stay() {
    let queue = AdmissionQueue::new(4);
    let went = come(&queue, 500, Duration::from_secs(60)).await;
    let (got, sent_away): (Vec<_>, Vec<_>) =
        went.into_iter().partition(|(permit, _)| permit.is_ok());
    assert_eq!(got.len(), 4 + 32, "the first ones");
    assert!(sent_away.iter().all(|away| *away == (Err(Rejected::QueueFull), 3)), "{sent_away:?}");
}

#[tokio::test(start_paused = true)]
async fn whoever_comes_to_one_that_stands_still_is_sent_away_at_once() {
    let queue = AdmissionQueue::new(1);
    let _held = queue.acquire(Instant::now()).await.unwrap();
    let mut waiting = Box::pin(come(&queue, 32, Duration::ZERO));
    assert!(waiting.as_mut().now_or_never().is_none());
    advance(STANDSTILL).await;
    let begun = Instant::now();
    assert_eq!(queue.acquire(begun + HOUR).await.err(), Some(Rejected::QueueFull));
    assert!(begun.elapsed().is_zero());
    let mut begun_before = Box::pin(queue.acquire_for_begun(begun + HOUR));
    assert!(begun_before.as_mut().now_or_never().is_none(), "but not what has begun");
    // Whoever gives up leaves the place to others.
    drop((waiting, begun_before));
    assert_eq!(queue.acquire(begun + STANDSTILL).await.err(), Some(Rejected::Late));
    assert_eq!(queue.waiting.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn no_line_is_longer_than_its_bound() {
    let queue = AdmissionQueue::new(1);
    let _held = queue.acquire(Instant::now()).await.unwrap();
    let mut waiting = Box::pin(come(&queue, MAX_WAITING, Duration::ZERO));
    assert!(waiting.as_mut().now_or_never().is_none());
    assert_eq!(queue.acquire(Instant::now() + HOUR).await.err(), Some(Rejected::QueueFull));
    assert_eq!(queue.waiting.len(), MAX_WAITING);
}

#[tokio::test(start_paused = true)]
async fn it_moves_again_when_a_turn_is_free() {
    let queue = AdmissionQueue::new(1);
    let held = queue.acquire(Instant::now()).await.unwrap();
    let mut waiting = Box::pin(come(&queue, 32, Duration::ZERO));
    assert!(waiting.as_mut().now_or_never().is_none());
    advance(HOUR / 2).await;
    drop(held);
    assert!(waiting.await.iter().all(|(permit, _)| permit.is_ok()));
    assert!(queue.acquire(Instant::now()).await.is_ok());
}
