//! What must hold at the end. Laws that can be seen broken at once are where that happens: two
//! effects (`peers`), two answers (`mantyx`), a call without permission (`operator`), a gap in a
//! stream (`apps`).

use std::time::Duration;

use serde_json::Value;

use super::mantyx::{CALL_TIMEOUT, Call, Run};
use super::tape::LogEvent;
use super::world::State;
use crate::model::{RunKey, RunKind};

/// How long an answer may take to reach MANTYX, faults included.
const TIME_TO_POST: Duration = Duration::from_secs(120);

/// How long a call may go on after its app was told that its run is cancelled, lost requests
/// included.
const TIME_TO_CANCEL: Duration = Duration::from_secs(75);
/// How long ago a fault of replicas must be for a replica to hear of a cancellation.
const BACK_AGAIN: Duration = Duration::from_secs(30);

/// How answers say that the tool has done nothing.
const NOT_MADE: [&str; 4] = ["not made", "not called", "not run", "nothing was called"];

impl Run {
    /// What the bridge calls it.
    fn key(&self, id: &str) -> RunKey {
        let kind = if self.is_eval { RunKind::Eval } else { RunKind::Agent };
        RunKey { workspace: "acme".into(), kind, run: id.into() }
    }
}

impl State {
    /// The law of drivers: a run has one. The daemon's log says when one starts and ends.
    pub(super) fn driver_says(&mut self, event: &LogEvent) {
        let (Some(run), Some(app), Some(at)) = (event.field("run"), event.field("app"), self.at)
        else {
            return;
        };
        // MANTYX has not shown it: an app may have it driven again.
        match event.name {
            "run_driver_gave_up" => self.sleep(|id, _| id == run),
            "run_driver_started_again" => self.wake(run),
            _ => {}
        }
        let driver = (run.to_owned(), app.to_owned());
        let starts = matches!(event.name, "run_driver_started" | "run_driver_started_again");
        let ends = matches!(event.name, "run_driver_ended" | "run_driver_gave_up");
        if starts && !self.processes[at].drivers.insert(driver.clone()) {
            self.breaks(format!("{run} has a second driver"));
        }
        if ends && !self.processes[at].drivers.remove(&driver) {
            self.breaks(format!("a driver of {run} ends that has not started"));
        }
    }

    /// The daemon's log says which calls it has taken.
    pub(super) fn call_says(&mut self, event: &LogEvent) {
        if event.name != "call_taken" {
            return;
        }
        let (Some(run), Some(tool_use)) = (event.field("run"), event.field("toolUseId")) else {
            return;
        };
        let run = self.mantyx.runs.get_mut(run);
        if let Some(call) = run.and_then(|run| run.calls.get_mut(tool_use)) {
            call.is_taken = true;
        }
    }

    /// The daemon's log says which runs it has refused to their apps.
    pub(super) fn refusal_says(&mut self, event: &LogEvent) {
        if event.name != "run_refused" {
            return;
        }
        if let (Some(run), Some(at)) = (event.field("run"), self.at) {
            self.processes[at].refused.insert(run.to_owned());
        }
    }

    /// The disk has what the process has given it.
    pub(super) fn keep_refusals(&mut self) {
        for id in self.processes.iter().flat_map(|process| &process.refused) {
            if let Some(run) = self.mantyx.runs.get_mut(id) {
                run.is_refused = true;
            }
        }
    }

    /// The process `at` is gone. Of the runs that it had refused, those are lost that its journal
    /// does not have.
    pub(super) fn forget_refused(&mut self, at: usize) {
        for id in std::mem::take(&mut self.processes[at].refused) {
            let Some(run) = self.mantyx.runs.get_mut(&id) else { continue };
            let server = self.server.as_ref();
            run.is_driven &= match server {
                Some(server) => server.knows_run(&run.key(&id)),
                None => run.is_refused,
            };
        }
    }

    /// The law of refusals: no call is made of a run that was refused to its app, which may have
    /// submitted the run again.
    pub(super) fn check_refused(&mut self, intent: &str) {
        let mut runs = self.mantyx.runs.iter();
        let run = runs.find(|(_, run)| run.calls.values().any(|call| call.intent == intent));
        let Some((id, run)) = run else { return };
        let server = self.server.as_ref();
        let kept = server.is_some_and(|server| server.refuses_run(&run.key(id)));
        let is_of_now = self.at.is_some_and(|at| self.processes[at].refused.contains(id));
        if kept || is_of_now || run.is_refused {
            self.breaks(format!("a call was sent for {intent} of {id}, which its app was refused"));
        }
    }

    /// The runs that are driven, with their apps.
    pub(super) fn drivers(&self) -> impl Iterator<Item = &(String, String)> {
        self.processes.iter().flat_map(|process| &process.drivers)
    }

    /// No more faults: what has begun comes to its end.
    pub(super) fn become_calm(&mut self) {
        self.calm = true;
        self.step("CALM");
    }

    /// Whether all runs have ended.
    pub(super) fn is_done(&self) -> bool {
        self.mantyx.runs.values().all(|run| run.ended) && self.peers.are_done(self.now())
    }

    /// The runs that have not.
    pub(super) fn is_undone(&self) -> String {
        let open = self.mantyx.runs.iter().filter(|(_, run)| !run.ended);
        let unread = self.apps.iter().flat_map(|app| app.unread());
        let driven = self.drivers().map(|(run, _)| format!("{run} driven"));
        open.map(|(id, _)| id.clone()).chain(unread).chain(driven).collect::<Vec<_>>().join(", ")
    }

    /// The law of memory: at the end, nothing is held but answers to requests with a key, and what
    /// MANTYX said when it refused streams.
    pub(super) fn check_memory(&mut self, at: usize) {
        let jobs = &self.peers.jobs;
        let is_large = |(body, _): &(String, Option<Value>)| {
            let body: Value = serde_json::from_str(body).unwrap_or_default();
            let intent = body["args"]["intent"].as_str().unwrap_or_default();
            jobs.get(intent).is_some_and(|job| job.is_large)
        };
        let keyed = self.apps.iter().flat_map(|app| app.keyed.values());
        let keyed = keyed.map(|kept| if is_large(kept) { 210 << 10 } else { 1024 });
        let keyed: usize = keyed.sum();
        if !self.are_replicas() {
            self.check_disk(keyed as u64);
        }
        let most = keyed + 4096;
        let held = self.processes[at].budget.as_ref().map_or(0, |budget| budget.held());
        if held > most {
            self.breaks(format!("at the end: {held} bytes of bodies are held, and not {most}"));
        }
    }

    /// The law of answers: each call of the bridge's gets one. Faults pass, so that an answer which
    /// was there in time has reached MANTYX.
    pub(super) fn judge(&mut self) {
        let mut broken = self.denials();
        broken.extend(self.uncancelled());
        for (id, run) in self.mantyx.runs.iter().filter(|(_, run)| run.is_driven) {
            let calls = run.calls.iter().filter(|(_, call)| call.is_bridges && call.expired);
            for (tool_use, call) in calls {
                let end = call.asked + CALL_TIMEOUT;
                let is_late = |at: Duration| at + TIME_TO_POST > end;
                // What takes long, or waits for a person, may be too late: the bridge cannot know
                // how long ago MANTYX asked, and may have read that late.
                let takes_long = match self.peers.jobs.get(&call.intent) {
                    Some(job) if job.tool == "survey" && job.effects == 0 => true,
                    Some(job) => is_late(job.done_at),
                    None => {
                        ["fs_ask", "fs_survey", "bridge_call_result"].contains(&call.name.as_str())
                    }
                };
                // Without its app's credential, or given up, the bridge does not post.
                let sleeps = |(from, until): &(Duration, Duration)| {
                    *from < end && until.saturating_add(TIME_TO_POST) > end
                };
                let is_excused = call.is_excused || self.troubles.excuse(call.asked, end);
                if !takes_long && !is_excused && !run.sleeps.iter().any(sleeps) {
                    let tried = call.tried;
                    broken.push(format!(
                        "{tool_use} of {id} ({}) got no answer; first tried at {tried:?}",
                        call.name
                    ));
                }
            }
        }
        for what in broken {
            self.breaks(what);
        }
    }

    /// The law of cancellations: once an app was told that its run is cancelled, the calls that
    /// were open end, whichever replica makes them, and whatever they wait for. A replica that
    /// comes and goes may not have heard of it.
    fn uncancelled(&self) -> Vec<String> {
        let of_replicas = self.processes.len() > 1;
        let runs = self.mantyx.runs.iter().filter(|(_, run)| of_replicas && run.is_driven);
        let mut late = Vec::new();
        for (id, run) in runs {
            let Some(at) = run.cancelled else { continue };
            let end = at + TIME_TO_CANCEL;
            let sleeps = run.sleeps.iter().any(|(from, until)| *from < end && *until > at);
            if sleeps || self.troubles.touch(at.saturating_sub(BACK_AGAIN), end) {
                continue;
            }
            let is_late = |call: &Call| match call.tried {
                Some(tried) => tried > end,
                None => call.answer.is_none(),
            };
            let open = run.calls.iter().filter(|(_, call)| call.is_bridges && call.asked <= at);
            let open = open.filter(|(_, call)| !call.is_excused && is_late(call));
            late.extend(open.map(|(tool_use, call)| {
                let tried = call.tried;
                format!("{id} was cancelled at {at:?}, and {tool_use} has gone on: {tried:?}")
            }));
        }
        late
    }

    /// The law of truth: no answer says that a call was not made which has had its effect. (A call
    /// that only reads may be sent again, and that may fail before it is sent. What could not be
    /// kept may be unknown to the next process.)
    fn denials(&self) -> Vec<String> {
        let calls = self.mantyx.runs.values().flat_map(|run| &run.calls);
        let lies = calls.filter_map(|(tool_use, call)| {
            let answer = call.answer.as_ref().filter(|_| !call.is_unkept)?.to_string();
            let job = self.peers.jobs.get(&call.intent)?;
            let says_no = NOT_MADE.iter().any(|it| answer.contains(it));
            (says_no && job.effects > 0 && job.tool != "read")
                .then(|| format!("{tool_use} has had its effect, and its answer is {answer}"))
        });
        lies.collect()
    }
}
