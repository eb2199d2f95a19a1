//! A PostgreSQL server of a test's own: a new cluster in a temporary directory, on a free port of
//! loopback.
//!
//! Must not: know what is kept in it.

use std::{
    fs, net::SocketAddr, os::unix::fs::chown, path::PathBuf, process::Command, time::Duration,
};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::{bridge::command_of, peers, ports, process::Group, wait};

/// The password of its user, which no log may have.
pub(crate) const PASSWORD: &str = "postgres-canary";

const START: Duration = Duration::from_secs(30);

/// A running server.
#[derive(Debug)]
pub(crate) struct Postgres {
    server: Option<Group>,
    addr: SocketAddr,
    // The last field: the directory must outlive the process.
    dir: TempDir,
}

impl Postgres {
    pub(crate) async fn start() -> Self {
        let mut this = Self::new();
        this.restart().await;
        this
    }

    /// A server that does not run yet.
    pub(crate) fn new() -> Self {
        let this = Self::without_data();
        let (dir, data) = (&this.dir, this.data());
        let mut making = program("initdb");
        let password = dir.path().join("password");
        fs::write(&password, PASSWORD).expect("the directory is writable");
        making.args(["--no-sync", "--auth=scram-sha-256", "--username=bridge"]);
        making.args(["--locale=C.UTF-8", "--pwfile"]).arg(&password).arg("-D");
        let made = making.arg(&data).output().expect("initdb can be started");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        this
    }

    fn without_data() -> Self {
        let dir = TempDir::new().expect("the temporary directory is writable");
        if let Some((user, group)) = other_user() {
            chown(dir.path(), Some(user), Some(group)).expect("root may give its files away");
        }
        Self { server: None, addr: ports::free(), dir }
    }

    /// A synchronous standby of this server, which from now on confirms nothing that the standby
    /// has not.
    pub(crate) async fn standby(&self) -> Self {
        let mut standby = Self::without_data();
        let mut copying = program("pg_basebackup");
        copying.args(["--checkpoint=fast", "--no-sync", "-R", "-d"]).arg(self.url());
        let copied = copying.arg("-D").arg(standby.data()).output();
        let copied = copied.expect("pg_basebackup can be started");
        assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
        standby.restart().await;
        self.query("alter system set synchronous_standby_names = '*'");
        self.query("select pg_reload_conf()");
        wait::until("the standby should be synchronous", START, async || {
            let state = self.query("select sync_state from pg_stat_replication");
            (state == ["sync"]).then_some(())
        })
        .await;
        standby
    }

    /// Makes a primary server of a standby.
    pub(crate) fn promote(&self) {
        let done = program("pg_ctl").arg("promote").arg("-D").arg(self.data()).output();
        let done = done.expect("pg_ctl can be started");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    /// The URL of its database.
    pub(crate) fn url(&self) -> String {
        url_at(self.addr)
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Starts the server again, on the same port and with the same data.
    pub(crate) async fn restart(&mut self) {
        let mut command = program("postgres");
        command.arg("-D").arg(self.data()).args(["-h", "127.0.0.1", "-p"]);
        command.arg(self.addr.port().to_string()).arg("-k").arg(self.dir.path());
        self.server = Some(Group::spawn(&mut command, &self.dir.path().join("log")));
        wait::until("PostgreSQL should take statements", START, async || {
            self.try_query("select 1").map(drop)
        })
        .await;
    }

    /// Ends it as an administrator does who does not wait for its clients.
    pub(crate) async fn stop(&mut self) {
        let mut server = self.server.take().expect("it runs");
        server.signal(Signal::INT);
        server.ended(START).await;
    }

    /// Kills it; its processes for clients end when they notice.
    pub(crate) fn kill9(&mut self) {
        self.server.take().expect("it runs").kill9();
    }

    /// The rows of a statement, a line each, with `|` between columns.
    pub(crate) fn query(&self, statement: &str) -> Vec<String> {
        self.try_query(statement).unwrap_or_else(|| panic!("{statement} should be taken"))
    }

    /// Begins statements, which end with what this returns.
    pub(crate) fn start_query(&self, statements: &str) -> Group {
        let mut command = program("psql");
        command.args(["-XAtq", "-c", statements, &self.url()]);
        Group::spawn(&mut command, &self.dir.path().join("psql.log"))
    }

    fn try_query(&self, statement: &str) -> Option<Vec<String>> {
        let asked = program("psql").args(["-XAtq", "-c", statement, &self.url()]).output().ok()?;
        let text = String::from_utf8_lossy(&asked.stdout).into_owned();
        asked.status.success().then(|| text.lines().map(str::to_owned).collect())
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }
}

/// The URL of the database whose server is reached at `addr`.
pub(crate) fn url_at(addr: SocketAddr) -> String {
    format!("postgres://bridge:{PASSWORD}@{addr}/postgres")
}

/// PostgreSQL does not run as root, but as a user who owns nothing.
fn other_user() -> Option<(u32, u32)> {
    const NOBODY: (u32, u32) = (65534, 65534);
    rustix::process::geteuid().is_root().then_some(NOBODY)
}

/// One of the programs of the server.
pub(crate) fn program(name: &str) -> Command {
    let path = peers::fetch::postgres(other_user().is_some()).join(name);
    let path = path.to_str().expect("a path of UTF-8");
    match other_user() {
        None => command_of(path),
        Some((user, group)) => {
            let mut command = command_of("setpriv");
            command.arg(format!("--reuid={user}")).arg(format!("--regid={group}"));
            command.args(["--clear-groups", path]);
            command
        }
    }
}
