//! The bodies of replies. A body counts as soon as its JSON value is whole, and none is waited for
//! that says nothing: some servers and gateways never end theirs.
//!
//! Must not: know what a reply means.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, timeout, timeout_at};

use crate::budget::Buffer;
use crate::http_client::{BodyError, NotRead};

/// The longest error body that is read.
pub(in crate::backend::mcp) const ERROR_LIMIT: usize = 64 * 1024;

/// How long a body may last after all that matters of it has come. If it ends within this time, the
/// connection can be used again.
const END_PATIENCE: Duration = Duration::from_millis(50);

/// How long the body of a refusal may take. Its status says enough without it.
const REFUSAL_PATIENCE: Duration = Duration::from_secs(2);

/// The JSON value in the body of `response`, of at most `limit` bytes, or the whole body if there
/// is no such value. What follows the value is not part of it.
pub(super) async fn value(response: reqwest::Response, limit: usize) -> Result<Bytes, BodyError> {
    let size = response.content_length();
    if size.is_some_and(|size| size > limit as u64) {
        return Err(NotRead::TooLarge { limit, size }.into());
    }
    let mut reading = Reading::new(response, limit);
    while !reading.is_done {
        reading.next().await?;
    }
    Ok(reading.finish().await)
}

/// The body of a refusal as text, as far as it comes in time and within [`ERROR_LIMIT`].
pub(in crate::backend::mcp) async fn refusal(response: reqwest::Response) -> String {
    let mut reading = Reading::new(response, ERROR_LIMIT);
    let end = Instant::now() + REFUSAL_PATIENCE;
    while !reading.is_done {
        match timeout_at(end, reading.next()).await {
            Ok(Ok(())) => (),
            Ok(Err(_)) | Err(_) => break,
        }
    }
    String::from_utf8_lossy(&reading.finish().await).into_owned()
}

/// Reads a body that has nothing to say, so that the connection can be used again. If it does not
/// end soon, it is dropped with its connection.
pub(in crate::backend::mcp) async fn skip(mut response: reqwest::Response) {
    let end = async {
        let mut size = 0;
        while let Ok(Some(chunk)) = response.chunk().await {
            size += chunk.len();
            if size > ERROR_LIMIT {
                return;
            }
        }
    };
    drop(timeout(END_PATIENCE, end).await);
}

/// A body on its way.
struct Reading {
    response: reqwest::Response,
    limit: usize,
    buffer: Buffer,
    brackets: Brackets,
    /// Nothing more is needed.
    is_done: bool,
}

impl Reading {
    fn new(response: reqwest::Response, limit: usize) -> Self {
        let size = response.content_length().and_then(|size| usize::try_from(size).ok());
        let buffer = Buffer::new(size.map_or(0, |size| size.min(limit)));
        Self { response, limit, buffer, brackets: Brackets::default(), is_done: false }
    }

    /// Takes the next piece.
    async fn next(&mut self) -> Result<(), BodyError> {
        let chunk = self.response.chunk().await;
        let chunk = chunk.map_err(|error| BodyError::Broken(error.without_url()))?;
        let Some(chunk) = chunk else {
            self.is_done = true;
            return Ok(());
        };
        let end = self.brackets.end_in(&chunk);
        self.is_done = end.is_some();
        let piece = chunk.get(..end.unwrap_or(chunk.len())).unwrap_or_default();
        if piece.len() > self.limit - self.buffer.len() {
            return Err(NotRead::TooLarge { limit: self.limit, size: None }.into());
        }
        self.buffer.push(piece).await.map_err(NotRead::from)?;
        Ok(())
    }

    async fn finish(self) -> Bytes {
        skip(self.response).await;
        self.buffer.into_bytes()
    }
}

/// Finds the end of a JSON object or array that comes piece by piece. Whether it is valid JSON is
/// for its reader to say.
#[derive(Default)]
struct Brackets {
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// The body begins with something else than an object or an array, so it has no such end.
    is_other: bool,
}

impl Brackets {
    /// The index behind the value's last byte, if that is in `piece`.
    fn end_in(&mut self, piece: &[u8]) -> Option<usize> {
        if self.is_other {
            return None;
        }
        for (at, byte) in piece.iter().enumerate() {
            if self.in_string {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.in_string = false,
                    _ => (),
                }
                continue;
            }
            match byte {
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' if self.depth == 1 => return Some(at + 1),
                b'}' | b']' if self.depth > 1 => self.depth -= 1,
                b'"' if self.depth > 0 => self.in_string = true,
                _ if self.depth == 0 && !byte.is_ascii_whitespace() => {
                    self.is_other = true;
                    return None;
                }
                _ => (),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    //! Bodies that end, and bodies that do not.

    use std::convert::Infallible;

    use futures_util::{StreamExt as _, stream};

    use super::*;

    /// A response whose body has these pieces, and no end.
    fn endless(pieces: &[&'static str]) -> reqwest::Response {
        let pieces: Vec<_> = pieces.iter().map(|piece| Ok::<_, Infallible>(*piece)).collect();
        let body = reqwest::Body::wrap_stream(stream::iter(pieces).chain(stream::pending()));
        reqwest::Response::from(http::Response::new(body))
    }

    fn whole(body: &'static str) -> reqwest::Response {
        reqwest::Response::from(http::Response::new(body))
    }

    #[tokio::test(start_paused = true)]
    async fn value_is_read_as_soon_as_it_is_whole() {
        for (pieces, expected) in [
            (&["{\"a\":[1,{}]}"][..], "{\"a\":[1,{}]}"),
            (&[" \n{\"a\"", ":\"}]\\", "\"}\"", "}", "junk"][..], " \n{\"a\":\"}]\\\"}\"}"),
            (&["[{}", ",[]]  "][..], "[{},[]]"),
        ] {
            let read = value(endless(pieces), 100).await.unwrap();
            assert_eq!(read, expected.as_bytes());
        }
        for text in ["", "<html>{}</html>", "\"{}\"", "{\"a\":", "}{}"] {
            assert_eq!(value(whole(text), 100).await.unwrap(), text.as_bytes());
        }
    }

    #[tokio::test]
    async fn value_above_the_limit_is_not_read() {
        for response in [endless(&["{\"a\":\"", "0123456789"]), whole("{\"a\":\"0123456789\"}")] {
            let error = value(response, 12).await.unwrap_err();
            assert!(matches!(error, BodyError::NotRead(NotRead::TooLarge { limit: 12, .. })));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn refusal_without_an_end_counts_as_far_as_it_came() {
        let begun = Instant::now();
        assert_eq!(refusal(endless(&["Session ", "not found"])).await, "Session not found");
        assert!(begun.elapsed() < REFUSAL_PATIENCE * 2);
        assert_eq!(refusal(endless(&["{}"])).await, "{}");
        skip(endless(&["x"])).await;
        assert!(begun.elapsed() < REFUSAL_PATIENCE * 2);
    }
}
