//! When the next post may go to MANTYX, so that its rate limit is not met: a budget of posts per
//! window, of which two thirds may be spent at once, and the last third is spread over the time
//! until the window ends. What was spread leaves room for the next window's burst, should MANTYX's
//! windows slide.
//!
//! What is left of the budget, the answers tell. Until there is any, posts go one by one, so that a
//! small budget is found out with the first. Where answers tell nothing, nobody counts, and posts
//! go as they come; a refusal makes it the default of agent-runs-protocol §10.
//!
//! Must not: wait, or look at a clock.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName};
use tokio::time::Instant;

/// Which of MANTYX's budgets an answer speaks of.
pub(in crate::upstream) const BUCKET: HeaderName = HeaderName::from_static("x-ratelimit-bucket");
const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

const DEFAULT_LIMIT: u32 = 600;
const LENGTH: Duration = Duration::from_secs(60);
/// Of the budget, one part in so many is spread.
const SPREAD_SHARE: u32 = 3;
/// How long the second post waits for the answer to the first.
const FIRST_ANSWER: Duration = Duration::from_secs(1);
/// Ends of windows are told in whole seconds, rounded either way.
const ROUNDING: Duration = Duration::from_secs(1);
/// A window that ends later than this is a misunderstanding.
const LONGEST_WINDOW: Duration = Duration::from_secs(60 * 60);

/// One credential's posts in MANTYX's current window, and how many are left.
#[derive(Debug)]
pub(super) struct Window {
    limit: u32,
    left: u32,
    /// When the window ends.
    reset: Instant,
    last: Option<Instant>,
    /// Posts without an answer yet: what MANTYX tells is left may not have them in it.
    on_their_way: u32,
    /// All posts so far.
    taken: u64,
    metering: Metering,
}

/// Whether MANTYX counts posts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Metering {
    /// It has not answered yet.
    Unknown,
    No,
    Yes,
}

/// A post that goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Post {
    nth: u64,
    /// No other was on its way.
    alone: bool,
}

/// What an answer of MANTYX tells of the budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::upstream) struct Told {
    limit: u32,
    left: u32,
    /// The time until the window ends.
    reset: Option<Duration>,
}

impl Window {
    pub(super) fn new(now: Instant) -> Self {
        let (limit, left) = (DEFAULT_LIMIT, DEFAULT_LIMIT);
        let (reset, metering) = (now + LENGTH, Metering::Unknown);
        Self { limit, left, reset, last: None, on_their_way: 0, taken: 0, metering }
    }

    /// The earliest moment for the next post; now or in the past: it may go.
    pub(super) fn next(&mut self, now: Instant) -> Instant {
        if now >= self.reset {
            self.left = self.limit;
            self.reset = now + LENGTH;
        }
        let spread =
            |last: Instant| last + self.reset.saturating_duration_since(last) / (self.left + 1);
        match self.metering {
            Metering::No => now,
            Metering::Unknown => self.last.map_or(now, |last| last + FIRST_ANSWER),
            Metering::Yes if self.left == 0 => self.reset,
            Metering::Yes if self.left > self.limit / SPREAD_SHARE => now,
            Metering::Yes => self.last.map_or(now, spread),
        }
    }

    /// A post goes.
    pub(super) fn take(&mut self, now: Instant) -> Post {
        self.left = self.left.saturating_sub(1);
        self.last = Some(now);
        let alone = self.on_their_way == 0;
        self.on_their_way += 1;
        self.taken += 1;
        Post { nth: self.taken, alone }
    }

    /// A post has ended, with an answer or without.
    pub(super) fn ended(&mut self) {
        self.on_their_way = self.on_their_way.saturating_sub(1);
    }

    /// MANTYX has answered `post`, or a request of an app, and may have told how much is left.
    pub(super) fn heard(&mut self, told: Option<Told>, post: Option<Post>, now: Instant) {
        let Some(told) = told else {
            if self.metering == Metering::Unknown {
                self.metering = Metering::No;
            }
            return;
        };
        self.metering = Metering::Yes;
        // Answers to posts that went together come in any order, so that what they tell may be
        // older than what is known; only to one that went alone it is the whole truth.
        let is_exact = post.is_some_and(|post| post.alone && post.nth == self.taken);
        self.left = if is_exact {
            told.left
        } else if told.limit == self.limit {
            self.left.min(told.left)
        } else {
            told.left.saturating_sub(self.on_their_way)
        };
        self.limit = told.limit;
        if let Some(reset) = told.reset {
            self.reset = now + reset + ROUNDING;
        }
    }

    /// MANTYX has refused a post and wants none for `time`.
    pub(super) fn refused(&mut self, time: Duration, now: Instant) {
        self.metering = Metering::Yes;
        self.left = 0;
        self.reset = now + time;
    }

    /// Whether it is the same as a new one, so that it need not be kept.
    pub(super) fn is_forgotten(&self, now: Instant) -> bool {
        now >= self.reset + LENGTH
    }
}

impl Told {
    /// Reads the headers of an answer; `None` where they tell nothing of the bucket that result
    /// posts count in. `wall` is the time of day.
    pub(in crate::upstream) fn read(headers: &HeaderMap, wall: SystemTime) -> Option<Self> {
        let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        if text(BUCKET).is_some_and(|bucket| !bucket.to_ascii_lowercase().contains("lifecycle")) {
            return None;
        }
        let number = |name| text(name)?.trim().parse::<u32>().ok();
        let limit = number(LIMIT).filter(|limit| *limit > 0)?;
        let left = number(REMAINING)?.min(limit);
        let reset = text(RESET).and_then(|reset| reset.trim().parse().ok());
        let reset = reset.filter(|reset: &f64| reset.is_finite());
        Some(Self { limit, left, reset: reset.and_then(|reset| until(reset, wall)) })
    }
}

/// The time until a window ends, which the protocol does not say the unit of: seconds from now, or
/// since 1970 in seconds or milliseconds.
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
    let time = Duration::try_from_secs_f64(seconds.max(0.0)).ok()?;
    (time <= LONGEST_WINDOW).then_some(time)
}

#[cfg(test)]
mod tests;
