//! Waiting for conditions: the one place of the tests where time passes.
//!
//! Must not: be used to sleep and hope. Every wait has a condition and a deadline.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// How often a condition is looked at: often enough not to slow a test, rare enough for two cores.
const LOOK: Duration = Duration::from_millis(15);

/// Asks `probe` until it has an answer, and fails the test at the deadline.
pub(crate) async fn until<T>(
    what: &str,
    deadline: Duration,
    mut probe: impl AsyncFnMut() -> Option<T>,
) -> T {
    let end = Instant::now() + deadline;
    loop {
        if let Some(found) = probe().await {
            return found;
        }
        assert!(Instant::now() < end, "{what}: did not happen within {deadline:?}");
        sleep(LOOK).await;
    }
}

/// [`until`] with the deadline that is right for anything that needs no real peer to start.
pub(crate) async fn soon<T>(what: &str, probe: impl AsyncFnMut() -> Option<T>) -> T {
    until(what, Duration::from_secs(20), probe).await
}
