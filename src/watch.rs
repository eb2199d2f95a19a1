//! Tells when bridge.yaml, or another followed file, may have changed: its directory has changed,
//! SIGHUP has come, or a poll is due.
//!
//! The watch is on the directory, not on the file: editors and ConfigMaps replace the file, or a
//! symlink to it, and a watch on the old file would see nothing more. Where no watch is possible
//! (NFS, a limit of the system), the polls remain.
//!
//! Must not: read the file. Reading would cause events, too.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, timeout};
use tracing::warn;

/// The directory has to be quiet for this long before a look, since writes come in bursts.
const QUIET: Duration = Duration::from_millis(200);
/// The longest wait for a directory that is never quiet.
const PATIENCE: Duration = Duration::from_secs(2);
/// The interval of polls, with or without events.
const POLL: Duration = Duration::from_secs(30);

/// The reason to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News {
    /// The text of the file may have changed.
    MayHaveChanged,
    /// SIGHUP asked for a look at the file and at all files that it refers to.
    Asked,
}

/// A watch on one file, and on the files that it refers to.
#[derive(Debug)]
pub struct Watch {
    changed: Arc<Notify>,
    /// The directory has changed since the last look.
    noted: bool,
    hangup: Signal,
    poll: Interval,
    /// The watch ends when this is dropped.
    watcher: Option<RecommendedWatcher>,
    /// The watched directories.
    directories: Vec<PathBuf>,
}

impl Watch {
    /// Watches the file at `path`. From now on, SIGHUP does not end the process.
    pub fn new(path: &Path) -> io::Result<Self> {
        let changed = Arc::new(Notify::new());
        let mut poll = interval_at(Instant::now() + POLL, POLL);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let watcher = watcher(Arc::clone(&changed));
        if let Err(error) = &watcher {
            warn!(%error, "nothing can be watched; files are looked at every {POLL:?}");
        }
        let hangup = signal(SignalKind::hangup())?;
        let watcher = watcher.ok();
        let directories = Vec::new();
        let mut watch = Self { changed, noted: false, hangup, poll, watcher, directories };
        watch.follow([path].into_iter());
        Ok(watch)
    }

    /// A watch that looks when `changed` says so.
    #[cfg(test)]
    pub(crate) fn told_by(changed: Arc<Notify>) -> Self {
        let hangup = signal(SignalKind::hangup()).expect("signals can be listened to");
        let poll = interval_at(Instant::now() + POLL, POLL);
        Self { changed, noted: false, hangup, poll, watcher: None, directories: Vec::new() }
    }

    /// Also watches these files.
    pub fn follow<'p>(&mut self, paths: impl Iterator<Item = &'p Path>) {
        for path in paths {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            let directory = parent.unwrap_or(Path::new("."));
            let Some(watcher) = &mut self.watcher else { return };
            if self.directories.iter().any(|known| known == directory) {
                continue;
            }
            self.directories.push(directory.to_owned());
            if let Err(error) = watcher.watch(directory, RecursiveMode::NonRecursive) {
                warn!(
                    path = %path.display(), %error,
                    "the directory of this file cannot be watched; it is looked at every {POLL:?}"
                );
            }
        }
    }

    /// Waits for news. Changes between two calls are reported by the second one.
    pub async fn next(&mut self) -> News {
        if !self.noted {
            tokio::select! {
                _ = self.hangup.recv() => return News::Asked,
                _ = self.poll.tick() => return News::MayHaveChanged,
                // Stored, so that the change is not lost if this future is dropped.
                () = self.changed.notified() => self.noted = true,
            }
        }
        let news = tokio::select! {
            _ = self.hangup.recv() => News::Asked,
            _ = timeout(PATIENCE, quiet(&self.changed)) => News::MayHaveChanged,
        };
        self.noted = false;
        news
    }
}

/// Resolves when no change has come for [`QUIET`].
async fn quiet(changed: &Notify) {
    while timeout(QUIET, changed.notified()).await.is_ok() {}
}

fn watcher(changed: Arc<Notify>) -> notify::Result<RecommendedWatcher> {
    notify::recommended_watcher(move |event: notify::Result<Event>| {
        // An error may mean that events were lost, so it counts as a change. Reading a file does
        // not.
        if event.map_or(true, |event| !matches!(event.kind, EventKind::Access(_))) {
            changed.notify_one();
        }
    })
}

#[cfg(test)]
mod tests;
