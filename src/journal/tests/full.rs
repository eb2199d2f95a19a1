//! A disk that is full: of the journal itself, or of other programs' files.

use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use super::*;
use crate::journal::reserve::next_path;
use crate::simulated::{self, Disk, File};

/// A small disk with the journal alone, and a process that may be killed at one of its steps.
struct SmallDisk {
    dir: PathBuf,
    capacity: Mutex<u64>,
    /// After how many steps the process is killed.
    kill_after: Mutex<usize>,
}

impl SmallDisk {
    /// A disk of `capacity` bytes in `dir`, on which this thread's journals are.
    fn mount(dir: &Path, capacity: u64) -> Arc<Self> {
        let disk = Arc::new(Self {
            dir: dir.to_owned(),
            capacity: Mutex::new(capacity),
            kill_after: Mutex::new(usize::MAX),
        });
        simulated::set_disk(Some(Arc::clone(&disk) as Arc<dyn Disk>));
        disk
    }

    fn used(&self) -> u64 {
        let entries = fs::read_dir(&self.dir).unwrap();
        entries.map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
    }

    /// Has other programs take all room that is free.
    fn fill(&self) {
        *self.capacity.lock() = self.used();
    }

    /// Counts a step; an error once the process is dead.
    fn step(&self) -> io::Result<()> {
        let mut left = self.kill_after.lock();
        *left = left.checked_sub(1).ok_or_else(|| io::Error::other("the process is dead"))?;
        Ok(())
    }

    /// How far `file` may become `bytes` long.
    fn most(&self, file: &File, bytes: u64) -> u64 {
        let length = file.metadata().unwrap().len();
        let free = self.capacity.lock().saturating_sub(self.used());
        bytes.min(length + free)
    }
}

impl Disk for SmallDisk {
    fn write(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        let killed = self.step();
        let end = offset + bytes.len() as u64;
        let most = if killed.is_ok() { end } else { offset };
        let written = self.most(file, most).saturating_sub(offset) as usize;
        std::os::unix::fs::FileExt::write_all_at(&*file.inner, &bytes[..written], offset)?;
        killed?;
        if written < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn allocate(&self, file: &File, bytes: u64) -> io::Result<()> {
        self.step()?;
        if self.most(file, bytes) < bytes {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if file.metadata()?.len() < bytes {
            file.inner.set_len(bytes)?;
        }
        Ok(())
    }

    fn set_len(&self, file: &File, bytes: u64) -> io::Result<()> {
        self.step()?;
        file.inner.set_len(bytes)
    }

    fn sync(&self, _file: &File) -> io::Result<()> {
        self.step()
    }
}

/// A journal's writer on this thread.
struct Scene {
    dir: tempfile::TempDir,
    disk: Arc<SmallDisk>,
    shared: Arc<Shared>,
    writer: Option<Writer>,
}

impl Drop for Scene {
    fn drop(&mut self) {
        simulated::set_disk(None);
    }
}

impl Scene {
    fn new(capacity: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let disk = SmallDisk::mount(dir.path(), capacity);
        let mut scene = Self { dir, disk, shared: Arc::default(), writer: None };
        scene.start();
        scene
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("journal")
    }

    /// Begins a process; what it finds.
    fn start(&mut self) -> StoredRecords {
        self.writer = None;
        let shared = Arc::clone(&self.shared);
        let (writer, kept) = Writer::open(&self.path(), false, MAX_SIZE as u64, shared).unwrap();
        self.writer = Some(writer);
        kept.unwrap_or_default()
    }

    /// Whether `changes` are on disk; otherwise they are dropped.
    fn commits(&mut self, changes: Vec<Change>) -> bool {
        let (done, mut written) = oneshot::channel();
        self.give(changes, Waiter::Commit(done));
        written.try_recv().unwrap().is_ok()
    }

    fn give(&mut self, changes: Vec<Change>, waiter: Waiter) {
        let mut batch = Batch::default();
        self.shared.queue.add(weight(&changes));
        batch.add(Job::Write { changes, waiter, regained: 0 });
        self.writer.as_mut().unwrap().take(batch);
        assert!(self.disk.used() <= *self.disk.capacity.lock());
    }
}

/// The answer to the call `tool_use`, of 64 KiB.
fn answer(tool_use: &str) -> Vec<Change> {
    let body = Bytes::from(vec![b'x'; 64 << 10]);
    vec![call(1, tool_use, Stage::Answered), Change::Answer(key(1, tool_use), body)]
}

fn forget(tool_use: &str) -> Vec<Change> {
    vec![Change::Forget(Key::Answer(key(1, tool_use)))]
}

/// What would be there after a `kill -9`: whether the run is there, and its answers.
fn after_kill(path: &Path) -> (bool, Vec<String>) {
    let kept = store::read(path).unwrap();
    let calls = kept.runs.iter().flat_map(|run| &run.calls);
    let answers = calls.filter(|call| call.answer.is_some());
    (!kept.runs.is_empty(), answers.map(|call| call.key.tool_use.to_string()).collect())
}

#[test]
fn disk_that_the_journal_has_filled_accepts_writes_while_few_records_are_live() {
    let mut scene = Scene::new(1 << 20);
    assert!(scene.commits(run(1, None)));
    for number in 0..100 {
        assert!(scene.commits(answer("tu")), "{number}");
        assert!(scene.commits(forget("tu")), "{number}");
    }
    assert_eq!(after_kill(&scene.path()), (true, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn disk_that_is_full_of_live_records_accepts_writes_once_some_are_forgotten() {
    let mut scene = Scene::new(1 << 20);
    assert!(scene.commits(run(1, None)));
    let ids: Vec<String> = (0..100).map(|number| format!("tu_{number:02}")).collect();
    let written = ids.iter().take_while(|id| scene.commits(answer(id))).count();
    assert!((4..9).contains(&written), "the next file takes as much as this one: {written}");
    let mut answers = ids[..written].to_vec();
    assert_eq!(after_kill(&scene.path()), (true, answers.clone()));
    // The journal keeps what it cannot write.
    scene.give(answer("tu_kept"), Waiter::Keep(None));
    for _ in 0..10 {
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(!scene.commits(run(2, None)));
    }
    for id in answers.drain(..3) {
        scene.give(forget(&id), Waiter::Keep(None));
    }
    tokio::time::advance(Duration::from_secs(10)).await;
    assert!(scene.commits(run(2, None)));
    answers.push("tu_kept".to_owned());
    assert_eq!(after_kill(&scene.path()), (true, answers));
}

#[test]
fn journal_is_made_smaller_and_started_on_a_disk_that_other_programs_fill() {
    let mut scene = Scene::new(8 << 20);
    assert!(scene.commits(run(1, None)));
    for _ in 0..9 {
        assert!(scene.commits(answer("tu")) && scene.commits(forget("tu")));
    }
    scene.disk.fill();
    // The file has no room for this, and the next one has.
    assert!(scene.commits(forget("tu_other")));
    scene.disk.fill();
    assert_eq!(scene.start().runs.len(), 1);
    assert!(scene.commits(forget("tu_other")), "a start makes room as well");
}

/// The file has no room for most of the changes, and is made smaller for each of those.
#[test]
fn kill_at_any_step_on_a_full_disk_loses_nothing_that_was_written() {
    for kill_after in 0.. {
        let mut scene = Scene::new(400 << 10);
        assert!(scene.commits(run(1, None)));
        let first_file = fs::metadata(scene.path()).unwrap().ino();
        *scene.disk.kill_after.lock() = kill_after;
        let mut answered = Vec::new();
        let mut in_doubt = None;
        for id in ["tu_0", "tu_1"].into_iter().cycle().take(16) {
            let is_answered = answered.contains(&id);
            let changes = if is_answered { forget(id) } else { answer(id) };
            if !scene.commits(changes) {
                in_doubt = Some(id);
                break;
            }
            if is_answered {
                answered.retain(|other| *other != id);
            } else {
                answered.push(id);
            }
        }
        let (has_run, mut answers) = after_kill(&scene.path());
        assert!(has_run, "{kill_after}");
        answers.retain(|id| in_doubt != Some(id));
        answered.retain(|id| in_doubt != Some(id));
        assert_eq!(answers, answered, "{kill_after}");
        let is_new = fs::metadata(scene.path()).unwrap().ino() != first_file;
        *scene.disk.kill_after.lock() = usize::MAX;
        assert_eq!(scene.start().runs.len(), 1, "{kill_after}");
        let is_written = scene.commits(answer("tu_after"));
        let health = scene.shared.health.lock().clone();
        assert!(is_written, "{kill_after}: {health:?}");
        if in_doubt.is_none() {
            assert!(is_new && kill_after > 40, "{kill_after} steps");
            break;
        }
    }
}

#[test]
fn reserved_room_follows_the_live_records() {
    let mut scene = Scene::new(64 << 20);
    let reserved = |scene: &Scene| fs::metadata(next_path(&scene.path())).unwrap().len();
    assert!(scene.commits(run(1, None)));
    let least = reserved(&scene);
    assert!(least < 128 << 10, "{least}");
    let ids: Vec<String> = (0..32).map(|number| format!("tu_{number:02}")).collect();
    for id in &ids {
        assert!(scene.commits(answer(id)));
        assert!(reserved(&scene) > fs::metadata(scene.path()).unwrap().len() - (8 << 10));
    }
    for id in &ids {
        assert!(scene.commits(forget(id)));
    }
    scene.start();
    assert!(reserved(&scene) <= least + (16 << 10), "{}", reserved(&scene));
}
