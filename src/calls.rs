//! Makes calls: for runs, by hand, for MCP clients and other runtimes, and after a restart.
//!
//! The way of a call, from the top down: `activate` prepares it, `call` (long.rs) waits for its
//! answer or gives a first one, `execute` checks it, has it approved and waits for a permit, `send`
//! hands it to its backend. `record` writes each of its stages to the journal before the next one
//! is taken, and `observer` tells people of it.
//!
//! docs/design/calls.md says what it is not, and how it came about.
//!
//! Must not: post an answer, or know more of a run than its [`RunScope`].

mod active;
pub mod approvals;
pub mod changes;
mod execute;
pub mod history;
pub mod long;
mod observer;
pub mod once;
mod permission_check;
mod questions;
pub mod record;
mod send;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::warn;

pub use self::active::{ActiveCall, CallerView, Deferred, RunScope};
use self::approvals::{Approvals, Decision, TooMany};
use self::changes::Changes;
use self::history::History;
use self::long::{LongCalls, Patience};
use self::once::{RequestStart, Requests};
use self::record::{CallRecorder, Keeping};
use crate::audit::Audit;
use crate::backend::calls::{BackendChanges, Backends};
use crate::backend::registry::Registry;
use crate::backend::seat::{InSeat, Seat};
use crate::backend::{A2aClient, CallOutcome, McpClient};
use crate::budget;
use crate::config::App;
use crate::journal::{Journal, room};
use crate::limits::queue::{AdmissionQueue, Permit, Rejected};
use crate::limits::shares::Shares;
use crate::limits::slots::Slots;
use crate::model::catalog_search::resolved;
use crate::model::rights::{CallRefusal, permission};
use crate::model::sentences;
use crate::model::{
    AppName, BackendName, Call, CallRequest, CallingRun, Ending, Offer, Permission, Route, globs,
};
use crate::settings::Settings;
use crate::traces::Context;

/// How many streams of agents may be read that no client reads. Each takes a connection.
const MAX_UNREAD_STREAMS: usize = 256;

/// Makes calls, for runs and by hand, and keeps their history.
#[derive(Debug)]
pub struct Calls {
    pub backends: Arc<Backends>,
    /// The calls that run, and recent ones that have ended.
    pub history: Arc<History>,
    /// The open approvals and recent ones that have ended.
    pub approvals: Approvals,
    pub audit: Option<Arc<Audit>>,
    /// Tells of each reload.
    pub settings: watch::Receiver<Arc<Settings>>,
    pub long: Arc<LongCalls>,
    /// The requests with an `Idempotency-Key`.
    requests: parking_lot::Mutex<Requests>,
    pub journal: Arc<Journal>,
    /// The feed of changes of runs, calls and approvals.
    pub changes: Changes,
    /// How many bytes of the journal the open calls of each app take.
    shares: Shares,
    /// Who keeps whose the conversations with agents are.
    pub conversation_owners: OnceLock<Weak<dyn ConversationOwners>>,
    /// The streams of agents that are read on although their clients have hung up.
    pub unread_streams: Slots,
    pub tracker: TaskTracker,
    /// Cancelled at shutdown: no new calls are accepted, and those in flight are finished.
    pub drain: CancellationToken,
    /// Cancelled when the time for the calls by hand is over: they are answered, while their
    /// clients are still connected.
    pub cut: CancellationToken,
    /// Cancelled later in the shutdown: the bridge stops waiting for calls whose work a peer has
    /// named.
    pub leave: CancellationToken,
}

/// Keeps whose the conversations with agents are. To an agent, all apps are one client: without an
/// owner, an app that knows the id of another's conversation could read it through the front.
pub trait ConversationOwners: fmt::Debug + Send + Sync {
    /// Notes that `agent` has named the conversation `context` to a call of `app`. The first owner
    /// keeps it.
    fn own(&self, agent: &BackendName, context: &str, app: &AppName);
}

/// Tells of reloads. A reload replaces apps and backends one after the other, and each may take a
/// right away.
#[derive(Debug)]
pub struct Reloads {
    settings: watch::Receiver<Arc<Settings>>,
    backends: BackendChanges,
}

impl Reloads {
    /// Ends with the next change; never, once the daemon has dropped what it tells of.
    pub async fn next(&mut self) {
        let changed = tokio::select! {
            changed = self.settings.changed() => changed.is_ok(),
            changed = self.backends.next() => changed,
        };
        if !changed {
            std::future::pending::<()>().await;
        }
    }
}

/// What wants a call that no driven run has asked for.
#[derive(Debug, Default)]
pub struct CalledBy {
    /// The run of another runtime.
    pub run: Option<CallingRun>,
    pub client: Option<Arc<McpClient>>,
    pub view: CallerView,
    /// An A2A client, whose message the call is.
    pub a2a_client: Option<Arc<A2aClient>>,
    /// The requests that the call is of: those that are answered once for all with the same key.
    pub requests: Vec<Arc<RequestStart>>,
}

impl Calls {
    /// Calls of the apps, and within the limits, of `settings`.
    pub fn new(
        backends: Arc<Backends>,
        settings: watch::Receiver<Arc<Settings>>,
        journal: Arc<Journal>,
        audit: Option<Arc<Audit>>,
    ) -> Self {
        let changes = Changes::default();
        Self {
            backends,
            history: Arc::new(History::telling(changes.clone())),
            approvals: Approvals::telling(changes.clone()),
            audit,
            long: Arc::new(LongCalls::kept_in(Arc::clone(&journal))),
            journal,
            requests: <_>::default(),
            changes,
            // One half is divided equally among the apps; any app may use the other half.
            shares: Shares::new(
                Settings::app_count(&settings),
                room::OPEN_CALLS / 2,
                room::OPEN_CALLS / 2,
            ),
            conversation_owners: OnceLock::new(),
            unread_streams: Slots::new(MAX_UNREAD_STREAMS),
            settings,
            tracker: TaskTracker::new(),
            drain: CancellationToken::new(),
            cut: CancellationToken::new(),
            leave: CancellationToken::new(),
        }
    }

    /// The app of this name as it is configured now.
    pub fn app(&self, name: &AppName) -> Option<Arc<App>> {
        self.settings().app(name).map(|known| Arc::clone(&known.app))
    }

    /// `app` as it is configured now, if the token, certificate or user that authenticated it still
    /// does.
    pub fn still(&self, app: &App) -> Option<Arc<App>> {
        self.app(&app.name).filter(|now| now.is_known_like(app))
    }

    pub fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.borrow())
    }

    /// Logs globs that match no tool, as soon as the tools of a backend are known, and when they
    /// change. Never ends.
    pub async fn report_idle_globs(self: Arc<Self>) {
        let mut reported: BTreeMap<BackendName, String> = BTreeMap::new();
        loop {
            let news = self.backends.registry.wait_for(|registry| {
                let mut idle = self.idle_globs(registry);
                idle.retain(|(backend, globs)| reported.get(backend) != Some(globs));
                if idle.is_empty() { None } else { Some(idle) }
            });
            for (backend, idle) in news.await {
                warn!(%backend, idle, "globs of bridge.yaml have no effect");
                reported.insert(backend, idle);
            }
        }
    }

    /// The globs that match no tool of a backend, for each backend that has such globs.
    fn idle_globs(&self, registry: &Registry) -> Vec<(BackendName, String)> {
        let settings = self.settings();
        let mut idle = Vec::new();
        for (name, handle) in self.backends.handles().iter() {
            let Some(catalog) =
                registry.snapshot(name.as_str()).and_then(|backend| backend.catalog)
            else {
                continue;
            };
            let rights = settings.apps.iter().map(|app| &*app.app.rights);
            if let Some(globs) = globs::idle(name, &catalog, handle.rules.rules(), rights) {
                idle.push((name.clone(), globs));
            }
        }
        idle
    }

    /// What the recorder of a call of `app` needs.
    pub fn keeping(&self, app: &AppName) -> Keeping {
        Keeping {
            journal: Arc::clone(&self.journal),
            leaving: self.leave.clone(),
            share: self.shares.share(app),
            conversation_owners: self.conversation_owners.get().cloned(),
        }
    }

    /// Makes a call for `app` without a run that the bridge drives. A call that takes long is
    /// answered with an id before it has ended, and continues. Dropping the future before that
    /// cancels the call.
    ///
    /// The journal has no record of such a call before it becomes a long call: after a crash, its
    /// client is gone, and no other caller could ask for the answer. At shutdown, `cut` answers the
    /// call while its client is still connected. Without that, the client would see its connection
    /// break, and could not tell whether the tool has run.
    pub async fn call_by_hand(
        self: &Arc<Self>,
        app: &AppName,
        route: &Route,
        call: Call,
        trace: &Context,
        by: CalledBy,
    ) -> CallOutcome {
        let offer = self.offer_in_view(app, &by.view);
        let (call, route) = resolved(call, route.clone(), |name| offer.searched_route(name));
        let request = Arc::new(CallRequest::new(app.clone(), by.run, call, route));
        // A client of A2A is told of the agent's task, and has no use for a first answer.
        let is_message = by.a2a_client.is_some();
        let patience = if is_message { None } else { self.patience(&request.route, None) };
        let mut keeping = self.keeping(app);
        if patience.is_none() {
            // The next process could not ask for the result, so this one waits for the call.
            keeping.leaving = CancellationToken::new();
        }
        let recorder = Arc::new(CallRecorder::by_hand(keeping, &request, by.requests));
        let settings = self.settings();
        let within = if is_message {
            settings.limits.pending_timeout
        } else {
            settings.within(patience.as_ref())
        };
        let mut active_call = self.activate(request, trace, recorder, within);
        active_call.client = by.client;
        active_call.view = by.view;
        active_call.a2a_client = by.a2a_client;
        let active = Arc::new(active_call);
        let outcome = tokio::select! {
            // First, so that no call begins that only waited for one of those that are dropped
            // here.
            biased;
            // Dropping the call cancels it at its peer.
            () = self.cut.cancelled() => {
                active.end(&Err(Deferred));
                Err(Deferred)
            }
            outcome = self.call(Arc::clone(&active), patience) => outcome,
        };
        outcome.unwrap_or_else(|Deferred| active.going_down())
    }

    /// Runs `work`, which is for calls of `app`, in a task of the daemon, which continues when the
    /// client hangs up.
    ///
    /// Work with effects must not live in the future of a request: the HTTP server drops that
    /// future with its connection, between any two steps. The drain waits for these tasks, and the
    /// bytes that they hold count as the app's.
    pub fn spawn(&self, app: &AppName, work: impl Future<Output = ()> + Send + 'static) {
        self.tracker.spawn(budget::for_app(app.clone(), work));
    }

    /// The tools that `app` may use now: by its present rights, as a reload may have changed them
    /// since its request was let in. None for an app that was removed. The operator is no app, and
    /// sees all.
    pub fn offer_for(&self, app: &App) -> Arc<Offer> {
        if app.is_operator() {
            return self.backends.registry.offer().seen_by(&app.rights);
        }
        self.offer(&app.name)
    }

    /// The tools that the app of this name may use now.
    pub fn offer(&self, app: &AppName) -> Arc<Offer> {
        match self.app(app) {
            Some(app) => self.backends.registry.offer().seen_by(&app.rights),
            None => Arc::default(),
        }
    }

    /// The tools that a caller of this app sees: those within its view, if the app still exists.
    fn offer_in_view(&self, app: &AppName, view: &CallerView) -> Arc<Offer> {
        match (&view.rights, self.app(app)) {
            (Some(rights), Some(_)) => self.backends.registry.offer().seen_by(rights),
            (None | Some(_), _) => self.offer(app),
        }
    }

    /// Tells of each change of the configuration that decides about calls.
    pub fn reloads(&self) -> Reloads {
        Reloads { settings: self.settings.clone(), backends: self.backends.changes() }
    }

    /// Whether `app` may ask the agent that `route` leads to about its tasks, by the configuration
    /// of now. That needs no approval: the message that began the task had it.
    ///
    /// # Errors
    ///
    /// The refusal.
    pub fn may_ask(&self, app: &App, route: &Route) -> Result<(), CallRefusal> {
        let app = self.still(app).ok_or(CallRefusal::App)?;
        let backend = self.backends.rules(&route.backend);
        let rules = backend.as_ref().map(|backend| backend.rules());
        match permission(Some(&app.rights), rules, route, "{}", true).0 {
            Permission::Refused(refusal) => Err(refusal),
            Permission::Given | Permission::Ask => Ok(()),
        }
    }

    /// Waits until `app` may send a request to a server that is no call, such as the read of a
    /// resource: it counts as a call does while the returned value is held.
    ///
    /// # Errors
    ///
    /// The app has as many under way as it may, and none ended in time; the text says so.
    pub async fn permit(&self, app: &AppName) -> Result<Option<Permit>, String> {
        Ok(self.settings().permit(app).await?.map(|(_, permit)| permit))
    }

    /// Asks a person about something that the bridge does not do itself. Dropping the future
    /// withdraws the question.
    ///
    /// # Errors
    ///
    /// Too many questions of the app wait, or the daemon stops; the text says so.
    pub async fn confirm(&self, asked: &CallRequest) -> Result<Decision, &'static str> {
        let until = Instant::now() + self.settings().limits.pending_timeout;
        let question = self
            .approvals
            .ask(asked, None, until)
            .map_err(|TooMany| "too many questions of the app wait")?;
        let decision = self.drain.run_until_cancelled(question.decided()).await;
        decision.ok_or("the bridge stops")
    }
}

impl Settings {
    /// How long a call may take. A call with `patience` may continue after a first answer and has
    /// longer.
    pub fn within(&self, patience: Option<&Patience>) -> Duration {
        patience.map_or(self.limits.timeout, |_| self.limits.pending_timeout)
    }

    /// Waits for a permit of the app of `call`, if the app has a limit. The permit goes to the
    /// call's seat, which gives it back while a question of the call's server is open: without
    /// that, a few open questions would keep all other calls of the app from being made.
    pub(super) async fn admit(
        &self,
        call: &CallRequest,
        seat: &Arc<Seat>,
    ) -> Result<Option<InSeat>, CallOutcome> {
        match self.permit(&call.app).await {
            Ok(Some((queue, permit))) => Ok(Some(seat.put(queue, &call.app, permit))),
            Ok(None) => Ok(None),
            Err(why) => Err(CallOutcome::failed(Ending::Busy, why)),
        }
    }

    /// A permit of `app` and the queue that it is of, if the app has a limit.
    ///
    /// # Errors
    ///
    /// None was free in time; the text says so.
    async fn permit(&self, app: &AppName) -> Result<Option<(&AdmissionQueue, Permit)>, String> {
        let queue = self.app(app).and_then(|app| app.queue.as_ref());
        let Some(queue) = queue else { return Ok(None) };
        let patience = self.limits.timeout / 4;
        match queue.acquire(app, Instant::now() + patience).await {
            Ok(permit) => Ok(Some((queue, permit))),
            Err(Rejected::QueueFull) => Err(sentences::app_queue_full()),
            Err(Rejected::Late) => {
                let seconds = format!("{:.0}", patience.as_secs_f64());
                Err(sentences::app_no_turn(seconds))
            }
        }
    }
}
