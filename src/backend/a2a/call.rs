//! One call to an agent: sends the message, follows the task that it becomes, and remembers the
//! state of the conversation. After a restart, only follows the task.
//!
//! Must not: time out (the caller drops the future), send a message again after the agent may have
//! accepted it, or know how a request looks on the wire.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::failure::{A2aFailure, A2aResult};
use super::follow::{FIRST_WAIT, Following, unknown_state};
use super::link::{Habits, Link, Opened};
use super::result::{Outcome, Reply};
use super::threads::Thread;
use super::wire::{Message, Operation, ReplyMode};
use crate::backend::{CallError, Called, ToolCall};
use crate::model::{Answer, CallRequest};
use crate::random;

/// Sends `text` to the agent and waits for its answer to `call`.
pub(super) async fn call(
    link: &Arc<Link>,
    tracker: &TaskTracker,
    text: &str,
    call: &ToolCall,
) -> Called {
    let id = message_id(&call.request).to_string();
    let threads = &link.settings.threads;
    let conversation = threads.id(&call.request);
    let mut thread = match &conversation {
        Some(conversation) => threads.begin(conversation).await,
        None => Thread::default(),
    };
    let first_thread = thread.clone();
    let outcome = loop {
        let message = Message {
            text,
            id: &id,
            context: thread.context.as_deref(),
            task: thread.task.as_deref(),
            output_modes: &link.output_modes,
            trace: call.trace.as_deref(),
        };
        match reply(message, Following::new(link, tracker, call)).await {
            Err(failure) if failure.may_reject_context() && thread.weaken() => {
                tracing::debug!(backend = %link.settings.name, ?failure, "the agent rejected the conversation; starting a new one");
            }
            outcome => break outcome,
        }
    };
    let (next, answer) = match outcome {
        Ok(reply) => {
            let (next, answer) = conclude(reply, thread, call);
            (Some(next), Ok(answer))
        }
        // The task still waits for a message.
        Err(failure) if failure.nothing_was_accepted() => (Some(first_thread), Err(failure.into())),
        Err(failure) => (None, Err(failure.into())),
    };
    if let (Some(conversation), Some(next)) = (conversation, next) {
        threads.end(tracker, conversation, next).await;
    }
    answer
}

/// Waits for the outcome of a task that was begun for `call` before the bridge was restarted.
pub(super) async fn resume(
    link: &Arc<Link>,
    tracker: &TaskTracker,
    thread: Thread,
    call: &ToolCall,
) -> Called {
    let mut following = Following::new(link, tracker, call);
    following.know(thread.task.as_deref());
    let reply = following.pick_up(no_task()).await?;
    let (next, answer) = conclude(reply, thread, call);
    let threads = &link.settings.threads;
    if let Some(conversation) = threads.id(&call.request) {
        threads.end(tracker, conversation, next).await;
    }
    Ok(answer)
}

/// The answer in a complete reply to a message of `thread`, and the thread for the next message.
fn conclude(reply: Reply, thread: Thread, call: &ToolCall) -> (Thread, Answer) {
    let context = reply.context_id.or(thread.context);
    if let Some(context) = &context {
        call.recorder.in_conversation(&call.request, context);
    }
    match reply.outcome {
        Outcome::Waiting(answer) => {
            (Thread { context, task: reply.task_id.or(thread.task) }, answer)
        }
        Outcome::Final(answer) => (Thread { context, task: None }, answer),
        Outcome::Unfinished | Outcome::Unknown(_) => {
            unreachable!("a reply is waited for until its task ends or waits")
        }
    }
}

/// How a message is sent, and its reply awaited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// The reply is a stream.
    Stream,
    /// The reply comes with the task, which is then asked for. If it breaks, there is a task to ask
    /// for and to cancel.
    AtOnce,
    /// The reply comes when the task is done or waits.
    WhenDone,
}

impl Way {
    /// The way for `message`. A stream tells of everything at once. Without one, a reply at once
    /// leaves a task to ask for after a break. If the message continues a task, that task is known
    /// already, and a reply at once could show its state from before the message.
    fn first(link: &Link, message: Message<'_>) -> Self {
        let Habits { no_stream, only_waits, .. } = &link.habits;
        if link.settings.config.blocking {
            Self::WhenDone
        } else if link.streams && !no_stream.load(Ordering::Relaxed) {
            Self::Stream
        } else if message.task.is_some() || only_waits.load(Ordering::Relaxed) {
            Self::WhenDone
        } else {
            Self::AtOnce
        }
    }

    /// The next way, if the agent has refused this one and not the message: nothing has run.
    fn after(self, refusal: &A2aFailure, message: Message<'_>) -> Option<Self> {
        let continues = message.task.is_some();
        match self {
            Self::Stream if refusal.rejects_streaming(!continues) => {
                Some(if continues { Self::WhenDone } else { Self::AtOnce })
            }
            // Where there is a conversation, the refusal may mean that, and it is dropped first.
            Self::AtOnce if message.context.is_none() && refusal.may_require_blocking() => {
                Some(Self::WhenDone)
            }
            Self::Stream | Self::AtOnce | Self::WhenDone => None,
        }
    }

    fn operation(self, message: Message<'_>) -> Operation<'_> {
        match self {
            Self::Stream => Operation::Stream(message),
            Self::AtOnce => Operation::Send(message, ReplyMode::AtOnce),
            Self::WhenDone => Operation::Send(message, ReplyMode::WhenDone),
        }
    }
}

/// Sends the message, and waits for the reply. An agent that refuses one way is sent the message in
/// the next one, and later messages in that way from the start.
///
/// A server before the agent may refuse each request for a moment. Where the last way is refused as
/// the stream was, that says nothing of streams, and the next message is tried as one again.
async fn reply(message: Message<'_>, mut following: Following<'_>) -> A2aResult<Reply> {
    let link = following.link;
    let mut way = Way::first(link, message);
    let mut earlier = None;
    let mut refuses_streams = false;
    loop {
        let outcome = reply_by(way, message, &mut following).await;
        let refusal = match outcome {
            Err(refusal) => refusal,
            Ok(reply) => {
                if earlier == Some(Way::AtOnce) {
                    link.habits.only_waits.store(true, Ordering::Relaxed);
                }
                return Ok(reply);
            }
        };
        let Some(next) = way.after(&refusal, message) else {
            if refuses_streams && refusal.rejects_streaming(true) {
                link.habits.no_stream.store(false, Ordering::Relaxed);
            }
            return Err(refusal);
        };
        tracing::debug!(backend = %link.settings.name, ?way, ?next, ?refusal, "refused; trying the next way");
        if way == Way::Stream && message.task.is_none() {
            refuses_streams = true;
            link.habits.no_stream.store(true, Ordering::Relaxed);
        }
        earlier = Some(way);
        way = next;
    }
}

/// Sends the message in one way. If it continues a task, polls beside it show that the agent works.
async fn reply_by(
    way: Way,
    message: Message<'_>,
    following: &mut Following<'_>,
) -> A2aResult<Reply> {
    let opening = following.link.open(way.operation(message));
    let outcome = match message.task {
        None => opening.await,
        Some(task) => {
            following.answers(task);
            tokio::select! {
                biased;
                outcome = opening => outcome,
                // If the polls fail, the message alone can bring the reply.
                Ok(reply) = following.poll(FIRST_WAIT, no_task()) => return Ok(reply),
            }
        }
    };
    let otherwise = match outcome {
        Ok(Opened::Events(events)) => {
            let outcome = following.stream(events).await;
            if outcome.as_ref().is_err_and(A2aFailure::nothing_was_accepted) {
                following.task = None;
            }
            return outcome;
        }
        Ok(Opened::Result(result)) => {
            let reply = following.link.read(&result)?;
            match &reply.outcome {
                Outcome::Waiting(_) | Outcome::Final(_) => {
                    return Ok(following.conclude(reply).await);
                }
                Outcome::Unfinished => {
                    following.know(reply.task_id.as_deref());
                    following.works(reply.context_id.as_deref());
                    no_task()
                }
                Outcome::Unknown(state) => {
                    following.know(reply.task_id.as_deref());
                    A2aFailure::unclear(unknown_state(state)).into_error_after_delivery()
                }
            }
        }
        // The message went to a task, and polls of it can tell more.
        Err(A2aFailure::Call(CallError::Lost(why))) if following.task.is_some() => {
            following.lost_reply();
            CallError::Lost(why)
        }
        // Polls have shown that the agent took the message.
        Err(failure) if failure.nothing_was_accepted() && following.saw_work() => {
            failure.into_error_after_delivery()
        }
        Err(failure) => {
            if failure.nothing_was_accepted() {
                following.task = None;
            }
            return Err(failure);
        }
    };
    Ok(following.poll(FIRST_WAIT, otherwise).await?)
}

/// The agent works on a message, and there is nothing to ask for its outcome by.
fn no_task() -> CallError {
    A2aFailure::unclear("its task has no id").into_error_after_delivery()
}

/// The message id: the same for every repetition of a call, so that an agent can recognise one.
fn message_id(call: &CallRequest) -> Uuid {
    const NAMESPACE: Uuid = Uuid::from_u128(0x6d57_4c0e_8f0b_4c55_9d3a_2f9f_51a2_7be4);
    call.run_id().map_or_else(random::uuid, |run| {
        let run = run.as_str();
        // The length keeps ("a/b", "c") and ("a", "b/c") apart.
        let name = format!("{}/{run}/{}", run.len(), call.tool_use.as_str());
        Uuid::new_v5(&NAMESPACE, name.as_bytes())
    })
}
