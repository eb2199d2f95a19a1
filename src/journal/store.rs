//! The journal's file on its disk: a list of changes is appended whole and durably, or not at all.
//!
//! What was replaced or forgotten stays in the file until a new one takes its place, which has what
//! is kept and nothing else. So a write costs one append and one sync, and the file is at most about
//! twice as large as it need be.
//!
//! Must not: retry, or know who waits for a write.

use std::{
    collections::HashSet,
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Write as _},
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use tracing::warn;

use super::{
    frames::{self, Frame, HEAD, Unreadable},
    live::{self, Live},
    record::{Change, Kept},
};

/// A file of this size is not worth being replaced.
const SMALL: u64 = 4 << 20;
/// About how large the frames of a new file are.
const FRAME: usize = 1 << 20;

/// The open file.
#[derive(Debug)]
pub(super) struct Store {
    file: File,
    /// How long it is. All of it is on disk.
    size: u64,
    /// How long it was when it had nothing but what is kept.
    size_when_new: u64,
    /// The digests of the routes that it has.
    routes: HashSet<Box<str>>,
    /// The next frame; empty between two writes.
    frame: Frame,
}

/// The file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("another mantyx-bridge uses {0}; give each its own `state_dir`")]
    InUse(PathBuf),
    #[error("{0} was written by a later version of mantyx-bridge; run that, or move the file away")]
    Later(PathBuf),
    #[error("the journal is damaged: {0}")]
    Damaged(String),
    #[error("the journal cannot be written or read: {0}")]
    Failed(#[from] io::Error),
}

/// Keeps others from the file at `path`, as long as it lives.
pub(super) fn lock(path: &Path) -> Result<File, StoreError> {
    // Beside the file, which others take the place of.
    let lock = owners().append(true).create(true).open(path.with_extension("lock"))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(StoreError::InUse(path.to_owned())),
        Err(TryLockError::Error(error)) => Err(error.into()),
    }
}

/// What is kept in the file at `path`; nothing, where there is none.
pub(super) fn read(path: &Path) -> Result<Kept, StoreError> {
    with_live(path, |live, _| live.kept())
}

/// Hands `then` what is kept in the file at `path`, and how many bytes it has of an unfinished write.
fn with_live<T>(path: &Path, then: impl FnOnce(Live<'_>, usize) -> T) -> Result<T, StoreError> {
    let bytes = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        bytes => bytes?,
    };
    if bytes.is_empty() {
        return Ok(then(Live::default(), 0));
    }
    let contents = frames::read(&bytes).map_err(|error| match error {
        Unreadable::Later => StoreError::Later(path.to_owned()),
        Unreadable::Other | Unreadable::Damaged(_) => StoreError::Damaged(error.to_string()),
    })?;
    Ok(then(Live::of(&contents), bytes.len() - contents.end))
}

impl Store {
    /// What is kept in the file at `path`, and the file, if it can be written.
    pub(super) fn open(path: &Path) -> Result<(Kept, Result<Self, StoreError>), StoreError> {
        with_live(path, |live, unfinished| {
            if unfinished > 0 {
                warn!(
                    bytes = unfinished,
                    "the last write to the journal was cut short and is left out; nothing relied \
                     on it"
                );
            }
            (live.kept(), Self::in_place_of(path, live))
        })
    }

    /// Puts a new file in the place of the one at `path`, with what that keeps; without one, an empty
    /// one.
    ///
    /// This is how a file is rid of what is not kept, and what is done after a failed write: then
    /// nobody knows which bytes of the old one are on disk, as what the system shows may be in memory
    /// only (fsync reports a loss once, and then no more).
    pub(super) fn renew(path: &Path) -> Result<Self, StoreError> {
        with_live(path, |live, _| Self::in_place_of(path, live))?
    }

    /// A file at `path` that has `live`, whatever was there before.
    fn in_place_of(path: &Path, live: Live<'_>) -> Result<Self, StoreError> {
        let fresh = path.with_extension("new");
        let placed = Self::write(&fresh, live).and_then(|store| {
            fs::rename(&fresh, path)?;
            if let Some(dir) = path.parent() {
                File::open(dir)?.sync_all()?;
            }
            Ok(store)
        });
        if placed.is_err() {
            // It takes room, which may be what is missing.
            fs::remove_file(&fresh).ok();
        }
        Ok(placed?)
    }

    /// A new file with `live`, on disk.
    fn write(path: &Path, live: Live<'_>) -> io::Result<Self> {
        let live = live.without_unused_routes();
        // Arguments and answers are nobody else's business.
        let mut file = owners().write(true).create(true).truncate(true).open(path)?;
        file.write_all(&HEAD)?;
        live.frames(FRAME, |frame| file.write_all(frame))?;
        file.sync_all()?;
        let size = file.metadata()?.len();
        let routes = live.routes().map(|(digest, _)| digest.into()).collect();
        Ok(Self { file, size, size_when_new: size, routes, frame: Frame::new() })
    }

    /// Writes `changes`, in their order; when it returns, they are on disk. After an error, nobody
    /// knows what the file has.
    pub(super) fn apply<'a>(
        &mut self,
        changes: impl Iterator<Item = &'a Change>,
    ) -> Result<(), StoreError> {
        self.frame.clear();
        for change in changes {
            let routes = &mut self.routes;
            live::add(&mut self.frame, change, |digest| !routes.insert(digest.into()));
        }
        if self.frame.is_empty() {
            return Ok(());
        }
        let bytes = self.frame.bytes();
        self.file.write_all_at(bytes, self.size)?;
        self.file.sync_data()?;
        self.size += bytes.len() as u64;
        Ok(())
    }

    /// The size of the file, in bytes.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Whether about half of it or more is not kept any more, and it is worth a new one.
    pub(super) fn is_wasteful(&self) -> bool {
        self.size > SMALL.max(self.size_when_new * 2)
    }
}

/// For files that are for their owner alone.
fn owners() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}
