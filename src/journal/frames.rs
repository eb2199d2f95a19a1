//! The bytes of the journal's file: a head, and frames one behind another. A frame is the changes of
//! one write, each of them a key and what is kept under it from now on.
//!
//! Pure: whatever the bytes are, they are read to their end, or it is told where they are wrong.
//!
//! Must not: know what is kept, or touch a file.

use serde::Serialize;

/// What a file of this version begins with.
pub(super) const HEAD: [u8; 8] = *b"mantyxj\x01";
/// The last byte of it is the version.
const MAGIC: &[u8] = b"mantyxj";

/// What stands before the changes of a frame: their length, their checksum, and a checksum of these
/// two. Numbers are little-endian.
const FRAME_HEAD: usize = 12;
/// In place of a value's length: there is nothing under the key any more.
const NOTHING: u32 = u32::MAX;
/// More memory than this is not held on to from one frame to the next.
const LARGE: usize = 256 << 10;
/// What a disk writes or does not write as one.
const SECTOR: usize = 512;

/// A file's changes, in their order.
#[derive(Debug)]
pub(super) struct Contents<'a> {
    payloads: Vec<&'a [u8]>,
    /// Where the last frame ends. What is behind it is what a crash has left of a write that nobody
    /// was told to be done.
    pub(super) end: usize,
}

/// One change as it is read: a key, and what is kept under it; `None` for nothing any more.
pub(super) type Entry<'a> = (&'a [u8], Option<&'a [u8]>);

/// The bytes are no journal that can be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unreadable {
    #[error("it is of a later version")]
    Later,
    #[error("it is no journal")]
    Other,
    #[error("byte {0} and what follows it is not what was written")]
    Damaged(usize),
}

/// Reads a whole file.
///
/// A write that a crash has cut short is left out: it is the last, and ends too soon, or a sector of
/// it was never written and is zeros, which no record has. Anything else that is wrong was right
/// before, and what it said is lost: then nothing of the file can be relied on.
pub(super) fn read(file: &[u8]) -> Result<Contents<'_>, Unreadable> {
    match file.split_at_checked(HEAD.len()) {
        Some((head, _)) if head == HEAD => (),
        Some((head, _)) if head.strip_prefix(MAGIC).is_some_and(|version| *version > HEAD[7..]) => {
            return Err(Unreadable::Later);
        }
        _ => return Err(Unreadable::Other),
    }
    let mut contents = Contents { payloads: Vec::new(), end: HEAD.len() };
    while contents.end < file.len() {
        let at = contents.end;
        match frame(file, at) {
            Found::Whole(payload) => {
                contents.payloads.push(payload);
                contents.end = at + FRAME_HEAD + payload.len();
            }
            Found::CutShort => break,
            Found::Damaged => return Err(Unreadable::Damaged(at)),
        }
    }
    Ok(contents)
}

enum Found<'a> {
    Whole(&'a [u8]),
    CutShort,
    Damaged,
}

/// What is at `at`, which is before the file's end.
fn frame(file: &[u8], at: usize) -> Found<'_> {
    if let Some(payload) = whole(file, at) {
        return Found::Whole(payload);
    }
    let begin = at + FRAME_HEAD;
    match file.get(at..begin).map(|head| parse_head(head).0) {
        None => Found::CutShort,
        Some(None) => cut_short_or_damaged(file, at, begin),
        Some(Some(length)) if length > file.len() - begin => Found::CutShort,
        Some(Some(length)) => cut_short_or_damaged(file, begin, begin + length),
    }
}

/// The changes of the frame at `at`, if there is a whole one.
fn whole(file: &[u8], at: usize) -> Option<&[u8]> {
    let (head, rest) = file.get(at..)?.split_at_checked(FRAME_HEAD)?;
    let (length, sum) = parse_head(head);
    let payload = rest.get(..length?)?;
    (crc32fast::hash(payload) == sum).then_some(payload)
}

/// The length of a frame's changes, unless its head is not what was written, and their checksum.
fn parse_head(head: &[u8]) -> (Option<usize>, u32) {
    let word = |at: usize| head.get(at..at + 4).map_or(0, little);
    let length = usize::try_from(word(0)).ok();
    let is_right = crc32fast::hash(head.get(..8).unwrap_or_default()) == word(8);
    (length.filter(|_| is_right), word(4))
}

/// Whether what is wrong from `from` to `to` is a sector of the last write, which never reached the
/// disk.
fn cut_short_or_damaged(file: &[u8], from: usize, to: usize) -> Found<'_> {
    let is_blank = |begin: usize| {
        let part = file.get(begin.max(from)..(begin + SECTOR).min(to)).unwrap_or_default();
        !part.is_empty() && part.iter().all(|byte| *byte == 0)
    };
    let first = from - from % SECTOR;
    // A record has no zeros, and so nothing in it looks like the head of a frame.
    let is_last = || !(from + 1..file.len()).any(|at| whole(file, at).is_some());
    match (first..to).step_by(SECTOR).any(is_blank) && is_last() {
        true => Found::CutShort,
        false => Found::Damaged,
    }
}

impl<'a> Contents<'a> {
    /// All changes. What is no change is the end of its frame: its checksum was right, so that
    /// nobody has written it.
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry<'a>> {
        self.payloads.iter().flat_map(|payload| {
            let mut rest = *payload;
            std::iter::from_fn(move || {
                let (entry, more) = entry(rest)?;
                rest = more;
                Some(entry)
            })
        })
    }
}

/// The first change of `bytes`, and what follows it.
fn entry(bytes: &[u8]) -> Option<(Entry<'_>, &[u8])> {
    let (key_length, rest) = bytes.split_first_chunk::<4>()?;
    let (value_length, rest) = rest.split_first_chunk::<4>()?;
    let (key, rest) = rest.split_at_checked(usize::try_from(little(key_length)).ok()?)?;
    match little(value_length) {
        NOTHING => Some(((key, None), rest)),
        length => {
            let (value, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
            Some(((key, Some(value)), rest))
        }
    }
}

/// A frame that is being put together.
#[derive(Debug)]
pub(super) struct Frame(Vec<u8>);

impl Frame {
    pub(super) fn new() -> Self {
        Self(vec![0; FRAME_HEAD])
    }

    /// One with these bytes as its changes, whatever they are.
    #[cfg(fuzzing)]
    pub(super) fn of(payload: &[u8]) -> Self {
        Self([&[0; FRAME_HEAD], payload].concat())
    }

    /// Has `value` kept under `key`, both as JSON.
    pub(super) fn put(&mut self, key: &impl Serialize, value: &impl Serialize) {
        self.entry(|bytes| json(bytes, key), |bytes| json(bytes, value));
    }

    /// Has `value` kept as it is.
    pub(super) fn put_bytes(&mut self, key: &impl Serialize, value: &[u8]) {
        self.entry(|bytes| json(bytes, key), |bytes| bytes.extend_from_slice(value));
    }

    /// The same, where the key was read from a frame.
    pub(super) fn put_read(&mut self, key: &[u8], value: &[u8]) {
        self.entry(|bytes| bytes.extend_from_slice(key), |bytes| bytes.extend_from_slice(value));
    }

    /// Has nothing kept under `key` any more.
    pub(super) fn remove(&mut self, key: &impl Serialize) {
        let at = self.entry(|bytes| json(bytes, key), |_| ());
        self.fill(at, NOTHING);
    }

    /// Where the length of the value stands.
    fn entry(&mut self, key: impl FnOnce(&mut Vec<u8>), value: impl FnOnce(&mut Vec<u8>)) -> usize {
        let at = self.0.len();
        self.0.extend_from_slice(&[0; 8]);
        key(&mut self.0);
        self.fill(at, length(self.0.len() - at - 8));
        let begin = self.0.len();
        value(&mut self.0);
        self.fill(at + 4, length(self.0.len() - begin));
        at + 4
    }

    fn fill(&mut self, at: usize, word: u32) {
        if let Some(place) = self.0.get_mut(at..at + 4) {
            place.copy_from_slice(&word.to_le_bytes());
        }
    }

    /// How many bytes it has.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.len() == FRAME_HEAD
    }

    /// The bytes that are appended to the file.
    pub(super) fn bytes(&mut self) -> &[u8] {
        let payload = self.0.get(FRAME_HEAD..).unwrap_or_default();
        let (size, sum) = (length(payload.len()), crc32fast::hash(payload));
        self.fill(0, size);
        self.fill(4, sum);
        let head = crc32fast::hash(self.0.get(..8).unwrap_or_default());
        self.fill(8, head);
        &self.0
    }

    /// Begins anew, in the same memory, unless that is large.
    pub(super) fn clear(&mut self) {
        self.0.truncate(FRAME_HEAD);
        self.0.shrink_to(LARGE);
    }
}

fn json(bytes: &mut Vec<u8>, value: &impl Serialize) {
    serde_json::to_writer(bytes, value).expect("strings, numbers and JSON can be written");
}

fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("what is written at once is far below 4 GiB")
}

fn little(bytes: impl AsRef<[u8]>) -> u32 {
    bytes.as_ref().try_into().map_or(0, u32::from_le_bytes)
}

#[cfg(test)]
mod tests;
