//! Every call of the bridge's is made once, in whatever order and how often events come.

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::model::{
    offer::{Offer, tests::server},
    spec::{Selection, Spec},
};

fn table() -> Arc<Table> {
    let offer = Arc::new(Offer::build(&[server("fs", &[r#"{"name":"ls"}"#])]));
    let spec = Spec::read(Bytes::from_static(b"{}")).unwrap();
    Arc::new(spec.inject(&offer, &|_| true, &Selection::All).unwrap().table)
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

fn work(step: Step) -> Work {
    match step {
        Step::Mask(_, work) => work,
        other => panic!("not a call of the bridge's: {other:?}"),
    }
}

#[test]
fn a_call_is_made_and_its_repetition_is_not() {
    let mut run = agent_run();
    let event = || call(3, "tu", "fs_ls", "mcp_local", "{}");
    assert!(matches!(work(run.on_event(event())), Work::Make(_)));
    assert_eq!(run.on_event(event()), Step::Skip);
    assert_eq!(work(run.on_event(call(4, "tu", "fs_ls", "mcp_local", "{}"))), Work::Nothing);
    assert_eq!(run.last_seq(), 4);
    assert!(run.owns(&"run".into(), &"tu".into()));
}

#[test]
fn a_used_id_with_other_arguments_is_never_run() {
    let mut run = agent_run();
    run.on_event(call(1, "tu", "fs_ls", "mcp_local", "{}"));
    let again = run.on_event(call(2, "tu", "fs_ls", "mcp_local", r#"{"rm":1}"#));
    assert_eq!(work(again), Work::Altered);
}

#[test]
fn an_answered_call_is_not_made() {
    let mut run = agent_run();
    run.on_event(other(1, "local_tool_result_in", r#"{"toolUseId":"tu"}"#));
    assert!(!run.owns(&"run".into(), &"tu".into()));
    let step = run.on_event(call(2, "tu", "fs_ls", "mcp_local", "{}"));
    assert_eq!(work(step), Work::Nothing);
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
        assert!(matches!(work(step), Work::Refuse(_)), "{kind}");
    }
}

#[test]
fn terminal_events_finish() {
    for kind in ["result", "error", "cancelled"] {
        assert_eq!(agent_run().on_event(other(1, kind, "{}")), Step::Finish);
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
        let mut made = HashMap::<u64, usize>::new();
        let deliver = |run: &mut Run, made: &mut HashMap<u64, usize>, from: u64, count: u64| {
            for seq in log.iter().filter(|seq| **seq > from).take(count as usize) {
                let id = format!("tu{seq}");
                let step = run.on_event(call(*seq, &id, "fs_ls", "mcp_local", "{}"));
                if matches!(step, Step::Mask(_, Work::Make(_))) {
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
