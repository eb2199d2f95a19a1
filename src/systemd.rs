//! What the daemon tells systemd: ready, reloading, alive, stopping. Nothing where systemd did not start it.
//!
//! Must not: be waited for; a lost notification is logged and no more.

use std::time::Duration;

use sd_notify::NotifyState;
use tokio::time::interval;
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// The daemon listens and has tried every backend.
pub fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// The configuration is being read again; [`ready`] says that this is done.
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => warn!(%error, "systemd could not be told"),
    }
}

/// The daemon is going down.
pub fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// Tells systemd that the daemon is alive, as often as the unit's `WatchdogSec` asks for, until
/// `stop`. `crossing` is done before each time: a daemon that hangs in it is not alive.
pub async fn watchdog(crossing: impl Fn(), stop: CancellationToken) {
    let Some(limit) = sd_notify::watchdog_enabled() else { return stop.cancelled().await };
    let mut beat = interval((limit / 3).max(Duration::from_millis(10)));
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = beat.tick() => (),
        }
        crossing();
        tell(&[NotifyState::Watchdog]);
    }
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        warn!(%error, "systemd could not be told");
    }
}
