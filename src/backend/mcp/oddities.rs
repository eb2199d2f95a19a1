//! What a server does that MCP does not have: lines on stdout that are no messages, responses with
//! ids that no request has, refused notifications. A server may work nevertheless, so this is only
//! kept, for a diagnosis and for the status.
//!
//! Must not: decide whether the server is used.

use http::StatusCode;
use parking_lot::Mutex;

use crate::backend::diagnosis::Remark;

/// How many lines are kept: the first ones, since usage and banners come first.
const LINES: usize = 10;
/// How many bytes of each.
const WIDTH: usize = 300;

/// What was odd on one connection.
#[derive(Debug, Default)]
pub(super) struct Oddities(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    lines: Vec<String>,
    /// The id of the last response that no request waited for.
    stray_id: Option<i64>,
    /// What the server has answered to `notifications/initialized`.
    refusal: Option<StatusCode>,
    /// Whether the handshake has succeeded.
    has_shaken_hands: bool,
}

impl Oddities {
    /// Notes a line on stdout that is no message.
    pub(super) fn printed(&self, line: &str) {
        let mut seen = self.0.lock();
        if seen.lines.len() < LINES {
            let mut start = line.to_owned();
            start.truncate(start.floor_char_boundary(WIDTH));
            seen.lines.push(start);
        }
    }

    /// Notes a response with an id that no request has.
    pub(super) fn strayed(&self, id: i64) {
        self.0.lock().stray_id = Some(id);
    }

    /// Notes that the server has refused `notifications/initialized`, and whether that is new.
    pub(super) fn refused(&self, status: StatusCode) -> bool {
        self.0.lock().refusal.replace(status).is_none()
    }

    /// Notes that the handshake has succeeded. A late answer to an abandoned attempt may have come
    /// before, and says nothing about the ids of later ones.
    pub(super) fn shook_hands(&self) {
        let mut seen = self.0.lock();
        (seen.has_shaken_hands, seen.stray_id) = (true, None);
    }

    pub(super) fn has_shaken_hands(&self) -> bool {
        self.0.lock().has_shaken_hands
    }

    pub(super) fn lines(&self) -> Vec<String> {
        self.0.lock().lines.clone()
    }

    pub(super) fn stray_id(&self) -> Option<i64> {
        self.0.lock().stray_id
    }

    /// What is odd about the server, though it works.
    pub(super) fn remark(&self) -> Option<Remark> {
        let seen = self.0.lock();
        if let Some(status) = seen.refusal {
            return Some(Remark {
                message: format!(
                    "It answers `notifications/initialized` with HTTP {status}, which the bridge ignores."
                ),
                cure: "It works nevertheless. Update the server, or tell its author: the answer is 202."
                    .to_owned(),
                quote: None,
            });
        }
        let first = seen.lines.first()?;
        Some(Remark {
            message: "Its stdout has lines that are no MCP messages.".to_owned(),
            cure: "The bridge skips them. Where the server can be told to, let it write its log to stderr."
                .to_owned(),
            quote: Some(format!("The first: {first}")),
        })
    }
}

#[cfg(test)]
mod tests {
    //! What is kept, and what is said of it.

    use super::*;

    #[test]
    fn printed_lines_are_kept_within_bounds() {
        let oddities = Oddities::default();
        assert_eq!(oddities.remark(), None);
        for number in 0..1_000 {
            oddities.printed(&format!("{number} {}", "ä".repeat(WIDTH)));
        }
        let lines = oddities.lines();
        assert_eq!(lines.len(), LINES);
        assert!(lines.iter().all(|line| line.len() <= WIDTH));
        let remark = oddities.remark().expect("a remark");
        assert_eq!(remark.message, "Its stdout has lines that are no MCP messages.");
        assert!(remark.with_quote().message.contains("The first: 0 ä"));
    }

    #[test]
    fn refused_notification_is_news_once() {
        let oddities = Oddities::default();
        assert!(oddities.refused(StatusCode::NOT_IMPLEMENTED));
        assert!(!oddities.refused(StatusCode::NOT_IMPLEMENTED));
        let remark = oddities.remark().expect("a remark");
        assert!(remark.message.contains("HTTP 501"), "{remark:?}");
    }
}
