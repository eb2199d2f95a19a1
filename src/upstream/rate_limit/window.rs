//! The time of the next post, chosen so that posts stay within MANTYX's rate limit. Each window has
//! a budget of posts. Two thirds of it may be spent at once; the last third is spread over the rest
//! of the window. If MANTYX's windows slide, this leaves room for the burst of the next window.
//!
//! MANTYX's answers say how much of the budget is left. Until the first answer, posts go one by
//! one, so that a small budget is known after the first post. If answers say nothing, posts go
//! without a limit; after a refusal, the default limit of agent-runs-protocol §10 applies.
//!
//! Must not: wait, or look at a clock.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName};
use tokio::time::Instant;

/// The header that names the budget.
pub(in crate::upstream) const BUCKET: HeaderName = HeaderName::from_static("x-ratelimit-bucket");
const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

const DEFAULT_LIMIT: u32 = 600;
const LENGTH: Duration = Duration::from_secs(60);
/// One part in this many of the budget is spread.
const SPREAD_SHARE: u32 = 3;
/// How long the second post waits for the answer to the first.
const FIRST_ANSWER: Duration = Duration::from_secs(1);
/// Answers give the end of a window in whole seconds, rounded either way.
const ROUNDING: Duration = Duration::from_secs(1);
/// A window that ends later than this is taken for a misreading.
const LONGEST_WINDOW: Duration = Duration::from_secs(2 * 60);

/// One credential's posts in MANTYX's current window, and the rest of the budget.
#[derive(Debug)]
pub(super) struct Window {
    limit: u32,
    /// How many posts of the budget remain.
    remaining: u32,
    /// The end of the window.
    reset: Instant,
    last: Option<Instant>,
    /// Posts without an answer yet. The rest that MANTYX announces may not include them.
    on_their_way: u32,
    /// The number of all posts so far.
    taken: u64,
    metering: Metering,
}

/// Whether MANTYX counts posts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Metering {
    /// MANTYX has not answered yet.
    Unknown,
    No,
    Yes,
}

/// One post that is sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Post {
    nth: u64,
    /// No other post was on its way when it was sent.
    alone: bool,
}

/// The budget as an answer of MANTYX shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::upstream) struct AnnouncedBudget {
    limit: u32,
    remaining: u32,
    /// The time until the window ends.
    reset: Option<Duration>,
}

impl Window {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            limit: DEFAULT_LIMIT,
            remaining: DEFAULT_LIMIT,
            reset: now + LENGTH,
            last: None,
            on_their_way: 0,
            taken: 0,
            metering: Metering::Unknown,
        }
    }

    /// The earliest time for the next post; if that is now or past, it may be sent.
    pub(super) fn next(&mut self, now: Instant) -> Instant {
        if now >= self.reset {
            self.remaining = self.limit;
            self.reset = now + LENGTH;
        }
        match (self.metering, self.last) {
            (Metering::No, _) => now,
            (Metering::Unknown, Some(last)) => last + FIRST_ANSWER,
            (Metering::Yes, _) if self.remaining == 0 => self.reset,
            (Metering::Yes, _) if self.remaining > self.limit / SPREAD_SHARE => now,
            // The rest of the budget, spread over the rest of the window.
            (Metering::Yes, Some(last)) => {
                last + self.reset.saturating_duration_since(last) / (self.remaining + 1)
            }
            (Metering::Unknown | Metering::Yes, None) => now,
        }
    }

    /// Takes one post from the budget.
    pub(super) fn take(&mut self, now: Instant) -> Post {
        self.remaining = self.remaining.saturating_sub(1);
        self.last = Some(now);
        let alone = self.on_their_way == 0;
        self.on_their_way += 1;
        self.taken += 1;
        Post { nth: self.taken, alone }
    }

    /// Records that a post has ended, with or without an answer.
    pub(super) fn ended(&mut self) {
        self.on_their_way = self.on_their_way.saturating_sub(1);
    }

    /// Records an answer of MANTYX to `post`, or to a request of an app. It may show the budget.
    ///
    /// Answers to concurrent posts come in any order, so their numbers may be older than those of
    /// the window. Only the answer to a post that was alone is exact. If every answer were, an old
    /// one would give back posts that are spent, and MANTYX would refuse the next ones.
    pub(super) fn note(
        &mut self,
        budget: Option<AnnouncedBudget>,
        post: Option<Post>,
        now: Instant,
    ) {
        let Some(budget) = budget else {
            if self.metering == Metering::Unknown {
                self.metering = Metering::No;
            }
            return;
        };
        self.metering = Metering::Yes;
        self.remaining = if post.is_some_and(|post| post.alone && post.nth == self.taken) {
            budget.remaining
        } else if budget.limit == self.limit {
            self.remaining.min(budget.remaining)
        } else {
            budget.remaining.saturating_sub(self.on_their_way)
        };
        self.limit = budget.limit;
        if let Some(reset) = budget.reset {
            self.reset = now + reset + ROUNDING;
        }
    }

    /// Records that MANTYX has refused a post, and accepts none for `time`.
    pub(super) fn refused(&mut self, time: Duration, now: Instant) {
        self.metering = Metering::Yes;
        self.remaining = 0;
        self.reset = now + time;
    }

    /// Whether it equals a new window, so that it need not be kept.
    pub(super) fn is_as_new(&self, now: Instant) -> bool {
        now >= self.reset + LENGTH
    }
}

impl AnnouncedBudget {
    /// Reads the headers of an answer. `None` if they say nothing about the bucket of result posts.
    /// `wall` is the time of day.
    pub(in crate::upstream) fn read(headers: &HeaderMap, wall: SystemTime) -> Option<Self> {
        let bucket = text(headers, BUCKET);
        if bucket.is_some_and(|bucket| !bucket.to_ascii_lowercase().contains("lifecycle")) {
            return None;
        }
        let limit: u32 = text(headers, LIMIT)?.trim().parse().ok().filter(|limit| *limit > 0)?;
        let remaining: u32 = text(headers, REMAINING)?.trim().parse().ok()?;
        let reset: Option<f64> = text(headers, RESET).and_then(|reset| reset.trim().parse().ok());
        Some(Self {
            limit,
            remaining: remaining.min(limit),
            reset: reset.filter(|reset| reset.is_finite()).and_then(|reset| until(reset, wall)),
        })
    }
}

/// The value of a header, if it is text.
fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// The time until a window ends. The protocol does not name the unit: seconds from now, or seconds
/// or milliseconds since 1970.
fn until(reset: f64, wall: SystemTime) -> Option<Duration> {
    const A_YEAR: f64 = 366.0 * 24.0 * 60.0 * 60.0;
    let today = wall.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs_f64();
    let seconds = if reset < A_YEAR {
        reset
    } else if reset < 100.0 * A_YEAR {
        reset - today
    } else {
        reset / 1000.0 - today
    };
    Duration::try_from_secs_f64(seconds.max(0.0)).ok().filter(|time| *time <= LONGEST_WINDOW)
}

#[cfg(test)]
mod tests;
