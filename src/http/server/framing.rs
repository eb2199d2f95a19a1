//! Checks the framing of the requests on one connection before hyper reads them. It refuses every
//! head that two readers could take for requests of different lengths.
//!
//! Where a request has two lengths, or lines that end in a bare line feed, RFC 9112 lets a server
//! choose one reading, and hyper does. A proxy in front may choose the other, and would then let a
//! request through that it has not seen (request smuggling).
//!
//! The gate checks every request, pipelined ones too, wherever reads cut them: it counts the bytes
//! of bodies, so that it knows where the next head begins. Only hyper finds the end of a chunked
//! body; such a request is the last of its connection. The gate holds a head back until the head is
//! whole. In the place of a refused head, hyper reads [`SUBSTITUTE`], so that the refusal is
//! answered in its turn.
//!
//! Must not: change a request that passes, or do IO.

use memchr::memchr_iter;

/// The request that hyper reads in the place of a refused head.
const SUBSTITUTE: &[u8] = b"GET / HTTP/1.1\r\n\r\n";

/// The most bytes of a head; hyper refuses longer ones.
const MAX: usize = super::connection::HEAD_BYTES;

/// The framing of one connection's requests, as far as they have arrived.
#[derive(Debug, Default)]
pub(super) struct Gate {
    at: At,
    /// The beginning of an incomplete head.
    held: Vec<u8>,
    /// Bytes that may be read, beside those that [`Gate::push`] lets pass in place.
    ready: Vec<u8>,
    /// The number of heads that passed.
    heads: u64,
    /// The number of requests that hyper has begun to serve.
    served: u64,
    /// The first request from which on all are refused.
    refused: Option<u64>,
}

/// The part of a request that the next byte belongs to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum At {
    #[default]
    Head,
    /// In a body, with this many bytes still to come.
    Body(u64),
    /// In a chunked body, or behind a head that is too long: every request behind it is refused.
    Last,
    /// Behind a refused head: no more bytes pass.
    Closed,
}

impl At {
    /// Behind a head, or in a body with this many bytes still to come.
    fn body(left: u64) -> Self {
        if left == 0 { Self::Head } else { Self::Body(left) }
    }
}

impl Gate {
    /// Takes the next bytes of the connection. The first ones of them, as many as the result says,
    /// may be read in place; [`Gate::read`] returns the rest that may be read.
    pub(super) fn push(&mut self, new: &[u8]) -> usize {
        // Bytes that were held back come before all new ones.
        let mut in_place = self.held.is_empty() && self.ready.is_empty();
        let mut passed = 0;
        let mut rest = new;
        while !rest.is_empty() {
            let length = match self.at {
                At::Closed => break,
                At::Head if self.held.is_empty() => match head_end(rest, 0) {
                    Some(end) => {
                        let (head, _) = rest.split_at(end);
                        if !self.admit(head) {
                            in_place = false;
                            self.refuse();
                        }
                        end
                    }
                    None => {
                        self.held.extend_from_slice(rest);
                        break;
                    }
                },
                At::Head => {
                    let old_length = self.held.len();
                    self.held.extend_from_slice(rest);
                    // The end of the head may lie across the old and the new bytes.
                    let Some(end) = head_end(&self.held, old_length.saturating_sub(3)) else {
                        break;
                    };
                    let mut head = std::mem::take(&mut self.held);
                    head.truncate(end);
                    if self.admit(&head) {
                        self.ready.append(&mut head);
                    } else {
                        self.refuse();
                    }
                    rest = rest.get(end.saturating_sub(old_length)..).unwrap_or_default();
                    continue;
                }
                _ => self.body(rest),
            };
            let (now, later) = rest.split_at(length);
            if in_place {
                passed += length;
            } else if self.at != At::Closed {
                self.ready.extend_from_slice(now);
            }
            rest = later;
        }
        if self.held.len() > MAX {
            self.ready.append(&mut self.held);
            self.end();
        }
        passed
    }

    /// Takes at most `most` of the bytes that may be read.
    pub(super) fn read(&mut self, most: usize) -> Vec<u8> {
        let rest = self.ready.split_off(most.min(self.ready.len()));
        std::mem::replace(&mut self.ready, rest)
    }

    /// No more bytes will pass, now or later.
    pub(super) fn is_closed(&self) -> bool {
        self.at == At::Closed && self.ready.is_empty()
    }

    /// Counts one more request that hyper has found; `false` if it must not be handled, as the gate
    /// has found another one there, or an ambiguous one.
    pub(super) fn next(&mut self) -> bool {
        let this = self.served;
        self.served += 1;
        // Behind the last head, hyper has found a request where the gate has found none.
        this < self.heads && self.refused.is_none_or(|from| this < from)
    }

    /// Reads the framing of `head`, which says what follows it; `false` refuses a head that two
    /// readers could understand in two ways.
    fn admit(&mut self, head: &[u8]) -> bool {
        let mut head = head;
        // Servers skip empty lines before a request (RFC 9112 §2.2).
        while let Some(rest) = head.strip_prefix(b"\r\n") {
            head = rest;
        }
        if head.is_empty() {
            return true;
        }
        match read(head) {
            Some(next) => {
                self.heads += 1;
                self.at = next;
                if next == At::Last {
                    self.end();
                }
                true
            }
            None => {
                self.refused.get_or_insert(self.heads);
                false
            }
        }
    }

    /// Puts the substitute in the place of a refused head, and lets no bytes pass behind it.
    fn refuse(&mut self) {
        self.ready.extend_from_slice(SUBSTITUTE);
        self.heads += 1;
        self.at = At::Closed;
    }

    /// Records that the next head cannot be found: all further requests are refused.
    fn end(&mut self) {
        self.refused.get_or_insert(self.heads);
        self.at = At::Last;
    }

    /// How many of `bytes` belong to the present body.
    fn body(&mut self, bytes: &[u8]) -> usize {
        let At::Body(left) = self.at else { return bytes.len() };
        let length = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        self.at = At::body(left - length as u64);
        length
    }
}

/// The length of the head at the begin of `bytes`, its empty line included. The end is not before
/// `from`.
fn head_end(bytes: &[u8], from: usize) -> Option<usize> {
    let lines = memchr_iter(b'\n', bytes.get(from..)?).map(|at| from + at + 1);
    let mut ends = lines.filter_map(|at| match bytes.get(at..)? {
        [b'\n', ..] => Some(at + 1),
        [b'\r', b'\n', ..] => Some(at + 2),
        _ => None,
    });
    ends.next()
}

/// The part that follows `head`, a request's line and headers; `None` if two readers could find the
/// request's end at two places.
fn read(head: &[u8]) -> Option<At> {
    let mut lines = Vec::with_capacity(16);
    for line in head.split_inclusive(|byte| *byte == b'\n') {
        lines.push(line.strip_suffix(b"\r\n")?);
    }
    let (request, headers) = lines.split_first()?;
    let version = request.split(|byte| *byte == b' ').nth(2).unwrap_or_default();
    let mut length = None;
    let mut chunked = None;
    for header in headers.iter().filter(|header| !header.is_empty()) {
        // Some readers take a folded line for a header of its own.
        if header.starts_with(b" ") || header.starts_with(b"\t") {
            return None;
        }
        let colon = header.iter().position(|byte| *byte == b':').unwrap_or(header.len());
        let (name, value) = header.split_at(colon);
        let name = name.trim_ascii();
        let value = value.get(1..).unwrap_or_default().trim_ascii();
        if name.eq_ignore_ascii_case(b"content-length") {
            let now = sized(value)?;
            if length.replace(now).is_some_and(|before| before != now) {
                return None;
            }
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            let last = value.rsplit(|byte| *byte == b',').next().unwrap_or_default();
            chunked = Some(last.trim_ascii().eq_ignore_ascii_case(b"chunked"));
        }
    }
    match (length, chunked) {
        (None, Some(true)) if version == b"HTTP/1.1" => Some(At::Last),
        (length, None) => Some(At::body(length.unwrap_or_default())),
        (_, Some(_)) => None,
    }
}

/// The value of `Content-Length`, if it is digits alone.
fn sized(value: &[u8]) -> Option<u64> {
    let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(value).ok().filter(|_| digits)?.parse().ok()
}

#[cfg(test)]
mod tests;
