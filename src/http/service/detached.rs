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
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, info, warn};

use crate::http::api::routes::AfterHangUp;
use crate::http::{Body, Code, response};
use crate::limits::slots::Slot;
use crate::model::AppName;

/// How long a request may continue after its app has hung up, unless it has to reach its end.
/// MANTYX answers within seconds. Without this limit, each hang-up could keep a connection to
/// MANTYX for ever.
const ALONE: Duration = Duration::from_secs(2 * 60);
/// The open requests.
#[derive(Debug, Clone, Default)]
pub struct DetachedRequests {
    tracker: TaskTracker,
    cut: CancellationToken,
}

impl DetachedRequests {
    /// Runs `work` to its end, whether or not its caller waits for the answer.
    ///
    /// `slot` is not free before `work` has ended. Otherwise, an app that hangs up at once could
    /// have any number of requests that hold memory and connections to MANTYX.
    pub async fn answer<F>(
        &self,
        app: &AppName,
        after: AfterHangUp,
        slot: Option<Arc<Slot>>,
        work: F,
    ) -> Response<Body>
    where
        F: Future<Output = Response<Body>> + Send + 'static,
    {
        let hang_up = CancellationToken::new();
        let _hang_up_guard = hang_up.clone().drop_guard();
        let (cut, app_name) = (self.cut.clone(), app.clone());
        let mut work = Box::pin(work);
        // `None` if the daemon stops before the work has ended, or the caller is gone.
        let task = async move {
            let _slot = slot;
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

    use tokio::sync::oneshot;
    use tokio::time::Instant;

    use super::*;
    use crate::limits::slots::Slots;

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
            _ = requests.answer(&app, FOR_A_WHILE, None, work) => panic!("nobody has let it go on"),
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
            _ = requests.answer(&app, FOR_A_WHILE, None, work) => panic!("nobody has let it go on"),
            begun = waits => begun.unwrap(),
        }
        go.send(()).unwrap();
        has_ended.await.unwrap();
        assert!(requests.finish(ALONE).await);
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
        let answered = requests.answer(&app, AfterHangUp::ToItsEnd, None, work);
        timeout(Duration::from_secs(1), answered).await.expect_err("it hangs up");
        has_ended.await.unwrap();
        assert!(requests.finish(ALONE).await);
    }

    #[tokio::test(start_paused = true)]
    async fn request_of_an_app_that_hung_up_keeps_its_slot_to_its_end() {
        let requests = DetachedRequests::default();
        let (app, slots) = (app(), Slots::new(2));
        let (go, going) = oneshot::channel::<()>();
        let work = async {
            going.await.unwrap();
            ok()
        };
        let slot = slots.take(&app).map(Arc::new);
        let answer = requests.answer(&app, FOR_A_WHILE, slot, work);
        timeout(Duration::from_secs(1), answer).await.expect_err("it hangs up");
        assert!(slots.take(&app).is_none());
        go.send(()).unwrap();
        assert!(requests.finish(ALONE).await);
        assert!(slots.take(&app).is_some());
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
        let response =
            requests.answer(&app(), FOR_A_WHILE, None, async { panic!("on purpose") }).await;
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    }
}
