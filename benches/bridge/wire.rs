//! HTTP/1.1 as far as the processes of a measurement need it, with the times of its bytes: when the
//! first and the last byte of a message were there.
//!
//! Must not: be used by what is measured, or allow itself more than a write for a message.

mod client;
mod server;

pub(crate) use client::{Answer, Client, Dechunk};
pub(crate) use server::{Request, Served, chunk, listen, response};

/// Where `needle` begins in `hay`.
fn find(hay: &[u8], needle: &[u8]) -> Option<usize> {
    hay.windows(needle.len()).position(|window| window == needle)
}

/// The value of a header in a head whose lines end with CRLF.
pub(crate) fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}
