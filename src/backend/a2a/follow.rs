//! Follows the task that a message has become, until the task ends or waits for input. Uses the
//! agent's events or, without them, polls. Every sign of progress is passed on to the call.
//!
//! Must not: send a message, or time out (the caller drops the future).

use std::{sync::Arc, time::Duration};

use tokio::time::sleep;
use tokio_util::task::TaskTracker;

use super::{
    failure::A2aFailure,
    handle::Known,
    link::{Events, Link, MAX_REPLY, Opened},
    result::{
        Outcome, Reply,
        stream::{Gathering, Step},
    },
    wire::Operation,
};
use crate::{
    backend::peer::{CallError, ToolCall},
    backoff::Backoff,
};

/// The first wait before an unfinished task is polled, the growth of the wait, and its maximum.
pub(super) const FIRST_WAIT: Duration = Duration::from_millis(50);
const WAIT_GROWTH: f64 = 1.5;
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// How many polls of a task may fail in a row, and the least wait after one. Together, they last as
/// long as a restart of the agent.
const MAX_MISSES: u32 = 5;
const MISS_WAIT: Duration = Duration::from_secs(1);
/// How often the bridge subscribes to the events of one task again; after that, it polls.
const MAX_SUBSCRIPTIONS: u32 = 5;
/// The longest wait before the first of these subscriptions.
const FIRST_SUBSCRIPTION_WAIT: Duration = Duration::from_millis(250);

/// How a stream ended.
pub(super) enum StreamEnd {
    Reply(Reply),
    /// It ended or broke before the reply was whole.
    Cut(String),
    /// The agent refused in the stream before it said anything else.
    Refused(A2aFailure),
}

/// A call and, as soon as there is one, the task that the agent made of it.
pub(super) struct Following<'a> {
    link: &'a Link,
    call: &'a ToolCall,
    task: CancelOnDrop<'a>,
    /// The task and conversation that the call recorded last.
    told: Option<Known>,
}

impl<'a> Following<'a> {
    /// Follows no task yet. Cancellations run in `tracker`.
    pub(super) fn new(link: &'a Arc<Link>, tracker: &TaskTracker, call: &'a ToolCall) -> Self {
        let task = CancelOnDrop { link: link.clone(), tracker: tracker.clone(), call, task: None };
        Self { link, call, task, told: None }
    }

    /// Sets the task that is cancelled if the call is dropped.
    pub(super) fn know(&mut self, task: Option<&str>) {
        if self.task.task.as_deref() != task {
            self.task.task = task.map(str::to_owned);
        }
    }

    pub(super) fn task(&self) -> Option<&str> {
        self.task.task.as_deref()
    }

    /// Leaves nothing to cancel: the task has ended or waits.
    pub(super) fn forget(&mut self) {
        self.task.task = None;
    }

    pub(super) fn done(&mut self, reply: Reply) -> Reply {
        self.forget();
        reply
    }

    /// Notes that the agent works on the task: touches the call's progress, and records the handle
    /// to ask for the task after a restart.
    pub(super) fn works(&mut self, context: Option<&str>) {
        self.call.progress.touch();
        let Some(task) = self.task.task.as_deref() else { return };
        let news = self.told.as_ref().is_none_or(|told| told.task != task);
        if let (true, Some(known)) = (news, Known::new(task, context)) {
            self.call.recorder.named(&known.handle());
            self.told = Some(known);
        }
    }

    /// Reads events until the reply is whole or the stream ends.
    pub(super) async fn gather(
        &mut self,
        mut events: Box<Events>,
        gathering: &mut Gathering,
    ) -> Result<StreamEnd, CallError> {
        loop {
            let event = match events.next().await {
                Ok(Some(event)) => event,
                Ok(None) => return Ok(StreamEnd::Cut("the agent closed the stream".to_owned())),
                Err(A2aFailure::Lost(why)) => return Ok(StreamEnd::Cut(why)),
                Err(refused @ A2aFailure::Refused { .. }) if !gathering.has_heard() => {
                    return Ok(StreamEnd::Refused(refused));
                }
                // Only a poll can tell what became of the task.
                Err(A2aFailure::Refused { text, .. }) => return Ok(StreamEnd::Cut(text)),
                Err(failure) => return Err(failure.into()),
            };
            let step = gathering.push(event.get());
            let step = step.map_err(|error| CallError::Unreadable(error.to_string()))?;
            self.know(gathering.task());
            match step {
                Step::More => self.works(gathering.context()),
                Step::Done(reply) => {
                    self.link.log_left_out(&reply);
                    return Ok(StreamEnd::Reply(reply));
                }
                Step::LeftOut(what) => {
                    let task = gathering.task();
                    tracing::debug!(backend = %self.link.name, task, "left out: {what}");
                }
            }
        }
    }

    /// Subscribes to the events of a task whose stream was cut. If that does not help, polls the
    /// task. `why` says how the stream ended.
    pub(super) async fn take_up(
        &mut self,
        mut gathering: Gathering,
        why: String,
    ) -> Result<Reply, CallError> {
        let Some(task) = self.task.task.clone() else { return Err(CallError::Lost(why)) };
        let mut backoff = Backoff::new(FIRST_SUBSCRIPTION_WAIT, LONGEST_WAIT);
        for _ in 0..MAX_SUBSCRIPTIONS {
            sleep(backoff.next_wait()).await;
            let events = match self.link.open(Operation::Subscribe(&task)).await {
                Ok(Opened::Events(events)) => events,
                Err(failure) if failure.is_transient() => continue,
                Ok(Opened::Plain(_)) | Err(_) => break,
            };
            // Poll once: an agent need not begin with the task's present state, and none
            // repeats earlier events. If the task has ended meanwhile, no event would come.
            match self.look(&task).await {
                Ok(Some(reply)) => return Ok(self.done(reply)),
                Ok(None) => {}
                Err(failure) if failure.is_transient() => continue,
                Err(_) => break,
            }
            gathering.resumed();
            match self.gather(events, &mut gathering).await? {
                StreamEnd::Reply(reply) => {
                    let whole =
                        if gathering.has_gap() { self.look(&task).await.ok() } else { None };
                    return Ok(self.done(whole.flatten().unwrap_or(reply)));
                }
                StreamEnd::Cut(_) => {}
                StreamEnd::Refused(_) => break,
            }
        }
        self.poll(Duration::ZERO, why).await
    }

    /// The outcome of a task that was begun before the bridge restarted.
    pub(super) async fn pick_up(&mut self, known: &Known) -> Result<Reply, CallError> {
        let Known { task, context } = known;
        self.know(Some(task));
        let why = "the agent has not said what became of the task".to_owned();
        if !self.link.streams() {
            return self.poll(Duration::ZERO, why).await;
        }
        let encoding = self.link.part_encoding();
        let gathering = Gathering::new(encoding, MAX_REPLY, Some(task), context.as_deref());
        self.take_up(gathering, why).await
    }

    /// Polls the task until it ends or waits for input. If there is no task, the error is
    /// `otherwise`.
    pub(super) async fn poll(
        &mut self,
        first: Duration,
        otherwise: String,
    ) -> Result<Reply, CallError> {
        let Some(task) = self.task.task.clone() else { return Err(CallError::Lost(otherwise)) };
        let mut wait = first;
        let mut misses = 0;
        loop {
            sleep(wait).await;
            wait = wait.mul_f64(WAIT_GROWTH).clamp(FIRST_WAIT, LONGEST_WAIT);
            match self.look(&task).await {
                Ok(None) => misses = 0,
                Ok(Some(reply)) => return Ok(self.done(reply)),
                Err(failure) if failure.is_transient() && misses < MAX_MISSES => {
                    misses += 1;
                    wait = wait.max(MISS_WAIT);
                    tracing::debug!(backend = %self.link.name, task, ?failure, "no news of the task");
                }
                Err(failure) => {
                    if failure.is_unknown_task() {
                        self.forget();
                    }
                    return Err(failure.after_sending());
                }
            }
        }
    }

    /// Polls the task once; `None` while it is unfinished.
    async fn look(&mut self, task: &str) -> Result<Option<Reply>, A2aFailure> {
        let result = self.link.exchange(Operation::GetTask(task)).await?;
        let reply = self.link.read(&result)?;
        if reply.task_id.as_deref().is_some_and(|other| other != task) {
            return Err(A2aFailure::Unreadable("the agent showed another task".to_owned()));
        }
        if matches!(reply.outcome, Outcome::Unfinished) {
            self.works(reply.context_id.as_deref());
            return Ok(None);
        }
        Ok(Some(reply))
    }
}

/// Cancels the task in the background if the call is dropped before the task has ended. If the
/// bridge is stopping and will ask for the task later, it is not cancelled.
struct CancelOnDrop<'a> {
    link: Arc<Link>,
    tracker: TaskTracker,
    call: &'a ToolCall,
    /// `None` if there is nothing to cancel, or nothing any more.
    task: Option<String>,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        let Some(task) = self.task.take().filter(|_| !self.call.recorder.is_left()) else { return };
        // Outside of a runtime, nothing can be sent: the process is about to end.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let link = self.link.clone();
        // The handle is not needed: the tracker knows the task.
        drop(self.tracker.spawn_on(async move { link.cancel(&task).await }, &runtime));
    }
}
