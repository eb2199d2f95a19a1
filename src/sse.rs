//! Cuts a byte stream into frames of server-sent events, and reads their fields. It keeps every
//! byte of a frame as it came (HTML Standard §9.2.6, "Interpreting an event stream").
//!
//! Must not: do IO, reconnect, or know what an event means.

pub mod blank_line;

use std::borrow::Cow;

use bytes::{Bytes, BytesMut};
use memchr::memchr2;

/// One frame: everything up to and including the blank line that ends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    pub raw: Bytes,
}

/// The fields of a frame.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fields {
    pub id: Option<String>,
    pub event: Option<String>,
    /// The `data` lines joined with a newline; `None` if the frame has none (a comment, a
    /// heartbeat).
    pub data: Option<String>,
}

/// A frame grew past the limit before its blank line came. It is reported once; if the stream is
/// read on, the rest of the frame is skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event is larger than {limit} bytes")]
pub struct FrameTooLarge {
    pub limit: usize,
}

/// Cuts pushed bytes into frames, wherever the pushes cut the lines.
#[derive(Debug, Default)]
pub struct Framer {
    buffer: BytesMut,
    /// How far `buffer` has been searched.
    searched: usize,
    /// Whether the line that is being searched has no byte yet.
    line_empty: bool,
    /// Whether the last line ended with a CR, so that an LF that follows belongs to it.
    after_cr: bool,
    /// Whether the last line of the frame ended with CRLF, so that the blank line will, too.
    ends_in_crlf: bool,
    /// Whether the start of the stream is still to come, where a byte order mark may stand.
    at_start: bool,
    /// Whether the rest of a too large frame is being skipped.
    past: bool,
    limit: usize,
}

/// How many bytes of a too large frame are parsed.
const BEGINNING: usize = 64 << 10;
/// A frame larger than this gets memory of its own.
const APART: usize = 64 << 10;

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

impl Framer {
    /// A framer for one stream whose frames have at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { line_empty: true, at_start: true, limit, ..Self::default() }
    }

    /// Takes the next bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next complete frame; `None` until more bytes are pushed.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameTooLarge> {
        if self.at_start {
            if self.buffer.len() < BYTE_ORDER_MARK.len()
                && BYTE_ORDER_MARK.starts_with(&self.buffer)
            {
                // The bytes may be the begin of a byte order mark.
                return Ok(None);
            }
            self.at_start = false;
            if self.buffer.starts_with(BYTE_ORDER_MARK) {
                bytes::Buf::advance(&mut self.buffer, BYTE_ORDER_MARK.len());
            }
        }
        while let Some(&byte) = self.buffer.get(self.searched) {
            if self.after_cr {
                self.after_cr = false;
                if byte == b'\n' {
                    // The second half of a CRLF belongs to the line that the CR ended. If that
                    // frame has already been returned, the LF goes before the next one: no byte is
                    // lost.
                    self.searched += 1;
                    self.ends_in_crlf = true;
                    continue;
                }
            }
            self.searched += 1;
            match byte {
                b'\r' | b'\n' => {
                    self.after_cr = byte == b'\r';
                    if self.line_empty {
                        if self.after_cr {
                            match self.buffer.get(self.searched) {
                                Some(b'\n') => {
                                    self.searched += 1;
                                    self.after_cr = false;
                                }
                                // If lines end in CRLF, an LF will follow. If they end in CR, no
                                // byte may follow until the next event.
                                None if self.ends_in_crlf => {
                                    self.searched -= 1;
                                    self.after_cr = false;
                                    break;
                                }
                                Some(_) | None => (),
                            }
                        }
                        self.ends_in_crlf = false;
                        let raw = self.buffer.split_to(self.searched).freeze();
                        if raw.len() > APART {
                            // Otherwise the next frame would keep the memory of this one alive.
                            self.buffer = BytesMut::from(self.buffer.as_ref());
                        }
                        self.searched = 0;
                        if !self.past {
                            return Ok(Some(Frame { raw }));
                        }
                        self.past = false;
                    }
                    self.line_empty = true;
                    self.ends_in_crlf = false;
                }
                _ => {
                    self.line_empty = false;
                    // To the end of the line, with a search that is faster than byte by byte.
                    let rest = self.buffer.get(self.searched..).unwrap_or_default();
                    self.searched += memchr2(b'\r', b'\n', rest).unwrap_or(rest.len());
                }
            }
        }
        if self.past {
            // Frees its memory. The buffer keeps a CR whose LF may follow.
            self.buffer = BytesMut::from(self.buffer.get(self.searched..).unwrap_or_default());
            self.searched = 0;
        } else if self.buffer.len() > self.limit {
            self.past = true;
            return Err(FrameTooLarge { limit: self.limit });
        }
        Ok(None)
    }

    /// The beginning of a too large frame, right after [`Self::next_frame`] has reported it.
    pub fn beginning(&self) -> Frame {
        let beginning = self.buffer.get(..BEGINNING).unwrap_or(&self.buffer);
        Frame { raw: Bytes::copy_from_slice(beginning) }
    }

    /// All bytes so far of a too large frame, right after [`Self::next_frame`] has reported it.
    pub fn take_rest(&mut self) -> Vec<u8> {
        self.searched = 0;
        Vec::from(std::mem::take(&mut self.buffer))
    }

    /// The stream has ended: returns a frame that only lacks the LF of its last CRLF, if there is
    /// one.
    pub fn end(&mut self) -> Option<Frame> {
        let waits = self.line_empty && self.ends_in_crlf && !self.past;
        let last = self.buffer.len().checked_sub(1)?;
        let whole = waits && self.searched == last && self.buffer.last() == Some(&b'\r');
        whole.then(|| {
            self.searched = 0;
            Frame { raw: self.buffer.split().freeze() }
        })
    }

    /// The bytes of the incomplete frame.
    pub fn unfinished(&self) -> &[u8] {
        &self.buffer
    }

    /// Whether the stream is in the middle of a frame that is being skipped.
    pub fn is_past(&self) -> bool {
        self.past
    }

    /// Whether the pushed bytes end in the middle of a frame.
    pub fn is_inside_frame(&self) -> bool {
        // A lone LF belongs to the previous frame.
        self.past || !matches!(self.buffer.as_ref(), b"" | b"\n")
    }
}

impl Frame {
    /// Reads the fields. Bytes that are not UTF-8 become U+FFFD, as the standard says.
    pub fn fields(&self) -> Fields {
        // Checking valid UTF-8 is far faster than a lossy conversion.
        let text = str::from_utf8(&self.raw)
            .map_or_else(|_| String::from_utf8_lossy(&self.raw), Cow::Borrowed);
        let mut fields = Fields::default();
        for line in lines(&text) {
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match name {
                "id" if !value.contains('\0') => fields.id = Some(value.to_owned()),
                "event" => fields.event = Some(value.to_owned()),
                "data" => match &mut fields.data {
                    Some(data) => {
                        data.push('\n');
                        data.push_str(value);
                    }
                    None => fields.data = Some(value.to_owned()),
                },
                // A comment (empty name), `retry`, or an unknown field.
                _ => (),
            }
        }
        fields
    }

    /// Writes a frame with one `data` line per line of `data`.
    pub fn write(id: Option<&str>, event: Option<&str>, data: &str) -> Self {
        let mut text = String::with_capacity(data.len() + 64);
        if let Some(id) = id {
            text.extend(["id: ", id, "\n"]);
        }
        if let Some(event) = event {
            text.extend(["event: ", event, "\n"]);
        }
        for line in lines(data) {
            text.extend(["data: ", line, "\n"]);
        }
        text.push('\n');
        Self { raw: text.into() }
    }
}

/// The lines of `text`; a CRLF yields one empty line more.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let Some(end) = memchr2(b'\r', b'\n', text.as_bytes()) else { return rest.take() };
        rest = text.get(end + 1..);
        text.get(..end)
    })
}

#[cfg(test)]
mod tests;
