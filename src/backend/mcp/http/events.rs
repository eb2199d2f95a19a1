//! Event streams of a server: the answer to one request, and the standing stream of a session or,
//! with the older HTTP+SSE, of a connection. Each event has a size limit, and its content stays
//! verbatim instead of passing rmcp's types.
//!
//! Must not: open a stream or reconnect one; rmcp does.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use futures_util::{Stream, StreamExt as _, stream};
use http::StatusCode;
use rmcp::model::{RequestId, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_client::SseError;
use sse_stream::Sse;
use tokio::time::{Instant, timeout};

use super::{ERROR_LIMIT, Http};
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
pub(in crate::backend::mcp) const MAX_FAILURES: usize = 4;

/// If a stream lived this long before it ended, that does not count as a failure.
const LIVED: Duration = Duration::from_secs(5);

/// The waits before a standing stream that ended soon is asked for again.
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(5 * 60);
/// The longest wait before a broken answer is asked for again: a call waits for it.
const LONGEST_RESUME_WAIT: Duration = Duration::from_secs(5);

/// How many bytes of one oversized frame are skipped. More is a flood, not an answer.
const MAX_PAST: u64 = 32 << 20;

/// The waits of a server's `retry` that the bridge follows, in milliseconds.
const SHORTEST_RETRY: u64 = 200;
const LONGEST_RETRY: u64 = 30_000;

/// How long the first event of an answer to a `ping` may take.
const FIRST_PATIENCE: Duration = Duration::from_secs(2);

/// What a stream that is opened by GET is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamKind {
    /// What the server says unasked, in a session.
    Standing,
    /// The rest of a broken answer.
    Resumed,
}

/// The streams of a connection that are opened by GET.
#[derive(Debug)]
pub(in crate::backend::mcp) struct Streams {
    standing: Attempts,
    resumed: Attempts,
    /// The id of the last event on the standing stream. It tells a standing stream that is asked
    /// for again from the rest of an answer: their waits must not add up.
    last_id: Option<String>,
    /// The event stream with which the server answered `notifications/initialized`. It may carry
    /// what else comes on the standing stream, and some servers end the session with it.
    pub(super) left_open: Option<reqwest::Response>,
}

/// The successes and failures of one kind of streams.
#[derive(Debug)]
struct Attempts {
    /// How many in a row could not be opened.
    failures: usize,
    /// When the last one was opened, if any ever was.
    opened: Option<Instant>,
    /// Whether a stream has ended since the last one was requested.
    ended: bool,
    /// Whether the last stream has brought a message, or said when to ask again.
    was_useful: bool,
    backoff: Backoff,
}

impl Attempts {
    fn new(longest: Duration) -> Self {
        let backoff = Backoff::new(FIRST_WAIT, longest);
        Self { failures: 0, opened: None, ended: false, was_useful: false, backoff }
    }
}

impl Default for Streams {
    fn default() -> Self {
        Self {
            standing: Attempts::new(LONGEST_WAIT),
            resumed: Attempts::new(LONGEST_RESUME_WAIT),
            last_id: None,
            left_open: None,
        }
    }
}

impl Streams {
    fn attempts(&mut self, kind: StreamKind) -> &mut Attempts {
        match kind {
            StreamKind::Standing => &mut self.standing,
            StreamKind::Resumed => &mut self.resumed,
        }
    }

    /// The kind of a stream that is to begin after the event with this id.
    pub(super) fn kind(&self, last_event_id: Option<&str>) -> StreamKind {
        match last_event_id {
            Some(id) if self.last_id.as_deref() != Some(id) => StreamKind::Resumed,
            _ => StreamKind::Standing,
        }
    }

    pub(super) fn opened(&mut self, kind: StreamKind) {
        let attempts = self.attempts(kind);
        attempts.failures = 0;
        attempts.was_useful = false;
        attempts.opened = Some(Instant::now());
    }

    pub(super) fn was_opened(&self, kind: StreamKind) -> bool {
        match kind {
            StreamKind::Standing => self.standing.opened.is_some(),
            StreamKind::Resumed => self.resumed.opened.is_some(),
        }
    }

    /// Counts a failure to open a stream. True if there are too many in a row, and the standing
    /// stream was open before.
    pub(super) fn failed(&mut self, kind: StreamKind) -> bool {
        let attempts = self.attempts(kind);
        attempts.failures += 1;
        attempts.failures >= MAX_FAILURES && self.was_opened(StreamKind::Standing)
    }

    pub(super) fn ended(&mut self, kind: StreamKind) {
        self.attempts(kind).ended = true;
    }

    /// Notes what `frame` says about the streams.
    fn came(&mut self, kind: StreamKind, frame: &Frame) {
        let Fields { id, data, .. } = frame.fields();
        // The rest of an answer is polled as often as its server says.
        let is_paced = kind == StreamKind::Resumed && retry(frame).is_some();
        if is_paced || data.is_some_and(|data| !data.trim().is_empty()) {
            self.attempts(kind).was_useful = true;
        }
        if kind == StreamKind::Standing && id.is_some() {
            self.last_id = id;
        }
    }

    /// The wait before the next stream, if the last one ended soon and brought nothing. Without it,
    /// rmcp opens the next at once, or five a second if the server ends them properly.
    pub(super) fn next_wait(&mut self, kind: StreamKind, now: Instant) -> Duration {
        let attempts = self.attempts(kind);
        if !std::mem::take(&mut attempts.ended) {
            return Duration::ZERO;
        }
        let has_lived =
            attempts.opened.is_some_and(|at| now.saturating_duration_since(at) >= LIVED);
        if has_lived || attempts.was_useful {
            attempts.backoff.reset();
        }
        if attempts.was_useful && kind == StreamKind::Resumed {
            return Duration::ZERO;
        }
        attempts.backoff.next_wait()
    }
}

/// What a stream of events is.
pub(super) enum Role {
    /// The answer to this request; with the client if the request was made in a session.
    Answer {
        id: RequestId,
        http: Option<Http>,
        /// The server has said something of the request, so that it runs.
        has_begun: bool,
    },
    /// One that was opened by GET.
    Stream(Http, StreamKind),
}

impl Role {
    /// The same after a first message. An error of a lost session may be the tool's own from now
    /// on.
    fn begun(self) -> Self {
        match self {
            Self::Answer { id, http, .. } => Self::Answer { id, http, has_begun: true },
            Self::Stream(..) => self,
        }
    }
}

/// The events in `response`.
pub(super) fn events(
    role: Role,
    state: Arc<ConnectionState>,
    response: reqwest::Response,
) -> impl Stream<Item = Result<Sse, SseError>> + Send + 'static {
    from(role, state, Source::new(response))
}

/// The events of `source`.
pub(super) fn from(
    role: Role,
    state: Arc<ConnectionState>,
    source: Source,
) -> impl Stream<Item = Result<Sse, SseError>> + Send + 'static {
    stream::unfold(Some((source, role, state)), async |stream| {
        let (mut source, role, state) = stream?;
        let next = source.next().await;
        if let Role::Stream(http, kind) = &role {
            match &next {
                Next::Frame(frame) => http.streams.lock().came(*kind, frame),
                Next::Broken(_) | Next::End => http.streams.lock().ended(*kind),
                Next::NotRead(..) => (),
            }
        }
        match (next, &role) {
            (Next::Frame(frame), Role::Answer { id, http, has_begun }) => {
                let fields = frame.fields();
                // A result may be large, and an error that says this is short.
                let is_short = frame.raw.len() <= ERROR_LIMIT;
                if let (Some(http), Some(data)) = (http, &fields.data)
                    && is_short
                    && http.is_lost(StatusCode::OK, data, Some(id))
                {
                    if !has_begun {
                        return Some((Ok(told(&state.no_session(id)?)), None));
                    }
                    http.is_doubtful.store(true, Ordering::Relaxed);
                }
                let is_message = fields.data.as_ref().is_some_and(|data| !data.trim().is_empty());
                let shown = event(fields, retry(&frame), &state, Some(id)).await;
                let role = if is_message { role.begun() } else { role };
                Some((Ok(shown), Some((source, role, state))))
            }
            (Next::Frame(frame), Role::Stream(..)) => {
                let shown = event(frame.fields(), retry(&frame), &state, None).await;
                Some((Ok(shown), Some((source, role, state))))
            }
            (Next::Broken(error), _) => Some((Err(error), None)),
            (Next::NotRead(why, _), Role::Answer { id, .. }) => {
                Some((Ok(told(&state.not_read(id, why)?)), None))
            }
            (Next::NotRead(why, _), Role::Stream(Http { backend, .. }, _)) => {
                // A resumed stream would bring the same oversized event again.
                tracing::warn!(%backend, "an event cannot be read: {why}; reconnecting");
                state.lose(format!("the server sent an event that is not read: {why}"));
                std::future::pending().await
            }
            (Next::End, _) => None,
        }
    })
}

/// The events of `main`, and those of `aside` while `main` lives.
pub(super) fn with<S>(mut main: S, mut aside: S) -> impl Stream<Item = S::Item> + Send + 'static
where
    S: Stream + Unpin + Send + 'static,
{
    let mut is_over = false;
    stream::poll_fn(move |context| {
        if !is_over {
            match aside.poll_next_unpin(context) {
                Poll::Ready(Some(event)) => return Poll::Ready(Some(event)),
                Poll::Ready(None) => is_over = true,
                Poll::Pending => (),
            }
        }
        main.poll_next_unpin(context)
    })
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

/// A message of the bridge's own for rmcp.
fn told(message: &ServerJsonRpcMessage) -> Sse {
    Sse { event: None, data: serde_json::to_string(message).ok(), id: None, retry: None }
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
/// `answered` is the request whose answer the stream is.
async fn event(
    fields: Fields,
    retry: Option<u64>,
    state: &ConnectionState,
    answered: Option<&RequestId>,
) -> Sse {
    state.has_room().await;
    let id = fields.id.clone();
    let data =
        message(fields, state, answered).and_then(|message| serde_json::to_string(&message).ok());
    Sse { event: None, data, id, retry }
}

/// The message in an event, if rmcp has to see it. `answered` is the request whose answer the
/// stream is, if it is of one request.
pub(in crate::backend::mcp) fn message(
    fields: Fields,
    state: &ConnectionState,
    answered: Option<&RequestId>,
) -> Option<ServerJsonRpcMessage> {
    let is_message = matches!(fields.event.as_deref(), None | Some("" | "message"));
    let data = fields.data.filter(|data| is_message && !data.trim().is_empty())?;
    let incoming = match answered {
        Some(id) => state.answer_to(id, &data),
        None => state.incoming(&data),
    };
    let why = match incoming {
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
    Some(wait.clamp(SHORTEST_RETRY, LONGEST_RETRY))
}

#[cfg(test)]
mod tests {
    //! What a stream pays for, and when it is read.

    use futures_util::{FutureExt as _, poll};

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
        let role = Role::Answer { id: RequestId::Number(6), http: None, has_begun: false };
        let mut events = Box::pin(events(role, Arc::new(state), response));
        let mut event = events.next();
        assert!(poll!(&mut event).is_pending());
        raw_request.take_outcome().unwrap().unwrap().unwrap();
        assert!(event.await.expect("an event").expect("it is read").data.is_some());
    }
}
