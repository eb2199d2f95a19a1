//! Points in time in the protocol's format.
//!
//! Must not: measure durations; tokio's clock does that, which tests can pause.

use std::time::SystemTime;

/// `2026-06-08T17:00:00.000Z` (agent-runs-protocol §6.1).
pub(super) fn rfc3339(time: SystemTime) -> String {
    humantime::format_rfc3339_millis(time).to_string()
}
