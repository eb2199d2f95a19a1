//! Looks at the head of a request before hyper reads it, for what two readers could take for
//! requests of different lengths: hyper does what RFC 9112 lets a server do, which is to go on with
//! one of two lengths, or with lines that end in a bare line feed. A proxy in front that goes on
//! with the other would let a request through that nobody has seen.
//!
//! Must not: be what a request is read by. It looks at copies.

use http::{Method, Uri};

/// The beginning of a request, as far as it has come.
#[derive(Debug, Default)]
pub(super) struct Head {
    bytes: Vec<u8>,
    whole: bool,
}

/// What the head of a request says of its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    Plain,
    /// Two readers could read it in two ways.
    Ambiguous,
    /// The head was not seen: it came before its turn, behind another request.
    Unseen,
}

/// A longer head is hyper's to refuse.
const MOST: usize = super::connection::HEAD_BYTES;

impl Head {
    /// Takes the next bytes of the connection.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        if self.whole || self.bytes.len() > MOST {
            return;
        }
        // The end may lie across both.
        let looked = self.bytes.len().saturating_sub(3);
        self.bytes.extend_from_slice(bytes);
        let new = self.bytes.get(looked..).unwrap_or_default();
        if let Some(end) = end(new) {
            self.bytes.truncate(looked + end);
            self.whole = true;
        }
    }

    /// What was seen of the request `method` `uri`, which begins with what came. The next one
    /// begins with what comes from now on.
    pub(super) fn take(&mut self, method: &Method, uri: &Uri) -> Framing {
        let Self { bytes, whole } = std::mem::take(self);
        let mut lines = bytes.split(|byte| *byte == b'\n');
        let first = lines.next().unwrap_or_default();
        // Bytes of a body that nobody has read may stand here, too: they decide nothing.
        let mut words = first.split(|byte| *byte == b' ');
        let is_it = words.next() == Some(method.as_str().as_bytes())
            && words.next().is_some_and(|target| target.starts_with(uri.to_string().as_bytes()));
        if !whole || !is_it {
            return Framing::Unseen;
        }
        let (mut length, mut encoding, mut bare) = (false, false, !first.ends_with(b"\r"));
        for line in lines.filter(|line| !line.is_empty()) {
            bare |= !line.ends_with(b"\r");
            let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
            length |= name.eq_ignore_ascii_case(b"content-length");
            encoding |= name.eq_ignore_ascii_case(b"transfer-encoding");
        }
        if bare || (length && encoding) { Framing::Ambiguous } else { Framing::Plain }
    }
}

/// How far the head goes, its empty line included.
fn end(bytes: &[u8]) -> Option<usize> {
    let found = |mark: &[u8]| {
        let at = bytes.windows(mark.len()).position(|window| window == mark);
        at.map(|at| at + mark.len())
    };
    [found(b"\r\n\r\n"), found(b"\n\n")].into_iter().flatten().min()
}

#[cfg(test)]
mod tests {
    //! Which heads are taken for what they are.

    use super::*;

    #[track_caller]
    fn check(pieces: &[&str], expected: Framing) {
        let mut head = Head::default();
        for piece in pieces {
            head.push(piece.as_bytes());
        }
        assert_eq!(head.take(&Method::POST, &Uri::from_static("/v1/runs?x=1")), expected);
        assert!(head.bytes.is_empty() && !head.whole, "the next one begins anew");
    }

    const PLAIN: &str = "POST /v1/runs?x=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n";

    #[test]
    fn one_length_is_plain_however_it_comes() {
        check(&[PLAIN], Framing::Plain);
        for at in 1..PLAIN.len() {
            let (one, two) = PLAIN.split_at(at);
            check(&[one, two, "a\nb\n\nTransfer-Encoding: chunked\r\n"], Framing::Plain);
        }
    }

    #[test]
    fn two_lengths_and_bare_line_feeds_are_ambiguous() {
        let both = PLAIN.replace("Host: a", "transfer-ENCODING: chunked");
        let (one, two) = both.split_at(both.len() - 2);
        check(&[&both], Framing::Ambiguous);
        check(&[one, two], Framing::Ambiguous);
        check(&[&PLAIN.replacen("a\r\n", "a\n", 1)], Framing::Ambiguous);
        check(&[&PLAIN.replace("\r\n", "\n")], Framing::Ambiguous);
        check(&[&PLAIN.replacen("1\r\n", "1\n", 1)], Framing::Ambiguous);
    }

    #[test]
    fn what_is_not_this_request_decides_nothing() {
        check(&["{\n\"a\": 1\n}\n\n"], Framing::Unseen);
        check(&[&format!("x{PLAIN}")], Framing::Unseen);
        check(&["POST /v1/runs?x=1 HTTP/1.1\n"], Framing::Unseen);
    }
}
