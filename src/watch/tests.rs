//! Every way to put another file in the place of one is seen; that it is read is not.

use std::{fs, os::unix::fs::symlink};

use tokio::time::timeout;

use super::*;

/// Fails the test where there are no news long before a look is due in any case.
async fn news(watch: &mut Watch) -> News {
    timeout(LOOK / 2, watch.next()).await.expect("there should be news")
}

/// A watch that has looked once.
async fn watch(path: &Path) -> Watch {
    let mut watch = Watch::new(path).unwrap();
    assert_eq!(news(&mut watch).await, News::MayHaveChanged, "it may have changed before");
    watch
}

#[tokio::test(start_paused = true)]
async fn every_way_to_replace_it_is_seen() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bridge.yaml");
    fs::write(&path, "1").unwrap();
    let mut watch = watch(&path).await;

    fs::write(&path, "22").unwrap();
    assert_eq!(news(&mut watch).await, News::MayHaveChanged, "written in place");
    fs::write(dir.path().join("new"), "33").unwrap();
    fs::rename(dir.path().join("new"), &path).unwrap();
    assert_eq!(news(&mut watch).await, News::MayHaveChanged, "renamed over");
    fs::remove_file(&path).unwrap();
    assert_eq!(news(&mut watch).await, News::MayHaveChanged, "removed");
    fs::write(&path, "5").unwrap();
    assert_eq!(news(&mut watch).await, News::MayHaveChanged, "made anew");
    let other = dir.path().join("bridge.pem");
    watch.follow([&*other].into_iter());
    assert_eq!(news(&mut watch).await, News::MayHaveChanged, "another is followed");
    fs::write(&other, "6").unwrap();
    assert_eq!(news(&mut watch).await, News::MayHaveChanged, "the other is written");
}

#[tokio::test(start_paused = true)]
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
    let mut watch = watch(&root.join("bridge.yaml")).await;
    symlink("..2", root.join("..data_tmp")).unwrap();
    fs::rename(root.join("..data_tmp"), root.join("..data")).unwrap();
    assert_eq!(news(&mut watch).await, News::MayHaveChanged);
}

#[tokio::test(start_paused = true)]
async fn what_is_still_written_is_waited_for_and_reading_is_no_news() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bridge.yaml");
    fs::write(&path, "1").unwrap();
    let mut watch = watch(&path).await;
    for length in 2..5 {
        fs::write(&path, "x".repeat(length)).unwrap();
        // Given up after one poll each, before another could find the same.
        timeout(POLL + POLL / 100, watch.next()).await.unwrap_err();
    }
    assert_eq!(news(&mut watch).await, News::MayHaveChanged);
    fs::read(&path).unwrap();
    timeout(LOOK / 2, watch.next()).await.unwrap_err();
    let begin = Instant::now();
    assert_eq!(watch.next().await, News::MayHaveChanged, "a look is due");
    assert!(begin.elapsed() <= LOOK);
}
