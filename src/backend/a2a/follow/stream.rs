//! Follows a task by its stream. After a break, the task is asked for, and its stream opened again
//! if it has not ended.
//!
//! Must not: send a message, or join pieces of two streams.

use std::time::Duration;

use http::StatusCode;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep, timeout};

use super::{FIRST_WAIT, Following, LONGEST_WAIT, MISS_WAIT, Stale, Stall, WAIT_GROWTH};
use crate::backend::a2a::assembly::Assembly;
use crate::backend::a2a::events::EventStream;
use crate::backend::a2a::failure::{A2aFailure, A2aResult};
use crate::backend::a2a::interface::Generation;
use crate::backend::a2a::link::Opened;
use crate::backend::a2a::result::{Content, Outcome, PartEncoding, Reply, Stage};
use crate::backend::a2a::update::{Event, UnknownEvent, Update};
use crate::backend::a2a::wire::Operation;
use crate::backend::a2a::{progress_text, result, update};
use crate::backend::{CallError, Called, TASK_SILENCE};
use crate::model::Answer;

/// How long a stream may be silent before the task is asked for. A proxy may hold its events back,
/// and the call's time-out is extended by signs of life alone.
const FIRST_LOOK: Duration = Duration::from_secs(1);

/// How long a stream is read on after the task has ended: some agents send the whole task after its
/// last status. Most close the stream at once.
const AFTER_END: Duration = Duration::from_millis(25);

/// The same, after the task has begun to wait for something. Agents that do not mark the end may
/// still send the draft that they ask about.
const AFTER_QUESTION: Duration = Duration::from_secs(1);

/// How long the rest of a stream may take, so that its connection can be used again.
const DRAIN_PATIENCE: Duration = Duration::from_secs(1);

/// A stream that breaks off sooner after an event than this was not closed for its silence.
const FRESH: Duration = Duration::from_secs(10);

/// How long a task may then show no change.
const STALL_PATIENCE: Duration = Duration::from_secs(10);

/// How a stream has ended for the bridge.
enum StreamEnd {
    /// The events tell of the end of the task, or of its question.
    Complete,
    /// A look at the task has found its end.
    Polled(Reply),
    /// The agent has reported an error in the middle.
    Refused(A2aFailure),
    /// It ended before the task did.
    Cut(A2aFailure),
    /// It cannot be trusted.
    Broken(A2aFailure),
}

impl Following<'_> {
    /// Follows the stream that is the reply to a message.
    ///
    /// 1. As long as the stream is whole, its events are the result.
    /// 2. After a break, what came before it is dropped: nothing tells which events were lost. The
    ///    task itself has the result.
    /// 3. Without a task, nothing can be asked for. The message is not sent again, as the agent may
    ///    have taken it.
    pub(in crate::backend::a2a) async fn stream(
        &mut self,
        mut events: Box<EventStream>,
    ) -> A2aResult<Reply> {
        let mut assembly = Assembly::new(self.link.encoding());
        let (end, heard) = self.read(&mut events, &mut assembly).await?;
        let is_cut = matches!(end, StreamEnd::Cut(_));
        match end {
            StreamEnd::Polled(reply) => Ok(self.conclude(reply).await),
            StreamEnd::Complete => {
                self.drain(events);
                self.complete(&assembly).await
            }
            StreamEnd::Refused(failure) => {
                drop(events);
                self.error_in_the_middle(failure, &assembly).await
            }
            StreamEnd::Cut(failure) | StreamEnd::Broken(failure) => {
                drop((events, assembly));
                if is_cut && heard.elapsed() < FRESH && self.is_of_0_3() {
                    self.stall = Stall::Suspected { until: Instant::now() + STALL_PATIENCE };
                }
                tracing::debug!(backend = %self.link.settings.name, ?failure, "a stream broke");
                self.lost_reply();
                Ok(self.reopen(failure.into_error_after_delivery()).await?)
            }
        }
    }

    fn is_of_0_3(&self) -> bool {
        self.link.endpoint.generation == Generation::V03
    }

    /// Waits for the end of a task that an earlier process has begun. If there is no task, the
    /// error is `otherwise`.
    pub(in crate::backend::a2a) async fn pick_up(&mut self, otherwise: CallError) -> Called<Reply> {
        if self.link.streams && !self.link.settings.config.blocking {
            self.reopen(otherwise).await
        } else {
            self.poll(Duration::ZERO, otherwise).await
        }
    }

    /// Reads events until the stream or the task ends; returns also when the last one came. An
    /// error if the stream begins with one: then the agent has refused what opened it.
    async fn read(
        &mut self,
        events: &mut EventStream,
        assembly: &mut Assembly,
    ) -> A2aResult<(StreamEnd, Instant)> {
        let mut heard = Instant::now();
        loop {
            let stage = assembly.stage();
            let patience = match stage {
                Stage::Unfinished => None,
                Stage::Waiting if self.stale == Stale::All => None,
                Stage::Waiting => Some(AFTER_QUESTION),
                Stage::Ended => Some(AFTER_END),
            };
            let next = match patience {
                Some(patience) => match timeout(patience, events.next()).await {
                    Ok(next) => next,
                    Err(_elapsed) => return Ok((StreamEnd::Complete, heard)),
                },
                None => tokio::select! {
                    biased;
                    next = events.next() => next,
                    reply = self.watch() => {
                        let end = reply.map_or_else(StreamEnd::Broken, StreamEnd::Polled);
                        return Ok((end, heard));
                    }
                },
            };
            let failure = match next {
                Ok(Some(event)) => {
                    heard = Instant::now();
                    match self.take_any(&event, assembly).await {
                        Ok(()) => continue,
                        Err(failure) => failure,
                    }
                }
                Ok(None) if stage == Stage::Unfinished => {
                    let failure = A2aFailure::unclear("its reply ended before its task did");
                    return Ok((StreamEnd::Cut(failure), heard));
                }
                Ok(None) => return Ok((StreamEnd::Complete, heard)),
                Err(failure) => failure,
            };
            let end = match failure {
                _ if stage != Stage::Unfinished => StreamEnd::Complete,
                too_much @ A2aFailure::Call(CallError::NotRead(_)) => return Err(too_much),
                refused @ A2aFailure::Refused { .. } if assembly.is_empty() => return Err(refused),
                refused @ A2aFailure::Refused { .. } => StreamEnd::Refused(refused),
                lost @ A2aFailure::Call(CallError::Lost(_)) => StreamEnd::Cut(lost),
                broken => StreamEnd::Broken(broken),
            };
            return Ok((end, heard));
        }
    }

    /// Takes one event of any kind. A later A2A may have kinds that are not known here: then the
    /// pieces are not all of the task.
    async fn take_any(&mut self, event: &RawValue, assembly: &mut Assembly) -> A2aResult<()> {
        match update::read(event) {
            Ok(event) => self.take(event, assembly).await,
            Err(UnknownEvent::UnknownKind) => {
                assembly.doubt_for("an event is of an unknown kind");
                Ok(())
            }
            Err(error @ UnknownEvent::NotAnObject(_)) => {
                Err(A2aFailure::unclear(error.to_string()))
            }
        }
    }

    /// Takes one event. The name of the task is recorded before anything else is done with it, so
    /// that a crash from then on finds the task again.
    async fn take(&mut self, event: Event<'_>, assembly: &mut Assembly) -> A2aResult<()> {
        match (&self.task, &event.task_id) {
            (Some(own), Some(other)) if own == other => {}
            // An agent may make another task of a message than the one that it continues.
            (Some(_), Some(other)) if self.stale == Stale::All && assembly.is_empty() => {
                self.know(Some(other));
            }
            (Some(_), Some(_)) => {
                let failure = failure_without_task(&event, assembly, self.link.encoding());
                return Err(match failure {
                    Some(failure) => failure,
                    None => A2aFailure::unclear("its reply tells of another task"),
                });
            }
            (None, Some(task)) => self.know(Some(task)),
            (_, None) => {}
        }
        let is_snapshot = matches!(event.update, Update::Task(_));
        match event.stage() {
            Stage::Unfinished => self.works(event.context_id.as_deref()),
            // The question may be the one that the message answers.
            Stage::Waiting if is_snapshot && self.stale == Stale::All => {}
            Stage::Waiting | Stage::Ended => self.stale = Stale::None,
        }
        if !is_snapshot {
            self.stall = Stall::No;
        }
        if let Some(text) = progress_text::of_event(&event, self.link.encoding()) {
            self.report(text);
        }
        assembly.take(event).await
    }

    /// Looks at the task now and then while its stream is silent. Ends with the task, or if the
    /// agent has dropped it; never, if there is no task that can be asked for.
    async fn watch(&mut self) -> A2aResult<Reply> {
        let mut wait = FIRST_LOOK;
        loop {
            let Some(task) = self.task.clone().filter(|_| !self.is_unwatchable) else {
                return std::future::pending().await;
            };
            sleep(wait).await;
            wait = wait.mul_f64(WAIT_GROWTH).min(LONGEST_WAIT);
            match self.look(&task).await {
                Ok(None) => {}
                Ok(Some(reply)) => return Ok(reply),
                Err(failure) if self.stall == Stall::Certain => return Err(failure),
                Err(failure) => {
                    self.is_unwatchable |= failure.is_permanent();
                    wait = failure.pause().map_or(wait, |pause| pause.max(wait));
                }
            }
        }
    }

    /// The result of a stream that was whole.
    async fn complete(&mut self, assembly: &Assembly) -> A2aResult<Reply> {
        let reply = assembly.reply()?;
        if let (Some(why), Some(task)) = (assembly.doubt(), self.task.clone()) {
            tracing::debug!(backend = %self.link.settings.name, task, why, "the stream is not trusted");
            self.stale = Stale::None;
            if let Ok(Some(reply)) = self.look(&task).await {
                return Ok(self.conclude(reply).await);
            }
        }
        match reply {
            Some(reply) if reply.content == Content::None => Ok(self.conclude(reply).await),
            Some(reply) => Ok(self.done(reply)),
            None => Err(A2aFailure::unclear("its reply has no content")),
        }
    }

    /// The agent has reported an error after the task had begun: the task itself says more, if it
    /// has ended. Otherwise the error is the end: an agent that has failed does not always say so
    /// in its task, or why.
    async fn error_in_the_middle(
        &mut self,
        failure: A2aFailure,
        assembly: &Assembly,
    ) -> A2aResult<Reply> {
        let A2aFailure::Refused { text, .. } = &failure else { return Err(failure) };
        if let Some(task) = self.task.clone()
            && let Ok(Some(reply)) = self.look(&task).await
        {
            match reply.outcome {
                Outcome::Final(Answer::Error(_)) if reply.content == Content::None => {}
                Outcome::Final(Answer::Error(reason)) => {
                    let outcome = Outcome::Final(Answer::Error(format!("{text}\n{reason}")));
                    return Ok(self.done(Reply { outcome, ..reply }));
                }
                _ => return Ok(self.conclude(reply).await),
            }
        }
        let reply = assembly.failed(text)?;
        Ok(self.done(reply))
    }

    /// Asks for the task, and opens its stream again while it has not ended. The look comes first:
    /// servers refuse to open the stream of a task that has ended.
    async fn reopen(&mut self, otherwise: CallError) -> Called<Reply> {
        let Some(task) = self.task.clone() else { return Err(otherwise) };
        let mut wait = FIRST_WAIT;
        let mut heard = Instant::now();
        loop {
            match self.look(&task).await {
                Ok(Some(reply)) => return Ok(self.conclude(reply).await),
                Ok(None) => heard = Instant::now(),
                Err(failure)
                    if failure.is_transient()
                        && self.stall != Stall::Certain
                        && heard.elapsed() < TASK_SILENCE =>
                {
                    sleep(failure.pause().unwrap_or_default().clamp(MISS_WAIT, TASK_SILENCE)).await;
                    continue;
                }
                Err(failure) => return Err(failure.into_error_after_delivery()),
            }
            match self.link.open(Operation::Subscribe(&task)).await {
                Ok(Opened::Events(mut events)) => {
                    let mut assembly = Assembly::new(self.link.encoding());
                    match self.read(&mut events, &mut assembly).await {
                        Ok((StreamEnd::Polled(reply), _)) => return Ok(self.conclude(reply).await),
                        Ok((StreamEnd::Complete, _)) => self.drain(events),
                        Ok((StreamEnd::Broken(failure), _)) if self.stall == Stall::Certain => {
                            return Err(failure.into_error_after_delivery());
                        }
                        Ok((StreamEnd::Cut(_) | StreamEnd::Broken(_), _)) => {}
                        Ok((StreamEnd::Refused(failure), _)) => {
                            return Ok(self.error_in_the_middle(failure, &assembly).await?);
                        }
                        // The agent does not open the stream of this task: it cannot, or the task
                        // has just ended.
                        Err(A2aFailure::Refused { .. }) => {
                            return self.poll(FIRST_WAIT, otherwise).await;
                        }
                        Err(failure) => return Err(failure.into_error_after_delivery()),
                    }
                }
                Ok(Opened::Result(_)) => {}
                Err(A2aFailure::Call(_)) => {}
                Err(A2aFailure::Refused { .. }) => return self.poll(FIRST_WAIT, otherwise).await,
            }
            sleep(wait).await;
            wait = wait.mul_f64(WAIT_GROWTH).min(LONGEST_WAIT);
        }
    }

    /// Reads the rest of a stream in the background.
    fn drain(&self, events: Box<EventStream>) {
        let rest = async move { drop(timeout(DRAIN_PATIENCE, events.drain()).await) };
        drop(self.tracker.spawn(rest));
    }

    /// Passes on what the agent says of its work.
    fn report(&self, text: String) {
        let text = self.call.progress.tell(text);
        self.call.recorder.progressed(&text);
    }
}

/// The failure that a server reports in the conversation of the task under an id that nothing else
/// has: a2a-js 0.3 does this for an executor that throws. The stream is the reply to this message
/// alone, so that the failure is of its task.
fn failure_without_task(
    event: &Event<'_>,
    assembly: &Assembly,
    encoding: PartEncoding,
) -> Option<A2aFailure> {
    let Update::Status(status) = &event.update else { return None };
    if !result::is_failed(status) || !assembly.is_in(event.context_id.as_deref()?) {
        return None;
    }
    let text = progress_text::of_event(event, encoding)?;
    let status = StatusCode::INTERNAL_SERVER_ERROR;
    Some(A2aFailure::Refused { code: None, status, text, pause: None })
}
