//! Who writes the file, and that nothing is lost between callers, the thread and compactions.

use super::*;

#[tokio::test]
async fn a_caller_writes_what_it_waits_for_and_what_was_given_before() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let shared: Arc<Shared> = Arc::default();
    let (writer, _) = Writer::open(&path, false, MAX_SIZE as u64, Arc::clone(&shared)).unwrap();
    let (jobs, given) = mpsc::channel();
    let desk = Arc::new(Desk::new(writer, given, Duration::MAX));
    let journal = Journal::new(jobs, shared, Place::File(Some(desk)));
    journal.write(run(1, None));
    assert_eq!(store::read(&path).unwrap().runs.len(), 0, "nobody waits for it");
    journal.commit(run(2, None)).await.unwrap();
    assert_eq!(store::read(&path).unwrap().runs.len(), 2);
    // A caller that gives up before it waits.
    drop(journal.commit(run(3, None)));
    assert_eq!(store::read(&path).unwrap().runs.len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn jobs_of_many_callers_are_all_written_and_outlive_compactions() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let (journal, _) = Journal::open(&path, false).unwrap();
    let journal = Arc::new(journal);
    let mut tasks = tokio::task::JoinSet::new();
    for first in 0..8_u64 {
        let journal = Arc::clone(&journal);
        tasks.spawn(async move {
            for slot in (first..400).step_by(8) {
                match slot % 3 {
                    0 => journal.write(run(slot, None)),
                    1 => journal.commit(run(slot, None)).await.unwrap(),
                    _ => drop(journal.commit(run(slot, None))),
                }
            }
        });
    }
    // Enough for several compactions meanwhile.
    let large = Bytes::from(vec![b'x'; 64 << 10]);
    for _ in 0..300 {
        let answer = Change::Answer(key(1, "tu"), large.clone());
        journal.commit(vec![answer, Change::Forget(Key::Answer(key(1, "tu")))]).await.unwrap();
    }
    tasks.join_all().await;
    // What no caller waits for is written all the same, and 20 MiB do not stay.
    let all = async {
        while store::read(&path).unwrap().runs.len() < 400
            || fs::metadata(&path).unwrap().len() > 8 << 20
        {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(20), all).await.expect("all should be written");
    journal.close();
    assert_eq!(store::read(&path).unwrap().runs.len(), 400);
}

/// The next process answers by what the file has; MANTYX would get both answers.
#[tokio::test]
async fn answer_that_the_closed_journal_has_not_is_not_posted() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(&dir.path().join("journal"), false).unwrap();
    write(&journal, run(1, None)).await;
    let answer = |tool_use: &str| {
        let body = Bytes::from_static(b"{}");
        vec![call(1, tool_use, Stage::Answered), Change::Answer(key(1, tool_use), body)]
    };
    let within = Duration::from_secs(1);
    assert_eq!(journal.keep_answer(&key(1, "tu"), answer("tu"), within).await, KeptAnswer::First);
    journal.close();
    let late = journal.keep_answer(&key(1, "late"), answer("late"), within).await;
    assert_eq!(late, KeptAnswer::NotOurs);
}
