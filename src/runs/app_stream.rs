//! A run's events as one app reads them: out of the run's log, and out of MANTYX's own replay where
//! the app asks for what the log has dropped. Calls of the bridge's are masked in both.
//!
//! Must not: hold the driver or another app up. A reader pulls; one that falls behind is ended and
//! resumes by `seq`.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{Stream, stream};
use tokio::{sync::watch, time::timeout};
use tracing::{debug, info, warn};

use super::{
    DrivenRun, Runs,
    driver::{self, MAX_EVENT},
    log::{Cursor, Read},
    mask::masked,
};
use crate::{http_client, model::event::Body, upstream::OpenError, wire::sse::Framer};

/// How often a silent stream shows the app that it lives.
const HEARTBEAT: Duration = Duration::from_secs(15);
const HEARTBEAT_FRAME: Bytes = Bytes::from_static(b": ping\n\n");

/// The stream of one app.
struct AppStream {
    runs: Arc<Runs>,
    run: Arc<DrivenRun>,
    wake: watch::Receiver<()>,
    from: From,
}

/// Where the next events come from.
enum From {
    Log(Cursor),
    Replay(Box<Replay>),
    Ended,
}

/// MANTYX's own replay, until it has caught up with the log.
struct Replay {
    response: reqwest::Response,
    framer: Framer,
    seq: u64,
    /// Whether MANTYX has closed it.
    ended: bool,
}

/// The events of `run` behind `last_seq`. The error is one of opening MANTYX's replay.
pub async fn open(
    runs: &Arc<Runs>,
    run: Arc<DrivenRun>,
    last_seq: u64,
) -> Result<impl Stream<Item = Bytes> + Send + 'static, OpenError> {
    let wake = run.log.subscribe();
    let from = match run.log.after(last_seq) {
        Some(cursor) => From::Log(cursor),
        None => {
            debug!(run = %run.key.run, last_seq, "an app reads events that only MANTYX still has");
            let path = run.key.stream_path();
            let authority = runs.authority_of(&run);
            let response = runs.upstream().open_stream(&path, last_seq, &authority).await?;
            let framer = Framer::new(MAX_EVENT);
            From::Replay(Box::new(Replay { response, framer, seq: last_seq, ended: false }))
        }
    };
    runs.metrics.app_streams.inc();
    let this = AppStream { runs: Arc::clone(runs), run, wake, from };
    Ok(stream::unfold(this, |mut this| async move {
        let bytes = this.next().await?;
        Some((bytes, this))
    }))
}

impl Drop for AppStream {
    fn drop(&mut self) {
        self.runs.metrics.app_streams_closed.inc();
    }
}

impl AppStream {
    async fn next(&mut self) -> Option<Bytes> {
        let draining = self.runs.draining().clone();
        loop {
            let step = async {
                match &mut self.from {
                    From::Ended => Turn::To(From::Ended),
                    From::Log(cursor) => read_log(&self.run, cursor, &mut self.wake).await,
                    From::Replay(replay) => read_replay(&self.run, replay).await,
                }
            };
            let turn = tokio::select! {
                biased;
                turn = timeout(HEARTBEAT, step) => turn,
                () = draining.cancelled() => return None,
            };
            match turn {
                Err(_elapsed) => return Some(HEARTBEAT_FRAME),
                Ok(Turn::Bytes(bytes)) => return Some(bytes),
                Ok(Turn::To(From::Ended)) => return None,
                Ok(Turn::Last(bytes)) => {
                    self.from = From::Ended;
                    return Some(bytes);
                }
                Ok(Turn::To(from)) => self.from = from,
                Ok(Turn::Behind(seq)) => {
                    self.runs.metrics.app_streams_slow.inc();
                    info!(
                        run = %self.run.key.run, app = %self.run.app, seq,
                        "an app reads too slowly; its stream is closed and can be resumed"
                    );
                    return None;
                }
            }
        }
    }
}

enum Turn {
    Bytes(Bytes),
    /// These, and then the end.
    Last(Bytes),
    /// The app has not read as fast as events came; it has them up to this one.
    Behind(u64),
    To(From),
}

/// May be dropped while it waits: the cursor moves only with bytes handed out.
async fn read_log(run: &DrivenRun, cursor: &mut Cursor, wake: &mut watch::Receiver<()>) -> Turn {
    loop {
        wake.mark_unchanged();
        match run.log.read(cursor) {
            Read::Frames(bytes) => return Turn::Bytes(bytes),
            Read::End => return Turn::To(From::Ended),
            Read::Behind => return Turn::Behind(cursor.seq),
            Read::Pending => {
                if wake.changed().await.is_err() {
                    return Turn::To(From::Ended);
                }
            }
        }
    }
}

/// May be dropped while it waits: `chunk` loses nothing, and nothing is held beside the framer.
async fn read_replay(run: &DrivenRun, replay: &mut Replay) -> Turn {
    loop {
        let mut out = Vec::new();
        loop {
            let frame = match replay.framer.next_frame() {
                Ok(Some(frame)) => frame,
                Ok(None) if replay.ended => match replay.framer.end() {
                    Some(frame) => frame,
                    None => break,
                },
                Ok(None) => break,
                Err(error) => {
                    warn!(run = %run.key.run, %error, "an event of MANTYX is left out of a replay");
                    continue;
                }
            };
            let Some(event) = driver::read(run, &frame) else { continue };
            if event.seq.is_some_and(|seq| seq <= replay.seq) {
                continue;
            }
            replay.seq = event.seq.unwrap_or(replay.seq);
            match &event.body {
                Body::Call(call) if run.table.claims(call).is_some() => {
                    out.extend_from_slice(&masked(run.key.kind, event.seq, call).raw);
                }
                Body::End(kind) if *kind == run.key.kind => {
                    out.extend_from_slice(&frame.raw);
                    return Turn::Last(out.into());
                }
                Body::Call(_) | Body::Answered(..) | Body::End(_) | Body::Other => {
                    out.extend_from_slice(&frame.raw);
                }
            }
        }
        if !out.is_empty() {
            return Turn::Bytes(out.into());
        }
        if let Some(cursor) = run.log.after(replay.seq) {
            return Turn::To(From::Log(cursor));
        }
        if replay.ended {
            return Turn::To(From::Ended);
        }
        match replay.response.chunk().await {
            Ok(Some(chunk)) => replay.framer.push(&chunk),
            // A last frame may wait for its line feed.
            Ok(None) => replay.ended = true,
            Err(error) => {
                let error = http_client::chain(&error.without_url());
                debug!(run = %run.key.run, error, "a replay broke off");
                return Turn::To(From::Ended);
            }
        }
    }
}
