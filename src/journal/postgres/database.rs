//! The statements to PostgreSQL, and the connections that they go over.
//!
//! Must not: decide who owns a run, or try anything twice.

mod shared;

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use rustls_tokio_postgres::{
    CaCertError, MakeRustlsConnect, config_from_ca_cert, config_platform_verifier,
};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Row as ResultRow, Statement};
use tracing::{debug, warn};
use uuid::Uuid;

use super::rows::{Id, NewRun, Row, RowKey, Rows, call_of, id, kind};
use crate::journal::postgres::Postgres;
use crate::journal::record::Slot;
use crate::model::maps::{HashMap, HashSet};
use crate::random;

/// The version of the tables that this bridge knows.
const SCHEMA: i32 = 1;
const VERSION: &str = "select version, min_binary from meta";
/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(5);
/// How many runs are taken over with one statement.
const BITE: i64 = 200;

/// What the database gives, or why it gives nothing.
pub(super) type Queried<T = ()> = Result<T, DatabaseError>;

/// The keys and the values of records.
pub(super) type Records = Vec<(RowKey, Vec<u8>)>;

/// Runs that a replica owns, with their epochs.
pub(super) type OwnedRuns = Vec<(Slot, i64)>;

/// The parameters of a statement.
type Values<'a> = &'a [&'a (dyn ToSql + Sync)];

/// Why the database did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    #[error("PostgreSQL cannot be used")]
    Failed(#[from] tokio_postgres::Error),
    #[error("PostgreSQL did not answer within {0:?}")]
    Slow(Duration),
    /// It may have been done or not.
    #[error("PostgreSQL sent a warning with its answer, so that it may not have written")]
    Doubtful,
    #[error("the machine's authorities for TLS cannot be used")]
    Tls(#[from] rustls::Error),
    #[error("`state.ca` cannot be used")]
    Authorities(#[from] CaCertError),
    #[error(
        "the tables in PostgreSQL are of version {0}, which a later mantyx-bridge has made; run that one"
    )]
    Later(i32),
    #[error("the tables in PostgreSQL need mantyx-bridge {0} or a later one")]
    TooOld(String),
    #[error(
        "the replicas of this group work for another MANTYX ({0}); set another `state.group`, or the \
         same `upstream.base_url`"
    )]
    OtherUpstream(String),
}

impl DatabaseError {
    /// Whether the database works, and its tables are not for this bridge.
    pub(super) fn lasts(&self) -> bool {
        matches!(self, Self::Later(_) | Self::TooOld(_) | Self::OtherUpstream(_))
    }

    /// What the operator can do about it.
    pub fn cure(&self) -> &'static str {
        let error = match self {
            Self::Failed(error) => error,
            Self::Later(_) | Self::TooOld(_) => return "upgrade this mantyx-bridge",
            Self::OtherUpstream(_) => {
                return "set another `state.group`, or the group's `upstream.base_url`";
            }
            _ => return "see that PostgreSQL runs, and answers from this machine",
        };
        match error.code().map(SqlState::code) {
            Some("28P01" | "28000") => "correct the user and the password in `state.postgres`",
            Some("3D000") => "create the database, or name another one in `state.postgres`",
            Some("42501" | "3F000") => {
                "let the user make its schema: `grant create on database … to …`"
            }
            Some("25006") => "name the primary in `state.postgres`; this server is a standby",
            _ => {
                "see that PostgreSQL runs, that it can be reached from here, and what its log says"
            }
        }
    }
}

/// What decides whether the promises hold that replicas make.
#[derive(Debug)]
pub struct Facts {
    /// Of the server, such as 150004.
    pub version: i32,
    pub is_standby: bool,
    pub synchronous_commit: String,
    pub synchronous_standbys: String,
    /// The version of the bridge's tables, if they are there.
    pub tables: Option<i32>,
}

impl Facts {
    /// What the settings of the server put at risk.
    pub fn doubt(&self) -> Option<&'static str> {
        if matches!(self.synchronous_commit.as_str(), "off" | "local") {
            return Some("PostgreSQL confirms writes that a crash loses: calls may be made twice");
        }
        self.synchronous_standbys.is_empty().then_some(
            "PostgreSQL has no synchronous standby: if another server is promoted in its place, calls \
             may be made twice",
        )
    }
}

/// A connection.
#[derive(Debug)]
pub(super) struct Database {
    client: Client,
    /// Planning the statement of a write takes longer than the write.
    prepared: Mutex<HashMap<&'static str, Statement>>,
    /// What PostgreSQL warned of since the last statement.
    warned: Arc<AtomicBool>,
    within: Duration,
    /// Of the replicas whose records it reads and writes.
    group: String,
    /// Reads what PostgreSQL sends. Dropping it closes the connection.
    _reader: JoinSet<()>,
}

/// This process, as the other replicas know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) id: Uuid,
    pub(super) generation: i64,
}

/// What came of a write.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    /// Nothing has taken this replica's place.
    pub(super) lives: bool,
    /// The runs that it owns, of those that were asked for.
    pub(super) held: HashSet<Slot>,
    /// The answers and requests that were the first of their keys, and the calls that may be sent.
    pub(super) first: HashSet<RowKey>,
}

/// The heartbeat of a replica, and what it says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beat {
    pub replica: Uuid,
    pub(super) generation: i64,
    pub(super) counter: i64,
    pub host: String,
    /// Of the bridge.
    pub version: String,
    /// When it started, by the database's clock.
    pub since: SystemTime,
    /// The identities of its backends, by their names.
    pub backends: BTreeMap<String, String>,
}

impl Database {
    /// Connects, and makes the tables that are missing.
    pub(super) async fn open(settings: &Postgres) -> Queried<Self> {
        let this = Self::connect(settings).await?;
        let tables = include_str!("sql/schema.sql").replace("{schema}", &settings.schema);
        // One replica at a time: `create … if not exists` fails if two run it at once.
        let statements = format!("begin; select pg_advisory_xact_lock(7717); {tables}; commit");
        this.bounded(this.client.batch_execute(&statements)).await?;
        let meta = this.bounded(this.client.query_one(VERSION, &[])).await?;
        let oldest: String = meta.try_get(1)?;
        match meta.try_get(0)? {
            later if later > SCHEMA => Err(DatabaseError::Later(later)),
            _ if numbers(env!("CARGO_PKG_VERSION")) < numbers(&oldest) => {
                Err(DatabaseError::TooOld(oldest))
            }
            _ => Ok(this),
        }
    }

    /// Connects to tables that are there.
    pub(super) async fn connect(settings: &Postgres) -> Queried<Self> {
        let tls = match &settings.ca {
            Some(path) => config_from_ca_cert(path)?,
            None => config_platform_verifier()?,
        };
        let mut url = settings.url.clone();
        url.application_name("mantyx-bridge");
        let connecting = timeout(CONNECT, url.connect(MakeRustlsConnect::new(tls)));
        let (client, mut connection) =
            connecting.await.map_err(|_elapsed| DatabaseError::Slow(CONNECT))??;
        let warned: Arc<AtomicBool> = Arc::default();
        let mut reader = JoinSet::new();
        let flag = Arc::clone(&warned);
        reader.spawn(async move {
            loop {
                match poll_fn(|context| connection.poll_message(context)).await {
                    Some(Ok(AsyncMessage::Notice(notice))) if notice.severity() == "WARNING" => {
                        warn!(notice = notice.message(), "PostgreSQL warns");
                        flag.store(true, Ordering::Relaxed);
                    }
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return debug!(%error, "a connection to PostgreSQL broke"),
                    None => return,
                }
            }
        });
        let within = settings.statement_timeout;
        let group = settings.group.clone();
        let prepared = Mutex::default();
        let this = Self { client, prepared, warned, within, group, _reader: reader };
        let set = include_str!("sql/settings.sql").replace("{schema}", &settings.schema);
        this.bounded(this.client.batch_execute(&set)).await?;
        Ok(this)
    }

    /// What the server says of itself.
    pub(super) async fn facts(&self, schema: &str) -> Queried<Facts> {
        let text = include_str!("sql/facts.sql");
        let table = format!("{schema}.meta");
        let row = self.bounded(self.client.query_one(text, &[&table])).await?;
        let tables = if row.try_get(4)? {
            Some(self.bounded(self.client.query_one(VERSION, &[])).await?.try_get(0)?)
        } else {
            None
        };
        if let Some(later) = tables.filter(|version| *version > SCHEMA) {
            return Err(DatabaseError::Later(later));
        }
        Ok(Facts {
            version: row.try_get(0)?,
            is_standby: row.try_get(1)?,
            synchronous_commit: row.try_get(2)?,
            synchronous_standbys: row.try_get(3)?,
            tables,
        })
    }

    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Waits for a statement. After an error, its effect is unknown: PostgreSQL may carry it out
    /// later.
    async fn bounded<T>(
        &self,
        statement: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Queried<T> {
        let outcome = timeout(self.within, statement).await;
        Ok(outcome.map_err(|_elapsed| DatabaseError::Slow(self.within))??)
    }

    async fn query(&self, text: &'static str, values: Values<'_>) -> Queried<Vec<ResultRow>> {
        let prepared = self.prepared.lock().get(text).cloned();
        let statement = match prepared {
            Some(statement) => statement,
            None => {
                let new = self.bounded(self.client.prepare(text)).await?;
                self.prepared.lock().insert(text, new.clone());
                new
            }
        };
        self.bounded(self.client.query(&statement, values)).await
    }

    /// Says which backends this replica has, and how each is reached.
    pub(super) async fn publish(
        &self,
        member: Member,
        backends: &BTreeMap<String, String>,
    ) -> Queried {
        let (names, identities): (Vec<&String>, Vec<&String>) = backends.iter().unzip();
        let values: Values<'_> = &[&member.id, &member.generation, &names, &identities];
        self.query(include_str!("sql/publish.sql"), values).await.map(drop)
    }

    /// Adds this process to its group.
    pub(super) async fn join(&self, host: &str) -> Queried<Member> {
        let id = random::uuid();
        let version = env!("CARGO_PKG_VERSION");
        let text = include_str!("sql/join.sql");
        let values: Values<'_> = &[&id, &self.group, &host, &version];
        let row = self.bounded(self.client.query_one(text, values)).await?;
        Ok(Member { id, generation: row.try_get(0)? })
    }

    /// Begins a session of writes, and waits for the end of every statement of an earlier one.
    /// `None`: another replica has taken over. A statement of an earlier session that arrives later
    /// writes nothing, or it would put old values over new ones.
    pub(super) async fn begin(&self, member: Member) -> Queried<Option<i64>> {
        let text = include_str!("sql/begin.sql");
        let rows = self.query(text, &[&member.id, &member.generation]).await?;
        Ok(rows.first().map(|row| row.try_get(0)).transpose()?)
    }

    /// Takes a replica's place, and waits for the end of what that replica is writing. Nothing of
    /// it is written afterwards: otherwise it could record a dispatch of a call that the new owner
    /// dispatches.
    pub(super) async fn fence(&self, dead: &Beat) -> Queried {
        let text = include_str!("sql/fence.sql");
        self.query(text, &[&dead.replica, &dead.generation]).await.map(drop)
    }

    /// Writes one batch, as one statement: all of it, or nothing.
    ///
    /// A warning counts as a failure. PostgreSQL confirms a commit with one if no standby has it,
    /// and after a promotion the record of a dispatch would be gone, and the call made twice.
    pub(super) async fn write(
        &self,
        (member, session): (Member, i64),
        rows: &Rows,
    ) -> Queried<Verdict> {
        let numbers =
            |slots: &mut dyn Iterator<Item = &Slot>| slots.map(number).collect::<Vec<_>>();
        let mut removed = Vec::new();
        for (key, row) in &rows.records {
            if row.value.is_none() {
                removed.push(id(key));
            }
        }
        let new_runs = NewRuns::new(rows.new_runs.values());
        let epochs: Vec<i64> = rows.owned.values().copied().collect();
        let records = Columns::new(&rows.records);
        let answers = Columns::new(&rows.first);
        let calls: Vec<Id> = rows.first.keys().map(|key| id(&call_of(key))).collect();
        let (claims, claimants): (Vec<Id>, Vec<Slot>) = rows
            .records
            .values()
            .chain(rows.first.values())
            .filter_map(|row| Some((row.claim?, row.run?)))
            .unzip();
        self.warned.store(false, Ordering::Relaxed);
        let results = self
            .query(
                include_str!("sql/write.sql"),
                &[
                    &member.id,
                    &member.generation,
                    &session,
                    &self.group,
                    &numbers(&mut rows.new_runs.keys()),
                    &slices(&new_runs.names),
                    &numbers(&mut rows.owned.keys()),
                    &epochs,
                    &numbers(&mut rows.released.iter()),
                    &numbers(&mut rows.ended.iter()),
                    &numbers(&mut rows.forgotten.iter()),
                    &slices(&removed),
                    &numbers(&mut rows.cleared.iter()),
                    &slices(&records.ids),
                    &records.keys,
                    &records.kinds,
                    &records.runs,
                    &records.values,
                    &slices(&answers.ids),
                    &answers.keys,
                    &answers.kinds,
                    &answers.runs,
                    &answers.values,
                    &slices(&calls),
                    &records.attempts,
                    &records.dispatches,
                    &new_runs.needs,
                    &records.claims,
                    &answers.from_owner_only,
                    &slices(&claims),
                    &numbers(&mut claimants.iter()),
                    &new_runs.owners,
                    &answers.claims,
                ],
            )
            .await?;
        if self.warned.load(Ordering::Relaxed) {
            return Err(DatabaseError::Doubtful);
        }
        let mut verdict = Verdict::default();
        for row in results {
            verdict.lives |= row.try_get::<_, Option<bool>>(0)?.is_some();
            verdict.held.extend(row.try_get::<_, Option<i64>>(1)?.map(slot));
            verdict.first.extend(row.try_get::<_, Option<RowKey>>(2)?);
        }
        Ok(verdict)
    }

    /// Says that this replica lives, and returns the heartbeats of all of its group. `None`:
    /// another replica has taken the place of this one.
    pub(super) async fn beat(&self, member: Member) -> Queried<Option<Vec<Beat>>> {
        let values: Values<'_> = &[&member.id, &member.generation, &self.group];
        let rows = self.query(include_str!("sql/beat.sql"), values).await?;
        let beats = rows.iter().map(Beat::read).collect::<Queried<Vec<_>>>()?;
        Ok(Some(beats).filter(|beats| !beats.is_empty()))
    }

    /// Makes `member`, which has these `backends`, the owner of some runs of `dead` replicas, or of
    /// none; with their new epochs.
    pub(super) async fn take_over(
        &self,
        member: Member,
        dead: &[Uuid],
        backends: &[String],
    ) -> Queried<OwnedRuns> {
        let values: Values<'_> =
            &[&member.id, &member.generation, &self.group, &dead, &BITE, &backends];
        runs(&self.query(include_str!("sql/take_over.sql"), values).await?)
    }

    /// Makes `member` the owner of the run `name` if that waits for the credential of its app.
    pub(super) async fn take_waiting_run(&self, member: Member, name: Id) -> Queried<OwnedRuns> {
        let values: Values<'_> = &[&member.id, &member.generation, &self.group, &name.as_slice()];
        runs(&self.query(include_str!("sql/take_waiting_run.sql"), values).await?)
    }

    /// The records of these runs.
    pub(super) async fn of_runs(&self, runs: &[Slot]) -> Queried<Records> {
        let runs: Vec<i64> = runs.iter().map(number).collect();
        let text = "select key, value from record where grp = $1 and run = any($2)";
        records(&self.query(text, &[&self.group, &runs]).await?)
    }

    /// Takes over the long calls and the requests of `dead` replicas, and of those that have left.
    pub(super) async fn inherit(&self, member: Member, dead: &[Uuid]) -> Queried<Records> {
        let values: Values<'_> = &[&member.id, &member.generation, &self.group, &dead];
        records(&self.query(include_str!("sql/inherit.sql"), values).await?)
    }

    /// The runs that `member` owns, with their epochs, except for those in `driven`: a takeover
    /// without an answer has made them its own.
    pub(super) async fn owned_runs(&self, member: Member, driven: OwnedRuns) -> Queried<OwnedRuns> {
        let (slots, epochs): (Vec<i64>, Vec<i64>) =
            driven.iter().map(|(slot, epoch)| (number(slot), *epoch)).unzip();
        let values: Values<'_> = &[&member.id, &slots, &epochs];
        runs(&self.query(include_str!("sql/owned_runs.sql"), values).await?)
    }

    /// The records with these ids, and those of the runs with these names.
    pub(super) async fn find(&self, ids: &[Id], names: &[Id]) -> Queried<Records> {
        let values: Values<'_> = &[&self.group, &slices(ids), &slices(names)];
        records(&self.query(include_str!("sql/find.sql"), values).await?)
    }

    /// The records of owners whose keys and values begin so.
    pub(super) async fn owned(&self, key_start: &[u8], value_start: &[u8]) -> Queried<Records> {
        let values: Values<'_> = &[&self.group, &key_start, &value_start];
        records(&self.query(include_str!("sql/owned.sql"), values).await?)
    }

    /// The records of the runs that others than `own` drive, or of those with the id `run_id`.
    pub(super) async fn elsewhere(
        &self,
        own: Option<Uuid>,
        run_id: Option<&str>,
    ) -> Queried<Records> {
        let values: Values<'_> = &[&self.group, &own, &run_id];
        records(&self.query(include_str!("sql/elsewhere.sql"), values).await?)
    }

    /// Gives up all runs of `member`, for others to take, and leaves the group.
    pub(super) async fn leave(&self, member: Member) -> Queried {
        self.query(include_str!("sql/leave.sql"), &[&member.id, &member.generation]).await.map(drop)
    }

    /// Removes the rows of replicas that own nothing now.
    pub(super) async fn bury(&self, dead: &[Uuid]) -> Queried {
        self.query(include_str!("sql/bury.sql"), &[&dead]).await.map(drop)
    }
}

/// The values of a statement, by columns.
#[derive(Default)]
struct Columns<'a> {
    ids: Vec<Id>,
    keys: Vec<&'a [u8]>,
    kinds: Vec<&'a str>,
    runs: Vec<Option<i64>>,
    values: Vec<&'a [u8]>,
    attempts: Vec<Option<i32>>,
    dispatches: Vec<bool>,
    claims: Vec<Option<&'a [u8]>>,
    from_owner_only: Vec<bool>,
}

/// The runs that begin, by columns.
struct NewRuns<'a> {
    names: Vec<Id>,
    needs: Vec<&'a str>,
    owners: Vec<Option<&'a [u8]>>,
}

impl<'a> NewRuns<'a> {
    fn new(runs: impl Iterator<Item = &'a NewRun>) -> Self {
        let mut this = Self { names: Vec::new(), needs: Vec::new(), owners: Vec::new() };
        for run in runs {
            this.names.push(run.name);
            this.needs.push(&run.needs);
            this.owners.push(run.owner.as_ref().map(<[u8; 32]>::as_slice));
        }
        this
    }
}

impl Beat {
    fn read(row: &ResultRow) -> Queried<Self> {
        let (names, identities): (Vec<_>, Vec<_>) = (row.try_get(6)?, row.try_get(7)?);
        Ok(Self {
            replica: row.try_get(0)?,
            generation: row.try_get(1)?,
            counter: row.try_get(2)?,
            host: row.try_get(3)?,
            version: row.try_get(4)?,
            since: row.try_get(5)?,
            backends: names.into_iter().zip(identities).collect(),
        })
    }
}

impl<'a> Columns<'a> {
    fn new(rows: &'a BTreeMap<RowKey, Row>) -> Self {
        let mut this = Self::default();
        for (key, row) in rows {
            let Some(value) = &row.value else { continue };
            this.ids.push(id(key));
            this.keys.push(key);
            this.kinds.push(kind(key));
            this.runs.push(row.run.as_ref().map(number));
            this.values.push(value);
            this.attempts.push(row.attempts.map(|(count, _)| count));
            this.from_owner_only.push(row.from_owner_only);
            this.claims.push(row.claim.as_ref().map(<[u8; 32]>::as_slice));
            this.dispatches.push(row.attempts.is_some_and(|(_, dispatches)| dispatches));
        }
        this
    }
}

fn slices(ids: &[Id]) -> Vec<&[u8]> {
    ids.iter().map(<[u8; 32]>::as_slice).collect()
}

fn records(rows: &[ResultRow]) -> Queried<Records> {
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
}

fn runs(rows: &[ResultRow]) -> Queried<OwnedRuns> {
    rows.iter().map(|row| Ok((slot(row.try_get(0)?), row.try_get(1)?))).collect()
}

/// The numbers in a version.
fn numbers(version: &str) -> Vec<u64> {
    version.split('.').map_while(|part| part.parse().ok()).collect()
}

/// Numbers of runs are below 2^63 by their making.
fn number(slot: &Slot) -> i64 {
    i64::try_from(slot.0).unwrap_or(i64::MAX)
}

fn slot(number: i64) -> Slot {
    Slot(u64::try_from(number).unwrap_or_default())
}
