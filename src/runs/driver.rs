//! Drives one run: reads its stream to the end, whatever breaks in between, and has its calls
//! answered. One task per run, one more per call.
//!
//! What counts as the present of a run that was attached: the stream is open and has brought
//! nothing for [`QUIET`], as a run that waits for a tool is quiet; or it has been read for
//! [`PAST_WITHIN`], as a run that does not wait may never be.
//!
//! Must not: wait for an app, or stop reading because a call is slow.

mod tasks;

use std::{collections::HashSet, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::StatusCode;
use serde::Deserialize;
use tokio::{
    task::{JoinError, JoinSet},
    time::{Instant, sleep_until, timeout},
};
use tracing::{debug, error, info, warn};

use super::{
    Access, DrivenRun, Runs,
    answer::{self, Task},
    call_recorder::CallRecorder,
    mask::masked,
};
use crate::{
    backoff::Backoff,
    budget::{self, Budget},
    error_chain::error_chain,
    journal::record::Change,
    metrics::RunEnding,
    model::{
        event::{self, Beginning, Call, Event},
        ids::{RunId, RunKind},
        run::Step,
    },
    sse::{Frame, Framer},
    upstream::{Authority, OpenError},
};

/// The largest event that is read.
pub(super) const MAX_EVENT: usize = 8 << 20;
/// A stream that is silent for so long is opened anew: the connection may be dead without a sign,
/// and MANTYX documents no heartbeat.
pub(super) const SILENCE: Duration = Duration::from_secs(60);
/// A stream that was open for so long was no failed attempt, even if it brought nothing.
const LIVED: Duration = Duration::from_secs(5);
/// So many answers "no such run" in a row end the driver; one alone may be a replica that lags. Of a
/// run that was given up before, one is enough.
const UNKNOWN_RUN_LIMIT: u32 = 5;
/// A run whose stream could not be opened for so long is given up.
const GIVE_UP: Duration = Duration::from_secs(60 * 60);
/// A replay that pauses for so long has reached the present.
const QUIET: Duration = Duration::from_secs(1);
/// The longest that calls are held because the past may hold their answers: far less than MANTYX
/// waits for a result.
const PAST_WITHIN: Duration = Duration::from_secs(15);
/// The same two of a run whose past is lost: a call that is taken for a new one may be made twice,
/// and MANTYX waits for minutes.
const LOST_QUIET: Duration = Duration::from_secs(5);
const LOST_PAST_WITHIN: Duration = Duration::from_secs(60);

/// Why a stream ended.
enum End {
    /// The run has ended.
    Terminal(RunEnding),
    Drain,
    Broken(String),
    Refused(OpenError),
}

/// The driver of one run.
struct Driver {
    runs: Arc<Runs>,
    run: Arc<DrivenRun>,
    calls: JoinSet<()>,
    backoff: Backoff,
    /// When the past counts as read, once its stream is open.
    past_until: Option<Instant>,
    /// Whether the open stream has brought anything new.
    news: bool,
    /// Whether it has brought an event that is too large, and of which nothing is known.
    riddle: bool,
    /// How many answers "no such run" have come in a row.
    unknown: u32,
    /// Whether a stream was opened before.
    has_read: bool,
    /// Calls that are answered when the past has been read. Where that is lost, an answer has to wait:
    /// it would bring the run's next call, which could not be told from one of the past.
    left: Vec<(Arc<CallRecorder>, Task)>,
    /// The agent runs that the stream of an eval has named.
    named: HashSet<RunId>,
}

/// Drives `run` until it ends or the daemon goes down.
///
/// `left` are the calls that an earlier process left and that need not wait for what the stream says.
/// The run may have been given up before.
pub(super) async fn drive(
    runs: Arc<Runs>,
    run: Arc<DrivenRun>,
    left: Vec<(Arc<CallRecorder>, Task)>,
    is_revived: bool,
) {
    let mut driver = Driver {
        runs,
        run,
        calls: JoinSet::new(),
        backoff: Backoff::for_connections(),
        past_until: None,
        news: false,
        riddle: false,
        unknown: if is_revived { UNKNOWN_RUN_LIMIT - 1 } else { 0 },
        has_read: is_revived,
        left,
        named: HashSet::new(),
    };
    if !driver.run.state().past_is_lost() {
        driver.answer_left();
    }
    let handed_over = driver.run.handed_over.clone();
    let why = tokio::select! {
        why = driver.read_to_the_end() => why,
        () = handed_over.cancelled() => Why::HandedOver,
    };
    let Driver { runs, run, mut calls, .. } = driver;
    runs.metrics.ended.of(why.ending()).inc();
    info!(run = %run.key.run, "{}", why.words());
    if why == Why::GivenUp {
        // The run stays known, so that no call of it is ever made again.
        runs.give_up(&run);
        runs.tell(&run);
        return;
    }
    run.set_ended();
    runs.tell(&run);
    let has_ended = matches!(why, Why::Ended(_));
    if has_ended {
        // Nobody waits for these answers any more.
        run.end_calls();
        run.take_unwanted().iter().for_each(|recorder| recorder.close());
        runs.calls.forget_run(&run.key);
    }
    run.log.end();
    while let Some(ended) = calls.join_next().await {
        note(&run, ended);
    }
    if has_ended {
        let mut changes = run.changes();
        if !runs.may_be_driven_by_others(&run) {
            changes.push(Change::ForgetCalls(run.slot));
        }
        runs.journal.write(changes);
    }
}

/// Looks at how the task of a call has ended. What panics while it makes the call is an answer; this
/// is about the rest.
fn note(run: &DrivenRun, ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        error!(run = %run.key.run, %error, "the task of a call failed; its answer may not be posted");
    }
}

/// Why a driver stopped.
#[derive(Debug, PartialEq, Eq)]
enum Why {
    Ended(RunEnding),
    ShuttingDown,
    GivenUp,
    /// It is another app's, and is driven for that one.
    HandedOver,
}

impl Why {
    fn ending(&self) -> RunEnding {
        match self {
            Self::Ended(ending) => *ending,
            Self::ShuttingDown => RunEnding::Left,
            Self::GivenUp | Self::HandedOver => RunEnding::GivenUp,
        }
    }

    fn words(&self) -> &'static str {
        match self {
            Self::Ended(_) => "the run has ended",
            Self::ShuttingDown => "the run is left as it is, for the bridge is going down",
            Self::GivenUp => "the run is not driven any more",
            Self::HandedOver => "the run is another app's, and not driven for this one any more",
        }
    }
}

impl Driver {
    async fn read_to_the_end(&mut self) -> Why {
        let mut opened = Instant::now();
        loop {
            let begun = Instant::now();
            let shown = self.run.credential.current();
            // Without its driver, no call of the run would be answered any more.
            let end = AssertUnwindSafe(self.read_stream()).catch_unwind().await;
            let end = end.unwrap_or_else(|_panic| {
                error!(run = %self.run.key.run, "the reading of the run's stream panicked; again");
                End::Broken("the reading panicked".to_owned())
            });
            let mut is_lost = false;
            let wait = match end {
                End::Terminal(ending) => return Why::Ended(ending),
                End::Drain => return Why::ShuttingDown,
                End::Broken(why) => {
                    self.run.set_access(Access::Broken);
                    opened = Instant::now();
                    if opened > begun + LIVED {
                        self.backoff.reset();
                    }
                    if let Some(ending) = self.is_over().await {
                        if self.riddle {
                            self.run.log.leave_last();
                        }
                        return Why::Ended(ending);
                    }
                    debug!(run = %self.run.key.run, why, "the stream broke; resuming");
                    self.backoff.next_wait()
                }
                // Another credential is known, and tried at once; each is tried once.
                End::Refused(error)
                    if error.is_of_the_credential()
                        && !self.run.credential.current().is_same(&shown) =>
                {
                    continue;
                }
                End::Refused(error) => {
                    warn!(run = %self.run.key.run, %error, "the run's stream cannot be read");
                    is_lost = self.is_lost(&error) || begun > opened + GIVE_UP;
                    let asked = match &error {
                        OpenError::Refused(refusal) => refusal.retry_after(),
                        _ => Duration::ZERO,
                    };
                    self.run.is_failing(error);
                    self.backoff.next_wait().max(asked)
                }
            };
            if let Some(why) = self.pause(wait, is_lost, &shown).await {
                return why;
            }
        }
    }

    /// Whether there is no hope for the stream, as MANTYX has refused it so.
    fn is_lost(&mut self, error: &OpenError) -> bool {
        match error.status() {
            Some(StatusCode::GONE) => true,
            Some(StatusCode::NOT_FOUND) => {
                self.unknown += 1;
                self.unknown >= UNKNOWN_RUN_LIMIT
            }
            _ => false,
        }
    }

    /// Waits until the next attempt. A run that is lost is given up, but not before its calls have been
    /// answered: MANTYX may know it where results are posted, or may show it again meanwhile.
    /// Another credential than `shown` is tried at once.
    async fn pause(&mut self, wait: Duration, is_lost: bool, shown: &Authority) -> Option<Why> {
        let next = Instant::now() + wait;
        let draining = self.runs.draining().clone();
        if is_lost {
            // They waited for a past that is not going to be read.
            self.answer_left();
        }
        loop {
            self.note_ended();
            if is_lost && self.calls.is_empty() {
                error!(run = %self.run.key.run, "giving the run up");
                return Some(Why::GivenUp);
            }
            tokio::select! {
                () = sleep_until(next) => return None,
                () = self.run.credential.other_than(shown) => return None,
                () = draining.cancelled() => return Some(Why::ShuttingDown),
                Some(ended) = self.calls.join_next() => note(&self.run, ended),
            }
        }
    }

    /// Finished calls give their memory back.
    fn note_ended(&mut self) {
        while let Some(ended) = self.calls.try_join_next() {
            note(&self.run, ended);
        }
    }

    /// How the run has ended, if MANTYX says that it has, though its stream does not. The events of
    /// an eval need not be replayed: where the stream broke before the last one, it never comes. And
    /// the last event of any run may be too large.
    async fn is_over(&self) -> Option<RunEnding> {
        #[derive(Deserialize)]
        struct Snapshot {
            status: String,
        }
        let (key, authority) = (&self.run.key, self.runs.authority_of(&self.run));
        let is_doubtful = self.riddle || !self.news && key.kind == RunKind::Eval;
        if !is_doubtful {
            return None;
        }
        let path = key.path();
        let snapshot = async {
            let upstream = self.runs.upstream();
            let answer = upstream.ask(&path, &authority).await.ok()?;
            let text = upstream.text(answer).await.ok()?;
            serde_json::from_slice::<Snapshot>(&text).ok()
        };
        let snapshot = tokio::select! {
            snapshot = snapshot => snapshot,
            () = self.runs.draining().cancelled() => None,
        };
        match snapshot?.status.as_str() {
            "succeeded" => Some(RunEnding::Result),
            "failed" => Some(RunEnding::Error),
            "cancelled" => Some(RunEnding::Cancelled),
            _ => None,
        }
    }

    /// Opens the stream where the last one broke.
    async fn open_stream(&mut self) -> Result<reqwest::Response, End> {
        let path = self.run.key.stream_path();
        let last_seq = self.run.state().last_seq();
        let draining = self.runs.draining().clone();
        let authority = self.runs.authority_of(&self.run);
        let open = self.runs.upstream().open_stream(&path, last_seq, &authority);
        if std::mem::replace(&mut self.has_read, true) {
            self.runs.metrics.reconnects.inc();
        }
        let opened = tokio::select! {
            opened = timeout(SILENCE, open) => opened,
            () = draining.cancelled() => return Err(End::Drain),
        };
        match opened {
            Ok(Ok(response)) => {
                self.run.credential.works(&authority);
                Ok(response)
            }
            Ok(Err(error)) => {
                if error.is_of_the_credential() {
                    self.run.credential.refuse(&authority);
                }
                Err(End::Refused(error))
            }
            Err(_elapsed) => {
                let error = format!("no answer within {SILENCE:?}");
                Err(End::Refused(OpenError::Unreachable(error)))
            }
        }
    }

    /// Opens the stream, and reads it.
    async fn read_stream(&mut self) -> End {
        // What is bounded is the reading of one stream: a break tells nothing of the past.
        (self.news, self.riddle, self.past_until) = (false, false, None);
        let draining = self.runs.draining().clone();
        let mut response = match self.open_stream().await {
            Ok(response) => response,
            Err(end) => return end,
        };
        let mut framer = Framer::new(MAX_EVENT);
        let mut held = Budget::of_process().hold();
        self.run.state().opened();
        self.run.set_access(Access::Open);
        self.unknown = 0;
        for recorder in self.run.take_unwanted() {
            info!(run = %self.run.key.run, "MANTYX knows the run again; an answer is posted again");
            self.answer(recorder.call(), Task::PostAgain, recorder);
        }
        loop {
            tokio::select! {
                () = self.runs.journal.has_room() => (),
                () = draining.cancelled() => return End::Drain,
            }
            let patience = self.patience(&framer);
            let chunk = tokio::select! {
                chunk = timeout(patience, response.chunk()) => chunk,
                () = draining.cancelled() => return End::Drain,
            };
            self.note_ended();
            match chunk {
                Ok(Ok(Some(chunk))) => {
                    framer.push(&chunk);
                    held.follow(framer.unfinished().len());
                }
                Ok(Ok(None)) => {
                    if let Some(ending) = framer.end().and_then(|frame| self.take(&frame)) {
                        return End::Terminal(ending);
                    }
                    return End::Broken("MANTYX closed it".to_owned());
                }
                Ok(Err(error)) => return End::Broken(error_chain(&error.without_url())),
                Err(_elapsed) if patience < SILENCE => {
                    self.settle();
                    continue;
                }
                Err(_elapsed) => return End::Broken(format!("silent for {SILENCE:?}")),
            }
            let ended = loop {
                match framer.next_frame() {
                    Ok(Some(frame)) => {
                        if let Some(ending) = self.take(&frame) {
                            break Some(End::Terminal(ending));
                        }
                    }
                    Ok(None) => break None,
                    Err(error) => {
                        if let Some(ending) = self.take_beginning(&framer) {
                            break Some(End::Terminal(ending));
                        }
                        error!(run = %self.run.key.run, %error, "an event of MANTYX is skipped");
                    }
                }
            };
            self.run.log.flush();
            held.follow(framer.unfinished().len());
            if let Some(end) = ended {
                return end;
            }
            if self.past_until.is_some_and(|until| Instant::now() >= until) {
                self.settle();
            }
        }
    }

    /// How long the next bytes may take; less than [`SILENCE`] while the past is being read.
    fn patience(&mut self, framer: &Framer) -> Duration {
        if !self.run.state().has_past() {
            return SILENCE;
        }
        let (quiet, within) = match self.run.state().past_is_lost() {
            true => (LOST_QUIET, LOST_PAST_WITHIN),
            false => (QUIET, PAST_WITHIN),
        };
        let now = Instant::now();
        let until = *self.past_until.get_or_insert(now + within);
        let left = until.saturating_duration_since(now);
        // Half an event is no pause.
        if framer.is_inside_frame() { left } else { left.min(quiet) }
    }

    /// Answers what an earlier process left.
    fn answer_left(&mut self) {
        for (recorder, task) in std::mem::take(&mut self.left) {
            self.answer(recorder.call(), task, recorder);
        }
    }

    /// The past has been read: what it left open is done.
    fn settle(&mut self) {
        self.past_until = None;
        let held = self.run.state().settle();
        debug!(run = %self.run.key.run, open = held.len(), "the run's past has been read");
        self.runs.tell(&self.run);
        let mut changes = self.run.changes();
        let tasks = self.tasks(held, &mut changes);
        // What the past has answered in the meantime.
        changes.extend(self.run.take_left().iter().flat_map(|recorder| recorder.closed()));
        // In one piece: what is behind the events that were read is either all kept or not at all.
        self.runs.journal.write(changes);
        self.answer_left();
        for (call, task, recorder) in tasks {
            self.answer(call, task, recorder);
        }
    }

    /// Takes in one frame; how the run has ended, where it has with it.
    fn take(&mut self, frame: &Frame) -> Option<RunEnding> {
        let event = read(&self.run, frame)?;
        self.take_event(event, Some(&frame.raw)).then(|| {
            let fields = frame.fields();
            let data = fields.data.as_deref().unwrap_or_default();
            ending(event::end(fields.event.as_deref(), data))
        })
    }

    /// Takes in what the beginning of a frame tells that is too large to be read; how the run has ended,
    /// where it has with it. To read the stream anew would bring the same frame again.
    fn take_beginning(&mut self, framer: &Framer) -> Option<RunEnding> {
        let fields = framer.beginning().fields();
        let (id, event) = (fields.id.as_deref(), fields.event.as_deref());
        let data = fields.data.as_deref().unwrap_or_default();
        let Beginning { event, end, is_known } = Beginning::read(id, event, data);
        if !is_known {
            // It may be the last one: nothing of it is taken in, so that it comes again.
            self.riddle = true;
            return None;
        }
        self.take_event(event, None).then(|| {
            // Apps have it from MANTYX, in pieces.
            self.run.log.leave_last();
            ending(end)
        })
    }

    /// Takes in an event, whose frame is `raw` unless it is too large; whether the run has ended with
    /// it.
    fn take_event(&mut self, event: Event, raw: Option<&Bytes>) -> bool {
        // Before a call of it is made: its app may have handed the agent run over as well.
        if self.run.key.kind == RunKind::Eval
            && let Some(agent_run) = &event.agent_run
            && self.named.insert(agent_run.clone())
        {
            self.runs.adopt(&self.run, agent_run);
        }
        let seq = event.seq;
        let is_behind = {
            let state = self.run.state();
            seq.is_some_and(|seq| seq <= state.last_seq())
        };
        let step = self.run.state().on_event(event);
        let push = |raw: Bytes| {
            // Apps have read past a call that comes late, and they know no way back.
            if !is_behind {
                self.run.log.push(seq, raw);
            }
        };
        match step {
            Step::Skip => return false,
            Step::Relay => raw.cloned().into_iter().for_each(push),
            Step::Mask(call, work) => {
                push(masked(self.run.key.kind, seq, &call).raw);
                let mut changes = Vec::new();
                let tasks = self.tasks(vec![(call, work)], &mut changes);
                if !changes.is_empty() {
                    self.runs.journal.write(changes);
                }
                for (call, task, recorder) in tasks {
                    self.answer(call, task, recorder);
                }
            }
            Step::Finish => {
                // Apps get the last event wherever they are: without a number, none is behind them.
                let number = seq.filter(|_| !is_behind);
                raw.cloned().into_iter().for_each(|raw| self.run.log.push_last(number, raw));
                return true;
            }
        }
        if raw.is_none() && seq.is_none() {
            // It may be brought each time.
            return false;
        }
        // Proof of life: the next break is met at once.
        self.backoff.reset();
        self.news = true;
        false
    }

    fn answer(&mut self, call: Call, task: Task, recorder: Arc<CallRecorder>) {
        let (runs, run) = (Arc::clone(&self.runs), Arc::clone(&self.run));
        let app = run.app.clone();
        self.calls.spawn(budget::for_app(app, answer::answer(runs, run, call, task, recorder)));
    }
}

fn ending(end: event::End) -> RunEnding {
    match end {
        event::End::Result => RunEnding::Result,
        event::End::Error => RunEnding::Error,
        event::End::Cancelled => RunEnding::Cancelled,
    }
}

/// The event in `frame`; `None` for a comment, and for a call that cannot be read, which is told.
pub(super) fn read(run: &DrivenRun, frame: &Frame) -> Option<Event> {
    let fields = frame.fields();
    let data = fields.data?;
    match Event::read(fields.id.as_deref(), fields.event.as_deref(), &data) {
        Ok(event) => Some(event),
        Err(error) => {
            warn!(run = %run.key.run, %error, "an event of MANTYX cannot be read and is skipped");
            None
        }
    }
}
