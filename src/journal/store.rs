//! The journal's file: an embedded store with one table for each kind of record. A list of changes
//! is written whole and durably, or not at all.
//!
//! Must not: retry, or know who waits for a write.

use std::{
    collections::{HashMap, HashSet},
    fs, io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use redb::{
    Builder, Database, DatabaseError, ReadableDatabase as _, ReadableTable as _, StorageError,
    TableDefinition, WriteTransaction,
};
use serde::de::DeserializeOwned;
use tracing::{info, warn};

use super::record::{
    CallKey, Change, Kept, KeptCall, KeptRun, KeptSession, Millis, RunRecord, SessionRecord, Slot,
};
use crate::model::routes::Routes;

/// What this version writes. A file of a later one is not touched.
const FORMAT: u64 = 1;
/// The pages that are kept in memory; the store's own default is 1 GiB.
const CACHE: usize = 4 << 20;

/// A file of this size is not worth compacting.
const SMALL: u64 = 8 << 20;

const UPSTREAM: &str = "upstream";

type InRun = (u64, &'static str, &'static str);

const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
const FACTS: TableDefinition<'_, &str, &str> = TableDefinition::new("facts");
const ROUTES: TableDefinition<'_, &str, &str> = TableDefinition::new("routes");
const RUNS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("runs");
const CALLS: TableDefinition<'_, InRun, &[u8]> = TableDefinition::new("calls");
const ANSWERS: TableDefinition<'_, InRun, &[u8]> = TableDefinition::new("answers");
const SESSIONS: TableDefinition<'_, (&str, &str), &[u8]> = TableDefinition::new("sessions");
const LONG: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("long");

/// The open file.
#[derive(Debug)]
pub(super) struct Store {
    db: Database,
    path: PathBuf,
}

/// The file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("another mantyx-bridge uses {0}; give each its own `state_dir`")]
    InUse(PathBuf),
    #[error("{0} was written by a later version of mantyx-bridge; run that, or move the file away")]
    Later(PathBuf),
    #[error("the journal is damaged: {0}")]
    Damaged(String),
    #[error("the journal cannot be written or read: {0}")]
    Failed(#[source] Box<redb::Error>),
}

impl<E: Into<redb::Error>> From<E> for StoreError {
    fn from(error: E) -> Self {
        match error.into() {
            redb::Error::Corrupted(why) => Self::Damaged(why),
            redb::Error::UpgradeRequired(version) => {
                Self::Damaged(format!("its file format is {version}"))
            }
            // What is no store at all, and what ends too soon, is told by I/O errors of these kinds.
            redb::Error::Io(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof
                ) =>
            {
                Self::Damaged(error.to_string())
            }
            error => Self::Failed(Box::new(error)),
        }
    }
}

impl Store {
    /// Opens the file, and makes it where there is none.
    pub(super) fn open(path: &Path) -> Result<Self, StoreError> {
        // Arguments and answers are nobody else's business.
        fs::OpenOptions::new().append(true).create(true).mode(0o600).open(path).map_err(io)?;
        let db = match Builder::new().set_cache_size(CACHE).create(path) {
            Ok(db) => db,
            Err(DatabaseError::DatabaseAlreadyOpen) => {
                return Err(StoreError::InUse(path.to_owned()));
            }
            Err(error) => return Err(error.into()),
        };
        let this = Self { db, path: path.to_owned() };
        this.prepare()?;
        Ok(this)
    }

    /// Makes the tables, so that reading can rely on them.
    fn prepare(&self) -> Result<(), StoreError> {
        let txn = self.db.begin_write()?;
        {
            let mut meta = txn.open_table(META)?;
            let format = meta.get("format")?.map(|format| format.value());
            match format {
                Some(format) if format > FORMAT => {
                    return Err(StoreError::Later(self.path.clone()));
                }
                Some(_) => (),
                None => drop(meta.insert("format", FORMAT)?),
            }
            txn.open_table(FACTS)?;
            txn.open_table(ROUTES)?;
            txn.open_table(RUNS)?;
            txn.open_table(CALLS)?;
            txn.open_table(ANSWERS)?;
            txn.open_table(SESSIONS)?;
            txn.open_table(LONG)?;
        }
        txn.commit()?;
        Ok(())
    }

    /// Writes `changes`, in their order; when it returns, they are on disk.
    pub(super) fn apply(&self, changes: &[Change]) -> Result<(), StoreError> {
        let txn = self.db.begin_write()?;
        for change in changes {
            apply(&txn, change)?;
        }
        txn.commit()?;
        Ok(())
    }

    /// The size of the file, in bytes.
    pub(super) fn size(&self) -> u64 {
        fs::metadata(&self.path).map_or(0, |file| file.len())
    }

    /// Forgets the older half of the ended runs, and gives back their room; how many they were.
    pub(super) fn shrink(&mut self) -> Result<usize, StoreError> {
        let kept = self.read()?;
        let mut ended: Vec<(Millis, Slot)> =
            kept.runs.iter().filter_map(|run| Some((run.record.ended_at?, run.slot))).collect();
        ended.sort_unstable();
        ended.truncate(ended.len().div_ceil(2));
        let forget: Vec<Change> = ended.iter().map(|(_, slot)| Change::ForgetRun(*slot)).collect();
        if !forget.is_empty() {
            info!(runs = forget.len(), "the journal is large; ended runs are forgotten");
        }
        self.apply(&forget)?;
        self.tidy()?;
        Ok(forget.len())
    }

    /// Drops the routes that nothing refers to, and gives back unused room.
    pub(super) fn tidy(&mut self) -> Result<(), StoreError> {
        let used = self.used_routes()?;
        let txn = self.db.begin_write()?;
        txn.open_table(ROUTES)?.retain(|digest, _| used.contains(digest))?;
        txn.commit()?;
        // To compact costs a few fsyncs, which a start need not wait for as long as there is little.
        if self.size() > SMALL {
            self.db.compact()?;
        }
        Ok(())
    }

    fn used_routes(&self) -> Result<HashSet<String>, StoreError> {
        let txn = self.db.begin_read()?;
        let mut used = HashSet::new();
        for entry in txn.open_table(RUNS)?.iter()? {
            if let Some(run) = record::<RunRecord>("run", entry?.1.value()) {
                used.insert(run.table.routes.to_string());
            }
        }
        for entry in txn.open_table(SESSIONS)?.iter()? {
            if let Some(session) = record::<SessionRecord>("session", entry?.1.value()) {
                used.insert(session.table.routes.to_string());
            }
        }
        Ok(used)
    }

    /// All that is kept. A record that cannot be read is left out and told.
    pub(super) fn read(&self) -> Result<Kept, StoreError> {
        let txn = self.db.begin_read()?;
        let mut routes: HashMap<String, Arc<Routes>> = HashMap::new();
        for entry in txn.open_table(ROUTES)?.iter()? {
            let (digest, text) = entry?;
            match Routes::restore(text.value()) {
                Ok(read) => drop(routes.insert(digest.value().to_owned(), Arc::new(read))),
                Err(error) => warn!(%error, "the journal has routes that cannot be read"),
            }
        }
        let mut calls: HashMap<u64, Vec<KeptCall>> = HashMap::new();
        let answers = txn.open_table(ANSWERS)?;
        for entry in txn.open_table(CALLS)?.iter()? {
            let (key, value) = entry?;
            let (slot, agent_run, tool_use) = key.value();
            let Some(record) = record("call", value.value()) else { continue };
            let answer = answers.get(key.value())?;
            let answer = answer.map(|answer| Bytes::copy_from_slice(answer.value()));
            let key = CallKey {
                slot: Slot(slot),
                agent_run: agent_run.to_owned(),
                tool_use: tool_use.to_owned(),
            };
            calls.entry(slot).or_default().push(KeptCall { key, record, answer });
        }
        let upstream = txn.open_table(FACTS)?.get(UPSTREAM)?.map(|it| it.value().to_owned());
        let mut kept = Kept { upstream, ..Kept::default() };
        for entry in txn.open_table(RUNS)?.iter()? {
            let (slot, value) = entry?;
            let slot = slot.value();
            let Some(record) = record::<RunRecord>("run", value.value()) else { continue };
            let Some(routes) = routes.get(record.table.routes.as_ref()) else {
                warn!(run = record.run, "the journal has a run without its routes; left out");
                continue;
            };
            let calls = calls.remove(&slot).unwrap_or_default();
            let routes = Arc::clone(routes);
            kept.runs.push(KeptRun { slot: Slot(slot), record, routes, calls });
        }
        for entry in txn.open_table(SESSIONS)?.iter()? {
            let (key, value) = entry?;
            let (workspace, session) = key.value();
            let Some(record) = record::<SessionRecord>("session", value.value()) else { continue };
            let Some(routes) = routes.get(record.table.routes.as_ref()) else {
                warn!(session, "the journal has a session without its routes; left out");
                continue;
            };
            let key = (workspace.to_owned(), session.to_owned());
            kept.sessions.push(KeptSession { key, record, routes: Arc::clone(routes) });
        }
        for entry in txn.open_table(LONG)?.iter()? {
            let (id, value) = entry?;
            let Some(record) = record("long call", value.value()) else { continue };
            kept.long.push((id.value().to_owned(), record));
        }
        Ok(kept)
    }

    /// A new file with all that can be read of the one at `path`, in its place.
    ///
    /// After a failed write nobody knows which of its pages are on disk: what the system shows may
    /// be in memory only (fsync reports a loss once, and then no more).
    pub(super) fn rewrite(path: &Path) -> Result<Self, StoreError> {
        let fresh = path.with_extension("new");
        match fs::remove_file(&fresh) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io(error)),
            _ => (),
        }
        {
            let old = Self::open(path)?;
            let new = Self::open(&fresh)?;
            let (from, to) = (old.db.begin_read()?, new.db.begin_write()?);
            macro_rules! copy {
                ($($table:ident),*) => {$({
                    let mut into = to.open_table($table)?;
                    for entry in from.open_table($table)?.iter()? {
                        let (key, value) = entry?;
                        into.insert(key.value(), value.value())?;
                    }
                })*};
            }
            copy!(META, FACTS, ROUTES, RUNS, CALLS, ANSWERS, SESSIONS, LONG);
            to.commit()?;
        }
        fs::rename(&fresh, path).map_err(io)?;
        if let Some(dir) = path.parent() {
            fs::File::open(dir).and_then(|dir| dir.sync_all()).map_err(io)?;
        }
        Self::open(path)
    }
}

fn io(error: io::Error) -> StoreError {
    StorageError::Io(error).into()
}

fn apply(txn: &WriteTransaction, change: &Change) -> Result<(), StoreError> {
    match change {
        Change::Upstream(upstream) => {
            txn.open_table(FACTS)?.insert(UPSTREAM, upstream.as_str())?;
        }
        Change::Routes(routes) => {
            let mut table = txn.open_table(ROUTES)?;
            if table.get(routes.digest.as_ref())?.is_none() {
                table.insert(routes.digest.as_ref(), routes.text.as_ref())?;
            }
        }
        Change::Run(Slot(slot), run) => {
            txn.open_table(RUNS)?.insert(slot, text(run).as_slice())?;
        }
        Change::Call(key, call) => {
            txn.open_table(CALLS)?.insert(in_run(key), text(call).as_slice())?;
        }
        Change::Answer(key, body) => {
            txn.open_table(ANSWERS)?.insert(in_run(key), body.as_ref())?;
        }
        Change::ForgetAnswer(key) => drop(txn.open_table(ANSWERS)?.remove(in_run(key))?),
        Change::ForgetCalls(slot) => forget_calls(txn, *slot)?,
        Change::ForgetRun(slot) => {
            forget_calls(txn, *slot)?;
            txn.open_table(RUNS)?.remove(slot.0)?;
        }
        Change::Session((workspace, session), record) => {
            let key = (workspace.as_str(), session.as_str());
            txn.open_table(SESSIONS)?.insert(key, text(record).as_slice())?;
        }
        Change::ForgetSession((workspace, session)) => {
            txn.open_table(SESSIONS)?.remove((workspace.as_str(), session.as_str()))?;
        }
        Change::Long(id, call) => {
            txn.open_table(LONG)?.insert(id.as_str(), text(call).as_slice())?;
        }
        Change::ForgetLong(id) => drop(txn.open_table(LONG)?.remove(id.as_str())?),
    }
    Ok(())
}

fn forget_calls(txn: &WriteTransaction, Slot(slot): Slot) -> Result<(), StoreError> {
    let all = (slot, "", "")..(slot + 1, "", "");
    txn.open_table(CALLS)?.retain_in(all.clone(), |_, _| false)?;
    txn.open_table(ANSWERS)?.retain_in(all, |_, _| false)?;
    Ok(())
}

fn in_run(key: &CallKey) -> (u64, &str, &str) {
    (key.slot.0, &key.agent_run, &key.tool_use)
}

fn text(record: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(record).expect("strings, numbers and JSON can be written")
}

fn record<T: DeserializeOwned>(what: &str, text: &[u8]) -> Option<T> {
    serde_json::from_slice(text)
        .map_err(|error| warn!(%error, "the journal has a {what} that cannot be read; left out"))
        .ok()
}
