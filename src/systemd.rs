//! The daemon's notifications to systemd: ready, reloading, alive, stopping. Without systemd, they
//! do nothing.
//!
//! Must not: be waited for; a lost notification is only logged.

use std::time::Duration;

use sd_notify::NotifyState;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

/// The daemon listens and has tried every backend.
pub fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// The daemon is reading the configuration again; [`ready`] ends this state.
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => warn!(%error, "systemd could not be notified"),
    }
}

/// The daemon is stopping.
pub fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// Notifies systemd's watchdog until `stop`, as often as the unit's `WatchdogSec` asks for. Before
/// each notification, `crossing` passes through the daemon's parts and says whether they respond: a
/// daemon that hangs there is not alive, and systemd restarts it.
pub async fn watchdog<F>(crossing: impl Fn() -> F, stop: CancellationToken)
where
    F: Future<Output = bool>,
{
    let Some(limit) = sd_notify::watchdog_enabled() else { return stop.cancelled().await };
    let beats = beats(limit, crossing, || tell(&[NotifyState::Watchdog]));
    stop.run_until_cancelled(beats).await;
}

async fn beats<F>(limit: Duration, crossing: impl Fn() -> F, beat: impl Fn())
where
    F: Future<Output = bool>,
{
    let pause = (limit / 3).max(Duration::from_millis(10));
    loop {
        if crossing().await {
            beat();
        } else {
            error!("a task of the daemon has died; watchdog notifications stop");
        }
        sleep(pause).await;
    }
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        warn!(%error, "systemd could not be notified");
    }
}

#[cfg(test)]
mod tests {
    //! In paused time: who hangs or is dead is not said to live.

    use std::cell::Cell;

    use tokio::time::{Instant, timeout};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    /// The seconds at which systemd was told within `seconds`, where the parts answer at second `n`
    /// as `parts(n)` says.
    async fn told<F: Future<Output = bool>>(parts: impl Fn(u64) -> F, seconds: u64) -> Vec<u64> {
        let start = Instant::now();
        let now = || start.elapsed().as_secs();
        let told = Cell::new(Vec::new());
        let beat = || {
            let mut so_far = told.take();
            so_far.push(now());
            told.set(so_far);
        };
        let beats = beats(LIMIT, || parts(now()), beat);
        timeout(Duration::from_secs(seconds), beats).await.unwrap_err();
        told.take()
    }

    #[tokio::test(start_paused = true)]
    async fn a_daemon_that_lives_says_so_three_times_in_the_limit() {
        assert_eq!(told(|_| async { true }, 45).await, [0, 10, 20, 30, 40]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_daemon_that_hangs_says_nothing_until_it_goes_on() {
        let hangs_once = |at| async move {
            if at == 20 {
                sleep(Duration::from_secs(65)).await;
            }
            true
        };
        assert_eq!(told(hangs_once, 100).await, [0, 10, 85, 95]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_dead_part_is_not_said_to_live() {
        assert_eq!(told(|at| async move { at < 15 }, 100).await, [0, 10]);
    }
}
