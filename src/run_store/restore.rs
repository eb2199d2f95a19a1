//! Restores from the journal what an earlier process left: sessions, runs that were being driven,
//! and their calls.
//!
//! Must not: decide what becomes of a call (model/recovery.rs does), or read the journal.

mod awaiting_credential;
mod inherited;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use tokio::time::Instant;
use tracing::{info, warn};

use super::{Inner, KEEP_ENDED, Owned, RunStore, Session};
use crate::calls::long::Beginning;
use crate::calls::record::CallRecorder;
use crate::clock;
use crate::journal::record::{
    Change, Key, LongRecord, OwnedKey, OwnerRecord, RunRecord, Slot, StoredRecords, StoredRun,
    StoredSession,
};
use crate::model::catalog_search::resolved;
use crate::model::maps::HashSet;
use crate::model::recovery::{LOCAL_TOOL_TIMEOUT, Recovery, decide};
use crate::model::routes::Route;
use crate::model::run::EarlierCall;
use crate::model::sentences;
use crate::model::{
    AppName, CallId, CallOwner, CallingRun, Ending, RunKey, Selection, Stage, Table, Trace,
};
use crate::runs::DrivenRun;
use crate::runs::answer::{EarlierCalls, Task};
use crate::runs::driven::RestoredRun;
use crate::runs::driver::Start;
use crate::traces::Context;
use crate::upstream::{SANDBOX, UpstreamCredential};

impl RunStore {
    /// Restores the journal's records. Runs that were being driven are driven on at once; those
    /// that need their app's own credential, as soon as the app shows it.
    pub fn restore(self: &Arc<Self>, kept: StoredRecords) {
        let StoredRecords {
            upstream, runs, sessions, owners, long, requests, last_slot, lost, ..
        } = kept;
        self.calls.restore_requests(requests);
        self.next_slot.fetch_max(last_slot + 1, Ordering::Relaxed);
        let now = self.upstream.journal_name();
        if upstream.is_none() && lost.is_some() {
            // The address may be what was lost, so the runs are kept: answering their calls is
            // safer than forgetting them.
            self.journal().write(vec![Change::Upstream(now)]);
        } else if upstream.as_ref() != Some(&now) || self.upstream.is_sandbox() {
            self.leave_behind(upstream.as_deref(), &runs, &sessions);
            // A long call of a run ends with it. One that an app made by hand is a call to a
            // backend, which is the same under any MANTYX.
            let (long, of_runs): (Vec<_>, Vec<_>) =
                long.into_iter().partition(|(_, record)| record.of == CallOwner::App);
            self.calls.long.erase(of_runs.into_iter().map(|(id, _)| id));
            self.journal().write(vec![Change::Upstream(now)]);
            self.calls.restore_long_calls(long, |of, by| self.beginning(of, by));
            // It may be the same MANTYX under another address: with the owners, no app gets the
            // runs of another.
            self.restore_owners(owners, (&[], &[]));
            return;
        }
        self.resume(runs, sessions, owners, long);
    }

    /// Restores what the journal's file keeps, which could not be read when the bridge started.
    /// Sessions and owners are left as the bridge has come to know them meanwhile. It has driven no
    /// run that the file may have: without a journal, none is accepted.
    pub fn restore_late(self: &Arc<Self>, mut kept: StoredRecords) {
        self.journal().take_in(&mut kept);
        {
            let inner = self.inner.lock();
            kept.runs.retain(|run| !inner.runs.contains_key(&run.record.key));
            kept.sessions.retain(|session| !inner.sessions.contains_key(&session.key));
            kept.owners.retain(|(key, _)| !inner.has_owner(key));
        }
        self.restore(kept);
    }

    /// Begins as a replica, with what its group keeps for all.
    pub fn join(self: &Arc<Self>, kept: StoredRecords) {
        if kept.upstream.is_none() {
            self.journal().write(vec![Change::Upstream(self.upstream.journal_name())]);
        }
        self.take_over(kept);
    }

    /// Takes over what another replica has left, as after a crash of this process.
    ///
    /// The database has given the runs to this replica before this is called: it fences the other
    /// one, whose dispatches are refused from then on. What this replica knows itself stays.
    ///
    /// 1. A long call that runs here continues: this process makes it, even if its replica was
    ///    counted as dead and taken over.
    /// 2. A run that this replica drives is not driven a second time. An app has attached it again
    ///    since it ended at the other replica, whose record is forgotten. It stays if it is the
    ///    record of this very driver, which may come a second time after a claim in doubt.
    /// 3. The rest is restored: each call is made, asked for, posted or answered as unknown, as
    ///    `model::recovery` decides by its stage.
    pub fn take_over(self: &Arc<Self>, kept: StoredRecords) {
        let StoredRecords { mut runs, mut sessions, mut owners, mut long, requests, lost, .. } =
            kept;
        // Records of a later version may be among them, which this one cannot read.
        if let Some(loss) = lost {
            self.journal().heed_loss(loss);
        }
        long.retain(|(id, _)| !self.calls.long.knows(id));
        let mut superseded = Vec::new();
        {
            let inner = self.inner.lock();
            runs.retain(|run| match inner.runs.get(&run.record.key) {
                Some(own) if !own.is_guest() && !own.has_ended() => {
                    if own.slot != run.slot {
                        superseded.push(Change::ForgetRun(run.slot));
                    }
                    false
                }
                _ => true,
            });
            sessions.retain(|session| !inner.sessions.contains_key(&session.key));
            owners.retain(|(key, _)| !inner.has_owner(key));
        }
        self.journal().write(superseded);
        self.calls.restore_requests(requests);
        self.resume(runs, sessions, owners, long);
    }

    /// Stops driving the runs `slots`, which another replica drives now. What their calls under way
    /// bring is still posted, if it is the first answer; the other calls are left to that replica.
    ///
    /// The claims go with the runs: the run may come back to this replica, whose new driver must be
    /// able to claim its calls. `lost` is cancelled before the driver ends, so that its calls see
    /// why: a call that has not reached its tool is dropped without an answer.
    pub fn lose(&self, slots: &[Slot]) {
        let slots: HashSet<&Slot> = slots.iter().collect();
        let runs: Vec<_> = {
            let mut inner = self.inner.lock();
            slots.iter().for_each(|slot| inner.claims.forget(**slot));
            inner.awaiting_credential.retain(|_, run| !slots.contains(&run.slot));
            inner.runs.extract_if(|_, run| slots.contains(&run.slot)).map(|(_, run)| run).collect()
        };
        for run in runs {
            if !run.has_ended() {
                warn!(run = %run.key.run, app = %run.app, "another replica drives the run now");
            }
            run.lost.cancel();
            run.hand_over();
            self.context.tell(&run);
        }
    }

    /// Restores records, in an order in which each step finds what it needs:
    ///
    /// 1. Owners, before any app can attach a run or a driver can claim a call.
    /// 2. Long calls whose id the model never got are erased, as their runs make the calls again.
    ///    With both, the tool would be reached twice.
    /// 3. A run that had two drivers becomes one run, with the calls of both.
    /// 4. The claims of all runs, before the first driver reads an event. A driver that starts
    ///    earlier could claim a call that another run's driver has made.
    /// 5. The runs, each with its calls, and then the long calls, which look up the runs that began
    ///    them.
    fn resume(
        self: &Arc<Self>,
        runs: Vec<StoredRun>,
        sessions: Vec<StoredSession>,
        owners: Vec<(OwnedKey, OwnerRecord)>,
        long: Vec<(CallId, LongRecord)>,
    ) {
        self.restore_owners(owners, (&runs, &sessions));
        let (without_answer, long): (Vec<_>, Vec<_>) =
            long.into_iter().partition(|(_, record)| is_made_by_its_run(record, &runs));
        self.calls.long.erase(without_answer.into_iter().map(|(id, _)| id));
        for session in sessions {
            self.restore_session(session);
        }
        let session_changes = self.inner.lock().make_room_for_sessions();
        self.journal().write(session_changes);
        let (runs, inherited) = inherited::by_the_last(runs);
        self.journal().write(inherited);
        for run in &runs {
            self.reclaim(run);
        }
        for run in runs {
            self.resume_run(run);
        }
        let sweep = self.inner.lock().sweep_awaiting(|moment| self.journal().since(moment));
        self.journal().write(sweep);
        self.calls.restore_long_calls(long, |of, by| self.beginning(of, by));
    }

    /// Drives the run on, has it wait for its app's credential, or forgets it. The calls of an app
    /// that was removed are answered as well, each with a refusal: otherwise the model would wait
    /// for them until MANTYX gives up.
    fn resume_run(self: &Arc<Self>, run: StoredRun) {
        let since_end = run.record.ended_at.map(|at| clock::millis().saturating_sub(at));
        let outlived = since_end.is_some_and(|ago| u128::from(ago) > KEEP_ENDED.as_millis())
            && !self.inner.lock().may_come_back(&run.record.key, run.record.given_up);
        if outlived {
            return self.forget_kept(&run);
        }
        let app = self.calls.app(&run.record.app);
        let configured = match &app {
            Some(app) => self.upstream.credential_of(app),
            None => self.upstream.own(),
        };
        match configured.filter(|_| !run.record.callers_credential) {
            Some(credential) => {
                let resumed = self.take_up_run(&mut self.inner.lock(), run, credential);
                self.drive_on(resumed);
            }
            None if app.is_some() => self.await_credential(run),
            None => {
                warn!(
                    run = %run.record.key.run,
                    app = %run.record.app,
                    "a run is not driven on: its app is not configured any more, and only the app had \
                     a credential for it"
                );
                self.forget_kept(&run);
            }
        }
    }

    fn forget_kept(&self, run: &StoredRun) {
        self.inner.lock().claims.forget(run.slot);
        self.journal().write(vec![Change::ForgetRun(run.slot)]);
    }

    /// Whether an earlier process has left this run of `app`, which waits for the app's credential.
    pub fn awaits_credential(&self, key: &RunKey, app: &AppName) -> bool {
        self.inner.lock().awaiting_credential.get(key).is_some_and(|run| run.record.app == *app)
    }

    /// The run `key`, driven. If an earlier process left it to wait for the credential of `app`,
    /// MANTYX has now accepted `credential` for it, and its driver starts with that. `None`: the
    /// run is not known.
    pub fn get_or_resume(
        self: &Arc<Self>,
        key: &RunKey,
        app: &AppName,
        credential: &UpstreamCredential,
    ) -> Option<Arc<DrivenRun>> {
        let resumed = {
            // Under one lock: a concurrent request finds the run either waiting or driven.
            let mut inner = self.inner.lock();
            match inner.awaiting_credential.get(key) {
                Some(run) if run.record.app == *app => {
                    let run = inner.awaiting_credential.remove(key)?;
                    self.take_up_run(&mut inner, run, credential.clone())
                }
                _ => return inner.runs.get(key).cloned(),
            }
        };
        let run = Arc::clone(&resumed.run);
        self.drive_on(resumed);
        Some(run)
    }

    /// Forgets the runs and sessions of another MANTYX than the configured one. Those that were
    /// unfinished count as lost: it may be the same MANTYX under another address, and if a run is
    /// attached again, none of its calls must be made a second time.
    fn leave_behind(&self, of: Option<&str>, runs: &[StoredRun], sessions: &[StoredSession]) {
        let driven = runs.iter().filter(|run| run.record.ended_at.is_none()).count();
        if of == Some(SANDBOX) {
            // Each sandbox ends with its process: there is nothing to be lost.
            info!("the runs and sessions of the last sandbox are forgotten");
        } else if let (Some(of), true) = (of, runs.len() + sessions.len() > 0) {
            let what = format!(
                "The journal belongs to another MANTYX ({of}) than the configured one. Its runs ({driven} \
                 in progress) and sessions ({}) are not known any more.",
                sessions.len()
            );
            warn!("{what}");
            // Of ended runs, nothing is left to be done.
            if driven + sessions.len() > 0 {
                self.journal().note_loss(what);
            }
        }
        let sessions =
            sessions.iter().map(|session| Change::Forget(Key::Session(session.key.clone())));
        let runs = runs.iter().map(|run| Change::ForgetRun(run.slot));
        self.journal().write(runs.chain(sessions).collect());
    }

    fn await_credential(&self, run: StoredRun) {
        let key = run.record.key.clone();
        info!(run = %key.run, app = %run.record.app, "a run waits for its app's credential");
        self.inner.lock().awaiting_credential.insert(key, run);
    }

    fn restore_session(&self, session: StoredSession) {
        let StoredSession { key, record, routes } = session;
        let session = Session {
            app: record.app,
            tools: record.tools.map(|tools| Bytes::from(String::from(Box::<str>::from(tools)))),
            selection: record.selection.map_or(Selection::All, Selection::Named),
            table: Arc::new(Table::restore(&record.table, routes)),
            created_at: record.created_at,
            created: Instant::now(),
        };
        self.inner.lock().sessions.insert(key, Arc::new(session));
    }

    /// The trace context of the calls of a run.
    pub(super) fn kept_trace(&self, record: &RunRecord) -> Context {
        self.context.traces.context(record.trace.as_ref().and_then(|(parent, state)| {
            let states: Vec<&str> = state.as_deref().into_iter().collect();
            Trace::read(&[parent], &states).map(Arc::new)
        }))
    }

    /// Claims again what the driver of a run had claimed in an earlier process. The journal has a
    /// call's key from before the call is made until its run is forgotten; if no other driver can
    /// bring the call, until its run has ended.
    fn reclaim(&self, run: &StoredRun) {
        let key = &run.record.key;
        let mut inner = self.inner.lock();
        for call in run.calls.iter().filter(|call| !call.record.is_others).map(|call| &call.key) {
            let run_id = call.agent_run.as_ref().unwrap_or(&key.run).clone();
            let agent_run = (key.workspace.clone(), run_id);
            inner.claims.take(agent_run, call.tool_use.clone(), call.slot);
        }
    }

    /// Turns a record into a run in memory, and decides what becomes of each of its calls.
    ///
    /// A call can be made again here only if `model::recovery` says that it has not reached its
    /// tool, or that its tool is repeatable. Such a call is not made at once: it waits in its
    /// recorder until the stream brings it, as other clients may have answered it meanwhile. All
    /// other calls count as seen, and the stream does not begin them once more.
    ///
    /// If the journal has lost the run's tools, the run continues with those that its backends
    /// offer now. A call that these do not have gets an error, and is not left to the app: by the
    /// lost table, the app was shown a mask, and does not answer.
    fn take_up_run(
        &self,
        inner: &mut Inner,
        kept: StoredRun,
        credential: UpstreamCredential,
    ) -> Resumed {
        let StoredRun { slot, mut record, routes, calls } = kept;
        let trace = self.kept_trace(&record);
        let routes_are_lost = routes.is_none();
        let table = Arc::new(match routes {
            Some(routes) => Table::restore(&record.table, routes),
            None => {
                let offer = self.calls.backends.registry.offer_of_known();
                Table::remade(&record.table, Arc::clone(&offer.routes))
            }
        });
        let created_for_another = inner.is_created_for_another(&record.key, &record.app);
        let last_seq = if record.past_is_lost {
            0
        } else {
            calls.iter().map(|call| call.record.seq).fold(record.read_to, u64::max)
        };
        let (mut seen, mut again, mut open) = (Vec::new(), Vec::new(), Vec::new());
        for call in calls {
            let content = call.record.content;
            let answer_size = call.answer.as_ref().map_or(0, Bytes::len);
            let keeping = self.calls.keeping(&record.app);
            let claim = inner.claim_over_replicas(&record.key, call.key.agent_run.as_ref());
            let recorder = CallRecorder::kept(keeping, call.key, call.record, answer_size);
            let recorder = Arc::new(recorder.claimed_for(claim));
            let request = recorder.call();
            let route = table.route_of_call(&request).cloned();
            // A call of the tool that calls others by name stands for the call of that other tool.
            let (name, repeatable) = match &route {
                Some(route) => {
                    let (real_call, real_route) =
                        resolved(request.clone(), route.clone(), |name| table.tool(name));
                    (real_call.name, real_route.repeatable)
                }
                None => (request.name.clone(), false),
            };
            let recovery = decide(recorder.recovery_facts(repeatable, LOCAL_TOOL_TIMEOUT));
            if recovery == Recovery::Make && route.is_some() && !created_for_another {
                again.push(recorder);
                continue;
            }
            if recovery == Recovery::Make && !routes_are_lost {
                // The call has not reached its tool. By the table of its present app, it is not the
                // bridge's: the app was shown the call, and answers it.
                self.journal().write(recorder.left_to_others());
                continue;
            }
            seen.push(EarlierCall {
                agent_run: request.agent_run,
                tool_use: request.tool_use,
                content,
            });
            if let Some(task) = task(recovery, &name, route, call.answer) {
                open.push((recorder, task));
            }
        }
        // An open call needs a driver, as nothing else posts its answer. The run was given up with
        // no call in flight but those whose answers MANTYX did not want then.
        if record.given_up && !(open.is_empty() && again.is_empty()) {
            (record.given_up, record.ended_at) = (false, None);
        }
        let unanswered = again.len() + open.len();
        let restored =
            RestoredRun { slot, record, credential, table, trace, last_seq, seen, again };
        let run = Arc::new(DrivenRun::restored(restored, &self.context.log_room));
        if created_for_another {
            run.hand_over();
            self.journal().write(run.changes());
        } else {
            inner.runs.insert(run.key.clone(), Arc::clone(&run));
        }
        if routes_are_lost {
            warn!(
                run = %run.key.run, app = %run.app,
                "the journal has lost the run's tools; the run goes on with those that its backends \
                 offer now"
            );
            self.journal().write(run.changes());
        }
        Resumed { run, open, unanswered, seq: last_seq }
    }

    /// What is known here of the run that began a long call of an earlier process.
    fn beginning(&self, of: &CallOwner, by: Option<&CallingRun>) -> Beginning {
        let began_it = |key: &RunKey| match of {
            CallOwner::Run { driven, .. } => key == driven,
            CallOwner::Session { .. } | CallOwner::App => by.is_some_and(|by| by.is(key)),
        };
        let inner = self.inner.lock();
        if let Some((_, run)) = inner.runs.iter().find(|(key, _)| began_it(key)) {
            return Beginning { stop: run.stop.child_token(), trace: run.trace.clone() };
        }
        let waiting = inner.awaiting_credential.iter().find(|(key, _)| began_it(key));
        let trace = waiting.map(|(_, kept)| self.kept_trace(&kept.record));
        Beginning { trace: trace.unwrap_or_default(), ..Beginning::default() }
    }

    /// Starts the driver of a restored run. The calls of a run that was handed over to another app
    /// are answered without one: their claims are still the first driver's. A refused run is
    /// cancelled at MANTYX once more, as the process that refused it may have ended before MANTYX
    /// did.
    fn drive_on(self: &Arc<Self>, Resumed { run, open, unanswered, seq }: Resumed) {
        if !run.has_ended() {
            info!(
                name: "run_driver_started",
                run = %run.key.run, app = %run.app, seq, unanswered,
                "resuming a run of the earlier process"
            );
            self.drive(&run, open, Start::First);
            if run.is_refused() {
                self.cancel_in_the_end(&run);
            }
        } else if run.takes_answers() {
            self.answer_without_driver(&run, open);
        }
    }
}

impl Inner {
    /// Whether the owner of `key` is known here. A record of a kind that this version does not know
    /// has none.
    fn has_owner(&self, key: &OwnedKey) -> bool {
        Owned::restore(key).is_some_and(|owned| self.owners.get(&owned).is_some())
    }
}

/// A run of an earlier process, restored.
struct Resumed {
    run: Arc<DrivenRun>,
    /// Its calls that are answered without waiting for the stream.
    open: EarlierCalls,
    unanswered: usize,
    /// How far it was read.
    seq: u64,
}

/// Whether a crash came before the first answer of a long call was kept. Then the model never got
/// the call's id, and its run makes the call again. Had the call reached its tool, the run's record
/// would say so.
fn is_made_by_its_run(record: &LongRecord, runs: &[StoredRun]) -> bool {
    let Some((asked_by, tool_use)) = &record.origin else { return false };
    runs.iter().any(|run| {
        run.calls.iter().any(|call| {
            call.record.stage == Stage::Received
                && call.key.tool_use == *tool_use
                && call.key.agent_run.as_ref().unwrap_or(&run.record.key.run) == asked_by
        })
    })
}

/// How to answer a call that is not simply made again; `None` if nothing is left to do.
fn task(
    recovery: Recovery,
    name: &str,
    route: Option<Route>,
    answer: Option<Bytes>,
) -> Option<Task> {
    match (recovery, route, answer) {
        (Recovery::Nothing, _, _) => None,
        (Recovery::Post, _, Some(body)) => Some(Task::Post(body)),
        (Recovery::Resume, Some(route), _) => Some(Task::Make(route)),
        (Recovery::TooLate, _, _) => {
            let why = sentences::down_time_left_no_time(name);
            Some(Task::Refuse(why, Ending::TooLate))
        }
        // A call that should be made but has no route is one whose routes are lost.
        (Recovery::Unknown | Recovery::Post | Recovery::Resume | Recovery::Make, _, _) => {
            let why = sentences::restart_during_call(name);
            Some(Task::Refuse(why, Ending::Unknown))
        }
    }
}

#[cfg(test)]
mod tests;
