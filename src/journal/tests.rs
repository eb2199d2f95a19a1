//! What was written is there again, in whatever state the file was left.

mod conversations;
mod damage;
mod desk;
mod displaced;
mod full;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::PermissionsExt as _;

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::value::RawValue;

use tokio::time::Instant;

use super::batch::{Batch, gather};
use super::health::Queue;
use super::record::{
    CallKey, CallRecord, ConversationRecord, Key, Millis, OwnedKey, OwnerRecord, RequestRecord,
    RunRecord, SessionRecord, Slot, StoredCall, StoredRun,
};
use super::store::Store;
use super::*;
use crate::model::ids::{AppName, RunKey, RunKind};
use crate::model::offer::RefKind;
use crate::model::recovery::Stage;
use crate::model::routes::Routes;
use crate::model::spec::Table;

pub(super) fn run(slot: u64, ended_at: Option<Millis>) -> Vec<Change> {
    let (table, routes) = (Table::empty().stored().0, Routes::default().stored().clone());
    let record = RunRecord {
        key: RunKey {
            workspace: "w".into(),
            kind: RunKind::Agent,
            run: format!("run_{slot}").into(),
        },
        app: "default".into(),
        session: None,
        callers_credential: false,
        table,
        has_past: false,
        past_is_lost: false,
        read_to: 0,
        started_at: 1,
        needs: Vec::new(),
        ended_at,
        given_up: false,
        refused: false,
        trace: None,
    };
    vec![Change::Routes(routes), Change::Run(Slot(slot), record)]
}

fn key(slot: u64, tool_use: &str) -> CallKey {
    CallKey { slot: Slot(slot), agent_run: None, tool_use: tool_use.into() }
}

fn call(slot: u64, tool_use: &str, stage: Stage) -> Change {
    let args = RawValue::from_string("{\"n\" : 1e400}".to_owned()).unwrap();
    let record = CallRecord {
        stage,
        attempts: 1,
        handle: Some("h".to_owned()),
        peer: None,
        seq: 7,
        received_at: 2,
        received_up: None,
        content: u64::MAX,
        name: "fs_ls".to_owned(),
        kind: Some(RefKind::McpLocal),
        mcp_server: None,
        args: Some(args),
        claim: None,
        is_others: false,
    };
    Change::Call(key(slot, tool_use), record)
}

fn conversation(context: &str, used_at: Millis) -> ConversationRecord {
    ConversationRecord { context: Some(context.to_owned()), task: None, used_at }
}

async fn write(journal: &Journal, changes: Vec<Change>) {
    journal.commit(changes).await.unwrap();
}

#[tokio::test]
async fn written_records_are_there_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let (journal, kept) = Journal::open(&path, false).unwrap();
    assert!(kept.runs.is_empty());
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "its owner's alone");
    write(&journal, run(1, None)).await;
    write(&journal, vec![call(1, "tu_1", Stage::Dispatched)]).await;
    let body = Bytes::from_static(b"{\"result\":\"\xc3\xa9\"}");
    let answered = vec![call(1, "tu_2", Stage::Answered), Change::Answer(key(1, "tu_2"), body)];
    write(&journal, answered).await;
    let tools = Some(RawValue::from_string("[ 1.0 ]".to_owned()).unwrap());
    let session = SessionRecord {
        app: "default".into(),
        tools,
        selection: Some(vec!["fs".to_owned()]),
        table: Table::empty().stored().0,
        created_at: 3,
    };
    journal.write(vec![Change::Session(("w".into(), "s".into()), session)]);
    let owned: OwnedKey = ("w".into(), "agent-runs".to_owned(), "run_9".to_owned());
    let eval = Some("eval_1".into());
    let owner = OwnerRecord { app: "a".into(), attached: false, eval, message: None, since: 4 };
    journal.write(vec![Change::Owner(owned.clone(), owner.clone())]);
    let asked = (AppName::from("a"), "\"k\"".to_owned());
    let answer = Some(RawValue::from_string("{\"n\" : 1e400}".to_owned()).unwrap());
    let request = RequestRecord { begun_at: 5, answer, ..RequestRecord::new("d".to_owned()) };
    journal.write(vec![Change::Request(asked.clone(), request)]);
    let conversation = conversation("c", clock::millis());
    journal.write(vec![Change::Conversation("agent r".to_owned(), conversation.clone())]);
    journal.close();

    let (journal, kept) = Journal::open(&path, false).unwrap();
    let [only] = kept.runs.as_slice() else { panic!("{kept:?}") };
    assert_eq!((only.slot, only.record.key.run.as_str()), (Slot(1), "run_1"));
    let [first, second] = only.calls.as_slice() else { panic!("{only:?}") };
    assert_eq!((first.key.clone(), first.record.stage), (key(1, "tu_1"), Stage::Dispatched));
    assert_eq!(first.record.args.as_ref().unwrap().get(), "{\"n\" : 1e400}");
    assert_eq!((first.record.content, first.record.seq), (u64::MAX, 7));
    assert_eq!(second.answer.as_deref(), Some("{\"result\":\"é\"}".as_bytes()));
    assert_eq!(kept.sessions[0].record.tools.as_ref().unwrap().get(), "[ 1.0 ]");
    assert_eq!(kept.sessions[0].key, ("w".into(), "s".into()));
    assert_eq!(kept.owners, [(owned.clone(), owner)]);
    let [(of, request)] = kept.requests.as_slice() else { panic!("{kept:?}") };
    assert_eq!((of, &*request.digest, request.begun_at), (&asked, "d", 5));
    assert_eq!(request.answer.as_ref().unwrap().get(), "{\"n\" : 1e400}");
    assert_eq!(journal.take_conversations("other"), []);
    assert_eq!(journal.take_conversations("agent"), [("agent r".to_owned(), conversation)]);
    assert_eq!(journal.take_conversations("agent"), [], "it goes on from there");

    write(&journal, vec![Change::Forget(Key::Answer(key(1, "tu_2")))]).await;
    write(&journal, run(2, Some(5))).await;
    write(&journal, vec![call(2, "tu_1", Stage::Closed)]).await;
    write(&journal, vec![Change::Forget(Key::Calls(Slot(1)))]).await;
    write(&journal, vec![Change::Forget(Key::Session(("w".into(), "s".into())))]).await;
    write(&journal, vec![Change::Forget(Key::Owner(owned))]).await;
    write(&journal, vec![Change::Forget(Key::Request(asked))]).await;
    write(&journal, vec![Change::Forget(Key::Conversation("agent r".to_owned()))]).await;
    journal.close();
    let (journal, kept) = Journal::open(&path, false).unwrap();
    assert_eq!(journal.take_conversations(""), []);
    assert!(kept.sessions.is_empty() && kept.owners.is_empty() && kept.requests.is_empty());
    assert_eq!(kept.runs.iter().map(|run| run.calls.len()).collect::<Vec<_>>(), [0, 1]);
    write(&journal, vec![Change::ForgetRun(Slot(2)), Change::ForgetRun(Slot(1))]).await;
    journal.close();
    assert!(Journal::open(&path, false).unwrap().1.runs.is_empty());
}

/// What the journal is told, and what becomes of it meanwhile.
#[derive(Debug, Clone)]
enum Step {
    Run(u64),
    Call(u64, u8),
    Answer(u64, u8),
    ForgetAnswer(u64, u8),
    ForgetCalls(u64),
    ForgetRun(u64),
    /// A new file takes the place of this one.
    Renew,
    /// A crash in the middle of the next write, which leaves so much of it.
    Crash(u8),
}

/// What is kept, in the simplest form: of each run, its calls, and whether they are answered.
type Model = BTreeMap<u64, BTreeMap<u8, bool>>;

impl Step {
    fn any() -> impl Strategy<Value = Self> {
        let (slot, id) = (1..4_u64, 0..3_u8);
        prop_oneof![
            3 => slot.clone().prop_map(Self::Run),
            6 => (slot.clone(), id.clone()).prop_map(|(slot, id)| Self::Call(slot, id)),
            4 => (slot.clone(), id.clone()).prop_map(|(slot, id)| Self::Answer(slot, id)),
            2 => (slot.clone(), id).prop_map(|(slot, id)| Self::ForgetAnswer(slot, id)),
            1 => slot.clone().prop_map(Self::ForgetCalls),
            1 => slot.prop_map(Self::ForgetRun),
            1 => Just(Self::Renew),
            1 => any::<u8>().prop_map(Self::Crash),
        ]
    }

    fn changes(&self) -> Vec<Change> {
        let name = |id: u8| format!("tu_{id}");
        match *self {
            Self::Run(slot) => run(slot, None),
            Self::Call(slot, id) => vec![call(slot, &name(id), Stage::Dispatched)],
            Self::Answer(slot, id) => {
                let answer = Change::Answer(key(slot, &name(id)), Bytes::from_static(b"{}"));
                vec![call(slot, &name(id), Stage::Answered), answer]
            }
            Self::ForgetAnswer(slot, id) => vec![Change::Forget(Key::Answer(key(slot, &name(id))))],
            Self::ForgetCalls(slot) => vec![Change::Forget(Key::Calls(Slot(slot)))],
            Self::ForgetRun(slot) => vec![Change::ForgetRun(Slot(slot))],
            Self::Renew | Self::Crash(_) => Vec::new(),
        }
    }

    fn apply(&self, model: &mut Model) {
        match *self {
            Self::Run(slot) => drop(model.entry(slot).or_default()),
            Self::Call(slot, id) => {
                model.get_mut(&slot).map(|calls| calls.entry(id).or_default());
            }
            Self::Answer(slot, id) => {
                model.get_mut(&slot).map(|calls| calls.insert(id, true));
            }
            Self::ForgetAnswer(slot, id) => {
                let call = model.get_mut(&slot).and_then(|calls| calls.get_mut(&id));
                call.into_iter().for_each(|answered| *answered = false);
            }
            Self::ForgetCalls(slot) => model.get_mut(&slot).into_iter().for_each(BTreeMap::clear),
            Self::ForgetRun(slot) => drop(model.remove(&slot)),
            Self::Renew | Self::Crash(_) => (),
        }
    }
}

fn model(kept: &StoredRecords) -> Model {
    let id = |call: &StoredCall| {
        call.key.tool_use.as_str().strip_prefix("tu_").unwrap().parse().unwrap()
    };
    let calls =
        |run: &StoredRun| run.calls.iter().map(|call| (id(call), call.answer.is_some())).collect();
    kept.runs.iter().map(|run| (run.slot.0, calls(run))).collect()
}

fn renew(path: &Path) -> Store {
    // The lock is given back at once.
    let mut lock = Lock::take(path, false).unwrap();
    let (_, opened) = Store::open(path, &mut lock).unwrap();
    let store = opened.map_err(|(error, _)| error).unwrap();
    // These tests write without a writer, which would note what is on disk.
    lock.note(lock::Extent { size: 0, ..store.extent() });
    store
}

proptest! {
    /// Whatever is written, and whenever the bridge crashes: what was written before is there.
    #[test]
    fn kept_records_are_those_that_were_written(steps in proptest::collection::vec(Step::any(), 1..40)) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let (mut store, mut expected) = (renew(&path), Model::new());
        for step in &steps {
            // A call without its run is never written.
            let run_is_there = |slot: &u64| expected.contains_key(slot);
            match step {
                Step::Call(slot, _) | Step::Answer(slot, _) if !run_is_there(slot) => continue,
                Step::Renew => store = renew(&path),
                Step::Crash(left) => {
                    let whole = store.size;
                    let unfinished = run(9, None);
                    store.apply([unfinished.as_slice()]).unwrap();
                    let cut = (whole + u64::from(*left)).min(store.size - 1);
                    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
                    file.set_len(cut).unwrap();
                    store = renew(&path);
                }
                _ => store.apply([step.changes().as_slice()]).unwrap(),
            }
            step.apply(&mut expected);
            prop_assert_eq!(model(&store::read(&path).unwrap()), expected.clone());
            prop_assert_eq!(store.size, fs::metadata(&path).unwrap().len());
        }
    }
}

#[tokio::test]
async fn forgotten_record_does_not_stay_in_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let (journal, _) = Journal::open(&path, false).unwrap();
    write(&journal, run(1, None)).await;
    let large = Bytes::from(vec![b'x'; 1 << 20]);
    let most = async {
        let mut most = 0;
        for _ in 0..40 {
            let answer = Change::Answer(key(1, "tu"), large.clone());
            write(&journal, vec![call(1, "tu", Stage::Answered), answer]).await;
            write(&journal, vec![Change::Forget(Key::Answer(key(1, "tu")))]).await;
            most = most.max(fs::metadata(&path).unwrap().len());
        }
        most
    };
    let most = most.await;
    assert!(
        most < 8 << 20,
        "40 MiB were written, one is kept at a time, and there were {most} bytes"
    );
    journal.close();
    assert_eq!(Journal::open(&path, false).unwrap().1.runs[0].calls.len(), 1);
}

#[tokio::test]
async fn routes_are_written_once_and_forgotten_with_the_last_that_leads_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let mut store = renew(&path);
    store.apply([run(1, None).as_slice()]).unwrap();
    let first = store.size;
    store.apply([run(2, None).as_slice()]).unwrap();
    let routes = Routes::default().stored().text.len() as u64;
    assert!(store.size - first + routes <= first, "the second run has no routes with it");
    store.apply([[Change::ForgetRun(Slot(1))].as_slice()]).unwrap();
    assert_eq!(store::read(&path).unwrap().runs.len(), 1);
    store.apply([[Change::ForgetRun(Slot(2))].as_slice()]).unwrap();
    store = renew(&path);
    assert_eq!(store.size, 28, "nothing is kept");
    // What is forgotten is written again.
    store.apply([run(3, None).as_slice()]).unwrap();
    assert_eq!(store::read(&path).unwrap().runs.len(), 1);
}

#[tokio::test]
async fn journal_file_has_one_owner() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let (journal, _) = Journal::open(&path, false).unwrap();
    let error = Journal::open(&path, false).unwrap_err();
    let StoreError::InUse(whose) = &error else { panic!("{error:?}") };
    assert_eq!(*whose, format!(", as process {}", std::process::id()));
    journal.close();
}

#[tokio::test(start_paused = true)]
async fn a_thread_that_hangs_or_is_gone_does_not_live() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(&dir.path().join("journal"), false).unwrap();
    assert!(journal.writer_responds().await);
    journal.close();
    assert!(!journal.writer_responds().await, "it has ended");

    let (jobs, given) = mpsc::channel();
    let journal = Journal::new(jobs, Arc::default(), Place::File(None));
    let lives = timeout(Duration::from_secs(3600), journal.writer_responds()).await;
    assert!(lives.is_err(), "it does not come by");
    drop(given);
}

#[test]
fn waiting_records_are_written_as_one_up_to_a_size() {
    let (jobs, given) = mpsc::channel();
    let give = |changes, waiter| jobs.send(Job::Write { changes, waiter, regained: 0 }).unwrap();
    let large = Bytes::from(vec![b'x'; batch::BATCH_BYTES]);
    let waits = || Waiter::Commit(oneshot::channel().0);
    give(run(1, None), Waiter::Keep(None));
    give(vec![call(1, "tu_1", Stage::Received)], waits());
    give(vec![call(1, "tu_2", Stage::Received)], Waiter::Keep(None));
    give(vec![Change::Answer(key(1, "tu_1"), large)], waits());
    give(run(2, None), Waiter::Keep(None));
    jobs.send(Job::Stop).unwrap();
    give(run(3, None), Waiter::Keep(None));
    let batch = |batch: Batch| (batch.changes.len(), batch.groups.len(), batch.stop);
    assert_eq!(gather(&given).map(batch), Some((5, 4, false)), "up to what is large");
    assert_eq!(gather(&given).map(batch), Some((2, 1, true)), "up to the end");
    let begun = Instant::now();
    assert_eq!(gather(&given).map(batch), Some((2, 1, false)), "though nobody waits for it");
    assert!(
        begun.elapsed() >= batch::SOON,
        "somebody could have come whose sync it would have shared"
    );
    drop(jobs);
    assert!(gather(&given).is_none(), "there is nobody left");
}

#[tokio::test]
async fn a_damaged_file_is_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    for (number, damage) in ["", "not a journal", "\0"].iter().enumerate() {
        let path = dir.path().join(format!("{number}"));
        fs::write(&path, damage.repeat(5_000)).unwrap();
        let (journal, kept) = Journal::open(&path, false).unwrap();
        assert!(kept.runs.is_empty());
        write(&journal, run(1, None)).await;
        journal.close();
        assert_eq!(Journal::open(&path, false).unwrap().1.runs.len(), 1);
    }
    let aside = fs::read_dir(dir.path())
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().contains("damaged"));
    assert_eq!(aside.count(), 2, "an empty file is a new one");
}

#[tokio::test]
async fn a_later_versions_file_is_not_touched() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    fs::write(&path, b"mantyxj\x03what this version cannot read").unwrap();
    let error = Journal::open(&path, false).unwrap_err();
    assert!(matches!(&error, StoreError::Later(file) if *file == path), "{error:?}");
    assert!(fs::read(&path).unwrap().ends_with(b"what this version cannot read"));
}

/// A change of a mebibyte.
fn large(slot: u64) -> Vec<Change> {
    vec![Change::Answer(key(slot, "tu"), Bytes::from(vec![b'x'; 1 << 20]))]
}

/// Whoever reads runs waits for a disk that is slower; what is given all the same is written.
#[tokio::test]
async fn records_that_wait_for_the_disk_are_bounded() {
    let queue = Queue::default();
    queue.add(QUEUE_BYTES - 1);
    let is_full = || *queue.0.borrow() >= QUEUE_BYTES;
    assert!(!is_full());
    queue.add(1);
    assert!(is_full());
    let room = queue.0.subscribe();
    queue.remove(1);
    assert!(room.has_changed().unwrap() && !is_full(), "who waits is told");

    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(&dir.path().join("journal"), false).unwrap();
    for slot in 0..48 {
        journal.write(large(slot));
    }
    journal.wait_for_room().await;
    assert!(*journal.shared.queue.0.borrow() < QUEUE_BYTES);
    journal.commit(Vec::new()).await.unwrap();
    journal.close();
    assert_eq!(*journal.shared.queue.0.borrow(), 0, "all of it has been paid back");
    assert!(fs::metadata(dir.path().join("journal")).unwrap().len() > 48 << 20);
}

/// While the disk fails, what nobody waits for is kept, as far as there is room for it.
#[tokio::test]
async fn records_kept_for_a_failing_disk_are_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    fs::create_dir(path.with_extension("new")).unwrap();
    let (journal, _) = Journal::open(&path, false).unwrap();
    for slot in 0..48 {
        journal.write(large(slot));
    }
    journal.commit(Vec::new()).await.unwrap_err();
    let told = journal.lost().expect("what is given up is told").what;
    assert!(told.contains(" 17 changes "), "{told}");
    fs::remove_dir(path.with_extension("new")).unwrap();
    journal.commit(Vec::new()).await.unwrap();
    assert_eq!(
        journal.lost().map(|loss| loss.what),
        Some(told.clone()),
        "also when it works again"
    );
    journal.close();
    drop(journal);
    let bytes = fs::metadata(&path).unwrap().len();
    assert!((30 << 20..=32 << 20).contains(&bytes), "{bytes}");
    let (_journal, kept) = Journal::open(&path, false).unwrap();
    assert_eq!(kept.lost.map(|loss| loss.what), Some(told), "and after a restart");
}

/// A call whose run's record was given up is none that is kept.
#[tokio::test]
async fn calls_of_runs_that_are_not_known_are_forgotten_at_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let (journal, _) = Journal::open(&path, false).unwrap();
    write(&journal, run(1, None)).await;
    for slot in [1, 2] {
        write(&journal, vec![call(slot, "tu", Stage::Answered)]).await;
        write(&journal, large(slot)).await;
    }
    journal.close();
    drop(journal);
    let (journal, kept) = Journal::open(&path, false).unwrap();
    assert_eq!((kept.runs.len(), kept.runs[0].calls.len()), (1, 1));
    journal.close();
    let bytes = fs::metadata(&path).unwrap().len();
    assert!((1 << 20..2 << 20).contains(&bytes), "{bytes}");
}

/// A disk that refuses when the bridge starts is waited for: the bridge runs, and makes no calls.
#[tokio::test]
async fn a_start_does_not_need_a_disk_that_works() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let (journal, _) = Journal::open(&path, false).unwrap();
    write(&journal, run(1, None)).await;
    journal.close();
    drop(journal);
    // Nothing can take the journal's place.
    fs::remove_file(path.with_extension("new")).unwrap();
    fs::create_dir(path.with_extension("new")).unwrap();
    let (journal, kept) = Journal::open(&path, false).unwrap();
    assert_eq!(kept.runs.len(), 1, "what is there is read");
    assert!(!journal.is_open() && journal.health().error.is_some() && !journal.health().is_full);
    journal.commit(run(2, None)).await.unwrap_err();
    journal.write(run(3, None));
    journal.keep(run(5, None)).await;
    fs::remove_dir(path.with_extension("new")).unwrap();
    write(&journal, run(4, None)).await;
    assert!(journal.is_open());
    journal.close();
    let slots = Journal::open(&path, false).unwrap().1.runs;
    let slots: Vec<u64> = slots.iter().map(|run| run.slot.0).collect();
    assert_eq!(slots, [1, 3, 4, 5], "what was to be kept was kept");
}

/// Whatever bytes of the file are wrong: it opens, with what it had or with nothing.
#[tokio::test]
async fn flipped_bytes_never_stop_the_bridge() {
    let dir = tempfile::tempdir().unwrap();
    let whole = dir.path().join("whole");
    let (journal, _) = Journal::open(&whole, false).unwrap();
    for slot in 1..20 {
        write(&journal, run(slot, None)).await;
        write(&journal, vec![call(slot, "tu", Stage::Dispatched)]).await;
    }
    journal.close();
    let size = fs::metadata(&whole).unwrap().len();
    for number in 0..40 {
        let path = dir.path().join(format!("{number}"));
        fs::copy(&whole, &path).unwrap();
        let mut file = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let mut byte = [0];
        // The head, where all begins, and then all over.
        let at = if number < 20 { number * 16 } else { size * (number - 20) / 20 + 5 };
        file.seek(SeekFrom::Start(at)).unwrap();
        file.read_exact(&mut byte).unwrap();
        file.seek(SeekFrom::Start(at)).unwrap();
        file.write_all(&[byte[0] ^ 0x5a]).unwrap();
        drop(file);
        let (journal, _) = Journal::open(&path, false).unwrap();
        write(&journal, run(100, None)).await;
        journal.close();
        assert!(
            Journal::open(&path, false).unwrap().1.runs.iter().any(|run| run.slot == Slot(100))
        );
    }
}

#[tokio::test]
async fn ended_runs_make_room_and_open_ones_close_the_journal() {
    const MAX: u64 = 10 << 20;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let (journal, _) = Journal::open_bounded(&path, false, MAX).unwrap();
    let large = Bytes::from(vec![b'x'; 1 << 20]);
    let answer = |slot: u64| {
        let answer = Change::Answer(key(slot, "tu"), large.clone());
        vec![call(slot, "tu", Stage::Answered), answer]
    };
    let fill = async |ended_at: Option<Millis>, first: u64| {
        for slot in first..first + 16 {
            write(&journal, run(slot, ended_at.map(|at| at + slot))).await;
            write(&journal, answer(slot)).await;
        }
    };
    // The oldest of all.
    let mut given_up = run(100, Some(0));
    for change in &mut given_up {
        if let Change::Run(_, record) = change {
            record.given_up = true;
        }
    }
    write(&journal, given_up).await;
    fill(Some(1), 1).await;
    let roomy = async {
        while !journal.is_open() || journal.health().bytes > MAX {
            sleep(Duration::from_millis(20)).await;
        }
    };
    let within = Duration::from_secs(30);
    timeout(within, roomy).await.expect("the oldest of the ended should go");
    for slot in 1..=16 {
        write(&journal, vec![Change::ForgetRun(Slot(slot))]).await;
    }
    fill(None, 20).await;
    let health = journal.health();
    assert!(!journal.is_open() && health.error.unwrap().contains("full"), "no more calls");
    assert!(health.is_full, "the disk is not to blame");
    journal.close();
    let (journal, kept) = Journal::open_bounded(&path, false, MAX).unwrap();
    let is_answered = |run: &&StoredRun| run.calls.first().is_some_and(|it| it.answer.is_some());
    assert_eq!(kept.runs.iter().filter(is_answered).count(), 16);
    assert!(kept.runs.iter().any(|run| run.slot == Slot(100)), "what was given up may come back");
    journal.close();
}
