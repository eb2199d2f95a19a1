//! Which files are changed, and what stays of them.

use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;

fn refusal_of(path: &Path) -> String {
    match OwnFile::read(path, "") {
        Err(Failure::Failed(why)) => why,
        other => panic!("{path:?} is refused: {other:?}"),
    }
}

#[test]
fn hostile_files_are_refused_in_a_sentence() {
    let dir = TempDir::new().unwrap();
    let place = |name: &str| dir.path().join(name);
    let pipe = place("pipe");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    symlink(place("nowhere"), place("link")).unwrap();
    symlink(place("circle"), place("circle")).unwrap();
    fs::File::create(place("large")).unwrap().set_len(50 << 20).unwrap();
    fs::write(place("utf-16"), b"\xff\xfe{\0}\0").unwrap();
    fs::write(place("latin"), b"{\"a\": \"\xe4\"}").unwrap();
    for (name, part) in [
        ("pipe", "a pipe"),
        ("link", "a link that leads to nothing"),
        ("circle", "ymbolic links"),
        ("large", "more than 16 MiB"),
        ("utf-16", "UTF-16"),
        ("latin", "not UTF-8"),
        (".", "a directory"),
    ] {
        let why = refusal_of(&place(name));
        assert!(why.contains(part) && why.contains("is left as it is"), "{name}: {why}");
    }
}

#[test]
fn replaced_file_keeps_its_link_and_its_mode_and_has_a_backup() {
    let dir = TempDir::new().unwrap();
    let place = |name: &str| dir.path().join(name);
    fs::write(place("real.json"), "old").unwrap();
    fs::set_permissions(place("real.json"), fs::Permissions::from_mode(0o640)).unwrap();
    symlink("real.json", place("link.json")).unwrap();
    let file = OwnFile::read(&place("link.json"), "").unwrap();
    let backup = file.replace("new", true).unwrap().unwrap();
    assert!(fs::symlink_metadata(place("link.json")).unwrap().is_symlink());
    for (path, text) in [(place("real.json"), "new"), (backup, "old")] {
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640, "{path:?}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3, "no draft is left");
}

#[test]
fn file_that_changed_meanwhile_is_not_replaced() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("a.json");
    fs::write(&path, "old").unwrap();
    let file = OwnFile::read(&path, "").unwrap();
    fs::write(&path, "theirs").unwrap();
    assert!(file.replace("new", true).is_err());
    let absent = OwnFile::read(&dir.path().join("b.json"), "{}").unwrap();
    assert_eq!(absent.text, "{}");
    fs::write(dir.path().join("b.json"), "theirs").unwrap();
    assert!(absent.replace("new", true).is_err(), "it was made meanwhile");
    assert_eq!(fs::read_to_string(&path).unwrap(), "theirs");
}
