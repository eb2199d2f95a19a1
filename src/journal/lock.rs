//! The lock on a journal, and what its file says about the journal: that there has been one, and
//! how long it was.
//!
//! Must not: read or write the journal.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Read as _;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use tracing::warn;

use super::frames;
use super::store::StoreError;
use crate::state_dir::{StateDir, open_file};

/// The contents of the lock file once there has been a journal, before its [`Extent`].
const MARK: &[u8] =
    b"A journal is kept beside this file. Without one, the bridge knows that it was lost.\n";

/// How far a journal reached on disk.
///
/// The lock file has it without a sync. It outlives the process, and so tells whether a file was
/// made shorter, at the border of a frame, before the next start. After a power loss it may be
/// older than the file, and then claims less than there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    /// The number of the file's first frame. Each new file has a higher one.
    pub(super) first: u64,
    /// The least length of the file in bytes.
    pub(super) size: u64,
}

/// An exclusive lock on a journal, as long as it lives.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
    /// The path of the lock file.
    path: PathBuf,
    /// There has been a journal: if there is none now, it was lost.
    pub(super) is_marked: bool,
    /// What the last process noted of it.
    pub(super) extent: Option<Extent>,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // A program that is just being started still has the file open, so that closing it here
        // would not give the lock back at once.
        self.file.unlock().ok();
    }
}

impl Lock {
    /// Locks the journal at `journal`. `has_run`: there has been a journal before. Without the
    /// lock, two bridges would write one file, and both would make the calls in it.
    pub(super) fn take(journal: &Path, has_run: bool) -> Result<Self, StoreError> {
        // A separate file, as compaction replaces the journal's file and a lock on it would be
        // lost.
        let path = journal.with_extension("lock");
        // The directory may have been removed while the bridge ran.
        if let Some(dir) = path.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = open_file(&mut options, &path)?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => StoreError::InUse(holder(&file, journal)),
            TryLockError::Error(error) => error.into(),
        })?;
        let mut text = Vec::new();
        (&mut file).take(1 << 10).read_to_end(&mut text)?;
        let extent = text.strip_prefix(MARK).and_then(frames::parse_extent);
        let lock = Self { file, path, is_marked: has_run || !text.is_empty(), extent };
        if has_run && text.is_empty() {
            lock.write_mark();
        }
        Ok(lock)
    }

    /// Whether the lock file is still where another process would look for it. A lock on a removed
    /// file keeps no other bridge out.
    pub(super) fn is_in_place(&self) -> bool {
        match (self.file.metadata(), fs::symlink_metadata(&self.path)) {
            (Ok(own), Ok(there)) => (own.dev(), own.ino()) == (there.dev(), there.ino()),
            _ => false,
        }
    }

    /// Notes in the lock file that there is a journal now. Without the mark, a start after the
    /// journal was removed would look like the first one, and calls of old runs would be made
    /// again.
    pub(super) fn mark(&mut self) {
        if !std::mem::replace(&mut self.is_marked, true) {
            self.write_mark();
        }
    }

    fn write_mark(&self) {
        if let Err(error) = self.file.write_all_at(MARK, 0).and_then(|()| self.file.sync_all()) {
            warn!(%error, "cannot mark the lock file; the next start tries again");
        }
    }

    /// Notes how far the journal reaches. The bytes up to there must be on disk: an extent that
    /// claims more than a crash leaves would have an intact journal count as damaged.
    pub(super) fn note(&self, Extent { first, size }: Extent) {
        // The extent that stays claims less, which is safe.
        self.file.write_all_at(&frames::file_head(first, size), MARK.len() as u64).ok();
    }
}

/// The process that holds the lock, and where it listens, as far as that can be told.
fn holder(lock: &File, journal: &Path) -> String {
    let inode = lock.metadata().map_or(0, |about| about.ino());
    let suffix = format!(":{inode}");
    let table = fs::read_to_string("/proc/locks").unwrap_or_default();
    let mut lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let entry = lines.find(|words| words.iter().any(|word| word.ends_with(&suffix)));
    let process = entry.and_then(|words| words.get(4).map(|id| format!(", as process {id}")));
    let state = StateDir::new(journal.parent().unwrap_or(journal).to_owned());
    let at = state.listen().unwrap_or_default().first().map(|url| format!(" at {url}"));
    process.into_iter().chain(at).collect()
}

#[cfg(test)]
mod tests {
    //! How long a journal is locked.

    use super::*;

    /// A program that is being started has the file open as well.
    #[test]
    fn the_lock_is_given_back_although_the_file_is_open_elsewhere() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let lock = Lock::take(&path, false).unwrap();
        let _elsewhere = lock.file.try_clone().unwrap();
        assert!(matches!(Lock::take(&path, false), Err(StoreError::InUse(_))));
        drop(lock);
        Lock::take(&path, false).unwrap();
    }

    #[test]
    fn extent_of_another_version_is_ignored_and_its_mark_counts() {
        struct Case {
            name: &'static str,
            text: Vec<u8>,
            is_marked: bool,
            extent: Option<Extent>,
        }
        let head = frames::file_head(9, 77);
        // The version is the last byte of eight; without its checksum, no version reads it.
        let mut later_head = head;
        later_head[7] += 1;
        let extent = Some(Extent { first: 9, size: 77 });
        for Case { name, text, is_marked, extent } in [
            Case { name: "new", text: Vec::new(), is_marked: false, extent: None },
            Case {
                name: "of a version without extents",
                text: MARK.to_vec(),
                is_marked: true,
                extent: None,
            },
            Case { name: "of this version", text: [MARK, &head].concat(), is_marked: true, extent },
            Case {
                name: "of this version, with more behind it",
                text: [MARK, &head, b"later"].concat(),
                is_marked: true,
                extent,
            },
            Case {
                name: "with the extent of a later version",
                text: [MARK, &later_head].concat(),
                is_marked: true,
                extent: None,
            },
            Case {
                name: "with the mark of a later version",
                text: b"Another text.\n".to_vec(),
                is_marked: true,
                extent: None,
            },
        ] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("journal");
            fs::write(path.with_extension("lock"), text).unwrap();
            let lock = Lock::take(&path, false).unwrap();
            assert_eq!((lock.is_marked, lock.extent), (is_marked, extent), "{name}");
        }
    }
}
