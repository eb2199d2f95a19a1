//! Finds the end of one frame whose bytes are passed on without being stored.
//!
//! Must not: hold bytes back, or parse a frame.

/// Looks for the blank line that ends a frame, wherever its bytes are cut.
#[derive(Debug, Default)]
pub struct BlankLine {
    /// Whether the line that is being read has no byte yet.
    line_empty: bool,
    /// Whether the last byte was a CR, so that an LF that follows belongs to it.
    after_cr: bool,
}

impl BlankLine {
    /// How many of the next bytes belong to the frame, if it ends within them.
    pub fn end_in(&mut self, bytes: &[u8]) -> Option<usize> {
        for (at, byte) in bytes.iter().enumerate() {
            let is_second_half = std::mem::take(&mut self.after_cr) && *byte == b'\n';
            match byte {
                b'\n' if is_second_half => {}
                b'\r' | b'\n' if self.line_empty => {
                    let has_lf = *byte == b'\r' && bytes.get(at + 1) == Some(&b'\n');
                    return Some(at + 1 + usize::from(has_lf));
                }
                b'\r' | b'\n' => (self.line_empty, self.after_cr) = (true, *byte == b'\r'),
                _ => self.line_empty = false,
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    //! However lines end and wherever they are cut.

    use super::*;

    #[test]
    fn a_frame_ends_with_its_blank_line() {
        for (text, end) in [
            ("data: x\n\nmore", Some(9)),
            ("data: x\r\n\r\nmore", Some(11)),
            ("data: x\r\rmore", Some(9)),
            ("data: x\r\n", None),
            ("data: x\r\ndata: y\n", None),
        ] {
            for cut in 0..=text.len() {
                let (first, rest) = text.as_bytes().split_at(cut);
                let mut blank = BlankLine::default();
                let found = blank.end_in(first);
                let found = found.or_else(|| blank.end_in(rest).map(|at| at + cut));
                // Between the two halves of the last CRLF, the frame ends with its first.
                let cut_in_two = text.contains("\r\n\r\n") && cut == 10;
                let expected = if cut_in_two { Some(10) } else { end };
                assert_eq!(found, expected, "{text:?} cut at {cut}");
            }
        }
    }
}
