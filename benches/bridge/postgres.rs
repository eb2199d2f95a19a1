//! The database of `--postgres`: a schema of the benchmark's own in it, and what the server counts.
//!
//! Must not: touch another schema.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio_postgres::{Client, NoTls};

use crate::{process::processor_seconds, run::Outcome};

/// PostgreSQL's processes tell what they have counted once a second.
const COUNTED: Duration = Duration::from_millis(1_500);

#[derive(Debug)]
pub(crate) struct Database {
    client: Client,
    url: String,
    schema: String,
    _tasks: JoinSet<()>,
}

/// What the server has counted so far. Of the whole server, but for the rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counts {
    /// Rows of the schema that were written, changed or removed.
    pub(crate) rows: f64,
    pub(crate) commits: f64,
    /// Bytes of the write-ahead log.
    pub(crate) log: f64,
    /// How often the write-ahead log was synced.
    pub(crate) syncs: f64,
}

impl Database {
    pub(crate) async fn open(url: &str) -> Outcome<Self> {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { drop(connection.await) });
        let schema = format!("bench_{}", std::process::id());
        Ok(Self { client, url: url.to_owned(), schema, _tasks: tasks })
    }

    /// The part of a bridge's configuration that leads here.
    pub(crate) fn state(&self) -> String {
        format!("state: {{postgres: {:?}, schema: {}}}\n", self.url, self.schema)
    }

    /// Call this while the bridges have nothing to do.
    pub(crate) async fn counts(&self) -> Outcome<Counts> {
        tokio::time::sleep(COUNTED).await;
        let row = self
            .client
            .query_one(
                "select (select coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)::float8
                           from pg_stat_all_tables where schemaname = $1),
                        (select sum(xact_commit)::float8 from pg_stat_database),
                        (pg_current_wal_insert_lsn() - '0/0')::float8,
                        (select wal_sync::float8 from pg_stat_wal)",
                &[&self.schema],
            )
            .await?;
        let [rows, commits, log, syncs] = [0, 1, 2, 3].map(|column| row.try_get(column));
        Ok(Counts { rows: rows?, commits: commits?, log: log?, syncs: syncs? })
    }

    /// The processor time of its processes, in seconds; 0 where it is not on this machine.
    pub(crate) async fn processor(&self) -> Outcome<f64> {
        let rows = self.client.query("select pid from pg_stat_activity", &[]).await?;
        let ids = rows.iter().filter_map(|row| u32::try_from(row.get::<_, i32>(0)).ok());
        Ok(ids.filter_map(|id| processor_seconds(id).ok()).sum())
    }

    pub(crate) async fn drop_schema(self) -> Outcome<()> {
        Ok(self.client.batch_execute(&format!("drop schema {} cascade", self.schema)).await?)
    }
}

impl Counts {
    /// What was counted since `before`, for each of so many calls.
    pub(crate) fn since(self, before: Self, calls: f64) -> Self {
        Self {
            rows: (self.rows - before.rows) / calls,
            commits: (self.commits - before.commits) / calls,
            log: (self.log - before.log) / calls,
            syncs: (self.syncs - before.syncs) / calls,
        }
    }
}
