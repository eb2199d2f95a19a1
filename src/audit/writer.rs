//! The thread that writes the audit log.
//!
//! Must not: lose its position. A line is in the file completely, or it is written again.

use std::{
    fs::{self, File, OpenOptions},
    io::{
        self,
        ErrorKind::{QuotaExceeded, StorageFull},
        Read as _, Seek as _, SeekFrom, Write as _,
    },
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::PathBuf,
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::Duration,
};

use tracing::{error, info};

use super::{Job, Shared};

/// The interval between attempts while the disk accepts no lines.
const RETRY: Duration = Duration::from_secs(1);
/// The most bytes of one write.
const BATCH: usize = 1 << 20;

pub(super) struct Writer {
    path: PathBuf,
    /// `None` while it cannot be opened.
    file: Option<File>,
    /// Lines that are not in the file, or not completely.
    lines: Vec<u8>,
    /// How many bytes of the first line are in the file.
    begun: usize,
    shared: Arc<Shared>,
}

impl Writer {
    pub(super) fn open(path: PathBuf, shared: Arc<Shared>) -> io::Result<Self> {
        let mut writer = Self { path, file: None, lines: Vec::new(), begun: 0, shared };
        match writer.reopen() {
            // The lines wait, as they do when the disk fills up later.
            Err(full) if matches!(full.kind(), StorageFull | QuotaExceeded) => {
                error!(path = %writer.path.display(), error = %full, "the audit log cannot be created");
                writer.shared.health.lock().error = Some(full.to_string());
            }
            opened => opened?,
        }
        Ok(writer)
    }

    pub(super) fn run(mut self, given: &Receiver<Job>) {
        loop {
            let first = if self.lines.is_empty() {
                given.recv().ok()
            } else {
                match given.recv_timeout(RETRY) {
                    Ok(job) => Some(job),
                    Err(RecvTimeoutError::Timeout) => Some(Job::Line(String::new())),
                    Err(RecvTimeoutError::Disconnected) => None,
                }
            };
            let mut stop = first.is_none();
            let more = std::iter::from_fn(|| given.try_recv().ok());
            for job in first.into_iter().chain(more) {
                match job {
                    Job::Line(line) => self.lines.extend_from_slice(line.as_bytes()),
                    Job::Stop => stop = true,
                }
                if stop || self.lines.len() > BATCH {
                    break;
                }
            }
            self.write();
            if stop {
                let left = self.lines.len() - self.begun;
                self.shared.free(left);
                self.shared.lost(count_lines(&self.lines));
                return;
            }
        }
    }

    /// Writes as much as the disk accepts, and reports the outcome.
    fn write(&mut self) {
        let outcome = self.try_write();
        let mut health = self.shared.health.lock();
        let before = health.error.take();
        match (&outcome, before) {
            (Ok(()), None) => (),
            (Ok(()), Some(_)) => info!("the audit log can be written again"),
            (Err(error), before) => {
                if before.is_none() {
                    let path = self.path.display();
                    error!(%path, %error, "the audit log cannot be written; its lines wait");
                }
                health.error = Some(error.to_string());
            }
        }
    }

    fn try_write(&mut self) -> io::Result<()> {
        if self.has_moved() {
            self.file = None;
        }
        if self.file.is_none() {
            self.reopen()?;
        }
        while self.begun < self.lines.len() {
            let (Some(file), Some(rest)) = (&mut self.file, self.lines.get(self.begun..)) else {
                break;
            };
            match file.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => self.wrote(bytes),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Records that `bytes` more are in the file; complete lines are done.
    fn wrote(&mut self, bytes: usize) {
        self.shared.waiting.fetch_sub(bytes, Ordering::Relaxed);
        self.begun += bytes;
        let end = |bytes: &[u8]| bytes.iter().rposition(|byte| *byte == b'\n').map(|at| at + 1);
        let whole = self.lines.get(..self.begun).and_then(end).unwrap_or(0);
        let lines = count_lines(self.lines.get(..whole).unwrap_or_default());
        self.lines.drain(..whole);
        self.begun -= whole;
        self.shared.health.lock().written += lines;
    }

    /// Whether the path names another file now: the open one was renamed or removed.
    fn has_moved(&self) -> bool {
        let Some(open) = self.file.as_ref().and_then(|file| file.metadata().ok()) else {
            return true;
        };
        let there = fs::metadata(&self.path);
        !there.is_ok_and(|there| (there.dev(), there.ino()) == (open.dev(), open.ino()))
    }

    /// Opens the file that is at the path now, and begins on a new line.
    fn reopen(&mut self) -> io::Result<()> {
        let mut options = OpenOptions::new();
        let file = options.append(true).read(true).create(true).mode(0o600).open(&self.path)?;
        // A line that was begun in another file is written completely in this one.
        self.shared.waiting.fetch_add(self.begun, Ordering::Relaxed);
        self.begun = 0;
        if !ends_whole(&file) {
            self.shared.waiting.fetch_add(1, Ordering::Relaxed);
            self.lines.insert(0, b'\n');
        }
        self.file = Some(file);
        Ok(())
    }
}

/// Whether the file ends with a line end; an earlier process may have been killed within a line.
fn ends_whole(mut file: &File) -> bool {
    let is_file = file.metadata().is_ok_and(|about| about.is_file() && about.len() > 0);
    let mut last = [0];
    let read = || file.seek(SeekFrom::End(-1)).and_then(|_| file.read_exact(&mut last));
    !is_file || { read }().is_err() || last == *b"\n"
}

fn count_lines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}
