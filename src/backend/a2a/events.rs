//! Reads the results of a streamed reply, one after the other: server-sent events, or the messages
//! of gRPC.
//!
//! Must not: know what a result means, or open a stream again that broke.

use reqwest::Response;
use serde_json::value::RawValue;

use super::failure::{A2aFailure, A2aResult};
use super::link::MAX_REPLY;
use super::{grpc, wire};
use crate::backend::{CallError, NotRead};
use crate::budget::{Budget, Held};
use crate::config::A2aBinding;
use crate::error_chain::error_chain;
use crate::http_client;
use crate::sse::{Frame, Framer};

/// A reply that comes in several results.
#[derive(Debug)]
pub(super) enum EventStream {
    Sse(Events),
    Grpc(grpc::Messages),
}

/// The server-sent events of a response.
#[derive(Debug)]
pub(super) struct Events {
    binding: A2aBinding,
    response: Response,
    framer: Framer,
    /// Counts an event until it is complete.
    held: Held,
    has_ended: bool,
    /// How many bytes have come.
    received: usize,
}

/// Whether the response is an event stream.
pub(super) fn is_event_stream(response: &Response) -> bool {
    response.status().is_success() && http_client::is_event_stream(response.headers())
}

impl EventStream {
    pub(super) fn sse(binding: A2aBinding, response: Response) -> Self {
        Self::Sse(Events::new(binding, response))
    }

    /// The next result; `None` at the end of the stream. If the future is dropped, no result is
    /// lost.
    pub(super) async fn next(&mut self) -> A2aResult<Option<Box<RawValue>>> {
        match self {
            Self::Sse(events) => events.next().await,
            Self::Grpc(messages) => messages.next().await,
        }
    }

    /// Reads on until the end of the stream, if only a little is left. Otherwise the connection
    /// would be closed, and the next call would have to wait for another one.
    pub(super) async fn drain(mut self) {
        /// More events than an agent sends after the last.
        const MAX_LEFT: usize = 8;
        for _ in 0..MAX_LEFT {
            let Ok(Some(_)) = self.next().await else { return };
        }
    }
}

/// A frame of an event stream.
#[derive(Debug)]
pub(super) enum Piece {
    /// The data of an event.
    Data(String),
    /// A sign of life without data.
    Comment,
}

impl Events {
    pub(super) fn new(binding: A2aBinding, response: Response) -> Self {
        let framer = Framer::new(MAX_REPLY);
        let held = Budget::of_process().hold();
        Self { binding, response, framer, held, has_ended: false, received: 0 }
    }

    /// How many bytes the frames have that were given out, comments and framing included.
    pub(super) fn given_out(&self) -> usize {
        self.received.saturating_sub(self.framer.unfinished().len())
    }

    async fn next(&mut self) -> A2aResult<Option<Box<RawValue>>> {
        loop {
            match self.next_piece().await? {
                Some(Piece::Data(data)) => {
                    return wire::decode_event(self.binding, &data).map(Some);
                }
                Some(Piece::Comment) => {}
                None => return Ok(None),
            }
        }
    }

    /// The next frame as it came; `None` at the end of the stream. If the future is dropped, none
    /// is lost.
    pub(super) async fn next_piece(&mut self) -> A2aResult<Option<Piece>> {
        loop {
            let frame = self.framer.next_frame().map_err(|frame| {
                CallError::NotRead(NotRead::TooLarge { limit: frame.limit, size: None })
            })?;
            if let Some(frame) = frame {
                return Ok(Some(piece(&frame)));
            }
            if self.has_ended {
                return Ok(None);
            }
            let chunk = self.response.chunk().await;
            let chunk =
                chunk.map_err(|error| A2aFailure::lost(error_chain(&error.without_url())))?;
            match chunk {
                Some(chunk) => {
                    self.received = self.received.saturating_add(chunk.len());
                    self.framer.push(&chunk);
                }
                None => {
                    self.has_ended = true;
                    // Some servers leave out the blank line behind their last event.
                    self.framer.push(b"\n\n");
                }
            }
            let held = self.held.keep_up(self.framer.unfinished().len()).await;
            held.map_err(|no_room| CallError::NotRead(no_room.into()))?;
        }
    }
}

fn piece(frame: &Frame) -> Piece {
    match frame.fields().data {
        Some(data) if !data.trim().is_empty() => Piece::Data(data),
        _ => Piece::Comment,
    }
}
