//! What must hold after a cycle of the crash loop, whenever the kill struck.
//!
//! Must not: wait, or ask anybody; it is given what the ledgers and MANTYX saw.

use std::{collections::BTreeMap, fmt, time::Duration};

use serde::Deserialize;

use super::cycle::{Call, Cycle, Server};
use crate::{
    effects::{Entry, Step},
    mantyx::Delivery,
};

/// How many calls one of the servers is given at once: so many may be on their way when the bridge
/// is killed, journaled and not yet at the server.
const LANE: usize = 4;

/// What the world saw of a cycle.
#[derive(Debug)]
pub(super) struct Witnessed {
    pub(super) ledger: Vec<Entry>,
    /// By tool use.
    pub(super) deliveries: BTreeMap<String, Vec<Delivery>>,
}

/// What all cycles came to.
#[derive(Debug, Default)]
pub(super) struct Tally {
    calls: usize,
    results: usize,
    unknown: usize,
    /// Of `unknown`, those that never reached the server.
    needless: usize,
    repeated: usize,
    /// From a start until the first word of a run that was open.
    pub(super) resumed: Vec<Duration>,
    /// From a start until the answer of a call that was open.
    pub(super) answered: Vec<Duration>,
}

#[derive(Deserialize)]
struct Body {
    result: Option<String>,
    error: Option<String>,
}

/// Everything that is wrong with what was seen.
pub(super) fn judge(cycle: &Cycle, seen: &Witnessed, tally: &mut Tally) -> Vec<String> {
    let calls: Vec<&Call> = cycle.runs.iter().flat_map(|run| &run.calls).collect();
    let mut wrong = Vec::new();
    for entry in &seen.ledger {
        let known = |call: &&Call| call.id == entry.tool_use && call.kind.tool() == entry.tool;
        if !calls.iter().any(known) {
            wrong.push(format!("nobody asked for this now: {entry:?}"));
        }
    }
    let mut needless = BTreeMap::from(Server::ALL.map(|server| (server.name(), 0)));
    for call in &calls {
        let entries: Vec<&Entry> =
            seen.ledger.iter().filter(|entry| entry.tool_use == call.id).collect();
        let begun = entries.iter().filter(|entry| entry.step == Step::Begun).count();
        let outcome = judge_call(call, &entries, begun, seen, cycle.kills());
        tally.calls += 1;
        tally.repeated += usize::from(begun > 1);
        match outcome {
            Ok(Outcome::Result) => tally.results += 1,
            Ok(Outcome::Unknown) => {
                tally.unknown += 1;
                if begun == 0 {
                    *needless.entry(call.server.name()).or_default() += 1;
                }
            }
            Err(what) => wrong.push(format!("{}: {what}", call.id)),
        }
    }
    for (server, count) in needless {
        tally.needless += count;
        if count > LANE * cycle.kills() {
            wrong
                .push(format!("{count} calls of {server} cannot all have been on their way to it"));
        }
    }
    wrong
}

enum Outcome {
    Result,
    Unknown,
}

fn judge_call(
    call: &Call,
    entries: &[&Entry],
    begun: usize,
    seen: &Witnessed,
    kills: usize,
) -> Result<Outcome, String> {
    let most = if call.is_repeatable() { 2 } else { 1 };
    if begun > most {
        return Err(format!("made {begun} times, and {most} is the most"));
    }
    let deliveries = seen.deliveries.get(&call.id).map(Vec::as_slice).unwrap_or_default();
    let accepted: Vec<&Delivery> = deliveries.iter().filter(|one| one.accepted).collect();
    let [answer] = accepted.as_slice() else {
        return Err(format!("answered {} times", accepted.len()));
    };
    if let Some(other) = deliveries.iter().find(|one| one.body != answer.body) {
        return Err(format!("two answers were posted: {} and {}", answer.body, other.body));
    }
    let body: Body = serde_json::from_str(&answer.body).map_err(|error| error.to_string())?;
    match (body.result, body.error) {
        (Some(text), None) => {
            let made = entries.iter().any(|entry| entry.step == Step::Done && entry.text == text);
            if made { Ok(Outcome::Result) } else { Err(format!("`{text}` was never done")) }
        }
        (None, Some(error)) if error.contains("OUTCOME_UNKNOWN") => {
            // It is made once more after the first kill, and only the second leaves it open.
            if call.is_repeatable() && kills < 2 {
                return Err(format!("it could have been made again: {error}"));
            }
            Ok(Outcome::Unknown)
        }
        (_, error) => Err(format!("neither a result nor an unknown outcome: {error:?}")),
    }
}

pub(super) fn percentile(times: &[Duration], percent: usize) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let place = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(place).copied().unwrap_or_default()
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { calls, results, unknown, needless, repeated, resumed, answered } = self;
        write!(
            f,
            "{calls} calls, {results} results, {unknown} of unknown outcome ({needless} of them \
             never reached the server), {repeated} made again; from a start to the first word of \
             an open run p50 {:?} p99 {:?}, to the answer of an open call p50 {:?} p99 {:?}",
            percentile(resumed, 50),
            percentile(resumed, 99),
            percentile(answered, 50),
            percentile(answered, 99),
        )
    }
}

mod tests {
    //! The judge lets nothing through.

    use rand::{SeedableRng as _, rngs::StdRng};
    use tokio::time::Instant;

    use super::*;

    fn entry(call: &Call, step: Step) -> Entry {
        let tool = call.kind.tool().to_owned();
        Entry {
            step,
            tool_use: call.id.clone(),
            tool,
            intent: None,
            text: format!("{} done", call.id),
        }
    }

    fn answer(body: &str) -> Delivery {
        Delivery { body: body.to_owned(), at: Instant::now(), accepted: true }
    }

    /// A cycle in which all went well.
    fn good() -> (Cycle, Witnessed) {
        let cycle = Cycle::draw(0, &mut StdRng::seed_from_u64(0));
        let mut seen = Witnessed { ledger: Vec::new(), deliveries: BTreeMap::new() };
        for call in cycle.runs.iter().flat_map(|run| &run.calls) {
            seen.ledger.extend([entry(call, Step::Begun), entry(call, Step::Done)]);
            let body = format!(r#"{{"toolUseId":"x","result":"{} done"}}"#, call.id);
            seen.deliveries.insert(call.id.clone(), vec![answer(&body)]);
        }
        (cycle, seen)
    }

    #[track_caller]
    fn check(change: impl FnOnce(&Call, &mut Witnessed), complaint: Option<&str>) {
        let (cycle, mut seen) = good();
        let mut calls = cycle.runs.iter().flat_map(|run| &run.calls);
        let call = calls.find(|call| !call.is_repeatable()).expect("one of eight");
        change(call, &mut seen);
        let wrong = judge(&cycle, &seen, &mut Tally::default());
        match complaint {
            None => assert!(wrong.is_empty(), "{wrong:?}"),
            Some(words) => {
                assert!(wrong.iter().any(|what| what.contains(words)), "{words}: {wrong:?}");
            }
        }
    }

    #[test]
    fn good_run_is_no_offence() {
        check(|_, _| (), None);
        let unknown = r#"{"error":"OUTCOME_UNKNOWN: it was cut off."}"#;
        check(
            |call, seen| drop(seen.deliveries.insert(call.id.clone(), vec![answer(unknown)])),
            None,
        );
    }

    #[test]
    fn each_offence_is_told() {
        check(|call, seen| seen.ledger.push(entry(call, Step::Begun)), Some("made 2 times"));
        check(|call, seen| drop(seen.deliveries.remove(&call.id)), Some("answered 0 times"));
        let second = |call: &Call, seen: &mut Witnessed| {
            let all = seen.deliveries.get_mut(&call.id).expect("it is answered");
            all.extend(all.first().cloned());
        };
        check(second, Some("answered 2 times"));
        let other = |call: &Call, seen: &mut Witnessed| {
            let refused = Delivery { accepted: false, ..answer("{}") };
            seen.deliveries.get_mut(&call.id).expect("it is answered").push(refused);
        };
        check(other, Some("two answers"));
        let never_done = |call: &Call, seen: &mut Witnessed| {
            seen.ledger.retain(|entry| entry.tool_use != call.id || entry.step == Step::Begun);
        };
        check(never_done, Some("never done"));
        let failed = |call: &Call, seen: &mut Witnessed| {
            seen.deliveries.insert(call.id.clone(), vec![answer(r#"{"error":"no"}"#)]);
        };
        check(failed, Some("neither"));
        let unasked = |call: &Call, seen: &mut Witnessed| {
            seen.ledger.push(Entry { tool_use: "tu_of_old".into(), ..entry(call, Step::Begun) });
        };
        check(unasked, Some("nobody asked"));
    }
}
