//! The recent events of one run, as its apps read them: frames in order, a bounded number of bytes,
//! any number of readers at their own pace.
//!
//! Must not: wait for a reader. A reader that falls behind the kept events must resume by `seq`.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::limits::counted::{Count, Counted};

/// The most bytes that are kept of one run: how far an app may lag behind before it must resume.
const KEEP_BYTES: usize = 1 << 20;
/// This limit while the logs of all runs take more than [`ROOM`] bytes.
const KEEP_WHERE_SCARCE: usize = READ_BYTES;
/// If the logs of all runs take more bytes than this together, each keeps less.
const ROOM: usize = 64 << 20;
/// The most bytes that one read hands out; a single larger frame is handed out whole.
const READ_BYTES: usize = 64 << 10;
/// The bytes that an entry takes in addition to its frame.
const OVERHEAD: usize = 64;

/// The bytes that the logs of all runs take.
#[derive(Debug, Clone, Default)]
pub struct Room(Count);

impl Room {
    /// Whether logs should keep less than they may.
    pub fn is_scarce(&self) -> bool {
        self.0.get() > ROOM
    }
}

/// The log of one run.
#[derive(Debug)]
pub struct EventLog {
    inner: Mutex<Inner>,
    wake: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Inner {
    entries: VecDeque<LogEntry>,
    /// The bytes that the entries take, as a part of the [`Room`].
    bytes: Counted,
    /// The position of the first entry.
    first: u64,
    /// The highest `seq` that has been dropped; 0 when nothing was.
    dropped: u64,
    /// The position behind the last dropped entry that had no `seq`; 0 when there was none. A
    /// reader that has not come so far cannot tell which events it misses.
    dropped_unnumbered: u64,
    /// The position behind the last entry that was too large to be kept, and has a `seq`.
    too_large: u64,
    ended: bool,
    /// The last event of the run is too large to be kept; MANTYX has it.
    last_is_elsewhere: bool,
}

#[derive(Debug)]
struct LogEntry {
    seq: Option<u64>,
    bytes: Bytes,
}

/// Where a reader stands.
#[derive(Debug, Clone, Copy)]
pub struct Cursor {
    position: u64,
    /// The highest `seq` that the reader has.
    pub seq: u64,
}

/// What a read gave.
#[derive(Debug, PartialEq, Eq)]
pub enum Read {
    Frames(Bytes),
    /// Nothing yet.
    Pending,
    /// The next event has been dropped.
    Behind,
    /// The run has ended and everything has been read.
    End,
    /// The next event is too large to be kept: only MANTYX has it.
    Elsewhere,
}

impl EventLog {
    pub fn new(room: &Room) -> Self {
        let inner = Inner { bytes: room.0.nothing(), ..Inner::default() };
        Self { inner: Mutex::new(inner), wake: watch::Sender::new(()) }
    }

    /// The log of a run whose events up to `last_seq` an earlier process has read.
    pub fn behind(room: &Room, last_seq: u64) -> Self {
        let this = Self::new(room);
        this.inner.lock().dropped = last_seq;
        this
    }

    /// The log of a run of which an earlier process has read events without a `seq`.
    pub fn behind_unnumbered(room: &Room) -> Self {
        let this = Self::new(room);
        {
            let mut inner = this.inner.lock();
            (inner.first, inner.dropped_unnumbered) = (1, 1);
        }
        this
    }

    /// Adds a frame, and drops the oldest ones beyond the limit. A frame that is too large is
    /// dropped as well: readers get it from MANTYX.
    pub fn push(&self, seq: Option<u64>, bytes: Bytes) {
        let mut inner = self.inner.lock();
        let entry = LogEntry { seq, bytes };
        let fits = inner.has_room_for(&entry);
        inner.push(entry);
        let max = if inner.is_scarce() { KEEP_WHERE_SCARCE } else { KEEP_BYTES };
        while inner.bytes.get() > max && inner.entries.len() > 1 {
            inner.drop_first();
        }
        if !fits {
            inner.drop_first();
            if seq.is_some() {
                inner.too_large = inner.first;
            }
        }
    }

    /// Adds the frame of the run's last event. If it is too large, the frames before it stay.
    pub fn push_last(&self, seq: Option<u64>, bytes: Bytes) {
        let entry = LogEntry { seq, bytes };
        let mut inner = self.inner.lock();
        if inner.has_room_for(&entry) {
            drop(inner);
            self.push(entry.seq, entry.bytes);
        } else {
            inner.last_is_elsewhere = true;
        }
    }

    /// Wakes the readers; called once after many pushes.
    pub fn flush(&self) {
        self.wake.send_replace(());
    }

    /// Marks the log as complete.
    pub fn end(&self) {
        self.inner.lock().ended = true;
        self.flush();
    }

    /// The log does not get the last event of the run: it is too large, or never came. Readers ask
    /// MANTYX for it.
    pub fn leave_last(&self) {
        self.inner.lock().last_is_elsewhere = true;
    }

    /// Whether readers get the last event from MANTYX.
    pub fn has_left_last(&self) -> bool {
        self.inner.lock().last_is_elsewhere
    }

    /// Takes back [`EventLog::end`], as a new driver reads the run.
    pub fn reopen(&self) {
        self.inner.lock().ended = false;
    }

    /// Drops all frames to free their memory; a later reader gets the events from MANTYX.
    pub fn forget(&self) {
        let mut inner = self.inner.lock();
        while !inner.entries.is_empty() {
            inner.drop_first();
        }
        inner.entries = VecDeque::new();
    }

    /// A cursor behind `seq`; `None` if the event after it has been dropped, or may have been.
    pub fn after(&self, seq: u64) -> Option<Cursor> {
        let inner = self.inner.lock();
        if inner.dropped > seq || inner.dropped_unnumbered > 0 {
            return None;
        }
        Some(Cursor { position: inner.first, seq })
    }

    /// What a read at `cursor` would return, without moving it.
    pub fn peek(&self, cursor: &Cursor) -> Read {
        self.read(&mut cursor.clone())
    }

    /// Wakes after the next [`EventLog::flush`].
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.wake.subscribe()
    }

    /// Whether an app reads it.
    pub fn is_read(&self) -> bool {
        self.wake.receiver_count() > 0
    }

    /// The frames behind `cursor`, which moves on.
    pub fn read(&self, cursor: &mut Cursor) -> Read {
        let inner = self.inner.lock();
        if cursor.position < inner.first {
            if inner.dropped > cursor.seq || inner.dropped_unnumbered > cursor.position {
                let mantyx_has_it = inner.too_large > cursor.position
                    && inner.dropped_unnumbered <= cursor.position;
                return if mantyx_has_it { Read::Elsewhere } else { Read::Behind };
            }
            cursor.position = inner.first;
        }
        let mut size = 0;
        let mut picked: Vec<Bytes> = Vec::new();
        let skip = usize::try_from(cursor.position - inner.first).unwrap_or(usize::MAX);
        for entry in inner.entries.iter().skip(skip) {
            if size > 0 && size + entry.bytes.len() > READ_BYTES {
                break;
            }
            cursor.position += 1;
            // A reader that comes from MANTYX's own replay may have this event already.
            if entry.seq.is_none_or(|seq| seq > cursor.seq) {
                cursor.seq = entry.seq.unwrap_or(cursor.seq);
                size += entry.bytes.len();
                picked.push(entry.bytes.clone());
            }
        }
        let at_the_end = match (inner.ended, inner.last_is_elsewhere) {
            (true, true) => Read::Elsewhere,
            (true, false) => Read::End,
            (false, _) => Read::Pending,
        };
        drop(inner);
        match picked.len() {
            0 => at_the_end,
            1 => picked.pop().map_or(Read::Pending, Read::Frames),
            _ => {
                let mut whole = BytesMut::with_capacity(size);
                picked.iter().for_each(|bytes| whole.extend_from_slice(bytes));
                Read::Frames(whole.freeze())
            }
        }
    }
}

impl LogEntry {
    fn size(&self) -> usize {
        self.bytes.len() + OVERHEAD
    }
}

impl Inner {
    /// Whether there is room for `entry` alone. An entry without a `seq` is kept even if it is
    /// larger than others may be, as a reader cannot ask MANTYX for it by number.
    fn has_room_for(&self, entry: &LogEntry) -> bool {
        entry.size() <= KEEP_WHERE_SCARCE
            || !self.is_scarce() && (entry.size() <= KEEP_BYTES || entry.seq.is_none())
    }

    fn is_scarce(&self) -> bool {
        self.bytes.sum() > ROOM
    }

    fn push(&mut self, entry: LogEntry) {
        self.bytes.set(self.bytes.get() + entry.size());
        self.entries.push_back(entry);
    }

    /// Drops the first entry, and notes what readers must know of the gap. Without the note, a
    /// reader that had not come so far would read on behind the gap, and miss events without a
    /// sign.
    fn drop_first(&mut self) {
        if let Some(entry) = self.entries.pop_front() {
            self.bytes.set(self.bytes.get() - entry.size());
            self.first += 1;
            match entry.seq {
                Some(seq) => self.dropped = self.dropped.max(seq),
                None => self.dropped_unnumbered = self.first,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    //! Readers at their own pace, and what happens to one that is too slow.

    use super::*;

    fn push(log: &EventLog, seqs: std::ops::RangeInclusive<u64>, size: usize) {
        for seq in seqs {
            log.push(Some(seq), Bytes::from(vec![b'x'; size]));
        }
    }

    fn read_all(log: &EventLog, cursor: &mut Cursor) -> usize {
        let mut bytes = 0;
        while let Read::Frames(frames) = log.read(cursor) {
            assert!(frames.len() <= READ_BYTES);
            bytes += frames.len();
        }
        bytes
    }

    #[test]
    fn a_reader_gets_what_is_behind_its_seq() {
        let log = EventLog::new(&Room::default());
        push(&log, 1..=5, 10);
        let mut cursor = log.after(3).unwrap();
        assert_eq!(read_all(&log, &mut cursor), 20);
        assert_eq!((cursor.seq, log.read(&mut cursor)), (5, Read::Pending));
        log.end();
        assert_eq!(log.read(&mut cursor), Read::End);
    }

    #[test]
    fn a_slow_reader_falls_behind_and_a_fast_one_does_not() {
        let log = EventLog::new(&Room::default());
        let mut slow = log.after(0).unwrap();
        let mut fast = log.after(0).unwrap();
        for seq in 1..=300 {
            push(&log, seq..=seq, 10_000);
            assert_eq!(read_all(&log, &mut fast), 10_000);
        }
        assert_eq!(log.read(&mut slow), Read::Behind);
        assert!(log.after(0).is_none());
        let mut resumed = log.after(250).unwrap();
        assert_eq!(read_all(&log, &mut resumed), 500_000);
    }

    #[test]
    fn log_keeps_less_where_room_is_scarce() {
        let room = Room::default();
        let logs: Vec<EventLog> = (0..66).map(|_| EventLog::new(&room)).collect();
        let kept = |log: &EventLog| log.inner.lock().bytes.get();
        let used = || room.0.get();
        for log in &logs {
            push(log, 1..=110, 10_000);
            assert!(used() <= ROOM + 2 * KEEP_WHERE_SCARCE);
        }
        assert!((KEEP_BYTES - 20_000..=KEEP_BYTES).contains(&kept(&logs[0])), "there was room");
        let last = kept(&logs[65]);
        assert!(last <= 2 * KEEP_WHERE_SCARCE && last > KEEP_WHERE_SCARCE / 2, "{last}");
        assert!(logs[65].after(106).is_some(), "its last events are there");
        assert_eq!(used(), logs.iter().map(kept).sum::<usize>());
        logs[0].forget();
        logs[1].forget();
        push(&logs[65], 111..=220, 10_000);
        assert!(kept(&logs[65]) > KEEP_BYTES - 20_000, "there is room again");
        drop(logs);
        assert_eq!(used(), 0);
    }

    #[test]
    fn an_entry_that_is_too_large_is_not_kept() {
        let room = Room::default();
        let log = EventLog::new(&room);
        let mut fast = log.after(0).unwrap();
        let mut slow = log.after(0).unwrap();
        push(&log, 1..=1, 10);
        assert_eq!(read_all(&log, &mut fast), 10);
        push(&log, 2..=2, 7 << 20);
        assert_eq!(room.0.get(), 0);
        push(&log, 3..=3, 10);
        assert_eq!((log.read(&mut fast), fast.seq), (Read::Elsewhere, 1), "it reads it at MANTYX");
        assert_eq!(log.read(&mut slow), Read::Elsewhere);
        assert!(log.after(1).is_none());
        assert_eq!(read_all(&log, &mut log.after(2).unwrap()), 10, "from there it goes on");
    }

    #[test]
    fn entry_takes_no_more_than_its_log_may_where_room_is_scarce() {
        let room = Room::default();
        let logs: Vec<EventLog> = (0..100).map(|_| EventLog::new(&room)).collect();
        for (at, log) in logs.iter().enumerate() {
            let seq = (at % 2 == 0).then_some(1);
            log.push(seq, Bytes::from(vec![b'x'; 7 << 20]));
        }
        let used = room.0.get();
        assert!(used <= ROOM + (7 << 20), "{used}");
        let kept = logs.iter().filter(|log| log.inner.lock().bytes.get() > 0).count();
        assert_eq!(kept, 10, "those without a number, as long as there is room");
    }

    #[test]
    fn a_last_entry_that_is_too_large_is_elsewhere() {
        let log = EventLog::new(&Room::default());
        push(&log, 1..=2, 10);
        log.push_last(Some(3), Bytes::from(vec![b'x'; 7 << 20]));
        log.end();
        let mut cursor = log.after(0).unwrap();
        assert_eq!(read_all(&log, &mut cursor), 20, "what is before it stays");
        assert_eq!(log.read(&mut cursor), Read::Elsewhere);
    }

    #[test]
    fn a_frame_without_seq_is_read_once() {
        let log = EventLog::new(&Room::default());
        log.push(None, Bytes::from_static(b"a"));
        let mut cursor = log.after(0).unwrap();
        assert_eq!(read_all(&log, &mut cursor), 1);
        assert_eq!(read_all(&log, &mut cursor), 0);
    }

    #[test]
    fn gap_in_a_log_without_numbers_is_not_passed_over() {
        let log = EventLog::new(&Room::default());
        let mut slow = log.after(0).unwrap();
        let mut fast = log.after(0).unwrap();
        for _ in 0..200 {
            log.push(None, Bytes::from(vec![b'x'; 10_000]));
            assert_eq!(read_all(&log, &mut fast), 10_000);
        }
        assert_eq!(log.read(&mut slow), Read::Behind);
        assert!(log.after(0).is_none(), "a new reader has to get them from MANTYX");
        log.end();
        assert_eq!(log.read(&mut fast), Read::End);
    }

    #[test]
    fn last_event_that_is_elsewhere_is_told_to_readers() {
        let log = EventLog::new(&Room::default());
        push(&log, 1..=2, 10);
        log.leave_last();
        let mut cursor = log.after(0).unwrap();
        assert_eq!(read_all(&log, &mut cursor), 20);
        assert_eq!(log.read(&mut cursor), Read::Pending, "it has not ended yet");
        log.end();
        assert_eq!((log.peek(&cursor), log.has_left_last()), (Read::Elsewhere, true));
    }

    #[test]
    fn a_log_that_was_reopened_goes_on() {
        let log = EventLog::new(&Room::default());
        push(&log, 1..=1, 10);
        log.end();
        log.reopen();
        let mut cursor = log.after(1).unwrap();
        assert_eq!(log.read(&mut cursor), Read::Pending);
        push(&log, 2..=2, 10);
        assert_eq!(read_all(&log, &mut cursor), 10);
    }

    #[test]
    fn a_forgotten_log_sends_readers_elsewhere() {
        let log = EventLog::new(&Room::default());
        push(&log, 1..=5, 10);
        log.end();
        log.forget();
        assert!(log.after(4).is_none());
        let mut cursor = log.after(5).unwrap();
        assert_eq!(log.read(&mut cursor), Read::End);
    }
}
