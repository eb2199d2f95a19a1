//! The disk under the journal: it is slow, full or broken at times, and a crash takes what was not
//! synced, or leaves a part of it. Some disks are so small that the journal fills them, and on some
//! another program removes or truncates the journal.

use std::collections::BTreeMap;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use super::tape::LogEvent;
use super::world::State;
use crate::simulated::File;

/// The bytes of a small disk: less than what most lives write.
const SMALL: u64 = 256 << 10;
/// About the most bytes of live records at the end, answers to requests with a key apart.
const LIVE_AT_END: u64 = 48 << 10;

#[derive(Default)]
pub(super) struct Disk {
    /// The most bytes of all files.
    capacity: Option<u64>,
    /// Another program may displace the journal.
    is_shared: bool,
    displaced: Option<Displaced>,
    /// What was written to each file since its last sync.
    unsynced: BTreeMap<u64, (Arc<fs::File>, Vec<Written>)>,
    /// How many of the next writes and syncs fail.
    failing: usize,
    /// When it failed last.
    pub(super) failed: Option<Duration>,
    /// Since when the journal has not been written, and whether it has said that it can be again.
    down: Option<(Duration, bool)>,
}

/// Where something was written, and how many bytes.
type Written = (u64, u64);

/// A journal that another program has removed or truncated.
struct Displaced {
    inode: u64,
    /// What it had.
    bytes: Vec<u8>,
}

fn failure(what: &str) -> io::Error {
    io::Error::other(what.to_owned())
}

impl Disk {
    /// The disk of a seed. Half of the seeds have one that is large enough, and theirs alone.
    pub(super) fn new(seed: u64) -> Self {
        let capacity = if seed % 4 == 3 { Some(SMALL) } else { None };
        Self { capacity, is_shared: seed % 4 == 2, ..Self::default() }
    }
}

impl State {
    fn journal_path(&self) -> PathBuf {
        self.rules.dir.join("state").join("journal")
    }

    /// How long the disk takes until the next write.
    pub(super) fn disk_wait(&mut self) -> Duration {
        if self.disk.is_shared && self.fault(15) {
            self.displace();
        }
        if self.fault(10) {
            let wait = Duration::from_millis(self.below(20_000) as u64);
            self.step(format!("disk: stalls for {wait:?}"));
            return wait;
        }
        self.wait(Duration::from_millis(10))
    }

    fn disk_fails(&mut self) -> bool {
        if self.disk.failing == 0 && self.fault(6) {
            self.disk.failing = 1 + self.below(6);
        }
        if self.calm {
            self.disk.failing = 0;
        }
        let fails = self.disk.failing > 0;
        self.disk.failing = self.disk.failing.saturating_sub(1);
        if fails {
            self.disk.failed = Some(self.now());
        }
        fails
    }

    /// Another program removes or truncates the journal.
    fn displace(&mut self) {
        let path = self.journal_path();
        // One at a time, so that what it had is known.
        self.note_replaced();
        let Ok(bytes) = fs::read(&path) else { return };
        if self.disk.displaced.is_some() {
            return;
        }
        let file = fs::OpenOptions::new().write(true).open(&path).expect("it can be read");
        let inode = file.metadata().expect("it is open").ino();
        if self.chance(500) {
            fs::remove_file(&path).expect("it is there");
            self.step("disk: another program removes the journal");
        } else {
            let length = self.below(bytes.len() + 1) as u64;
            file.set_len(length).expect("it can be written");
            self.step(format!("disk: another program truncates the journal to {length} bytes"));
        }
        self.disk.displaced = Some(Displaced { inode, bytes });
    }

    /// Forgets a displaced journal in whose place there is a new one.
    fn note_replaced(&mut self) {
        let inode = fs::metadata(self.journal_path()).map(|facts| facts.ino()).ok();
        self.disk.displaced.take_if(|displaced| inode.is_some_and(|now| now != displaced.inode));
    }

    /// The process has ended. If it has not noticed what another program did to the journal, the
    /// operator puts back what that had: otherwise requests with a key would be new ones.
    pub(super) fn put_journal_back(&mut self) {
        self.note_replaced();
        if let Some(Displaced { bytes, .. }) = self.disk.displaced.take() {
            fs::write(self.journal_path(), bytes).expect("memory has room");
            self.step("disk: the operator puts the journal back");
        }
    }

    /// How many bytes `file` can have, if it is to have `bytes`.
    fn disk_room(&self, file: &File, bytes: u64) -> io::Result<u64> {
        let length = file.metadata()?.len();
        let (Some(capacity), true) = (self.disk.capacity, bytes > length) else { return Ok(bytes) };
        let files = ["journal", "journal.new"].map(|name| self.journal_path().with_file_name(name));
        let used: u64 = files.iter().filter_map(|path| Some(fs::metadata(path).ok()?.len())).sum();
        Ok(bytes.min(length + capacity.saturating_sub(used)))
    }

    fn disk_is_full(&mut self) -> io::Error {
        self.disk.failed = Some(self.now());
        io::ErrorKind::StorageFull.into()
    }

    /// The law of small disks: at the end, when few records are live, the journal can be written.
    /// Answers to requests with a key, which take `kept` bytes, stay for a day.
    pub(super) fn check_disk(&mut self, kept: u64) {
        let needed = 2 * (LIVE_AT_END + kept) + (64 << 10);
        let is_roomy = self.disk.capacity.is_none_or(|capacity| needed <= capacity);
        if let (true, Some((since, false))) = (is_roomy, self.disk.down) {
            self.breaks(format!("the journal cannot be written since {since:?}"));
        }
    }

    pub(super) fn disk_write(&mut self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        if self.disk_is_dead() {
            return Err(failure("the process is dead"));
        }
        let end = offset + bytes.len() as u64;
        let room = self.disk_room(file, end)?;
        let written = match self.disk_fails() {
            true => self.below(bytes.len() + 1),
            false => room.saturating_sub(offset) as usize,
        };
        file.inner.write_all_at(&bytes[..written], offset)?;
        let (_, unsynced) = self
            .disk
            .unsynced
            .entry(file.id)
            .or_insert_with(|| (Arc::clone(&file.inner), Vec::new()));
        unsynced.push((offset, written as u64));
        if written < bytes.len() {
            self.step(format!("disk: full after {written} of {} bytes", bytes.len()));
            if room < end {
                return Err(self.disk_is_full());
            }
            return Err(failure("the disk is full"));
        }
        Ok(())
    }

    pub(super) fn disk_allocate(&mut self, file: &File, bytes: u64) -> io::Result<()> {
        if self.disk_is_dead() {
            return Err(failure("the process is dead"));
        }
        if self.disk_room(file, bytes)? < bytes {
            return Err(self.disk_is_full());
        }
        if file.metadata()?.len() < bytes {
            file.inner.set_len(bytes)?;
        }
        Ok(())
    }

    pub(super) fn disk_set_len(&mut self, file: &File, bytes: u64) -> io::Result<()> {
        if self.disk_is_dead() {
            return Err(failure("the process is dead"));
        }
        file.inner.set_len(bytes)
    }

    pub(super) fn disk_sync(&mut self, file: &File) -> io::Result<()> {
        if self.disk_is_dead() {
            return Err(failure("the process is dead"));
        }
        if self.disk_fails() {
            self.step("disk: a sync fails");
            return Err(failure("the disk is broken"));
        }
        self.disk.down.take_if(|(_, again)| *again);
        self.step("disk: synced");
        // If the process has died of this very step, the sync has happened all the same.
        self.disk.unsynced.remove(&file.id);
        self.keep_refusals();
        if self.disk_is_dead() {
            return Err(failure("the process is dead"));
        }
        Ok(())
    }

    /// The journal has said something about the disk.
    pub(super) fn journal_says(&mut self, event: &LogEvent) {
        let now = self.now();
        match (event.name, &mut self.disk.down) {
            ("journal_failed", Some((_, again))) => *again = false,
            ("journal_failed", down @ None) => *down = Some((now, false)),
            ("journal_works_again", Some((_, again))) => *again = true,
            _ => {}
        }
    }

    /// The process has ended. A run that began while the disk failed was in memory alone.
    pub(super) fn forget_unwritten(&mut self) {
        if let Some((since, _)) = self.disk.down.take() {
            self.forget_runs_since(since);
        }
    }

    /// What a crash of the machine does to the files; a crash of the process alone does nothing.
    pub(super) fn disk_after_crash(&mut self) {
        let machine = self.chance(500);
        if machine {
            self.reboot();
        }
        for (file, written) in std::mem::take(&mut self.disk.unsynced).into_values() {
            if !machine {
                continue;
            }
            for (offset, length) in written {
                let kept = self.below(length as usize + 1) as u64;
                let size = file.metadata().map_or(0, |it| it.len());
                // The head of a file is written over; the rest is appended.
                if offset + length == size && offset > 0 {
                    file.set_len(offset + kept).expect("a file can be cut");
                    if kept > 0 && self.chance(300) {
                        let at = offset + self.below(kept as usize) as u64;
                        file.write_all_at(&[0xa5], at).expect("a byte can be written");
                    }
                    self.step(format!("crash: {kept} of {length} unsynced bytes are left"));
                }
            }
        }
    }
}
