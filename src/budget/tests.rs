//! Who gets room, who waits for it, and who goes without. Time is paused where it matters.

use futures_util::{FutureExt as _, StreamExt as _, stream};
use tokio::time::advance;

use super::*;
use crate::simulated;

/// A response that says `pieces`, and then nothing for ever.
pub(crate) fn quiet_after(pieces: Vec<Vec<u8>>) -> reqwest::Response {
    let said = stream::iter(pieces.into_iter().map(Ok::<_, std::io::Error>));
    let body = reqwest::Body::wrap_stream(said.chain(stream::pending()));
    http::Response::new(body).into()
}

tokio::task_local! {
    /// The budget of a test that needs its own.
    pub(super) static BUDGET: Arc<Budget>;
}

/// The budget that takes the place of the process's, in a test that has one or in a simulation.
pub(super) fn of_test() -> Option<Arc<Budget>> {
    let of_world = || Some(simulated::world()?.budget());
    BUDGET.try_with(Arc::clone).ok().or_else(of_world)
}

impl Budget {
    /// How many bytes are held.
    pub(crate) fn held(&self) -> usize {
        self.used.lock().counts.iter().sum()
    }

    pub(crate) fn with_room(room: usize) -> Arc<Self> {
        Self::new(room)
    }

    /// Does `work`, for which `budget` is that of the process.
    pub(crate) async fn instead<F: Future>(budget: &Arc<Self>, work: F) -> F::Output {
        BUDGET.scope(Arc::clone(budget), work).await
    }
}

/// Does `work` where all room is taken but that of small bodies.
pub(crate) async fn without_room<F: Future>(work: F) -> F::Output {
    let budget = budget();
    let mut all = budget.hold();
    all.insist(10 * MIB);
    let mut last = budget.hold();
    last.resize(LAST).await.unwrap();
    Budget::instead(&budget, work).await
}

/// One whose room is 10 MiB.
fn budget() -> Arc<Budget> {
    Budget::new(10 * MIB)
}

#[tokio::test(start_paused = true)]
async fn beyond_the_room_one_gets_through_and_others_give_up() {
    let budget = budget();
    let [mut first, mut second, mut third] = [(); 3].map(|()| budget.hold());
    first.resize(5 * MIB).await.unwrap();
    second.resize(5 * MIB).await.unwrap();
    assert_eq!(budget.used(), 10 * MIB);
    // The first that needs more has the room that is kept for one.
    first.resize(64 * MIB).await.unwrap();
    let begun = Instant::now();
    assert_eq!(second.resize(11 * MIB).await, Err(NoRoom));
    assert_eq!(budget.used(), 69 * MIB, "what it had, it keeps");
    second.resize(10 * MIB).await.unwrap();
    assert_eq!(third.resize(MIB).await, Err(NoRoom));
    assert_eq!(begun.elapsed(), 2 * PATIENCE);
    // What is small has room all the same.
    third.resize(SMALL).await.unwrap();
    drop((first, second, third));
    assert_eq!(budget.used(), 0);
}

#[tokio::test(start_paused = true)]
async fn room_that_is_given_back_goes_to_whoever_waits() {
    let budget = budget();
    let [mut first, mut second, mut third] = [(); 3].map(|()| budget.hold());
    first.resize(10 * MIB).await.unwrap();
    second.resize(20 * MIB).await.unwrap();
    let mut waiting = Box::pin(third.resize(2 * MIB));
    assert!(waiting.as_mut().now_or_never().is_none());
    first.resize(9 * MIB).await.unwrap();
    assert!(waiting.as_mut().now_or_never().is_none(), "it needs 2");
    drop(second);
    waiting.await.unwrap();
    assert_eq!(budget.used(), 11 * MIB, "the room for the last is free");
}

#[tokio::test(start_paused = true)]
async fn bytes_that_must_not_be_lost_are_held_and_others_wait() {
    let budget = budget();
    let [mut answer, mut spec] = [(); 2].map(|()| budget.hold());
    answer.insist(100 * MIB);
    assert_eq!(spec.resize(MIB).await, Err(NoRoom));
    drop(answer);
    spec.resize(MIB).await.unwrap();
    let mut stream = budget.hold();
    for (there, counted) in [(CHUNKS, 0), (20 * MIB, 20 * MIB), (MIB, MIB), (1, 0)] {
        stream.follow(there);
        assert_eq!(budget.used(), MIB + counted, "{there}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_room_for_the_last_goes_on_to_the_next() {
    let budget = budget();
    let [mut first, mut second, mut third] = [(); 3].map(|()| budget.hold());
    first.resize(9 * MIB).await.unwrap();
    second.resize(20 * MIB).await.unwrap();
    assert_eq!(third.resize(20 * MIB).await, Err(NoRoom));
    // Those who had it live on, with nothing and with little.
    second.resize(0).await.unwrap();
    third.resize(20 * MIB).await.unwrap();
    first.resize(MIB).await.unwrap();
    third.resize(2 * MIB).await.unwrap();
    second.resize(40 * MIB).await.unwrap();
    assert_eq!(budget.used(), 43 * MIB);
}

/// What `app` holds, and the first of all as it grows.
async fn held(budget: &Arc<Budget>, app: &str, sizes: &[usize]) -> Vec<Held> {
    for_app(app.into(), async {
        let mut all = Vec::new();
        for size in sizes {
            let mut held = budget.hold();
            // Where there is no room, it keeps what it has.
            let _granted = held.resize(*size).await.is_ok();
            all.push(held);
        }
        all
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn no_app_takes_the_room_of_the_others() {
    let budget = budget();
    assert_eq!(budget.shortage(PATIENCE), None);
    // Two that grow where there is no room take the room for the last, one after the other.
    let of_a = held(&budget, "a", &[4 * MIB, 60 * MIB, 60 * MIB, MIB, MIB]).await;
    let bytes: Vec<usize> = of_a.iter().map(|held| held.bytes / MIB).collect();
    assert_eq!(bytes, [4, 60, 0, 1, 0], "half of the room, and the last");
    let short = budget.shortage(PATIENCE).expect("two were refused");
    assert_eq!(short, Shortage { used: 65 * MIB, most: Some(("a".into(), 65 * MIB)) });
    let begun = Instant::now();
    let of_b = held(&budget, "b", &[MIB, MIB]).await;
    assert_eq!((of_b[0].bytes, of_b[1].bytes), (MIB, MIB));
    assert_eq!(begun.elapsed(), Duration::ZERO, "without a wait");
    // What is nobody's may have the rest.
    budget.hold().resize(3 * MIB).await.unwrap();
    drop((of_a, of_b));
    assert!(budget.used.lock().by_app.is_empty());
    advance(PATIENCE).await;
    assert_eq!((budget.used(), budget.shortage(PATIENCE)), (0, None));
}

#[tokio::test(start_paused = true)]
async fn small_ones_leave_room_for_the_last() {
    let budget = budget();
    let mut all = Vec::new();
    loop {
        let mut small = budget.hold();
        if small.resize(SMALL).await.is_err() {
            break;
        }
        all.push(small);
    }
    assert_eq!(budget.used(), 10 * MIB + ROOM_OF_SMALL);
    let mut large = budget.hold();
    large.resize(LAST).await.unwrap();
    // What grows is counted where the large ones are, and what was small has room for others.
    let mut grown = all.pop().unwrap();
    assert_eq!(grown.resize(SMALL + 1).await, Err(NoRoom));
    drop(large);
    grown.resize(SMALL + 1).await.unwrap();
    budget.hold().resize(SMALL).await.unwrap();
    drop((all, grown));
    assert_eq!(budget.used(), 0);
}

#[tokio::test]
async fn a_buffer_pays_for_what_has_come() {
    let mut buffer =
        Buffer { bytes: Vec::new(), held: budget().hold(), expected: 60 * MIB, insists: false };
    buffer.push(b"x").await.unwrap();
    assert_eq!(buffer.held.bytes, 1 + FIRST_STEP - 1, "not for what was announced");
    let piece = vec![0; MIB];
    for _ in 0..59 {
        buffer.push(&piece).await.unwrap();
    }
    assert!(buffer.held.bytes <= 60 * MIB, "{}", buffer.held.bytes);
    assert_eq!(buffer.bytes.capacity(), buffer.held.bytes);
    let budget = Arc::clone(&buffer.held.budget);
    let whole = buffer.into_bytes();
    let part = whole.slice(..1);
    drop(whole);
    assert_ne!(budget.used(), 0, "a part keeps all of them");
    drop(part);
    assert_eq!(budget.used(), 0);
}

impl Budget {
    /// How many bytes are held.
    pub(crate) fn used(&self) -> usize {
        self.used.lock().counts.iter().sum()
    }
}

impl Held {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}
