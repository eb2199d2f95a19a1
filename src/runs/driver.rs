//! Drives one run: reads its stream to the end, resuming it after every break, and has its calls
//! answered. One task per run, one more per call.
//!
//! An attached run has a past: other clients may have answered its calls, so the driver holds calls
//! until it has read that past. The past counts as read in two cases. The open stream has brought
//! nothing for [`QUIET`], as a run that waits for a tool is quiet. Or the driver has read it for
//! [`PAST_WITHIN`], as a run that does not wait for a tool may never be quiet.
//!
//! Must not: wait for an app, or stop reading because a call is slow.

mod end;
mod tasks;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::StatusCode;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{debug, error, info, warn};

pub use self::end::DriverEnd;
use self::end::{Outlook, StreamEnd};
use self::tasks::CallTask;
use super::answer::{EarlierCalls, Task};
use super::mask::masked;
use super::{Access, DrivenRun, Ownership, RunContext, answer};
use crate::backoff::Backoff;
use crate::budget;
use crate::budget::Budget;
use crate::calls::record::CallRecorder;
use crate::error_chain::error_chain;
use crate::journal::record::{Change, Key};
use crate::model::ending::RunEnding;
use crate::model::event::{Beginning, Call, Event, tokens};
use crate::model::ids::{RunId, RunKind};
use crate::model::maps::HashSet;
use crate::model::run::Step;
use crate::sse::{Frame, Framer};
use crate::upstream::{OpenError, UpstreamCredential};

/// The largest event that the driver reads whole, in bytes.
pub const MAX_EVENT: usize = 8 << 20;
/// The driver reopens a stream that was silent for this long. The connection may be dead without a
/// sign, and MANTYX documents no heartbeat.
pub const SILENCE: Duration = Duration::from_secs(60);
/// A stream that was open for longer than this was no failed attempt, even if it brought nothing,
/// so the backoff is reset.
const LIVED: Duration = Duration::from_secs(5);
/// The driver gives the run up after this many answers "no such run" in a row. A single one may
/// come from a replica that lags. For a run that was given up before, one is enough.
const UNKNOWN_RUN_LIMIT: u32 = 5;
/// If the run's stream could not be opened for this long, the driver gives the run up.
const GIVE_UP: Duration = Duration::from_secs(60 * 60);
/// A replay that pauses for this long has reached the present.
const QUIET: Duration = Duration::from_secs(1);
/// The longest that the driver holds calls because the past may have their answers. This is far
/// less than MANTYX waits for a result.
const PAST_WITHIN: Duration = Duration::from_secs(15);
/// The same two limits for a run whose past is lost. They are longer: a call that the driver takes
/// for a new one may be made twice, and MANTYX waits for minutes.
const LOST_QUIET: Duration = Duration::from_secs(5);
const LOST_PAST_WITHIN: Duration = Duration::from_secs(60);

/// The driver of one run.
struct Driver {
    context: Arc<RunContext>,
    ownership: Arc<dyn Ownership>,
    run: Arc<DrivenRun>,
    calls: JoinSet<()>,
    backoff: Backoff,
    /// When the past counts as read; set once the stream is open.
    past_until: Option<Instant>,
    /// Whether the open stream has brought a new event.
    news: bool,
    /// Whether the open stream has brought an event that is too large and whose beginning says
    /// neither its kind nor its number.
    riddle: bool,
    unknown: u32,
    has_read: bool,
    /// Calls of an earlier process that are answered once the past has been read. If the past is
    /// lost, their answers must wait: an answer brings the run's next call, and the driver could
    /// not tell that call from one of the past.
    earlier_calls: EarlierCalls,
    /// The agent runs that the stream of an eval has named.
    agent_runs: HashSet<RunId>,
}

/// Whether a run has had a driver before that has given it up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    First,
    Revived,
}

/// Drives `run` until it ends or the daemon shuts down.
///
/// `earlier_calls` are those of an earlier process that need not wait for what the stream says.
///
/// The end has an order:
///
/// 1. A run that is given up keeps its calls, claims and log: an app may ask for it again.
/// 2. A run that MANTYX has ended no longer waits for answers, so its calls are cancelled and the
///    answers that were kept for it go.
/// 3. The log ends before the calls are waited for: apps must not wait for a slow tool.
/// 4. The record of the end is written when no call task is left. Written earlier, it could come
///    before the last stage of a call, which a restart would then have lost.
/// 5. At shutdown, the run is released: another replica may take it over at once, and need not wait
///    until this one counts as dead.
pub async fn drive(
    context: Arc<RunContext>,
    ownership: Arc<dyn Ownership>,
    run: Arc<DrivenRun>,
    earlier_calls: EarlierCalls,
    start: Start,
) -> DriverEnd {
    let revived = start == Start::Revived;
    let mut driver = Driver {
        context,
        ownership,
        run,
        calls: JoinSet::new(),
        backoff: Backoff::for_connections(),
        past_until: None,
        news: false,
        riddle: false,
        unknown: if revived { UNKNOWN_RUN_LIMIT - 1 } else { 0 },
        has_read: revived,
        earlier_calls,
        agent_runs: HashSet::default(),
    };
    if !driver.run.state().past_is_lost() {
        driver.answer_earlier_calls();
    }
    let handed_over = driver.run.handed_over.clone();
    let end = tokio::select! {
        end = driver.read_to_the_end() => end,
        () = handed_over.cancelled() => DriverEnd::HandedOver,
    };
    let Driver { context, ownership, run, mut calls, .. } = driver;
    context.metrics.ended.of(end.ending()).inc();
    end.log(&run);
    if end == DriverEnd::GivenUp {
        return end;
    }
    run.set_ended();
    context.tell(&run);
    if matches!(end, DriverEnd::Ended(_)) {
        run.end_calls();
        run.take_unwanted().iter().for_each(|recorder| recorder.close());
        // Those of a session stay, as its next run can fetch them.
        context.calls.long.forget(|of| of.is_run(&run.key));
    }
    run.log.end();
    while let Some(outcome) = calls.join_next().await {
        note(&run, outcome);
    }
    match end {
        DriverEnd::Ended(_) => {
            let mut changes = run.changes();
            if !ownership.may_be_driven_by_others(&run.key) {
                changes.push(Change::Forget(Key::Calls(run.slot)));
            }
            context.journal().write(changes);
        }
        DriverEnd::ShuttingDown => context.journal().write(vec![Change::Release(run.slot)]),
        DriverEnd::GivenUp | DriverEnd::HandedOver => {}
    }
    end
}

/// Logs a call task that panicked or was aborted. A panic while the call is made is caught
/// elsewhere and becomes an answer; this covers the rest of the task.
fn note(run: &DrivenRun, outcome: Result<(), JoinError>) {
    if let Err(error) = outcome {
        error!(run = %run.key.run, %error, "the task of a call failed; its answer may not be posted");
    }
}

impl Driver {
    /// Reads one stream after the other, until the run has ended, or cannot be read any longer.
    ///
    /// A stream that breaks says nothing about its run, so the next one is opened behind the last
    /// event that was read. A panic is handled as a break: without the driver, no later call of the
    /// run would be answered.
    async fn read_to_the_end(&mut self) -> DriverEnd {
        let mut last_alive = Instant::now();
        loop {
            let attempt_start = Instant::now();
            let credential = self.run.credential.current();
            let end = match AssertUnwindSafe(self.read_stream()).catch_unwind().await {
                Ok(end) => end,
                Err(_panic) => {
                    error!(run = %self.run.key.run, "reading the run's stream panicked; reconnecting");
                    StreamEnd::Broken("reading panicked".to_owned())
                }
            };
            let mut outlook = Outlook::Returns;
            let wait = match end {
                StreamEnd::Terminal(ending) => return DriverEnd::Ended(ending),
                StreamEnd::Drain => {
                    // An open stream would say that MANTYX knows the run. An answer that it does
                    // not know now is kept for the next process.
                    self.run.access.send_replace(Access::Broken);
                    return DriverEnd::ShuttingDown;
                }
                StreamEnd::Broken(why) => {
                    self.run.access.send_replace(Access::Broken);
                    last_alive = Instant::now();
                    if last_alive > attempt_start + LIVED {
                        self.backoff.reset();
                    }
                    if let Some(ending) = self.ending_by_snapshot().await {
                        // The log has no last event. MANTYX may have it: apps look there.
                        self.run.log.leave_last();
                        return DriverEnd::Ended(ending);
                    }
                    debug!(run = %self.run.key.run, why, "the stream broke; resuming");
                    self.backoff.next_wait()
                }
                // A newer credential is known: try it at once. Each credential is tried once.
                StreamEnd::Refused(error)
                    if error.is_of_the_credential()
                        && !self.run.credential.current().is_same(&credential) =>
                {
                    continue;
                }
                StreamEnd::Refused(error) => {
                    warn!(run = %self.run.key.run, %error, "the run's stream cannot be read");
                    if self.is_gone(&error) || attempt_start > last_alive + GIVE_UP {
                        outlook = Outlook::Gone;
                    }
                    let retry_after = match &error {
                        OpenError::Refused(refusal) => refusal.retry_after(),
                        _ => Duration::ZERO,
                    };
                    self.run.note_failure(error);
                    self.backoff.next_wait().max(retry_after)
                }
            };
            if let Some(end) = self.pause(wait, outlook, &credential).await {
                return end;
            }
        }
    }

    /// Whether MANTYX's refusal says that the stream is gone for good. One "no such run" does not:
    /// the answer may come from a replica of MANTYX that lags, and a run that is given up too early
    /// gets no answers.
    fn is_gone(&mut self, error: &OpenError) -> bool {
        match error.status() {
            Some(StatusCode::GONE) => true,
            Some(StatusCode::NOT_FOUND) => {
                self.unknown += 1;
                self.unknown >= UNKNOWN_RUN_LIMIT
            }
            _ => false,
        }
    }

    /// Waits until the next attempt. If the run's credential is replaced by another than `shown`,
    /// the next attempt starts at once.
    ///
    /// A run whose stream is gone is given up only after its calls in flight have been answered:
    /// MANTYX may still take the results, or may show the run again meanwhile.
    async fn pause(
        &mut self,
        wait: Duration,
        outlook: Outlook,
        shown: &UpstreamCredential,
    ) -> Option<DriverEnd> {
        let next = Instant::now() + wait;
        let draining = self.context.draining().clone();
        if outlook == Outlook::Gone {
            // These answers waited for a past that the driver will not read.
            self.answer_earlier_calls();
        }
        loop {
            self.note_finished_calls();
            if outlook == Outlook::Gone && self.calls.is_empty() {
                error!(
                    run = %self.run.key.run,
                    "giving up: MANTYX does not serve the run's stream"
                );
                return Some(DriverEnd::GivenUp);
            }
            tokio::select! {
                () = sleep_until(next) => return None,
                () = self.run.credential.wait_for_replacement(shown) => return None,
                () = draining.cancelled() => return Some(DriverEnd::ShuttingDown),
                Some(outcome) = self.calls.join_next() => note(&self.run, outcome),
            }
        }
    }

    /// Removes finished calls from the set, which frees their memory.
    fn note_finished_calls(&mut self) {
        while let Some(outcome) = self.calls.try_join_next() {
            note(&self.run, outcome);
        }
    }

    /// Opens the stream behind the last event that was read.
    async fn open_stream(&mut self) -> Result<reqwest::Response, StreamEnd> {
        let path = self.run.key.stream_path();
        let last_seq = self.run.state().last_seq();
        let draining = self.context.draining().clone();
        let credential = self.context.credential_of(&self.run);
        let open = self.context.upstream.open_stream(&path, last_seq, &credential);
        if std::mem::replace(&mut self.has_read, true) {
            self.context.metrics.reconnects.inc();
        }
        let opened = tokio::select! {
            opened = timeout(SILENCE, open) => opened,
            () = draining.cancelled() => return Err(StreamEnd::Drain),
        };
        match opened {
            Ok(Ok(response)) => {
                self.run.credential.note_success(&credential);
                Ok(response)
            }
            Ok(Err(error)) => {
                if error.is_of_the_credential() {
                    self.run.credential.refuse(&credential);
                }
                Err(StreamEnd::Refused(error))
            }
            Err(_elapsed) => {
                let error = format!("no answer within {SILENCE:?}");
                Err(StreamEnd::Refused(OpenError::Unreachable(error)))
            }
        }
    }

    /// Opens the stream, and reads it until it ends, breaks, or is silent for too long.
    ///
    /// 1. The run counts as open before the kept answers are taken: an answer that MANTYX refuses
    ///    from here on is not kept ([`DrivenRun::keep_unwanted`] looks at the same lock).
    /// 2. No bytes are read while the journal has no room. Its driver could not record the calls in
    ///    them; MANTYX keeps the events.
    /// 3. All events of a chunk are handled before readers of the log are woken, once for all of
    ///    them.
    async fn read_stream(&mut self) -> StreamEnd {
        // The bound on the past counts per stream: a stream that broke says nothing about the past.
        (self.news, self.riddle, self.past_until) = (false, false, None);
        let draining = self.context.draining().clone();
        let mut response = match self.open_stream().await {
            Ok(response) => response,
            Err(end) => return end,
        };
        let mut framer = Framer::new(MAX_EVENT);
        let mut held = Budget::of_process().hold();
        self.run.state().opened();
        self.run.access.send_replace(Access::Open);
        self.unknown = 0;
        for recorder in self.run.take_unwanted() {
            info!(run = %self.run.key.run, "MANTYX knows the run again; posting a kept answer");
            self.answer(recorder.call(), Task::PostAgain, recorder);
        }
        loop {
            tokio::select! {
                () = self.context.journal().wait_for_room() => (),
                () = draining.cancelled() => return StreamEnd::Drain,
            }
            let patience = self.patience(&framer);
            let chunk = tokio::select! {
                chunk = timeout(patience, response.chunk()) => chunk,
                () = draining.cancelled() => return StreamEnd::Drain,
            };
            self.note_finished_calls();
            match chunk {
                Ok(Ok(Some(chunk))) => {
                    framer.push(&chunk);
                    held.follow(framer.unfinished().len());
                }
                Ok(Ok(None)) => {
                    if let Some(ending) = framer.end().and_then(|frame| self.take(&frame)) {
                        return StreamEnd::Terminal(ending);
                    }
                    return StreamEnd::Broken("MANTYX closed it".to_owned());
                }
                Ok(Err(error)) => return StreamEnd::Broken(error_chain(&error.without_url())),
                Err(_elapsed) if patience < SILENCE => {
                    self.settle();
                    continue;
                }
                Err(_elapsed) => return StreamEnd::Broken(format!("silent for {SILENCE:?}")),
            }
            let end = loop {
                match framer.next_frame() {
                    Ok(Some(frame)) => {
                        if let Some(ending) = self.take(&frame) {
                            break Some(StreamEnd::Terminal(ending));
                        }
                    }
                    Ok(None) => break None,
                    Err(error) => {
                        if let Some(ending) = self.take_beginning(&framer) {
                            break Some(StreamEnd::Terminal(ending));
                        }
                        error!(run = %self.run.key.run, %error, "an event of MANTYX is skipped");
                    }
                }
            };
            self.run.log.flush();
            held.follow(framer.unfinished().len());
            if let Some(end) = end {
                return end;
            }
            if self.past_until.is_some_and(|until| Instant::now() >= until) {
                self.settle();
            }
        }
    }

    /// How long the next bytes may take; less than [`SILENCE`] while the driver reads the past.
    fn patience(&mut self, framer: &Framer) -> Duration {
        if !self.run.state().has_past() {
            return SILENCE;
        }
        let (quiet, within) = if self.run.state().past_is_lost() {
            (LOST_QUIET, LOST_PAST_WITHIN)
        } else {
            (QUIET, PAST_WITHIN)
        };
        let now = Instant::now();
        let until = *self.past_until.get_or_insert(now + within);
        let remaining = until.saturating_duration_since(now);
        // A pause inside an event does not mean that the past has been read.
        if framer.is_inside_frame() { remaining } else { remaining.min(quiet) }
    }

    /// Answers the calls of an earlier process.
    fn answer_earlier_calls(&mut self) {
        for (recorder, task) in std::mem::take(&mut self.earlier_calls) {
            self.answer(recorder.call(), task, recorder);
        }
    }

    /// Ends the reading of the past, and answers the calls that the past left open.
    ///
    /// All changes are one write: the journal keeps all of the calls up to the event that was read,
    /// or none. With some of them, a restart would skip the others, as it reads on behind the
    /// event. Calls are made after that write is given to the journal, and each waits for its own
    /// dispatch.
    fn settle(&mut self) {
        self.past_until = None;
        let open_calls = self.run.state().settle();
        debug!(run = %self.run.key.run, open = open_calls.len(), "the run's past has been read");
        self.context.tell(&self.run);
        let mut changes = self.run.changes();
        let tasks = self.tasks(open_calls, &mut changes);
        // Closes the calls that the past has answered meanwhile.
        let answered = self.run.take_restored_recorders();
        changes.extend(answered.iter().flat_map(|recorder| recorder.closed()));
        self.context.journal().write(changes);
        self.answer_earlier_calls();
        for CallTask { call, task, recorder } in tasks {
            self.answer(call, task, recorder);
        }
    }

    /// Handles one frame. Returns how the run has ended, if this frame is its last event.
    fn take(&mut self, frame: &Frame) -> Option<RunEnding> {
        let event = read(&self.run, frame)?;
        let ending = self.take_event(event, Some(&frame.raw))?;
        if let Some(tokens) = frame.fields().data.as_deref().and_then(tokens) {
            self.context.metrics.used(&self.run.app, tokens);
        }
        Some(ending)
    }

    /// Handles a frame that is too large by its beginning alone. Returns how the run has ended, if
    /// this frame is its last event. Opening the stream again would only bring the same frame.
    fn take_beginning(&mut self, framer: &Framer) -> Option<RunEnding> {
        let fields = framer.beginning().fields();
        let data = fields.data.as_deref().unwrap_or_default();
        let Beginning { event, names_type } =
            Beginning::read(fields.id.as_deref(), fields.event.as_deref(), data);
        if !names_type {
            // The event may be the last one. Taking in nothing of it makes MANTYX send it again.
            self.riddle = true;
            return None;
        }
        // Apps get the last event from MANTYX, in pieces.
        self.take_event(event, None).inspect(|_ending| self.run.log.leave_last())
    }

    /// Handles an event. `raw` is its frame, or `None` if the frame is too large. Returns how the
    /// run has ended, if this is its last event.
    ///
    /// 1. An eval adopts the agent run that the event names, before a call of it is made: an app
    ///    may have attached that agent run as well, and its driver would make the call, too.
    /// 2. The state takes the event in, and decides. The log gets the event, or the mask of a call
    ///    that the bridge answers. An app that saw such a call as MANTYX sent it would answer it.
    /// 3. The records of calls are given to the journal before the calls are begun.
    fn take_event(&mut self, event: Event, raw: Option<&Bytes>) -> Option<RunEnding> {
        if self.run.key.kind == RunKind::Eval
            && let Some(agent_run) = &event.agent_run
            && self.agent_runs.insert(agent_run.clone())
        {
            self.ownership.adopt(&self.run, agent_run);
        }
        let seq = event.seq;
        let last_seq = self.run.state().last_seq();
        let is_behind = seq.is_some_and(|seq| seq <= last_seq);
        let step = self.run.state().on_event(event);
        let push = |raw: Bytes| {
            // Apps have read past a call that comes late, and cannot go back in the stream.
            if !is_behind {
                self.run.log.push(seq, raw);
            }
        };
        match step {
            Step::Skip => return None,
            Step::Relay => raw.cloned().into_iter().for_each(push),
            Step::Mask(call, work) => {
                push(masked(self.run.key.kind, seq, &call).raw);
                let mut changes = Vec::new();
                let tasks = self.tasks(vec![(call, work)], &mut changes);
                if !changes.is_empty() {
                    self.context.journal().write(changes);
                }
                for CallTask { call, task, recorder } in tasks {
                    self.answer(call, task, recorder);
                }
            }
            Step::Finish(ending) => {
                // Every app gets the last event, wherever it is in the stream: an event without a
                // number is behind no app.
                let number = seq.filter(|_| !is_behind);
                raw.cloned().into_iter().for_each(|raw| self.run.log.push_last(number, raw));
                return Some(ending);
            }
        }
        if raw.is_none() && seq.is_none() {
            // MANTYX may send this event on every stream, so that it is no sign of progress.
            return None;
        }
        // The stream works, so that the next break is retried at once.
        self.backoff.reset();
        self.news = true;
        None
    }

    /// Answers a call in a separate task, whose bytes count as the app's. The driver reads on
    /// meanwhile: the run may bring further calls, or its end, which cancels this one.
    fn answer(&mut self, call: Call, task: Task, recorder: Arc<CallRecorder>) {
        let app = self.run.app.clone();
        let answer =
            answer::answer(Arc::clone(&self.context), Arc::clone(&self.run), call, task, recorder);
        self.calls.spawn(budget::for_app(app, answer));
    }
}

/// The event in `frame`. `None` for a comment, and for an event that cannot be read, which is
/// logged.
pub fn read(run: &DrivenRun, frame: &Frame) -> Option<Event> {
    let fields = frame.fields();
    let data = fields.data?;
    match Event::read(fields.id.as_deref(), fields.event.as_deref(), &data) {
        Ok(event) => Some(event),
        Err(error) => {
            warn!(run = %run.key.run, %error, "cannot read an event of MANTYX; skipping it");
            None
        }
    }
}
