//! A place in the database where statements wait for a test: a trigger that wants a lock. The
//! program has no part in it.
//!
//! Must not: know what waits.

use tempfile::NamedTempFile;

use crate::{
    postgres::{Postgres, program},
    process::Group,
    wait,
};

/// What the triggers execute. They wait for whoever holds this lock.
const GATE: &str = "
    create function mantyx_bridge.gate() returns trigger language plpgsql as
        'begin perform pg_advisory_xact_lock_shared(42); return new; end'";

/// The gate, shut.
pub(crate) struct Gate<'a> {
    postgres: &'a Postgres,
    _holder: Group,
    _log: NamedTempFile,
}

impl<'a> Gate<'a> {
    /// Has what `trigger` names wait at the gate, which is open.
    pub(crate) fn build(postgres: &Postgres, trigger: &str) {
        postgres.query(GATE);
        postgres.query(trigger);
    }

    pub(crate) async fn shut(postgres: &'a Postgres) -> Self {
        let log = NamedTempFile::new().expect("the temporary directory is writable");
        let mut psql = program("psql");
        psql.args(["-XAtq", "-c", "select pg_advisory_lock(42)", "-c", "select pg_sleep(60)"]);
        let holder = Group::spawn(psql.arg(postgres.url()), log.path());
        let this = Self { postgres, _holder: holder, _log: log };
        wait::soon("the gate should be shut", async || (this.count("granted") > 0).then_some(()))
            .await;
        this
    }

    /// Waits until a statement waits at the gate.
    pub(crate) async fn wait_waiting(&self) {
        wait::soon("a statement should wait at the gate", async || {
            (self.count("not granted") > 0).then_some(())
        })
        .await;
    }

    pub(crate) fn open(self) {
        self.postgres.query(
            "select pg_terminate_backend(pid) from pg_locks \
             where locktype = 'advisory' and objid = 42 and mode = 'ExclusiveLock' and granted",
        );
    }

    fn count(&self, which: &str) -> usize {
        let locks = "select count(*) from pg_locks where locktype = 'advisory' and objid = 42 and";
        let rows = self.postgres.query(&format!("{locks} {which}"));
        rows.first().and_then(|row| row.parse().ok()).expect("a count is a number")
    }
}
