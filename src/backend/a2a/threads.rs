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

/// Where a message goes: to a new conversation, into a known one, or to a task of it. As the text
/// of a [`Handle`], it has the data with which a task can be asked for after a restart. Later
/// versions read the text, too: members may be added, but never change their meaning.
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
    entries: Mutex<HashMap<String, Entry>>,
    /// Where they outlive the process, and how the agent is called there.
    journal: Option<(Arc<Journal>, String)>,
}

#[derive(Debug)]
struct Entry {
    thread: Thread,
    used_at: Instant,
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

    /// This thread without ids that are too long to be remembered.
    pub(super) fn short(self) -> Self {
        Self {
            context: self.context.filter(|id| id.len() <= MAX_ID),
            task: self.task.filter(|id| id.len() <= MAX_ID),
        }
    }
}

impl Threads {
    /// The conversations with the agent at `endpoint`, kept in `journal`. Those that an earlier
    /// process has left in its file go on, unless the clock was put back: their age is then not
    /// known.
    pub fn kept_in(journal: Arc<Journal>, name: &BackendName, endpoint: &str) -> Arc<Self> {
        let agent = format!("{name} {endpoint}");
        let now = Instant::now();
        let mut entries = HashMap::default();
        for (id, record) in journal.take_conversations(&format!("[{},", text(&agent))) {
            let age = journal.since(record.moment());
            let Some(used_at) = age.and_then(|age| now.checked_sub(age)) else { continue };
            let thread = Thread { task: record.task, context: record.context };
            entries.insert(id, Entry { thread, used_at });
        }
        Arc::new(Self { entries: Mutex::new(entries), journal: Some((journal, agent)) })
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

    /// Whether a call has led to the conversation `context`, as far as this process knows.
    pub(super) fn has(&self, context: &str) -> bool {
        let entries = self.entries.lock();
        entries.values().any(|entry| entry.thread.context.as_deref() == Some(context))
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

    /// [`Self::leave`] over all replicas, in a task of `tracker`: a call that is dropped meanwhile
    /// must not lose where its message has led.
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
        let mut entries = self.entries.lock();
        let Some(entry) = entries.get_mut(id) else { return Thread::default() };
        if entry.used_at.elapsed() >= KEEP {
            entries.remove(id);
            self.write(vec![forget(id.to_owned())]);
            return Thread::default();
        }
        entry.used_at = Instant::now();
        Thread { context: entry.thread.context.clone(), task: entry.thread.task.take() }
    }

    /// Remembers where a message has led. A task that waits for another message of the conversation
    /// stays, unless `thread` has one itself.
    pub(super) fn leave(&self, id: &str, thread: Thread) {
        let Thread { context, task } = thread.short();
        let now = Instant::now();
        // Held until the journal has the changes, so that the file has the last one.
        let mut entries = self.entries.lock();
        let before = entries.remove(id);
        let had_entry = before.is_some();
        let task = task.or_else(|| before?.thread.task);
        if context.is_none() && task.is_none() {
            if had_entry {
                self.write(vec![forget(id.to_owned())]);
            }
            return;
        }
        if entries.len() >= MAX_THREADS {
            self.write(make_room(&mut entries, now));
        }
        let record = ConversationRecord { context, task, used_at: clock::millis() };
        let thread = Thread { context: record.context.clone(), task: record.task.clone() };
        self.write(vec![Change::Conversation(id.to_owned(), record)]);
        entries.insert(id.to_owned(), Entry { thread, used_at: now });
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
fn make_room(entries: &mut HashMap<String, Entry>, now: Instant) -> Vec<Change> {
    let mut removed: Vec<(String, Entry)> = entries
        .extract_if(|_, entry| now.saturating_duration_since(entry.used_at) >= KEEP)
        .collect();
    if entries.len() >= MAX_THREADS {
        let mut times: Vec<Instant> = entries.values().map(|entry| entry.used_at).collect();
        let (_, limit, _) = times.select_nth_unstable(MAX_THREADS / 10);
        let limit = *limit;
        removed.extend(entries.extract_if(|_, entry| entry.used_at <= limit));
    }
    removed.into_iter().map(|(id, _)| forget(id)).collect()
}

#[cfg(test)]
mod tests;
