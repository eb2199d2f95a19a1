//! How long an idle connection may be reused, derived from its server's announcement.
//!
//! Must not: do IO.

use std::time::Duration;

use http::header::HeaderValue;
use http::{HeaderMap, Version};

/// The longest idle times, in milliseconds. Few values suffice: the time that a server announces is
/// rounded down, so that it is never exceeded. Each has its own pool of connections. The second
/// value is 900 because a server may close after one second without announcing it.
pub(super) const MILLIS: [u64; 7] = [0, 900, 2000, 4000, 14_000, 29_000, 59_000];

/// Subtracted from the time that a server announces, in seconds. The server's clock starts when it
/// has sent an answer, the bridge's when it has read it, and a request takes time to arrive.
const MARGIN: u64 = 1;

/// An index into [`MILLIS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Reuse(pub(super) usize);

impl Reuse {
    /// Every request gets a new connection.
    pub(super) const NEVER: Self = Self(0);
    /// For servers that announce nothing. The shortest common keep-alive is 2 s.
    pub(super) const UNKNOWN: Self = Self(1);
    /// For HTTP/2, whose servers announce that they close a connection.
    pub(super) const LONGEST: Self = Self(MILLIS.len() - 1);

    /// The announcement in an answer. `None` if the answer says nothing about later requests: its
    /// connection is closed, or is HTTP/2, which has no such header.
    pub(super) fn said(version: Version, headers: &HeaderMap) -> Option<Self> {
        let closes = tokens(headers, "connection").any(|token| token.eq_ignore_ascii_case("close"));
        if version != Version::HTTP_11 || closes {
            return None;
        }
        let timeouts = tokens(headers, "keep-alive").filter_map(|token| {
            let (name, value) = token.split_once('=')?;
            if !name.trim().eq_ignore_ascii_case("timeout") {
                return None;
            }
            Some(value.trim().trim_matches('"'))
        });
        let Some(shortest) = timeouts.map(|value| value.parse().unwrap_or(0)).min() else {
            return Some(Self::UNKNOWN);
        };
        let most = u64::saturating_sub(shortest, MARGIN).saturating_mul(1000);
        Some(Self(MILLIS.iter().rposition(|millis| *millis <= most).unwrap_or(0)))
    }

    pub(super) fn longest_idle(self) -> Duration {
        Duration::from_millis(MILLIS.get(self.0).copied().unwrap_or_default())
    }
}

fn tokens<'h>(headers: &'h HeaderMap, name: &str) -> impl Iterator<Item = &'h str> {
    let values = headers.get_all(name).into_iter().map(HeaderValue::to_str);
    values.filter_map(Result::ok).flat_map(|value| value.split(',')).map(str::trim)
}

#[cfg(test)]
mod tests {
    //! What servers say, and what is made of it.

    use http::header::{CONNECTION, HeaderName};

    use super::*;

    const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

    fn said(version: Version, pairs: &[(HeaderName, &'static str)]) -> Option<u64> {
        let pairs =
            pairs.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value)));
        let reuse = Reuse::said(version, &pairs.collect())?;
        Some(reuse.longest_idle().as_millis().try_into().unwrap())
    }

    #[test]
    fn a_second_less_than_the_server_says() {
        for (text, millis) in [
            ("timeout=5", 4000),
            ("timeout=5, max=100", 4000),
            ("max=100, Timeout = \"30\"", 29_000),
            ("timeout=29", 14_000),
            ("timeout=7200", 59_000),
            ("timeout=2", 900),
            ("timeout=1", 0),
            ("timeout=0", 0),
            // What cannot be read is no promise.
            ("timeout=soon", 0),
            ("max=100", 900),
            ("", 900),
        ] {
            assert_eq!(said(Version::HTTP_11, &[(KEEP_ALIVE, text)]), Some(millis), "{text:?}");
        }
        let twice = [(KEEP_ALIVE, "timeout=60"), (KEEP_ALIVE, "timeout=5")];
        assert_eq!(said(Version::HTTP_11, &twice), Some(4000));
    }

    #[test]
    fn a_server_that_says_nothing_is_given_less_than_a_second() {
        assert_eq!(said(Version::HTTP_11, &[]), Some(900));
        assert_eq!(said(Version::HTTP_11, &[(CONNECTION, "keep-alive")]), Some(900));
    }

    #[test]
    fn a_connection_that_ends_says_nothing() {
        assert_eq!(said(Version::HTTP_11, &[(CONNECTION, "foo, Close")]), None);
        assert_eq!(said(Version::HTTP_10, &[(KEEP_ALIVE, "timeout=5")]), None);
        assert_eq!(said(Version::HTTP_2, &[]), None);
    }

    #[test]
    fn shorter_time_of_two_answers_holds() {
        assert_eq!(Reuse(4).min(Reuse(3)), Reuse(3));
        assert_eq!(Reuse::UNKNOWN.min(Reuse(5)), Reuse::UNKNOWN);
    }
}
