//! The journal's file on disk: a list of changes is appended whole and durably, or not at all.
//!
//! Records that were replaced or forgotten stay in the file until compaction writes a new one with
//! the live records alone. So a write costs one append and one sync, and the file is at most about
//! twice as large as it need be. The new file has its room on the disk before it is written
//! ([`Reserve`]).
//!
//! Must not: retry, or know who waits for a write.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Read as _, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

use bytes::Bytes;
use tracing::{error, warn};

#[cfg(not(test))]
use std::os::unix::fs::FileExt as _;

use super::frames::Frame;
use super::live::Live;
use super::lock::{Extent, Lock};
use super::record::{CallKey, Change, LossRecord, Millis, StoredRecords};
use super::reserve::{Reserve, next_path};
use super::{frames, live, losses, reserve};
use crate::clock;
use crate::model::maps::HashSet;
use crate::state_dir::open_file;

/// The write buffer is shrunk to this many bytes between two writes.
const LARGE: usize = 2 << 20;
/// How many damaged files are kept.
const KEEP_ASIDE: usize = 3;
/// A simulation has its own, which fails and loses what was not synced.
#[cfg(test)]
pub(super) type JournalFile = crate::simulated::File;
#[cfg(not(test))]
pub(super) type JournalFile = File;

/// The open file.
#[derive(Debug)]
pub(super) struct Store {
    file: JournalFile,
    /// The device and the number of the file.
    inode: (u64, u64),
    /// The records that the file has.
    live: Live,
    /// The room of the file that takes the place of this one.
    reserve: Reserve,
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
    /// What that write sets; empty between two writes.
    entries: Vec<(Bytes, Option<Bytes>)>,
}

/// The open file; or why it cannot be written, and what it will be made of.
pub(super) type Opened = Result<Store, (StoreError, State)>;

/// What a new file is made of: the records that the journal has, wherever its file has gone.
#[derive(Debug, Clone)]
pub(super) struct State {
    pub(super) live: Live,
    /// The number of the new file's first frame.
    first: u64,
    /// Where to set aside the file that has the journal's place now.
    aside: Option<PathBuf>,
}

/// What was read of a file.
struct FileContents {
    state: State,
    /// How many bytes at the end belong to an unfinished write.
    unfinished: usize,
    /// The latest time at which a frame was written.
    noted: Millis,
}

/// What has become of the file while it was open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, derive_more::Display)]
pub(super) enum Displacement {
    #[display("removed")]
    Removed,
    #[display("replaced by another file")]
    Replaced,
    #[display("truncated or written to by another program")]
    Changed,
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

impl StoreError {
    /// Whether a smaller file may find the room that this one has not found.
    pub(super) fn lacks_room(&self) -> bool {
        matches!(self, Self::Failed(error) if lacks_room(error))
    }
}

fn lacks_room(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), FileTooLarge | QuotaExceeded | StorageFull)
}

impl State {
    /// This with `changes` that no file has. They may forget what fills the disk, so that the new
    /// file is smaller with them.
    pub(super) fn with(&self, changes: &[Change]) -> Self {
        let mut state = self.clone();
        for change in changes {
            state.live.apply(change);
        }
        state
    }
}

/// What the file at `path` keeps; nothing, if there is no file.
#[cfg(test)]
pub(super) fn read(path: &Path) -> Result<StoredRecords, StoreError> {
    read_file(path, None, false).map(|contents| contents.state.live.records())
}

/// Reads the file at `path`. `is_expected`: if there is no file, it was lost. `extent`: how far the
/// last process had it on disk. What is missing of that was lost, though all that is there is
/// intact.
///
/// After a loss, the records are salvaged: a call counts as dispatched, or the next driver would
/// make a call whose dispatch is in the lost part. The damaged file is set aside, as only a person
/// can tell what else was in it.
fn read_file(
    path: &Path,
    extent: Option<Extent>,
    is_expected: bool,
) -> Result<FileContents, StoreError> {
    let mut bytes = Vec::new();
    match open_file(OpenOptions::new().read(true), path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        file => {
            let mut file = file?;
            bytes.reserve_exact(usize::try_from(file.metadata()?.len()).unwrap_or(0));
            file.read_to_end(&mut bytes)?;
        }
    }
    let bytes = Bytes::from(bytes);
    let now = clock::moment();
    // A clock that was put back must not make the new file look older than the last one.
    let least = extent.map_or(0, |extent| extent.first.saturating_add(1)).max(now.wall);
    if bytes.is_empty() {
        let mut live = Live::default();
        if is_expected {
            note_loss(path, &mut live, losses::GONE.to_owned());
        }
        let state = State { live, first: least, aside: None };
        return Ok(FileContents { state, unfinished: 0, noted: 0 });
    }
    let contents = frames::read(&bytes).ok_or_else(|| StoreError::Later(path.to_owned()))?;
    let mut live = Live::from_file(&bytes, &contents);
    let mut aside = None;
    live.forget_old(now, contents.noted);
    let missing = extent.and_then(|extent| losses::missing(extent, contents.first, bytes.len()));
    let is_older_copy =
        extent.zip(contents.first).is_some_and(|(extent, first)| first < extent.first);
    if let Some(flaw) = contents.flaw.or(missing) {
        let salvaged = live.salvage();
        let to = path.with_extension(format!("damaged-{}", now.wall));
        let what = if is_older_copy {
            losses::outdated(salvaged, &to)
        } else {
            losses::damaged(flaw, salvaged, &to)
        };
        note_loss(path, &mut live, what);
        aside = Some(to);
    }
    live.detach();
    let unfinished = bytes.len() - contents.end;
    let state = State { live, first: contents.next_first().max(least), aside };
    Ok(FileContents { state, unfinished, noted: contents.noted })
}

fn note_loss(path: &Path, live: &mut Live, what: String) {
    error!(journal = %path.display(), "{what}");
    live.lose(&LossRecord::now(what));
}

impl Store {
    /// What the file at `path` keeps, and the open file, or what a new one is made of once it can
    /// be written.
    pub(super) fn open(
        path: &Path,
        lock: &mut Lock,
    ) -> Result<(StoredRecords, Opened), StoreError> {
        // Of an earlier process.
        remove_compacted(path);
        let FileContents { mut state, unfinished, noted } =
            read_file(path, lock.extent, lock.is_marked)?;
        if unfinished > 0 {
            warn!(
                bytes = unfinished,
                "the last write to the journal was cut short and is left out; nothing relied on it"
            );
        }
        // Only at the start: while the bridge runs, a run whose record was given up is written
        // again.
        let orphans = state.live.forget_orphans();
        if orphans > 0 {
            warn!(orphans, "ignoring calls of unknown runs in the journal");
        }
        let mut records = state.live.records();
        records.noted = noted;
        let opened = match Self::renew(path, lock, state.clone()) {
            Ok(store) => store.with_reserve(),
            Err(error) => Err((error, state)),
        };
        Ok((records, opened))
    }

    /// Compacts the journal: writes the live records to a new file and renames it over `path`.
    ///
    /// This also repairs the journal after a failed write, and after another program has removed or
    /// changed its file. Nothing of the old file is read: a read may be served from memory, and
    /// fsync reports a loss only once.
    ///
    /// The new file takes the room that was reserved for it. [`Self::with_reserve`] makes room for
    /// its own successor, once the old file has gone.
    ///
    /// The order counts: the new file is synced before it is renamed, or a crash would leave an
    /// empty journal; a damaged file is linked under its other name before that, or it would be
    /// lost; and the lock notes the extent last, when the file it speaks of is in its place.
    pub(super) fn renew(path: &Path, lock: &mut Lock, state: State) -> Result<Self, StoreError> {
        if !lock.is_in_place() {
            // With it, another process could open the journal.
            *lock = Lock::take(path, true)?;
        }
        let fresh = next_path(path);
        let aside = state.aside.clone();
        let bytes = state.live.file_bytes();
        let placed = Self::write(&fresh, path, state).and_then(|store| {
            if let Some(aside) = &aside {
                set_aside(path, aside)?;
            }
            put(&fresh, path)?;
            aside.as_deref().and_then(remove_older);
            Ok(store)
        });
        match placed {
            Ok(store) => {
                lock.mark();
                lock.note(store.extent());
                Ok(store)
            }
            Err(error) if lacks_room(&error) => Err(naming_room(&error, bytes).into()),
            Err(error) => {
                // The next attempt gets other blocks of the disk.
                fs::remove_file(&fresh).ok();
                Err(error.into())
            }
        }
    }

    /// This store with room for its next file; or why there is none, and what that file is made of.
    ///
    /// A journal without that room could not become smaller on a full disk, so it is not written.
    pub(super) fn with_reserve(mut self) -> Opened {
        match self.reserve_for(0) {
            Ok(()) => Ok(self),
            Err(error) => Err((error, self.state())),
        }
    }

    /// Makes room for the next file, with so many bytes more than the records have that there are.
    fn reserve_for(&mut self, more: u64) -> Result<(), StoreError> {
        let bytes = self.live.file_bytes() + more;
        Ok(self.reserve.cover(bytes).map_err(|error| naming_room(&error, bytes))?)
    }

    /// Writes `state`, which the file at `path` had, to a new file, while more is appended to the
    /// old one. [`Self::replace`] puts the new file in its place.
    pub(super) fn beside(path: &Path, state: State) -> Result<Self, StoreError> {
        Ok(Self::write(&compacted(path), path, state)?)
    }

    /// What a new file in place of this one is made of.
    pub(super) fn state(&self) -> State {
        let first = self.numbers.1.saturating_add(frames::APART).max(clock::millis());
        let mut live = self.live.clone();
        let now = clock::moment();
        live.forget_old(now, now.wall);
        State { live, first, aside: None }
    }

    /// [`Self::state`], after the file at `path` was found to be no longer this one. A file in its
    /// place is set aside, as it may be what an operator meant to restore.
    pub(super) fn displaced_state(&self, displacement: Displacement, path: &Path) -> State {
        let aside = match displacement {
            Displacement::Replaced => {
                Some(path.with_extension(format!("damaged-{}", clock::moment().wall)))
            }
            Displacement::Removed | Displacement::Changed => None,
        };
        State { aside, ..self.state() }
    }

    pub(super) fn extent(&self) -> Extent {
        Extent { first: self.numbers.0, size: self.size }
    }

    /// What another program has done to the file at `path`, if that is not this one any longer.
    /// What is written to a removed file is lost with the process, though every sync succeeds.
    pub(super) fn displacement(&self, path: &Path) -> Option<Displacement> {
        match fs::symlink_metadata(path) {
            Ok(there) if (there.dev(), there.ino()) != self.inode => Some(Displacement::Replaced),
            Ok(there) if there.len() != self.size => Some(Displacement::Changed),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some(Displacement::Removed),
            // What the disk hides for a moment is not gone: the next write tells.
            Ok(_) | Err(_) => None,
        }
    }

    /// Puts this new file in the place of the one at `path`, with the `changes` that were written
    /// there since it was read. They are synced before the rename: their callers have been told
    /// that they are on disk, and a crash in between must find one of the two files complete.
    pub(super) fn replace(mut self, path: &Path, changes: &[Change]) -> Result<Self, StoreError> {
        self.apply([changes])?;
        put(&compacted(path), path)?;
        // The next attempt to make it smaller tries again.
        self.reserve.shrink(self.live.file_bytes()).ok();
        Ok(self)
    }

    /// Writes `state` to the file at `path`, which is to take the place of the one at `journal`,
    /// and syncs it. What the file at `path` has had is written over.
    ///
    /// The head is written twice. While the frames are written, it claims no length: after a crash,
    /// a file that lacks some of them must not count as damaged.
    fn write(path: &Path, journal: &Path, State { live, first, .. }: State) -> io::Result<Self> {
        let live = live.without_unused_routes();
        let file = reserve::open(path)?;
        // Nothing is written in vain.
        reserve::allocate(&file, live.file_bytes())?;
        let mut writer = BufWriter::with_capacity(1 << 20, Sequential { file: &file, offset: 0 });
        writer.write_all(&frames::file_head(first, 0))?;
        let next = live.frames((first, clock::millis()), |frame| writer.write_all(frame))?;
        writer.flush()?;
        let size = writer.get_ref().offset;
        drop(writer);
        file.set_len(size)?;
        let facts = file.metadata()?;
        let inode = (facts.dev(), facts.ino());
        file.write_all_at(&frames::file_head(first, size), 0)?;
        file.sync_all()?;
        let routes = live.routes().map(|digest| digest.as_ref().into()).collect();
        let frame = Frame::new();
        let (frames, entries) = (Vec::new(), Vec::new());
        let numbers = (first, next);
        let reserve = Reserve::new(journal);
        Ok(Self {
            file,
            inode,
            live,
            reserve,
            size,
            size_when_new: size,
            routes,
            numbers,
            frame,
            frames,
            entries,
        })
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
        self.entries.clear();
        let now = clock::millis();
        let mut next = self.numbers.1;
        for changes in groups {
            // Many runs and sessions share their routes. Routes have a frame of their own, so that
            // damage to one run does not cost them. The records that refer to them follow in the
            // same write: a compaction between the two would leave the routes out, as nothing
            // refers to them yet.
            self.frame(changes.iter().filter(|change| is_routes(change)), now, &mut next);
            self.frame(changes.iter().filter(|change| !is_routes(change)), now, &mut next);
        }
        if self.frames.is_empty() {
            return Ok(());
        }
        if let Err(error) = self.append() {
            // Callers are told that nothing of it was written. The next process must not read a
            // part.
            self.file.set_len(self.size).ok();
            return Err(error);
        }
        self.size += self.frames.len() as u64;
        self.numbers.1 = next;
        for (key, value) in self.entries.drain(..) {
            self.live.set(key, value);
        }
        Ok(())
    }

    /// Writes the frames to the end of the file and syncs them. They come before the room of the
    /// next file, which grows in large steps and would leave them none.
    fn append(&mut self) -> Result<(), StoreError> {
        self.file.write_all_at(&self.frames, self.size)?;
        let records = self.entries.iter().filter_map(|(key, value)| Some((key, value.as_ref()?)));
        self.reserve_for(records.map(|(key, value)| frames::record_bytes(key, value)).sum())?;
        Ok(self.file.sync_data()?)
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
            if let Change::Routes(routes) = change
                && !self.routes.insert((&*routes.digest).into())
            {
                // The file has them.
                continue;
            }
            for (key, value) in live::records(change) {
                let key = Bytes::from(live::json(&key));
                self.frame.set(&key, value.as_deref());
                self.entries.push((key, value));
            }
        }
        if !self.frame.is_empty() {
            self.frames.extend_from_slice(self.frame.bytes(*next, now));
            *next += 1;
        }
    }

    /// The last loss; [`LossRecord::matters`] tells whether it is of use.
    pub(super) fn lost(&self) -> Option<LossRecord> {
        self.live.lost()
    }

    /// The kept answer to a call.
    pub(super) fn answer(&self, key: &CallKey) -> Option<Bytes> {
        self.live.answer(key)
    }

    /// All records that the file has.
    pub(super) fn records(&self) -> StoredRecords {
        self.live.records()
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

    /// About how many bytes the file would have if it were new.
    pub(super) fn live_bytes(&self) -> u64 {
        self.live.file_bytes()
    }

    /// Whether the file has more than twice the bytes that it had when it was new, so that about
    /// half of it or more may be of no use.
    pub(super) fn has_doubled(&self) -> bool {
        self.size > self.size_when_new * 2
    }
}

fn is_routes(change: &Change) -> bool {
    matches!(change, Change::Routes(_))
}

/// Adds to the error of a full disk how much room a new file takes.
fn naming_room(error: &io::Error, bytes: u64) -> io::Error {
    let room = format!("{error}; a new file beside it takes up to {bytes} bytes");
    io::Error::new(error.kind(), room)
}

/// Writes one part of a file after the other.
struct Sequential<'a> {
    file: &'a JournalFile,
    offset: u64,
}

impl Write for Sequential<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_all_at(bytes, self.offset)?;
        self.offset += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
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

/// Puts the file `fresh` in the place of the one at `path`. The directory is synced, too: without
/// that, a crash may bring back the old file, and with it lose all that was written to the new one.
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
    let mut files: Vec<(Millis, PathBuf)> = entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let set_aside_at = path.file_name()?.to_str()?.strip_prefix(prefix)?.parse().ok()?;
            Some((set_aside_at, path))
        })
        .collect();
    files.sort_unstable();
    files.truncate(files.len().saturating_sub(KEEP_ASIDE));
    for (_, path) in files {
        if let Err(error) = fs::remove_file(&path) {
            warn!(%error, path = %path.display(), "cannot remove an old damaged journal");
        }
    }
    Some(())
}
