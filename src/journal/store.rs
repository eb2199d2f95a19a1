//! The journal's file on disk: a list of changes is appended whole and durably, or not at all.
//!
//! Records that were replaced or forgotten stay in the file until compaction writes a new one with
//! the live records alone. So a write costs one append and one sync, and the file is at most about
//! twice as large as it need be.
//!
//! Must not: retry, or know who waits for a write.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{BufWriter, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::{fs, io};

use bytes::Bytes;
use tracing::{error, warn};

#[cfg(not(test))]
use std::os::unix::fs::FileExt as _;

use super::frames::{Flaw, Frame};
use super::live::{Live, Salvaged};
use super::record::{CallKey, Change, Kept, LossRecord, Millis};
use super::{frames, live};
use crate::clock;
use crate::model::maps::HashSet;
use crate::state_dir::{StateDir, open_file};

/// A file of up to this size is not compacted, in bytes.
const SMALL: u64 = 4 << 20;
/// The write buffer is shrunk to this many bytes between two writes.
const LARGE: usize = 2 << 20;
/// How many damaged files are kept.
const KEEP_ASIDE: usize = 3;
/// The contents of the lock file once there has been a journal.
const MARK: &[u8] =
    b"A journal is kept beside this file. Without one, the bridge knows that it was lost.\n";

/// A simulation has its own, which fails and loses what was not synced.
#[cfg(test)]
type JournalFile = crate::simulated::File;
#[cfg(not(test))]
type JournalFile = File;

/// The open file.
#[derive(Debug)]
pub(super) struct Store {
    file: JournalFile,
    /// The length of the file in bytes, all of them on disk.
    pub(super) size: u64,
    /// The length of the file after the last compaction.
    size_when_new: u64,
    /// The digests of the routes that the file has.
    routes: HashSet<Box<str>>,
    /// The number of the file's first frame, and of the next one.
    numbers: (u64, u64),
    /// The next frame; empty between two writes.
    frame: Frame,
    /// The bytes of one write; empty between two writes.
    frames: Vec<u8>,
    /// What the journal lost last.
    pub(super) lost: Option<LossRecord>,
}

/// An exclusive lock on a journal, as long as it lives.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
    /// There has been a journal: if there is none now, it was lost.
    is_marked: bool,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // A program that is just being started still has the file open, so that closing it here would
        // not give the lock back at once.
        self.file.unlock().ok();
    }
}

/// What was read of a file.
struct FileContents<'a> {
    live: Live<'a>,
    /// How many bytes at the end belong to an unfinished write.
    unfinished: usize,
    /// The number of the first frame in the file that replaces this one.
    first: u64,
    /// The latest time at which a frame was written.
    noted: Millis,
    /// Where to set the file aside, if it is damaged.
    aside: Option<PathBuf>,
}

/// The file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("a mantyx-bridge runs already{0}; stop it, or give each its own `state_dir`")]
    InUse(String),
    #[error("{0} was written by a later version of mantyx-bridge; run that, or move the file away")]
    Later(PathBuf),
    #[error("the journal cannot be written or read: {0}")]
    Failed(#[from] io::Error),
}

impl Lock {
    /// Locks the journal at `path`. `has_run`: there has been a journal before.
    pub(super) fn take(path: &Path, has_run: bool) -> Result<Self, StoreError> {
        // A file of its own, as compaction replaces the journal's file and a lock on it would be
        // lost.
        let lock = path.with_extension("lock");
        let file = open_file(owners().append(true).create(true), &lock)?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => StoreError::InUse(holder(&file, path)),
            TryLockError::Error(error) => error.into(),
        })?;
        let is_marked = file.metadata()?.len() > 0;
        let lock = Self { file, is_marked: is_marked || has_run };
        if has_run && !is_marked {
            lock.write_mark();
        }
        Ok(lock)
    }

    /// Notes in the lock file that there is a journal now.
    fn mark(&mut self) {
        if !std::mem::replace(&mut self.is_marked, true) {
            self.write_mark();
        }
    }

    fn write_mark(&self) {
        let written = (&self.file).write_all(MARK).and_then(|()| self.file.sync_all());
        if let Err(error) = written {
            warn!(%error, "cannot mark the lock file; the next start tries again");
        }
    }
}

/// The process that holds the lock, and where it listens, as far as that can be told.
fn holder(lock: &File, journal: &Path) -> String {
    let inode = lock.metadata().map_or(0, |it| it.ino());
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let mut locks = locks.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let held = locks.find(|words| words.iter().any(|it| it.ends_with(&format!(":{inode}"))));
    let process = held.and_then(|words| words.get(4).map(|id| format!(", as process {id}")));
    let state = StateDir::new(journal.parent().unwrap_or(journal).to_owned());
    let at = state.listen().unwrap_or_default().first().map(|url| format!(" at {url}"));
    process.into_iter().chain(at).collect()
}

/// What the file at `path` keeps; nothing, if there is no file.
pub(super) fn read(path: &Path) -> Result<Kept, StoreError> {
    with_live(path, u64::MAX, false, |found| found.live.kept())
}

/// The kept answer to a call in the file at `path`.
pub(super) fn answer(path: &Path, key: &CallKey) -> Result<Option<Bytes>, StoreError> {
    with_live(path, u64::MAX, false, |found| found.live.answer(key))
}

/// Hands `then` what the first `size` bytes of the file at `path` keep. `is_expected`: if there is no
/// file, it was lost.
fn with_live<T>(
    path: &Path,
    size: u64,
    is_expected: bool,
    then: impl FnOnce(FileContents<'_>) -> T,
) -> Result<T, StoreError> {
    let mut bytes = Vec::new();
    match open_file(OpenOptions::new().read(true), path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        file => {
            let file = file?;
            bytes.reserve_exact(usize::try_from(file.metadata()?.len().min(size)).unwrap_or(0));
            file.take(size).read_to_end(&mut bytes)?;
        }
    }
    let now = clock::moment();
    let lose = |live: &mut Live<'_>, what: String| {
        error!(journal = %path.display(), "{what}");
        live.lose(&LossRecord::now(what));
    };
    if bytes.is_empty() {
        let mut live = Live::default();
        if is_expected {
            lose(&mut live, GONE.to_owned());
        }
        let found = FileContents { live, unfinished: 0, first: now.wall, noted: 0, aside: None };
        return Ok(then(found));
    }
    let contents = frames::read(&bytes).ok_or_else(|| StoreError::Later(path.to_owned()))?;
    let mut live = Live::of(&contents);
    let mut aside = None;
    live.forget_old(now, contents.noted);
    if let Some(flaw) = contents.flaw {
        let salvaged = live.salvage();
        let to = path.with_extension(format!("damaged-{}", now.wall));
        lose(&mut live, damaged(flaw, salvaged, &to));
        aside = Some(to);
    }
    let unfinished = bytes.len() - contents.end;
    let first = contents.next_first().max(now.wall);
    Ok(then(FileContents { live, unfinished, first, noted: contents.noted, aside }))
}

/// The notice to people if the journal is missing.
const GONE: &str = "The journal was gone when the bridge started, though there had been one. The runs \
                    and sessions in it are not known any more. In runs that are handed over and that \
                    are older, calls without an answer are answered with OUTCOME_UNKNOWN.";

/// The notice to people about a damaged file.
fn damaged(flaw: Flaw, salvaged: Salvaged, aside: &Path) -> String {
    let Flaw { at, bytes, frames } = flaw;
    let Salvaged { runs, calls, orphans, routeless } = salvaged;
    let frames = match frames {
        Some(frames) => format!("{frames} records are lost"),
        None => "what they said is lost".to_owned(),
    };
    let orphans = match orphans {
        0 => String::new(),
        some => format!(" The runs of {some} calls are not known any more."),
    };
    let routeless = match routeless {
        0 => String::new(),
        some => format!(
            " The record of the tools of {some} runs is lost; these runs go on with the tools that \
             their backends offer now."
        ),
    };
    let aside = aside.display();
    format!(
        "The journal was damaged: from byte {at} on, {bytes} bytes were not as they had been \
         written, and {frames}. The file was set aside as {aside}. {runs} runs are read anew from \
         their beginning; {calls} calls, and others without an answer, may have been made, and are \
         answered with OUTCOME_UNKNOWN.{orphans}{routeless}"
    )
}

impl Store {
    /// What the file at `path` keeps, and the open file, if it can be written.
    pub(super) fn open(
        path: &Path,
        lock: &mut Lock,
    ) -> Result<(Kept, Result<Self, StoreError>), StoreError> {
        // Of an earlier process.
        remove_compacted(path);
        with_live(path, u64::MAX, lock.is_marked, |mut found| {
            if found.unfinished > 0 {
                warn!(
                    bytes = found.unfinished,
                    "the last write to the journal was cut short and is left out; nothing relied \
                     on it"
                );
            }
            // Only at the start: while the bridge runs, a run whose record was given up is written
            // again.
            let orphans = found.live.forget_orphans();
            if orphans > 0 {
                warn!(orphans, "ignoring calls of unknown runs in the journal");
            }
            let mut kept = found.live.kept();
            kept.noted = found.noted;
            (kept, Self::in_place_of(path, lock, found))
        })
    }

    /// Compacts the journal: writes the live records to a new file and renames it over `path`. If
    /// there is no file, the new one is empty.
    ///
    /// This also repairs the journal after a failed write. Then the bridge cannot know which bytes
    /// of the old file are on disk: a read may be served from memory, and fsync reports a loss only
    /// once.
    pub(super) fn renew(path: &Path, lock: &mut Lock) -> Result<Self, StoreError> {
        let is_expected = lock.is_marked;
        with_live(path, u64::MAX, is_expected, |found| Self::in_place_of(path, lock, found))?
    }

    /// Writes what the first `size` bytes of the file at `path` keep to a new file beside it, while
    /// more is appended to the old one. [`Self::replace`] puts the new file in its place.
    pub(super) fn beside(path: &Path, size: u64) -> Result<Self, StoreError> {
        with_live(path, size, false, |found| match found.aside {
            None => Ok(Self::write(&compacted(path), found)?),
            Some(_) => Err(io::Error::from(io::ErrorKind::InvalidData).into()),
        })?
    }

    /// Puts this new file in the place of the one at `path`, with the `changes` that were written there
    /// since it was read.
    pub(super) fn replace(mut self, path: &Path, changes: &[Change]) -> Result<Self, StoreError> {
        self.apply([changes])?;
        put(&compacted(path), path)?;
        Ok(self)
    }

    /// Replaces the file at `path`, if there is one, by a new one with what was `found`.
    fn in_place_of(
        path: &Path,
        lock: &mut Lock,
        found: FileContents<'_>,
    ) -> Result<Self, StoreError> {
        let fresh = path.with_extension("new");
        let aside = found.aside.clone();
        let placed = Self::write(&fresh, found).and_then(|store| {
            if let Some(aside) = &aside {
                set_aside(path, aside)?;
            }
            put(&fresh, path)?;
            aside.as_deref().and_then(remove_older);
            Ok(store)
        });
        if placed.is_err() {
            // Remove it: it takes disk space, which may be what is missing.
            fs::remove_file(&fresh).ok();
        } else {
            lock.mark();
        }
        Ok(placed.map_err(|error| naming_room(error, path))?)
    }

    /// Writes what was `found` to a new file and syncs it.
    fn write(path: &Path, found: FileContents<'_>) -> io::Result<Self> {
        let FileContents { live, first, .. } = found;
        let live = live.without_unused_routes();
        // Arguments and answers are private: the file is readable for its owner alone.
        let file = owners().write(true).create(true).truncate(true).open(path)?;
        let file = JournalFile::from(file);
        let mut writer = BufWriter::with_capacity(1 << 20, &file);
        writer.write_all(&frames::file_head(first, 0))?;
        let next = live.frames((first, clock::millis()), |frame| writer.write_all(frame))?;
        writer.flush()?;
        drop(writer);
        let size = file.metadata()?.len();
        file.write_all_at(&frames::file_head(first, size), 0)?;
        file.sync_all()?;
        let routes = live.routes().map(|digest| digest.as_ref().into()).collect();
        let frame = Frame::new();
        let frames = Vec::new();
        let numbers = (first, next);
        let lost = live.lost();
        Ok(Self { file, size, size_when_new: size, routes, numbers, frame, frames, lost })
    }

    /// Writes groups of changes, in their order; when this returns, they are on disk. After a
    /// crash, the file has all changes of a group, or none of them but its routes. After an error,
    /// the contents of the file are unknown until [`Self::renew`].
    pub(super) fn apply<'a>(
        &mut self,
        groups: impl IntoIterator<Item = &'a [Change]>,
    ) -> Result<(), StoreError> {
        self.frames.clear();
        self.frames.shrink_to(LARGE);
        let now = clock::millis();
        let mut next = self.numbers.1;
        for changes in groups {
            // Many runs and sessions share their routes. Routes have a frame of their own, so that
            // damage to one run does not cost them. The records that refer to them follow in the
            // same write: a compaction between the two would leave the routes out, as nothing
            // refers to them yet.
            for of_routes in [true, false] {
                let is_routes = |change: &Change| matches!(change, Change::Routes(_));
                let part = changes.iter().filter(|change| is_routes(change) == of_routes);
                self.frame(part, now, &mut next);
            }
        }
        if self.frames.is_empty() {
            return Ok(());
        }
        self.file.write_all_at(&self.frames, self.size)?;
        self.file.sync_data()?;
        self.size += self.frames.len() as u64;
        self.numbers.1 = next;
        Ok(())
    }

    /// Adds a frame of `changes` to the next write.
    fn frame<'a>(
        &mut self,
        changes: impl Iterator<Item = &'a Change>,
        now: Millis,
        next: &mut u64,
    ) {
        self.frame.clear();
        for change in changes {
            match change {
                Change::Lost(loss) => self.lost = Some(loss.clone()),
                // The file has them.
                Change::Routes(it) if !self.routes.insert((&*it.digest).into()) => continue,
                _ => {}
            }
            for (key, value) in live::records(change) {
                self.frame.set(&live::json(&key), value.as_deref());
            }
        }
        if !self.frame.is_empty() {
            self.frames.extend_from_slice(self.frame.bytes(*next, now));
            *next += 1;
        }
    }

    /// Writes the file's length into its head, so that a file which is found to be shorter is known
    /// to have lost data. Nothing is written afterwards.
    pub(super) fn close(self) -> io::Result<()> {
        self.file.write_all_at(&frames::file_head(self.numbers.0, self.size), 0)?;
        self.file.sync_data()
    }

    /// Has the file grow to twice its size before it counts as wasteful again.
    pub(super) fn postpone(&mut self) {
        self.size_when_new = self.size;
    }

    /// Whether about half of the file or more is not live any more, and the file is worth
    /// compacting.
    pub(super) fn is_wasteful(&self) -> bool {
        self.size > SMALL.max(self.size_when_new * 2)
    }
}

/// Adds to the error of a full disk how much room a new file beside the one at `path` may take.
fn naming_room(error: io::Error, path: &Path) -> io::Error {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    match (error.kind(), fs::metadata(path)) {
        (kind @ (FileTooLarge | QuotaExceeded | StorageFull), Ok(old)) => {
            let room = format!("{error}; a new file beside it takes up to {} bytes", old.len());
            io::Error::new(kind, room)
        }
        _ => error,
    }
}

/// Where a compaction beside the file at `path` writes.
fn compacted(path: &Path) -> PathBuf {
    path.with_extension("compacted")
}

/// Removes what a compaction has left that was of no use.
pub(super) fn remove_compacted(path: &Path) {
    fs::remove_file(compacted(path)).ok();
}

/// Puts the file `fresh` in the place of the one at `path`, durably.
fn put(fresh: &Path, path: &Path) -> io::Result<()> {
    fs::rename(fresh, path)?;
    path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}

/// Gives the file at `path` another name, under which it stays.
fn set_aside(path: &Path, aside: &Path) -> io::Result<()> {
    // Link instead of rename: if the bridge crashes now, there still is a journal at `path`.
    match fs::hard_link(path, aside) {
        // The file system has no hard links.
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => fs::rename(path, aside),
        _ => Ok(()),
    }
}

/// Removes all but the last [`KEEP_ASIDE`] files that were set aside, of which `aside` is one: a
/// disk that damages one file after another would be filled by them. `None`: the directory cannot
/// be read, or `aside` is not such a file.
fn remove_older(aside: &Path) -> Option<()> {
    let name = aside.file_name()?.to_str()?;
    let (prefix, _) = name.split_at(name.rfind('-')? + 1);
    let entries = fs::read_dir(aside.parent()?).ok()?;
    let since = |path: PathBuf| {
        let at: Millis = path.file_name()?.to_str()?.strip_prefix(prefix)?.parse().ok()?;
        Some((at, path))
    };
    let mut found: Vec<_> = entries.filter_map(|entry| since(entry.ok()?.path())).collect();
    found.sort_unstable();
    found.truncate(found.len().saturating_sub(KEEP_ASIDE));
    for (_, path) in found {
        if let Err(error) = fs::remove_file(&path) {
            warn!(%error, path = %path.display(), "cannot remove an old damaged journal");
        }
    }
    Some(())
}

/// Options for files that only their owner can read and write.
fn owners() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
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
}
