//! The room on the disk that the journal's next file takes.
//!
//! A journal becomes smaller, and is repaired, by a new file that is renamed over the old one. On a
//! disk that is full, by the journal or by other programs, such a file finds no room: the journal
//! would stay as large as it is, and no call could be made until an operator frees space. So the
//! next file exists before it is needed. Its blocks are allocated, for as many bytes as the live
//! records take, and no change is written that the next file could not take in.
//!
//! Must not: know what is in a file.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate, statvfs};
use rustix::io::Errno;

use super::MAX_SIZE;
use super::store::JournalFile;
use crate::state_dir::open_file;

#[cfg(not(test))]
use std::os::unix::fs::FileExt as _;

/// The room grows by at least this many bytes, so that few writes have to wait for it.
const STEP: u64 = 64 << 10;

/// The next file's room.
#[derive(Debug)]
pub(super) struct Reserve {
    path: PathBuf,
    /// How many bytes are known to be allocated.
    bytes: u64,
}

impl Reserve {
    /// The room of the file that takes the place of the one at `journal`. There is none yet.
    pub(super) fn new(journal: &Path) -> Self {
        Self { path: next_path(journal), bytes: 0 }
    }

    /// Makes room for a file of so many bytes.
    ///
    /// # Errors
    ///
    /// The disk has no room for it. What was allocated before stays.
    pub(super) fn cover(&mut self, bytes: u64) -> io::Result<()> {
        if bytes <= self.bytes {
            return Ok(());
        }
        let file = open(&self.path)?;
        self.bytes = match grow(&file, ample(bytes)) {
            Ok(()) => ample(bytes),
            Err(_) => {
                grow(&file, bytes)?;
                bytes
            }
        };
        Ok(())
    }

    /// Gives back what a file of so many bytes does not need.
    pub(super) fn shrink(&mut self, bytes: u64) -> io::Result<()> {
        let file = open(&self.path)?;
        if file.metadata()?.len() > ample(bytes) {
            file.set_len(ample(bytes))?;
            self.bytes = self.bytes.min(ample(bytes));
        }
        Ok(())
    }
}

/// The room that is reserved for a file of so many bytes.
fn ample(bytes: u64) -> u64 {
    bytes + STEP.max(bytes / 4)
}

/// Allocates the first `bytes` of `file`, or nothing: a part is of no use, and the journal may need
/// it.
fn grow(file: &JournalFile, bytes: u64) -> io::Result<()> {
    let length = file.metadata()?.len();
    allocate(file, bytes).inspect_err(|_| drop(file.set_len(length)))
}

/// The size above which the journal at `journal` forgets ended runs and conversations.
///
/// On a small disk, that has to happen while there is room for the next file. Otherwise the records
/// of runs that ended today would have all new ones refused until tomorrow.
pub(super) fn size_limit(journal: &Path) -> u64 {
    #[cfg(test)]
    if crate::simulated::disk().is_some() {
        return MAX_SIZE as u64;
    }
    let disk = statvfs(journal.parent().unwrap_or(journal));
    size_limit_on(disk.map_or(0, |disk| disk.f_blocks.saturating_mul(disk.f_frsize)))
}

/// [`size_limit`] on a disk of so many bytes; 0 if that is not known.
fn size_limit_on(disk: u64) -> u64 {
    let limit = MAX_SIZE as u64;
    if disk == 0 { limit } else { limit.min(disk / 3) }
}

/// Where the file is written that takes the place of the one at `journal`.
pub(super) fn next_path(journal: &Path) -> PathBuf {
    journal.with_extension("new")
}

/// Opens the file at `path` to write it from its beginning on. It is not truncated, as that would
/// give up its room.
pub(super) fn open(path: &Path) -> io::Result<JournalFile> {
    // Arguments and answers are private: the file is readable for its owner alone.
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    Ok(JournalFile::from(open_file(&mut options, path)?))
}

/// Allocates the first `bytes` of `file`, and makes it as long if it is shorter.
pub(super) fn allocate(file: &JournalFile, bytes: u64) -> io::Result<()> {
    #[cfg(test)]
    if let Some(disk) = crate::simulated::disk() {
        return disk.allocate(file, bytes);
    }
    match fallocate(file.as_fd(), FallocateFlags::empty(), 0, bytes) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => fill(file, bytes),
        allocated => Ok(allocated?),
    }
}

/// [`allocate`] on a file system that cannot: most keep room for what was written once.
fn fill(file: &JournalFile, bytes: u64) -> io::Result<()> {
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
    let mut offset = file.metadata()?.len();
    while offset < bytes {
        let part = ZEROS.len().min(usize::try_from(bytes - offset).unwrap_or(ZEROS.len()));
        file.write_all_at(ZEROS.get(..part).unwrap_or(&ZEROS), offset)?;
        offset += part as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn journal_on_a_small_disk_takes_a_third_of_it() {
        let limit = MAX_SIZE as u64;
        assert_eq!([0, 3 << 20, 1 << 40].map(size_limit_on), [limit, 1 << 20, limit]);
    }
}
