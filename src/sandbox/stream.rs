//! `GET agent-runs/{id}/stream` (agent-runs-protocol §7): the log from a position on, and then new
//! events.
//!
//! Must not: hold events back for, or because of, another reader.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, stream};
use http::{HeaderMap, Response, header};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{Body, Refusal, Run};

/// How many bytes of the log are copied at once for a reader that is behind.
const BATCH: usize = 64 * 1024;

/// One reader of a run.
#[derive(Debug)]
struct Reader {
    run: Arc<Run>,
    /// The last event that was sent.
    seq: u64,
    news: watch::Receiver<u64>,
    heartbeat: Duration,
    stop: CancellationToken,
}

/// The response: the events after `seq`; the connection ends after the terminal one.
pub(super) fn respond(
    run: Arc<Run>,
    seq: u64,
    heartbeat: Duration,
    stop: CancellationToken,
) -> Response<Body> {
    let news = run.last.subscribe();
    let reader = Reader { run, seq, news, heartbeat, stop };
    let chunks = stream::unfold(Some(reader), |reader| async {
        let (bytes, reader) = reader?.next().await?;
        Some((Ok(Frame::data(bytes)), reader))
    });
    event_stream(chunks)
}

/// The response with an event stream, which ends with its connection.
pub(super) fn event_stream(
    chunks: impl Stream<Item = Result<Frame<Bytes>, Infallible>> + Send + 'static,
) -> Response<Body> {
    Response::builder()
        .header(header::CONTENT_TYPE, "text/event-stream; charset=utf-8")
        .header(header::CACHE_CONTROL, "no-cache, no-transform")
        .header(header::CONNECTION, "close")
        .body(StreamBody::new(chunks).boxed_unsync())
        .expect("the headers are valid")
}

impl Reader {
    /// The next bytes, and the reader if more follow.
    async fn next(mut self) -> Option<(Bytes, Option<Self>)> {
        loop {
            // Marked as seen before the read: an event that is appended in between counts as news
            // again.
            self.news.borrow_and_update();
            let batch = self.run.after(self.seq, BATCH);
            self.seq = batch.last;
            if !batch.bytes.is_empty() {
                let rest = if batch.is_end { None } else { Some(self) };
                return Some((batch.bytes, rest));
            }
            if batch.is_end {
                return None;
            }
            tokio::select! {
                // The run holds the sender, and the reader holds the run, so the channel cannot
                // close here.
                _ = self.news.changed() => (),
                () = self.stop.cancelled() => return None,
                () = sleep(self.heartbeat) => {
                    return Some((Bytes::from_static(b": keep-alive\n\n"), Some(self)));
                }
            }
        }
    }
}

/// The `seq` after which a reader wants to read. `?lastSeq=` wins over `Last-Event-ID`: the
/// protocol's document prefers it, and a proxy or a browser's own retry may add the header by
/// itself.
pub(super) fn place(query: &str, headers: &HeaderMap) -> Result<u64, Refusal> {
    let mut pairs = url::form_urlencoded::parse(query.as_bytes());
    if let Some((_, value)) = pairs.find(|(key, _)| key == "lastSeq") {
        return value.parse().map_err(|_error| {
            Refusal::from(format!("lastSeq: must be an integer from 0, not {value:?}"))
        });
    }
    let last = headers.get("last-event-id").and_then(|value| value.to_str().ok());
    Ok(last.and_then(|id| id.trim().parse().ok()).unwrap_or(0))
}
