//! What is found out of a program before it is started.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use tempfile::TempDir;

use super::*;
use crate::config::ProgramSandbox;

fn program(command: &str, cwd: Option<&Path>) -> Program {
    Program {
        command: command.to_owned(),
        args: Vec::new(),
        env: BTreeMap::new(),
        cwd: cwd.map(Path::to_owned),
        sandbox: ProgramSandbox::Masked,
        hidden: Arc::default(),
        secrets: Arc::default(),
    }
}

fn script(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// `check` and the start of a program both say this.
#[test]
fn program_that_cannot_be_started_is_told_by_what_is_in_its_place() {
    struct Case {
        command: &'static str,
        cwd: &'static str,
        sentence: &'static str,
        cure: &'static str,
    }
    let dir = TempDir::new().unwrap();
    let place = |name: &str| dir.path().join(name);
    fs::create_dir(place("directory")).unwrap();
    fs::write(place("file"), "").unwrap();
    script(&place("windows"), "#!/bin/sh\r\necho\r\n");
    script(&place("windows-env"), "#!/usr/bin/env node\r\n");
    let cases = [
        Case {
            command: "./directory",
            cwd: ".",
            sentence: "it is a directory",
            cure: "one in DIR/directory",
        },
        Case { command: "./file", cwd: ".", sentence: "not executable", cure: "chmod +x DIR/file" },
        Case {
            command: "sh",
            cwd: "file",
            sentence: "its working directory DIR/file is no directory",
            cure: "DIR/file is a file",
        },
        Case {
            command: "sh",
            cwd: "missing",
            sentence: "its working directory DIR/missing does not exist",
            cure: "make DIR/missing",
        },
        Case {
            command: "./windows",
            cwd: ".",
            sentence: "carriage return",
            cure: "sed -i 's/\\r$//' DIR/windows",
        },
        Case {
            command: "./windows-env",
            cwd: ".",
            sentence: "carriage return",
            cure: "DIR/windows-env",
        },
    ];
    let name = dir.path().display().to_string();
    for Case { command, cwd, sentence, cure } in cases {
        let cwd = if cwd == "." { dir.path().to_owned() } else { place(cwd) };
        let error = locate(&program(command, Some(&cwd))).unwrap_err();
        let [sentence, cure] = [sentence, cure].map(|text| text.replace("DIR", &name));
        assert!(error.to_string().contains(&sentence), "{error}");
        assert!(error.own_cure().is_some_and(|own| own.contains(&cure)), "{error:?}");
    }
}

#[test]
fn script_with_plain_lines_is_found() {
    let dir = TempDir::new().unwrap();
    for (name, text) in [("plain", "#!/bin/sh\necho\r\n"), ("binary", "\u{7f}ELF\r\n")] {
        script(&dir.path().join(name), text);
        locate(&program(&format!("./{name}"), Some(dir.path()))).unwrap();
    }
}
