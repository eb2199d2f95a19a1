//! Files of the first version, which the bridge finds after an upgrade: their frames have no mark
//! and no number.
//!
//! Must not: be written any more.

use super::{Contents, Flaw, little};

/// The first bytes of such a file.
pub(super) const HEAD: [u8; 8] = *b"mantyxj\x01";
/// The head of a frame: the length of its changes, their checksum, and a checksum of these two.
const FRAME_HEAD: usize = 12;

/// Reads a whole file, up to the first damaged byte.
pub(super) fn read(file: &[u8]) -> Contents<'_> {
    let mut contents = Contents { end: HEAD.len(), next: 1, ..Contents::default() };
    while contents.end < file.len() {
        let rest = file.get(contents.end..).unwrap_or_default();
        match frame(rest) {
            ParsedFrame::Whole(payload) => {
                contents.payloads.push(payload);
                contents.end += FRAME_HEAD + payload.len();
            }
            ParsedFrame::CutShort => break,
            ParsedFrame::Damaged => {
                contents.flaw = Some(Flaw { at: contents.end, bytes: rest.len(), frames: None });
                contents.end = file.len();
            }
        }
    }
    contents
}

enum ParsedFrame<'a> {
    Whole(&'a [u8]),
    CutShort,
    Damaged,
}

fn frame(bytes: &[u8]) -> ParsedFrame<'_> {
    let Some((head, rest)) = bytes.split_first_chunk::<FRAME_HEAD>() else {
        return ParsedFrame::CutShort;
    };
    if crc32fast::hash(&head[..8]) != little(&head[8..]) {
        return ParsedFrame::Damaged;
    }
    let length = usize::try_from(little(&head[..4])).unwrap_or(usize::MAX);
    match rest.get(..length) {
        None => ParsedFrame::CutShort,
        Some(payload) if crc32fast::hash(payload) == little(&head[4..8]) => {
            ParsedFrame::Whole(payload)
        }
        Some(_) => ParsedFrame::Damaged,
    }
}
