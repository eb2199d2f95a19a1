//! What a caller asks of the records while it waits.
//!
//! Must not: write a record; `claim_waiting` changes the owner of a run, as the keeper does.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{sleep, timeout};
use tracing::debug;

use super::database::{Claimed, Queried, Records};
use super::rows::{id_of, name};
use super::{AGAIN, Database, Replica};
use crate::journal::live::Live;
use crate::journal::record::{
    CallKey, Kept, KeptRun, Key, LongRecord, RequestKey, RequestRecord, Slot,
};
use crate::model::{CallId, RunKey, RunKind, Workspace};

/// How long a kept answer may take to be read.
const READ_WITHIN: Duration = Duration::from_secs(100);

impl Replica {
    /// The kept answer to a call; an empty one, if MANTYX waits for it no longer. Waits for a while for
    /// a database that is away.
    pub(in crate::journal) async fn answer(&self, key: &CallKey) -> Option<Bytes> {
        timeout(READ_WITHIN, self.read_answer(key)).await.ok().flatten()
    }

    /// The same; waits until the database can tell.
    pub(in crate::journal) async fn read_answer(&self, key: &CallKey) -> Option<Bytes> {
        loop {
            match self.read(&Key::Answer(key.clone())).await {
                Ok(found) => return found.into_iter().next().map(|(_, value)| value.into()),
                // The keeper tells the operator that the database is away.
                Err(error) => debug!(%error, "cannot read a kept answer yet"),
            }
            sleep(AGAIN).await;
        }
    }

    /// What the group knows of the run or the session `named` of `workspace`.
    pub async fn find(&self, workspace: &Workspace, named: &str) -> Queried<Kept> {
        let owner = |kind: &str| Key::Owner((workspace.clone(), kind.to_owned(), named.to_owned()));
        let session = Key::Session((workspace.clone(), named.into()));
        let keys = [owner("agent-runs"), owner("eval-runs"), owner("agent-sessions"), session];
        let run = |kind| name(&RunKey { workspace: workspace.clone(), kind, run: named.into() });
        let names = [RunKind::Agent, RunKind::Eval].map(run);
        let ids = keys.map(|key| id_of(&key));
        let found =
            async |reader: &Database| with_routes(reader, reader.find(&ids, &names).await?).await;
        self.with_reader(found).await
    }

    /// The runs that other replicas drive, or those of them with the id `named`, which may have ended.
    pub async fn runs_elsewhere(&self, named: Option<&str>) -> Queried<Vec<KeptRun>> {
        let own = self.member.borrow().map(|member| member.id);
        let found = async |reader: &Database| {
            with_routes(reader, reader.elsewhere(own, named).await?).await
        };
        Ok(self.with_reader(found).await?.runs)
    }

    /// Takes over the run `key` if it waits for the credential of its app; what is kept of it then.
    pub async fn claim_waiting(&self, key: &RunKey) -> Queried<Option<Kept>> {
        let Some(member) = *self.member.borrow() else { return Ok(None) };
        let claimed = self.with_reader(async |reader| {
            let runs = reader.claim_waiting(member, name(key)).await?;
            self.kept_of(reader, runs).await
        });
        // Without an answer, the run may be this replica's all the same. The keeper looks.
        let claimed = claimed.await.inspect_err(|_| self.doubts.store(true, Ordering::Relaxed))?;
        Ok(Some(claimed).filter(|kept| !kept.runs.is_empty()))
    }

    /// What is kept of runs that are this replica's now, with these epochs.
    pub(super) async fn kept_of(&self, database: &Database, runs: Claimed) -> Queried<Kept> {
        let slots: Vec<Slot> = runs.iter().map(|(slot, _)| *slot).collect();
        let kept = with_routes(database, database.of_runs(&slots).await?).await?;
        {
            let mut regained = self.regained.lock();
            regained.0 += 1;
            let times = regained.0;
            regained.1.extend(slots.into_iter().map(|slot| (slot, times)));
        }
        self.epochs.lock().extend(runs.into_iter().map(|(slot, epoch)| (slot, Some(epoch))));
        Ok(kept)
    }

    /// The long call with this id.
    pub async fn long_call(&self, id: &CallId) -> Queried<Option<LongRecord>> {
        let found = self.read(&Key::Long(id.clone())).await?;
        Ok(Live::of_rows(found).kept().long.pop().map(|(_, record)| record))
    }

    /// The request with this key.
    pub async fn request(&self, key: &RequestKey) -> Queried<Option<RequestRecord>> {
        let found = self.read(&Key::Request(key.clone())).await?;
        Ok(Live::of_rows(found).kept().requests.pop().map(|(_, record)| record))
    }

    async fn read(&self, key: &Key) -> Queried<Records> {
        self.with_reader(async |reader| reader.find(&[id_of(key)], &[]).await).await
    }

    /// Has the connection for reading do `work`. After an error, the next one has a new connection.
    pub(super) async fn with_reader<T>(
        &self,
        work: impl AsyncFnOnce(&Database) -> Queried<T>,
    ) -> Queried<T> {
        let open = {
            let mut reader = self.reader.lock().await;
            match reader.as_ref().filter(|open| !open.is_closed()) {
                Some(open) => Arc::clone(open),
                None => {
                    Arc::clone(reader.insert(Arc::new(Database::connect(&self.settings).await?)))
                }
            }
        };
        let done = work(&open).await;
        if done.is_err() {
            self.reader.lock().await.take_if(|it| Arc::ptr_eq(it, &open));
        }
        done
    }
}

/// The records, with the routes that they refer to.
async fn with_routes(database: &Database, found: Records) -> Queried<Kept> {
    let mut live = Live::of_rows(found);
    let refers: Vec<_> = live.refers().iter().map(id_of).collect();
    if !refers.is_empty() {
        live.add_rows(database.find(&refers, &[]).await?);
    }
    Ok(live.kept())
}
