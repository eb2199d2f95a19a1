//! A crash between what is kept of a long call and its first answer.

use std::collections::BTreeSet;

use super::*;
use crate::journal::record::{CallKey, CallRecord, RunRecord, Slot, StoredCall};
use crate::model::call::CallOwner;
use crate::model::ids::{BackendName, RunId, RunKind};
use crate::model::offer::{Offer, RefKind};

pub(super) fn run(id: &str, agent_run: &str, tool_use: &str, stage: Stage) -> StoredRun {
    let table = Table::assumed(&Offer::default(), BTreeSet::new());
    let (table, _) = table.stored();
    let slot = Slot(1);
    let record = RunRecord {
        key: RunKey { workspace: "acme".into(), kind: RunKind::Agent, run: id.into() },
        app: "a".into(),
        session: None,
        callers_credential: false,
        table,
        has_past: false,
        past_is_lost: false,
        read_to: 0,
        started_at: 1,
        needs: Vec::new(),
        ended_at: None,
        given_up: false,
        refused: false,
        trace: None,
    };
    let call = CallRecord { stage, ..CallRecord::received(1) };
    let agent_run = Some(agent_run).filter(|run| !run.is_empty()).map(RunId::from);
    let tool_use = tool_use.into();
    let call =
        StoredCall { key: CallKey { slot, agent_run, tool_use }, record: call, answer: None };
    StoredRun { slot, record, routes: Some(Arc::default()), calls: vec![call] }
}

#[test]
fn a_long_call_that_nobody_was_told_of_is_its_runs() {
    let long = |origin: Option<(&str, &str)>| LongRecord {
        slot: None,
        app: "a".into(),
        of: CallOwner::App,
        tool: "fs_rm".to_owned(),
        backend: BackendName::parse("fs").unwrap(),
        kind: RefKind::McpLocal,
        target: "rm".into(),
        origin: origin.map(|(run, tool_use)| (run.into(), tool_use.into())),
        handle: None,
        peer: None,
        arguments: None,
        begun_at: 1,
        begun_up: None,
        ended: None,
    };
    let received = Stage::Received;
    let answered = Stage::Answered;
    struct Case {
        run: StoredRun,
        origin: Option<(&'static str, &'static str)>,
        expected: bool,
    }
    for Case { run, origin, expected } in [
        Case { run: run("r", "", "t", received), origin: Some(("r", "t")), expected: true },
        Case { run: run("r", "", "t", answered), origin: Some(("r", "t")), expected: false },
        Case {
            run: run("r", "", "t", Stage::Dispatched),
            origin: Some(("r", "t")),
            expected: false,
        },
        Case { run: run("r", "", "t", received), origin: Some(("r", "u")), expected: false },
        Case { run: run("r", "", "t", received), origin: Some(("q", "t")), expected: false },
        Case { run: run("r", "", "t", received), origin: None, expected: false },
        Case { run: run("eval", "r", "t", received), origin: Some(("r", "t")), expected: true },
        Case { run: run("eval", "r", "t", received), origin: Some(("eval", "t")), expected: false },
    ] {
        let row = format!("{run:?} {origin:?}");
        assert_eq!(is_made_by_its_run(&long(origin), &[run]), expected, "{row}");
    }
}
