//! The streams that are opened by GET: the standing stream of a session, which carries what the
//! server says unasked, and the rest of an answer whose stream broke.
//!
//! Must not: read an answer (`events` does), or know what a message means.

use std::sync::Arc;
use std::time::Duration;

use http::header::ACCEPT;
use http::{HeaderMap, HeaderValue, Method};
use tokio::time::{Instant, sleep, sleep_until};

use super::events::{Next, Source, take_message};
use super::{Body, EVENTS, HttpFailure, LAST_EVENT_ID, Session, Streamable, is_events};
use crate::backend::mcp::rpc::Rpc;
use crate::backoff::Backoff;
use crate::sse::Frame;

/// How many times in a row the standing stream may fail to open before the server counts as gone.
/// The tries take about three seconds in all.
const MAX_FAILURES: usize = 4;

/// If a stream lived this long before it ended, that does not count as a failure.
const LIVED: Duration = Duration::from_secs(5);

/// The waits before a standing stream that ended soon is asked for again.
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(5 * 60);
/// The longest wait before a broken answer is asked for again: a call waits for it.
const LONGEST_RESUME_WAIT: Duration = Duration::from_secs(5);

/// The wait before a stream is opened again that its server has ended properly; after each failure
/// to open one, it doubles.
const RETRY: Duration = Duration::from_millis(200);
const LONGEST_RETRY_WAIT: Duration = Duration::from_secs(2);

/// The waits of a server's `retry` that the bridge follows, in milliseconds.
const SHORTEST_RETRY: u64 = 200;
const LONGEST_RETRY: u64 = 30_000;

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
pub(super) struct Streams {
    standing: Attempts,
    resumed: Attempts,
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
        Self { standing: Attempts::new(LONGEST_WAIT), resumed: Attempts::new(LONGEST_RESUME_WAIT) }
    }
}

impl Streams {
    fn attempts(&mut self, kind: StreamKind) -> &mut Attempts {
        match kind {
            StreamKind::Standing => &mut self.standing,
            StreamKind::Resumed => &mut self.resumed,
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
    pub(super) fn came(&mut self, kind: StreamKind, frame: &Frame) {
        let data = frame.fields().data;
        // The rest of an answer is polled as often as its server says.
        let is_paced = kind == StreamKind::Resumed && retry(frame).is_some();
        if is_paced || data.is_some_and(|data| !data.trim().is_empty()) {
            self.attempts(kind).was_useful = true;
        }
    }

    /// The wait before the next stream, if the last one ended soon and brought nothing. Without it,
    /// the next is opened at once, or five a second if the server ends them properly.
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

/// How a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The server ended it.
    Whole,
    Broken,
}

/// Where a stream is continued.
#[derive(Debug, Default)]
pub(super) struct Place {
    /// The id of the last event that had one.
    id: Option<String>,
    /// The wait that the server has asked for.
    retry: Option<Duration>,
}

impl Place {
    pub(super) fn note(&mut self, frame: &Frame) {
        if let Some(id) = frame.fields().id {
            self.id = Some(id);
        }
        if let Some(wait) = retry(frame) {
            self.retry = Some(Duration::from_millis(wait));
        }
    }

    pub(super) fn has_id(&self) -> bool {
        self.id.is_some()
    }
}

impl Streamable {
    /// Reads the standing stream of `session`, if it is one, in a task that ends with it.
    pub(super) fn listen(self: &Arc<Self>, rpc: &Arc<Rpc>, session: &Session) {
        if session.id.is_none() {
            return;
        }
        let (streamable, carrier, session) = (Arc::clone(self), Arc::clone(rpc), session.clone());
        rpc.spawn(async move {
            let standing = streamable.read_standing(&carrier, &session);
            session.replaced.run_until_cancelled(standing).await;
        });
    }

    async fn read_standing(&self, rpc: &Arc<Rpc>, session: &Session) {
        let kind = StreamKind::Standing;
        let mut place = Place::default();
        let mut next = self.open(rpc, session, kind, &place).await.ok().flatten();
        while let Some(mut source) = next.take() {
            let end = loop {
                match source.next().await {
                    Next::Frame(frame) => {
                        self.streams.lock().came(kind, &frame);
                        place.note(&frame);
                        rpc.has_room().await;
                        take_message(frame.fields(), rpc, None);
                    }
                    // The stream would bring the same oversized event again.
                    Next::NotRead(why, _) => return unread(rpc, &why.to_string()),
                    Next::Broken(_) => break End::Broken,
                    Next::End => break End::Whole,
                }
            };
            self.streams.lock().ended(kind);
            next = self.reopen(rpc, session, kind, &mut place, end).await;
        }
    }

    /// Opens the stream that continues one of this `kind` at `place`; `None` if there is none.
    pub(super) async fn reopen(
        &self,
        rpc: &Arc<Rpc>,
        session: &Session,
        kind: StreamKind,
        place: &mut Place,
        end: End,
    ) -> Option<Source> {
        let mut wait = match end {
            End::Broken => Duration::ZERO,
            End::Whole => place.retry.take().unwrap_or(RETRY),
        };
        let mut own_wait = RETRY;
        for _failure in 0..MAX_FAILURES {
            sleep(wait).await;
            if let Ok(source) = self.open(rpc, session, kind, place).await {
                return source;
            }
            own_wait = (own_wait * 2).min(LONGEST_RETRY_WAIT);
            wait = place.retry.unwrap_or_default().max(own_wait);
        }
        None
    }

    /// Opens a stream of this `kind` at `place`; `None` if the server has none, which is up to it.
    async fn open(
        &self,
        rpc: &Rpc,
        session: &Session,
        kind: StreamKind,
        place: &Place,
    ) -> Result<Option<Source>, HttpFailure> {
        let wait = self.streams.lock().next_wait(kind, Instant::now());
        sleep(wait).await;
        if !rpc.listens && kind == StreamKind::Standing {
            return Ok(None);
        }
        let mut headers = self.headers_in(session);
        headers.insert(ACCEPT, EVENTS);
        if let Some(id) = &place.id {
            let id = HeaderValue::from_str(id).map_err(|_invalid| {
                let why = "the server sent an id that no header can carry";
                HttpFailure::Unreadable(why.to_owned())
            })?;
            headers.insert(LAST_EVENT_ID, id);
        }
        let outcome = self.get(headers).await;
        if session.replaced.is_cancelled() {
            return Ok(None);
        }
        let response = outcome.inspect_err(|failure| {
            let is_lost = matches!(failure, HttpFailure::NoSession(_));
            if is_lost || self.streams.lock().failed(kind) {
                rpc.lose(format!("the server is gone: {failure}"));
            }
        })?;
        let status = response.status();
        let mut streams = self.streams.lock();
        if !status.is_success() || !is_events(&response) {
            let is_refused = status.is_client_error() && session.id.is_some();
            if is_refused && streams.was_opened(StreamKind::Standing) {
                rpc.lose(format!("the server ended the session (HTTP {status})"));
            }
            return Ok(None);
        }
        streams.opened(kind);
        Ok(Some(Source::new(response)))
    }

    /// Sends a GET for a stream, and again after each pause that the server asks for.
    async fn get(&self, headers: HeaderMap) -> Result<reqwest::Response, HttpFailure> {
        loop {
            let url = &self.endpoint.url;
            let sent = self.endpoint.request(Method::GET, url, headers.clone(), Body::default());
            match sent.await {
                Err(HttpFailure::Paused(pause)) => sleep_until(pause.end).await,
                outcome => return outcome,
            }
        }
    }
}

/// Reads the event stream with which the server answered `notifications/initialized`, in a task. It
/// may carry what else comes on the standing stream, and some servers end the session with it.
pub(super) fn read_left_open(rpc: &Arc<Rpc>, response: reqwest::Response) {
    let carrier = Arc::clone(rpc);
    rpc.spawn(async move {
        let mut source = Source::new(response);
        loop {
            match source.next().await {
                Next::Frame(frame) => {
                    carrier.has_room().await;
                    take_message(frame.fields(), &carrier, None);
                }
                Next::NotRead(why, _) => return unread(&carrier, &why.to_string()),
                Next::Broken(_) | Next::End => return,
            }
        }
    });
}

/// Gives up the connection for an event that is not read.
fn unread(rpc: &Rpc, why: &str) {
    tracing::warn!(backend = %rpc.backend, "an event cannot be read: {why}; reconnecting");
    rpc.lose(format!("the server sent an event that is not read: {why}"));
}

/// How many milliseconds the server asks the client to wait before it reconnects.
pub(super) fn retry(frame: &Frame) -> Option<u64> {
    let text = std::str::from_utf8(&frame.raw).ok()?;
    let mut lines = text.split(['\n', '\r']);
    let wait: u64 = lines.find_map(|line| line.strip_prefix("retry:")?.trim().parse().ok())?;
    Some(wait.clamp(SHORTEST_RETRY, LONGEST_RETRY))
}
