//! One call to an agent: send the message, follow the task that it becomes, cancel what nobody
//! waits for any more, and remember where the conversation stands.
//!
//! Must not: time out (the caller drops the future), send a message twice after it may have been
//! taken, or know how a request looks on the wire.

use std::{sync::Arc, time::Duration};

use serde_json::value::RawValue;
use tokio::time::sleep;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::{
    link::{Events, Link, MAX_REPLY, Opened},
    threads::{Owner, Thread, Threads},
    wire::{Failure, Message, Operation, Reply as Wanted},
};
use crate::{
    backend::peer::{CallError, Origin},
    backoff::Backoff,
    model::answer::{
        Answer,
        a2a::{
            Outcome, Reply,
            stream::{Gathering, Step},
        },
    },
};

/// The first wait before an unfinished task is looked at, the growth of the wait, and its end.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const WAIT_GROWTH: f64 = 1.5;
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// How many looks at a task may fail in a row, and the least wait after one: together, a restart of
/// the agent.
const MAX_MISSES: u32 = 5;
const MISS_WAIT: Duration = Duration::from_secs(1);
/// How often the events of one task are asked for again; after that, it is looked at.
const MAX_SUBSCRIPTIONS: u32 = 5;
/// The most that is waited before the first of them.
const FIRST_SUBSCRIPTION_WAIT: Duration = Duration::from_millis(250);

/// Why there is no reply.
enum Trouble {
    /// The message was not taken: nothing has run.
    NotTaken(Failure),
    Call(CallError),
}

/// How far a stream has led.
enum End {
    Reply(Reply),
    /// It ended or broke before the reply was whole.
    Cut(String),
    /// The agent refused in the stream before it said anything else.
    Refused(Failure),
}

/// One message on its way, and the task that it becomes.
struct Sending<'a> {
    link: &'a Arc<Link>,
    message: Message<'a>,
    task: CancelOnDrop,
}

/// Sends `text` to the agent and waits for its answer.
pub(super) async fn call(
    link: &Arc<Link>,
    tracker: &TaskTracker,
    threads: &Threads,
    text: &str,
    origin: Option<&Origin>,
) -> Result<Answer, CallError> {
    let id = message_id(origin).to_string();
    let owner = origin.map(Owner::of);
    let mut thread = owner.as_ref().map(|owner| threads.enter(owner)).unwrap_or_default();
    let known = thread.clone();
    let outcome = loop {
        let message = Message {
            text,
            id: &id,
            context: thread.context.as_deref(),
            task: thread.task.as_deref(),
        };
        match deliver(link, tracker, message).await {
            Err(Trouble::NotTaken(failure)) if failure.may_mean_the_thread() && thread.weaken() => {
                tracing::debug!(backend = %link.name, ?failure, "the conversation is started anew");
            }
            outcome => break outcome,
        }
    };
    let (next, answer) = match outcome {
        Ok(Reply { outcome: Outcome::Waiting(answer), task_id, context_id, .. }) => {
            let context = context_id.or(thread.context);
            (Some(Thread { context, task: task_id.or(thread.task) }), Ok(answer))
        }
        Ok(Reply { outcome: Outcome::Final(answer), context_id, .. }) => {
            let context = context_id.or(thread.context);
            (Some(Thread { context, task: None }), Ok(answer))
        }
        Ok(Reply { outcome: Outcome::Unfinished, .. }) => {
            unreachable!("a reply is waited for until its task ends or waits")
        }
        // The task still waits.
        Err(Trouble::NotTaken(failure)) => (Some(known), Err(failure.into())),
        Err(Trouble::Call(error)) => (None, Err(error)),
    };
    if let (Some(owner), Some(next)) = (owner, next) {
        threads.leave(owner, next);
    }
    answer
}

/// Sends `message` in the way that the agent takes, and waits for the reply.
async fn deliver(
    link: &Arc<Link>,
    tracker: &TaskTracker,
    message: Message<'_>,
) -> Result<Reply, Trouble> {
    let task = CancelOnDrop { link: link.clone(), tracker: tracker.clone(), task: None };
    let mut sending = Sending { link, message, task };
    if !link.streams() {
        return sending.without_stream().await;
    }
    match sending.with_stream().await {
        Err(Trouble::NotTaken(failure)) if failure.is_no_streaming() => {
            let reply = sending.without_stream().await;
            if reply.is_ok() {
                link.stop_streaming();
            }
            reply
        }
        reply => reply,
    }
}

impl Sending<'_> {
    /// Asks for a reply at once, so that there is a task to cancel while the agent works. A task
    /// that the message goes on with is known already; there, a reply at once could show the task
    /// as it was before.
    async fn without_stream(&mut self) -> Result<Reply, Trouble> {
        let wanted = if self.message.task.is_some() { Wanted::WhenDone } else { Wanted::AtOnce };
        self.task.know(self.message.task);
        match self.link.exchange(Operation::Send(self.message, wanted)).await {
            Ok(result) => self.settle(&result).await,
            Err(failure) => self.not_answered(failure).await,
        }
    }

    async fn with_stream(&mut self) -> Result<Reply, Trouble> {
        let Message { task, context, .. } = self.message;
        let mut gathering = Gathering::new(self.link.wire(), MAX_REPLY, task, context);
        self.task.know(task);
        let opened = self.link.open(Operation::Send(self.message, Wanted::Stream)).await;
        let end = match opened {
            Ok(Opened::Events(events)) => self.gather(events, &mut gathering).await?,
            Ok(Opened::Plain(result)) => return self.settle(&result).await,
            Err(failure) => return self.not_answered(failure).await,
        };
        match end {
            End::Reply(reply) => Ok(self.done(reply)),
            End::Refused(failure) => self.not_answered(failure).await,
            End::Cut(why) => {
                tracing::debug!(backend = %self.link.name, why, "the stream of a task was cut");
                self.resume(gathering, why).await
            }
        }
    }

    /// The agent gave no result. Where the message went to a task, that one can tell more.
    async fn not_answered(&mut self, failure: Failure) -> Result<Reply, Trouble> {
        match failure {
            Failure::Lost(why) if self.task.task.is_some() => self.follow(FIRST_WAIT, why).await,
            Failure::Lost(why) => Err(Trouble::Call(CallError::Lost(why))),
            Failure::Unreadable(why) => Err(Trouble::Call(CallError::Unreadable(why))),
            not_taken @ (Failure::NotSent(_) | Failure::Refused { .. }) => {
                self.task.forget();
                Err(Trouble::NotTaken(not_taken))
            }
        }
    }

    /// Takes a reply that came as one result.
    async fn settle(&mut self, result: &RawValue) -> Result<Reply, Trouble> {
        let reply = self.link.read(result).map_err(|failure| Trouble::Call(failure.into()))?;
        match reply.outcome {
            Outcome::Final(_) | Outcome::Waiting(_) => Ok(self.done(reply)),
            Outcome::Unfinished => {
                self.task.know(reply.task_id.as_deref());
                self.follow(FIRST_WAIT, "the task has no id".to_owned()).await
            }
        }
    }

    /// Reads events until the reply is whole or the stream ends.
    async fn gather(
        &mut self,
        mut events: Events,
        gathering: &mut Gathering,
    ) -> Result<End, Trouble> {
        loop {
            let event = match events.next().await {
                Ok(Some(event)) => event,
                Ok(None) => return Ok(End::Cut("the agent closed the stream".to_owned())),
                Err(Failure::Lost(why)) => return Ok(End::Cut(why)),
                Err(refused @ Failure::Refused { .. }) if !gathering.has_heard() => {
                    return Ok(End::Refused(refused));
                }
                // What became of the task, only a look at it tells.
                Err(Failure::Refused { text, .. }) => return Ok(End::Cut(text)),
                Err(failure) => return Err(Trouble::Call(failure.into())),
            };
            let step = gathering.push(event.get());
            let step = step.map_err(|e| Trouble::Call(CallError::Unreadable(e.to_string())))?;
            self.task.know(gathering.task());
            match step {
                Step::More => {}
                Step::Done(reply) => {
                    self.link.log_left_out(&reply);
                    return Ok(End::Reply(reply));
                }
                Step::LeftOut(what) => {
                    let task = gathering.task();
                    tracing::debug!(backend = %self.link.name, task, "left out: {what}");
                }
            }
        }
    }

    /// Asks for the events of a task whose stream was cut, and looks at it where that does not
    /// help. `why` says how the stream ended.
    async fn resume(&mut self, mut gathering: Gathering, why: String) -> Result<Reply, Trouble> {
        let Some(task) = self.task.task.clone() else {
            return Err(Trouble::Call(CallError::Lost(why)));
        };
        let mut backoff = Backoff::new(FIRST_SUBSCRIPTION_WAIT, LONGEST_WAIT);
        for _ in 0..MAX_SUBSCRIPTIONS {
            sleep(backoff.next_wait()).await;
            let events = match self.link.open(Operation::Subscribe(&task)).await {
                Ok(Opened::Events(events)) => events,
                Err(failure) if failure.is_transient() => continue,
                Ok(Opened::Plain(_)) | Err(_) => break,
            };
            // Not every agent begins with the task as it stands, and none says what happened
            // before: a task that has ended or waits meanwhile would be waited for in vain.
            match self.look(&task).await {
                Ok(Some(reply)) => return Ok(self.done(reply)),
                Ok(None) => {}
                Err(failure) if failure.is_transient() => continue,
                Err(_) => break,
            }
            gathering.resumed();
            match self.gather(events, &mut gathering).await? {
                End::Reply(reply) => {
                    let whole =
                        if gathering.has_gap() { self.look(&task).await.ok() } else { None };
                    return Ok(self.done(whole.flatten().unwrap_or(reply)));
                }
                End::Cut(_) => {}
                End::Refused(_) => break,
            }
        }
        self.follow(Duration::ZERO, why).await
    }

    /// Looks at the task until it ends or waits for somebody; `otherwise` is what went wrong if
    /// there is none.
    async fn follow(&mut self, first: Duration, otherwise: String) -> Result<Reply, Trouble> {
        let Some(task) = self.task.task.clone() else {
            return Err(Trouble::Call(CallError::Lost(otherwise)));
        };
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
                        self.task.forget();
                    }
                    return Err(Trouble::Call(failure.after_sending()));
                }
            }
        }
    }

    /// How the task stands; `None` while it is unfinished.
    async fn look(&self, task: &str) -> Result<Option<Reply>, Failure> {
        let result = self.link.exchange(Operation::GetTask(task)).await?;
        let reply = self.link.read(&result)?;
        if reply.task_id.as_deref().is_some_and(|other| other != task) {
            return Err(Failure::Unreadable("the agent showed another task".to_owned()));
        }
        Ok(match reply.outcome {
            Outcome::Unfinished => None,
            Outcome::Final(_) | Outcome::Waiting(_) => Some(reply),
        })
    }

    /// There is nothing to cancel any more.
    fn done(&mut self, reply: Reply) -> Reply {
        self.task.forget();
        reply
    }
}

/// The same id for every repetition of a call, so that an agent that looks at ids can tell.
fn message_id(origin: Option<&Origin>) -> Uuid {
    const NAMESPACE: Uuid = Uuid::from_u128(0x6d57_4c0e_8f0b_4c55_9d3a_2f9f_51a2_7be4);
    origin.map_or_else(Uuid::new_v4, |Origin { run, tool_use, .. }| {
        let run = run.as_str();
        // The length keeps ("a/b", "c") and ("a", "b/c") apart.
        let name = format!("{}/{run}/{}", run.len(), tool_use.as_str());
        Uuid::new_v5(&NAMESPACE, name.as_bytes())
    })
}

/// Cancels the task in the background when the call is dropped before the task has ended.
struct CancelOnDrop {
    link: Arc<Link>,
    tracker: TaskTracker,
    /// `None` while or once there is nothing to cancel.
    task: Option<String>,
}

impl CancelOnDrop {
    fn know(&mut self, task: Option<&str>) {
        if self.task.as_deref() != task {
            self.task = task.map(str::to_owned);
        }
    }

    fn forget(&mut self) {
        self.task = None;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let Some(task) = self.task.take() else { return };
        // Outside of a runtime, nothing can be sent: the process is about to end.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let link = self.link.clone();
        // The handle is not needed: the tracker knows the task.
        drop(self.tracker.spawn_on(async move { link.cancel(&task).await }, &runtime));
    }
}
