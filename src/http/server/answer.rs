//! The body of an answer on its way. It keeps its request open until it has been sent, and its peer
//! has to keep reading.
//!
//! `stream` notices a peer that reads nothing from its socket. On HTTP/2, a peer can read from the
//! socket all the time, and still take nothing of one answer.
//!
//! Must not: change the answer.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::sync::watch;
use tokio::time::Instant;

use super::activity::{Open, overdue};
use super::stream::STALL;
use crate::http::{Body, BoxError};

/// The body of an answer.
pub(super) struct Answer {
    body: Body,
    taking: Option<Arc<Taking>>,
    _open: Open,
}

/// How the peer takes one answer.
#[derive(Debug)]
pub(super) struct Taking(
    /// Since when a piece of the answer has been ready without a request for the next one.
    watch::Sender<Option<Instant>>,
);

impl Taking {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(None))
    }

    /// Resolves when the peer has not asked for the answer's next piece for [`STALL`].
    pub(super) async fn given_up(&self) {
        overdue(&self.0, |waiting| Some(waiting? + STALL)).await;
    }
}

impl Answer {
    /// The answer `body` to the request `open`; progress is recorded in `taking`.
    pub(super) fn new(body: Body, open: Open, taking: Option<Arc<Taking>>) -> Self {
        let answer = Self { body, taking, _open: open };
        answer.note(Some(Instant::now()));
        answer
    }

    fn note(&self, waiting: Option<Instant>) {
        if let Some(taking) = &self.taking {
            taking.0.send_replace(waiting);
        }
    }
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        // Without a ready piece, the peer waits for the bridge, and must not be blamed.
        self.note(polled.is_ready().then(Instant::now));
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    //! What is not taken is given up, what is only slow in coming is not. Time is paused.

    use std::future::pending;
    use std::time::Duration;

    use futures_util::stream;
    use http_body_util::BodyExt as _;
    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::http::response;
    use crate::http::server::activity::Activity;

    fn answer(body: Body) -> (Answer, Arc<Taking>) {
        let taking = Arc::new(Taking::new());
        let open = Arc::new(Activity::new()).request();
        (Answer::new(body, open, Some(Arc::clone(&taking))), taking)
    }

    #[tokio::test(start_paused = true)]
    async fn answer_that_no_client_takes_is_given_up() {
        let (answer, taking) = answer(response::full("x"));
        let begun = Instant::now();
        taking.given_up().await;
        assert_eq!(begun.elapsed(), STALL);
        drop(answer);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_slow_itself_is_not() {
        let pieces = stream::once(async { Bytes::from("x") });
        let pieces = stream::StreamExt::chain(pieces, stream::once(pending()));
        let (mut answer, taking) = answer(response::streamed(Box::pin(pieces)));
        let reader = async {
            sleep(STALL - Duration::from_secs(1)).await;
            answer.frame().await.unwrap().unwrap();
            sleep(STALL - Duration::from_secs(1)).await;
            answer.frame().await;
        };
        let given_up = taking.given_up();
        let both = async {
            tokio::select! { () = reader => (), () = given_up => () }
        };
        timeout(STALL * 100, both).await.expect_err("it is waited for");
    }
}
