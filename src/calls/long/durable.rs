//! Long calls in the journal. After a restart, the bridge asks the peer for a call that the peer
//! has named, and makes a call that had not reached its tool. Results can be fetched as before.
//!
//! Must not: decide who may fetch a result (long.rs does).

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
use crate::model::recovery::LEAST_REMAINING;
use crate::model::sentences;
use crate::model::{
    Answer, CallId, CallOwner, CallRequest, CallingRun, Identity, Moment, Route, RunKey, Target,
    pending,
};
use crate::traces::Context;

/// What is needed to ask the peer for a call that continues, or to make it.
#[derive(Debug)]
pub struct LongWork {
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

impl LongWork {
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
    /// Keeps the peer's name for a long call. By the name, the next process asks for the result;
    /// without one, the next process would have to count the call as lost.
    pub fn named(&self, id: &CallId, handle: &Handle) {
        let mut calls = self.calls.lock();
        let Some(call) = calls.get_mut(id) else { return };
        if let Some(work) = &mut call.work {
            work.handle = Some(handle.clone());
        }
        self.write(id, call);
    }

    /// Notes that the call is about to be dispatched to `peer`, or once more to the same peer. If
    /// it reaches its tool for the first time, or its work had a name, `write` is given its record.
    /// A record that still said "waits" would have the next process make the call a second time.
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
        let earlier_handle = work.handle.take();
        if std::mem::replace(&mut work.waits, false) {
            call.reached_tool_here = true;
        } else if earlier_handle.is_none() {
            return Ok(());
        }
        call.change(id).into_iter().for_each(write);
        Ok(())
    }

    /// Takes back the first dispatch of a call, which did not happen. `write` is given its record.
    pub fn not_reached(&self, id: &CallId, write: impl FnMut(Change)) {
        let mut calls = self.calls.lock();
        let Some(call) = calls.get_mut(id).filter(|call| call.finished.is_none()) else { return };
        if !std::mem::take(&mut call.reached_tool_here) {
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
        self.calls
            .lock()
            .get(id)
            .and_then(|call| call.work.as_ref())
            .is_some_and(|work| work.handle.is_some())
    }

    pub(super) fn write(&self, id: &CallId, call: &LongCall) {
        if let (Some(journal), Some(change)) = (&self.journal, call.change(id)) {
            journal.write(vec![change]);
        }
    }

    pub fn erase(&self, ids: impl IntoIterator<Item = CallId>) {
        let changes: Vec<_> = ids.into_iter().map(|id| Change::Forget(Key::Long(id))).collect();
        if let Some(journal) = self.journal.as_ref().filter(|_| !changes.is_empty()) {
            journal.write(changes);
        }
    }
}

impl LongCall {
    /// Whether `run` began it.
    pub(super) fn is_of(&self, run: &RunKey) -> bool {
        let caller = self.work.as_ref().and_then(|work| work.request.run.as_ref());
        self.scope.of.is_run(run) || caller.is_some_and(|caller| caller.is(run))
    }

    /// Whether nothing has reached its tool yet.
    pub(super) fn waits(&self) -> bool {
        self.work.as_ref().is_some_and(|work| work.waits)
    }

    /// The change that writes the call's record; `None` if the call is not kept.
    fn change(&self, id: &CallId) -> Option<Change> {
        let LongWork { request, slot, handle, peer, waits, begun } = self.work.as_ref()?;
        // A call that has ended is not made: its arguments would only take room. One with a name
        // may have to be sent once more, with what its server has asked for.
        let arguments = match &self.finished {
            None if *waits || handle.is_some() => Some(request.arguments.clone()),
            _ => None,
        };
        let caller = request.run.as_ref();
        let record = LongRecord {
            app: self.scope.app.clone(),
            of: self.scope.of.clone(),
            tool: self.tool.clone(),
            backend: request.route.backend.clone(),
            kind: request.route.kind,
            target: request.tool().into(),
            origin: caller.map(|caller| (caller.run.clone(), request.tool_use.clone())),
            slot: *slot,
            handle: handle.as_ref().map(|handle| handle.0.clone()),
            peer: peer.clone(),
            arguments,
            begun_at: begun.wall,
            begun_up: begun.up,
            ended: self.finished.as_ref().map(|end| (end.wall, Answer::clone(&end.answer))),
        };
        Some(Change::Long(id.clone(), record))
    }
}

/// The run that began a long call of an earlier process, as far as it is known here.
#[derive(Debug, Default)]
pub struct Beginning {
    /// Cancels the call. A run that awaits its credential has no token; `cancel_of` finds the call
    /// by its run.
    pub stop: CancellationToken,
    pub trace: Context,
}

impl Calls {
    /// Restores the long calls that an earlier process left; `begun_by` knows their runs.
    pub fn restore_long_calls(
        self: &Arc<Self>,
        kept: Vec<(CallId, LongRecord)>,
        begun_by: impl Fn(&CallOwner, Option<&CallingRun>) -> Beginning,
    ) {
        for (id, record) in kept {
            self.restore_long_call(&id, record, &begun_by);
        }
        let forgotten = make_room(&mut self.long.calls.lock());
        self.long.erase(forgotten);
    }

    /// Restores one long call:
    ///
    /// 1. A result is kept for as long as it would have been without the restart.
    /// 2. A call that had not reached its tool is made, if its time is not over.
    /// 3. A call whose work has a name is asked for at its peer.
    /// 4. Any other call may have been made. It is never made again, and its outcome is told as
    ///    unknown.
    fn restore_long_call(
        self: &Arc<Self>,
        id: &CallId,
        record: LongRecord,
        begun_by: impl Fn(&CallOwner, Option<&CallingRun>) -> Beginning,
    ) {
        let started = Moment { wall: record.begun_at, up: record.begun_up };
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
        if let Some((wall, answer)) = record.ended {
            // If the age is not known, the result is kept rather too long than too short.
            let age = self.journal.since(Moment { wall, up: None }).unwrap_or_default();
            if age >= KEEP {
                self.long.erase([id.clone()]);
            } else {
                let finished = Some(Finished::new(wall, answer));
                let stop = CancellationToken::new();
                let call = LongCall {
                    backend: Some(route.backend),
                    ..LongCall::new(scope, &record.tool, None, finished, stop)
                };
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
        let work = LongWork {
            request: Arc::clone(&request),
            slot: record.slot,
            handle: record.handle.map(Handle),
            peer: record.peer,
            waits,
            begun: started,
        };
        let Beginning { stop, trace } = begun_by(&scope.of, request.run.as_ref());
        // If it is not known how long the call has run, its time counts as over.
        let spent = self.journal.since(started).unwrap_or(Duration::MAX);
        let within = self.settings().limits.pending_timeout;
        let remaining = within.saturating_sub(spent);
        let name = &request.name;
        let over = match (&work.handle, waits) {
            (None, true) if remaining >= LEAST_REMAINING => None,
            (None, true) => Some(sentences::restart_left_no_time(name)),
            (Some(_), _) if !remaining.is_zero() => None,
            _ => Some(pending::lost(name)),
        };
        let what = if work.handle.is_some() { "is asked for again" } else { "is made now" };
        let recorder = CallRecorder::long(self.keeping(&scope.app), &work, spent);
        recorder.becomes_long((Arc::clone(&self.long), id.clone()));
        let long_call = LongCall::new(scope, &request.name, Some(work), None, stop.clone());
        self.long.calls.lock().insert(id.clone(), long_call);
        if let Some(why) = over {
            self.long.finish(id, Answer::Error(why));
            return;
        }
        info!(app = %request.app, tool = request.name, call = %id, "a long call {what}");
        let active = Arc::new(self.activate(request, &trace, Arc::new(recorder), within));
        // It has had its first answer from an earlier process.
        active.observer.running.pending();
        let executed = Arc::clone(self).execute(Arc::clone(&active));
        self.spawn_long(executed, active, id.clone(), stop);
    }
}
