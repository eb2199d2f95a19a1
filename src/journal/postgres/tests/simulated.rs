//! The database of a simulation: the tables of sql/schema.sql in memory, with the row locks and the
//! snapshots of READ COMMITTED. Each statement takes a time of its own, in the database's task: it
//! goes on although the client has stopped waiting, and a connection that breaks leaves it in
//! doubt.
//!
//! Must not: do anything that PostgreSQL would not.

mod statements;
mod tables;

use std::collections::BTreeMap;
use std::future::{Ready, ready};
use std::sync::{Arc, mpsc};
use std::time::{Duration, SystemTime};

use futures_util::future::{BoxFuture, FutureExt as _};
use tokio::sync::mpsc as tasks;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub(crate) use self::tables::Server;
use self::tables::{Batch, Tx};
use crate::journal::RETRY;
use crate::journal::batch::{Batch as Gathered, Job};
use crate::journal::postgres::database::{Beat, DatabaseError, Facts, Member, Verdict};
use crate::journal::postgres::rows::{Id, RowKey, Rows};
use crate::journal::postgres::shared::Conversation;
use crate::journal::postgres::{Postgres, SharedApproval, SharedFile, SharedNotice, Writer};
use crate::journal::record::Slot;
use crate::model::maps::HashMap;
use crate::simulated;

/// What the world decides for the database.
pub(crate) trait Chance: Send + Sync {
    /// The process whose task runs now.
    fn process(&self) -> usize;

    /// What becomes of a statement of this process.
    fn fate(&self, of: usize, statement: &'static str) -> Fate;

    /// Whether this process reaches the database.
    fn is_reached(&self, of: usize) -> bool;

    fn step(&self, what: String);

    fn now(&self) -> SystemTime;
}

/// What becomes of a statement.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Fate {
    /// It does not arrive, and the client hears nothing.
    pub(crate) is_lost: bool,
    /// The time until its snapshot.
    pub(crate) before: Duration,
    /// The time between its snapshot and its locks.
    pub(crate) planning: Duration,
    /// The time between its locks and its end.
    pub(crate) working: Duration,
    /// It fails in the end, as its connection breaks.
    pub(crate) aborts: bool,
    /// The time until its answer is there.
    pub(crate) after: Duration,
    /// Its connection breaks before the client has its answer.
    pub(crate) is_unheard: bool,
}

/// What a connection is asked for.
type Asked = Box<dyn FnOnce() -> BoxFuture<'static, bool> + Send>;

/// A connection to the made-up database.
#[derive(Debug)]
pub(in crate::journal::postgres) struct Database {
    server: Arc<Server>,
    of: usize,
    asks: tasks::Sender<Asked>,
    closed: CancellationToken,
    within: Duration,
}

fn broken() -> DatabaseError {
    DatabaseError::Slow(Duration::ZERO)
}

impl Database {
    pub(in crate::journal::postgres) async fn open(
        settings: &Postgres,
    ) -> Result<Self, DatabaseError> {
        Self::connect(settings).await
    }

    pub(in crate::journal::postgres) async fn connect(
        settings: &Postgres,
    ) -> Result<Self, DatabaseError> {
        let world = simulated::world().expect("unit tests have no PostgreSQL but a simulated one");
        let server = world.database();
        let of = server.chance.process();
        let within = settings.statement_timeout;
        if !server.chance.is_reached(of) {
            sleep(within).await;
            return Err(DatabaseError::Slow(within));
        }
        sleep(Duration::from_millis(3)).await;
        let killed = server.connect().ok_or_else(broken)?;
        let (asks, asked) = tasks::channel(64);
        let closed = CancellationToken::new();
        drop(server.runtime.spawn(serve(asked, killed, closed.clone())));
        Ok(Self { server, of, asks, closed, within })
    }

    pub(in crate::journal::postgres) fn is_closed(&self) -> bool {
        self.closed.is_cancelled()
    }

    /// Has the database do `work` as one statement.
    async fn run<T: Send + 'static, F>(
        &self,
        what: &'static str,
        work: impl FnOnce(Tx) -> F + Send + 'static,
    ) -> Result<T, DatabaseError>
    where
        F: Future<Output = (Tx, T)> + Send + 'static,
    {
        let (reply, replied) = oneshot::channel();
        let (server, of) = (Arc::clone(&self.server), self.of);
        let asked = move || {
            async move {
                let fate = server.chance.fate(of, what);
                if fate.is_lost {
                    // The client hears nothing, and the connection nothing more of it.
                    reply.closed_quietly().await;
                    return false;
                }
                server.works_after(fate.before).await;
                let mut tx = server.begin(of, what);
                tx.planning = fate.planning;
                let (tx, value) = work(tx).await;
                server.works_after(fate.working).await;
                if fate.aborts {
                    server.chance.step(format!("database: {what} of {of} is aborted"));
                    return false;
                }
                tx.commit();
                server.works_after(fate.after).await;
                if fate.is_unheard || !server.chance.is_reached(of) {
                    server.chance.step(format!("database: {of} does not hear of its {what}"));
                    reply.closed_quietly().await;
                    return false;
                }
                reply.send(value).ok();
                true
            }
            .boxed()
        };
        self.asks.send(Box::new(asked)).await.map_err(|_closed| broken())?;
        let slow = |_elapsed| DatabaseError::Slow(self.within);
        timeout(self.within, replied).await.map_err(slow)?.map_err(|_closed| broken())
    }

    #[expect(clippy::unused_async, reason = "the real one asks")]
    pub(in crate::journal::postgres) async fn facts(
        &self,
        _schema: &str,
    ) -> Result<Facts, DatabaseError> {
        Ok(Facts {
            version: 150_004,
            is_standby: false,
            synchronous_commit: "on".to_owned(),
            synchronous_standbys: String::new(),
            tables: Some(1),
        })
    }

    pub(in crate::journal::postgres) async fn publish(
        &self,
        member: Member,
        backends: &BTreeMap<String, String>,
    ) -> Result<(), DatabaseError> {
        let backends = backends.clone();
        self.run("publish", move |tx| statements::publish(tx, member, backends)).await
    }

    pub(in crate::journal::postgres) async fn join(
        &self,
        host: &str,
    ) -> Result<Member, DatabaseError> {
        let (id, host) = (crate::random::uuid(), host.to_owned());
        self.run("join", move |tx| ready(statements::join(tx, id, host))).await
    }

    pub(in crate::journal::postgres) async fn begin(
        &self,
        member: Member,
    ) -> Result<Option<i64>, DatabaseError> {
        self.run("begin", move |tx| statements::begin(tx, member)).await
    }

    pub(in crate::journal::postgres) async fn fence(
        &self,
        dead: &Beat,
    ) -> Result<(), DatabaseError> {
        let dead = Member { id: dead.replica, generation: dead.generation };
        self.run("fence", move |tx| statements::fence(tx, dead)).await
    }

    pub(in crate::journal::postgres) async fn write(
        &self,
        (member, session): (Member, i64),
        rows: &Rows,
    ) -> Result<Verdict, DatabaseError> {
        let batch = Batch::new(rows);
        self.run("write", move |tx| statements::write(tx, member, session, batch)).await
    }

    pub(in crate::journal::postgres) async fn beat(
        &self,
        member: Member,
    ) -> Result<Option<Vec<Beat>>, DatabaseError> {
        self.run("beat", move |tx| statements::beat(tx, member)).await
    }

    pub(in crate::journal::postgres) async fn take_over(
        &self,
        member: Member,
        dead: &[Uuid],
        backends: &[String],
    ) -> Result<Vec<(Slot, i64)>, DatabaseError> {
        let (dead, backends) = (dead.to_vec(), backends.to_vec());
        self.run("take_over", move |tx| statements::take_over(tx, member, dead, backends)).await
    }

    pub(in crate::journal::postgres) async fn take_waiting_run(
        &self,
        member: Member,
        name: Id,
    ) -> Result<Vec<(Slot, i64)>, DatabaseError> {
        self.run("take_waiting_run", move |tx| statements::take_waiting_run(tx, member, name)).await
    }

    /// No agent is simulated.
    pub(in crate::journal::postgres) fn enter_conversation(
        &self,
        _id: &str,
    ) -> Ready<Result<Conversation, DatabaseError>> {
        ready(Ok((None, None)))
    }

    pub(in crate::journal::postgres) fn leave_conversation(
        &self,
        _id: &str,
        _led: Conversation,
    ) -> Ready<Result<(), DatabaseError>> {
        ready(Ok(()))
    }

    pub(in crate::journal::postgres) async fn of_runs(
        &self,
        runs: &[Slot],
    ) -> Result<Vec<(RowKey, Vec<u8>)>, DatabaseError> {
        let runs = runs.to_vec();
        self.run("of_runs", move |tx| ready(statements::of_runs(tx, &runs))).await
    }

    pub(in crate::journal::postgres) async fn inherit(
        &self,
        member: Member,
        dead: &[Uuid],
    ) -> Result<Vec<(RowKey, Vec<u8>)>, DatabaseError> {
        let dead = dead.to_vec();
        self.run("inherit", move |tx| statements::inherit(tx, member, dead)).await
    }

    pub(in crate::journal::postgres) async fn owned_runs(
        &self,
        member: Member,
        known: Vec<(Slot, i64)>,
    ) -> Result<Vec<(Slot, i64)>, DatabaseError> {
        self.run("owned_runs", move |tx| statements::owned_runs(tx, member, known)).await
    }

    pub(in crate::journal::postgres) async fn find(
        &self,
        ids: &[Id],
        names: &[Id],
    ) -> Result<Vec<(RowKey, Vec<u8>)>, DatabaseError> {
        let (ids, names) = (ids.to_vec(), names.to_vec());
        self.run("find", move |tx| ready(statements::find(tx, &ids, &names))).await
    }

    pub(in crate::journal::postgres) async fn owned(
        &self,
        key_start: &[u8],
        value_start: &[u8],
    ) -> Result<Vec<(RowKey, Vec<u8>)>, DatabaseError> {
        let (key_start, value_start) = (key_start.to_vec(), value_start.to_vec());
        self.run("owned", move |tx| ready(statements::owned(tx, &key_start, &value_start))).await
    }

    pub(in crate::journal::postgres) async fn elsewhere(
        &self,
        own: Option<Uuid>,
        named: Option<&str>,
    ) -> Result<Vec<(RowKey, Vec<u8>)>, DatabaseError> {
        let named = named.map(str::to_owned);
        self.run("elsewhere", move |tx| ready(statements::elsewhere(tx, own, named.as_deref())))
            .await
    }

    pub(in crate::journal::postgres) async fn leave(
        &self,
        member: Member,
    ) -> Result<(), DatabaseError> {
        self.run("leave", move |tx| statements::leave(tx, member)).await
    }

    pub(in crate::journal::postgres) async fn bury(
        &self,
        dead: &[Uuid],
    ) -> Result<(), DatabaseError> {
        let dead = dead.to_vec();
        self.run("bury", move |tx| statements::bury(tx, dead)).await
    }

    pub(in crate::journal::postgres) async fn files(
        &self,
        known: &HashMap<String, i64>,
    ) -> Result<Vec<SharedFile>, DatabaseError> {
        let known = known.iter().map(|(name, version)| (name.clone(), *version)).collect();
        self.run("files", move |tx| ready(statements::files(tx, &known))).await
    }

    pub(in crate::journal::postgres) async fn write_file(
        &self,
        name: &str,
        known: Option<i64>,
        text: &str,
    ) -> Result<Option<i64>, DatabaseError> {
        let (name, text) = (name.to_owned(), text.to_owned());
        self.run("write_file", move |tx| statements::write_file(tx, name, known, text)).await
    }

    pub(in crate::journal::postgres) async fn ask(
        &self,
        member: Member,
        id: &str,
        asked: &[u8],
        deadline: SystemTime,
    ) -> Result<(), DatabaseError> {
        let (id, asked) = (id.to_owned(), asked.to_vec());
        self.run("ask", move |tx| statements::ask(tx, member, id, asked, deadline)).await
    }

    pub(in crate::journal::postgres) async fn end(
        &self,
        id: &str,
        holder: Option<Uuid>,
        ended: &[u8],
    ) -> Result<Option<Option<Vec<u8>>>, DatabaseError> {
        let (id, ended) = (id.to_owned(), ended.to_vec());
        self.run("end", move |tx| statements::end(tx, id, holder, ended)).await
    }

    pub(in crate::journal::postgres) async fn cancel(
        &self,
        id: &str,
        value: &[u8],
    ) -> Result<(), DatabaseError> {
        let (id, value) = (id.to_owned(), value.to_vec());
        self.run("cancel", move |tx| statements::cancel(tx, id, value)).await
    }

    pub(in crate::journal::postgres) async fn cancellations(
        &self,
    ) -> Result<Vec<Vec<u8>>, DatabaseError> {
        self.run("cancellations", statements::cancellations).await
    }

    pub(in crate::journal::postgres) async fn claim_notices(
        &self,
        holder: Uuid,
        notices: &[(String, String)],
    ) -> Result<HashMap<String, SharedNotice>, DatabaseError> {
        let notices = notices.iter().cloned().collect();
        self.run("claim_notices", move |tx| statements::claim_notices(tx, holder, notices)).await
    }

    pub(in crate::journal::postgres) async fn settle_notices(
        &self,
        holder: Uuid,
        settled: &[String],
        released: &[String],
    ) -> Result<(), DatabaseError> {
        let (settled, released) = (settled.to_vec(), released.to_vec());
        self.run("settle_notices", move |tx| {
            statements::settle_notices(tx, holder, settled, released)
        })
        .await
    }

    pub(in crate::journal::postgres) async fn approvals(
        &self,
        known: &[&str],
    ) -> Result<Vec<SharedApproval>, DatabaseError> {
        let known = known.iter().map(|id| (*id).to_owned()).collect();
        self.run("approvals", move |tx| statements::approvals(tx, known)).await
    }
}

/// The server's end of a connection: one statement after the other, until the client has hung up
/// and nothing is left.
async fn serve(
    mut asked: tasks::Receiver<Asked>,
    killed: CancellationToken,
    closed: CancellationToken,
) {
    let serving = async {
        while let Some(next) = asked.recv().await {
            if !next().await {
                return;
            }
        }
    };
    killed.run_until_cancelled(serving).await;
    closed.cancel();
}

trait Quietly {
    async fn closed_quietly(self);
}

impl<T> Quietly for oneshot::Sender<T> {
    /// Waits until the client does not wait any more.
    async fn closed_quietly(mut self) {
        self.closed().await;
    }
}

impl Writer {
    /// [`Self::run`] as a task, whose turns come when `world` says so.
    pub(in crate::journal) async fn run_in(
        mut self,
        world: Arc<dyn simulated::World>,
        given: mpsc::Receiver<Job>,
    ) {
        loop {
            timeout(RETRY, Arc::clone(&world).disk_turns()).await.ok();
            let mut batch = Gathered::default();
            while !batch.is_full() {
                match given.try_recv() {
                    Ok(job) => batch.add(job),
                    Err(mpsc::TryRecvError::Empty) => break,
                    Err(mpsc::TryRecvError::Disconnected) => return self.leave().await,
                }
            }
            if self.take(batch).await {
                return self.leave().await;
            }
        }
    }
}

#[cfg(test)]
mod tests;
