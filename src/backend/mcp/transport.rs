//! The ways to a server. Each writes one message and, if a reply comes the same way, reads it into
//! the connection; a task of its own reads what the server sends unasked.
//!
//! Must not: know what a message means to its caller.

use std::sync::Arc;

use super::http::{HttpFailure, Streamable};
use super::rpc::{Message, Rpc};
use super::sse::Sse;
use super::stdio::Pipe;
use crate::backend::CallError;

/// How messages reach a server.
pub(super) enum Transport {
    /// The stdin of a program; its stdout brings the responses.
    Pipe(Pipe),
    /// One POST for each message, whose reply brings the response.
    Streamable(Arc<Streamable>),
    /// One POST for each message; a standing stream brings the responses.
    Sse(Sse),
}

/// Why a message did not reach the server, or why its reply brought no response.
#[derive(Debug)]
pub(super) enum SendFailure {
    Pipe(String),
    Http(HttpFailure),
    /// The server does not know the session, and no other one could be begun.
    NoSession(String),
    /// The reply ended before the response.
    Cut,
}

impl Transport {
    /// Sends `message`, and reads the reply to it if there is one. A caller that waits for a
    /// response may drop this as soon as it has one.
    pub(super) async fn send(&self, rpc: &Arc<Rpc>, message: Message) -> Result<(), SendFailure> {
        match self {
            Self::Pipe(pipe) => pipe.send(message).await.map_err(SendFailure::Pipe),
            // Boxed, since the futures of HTTP are large.
            Self::Streamable(streamable) => Box::pin(streamable.send(rpc, message)).await,
            Self::Sse(sse) => sse.send(rpc, message).await,
        }
    }

    /// Tells the server that the connection ends.
    pub(super) async fn close(&self) {
        match self {
            Self::Pipe(pipe) => pipe.close().await,
            Self::Streamable(streamable) => streamable.close().await,
            Self::Sse(_) => (),
        }
    }
}

impl SendFailure {
    /// What the caller of a request is told if the failure itself is an answer; `None` if the
    /// request is not sent or lost.
    pub(super) fn call_error(&self) -> Option<CallError> {
        match self {
            Self::Http(failure) => failure.call_error(),
            Self::Pipe(_) | Self::NoSession(_) | Self::Cut => None,
        }
    }

    /// The failure in words; empty if the end of the connection says more.
    pub(super) fn words(&self) -> String {
        match self {
            Self::Pipe(why) | Self::NoSession(why) => why.clone(),
            Self::Http(failure) => failure.to_string(),
            Self::Cut => String::new(),
        }
    }
}
