//! Framing: any cut of the bytes gives the same frames, and frames keep every byte.

use proptest::prelude::*;

use super::*;

fn frames(chunks: impl IntoIterator<Item = Vec<u8>>) -> Vec<Frame> {
    let mut framer = Framer::new(1 << 20);
    let mut frames = Vec::new();
    for chunk in chunks {
        framer.push(&chunk);
        while let Some(frame) = framer.next_frame().unwrap() {
            frames.push(frame);
        }
    }
    frames
}

#[track_caller]
fn check(stream: &str, expected: &[(Option<&str>, Option<&str>, Option<&str>)]) {
    let owned = |text: Option<&str>| text.map(str::to_owned);
    let expected: Vec<Fields> = expected
        .iter()
        .map(|(id, event, data)| Fields {
            id: owned(*id),
            event: owned(*event),
            data: owned(*data),
        })
        .collect();
    for size in 1..=stream.len().max(1) {
        let chunks = stream.as_bytes().chunks(size).map(<[u8]>::to_vec);
        let found: Vec<Fields> = frames(chunks).iter().map(Frame::fields).collect();
        assert_eq!(found, expected, "in chunks of {size} bytes");
    }
}

#[test]
fn lf_crlf_and_cr_end_lines() {
    let expected = [(Some("7"), Some("result"), Some("{}")), (Some("8"), None, Some("x"))];
    check("id: 7\nevent: result\ndata: {}\n\nid: 8\ndata: x\n\n", &expected);
    check("id: 7\r\nevent: result\r\ndata: {}\r\n\r\nid: 8\r\ndata: x\r\n\r\n", &expected);
    check("id: 7\revent: result\rdata: {}\r\rid: 8\rdata: x\r\r", &expected);
}

#[test]
fn data_lines_join_and_one_space_goes() {
    check("data:a\ndata:  b\ndata\n\n", &[(None, None, Some("a\n b\n"))]);
}

#[test]
fn comments_have_no_data_and_a_byte_order_mark_goes() {
    check("\u{feff}: ping\n\ndata: x\n\n", &[(None, None, None), (None, None, Some("x"))]);
    check("\u{feff}\ndata: x\n\n", &[(None, None, None), (None, None, Some("x"))]);
}

#[test]
fn an_unfinished_frame_is_no_frame() {
    check("data: x\n", &[]);
}

#[test]
fn the_limit_is_an_error_and_not_a_hang() {
    let mut framer = Framer::new(16);
    framer.push(b"data: 0123456789abcdef");
    assert_eq!(framer.next_frame(), Err(FrameTooLarge { limit: 16 }));
}

#[test]
fn a_frame_that_is_too_large_is_told_once_and_read_past() {
    for end in ["\n\n", "\r\n\r\n", "\r\r"] {
        let stream = format!("data: a{end}data: {}\nid: 2{end}data: b{end}", "x".repeat(100));
        for size in 1..=20 {
            let mut framer = Framer::new(16);
            let mut told = 0;
            let mut read = Vec::new();
            for piece in stream.as_bytes().chunks(size) {
                framer.push(piece);
                loop {
                    match framer.next_frame() {
                        Ok(Some(frame)) => read.extend(frame.fields().data),
                        Ok(None) => break,
                        Err(_) => told += 1,
                    }
                }
            }
            assert_eq!((told, read), (1, vec!["a".to_owned(), "b".to_owned()]), "{size} {end:?}");
        }
    }
}

#[test]
fn write_reads_back() {
    let frame = Frame::write(Some("3"), Some("tool_call"), "{\"a\":\n1}");
    let fields = frame.fields();
    assert_eq!(fields.id.as_deref(), Some("3"));
    assert_eq!(fields.event.as_deref(), Some("tool_call"));
    assert_eq!(fields.data.as_deref(), Some("{\"a\":\n1}"));
}

/// The frames of `pieces`, what is left of them, and both put together.
fn read(pieces: &[&[u8]]) -> (Vec<Fields>, Vec<u8>) {
    let mut framer = Framer::new(1 << 20);
    let (mut fields, mut together) = (Vec::new(), Vec::new());
    for piece in pieces {
        framer.push(piece);
        while let Some(frame) = framer.next_frame().unwrap() {
            fields.push(frame.fields());
            together.extend_from_slice(&frame.raw);
        }
    }
    let last = framer.end();
    fields.extend(last.as_ref().map(Frame::fields));
    together.extend(last.map(|frame| frame.raw.to_vec()).unwrap_or_default());
    together.extend_from_slice(&framer.buffer);
    (fields, together)
}

/// Whole frames, each cut once and into single bytes: the frames have their own ends, wherever the
/// stream was cut.
#[test]
fn a_frame_ends_as_it_was_written_wherever_it_is_cut() {
    for end in ["\n", "\r\n", "\r"] {
        let written = [["id: 1", "data: a", ""], ["id: 2", "data: b", ""]]
            .map(|lines| lines.map(|line| format!("{line}{end}")).concat());
        let stream = written.concat();
        for cut in 0..=stream.len() {
            let (one, two) = stream.as_bytes().split_at(cut);
            let found = frames([one.to_vec(), two.to_vec()]);
            let raw: Vec<&[u8]> = found.iter().map(|frame| frame.raw.as_ref()).collect();
            assert_eq!(raw, written.each_ref().map(String::as_bytes), "{end:?} {cut}");
        }
        let found = frames(stream.bytes().map(|byte| vec![byte]));
        assert_eq!(found.len(), 2, "{end:?}");
        assert!(found.iter().zip(&written).all(|(frame, whole)| frame.raw == whole.as_bytes()));
    }
}

#[test]
fn a_frame_whose_lines_end_in_cr_does_not_wait_for_the_next_one() {
    let mut framer = Framer::new(1 << 20);
    framer.push(b"data: a\r\r");
    assert_eq!(framer.next_frame().unwrap().unwrap().raw, "data: a\r\r");
}

#[test]
fn a_stream_that_ends_before_its_last_lf_has_its_last_frame() {
    let mut framer = Framer::new(1 << 20);
    framer.push(b"data: a\r\n\r");
    assert_eq!(framer.next_frame(), Ok(None));
    assert!(framer.is_inside_frame());
    assert_eq!(framer.end().unwrap().raw, "data: a\r\n\r");
    assert_eq!(framer.end(), None);
    framer.push(b"data: b\r\n");
    assert_eq!((framer.next_frame(), framer.end()), (Ok(None), None));
}

proptest! {
    /// Nothing is lost between frames, and cuts change none of them.
    #[test]
    fn frames_put_together_are_the_stream(
        lines in prop::collection::vec("[a-z:é ]{0,6}", 0..24),
        ends in prop::collection::vec(prop::sample::select(vec!["\n", "\r\n", "\r"]), 24),
        one_end in prop::option::of(0_usize..3),
        size in 1usize..9,
    ) {
        let end = |at: usize| one_end.map_or(ends[at], |one| ["\n", "\r\n", "\r"][one]);
        let stream: String =
            lines.iter().enumerate().flat_map(|(at, line)| [line.as_str(), end(at)]).collect();
        let whole = stream.as_bytes();
        let pieces: Vec<&[u8]> = whole.chunks(size).collect();
        let (fields, together) = read(&pieces);
        prop_assert_eq!(String::from_utf8_lossy(&together), stream.as_str());
        // Blank lines between frames are frames of nothing, more of them or fewer.
        let told = |fields: Vec<Fields>| {
            fields.into_iter().filter(|one| *one != Fields::default()).collect::<Vec<_>>()
        };
        prop_assert_eq!(told(fields), told(read(&[whole]).0));
    }
}
