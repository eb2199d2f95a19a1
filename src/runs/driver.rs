//! Drives one run: reads its stream to the end, whatever breaks in between, and has its calls
//! answered. One task per run, one more per call.
//!
//! What counts as the present of a run that was attached: the stream is open and has brought
//! nothing for [`QUIET`], as a run that waits for a tool is quiet; or it has been read for
//! [`PAST_WITHIN`], as a run that does not wait may never be.
//!
//! Must not: wait for an app, or stop reading because a call is slow.

use std::{collections::HashSet, sync::Arc, time::Duration};

use http::StatusCode;
use serde::Deserialize;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tracing::{debug, error, info, warn};

use super::{
    DrivenRun, Runs,
    answering::{self, Task},
    entry::Entry,
    mask::masked,
};
use crate::{
    backoff::Backoff,
    http_client,
    journal::record::Change,
    metrics::RunEnding,
    model::{
        ending::Ending,
        event::{self, Call, Event},
        ids::{RunId, RunKind},
        run::{Step, Work},
    },
    upstream::OpenError,
    wire::sse::{Frame, Framer},
};

/// The largest event that is read.
pub(super) const MAX_EVENT: usize = 8 << 20;
/// A stream that is silent for so long is opened anew: the connection may be dead without a sign,
/// and MANTYX documents no heartbeat.
const SILENCE: Duration = Duration::from_secs(60);
/// A stream that was open for so long was no failed attempt, even if it brought nothing.
const LIVED: Duration = Duration::from_secs(5);
/// So many answers "no such run" in a row end the driver; one alone may be a replica that lags.
const UNKNOWN_RUN_LIMIT: u32 = 5;
/// A run whose stream could not be opened for so long is given up.
const GIVE_UP: Duration = Duration::from_secs(60 * 60);
/// A replay that pauses for so long has reached the present.
const QUIET: Duration = Duration::from_secs(1);
/// The longest that calls are held because the past may hold their answers: far less than MANTYX
/// waits for a result.
const PAST_WITHIN: Duration = Duration::from_secs(15);

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
    /// Whether a stream was opened before.
    has_read: bool,
    /// The agent runs that the stream of an eval has named.
    named: HashSet<RunId>,
}

/// Drives `run` until it ends or the daemon goes down.
///
/// `left` are the calls that an earlier process left and that need not wait for the stream.
pub(super) async fn drive(runs: Arc<Runs>, run: Arc<DrivenRun>, left: Vec<(Arc<Entry>, Task)>) {
    let backoff = Backoff::for_connections();
    let calls = JoinSet::new();
    let (past_until, news, has_read) = (None, false, false);
    let named = HashSet::new();
    let mut driver = Driver { runs, run, calls, backoff, past_until, news, has_read, named };
    for (entry, task) in left {
        driver.answer(entry.call(), task, entry);
    }
    let why = driver.read_to_the_end().await;
    let Driver { runs, run, mut calls, .. } = driver;
    run.set_ended();
    runs.metrics.ended.of(why.ending()).inc();
    runs.tell(&run);
    let has_ended = matches!(why, Why::Ended(_));
    if has_ended {
        // Nobody waits for these answers any more.
        run.end_calls();
        runs.forget_calls_of(&run.key);
    }
    if why == Why::GivenUp {
        // Its apps then hear from MANTYX itself what is wrong.
        runs.forget(&run);
    }
    run.log.end();
    while calls.join_next().await.is_some() {}
    if has_ended {
        let mut changes = run.changes();
        changes.push(Change::ForgetCalls(run.slot));
        runs.journal.write(changes);
    }
    info!(run = %run.key.run, "{}", why.words());
}

/// Why a driver stopped.
#[derive(Debug, PartialEq, Eq)]
enum Why {
    Ended(RunEnding),
    ShuttingDown,
    GivenUp,
}

impl Why {
    fn ending(&self) -> RunEnding {
        match self {
            Self::Ended(ending) => *ending,
            Self::ShuttingDown => RunEnding::Left,
            Self::GivenUp => RunEnding::GivenUp,
        }
    }

    fn words(&self) -> &'static str {
        match self {
            Self::Ended(_) => "the run has ended",
            Self::ShuttingDown => "the run is left as it is, for the bridge is going down",
            Self::GivenUp => "the run is not driven any more",
        }
    }
}

impl Driver {
    async fn read_to_the_end(&mut self) -> Why {
        let mut unknown = 0;
        let mut opened = Instant::now();
        loop {
            let begun = Instant::now();
            let wait = match self.read_stream().await {
                End::Terminal(ending) => return Why::Ended(ending),
                End::Drain => return Why::ShuttingDown,
                End::Broken(why) => {
                    unknown = 0;
                    opened = Instant::now();
                    if opened > begun + LIVED {
                        self.backoff.reset();
                    }
                    if !self.news
                        && let Some(ending) = self.is_over().await
                    {
                        return Why::Ended(ending);
                    }
                    debug!(run = %self.run.key.run, why, "the stream broke; resuming");
                    self.backoff.next_wait()
                }
                End::Refused(error) => {
                    warn!(run = %self.run.key.run, %error, "the run's stream cannot be read");
                    if matches!(error, OpenError::Status(StatusCode::NOT_FOUND)) {
                        unknown += 1;
                    }
                    if unknown >= UNKNOWN_RUN_LIMIT || begun > opened + GIVE_UP {
                        error!(run = %self.run.key.run, "giving the run up");
                        return Why::GivenUp;
                    }
                    self.backoff.next_wait()
                }
            };
            tokio::select! {
                () = sleep(wait) => (),
                () = self.runs.draining().cancelled() => return Why::ShuttingDown,
            }
        }
    }

    /// How the run has ended, if MANTYX says that it has, though its stream does not. The events of
    /// an eval need not be replayed: where the stream broke before the last one, it never comes.
    async fn is_over(&self) -> Option<RunEnding> {
        #[derive(Deserialize)]
        struct Snapshot {
            status: String,
        }
        let (key, authority) = (&self.run.key, self.runs.authority_of(&self.run));
        if key.kind != RunKind::Eval {
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

    /// Opens the stream where the last one broke, and reads it.
    async fn read_stream(&mut self) -> End {
        // What is bounded is the reading of one stream: a break tells nothing of the past.
        (self.news, self.past_until) = (false, None);
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
            () = draining.cancelled() => return End::Drain,
        };
        let mut response = match opened {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return End::Refused(error),
            Err(_elapsed) => {
                let error = format!("no answer within {SILENCE:?}");
                return End::Refused(OpenError::Unreachable(error));
            }
        };
        let mut framer = Framer::new(MAX_EVENT);
        self.run.state().opened();
        loop {
            let patience = self.patience(&framer);
            let chunk = tokio::select! {
                chunk = timeout(patience, response.chunk()) => chunk,
                () = draining.cancelled() => return End::Drain,
            };
            // Finished calls give their memory back.
            while self.calls.try_join_next().is_some() {}
            match chunk {
                Ok(Ok(Some(chunk))) => framer.push(&chunk),
                Ok(Ok(None)) => return End::Broken("MANTYX closed it".to_owned()),
                Ok(Err(error)) => return End::Broken(http_client::chain(&error.without_url())),
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
                    // To read the stream anew would bring the same event again.
                    Err(error) => {
                        error!(run = %self.run.key.run, %error, "an event of MANTYX is left out");
                    }
                }
            };
            self.run.log.flush();
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
        let now = Instant::now();
        let until = *self.past_until.get_or_insert(now + PAST_WITHIN);
        let left = until.saturating_duration_since(now);
        // Half an event is no pause.
        if framer.is_inside_frame() { left } else { left.min(QUIET) }
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
        changes.extend(self.run.take_left().iter().flat_map(|entry| entry.closed()));
        // In one piece: what is behind the events that were read is either all kept or not at all.
        self.runs.journal.write(changes);
        for (call, task, entry) in tasks {
            self.answer(call, task, entry);
        }
    }

    /// Takes in one frame; how the run has ended, where it has with it.
    fn take(&mut self, frame: &Frame) -> Option<RunEnding> {
        let event = read(&self.run, frame)?;
        // Before a call of it is made: its app may have handed the agent run over as well.
        if self.run.key.kind == RunKind::Eval
            && let Some(agent_run) = &event.agent_run
            && self.named.insert(agent_run.clone())
        {
            self.runs.adopt(&self.run, agent_run);
        }
        let seq = event.seq;
        let step = self.run.state().on_event(event);
        match step {
            Step::Skip => return None,
            Step::Relay => self.run.log.push(seq, frame.raw.clone()),
            Step::Mask(call, work) => {
                self.run.log.push(seq, masked(self.run.key.kind, seq, &call).raw);
                let mut changes = Vec::new();
                let tasks = self.tasks(vec![(call, work)], &mut changes);
                if !tasks.is_empty() {
                    self.runs.journal.write(changes);
                }
                for (call, task, entry) in tasks {
                    self.answer(call, task, entry);
                }
            }
            Step::Finish => {
                self.run.log.push(seq, frame.raw.clone());
                let fields = frame.fields();
                let data = fields.data.as_deref().unwrap_or_default();
                return Some(match event::end(fields.event.as_deref(), data) {
                    event::End::Result => RunEnding::Result,
                    event::End::Error => RunEnding::Error,
                    event::End::Cancelled => RunEnding::Cancelled,
                });
            }
        }
        // Proof of life: the next break is met at once.
        self.backoff.reset();
        self.news = true;
        None
    }

    /// What is to be done for calls, with their entries; what these have to say goes to `changes`.
    fn tasks(
        &self,
        calls: Vec<(Call, Work)>,
        changes: &mut Vec<Change>,
    ) -> Vec<(Call, Task, Arc<Entry>)> {
        let mut tasks = Vec::with_capacity(calls.len());
        for (call, work) in calls {
            let (run, tool_use) = (&self.run.key.run, &call.tool_use);
            let task = match work {
                Work::Make(route) => {
                    info!(%run, toolUseId = %tool_use, tool = call.name, "call");
                    Task::Make(route)
                }
                Work::Refuse(error) => {
                    warn!(%run, toolUseId = %tool_use, error, "call refused");
                    Task::Refuse(error, Ending::Denied)
                }
                Work::Nothing | Work::Hold => continue,
                Work::Altered => {
                    warn!(
                        %run, toolUseId = %tool_use,
                        "MANTYX sent a tool use again with another content; it is not run again"
                    );
                    continue;
                }
                Work::Astray => {
                    warn!(
                        %run, toolUseId = %tool_use,
                        "MANTYX sent a call that names no agent run to answer to; it is not run"
                    );
                    continue;
                }
            };
            if !self.runs.claim(&self.run, &call) {
                warn!(
                    %run, toolUseId = %tool_use,
                    "the call belongs to another driver, and is not made by this one"
                );
                continue;
            }
            let entry = self.run.entry(&self.runs, &call);
            changes.push(entry.change());
            tasks.push((call, task, entry));
        }
        tasks
    }

    fn answer(&mut self, call: Call, task: Task, entry: Arc<Entry>) {
        let (runs, run) = (Arc::clone(&self.runs), Arc::clone(&self.run));
        self.calls.spawn(answering::answer(runs, run, call, task, entry));
    }
}

/// The event in `frame`; `None` for a comment, and for a call that cannot be read, which is told.
pub(super) fn read(run: &DrivenRun, frame: &Frame) -> Option<Event> {
    let fields = frame.fields();
    let data = fields.data?;
    match Event::read(fields.id.as_deref(), fields.event.as_deref(), &data) {
        Ok(event) => Some(event),
        Err(error) => {
            warn!(run = %run.key.run, %error, "an event of MANTYX cannot be read; left out");
            None
        }
    }
}
