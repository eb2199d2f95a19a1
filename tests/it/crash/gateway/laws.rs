//! What must hold behind a gateway, whatever has befallen its replicas: the ledger of the tools, the
//! answers that MANTYX got, and what the apps saw agree.
//!
//! Must not: wait, or ask anybody; it is given what was seen.

use std::{collections::HashMap, fmt, time::Duration};

use serde::Deserialize;
use tokio::time::Instant;

use super::{
    super::judge,
    apps::{App, Submitted},
    plan::{Call, Plan, number_of},
};
use crate::{
    effects::{Entry, Step},
    mantyx::Mantyx,
};

/// What all came to.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) runs: usize,
    pub(super) calls: usize,
    pub(super) results: usize,
    pub(super) unknown: usize,
    /// Of `unknown`, those that never reached the server.
    pub(super) needless: usize,
    /// Not made, as no replica could write down that they were.
    pub(super) not_kept: usize,
    repeated: usize,
    /// Runs that were submitted on connections that broke: those that MANTYX has, and of these, those
    /// that nobody drives.
    cut: usize,
    orphans: usize,
    pub(super) refused: usize,
    reopened: usize,
    /// From the event of a call to its answer.
    times: Vec<Duration>,
    over: Duration,
}

#[derive(Deserialize)]
struct Body {
    result: Option<String>,
    error: Option<String>,
}

/// What was seen of all runs so far.
pub(super) struct Witnessed<'a> {
    pub(super) plan: Plan,
    pub(super) mantyx: &'a Mantyx,
    pub(super) apps: &'a [App],
    pub(super) ledger: &'a [Entry],
    /// How often a repeatable call may have been cut off.
    pub(super) faults: usize,
}

/// Everything that is wrong with what was seen.
pub(super) fn offences(seen: &Witnessed<'_>, tally: &mut Tally) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut by_intent: HashMap<&str, Vec<&Entry>> = HashMap::new();
    for entry in seen.ledger {
        match &entry.intent {
            Some(intent) => by_intent.entry(intent).or_default().push(entry),
            None => wrong.push(format!("an effect without an intent: {entry:?}")),
        }
    }
    let mut told: HashMap<&str, &App> = HashMap::new();
    for app in seen.apps {
        match &app.submitted {
            Submitted::Accepted(run) => {
                if told.insert(run, app).is_some() {
                    wrong.push(format!("{run} was given to two apps"));
                }
            }
            Submitted::Cut => tally.cut += 1,
            Submitted::Refused(..) => tally.refused += 1,
        }
    }
    for run in seen.mantyx.runs() {
        let plan = seen.plan.run(number_of(&run));
        let app = told.remove(run.as_str());
        let mut unanswered = 0;
        for call in &plan.calls {
            let entries = by_intent.remove(call.intent.as_str()).unwrap_or_default();
            match judge_call(seen, call, &entries, tally) {
                Ok(()) => {}
                Err(Offence::Unanswered) if app.is_none() => unanswered += 1,
                Err(offence) => wrong.push(format!("{run}: {}: {offence}", call.id)),
            }
            let answered = seen.mantyx.deliveries(&call.id).into_iter().find(|it| it.accepted);
            let asked = seen.mantyx.sent_at(&run, call.seq);
            tally.times.extend(answered.zip(asked).map(|(answer, at)| answer.at - at));
        }
        tally.orphans += usize::from(unanswered > 0);
        if let Some(app) = app {
            tally.runs += 1;
            tally.reopened += app.seen.reopened;
            wrong
                .extend(judge_stream(app, plan.script.last_seq()).map(|it| format!("{run}: {it}")));
        }
    }
    wrong.extend(told.keys().map(|run| format!("MANTYX does not know {run}")));
    wrong.extend(by_intent.keys().map(|intent| format!("nobody asked for {intent}")));
    let times = seen.apps.iter().map(|app| app.at);
    let (first, last) = (times.clone().min(), times.max());
    tally.over +=
        first.zip(last).map_or(Duration::ZERO, |(first, last): (Instant, _)| last - first);
    wrong
}

enum Offence {
    Unanswered,
    Other(String),
}

impl fmt::Display for Offence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unanswered => f.write_str("it has no answer"),
            Self::Other(what) => f.write_str(what),
        }
    }
}

fn judge_call(
    seen: &Witnessed<'_>,
    call: &Call,
    entries: &[&Entry],
    tally: &mut Tally,
) -> Result<(), Offence> {
    let offence = |what: String| Err(Offence::Other(what));
    let begun = entries.iter().filter(|entry| entry.step == Step::Begun).count();
    let most = if call.is_repeatable() { 1 + seen.faults } else { 1 };
    tally.repeated += usize::from(begun > 1);
    if begun > most {
        return offence(format!("made {begun} times, and {most} is the most: {entries:?}"));
    }
    let deliveries = seen.mantyx.deliveries(&call.id);
    let accepted: Vec<_> = deliveries.iter().filter(|one| one.accepted).collect();
    let [answer] = accepted.as_slice() else {
        return match accepted.len() {
            0 => Err(Offence::Unanswered),
            count => offence(format!("answered {count} times")),
        };
    };
    tally.calls += 1;
    if let Some(other) = deliveries.iter().find(|one| one.body != answer.body) {
        return offence(format!("two answers were posted: {} and {}", answer.body, other.body));
    }
    let body: Body = serde_json::from_str(&answer.body).expect("an answer is JSON");
    match (body.result, body.error) {
        (Some(text), None) => {
            let made = entries.iter().any(|entry| entry.step == Step::Done && entry.text == text);
            tally.results += 1;
            if made { Ok(()) } else { offence(format!("`{text}` was never done: {entries:?}")) }
        }
        (None, Some(error)) if error.contains("OUTCOME_UNKNOWN") => {
            tally.unknown += 1;
            tally.needless += usize::from(begun == 0);
            Ok(())
        }
        (None, Some(error)) if error.contains("bridge_storage_unavailable") => {
            tally.not_kept += 1;
            if begun == 0 { Ok(()) } else { offence(format!("it was made: {entries:?}: {error}")) }
        }
        (_, error) => offence(format!("neither a result nor an unknown outcome: {error:?}")),
    }
}

/// What is wrong with the stream that an app has seen.
fn judge_stream(app: &App, last: u64) -> Option<String> {
    let seen = &app.seen;
    if !seen.ended {
        return Some(format!("its app did not see its end: {seen:?}"));
    }
    if let Some((status, text)) = seen.refused.iter().find(|(status, _)| *status < 500) {
        return Some(format!("its app was refused with {status}: {text}"));
    }
    if seen.seqs != (1..=last).collect::<Vec<_>>() {
        return Some(format!("a gap, or an event twice: {seen:?}"));
    }
    let unmasked = seen.kinds.iter().any(|kind| kind == "local_tool_call");
    unmasked.then(|| format!("a call of the bridge's was shown to the app: {seen:?}"))
}

impl Tally {
    pub(super) fn calls_a_second(&self) -> f64 {
        let seconds = self.over.as_secs_f64();
        f64::from(u32::try_from(self.calls).unwrap_or(u32::MAX)) / seconds.max(0.001)
    }

    /// The time from a call's event to its answer that so many percent of the calls keep.
    fn percentile(&self, percent: usize) -> Duration {
        judge::percentile(&self.times, percent)
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} runs, {} calls ({:.0} a second): {} results, {} of unknown outcome ({} of them never \
             reached the server), {} not made for want of the database, {} made again; \
             from event to answer p50 {:?} p99 {:?} max {:?}; {} runs submitted on a connection that \
             broke, {} of them with calls that nobody answers; {} refused; {} streams opened again",
            self.runs,
            self.calls,
            self.calls_a_second(),
            self.results,
            self.unknown,
            self.needless,
            self.not_kept,
            self.repeated,
            self.percentile(50),
            self.percentile(99),
            self.percentile(100),
            self.cut,
            self.orphans,
            self.refused,
            self.reopened,
        )
    }
}
