//! The thread that writes the audit log.
//!
//! Must not: leave a part of a line in the file. Each write is whole, or is taken back.

use std::fs::{File, OpenOptions};
use std::io;
use std::io::ErrorKind::{QuotaExceeded, StorageFull};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use super::Line;
use super::queue::Shared;

/// The interval between attempts while the disk accepts no lines.
const RETRY: Duration = Duration::from_secs(1);
/// The most bytes of one write.
const BATCH: usize = 1 << 20;

pub(super) struct Writer {
    path: PathBuf,
    /// Lines that are not in the file.
    lines: Vec<u8>,
    shared: Arc<Shared>,
}

impl Writer {
    pub(super) fn open(path: PathBuf, shared: Arc<Shared>) -> io::Result<Self> {
        match open(&path) {
            // The lines wait, as they do when the disk fills up later.
            Err(full) if matches!(full.kind(), StorageFull | QuotaExceeded) => {
                shared.attempted(Err(format!("{} cannot be created: {full}", path.display())));
            }
            opened => drop(opened?),
        }
        Ok(Self { path, lines: Vec::new(), shared })
    }

    pub(super) fn run(mut self, given: &Receiver<Arc<Line>>) {
        loop {
            let wait = if self.lines.is_empty() { Duration::MAX } else { RETRY };
            let first = given.recv_timeout(wait);
            let stop = matches!(first, Err(RecvTimeoutError::Disconnected));
            let more = std::iter::from_fn(|| given.try_recv().ok());
            for line in first.into_iter().chain(more) {
                self.lines.extend_from_slice(line.text.as_bytes());
                self.lines.push(b'\n');
                if self.lines.len() > BATCH {
                    break;
                }
            }
            self.write();
            if stop {
                self.shared.lost(count_lines(&self.lines));
                return;
            }
        }
    }

    /// Writes the lines, and reports the outcome.
    fn write(&mut self) {
        let outcome = self.try_write();
        self.shared.attempted(outcome.map_err(|error| format!("{}: {error}", self.path.display())));
    }

    /// Opens the file again, as the one before may have been renamed or removed. Returns how many
    /// lines were written.
    fn try_write(&mut self) -> io::Result<u64> {
        let mut file = open(&self.path)?;
        let before = file.metadata()?.len();
        let start: &[u8] = if ends_whole(&file) { b"" } else { b"\n" };
        if let Err(error) = file.write_all(start).and_then(|()| file.write_all(&self.lines)) {
            // A pipe takes nothing back.
            let _taken_back = file.set_len(before).is_ok();
            return Err(error);
        }
        let written = count_lines(&self.lines);
        self.shared.free(usize::try_from(written).unwrap_or_default(), self.lines.len());
        self.lines.clear();
        Ok(written)
    }
}

/// Opens the file that is at the path now.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).read(true).create(true).mode(0o600).open(path)
}

/// Whether the file ends with a line end; an earlier process may have been killed within a line.
fn ends_whole(mut file: &File) -> bool {
    if !file.metadata().is_ok_and(|about| about.is_file() && about.len() > 0) {
        return true;
    }
    let mut last = [0];
    match file.seek(SeekFrom::End(-1)).and_then(|_| file.read_exact(&mut last)) {
        Ok(()) => last == *b"\n",
        Err(_) => true,
    }
}

fn count_lines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}
