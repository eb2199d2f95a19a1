//! Long calls in the journal: what goes on is asked for again after a restart where its peer has
//! named it, and made where nothing had reached its tool; results can be fetched as before.
//!
//! Must not: decide who may fetch a result (pending.rs does).

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use futures_util::{FutureExt as _, future::BoxFuture};
use serde_json::value::RawValue;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{Finished, InHand, KEEP, LongCall, LongCalls, Of, Scope, make_room};
use crate::{
    backend::{
        calls::Wanted,
        peer::{Handle, NotRecorded, Origin, Recorder},
    },
    budget,
    journal::record::{Change, LongOf, LongRecord, Millis},
    model::{
        answer::Answer,
        catalog::Identity,
        ids::{BackendName, CallId, RunKind, SessionId, Workspace},
        moment::Moment,
        offer::{RefKind, Route, Target},
        pending,
        recovery::LEAST_BUDGET,
    },
    runs::{DrivenRun, RunKey, Runs, call_observer, calls::whose, history::Begun},
    traces::Context,
};

/// What is needed to ask for a call that goes on, or to make it.
#[derive(Debug, Clone)]
pub(in crate::runs) struct Work {
    pub route: Route,
    /// Which call of which run began it; `None` for a call by hand.
    pub origin: Option<Origin>,
    /// What the peer calls it.
    pub handle: Option<Handle>,
    /// The peer that it was dispatched to.
    pub peer: Option<Identity>,
    /// Verbatim, while nothing has reached the tool.
    pub arguments: Option<Box<RawValue>>,
    pub begun: Moment,
}

/// The recorder of a call that no run waits for: one by hand that may go on, or a long one of an
/// earlier process.
#[derive(Debug)]
pub(in crate::runs) struct Alone {
    known: Mutex<Known>,
    /// Set when it goes on.
    long: OnceLock<(Arc<LongCalls>, CallId)>,
    leaving: CancellationToken,
}

/// What is known of it before it goes on.
#[derive(Debug)]
struct Known {
    handle: Option<Handle>,
    peer: Option<Identity>,
    /// While nothing has reached the tool.
    arguments: Option<Box<RawValue>>,
}

impl Alone {
    /// The recorder of a call that begins; `leaving` is cancelled when the bridge goes down and does
    /// not wait for calls any more.
    pub(in crate::runs) fn new(arguments: Box<RawValue>, leaving: CancellationToken) -> Self {
        let known = Known { handle: None, peer: None, arguments: Some(arguments) };
        Self { known: Mutex::new(known), long: OnceLock::new(), leaving }
    }

    pub(super) fn handle(&self) -> Option<Handle> {
        self.known().handle.clone()
    }

    pub(super) fn peer(&self) -> Option<Identity> {
        self.known().peer.clone()
    }

    /// The arguments, if nothing has reached the tool.
    pub(super) fn unreached(&self) -> Option<Box<RawValue>> {
        self.known().arguments.clone()
    }

    pub(super) fn goes_on(&self, to: (Arc<LongCalls>, CallId)) {
        // It cannot go on twice.
        self.long.set(to).ok();
    }

    /// Whether the tool may have been reached.
    pub(super) fn has_reached_tool(&self) -> bool {
        match self.long.get() {
            Some((calls, id)) => !calls.waits(id),
            None => self.known().arguments.is_none(),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Recorder for Alone {
    fn goes_to(&self, peer: Option<&Identity>) {
        match self.long.get() {
            Some((calls, id)) => calls.goes_to(id, peer),
            None => self.known().peer = peer.cloned(),
        }
    }

    fn dispatching(&self) -> BoxFuture<'_, Result<(), NotRecorded>> {
        Box::pin(async {
            self.known().arguments = None;
            match self.long.get() {
                Some((calls, id)) => calls.dispatching(id).await,
                None => Ok(()),
            }
        })
    }

    fn not_dispatched(&self, arguments: &RawValue) {
        match self.long.get() {
            Some((calls, id)) => calls.not_dispatched(id, arguments),
            None => {
                let mut known = self.known();
                (known.arguments, known.peer) = (Some(arguments.to_owned()), None);
            }
        }
    }

    fn named(&self, handle: &Handle) {
        match self.long.get() {
            Some((calls, id)) => calls.named(id, handle),
            None => self.known().handle = Some(handle.clone()),
        }
    }

    fn is_left(&self) -> bool {
        self.leaving.is_cancelled()
    }
}

impl LongCalls {
    /// The peer has named a call that goes on.
    pub(in crate::runs) fn named(&self, id: &CallId, handle: &Handle) {
        let mut calls = self.lock();
        let Some(call) = calls.get_mut(id) else { return };
        if let Some(work) = &mut call.work {
            work.handle = Some(handle.clone());
        }
        self.write(id, call);
    }

    /// A call that goes on is about to be dispatched to this peer.
    pub(in crate::runs) fn goes_to(&self, id: &CallId, peer: Option<&Identity>) {
        if let Some(work) = self.lock().get_mut(id).and_then(|call| call.work.as_mut()) {
            work.peer = peer.cloned();
        }
    }

    /// The call is about to reach its tool for the first time: `write` is given what there is to
    /// write of it. Nothing is, where it has reached it before.
    ///
    /// # Errors
    ///
    /// It is cancelled, or was forgotten: it must not be made.
    pub(in crate::runs) fn reaches(
        &self,
        id: &CallId,
        write: impl FnOnce(Change),
    ) -> Result<(), NotRecorded> {
        // Until it is written, so that a call which is forgotten meanwhile does not come back.
        let mut calls = self.lock();
        let call = calls
            .get_mut(id)
            .filter(|call| !call.stop.is_cancelled())
            .ok_or(NotRecorded::Unwritable)?;
        if !call.waits() {
            return Ok(());
        }
        call.is_taken = true;
        if let Some(work) = &mut call.work {
            work.arguments = None;
        }
        if let Some(record) = call.record() {
            write(Change::Long(id.to_string(), record));
        }
        Ok(())
    }

    /// The call was about to reach its tool for the first time, and did not; `arguments` are its own.
    /// `write` is given what there is to write of it.
    pub(in crate::runs) fn not_reached(
        &self,
        id: &CallId,
        arguments: &RawValue,
        write: impl FnOnce(Change),
    ) {
        let mut calls = self.lock();
        let Some(call) = calls.get_mut(id).filter(|call| call.finished.is_none()) else { return };
        if !std::mem::take(&mut call.is_taken) {
            return;
        }
        if let Some(work) = &mut call.work {
            (work.arguments, work.peer) = (Some(arguments.to_owned()), None);
        }
        if let Some(record) = call.record() {
            write(Change::Long(id.to_string(), record));
        }
    }

    /// [`Recorder::dispatching`] of a call that goes on, which nothing else is kept of.
    async fn dispatching(&self, id: &CallId) -> Result<(), NotRecorded> {
        let Some(journal) = &self.journal else { return Ok(()) };
        if !journal.is_open() {
            return Err(NotRecorded::Unwritable);
        }
        self.reaches(id, |long| journal.write(vec![long]))?;
        journal.commit(Vec::new()).await.map_err(|_told| NotRecorded::Unwritable)
    }

    /// [`Recorder::not_dispatched`] of such a call.
    fn not_dispatched(&self, id: &CallId, arguments: &RawValue) {
        self.not_reached(id, arguments, |long| {
            if let Some(journal) = &self.journal {
                journal.write(vec![long]);
            }
        });
    }

    /// Whether nothing has reached the tool of the call `id` yet.
    pub(in crate::runs) fn waits(&self, id: &CallId) -> bool {
        self.lock().get(id).is_some_and(LongCall::waits)
    }

    /// Whether the peer has named it.
    pub(super) fn has_name(&self, id: &CallId) -> bool {
        let calls = self.lock();
        let work = calls.get(id).and_then(|call| call.work.as_ref());
        work.is_some_and(|work| work.handle.is_some())
    }

    /// Has the journal write down how `call` stands.
    pub(super) fn write(&self, id: &CallId, call: &LongCall) {
        if let (Some(journal), Some(record)) = (&self.journal, call.record()) {
            journal.write(vec![Change::Long(id.to_string(), record)]);
        }
    }

    /// Has the journal forget calls.
    pub(super) fn erase(&self, ids: &[CallId]) {
        if let Some(journal) = &self.journal
            && !ids.is_empty()
        {
            journal.write(ids.iter().map(|id| Change::ForgetLong(id.to_string())).collect());
        }
    }
}

impl LongCall {
    /// Whether `run` began it.
    pub(super) fn is_of(&self, run: &RunKey) -> bool {
        let origin = self.work.as_ref().and_then(|work| work.origin.as_ref());
        // Ids are only unique within their workspace.
        let began = |origin: &Origin| {
            origin.run == run.run && self.scope.of.workspace() == Some(&run.workspace)
        };
        self.scope.of.is_run(run) || origin.is_some_and(began)
    }

    /// Whether nothing has reached its tool yet.
    pub(super) fn waits(&self) -> bool {
        self.work.as_ref().is_some_and(|work| work.arguments.is_some())
    }

    /// The call as it is to be kept.
    fn record(&self) -> Option<LongRecord> {
        let Work { route, origin, handle, peer, arguments, begun } = self.work.as_ref()?;
        let ended = self.finished.as_ref();
        Some(LongRecord {
            app: self.scope.app.to_string(),
            of: self.scope.of.kept(),
            tool: self.tool.clone(),
            backend: route.backend.to_string(),
            kind: route.kind.as_str().to_owned(),
            target: route.target.tool().to_owned(),
            origin: origin.as_ref().map(|it| (it.run.to_string(), it.tool_use.to_string())),
            handle: handle.as_ref().map(|handle| handle.0.clone()),
            peer: peer.clone(),
            arguments: arguments.clone(),
            begun_at: begun.wall,
            begun_up: begun.up,
            ended: ended.map(|ended| (ended.told, Answer::clone(&ended.answer))),
        })
    }
}

impl Of {
    fn kept(&self) -> LongOf {
        match self {
            Self::Session { workspace, session } => {
                LongOf::Session { workspace: workspace.to_string(), session: session.to_string() }
            }
            Self::Run { driven, agent_run } => LongOf::Run {
                workspace: driven.workspace.to_string(),
                kind: driven.kind.collection().to_owned(),
                run: driven.run.to_string(),
                agent_run: agent_run.to_string(),
            },
            Self::App => LongOf::App,
        }
    }

    /// `None`: of a kind that this version does not know.
    fn restore(kept: LongOf) -> Option<Self> {
        Some(match kept {
            LongOf::Session { workspace, session } => {
                Self::Session { workspace: workspace.into(), session: session.into() }
            }
            LongOf::Run { workspace, kind, run, agent_run } => {
                let kind = RunKind::of_collection(&kind)?;
                let driven = RunKey { workspace: workspace.into(), kind, run: run.into() };
                Self::Run { driven, agent_run: agent_run.into() }
            }
            LongOf::App => Self::App,
        })
    }

    fn observe(&self) -> call_observer::Of {
        let (workspace, session) = match self {
            Self::Session { workspace, session } => (Some(workspace), Some(session)),
            Self::Run { driven, .. } => (Some(&driven.workspace), None),
            Self::App => (None, None),
        };
        call_observer::Of {
            workspace: workspace.map(ToString::to_string),
            session: session.map(ToString::to_string),
        }
    }

    fn workspace(&self) -> Option<&Workspace> {
        match self {
            Self::Session { workspace, .. } => Some(workspace),
            Self::Run { driven, .. } => Some(&driven.workspace),
            Self::App => None,
        }
    }

    fn session(&self) -> Option<&SessionId> {
        match self {
            Self::Session { session, .. } => Some(session),
            Self::Run { .. } | Self::App => None,
        }
    }
}

impl Runs {
    /// Takes up the long calls that an earlier process left.
    pub(in crate::runs) fn restore_long_calls(self: &Arc<Self>, kept: Vec<(String, LongRecord)>) {
        for (id, record) in kept {
            let id = CallId::from(id);
            if self.restore_long_call(&id, record).is_none() {
                warn!(call = %id, "a long call in the journal is not one of this version; left out");
                self.long_calls.erase(&[id]);
            }
        }
        let gone = make_room(&mut self.long_calls.lock());
        self.long_calls.erase(&gone);
    }

    fn restore_long_call(self: &Arc<Self>, id: &CallId, record: LongRecord) -> Option<()> {
        let begun = Moment { wall: record.begun_at, up: record.begun_up };
        // A result is rather kept too long than not long enough.
        let age =
            |at: Millis| self.journal.since(Moment { wall: at, up: None }).unwrap_or_default();
        let scope = Scope { app: record.app.as_str().into(), of: Of::restore(record.of)? };
        let target = Target::Tool { name: record.target.into(), input: None };
        let backend = BackendName::parse(&record.backend).ok()?;
        let kind = RefKind::parse(&record.kind)?;
        // What its tool said of itself is not kept: a person is rather asked once too often.
        let route = Route { backend, kind, target, repeatable: false, destructive: true };
        let session = scope.of.session().cloned();
        let whose = whose(&scope.app, scope.of.workspace().map_or("", Workspace::as_str));
        let origin = record.origin.map(|(run, tool_use)| Origin {
            whose,
            run: run.into(),
            session,
            tool_use: tool_use.into(),
        });
        if record.ended.as_ref().is_some_and(|(at, _)| age(*at) >= KEEP) {
            self.long_calls.erase(std::slice::from_ref(id));
            return Some(());
        }
        let goes_on = record.ended.is_none();
        let (handle, arguments) = (record.handle.map(Handle), record.arguments);
        let work = Work { route, origin, handle, peer: record.peer, arguments, begun };
        let finished = record.ended.map(|(told, answer)| Finished::new(told, answer));
        let tool = record.tool;
        let driven = self.run_of(&scope.of, work.origin.as_ref());
        // Of a run that is asleep, `cancel_of` finds it.
        let stop = driven.map(|run| run.stop.child_token()).unwrap_or_default();
        let call = LongCall {
            scope: scope.clone(),
            tool: tool.clone(),
            work: Some(work.clone()),
            finished,
            stop: stop.clone(),
            is_taken: false,
        };
        self.long_calls.lock().insert(id.clone(), call);
        if !goes_on {
            return Some(());
        }
        // Where nobody can tell how long it has gone on, its time counts as over.
        let spent = self.journal.since(begun).unwrap_or(Duration::MAX);
        let left = self.settings().calls.pending_timeout.saturating_sub(spent);
        let over = match (&work.handle, &work.arguments) {
            (None, Some(_)) => (left < LEAST_BUDGET).then(|| pending::too_late(&tool)),
            (Some(_), _) if !left.is_zero() => None,
            _ => Some(pending::lost(&tool)),
        };
        match over {
            Some(answer) => self.long_calls.finish(id, answer),
            None => self.take_up(id, scope, tool, (work, stop), left)?,
        }
        Some(())
    }

    /// Asks for a long call of an earlier process, or makes it where nothing had reached its tool.
    fn take_up(
        self: &Arc<Self>,
        id: &CallId,
        Scope { app, of }: Scope,
        tool: String,
        (work, stop): (Work, CancellationToken),
        left: Duration,
    ) -> Option<()> {
        let Work { route, origin, handle, peer, arguments, .. } = work;
        let what = if handle.is_some() { "is asked for again" } else { "is made now" };
        info!(%app, tool, call = %id, "a long call {what}");
        let begun = Begun {
            app: app.clone(),
            run: origin.as_ref().map(|origin| origin.run.clone()),
            tool_use: origin.as_ref().map_or_else(|| "".into(), |origin| origin.tool_use.clone()),
            name: tool.clone(),
            backend: route.backend.clone(),
        };
        let told = arguments.as_deref();
        let trace = self.trace_of(&of, origin.as_ref());
        let observer = self.observe(begun.clone(), &route, told, (of.observe(), &trace));
        let observer = Arc::new(observer);
        observer.goes_on_again(handle.is_some());
        let nothing = || RawValue::from_string("{}".to_owned()).ok();
        let arguments = arguments.or_else(nothing)?;
        let alone = Arc::new(Alone::new(arguments.clone(), self.leave.clone()));
        alone.goes_on((Arc::clone(&self.long_calls), id.clone()));
        let permission_check = self.permission_check(&app);
        let wanted = Wanted {
            permission_check: Arc::clone(&permission_check) as _,
            arguments,
            origin: origin.clone(),
            trace: observer.trace().clone(),
            recorder: Some(Arc::clone(&alone) as _),
            handle,
            peer,
            deadline: Instant::now() + left,
        };
        let (runs, to, kept) = (Arc::clone(self), route.clone(), Arc::clone(&observer));
        let making = AssertUnwindSafe(async move {
            match wanted.handle {
                // To ask for what was begun is no call of the app's.
                Some(_) => Ok(runs.backends.call(&to, &wanted).await),
                None => runs.make(begun, &to, (wanted, permission_check), &kept).await,
            }
        })
        .catch_unwind();
        let (asked_by, alone) = (None, Some(alone));
        let owner = app.clone();
        let in_hand = InHand { app, tool, route, origin, observer, asked_by, alone };
        let goes_on = Arc::clone(self).go_on(making, in_hand, id.clone(), stop);
        self.tracker.spawn(budget::for_app(owner, goes_on));
        Some(())
    }

    /// The run that a long call of an earlier process is of, if it is known.
    fn run_of(&self, of: &Of, origin: Option<&Origin>) -> Option<Arc<DrivenRun>> {
        if let Of::Run { driven, .. } = of {
            return self.get(driven);
        }
        let (inner, origin) = (self.lock(), origin?);
        // Ids are only unique within their workspace.
        let is_it = |run: &&Arc<DrivenRun>| {
            run.key.run == origin.run && of.workspace() == Some(&run.key.workspace)
        };
        inner.runs.values().find(is_it).cloned()
    }

    /// Where in a trace the run is that began a call, if it is known: the one that `of` or `origin`
    /// names.
    fn trace_of(&self, of: &Of, origin: Option<&Origin>) -> Context {
        let is_it = |key: &RunKey| match of {
            Of::Run { driven, .. } => key == driven,
            Of::Session { .. } | Of::App => origin.is_some_and(|origin| origin.run == key.run),
        };
        let inner = self.lock();
        if let Some((_, run)) = inner.runs.iter().find(|(key, _)| is_it(key)) {
            return run.trace.clone();
        }
        let asleep = inner.asleep.iter().find(|(key, _)| is_it(key));
        asleep.map(|(_, kept)| self.kept_trace(&kept.record)).unwrap_or_default()
    }
}
