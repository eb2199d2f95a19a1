//! Which app a run or a session belongs to, as far as the bridge knows, and which driver makes a
//! call.
//!
//! Apps may share one credential, with which MANTYX would show each of them the runs of the others.
//!
//! Must not: ask MANTYX.

use std::sync::Arc;

use tracing::warn;

use super::owners::{How, Owned, OwnedKind, is_outdated};
use super::{Inner, RunStore};
use crate::calls::record::CallRecorder;
use crate::clock;
use crate::journal::record::{Change, Key, OwnedKey, OwnerRecord, StoredRun, StoredSession};
use crate::model::ids::is_segment;
use crate::model::{AppName, Call, RunId, RunKey, RunKind, Workspace};
use crate::runs::answer::{self, Task};
use crate::runs::{DrivenRun, NewRun, Ownership};

/// Longer ids of MANTYX and of agents are not remembered, in bytes.
pub(super) const MAX_ID: usize = 512;

impl RunStore {
    /// Whether `id` is a run or a session of another app than `app`; `None` if it is not known to
    /// be.
    pub fn others(&self, workspace: &Workspace, id: &str, app: &AppName) -> Option<OwnedKind> {
        let inner = self.inner.lock();
        for kind in [RunKind::Agent, RunKind::Eval] {
            let run = Owned::Run(RunKey { workspace: workspace.clone(), kind, run: id.into() });
            if inner.belongs_to_another(&run, app) {
                return Some(OwnedKind::Run);
            }
        }
        let session = Owned::Session(workspace.clone(), id.into());
        if inner.belongs_to_another(&session, app) { Some(OwnedKind::Session) } else { None }
    }

    /// Makes `app` the owner of a run that the bridge does not drive, or of a session that it need
    /// not remember otherwise. The journal has the owner when this returns: an app that has the
    /// run's id may rely on it.
    pub async fn own(self: &Arc<Self>, owned: Owned, app: &AppName, how: How) {
        let run = match &owned {
            Owned::Run(key) => Some(key.clone()),
            Owned::Session(..) | Owned::OfAgent(_) => None,
        };
        let Ok(changes) = self.inner.lock().own(owned, app, how) else { return };
        if let Some(key) = run {
            self.hand_over(&key, app);
        }
        // Mostly empty, as the owner is known already: every message of a session comes here.
        if !changes.is_empty() {
            self.journal().write(changes);
            self.settled().await;
        }
    }

    /// Makes the app of a newly created run its owner. If another app had attached it meanwhile,
    /// calls in its log may have been answered, so the run has a past.
    pub(super) fn for_its_creator(self: &Arc<Self>, new: NewRun) -> NewRun {
        if new.has_past {
            return new;
        }
        let owned = Owned::Run(new.key.clone());
        let driven_for_another = {
            let mut inner = self.inner.lock();
            match inner.own(owned, &new.app, How::Created) {
                Ok(changes) => {
                    self.journal().write(changes);
                    inner.runs.get(&new.key).is_some_and(|run| run.app != new.app)
                }
                Err(NotOwned) => false,
            }
        };
        if driven_for_another {
            self.hand_over(&new.key, &new.app);
        }
        NewRun { has_past: driven_for_another, ..new }
    }

    /// Ends the driver of another app that attached a run before MANTYX said that it was created
    /// for `app`. The answers of the calls that this driver has claimed are still posted; the new
    /// driver does not make those calls again.
    ///
    /// The run leaves the map under the lock, before its driver ends. The new driver takes the
    /// place of the old one, and may start at once.
    pub(super) fn hand_over(self: &Arc<Self>, key: &RunKey, app: &AppName) {
        let mut inner = self.inner.lock();
        let Some(run) = inner.runs.get(key).filter(|run| run.app != *app).cloned() else { return };
        inner.runs.remove(key);
        drop(inner);
        warn!(
            run = %key.run, app = %run.app, owner = %app,
            "an app had attached a run that MANTYX just created for another; handing it over"
        );
        run.hand_over();
        self.journal().write(run.changes());
        self.context.tell(&run);
        // The run may have been given up, with answers that MANTYX did not want. MANTYX has just
        // said that it knows the run, so they are posted again.
        let unwanted = run.take_unwanted().into_iter();
        self.answer_without_driver(&run, unwanted.map(|recorder| (recorder, Task::PostAgain)));
    }

    /// Answers calls of a run that went to another app, whose driver has ended.
    pub(super) fn answer_without_driver(
        self: &Arc<Self>,
        run: &Arc<DrivenRun>,
        calls: impl IntoIterator<Item = (Arc<CallRecorder>, Task)>,
    ) {
        for (recorder, task) in calls {
            let context = Arc::clone(&self.context);
            let answer = answer::answer(context, Arc::clone(run), recorder.call(), task, recorder);
            self.calls.spawn(&run.app, answer);
        }
    }

    /// The eval of the agent run `key`, if the bridge drives that eval or did.
    pub fn eval_of(&self, key: &RunKey) -> Option<Arc<DrivenRun>> {
        let inner = self.inner.lock();
        inner.runs.get(&inner.eval_key_of(key)?).cloned()
    }

    /// The eval whose driver answers the calls of the agent run `key`, if there is one.
    pub fn driven_by_eval(&self, key: &RunKey) -> Option<RunKey> {
        let inner = self.inner.lock();
        inner.eval_key_of(key).filter(|eval| inner.is_known(eval))
    }

    /// Whether the run `key` was once named by an eval, whose driver may have made its calls.
    pub fn is_of_an_eval(&self, key: &RunKey) -> bool {
        self.inner.lock().eval_key_of(key).is_some()
    }

    /// Restores the owners of an earlier process.
    ///
    /// The runs of an app that is no longer configured keep their owner for as long as the bridge
    /// remembers ended runs. Afterwards MANTYX decides: the operator may have renamed the app.
    pub(super) fn restore_owners(
        &self,
        mut owners: Vec<(OwnedKey, OwnerRecord)>,
        (runs, sessions): (&[StoredRun], &[StoredSession]),
    ) {
        owners.sort_by_key(|(_, record)| record.since);
        let now = clock::millis();
        let mut inner = self.inner.lock();
        let mut changes = Vec::new();
        for (key, record) in owners {
            let age = u128::from(now.saturating_sub(record.since));
            let outdated =
                self.calls.app(&record.app).is_none() && age > super::KEEP_ENDED.as_millis();
            match Owned::restore(&key) {
                // A later version knows what it is. Without the record, any app could take it
                // there.
                None => {}
                Some(Owned::OfAgent(_)) if is_outdated(record.since, now) => {
                    changes.push(Change::Forget(Key::Owner(key)));
                }
                Some(owned) if !outdated => changes.extend(inner.owners.restore(owned, &record)),
                Some(_) => changes.push(Change::Forget(Key::Owner(key))),
            }
        }
        // An earlier version kept no owners but in the records of runs and sessions.
        for StoredRun { record, .. } in runs {
            let owned = Owned::Run(record.key.clone());
            let how = if record.has_past { How::Attached } else { How::Created };
            if inner.owners.get(&owned).is_none() {
                changes.extend(inner.own(owned, &record.app, how).unwrap_or_default());
            }
        }
        for StoredSession { key: (workspace, id), record, .. } in sessions {
            let owned = Owned::Session(workspace.clone(), id.clone());
            if inner.owners.get(&owned).is_none() {
                changes.extend(inner.own(owned, &record.app, How::Created).unwrap_or_default());
            }
        }
        drop(inner);
        self.journal().write(changes);
    }
}

impl Ownership for RunStore {
    /// The steps are one, under the lock: two drivers that read the same call at once would both
    /// find it unclaimed.
    ///
    /// 1. A claim of this driver stands. It is mostly that of an earlier process, and no other
    ///    driver answers the call, whichever app the agent run belongs to by now.
    /// 2. The agent run must be this driver's. An app can attach a run before MANTYX's answer says
    ///    that it was created for another app, or before an eval names it; the call is then made by
    ///    the other driver, with the tools of the other app.
    /// 3. The first driver that claims the call has it.
    fn claim(&self, run: &DrivenRun, call: &Call) -> bool {
        let key = RunKey::agent(&run.key.workspace, run.asked_by(call));
        let mut inner = self.inner.lock();
        let agent_run = (key.workspace.clone(), key.run.clone());
        if inner.claims.holds(&agent_run, &call.tool_use, run.slot) {
            return true;
        }
        let owner = inner.owners.get(&Owned::Run(key));
        let may_claim = match (run.key.kind, owner) {
            (RunKind::Agent, None) => true,
            (RunKind::Agent, Some(owner)) => !owner.how.is_of_eval() && owner.app == run.app,
            (RunKind::Eval, Some(owner)) => owner.how.is_of_eval() && owner.app == run.app,
            // The owner was pushed out, as its app has too many runs.
            (RunKind::Eval, None) => true,
        };
        may_claim && inner.claims.take(agent_run, call.tool_use.clone(), run.slot)
    }

    fn adopt(&self, eval: &DrivenRun, agent_run: &RunId) {
        let owned = Owned::Run(RunKey::agent(&eval.key.workspace, agent_run.clone()));
        let how = How::OfEval(eval.key.run.clone());
        let outcome = self.inner.lock().own(owned, &eval.app, how);
        match outcome {
            Ok(changes) if changes.is_empty() => {}
            Ok(changes) => self.journal().write(changes),
            Err(NotOwned) => warn!(
                eval = %eval.key.run, run = %agent_run,
                "an eval names an agent run that it does not own; not making its calls"
            ),
        }
    }

    fn claim_over_replicas(
        &self,
        run: &RunKey,
        agent_run: Option<&RunId>,
    ) -> Option<(Workspace, RunId)> {
        self.inner.lock().claim_over_replicas(run, agent_run)
    }

    fn may_be_driven_by_others(&self, run: &RunKey) -> bool {
        self.inner.lock().may_be_driven_by_others(run)
    }

    fn claim_guest(self: Arc<Self>, guest: &DrivenRun) {
        let credential = self.context.credential_of(guest);
        if guest.is_guest() && credential.is_callers() {
            // A failure is for the next time, with the next heartbeat.
            drop(self.claiming(&guest.key, &guest.app, &credential));
        }
    }
}

/// The run or session belongs to another app, or to another run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NotOwned;

impl Inner {
    /// Whether another driver may read the calls of the run. Then claims are kept as long as the
    /// run. An eval names agent runs, and only a run that was created for an app on its own is
    /// never an eval's.
    pub(super) fn may_be_driven_by_others(&self, key: &RunKey) -> bool {
        let owner = self.owners.get(&Owned::Run(key.clone()));
        key.kind == RunKind::Eval || owner.is_none_or(|owner| owner.how != How::Created)
    }

    /// By what a driver of `key` claims a call over all replicas: the agent run that asks for it.
    pub(super) fn claim_over_replicas(
        &self,
        key: &RunKey,
        agent_run: Option<&RunId>,
    ) -> Option<(Workspace, RunId)> {
        if !self.may_be_driven_by_others(key) {
            return None;
        }
        Some((key.workspace.clone(), agent_run.unwrap_or(&key.run).clone()))
    }

    /// Makes `app` the owner, unless another app or an eval is. The changes are for the journal.
    pub(super) fn own(
        &mut self,
        owned: Owned,
        app: &AppName,
        how: How,
    ) -> Result<Vec<Change>, NotOwned> {
        let (_, _, id) = owned.parts();
        let is_agents = matches!(owned, Owned::OfAgent(_));
        if id.len() > MAX_ID || !(is_agents || is_segment(id)) {
            warn!(%app, "MANTYX or an agent sent an id that is too long, or cannot be part of a path; ignoring it");
            return Ok(Vec::new());
        }
        // If the journal has lost the record of an eval, its app may attach the agent run on its
        // own.
        if let (Owned::Run(key), How::Attached) = (&owned, &how)
            && self.eval_key_of(key).is_some_and(|eval| !self.is_known(&eval))
            && self.owner_of(&owned) == Some(app.as_str())
        {
            return Ok(self.owners.put(owned, app, how, clock::millis()));
        }
        self.owners.own(owned, app, how, clock::millis()).map_err(|owner| {
            warn!(
                %app, owner = %owner.app, how = ?owner.how,
                "a second owner for an owned run or session was rejected"
            );
            NotOwned
        })
    }

    fn belongs_to_another(&self, owned: &Owned, app: &AppName) -> bool {
        self.owner_of(owned).is_some_and(|owner| owner != app.as_str())
    }

    /// The app that this belongs to. A run or session in memory has an owner even if its app has
    /// more of them than are remembered.
    fn owner_of(&self, owned: &Owned) -> Option<&str> {
        if let Some(owner) = self.owners.get(owned) {
            return Some(owner.app.as_str());
        }
        match owned {
            Owned::Run(key) => match self.runs.get(key) {
                Some(run) => Some(run.app.as_str()),
                None => self.awaiting_credential.get(key).map(|run| run.record.app.as_str()),
            },
            Owned::Session(workspace, id) => {
                let session = self.sessions.get(&(workspace.clone(), id.clone()));
                session.map(|session| session.app.as_str())
            }
            Owned::OfAgent(_) => None,
        }
    }

    /// The eval of the agent run `key`.
    pub(super) fn eval_key_of(&self, key: &RunKey) -> Option<RunKey> {
        let owner = self.owners.get(&Owned::Run(key.clone()))?;
        let How::OfEval(eval) = &owner.how else { return None };
        let workspace = key.workspace.clone();
        Some(RunKey { workspace, kind: RunKind::Eval, run: eval.clone() })
    }

    /// Whether MANTYX created this run for another app than `app`, which attached it before the
    /// bridge knew.
    pub(super) fn is_created_for_another(&self, key: &RunKey, app: &AppName) -> bool {
        let owner = self.owners.get(&Owned::Run(key.clone()));
        owner.is_some_and(|owner| owner.app != *app && owner.how == How::Created)
    }

    /// Whether the bridge drives the run, or did and remembers it.
    fn is_known(&self, key: &RunKey) -> bool {
        self.runs.contains_key(key) || self.awaiting_credential.contains_key(key)
    }
}
