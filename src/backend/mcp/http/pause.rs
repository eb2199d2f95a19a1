//! The pause that a server asks for with HTTP 429 and `Retry-After`. Until it is over, nothing is
//! sent to the server: more requests would lengthen the pause, or lock the account.
//!
//! Must not: wait.

use std::time::Duration;

use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{clock, http_client};

/// The longest pause that is kept, whatever the server asks for.
const LONGEST: Duration = Duration::from_secs(60 * 60);

/// The end of the pause of one server, if it has asked for one.
#[derive(Debug, Default)]
pub(super) struct Pause(Mutex<Option<Instant>>);

impl Pause {
    /// The end of a pause that is not over.
    pub(super) fn end(&self) -> Option<Instant> {
        let mut end = self.0.lock();
        if end.is_some_and(|end| end <= Instant::now()) {
            *end = None;
        }
        *end
    }

    /// Notes the pause that a response with these headers asks for, and returns its end.
    pub(super) fn take(&self, status: StatusCode, headers: &HeaderMap) -> Option<Instant> {
        if status != StatusCode::TOO_MANY_REQUESTS {
            return None;
        }
        let wait = http_client::retry_after(headers, clock::now())?;
        if wait.is_zero() {
            return None;
        }
        let asked = Instant::now() + wait.min(LONGEST);
        let mut end = self.0.lock();
        // Of two answers that cross, the later end counts.
        let latest = end.map_or(asked, |end| end.max(asked));
        *end = Some(latest);
        Some(latest)
    }
}

/// What is said of a server that has asked for a pause.
pub(super) fn paused(end: Instant) -> String {
    let left = end.saturating_duration_since(Instant::now());
    let end = humantime::format_rfc3339_seconds(clock::now() + left);
    format!("HTTP 429 Too Many Requests: the server takes no requests until {end} (Retry-After)")
}

#[cfg(test)]
mod tests {
    //! Which answers begin a pause, and how long it is.

    use http::HeaderValue;
    use http::header::RETRY_AFTER;

    use super::*;

    fn asking(value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(value))])
    }

    #[tokio::test(start_paused = true)]
    async fn pause_ends_when_the_server_says_or_after_an_hour() {
        for (value, seconds) in [("30", 30), ("86400", 3600)] {
            let pause = Pause::default();
            assert_eq!(pause.end(), None);
            let end = pause.take(StatusCode::TOO_MANY_REQUESTS, &asking(value)).unwrap();
            assert_eq!(end - Instant::now(), Duration::from_secs(seconds), "{value}");
            assert_eq!(pause.end(), Some(end));
            let sooner = pause.take(StatusCode::TOO_MANY_REQUESTS, &asking("1"));
            assert_eq!(sooner, Some(end), "the later end counts");
            tokio::time::advance(Duration::from_secs(seconds)).await;
            assert_eq!(pause.end(), None);
        }
    }

    #[tokio::test]
    async fn answer_without_a_time_begins_no_pause() {
        let pause = Pause::default();
        for (status, headers) in [
            (429, HeaderMap::new()),
            (429, asking("0")),
            (429, asking("soon")),
            (429, asking("Thu, 01 Jan 1970 00:00:00 GMT")),
            (503, asking("30")),
            (200, asking("30")),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(pause.take(status, &headers), None, "{status} {headers:?}");
        }
        assert_eq!(pause.end(), None);
    }
}
