//! Tells when bridge.yaml, or another followed file, may have changed: its metadata has changed,
//! SIGHUP has come, or a look is due in any case.
//!
//! The metadata is polled, which works on every file system, and for a file or a symlink to it that
//! editors and ConfigMaps replace. A change counts once two polls have found the same, since writes
//! come in bursts.
//!
//! Must not: read the file.

use std::{
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::{Instant, Interval, MissedTickBehavior, interval_at},
};

/// The interval of polls.
const POLL: Duration = Duration::from_secs(1);
/// The longest time between two looks, as files that bridge.yaml refers to are not followed.
const LOOK: Duration = Duration::from_secs(10);

/// The reason to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News {
    /// The text of the file may have changed.
    MayHaveChanged,
    /// SIGHUP asked for a look at the file and at all files that it refers to.
    Asked,
}

/// The metadata of the followed files that changes with their content; `None` of a missing one.
type Stamps = Vec<Option<(SystemTime, u64, u64)>>;

/// A watch on one file, and on the files that it refers to.
#[derive(Debug)]
pub struct Watch {
    files: Vec<PathBuf>,
    hangup: Signal,
    poll: Interval,
    /// As the last poll has found them.
    found: Stamps,
    /// As they were at the last look, and its time.
    looked: (Stamps, Instant),
}

impl Watch {
    /// Watches the file at `path`. From now on, SIGHUP does not end the process.
    pub fn new(path: &Path) -> io::Result<Self> {
        let mut poll = interval_at(Instant::now() + POLL, POLL);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Self {
            files: vec![path.to_owned()],
            hangup: signal(SignalKind::hangup())?,
            poll,
            found: Stamps::new(),
            // The file was read earlier, and may have changed since.
            looked: (Stamps::new(), Instant::now()),
        })
    }

    /// Also watches these files.
    pub fn follow<'p>(&mut self, paths: impl Iterator<Item = &'p Path>) {
        self.files.extend(paths.map(Path::to_owned));
    }

    /// Waits for news. Changes between two calls are reported by the second one.
    pub async fn next(&mut self) -> News {
        loop {
            tokio::select! {
                _ = self.hangup.recv() => return News::Asked,
                _ = self.poll.tick() => (),
            }
            let now = self.stamps().await;
            let has_settled = now == self.found;
            let is_new = now != self.looked.0 || self.looked.1.elapsed() >= LOOK;
            self.found.clone_from(&now);
            if has_settled && is_new {
                self.looked = (now, Instant::now());
                return News::MayHaveChanged;
            }
        }
    }

    async fn stamps(&self) -> Stamps {
        let mut stamps = Stamps::new();
        for file in &self.files {
            let found = tokio::fs::metadata(file).await;
            stamps.push(found.ok().and_then(|it| Some((it.modified().ok()?, it.len(), it.ino()))));
        }
        stamps
    }
}

#[cfg(test)]
mod tests;
