//! Conversations with agents take no more of the file than they may.

use super::*;
use crate::journal::record::KEEP_CONVERSATION;

/// Also those with agents that are not configured any more.
#[tokio::test]
async fn conversations_leave_the_file_after_a_day() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let (journal, _) = Journal::open(&path, false).unwrap();
    let now = clock::millis();
    let day = u64::try_from(KEEP_CONVERSATION.as_millis()).unwrap();
    for (id, used_at) in [("young", now), ("old", now - day)] {
        write(&journal, vec![Change::Conversation(id.to_owned(), conversation("c", used_at))])
            .await;
    }
    journal.close();
    let (journal, _) = Journal::open(&path, false).unwrap();
    let file = fs::read(&path).unwrap();
    let has = |id: &[u8]| file.windows(id.len()).any(|window| window == id);
    assert!(has(b"young") && !has(b"old"));
    journal.close();
}

#[tokio::test]
async fn conversations_do_not_fill_the_journal() {
    const MAX: u64 = 1 << 20;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let (journal, _) = Journal::open_bounded(&path, false, MAX).unwrap();
    let now = clock::millis();
    let context = "c".repeat(1024);
    let talk =
        |age: u64| Change::Conversation(format!("agent {age}"), conversation(&context, now - age));
    write(&journal, (0..4096).map(talk).collect()).await;
    let roomy = async {
        while !journal.is_open() || journal.health().bytes > MAX {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(30), roomy).await.expect("the oldest should go");
    journal.close();
    let (journal, _) = Journal::open_bounded(&path, false, MAX).unwrap();
    let kept = journal.take_conversations("");
    assert!(
        kept.len() >= 256 && kept.iter().all(|(_, it)| it.used_at + 1024 > now),
        "{}",
        kept.len()
    );
    journal.close();
}
