//! Every way to put another file in the place of one is seen; that it is read is not.

use std::fs;
use std::os::unix::fs::symlink;

use super::*;

/// Fails the test where there are no news within a time that no event needs and no look ends.
async fn news(watch: &mut Watch) -> News {
    timeout(Duration::from_secs(10), watch.next()).await.expect("there should be news")
}

#[tokio::test]
async fn every_way_to_replace_it_is_seen() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bridge.yaml");
    fs::write(&path, "1").unwrap();
    let mut watch = Watch::new(&path).unwrap();

    fs::write(&path, "2").unwrap();
    assert_eq!(news(&mut watch).await, News::MayHaveChanged, "written in place");
    fs::write(dir.path().join("new"), "3").unwrap();
    fs::rename(dir.path().join("new"), &path).unwrap();
    assert_eq!(news(&mut watch).await, News::MayHaveChanged, "renamed over");
    fs::write(&path, "4").unwrap();
    assert_eq!(news(&mut watch).await, News::MayHaveChanged, "the new one written in place");
    fs::remove_file(&path).unwrap();
    assert_eq!(news(&mut watch).await, News::MayHaveChanged, "removed");
    fs::write(&path, "5").unwrap();
    assert_eq!(news(&mut watch).await, News::MayHaveChanged, "made anew");
}

#[tokio::test]
async fn another_directory_behind_a_symlink_is_seen() {
    // As the kubelet lays out a ConfigMap.
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    for version in ["..1", "..2"] {
        fs::create_dir(root.join(version)).unwrap();
        fs::write(root.join(version).join("bridge.yaml"), version).unwrap();
    }
    symlink("..1", root.join("..data")).unwrap();
    symlink("..data/bridge.yaml", root.join("bridge.yaml")).unwrap();
    let mut watch = Watch::new(&root.join("bridge.yaml")).unwrap();
    symlink("..2", root.join("..data_tmp")).unwrap();
    fs::rename(root.join("..data_tmp"), root.join("..data")).unwrap();
    assert_eq!(news(&mut watch).await, News::MayHaveChanged);
}

/// A file beside it is none of its own, and the target of a symlink is.
#[tokio::test]
async fn other_files_are_no_news_and_the_target_of_a_symlink_is() {
    let dir = tempfile::tempdir().unwrap();
    let [beside, target] = ["etc", "git"].map(|name| dir.path().join(name));
    fs::create_dir(&beside).unwrap();
    fs::create_dir(&target).unwrap();
    let file = target.join("bridge.yaml");
    fs::write(&file, "1").unwrap();
    let path = beside.join("bridge.yaml");
    symlink("../git/bridge.yaml", &path).unwrap();
    let mut watch = Watch::new(&path).unwrap();
    for log in [beside.join("log"), target.join("log")] {
        fs::write(log, "a line").unwrap();
    }
    let none = timeout(Duration::from_secs(1), watch.next()).await;
    assert!(none.is_err(), "{none:?}");
    fs::write(&file, "2").unwrap();
    assert_eq!(news(&mut watch).await, News::MayHaveChanged, "written where it is");
    fs::write(target.join("new"), "3").unwrap();
    fs::rename(target.join("new"), &file).unwrap();
    assert_eq!(news(&mut watch).await, News::MayHaveChanged, "replaced where it is");
    fs::write(&file, "4").unwrap();
    assert_eq!(news(&mut watch).await, News::MayHaveChanged, "and written again");
    fs::remove_file(&path).unwrap();
    fs::write(&path, "5").unwrap();
    assert_eq!(news(&mut watch).await, News::MayHaveChanged, "a file in place of the symlink");
}

/// A plain file's directory is not watched at all.
#[test]
fn a_directory_is_watched_only_for_what_is_missing_and_for_symlinks() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bridge.yaml");
    let watched = || {
        let (mut watched, mut own) = <(BTreeSet<PathBuf>, BTreeSet<PathBuf>)>::default();
        lead_to(&path, &mut watched, &mut own);
        Vec::from_iter(watched)
    };
    assert_eq!(watched(), [dir.path()]);
    fs::write(&path, "1").unwrap();
    assert_eq!(watched(), [path.as_path()]);
    fs::remove_file(&path).unwrap();
    symlink("bridge.yaml", &path).unwrap();
    assert!(watched().len() <= 2, "a circle ends");
}

#[tokio::test]
async fn reading_is_no_news_and_what_nobody_waited_for_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bridge.yaml");
    fs::write(&path, "1").unwrap();
    let mut watch = Watch::new(&path).unwrap();
    fs::read(&path).unwrap();
    let none = timeout(Duration::from_secs(1), watch.next()).await;
    assert!(none.is_err(), "reading would lead to reading: {none:?}");
    fs::write(&path, "2").unwrap();
    while !watch.noted {
        // Given up in the middle, again and again.
        timeout(Duration::from_millis(10), watch.next()).await.ok();
    }
    assert_eq!(news(&mut watch).await, News::MayHaveChanged);
}

#[tokio::test(start_paused = true)]
async fn file_that_cannot_be_watched_is_looked_at_from_time_to_time() {
    let begin = Instant::now();
    let mut watch = Watch::new(Path::new("/nonexistent/directory/bridge.yaml")).unwrap();
    for looks in 1..4 {
        assert_eq!(watch.next().await, News::MayHaveChanged);
        assert_eq!(begin.elapsed(), looks * POLL);
    }
}
