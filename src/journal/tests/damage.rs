//! What a damaged, shortened or lost file costs: no call is made that may have been made, and what
//! is whole is used.

use super::*;
use crate::model::call::CallOwner;
use crate::model::ids::BackendName;
use crate::model::recovery::{LEAST_REMAINING, Recovery, RecoveryFacts, decide};

/// What became of a call, one after another.
const STAGES: [Stage; 4] = [Stage::Received, Stage::Dispatched, Stage::Answered, Stage::Closed];

fn body(slot: u64, tool_use: &str) -> Bytes {
    Bytes::from(format!("{{\"result\":\"{slot} {tool_use}\"}}"))
}

/// The changes that bring a call to `stage`.
fn reach(slot: u64, tool_use: &str, stage: Stage) -> Vec<Change> {
    let mut change = call(slot, tool_use, stage);
    if let Change::Call(_, record) = &mut change {
        record.handle = None;
        record.attempts = u32::from(stage != Stage::Received);
    }
    match stage {
        Stage::Answered => vec![change, Change::Answer(key(slot, tool_use), body(slot, tool_use))],
        Stage::Closed => vec![change, Change::Forget(Key::Answer(key(slot, tool_use)))],
        Stage::Received | Stage::Dispatched => vec![change],
    }
}

/// What was written, and where it lies.
#[derive(Debug, Default)]
struct Written {
    /// Of each call how far it was.
    stages: BTreeMap<(u64, u8), Stage>,
    /// Where the last write of each call lies.
    places: BTreeMap<(u64, u8), std::ops::Range<u64>>,
    /// Where the last write of each run, and the routes of all, lie.
    runs: BTreeMap<u64, std::ops::Range<u64>>,
}

/// Runs whose calls get on as `steps` say, in a file at `path`, which is renewed at step `renewed`.
fn written(path: &Path, steps: &[(u64, u8)], renewed: usize) -> (Store, Written) {
    let (mut store, mut written) = (renew(path), Written::default());
    for (at, (slot, id)) in steps.iter().enumerate() {
        if at == renewed {
            drop(store);
            store = renew(path);
            // Where things lie now is not known: anywhere.
            let all = 0..store.size;
            written.places.values_mut().for_each(|place| *place = all.clone());
            written.runs.values_mut().for_each(|place| *place = all.clone());
        }
        let before = store.size;
        if !written.runs.contains_key(slot) {
            store.apply([run(*slot, None).as_slice()]).unwrap();
            written.runs.insert(*slot, before..store.size);
        }
        let before = store.size;
        let next = match written.stages.get(&(*slot, *id)) {
            None => Stage::Received,
            Some(stage) => {
                let next = STAGES.iter().skip_while(|it| *it != stage).nth(1);
                *next.unwrap_or(&Stage::Closed)
            }
        };
        store.apply([reach(*slot, &format!("tu_{id}"), next).as_slice()]).unwrap();
        written.stages.insert((*slot, *id), next);
        written.places.insert((*slot, *id), before..store.size);
    }
    (store, written)
}

fn overlaps(one: &std::ops::Range<u64>, other: &std::ops::Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

/// Holds what is read of a file whose bytes `hit` are damaged against what was written.
fn check(
    kept: &StoredRecords,
    written: &Written,
    hit: &std::ops::Range<u64>,
) -> Result<(), TestCaseError> {
    let lost = kept.lost.as_ref();
    prop_assert!(lost.is_some(), "it is told");
    let runs: BTreeMap<u64, &StoredRun> = kept.runs.iter().map(|run| (run.slot.0, run)).collect();
    for run in runs.values() {
        prop_assert!(run.record.past_is_lost, "it is read from its beginning");
    }
    for (slot, place) in &written.runs {
        prop_assert!(runs.contains_key(slot) || overlaps(place, hit), "run {slot}");
    }
    for ((slot, id), stage) in &written.stages {
        let Some(run) = runs.get(slot) else { continue };
        let found = run.calls.iter().find(|call| call.key.tool_use.as_str() == format!("tu_{id}"));
        // Of what is not there, the run's log tells.
        let Some(call) = found else { continue };
        let known = RecoveryFacts {
            stage: call.record.stage,
            attempts: call.record.attempts,
            has_handle: false,
            repeatable: false,
            remaining: LEAST_REMAINING,
        };
        prop_assert!(decide(known) != Recovery::Make, "{slot} {id} {stage:?}");
        let place = &written.places[&(*slot, *id)];
        if *stage == Stage::Answered && !overlaps(place, hit) {
            let expected = body(*slot, &format!("tu_{id}"));
            prop_assert_eq!(call.answer.as_ref(), Some(&expected), "answer of {} {}", slot, id);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whichever bit is wrong, or sector lost: nothing that was received is ever made again, and
    /// the answers are there, but for those that were hit.
    #[test]
    fn damage_has_no_call_made_and_costs_what_it_hits(
        steps in proptest::collection::vec((1..4_u64, 0..3_u8), 1..20),
        renewed in 0..25_usize,
        is_closed in any::<bool>(),
        at in any::<prop::sample::Index>(),
        bit in proptest::option::of(0..8_u32),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let (store, written) = written(&path, &steps, renewed);
        if is_closed {
            store.close().unwrap();
        }
        let mut bytes = fs::read(&path).unwrap();
        let at = at.index(bytes.len());
        let hit = match bit {
            Some(bit) => {
                bytes[at] ^= 1 << bit;
                at..at + 1
            }
            None => {
                let sector = at / 512 * 512..(at / 512 * 512 + 512).min(bytes.len());
                bytes[sector.clone()].fill(0);
                sector
            }
        };
        fs::write(&path, &bytes).unwrap();
        let hit = hit.start as u64..hit.end as u64;
        for life in 0..3 {
            let (journal, kept) = Journal::open(&path, false).unwrap();
            prop_assert!(journal.is_open(), "life {life}");
            // The bridge may crash before it has done anything about it.
            check(&kept, &written, &hit)?;
            journal.close();
        }
        let aside = fs::read_dir(dir.path()).unwrap().filter(|entry| {
            entry.as_ref().unwrap().file_name().to_string_lossy().contains("damaged")
        });
        prop_assert_eq!(aside.count(), 1, "it is damaged once");
    }

    /// A file that is shorter than it was at a clean stop has lost something.
    #[test]
    fn a_file_that_is_shorter_than_at_the_stop_has_no_call_made(
        steps in proptest::collection::vec((1..4_u64, 0..3_u8), 1..20),
        at in any::<prop::sample::Index>(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let (store, written) = written(&path, &steps, usize::MAX);
        store.close().unwrap();
        let length = fs::metadata(&path).unwrap().len();
        // One without a byte is no file; that is another test's.
        let cut = 1 + at.index(length as usize - 1) as u64;
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(cut).unwrap();
        let (_journal, kept) = Journal::open(&path, false).unwrap();
        check(&kept, &written, &(cut..length))?;
    }
}

/// The number of a run that is lost is not another one's.
#[tokio::test]
async fn calls_whose_run_is_lost_are_no_other_runs() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let mut store = renew(&path);
    store.apply([run(1, None).as_slice()]).unwrap();
    let before = store.size;
    store.apply([run(2, None).as_slice()]).unwrap();
    store.apply([reach(2, "tu", Stage::Answered).as_slice()]).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    bytes[before as usize + 100] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let (journal, kept) = Journal::open(&path, false).unwrap();
    assert_eq!(kept.runs.iter().map(|run| run.slot.0).collect::<Vec<_>>(), [1]);
    let what = kept.lost.unwrap().what;
    assert!(what.contains("1 records") && what.contains("runs of 1 calls"), "{what}");
    write(&journal, run(2, None)).await;
    journal.close();
    let (_journal, kept) = Journal::open(&path, false).unwrap();
    assert!(kept.runs.iter().all(|run| run.calls.is_empty()), "{kept:?}");
}

#[test]
fn the_last_damaged_files_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    for file in ["journal.damaged-9", "journal.damaged-10", "journal.damaged-x", "other-11"] {
        fs::write(dir.path().join(file), "x").unwrap();
    }
    for _ in 0..3 {
        // A first one may be of the same moment.
        let before = clock::millis();
        while clock::millis() == before {
            thread::yield_now();
        }
        fs::write(&path, "garbage").unwrap();
        Journal::open(&path, true).unwrap().0.close();
    }
    let names = fs::read_dir(dir.path()).unwrap();
    let mut names: Vec<String> =
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name.contains("damaged") || name.starts_with("other"));
    assert_eq!(names.len(), 5, "three, and what is none of the bridge's: {names:?}");
    assert!(!names.iter().any(|name| name.ends_with("-9") || name.ends_with("-10")), "{names:?}");
}

/// All runs of an offer have one record of its routes. Where that is lost, they and their sessions
/// go on, and no call is made that was read before.
#[tokio::test]
async fn runs_outlive_their_routes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let session = |number: u64| {
        let table = Table::empty().stored().0;
        let record =
            SessionRecord { app: "a".into(), tools: None, selection: None, table, created_at: 3 };
        Change::Session(("w".into(), number.to_string().into()), record)
    };
    for is_damaged in [true, false] {
        let mut store = renew(&path);
        let [routes, first] = <[Change; 2]>::try_from(run(1, None)).unwrap();
        let before = store.size as usize;
        if is_damaged {
            store.apply([[routes].as_slice()]).unwrap();
        }
        let given_up = run(2, Some(5)).into_iter().skip(1).map(|mut change| {
            let Change::Run(_, record) = &mut change else { panic!("{change:?}") };
            record.given_up = true;
            change
        });
        let changes: Vec<Change> =
            given_up.chain([first, call(1, "tu", Stage::Received), session(1)]).collect();
        store.apply([changes.as_slice()]).unwrap();
        drop(store);
        if is_damaged {
            let mut bytes = fs::read(&path).unwrap();
            bytes[before + 60] ^= 1;
            fs::write(&path, &bytes).unwrap();
        }
        let (journal, kept) = Journal::open(&path, false).unwrap();
        let [first, given_up] = kept.runs.as_slice() else { panic!("{kept:?}") };
        for run in [first, given_up] {
            assert!(run.routes.is_none() && run.record.past_is_lost, "{is_damaged}: {run:?}");
        }
        assert_eq!((first.calls.len(), kept.sessions.len()), (1, 1), "{is_damaged}");
        let told = kept.lost.map(|loss| loss.what).unwrap_or_default();
        assert_eq!(told.contains("2 runs"), is_damaged, "{told}");
        journal.close();
        drop(journal);
        fs::remove_file(&path).unwrap();
    }
}

/// A long call that had not reached its tool may have, and so has a result or is given up.
#[tokio::test]
async fn a_long_call_is_not_made_after_damage() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let mut store = renew(&path);
    let long = record::LongRecord {
        slot: None,
        app: "default".into(),
        of: CallOwner::App,
        tool: "fs_ls".to_owned(),
        backend: BackendName::parse("fs").unwrap(),
        kind: RefKind::McpLocal,
        target: "ls".into(),
        origin: None,
        handle: None,
        peer: None,
        arguments: Some(RawValue::from_string("{}".to_owned()).unwrap()),
        begun_at: 4,
        begun_up: None,
        ended: None,
    };
    store.apply([[Change::Long("call_1".into(), long)].as_slice()]).unwrap();
    let before = store.size as usize;
    store.apply([run(1, None).as_slice()]).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    bytes[before + 50] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let (_journal, kept) = Journal::open(&path, false).unwrap();
    let [(_, long)] = kept.long.as_slice() else { panic!("{kept:?}") };
    assert!(long.arguments.is_none());
}

#[tokio::test]
async fn a_journal_that_is_gone_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let (journal, kept) = Journal::open(&path, false).unwrap();
    assert!(kept.lost.is_none() && journal.lost().is_none(), "there was none before");
    journal.close();
    let (journal, kept) = Journal::open(&path, false).unwrap();
    assert!(kept.lost.is_none(), "it was there");
    journal.close();
    for how in ["removed", "emptied"] {
        match how {
            "removed" => fs::remove_file(&path).unwrap(),
            _ => fs::write(&path, "").unwrap(),
        }
        let (journal, kept) = Journal::open(&path, false).unwrap();
        let lost = journal.lost().expect(how);
        assert_eq!(kept.lost, Some(lost));
        journal.close();
        drop(journal);
        let (journal, _) = Journal::open(&path, false).unwrap();
        assert!(journal.lost().is_some(), "it is remembered, {how}");
        journal.close();
    }
    // Without the lock's file, the rest of the directory has to tell.
    for has_run in [false, true] {
        fs::remove_file(&path).unwrap();
        fs::remove_file(path.with_extension("lock")).unwrap();
        let (journal, kept) = Journal::open(&path, has_run).unwrap();
        assert_eq!(kept.lost.is_some(), has_run);
        journal.close();
    }
}

/// A first start that could not write its journal has lost none.
#[tokio::test]
async fn journal_that_was_never_there_is_not_lost() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    fs::create_dir(path.with_extension("new")).unwrap();
    for _ in 0..2 {
        let (journal, _) = Journal::open(&path, false).unwrap();
        assert!(!journal.is_open() && journal.lost().is_none());
        journal.close();
    }
    fs::remove_dir(path.with_extension("new")).unwrap();
    let (journal, _) = Journal::open(&path, false).unwrap();
    assert!(journal.is_open() && journal.lost().is_none());
    journal.close();
}

/// A loss is remembered for a day.
#[test]
fn an_old_loss_is_forgotten() {
    const HOUR: Millis = 60 * 60 * 1000;
    let loss = LossRecord { at: HOUR, up: None, what: String::new() };
    let at = |wall: Millis| Moment { wall, up: None };
    assert!(loss.matters(at(24 * HOUR), 0) && !loss.matters(at(25 * HOUR), 0));
    assert!(loss.matters(at(25 * HOUR), 26 * HOUR), "nobody can tell");
}
