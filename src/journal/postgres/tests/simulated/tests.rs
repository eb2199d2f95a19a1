//! Whether what is simulated is what the statements say.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sha2::{Digest as _, Sha256};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Chance, Database, Fate, Rows, Server, serve};
use crate::journal::record::{CallKey, CallRecord, Change, Slot};
use crate::model::catalog::hex;
use crate::model::recovery::Stage;

/// Without its comments and spaces.
fn bare(text: &str) -> String {
    let lines = text.lines().map(|line| line.split_once("--").map_or(line, |(code, _)| code));
    lines.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
}

/// A change of a statement changes `statements.rs`, too; then the number here.
#[test]
fn the_statements_are_those_that_are_simulated() {
    let texts = [
        include_str!("../../sql/approvals.sql"),
        include_str!("../../sql/ask.sql"),
        include_str!("../../sql/beat.sql"),
        include_str!("../../sql/cancel.sql"),
        include_str!("../../sql/cancellations.sql"),
        include_str!("../../sql/claim_notices.sql"),
        include_str!("../../sql/settle_notices.sql"),
        include_str!("../../sql/take_over.sql"),
        include_str!("../../sql/take_waiting_run.sql"),
        include_str!("../../sql/owned_runs.sql"),
        include_str!("../../sql/decide.sql"),
        include_str!("../../sql/elsewhere.sql"),
        include_str!("../../sql/find.sql"),
        include_str!("../../sql/inherit.sql"),
        include_str!("../../sql/join.sql"),
        include_str!("../../sql/leave.sql"),
        include_str!("../../sql/write.sql"),
    ];
    let bytes: [u8; 32] = Sha256::digest(texts.map(bare).join("\n")).into();
    assert_eq!(hex(&bytes[..4]), "ad2603c8", "see statements.rs");
}

/// Nothing goes wrong.
struct Calm;

impl Chance for Calm {
    fn process(&self) -> usize {
        0
    }

    fn fate(&self, _of: usize, _statement: &'static str) -> Fate {
        Fate::default()
    }

    fn is_reached(&self, _of: usize) -> bool {
        true
    }

    fn step(&self, _what: String) {}

    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH
    }
}

fn connected(server: &Arc<Server>, of: usize) -> Database {
    let (asks, asked) = mpsc::channel(1);
    let closed = CancellationToken::new();
    let killed = server.connect().expect("the server is up");
    drop(server.runtime.spawn(serve(asked, killed, closed.clone())));
    Database { server: Arc::clone(server), of, asks, closed, within: Duration::from_secs(1) }
}

/// What a replica writes that has got the run in `epoch`; `None`: it is new.
fn rows(epoch: Option<i64>, changes: &[Change]) -> Rows {
    let mut rows = Rows::default();
    let epochs = epoch.map(|epoch| (Slot(1), Some(epoch))).into_iter().collect();
    changes.iter().for_each(|change| rows.add(change, &epochs, &Default::default()));
    rows
}

/// A statement may be on its way while another replica takes the run over, and sends the call.
#[tokio::test(start_paused = true)]
async fn the_earlier_owner_of_a_run_refuses_no_call_of_it() {
    let server = Server::new(Arc::new(Calm), Handle::current());
    let (earlier, later) = (connected(&server, 0), connected(&server, 1));
    let (a, b) = (earlier.join("a").await.expect("a"), later.join("b").await.expect("b"));
    let session_a = earlier.begin(a).await.expect("a's session").expect("a is a member");
    let session_b = later.begin(b).await.expect("b's session").expect("b is a member");
    let key = CallKey { slot: Slot(1), agent_run: None, tool_use: "tu".into() };
    let mut begins = crate::journal::tests::run(1, None);
    begins.push(Change::Call(key.clone(), CallRecord::received(1)));
    let begun = earlier.write((a, session_a), &rows(None, &begins)).await.expect("the run");
    assert!(begun.held.contains(&Slot(1)), "{begun:?}");
    let released = rows(Some(1), &[Change::Release(Slot(1))]);
    earlier.write((a, session_a), &released).await.expect("the handover");
    let runs = later.take_over(b, &[], &[]).await.expect("the takeover");
    assert_eq!(runs, [(Slot(1), 3)]);

    let refused = [Change::Refuse(key, "{}".into())];
    let verdict = earlier.write((a, session_a), &rows(Some(1), &refused)).await.expect("no fault");
    assert!(verdict.lives && verdict.first.is_empty(), "{verdict:?}");
    let verdict = later.write((b, session_b), &rows(Some(3), &refused)).await.expect("the answer");
    assert_eq!(verdict.first.len(), 1, "{verdict:?}");
}

/// The driver of an eval and that of its agent run read one call, at two replicas.
#[tokio::test(start_paused = true)]
async fn refusal_of_a_call_that_another_driver_has_claimed_is_no_answer() {
    let server = Server::new(Arc::new(Calm), Handle::current());
    let database = connected(&server, 0);
    let member = database.join("a").await.expect("a");
    let session = database.begin(member).await.expect("a session").expect("a is a member");
    let call = |slot, tool_use: &str| {
        let claim = Some(("acme".into(), "run".into()));
        let key = CallKey { slot: Slot(slot), agent_run: None, tool_use: tool_use.into() };
        (key, CallRecord { claim, ..CallRecord::received(1) })
    };
    let refusal = |slot, tool_use| {
        let (key, record) = call(slot, tool_use);
        let record = CallRecord { stage: Stage::Answered, ..record };
        [Change::Call(key.clone(), record), Change::Refuse(key, "{}".into())]
    };
    let (key, mut sent) = call(1, "sent");
    sent.dispatch(None);
    let first = crate::journal::tests::run(1, None).into_iter();
    let first = first.chain([Change::Dispatch(key, sent)]).chain(refusal(1, "refused"));
    let first = rows(None, &first.collect::<Vec<_>>());
    let verdict = database.write((member, session), &first).await.expect("no fault");
    assert_eq!(verdict.first.len(), 2, "a dispatch and an answer: {verdict:?}");

    let second = crate::journal::tests::run(2, None).into_iter();
    let second = second.chain(refusal(2, "sent")).chain(refusal(2, "refused"));
    let second = second.chain(refusal(2, "free"));
    let second = rows(None, &second.collect::<Vec<_>>());
    let verdict = database.write((member, session), &second).await.expect("no fault");
    let first: Vec<_> = verdict.first.iter().map(|key| String::from_utf8_lossy(key)).collect();
    assert!(first.len() == 1 && first[0].contains("free"), "{first:?}");
}
