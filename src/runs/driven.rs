//! One run that the bridge drives, or drove until the run ended: its state, and its record in the
//! journal.
//!
//! Must not: read its stream (driver.rs does).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::access::{Access, StreamFailure};
use super::credential::RunCredential;
use super::log::{EventLog, Room};
use super::{NewRun, Ownership};
use crate::calls::record::CallRecorder;
use crate::calls::{Calls, RunScope};
use crate::clock;
use crate::journal::record::{CallKey, Change, Millis, RunRecord, Slot};
use crate::limits::counted::Count;
use crate::limits::shares::Share;
use crate::model::catalog_search::resolved;
use crate::model::instructions::Informed;
use crate::model::maps::HashMap;
use crate::model::run::{EarlierCall, Run};
use crate::model::words::words;
use crate::model::{
    AppName, Call, CallRequest, CallingRun, Route, RunId, RunKey, RunKind, SessionId, Table,
    ToolUseId,
};
use crate::traces::Context;
use crate::upstream::{OpenError, UpstreamCredential};

/// A run that is driven, or was until it ended.
#[derive(Debug)]
pub struct DrivenRun {
    pub key: RunKey,
    /// Its number in the journal.
    pub slot: Slot,
    pub app: AppName,
    pub session: Option<SessionId>,
    pub credential: RunCredential,
    pub log: EventLog,
    pub table: Arc<Table>,
    /// The first words of its prompt, for people; empty if it is not known.
    pub prompt: Box<str>,
    /// Where in a trace its calls belong.
    pub trace: Context,
    state: Mutex<Run>,
    /// Cancels all of its calls, also those that continue after a first answer.
    pub stop: CancellationToken,
    /// In an eval, the same for each agent run that has brought calls; children of `stop`.
    agent_stops: Mutex<HashMap<RunId, CancellationToken>>,
    /// Cancels the calls that the run still waits for; a child of `stop`.
    pub cancel: CancellationToken,
    /// Cancelled when the run turns out to be another app's: its driver stops, and its calls
    /// continue.
    pub handed_over: CancellationToken,
    /// How far it was at the replica that drives it, if that is another one.
    guest: Option<Phase>,
    /// Cancelled when another replica has taken the run over: its calls that were not made are
    /// left.
    pub lost: CancellationToken,
    /// Whether the run was refused to its app.
    refused: AtomicBool,
    in_flight: Count,
    /// The servers whose instructions its searches have given it. A restart forgets them, and they
    /// are given once more.
    informed: Arc<Informed>,
    started_at: Millis,
    ended: Mutex<Option<Ended>>,
    /// Whether MANTYX serves the run's stream.
    pub access: watch::Sender<Access>,
    /// The calls whose answers MANTYX refused as unknown while it did not show the run either, with
    /// what their answers take of the app's share. The journal has the answers.
    unwanted: Mutex<HashMap<CallKey, (Arc<CallRecorder>, Share)>>,
    /// The recorders of an earlier process's calls that may be made again.
    restored_recorders: Mutex<RecordersByCall>,
}

/// Recorders by the agent run, in an eval, and the tool use.
type RecordersByCall = HashMap<(Option<RunId>, ToolUseId), Arc<CallRecorder>>;

/// The end of a run, or of the driver that gave it up.
#[derive(Debug, Clone, Copy)]
pub struct Ended {
    pub at: Instant,
    wall: Millis,
    /// The run may continue at MANTYX; the driver gave up because it could not read the stream.
    given_up: bool,
}

words! {
    /// How far a run is.
    pub enum Phase {
        /// The driver reads the run's past, and makes no call yet.
        Attaching = "attaching",
        Driven = "driven",
        Ended = "ended",
        /// The driver could not read its stream, and does not try again until an app asks for the
        /// run.
        GivenUp = "given_up",
    }
}

/// What an earlier process left of a run.
#[derive(Debug)]
pub struct RestoredRun {
    pub slot: Slot,
    pub record: RunRecord,
    pub credential: UpstreamCredential,
    pub table: Arc<Table>,
    pub trace: Context,
    /// The last event up to which all calls are known.
    pub last_seq: u64,
    /// The calls that need no further decision.
    pub seen: Vec<EarlierCall>,
    /// The calls that may have to be made.
    pub again: Vec<Arc<CallRecorder>>,
}

impl DrivenRun {
    /// A run that has had no driver yet.
    pub fn new(slot: Slot, new: NewRun, room: &Room) -> Self {
        let kind = new.key.kind;
        let table = Arc::clone(&new.table);
        let state = match (new.past_is_lost, new.has_past) {
            (true, _) => Run::with_lost_past(kind, table, [], Vec::new()),
            (false, true) => Run::with_past(kind, table),
            (false, false) => Run::new(kind, table),
        };
        Self::with_state(slot, new, state, EventLog::new(room), clock::millis())
    }

    /// A run that another replica drives.
    ///
    /// Here, no driver reads it, and its log is empty, so it counts as ended. The credential that
    /// the caller has shown proves nothing yet: without `unproven`, a caller that MANTYX refuses
    /// would see the run of another user.
    pub fn guest(restored: RestoredRun, room: &Room) -> Self {
        let phase = match &restored.record {
            record if record.given_up => Phase::GivenUp,
            record if record.ended_at.is_some() => Phase::Ended,
            record if record.has_past => Phase::Attaching,
            _ => Phase::Driven,
        };
        let record = RunRecord {
            ended_at: restored.record.ended_at.or_else(|| Some(clock::millis())),
            given_up: false,
            has_past: false,
            past_is_lost: false,
            ..restored.record
        };
        let credential = RunCredential::unproven(restored.credential.clone());
        let run = Self::restored(RestoredRun { record, ..restored }, room);
        Self { guest: Some(phase), credential, ..run }
    }

    /// Whether another replica drives it.
    pub fn is_guest(&self) -> bool {
        self.guest.is_some()
    }

    /// A run that an earlier process drove.
    ///
    /// Its driver reads on behind the last event up to which all calls are in the journal. From an
    /// earlier event, answered calls would come again; from a later one, calls would be missing. If
    /// the earlier process had not read the past to its end, the driver begins at the start, as it
    /// does not know the answers of other clients.
    pub fn restored(restored: RestoredRun, room: &Room) -> Self {
        let RestoredRun { slot, record, credential, table, trace, last_seq, seen, again } =
            restored;
        let RunRecord { key, app, session, has_past, past_is_lost, .. } = record;
        let RunRecord { started_at, ended_at, given_up, refused, read_to, .. } = record;
        let kind = key.kind;
        let (read_to, last_seq) = if has_past { (0, 0) } else { (read_to, last_seq) };
        let mut calls: Vec<Call> = Vec::with_capacity(again.len());
        let mut recorders = RecordersByCall::default();
        for recorder in again {
            let call = recorder.call();
            recorders.insert((call.agent_run.clone(), call.tool_use.clone()), recorder);
            calls.push(call);
        }
        let log = match kind {
            // The log cannot tell which events without a number came before.
            RunKind::Eval => EventLog::behind_unnumbered(room),
            RunKind::Agent if ended_at.is_some() && !given_up => EventLog::behind(room, u64::MAX),
            RunKind::Agent => EventLog::behind(room, last_seq),
        };
        let state = if past_is_lost {
            Run::with_lost_past(kind, Arc::clone(&table), seen, calls)
        } else {
            Run::resumed(kind, Arc::clone(&table), (read_to, last_seq), seen, calls)
        };
        let new = NewRun {
            key,
            app,
            session,
            credential,
            table,
            prompt: Box::default(),
            has_past,
            past_is_lost,
            trace,
        };
        let run = Self {
            restored_recorders: Mutex::new(recorders),
            ..Self::with_state(slot, new, state, log, started_at)
        };
        if let Some(wall) = ended_at {
            run.log.end();
            *run.ended.lock() = Some(Ended { at: Instant::now(), wall, given_up });
        }
        if refused {
            run.refuse();
        }
        run
    }

    fn with_state(slot: Slot, new: NewRun, state: Run, log: EventLog, started_at: Millis) -> Self {
        let NewRun { key, app, session, credential, table, prompt, trace, .. } = new;
        let stop = CancellationToken::new();
        Self {
            key,
            slot,
            app,
            session,
            credential: RunCredential::new(credential),
            log,
            table,
            prompt,
            trace,
            state: Mutex::new(state),
            cancel: stop.child_token(),
            stop,
            handed_over: CancellationToken::new(),
            guest: None,
            lost: CancellationToken::new(),
            agent_stops: Mutex::default(),
            refused: AtomicBool::new(false),
            in_flight: Count::default(),
            informed: Arc::default(),
            started_at,
            ended: Mutex::default(),
            access: watch::Sender::default(),
            unwanted: Mutex::default(),
            restored_recorders: Mutex::default(),
        }
    }

    /// The run's record for the journal, with the routes that it refers to.
    pub fn changes(&self) -> Vec<Change> {
        let (table, routes) = self.table.stored();
        let (has_past, past_is_lost, last_seq) = {
            let state = self.state();
            (state.has_past(), state.past_is_lost(), state.last_seq())
        };
        let record = RunRecord {
            key: self.key.clone(),
            app: self.app.clone(),
            session: self.session.clone(),
            callers_credential: self.credential.is_callers(),
            table,
            has_past,
            past_is_lost,
            read_to: if has_past { 0 } else { last_seq },
            started_at: self.started_at,
            needs: self.table.backends().iter().cloned().collect(),
            ended_at: self.ended().map(|ended| ended.wall),
            given_up: self.is_given_up(),
            refused: self.is_refused(),
            trace: self
                .trace
                .trace()
                .map(|trace| (trace.parent().to_owned(), trace.state().map(str::to_owned))),
        };
        vec![Change::Routes(routes.clone()), Change::Run(self.slot, record)]
    }

    /// The recorder for `call`: the one that an earlier process left, or a new one.
    pub fn recorder(
        &self,
        calls: &Calls,
        ownership: &dyn Ownership,
        call: &Call,
    ) -> Arc<CallRecorder> {
        let agent_run = self.agent_run(call);
        let key = (agent_run.cloned(), call.tool_use.clone());
        if let Some(recorder) = self.restored_recorders.lock().remove(&key) {
            return recorder;
        }
        let keeping = calls.keeping(&self.app);
        let recorder = CallRecorder::new(keeping, self.slot, agent_run, call, self.last_seq());
        let claim = ownership.claim_over_replicas(&self.key, agent_run);
        Arc::new(recorder.claimed_for(claim))
    }

    /// Takes the recorders of an earlier process whose calls the stream has not brought since.
    pub fn take_restored_recorders(&self) -> Vec<Arc<CallRecorder>> {
        self.restored_recorders.lock().drain().map(|(_, recorder)| recorder).collect()
    }

    /// In an eval, the agent run that `call` is of.
    fn agent_run<'a>(&self, call: &'a Call) -> Option<&'a RunId> {
        call.agent_run.as_ref().filter(|_| self.key.kind == RunKind::Eval)
    }

    /// Whether the bridge answers `tool_use` of `agent_run`: of the run itself or, in an eval, of
    /// one of its agent runs.
    pub fn owns(&self, agent_run: &RunId, tool_use: &ToolUseId) -> bool {
        self.state().owns(agent_run, tool_use)
    }

    pub fn phase(&self) -> Phase {
        if let Some(phase) = self.guest {
            phase
        } else if self.is_given_up() {
            Phase::GivenUp
        } else if self.has_ended() {
            Phase::Ended
        } else if self.state().has_past() {
            Phase::Attaching
        } else {
            Phase::Driven
        }
    }

    pub fn started_at(&self) -> SystemTime {
        clock::time(self.started_at)
    }

    pub fn ended_at(&self) -> Option<SystemTime> {
        match self.phase() {
            Phase::Ended | Phase::GivenUp => self.ended().map(|ended| clock::time(ended.wall)),
            Phase::Attaching | Phase::Driven => None,
        }
    }

    /// The number of the last event that was read; 0 if its events have no number.
    pub fn last_seq(&self) -> u64 {
        self.state().last_seq()
    }

    /// The number of calls for the bridge that the run has brought.
    pub fn calls(&self) -> usize {
        self.state().calls()
    }

    /// The calls in flight, long calls included.
    pub fn in_flight(&self) -> usize {
        self.in_flight.get()
    }

    pub fn request(&self, call: Call, route: Route) -> CallRequest {
        let (call, route) = resolved(call, route, |name| self.table.tool(name));
        let by = CallingRun {
            workspace: self.key.workspace.clone(),
            run: self.asked_by(&call),
            session: self.session.clone(),
        };
        CallRequest::new(self.app.clone(), Some(by), call, route)
    }

    /// What `call` may know of this run. The call counts as in flight until that is dropped.
    pub fn scope(&self, call: &CallRequest) -> RunScope {
        RunScope {
            key: self.key.clone(),
            table: Arc::clone(&self.table),
            stop: self.stop_of(call.run_id().unwrap_or(&self.key.run)),
            _in_flight: self.in_flight.one(),
            informed: match self.key.kind {
                RunKind::Agent => Some(Arc::clone(&self.informed)),
                RunKind::Eval => None,
            },
        }
    }

    pub fn asked_by(&self, call: &Call) -> RunId {
        self.agent_run(call).unwrap_or(&self.key.run).clone()
    }

    /// Cancels the calls in flight of the run itself or, in an eval, of the agent run `key`; their
    /// answers say so. Calls of the agent run that come later are cancelled, too, as the token
    /// stays.
    pub fn cancel_calls(&self, key: &RunKey) {
        if *key == self.key {
            self.stop.cancel();
        } else {
            self.stop_of(&key.run).cancel();
        }
    }

    /// The token that cancels the calls of `agent_run`.
    ///
    /// An eval has one for each agent run. With one for all, the cancellation of one agent run
    /// would cancel the calls of the others, which MANTYX still waits for.
    fn stop_of(&self, agent_run: &RunId) -> CancellationToken {
        if self.key.kind == RunKind::Agent {
            return self.stop.clone();
        }
        let mut stops = self.agent_stops.lock();
        stops.entry(agent_run.clone()).or_insert_with(|| self.stop.child_token()).clone()
    }

    /// Cancels the calls whose answers no run can read after this run has ended. In a session, a
    /// later run can fetch the results of long calls, so these continue.
    pub fn end_calls(&self) {
        if self.session.is_some() {
            self.cancel.cancel();
        } else {
            self.stop.cancel();
        }
    }

    /// Whether the run has no driver: it has ended, or was given up.
    pub fn has_ended(&self) -> bool {
        self.ended().is_some()
    }

    pub fn ended(&self) -> Option<Ended> {
        *self.ended.lock()
    }

    pub fn set_ended(&self) {
        self.end_as(false);
    }

    /// Marks the run as given up. Its claimed calls stay claimed.
    pub fn give_up(&self) {
        self.end_as(true);
    }

    /// Stops the run's driver and ends its log, as the run belongs to another app, which has its
    /// own driver for it.
    pub fn hand_over(&self) {
        self.handed_over.cancel();
        self.end_as(false);
        self.log.end();
    }

    /// Whether MANTYX still wants the answers of its calls.
    pub fn takes_answers(&self) -> bool {
        !self.has_ended() || self.handed_over.is_cancelled()
    }

    /// Notes the first end: a run that MANTYX has ended is not given up afterwards, and is not
    /// driven again.
    fn end_as(&self, given_up: bool) {
        self.ended.lock().get_or_insert_with(|| Ended {
            at: Instant::now(),
            wall: clock::millis(),
            given_up,
        });
    }

    /// Marks the run as refused to its app, and cancels its calls, those included that are yet to
    /// come. The app may submit the run once more, and would have the effects of its calls twice.
    pub fn refuse(&self) {
        self.refused.store(true, Ordering::Relaxed);
        self.stop.cancel();
    }

    pub fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }

    /// Whether the driver gave up reading its stream, although the run may continue.
    pub fn is_given_up(&self) -> bool {
        self.ended().is_some_and(|ended| ended.given_up)
    }

    /// Prepares a given-up run for a new driver. `false`: it was not given up.
    ///
    /// The state holds calls until the driver has read the past: other clients may have answered
    /// them while the run had no driver.
    pub fn revive(&self) -> bool {
        let mut end = self.ended.lock();
        if end.take_if(|end| end.given_up).is_none() {
            return false;
        }
        self.access.send_replace(Access::Untried);
        self.log.reopen();
        self.state().hold();
        true
    }

    pub fn access(&self) -> Access {
        self.access.borrow().clone()
    }

    /// The cause of a refusal may be gone: readers wait for the next attempt. A stream that is
    /// open, or was, keeps its state.
    pub fn expect_attempt(&self) {
        self.access.send_if_modified(|access| {
            if access.failure().is_none() {
                return false;
            }
            *access = Access::Untried;
            true
        });
    }

    /// Notes that the stream could not be opened; the time of the first failure in a row is kept.
    pub fn note_failure(&self, error: OpenError) {
        self.access.send_modify(|access| {
            let before = access.failure().map(|failure| failure.since);
            let failure = StreamFailure { error, since: before.unwrap_or_else(Instant::now) };
            *access = Access::Failing(Arc::new(failure));
        });
    }

    /// Keeps the answer of `recorder` in the journal after MANTYX said that it does not know the
    /// call; `held` counts it for the app. If MANTYX does not show the run's stream either, the
    /// fault may be MANTYX's, so the answer is posted again once the stream opens. `false`: MANTYX
    /// shows the run and so does not want the answer.
    ///
    /// The stream's state is checked under the lock. The driver marks the stream as open before it
    /// takes the kept answers. Without the lock, an answer could be added right after that, and
    /// would be posted only when the stream breaks the next time, or never.
    pub fn keep_unwanted(&self, recorder: &Arc<CallRecorder>, held: Share) -> bool {
        let mut unwanted = self.unwanted.lock();
        if matches!(*self.access.borrow(), Access::Open) {
            return false;
        }
        unwanted.insert(recorder.key.clone(), (Arc::clone(recorder), held));
        true
    }

    pub fn take_unwanted(&self) -> Vec<Arc<CallRecorder>> {
        self.unwanted.lock().drain().map(|(_, (recorder, _))| recorder).collect()
    }

    pub fn state(&self) -> MutexGuard<'_, Run> {
        self.state.lock()
    }
}
