//! Event streams of a server: the answer to one request, and the standing stream of a session or,
//! with the older HTTP+SSE, of a connection.
//! Each event has a size limit, and its content stays verbatim instead of passing rmcp's types.
//!
//! Must not: open a stream or reconnect one; rmcp does.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, stream};
use rmcp::model::{RequestId, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_client::SseError;
use sse_stream::Sse;
use tokio::time::Instant;

use super::Http;
use crate::backend::NotRead;
use crate::backend::mcp::LIMIT;
use crate::backend::mcp::lines::IdFinder;
use crate::backend::mcp::verbatim::{ConnectionState, Incoming};
use crate::backoff::Backoff;
use crate::budget::{Budget, Held};
use crate::error_chain::error_chain;
use crate::sse::{Fields, Frame, FrameTooLarge, Framer};

/// How many times in a row the standing stream may fail to open before the server counts as gone.
/// rmcp tries as often, about two seconds in all.
pub(in crate::backend::mcp) const MOST_FAILURES: usize = 4;

/// If a stream lived this long before it broke, that does not count as a failure.
const LIVED: Duration = Duration::from_secs(5);

/// How many bytes of one oversized frame are skipped. More is a flood, not an answer.
const MOST_PAST: u64 = 32 << 20;

/// The longest `retry` of a server that the bridge follows, in milliseconds.
const LONGEST_RETRY: u64 = 30_000;

/// The successes and failures of a connection's standing streams.
#[derive(Debug)]
pub(in crate::backend::mcp) struct Standing {
    /// How many in a row could not be opened.
    failures: usize,
    /// When the last one was opened, if any ever was.
    pub(super) opened: Option<Instant>,
    /// Whether a stream has broken since the last one was requested.
    pub(super) broke: bool,
    backoff: Backoff,
}

impl Default for Standing {
    fn default() -> Self {
        Self { failures: 0, opened: None, broke: false, backoff: Backoff::for_connections() }
    }
}

impl Standing {
    pub(super) fn opened(&mut self) {
        self.failures = 0;
        self.opened = Some(Instant::now());
    }

    /// Counts a failure to open a stream. True if there are too many in a row, and a stream was
    /// open before.
    pub(super) fn failed(&mut self) -> bool {
        self.failures += 1;
        self.failures >= MOST_FAILURES && self.opened.is_some()
    }

    /// The wait after a stream that broke soon. Without it, rmcp would open the next at once.
    pub(super) fn next_wait(&mut self, now: Instant) -> Duration {
        if !std::mem::take(&mut self.broke) {
            return Duration::ZERO;
        }
        if self.opened.is_some_and(|at| now.saturating_duration_since(at) >= LIVED) {
            self.backoff.reset();
        }
        self.backoff.next_wait()
    }
}

/// What a stream of events is.
pub(super) enum Role {
    /// The answer to this request.
    Answer(RequestId),
    /// A session's standing stream, or one that takes up a broken answer.
    Standing(Http),
}

/// The events in `response`.
pub(super) fn events(
    role: Role,
    state: Arc<ConnectionState>,
    response: reqwest::Response,
) -> impl Stream<Item = Result<Sse, SseError>> + Send + 'static {
    let source = Source::new(response);
    stream::unfold(Some((source, role, state)), async |stream| {
        let (mut source, role, state) = stream?;
        match (source.next().await, &role) {
            (Next::Frame(frame), _) => {
                Some((Ok(event(&frame, &state).await), Some((source, role, state))))
            }
            (Next::Broken(error), _) => {
                if let Role::Standing(client) = &role {
                    client.standing.lock().broke = true;
                }
                Some((Err(error), None))
            }
            (Next::NotRead(why, _), Role::Answer(id)) => {
                let end = state.not_read(id, why)?;
                let data = serde_json::to_string(&end).ok();
                Some((Ok(Sse { event: None, data, id: None, retry: None }), None))
            }
            (Next::NotRead(why, _), Role::Standing(Http { backend, .. })) => {
                // A resumed stream would bring the same oversized event again.
                tracing::warn!(%backend, "an event cannot be read: {why}; reconnecting");
                state.lose(format!("the server sent an event that is not read: {why}"));
                std::future::pending().await
            }
            (Next::End, _) => None,
        }
    })
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
    /// The frame after the skipped one.
    ahead: Option<Frame>,
}

/// What comes next in a body.
pub(in crate::backend::mcp) enum Next {
    Frame(Frame),
    /// A frame was not read; with the id of its message, if the source looks for ids.
    NotRead(NotRead, Option<RequestId>),
    Broken(SseError),
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

    /// The next frame. Safe to drop: no bytes are lost.
    pub(in crate::backend::mcp) async fn next(&mut self) -> Next {
        if let Some(frame) = self.ahead.take() {
            return Next::Frame(frame);
        }
        loop {
            let found = self.framer.next_frame();
            if !self.framer.is_past()
                && let Some(finder) = self.finder.take()
            {
                let (id, size) = finder.found();
                self.ahead = found.ok().flatten();
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
            // Adjust the budget before waiting: the frame may be gone, and the next chunk may
            // take long.
            if let Err(no_room) = self.held.keep_up(self.framer.unfinished().len()).await {
                return Next::NotRead(no_room.into(), None);
            }
            match self.response.chunk().await {
                Ok(Some(chunk)) => {
                    self.framer.push(&chunk);
                    if let Some(finder) = &mut self.finder {
                        finder.read(&chunk);
                        if finder.size > MOST_PAST {
                            let why = NotRead::TooLarge { limit: LIMIT, size: None };
                            return Next::Broken(SseError::Body(why.to_string().into()));
                        }
                    }
                }
                Ok(None) => return self.framer.end().map_or(Next::End, Next::Frame),
                Err(error) => {
                    let error = error_chain(&error.without_url());
                    return Next::Broken(SseError::Body(error.into()));
                }
            }
        }
    }
}

/// A frame in rmcp's form: only messages that rmcp can read, ids and the wait before reconnecting.
async fn event(frame: &Frame, state: &ConnectionState) -> Sse {
    state.has_room().await;
    let fields = frame.fields();
    let id = fields.id.clone();
    let data = message(fields, state).and_then(|message| serde_json::to_string(&message).ok());
    Sse { event: None, data, id, retry: retry(frame) }
}

/// The message in an event, if rmcp has to see it.
pub(in crate::backend::mcp) fn message(
    fields: Fields,
    state: &ConnectionState,
) -> Option<ServerJsonRpcMessage> {
    let is_message = matches!(fields.event.as_deref(), None | Some("" | "message"));
    let data = fields.data.filter(|data| is_message && !data.trim().is_empty())?;
    let why = match state.incoming(&data) {
        Incoming::Message(message) => return Some(*message),
        Incoming::Ignored(why) => why,
        Incoming::Garbage => "it is no JSON-RPC message",
    };
    tracing::debug!("ignored a message: {why}");
    None
}

/// How many milliseconds the server asks the client to wait before it reconnects.
fn retry(frame: &Frame) -> Option<u64> {
    let text = std::str::from_utf8(&frame.raw).ok()?;
    let mut lines = text.split(['\n', '\r']);
    let wait: u64 = lines.find_map(|line| line.strip_prefix("retry:")?.trim().parse().ok())?;
    Some(wait.min(LONGEST_RETRY))
}

#[cfg(test)]
mod tests {
    //! What a stream pays for, and when it is read.

    use futures_util::{FutureExt as _, StreamExt as _, poll};

    use super::*;
    use crate::backend::mcp::verbatim::tests::full;
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
        let (state, raw_request) = full();
        let body = "data: {\"jsonrpc\":\"2.0\",\"id\":\"x\",\"method\":\"ping\"}\n\n";
        let response = reqwest::Response::from(::http::Response::new(body));
        let role = Role::Answer(RequestId::Number(6));
        let mut events = Box::pin(events(role, Arc::new(state), response));
        let mut event = events.next();
        assert!(poll!(&mut event).is_pending());
        raw_request.take_outcome().unwrap().unwrap().unwrap();
        assert!(event.await.expect("an event").expect("it is read").data.is_some());
    }
}
