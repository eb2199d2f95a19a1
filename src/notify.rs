//! Tells receivers what waits for a person, what has changed, and what is wrong: by webhooks and
//! programs (`notify` of bridge.yaml).
//!
//! One task looks at what there is (`watcher`) and gives each receiver its part. A task for each
//! receiver delivers what its `outbox` has, one notice after the other. Both look at the state
//! itself, so that a missed event costs a few seconds and no notice.
//!
//! Must not: stand in the way of a call, or decide anything about one.

mod command;
mod format;
pub mod notice;
mod outbox;
mod sender;
mod signature;
pub mod watcher;
mod webhook;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::sync::{Notify as Signal, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use url::Url;

use self::notice::{News, Notice};
use self::outbox::{Attempt, Outbox, Stored};
use self::watcher::{Present, Trouble, Watcher};
use crate::calls::Calls;
use crate::calls::changes::Change;
use crate::config::{Detail, NoticeReceiver, NoticeWay, Secrets, Topic};
use crate::http_client::{self, Client};
use crate::metrics::Counter;
use crate::state_dir::StateDir;
use crate::tasks::{LARGE, in_place_if_large};
use crate::{clock, random};

/// How often the state is looked at, if nothing says that it has changed: for problems, and for
/// what was missed.
const LOOK: Duration = Duration::from_secs(5);
/// How long a change waits for others: what comes at once is told at once.
const GATHER: Duration = Duration::from_millis(200);
/// How long a test waits for the attempt before it.
const TEST_WAITS: Duration = Duration::from_secs(12);
/// Where the outboxes are kept, below the state directory.
const DIRECTORY: &str = "notices";

/// What tells of troubles.
pub type Troubles = Box<dyn Fn() -> Vec<Trouble> + Send + Sync>;

/// All receivers.
#[derive(Debug)]
pub struct Notifier {
    place: Place,
    settings: watch::Sender<Arc<Settings>>,
    receivers: Mutex<BTreeMap<String, Arc<Receiver>>>,
}

/// What all receivers have in common.
#[derive(Debug, Clone)]
struct Place {
    /// The status page.
    page: Url,
    state: StateDir,
    launcher: Option<PathBuf>,
    /// With the usual settings.
    client: Client,
    /// Whether replicas tell the same.
    is_shared: bool,
}

#[derive(Debug, Default)]
struct Settings {
    receivers: Vec<NoticeReceiver>,
    secrets: Arc<Secrets>,
}

/// How one receiver is reached.
#[derive(Debug)]
struct Contact {
    receiver: NoticeReceiver,
    /// For a webhook.
    client: Client,
    secrets: Arc<Secrets>,
}

/// One receiver, for as long as bridge.yaml has it.
#[derive(Debug)]
struct Receiver {
    name: String,
    contact: Mutex<Arc<Contact>>,
    outbox: Mutex<Outbox>,
    state: Mutex<State>,
    sent: Counter,
    failed: Counter,
    dropped: Counter,
    /// There may be something to send.
    wake: Signal,
    /// It is reached in another way now.
    renewed: Signal,
    /// Held during an attempt: one at a time.
    delivering: tokio::sync::Mutex<()>,
    /// bridge.yaml has it no longer.
    removed: CancellationToken,
}

#[derive(Debug, Clone, Default)]
struct State {
    /// Why the last attempt failed.
    error: Option<String>,
    /// Why the latest entry is not used: what it refers to is missing.
    flaw: Option<Flaw>,
    last_sent: Option<SystemTime>,
}

/// Why an entry cannot be used, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flaw {
    pub why: String,
    pub cure: String,
}

/// An attempt that failed.
#[derive(Debug)]
struct Failure {
    attempt: Attempt,
    why: String,
    /// The pause that the receiver asks for.
    pause: Option<Duration>,
}

impl Failure {
    fn new(attempt: Attempt, why: String) -> Self {
        Self { attempt, why, pause: None }
    }
}

/// How a receiver stands, for the operator.
#[derive(Debug, Clone)]
pub struct Health {
    pub name: String,
    /// `webhook (json)`, `command`.
    pub way: String,
    pub on: Vec<&'static str>,
    /// Why the last attempt failed; no secret is in it.
    pub error: Option<String>,
    pub flaw: Option<Flaw>,
    pub waiting: usize,
    pub last_sent: Option<SystemTime>,
    pub sent: u64,
    pub failed: u64,
    pub dropped: u64,
}

/// What came of a test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tested {
    Delivered,
    Failed(String),
    /// Another attempt is under way for too long.
    Busy,
}

impl Notifier {
    /// `page` is how browsers reach the bridge.
    pub fn new(
        page: Url,
        state: StateDir,
        launcher: Option<PathBuf>,
        is_shared: bool,
    ) -> Arc<Self> {
        let client = http_client::new();
        Arc::new(Self {
            place: Place { page, state, launcher, client, is_shared },
            settings: watch::Sender::default(),
            receivers: Mutex::default(),
        })
    }

    /// Replaces the receivers. One of the same name keeps what waits for it.
    pub fn set(&self, receivers: Vec<NoticeReceiver>, secrets: Arc<Secrets>) {
        self.settings.send_replace(Arc::new(Settings { receivers, secrets }));
    }

    pub fn health(&self) -> Vec<Health> {
        let receivers = self.receivers.lock();
        receivers.values().map(|receiver| receiver.health()).collect()
    }

    /// Sends a test to the receiver `name`, past what waits; `None`: there is no such receiver.
    pub async fn test(&self, name: &str) -> Option<Tested> {
        let receiver = self.receivers.lock().get(name).cloned()?;
        let id = format!("msg_{}", random::uuid().simple());
        let notice = Notice { id, at: clock::now(), news: News::Test };
        let Ok(_turn) = timeout(TEST_WAITS, receiver.delivering.lock()).await else {
            return Some(Tested::Busy);
        };
        let never = CancellationToken::new();
        let outcome = receiver.deliver(&self.place, &notice, &never).await;
        Some(match outcome {
            Ok(()) => Tested::Delivered,
            Err(Failure { why, .. }) => Tested::Failed(why),
        })
    }

    /// Tells the receivers, until `stop`. From `draining` on, nothing more is taken in: calls that
    /// wait for a person leave then, to be asked about again by the next process.
    pub async fn run(
        self: Arc<Self>,
        calls: Arc<Calls>,
        troubles: Troubles,
        draining: CancellationToken,
        stop: CancellationToken,
    ) {
        let mut senders = JoinSet::new();
        let mut settings = self.settings.subscribe();
        let mut watcher = Watcher::new(Instant::now());
        loop {
            let current = Arc::clone(&settings.borrow_and_update());
            self.reconcile(&current, &calls, &mut senders, &stop).await;
            tokio::select! {
                () = stop.cancelled() => break,
                () = self.watch(&current, &calls, &troubles, &mut watcher, &draining) => {}
                changed = settings.changed() => if changed.is_err() { break },
                Some(ended) = senders.join_next() => {
                    if let Err(error) = ended && error.is_panic() {
                        resume_unwind(error.into_panic());
                    }
                }
            }
        }
        while senders.join_next().await.is_some() {}
    }

    /// Makes the receivers what bridge.yaml says.
    async fn reconcile(
        &self,
        settings: &Settings,
        calls: &Arc<Calls>,
        senders: &mut JoinSet<()>,
        stop: &CancellationToken,
    ) {
        let names: BTreeSet<&str> =
            settings.receivers.iter().map(|receiver| receiver.name.as_str()).collect();
        let removed: Vec<Arc<Receiver>> = {
            let mut receivers = self.receivers.lock();
            let gone = receivers.extract_if(.., |name, _| !names.contains(name.as_str()));
            gone.map(|(_, receiver)| receiver).collect()
        };
        for receiver in removed {
            receiver.removed.cancel();
            let lost = receiver.outbox.lock().waiting();
            if lost > 0 {
                let receiver = &receiver.name;
                warn!(receiver, lost, "a receiver was removed; its notices are not delivered");
            }
            let file = file(&receiver.name);
            let removal = self.place.state.in_background(move |state| state.remove_kept(&file));
            if let Err(error) = removal.await {
                warn!(receiver = receiver.name, error, "the notices of a removed receiver stay");
            }
        }
        for receiver in &settings.receivers {
            let name = receiver.name.as_str();
            let known = self.receivers.lock().get(name).cloned();
            let secrets = Arc::clone(&settings.secrets);
            if let Some(known) = known {
                known.renew(&self.place, receiver, secrets);
                continue;
            }
            let outbox = self.place.load(name).await;
            let new = Arc::new(Receiver::new(&self.place, receiver, secrets, outbox));
            self.receivers.lock().insert(name.to_owned(), Arc::clone(&new));
            let (calls, place) = (Arc::clone(calls), self.place.clone());
            let stop = stop.clone();
            senders.spawn(async move { sender::run(&new, &place, &calls, &stop).await });
        }
    }

    /// Gives the receivers what there is, whenever it may have changed.
    async fn watch(
        &self,
        settings: &Settings,
        calls: &Calls,
        troubles: &Troubles,
        watcher: &mut Watcher,
        draining: &CancellationToken,
    ) {
        if settings.receivers.is_empty() || draining.is_cancelled() {
            return std::future::pending().await;
        }
        let mut changes = calls.changes.subscribe();
        let mut catalogs = calls.backends.registry.version();
        loop {
            self.look(settings, calls, troubles, watcher);
            let news = async {
                loop {
                    tokio::select! {
                        change = changes.recv() => match change {
                            Ok(announced) if !matches!(announced.change, Change::Approval(..)) => {}
                            // One that was missed may have been of an approval.
                            _ => return,
                        },
                        _ = catalogs.changed() => return,
                    }
                }
            };
            tokio::select! {
                () = draining.cancelled() => return std::future::pending().await,
                _ = timeout(LOOK, news) => {}
            }
            sleep(GATHER).await;
            if draining.is_cancelled() {
                return std::future::pending().await;
            }
        }
    }

    fn look(&self, settings: &Settings, calls: &Calls, troubles: &Troubles, watcher: &mut Watcher) {
        let wants =
            |topic: Topic| settings.receivers.iter().any(|receiver| receiver.on.contains(&topic));
        let with: BTreeSet<Detail> =
            settings.receivers.iter().flat_map(|receiver| receiver.with.iter().copied()).collect();
        let mut present = Present::default();
        if wants(Topic::Approval) || wants(Topic::Question) {
            present.approvals = calls.approvals.of(None);
        }
        if wants(Topic::Trust) {
            let snapshots = calls.backends.registry.snapshots().into_iter();
            present.reviews =
                snapshots.map(|(name, snapshot)| (name.to_string(), snapshot.review)).collect();
        }
        if wants(Topic::Problem) {
            // With hundreds of backends, it takes milliseconds.
            present.troubles = in_place_if_large(LARGE, troubles);
        }
        let wall = clock::now();
        let view = watcher.view(present, &with, Instant::now(), wall);
        let receivers: Vec<Arc<Receiver>> = self.receivers.lock().values().cloned().collect();
        for receiver in receivers {
            let contact = receiver.contact();
            receiver.take(&view.for_receiver(&contact.receiver), wall);
        }
    }
}

impl Place {
    /// What an earlier process has left for the receiver `name`.
    async fn load(&self, name: &str) -> Outbox {
        let path = file(name);
        let read = self.state.in_background(move |state| state.read_kept(&path)).await;
        let stored = match read {
            Ok(None) => return Outbox::new(self.is_shared),
            Ok(Some(text)) => Stored::read(&text),
            Err(error) => Err(error),
        };
        match stored {
            Ok(stored) => Outbox::restored(self.is_shared, stored),
            Err(error) => {
                let cost = "notices of an earlier process may come again, or not at all";
                warn!(receiver = name, error, "the kept notices cannot be read; {cost}");
                Outbox::new(self.is_shared)
            }
        }
    }
}

impl Contact {
    fn new(place: &Place, receiver: &NoticeReceiver, secrets: Arc<Secrets>) -> Arc<Self> {
        let usual = place.client.clone();
        let client = match &receiver.way {
            NoticeWay::Webhook(webhook) => webhook::client(webhook, usual),
            NoticeWay::Command(_) | NoticeWay::Unresolved(_) => usual,
        };
        Arc::new(Self { receiver: receiver.clone(), client, secrets })
    }
}

impl Receiver {
    fn new(
        place: &Place,
        receiver: &NoticeReceiver,
        secrets: Arc<Secrets>,
        outbox: Outbox,
    ) -> Self {
        let state = State { flaw: flaw(receiver), ..State::default() };
        Self {
            name: receiver.name.to_string(),
            contact: Mutex::new(Contact::new(place, receiver, secrets)),
            outbox: Mutex::new(outbox),
            state: Mutex::new(state),
            sent: Counter::default(),
            failed: Counter::default(),
            dropped: Counter::default(),
            wake: Signal::new(),
            renewed: Signal::new(),
            delivering: tokio::sync::Mutex::default(),
            removed: CancellationToken::new(),
        }
    }

    /// Takes another entry over. If what it refers to is missing, the earlier way stays in use: a
    /// secret's file may be replaced just now.
    fn renew(&self, place: &Place, receiver: &NoticeReceiver, secrets: Arc<Secrets>) {
        self.state.lock().flaw = flaw(receiver);
        let before = self.contact();
        let mut receiver = receiver.clone();
        if matches!(receiver.way, NoticeWay::Unresolved(_)) {
            receiver.way = before.receiver.way.clone();
        }
        if receiver == before.receiver {
            return;
        }
        *self.contact.lock() = Contact::new(place, &receiver, secrets);
        info!(receiver = self.name, "the receiver of notices is reached as bridge.yaml says now");
        self.renewed.notify_one();
        self.wake.notify_one();
    }

    fn contact(&self) -> Arc<Contact> {
        Arc::clone(&self.contact.lock())
    }

    /// Takes over what there is.
    fn take(&self, view: &outbox::View, wall: SystemTime) {
        let dropped = self.outbox.lock().update(view, wall);
        if dropped > 0 {
            let before = self.dropped.inc_by(dropped);
            // The first, and then each time that the number has doubled.
            if before == 0 || before.ilog2() != (before + dropped).ilog2() {
                let (receiver, dropped) = (&self.name, before + dropped);
                warn!(receiver, dropped, "too many notices wait; some are not delivered");
            }
        }
        self.wake.notify_one();
    }

    /// One attempt, and what it says of the receiver.
    async fn deliver(
        &self,
        place: &Place,
        notice: &Notice,
        stop: &CancellationToken,
    ) -> Result<(), Failure> {
        let contact = self.contact();
        let outcome = match &contact.receiver.way {
            NoticeWay::Webhook(webhook) => {
                webhook::post(&contact.client, webhook, &contact.secrets, notice, &place.page).await
            }
            NoticeWay::Command(program) => {
                let launcher = place.launcher.clone();
                let name = &contact.receiver.name;
                command::run(name, program, launcher, notice, &place.page, stop).await
            }
            NoticeWay::Unresolved(unresolved) => {
                Err(Failure::new(Attempt::NotDelivered, unresolved.why.clone()))
            }
        };
        self.note(&outcome);
        outcome
    }

    fn note(&self, outcome: &Result<(), Failure>) {
        let mut state = self.state.lock();
        let receiver = &self.name;
        match outcome {
            Ok(()) => {
                self.sent.inc();
                state.last_sent = Some(clock::now());
                if state.error.take().is_some() {
                    info!(receiver, "the receiver takes notices again");
                }
            }
            Err(Failure { why, .. }) => {
                self.failed.inc();
                if state.error.is_none() {
                    warn!(receiver, why, "a notice was not delivered; it is sent again");
                }
                state.error = Some(why.clone());
            }
        }
    }

    fn health(&self) -> Health {
        let contact = self.contact();
        let state = self.state.lock().clone();
        Health {
            name: self.name.clone(),
            way: contact.receiver.way.describe(),
            on: contact.receiver.on.iter().map(|topic| topic.as_str()).collect(),
            error: state.error,
            flaw: state.flaw,
            waiting: self.outbox.lock().waiting(),
            last_sent: state.last_sent,
            sent: self.sent.get(),
            failed: self.failed.get(),
            dropped: self.dropped.get(),
        }
    }
}

/// Why the way of an entry cannot be used.
fn flaw(receiver: &NoticeReceiver) -> Option<Flaw> {
    match &receiver.way {
        NoticeWay::Unresolved(unresolved) => {
            Some(Flaw { why: unresolved.why.clone(), cure: unresolved.cure.clone() })
        }
        NoticeWay::Webhook(_) | NoticeWay::Command(_) => None,
    }
}

/// The outbox of a receiver on disk.
fn file(name: &str) -> PathBuf {
    Path::new(DIRECTORY).join(format!("{name}.json"))
}
