//! A file that another program removes, replaces or truncates while the journal is open, and a disk
//! that cannot be read at the start.

use std::path::{Path, PathBuf};

use super::*;

/// What another program does to the file.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    Removed,
    Renamed,
    ReplacedByGarbage,
    ReplacedByNothing,
    ReplacedByOlder,
    Emptied,
    Shortened,
    DirectoryRemoved,
}

const FAULTS: [Fault; 8] = [
    Fault::Removed,
    Fault::Renamed,
    Fault::ReplacedByGarbage,
    Fault::ReplacedByNothing,
    Fault::ReplacedByOlder,
    Fault::Emptied,
    Fault::Shortened,
    Fault::DirectoryRemoved,
];

/// A journal that has had a call before `older` was copied, and has dispatched it since.
struct Scene {
    dir: tempfile::TempDir,
    journal: Journal,
    /// The length of the file at the border before its last frame.
    border: u64,
}

impl Scene {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        fs::create_dir(&state).unwrap();
        let path = state.join("journal");
        let (journal, _) = Journal::open(&path, false).unwrap();
        write(&journal, run(1, None)).await;
        write(&journal, vec![call(1, "tu", Stage::Received)]).await;
        fs::copy(&path, dir.path().join("older")).unwrap();
        let border = fs::metadata(&path).unwrap().len();
        write(&journal, vec![call(1, "tu", Stage::Dispatched)]).await;
        Self { dir, journal, border }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("state").join("journal")
    }

    fn have(&self, fault: Fault) {
        self.damage(&self.path(), fault);
    }

    /// Does to the journal at `path` what `fault` says.
    fn damage(&self, path: &Path, fault: Fault) {
        let other = self.dir.path().join("other");
        match fault {
            Fault::Removed => fs::remove_file(path).unwrap(),
            Fault::Renamed => fs::rename(path, &other).unwrap(),
            Fault::ReplacedByGarbage => {
                fs::write(&other, "garbage").unwrap();
                fs::rename(&other, path).unwrap();
            }
            Fault::ReplacedByNothing => {
                fs::write(&other, "").unwrap();
                fs::rename(&other, path).unwrap();
            }
            Fault::ReplacedByOlder => {
                fs::rename(self.dir.path().join("older"), path).unwrap();
            }
            Fault::Emptied => fs::write(path, "").unwrap(),
            Fault::Shortened => {
                let file = fs::OpenOptions::new().write(true).open(path).unwrap();
                file.set_len(self.border).unwrap();
            }
            Fault::DirectoryRemoved => fs::remove_dir_all(path.parent().unwrap()).unwrap(),
        }
    }

    /// A copy of the state directory, as a `kill -9` would leave it now.
    fn killed(&self) -> tempfile::TempDir {
        let copy = tempfile::tempdir().unwrap();
        for entry in fs::read_dir(self.dir.path().join("state")).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
        }
        copy
    }

    /// What the next process reads after a `kill -9`.
    fn after_kill(&self) -> (Vec<Stage>, bool) {
        read(&self.killed().path().join("journal"))
    }
}

/// The stages of the calls that a process reads at its start, and whether it tells of a loss.
fn read(path: &Path) -> (Vec<Stage>, bool) {
    let (_journal, kept) = Journal::open(path, false).unwrap();
    let calls = kept.runs.iter().flat_map(|run| &run.calls);
    (calls.map(|call| call.record.stage).collect(), kept.lost.is_some())
}

#[tokio::test]
async fn a_displaced_journal_is_written_again_from_memory_before_the_next_write() {
    for fault in FAULTS {
        let scene = Scene::new().await;
        scene.have(fault);
        write(&scene.journal, run(2, None)).await;
        let told = scene.journal.health().rewritten;
        assert!(told.is_some_and(|told| told.contains("while the bridge ran")), "{fault:?}");
        assert!(scene.journal.is_open() && scene.journal.lost().is_none(), "{fault:?}");
        assert_eq!(scene.after_kill(), (vec![Stage::Dispatched], false), "{fault:?}");
        assert!(matches!(Lock::take(&scene.path(), false), Err(StoreError::InUse(_))), "{fault:?}");
        let aside = fs::read_dir(scene.path().parent().unwrap()).unwrap();
        let aside = aside.filter(|entry| {
            entry.as_ref().unwrap().file_name().to_string_lossy().contains("damaged-")
        });
        let is_replaced = format!("{fault:?}").starts_with("Replaced");
        assert_eq!(aside.count(), usize::from(is_replaced), "{fault:?}");
    }
}

#[tokio::test]
async fn a_displaced_journal_is_noticed_without_a_write() {
    let scene = Scene::new().await;
    scene.have(Fault::Removed);
    let noticed = async {
        while !fs::exists(scene.path()).unwrap() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(30), noticed).await.expect("the thread looks every two seconds");
    assert_eq!(scene.after_kill(), (vec![Stage::Dispatched], false));
}

/// The next process finds what the fault has left. The journal of this one would mend it within two
/// seconds, so the fault strikes what the kill has left.
#[tokio::test]
async fn a_kill_before_the_notice_makes_no_call_that_was_dispatched() {
    for fault in FAULTS {
        // With the lock file, all that could tell is gone.
        if fault == Fault::DirectoryRemoved {
            continue;
        }
        let scene = Scene::new().await;
        let killed = scene.killed();
        let path = killed.path().join("journal");
        scene.damage(&path, fault);
        let (stages, is_told) = read(&path);
        assert!(is_told, "{fault:?}");
        assert!(stages.iter().all(|stage| *stage == Stage::Dispatched), "{fault:?}: {stages:?}");
    }
}

#[tokio::test]
async fn an_answer_is_there_after_the_file_was_emptied() {
    let scene = Scene::new().await;
    let body = Bytes::from_static(b"{}");
    let answered = vec![call(1, "tu", Stage::Answered), Change::Answer(key(1, "tu"), body.clone())];
    write(&scene.journal, answered).await;
    scene.have(Fault::Emptied);
    assert_eq!(scene.journal.answer(&key(1, "tu")).await, Some(body));
}

/// A symbolic link that leads to itself fails as a broken disk does.
#[tokio::test]
async fn a_disk_that_cannot_be_read_at_the_start_is_read_later() {
    let dir = tempfile::tempdir().unwrap();
    let (path, apart) = (dir.path().join("journal"), dir.path().join("apart"));
    let (journal, _) = Journal::open(&path, false).unwrap();
    write(&journal, run(1, None)).await;
    journal.close();
    drop(journal);
    for broken in [path.clone(), path.with_extension("lock")] {
        fs::rename(&broken, &apart).unwrap();
        std::os::unix::fs::symlink(&broken, &broken).unwrap();
        let (journal, kept) = Journal::open(&path, true).unwrap();
        assert!(kept.runs.is_empty() && kept.last_slot > 1_000_000, "no number is taken twice");
        assert!(!journal.is_open() && journal.lost().is_none());
        journal.commit(run(2, None)).await.unwrap_err();
        journal.write(run(3, None));
        let late = journal.late().expect("it is still to be read");
        fs::rename(&apart, &broken).unwrap();
        let kept = timeout(Duration::from_secs(30), late).await.unwrap().unwrap();
        assert!(kept.runs.iter().any(|run| run.slot == Slot(1)), "{broken:?}: {kept:?}");
        journal.flushed().await;
        assert!(journal.is_open());
        journal.close();
    }
    let slots = store::read(&path).unwrap().runs;
    assert_eq!(slots.iter().map(|run| run.slot.0).collect::<Vec<_>>(), [1, 3]);
}
