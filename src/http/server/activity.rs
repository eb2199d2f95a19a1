//! The present activity of a connection, its beginning, and its time limit.
//!
//! Must not: close the connection.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// The time for a request's headers, from their first byte. A new connection has this time from its
/// beginning.
const HEAD: Duration = Duration::from_secs(10);
/// How long a connection may be idle.
pub(super) const IDLE: Duration = Duration::from_secs(5 * 60);

/// The activity of one connection.
#[derive(Debug)]
pub(super) struct Activity(watch::Sender<State>);

#[derive(Debug, Clone, Copy)]
struct State {
    doing: Doing,
    since: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doing {
    /// A request's head is arriving, or the first one is due; with TLS, also the handshake.
    Head,
    /// No open request: the last one is answered.
    Idle,
    /// The number of requests that are being answered.
    Busy(u32),
}

impl Doing {
    fn limit(self) -> Option<Duration> {
        match self {
            Self::Head => Some(HEAD),
            Self::Idle => Some(IDLE),
            Self::Busy(_) => None,
        }
    }
}

impl Activity {
    /// The activity of a new connection.
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(State { doing: Doing::Head, since: Instant::now() }))
    }

    /// Records that a byte has arrived, for a protocol where a byte begins a request.
    pub(super) fn heard(&self) {
        self.step(|doing| match doing {
            Doing::Idle => Doing::Head,
            Doing::Head | Doing::Busy(_) => doing,
        });
    }

    /// Records that a request is being answered, until the returned value is dropped.
    pub(super) fn request(self: &Arc<Self>) -> Open {
        self.step(|doing| match doing {
            Doing::Busy(open) => Doing::Busy(open.saturating_add(1)),
            Doing::Idle | Doing::Head => Doing::Busy(1),
        });
        Open(Arc::clone(self))
    }

    /// Since when no request has been open on the connection; `None` while one is.
    pub(super) fn unused_since(&self) -> Option<Instant> {
        let State { doing, since } = *self.0.borrow();
        if matches!(doing, Doing::Busy(_)) { None } else { Some(since) }
    }

    /// How many requests are open on the connection.
    pub(super) fn open(&self) -> u32 {
        match self.0.borrow().doing {
            Doing::Busy(open) => open,
            Doing::Head | Doing::Idle => 0,
        }
    }

    /// Resolves when the connection has been in one state for too long; returns that state.
    pub(super) async fn overdue(&self) -> Doing {
        overdue(&self.0, |State { doing, since }| Some(since + doing.limit()?)).await.doing
    }

    fn step(&self, next: impl FnOnce(Doing) -> Doing) {
        self.0.send_if_modified(|state| {
            let doing = next(state.doing);
            let changed = doing != state.doing;
            if changed {
                *state = State { doing, since: Instant::now() };
            }
            changed
        });
    }
}

/// Resolves when a value of `state` has lasted until its `deadline`; returns that value.
pub(super) async fn overdue<T: Copy>(
    state: &watch::Sender<T>,
    deadline: impl Fn(T) -> Option<Instant>,
) -> T {
    let mut watched = state.subscribe();
    loop {
        let value = *watched.borrow_and_update();
        // `state` is the sender, so the channel cannot close here.
        match deadline(value) {
            None => drop(watched.changed().await),
            Some(by) => tokio::select! {
                () = sleep_until(by) => return value,
                _ = watched.changed() => (),
            },
        }
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(super) struct Open(Arc<Activity>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.step(|doing| match doing {
            Doing::Busy(open) if open > 1 => Doing::Busy(open - 1),
            _ => Doing::Idle,
        });
    }
}

#[cfg(test)]
mod tests {
    //! How long each thing may last, in paused time.

    use tokio::time::{advance, timeout};

    use super::*;

    async fn check(activity: &Activity, expected: Option<(Doing, u64)>) {
        let begun = Instant::now();
        let overdue = timeout(Duration::from_secs(24 * 60 * 60), activity.overdue()).await;
        let took = begun.elapsed().as_secs();
        assert_eq!(overdue.ok().map(|doing| (doing, took)), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn each_thing_has_its_limit() {
        let activity = Arc::new(Activity::new());
        check(&activity, Some((Doing::Head, 10))).await;
        let one = activity.request();
        let two = activity.request();
        assert_eq!(activity.unused_since(), None);
        drop(one);
        check(&activity, None).await;
        drop(two);
        check(&activity, Some((Doing::Idle, 300))).await;
    }

    #[tokio::test(start_paused = true)]
    async fn headers_are_timed_from_their_first_byte() {
        let activity = Arc::new(Activity::new());
        drop(activity.request());
        advance(Duration::from_secs(100)).await;
        activity.heard();
        advance(Duration::from_secs(4)).await;
        activity.heard();
        check(&activity, Some((Doing::Head, 6))).await;
    }
}
