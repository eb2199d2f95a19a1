//! One call to an agent: sends the message, follows the task that it becomes, and remembers the
//! state of the conversation. After a restart, only follows the task.
//!
//! Must not: time out (the caller drops the future), send a message again after the agent may have
//! accepted it, or know how a request looks on the wire.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::failure::{A2aFailure, Exchanged};
use super::follow::{FIRST_WAIT, Following};
use super::link::Link;
use super::result::{Outcome, Reply};
use super::threads::Thread;
use super::wire::{Message, Operation, Reply as Wanted};
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
            trace: call.trace.as_deref(),
        };
        match reply(message, Following::new(link, tracker, call)).await {
            Err(failure) if failure.may_mean_the_thread() && thread.weaken() => {
                tracing::debug!(backend = %link.settings.name, ?failure, "the agent rejected the conversation; starting a new one");
            }
            outcome => break outcome,
        }
    };
    let (next, answer) = match outcome {
        Ok(reply) => {
            let (next, answer) = conclude(reply, thread);
            (Some(next), Ok(answer))
        }
        // The task still waits for a message.
        Err(failure) if failure.is_not_taken() => (Some(first_thread), Err(failure.into())),
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
    // There is a task, so that no other error is needed.
    let reply = following.poll(Duration::ZERO, String::new()).await?;
    let (next, answer) = conclude(reply, thread);
    let threads = &link.settings.threads;
    if let Some(conversation) = threads.id(&call.request) {
        threads.end(tracker, conversation, next).await;
    }
    Ok(answer)
}

/// The answer in a complete reply to a message of `thread`, and the thread for the next message.
fn conclude(reply: Reply, thread: Thread) -> (Thread, Answer) {
    let context = reply.context_id.or(thread.context);
    match reply.outcome {
        Outcome::Waiting(answer) => {
            (Thread { context, task: reply.task_id.or(thread.task) }, answer)
        }
        Outcome::Final(answer) => (Thread { context, task: None }, answer),
        Outcome::Unfinished => {
            unreachable!("a reply is waited for until its task ends or waits")
        }
    }
}

/// Sends the message, and waits for the reply.
///
/// Asks for a reply at once, so that there is a task to cancel while the agent works. If the
/// message continues a task, that task is known already, and a reply at once could show its state
/// from before the message. In that case, polls beside the message show that the agent works.
async fn reply(message: Message<'_>, mut following: Following<'_>) -> Exchanged<Reply> {
    let reply_time = if message.task.is_some() { Wanted::WhenDone } else { Wanted::AtOnce };
    let exchange = following.link.exchange(Operation::Send(message, reply_time));
    let outcome = match message.task {
        None => exchange.await,
        Some(task) => {
            following.answers(task);
            tokio::select! {
                biased;
                outcome = exchange => outcome,
                // If the polls fail, the message alone can bring the reply.
                Ok(reply) = following.poll(FIRST_WAIT, String::new()) => return Ok(reply),
            }
        }
    };
    let otherwise = match outcome {
        Ok(result) => {
            let reply = following.link.read(&result)?;
            if !matches!(reply.outcome, Outcome::Unfinished) {
                return Ok(following.done(reply));
            }
            following.know(reply.task_id.as_deref());
            following.works(reply.context_id.as_deref());
            "the task has no id".to_owned()
        }
        // The message went to a task, and polls of it can tell more.
        Err(A2aFailure::Call(CallError::Lost(why))) if following.task.is_some() => {
            following.lost_reply();
            why
        }
        // Polls have shown that the agent took the message.
        Err(failure) if failure.is_not_taken() && following.saw_work() => String::new(),
        Err(failure) => {
            if failure.is_not_taken() {
                following.task = None;
            }
            return Err(failure);
        }
    };
    Ok(following.poll(FIRST_WAIT, otherwise).await?)
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
