//! Whose the tasks of A2A agents are that clients of A2A have begun through the bridge, and whose
//! the conversations are, which calls begin, too. The agent sees one client, the bridge, and would
//! show each app all of them.
//!
//! Must not: ask the agent.

use std::cmp::Reverse;
use std::sync::{Arc, Weak};

use super::RunStore;
use super::owners::{AgentThing, How, Owned, OwnedTask, is_outdated};
use super::ownership::MAX_ID;
use crate::calls::ConversationOwners;
use crate::clock;
use crate::journal::DatabaseError;
use crate::model::{AppName, BackendName};

/// Whose something is that an agent has made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    Own,
    Anothers,
    /// Of no app, as far as the bridge knows.
    Unknown,
}

impl RunStore {
    /// Makes `app` the owner of what an agent has made, unless it has one. A task is `of_message`,
    /// the id of the app's message. The journal has the owner when this returns: an app that has
    /// the id may rely on it.
    pub async fn own_of_agent(
        self: &Arc<Self>,
        things: Vec<AgentThing>,
        app: &AppName,
        of_message: Option<&str>,
    ) {
        let mut changes = Vec::new();
        {
            let mut inner = self.inner.lock();
            for thing in things {
                let how = match of_message {
                    Some(message) if thing.is_task() => How::OfMessage(message.to_owned()),
                    _ => How::Attached,
                };
                // What has an owner stays the owner's; the agent has named it nevertheless.
                changes.extend(inner.own(Owned::OfAgent(thing), app, how).unwrap_or_default());
            }
        }
        if !changes.is_empty() {
            self.journal().write(changes);
            self.settled().await;
        }
    }

    /// Whose `thing` is. One of the app's own counts as used.
    ///
    /// # Errors
    ///
    /// The database of the replicas does not answer, so that the owner is not known.
    pub async fn whose(&self, thing: AgentThing, app: &AppName) -> Result<Whose, DatabaseError> {
        let owned = Owned::OfAgent(thing);
        if let Some(whose) = self.known_owner(&owned, app) {
            return Ok(whose);
        }
        let Some(replica) = self.journal().replica() else { return Ok(Whose::Unknown) };
        if let Some(record) = replica.owner(&owned.kept()).await? {
            let mut inner = self.inner.lock();
            if inner.owners.get(&owned).is_none() {
                let changes = inner.owners.restore(owned.clone(), &record);
                self.journal().write(changes);
            }
        }
        Ok(self.known_owner(&owned, app).unwrap_or(Whose::Unknown))
    }

    fn known_owner(&self, owned: &Owned, app: &AppName) -> Option<Whose> {
        let mut inner = self.inner.lock();
        if inner.owners.get(owned)?.app != *app {
            return Some(Whose::Anothers);
        }
        let changes = inner.owners.renew(owned, clock::millis());
        if !changes.is_empty() {
            self.journal().write(changes);
        }
        Some(Whose::Own)
    }

    /// The tasks of `agent` that `app` owns, the last one first.
    pub fn tasks_of_agent(&self, agent: &BackendName, app: &AppName) -> Vec<String> {
        let inner = self.inner.lock();
        let mut tasks: Vec<OwnedTask<'_>> = inner.owners.tasks(agent, app).collect();
        // Those that were read from the database stand behind the others in memory.
        tasks.sort_by_key(|task| Reverse(task.since));
        tasks.into_iter().map(|task| task.id.to_owned()).collect()
    }

    /// Reads which tasks of `agent` the app owns by the database of the replicas: any of them may
    /// have been made at another replica.
    ///
    /// # Errors
    ///
    /// The database does not answer, so that some tasks may not be known.
    pub async fn learn_tasks_of_agent(
        &self,
        agent: &BackendName,
        app: &AppName,
    ) -> Result<(), DatabaseError> {
        let Some(replica) = self.journal().replica() else { return Ok(()) };
        let mut records = replica.owned_of(&Owned::tasks_of(agent), app).await?;
        records.sort_by_key(|(_, record)| record.since);
        let now = clock::millis();
        let mut inner = self.inner.lock();
        for (key, record) in records {
            let Some(owned) = Owned::restore(&key) else { continue };
            if inner.owners.get(&owned).is_none() && !is_outdated(record.since, now) {
                let changes = inner.owners.restore(owned, &record);
                self.journal().write(changes);
            }
        }
        Ok(())
    }

    /// The task that `agent` has made of the message `id` of `app`, as far as this process knows.
    pub fn task_of_message(&self, agent: &BackendName, app: &AppName, id: &str) -> Option<String> {
        let inner = self.inner.lock();
        let mut tasks = inner.owners.tasks(agent, app);
        let task = tasks.find(|task| task.message == Some(id))?;
        Some(task.id.to_owned())
    }

    /// Has this learn whose the conversations are that agents begin with runs and other calls.
    pub fn follow_conversations(self: &Arc<Self>) {
        let store: Weak<Self> = Arc::downgrade(self);
        // A second store of the same calls does not exist.
        self.calls.conversation_owners.set(store).ok();
    }

    /// Whether an id of this length can have an owner.
    pub fn is_remembered(id: &str) -> bool {
        id.len() <= MAX_ID
    }
}

impl ConversationOwners for RunStore {
    fn own(&self, agent: &BackendName, context: &str, app: &AppName) {
        let owned = Owned::OfAgent(AgentThing::context(agent, context));
        if !Self::is_remembered(context) || self.known_owner(&owned, app).is_some() {
            return;
        }
        let mut inner = self.inner.lock();
        // Another app that has the id in this moment has made it up before the agent did.
        let changes = inner.own(owned, app, How::Attached).unwrap_or_default();
        self.journal().write(changes);
    }
}
