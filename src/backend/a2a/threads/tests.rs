//! What is remembered of conversations, and for how long.

use std::path::Path;
use std::time::Duration;

use tokio::time::advance;

use super::*;
use crate::backend::fake::request_of;

/// The id of the conversation of the run `id`.
fn run(threads: &Threads, id: &str) -> String {
    threads.id(&request_of(id, None, "", "{}")).unwrap()
}

fn thread(context: &str, task: Option<&str>) -> Thread {
    Thread { context: Some(context.to_owned()), task: task.map(str::to_owned) }
}

#[tokio::test(start_paused = true)]
async fn a_waiting_task_is_given_out_once_and_its_context_always() {
    let threads = Threads::default();
    assert_eq!(threads.enter(&run(&threads, "r")), Thread::default());
    threads.leave(&run(&threads, "r"), thread("c", Some("t")));
    assert_eq!(threads.enter(&run(&threads, "other")), Thread::default());
    assert_eq!(threads.enter(&run(&threads, "r")), thread("c", Some("t")));
    assert_eq!(threads.enter(&run(&threads, "r")), thread("c", None));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_ends_leaves_the_task_that_another_waits_for() {
    let threads = Threads::default();
    threads.leave(&run(&threads, "r"), thread("c", Some("t")));
    threads.leave(&run(&threads, "r"), thread("c", None));
    assert_eq!(threads.enter(&run(&threads, "r")), thread("c", Some("t")));
}

#[tokio::test(start_paused = true)]
async fn the_same_id_of_another_app_is_another_conversation() {
    let threads = Threads::default();
    let of = |app: &str| {
        let request = CallRequest { app: app.into(), ..request_of("r", None, "", "{}") };
        threads.id(&request).unwrap()
    };
    threads.leave(&of("a"), thread("c", Some("t")));
    assert_eq!(threads.enter(&of("b")), Thread::default());
    assert_eq!(threads.enter(&of("a")), thread("c", Some("t")));
    assert!(threads.has("c") && !threads.has("d"));
}

#[tokio::test(start_paused = true)]
async fn a_session_shares_what_its_runs_do_not() {
    let threads = Threads::default();
    let of = |run: &str| threads.id(&request_of(run, Some("s"), "", "{}")).unwrap();
    threads.leave(&of("r1"), thread("c", Some("t")));
    assert_eq!(threads.enter(&run(&threads, "r1")), Thread::default());
    assert_eq!(
        threads.enter(&run(&threads, "s")),
        Thread::default(),
        "a run with the session's id"
    );
    assert_eq!(threads.enter(&of("r2")), thread("c", Some("t")));
}

#[tokio::test(start_paused = true)]
async fn conversations_end_after_a_day_of_silence() {
    let threads = Threads::default();
    threads.leave(&run(&threads, "r"), thread("c", None));
    for _ in 0..3 {
        advance(KEEP - Duration::from_secs(1)).await;
        assert_eq!(threads.enter(&run(&threads, "r")), thread("c", None));
    }
    advance(KEEP).await;
    assert_eq!(threads.enter(&run(&threads, "r")), Thread::default());
}

#[tokio::test(start_paused = true)]
async fn threads_are_bounded_and_the_oldest_go() {
    let threads = Threads::default();
    for number in 0..=MAX_THREADS {
        threads.leave(&run(&threads, &number.to_string()), thread("c", None));
        advance(Duration::from_millis(1)).await;
    }
    assert!(threads.entries.lock().len() <= MAX_THREADS);
    assert_eq!(threads.enter(&run(&threads, "0")), Thread::default());
    let newest = run(&threads, &MAX_THREADS.to_string());
    assert_eq!(threads.enter(&newest), thread("c", None));
}

#[tokio::test(start_paused = true)]
async fn ids_of_any_length_are_not_kept() {
    let threads = Threads::default();
    threads.leave(&run(&threads, "r"), thread(&"c".repeat(MAX_ID + 1), None));
    assert!(threads.entries.lock().is_empty());
}

/// The conversations with the agent `name` at `endpoint`, after a start with the file at `path`.
fn started(path: &Path, name: &str, endpoint: &str) -> (Arc<Journal>, Arc<Threads>) {
    let journal = Arc::new(Journal::open(path, false).unwrap().0);
    let threads = kept_in(&journal, name, endpoint);
    (journal, threads)
}

fn kept_in(journal: &Arc<Journal>, name: &str, endpoint: &str) -> Arc<Threads> {
    Threads::kept_in(Arc::clone(journal), &BackendName::parse(name).unwrap(), endpoint)
}

#[tokio::test]
async fn conversations_outlive_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let (journal, threads) = started(&path, "hr", "here");
    threads.leave(&run(&threads, "r"), thread("c", Some("t")));
    threads.leave(&run(&threads, "gone"), thread("c", None));
    threads.leave(&run(&threads, "gone"), Thread::default());
    journal.close();

    let (journal, threads) = started(&path, "hr", "here");
    for (name, endpoint) in [("hr", "there"), ("hr", "her"), ("h", "here"), ("hr", "here")] {
        let others = kept_in(&journal, name, endpoint);
        assert_eq!(others.enter(&run(&others, "r")), Thread::default(), "{name} {endpoint}");
    }
    assert_eq!(threads.enter(&run(&threads, "gone")), Thread::default());
    assert_eq!(threads.enter(&run(&threads, "r")), thread("c", Some("t")));
    journal.close();

    // A crash cut off the message to the task, whose agent refuses a second one.
    let (journal, threads) = started(&path, "hr", "here");
    assert_eq!(threads.enter(&run(&threads, "r")), thread("c", Some("t")));
    threads.leave(&run(&threads, "r"), thread("c", None));
    journal.close();
    let (journal, threads) = started(&path, "hr", "here");
    assert_eq!(threads.enter(&run(&threads, "r")), thread("c", None));
    journal.close();
}

#[tokio::test]
async fn a_conversation_of_unknown_age_and_an_old_one_end_with_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let (journal, threads) = started(&path, "hr", "here");
    let day = u64::try_from(KEEP.as_millis()).unwrap();
    let minute = 60_000;
    let now = clock::millis();
    let ages = [("young", now + minute - day), ("old", now - day), ("later", now + minute)];
    for (id, used_at) in ages {
        let record = ConversationRecord { context: Some("c".to_owned()), task: None, used_at };
        journal.write(vec![Change::Conversation(run(&threads, id), record)]);
    }
    journal.close();
    let (journal, threads) = started(&path, "hr", "here");
    assert_eq!(threads.enter(&run(&threads, "young")), thread("c", None));
    assert_eq!(threads.enter(&run(&threads, "old")), Thread::default());
    assert_eq!(threads.enter(&run(&threads, "later")), Thread::default(), "the clock was put back");
    journal.close();
}

#[tokio::test]
async fn a_file_forgets_the_oldest_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let (journal, threads) = started(&path, "hr", "here");
    for number in 0..=MAX_THREADS {
        threads.leave(&run(&threads, &number.to_string()), thread("c", None));
    }
    let kept = threads.entries.lock().len();
    journal.close();
    let (journal, threads) = started(&path, "hr", "here");
    assert!(kept <= MAX_THREADS && threads.entries.lock().len() == kept, "{kept}");
    assert_eq!(threads.enter(&run(&threads, "0")), Thread::default());
    assert_eq!(threads.enter(&run(&threads, &MAX_THREADS.to_string())), thread("c", None));
    journal.close();
}
