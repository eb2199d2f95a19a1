//! Runs each request that changes something in a task of the daemon's own.
//!
//! An app can hang up at any moment, and hyper then drops the connection's future. A request that
//! was sent to MANTYX by then has taken effect there: a run that was created needs its driver, and
//! a refresh token that was replaced has to be kept. So the connection only waits for the answer.
//!
//! Must not: know what a request does.

use std::sync::Arc;
use std::time::Duration;

use http::{Response, StatusCode};
use parking_lot::Mutex;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, info, warn};

use crate::http::api::routes::AfterHangUp;
use crate::http::{Body, Code, response};
use crate::model::AppName;
use crate::model::maps::HashMap;

/// How long a request may continue after its app has hung up, unless it has to reach its end.
/// MANTYX answers within seconds. Without this limit, each hang-up could keep a connection to
/// MANTYX for ever.
const ALONE: Duration = Duration::from_secs(2 * 60);
/// How many open requests one app may have, those included on which it has hung up: they hold
/// memory and connections that no limit of the listener counts any more.
const MAX: usize = 2048;

/// The open requests.
#[derive(Debug, Clone, Default)]
pub struct DetachedRequests {
    tracker: TaskTracker,
    cut: CancellationToken,
    /// Of each app, a value that each of its open requests holds as well.
    open: Arc<Mutex<HashMap<AppName, Arc<()>>>>,
}

impl DetachedRequests {
    /// Runs `work` to its end, whether or not its caller waits for the answer.
    pub async fn answer<F>(&self, app: &AppName, after: AfterHangUp, work: F) -> Response<Body>
    where
        F: Future<Output = Response<Body>> + Send + 'static,
    {
        let Some(open) = self.enter(app) else {
            let why = "The app has too many requests that wait for MANTYX; wait for the answers.";
            return response::retry_after(response::error(Code::Busy, why), 5);
        };
        let hang_up = CancellationToken::new();
        let _hang_up_guard = hang_up.clone().drop_guard();
        let (cut, app_name) = (self.cut.clone(), app.clone());
        let mut work = Box::pin(work);
        // `None` if the daemon stops before the work has ended, or the caller is gone.
        let task = async move {
            let _open = open;
            tokio::select! {
                // Polls the answer first: right after it, the caller is gone as well.
                biased;
                response = &mut work => return Some(response),
                () = cut.cancelled() => return None,
                () = hang_up.cancelled() => {}
            }
            info!(app = %app_name, "an app has hung up; its request is handled to the end");
            tokio::select! {
                _ = work => {}
                () = cut.cancelled() => {}
                () = sleep(ALONE), if after != AfterHangUp::ToItsEnd => {
                    warn!(
                        app = %app_name,
                        "a request without its app has taken over {ALONE:?}; dropped"
                    );
                }
            }
            None
        };
        match self.tracker.spawn(task).await {
            Ok(Some(response)) => response,
            Ok(None) => {
                let why = "The bridge stopped before MANTYX had answered. Look whether the request \
                           took effect before you send it again.";
                let down = response::error(Code::Internal, why);
                response::with_status(down, StatusCode::SERVICE_UNAVAILABLE)
            }
            Err(error) => {
                error!(%app, %error, "a request could not be handled");
                response::error(
                    Code::Internal,
                    "The bridge failed while it handled the request; its log says where. Look \
                     whether the request took effect before you send it again.",
                )
            }
        }
    }

    /// Counts one more request of `app` until the value is dropped; `None` if the app has too many.
    fn enter(&self, app: &AppName) -> Option<Arc<()>> {
        let mut open = self.open.lock();
        open.retain(|_, requests| Arc::strong_count(requests) > 1);
        let own = open.entry(app.clone()).or_default();
        if Arc::strong_count(own) <= MAX { Some(Arc::clone(own)) } else { None }
    }

    /// Waits for all open requests, at most `within`, and drops the remaining ones. Returns whether
    /// all ended in time. Call it only when no more requests can come.
    pub async fn finish(&self, within: Duration) -> bool {
        self.tracker.close();
        let finished = timeout(within, self.tracker.wait()).await.is_ok();
        self.cut.cancel();
        finished
    }
}

#[cfg(test)]
mod tests {
    //! Requests whose caller goes away, fails, or is one too many. Time is paused.

    use std::future::pending;

    use tokio::sync::oneshot;
    use tokio::time::Instant;

    use super::*;

    const FOR_A_WHILE: AfterHangUp = AfterHangUp::ForAWhile;

    fn app() -> AppName {
        AppName::from("a")
    }

    fn ok() -> Response<Body> {
        Response::new(response::full("done"))
    }

    /// Asks, and hangs up once the work waits for `going`.
    async fn hang_up<T: Send + 'static>(requests: &DetachedRequests, going: oneshot::Receiver<T>) {
        let (begun, waits) = oneshot::channel();
        let work = async move {
            begun.send(()).unwrap();
            going.await.ok();
            ok()
        };
        let app = app();
        tokio::select! {
            _ = requests.answer(&app, FOR_A_WHILE, work) => panic!("nobody has let it go on"),
            begun = waits => begun.unwrap(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn work_ends_although_its_caller_is_gone() {
        let requests = DetachedRequests::default();
        let (go, going) = oneshot::channel::<()>();
        let (ended, has_ended) = oneshot::channel();
        let (begun, waits) = oneshot::channel();
        let work = async move {
            begun.send(()).unwrap();
            going.await.unwrap();
            ended.send(()).unwrap();
            ok()
        };
        let app = app();
        tokio::select! {
            _ = requests.answer(&app, FOR_A_WHILE, work) => panic!("nobody has let it go on"),
            begun = waits => begun.unwrap(),
        }
        go.send(()).unwrap();
        has_ended.await.unwrap();
        assert!(requests.finish(ALONE).await);
        assert!(requests.open.lock().values().all(|open| Arc::strong_count(open) == 1));
    }

    #[tokio::test(start_paused = true)]
    async fn work_without_its_caller_has_an_end() {
        let requests = DetachedRequests::default();
        let (_go, going) = oneshot::channel::<()>();
        let begun = Instant::now();
        hang_up(&requests, going).await;
        assert!(requests.finish(2 * ALONE).await);
        assert_eq!(begun.elapsed(), ALONE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_submission_without_its_caller_goes_on_to_its_end() {
        let requests = DetachedRequests::default();
        let (ended, has_ended) = oneshot::channel();
        let work = async move {
            sleep(10 * ALONE).await;
            ended.send(()).unwrap();
            ok()
        };
        let app = app();
        let answered = requests.answer(&app, AfterHangUp::ToItsEnd, work);
        timeout(Duration::from_secs(1), answered).await.expect_err("it hangs up");
        has_ended.await.unwrap();
        assert!(requests.finish(ALONE).await);
    }

    #[tokio::test(start_paused = true)]
    async fn an_app_has_so_many_under_way_that_it_can_hang_up_on() {
        let requests = DetachedRequests::default();
        let app = app();
        let other = AppName::from("b");
        let hangs = || requests.answer(&app, FOR_A_WHILE, pending());
        let mut held: Vec<_> = (0..MAX).map(|_| Box::pin(hangs())).collect();
        for answer in &mut held {
            assert!(futures_util::poll!(answer).is_pending());
        }
        assert_eq!(hangs().await.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(requests.answer(&other, FOR_A_WHILE, async { ok() }).await.status(), 200);
        drop(held);
        assert!(requests.finish(2 * ALONE).await);
        assert!(requests.open.lock().values().all(|open| Arc::strong_count(open) == 1));
    }

    #[tokio::test(start_paused = true)]
    async fn at_a_stop_work_is_waited_for_and_then_dropped() {
        let requests = DetachedRequests::default();
        let (_go, going) = oneshot::channel::<()>();
        hang_up(&requests, going).await;
        assert!(!requests.finish(Duration::from_secs(1)).await);
        requests.tracker.wait().await;
    }

    #[tokio::test]
    async fn a_panic_is_an_answer() {
        let requests = DetachedRequests::default();
        let response = requests.answer(&app(), FOR_A_WHILE, async { panic!("on purpose") }).await;
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    }
}
