//! Tells when bridge.yaml, or another followed file, may have changed: a watch says so, SIGHUP has
//! come, or a poll is due.
//!
//! A file is watched itself. Its directory is not: a log that is written there would wake the
//! bridge with every line. Editors replace the file, and ConfigMaps a symlink to it. So the watches
//! are set again before each look, and a directory is watched if a symlink in it leads to the file,
//! or if the file is missing. Where no watch is possible (NFS, a limit of the system), the polls
//! remain.
//!
//! Must not: read the file. Reading would cause events, too.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use parking_lot::Mutex;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, timeout};
use tracing::warn;

/// Files have to be quiet for this long before a look, since writes come in bursts.
const QUIET: Duration = Duration::from_millis(200);
/// The longest wait for files that are never quiet.
const PATIENCE: Duration = Duration::from_secs(2);
/// The interval of polls, with or without events.
const POLL: Duration = Duration::from_secs(30);
/// The most symlinks on the way to a file, as in Linux.
const MAX_LINKS: usize = 40;

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
    /// Something has changed since the last look.
    noted: bool,
    hangup: Signal,
    poll: Interval,
    /// The watch ends when this is dropped.
    watcher: Option<RecommendedWatcher>,
    files: BTreeSet<PathBuf>,
    /// What is watched: files, and directories.
    watched: BTreeSet<PathBuf>,
    /// The paths whose events count: a watched directory tells of all that is in it.
    own: Arc<Mutex<BTreeSet<PathBuf>>>,
}

impl Watch {
    /// Watches the file at `path`. From now on, SIGHUP does not end the process.
    pub fn new(path: &Path) -> io::Result<Self> {
        let changed = Arc::new(Notify::new());
        let mut poll = interval_at(Instant::now() + POLL, POLL);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let own = Arc::default();
        let watcher = watcher(Arc::clone(&changed), Arc::clone(&own));
        if let Err(error) = &watcher {
            warn!(%error, "nothing can be watched; files are looked at every {POLL:?}");
        }
        let hangup = signal(SignalKind::hangup())?;
        let watcher = watcher.ok();
        let (files, watched) = Default::default();
        let mut watch = Self { changed, noted: false, hangup, poll, watcher, files, watched, own };
        watch.follow([path].into_iter());
        Ok(watch)
    }

    /// A watch that looks when `changed` says so.
    #[cfg(test)]
    pub(crate) fn told_by(changed: Arc<Notify>) -> Self {
        let hangup = signal(SignalKind::hangup()).expect("signals can be listened to");
        let poll = interval_at(Instant::now() + POLL, POLL);
        let (files, watched, own) = Default::default();
        Self { changed, noted: false, hangup, poll, watcher: None, files, watched, own }
    }

    /// Also watches these files.
    pub fn follow<'p>(&mut self, paths: impl Iterator<Item = &'p Path>) {
        let before = self.files.len();
        self.files.extend(paths.filter_map(|path| std::path::absolute(path).ok()));
        if self.files.len() > before {
            self.arm();
        }
    }

    /// Watches what leads to the files now. What is watched already is watched again, as another
    /// file may have taken its place.
    fn arm(&mut self) {
        let Some(watcher) = &mut self.watcher else { return };
        let mut to_watch = BTreeSet::new();
        let mut own = BTreeSet::new();
        self.files.iter().for_each(|file| lead_to(file, &mut to_watch, &mut own));
        *self.own.lock() = own;
        for path in self.watched.difference(&to_watch) {
            // The watch of a file that was removed is gone already.
            watcher.unwatch(path).ok();
        }
        for path in &to_watch {
            if let Err(error) = watcher.watch(path, RecursiveMode::NonRecursive)
                && !self.watched.contains(path)
            {
                warn!(
                    path = %path.display(), %error,
                    "this cannot be watched; it is looked at every {POLL:?}"
                );
            }
        }
        self.watched = to_watch;
    }

    /// Waits for news. Changes between two calls are reported by the second one.
    pub async fn next(&mut self) -> News {
        if !self.noted {
            tokio::select! {
                _ = self.hangup.recv() => return News::Asked,
                _ = self.poll.tick() => {
                    self.arm();
                    return News::MayHaveChanged;
                }
                // Stored, so that the change is not lost if this future is dropped.
                () = self.changed.notified() => self.noted = true,
            }
        }
        let news = tokio::select! {
            _ = self.hangup.recv() => News::Asked,
            _ = timeout(PATIENCE, quiet(&self.changed)) => News::MayHaveChanged,
        };
        self.noted = false;
        // Before the look, so that no change behind it is missed.
        self.arm();
        news
    }
}

/// Resolves when no change has come for [`QUIET`].
async fn quiet(changed: &Notify) {
    while timeout(QUIET, changed.notified()).await.is_ok() {}
}

/// Adds what has to be watched for `file`, and the paths whose events count.
fn lead_to(file: &Path, watched: &mut BTreeSet<PathBuf>, own: &mut BTreeSet<PathBuf>) {
    let mut path = file.to_owned();
    for _ in 0..MAX_LINKS {
        let mut whole: Vec<&Path> = path.ancestors().collect();
        whole.reverse();
        let link = whole.into_iter().find_map(|part| Some((part, fs::read_link(part).ok()?)));
        let Some((link, target)) = link else { break };
        let directory = link.parent().unwrap_or(Path::new("/"));
        watched.insert(directory.to_owned());
        own.insert(link.to_owned());
        let rest = path.strip_prefix(link).unwrap_or(Path::new(""));
        let target = directory.join(target);
        path = if rest.as_os_str().is_empty() { target } else { target.join(rest) };
    }
    let directory = path.parent().unwrap_or(Path::new("/"));
    watched.insert(if path.exists() { path.clone() } else { directory.to_owned() });
    own.insert(path);
}

fn watcher(
    changed: Arc<Notify>,
    own: Arc<Mutex<BTreeSet<PathBuf>>>,
) -> notify::Result<RecommendedWatcher> {
    notify::recommended_watcher(move |event: notify::Result<Event>| {
        let counts = match event {
            // Reading a file is no change.
            Ok(Event { kind: EventKind::Access(_), .. }) => false,
            Ok(event) => {
                let own = own.lock();
                event.paths.is_empty() || event.paths.iter().any(|path| own.contains(path))
            }
            // Events may have been lost.
            Err(_) => true,
        };
        if counts {
            changed.notify_one();
        }
    })
}

#[cfg(test)]
mod tests;
