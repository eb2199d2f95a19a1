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

proptest! {
    /// Frames are the stream: nothing is lost between them, however it was cut.
    #[test]
    fn frames_put_together_are_the_stream(
        lines in prop::collection::vec("[a-z:é ]{0,6}", 0..24),
        ends in prop::collection::vec(prop::sample::select(vec!["\n", "\r\n"]), 24),
        size in 1usize..9,
    ) {
        let stream: String =
            lines.iter().zip(&ends).flat_map(|(line, end)| [line.as_str(), end]).collect();
        let found = frames(stream.as_bytes().chunks(size).map(<[u8]>::to_vec));
        let together: Vec<u8> = found.iter().flat_map(|frame| frame.raw.to_vec()).collect();
        let whole = stream.as_bytes();
        // A CRLF whose LF came in a later push than the frame's end loses that LF, no more.
        let strip = |bytes: &[u8]| -> Vec<u8> {
            bytes.iter().copied().filter(|byte| *byte != b'\r' && *byte != b'\n').collect()
        };
        prop_assert!(strip(whole).starts_with(&strip(&together)));
        let once = frames([whole.to_vec()]);
        let fields = |frames: &[Frame]| frames.iter().map(Frame::fields).collect::<Vec<_>>();
        prop_assert_eq!(fields(&found), fields(&once));
    }
}
