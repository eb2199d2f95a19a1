//! Rules of the tree, checked as tests are: what a file opens with, how long it is, who may know
//! whom.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::peers::repository;

/// Files longer than this have more than one job.
const MAX_LINES: usize = 600;

/// A part of `src`, and the parts of ours that it must not name.
const DIRECTIONS: &[(&str, &[&str])] = &[
    (
        "oauth",
        &[
            "api", "backend", "cli", "config", "daemon", "door", "front", "journal", "proxy",
            "runs", "sandbox", "server", "state", "upstream", "wire",
        ],
    ),
    (
        "wire",
        &[
            "api", "backend", "cli", "config", "daemon", "door", "front", "model", "proxy", "runs",
            "sandbox", "server", "upstream",
        ],
    ),
    (
        "audit",
        &[
            "api", "backend", "cli", "config", "daemon", "door", "front", "journal", "proxy",
            "runs", "sandbox", "server", "upstream", "wire",
        ],
    ),
    (
        "metrics",
        &[
            "api", "backend", "cli", "config", "daemon", "door", "front", "journal", "proxy",
            "runs", "sandbox", "server", "upstream", "wire",
        ],
    ),
    (
        "traces",
        &[
            "api", "audit", "backend", "cli", "config", "daemon", "door", "front", "journal",
            "proxy", "runs", "sandbox", "server", "upstream", "wire",
        ],
    ),
    (
        "keys",
        &[
            "api", "audit", "backend", "cli", "config", "daemon", "door", "front", "journal",
            "proxy", "runs", "sandbox", "server", "state", "tls", "upstream", "wire",
        ],
    ),
    (
        "config",
        &[
            "api", "backend", "cli", "daemon", "door", "front", "proxy", "runs", "sandbox",
            "server", "upstream",
        ],
    ),
    (
        "backend",
        &[
            "api", "cli", "daemon", "door", "front", "proxy", "runs", "sandbox", "server",
            "upstream",
        ],
    ),
    (
        "upstream",
        &["api", "backend", "cli", "daemon", "door", "front", "proxy", "runs", "sandbox", "server"],
    ),
    (
        "journal",
        &[
            "api", "backend", "cli", "config", "daemon", "door", "front", "proxy", "runs",
            "sandbox", "server", "upstream",
        ],
    ),
    (
        "sandbox",
        &[
            "api", "backend", "cli", "config", "daemon", "door", "front", "proxy", "runs",
            "server", "upstream",
        ],
    ),
    (
        "tls",
        &[
            "api", "backend", "cli", "config", "daemon", "door", "front", "journal", "proxy",
            "runs", "sandbox", "server", "upstream", "wire",
        ],
    ),
    ("runs", &["api", "cli", "daemon", "door", "front", "proxy", "sandbox", "server"]),
    ("door", &["api", "backend", "cli", "daemon", "front", "proxy", "runs", "sandbox", "server"]),
    (
        "page",
        &[
            "api", "backend", "cli", "config", "daemon", "front", "model", "proxy", "runs",
            "sandbox", "server", "upstream",
        ],
    ),
    ("proxy", &["api", "cli", "daemon", "front", "sandbox", "server"]),
    ("api", &["cli", "daemon", "front", "sandbox", "server"]),
    (
        "front",
        &["backend", "cli", "config", "daemon", "model", "runs", "sandbox", "server", "upstream"],
    ),
    (
        "server",
        &[
            "api", "backend", "cli", "config", "daemon", "model", "proxy", "runs", "sandbox",
            "upstream",
        ],
    ),
];

/// What `model` must not name: it decides, and others act.
const NOT_IN_MODEL: &[&str] = &[
    "tokio",
    "reqwest",
    "hyper",
    "rmcp",
    "std::fs",
    "std::net",
    "std::process",
    "std::time::System",
];

struct Source {
    /// Relative to the repository.
    path: String,
    text: String,
}

/// All files of ours with one of these extensions.
fn sources(extensions: &[&str]) -> Vec<Source> {
    let root = repository("");
    let mut found = Vec::new();
    let mut left: Vec<PathBuf> = vec![root.clone()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(&dir).expect("a directory of the repository") {
            let path = entry.expect("an entry of a directory of ours").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                if !matches!(name.as_str(), "target" | ".git" | "node_modules" | "__pycache__") {
                    left.push(path);
                }
            } else if extensions.iter().any(|extension| matches_extension(&path, extension)) {
                let relative = path.strip_prefix(&root).expect("below the root");
                let text = fs::read_to_string(&path).expect("a text file");
                found.push(Source { path: relative.display().to_string(), text });
            }
        }
    }
    assert!(!found.is_empty(), "no file with {extensions:?}");
    found
}

/// An empty extension stands for the scripts below `.ci`.
fn matches_extension(path: &Path, extension: &str) -> bool {
    match extension {
        "" => path.parent().and_then(Path::file_name).is_some_and(|dir| dir == ".ci"),
        _ => path.extension().is_some_and(|found| found == extension),
    }
}

#[track_caller]
fn none(what: &str, offenders: &[String]) {
    assert!(offenders.is_empty(), "{what}:\n  {}", offenders.join("\n  "));
}

#[test]
fn every_file_opens_with_what_it_is() {
    let opens = |source: &Source| {
        let mut lines = source.text.lines();
        let first = lines.next().unwrap_or_default();
        match source.path.rsplit('.').next() {
            Some("rs") => first.starts_with("//! "),
            Some("py") if first.starts_with("#!") => {
                lines.next().is_some_and(|line| line.starts_with("\"\"\""))
            }
            Some("py") => first.starts_with("\"\"\""),
            _ if first.starts_with("#!") => lines.next().is_some_and(|line| line.starts_with("# ")),
            _ => first.starts_with("# "),
        }
    };
    let closed = sources(&["rs", "py", "sh", ""]).into_iter().filter(|source| !opens(source));
    none("these files do not open with what they are", &closed.map(|s| s.path).collect::<Vec<_>>());
}

#[test]
fn no_file_is_too_long() {
    let long = sources(&["rs", "py", "sh", ""]).into_iter().filter_map(|source| {
        let lines = source.text.lines().count();
        (lines > MAX_LINES).then(|| format!("{} ({lines} lines)", source.path))
    });
    none(&format!("these files have over {MAX_LINES} lines"), &long.collect::<Vec<_>>());
}

/// The part of `src` that a path belongs to: `backend` for src/backend.rs and src/backend/mcp.rs.
fn part(path: &str) -> Option<&str> {
    let rest = path.strip_prefix("src/")?;
    let first = rest.split('/').next()?;
    Some(first.strip_suffix(".rs").unwrap_or(first))
}

/// Whether `line` names the word `name` and not a longer one.
fn names(line: &str, name: &str) -> bool {
    line.match_indices(name).any(|(at, _)| {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let before = line.get(..at).and_then(|text| text.chars().next_back());
        let after = line.get(at + name.len()..).and_then(|text| text.chars().next());
        !before.is_some_and(word) && !after.is_some_and(word)
    })
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

#[test]
fn parts_name_only_what_they_may() {
    let mut offenders = Vec::new();
    for source in sources(&["rs"]) {
        let Some(part) = part(&source.path) else { continue };
        let forbidden = DIRECTIONS.iter().find(|(name, _)| *name == part).map(|(_, list)| *list);
        for (number, line) in source.text.lines().enumerate().filter(|(_, l)| !is_comment(l)) {
            let mut offend = |what: &str| {
                offenders.push(format!("{}:{}: {what}: {}", source.path, number + 1, line.trim()));
            };
            for other in forbidden.into_iter().flatten() {
                if names(line, &format!("crate::{other}")) {
                    offend(&format!("{part} must not know {other}"));
                }
            }
            if part == "model" {
                let foreign = line.contains("crate::") && !names(line, "crate::model");
                if foreign {
                    offend("model knows nothing of ours but itself");
                }
                for name in NOT_IN_MODEL.iter().filter(|name| names(line, name)) {
                    offend(&format!("model must not name {name}"));
                }
            }
        }
    }
    none("these lines break the direction rules", &offenders);
}

/// What is promised is held: SECURITY.md names a test as `module::name`.
#[test]
fn every_test_that_is_named_as_holding_a_promise_exists() {
    let text = fs::read_to_string(repository("SECURITY.md")).expect("a text file");
    let named: Vec<&str> =
        text.split('`').skip(1).step_by(2).filter(|n| n.contains("::")).collect();
    let missing = named.iter().filter(|name| {
        let (module, test) = name.rsplit_once("::").expect("it has the two parts");
        let file = repository("tests/it").join(format!("{}.rs", module.replace("::", "/")));
        let source = fs::read_to_string(file).unwrap_or_default();
        !source.contains(&format!("fn {test}()"))
    });
    none(
        "SECURITY.md names tests that are not there",
        &missing.map(|n| (*n).into()).collect::<Vec<_>>(),
    );
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| ")).collect();
    let held = rows.iter().filter(|row| row.contains("::")).count();
    let promised = rows.iter().skip_while(|row| !row.starts_with("| promise |")).count();
    assert_eq!(held + 1, promised, "every promise has its test, below the head of the table");
}

#[test]
fn nothing_is_left_undone_and_no_machine_is_named() {
    // In two parts, so that this file does not offend itself.
    let marks = [("FIX", "ME"), ("TO", "DO"), ("XX", "X")].map(|(a, b)| format!("{a}{b}"));
    let paths = [("/tmp", "/wt"), ("/tmp", "/ref"), ("/wo", "rk/"), ("/ro", "ot/")]
        .map(|(a, b)| format!("{a}{b}"));
    let mut offenders = Vec::new();
    for source in
        sources(&["rs", "py", "sh", "", "md", "yaml", "toml", "service", "socket", "conf"])
    {
        for (number, line) in source.text.lines().enumerate() {
            let mark = marks.iter().find(|mark| names(line, mark));
            let path = paths.iter().find(|path| line.contains(path.as_str()));
            if let Some(found) = mark.or(path) {
                offenders.push(format!("{}:{}: {found}", source.path, number + 1));
            }
        }
    }
    none("these lines are unfinished or name a machine", &offenders);
}
