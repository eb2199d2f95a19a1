//! A run's events as one app reads them: out of the run's log, or out of MANTYX's own replay if the
//! app asks for events that the log has dropped. In both, calls for the bridge are masked.
//!
//! Must not: hold up the driver or another app. A reader pulls; one that falls behind is closed and
//! resumes by `seq`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, OptionFuture};
use futures_util::{Stream, stream};
use reqwest::Response;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{debug, info, warn};

use super::driver::{MAX_EVENT, SILENCE};
use super::log::{Cursor, Read};
use super::mask::masked;
use super::{Access, DrivenRun, Ownership, RunContext, StreamFailure, driver};
use crate::budget::{Budget, Held};
use crate::error_chain::error_chain;
use crate::model::AppName;
use crate::model::event::{Beginning, Body};
use crate::model::replay::Unnumbered;
use crate::sse::Framer;
use crate::sse::blank_line::BlankLine;
use crate::upstream::OpenError;

/// If MANTYX refuses the run's stream, an app's open stream stays open this long, as the driver
/// keeps trying. Then it is closed, so that the app's next request gets MANTYX's answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often a silent stream sends a comment, so that the app knows that it lives.
const HEARTBEAT: Duration = Duration::from_secs(15);
const HEARTBEAT_FRAME: Bytes = Bytes::from_static(b": ping\n\n");

/// The stream of one app.
struct AppStream {
    context: Arc<RunContext>,
    ownership: Arc<dyn Ownership>,
    run: Arc<DrivenRun>,
    wake: Wake,
    source: EventSource,
}

/// What wakes a reader of the log.
struct Wake {
    events: watch::Receiver<()>,
    access: watch::Receiver<Access>,
    /// When the app's stream began.
    begun: Instant,
}

impl Wake {
    fn new(run: &DrivenRun) -> Self {
        Self { events: run.log.subscribe(), access: run.access.subscribe(), begun: Instant::now() }
    }

    /// The state of the run's stream. Any later change wakes [`Self::news`].
    fn look(&mut self) -> Access {
        self.events.mark_unchanged();
        self.access.borrow_and_update().clone()
    }

    /// Resolves when the log or the stream's state has changed; `false` if MANTYX has refused the
    /// run's stream for too long. An app's stream that began after the refusal has delivered what
    /// the log had, and ends at once.
    async fn news(&mut self, access: &Access) -> bool {
        let until = access.answer().map(|failure| {
            let patience = if failure.since < self.begun { Duration::ZERO } else { PATIENCE };
            failure.since + patience
        });
        let too_long = OptionFuture::from(until.map(sleep_until));
        tokio::select! {
            changed = self.events.changed() => changed.is_ok(),
            changed = self.access.changed() => changed.is_ok(),
            Some(()) = too_long => false,
        }
    }
}

/// Where the next events come from.
enum EventSource {
    Log(Cursor),
    /// MANTYX's replay is being opened.
    Opening(BoxFuture<'static, Result<Box<Replay>, Arc<StreamFailure>>>),
    Replay(Box<Replay>),
    Ended,
}

/// MANTYX's own replay, until it has caught up with the log.
struct Replay {
    response: Response,
    framer: Framer,
    seq: u64,
    /// The events without a number that the app has already.
    repetitions: Unnumbered,
    ended: bool,
    /// The app has had the beginning of the last event, which comes in pieces.
    last: Option<BlankLine>,
    /// Holds memory of the budget for the unfinished event, until the app has taken it.
    held: Held,
}

impl Replay {
    /// The events of `run` behind `seq` as MANTYX has them, without `repetitions`.
    async fn open(
        context: Arc<RunContext>,
        run: Arc<DrivenRun>,
        seq: u64,
        repetitions: Unnumbered,
    ) -> Result<Box<Self>, Arc<StreamFailure>> {
        debug!(run = %run.key.run, seq, "an app reads events that only MANTYX still has");
        match replay(&context, &run, seq).await {
            Ok(response) => Ok(Box::new(Self::new(&run.app, response, seq, repetitions))),
            Err(error) => Err(Arc::new(StreamFailure { error, since: Instant::now() })),
        }
    }

    fn new(app: &AppName, response: Response, seq: u64, repetitions: Unnumbered) -> Self {
        let held = Budget::of_process().hold_for(Some(app.clone()));
        let framer = Framer::new(MAX_EVENT);
        Self { response, framer, seq, repetitions, ended: false, last: None, held }
    }

    /// Wraps `out` for the app. Its bytes stay charged to the budget until the app has taken them.
    fn hand_out(&mut self, out: Vec<u8>) -> Bytes {
        let mut out_held = self.held.take();
        self.held.follow(self.framer.unfinished().len());
        out_held.follow(out.capacity());
        out_held.pay_for(out)
    }
}

/// Where the events of `run` behind `last_seq` come from. If the log has none yet, this waits until
/// MANTYX has opened the run's stream, or refused it: the app gets MANTYX's refusal as its own
/// answer, and not an empty stream.
async fn begin(
    context: &Arc<RunContext>,
    run: &Arc<DrivenRun>,
    last_seq: u64,
    wake: &mut Wake,
) -> Result<EventSource, Arc<StreamFailure>> {
    let replay =
        |repetitions| Replay::open(Arc::clone(context), Arc::clone(run), last_seq, repetitions);
    loop {
        let access = wake.look();
        let Some(cursor) = run.log.after(last_seq) else {
            return replay(Unnumbered::default()).await.map(EventSource::Replay);
        };
        match run.log.peek(&cursor) {
            Read::Elsewhere => {
                let repetitions = run.state().repetitions();
                return replay(repetitions).await.map(EventSource::Replay);
            }
            Read::Pending | Read::End => {}
            Read::Frames(_) | Read::Behind => return Ok(EventSource::Log(cursor)),
        }
        if let Some(failure) = access.answer() {
            return Err(Arc::clone(failure));
        }
        if !matches!(access, Access::Untried) || run.has_ended() {
            return Ok(EventSource::Log(cursor));
        }
        let draining = context.draining().clone();
        tokio::select! {
            _woken = wake.news(&access) => {}
            () = draining.cancelled() => return Ok(EventSource::Log(cursor)),
        }
    }
}

/// The events of `run` behind `last_seq`.
///
/// # Errors
///
/// MANTYX's refusal of the run's stream.
pub async fn open(
    context: &Arc<RunContext>,
    ownership: Arc<dyn Ownership>,
    run: Arc<DrivenRun>,
    last_seq: u64,
) -> Result<impl Stream<Item = Bytes> + Send + 'static, Arc<StreamFailure>> {
    let mut wake = Wake::new(&run);
    let source = begin(context, &run, last_seq, &mut wake).await?;
    wake.begun = Instant::now();
    context.metrics.app_streams.inc();
    let this = AppStream { context: Arc::clone(context), ownership, run, wake, source };
    Ok(stream::unfold(this, |mut this| async move {
        let bytes = this.next().await?;
        Some((bytes, this))
    }))
}

/// Opens MANTYX's own replay. If the run's credential was refused and the app has shown another one
/// since, this tries once more.
async fn replay(
    context: &RunContext,
    run: &DrivenRun,
    last_seq: u64,
) -> Result<Response, OpenError> {
    let path = run.key.stream_path();
    let credential = context.credential_of(run);
    match context.upstream.open_stream(&path, last_seq, &credential).await {
        Err(error) if error.is_of_the_credential() => {
            run.credential.refuse(&credential);
            let other = context.credential_of(run);
            if other.is_same(&credential) {
                return Err(error);
            }
            context.upstream.open_stream(&path, last_seq, &other).await
        }
        outcome => outcome,
    }
}

impl Drop for AppStream {
    fn drop(&mut self) {
        self.context.metrics.app_streams_closed.inc();
    }
}

impl AppStream {
    /// The next bytes for the app; `None` closes the stream. The future may be dropped at any time,
    /// with the connection: nothing is taken from a source before it is handed out.
    async fn next(&mut self) -> Option<Bytes> {
        let draining = self.context.draining().clone();
        loop {
            // No heartbeat may interrupt an event.
            let inside_event =
                matches!(&self.source, EventSource::Replay(replay) if replay.last.is_some());
            let pause = if inside_event { SILENCE } else { HEARTBEAT };
            let step = async {
                match &mut self.source {
                    EventSource::Ended => Step::To(EventSource::Ended),
                    EventSource::Log(cursor) => read_log(&self.run, cursor, &mut self.wake).await,
                    EventSource::Opening(opening) => match opening.await {
                        Ok(replay) => Step::To(EventSource::Replay(replay)),
                        Err(failure) => {
                            debug!(error = %failure.error, "cannot open a replay");
                            Step::To(EventSource::Ended)
                        }
                    },
                    EventSource::Replay(replay) => match &mut replay.last {
                        Some(blank) => read_last(&mut replay.response, blank).await,
                        None => read_replay(&self.run, replay).await,
                    },
                }
            };
            let turn = tokio::select! {
                biased;
                turn = timeout(pause, step) => turn,
                () = draining.cancelled() => return None,
            };
            match turn {
                Err(_elapsed) if inside_event => return None,
                Err(_elapsed) => {
                    Arc::clone(&self.ownership).claim_guest(&self.run);
                    return Some(HEARTBEAT_FRAME);
                }
                Ok(Step::Bytes(bytes)) => return Some(bytes),
                Ok(Step::To(EventSource::Ended)) => return None,
                Ok(Step::Last(bytes)) => {
                    self.source = EventSource::Ended;
                    return Some(bytes);
                }
                Ok(Step::To(source)) => self.source = source,
                Ok(Step::Elsewhere(seq)) => {
                    let repetitions = self.run.state().repetitions();
                    let context = Arc::clone(&self.context);
                    let run = Arc::clone(&self.run);
                    let opening = Replay::open(context, run, seq, repetitions);
                    self.source = EventSource::Opening(Box::pin(opening));
                }
                Ok(Step::Behind(seq)) => {
                    self.context.metrics.app_streams_slow.inc();
                    info!(
                        run = %self.run.key.run, app = %self.run.app, seq,
                        "an app reads too slowly; closed its stream, which it can resume"
                    );
                    return None;
                }
            }
        }
    }
}

enum Step {
    Bytes(Bytes),
    /// These bytes, and then the end.
    Last(Bytes),
    /// The app reads slower than events come; it has them up to this `seq`.
    Behind(u64),
    /// The app has the events up to this `seq`; the log does not keep the next one.
    Elsewhere(u64),
    To(EventSource),
}

/// May be dropped while it waits: the cursor moves only with bytes handed out.
async fn read_log(run: &DrivenRun, cursor: &mut Cursor, wake: &mut Wake) -> Step {
    loop {
        let access = wake.look();
        match run.log.read(cursor) {
            Read::Frames(bytes) => return Step::Bytes(bytes),
            Read::End => return Step::To(EventSource::Ended),
            Read::Elsewhere => return Step::Elsewhere(cursor.seq),
            Read::Behind => return Step::Behind(cursor.seq),
            Read::Pending => {
                if !wake.news(&access).await {
                    return Step::To(EventSource::Ended);
                }
            }
        }
    }
}

/// May be dropped while it waits.
async fn read_last(response: &mut Response, blank: &mut BlankLine) -> Step {
    match response.chunk().await {
        Ok(Some(mut chunk)) => match blank.end_in(&chunk) {
            Some(end) => {
                chunk.truncate(end);
                Step::Last(chunk)
            }
            None => Step::Bytes(chunk),
        },
        Ok(None) | Err(_) => Step::To(EventSource::Ended),
    }
}

/// Whether the event, which is too large and of which this is the beginning, is the last one of
/// `run`.
fn is_last(run: &DrivenRun, framer: &Framer) -> bool {
    let fields = framer.beginning().fields();
    let data = fields.data.unwrap_or_default();
    let beginning = Beginning::read(fields.id.as_deref(), fields.event.as_deref(), &data);
    match beginning.event.body {
        Body::End(kind, _) => kind == run.key.kind,
        // The beginning does not tell its kind, but the run is over and its log lacks the last
        // event.
        _ => !beginning.names_type && run.log.has_left_last(),
    }
}

/// The next events of MANTYX's replay that the app does not have, with the bridge's calls masked as
/// in the log: an app that reads the past must not answer them either.
///
/// As soon as the log has the next event, the reader changes over to it. Two readers of one stream
/// would cost MANTYX a connection for each app.
///
/// May be dropped while it waits: `chunk` loses nothing, and all bytes so far are in the framer.
async fn read_replay(run: &DrivenRun, replay: &mut Replay) -> Step {
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
                Err(_) if is_last(run, &replay.framer) => {
                    // The event has megabytes, which are copied only if other bytes come before
                    // them.
                    let rest = replay.framer.take_rest();
                    let bytes = if out.is_empty() { rest } else { [out, rest].concat() };
                    let bytes = replay.hand_out(bytes);
                    replay.last.get_or_insert_default().end_in(&bytes);
                    return Step::Bytes(bytes);
                }
                Err(error) => {
                    warn!(run = %run.key.run, %error, "skipping an event of MANTYX in a replay");
                    continue;
                }
            };
            let Some(event) = driver::read(run, &frame) else { continue };
            let is_end = matches!(event.body, Body::End(kind, _) if kind == run.key.kind);
            let repeated = match (event.seq, event.print) {
                (Some(seq), _) => seq <= replay.seq,
                // Only the driver has read the last event: no app has it if it is read here.
                (None, Some(print)) => replay.repetitions.repeats(print) && !is_end,
                (None, None) => false,
            };
            if repeated {
                continue;
            }
            replay.seq = event.seq.unwrap_or(replay.seq);
            match &event.body {
                Body::Call(call) if run.table.route_of_call(call).is_some() => {
                    out.extend_from_slice(&masked(run.key.kind, event.seq, call).raw);
                }
                Body::End(..) if is_end => {
                    out.extend_from_slice(&frame.raw);
                    return Step::Last(replay.hand_out(out));
                }
                Body::Call(_) | Body::Answered(..) | Body::End(..) | Body::Other => {
                    out.extend_from_slice(&frame.raw);
                }
            }
        }
        if !out.is_empty() {
            return Step::Bytes(replay.hand_out(out));
        }
        if !run.log.has_left_last()
            && let Some(cursor) = run.log.after(replay.seq)
        {
            return Step::To(EventSource::Log(cursor));
        }
        if replay.ended {
            return Step::To(EventSource::Ended);
        }
        match replay.response.chunk().await {
            Ok(Some(chunk)) => {
                replay.framer.push(&chunk);
                if let Err(error) = replay.held.keep_up(replay.framer.unfinished().len()).await {
                    info!(run = %run.key.run, %error, "closed a replay; the app can resume it");
                    return Step::To(EventSource::Ended);
                }
            }
            // The last frame may still lack its line feed.
            Ok(None) => replay.ended = true,
            Err(error) => {
                let error = error_chain(&error.without_url());
                debug!(run = %run.key.run, error, "a replay broke off");
                return Step::To(EventSource::Ended);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    //! What a replay holds, and who waits for it.

    use futures_util::FutureExt as _;

    use super::*;
    use crate::budget::tests::{quiet_after, without_room};
    use crate::runs::log::Room;
    use crate::runs::tests::{credential, run};

    fn event(size: usize) -> Vec<u8> {
        format!("id: 2\nevent: delta\ndata: \"{}\"\n\n", "x".repeat(size)).into_bytes()
    }

    fn replay(event: &[u8]) -> Replay {
        let (first, second) = event.split_at(event.len() - 5);
        let pieces = vec![first.to_vec(), second.to_vec()];
        Replay::new(&"a".into(), quiet_after(pieces), 0, Unnumbered::default())
    }

    #[tokio::test]
    async fn bytes_of_a_replay_are_paid_for_until_the_app_takes_them() {
        let run = run(credential(), "run", &Room::default());
        run.log.forget();
        let event = event(7 << 20);
        let budget = Budget::with_room(10 << 20);
        Budget::instead(&budget, async {
            let mut replay = replay(&event);
            let Step::Bytes(bytes) = read_replay(&run, &mut replay).await else {
                panic!("an event")
            };
            assert_eq!((bytes.len(), budget.used()), (event.len(), event.len()));
            drop(bytes);
            assert_eq!(budget.used(), 0);
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_replay_waits_for_room_and_ends_where_none_comes() {
        let run = run(credential(), "run", &Room::default());
        run.log.forget();
        without_room(async {
            let mut replay = replay(&event(7 << 20));
            assert!(read_replay(&run, &mut replay).now_or_never().is_none(), "it waits");
            let ended = read_replay(&run, &mut replay).await;
            assert!(matches!(ended, Step::To(EventSource::Ended)), "the app can resume it");
        })
        .await;
    }
}
