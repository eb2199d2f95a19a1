//! A file is read as it was written, up to where a crash has cut it; what is wrong otherwise is
//! told, and costs what it was alone.

use proptest::prelude::*;

use super::*;

const SECTOR: usize = 512;
/// The first frame's number in the files of the tests.
const FIRST: u64 = 7;

/// A key of the tests, and what is kept under it; `None` to have nothing kept any more.
type Put = (String, Option<Vec<u8>>);

/// A file, and where each write ends.
fn file_and_ends(writes: &[Vec<Put>]) -> (Vec<u8>, Vec<usize>) {
    let (mut file, mut frame) = (file_head(FIRST, 0).to_vec(), Frame::new());
    let mut ends = Vec::new();
    for (number, write) in (FIRST..).zip(writes) {
        frame.clear();
        for (key, value) in write {
            frame.set(&serde_json::to_vec(key).unwrap(), value.as_deref());
        }
        file.extend_from_slice(frame.bytes(number, 1_000 + number));
        ends.push(file.len());
    }
    (file, ends)
}

fn file(writes: &[Vec<Put>]) -> Vec<u8> {
    file_and_ends(writes).0
}

/// The writes that do not lie between these bytes.
fn beside(writes: &[Vec<Put>], hit: std::ops::Range<usize>) -> Vec<Put> {
    let ends = file_and_ends(writes).1;
    let begins = std::iter::once(HEAD).chain(ends.iter().copied());
    let whole = writes.iter().zip(begins.zip(&ends));
    let whole = whole.filter(|(_, (begin, end))| hit.start >= **end || hit.end <= *begin);
    whole.flat_map(|(write, _)| write.clone()).collect()
}

/// What a file says, one after another.
fn said(contents: &Contents<'_>) -> Vec<Put> {
    let entries = contents.entries();
    let text = |key: &[u8]| serde_json::from_slice(key).unwrap();
    entries.map(|(key, value)| (text(key), value.map(<[u8]>::to_vec))).collect()
}

/// What is written is text.
fn writes() -> impl Strategy<Value = Vec<Vec<Put>>> {
    let value = prop_oneof![
        "[ -~é\n]{0,40}".prop_map(String::into_bytes),
        (1..3_000_usize).prop_map(|length| vec![b'x'; length])
    ];
    let put = (".{0,9}", proptest::option::of(value));
    proptest::collection::vec(proptest::collection::vec(put, 1..5), 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn written_frames_are_read(writes in writes()) {
        let file = file(&writes);
        let contents = read(&file).unwrap();
        prop_assert_eq!((contents.end, contents.flaw), (file.len(), None));
        prop_assert_eq!(said(&contents), writes.concat());
        prop_assert_eq!(contents.noted, 1_000 + FIRST + writes.len() as u64 - 1);
        prop_assert!(contents.next_first() > FIRST + writes.len() as u64);
    }

    /// Every write is there whole or not at all, and none without those before it.
    #[test]
    fn a_file_that_ends_too_soon_says_what_was_whole(writes in writes(), at in any::<prop::sample::Index>()) {
        let (whole, ends) = file_and_ends(&writes);
        let cut = &whole[..HEAD + at.index(whole.len() - HEAD)];
        let contents = read(cut).unwrap();
        let fits = ends.iter().take_while(|end| **end <= cut.len()).count();
        prop_assert_eq!(said(&contents), writes[..fits].concat());
        let end = ends[..fits].last().copied().unwrap_or(HEAD);
        prop_assert_eq!((contents.end, contents.flaw), (end, None));
    }

    /// The same, where it is known to have been longer.
    #[test]
    fn a_file_that_is_shorter_than_it_was_is_damaged(writes in writes(), at in any::<prop::sample::Index>()) {
        let mut whole = file(&writes);
        let least = whole.len();
        whole[..HEAD].copy_from_slice(&file_head(FIRST, least as u64));
        prop_assert_eq!(read(&whole).unwrap().flaw, None);
        whole.truncate(HEAD + at.index(least - HEAD));
        let contents = read(&whole).unwrap();
        let flaw = contents.flaw.unwrap();
        prop_assert_eq!(flaw.frames, None, "nobody can tell");
        prop_assert_eq!(said(&contents), beside(&writes, whole.len()..least));
    }

    /// Wherever a sector is lost: what lies beside it is read, and the loss is told.
    #[test]
    fn frames_beside_a_lost_sector_are_read(
        writes in writes(), lost in any::<prop::sample::Index>(), ahead in 0..2_000_usize
    ) {
        let mut bytes = file(&writes);
        let first = lost.index(bytes.len().div_ceil(SECTOR)) * SECTOR;
        let hit = first..(first + SECTOR).min(bytes.len());
        bytes[hit.clone()].fill(0);
        bytes.resize(bytes.len() + ahead, 0);
        let contents = read(&bytes).unwrap();
        prop_assert!(contents.flaw.is_some());
        prop_assert_eq!(said(&contents), beside(&writes, hit));
    }

    /// No damage is taken for something that was written, or for a crash.
    #[test]
    fn frames_beside_a_wrong_bit_are_read(writes in writes(), at in any::<prop::sample::Index>(), bit in 0..8_u32) {
        let mut bytes = file(&writes);
        let at = at.index(bytes.len());
        bytes[at] ^= 1_u8 << bit;
        let contents = read(&bytes).unwrap();
        prop_assert!(contents.flaw.is_some(), "bit {bit} of byte {at}");
        prop_assert_eq!(said(&contents), beside(&writes, at..at + 1));
    }

    /// The numbers say how much is lost, and a block that was another file's is not taken for one
    /// of this file.
    #[test]
    fn frames_of_another_time_are_not_taken(writes in writes(), at in any::<prop::sample::Index>()) {
        let (whole, ends) = file_and_ends(&writes);
        let number = at.index(writes.len());
        let begin = if number == 0 { HEAD } else { ends[number - 1] };
        let gone = [&whole[..begin], &whole[ends[number]..]].concat();
        let contents = read(&gone).unwrap();
        let is_last = number + 1 == writes.len();
        let expected = (!is_last).then_some(Flaw { at: begin, bytes: 0, frames: Some(1) });
        prop_assert_eq!(contents.flaw, expected);
        // The first frame again, behind the others.
        let old = &whole[HEAD..ends[0]];
        let twice = [whole.as_slice(), old].concat();
        let contents = read(&twice).unwrap();
        prop_assert_eq!(contents.flaw.map(|flaw| flaw.bytes), Some(old.len()));
        prop_assert_eq!(said(&contents), writes.concat());
    }
}

#[test]
fn file_that_is_no_journal_is_told_from_a_later_version() {
    for bytes in ["mantyx", "mantyxj", "mantyxj\0", "SQLite format 3"] {
        let contents = read(bytes.as_bytes()).unwrap();
        let flaw = Flaw { at: 0, bytes: bytes.len(), frames: None };
        assert_eq!(contents.flaw, Some(flaw), "{bytes}");
    }
    assert!(read(b"mantyxj\x03\xff\xff").is_none());
    let mut ours = file_head(1, 0);
    ours[MAGIC.len()] = 3;
    assert!(read(&ours).unwrap().flaw.is_some(), "the version alone is wrong");
    // So is a number below this one.
    let mut first = ours;
    first[MAGIC.len()] = 1;
    assert_eq!(read(&first).unwrap().flaw, read(&ours).unwrap().flaw);
}

#[test]
fn a_large_file_of_marks_is_read_in_no_time() {
    let file = [file_head(1, 0).as_slice(), &MARK.repeat(8 << 20)].concat();
    let contents = read(&file).unwrap();
    assert_eq!(contents.flaw.map(|flaw| flaw.bytes), Some(file.len() - HEAD));
}

#[test]
fn memory_is_given_back_after_a_large_frame() {
    let mut frame = Frame::new();
    frame.set(b"k", Some(&vec![b'x'; 10 * LARGE]));
    frame.clear();
    assert!(frame.is_empty() && frame.0.capacity() <= LARGE);
}

/// A file as the first version wrote it whose files are still read: a head, and a frame that sets
/// one key and removes another.
#[test]
fn bytes_of_an_earlier_version_are_read_and_still_written() {
    #[rustfmt::skip]
    const FILE: [&[u8]; 7] = [
        b"mantyxj\x02\x05\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\xde\x0f\xd4\x73",
        b"\xf5\xfa\xfb\xfe\x26\0\0\0\x05\0\0\0\0\0\0\0",
        b"\0\x68\xe5\xcf\x8b\x01\0\0\x32\xe3\x69\xd0\xcc\x54\x66\x23",
        b"\x0a\0\0\0\x03\0\0\0", b"\"upstream\"\"u\"",
        b"\x09\0\0\0\xff\xff\xff\xff", b"{\"run\":7}",
    ];
    let file = FILE.concat();
    let contents = read(&file).expect("it is of no later version");
    assert_eq!((contents.flaw, contents.end), (None, file.len()));
    assert_eq!((contents.first, contents.noted), (Some(5), 1_700_000_000_000));
    let entries: Vec<_> = contents.entries().collect();
    let expected: [Entry<'_>; 2] = [(b"\"upstream\"", Some(b"\"u\"")), (b"{\"run\":7}", None)];
    assert_eq!(entries, expected);
    let mut frame = Frame::new();
    expected.into_iter().for_each(|(key, value)| frame.set(key, value));
    let written = [file_head(5, 0).as_slice(), frame.bytes(5, 1_700_000_000_000)].concat();
    assert_eq!(written, file);
}
