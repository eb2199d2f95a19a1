//! An answer on its way: its request is open until it has gone, and somebody has to take it.
//!
//! What is written to a socket that nobody reads from is noticed there (`stream`). On HTTP/2, a peer
//! reads all the time, and yet may take nothing of one answer.
//!
//! Must not: change what is answered.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use super::{activity::Open, stream::STALL};
use crate::http::response::{Body, BoxError};

/// The body of an answer.
pub(super) struct Answer {
    body: Body,
    taking: Option<Arc<Taking>>,
    _open: Open,
}

/// Whether one answer is taken.
#[derive(Debug)]
pub(super) struct Taking(
    /// Since when a piece has been there that nobody has asked for.
    watch::Sender<Option<Instant>>,
);

impl Taking {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(None))
    }

    /// Waits until nobody has asked for the answer's next piece for too long.
    pub(super) async fn given_up(&self) {
        let mut watched = self.0.subscribe();
        loop {
            let waiting = *watched.borrow_and_update();
            // The sender is ours, so there is always more to come.
            match waiting {
                None => drop(watched.changed().await),
                Some(since) => tokio::select! {
                    () = sleep_until(since + STALL) => return,
                    _ = watched.changed() => (),
                },
            }
        }
    }
}

impl Answer {
    /// `body`, whose request is `open`; `taking` is told how it is taken.
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
        // While there is none, it is the bridge that is waited for.
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

    use std::{future::pending, time::Duration};

    use futures_util::stream;
    use http_body_util::BodyExt as _;
    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::http::{response, server::activity::Activity};

    fn answer(body: Body) -> (Answer, Arc<Taking>) {
        let taking = Arc::new(Taking::new());
        let open = Arc::new(Activity::new()).request();
        (Answer::new(body, open, Some(Arc::clone(&taking))), taking)
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_takes_is_given_up() {
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
