//! The conversations with one agent: for each run or session, where its next message goes.
//!
//! Must not: ask the agent anything, or give a run the conversation of another.

use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use tracing::warn;

use crate::backend::Handle;
use crate::clock;
use crate::error_chain::error_chain;
use crate::journal::record::{Change, ConversationRecord, KEEP_CONVERSATION as KEEP, Key};
use crate::journal::{Journal, Replica};
use crate::model::maps::HashMap;
use crate::model::{BackendName, CallRequest, CallingRun};

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

/// All conversations with one agent.
#[derive(Debug, Default)]
pub struct Threads {
    /// By [`Self::id`].
    kept: Mutex<HashMap<String, Kept>>,
    /// Where they outlive the process, and how the agent is called there.
    journal: Option<(Arc<Journal>, String)>,
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

impl Threads {
    /// The conversations with the agent at `endpoint`, kept in `journal`. Those that an earlier process
    /// has left in its file go on, unless the clock was put back: their age is then not known.
    pub fn kept_in(journal: Arc<Journal>, name: &BackendName, endpoint: &str) -> Arc<Self> {
        let agent = format!("{name} {endpoint}");
        let now = Instant::now();
        let kept = journal.take_conversations(&format!("[{},", text(&agent))).into_iter();
        let kept = kept.filter_map(|(id, it)| {
            let used = now.checked_sub(journal.since(it.moment())?)?;
            Some((id, Kept { thread: Thread { task: it.task, context: it.context }, used }))
        });
        let kept = Mutex::new(kept.collect());
        Arc::new(Self { kept, journal: Some((journal, agent)) })
    }

    /// The id of the conversation that `call` belongs to, here and in the journal. All runs of one
    /// session share one. The id has the app, as a run that one app attaches may be another's: the
    /// two share no conversation. `None` for a call by hand, which belongs to none.
    pub(super) fn id(&self, call: &CallRequest) -> Option<String> {
        let agent = self.journal.as_ref().map_or("", |(_, agent)| agent);
        let CallingRun { workspace, run, session } = call.run.as_ref()?;
        let (kind, owner) = match session {
            Some(session) => ("session", session.as_str()),
            None => ("run", run.as_str()),
        };
        Some(text(&(agent, (&call.app, workspace, kind, owner))))
    }

    /// This process, if it shares the conversations with other replicas.
    fn replica(&self) -> Option<&Replica> {
        self.journal.as_ref()?.0.replica()
    }

    /// Has a file keep `changes`. The replicas' table is written by [`Self::end`].
    fn write(&self, changes: Vec<Change>) {
        if let Some((journal, _)) = self.journal.as_ref().filter(|_| self.replica().is_none()) {
            journal.write(changes);
        }
    }

    /// [`Self::enter`] over all replicas; without their database, as far as this one knows.
    pub(super) async fn begin(&self, id: &str) -> Thread {
        let here = self.enter(id);
        let Some(replica) = self.replica() else { return here };
        match replica.enter_conversation(id).await {
            Ok((context, task)) => Thread { context, task },
            Err(error) => {
                warn!(error = error_chain(&error), "cannot look up a conversation");
                here
            }
        }
    }

    /// [`Self::leave`] over all replicas, in a task of `tracker`: a call that is dropped meanwhile must
    /// not lose where its message has led.
    pub(super) async fn end(self: &Arc<Self>, tracker: &TaskTracker, id: String, thread: Thread) {
        self.leave(&id, thread.clone());
        if self.replica().is_none() {
            return;
        }
        let threads = Arc::clone(self);
        let leaving = tracker.spawn(async move {
            let Some(replica) = threads.replica() else { return };
            let Thread { context, task } = thread.short();
            if let Err(error) = replica.leave_conversation(&id, (context, task)).await {
                warn!(error = error_chain(&error), "a conversation is not kept for other replicas");
            }
        });
        leaving.await.ok();
    }

    /// Where the next message of the conversation `id` goes. A waiting task is given to one message
    /// only: a second message at the same time goes to the same conversation, but not to that task.
    /// After a crash, the file may still have the task; the agent then refuses it.
    pub(super) fn enter(&self, id: &str) -> Thread {
        let mut threads = self.kept.lock();
        let Some(kept) = threads.get_mut(id) else { return Thread::default() };
        if kept.used.elapsed() >= KEEP {
            threads.remove(id);
            self.write(vec![forget(id.to_owned())]);
            return Thread::default();
        }
        kept.used = Instant::now();
        Thread { context: kept.thread.context.clone(), task: kept.thread.task.take() }
    }

    /// Remembers where a message has led. A task that waits for another message of the
    /// conversation stays, unless `thread` has one itself.
    pub(super) fn leave(&self, id: &str, thread: Thread) {
        let Thread { context, task } = thread.short();
        let now = Instant::now();
        // Held until the journal has the changes, so that the file has the last one.
        let mut threads = self.kept.lock();
        let known = threads.remove(id);
        let is_known = known.is_some();
        let task = task.or_else(|| known.and_then(|known| known.thread.task));
        if context.is_none() && task.is_none() {
            if is_known {
                self.write(vec![forget(id.to_owned())]);
            }
            return;
        }
        if threads.len() >= MAX_THREADS {
            self.write(make_room(&mut threads, now));
        }
        let record = ConversationRecord { context, task, used_at: clock::millis() };
        let thread = Thread { context: record.context.clone(), task: record.task.clone() };
        self.write(vec![Change::Conversation(id.to_owned(), record)]);
        threads.insert(id.to_owned(), Kept { thread, used: now });
    }
}

fn text(parts: &impl Serialize) -> String {
    serde_json::to_string(parts).expect("strings can be written")
}

fn forget(id: String) -> Change {
    Change::Forget(Key::Conversation(id))
}

/// Forgets the conversations that are too old and, if that is not enough, the oldest tenth.
/// Removing a tenth makes this full scan rare.
fn make_room(threads: &mut HashMap<String, Kept>, now: Instant) -> Vec<Change> {
    let is_old = |kept: &Kept| now.saturating_duration_since(kept.used) >= KEEP;
    let mut gone: Vec<_> = threads.extract_if(|_, kept| is_old(kept)).collect();
    if threads.len() >= MAX_THREADS {
        let mut ages: Vec<Instant> = threads.values().map(|kept| kept.used).collect();
        let (_, limit, _) = ages.select_nth_unstable(MAX_THREADS / 10);
        let limit = *limit;
        gone.extend(threads.extract_if(|_, kept| kept.used <= limit));
    }
    gone.into_iter().map(|(id, _)| forget(id)).collect()
}

#[cfg(test)]
mod tests;
