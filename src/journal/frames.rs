//! The bytes of the journal's file: a head, and then one frame after another. A frame has the
//! changes of one write group, each of them a key and the value that is kept under it from now on.
//!
//! Every frame begins with a mark that no record contains, and has a number. So reading continues
//! behind damaged bytes, and the gap in the numbers says how many frames are lost.
//!
//! Pure: any bytes are read to their end.
//!
//! Must not: know what is kept, or touch a file.

use memchr::memmem;

use super::lock::Extent;

/// The first bytes of a file of every version; the next byte is the version.
const MAGIC: &[u8; 7] = b"mantyxj";
const VERSION: u8 = 2;
/// The head of a file: magic and version, the number of the first frame, the least length that the
/// file has had on disk, and a checksum of these. Numbers are little-endian.
pub(super) const HEAD: usize = 28;
const HEAD_SUM: usize = HEAD - 4;

/// The first bytes of a frame. They occur in no UTF-8 text, and a record is text between lengths
/// below 16 MiB: so nothing inside a frame can be mistaken for the beginning of one.
const MARK: [u8; 4] = [0xf5, 0xfa, 0xfb, 0xfe];
/// The head of a frame: the mark, the length of its changes, the frame's number, the time of
/// writing (milliseconds since the epoch), the changes' checksum, and a checksum of all these.
const FRAME_HEAD: usize = 32;
const FRAME_SUM: usize = FRAME_HEAD - 4;
/// Takes the place of a value's length: the key was removed.
const NOTHING: u32 = u32::MAX;
/// The frame's buffer is shrunk to this many bytes between two frames.
const LARGE: usize = 256 << 10;
/// How many frame numbers lie unused between a file and the one that replaces it. If a disk shows a
/// block of the old file in the new one, its number gives it away.
pub(super) const APART: u64 = 1 << 20;

/// The bytes of a frame with nothing but this record.
pub(super) fn record_bytes(key: &[u8], value: &[u8]) -> u64 {
    (FRAME_HEAD + 2 * size_of::<u32>() + key.len() + value.len()) as u64
}

/// The changes of a file, in their order.
#[derive(Debug, Default)]
pub(super) struct Contents<'a> {
    payloads: Vec<&'a [u8]>,
    /// Where the last frame ends. Any bytes behind it are a write that a crash cut short, and that
    /// was not reported to any caller as done.
    pub(super) end: usize,
    /// The number of the file's first frame, as its head says; `None` if that is damaged.
    pub(super) first: Option<u64>,
    /// The number of the next frame.
    next: u64,
    /// The latest time at which a frame was written.
    pub(super) noted: u64,
    /// The damage, if there is any.
    pub(super) flaw: Option<Flaw>,
}

/// The part of a file that differs from what was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Flaw {
    /// The offset of its first byte.
    pub(super) at: usize,
    /// Its length in bytes.
    pub(super) bytes: usize,
    /// How many frames were lost with it; `None` if that is not known.
    pub(super) frames: Option<u64>,
}

/// One change as it is read: a key, and the value that is kept under it; `None` if it was removed.
pub(super) type Entry<'a> = (&'a [u8], Option<&'a [u8]>);

/// What the head of a file says.
enum Head {
    /// It is of this version: the number of the first frame, and the least length.
    This(u64, usize),
    Later,
    Damaged,
}

/// Reads a whole file. `None`: a later version wrote it.
///
/// A write that a crash cut short is left out: it is the last one, and ends too soon. All other
/// wrong bytes were right once, and what they said is lost: that is the flaw. Zeros in place of the
/// last write are a flaw, too: a crash may leave them, but so does a sector that is lost after the
/// write was reported as done.
pub(super) fn read(file: &[u8]) -> Option<Contents<'_>> {
    match head(file) {
        Head::Later => None,
        Head::This(first, least) => Some(Reader::new(file, HEAD, Some(first)).read(least)),
        Head::Damaged => {
            let mut reader = Reader::new(file, 0, None);
            reader.skip();
            Some(reader.read(0))
        }
    }
}

fn head(file: &[u8]) -> Head {
    let head = file.first_chunk::<HEAD>();
    if let Some((first, least)) = head.and_then(parse_file_head) {
        return Head::This(first, least);
    }
    match file.strip_prefix(MAGIC).and_then(<[u8]>::first) {
        Some(version) if *version > VERSION && !head.is_some_and(is_ours_but_for_the_version) => {
            Head::Later
        }
        _ => Head::Damaged,
    }
}

/// Whether the head has the right checksum with this version: it is one of this version whose
/// version byte is damaged. As one of a later version, it would keep the bridge from starting.
fn is_ours_but_for_the_version(head: &[u8; HEAD]) -> bool {
    let mut mended = *head;
    mended[MAGIC.len()] = VERSION;
    parse_file_head(&mended).is_some()
}

fn parse_file_head(head: &[u8; HEAD]) -> Option<(u64, usize)> {
    if !head.starts_with(MAGIC)
        || head[MAGIC.len()] != VERSION
        || crc32fast::hash(&head[..HEAD_SUM]) != little(&head[HEAD_SUM..])
    {
        return None;
    }
    let least = usize::try_from(little_long(&head[16..24])).ok()?;
    Some((little_long(&head[8..16]), least))
}

/// The extent that begins `bytes`, as [`file_head`] wrote it.
pub(super) fn parse_extent(bytes: &[u8]) -> Option<Extent> {
    let (first, size) = parse_file_head(bytes.first_chunk::<HEAD>()?)?;
    Some(Extent { first, size: size as u64 })
}

/// The head of a file whose first frame has the number `first`, and which is on disk up to the byte
/// `least`.
pub(super) fn file_head(first: u64, least: u64) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[..7].copy_from_slice(MAGIC);
    head[7] = VERSION;
    head[8..16].copy_from_slice(&first.to_le_bytes());
    head[16..24].copy_from_slice(&least.to_le_bytes());
    let sum = crc32fast::hash(&head[..HEAD_SUM]);
    head[HEAD_SUM..].copy_from_slice(&sum.to_le_bytes());
    head
}

/// Reads the frames of a file one after the other.
struct Reader<'a> {
    file: &'a [u8],
    at: usize,
    /// The number of the next frame, if it is known.
    next: Option<u64>,
    contents: Contents<'a>,
}

impl<'a> Reader<'a> {
    fn new(file: &'a [u8], at: usize, next: Option<u64>) -> Self {
        Self { file, at, next, contents: Contents { first: next, ..Contents::default() } }
    }

    /// Reads to the end of the file, of which `least` bytes were on disk.
    ///
    /// A frame whose number is too low is no frame of this file: a disk that lost a write may show
    /// a block of an older file there, with a right checksum. An unfinished frame below `least` is
    /// damage, not a write that a crash cut short: its writer was told that the frame is on disk.
    fn read(mut self, least: usize) -> Contents<'a> {
        while self.at < self.file.len() {
            match intact_frame(self.file, self.at) {
                Some(frame) if self.next.is_none_or(|next| frame.number >= next) => {
                    self.take(frame);
                }
                _ if self.at >= least && is_cut_short(&self.file[self.at..]) => break,
                _ => self.skip(),
            }
        }
        if self.file.len() < least {
            self.lose(self.file.len(), least - self.file.len(), None);
        }
        self.contents.end = self.at;
        self.contents.next = self.next.unwrap_or(1);
        self.contents
    }

    fn take(&mut self, frame: IntactFrame<'a>) {
        if let Some(next) = self.next.filter(|next| *next < frame.number) {
            self.lose(self.at, 0, Some(frame.number - next));
        }
        self.contents.payloads.push(frame.payload);
        self.contents.noted = self.contents.noted.max(frame.written_at);
        self.at += FRAME_HEAD + frame.payload.len();
        self.next = Some(frame.number.saturating_add(1));
    }

    /// Goes to the next frame behind damaged bytes, or to the end.
    fn skip(&mut self) {
        let rest = self.file.get(self.at + 1..).unwrap_or_default();
        let mut marks = memmem::find_iter(rest, &MARK).map(|at| self.at + 1 + at);
        let next_frame = marks.find(|at| {
            let frame = intact_frame(self.file, *at);
            frame.is_some_and(|frame| self.next.is_none_or(|next| frame.number >= next))
        });
        // Of frames that are lost in the middle, `take` tells the count by the numbers. Behind the
        // last frame, there is no next number.
        let frames = if next_frame.is_some() && self.next.is_some() { Some(0) } else { None };
        let end = next_frame.unwrap_or(self.file.len());
        self.lose(self.at, end - self.at, frames);
        self.at = end;
    }

    fn lose(&mut self, at: usize, bytes: usize, frames: Option<u64>) {
        let flaw = self.contents.flaw.get_or_insert(Flaw { at, bytes: 0, frames: Some(0) });
        flaw.bytes += bytes;
        flaw.frames = flaw.frames.zip(frames).map(|(before, more)| before + more);
    }
}

/// A frame whose checksums are right.
#[derive(Clone, Copy)]
struct IntactFrame<'a> {
    number: u64,
    written_at: u64,
    payload: &'a [u8],
}

/// The frame at `at`, if all of its bytes are there and right.
fn intact_frame(file: &[u8], at: usize) -> Option<IntactFrame<'_>> {
    let (head, rest) = file.get(at..)?.split_first_chunk::<FRAME_HEAD>()?;
    let payload = rest.get(..parse_head(head)?)?;
    if crc32fast::hash(payload) != little(&head[24..28]) {
        return None;
    }
    let written_at = little_long(&head[16..24]);
    Some(IntactFrame { number: little_long(&head[8..16]), written_at, payload })
}

/// The length of a frame's changes, or `None` if its head is damaged. The head has a checksum of
/// its own, as a wrong length would have intact frames behind it count as damaged.
fn parse_head(head: &[u8; FRAME_HEAD]) -> Option<usize> {
    if !head.starts_with(&MARK) || crc32fast::hash(&head[..FRAME_SUM]) != little(&head[FRAME_SUM..])
    {
        return None;
    }
    usize::try_from(little(&head[4..8])).ok()
}

/// Whether `tail` is the beginning of a longer frame, as a crash leaves it. Nothing relied on such
/// a frame, so it is no damage.
fn is_cut_short(tail: &[u8]) -> bool {
    match tail.split_first_chunk::<FRAME_HEAD>() {
        None => tail.iter().zip(MARK).all(|(byte, mark)| *byte == mark),
        Some((head, rest)) => parse_head(head).is_some_and(|length| length > rest.len()),
    }
}

impl<'a> Contents<'a> {
    /// The number of the first frame in the file that replaces this one.
    pub(super) fn next_first(&self) -> u64 {
        self.next.saturating_add(APART)
    }

    /// All changes. Bytes that are no change end their frame: as its checksum was right, this
    /// bridge has not written them.
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry<'a>> {
        self.payloads.iter().flat_map(|payload| {
            let mut rest = *payload;
            std::iter::from_fn(move || entry(&mut rest))
        })
    }
}

/// Takes the first change of `rest`.
fn entry<'a>(rest: &mut &'a [u8]) -> Option<Entry<'a>> {
    let key_length = little(rest.split_off(..4)?);
    let value_length = little(rest.split_off(..4)?);
    let key = rest.split_off(..usize::try_from(key_length).ok()?)?;
    let value = match value_length {
        NOTHING => None,
        length => Some(rest.split_off(..usize::try_from(length).ok()?)?),
    };
    Some((key, value))
}

/// A frame under construction.
#[derive(Debug)]
pub(super) struct Frame(Vec<u8>);

impl Frame {
    pub(super) fn new() -> Self {
        Self(vec![0; FRAME_HEAD])
    }

    /// A frame with these bytes as its changes, which need not be valid.
    #[cfg(fuzzing)]
    pub(super) fn with_payload(payload: &[u8]) -> Self {
        Self([&[0; FRAME_HEAD], payload].concat())
    }

    /// Keeps `value` under `key` from now on; `None` removes the key.
    pub(super) fn set(&mut self, key: &[u8], value: Option<&[u8]>) {
        for word in [length(key.len()), value.map_or(NOTHING, |value| length(value.len()))] {
            self.0.extend_from_slice(&word.to_le_bytes());
        }
        self.0.extend_from_slice(key);
        self.0.extend_from_slice(value.unwrap_or_default());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.len() == FRAME_HEAD
    }

    /// The bytes to append to the file, as the frame `number` that is written at the time `at`.
    pub(super) fn bytes(&mut self, number: u64, at: u64) -> &[u8] {
        let payload = self.0.get(FRAME_HEAD..).unwrap_or_default();
        let size = length(payload.len());
        let sum = crc32fast::hash(payload);
        if let Some(head) = self.0.first_chunk_mut::<FRAME_HEAD>() {
            head[..4].copy_from_slice(&MARK);
            head[4..8].copy_from_slice(&size.to_le_bytes());
            head[8..16].copy_from_slice(&number.to_le_bytes());
            head[16..24].copy_from_slice(&at.to_le_bytes());
            head[24..28].copy_from_slice(&sum.to_le_bytes());
            let head_sum = crc32fast::hash(&head[..FRAME_SUM]);
            head[FRAME_SUM..].copy_from_slice(&head_sum.to_le_bytes());
        }
        &self.0
    }

    /// Empties the frame and keeps its memory, up to [`LARGE`] bytes.
    pub(super) fn clear(&mut self) {
        self.0.truncate(FRAME_HEAD);
        self.0.shrink_to(LARGE);
    }
}

fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("what is written at once is far below 4 GiB")
}

fn little(bytes: impl AsRef<[u8]>) -> u32 {
    bytes.as_ref().try_into().map_or(0, u32::from_le_bytes)
}

fn little_long(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

#[cfg(test)]
mod tests;
