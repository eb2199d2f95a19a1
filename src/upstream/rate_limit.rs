//! The rate limit of one credential: the time of its next post to MANTYX.
//!
//! Posts keep to the window that MANTYX has announced ([`window`]), and after a refusal with
//! `Retry-After`, to that time. Shortly before its deadline, a post is sent nevertheless, since
//! MANTYX may take it.
//!
//! Must not: know the content of a post.

mod window;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, sleep_until, timeout_at};
use tracing::debug;

pub(super) use self::window::{AnnouncedBudget, BUCKET};
use self::window::{Post, Window};
use crate::model::maps::HashMap;
use crate::random;

/// This long before its deadline, a post no longer waits for the window.
pub(super) const LAST_CHANCE: Duration = Duration::from_secs(5);
/// The time over which posts are spread that waited for the same pause. Sent at once, they would be
/// refused again.
const PAUSE_JITTER: Duration = Duration::from_millis(500);

/// The limiters of all credentials, by the id of each.
#[derive(Debug, Default)]
pub(super) struct RateLimits(Mutex<HashMap<[u8; 32], Arc<RateLimiter>>>);

/// The limiter of one credential.
#[derive(Debug)]
pub(super) struct RateLimiter {
    /// Its holder makes the next post.
    next: Semaphore,
    state: Mutex<State>,
    /// Notifies that the window has changed, so that the next post checks it again.
    news: Notify,
}

#[derive(Debug)]
struct State {
    window: Window,
    /// MANTYX accepts no post before this time.
    paused_until: Option<Instant>,
}

/// Permits one post, which counts as on its way until this is dropped.
#[derive(Debug)]
pub(super) struct PostPermit<'a> {
    limiter: &'a RateLimiter,
    post: Post,
}

impl RateLimits {
    /// The limiter of this credential; it covers the posts of all runs. MANTYX counts by
    /// credential: with a limiter for each run, many runs would be refused together.
    ///
    /// A limiter that no post holds, and that behaves as a new one, is dropped. Otherwise the map
    /// would grow with every credential that callers bring.
    pub(super) fn limiter(&self, credential: [u8; 32]) -> Arc<RateLimiter> {
        let mut limiters = self.0.lock();
        if !limiters.contains_key(&credential) {
            limiters.retain(|_, limiter| Arc::strong_count(limiter) > 1 || !limiter.is_as_new());
        }
        Arc::clone(limiters.entry(credential).or_insert_with(|| Arc::new(RateLimiter::new())))
    }
}

impl RateLimiter {
    pub(super) fn new() -> Self {
        let state = State { window: Window::new(Instant::now()), paused_until: None };
        Self { next: Semaphore::new(1), state: Mutex::new(state), news: Notify::new() }
    }

    /// Waits until a post with this deadline may be sent, or its last chance has come.
    ///
    /// Posts wait in the order in which they came: the semaphore's holder alone looks at the
    /// window. If all waiting posts looked, those that are woken first would take the whole budget,
    /// and the oldest one could miss its deadline.
    pub(super) async fn acquire(&self, deadline: Instant) -> PostPermit<'_> {
        let asked_at = Instant::now();
        let latest = deadline.checked_sub(LAST_CHANCE).unwrap_or(deadline);
        let post = match timeout_at(latest, self.next_in_window()).await {
            Ok(post) => post,
            Err(_elapsed) => self.state.lock().window.take(Instant::now()),
        };
        let permit = PostPermit { limiter: self, post };
        while let Some(until) = self.pause()
            && Instant::now() < latest
        {
            sleep_until((until + PAUSE_JITTER.mul_f64(random::share())).min(latest)).await;
        }
        let elapsed = asked_at.elapsed();
        if !elapsed.is_zero() {
            debug!(waited = ?elapsed, "a post was held back for MANTYX's rate limit");
        }
        permit
    }

    /// Waits for the turn, and then for the window. A change of the window wakes the wait: MANTYX
    /// may have announced more room, or less, than the window had when the wait began.
    async fn next_in_window(&self) -> Post {
        let _next = self.next.acquire().await;
        loop {
            let now = Instant::now();
            let next = self.state.lock().window.next(now);
            if next <= now {
                return self.state.lock().window.take(now);
            }
            drop(timeout_at(next, self.news.notified()).await);
        }
    }

    /// The end of the pause, if there is one.
    fn pause(&self) -> Option<Instant> {
        self.state.lock().paused_until.filter(|until| *until > Instant::now())
    }

    /// Records a budget that MANTYX has shown to an app with this credential.
    pub(super) fn note_of_app(&self, budget: AnnouncedBudget) {
        self.note(Some(budget), None);
    }

    fn note(&self, budget: Option<AnnouncedBudget>, post: Option<Post>) {
        self.state.lock().window.note(budget, post, Instant::now());
        self.news.notify_one();
    }

    /// Records that MANTYX has refused a post, and accepts none for `time` (agent-runs-protocol
    /// §10).
    pub(super) fn refused(&self, time: Duration) {
        if time.is_zero() {
            return;
        }
        let now = Instant::now();
        {
            let mut state = self.state.lock();
            state.window.refused(time, now);
            state.paused_until = state.paused_until.max(Some(now + time));
        }
        self.news.notify_one();
    }

    /// Whether a new limiter would behave the same.
    fn is_as_new(&self) -> bool {
        self.pause().is_none() && self.state.lock().window.is_as_new(Instant::now())
    }
}

impl PostPermit<'_> {
    /// Records MANTYX's answer to the post. The post counts as ended before that: the budget that
    /// the answer shows has it already, and it would be subtracted twice.
    pub(super) fn note(self, budget: Option<AnnouncedBudget>) {
        let limiter = self.limiter;
        let post = self.post;
        drop(self);
        limiter.note(budget, Some(post));
    }
}

impl Drop for PostPermit<'_> {
    fn drop(&mut self) {
        self.limiter.state.lock().window.ended();
    }
}
