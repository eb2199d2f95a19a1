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
async fn what_cannot_be_watched_is_looked_at_from_time_to_time() {
    let begin = Instant::now();
    let mut watch = Watch::new(Path::new("/nonexistent/directory/bridge.yaml")).unwrap();
    for looks in 1..4 {
        assert_eq!(watch.next().await, News::MayHaveChanged);
        assert_eq!(begin.elapsed(), looks * POLL);
    }
}
