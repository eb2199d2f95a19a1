//! Which app a run or a session belongs to, or a task of an A2A agent, and which driver answers a
//! call.
//!
//! Every run and session that passes through has an owner, with tools of the bridge or without.
//! Apps may share one credential, with which MANTYX would show each of them the runs of the others;
//! the owner is what keeps them apart. An owner outlives its run here, as MANTYX keeps runs for
//! much longer than the bridge does.
//!
//! A call has one driver. The same call can stand in two streams, that of its agent run and that of
//! an eval, so each driver claims a call before it makes it. Otherwise the call would be made
//! twice.
//!
//! Must not: do IO; changes for the journal are returned to the caller.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::journal::record::{Change, Key, Millis, OwnedKey, OwnerRecord, Slot};
use crate::model::BackendName;
use crate::model::ids::{AppName, RunId, RunKey, RunKind, SessionId, ToolUseId, Workspace};
use crate::model::maps::{HashMap, HashSet};
use crate::model::words::Words as _;

use crate::journal::room;

/// The most runs, sessions, tasks of agents, and conversations with agents of one app whose owner
/// is remembered. An app that creates more pushes out its own, and never those of another.
pub(super) const KEEP_OWNED: usize = 10_000;
/// About how many bytes an owner takes in addition to its names.
const RECORD: usize = 200;
/// How long what an agent has made is remembered after its app has used it last.
pub(super) const KEEP_OF_AGENT: Duration = Duration::from_secs(30 * 24 * 60 * 60);
const RENEW_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// What has an owner.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Owned {
    Run(RunKey),
    Session(Workspace, SessionId),
    OfAgent(AgentThing),
}

/// What an A2A agent has made for a client of an app.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AgentThing {
    /// The agent's name, in the form that the journal's keys have.
    agent: Workspace,
    kind: AgentThingKind,
    id: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AgentThingKind {
    Task,
    Context,
}

impl AgentThing {
    pub fn task(agent: &BackendName, id: &str) -> Self {
        Self::new(agent, AgentThingKind::Task, id)
    }

    /// A conversation.
    pub fn context(agent: &BackendName, id: &str) -> Self {
        Self::new(agent, AgentThingKind::Context, id)
    }

    pub(super) fn is_task(&self) -> bool {
        self.kind == AgentThingKind::Task
    }

    fn new(agent: &BackendName, kind: AgentThingKind, id: &str) -> Self {
        Self { agent: agent.as_str().into(), kind, id: id.to_owned() }
    }
}

/// How an app came to own a run or a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum How {
    /// MANTYX created it for the app.
    Created,
    /// The app was the first to attach the run, or to send a message to the session, as far as the
    /// bridge knows. It may belong to another app, for which MANTYX's answer is still under way.
    Attached,
    /// An eval of the app has named the run as one of its agent runs.
    OfEval(RunId),
    /// An A2A agent has made the task of the app's message with this id.
    OfMessage(String),
}

impl How {
    pub(super) fn is_of_eval(&self) -> bool {
        matches!(self, Self::OfEval(_))
    }
}

#[derive(Debug, Clone)]
pub(super) struct Owner {
    pub app: AppName,
    pub how: How,
    pub since: Millis,
    number: u64,
    /// The app has used it on a later day, so that among replicas this record replaces the first.
    is_renewed: bool,
}

/// What an app owns, in the order in which it came to own it.
#[derive(Debug)]
struct Belonging {
    /// Its [`Owner::number`].
    number: u64,
    /// Its size in the journal.
    bytes: usize,
    owned: Arc<Owned>,
}

#[derive(Debug, Default)]
struct Belongings {
    runs: VecDeque<Belonging>,
    sessions: VecDeque<Belonging>,
    tasks: VecDeque<Belonging>,
    contexts: VecDeque<Belonging>,
    /// How much of the journal they take.
    bytes: usize,
}

impl Belongings {
    fn of_kind(&mut self, kind: OwnedKind) -> &mut VecDeque<Belonging> {
        match kind {
            OwnedKind::Run => &mut self.runs,
            OwnedKind::Session => &mut self.sessions,
            OwnedKind::Task => &mut self.tasks,
            OwnedKind::Context => &mut self.contexts,
        }
    }

    /// The kind of what the app has owned for longest.
    fn oldest_kind(&self) -> OwnedKind {
        let first =
            |of_kind: &VecDeque<Belonging>| of_kind.front().map_or(u64::MAX, |one| one.number);
        let kinds = [
            (first(&self.runs), OwnedKind::Run),
            (first(&self.sessions), OwnedKind::Session),
            (first(&self.tasks), OwnedKind::Task),
            (first(&self.contexts), OwnedKind::Context),
        ];
        kinds.into_iter().min_by_key(|(number, _)| *number).map_or(OwnedKind::Run, |(_, kind)| kind)
    }
}

/// What belongs to an app. Each kind has a limit for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnedKind {
    Run,
    Session,
    /// A task of an A2A agent.
    Task,
    /// A conversation with one. Those that the app's runs begin must not push out its tasks.
    Context,
}

/// A task of an agent that an app owns.
#[derive(Debug, Clone, Copy)]
pub(super) struct OwnedTask<'a> {
    pub id: &'a str,
    /// The app's message that the agent has made it of.
    pub message: Option<&'a str>,
    pub since: Millis,
}

/// The owners of all runs and sessions.
#[derive(Debug, Default)]
pub(super) struct Owners {
    all: HashMap<Arc<Owned>, Owner>,
    by_app: HashMap<AppName, Belongings>,
    /// How much of the journal all of them take.
    bytes: usize,
    next: u64,
}

impl Owned {
    const SESSIONS: &'static str = "agent-sessions";
    /// No collection of MANTYX's has these names.
    const TASKS: &'static str = "a2a-tasks";
    const CONTEXTS: &'static str = "a2a-contexts";

    /// What the keys of all tasks of `agent` begin with.
    pub(super) fn tasks_of(agent: &BackendName) -> (Workspace, &'static str) {
        (agent.as_str().into(), Self::TASKS)
    }

    /// Its workspace, its collection in MANTYX's API, and its id.
    pub(super) fn parts(&self) -> (&Workspace, &'static str, &str) {
        match self {
            Self::Run(RunKey { workspace, kind, run }) => (workspace, kind.as_str(), run.as_str()),
            Self::Session(workspace, session) => (workspace, Self::SESSIONS, session.as_str()),
            Self::OfAgent(AgentThing { agent, kind: AgentThingKind::Task, id }) => {
                (agent, Self::TASKS, id)
            }
            Self::OfAgent(AgentThing { agent, kind: AgentThingKind::Context, id }) => {
                (agent, Self::CONTEXTS, id)
            }
        }
    }

    fn kind(&self) -> OwnedKind {
        match self {
            Self::Run(_) => OwnedKind::Run,
            Self::Session(..) => OwnedKind::Session,
            Self::OfAgent(thing) if thing.is_task() => OwnedKind::Task,
            Self::OfAgent(_) => OwnedKind::Context,
        }
    }

    /// The key in the journal.
    pub(super) fn kept(&self) -> OwnedKey {
        let (workspace, kind, id) = self.parts();
        (workspace.clone(), kind.to_owned(), id.to_owned())
    }

    /// `None`: of a kind that this version does not know.
    pub(super) fn restore((workspace, kind, id): &OwnedKey) -> Option<Self> {
        if kind == Self::SESSIONS {
            return Some(Self::Session(workspace.clone(), id.as_str().into()));
        }
        let of_agent = |kind| {
            let (agent, id) = (workspace.clone(), id.clone());
            Some(Self::OfAgent(AgentThing { agent, kind, id }))
        };
        match kind.as_str() {
            Self::TASKS => return of_agent(AgentThingKind::Task),
            Self::CONTEXTS => return of_agent(AgentThingKind::Context),
            _ => {}
        }
        let kind = RunKind::parse(kind)?;
        Some(Self::Run(RunKey { workspace: workspace.clone(), kind, run: id.as_str().into() }))
    }
}

impl Owner {
    /// About how many bytes of the journal the owner takes.
    fn size(&self, owned: &Owned) -> usize {
        let (workspace, _, id) = owned.parts();
        let origin = match &self.how {
            How::OfEval(eval) => eval.as_str().len(),
            How::OfMessage(message) => message.len(),
            How::Created | How::Attached => 0,
        };
        RECORD + workspace.as_str().len() + id.len() + self.app.as_str().len() + origin
    }

    fn record(&self) -> OwnerRecord {
        // Among replicas, the first record of an owner that has attached counts.
        let record = OwnerRecord {
            app: self.app.clone(),
            attached: false,
            eval: None,
            message: None,
            since: self.since,
        };
        let attached = !self.is_renewed;
        match self.how.clone() {
            How::Created => record,
            How::Attached => OwnerRecord { attached, ..record },
            How::OfEval(eval) => OwnerRecord { eval: Some(eval), ..record },
            How::OfMessage(id) => OwnerRecord { attached, message: Some(id), ..record },
        }
    }
}

impl Owners {
    pub(super) fn get(&self, owned: &Owned) -> Option<&Owner> {
        self.all.get(owned)
    }

    /// Makes `app` the owner. The changes are for the journal. The error is the owner that keeps
    /// it: another app, or the same app in another role, as it is an agent run of an eval or not
    /// one.
    ///
    /// An owner that created the run or session keeps it for good. One that has only attached it
    /// loses it to the app that MANTYX says it was created for, or to the eval whose agent run it
    /// turns out to be. Without this rule, an app that shares MANTYX's credential with another
    /// could attach the other's run, read its events, and have its calls made with its own tools.
    pub(super) fn own(
        &mut self,
        owned: Owned,
        app: &AppName,
        how: How,
        since: Millis,
    ) -> Result<Vec<Change>, Owner> {
        if let Some(owner) = self.all.get(&owned) {
            if owner.app == *app && owner.how.is_of_eval() == how.is_of_eval() {
                return Ok(Vec::new());
            }
            if owner.how != How::Attached || how == How::Attached {
                return Err(owner.clone());
            }
        }
        Ok(self.put(owned, app, how, since))
    }

    /// Restores an owner from the journal. The changes are those that forget owners beyond a limit.
    pub(super) fn restore(&mut self, owned: Owned, record: &OwnerRecord) -> Vec<Change> {
        let how = match (&record.eval, &record.message, record.attached) {
            (Some(eval), ..) => How::OfEval(eval.clone()),
            (None, Some(message), _) => How::OfMessage(message.clone()),
            (None, None, true) => How::Attached,
            (None, None, false) => How::Created,
        };
        let mut changes = self.put(owned, &record.app, how, record.since);
        changes.retain(|change| matches!(change, Change::Forget(Key::Owner(_))));
        changes
    }

    /// Makes `app` the owner, in place of any other. The changes are for the journal.
    ///
    /// Room is made at once. Each app has its own limit in number. The bytes of all have one limit,
    /// and the app with most loses its oldest: the app that creates much pays for it, and no other.
    pub(super) fn put(
        &mut self,
        owned: Owned,
        app: &AppName,
        how: How,
        since: Millis,
    ) -> Vec<Change> {
        let number = self.next;
        self.next += 1;
        let owner = Owner { app: app.clone(), how, since, number, is_renewed: false };
        self.insert(owned, owner)
    }

    fn insert(&mut self, owned: Owned, owner: Owner) -> Vec<Change> {
        let (app, number) = (owner.app.clone(), owner.number);
        let size = owner.size(&owned);
        // The journal's key keeps the spelling of the first request.
        let key = match self.all.get_key_value(&owned) {
            Some((first_spelling, _)) => Arc::clone(first_spelling),
            None => Arc::new(owned),
        };
        let mut changes = vec![Change::Owner(key.kept(), owner.record())];
        let kind = key.kind();
        self.all.insert(Arc::clone(&key), owner);
        let own = self.by_app.entry(app.clone()).or_default();
        own.bytes += size;
        self.bytes += size;
        let of_kind = own.of_kind(kind);
        of_kind.push_back(Belonging { number, bytes: size, owned: key });
        if of_kind.len() > KEEP_OWNED {
            changes.extend(self.push_out(&app, kind));
        }
        while self.bytes > room::OWNERS
            && let Some((largest, own)) = self.by_app.iter().max_by_key(|(_, own)| own.bytes)
        {
            let (largest, oldest_kind) = (largest.clone(), own.oldest_kind());
            changes.extend(self.push_out(&largest, oldest_kind));
        }
        changes
    }

    /// Notes that the app has used what an agent has made. It is written once a day, as each record
    /// takes a place among those that the app may have.
    pub(super) fn renew(&mut self, owned: &Owned, now: Millis) -> Vec<Change> {
        let number = self.next;
        let Some(owner) = self.all.get(owned) else { return Vec::new() };
        if u128::from(now.saturating_sub(owner.since)) < RENEW_AFTER.as_millis() {
            return Vec::new();
        }
        let renewed = Owner { since: now, number, is_renewed: true, ..owner.clone() };
        self.next += 1;
        self.insert(owned.clone(), renewed)
    }

    /// Forgets what agents have made, and what its app has not used for [`KEEP_OF_AGENT`].
    pub(super) fn expire(&mut self, now: Millis) -> Vec<Change> {
        let mut changes = Vec::new();
        let apps: Vec<AppName> = self.by_app.keys().cloned().collect();
        for app in apps {
            for kind in [OwnedKind::Task, OwnedKind::Context] {
                while let Some(own) = self.by_app.get_mut(&app)
                    && let Some(Belonging { number, owned, .. }) = own.of_kind(kind).front()
                    && self.all.get(owned).is_none_or(|owner| {
                        owner.number != *number || is_outdated(owner.since, now)
                    })
                {
                    changes.extend(self.push_out(&app, kind));
                }
            }
        }
        changes
    }

    /// The tasks of `agent` that `app` owns, the last one first.
    pub(super) fn tasks<'a>(
        &'a self,
        agent: &'a BackendName,
        app: &AppName,
    ) -> impl Iterator<Item = OwnedTask<'a>> {
        let tasks = self.by_app.get(app).map(|own| &own.tasks);
        tasks.into_iter().flatten().rev().filter_map(move |Belonging { number, owned, .. }| {
            let Owned::OfAgent(thing) = &**owned else { return None };
            let owner = self.all.get(owned).filter(|owner| owner.number == *number)?;
            if thing.agent.as_str() != agent.as_str() {
                return None;
            }
            let message = match &owner.how {
                How::OfMessage(message) => Some(message.as_str()),
                _ => None,
            };
            Some(OwnedTask { id: thing.id.as_str(), message, since: owner.since })
        })
    }

    /// Forgets an owner, as another replica knows better.
    pub(super) fn forget(&mut self, owned: &Owned) {
        self.all.remove(owned);
    }

    /// Forgets the oldest run or session that `app` owns.
    fn push_out(&mut self, app: &AppName, kind: OwnedKind) -> Option<Change> {
        let own = self.by_app.get_mut(app)?;
        let Belonging { number, bytes, owned } = own.of_kind(kind).pop_front()?;
        own.bytes -= bytes;
        self.bytes -= bytes;
        // If the owner has changed since, for example to an eval, this entry is outdated.
        self.all.get(&owned).filter(|owner| owner.number == number)?;
        self.all.remove(&owned);
        Some(Change::Forget(Key::Owner(owned.kept())))
    }
}

/// Whether what an agent has made was not used for too long.
pub(super) fn is_outdated(since: Millis, now: Millis) -> bool {
    u128::from(now.saturating_sub(since)) >= KEEP_OF_AGENT.as_millis()
}

/// An agent run: the one that waits for the answers of calls.
type AgentRun = (Workspace, RunId);

/// Which driver has claimed a call, by the number of its run in the journal.
#[derive(Debug, Default)]
pub(super) struct Claims {
    calls: HashMap<AgentRun, HashMap<ToolUseId, Slot>>,
    by_driver: HashMap<Slot, HashSet<AgentRun>>,
}

impl Claims {
    /// Claims a call of `agent_run` for the driver `by`; `false` if another driver has claimed it.
    ///
    /// The first claim stands, also after its driver has ended: the same call can come in a second
    /// stream at any later time, and its tool must not be reached twice. A driver that claims
    /// again, as after a restart, has its own claim.
    pub(super) fn take(&mut self, agent_run: AgentRun, tool_use: ToolUseId, by: Slot) -> bool {
        let calls = self.calls.entry(agent_run.clone()).or_default();
        let holder = *calls.entry(tool_use).or_insert(by);
        if holder == by {
            self.by_driver.entry(by).or_default().insert(agent_run);
        }
        holder == by
    }

    /// Whether this driver has claimed the call.
    pub(super) fn holds(&self, agent_run: &AgentRun, tool_use: &ToolUseId, by: Slot) -> bool {
        self.calls.get(agent_run).and_then(|calls| calls.get(tool_use)) == Some(&by)
    }

    /// Forgets all claims of the driver `by`, as its run is forgotten.
    pub(super) fn forget(&mut self, by: Slot) {
        for agent_run in self.by_driver.remove(&by).into_iter().flatten() {
            let Some(calls) = self.calls.get_mut(&agent_run) else { continue };
            calls.retain(|_, holder| *holder != by);
            if calls.is_empty() {
                self.calls.remove(&agent_run);
            }
        }
    }
}

#[cfg(test)]
mod tests;
