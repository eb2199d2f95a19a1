//! What a caller asks of the records while it waits.
//!
//! Must not: write a record; `take_waiting_run` changes the owner of a run, as the keeper does.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{sleep, timeout};
use tracing::debug;

use super::database::{OwnedRuns, Queried, Records};
use super::rows::{Id, id_of, key_start, name, value_start};
use super::{AGAIN, Database, Replica};
use crate::journal::live::Live;
use crate::journal::record::{
    CallKey, Key, LongRecord, OwnedKey, OwnerRecord, RequestKey, RequestRecord, Slot,
    StoredRecords, StoredRun,
};
use crate::model::{AppName, CallId, RunKey, RunKind, Workspace};

/// How long a kept answer may take to be read.
const READ_WITHIN: Duration = Duration::from_secs(100);

impl Replica {
    /// The kept answer to a call; an empty one, if MANTYX waits for it no longer. Waits for a while
    /// for a database that is away.
    pub(in crate::journal) async fn answer(&self, key: &CallKey) -> Option<Bytes> {
        timeout(READ_WITHIN, self.read_answer(key)).await.ok().flatten()
    }

    /// As [`Self::answer`], but waits until the database can tell.
    pub(in crate::journal) async fn read_answer(&self, key: &CallKey) -> Option<Bytes> {
        loop {
            match self.read(&Key::Answer(key.clone())).await {
                Ok(records) => return records.into_iter().next().map(|(_, value)| value.into()),
                // The keeper tells the operator that the database is away.
                Err(error) => debug!(%error, "cannot read a kept answer yet"),
            }
            sleep(AGAIN).await;
        }
    }

    /// What the group knows of the run or the session with the id `id` in `workspace`. The id alone
    /// does not tell which of them it names, so all records that it may have are asked for at once.
    pub async fn find(&self, workspace: &Workspace, id: &str) -> Queried<StoredRecords> {
        let owners = ["agent-runs", "eval-runs", "agent-sessions"]
            .map(|kind| Key::Owner((workspace.clone(), kind.to_owned(), id.to_owned())));
        let session = Key::Session((workspace.clone(), id.into()));
        let ids: Vec<Id> = owners.iter().chain([&session]).map(id_of).collect();
        let names = [RunKind::Agent, RunKind::Eval]
            .map(|kind| name(&RunKey { workspace: workspace.clone(), kind, run: id.into() }));
        self.with_reader(async |reader: &Database| {
            with_routes(reader, reader.find(&ids, &names).await?).await
        })
        .await
    }

    /// The runs that other replicas drive, or those of them with the id `run_id`, which may have
    /// ended.
    pub async fn runs_elsewhere(&self, run_id: Option<&str>) -> Queried<Vec<StoredRun>> {
        let own = self.member.borrow().map(|member| member.id);
        let records = self
            .with_reader(async |reader: &Database| {
                with_routes(reader, reader.elsewhere(own, run_id).await?).await
            })
            .await?;
        Ok(records.runs)
    }

    /// Takes over the run `key` if it waits for the credential of its app; returns its records.
    ///
    /// Without an answer of the database, the run may be this replica's, and no driver would run
    /// it. So the keeper is told to look.
    pub async fn take_waiting_run(&self, key: &RunKey) -> Queried<Option<StoredRecords>> {
        let Some(member) = *self.member.borrow() else { return Ok(None) };
        let records = self
            .with_reader(async |reader| {
                let runs = reader.take_waiting_run(member, name(key)).await?;
                self.take_possession(reader, runs).await
            })
            .await
            .inspect_err(|_| self.takeover_in_doubt.store(true, Ordering::Relaxed))?;
        Ok(Some(records).filter(|records| !records.runs.is_empty()))
    }

    /// Reads the records of `runs`, which are this replica's now with these epochs, and notes that.
    ///
    /// The records are read first: if that fails, the takeover stays in doubt, and the keeper
    /// repeats it. The count in `regained` rises before the epochs are known, so that no change of
    /// a driver from before counts as one of the new owner's.
    pub(super) async fn take_possession(
        &self,
        database: &Database,
        runs: OwnedRuns,
    ) -> Queried<StoredRecords> {
        let slots: Vec<Slot> = runs.iter().map(|(slot, _)| *slot).collect();
        let records = with_routes(database, database.of_runs(&slots).await?).await?;
        {
            let mut regained = self.regained.lock();
            regained.0 += 1;
            let times = regained.0;
            regained.1.extend(slots.into_iter().map(|slot| (slot, times)));
        }
        self.epochs.lock().extend(runs.into_iter().map(|(slot, epoch)| (slot, Some(epoch))));
        Ok(records)
    }

    pub async fn long_call(&self, id: &CallId) -> Queried<Option<LongRecord>> {
        let records = self.read(&Key::Long(id.clone())).await?;
        Ok(Live::of_rows(records).records().long.pop().map(|(_, record)| record))
    }

    pub async fn request(&self, key: &RequestKey) -> Queried<Option<RequestRecord>> {
        let records = self.read(&Key::Request(key.clone())).await?;
        Ok(Live::of_rows(records).records().requests.pop().map(|(_, record)| record))
    }

    /// The owner with this key, as the group knows it.
    pub async fn owner(&self, key: &OwnedKey) -> Queried<Option<OwnerRecord>> {
        let records = self.read(&Key::Owner(key.clone())).await?;
        Ok(Live::of_rows(records).records().owners.pop().map(|(_, record)| record))
    }

    /// What `app` owns of the collection, as the group knows it.
    ///
    /// The database compares the beginnings of keys and values and does not read them as JSON: an
    /// id that an app has given may be one that PostgreSQL does not take for a text.
    pub async fn owned_of(
        &self,
        collection: &(Workspace, &'static str),
        app: &AppName,
    ) -> Queried<Vec<(OwnedKey, OwnerRecord)>> {
        let (key_start, value_start) = (key_start(collection), value_start(app));
        let records = self
            .with_reader(async |reader: &Database| reader.owned(&key_start, &value_start).await)
            .await?;
        Ok(Live::of_rows(records).records().owners)
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
        let outcome = work(&open).await;
        if outcome.is_err() {
            // Another caller may have opened a new one meanwhile.
            self.reader.lock().await.take_if(|current| Arc::ptr_eq(current, &open));
        }
        outcome
    }
}

/// The records, with the routes that they refer to.
async fn with_routes(database: &Database, records: Records) -> Queried<StoredRecords> {
    let mut live = Live::of_rows(records);
    let ids: Vec<Id> = live.refers().iter().map(id_of).collect();
    if !ids.is_empty() {
        live.add_rows(database.find(&ids, &[]).await?);
    }
    Ok(live.records())
}
