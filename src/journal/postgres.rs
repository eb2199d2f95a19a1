//! The journal of several replicas, in PostgreSQL. Each run has one owner among them; the other
//! replicas can read what is kept of it, and take it over when its owner has died or leaves.
//!
//! A thread writes, as for the file: all that waits goes into one statement, which fails for the
//! runs that this replica has lost. The keeper is a task: it sends heartbeats, notices the death of
//! others, and takes over their runs. The two have a connection each, and reading has a third.
//!
//! docs/design/replicas.md says what it is not, and how it came about.
//!
//! Must not: decide what becomes of a run's calls (model/recovery.rs does).

#[cfg_attr(test, expect(dead_code, reason = "in tests, tests::simulated stands in"))]
mod database;
mod keeper;
mod membership;
mod reading;
mod rows;
mod shared;
mod writer;

use std::collections::BTreeMap;
use std::fmt;
use std::fmt::{Display, Formatter};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync;
use tokio::sync::watch;
use tokio_postgres::config::Host;
use tracing::warn;
use uuid::Uuid;

#[cfg(not(test))]
use self::database::Database;
pub use self::database::{Beat, DatabaseError, Facts};
use self::database::{Member, Queried};
pub use self::keeper::Keeper;
use self::membership::DispatchWindow;
use self::rows::{Epochs, Regained};
pub use self::shared::{SharedApproval, SharedFile, SharedNotice};
#[cfg(test)]
use self::tests::simulated::Database;
pub(super) use self::writer::Writer;
use super::record::{Change, Slot, StoredRecords};
use super::{NOT_ASKED, Shared};
use crate::clock;

/// The time between two attempts to write a batch, or to read an answer.
const AGAIN: Duration = Duration::from_millis(500);

/// How the database is reached (`state`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Postgres {
    pub url: tokio_postgres::Config,
    /// The authorities that may sign its certificate; `None`: the machine's.
    pub ca: Option<PathBuf>,
    pub schema: String,
    /// The replicas of a group share their runs.
    pub group: String,
    /// How long a statement may take before its connection is dropped.
    pub statement_timeout: Duration,
}

impl Display for Postgres {
    /// Where it is; neither its user nor a password.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { url, schema, group, .. } = self;
        let mut names = Vec::new();
        for host in url.get_hosts() {
            names.push(match host {
                Host::Tcp(name) => name.clone(),
                Host::Unix(path) => path.display().to_string(),
            });
        }
        let hosts = names.join(", ");
        write!(f, "{hosts}, schema {schema}, group {group}")
    }
}

/// What has happened to the runs of this replica.
#[derive(Debug)]
pub enum Event {
    /// It has joined the group, in which these records are kept for all.
    Joined(StoredRecords),
    /// These runs were another's, and are its own now.
    TakenOver(StoredRecords),
    /// Another replica drives these runs now.
    Lost(Vec<Slot>),
}

/// This process as a replica.
#[derive(Debug)]
pub struct Replica {
    settings: Postgres,
    /// The address of MANTYX, which is one for all replicas of the group.
    upstream: String,
    shared: Arc<Shared>,
    /// `None`: it has not joined yet, or another has taken its place.
    member: watch::Sender<Option<Member>>,
    dispatch_window: DispatchWindow,
    epochs: Mutex<Epochs>,
    /// How often it has got runs from others, and which.
    regained: Mutex<(u64, Regained)>,
    events: sync::mpsc::Sender<Event>,
    /// For the records that a caller asks for.
    reader: sync::Mutex<Option<Arc<Database>>>,
    /// The group, by its last heartbeats.
    group: Mutex<Vec<Beat>>,
    /// What the settings of the database put at risk, in words for operators.
    doubt: Mutex<Option<&'static str>>,
    /// The identities of this replica's backends, by their names.
    backends: Mutex<BTreeMap<String, String>>,
    /// A takeover may have succeeded without an answer: a run may be this replica's, and no driver
    /// knows that. The keeper then compares the database with `epochs`.
    takeover_in_doubt: AtomicBool,
}

impl Replica {
    /// A replica that joins its group once its keeper runs; and what happens to its runs.
    pub(super) fn new(
        settings: Postgres,
        upstream: String,
        shared: Arc<Shared>,
    ) -> (Arc<Self>, sync::mpsc::Receiver<Event>) {
        let (events, happens) = sync::mpsc::channel(16);
        shared.health.lock().error = Some(NOT_ASKED.to_owned());
        let this = Self {
            settings,
            upstream,
            shared,
            member: watch::Sender::default(),
            dispatch_window: DispatchWindow::default(),
            epochs: Mutex::default(),
            regained: Mutex::default(),
            events,
            reader: sync::Mutex::default(),
            group: Mutex::default(),
            doubt: Mutex::default(),
            backends: Mutex::default(),
            takeover_in_doubt: AtomicBool::default(),
        };
        (Arc::new(this), happens)
    }

    /// Whether this replica may dispatch calls: no other can have taken its place. Without this
    /// bound, a replica that was cut off from the database would send calls that its successor
    /// sends again.
    pub(super) fn holds_lease(&self) -> bool {
        self.dispatch_window.holds(clock::since_boot())
    }

    /// Whether the database has answered lately.
    pub(super) fn is_heard(&self) -> bool {
        self.dispatch_window.is_fresh(clock::since_boot())
    }

    /// Whether another replica owns the run. Only the owner's driver may answer or refuse its
    /// calls.
    pub(super) fn has_lost(&self, run: Slot) -> bool {
        self.epochs.lock().get(&run) == Some(&None)
    }

    /// How often this replica has got runs from others. A change is given with this count, so that
    /// the writer can tell it from those of a later driver of the same run.
    pub(super) fn regained(&self) -> u64 {
        self.regained.lock().0
    }

    /// Whether a driver that the run had before has given `change`, by the count of
    /// [`Self::regained`] at that time. Such a change must not be written: it would overwrite what
    /// the replica in between, or the driver of today, has recorded.
    fn is_of_earlier(&self, change: &Change, times: u64) -> bool {
        rows::is_of_earlier(change, times, &self.regained.lock().1)
    }

    /// The replicas of the group, and the id of this one.
    pub fn members(&self) -> (Vec<Beat>, Option<Uuid>) {
        (self.group.lock().clone(), self.member.borrow().map(|member| member.id))
    }

    /// Says which backends this replica has, and how each is reached: it takes over the runs that
    /// it can serve.
    pub fn set_backends(&self, backends: BTreeMap<String, String>) {
        *self.backends.lock() = backends;
    }

    /// A backend that another replica reaches in another way.
    pub fn disagreement(&self) -> Option<String> {
        let own = self.backends.lock();
        let member = self.member.borrow().map(|member| member.id);
        let group = self.group.lock();
        for beat in group.iter().filter(|beat| Some(beat.replica) != member) {
            for (name, identity) in &beat.backends {
                if own.get(name).is_some_and(|own_identity| own_identity != identity) {
                    let host = &beat.host;
                    return Some(format!(
                        "The replica at {host} reaches `{name}` in another way than this one."
                    ));
                }
            }
        }
        None
    }

    /// What the settings of the database put at risk.
    pub fn doubt(&self) -> Option<&'static str> {
        *self.doubt.lock()
    }

    /// Another replica has taken the place of `member`, and drives all of its runs. Ends the
    /// dispatch window and all drivers at once: a driver that continued would send calls that the
    /// other replica sends, too.
    async fn leave_place(&self, member: Member) {
        let was_member =
            self.member.send_if_modified(|current| current.take_if(|m| *m == member).is_some());
        if !was_member {
            // The keeper and the writer may both notice; the first of them has done this.
            return;
        }
        self.dispatch_window.end();
        warn!("another replica has taken over the runs of this one, which joins the group again");
        let mut owned = Vec::new();
        for (slot, epoch) in self.epochs.lock().iter_mut() {
            if epoch.take().is_some() {
                owned.push(*slot);
            }
        }
        self.report_lost(owned).await;
    }

    /// Has the drivers of `runs` end.
    async fn report_lost(&self, runs: Vec<Slot>) {
        self.shared.metrics.lost.inc_by(runs.len() as u64);
        self.events.send(Event::Lost(runs)).await.ok();
    }
}

/// Connects as the daemon does, makes nothing, and reads what the server says of itself.
pub async fn probe(settings: &Postgres) -> Queried<Facts> {
    Database::connect(settings).await?.facts(&settings.schema).await
}

#[cfg(test)]
pub(crate) mod tests;
