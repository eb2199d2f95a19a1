//! The conversations with one agent: for each run or session, where its next message goes.
//!
//! Must not: ask the agent anything, or give a run the conversation of another.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use tracing::warn;

use crate::backend::Handle;
use crate::error_chain::error_chain;
use crate::journal::{Journal, Replica};
use crate::model::{AppName, BackendName, CallRequest, CallingRun, RunId, SessionId, Workspace};

/// How long a conversation is remembered after its last message.
const KEEP: Duration = Duration::from_secs(24 * 60 * 60);
/// The most conversations; the oldest go first.
const MAX_THREADS: usize = 10_000;
/// An id of an agent that is longer than this is not remembered.
const MAX_ID: usize = 1024;

/// Where a message goes: to a new conversation, into a known one, or to a task of it. As the text of
/// a [`Handle`], it has the data with which a task can be asked for after a restart. Later versions
/// read the text, too: members may be added, but never change their meaning.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Thread {
    /// The task that waits for the message.
    pub task: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
}

/// The owner of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Owner {
    /// All runs of one session share one.
    Session(AppName, Workspace, SessionId),
    /// By app, as a run that one app attaches may be another's: the two share no conversation.
    Run(AppName, Workspace, RunId),
}

/// All conversations with one agent.
#[derive(Debug, Default)]
pub struct Threads {
    kept: Mutex<HashMap<Owner, Kept>>,
    /// Where replicas keep them, and how they call the agent there.
    group: Option<(Arc<Journal>, String)>,
}

#[derive(Debug)]
struct Kept {
    thread: Thread,
    used: Instant,
}

impl Thread {
    /// Drops the task, else the conversation, after the agent has refused to continue it; `false`
    /// if there is nothing left to drop.
    pub(super) fn weaken(&mut self) -> bool {
        self.task.take().is_some() || self.context.take().is_some()
    }

    /// The handle of its task, which it must have.
    pub(super) fn handle(&self) -> Handle {
        Handle(serde_json::to_string(self).expect("a struct of texts is always JSON"))
    }

    /// `None` if [`Self::handle`] did not write the text.
    pub(super) fn read(handle: &Handle) -> Option<Self> {
        let thread: Self = serde_json::from_str(&handle.0).ok()?;
        Some(thread).filter(|thread| thread.task.is_some())
    }

    /// The same without ids that are too long to be remembered.
    pub(super) fn short(self) -> Self {
        let short = |id: &String| id.len() <= MAX_ID;
        Self { context: self.context.filter(short), task: self.task.filter(short) }
    }
}

impl Owner {
    /// `None` for a call by hand, which belongs to no conversation.
    pub(super) fn of(call: &CallRequest) -> Option<Self> {
        let CallingRun { workspace, run, session } = call.run.clone()?;
        Some(match session {
            Some(session) => Self::Session(call.app.clone(), workspace, session),
            None => Self::Run(call.app.clone(), workspace, run),
        })
    }
}

impl Threads {
    /// Conversations that the replicas which share `journal` have with the agent at `endpoint`.
    pub fn shared(journal: Arc<Journal>, name: &BackendName, endpoint: &str) -> Arc<Self> {
        let group = Some((journal, format!("{name} {endpoint}")));
        Arc::new(Self { group, ..Self::default() })
    }

    /// How replicas share the conversation of `owner`, if they do.
    fn of_group(&self, owner: &Owner) -> Option<(&Replica, String)> {
        let (journal, agent) = self.group.as_ref()?;
        let parts = match owner {
            Owner::Session(app, workspace, it) => (app, workspace, "session", it.as_str()),
            Owner::Run(app, workspace, it) => (app, workspace, "run", it.as_str()),
        };
        let id = serde_json::to_string(&(agent, parts)).expect("strings can be written");
        Some((journal.replica()?, id))
    }

    /// [`Self::enter`] over all replicas; without their database, as far as this one knows.
    pub(super) async fn begin(&self, owner: &Owner) -> Thread {
        let here = self.enter(owner);
        let Some((replica, id)) = self.of_group(owner) else { return here };
        match replica.enter_conversation(&id).await {
            Ok((context, task)) => Thread { context, task },
            Err(error) => {
                warn!(error = error_chain(&error), "cannot look up a conversation");
                here
            }
        }
    }

    /// [`Self::leave`] over all replicas, in a task of `tracker`: a call that is dropped meanwhile must
    /// not lose where its message has led.
    pub(super) async fn end(self: &Arc<Self>, tracker: &TaskTracker, owner: Owner, thread: Thread) {
        self.leave(owner.clone(), thread.clone());
        if self.of_group(&owner).is_none() {
            return;
        }
        let threads = Arc::clone(self);
        let leaving = tracker.spawn(async move {
            let Some((replica, id)) = threads.of_group(&owner) else { return };
            let Thread { context, task } = thread.short();
            if let Err(error) = replica.leave_conversation(&id, context, task).await {
                warn!(error = error_chain(&error), "a conversation is not kept for other replicas");
            }
        });
        leaving.await.ok();
    }

    /// Where the next message of `owner` goes. A waiting task is given to one message only: a
    /// second message at the same time goes to the same conversation, but not to that task.
    pub(super) fn enter(&self, owner: &Owner) -> Thread {
        let mut threads = self.kept.lock();
        let Some(kept) = threads.get_mut(owner) else { return Thread::default() };
        if kept.used.elapsed() >= KEEP {
            threads.remove(owner);
            return Thread::default();
        }
        kept.used = Instant::now();
        Thread { context: kept.thread.context.clone(), task: kept.thread.task.take() }
    }

    /// Remembers where a message has led. A task that waits for another message of `owner`
    /// stays, unless `thread` has one itself.
    pub(super) fn leave(&self, owner: Owner, thread: Thread) {
        let Thread { context, task } = thread.short();
        let now = Instant::now();
        let mut threads = self.kept.lock();
        let known = threads.remove(&owner);
        let task = task.or_else(|| known.and_then(|known| known.thread.task));
        if context.is_none() && task.is_none() {
            return;
        }
        if threads.len() >= MAX_THREADS {
            make_room(&mut threads, now);
        }
        threads.insert(owner, Kept { thread: Thread { context, task }, used: now });
    }
}

/// Forgets the conversations that are too old and, if that is not enough, the oldest tenth.
/// Removing a tenth makes this full scan rare.
fn make_room(threads: &mut HashMap<Owner, Kept>, now: Instant) {
    threads.retain(|_, kept| now.saturating_duration_since(kept.used) < KEEP);
    if threads.len() < MAX_THREADS {
        return;
    }
    let mut ages: Vec<Instant> = threads.values().map(|kept| kept.used).collect();
    let (_, limit, _) = ages.select_nth_unstable(MAX_THREADS / 10);
    let limit = *limit;
    threads.retain(|_, kept| kept.used > limit);
}

#[cfg(test)]
mod tests;
