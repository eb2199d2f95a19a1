//! Tells when bridge.yaml may have changed, or a file beside it that is followed: its directory has,
//! SIGHUP has come, or it is time to look.
//!
//! The directory is watched and not the file: editors and ConfigMaps put another file, or another
//! symlink, in its place, and a watch on the old one would see nothing more. Where nothing can be
//! watched (NFS, a limit of the system), the look from time to time is left.
//!
//! Must not: read the file, which brings events, too.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::Notify,
    time::{Instant, Interval, MissedTickBehavior, interval_at, timeout},
};
use tracing::warn;

/// The file is looked at when its directory has been quiet for so long: writes come in bursts.
const QUIET: Duration = Duration::from_millis(200);
/// A directory that is never quiet is waited for no longer than this.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often the file is looked at whatever is heard.
const POLL: Duration = Duration::from_secs(30);

/// What there is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News {
    /// The file may have another text.
    MayHaveChanged,
    /// Somebody wants it read, with all that it refers to.
    Asked,
}

/// A watch on one file, and on those that it leads to.
#[derive(Debug)]
pub struct Watch {
    changed: Arc<Notify>,
    /// The directory has changed, and the file was not looked at since.
    noted: bool,
    hangup: Signal,
    poll: Interval,
    /// Watches as long as it lives.
    watcher: Option<RecommendedWatcher>,
    /// The directories that it watches.
    directories: Vec<PathBuf>,
}

impl Watch {
    /// Watches the file at `path`. From here on, SIGHUP does not end the process.
    pub fn new(path: &Path) -> io::Result<Self> {
        let changed = Arc::new(Notify::new());
        let mut poll = interval_at(Instant::now() + POLL, POLL);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let watcher = watcher(Arc::clone(&changed));
        if let Err(error) = &watcher {
            warn!(%error, "nothing can be watched; files are looked at every {POLL:?}");
        }
        let hangup = signal(SignalKind::hangup())?;
        let (watcher, directories) = (watcher.ok(), Vec::new());
        let mut watch = Self { changed, noted: false, hangup, poll, watcher, directories };
        watch.follow([path].into_iter());
        Ok(watch)
    }

    /// Watches these files, too.
    pub fn follow<'p>(&mut self, paths: impl Iterator<Item = &'p Path>) {
        for path in paths {
            let directory = match path.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => parent,
                _ => Path::new("."),
            };
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

    /// Waits for news. What comes while nobody waits is told the next time.
    pub async fn next(&mut self) -> News {
        if !self.noted {
            tokio::select! {
                _ = self.hangup.recv() => return News::Asked,
                _ = self.poll.tick() => return News::MayHaveChanged,
                // Kept, as whoever waits here may go away in the middle.
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

/// Ends when nothing has changed for a while.
async fn quiet(changed: &Notify) {
    while timeout(QUIET, changed.notified()).await.is_ok() {}
}

fn watcher(changed: Arc<Notify>) -> notify::Result<RecommendedWatcher> {
    notify::recommended_watcher(move |event: notify::Result<Event>| {
        // An error may mean that events were lost. That a file was read is no news.
        if event.map_or(true, |event| !matches!(event.kind, EventKind::Access(_))) {
            changed.notify_one();
        }
    })
}

#[cfg(test)]
mod tests;
