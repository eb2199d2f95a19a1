//! What must hold behind a gateway, whatever has befallen its replicas: the ledger of the tools,
//! the answers that MANTYX got, and what the apps saw agree.
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
    mantyx::{Delivery, Mantyx},
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
    /// Runs that were submitted on connections that broke: those that MANTYX has, and of these,
    /// those that nobody drives.
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

/// What MANTYX has seen of a run.
pub(super) struct OfRun {
    pub(super) id: String,
    pub(super) calls: Vec<OfCall>,
    last_seq: u64,
}

/// A call, when MANTYX asked for it, and what was posted as its answer.
pub(super) struct OfCall {
    call: Call,
    asked: Option<Instant>,
    pub(super) posted: Vec<Delivery>,
}

impl OfRun {
    pub(super) fn of(id: String, plan: Plan, mantyx: &Mantyx) -> Self {
        let run = plan.run(number_of(&id));
        let calls = run.calls.into_iter().map(|call| OfCall {
            asked: mantyx.sent_at(&id, call.seq),
            posted: mantyx.deliveries(&call.id),
            call,
        });
        Self { calls: calls.collect(), last_seq: run.script.last_seq(), id }
    }
}

/// What was seen of all runs so far.
pub(super) struct Witnessed<'a> {
    pub(super) runs: Vec<OfRun>,
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
    for OfRun { id: run, calls, last_seq } in &seen.runs {
        let app = told.remove(run.as_str());
        let mut unanswered = 0;
        for of in calls {
            let entries = by_intent.remove(of.call.intent.as_str()).unwrap_or_default();
            match judge_call(of, &entries, seen.faults, tally) {
                Ok(()) => {}
                Err(Offence::Unanswered) if app.is_none() => unanswered += 1,
                // Its app was told that there is no run, as no replica could keep it.
                Err(Offence::Cancelled) if app.is_none() => tally.not_kept += 1,
                Err(offence) => wrong.push(format!("{run}: {}: {offence}", of.call.id)),
            }
            let answered = of.posted.iter().find(|it| it.accepted);
            tally.times.extend(answered.zip(of.asked).map(|(answer, at)| answer.at - at));
        }
        tally.orphans += usize::from(unanswered > 0);
        if let Some(app) = app {
            tally.runs += 1;
            tally.reopened += app.seen.reopened;
            wrong.extend(judge_stream(app, *last_seq).map(|it| format!("{run}: {it}")));
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
    Cancelled,
    Other(String),
}

impl fmt::Display for Offence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unanswered => f.write_str("it has no answer"),
            Self::Cancelled => {
                f.write_str("it was cancelled with its run, which its app goes on with")
            }
            Self::Other(what) => f.write_str(what),
        }
    }
}

fn judge_call(
    OfCall { call, posted, .. }: &OfCall,
    entries: &[&Entry],
    faults: usize,
    tally: &mut Tally,
) -> Result<(), Offence> {
    let offence = |what: String| Err(Offence::Other(what));
    let begun = entries.iter().filter(|entry| entry.step == Step::Begun).count();
    let most = if call.is_repeatable() { 1 + faults } else { 1 };
    tally.repeated += usize::from(begun > 1);
    if begun > most {
        return offence(format!("made {begun} times, and {most} is the most: {entries:?}"));
    }
    let accepted: Vec<_> = posted.iter().filter(|one| one.accepted).collect();
    let [answer] = accepted.as_slice() else {
        return match accepted.len() {
            0 => Err(Offence::Unanswered),
            count => offence(format!("answered {count} times")),
        };
    };
    tally.calls += 1;
    if let Some(other) = posted.iter().find(|one| one.body != answer.body) {
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
        (None, Some(error)) if error == "The call was cancelled because its run was." => {
            Err(Offence::Cancelled)
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

mod tests {
    //! The judge lets nothing through.

    use super::*;
    use crate::crash::gateway::apps::Seen;

    const PLAN: Plan = Plan { seed: 7, at_once: true };

    /// What was seen, to be changed.
    struct Case {
        runs: Vec<OfRun>,
        apps: Vec<App>,
        ledger: Vec<Entry>,
    }

    fn answer(body: &str, accepted: bool) -> Delivery {
        Delivery { body: body.to_owned(), at: Instant::now(), accepted }
    }

    /// One run in which all went well.
    fn good() -> Case {
        let run = PLAN.run(1);
        let (mut calls, mut ledger) = (Vec::new(), Vec::new());
        for call in run.calls {
            for step in [Step::Begun, Step::Done] {
                ledger.push(Entry {
                    step,
                    tool_use: call.id.clone(),
                    tool: call.kind.tool().to_owned(),
                    intent: Some(call.intent.clone()),
                    text: format!("{} done", call.id),
                });
            }
            let body = format!(r#"{{"result":"{} done"}}"#, call.id);
            let posted = vec![answer(&body, true)];
            calls.push(OfCall { call, asked: Some(Instant::now()), posted });
        }
        let last_seq = run.script.last_seq();
        let seen = Seen { seqs: (1..=last_seq).collect(), ended: true, ..Seen::default() };
        let submitted = Submitted::Accepted("run_1".to_owned());
        let runs = vec![OfRun { id: "run_1".to_owned(), calls, last_seq }];
        Case { runs, apps: vec![App { at: Instant::now(), submitted, seen }], ledger }
    }

    #[track_caller]
    fn check(change: impl FnOnce(&mut Case), complaint: Option<&str>) {
        let mut case = good();
        change(&mut case);
        let Case { runs, apps, ledger } = case;
        let seen = Witnessed { runs, apps: &apps, ledger: &ledger, faults: 1 };
        let wrong = offences(&seen, &mut Tally::default());
        match complaint {
            None => assert!(wrong.is_empty(), "{wrong:?}"),
            Some(words) => {
                assert!(wrong.iter().any(|what| what.contains(words)), "{words}: {wrong:?}");
            }
        }
    }

    fn posted(case: &mut Case) -> &mut Vec<Delivery> {
        &mut case.runs[0].calls[0].posted
    }

    #[test]
    fn good_run_is_no_offence() {
        check(|_| (), None);
        let unknown = r#"{"error":"OUTCOME_UNKNOWN: it was cut off."}"#;
        check(|case| *posted(case) = vec![answer(unknown, true)], None);
        // The replica cannot keep the run, and MANTYX has it already.
        let cancelled = r#"{"error":"The call was cancelled because its run was."}"#;
        let refuse = |case: &mut Case| {
            case.apps[0].submitted = Submitted::Refused(503, "not_ready".to_owned());
            *posted(case) = vec![answer(cancelled, true)];
        };
        check(refuse, None);
    }

    #[test]
    fn each_offence_is_told() {
        let again = |case: &mut Case| {
            // The same intent under another id is the same effect.
            let entry = Entry { tool_use: "tu_other".to_owned(), ..case.ledger[0].clone() };
            case.ledger.push(entry);
        };
        check(again, Some("made 2 times"));
        check(|case| posted(case).clear(), Some("no answer"));
        check(|case| posted(case).push(answer("{}", false)), Some("two answers"));
        check(
            |case| {
                let first = posted(case)[0].clone();
                posted(case).push(first);
            },
            Some("answered 2 times"),
        );
        check(|case| drop(case.ledger.remove(1)), Some("never done"));
        check(|case| *posted(case) = vec![answer(r#"{"error":"no"}"#, true)], Some("neither"));
        let not_kept = r#"{"error":"bridge_storage_unavailable"}"#;
        check(|case| *posted(case) = vec![answer(not_kept, true)], Some("it was made"));
        let cancelled = r#"{"error":"The call was cancelled because its run was."}"#;
        check(|case| *posted(case) = vec![answer(cancelled, true)], Some("cancelled with its run"));
        check(|case| case.ledger[0].intent = None, Some("without an intent"));
        check(|case| case.runs.clear(), Some("MANTYX does not know"));
        check(|case| case.apps[0].seen.seqs.retain(|seq| *seq != 2), Some("a gap"));
        check(|case| case.apps[0].seen.seqs.push(1), Some("twice"));
        check(|case| case.apps[0].seen.ended = false, Some("its end"));
        check(|case| case.apps[0].seen.kinds.push("local_tool_call".to_owned()), Some("shown"));
        check(|case| case.apps[0].seen.refused.push((404, String::new())), Some("404"));
    }
}
