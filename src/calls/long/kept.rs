//! Long calls in the journal. After a restart, the bridge asks the peer for a call that the peer
//! has named, and makes a call that had not reached its tool. Results can be fetched as before.
//!
//! Must not: decide who may fetch a result (long_calls.rs does).

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::super::record::CallRecorder;
use super::super::{ActiveCall, Calls};
use super::{Finished, KEEP, LongCall, LongCalls, Scope, make_room};
use crate::backend::{Handle, NotRecorded};
use crate::clock;
use crate::journal::record::{Change, Key, LongRecord, Slot};
use crate::model::recovery::LEAST_BUDGET;
use crate::model::sentences;
use crate::model::{
    Answer, CallId, CallRequest, CallingRun, Identity, Moment, Of, Route, RunKey, Target, pending,
};
use crate::traces::Context;

/// What is needed to ask the peer for a call that continues, or to make it.
#[derive(Debug)]
pub struct Work {
    pub request: Arc<CallRequest>,
    /// The journal's number of the run that began it; `None`: it was called by hand.
    pub slot: Option<Slot>,
    /// The peer's name for the work.
    pub handle: Option<Handle>,
    /// The peer that the call was dispatched to.
    pub peer: Option<Identity>,
    /// The call has not reached its tool yet.
    pub waits: bool,
    pub begun: Moment,
}

impl Work {
    /// The work of a call that becomes a long call.
    pub(super) fn new(call: &ActiveCall) -> Self {
        Self {
            request: Arc::clone(&call.request),
            slot: Some(call.recorder.key.slot).filter(|slot| slot.0 > 0),
            handle: call.recorder.handle(),
            peer: call.recorder.peer(),
            waits: call.recorder.is_received(),
            begun: clock::moment(),
        }
    }
}

impl LongCalls {
    /// Keeps the peer's name for a long call.
    pub fn named(&self, id: &CallId, handle: &Handle) {
        let mut calls = self.calls.lock();
        let Some(call) = calls.get_mut(id) else { return };
        if let Some(work) = &mut call.work {
            work.handle = Some(handle.clone());
        }
        self.write(id, call);
    }

    /// Notes that the call is about to be dispatched to `peer`, or once more to the same peer. If it
    /// reaches its tool for the first time, or its work had a name, `write` is given its record.
    ///
    /// # Errors
    ///
    /// The call was cancelled or forgotten: it must not be made.
    pub fn reaches(
        &self,
        id: &CallId,
        peer: Option<&Identity>,
        write: impl FnMut(Change),
    ) -> Result<(), NotRecorded> {
        // Hold the lock until the record is written: otherwise a call that is forgotten meanwhile
        // would come back.
        let mut calls = self.calls.lock();
        let call = calls
            .get_mut(id)
            .filter(|call| !call.stop.is_cancelled())
            .ok_or(NotRecorded::Unwritable)?;
        let Some(work) = &mut call.work else { return Ok(()) };
        work.peer = peer.cloned().or(work.peer.take());
        let had_name = work.handle.take().is_some();
        if std::mem::replace(&mut work.waits, false) {
            call.is_taken = true;
        } else if !had_name {
            return Ok(());
        }
        call.change(id).into_iter().for_each(write);
        Ok(())
    }

    /// Takes back the first dispatch of a call, which did not happen. `write` is given its record.
    pub fn not_reached(&self, id: &CallId, write: impl FnMut(Change)) {
        let mut calls = self.calls.lock();
        let Some(call) = calls.get_mut(id).filter(|call| call.finished.is_none()) else { return };
        if !std::mem::take(&mut call.is_taken) {
            return;
        }
        if let Some(work) = &mut call.work {
            work.waits = true;
            work.peer = None;
        }
        call.change(id).into_iter().for_each(write);
    }

    pub fn knows(&self, id: &CallId) -> bool {
        self.calls.lock().contains_key(id)
    }

    /// Whether nothing has reached the tool of the call `id` yet.
    pub fn waits(&self, id: &CallId) -> bool {
        self.calls.lock().get(id).is_some_and(LongCall::waits)
    }

    /// Whether the peer has named the call's work.
    pub(super) fn has_name(&self, id: &CallId) -> bool {
        let calls = self.calls.lock();
        let work = calls.get(id).and_then(|call| call.work.as_ref());
        work.is_some_and(|work| work.handle.is_some())
    }

    pub(super) fn write(&self, id: &CallId, call: &LongCall) {
        if let (Some(journal), Some(change)) = (&self.journal, call.change(id)) {
            journal.write(vec![change]);
        }
    }

    pub fn erase(&self, ids: impl IntoIterator<Item = CallId>) {
        let forgotten: Vec<_> = ids.into_iter().map(|id| Change::Forget(Key::Long(id))).collect();
        if let Some(journal) = self.journal.as_ref().filter(|_| !forgotten.is_empty()) {
            journal.write(forgotten);
        }
    }
}

impl LongCall {
    /// Whether `run` began it.
    pub(super) fn is_of(&self, run: &RunKey) -> bool {
        let by = self.work.as_ref().and_then(|work| work.request.run.as_ref());
        self.scope.of.is_run(run) || by.is_some_and(|by| by.is(run))
    }

    /// Whether nothing has reached its tool yet.
    pub(super) fn waits(&self) -> bool {
        self.work.as_ref().is_some_and(|work| work.waits)
    }

    /// The change that writes the call's record; `None` if the call is not kept.
    fn change(&self, id: &CallId) -> Option<Change> {
        let Work { request, slot, handle, peer, waits, begun } = self.work.as_ref()?;
        let by = request.run.as_ref();
        let record = LongRecord {
            app: self.scope.app.clone(),
            of: self.scope.of.clone(),
            tool: self.tool.clone(),
            backend: request.route.backend.clone(),
            kind: request.route.kind,
            target: request.tool().into(),
            origin: by.map(|by| (by.run.clone(), request.tool_use.clone())),
            slot: *slot,
            handle: handle.as_ref().map(|handle| handle.0.clone()),
            peer: peer.clone(),
            // A call that has ended is not made: its arguments would only take room. One with a
            // name may have to be sent once more, with what its server has asked for.
            arguments: ((*waits || handle.is_some()) && self.finished.is_none())
                .then(|| request.arguments.clone()),
            begun_at: begun.wall,
            begun_up: begun.up,
            ended: self.finished.as_ref().map(|it| (it.told, Answer::clone(&it.answer))),
        };
        Some(Change::Long(id.clone(), record))
    }
}

/// The run that began a long call of an earlier process, as far as it is known here.
#[derive(Debug, Default)]
pub struct Beginning {
    /// Cancels the call. A run that awaits its credential has no token; `cancel_of` finds the call by
    /// its run.
    pub stop: CancellationToken,
    pub trace: Context,
}

impl Calls {
    /// Restores the long calls that an earlier process left; `begun_by` knows their runs.
    pub fn restore_long_calls(
        self: &Arc<Self>,
        kept: Vec<(CallId, LongRecord)>,
        begun_by: impl Fn(&Of, Option<&CallingRun>) -> Beginning,
    ) {
        for (id, record) in kept {
            self.restore_long_call(&id, record, &begun_by);
        }
        let gone = make_room(&mut self.long.calls.lock());
        self.long.erase(gone);
    }

    fn restore_long_call(
        self: &Arc<Self>,
        id: &CallId,
        record: LongRecord,
        begun_by: impl Fn(&Of, Option<&CallingRun>) -> Beginning,
    ) {
        let begun = Moment { wall: record.begun_at, up: record.begun_up };
        let LongRecord { app, of, backend, kind, .. } = record;
        let scope = Scope { app, of };
        let target = Target::Tool { name: record.target, input: None };
        // The journal does not keep what the tool's server said of it, so a person is asked rather
        // once too often.
        let route = Route { backend, kind, target, repeatable: false, destructive: true };
        let (run, tool_use) = match record.origin {
            Some((run, tool_use)) => (scope.of.calling_run(run), tool_use),
            None => (None, "".into()),
        };
        if let Some((told, answer)) = record.ended {
            // If the age is not known, the result is kept rather too long than too short.
            let age = self.journal.since(Moment { wall: told, up: None }).unwrap_or_default();
            if age >= KEEP {
                self.long.erase([id.clone()]);
            } else {
                let finished = Some(Finished::new(told, answer));
                let call = LongCall::new(scope, &record.tool, None, finished, <_>::default());
                let call = LongCall { backend: Some(route.backend), ..call };
                self.long.calls.lock().insert(id.clone(), call);
            }
            return;
        }
        let waits = record.arguments.is_some() && record.handle.is_none();
        let arguments = record.arguments.unwrap_or_else(|| RawValue::NULL.to_owned());
        let request = Arc::new(CallRequest {
            app: scope.app.clone(),
            run,
            tool_use,
            name: record.tool,
            route,
            arguments,
        });
        let work = Work {
            request: Arc::clone(&request),
            slot: record.slot,
            handle: record.handle.map(Handle),
            peer: record.peer,
            waits,
            begun,
        };
        let Beginning { stop, trace } = begun_by(&scope.of, request.run.as_ref());
        // If it is not known how long the call has run, its time counts as over.
        let spent = self.journal.since(begun).unwrap_or(Duration::MAX);
        let within = self.settings().limits.pending_timeout;
        let left = within.saturating_sub(spent);
        let name = &request.name;
        let over = match (&work.handle, waits) {
            (None, true) => (left < LEAST_BUDGET).then(|| sentences::restart_left_no_time(name)),
            (Some(_), _) if !left.is_zero() => None,
            _ => Some(pending::lost(name)),
        };
        let what = if work.handle.is_some() { "is asked for again" } else { "is made now" };
        let recorder = CallRecorder::long(self.keeping(&scope.app), &work, spent);
        recorder.goes_on((Arc::clone(&self.long), id.clone()));
        let call = LongCall::new(scope, &request.name, Some(work), None, stop.clone());
        self.long.calls.lock().insert(id.clone(), call);
        if let Some(why) = over {
            self.long.finish(id, Answer::Error(why));
            return;
        }
        info!(app = %request.app, tool = request.name, call = %id, "a long call {what}");
        let call = Arc::new(self.activate(request, &trace, Arc::new(recorder), within));
        // It has had its first answer from an earlier process.
        call.observer.running.pending();
        let executed = Arc::clone(self).execute(Arc::clone(&call));
        self.spawn_long(executed, call, id.clone(), stop);
    }
}
