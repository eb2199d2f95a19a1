//! The line in which the posts of one credential wait, so that they keep to its [`Budget`].
//!
//! Must not: know what is posted, or hold a post beyond the moment that its sender gives.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Notify, Semaphore},
    time::{Instant, sleep_until, timeout_at},
};
use tracing::debug;

use super::pacing::{Budget, Post, Told};

/// A post that is on its way until this is dropped.
#[derive(Debug)]
pub(super) struct Going<'a> {
    line: &'a Line,
    post: Post,
}

impl Going<'_> {
    /// MANTYX has answered it.
    pub(super) fn heard(self, told: Option<Told>) {
        let (line, post) = (self.line, self.post);
        drop(self);
        line.hear(told, Some(post));
    }
}

impl Drop for Going<'_> {
    fn drop(&mut self) {
        self.line.budget().ended();
    }
}

/// The line of one credential.
#[derive(Debug)]
pub(super) struct Line {
    /// Whoever holds it is the first in line.
    front: Semaphore,
    budget: Mutex<Budget>,
    /// The budget has changed, so that the first in line looks again.
    news: Notify,
}

impl Line {
    pub(super) fn new() -> Self {
        let budget = Mutex::new(Budget::new(Instant::now()));
        Self { front: Semaphore::new(1), budget, news: Notify::new() }
    }

    /// Waits until a post may go, at most until `latest`; then it goes all the same, since MANTYX
    /// may take it.
    pub(super) async fn turn(&self, latest: Instant) -> Going<'_> {
        let begun = Instant::now();
        let turn = async {
            let _front = self.front.acquire().await;
            loop {
                let now = Instant::now();
                let next = self.budget().next(now);
                if next <= now {
                    break;
                }
                tokio::select! {
                    () = sleep_until(next) => (),
                    () = self.news.notified() => (),
                }
            }
            self.budget().take(Instant::now())
        };
        let post = timeout_at(latest, turn).await;
        let post = post.unwrap_or_else(|_elapsed| self.budget().take(Instant::now()));
        let waited = begun.elapsed();
        if !waited.is_zero() {
            debug!(?waited, "a post was held back for MANTYX's rate limit");
        }
        Going { line: self, post }
    }

    /// MANTYX has told somebody else of this credential how much is left.
    pub(super) fn overheard(&self, told: Told) {
        self.hear(Some(told), None);
    }

    fn hear(&self, told: Option<Told>, post: Option<Post>) {
        self.budget().heard(told, post, Instant::now());
        self.news.notify_one();
    }

    /// MANTYX has refused a post and wants none for `time`.
    pub(super) fn refused(&self, time: Duration) {
        self.budget().refused(time, Instant::now());
        self.news.notify_one();
    }

    /// Whether a new line would do the same.
    pub(super) fn is_forgotten(&self) -> bool {
        self.budget().is_forgotten(Instant::now())
    }

    fn budget(&self) -> MutexGuard<'_, Budget> {
        // No method of a budget panics half-way.
        self.budget.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
