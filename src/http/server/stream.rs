//! A connection's byte stream, watched: where requests begin, and whether the peer reads its
//! answers.
//!
//! Must not: change a byte that passes.

use std::io;
use std::io::IoSlice;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::activity::Activity;
use super::framing::Gate;

/// How long a peer may read nothing while bytes wait for it.
pub(super) const STALL: Duration = Duration::from_secs(30);

/// A watched stream.
#[derive(Debug)]
pub(super) struct Watched<S> {
    inner: S,
    /// For HTTP/1.1: where bytes without an open request begin one.
    requests: Option<Requests>,
    stall: Option<Pin<Box<Sleep>>>,
}

/// The observed requests of a connection.
#[derive(Debug, Clone)]
pub(super) struct Requests {
    pub(super) activity: Arc<Activity>,
    pub(super) gate: Arc<Mutex<Gate>>,
}

impl<S> Watched<S> {
    pub(super) fn new(inner: S, requests: Option<Requests>) -> Self {
        Self { inner, requests, stall: None }
    }

    /// Fails once the peer has read nothing for [`STALL`].
    fn unless_stalled<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stall = None;
            return written;
        }
        let stall = self.stall.get_or_insert_with(|| Box::pin(sleep(STALL)));
        ready!(stall.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer takes nothing")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let Some(requests) = &this.requests else {
            return Pin::new(&mut this.inner).poll_read(cx, buffer);
        };
        loop {
            {
                let mut gate = requests.gate.lock();
                let ready = gate.read(buffer.remaining());
                if !ready.is_empty() {
                    buffer.put_slice(&ready);
                    return Poll::Ready(Ok(()));
                }
                if gate.is_closed() {
                    // The refusal is the last answer; writing it wakes the connection.
                    return Poll::Pending;
                }
            }
            let before = buffer.filled().len();
            ready!(Pin::new(&mut this.inner).poll_read(cx, buffer))?;
            let new = buffer.filled().get(before..).unwrap_or_default();
            if new.is_empty() {
                return Poll::Ready(Ok(()));
            }
            requests.activity.heard();
            let passed = requests.gate.lock().push(new);
            buffer.set_filled(before + passed);
            if passed > 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let poll = Pin::new(&mut this.inner).poll_write(cx, bytes);
        this.unless_stalled(cx, poll)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let poll = Pin::new(&mut this.inner).poll_write_vectored(cx, slices);
        this.unless_stalled(cx, poll)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.inner).poll_flush(cx);
        this.unless_stalled(cx, flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let closed = Pin::new(&mut this.inner).poll_shutdown(cx);
        this.unless_stalled(cx, closed)
    }
}

#[cfg(test)]
mod tests {
    //! A peer that takes nothing is given up, one that is slow is not.

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_nothing_is_given_up() {
        let (near, far) = duplex(4);
        let error = Watched::new(near, None).write_all(b"12345").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(far);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_peer_is_waited_for() {
        let (near, mut far) = duplex(1);
        let mut near = Watched::new(near, None);
        let slow = async {
            for _ in 0..4 {
                sleep(STALL - Duration::from_secs(1)).await;
                far.read_u8().await.unwrap();
            }
        };
        let (written, ()) = tokio::join!(near.write_all(b"1234"), slow);
        written.unwrap();
    }
}
