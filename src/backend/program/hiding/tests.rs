//! What is masked, and what is told of it. That masks hold needs the real binary and is in the
//! integration tests.

use std::collections::BTreeMap;
use std::sync::Arc;

use tempfile::TempDir;

use super::*;

/// A directory with these files in it; its path leads over no link.
fn tree(files: &[&str]) -> (TempDir, PathBuf) {
    let dir = TempDir::new().unwrap();
    let root = dir.path().canonicalize().unwrap();
    for file in files {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }
    (dir, root)
}

/// What is masked where `hidden` is to be hidden and the program uses `in_use`.
fn masked(root: &Path, hidden: &[&str], in_use: &[&str]) -> Vec<String> {
    let of = |paths: &[&str]| -> Vec<PathBuf> { paths.iter().map(|p| root.join(p)).collect() };
    let masks = masks(&of(hidden), &of(in_use), &Shared::default());
    masks.iter().map(|p| p.strip_prefix(root).unwrap().display().to_string()).collect()
}

fn program(hidden: &[&Path], sandbox: ProgramSandbox) -> Program {
    Program {
        command: "x".into(),
        args: Vec::new(),
        env: BTreeMap::new(),
        cwd: None,
        sandbox,
        hidden: hidden.iter().map(|path| path.to_path_buf()).collect(),
        secrets: Arc::default(),
    }
}

#[test]
fn a_directory_with_nothing_else_in_it_is_masked_whole() {
    let (_dir, root) = tree(&["own/bridge.yaml", "own/state/token", "other", "s/a", "s/b", "s/c"]);
    assert_eq!(masked(&root, &["own/bridge.yaml", "own/state"], &[]), ["own"]);
    assert_eq!(masked(&root, &["own/bridge.yaml"], &[]), ["own/bridge.yaml"]);
    assert_eq!(masked(&root, &["s/a", "s/b"], &[]), ["s/a", "s/b"]);
    assert_eq!(masked(&root, &["s/a", "s/b", "s/c"], &[]), ["s"]);
    assert_eq!(masked(&root, &["s/a", "gone"], &[]), ["s/a"], "what is not there hides itself");
}

/// On a fresh account: what a program makes above the bridge's directories is not lost to it.
#[test]
fn directory_above_those_of_the_bridge_is_not_masked() {
    let (_dir, root) =
        tree(&["local/state/mantyx-bridge/token", "config/mantyx-bridge/bridge.yaml"]);
    let own = ["local/state/mantyx-bridge", "config/mantyx-bridge"];
    let hidden = ["local/state/mantyx-bridge", "config/mantyx-bridge/bridge.yaml"];
    assert_eq!(masked(&root, &hidden, &[]), [own[1], own[0]]);
}

#[test]
fn directory_that_programs_share_is_not_masked() {
    let (_dir, root) =
        tree(&["home/.config/bridge.yaml", "home/.aws/credentials", "home/b/bridge.yaml"]);
    let home = root.join("home").display().to_string();
    let program = Program {
        env: BTreeMap::from([("HOME".to_owned(), home.into())]),
        ..program(&[], ProgramSandbox::Masked)
    };
    let hidden = [".config/bridge.yaml", ".aws/credentials", "b/bridge.yaml"]
        .map(|it| root.join("home").join(it));
    let masks = masks(&hidden, &[], &Shared::with(&program));
    assert_eq!(masks, [hidden[1].clone(), hidden[0].clone(), root.join("home/b")]);
}

#[test]
fn file_that_the_program_uses_is_not_masked_with_its_directory() {
    let (_dir, root) = tree(&["home/bridge.yaml", "other"]);
    assert_eq!(masked(&root, &["home/bridge.yaml"], &[]), ["home"]);
    assert_eq!(masked(&root, &["home/bridge.yaml"], &["home"]), ["home/bridge.yaml"]);
    assert_eq!(masked(&root, &["home/bridge.yaml"], &["home/below"]), ["home/bridge.yaml"]);
}

/// A file that the program makes needs its directory.
#[test]
fn file_that_the_program_is_told_of_is_in_use() {
    let (_dir, root) = tree(&["data/key", "other"]);
    let told = |text: String| Program {
        args: vec![text.into()],
        hidden: Arc::new([root.join("data/key")]),
        ..program(&[], ProgramSandbox::Masked)
    };
    let whole = |text: String| {
        let hidden = hidden(&told(text), Path::new("/bin/x"), true);
        hidden.masks.is_some_and(|masks| masks == [root.join("data")])
    };
    assert!(whole("x".to_owned()));
    assert!(whole(root.join("database").display().to_string()));
    for to in ["", "--db=", "sqlite://", "a:b:", "a "] {
        assert!(!whole(format!("{to}{}/data/new/file", root.display())), "{to}");
    }
}

/// As Kubernetes has secrets: the names lead over a link that is replaced.
#[test]
fn links_to_what_is_hidden_are_nothing_else() {
    let (_dir, root) = tree(&["secrets/..1/key", "other"]);
    std::os::unix::fs::symlink("..1", root.join("secrets/..data")).unwrap();
    std::os::unix::fs::symlink("..data/key", root.join("secrets/key")).unwrap();
    assert_eq!(masked(&root, &["secrets/key"], &[]), ["secrets"]);
}

#[test]
fn readable_secrets_are_told_with_their_cure() {
    let (_dir, root) = tree(&["srv/bridge.yaml", "srv/docs/a"]);
    let (file, docs) = (root.join("srv/bridge.yaml"), root.join("srv/docs"));
    let lists = |path: &Path| {
        ProgramSandbox::Listed(Confinement { read: vec![path.to_owned()], write: Vec::new() })
    };
    let why = Err("no namespaces".to_owned());
    let no_masks = |sandbox| exposure(&program(&[&file], sandbox), &why);
    let with_masks = |sandbox| exposure(&program(&[&file], sandbox), &Ok(()));
    assert_eq!(with_masks(ProgramSandbox::Off), Some(Exposure::Off));
    assert_eq!(no_masks(ProgramSandbox::Off), Some(Exposure::Off));
    let unmasked = Exposure::Unmasked("no namespaces".to_owned());
    assert_eq!(no_masks(ProgramSandbox::Masked), Some(unmasked));
    assert_eq!(no_masks(ProgramSandbox::Secrets), None);
    assert_eq!(no_masks(lists(&docs)), None);
    let listed = Exposure::Listed(file.clone(), "no namespaces".to_owned());
    assert_eq!(no_masks(lists(&root.join("srv"))), Some(listed));
    for sandbox in [ProgramSandbox::Masked, ProgramSandbox::Secrets, lists(&root)] {
        assert_eq!(with_masks(sandbox), None);
    }
    let nothing = Program { hidden: Arc::default(), ..program(&[], ProgramSandbox::Off) };
    assert_eq!(exposure(&nothing, &why), None);
}

#[test]
fn a_file_that_was_replaced_is_told() {
    let (_dir, root) = tree(&["bridge.yaml", "other", "state/token"]);
    let file = root.join("bridge.yaml");
    let masks = [file.clone(), root.join("state")];
    let coverage = Coverage::new(None, Some(&masks));
    assert_eq!(coverage.exposure(), None);
    fs::write(&file, "in place").unwrap();
    assert_eq!(coverage.exposure(), None);
    fs::rename(root.join("other"), &file).unwrap();
    assert_eq!(coverage.exposure(), Some(Exposure::Replaced(file)));
}
