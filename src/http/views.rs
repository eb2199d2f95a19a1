//! Answers that are written from what the bridge holds: lists of tools, the status, questions that
//! wait. Such an answer can have many megabytes, and take a second of a processor.
//!
//! Each app has one written at a time, and all apps together use half of the processors. So an app
//! that asks for many delays its own requests, and not the calls of others. An answer is written on
//! a thread for such work, and counted for its app until the client has read it. Large bodies are
//! read in the same turns.
//!
//! Must not: know what an answer says.

use std::fmt;
use std::sync::{Arc, Weak};
use std::thread::available_parallelism;
use std::time::Duration;

use http::Response;
use http_body::Body as _;
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::budget::{Budget, NoRoom};
use crate::http::{Body, Code, response};
use crate::model::AppName;
use crate::model::maps::HashMap;
use crate::tasks::{LARGE, in_background};

/// How long a request waits until its answer may be written.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long an answer that is written waits for room. The app's next one waits with it.
const ROOM_PATIENCE: Duration = Duration::from_secs(1);
/// The largest answer that is not counted.
const SMALL: u64 = 16 << 10;
/// The `Retry-After` for an app whose turn has not come, in seconds.
const RETRY_AFTER: u64 = 3;

/// Decides whose answer is written next.
#[derive(Debug)]
pub struct Views {
    /// The turn of each app that has one or waits for one.
    apps: Mutex<HashMap<AppName, Weak<Semaphore>>>,
    processors: Arc<Semaphore>,
}

/// Why an answer was not written, or not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ViewRefusal {
    /// The app has asked for too many at once.
    TooMany,
    NoRoom,
    GoingDown,
}

impl fmt::Display for ViewRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany => f.write_str(
                "The answer was not written in time, as others that the app has asked for come \
                 first; ask for fewer at once.",
            ),
            Self::NoRoom => write!(f, "{NoRoom}; read the answers that are open, and ask again."),
            Self::GoingDown => f.write_str("The bridge is stopping."),
        }
    }
}

impl From<ViewRefusal> for Response<Body> {
    fn from(why: ViewRefusal) -> Self {
        response::retry_after(response::error(Code::Busy, &why.to_string()), RETRY_AFTER)
    }
}

/// The right to have an answer written. It has no more than one per app.
struct Turn {
    of_app: OwnedSemaphorePermit,
    processor: OwnedSemaphorePermit,
}

impl Default for Views {
    fn default() -> Self {
        let processors = available_parallelism().map_or(1, usize::from);
        Self::with_processors(processors.div_ceil(2))
    }
}

impl Views {
    fn with_processors(count: usize) -> Self {
        Self { apps: Mutex::default(), processors: Arc::new(Semaphore::new(count)) }
    }

    /// Has `write` write an answer for `app`. If the caller goes away meanwhile, the answer is
    /// dropped once it is written.
    ///
    /// # Errors
    ///
    /// It took too long for the app's turn to come, or the app holds too many bytes.
    pub async fn write(
        &self,
        app: &AppName,
        write: impl FnOnce() -> Response<Body> + Send + 'static,
    ) -> Result<Response<Body>, ViewRefusal> {
        let (answer, Turn { of_app, processor }) = self.in_turn(app, write).await?;
        drop(processor);
        let paid = paid_for(app, answer).await;
        // Not before: of the answers that wait for room, each app has one in memory.
        drop(of_app);
        paid
    }

    /// Does `work` for `app`, such as reading a large body, in the app's turn.
    ///
    /// # Errors
    ///
    /// It took too long for the app's turn to come.
    pub async fn work<T: Send + 'static>(
        &self,
        app: &AppName,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ViewRefusal> {
        self.in_turn(app, work).await.map(|(done, _turn)| done)
    }

    /// [`Self::work`] if `bytes`, the size of what `work` looks at, are many; otherwise at once.
    ///
    /// # Errors
    ///
    /// It took too long for the app's turn to come.
    pub async fn work_if_large<T: Send + 'static>(
        &self,
        app: &AppName,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ViewRefusal> {
        if bytes < LARGE { Ok(work()) } else { self.work(app, work).await }
    }

    /// Does `work` in the app's turn, which lasts until it is dropped.
    async fn in_turn<T: Send + 'static>(
        &self,
        app: &AppName,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<(T, Turn), ViewRefusal> {
        let turn = timeout(PATIENCE, self.turn(app)).await.map_err(|_late| ViewRefusal::TooMany)?;
        // The thread has the turn: it works on when the caller has gone.
        match in_background(move || (work(), turn)).await {
            Ok(done) => Ok(done),
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_cancelled) => Err(ViewRefusal::GoingDown),
            },
        }
    }

    async fn turn(&self, app: &AppName) -> Turn {
        let own = self.own(app).acquire_owned().await.expect("it is never closed");
        let processors = Arc::clone(&self.processors);
        let processor = processors.acquire_owned().await.expect("it is never closed");
        Turn { of_app: own, processor }
    }

    fn own(&self, app: &AppName) -> Arc<Semaphore> {
        let mut apps = self.apps.lock();
        if let Some(own) = apps.get(app).and_then(Weak::upgrade) {
            return own;
        }
        apps.retain(|_, own| own.strong_count() > 0);
        let own = Arc::new(Semaphore::new(1));
        apps.insert(app.clone(), Arc::downgrade(&own));
        own
    }
}

/// `answer`, whose bytes count for `app` until they are sent. A stream counts its bytes itself.
/// Without this, an app that does not read could fill the memory with answers that repeat its own
/// requests.
pub async fn paid_for(
    app: &AppName,
    answer: Response<Body>,
) -> Result<Response<Body>, ViewRefusal> {
    if response::is_counted(&answer) {
        return Ok(answer);
    }
    let size = answer.body().size_hint().exact().filter(|size| *size > SMALL);
    let Some(size) = size.and_then(|size| usize::try_from(size).ok()) else { return Ok(answer) };
    let mut room = Budget::of_process().hold_for(Some(app.clone()));
    let resized = timeout(ROOM_PATIENCE, room.resize(size)).await;
    resized.unwrap_or(Err(NoRoom)).map_err(|NoRoom| ViewRefusal::NoRoom)?;
    let (parts, body) = answer.into_parts();
    let whole = body.collect().await.expect("a body of known size is there whole").to_bytes();
    Ok(response::counted(Response::from_parts(parts, response::full(room.pay_for(whole)))))
}

#[cfg(test)]
mod tests {
    //! Who waits for whom, and what an answer costs.

    use std::pin::pin;
    use std::sync::mpsc;

    use futures_util::FutureExt as _;

    use super::*;
    use crate::budget::tests::without_room;

    const MIB: usize = 1 << 20;

    fn answer(size: usize) -> Response<Body> {
        response::json_text(vec![b'x'; size])
    }

    #[tokio::test]
    async fn app_has_one_answer_written_at_a_time() {
        let views = Views::with_processors(2);
        let (a, b) = (AppName::from("a"), AppName::from("b"));
        let (go, gone) = mpsc::channel();
        let slow = move || {
            gone.recv().expect("the test says when");
            answer(1)
        };
        let mut first = pin!(views.write(&a, slow));
        assert!(first.as_mut().now_or_never().is_none());
        let mut second = pin!(views.write(&a, || answer(2)));
        assert!(second.as_mut().now_or_never().is_none());
        assert!(views.write(&b, || answer(3)).await.is_ok(), "another app does not wait");
        assert!(second.as_mut().now_or_never().is_none(), "the first is not written yet");
        go.send(()).expect("it waits");
        assert!(first.await.is_ok());
        assert!(second.await.is_ok());
    }

    #[tokio::test]
    async fn large_body_is_read_in_the_turn_of_its_app() {
        let views = Views::with_processors(2);
        let (a, b) = (AppName::from("a"), AppName::from("b"));
        let (go, gone) = mpsc::channel();
        let mut first = pin!(views.write(&a, move || {
            gone.recv().expect("the test says when");
            answer(1)
        }));
        assert!(first.as_mut().now_or_never().is_none());
        let mut read = pin!(views.work(&a, || 7));
        assert!(read.as_mut().now_or_never().is_none());
        assert_eq!(views.work(&b, || 8).await, Ok(8), "another app does not wait");
        assert!(read.as_mut().now_or_never().is_none(), "the first is not written yet");
        go.send(()).expect("it waits");
        assert!(first.await.is_ok());
        assert_eq!(read.await, Ok(7));
    }

    #[tokio::test]
    async fn only_large_work_waits_for_the_turn_of_its_app() {
        let views = Views::with_processors(2);
        let app = AppName::from("a");
        let (go, gone) = mpsc::channel();
        let mut first = pin!(views.work(&app, move || gone.recv().expect("the test says when")));
        assert!(first.as_mut().now_or_never().is_none());
        assert_eq!(views.work_if_large(&app, LARGE - 1, || 1).await, Ok(1));
        let mut large = pin!(views.work_if_large(&app, LARGE, || 2));
        assert!(large.as_mut().now_or_never().is_none(), "the turn is taken");
        go.send(()).expect("it waits");
        assert_eq!(first.await, Ok(()));
        assert_eq!(large.await, Ok(2));
    }

    #[tokio::test]
    async fn answer_that_is_counted_is_not_counted_again() {
        let budget = Budget::with_room(10 * MIB);
        Budget::instead(&budget, async {
            let app = AppName::from("a");
            let once = paid_for(&app, answer(4 * MIB)).await.expect("there is room");
            let twice = paid_for(&app, once).await.expect("it is counted already");
            assert_eq!(budget.held(), 4 * MIB);
            drop(twice);
            assert_eq!(budget.held(), 0);
        })
        .await;
    }

    #[tokio::test]
    async fn answer_counts_for_its_app_until_it_is_read() {
        let budget = Budget::with_room(10 * MIB);
        let views = Views::with_processors(1);
        Budget::instead(&budget, async {
            let app = AppName::from("a");
            let small = views.write(&app, || answer(100)).await.expect("a turn");
            assert_eq!(budget.held(), 0);
            let large = views.write(&app, || answer(4 * MIB)).await.expect("there is room");
            assert_eq!(budget.held(), 4 * MIB);
            let bytes = large.into_body().collect().await.expect("a body").to_bytes();
            assert_eq!((bytes.len(), budget.held()), (4 * MIB, 4 * MIB), "it is being sent");
            drop((small, bytes));
            assert_eq!(budget.held(), 0);
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn app_without_room_is_told_so() {
        let refused = without_room(async {
            Views::default().write(&AppName::from("a"), || answer(MIB)).await.map(|_| ())
        });
        assert_eq!(refused.await, Err(ViewRefusal::NoRoom));
    }
}
