//! Runs and sessions that this replica learns of from its group, when an app asks for them.
//!
//! A run that another replica drives is known here as a guest: apps read its events out of MANTYX's
//! own replay, masked by the run's table, and the calls that the bridge answers stay the bridge's.
//!
//! Must not: drive a guest, or keep one longer than for the request that asked for it, as its calls
//! become more.

use std::sync::Arc;

use tokio::task::JoinHandle;

use super::RunStore;
use crate::journal::DatabaseError;
use crate::journal::record::{StoredRecords, StoredRun};
use crate::model::run::EarlierCall;
use crate::model::{AppName, RunKey, RunKind, Table, Workspace};
use crate::runs::DrivenRun;
use crate::runs::driven::RestoredRun;
use crate::upstream::UpstreamCredential;

impl RunStore {
    /// Looks up what other replicas know of the runs and sessions `ids`; `credential` is what the
    /// caller has shown. Does nothing for an id that this replica knows itself.
    ///
    /// # Errors
    ///
    /// The database does not answer, so that the owner is not known.
    pub async fn learn(
        self: &Arc<Self>,
        workspace: &Workspace,
        ids: &[String],
        credential: &UpstreamCredential,
    ) -> Result<(), DatabaseError> {
        let Some(replica) = self.journal().replica() else { return Ok(()) };
        let mut unknown_ids = ids.to_vec();
        while let Some(id) = unknown_ids.pop() {
            if self.knows(workspace, &id) {
                continue;
            }
            let StoredRecords { sessions, owners, mut runs, .. } =
                replica.find(workspace, &id).await?;
            // The driver of an eval answers the calls of its agent runs.
            let evals = owners.iter().filter_map(|(_, owner)| owner.eval.as_ref());
            unknown_ids.extend(evals.map(|eval| eval.as_str().to_owned()));
            // The last one of them is met last: a run may have been attached again.
            runs.sort_by_key(|run| (run.record.goes_on(), run.record.started_at));
            self.take_over(StoredRecords { sessions, owners, ..StoredRecords::default() });
            for run in runs {
                self.meet(run, credential);
            }
        }
        Ok(())
    }

    /// Whether this replica knows the run or session itself. A guest does not count: its record at
    /// the group may have changed since.
    fn knows(&self, workspace: &Workspace, id: &str) -> bool {
        let inner = self.inner.lock();
        if inner.sessions.contains_key(&(workspace.clone(), id.into())) {
            return true;
        }
        [RunKind::Agent, RunKind::Eval].into_iter().any(|kind| {
            let key = RunKey { workspace: workspace.clone(), kind, run: id.into() };
            inner.awaiting_credential.contains_key(&key)
                || inner.runs.get(&key).is_some_and(|run| !run.is_guest())
        })
    }

    /// The runs of `app`, or of all apps, that other replicas drive; or those with the id `named`,
    /// which may have ended.
    ///
    /// # Errors
    ///
    /// The database does not answer.
    pub async fn elsewhere(
        &self,
        app: Option<&AppName>,
        named: Option<&str>,
        credential: &UpstreamCredential,
    ) -> Result<Vec<Arc<DrivenRun>>, DatabaseError> {
        let Some(replica) = self.journal().replica() else { return Ok(Vec::new()) };
        let mut runs = replica.runs_elsewhere(named).await?;
        runs.retain(|run| app.is_none_or(|app| run.record.app == *app));
        Ok(runs.into_iter().filter_map(|run| self.guest(run, credential)).collect())
    }

    /// Drives `key` on at this replica, if the run waits for the `credential` that `app` shows
    /// here.
    ///
    /// The database gives a waiting run to one replica. Without the claim, two replicas at which
    /// the app shows its credential would both drive the run, and make its calls twice.
    ///
    /// # Errors
    ///
    /// The database does not answer.
    pub async fn take_waiting_run(
        self: &Arc<Self>,
        key: &RunKey,
        app: &AppName,
        credential: &UpstreamCredential,
    ) -> Result<(), DatabaseError> {
        self.claiming(key, app, credential).await.unwrap_or(Ok(()))
    }

    /// In a task of the daemon: a client that hangs up must not leave the run claimed and not
    /// driven.
    pub(super) fn claiming(
        self: &Arc<Self>,
        key: &RunKey,
        app: &AppName,
        credential: &UpstreamCredential,
    ) -> JoinHandle<Result<(), DatabaseError>> {
        let runs = Arc::clone(self);
        let (key, app, credential) = (key.clone(), app.clone(), credential.clone());
        self.calls.tracker.spawn(async move {
            if let Some(replica) = runs.journal().replica()
                && let Some(kept) = replica.take_waiting_run(&key).await?
            {
                runs.take_over(kept);
                runs.get_or_resume(&key, &app, &credential);
            }
            Ok(())
        })
    }

    /// Makes a run of another replica known, as it is now.
    fn meet(&self, kept: StoredRun, credential: &UpstreamCredential) {
        let Some(guest) = self.guest(kept, credential) else { return };
        let mut inner = self.inner.lock();
        if inner.runs.get(&guest.key).is_none_or(|known| known.is_guest()) {
            inner.runs.insert(guest.key.clone(), guest);
        }
    }

    /// The run as a guest; `None` if its tools are lost. Without its table, the bridge could not
    /// mask its calls, and an app would answer them.
    fn guest(&self, kept: StoredRun, credential: &UpstreamCredential) -> Option<Arc<DrivenRun>> {
        let StoredRun { slot, record, routes, calls } = kept;
        let table = Arc::new(Table::restore(&record.table, routes?));
        let own = calls.iter().filter(|call| !call.record.is_others);
        let seen = own.map(|call| EarlierCall {
            agent_run: call.key.agent_run.clone(),
            tool_use: call.key.tool_use.clone(),
            content: call.record.content,
        });
        let restored = RestoredRun {
            slot,
            credential: credential.clone(),
            table,
            trace: self.kept_trace(&record),
            record,
            last_seq: 0,
            seen: seen.collect(),
            again: Vec::new(),
        };
        Some(Arc::new(DrivenRun::guest(restored, &self.context.log_room)))
    }
}
