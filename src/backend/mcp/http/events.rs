//! Event streams of a server: the answer to one request, and those that carry what it says unasked.
//! Each event has a size limit, and its content stays verbatim.
//!
//! Must not: open a stream (`streams` does).

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use rmcp::model::RequestId;
use tokio::time::timeout;

use super::streams::{End, Place, StreamKind, retry};
use super::{ERROR_LIMIT, PostFailure, Session, Streamable, skip};
use crate::backend::NotRead;
use crate::backend::mcp::LIMIT;
use crate::backend::mcp::lines::IdFinder;
use crate::backend::mcp::rpc::{Incoming, Kind, OpenRequest, Rpc};
use crate::backend::mcp::transport::SendFailure;
use crate::budget::{Budget, Held};
use crate::error_chain::error_chain;
use crate::sse::{Fields, Frame, FrameTooLarge, Framer};

/// How many bytes of one oversized frame are skipped. More is a flood, not an answer.
const MAX_PAST: u64 = 32 << 20;

/// How long the first event of an answer to a `ping` may take.
const FIRST_PATIENCE: Duration = Duration::from_secs(2);

impl Streamable {
    /// Reads the event stream that answers `request`, and what continues it after a break, until
    /// the request has its outcome. A stream without ids of events cannot be continued; neither can
    /// one of a session that another has replaced.
    pub(super) async fn read_answer(
        &self,
        rpc: &Arc<Rpc>,
        session: &Session,
        request: &OpenRequest,
        mut source: Source,
    ) -> Result<(), PostFailure> {
        let mut place = Place::default();
        let mut answer = Answer { request, has_begun: false, is_resumed: false };
        loop {
            let end = match source.next().await {
                Next::Frame(frame) => {
                    place.note(&frame);
                    self.read_frame(rpc, session, &mut answer, &frame).await;
                    if request.has_outcome() {
                        // Read to its end, so that the connection can be used again.
                        rpc.spawn(skip(source.into_response()));
                        return Ok(());
                    }
                    continue;
                }
                Next::NotRead(why, _) => {
                    rpc.not_read(&RequestId::Number(request.id), why);
                    return Ok(());
                }
                Next::Broken(_) => End::Broken,
                Next::End => End::Whole,
            };
            if answer.is_resumed {
                self.streams.lock().ended(StreamKind::Resumed);
            }
            let may_continue = request.kind != Kind::Handshake && place.has_id();
            if !may_continue || session.replaced.is_cancelled() {
                return Err(PostFailure::Sent(SendFailure::Cut));
            }
            let next = self.reopen(rpc, session, StreamKind::Resumed, &mut place, end).await;
            source = next.ok_or(PostFailure::Sent(SendFailure::Cut))?;
            answer.is_resumed = true;
        }
    }

    /// Takes one event of an answer. An error of a lost session means that the request has not run
    /// only if it comes first; after a message, it may be the tool's own.
    async fn read_frame(
        &self,
        rpc: &Arc<Rpc>,
        session: &Session,
        answer: &mut Answer<'_>,
        frame: &Frame,
    ) {
        let id = answer.request.id;
        let fields = frame.fields();
        if answer.is_resumed {
            self.streams.lock().came(StreamKind::Resumed, frame);
            rpc.wait_for_room().await;
            return take_message(fields, rpc, None);
        }
        let data = fields.data.as_deref().unwrap_or_default();
        // A result may be large, and an error that says this is short.
        let is_short = !data.is_empty() && frame.raw.len() <= ERROR_LIMIT;
        if is_short && self.is_lost(session, StatusCode::OK, data, Some(id)) {
            if !answer.has_begun {
                return rpc.no_session(id);
            }
            self.doubt();
        }
        answer.has_begun |= !data.trim().is_empty();
        rpc.wait_for_room().await;
        take_message(fields, rpc, Some(id));
    }
}

/// The answer to one request, as far as it was read.
struct Answer<'a> {
    request: &'a OpenRequest,
    /// The server has said something of the request, so that it runs.
    has_begun: bool,
    /// The stream was opened again, by GET.
    is_resumed: bool,
}

/// The text of the first message on a stream, if one comes soon.
pub(super) async fn first(response: reqwest::Response) -> Option<String> {
    let mut source = Source::new(response);
    let message = async {
        loop {
            let Next::Frame(frame) = source.next().await else { return None };
            let data = frame.fields().data.filter(|data| !data.trim().is_empty());
            if data.is_some() {
                return data;
            }
        }
    };
    timeout(FIRST_PATIENCE, message).await.ok().flatten()
}

/// A response body, cut into frames.
pub(in crate::backend::mcp) struct Source {
    response: reqwest::Response,
    framer: Framer,
    /// The budget of a partly received frame, once it is larger than a few chunks.
    held: Held,
    reads_past: bool,
    /// Looks for the id in the frame that is being skipped.
    finder: Option<IdFinder>,
    /// What was read already.
    ahead: Option<Next>,
}

/// What comes next in a body.
pub(in crate::backend::mcp) enum Next {
    Frame(Frame),
    /// A frame was not read; with the id of its message, if the source looks for ids.
    NotRead(NotRead, Option<RequestId>),
    Broken(String),
    End,
}

impl Source {
    pub(in crate::backend::mcp) fn new(response: reqwest::Response) -> Self {
        let held = Budget::of_process().hold();
        let framer = Framer::new(LIMIT);
        Self { response, framer, held, reads_past: false, finder: None, ahead: None }
    }

    /// A source that skips an oversized frame, to find out which request it answers.
    pub(in crate::backend::mcp) fn reading_past(response: reqwest::Response) -> Self {
        Self { reads_past: true, ..Self::new(response) }
    }

    /// The response, of which nothing more matters.
    pub(super) fn into_response(self) -> reqwest::Response {
        self.response
    }

    /// Whether the first event is one of HTTP+SSE, which names the address for messages. Otherwise,
    /// no event is lost.
    pub(super) async fn begins_with_endpoint(&mut self) -> bool {
        loop {
            let next = self.next().await;
            if let Next::Frame(frame) = &next {
                let Fields { event, data, id, .. } = frame.fields();
                if event.as_deref() == Some("endpoint") {
                    return true;
                }
                if data.is_none() && id.is_none() && retry(frame).is_none() {
                    continue;
                }
            }
            self.ahead = Some(next);
            return false;
        }
    }

    /// The next frame. Safe to drop: no bytes are lost.
    pub(in crate::backend::mcp) async fn next(&mut self) -> Next {
        if let Some(ahead) = self.ahead.take() {
            return ahead;
        }
        loop {
            let found = self.framer.next_frame();
            if !self.framer.is_past()
                && let Some(finder) = self.finder.take()
            {
                let (id, size) = finder.found();
                self.ahead = found.ok().flatten().map(Next::Frame);
                return Next::NotRead(NotRead::TooLarge { limit: LIMIT, size: Some(size) }, id);
            }
            match found {
                Ok(Some(frame)) if frame.raw.len() > LIMIT => {
                    let (id, size) = IdFinder::after(&frame.raw).found();
                    return Next::NotRead(NotRead::TooLarge { limit: LIMIT, size: Some(size) }, id);
                }
                Ok(Some(frame)) => return Next::Frame(frame),
                Ok(None) => (),
                Err(FrameTooLarge { limit }) if !self.reads_past => {
                    return Next::NotRead(NotRead::TooLarge { limit, size: None }, None);
                }
                Err(FrameTooLarge { .. }) => {
                    self.finder = Some(IdFinder::after(self.framer.unfinished()));
                    // Frees the bytes that the finder has seen.
                    continue;
                }
            }
            // Adjust the budget before waiting: the frame may be gone, and the next chunk may take
            // long.
            if let Err(no_room) = self.held.keep_up(self.framer.unfinished().len()).await {
                return Next::NotRead(no_room.into(), None);
            }
            match self.response.chunk().await {
                Ok(Some(chunk)) => {
                    self.framer.push(&chunk);
                    if let Some(finder) = &mut self.finder {
                        finder.read(&chunk);
                        if finder.size > MAX_PAST {
                            let why = NotRead::TooLarge { limit: LIMIT, size: None };
                            return Next::Broken(format!("body error: {why}"));
                        }
                    }
                }
                Ok(None) => return self.framer.end().map_or(Next::End, Next::Frame),
                Err(error) => {
                    let error = error_chain(&error.without_url());
                    return Next::Broken(format!("body error: {error}"));
                }
            }
        }
    }
}

/// Takes the message in an event, if it has one. `answered` is the request whose answer the stream
/// is, if it is of one request.
pub(in crate::backend::mcp) fn take_message(fields: Fields, rpc: &Arc<Rpc>, answered: Option<i64>) {
    let is_message = matches!(fields.event.as_deref(), None | Some("" | "message"));
    let Some(data) = fields.data.filter(|data| is_message && !data.trim().is_empty()) else {
        return;
    };
    let incoming = match answered {
        Some(id) => rpc.answer_to(id, &data),
        None => rpc.incoming(&data),
    };
    match incoming {
        Incoming::Taken => (),
        Incoming::Ignored(why) => tracing::debug!("ignored a message: {why}"),
        Incoming::Garbage => tracing::debug!("ignored a message: it is no JSON-RPC message"),
    }
}

#[cfg(test)]
mod tests {
    //! What a stream pays for, and when it is read.

    use futures_util::{FutureExt as _, poll};

    use super::*;
    use crate::backend::mcp::http::tests::streamable;
    use crate::backend::mcp::rpc::tests::full;
    use crate::budget::CHUNKS;
    use crate::budget::tests::quiet_after;

    #[tokio::test]
    async fn a_quiet_stream_does_not_pay_for_what_it_said() {
        let event = format!("data: {}\n\n", "x".repeat(200 << 10));
        let (first, second) = event.as_bytes().split_at(event.len() / 2);
        let mut source = Source::new(quiet_after(vec![first.to_vec(), second.to_vec()]));
        assert!(matches!(source.next().await, Next::Frame(_)));
        assert!(source.held.bytes() > CHUNKS, "it came in parts");
        assert!(source.next().now_or_never().is_none());
        assert_eq!(source.held.bytes(), 0);
    }

    #[tokio::test]
    async fn an_event_waits_until_the_calls_have_taken_the_responses_before_it() {
        let (rpc, large) = full();
        let before = rpc.messages();
        let body = "data: {\"jsonrpc\":\"2.0\",\"id\":\"x\",\"method\":\"ping\"}\n\n";
        let source = Source::new(reqwest::Response::from(::http::Response::new(body)));
        let request = OpenRequest::new(6, "tools/call", Kind::Call);
        let (streamable, session) = (streamable(), Session::default());
        let mut answer = Box::pin(streamable.read_answer(&rpc, &session, &request, source));
        assert!(poll!(&mut answer).is_pending());
        assert_eq!(rpc.messages(), before);
        large.take_outcome().unwrap().unwrap().unwrap();
        assert!(answer.await.is_err(), "the stream ends without a response");
        assert_eq!(rpc.messages(), before + 1);
    }
}
