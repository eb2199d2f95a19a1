//! A file is read as it was written, up to where a crash has cut it; what is wrong otherwise is told.

use proptest::prelude::*;

use super::*;

/// A key of the tests, and what is kept under it; `None` to have nothing kept any more.
type Put = (String, Option<Vec<u8>>);

fn file(writes: &[Vec<Put>]) -> Vec<u8> {
    let (mut file, mut frame) = (HEAD.to_vec(), Frame::new());
    for write in writes {
        frame.clear();
        for (key, value) in write {
            match value {
                Some(value) => frame.put_bytes(key, value),
                None => frame.remove(key),
            }
        }
        file.extend_from_slice(frame.bytes());
    }
    file
}

/// What a file says, one after another.
fn said(contents: &Contents<'_>) -> Vec<Put> {
    let entries = contents.entries();
    let text = |key: &[u8]| serde_json::from_slice(key).unwrap();
    entries.map(|(key, value)| (text(key), value.map(<[u8]>::to_vec))).collect()
}

/// What is written is text, and so has no zeros.
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
    fn what_was_written_is_read(writes in writes()) {
        let file = file(&writes);
        let contents = read(&file).unwrap();
        prop_assert_eq!(contents.end, file.len());
        prop_assert_eq!(said(&contents), writes.concat());
    }

    /// Every write is there whole or not at all, and none without those before it.
    #[test]
    fn a_file_that_ends_too_soon_says_what_was_whole(writes in writes(), at in any::<prop::sample::Index>()) {
        let whole = file(&writes);
        let cut = &whole[..HEAD.len() + at.index(whole.len() - HEAD.len())];
        let contents = read(cut).unwrap();
        let fits = (0..writes.len()).take_while(|n| file(&writes[..=*n]).len() <= cut.len()).count();
        prop_assert_eq!(said(&contents), writes[..fits].concat());
        prop_assert_eq!(contents.end, file(&writes[..fits]).len());
    }

    /// A disk may have written some sectors of the last write, and not others.
    #[test]
    fn sectors_that_were_never_written_are_a_write_that_was_cut_short(
        writes in writes(), lost in any::<prop::sample::Index>(), ahead in 0..2_000_usize
    ) {
        let mut bytes = file(&writes);
        let before = file(&writes[..writes.len() - 1]).len();
        let first = before / SECTOR + lost.index(bytes.len().div_ceil(SECTOR) - before / SECTOR);
        let end = (first * SECTOR + SECTOR).min(bytes.len());
        bytes[(first * SECTOR).max(before)..end].fill(0);
        bytes.resize(bytes.len() + ahead, 0);
        let contents = read(&bytes).unwrap();
        prop_assert_eq!(said(&contents), writes[..writes.len() - 1].concat());
        prop_assert_eq!(contents.end, before);
    }

    /// What is behind it shows that a write was done, so what is zeros now was not before.
    #[test]
    fn sectors_that_are_lost_before_the_last_write_are_told(
        writes in writes(), last in "[a-z]{600}", lost in any::<prop::sample::Index>()
    ) {
        let mut writes = writes;
        let before = file(&writes).len();
        writes.push(vec![("last".to_owned(), Some(last.into()))]);
        let mut bytes = file(&writes);
        let first = lost.index(before.div_ceil(SECTOR));
        bytes[(first * SECTOR).max(HEAD.len())..(first * SECTOR + SECTOR).min(before)].fill(0);
        prop_assert!(matches!(read(&bytes), Err(Unreadable::Damaged(_))));
    }

    /// No damage is taken for something that was written, or for a crash.
    #[test]
    fn a_bit_that_is_wrong_is_told(writes in writes(), at in any::<prop::sample::Index>(), bit in 0..8_u32) {
        let mut bytes = file(&writes);
        let at = at.index(bytes.len());
        bytes[at] ^= 1_u8 << bit;
        prop_assert!(read(&bytes).is_err(), "bit {bit} of byte {at}");
    }
}

#[test]
fn what_is_no_journal_is_told_from_a_later_one() {
    for bytes in ["", "mantyx", "mantyxj", "mantyxj\0", "SQLite format 3"] {
        assert_eq!(read(bytes.as_bytes()).unwrap_err(), Unreadable::Other, "{bytes}");
    }
    assert_eq!(read(b"mantyxj\x02\xff\xff").unwrap_err(), Unreadable::Later);
}

#[test]
fn memory_is_given_back_after_a_large_frame() {
    let mut frame = Frame::new();
    frame.put_bytes(&"k", &vec![b'x'; 10 * LARGE]);
    frame.clear();
    assert!(frame.is_empty() && frame.0.capacity() <= LARGE);
}
