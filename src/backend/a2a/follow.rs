//! Follows the task that a message has become, until the task ends or waits for input: by polling
//! here, by its stream in `stream`. Every sign of progress is passed on to the call.
//!
//! Must not: send a message, or time out (the caller drops the future).

mod stream;

use std::sync::Arc;
use std::time::Duration;

use a2a::error_code::TASK_NOT_FOUND;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::TaskTracker;

use super::failure::{A2aFailure, A2aResult};
use super::link::Link;
use super::result::{Content, Outcome, Reply};
use super::threads::Thread;
use super::wire::Operation;
use crate::backend::{CallError, Called, TASK_SILENCE, ToolCall};
use crate::model::Ending;
use crate::model::maps::fingerprint;

/// The first wait before an unfinished task is polled, the growth of the wait, and its maximum. An
/// answer comes at most this share of the task's time late.
pub(super) const FIRST_WAIT: Duration = Duration::from_millis(50);
const WAIT_GROWTH: f64 = 1.2;
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// The least wait after a poll that failed.
const MISS_WAIT: Duration = Duration::from_secs(1);

/// How long the agent may take to show the history of a task that has ended.
const HISTORY_PATIENCE: Duration = Duration::from_secs(5);

/// The states of a task that the bridge does not take, as they may be from before the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stale {
    None,
    /// The task may still show the question that the message answers.
    Question,
    /// The message may still be on its way, and be refused as the task has ended.
    All,
}

/// A call and, as soon as there is one, the task that the agent made of it. A drop before the task
/// has ended cancels it in the background, unless the bridge is stopping and will ask for the task
/// later.
pub(super) struct Following<'a> {
    pub(super) link: &'a Arc<Link>,
    tracker: &'a TaskTracker,
    call: &'a ToolCall,
    /// `None` if there is no task to cancel, or no longer one.
    pub(super) task: Option<String>,
    /// The task that the call recorded last.
    told: Option<String>,
    stale: Stale,
    /// What the last poll of the unfinished task has shown, as a hash.
    last_poll: Option<u64>,
    stall: Stall,
    /// The agent does not tell of tasks.
    is_unwatchable: bool,
}

/// Whether the agent may have stopped working on the task without a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stall {
    /// Nothing suggests that.
    No,
    /// The agent broke its stream off in the middle of work. If the task shows no change until
    /// then, the agent has dropped it.
    Suspected { until: Instant },
    /// It has.
    Certain,
}

impl<'a> Following<'a> {
    /// Follows no task yet. Cancellations run in `tracker`.
    pub(super) fn new(link: &'a Arc<Link>, tracker: &'a TaskTracker, call: &'a ToolCall) -> Self {
        Self {
            link,
            tracker,
            call,
            task: None,
            told: None,
            stale: Stale::None,
            last_poll: None,
            stall: Stall::No,
            is_unwatchable: false,
        }
    }

    /// Sets the task that is cancelled if the call is dropped.
    pub(super) fn know(&mut self, task: Option<&str>) {
        self.task = task.map(str::to_owned);
    }

    /// Sets the task that the message on its way goes to.
    pub(super) fn answers(&mut self, task: &str) {
        self.know(Some(task));
        self.stale = Stale::All;
    }

    /// The reply to the message got lost. Polls of the task may tell more.
    pub(super) fn lost_reply(&mut self) {
        self.stale = self.stale.min(Stale::Question);
    }

    /// Whether a poll has shown work on the message that [`Self::answers`] a task.
    pub(super) fn saw_work(&self) -> bool {
        self.task.is_some() && self.stale == Stale::None
    }

    /// Leaves nothing to cancel: the task has ended or waits.
    pub(super) fn done(&mut self, reply: Reply) -> Reply {
        self.task = None;
        reply
    }

    /// Notes that the agent works on the task: touches the call's progress, and records the handle
    /// to ask for the task after a restart.
    pub(super) fn works(&mut self, context: Option<&str>) {
        self.call.progress.touch();
        self.stale = Stale::None;
        if let Some(context) = context {
            self.call.recorder.in_conversation(&self.call.request, context);
        }
        if self.task.is_none() || self.task == self.told {
            return;
        }
        let context = context.map(str::to_owned);
        let thread = Thread { task: self.task.clone(), context }.short();
        if thread.task.is_some() {
            self.call.recorder.named(&thread.handle());
            self.told = thread.task;
        }
    }

    /// Polls the task until it ends or waits for input, and gives up after [`TASK_SILENCE`] unless
    /// a message is on its way to the task. If there is no task, the error is `otherwise`.
    pub(super) async fn poll(&mut self, first: Duration, otherwise: CallError) -> Called<Reply> {
        let Some(task) = self.task.clone() else { return Err(otherwise) };
        let mut wait = first;
        let mut heard = Instant::now();
        loop {
            sleep(wait).await;
            wait = wait.mul_f64(WAIT_GROWTH).clamp(FIRST_WAIT, LONGEST_WAIT);
            match self.look(&task).await {
                Ok(None) => heard = Instant::now(),
                Ok(Some(reply)) => return Ok(self.conclude(reply).await),
                Err(failure)
                    if failure.is_transient()
                        && self.stall != Stall::Certain
                        && (heard.elapsed() < TASK_SILENCE || self.stale == Stale::All) =>
                {
                    let remaining = TASK_SILENCE.saturating_sub(heard.elapsed());
                    wait =
                        failure.pause().map_or(wait, |pause| pause.min(remaining)).max(MISS_WAIT);
                    tracing::debug!(backend = %self.link.settings.name, task, ?failure, "no news of the task");
                }
                Err(failure) => {
                    if failure.has_code(TASK_NOT_FOUND) {
                        self.task = None;
                    }
                    return Err(failure.into_error_after_delivery());
                }
            }
        }
    }

    /// Polls the task once; `None` while it is unfinished.
    async fn look(&mut self, task: &str) -> A2aResult<Option<Reply>> {
        let result = self.link.exchange(Operation::GetTask(task)).await?;
        let reply = self.link.read(&result)?;
        if reply.task_id.as_deref().is_some_and(|other| other != task) {
            return Err(A2aFailure::unclear("it shows another task than the one asked for"));
        }
        match (self.stale, &reply.outcome) {
            (_, Outcome::Unfinished) => {
                self.note_change(result.get())?;
                self.works(reply.context_id.as_deref());
                Ok(None)
            }
            (_, Outcome::Unknown(state)) => Err(A2aFailure::unclear(unknown_state(state))),
            (Stale::All, _) | (Stale::Question, Outcome::Waiting(_)) => {
                Err(A2aFailure::lost("the task is as it was before the message"))
            }
            (Stale::None | Stale::Question, _) => Ok(Some(reply)),
        }
    }

    /// Compares an unfinished task with what it was. An error if the agent has dropped it.
    ///
    /// A server whose agent fails in the middle of a stream may close the stream without a word,
    /// and show the task at work for ever (a2a-sdk 0.3 does). A proxy that closes a silent stream
    /// looks alike; so a stream counts only if it broke off soon after an event.
    fn note_change(&mut self, task: &str) -> A2aResult<()> {
        let hash = fingerprint(&task);
        let Stall::Suspected { until } = self.stall else {
            self.last_poll = Some(hash);
            return Ok(());
        };
        match self.last_poll.replace(hash) {
            Some(earlier) if earlier != hash => self.stall = Stall::No,
            _ if Instant::now() < until => {}
            _ => {
                self.stall = Stall::Certain;
                let why = "it broke its reply off, and its task has shown no work since".to_owned();
                return Err(CallError::Unclear { why, ending: Ending::Unknown }.into());
            }
        }
        Ok(())
    }

    /// The complete reply. If it has no content, asks the agent once for what it has said before:
    /// some answers stand only in the history, which the polls leave out.
    pub(super) async fn conclude(&mut self, reply: Reply) -> Reply {
        let reply = self.done(reply);
        let Some(task) = reply.task_id.as_deref().filter(|_| reply.content != Content::Stated)
        else {
            return reply;
        };
        let look = self.link.exchange(Operation::GetHistory(task));
        let Ok(Ok(result)) = timeout(HISTORY_PATIENCE, look).await else { return reply };
        match self.link.read(&result) {
            Ok(longer)
                if matches!(longer.outcome, Outcome::Final(_) | Outcome::Waiting(_))
                    && longer.task_id == reply.task_id
                    && longer.content != Content::None =>
            {
                longer
            }
            _ => reply,
        }
    }
}

/// What is said of a task in a state that A2A does not know.
pub(super) fn unknown_state(state: &str) -> String {
    format!("its task is in the state `{state}`, which A2A does not know")
}

impl Drop for Following<'_> {
    fn drop(&mut self) {
        let Some(task) = self.task.take().filter(|_| !self.call.recorder.is_left()) else { return };
        // Outside of a runtime, nothing can be sent: the process is about to end.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let link = Arc::clone(self.link);
        // The handle is not needed: the tracker knows the task.
        drop(self.tracker.spawn_on(async move { link.cancel(&task).await }, &runtime));
    }
}
