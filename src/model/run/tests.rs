//! Every call of the bridge's is made once, in whatever order and how often events come.

mod restarts;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::model::offer::Offer;
use crate::model::offer::tests::server;
use crate::model::spec::{Selection, Spec};

fn table() -> Arc<Table> {
    let offer = Arc::new(Offer::build(&[server("fs", &[r#"{"name":"ls"}"#])]));
    let spec = Spec::read(RunKind::Agent, Bytes::from_static(b"{}")).unwrap();
    Arc::new(spec.inject(&offer, &Selection::All).unwrap().table)
}

fn agent_run() -> Run {
    Run::new(RunKind::Agent, table())
}

fn call(seq: u64, tool_use: &str, name: &str, kind: &str, args: &str) -> Event {
    let data = format!(
        r#"{{"seq":{seq},"type":"local_tool_call","data":{{"toolUseId":"{tool_use}","name":"{name}","kind":"{kind}","args":{args}}}}}"#
    );
    Event::read(None, None, &data).unwrap()
}

fn other(seq: u64, kind: &str, data: &str) -> Event {
    Event::read(None, None, &format!(r#"{{"seq":{seq},"type":"{kind}","data":{data}}}"#)).unwrap()
}

fn work(step: Step) -> CallAction {
    match step {
        Step::Mask(_, work) => work,
        other => panic!("not a call of the bridge's: {other:?}"),
    }
}

#[test]
fn a_call_is_made_and_its_repetition_is_not() {
    let mut run = agent_run();
    let event = || call(3, "tu", "fs_ls", "mcp_local", "{}");
    assert!(matches!(work(run.on_event(event())), CallAction::Make(_)));
    assert_eq!(run.on_event(event()), Step::Skip);
    assert_eq!(work(run.on_event(call(4, "tu", "fs_ls", "mcp_local", "{}"))), CallAction::Nothing);
    assert_eq!(run.last_seq(), 4);
    assert!(run.owns(&"run".into(), &"tu".into()));
}

#[test]
fn calls_that_are_forgotten_are_still_counted() {
    let mut run = agent_run();
    run.on_event(call(1, "tu_1", "fs_ls", "mcp_local", "{}"));
    let owns = |run: &Run| run.owns(&"run_1".into(), &"tu_1".into());
    assert!(owns(&run));
    run.forget_calls();
    run.forget_calls();
    assert_eq!((run.calls(), owns(&run)), (1, false));
}

#[test]
fn a_used_id_with_other_arguments_is_never_run() {
    let mut run = agent_run();
    run.on_event(call(1, "tu", "fs_ls", "mcp_local", "{}"));
    let again = run.on_event(call(2, "tu", "fs_ls", "mcp_local", r#"{"rm":1}"#));
    assert_eq!(work(again), CallAction::Altered);
}

#[test]
fn an_answered_call_is_not_made() {
    let mut run = agent_run();
    run.on_event(other(1, "local_tool_result_in", r#"{"toolUseId":"tu"}"#));
    assert!(!run.owns(&"run".into(), &"tu".into()));
    let step = run.on_event(call(2, "tu", "fs_ls", "mcp_local", "{}"));
    assert_eq!(work(step), CallAction::Nothing);
}

#[test]
fn a_name_of_the_apps_is_the_apps() {
    let mut run = agent_run();
    assert_eq!(run.on_event(call(1, "tu", "own", "local", "{}")), Step::Relay);
    assert!(!run.owns(&"run".into(), &"tu".into()));
}

#[test]
fn another_kind_is_refused() {
    for kind in ["local", "a2a_local", "quantum"] {
        let mut run = agent_run();
        let step = run.on_event(call(1, "tu", "fs_ls", kind, "{}"));
        assert!(matches!(work(step), CallAction::Refuse(_)), "{kind}");
    }
}

#[test]
fn a_call_that_comes_late_is_made_once() {
    let mut run = agent_run();
    run.on_event(other(9, "assistant_delta", "{}"));
    let late = || call(5, "tu", "fs_ls", "mcp_local", "{}");
    assert!(matches!(work(run.on_event(late())), CallAction::Make(_)));
    assert_eq!((run.on_event(late()), run.last_seq()), (Step::Skip, 9));
    // What is the app's was handed on before, as far as anyone can tell.
    assert_eq!(run.on_event(call(6, "own", "own", "local", "{}")), Step::Skip);
    assert_eq!(run.on_event(other(7, "assistant_delta", "{}")), Step::Skip);
}

#[test]
fn a_late_call_is_held_like_any_other_while_the_past_is_read() {
    let mut run = Run::with_past(RunKind::Agent, table());
    run.on_event(other(9, "assistant_delta", "{}"));
    for id in ["done", "open"] {
        assert_eq!(work(run.on_event(call(5, id, "fs_ls", "mcp_local", "{}"))), CallAction::Hold);
    }
    // Its answer may come late as well.
    assert_eq!(
        run.on_event(other(6, "local_tool_result_in", r#"{"toolUseId":"done"}"#)),
        Step::Skip
    );
    let settled = run.settle();
    let ids: Vec<&str> = settled.iter().map(|(call, _)| call.tool_use.as_str()).collect();
    assert_eq!(ids, ["open"]);
}

#[test]
fn a_call_that_lies_in_a_past_that_was_read_may_have_been_answered() {
    let mut run = Run::with_past(RunKind::Agent, table());
    run.on_event(other(9, "assistant_delta", "{}"));
    assert!(run.settle().is_empty());
    let ls = |seq, id| call(seq, id, "fs_ls", "mcp_local", "{}");
    assert!(matches!(work(run.on_event(ls(5, "late"))), CallAction::Doubtful(_)));
    assert!(matches!(work(run.on_event(ls(10, "new"))), CallAction::Make(_)));
}

#[test]
fn a_late_call_is_answered_after_a_restart_too() {
    let mut run = Run::resumed(RunKind::Agent, table(), (3, 5), [], Vec::new());
    let ls = |seq, id| call(seq, id, "fs_ls", "mcp_local", "{}");
    // Others may have answered it, before the bridge had the run.
    assert_eq!(work(run.on_event(ls(2, "theirs"))), CallAction::Hold);
    assert_eq!(work(run.on_event(ls(3, "answered"))), CallAction::Hold);
    let answer = other(4, "local_tool_result_in", r#"{"toolUseId":"answered"}"#);
    assert_eq!(run.on_event(answer), Step::Skip);
    // The bridge has not made it: it would be in the journal.
    assert_eq!(work(run.on_event(ls(4, "late"))), CallAction::Hold);
    run.on_event(other(9, "assistant_delta", "{}"));
    assert_eq!(work(run.on_event(ls(8, "later"))), CallAction::Hold);
    let settled = run.settle();
    let settled: Vec<_> =
        settled.iter().map(|(call, work)| (call.tool_use.as_str(), work)).collect();
    assert!(
        matches!(
            settled[..],
            [
                ("theirs", CallAction::Doubtful(_)),
                ("late", CallAction::Make(_)),
                ("later", CallAction::Make(_))
            ]
        ),
        "{settled:?}"
    );
    assert!(matches!(work(run.on_event(ls(1, "latest"))), CallAction::Doubtful(_)));
    assert_eq!(run.on_event(ls(4, "late")), Step::Skip);
}

#[test]
fn a_last_event_ends_its_run_whatever_its_number() {
    for seq in [1, 9, 10] {
        let mut run = agent_run();
        run.on_event(other(9, "assistant_delta", "{}"));
        assert_eq!(run.on_event(other(1, "run_completed", "{}")), Step::Skip);
        assert_eq!(
            run.on_event(other(seq, "result", "{}")),
            Step::Finish(RunEnding::Result),
            "{seq}"
        );
    }
}

#[test]
fn a_run_that_is_taken_up_again_makes_no_call_twice() {
    let mut run = agent_run();
    run.on_event(call(1, "made", "fs_ls", "mcp_local", "{}"));
    run.hold();
    assert_eq!(
        work(run.on_event(call(2, "made", "fs_ls", "mcp_local", "{}"))),
        CallAction::Nothing
    );
    assert_eq!(work(run.on_event(call(3, "new", "fs_ls", "mcp_local", "{}"))), CallAction::Hold);
    assert_eq!(run.settle().len(), 1);
}

#[test]
fn arguments_that_are_no_object_reach_no_tool() {
    for args in ["\"(larger than the bridge reads)\"", "[{}]", "1"] {
        let step = agent_run().on_event(call(1, "tu", "fs_ls", "mcp_local", args));
        let CallAction::Refuse(why) = work(step) else { panic!("{args} is made") };
        assert!(why.starts_with("tool_input_invalid"), "{why}");
    }
}

#[test]
fn terminal_events_finish() {
    for (kind, ending) in [
        ("result", RunEnding::Result),
        ("error", RunEnding::Error),
        ("cancelled", RunEnding::Cancelled),
    ] {
        assert_eq!(agent_run().on_event(other(1, kind, "{}")), Step::Finish(ending));
    }
}

proptest! {
    /// Whatever is cut, replayed and repeated: each call is made exactly once.
    #[test]
    fn each_call_is_made_once(
        calls in 1usize..8,
        cuts in prop::collection::vec((0u64..8, 1u64..12), 0..8),
    ) {
        let log: Vec<u64> = (1..=calls as u64).collect();
        let mut run = agent_run();
        let mut made = HashMap::<u64, usize>::default();
        let deliver = |run: &mut Run, made: &mut HashMap<u64, usize>, from: u64, count: u64| {
            for seq in log.iter().filter(|seq| **seq > from).take(count as usize) {
                let id = format!("tu{seq}");
                let step = run.on_event(call(*seq, &id, "fs_ls", "mcp_local", "{}"));
                if matches!(step, Step::Mask(_, CallAction::Make(_))) {
                    *made.entry(*seq).or_default() += 1;
                }
            }
        };
        for (rewind, count) in cuts {
            let from = run.last_seq().saturating_sub(rewind);
            deliver(&mut run, &mut made, from, count);
        }
        let rest = run.last_seq();
        deliver(&mut run, &mut made, rest, u64::MAX >> 1);
        prop_assert_eq!(made.len(), calls);
        prop_assert!(made.values().all(|times| *times == 1));
    }
}

/// A call of an eval as the wire has it: flat, and mostly without a number.
fn eval_call(seq: Option<u64>, agent_run: &str, tool_use: &str) -> Event {
    let seq = seq.map_or(String::new(), |seq| format!(r#""seq":{seq},"#));
    let agent_run = match agent_run {
        "" => String::new(),
        id => format!(r#""agentRunId":"{id}","#),
    };
    let data = format!(
        r#"{{{seq}"type":"local_tool_call",{agent_run}"toolUseId":"{tool_use}","name":"fs_ls","kind":"mcp_local"}}"#
    );
    Event::read(None, None, &data).unwrap()
}

fn eval() -> Run {
    Run::new(RunKind::Eval, table())
}

#[test]
fn the_agent_runs_of_an_eval_have_calls_of_their_own() {
    let mut run = eval();
    for agent_run in ["a", "b"] {
        let step = run.on_event(eval_call(None, agent_run, "tu"));
        assert!(matches!(work(step), CallAction::Make(_)), "{agent_run}");
        let step = run.on_event(eval_call(None, agent_run, "tu"));
        assert_eq!(work(step), CallAction::Nothing, "{agent_run} again");
        assert!(run.owns(&agent_run.into(), &"tu".into()));
    }
    assert!(!run.owns(&"c".into(), &"tu".into()));
}

#[test]
fn a_number_that_an_eval_uses_twice_hides_no_call() {
    let mut run = eval();
    run.on_event(eval_call(Some(7), "a", "tu1"));
    assert!(matches!(work(run.on_event(eval_call(Some(1), "b", "tu2"))), CallAction::Make(_)));
    assert_eq!(run.on_event(eval_call(Some(1), "b", "tu2")), Step::Skip);
}

#[test]
fn an_evals_answer_that_names_no_run_settles_no_call_after_it() {
    let mut run = eval();
    let unnamed = r#"{"type":"local_tool_result_in","toolUseId":"tu"}"#;
    let unnamed = || Event::read(None, None, unnamed).unwrap();
    assert!(matches!(work(run.on_event(eval_call(None, "a", "tu"))), CallAction::Make(_)));
    run.on_event(unnamed());
    assert_eq!(work(run.on_event(eval_call(None, "a", "tu"))), CallAction::Nothing, "it was taken");
    assert!(matches!(work(run.on_event(eval_call(None, "b", "tu"))), CallAction::Make(_)));
}

#[test]
fn a_call_that_names_no_agent_run_goes_astray() {
    for agent_run in ["", "a/../b", "..", "a?b"] {
        let step = eval().on_event(eval_call(None, agent_run, "tu"));
        assert_eq!(work(step), CallAction::Astray, "{agent_run}");
    }
}

#[test]
fn the_end_of_an_agent_run_ends_no_eval() {
    let mut run = eval();
    assert_eq!(run.on_event(other(1, "result", r#"{"agentRunId":"a"}"#)), Step::Relay);
    assert_eq!(run.on_event(other(2, "run_completed", "{}")), Step::Finish(RunEnding::Result));
    assert_eq!(agent_run().on_event(other(1, "run_completed", "{}")), Step::Relay);
}

#[test]
fn an_eval_that_replays_from_its_start_says_nothing_twice() {
    let progress = || Event::read(None, None, r#"{"type":"case_started","case":1}"#).unwrap();
    let mut run = eval();
    run.opened();
    assert_eq!(run.on_event(progress()), Step::Relay);
    assert!(matches!(work(run.on_event(eval_call(None, "a", "tu"))), CallAction::Make(_)));
    run.opened();
    assert_eq!(run.on_event(progress()), Step::Skip);
    assert_eq!(run.on_event(eval_call(None, "a", "tu")), Step::Skip);
    assert_eq!(run.on_event(progress()), Step::Relay, "the same words, but news");
}

#[test]
fn call_that_was_answered_before_is_not_made() {
    let mut run = Run::with_past(RunKind::Agent, table());
    for (seq, id) in [(1, "done"), (2, "open")] {
        let step = run.on_event(call(seq, id, "fs_ls", "mcp_local", "{}"));
        assert_eq!(work(step), CallAction::Hold);
        assert!(run.owns(&"run".into(), &id.into()));
    }
    run.on_event(other(3, "local_tool_result_in", r#"{"toolUseId":"done"}"#));
    let settled = run.settle();
    let ids: Vec<&str> = settled.iter().map(|(call, _)| call.tool_use.as_str()).collect();
    assert_eq!(ids, ["open"]);
    assert!(matches!(settled[0].1, CallAction::Make(_)));
    assert!(!run.has_past() && run.settle().is_empty());
    let step = run.on_event(call(4, "now", "fs_ls", "mcp_local", "{}"));
    assert!(matches!(work(step), CallAction::Make(_)), "the present is not held");
}

#[test]
fn a_past_that_ends_leaves_nothing_to_do() {
    let mut run = Run::with_past(RunKind::Agent, table());
    run.on_event(call(1, "tu", "fs_ls", "mcp_local", "{}"));
    assert_eq!(run.on_event(other(2, "cancelled", "{}")), Step::Finish(RunEnding::Cancelled));
    assert!(run.settle().is_empty());
}

/// One event of an eval's log: the call of an agent run, its answer, or something else.
fn eval_event(number: usize, (agent_run, what): (usize, u8)) -> Event {
    let (agent_run, tool_use) = (format!("r{agent_run}"), format!("tu{number}"));
    let data = match what {
        0 => return eval_call(None, &agent_run, &tool_use),
        1 => format!(
            r#"{{"type":"local_tool_result_in","agentRunId":"{agent_run}","toolUseId":"{tool_use}"}}"#
        ),
        _ => r#"{"type":"progress"}"#.to_owned(),
    };
    Event::read(None, None, &data).unwrap()
}

proptest! {
    /// However an eval's stream is cut, and whether it then begins anew or goes on (with some of
    /// its events again): each call of each agent run is made exactly once.
    #[test]
    fn each_call_of_an_eval_is_made_once(
        log in prop::collection::vec((0usize..3, 0u8..3), 1..20),
        cuts in prop::collection::vec((any::<bool>(), 0usize..4, 1usize..12), 0..8),
    ) {
        let mut run = eval();
        let mut made = HashMap::<String, usize>::default();
        let mut heard = 0;
        let rest = (true, 0, log.len());
        for (anew, rewind, count) in cuts.into_iter().chain([rest]) {
            let from = if anew { 0 } else { heard.min(log.len()).saturating_sub(rewind) };
            run.opened();
            for (number, event) in log.iter().enumerate().skip(from).take(count) {
                heard = heard.max(number + 1);
                match run.on_event(eval_event(number, *event)) {
                    Step::Mask(call, CallAction::Make(_)) => {
                        *made.entry(call.tool_use.to_string()).or_default() += 1;
                    }
                    Step::Mask(_, other) => prop_assert_eq!(other, CallAction::Nothing),
                    _ => {}
                }
            }
        }
        let calls = log.iter().enumerate().filter(|(_, (_, what))| *what == 0);
        let expected: HashMap<String, usize> =
            calls.map(|(number, _)| (format!("tu{number}"), 1)).collect();
        prop_assert_eq!(made, expected);
    }

    /// However the stream of a run that was attached is cut, and wherever the present begins: what
    /// the past answered is not made, and everything else is, once.
    #[test]
    fn an_attached_run_makes_what_its_past_left_open(
        answers in prop::collection::vec((any::<bool>(), 0usize..4), 1..10),
        cuts in prop::collection::vec((0u64..6, 1usize..8), 0..6),
        later in 0usize..5,
    ) {
        // A call each, and the answers of some a few calls later.
        let mut log: Vec<(bool, usize)> = Vec::new();
        for call in 0..answers.len() {
            log.push((true, call));
            let due = |(of, (answered, after)): (usize, &(bool, usize))| {
                (*answered && of + after == call).then_some((false, of))
            };
            log.extend(answers.iter().enumerate().filter_map(due));
        }
        for (of, (answered, after)) in answers.iter().enumerate() {
            if *answered && of + after >= answers.len() {
                log.push((false, of));
            }
        }
        let past = log.len();
        log.extend((answers.len()..answers.len() + later).map(|call| (true, call)));

        let mut run = Run::with_past(RunKind::Agent, table());
        let mut made = HashMap::<String, usize>::default();
        let mut count = |call: &Call, work: &CallAction| {
            if matches!(work, CallAction::Make(_)) {
                *made.entry(call.tool_use.to_string()).or_default() += 1;
            }
        };
        let hear = |run: &mut Run, from: u64, until: usize| {
            let mut heard = Vec::new();
            for (at, (is_call, of)) in log.iter().enumerate().take(until).skip(from as usize) {
                let (seq, id) = (at as u64 + 1, format!("tu{of}"));
                let event = if *is_call {
                    call(seq, &id, "fs_ls", "mcp_local", "{}")
                } else {
                    other(seq, "local_tool_result_in", &format!(r#"{{"toolUseId":"{id}"}}"#))
                };
                if let Step::Mask(call, work) = run.on_event(event) {
                    heard.push((call, work));
                }
            }
            heard
        };
        for (rewind, count) in cuts {
            let from = run.last_seq().saturating_sub(rewind);
            let until = past.min(from as usize + count);
            for (_, work) in hear(&mut run, from, until) {
                prop_assert!(!matches!(work, CallAction::Make(_)), "nothing is made before the present");
            }
        }
        let from = run.last_seq();
        hear(&mut run, from, past);
        run.settle().iter().for_each(|(call, work)| count(call, work));
        hear(&mut run, past as u64, log.len()).iter().for_each(|(call, work)| count(call, work));

        let open = answers.iter().enumerate().filter(|(_, (answered, _))| !answered);
        let expected: HashMap<String, usize> = open
            .map(|(of, _)| of)
            .chain(answers.len()..answers.len() + later)
            .map(|of| (format!("tu{of}"), 1))
            .collect();
        prop_assert_eq!(made, expected);
    }
}
