//! The pause that a server asks for with `Retry-After` and HTTP 429 or 503 (RFC 9110, section
//! 10.2.3). Until it is over, nothing is sent to the server: more requests would lengthen the
//! pause, or lock the account.
//!
//! Must not: wait.

use std::time::Duration;

use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::backend::RequestedPause;
use crate::{clock, http_client};

/// The longest pause that is kept, whatever the server asks for.
const LONGEST: Duration = Duration::from_secs(60 * 60);

/// The pause of one server, if it has asked for one.
#[derive(Debug, Default)]
pub(super) struct Pause(Mutex<Option<RequestedPause>>);

impl Pause {
    /// The pause, if it is not over.
    pub(super) fn open(&self) -> Option<RequestedPause> {
        let mut pause = self.0.lock();
        if pause.is_some_and(|pause| pause.end <= Instant::now()) {
            *pause = None;
        }
        *pause
    }

    /// Notes the pause that a response with these headers asks for, and returns it.
    pub(super) fn take(&self, status: StatusCode, headers: &HeaderMap) -> Option<RequestedPause> {
        if !matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            return None;
        }
        let wait = http_client::retry_after(headers, clock::now())?;
        if wait.is_zero() {
            return None;
        }
        let asked = RequestedPause { end: Instant::now() + wait.min(LONGEST), status };
        let mut pause = self.0.lock();
        // Of two answers that cross, the later end counts.
        let latest = pause.filter(|pause| pause.end > asked.end).unwrap_or(asked);
        *pause = Some(latest);
        Some(latest)
    }
}

/// What is said of a server that has asked for a pause.
pub(super) fn paused(pause: RequestedPause) -> String {
    let end = humantime::format_rfc3339_seconds(clock::now() + pause.left());
    format!("HTTP {}: the server takes no requests until {end} (Retry-After)", pause.status)
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
        for status in [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE] {
            for (value, seconds) in [("30", 30), ("86400", 3600), ("99999999999999999999", 3600)] {
                let pause = Pause::default();
                assert_eq!(pause.open(), None);
                let asked = pause.take(status, &asking(value)).unwrap();
                assert_eq!(asked.left(), Duration::from_secs(seconds), "{value}");
                assert_eq!(asked.status, status);
                assert_eq!(pause.open(), Some(asked));
                let sooner = pause.take(StatusCode::TOO_MANY_REQUESTS, &asking("1"));
                assert_eq!(sooner, Some(asked), "the later end counts");
                tokio::time::advance(Duration::from_secs(seconds)).await;
                assert_eq!(pause.open(), None);
            }
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
            (503, HeaderMap::new()),
            (503, asking("0")),
            (500, asking("30")),
            (200, asking("30")),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(pause.take(status, &headers), None, "{status} {headers:?}");
        }
        assert_eq!(pause.open(), None);
    }
}
