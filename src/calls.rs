//! Makes one call: validates it, asks a person where approval is needed, waits for a permit of its
//! app, and hands it to its backend, which has its dispatch recorded first.
//!
//! Must not: post an answer, or know how far the journal is.

pub mod approvals;
pub mod changes;
pub mod history;
pub mod long;
mod observer;
pub mod once;
mod permission_check;
mod questions;
pub mod record;
mod shares;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use std::{future, thread};

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, info, warn};

use self::approvals::{Approvals, Decision, TooMany};
use self::changes::Changes;
use self::history::History;
use self::long::{LongCalls, Patience};
use self::observer::CallObserver;
use self::once::Requests;
use self::permission_check::PermissionCheck;
use self::record::{CallRecorder, Keeping};
use self::shares::Shares;
use crate::audit::Audit;
use crate::backend::calls::{Backends, CallContext};
use crate::backend::peer::PermissionCheck as _;
use crate::backend::queue::{AdmissionQueue, Permit, Rejected};
use crate::backend::seat::{InSeat, Seat};
use crate::backend::{McpClient, Question};
use crate::budget;
use crate::config::App;
use crate::journal::Journal;
use crate::limits::counted::Counted;
use crate::model::approval::Outcome;
use crate::model::catalog_search::{resolved, unresolved};
use crate::model::rights::CallRefusal;
use crate::model::sentences::sentence;
use crate::model::{
    Answer, AppName, Call, CallRequest, CallingRun, Ending, Made, Offer, Own, Permission, Route,
    RunKey, Table, Target, approval, catalog_search, globs,
};
use crate::settings::Settings;
use crate::tasks::in_background;
use crate::traces::Context;

/// How many questions of a call's server wait for their turn.
const QUESTIONS: usize = 16;

/// The bridge shuts down before the call was made. The next process makes the call, or asks a
/// person again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Left;

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
    pub tracker: TaskTracker,
    /// Cancelled at shutdown: no new calls are accepted, and those in flight are finished.
    pub drain: CancellationToken,
    /// Cancelled when the time for the calls by hand is over: they are answered, while their clients
    /// are still connected.
    pub cut: CancellationToken,
    /// Cancelled later in the shutdown: the bridge stops waiting for calls whose work a peer has
    /// named.
    pub leave: CancellationToken,
}

/// What wants a call that no driven run has asked for.
#[derive(Debug, Default)]
pub struct CalledBy {
    /// The run of another runtime.
    pub run: Option<CallingRun>,
    pub client: Option<Arc<McpClient>>,
}

/// What a call knows of the driven run that waits for it.
///
/// Calls are made by hand, for MCP clients and for other runtimes, too: this is all that the run of a
/// call may decide about it.
#[derive(Debug)]
pub struct RunScope {
    /// The driven run: of a call in an eval, the eval.
    pub key: RunKey,
    /// The tools that the run was given.
    pub table: Arc<Table>,
    /// Cancels the call, with its run.
    pub stop: CancellationToken,
    /// Counts the call as one of its run's, until it has ended.
    pub _in_flight: Counted,
}

/// A call under way.
#[derive(Debug)]
pub struct ActiveCall {
    pub context: CallContext,
    pub recorder: Arc<CallRecorder>,
    observer: CallObserver,
    permission_check: Arc<PermissionCheck>,
    /// What the call's server asks a person.
    pub questions: tokio::sync::Mutex<mpsc::Receiver<Question>>,
    /// The run that waits for the call. `None` for a call by hand, and for one whose first answer
    /// an earlier process has posted.
    pub scope: Option<RunScope>,
}

impl ActiveCall {
    pub fn request(&self) -> &CallRequest {
        &self.context.request
    }

    /// The name that the model called.
    pub fn tool(&self) -> &str {
        &self.request().name
    }

    /// The answer of a call by hand that has not ended when the bridge shuts down.
    fn going_down(&self) -> Made {
        let tool = self.tool();
        let (ending, why) = match self.recorder.has_reached_tool() {
            true => (Ending::Cancelled, sentence("cut_by_shutdown", &[("tool", &tool)])),
            false => (Ending::Unavailable, sentence("going_down", &[("tool", &tool)])),
        };
        Made::failed(ending, why)
    }

    /// Ends the call for its observers and returns its result. A panic becomes an answer as well:
    /// without one, MANTYX would wait until the call times out, and the model would not learn
    /// whether the tool was reached.
    pub fn ends(&self, made: thread::Result<Result<Made, Left>>) -> Result<Made, Left> {
        let made = made.unwrap_or_else(|_panic| {
            let app = &self.request().app;
            let tool = self.tool();
            error!(%app, tool, "a call panicked; answering it with an error");
            Ok(Made::internal(tool, self.recorder.has_reached_tool()))
        });
        if let Ok(Made { answer, .. }) = &made {
            self.observer.running.answered(answer.parts().0);
        }
        self.observer.ends(match &made {
            Ok(made) => made.ending,
            Err(Left) if self.recorder.is_kept() => Ending::Left,
            Err(Left) => Ending::Cancelled,
        });
        made
    }
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
            shares: Shares::new(settings.clone()),
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
        let mut told = BTreeMap::new();
        loop {
            let news = self.backends.registry.wait_for(|registry| {
                let (handles, settings) = (self.backends.handles(), self.settings());
                let rights = || settings.apps.iter().map(|it| &*it.app.rights);
                let idle = handles.iter().filter_map(|(name, handle)| {
                    let catalog = registry.snapshot(name.as_str())?.catalog?;
                    let idle = globs::idle(name, &catalog, handle.rules.rules(), rights())?;
                    (told.get(name) != Some(&idle)).then(|| (name.clone(), idle))
                });
                Some(idle.collect::<Vec<_>>()).filter(|idle| !idle.is_empty())
            });
            for (backend, idle) in news.await {
                warn!(%backend, idle, "globs of bridge.yaml have no effect");
                told.insert(backend, idle);
            }
        }
    }

    /// What the recorder of a call of `app` needs.
    pub fn keeping(&self, app: &AppName) -> Keeping {
        Keeping {
            journal: Arc::clone(&self.journal),
            leaving: self.leave.clone(),
            share: self.shares.of(app),
        }
    }

    /// Makes a call for `app` without a run that the bridge drives. A call that takes long is answered with an id before it has ended, and continues. Dropping
    /// the future before that cancels the call.
    pub async fn call_by_hand(
        self: &Arc<Self>,
        app: &AppName,
        route: &Route,
        call: Call,
        trace: &Context,
        by: CalledBy,
    ) -> Made {
        let offer = self.offer(app);
        let (call, route) = resolved(call, route.clone(), |name| offer.searched_route(name));
        let route = &route;
        let request = Arc::new(CallRequest::new(app.clone(), by.run, call, route.clone()));
        let patience = self.patience(route, None);
        let mut keeping = self.keeping(app);
        if patience.is_none() {
            // The next process could not ask for the result, so this one waits for the call.
            keeping.leaving = CancellationToken::new();
        }
        let recorder = Arc::new(CallRecorder::by_hand(keeping, &request));
        let within = self.settings().within(patience.as_ref());
        let mut active = self.activate(request, trace, recorder, within);
        active.context.client = by.client;
        let active = Arc::new(active);
        let made = tokio::select! {
            // First, so that no call begins that only waited for one of those that are dropped here.
            biased;
            // Dropping the call cancels it at its peer.
            () = self.cut.cancelled() => active.ends(Ok(Err(Left))),
            made = self.call(Arc::clone(&active), patience) => made,
        };
        made.unwrap_or_else(|Left| active.going_down())
    }

    /// Runs `work`, which is for calls of `app`, in a task of the daemon: it goes on when the client
    /// hangs up.
    pub fn spawn(&self, app: &AppName, work: impl Future<Output = ()> + Send + 'static) {
        self.tracker.spawn(budget::for_app(app.clone(), work));
    }

    /// Prepares the call of `request`. Its time `within` counts from when the recorder was created,
    /// in this process or an earlier one. If the recorder knows work that a peer has named, the
    /// peer is asked for that work.
    pub fn activate(
        &self,
        request: Arc<CallRequest>,
        trace: &Context,
        recorder: Arc<CallRecorder>,
        within: Duration,
    ) -> ActiveCall {
        let observer = self.observe(&request, trace);
        // A call is activated only once.
        recorder.shown.set(observer.running.id()).ok();
        let permission_check = self.permission_check(&request.app);
        let handle = recorder.handle();
        if handle.is_some() {
            // The peer is asked for work that the call began in an earlier process.
            observer.note("bridge.resumed");
            // An earlier process has made the call, so what had to be approved was.
            permission_check.approve();
        }
        // A person is asked one question at a time.
        let (person, questions) = mpsc::channel(QUESTIONS);
        let context = CallContext {
            request,
            trace: observer.trace.clone(),
            permission_check: Arc::clone(&permission_check) as _,
            handle,
            peer: recorder.peer(),
            deadline: Instant::now() + recorder.left_of(within),
            client: None,
            person: Some(person),
            seat: Arc::default(),
            recorder: Arc::clone(&recorder) as _,
        };
        let questions = tokio::sync::Mutex::new(questions);
        ActiveCall { context, recorder, observer, permission_check, questions, scope: None }
    }

    /// Makes a call from its checks to its end: validates it, has it approved, and admits it. Then
    /// its backend admits it, records its dispatch, and calls the peer.
    ///
    /// The permission is checked here first, so that no person is asked about a call that cannot be
    /// made. The backend checks it again just before the dispatch, as a reload may have changed it
    /// while the call waited for a person and a permit.
    pub async fn execute(&self, call: &ActiveCall) -> Result<Made, Left> {
        let request = &call.context.request;
        let route = &request.route;
        if let Target::Own(own) = route.target {
            if let Permission::Refused(refusal) = call.permission_check.now(request) {
                return Ok(refused(request, &refusal));
            }
            return Ok(Made::from(match own {
                // The work was permitted when it began, and only the scope that began it can fetch
                // its result.
                Own::Results => self.result_of(call).await.unwrap_or_else(Answer::Error),
                Own::Find => self.find(call).await,
                Own::Call => Answer::Error(unresolved(request.arguments.get())),
            }));
        }
        // Work that was started before has been permitted and approved.
        if call.context.handle.is_some() {
            return self.make(call).await;
        }
        loop {
            call.permission_check.prepare(request).await;
            let permission = call.permission_check.now(request);
            if let Permission::Refused(refusal) = permission {
                return Ok(refused(request, &refusal));
            }
            // Reject invalid arguments before asking a person, who could not correct them.
            if let Some(invalid) = self.backends.refuse_invalid(request).await {
                return Ok(invalid);
            }
            if permission == Permission::Ask {
                let shown = call.permission_check.definition(request);
                if let Some(not_approved) = self.ask(call).await? {
                    return Ok(not_approved);
                }
                call.permission_check.approve_as(shown);
            }
            let settings = self.settings();
            let _in_seat = match settings.admit(request, &call.context.seat).await {
                Ok(in_seat) => in_seat,
                Err(busy) => return Ok(busy),
            };
            let made = self.make(call).await?;
            // Ask again only if a reload made `approve` cover the call while it waited for a permit,
            // or if its tool has another definition now than the person was shown.
            if made.ending != Ending::NotApproved {
                return Ok(made);
            }
        }
    }

    /// The tools that `app` may use now.
    pub fn offer(&self, app: &AppName) -> Arc<Offer> {
        let rights = self.app(app).map(|app| Arc::clone(&app.rights));
        let seen = rights.map(|rights| self.backends.registry.offer().seen_by(&rights));
        seen.unwrap_or_default()
    }

    /// The answer to a search for tools. A run's is limited to the tools that it can call.
    async fn find(&self, call: &ActiveCall) -> Answer {
        let offer = self.offer(&call.request().app);
        let table = call.scope.as_ref().map(|scope| Arc::clone(&scope.table));
        let request = Arc::clone(&call.context.request);
        let found = in_background(move || {
            catalog_search::find(request.arguments.get(), &offer, table.as_deref())
        });
        let found = found.await.unwrap_or_else(|_panic| Err("The search has failed.".to_owned()));
        found.map_or_else(Answer::Error, Answer::text)
    }

    /// Waits until `app` may send a request to a server that is no call, such as the read of a resource:
    /// it counts as a call does while the returned value is held.
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
        let question = self.approvals.ask(asked, None, until);
        let question = question.map_err(|TooMany| "too many questions of the app wait")?;
        let decided = self.drain.run_until_cancelled(question.decided()).await;
        decided.ok_or("the bridge stops")
    }

    /// Asks a person. Returns the answer that replaces the call, or `None` if the call was
    /// approved. The call holds no permit meanwhile, so that other calls are not delayed.
    async fn ask(&self, call: &ActiveCall) -> Result<Option<Made>, Left> {
        let not_made = |why: String| Ok(Some(Made::failed(Ending::NotApproved, why)));
        let tool = call.tool();
        let Ok(Decision { outcome, reason, .. }) =
            self.decided(call, None, future::pending()).await
        else {
            return not_made(sentence("too_many_waiting", &[("tool", &tool)]));
        };
        match outcome {
            Outcome::Approved | Outcome::Answered => Ok(None),
            Outcome::Denied => not_made(approval::denied(tool, reason.as_deref())),
            Outcome::Expired => not_made(sentence("expired", &[("tool", &tool)])),
            Outcome::Withdrawn => Err(Left),
        }
    }
}

impl Settings {
    /// How long a call may take. A call with `patience` may continue after a first answer and has
    /// longer.
    pub fn within(&self, patience: Option<&Patience>) -> Duration {
        patience.map_or(self.limits.timeout, |_| self.limits.pending_timeout)
    }

    /// Waits for a permit of the app of `call`, if the app has a limit.
    async fn admit(&self, call: &CallRequest, seat: &Arc<Seat>) -> Result<Option<InSeat>, Made> {
        let place = self.permit(&call.app).await;
        let place = place.map_err(|why| Made::failed(Ending::Busy, why))?;
        Ok(place.map(|(queue, permit)| seat.put(queue, &call.app, permit)))
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
            Err(Rejected::QueueFull) => Err(sentence("app_queue_full", &[])),
            Err(Rejected::Late) => {
                let seconds = format!("{:.0}", patience.as_secs_f64());
                Err(sentence("app_no_turn", &[("seconds", &seconds)]))
            }
        }
    }
}

fn refused(call: &CallRequest, refusal: &CallRefusal) -> Made {
    info!(app = %call.app, tool = call.name, %refusal, "call refused by permission");
    Made::failed(Ending::Denied, refusal.for_model(&call.route.backend))
}
