//! The disk under the journal: it is slow, full or broken at times, and a crash takes what was not
//! synced, or leaves a part of it.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use super::world::State;
use crate::simulated::File;

#[derive(Default)]
pub(super) struct Disk {
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

fn failure(what: &str) -> io::Error {
    io::Error::other(what.to_owned())
}

impl State {
    /// How long the disk takes until the next write.
    pub(super) fn disk_wait(&mut self) -> Duration {
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

    pub(super) fn disk_write(&mut self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        if self.disk_is_dead() {
            return Err(failure("the process is dead"));
        }
        let written = match self.disk_fails() {
            true => self.below(bytes.len() + 1),
            false => bytes.len(),
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
            return Err(failure("the disk is full"));
        }
        Ok(())
    }

    pub(super) fn disk_allocate(&mut self, file: &File, bytes: u64) -> io::Result<()> {
        if self.disk_is_dead() {
            return Err(failure("the process is dead"));
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
    pub(super) fn journal_says(&mut self, line: &str) {
        let now = self.now();
        if line.starts_with("the journal cannot be written") {
            let since = self.disk.down.map_or(now, |(since, _)| since);
            self.disk.down = Some((since, false));
        } else if let (true, Some((_, again))) =
            (line.starts_with("the journal can be written again"), &mut self.disk.down)
        {
            *again = true;
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
