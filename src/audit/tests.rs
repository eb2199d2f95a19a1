//! Lines in the file: whole, in order, through rotation and a disk that fails.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::thread;

use tempfile::TempDir;

use super::queue::WAITING_BYTES;
use super::*;

fn file_log(path: &Path, arguments: bool) -> Audit {
    Audit::open(Some(path), None, arguments).unwrap()
}

fn health(audit: &Audit) -> Health {
    audit.file_health().unwrap()
}

fn call(id: &str, audit: &Audit, arguments: &str) -> Call {
    let raw = RawValue::from_string(arguments.to_owned()).unwrap();
    Call {
        app: "default".to_owned(),
        run: Some("run_1".to_owned()),
        session: None,
        workspace: Some("acme".to_owned()),
        tool_use_id: id.to_owned(),
        name: "fs_ls".to_owned(),
        backend: Some("fs".to_owned()),
        tool: "ls".to_owned(),
        arguments: audit.arguments(&raw),
    }
}

fn tell(audit: &Audit, id: &str) {
    audit.tell(
        &call(id, audit, "{}"),
        "result",
        Duration::from_millis(7),
        &PersonAnswers::default(),
    );
}

fn ids(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    let id = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        line["toolUseId"].as_str().unwrap().to_owned()
    };
    text.lines().map(id).collect()
}

/// Waits until all that was told is written.
fn settle(audit: &Audit, written: u64) {
    while health(audit).written < written {
        thread::yield_now();
    }
}

#[test]
fn a_line_has_the_digest_of_the_exact_bytes() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("audit.jsonl");
    let audit = file_log(&path, false);
    audit.tell(
        &call("tu_1", &audit, "{ \"a\": 1.10 }"),
        "tool_error",
        Duration::from_millis(7),
        &PersonAnswers::default(),
    );
    audit.close();
    let text = fs::read_to_string(&path).unwrap();
    let (time, rest) = text.split_once(r#"Z","#).unwrap();
    assert!(time.starts_with(r#"{"time":"20"#), "{text}");
    // sha256sum says so.
    let digest = "d4ee49d307db79b768f7e130b0bb14d3dd95fe2b892c8055e8ca1497a09d62cc";
    let expected = format!(
        concat!(
            r#""app":"default","run":"run_1","session":null,"workspace":"acme","#,
            r#""toolUseId":"tu_1","name":"fs_ls","backend":"fs","tool":"ls","#,
            r#""argumentsSha256":"{}","outcome":"tool_error","ms":7}}"#,
            "\n"
        ),
        digest
    );
    assert_eq!(rest, expected);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn arguments_are_written_where_that_is_wanted_and_stay_one_plain_line() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("audit.jsonl");
    let audit = file_log(&path, true);
    let arguments = "{\n\"n\": 1e400,\r\n\"s\": \"\u{9b}\\n\"}";
    audit.tell(
        &call("tu_1", &audit, arguments),
        "result",
        Duration::ZERO,
        &PersonAnswers::default(),
    );
    audit.close();
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(r#""arguments":{ "n": 1e400,  "s": "\u009b\n"}"#), "{text}");
    assert_eq!(text.matches('\n').count(), 1);
}

#[test]
fn a_file_that_is_moved_away_is_made_anew() {
    let dir = TempDir::new().unwrap();
    let (path, old) = (dir.path().join("audit.jsonl"), dir.path().join("audit.jsonl.1"));
    let audit = file_log(&path, false);
    tell(&audit, "a");
    settle(&audit, 1);
    fs::rename(&path, &old).unwrap();
    tell(&audit, "b");
    settle(&audit, 2);
    fs::remove_file(&path).unwrap();
    tell(&audit, "c");
    audit.close();
    assert_eq!((ids(&old), ids(&path)), (vec!["a".to_owned()], vec!["c".to_owned()]));
}

#[test]
fn a_line_that_a_crash_cut_off_spoils_no_other() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("audit.jsonl");
    fs::write(&path, "{\"time\":\"2026").unwrap();
    let audit = file_log(&path, false);
    tell(&audit, "a");
    audit.close();
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.starts_with("{\"time\":\"2026\n{\"time\":"), "{text}");
}

#[test]
fn lines_that_cannot_be_written_wait_and_calls_do_not() {
    let dir = TempDir::new().unwrap();
    let inner = dir.path().join("logs");
    fs::create_dir(&inner).unwrap();
    let path = inner.join("audit.jsonl");
    let audit = file_log(&path, false);
    // No file can be opened there any more.
    fs::remove_dir_all(&inner).unwrap();
    tell(&audit, "a");
    tell(&audit, "b");
    while health(&audit).error.is_none() {
        thread::yield_now();
    }
    fs::create_dir(&inner).unwrap();
    settle(&audit, 2);
    let end = health(&audit);
    assert_eq!((end.error, end.lost), (None, 0));
    audit.close();
    assert_eq!(ids(&path), ["a", "b"]);
}

#[test]
fn beyond_its_bound_lines_are_lost_and_counted() {
    let dir = TempDir::new().unwrap();
    let inner = dir.path().join("logs");
    fs::create_dir(&inner).unwrap();
    let audit = file_log(&inner.join("audit.jsonl"), true);
    fs::remove_dir_all(&inner).unwrap();
    let call = Call { name: "x".repeat(1 << 20), ..call("tu", &audit, "{}") };
    for _ in 0..20 {
        audit.tell(&call, "result", Duration::ZERO, &PersonAnswers::default());
    }
    assert_eq!(health(&audit).lost, 5, "16 MiB wait, in lines of a little more than 1 MiB");
    audit.close();
    assert_eq!(health(&audit).lost, 20, "and those are lost with the process");
}

#[test]
fn arguments_that_have_no_room_leave_their_line_behind() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("audit.jsonl");
    let audit = file_log(&path, true);
    let large = format!("\"{}\"", "x".repeat(WAITING_BYTES));
    audit.tell(
        &call("tu_1", &audit, &large),
        "result",
        Duration::from_millis(7),
        &PersonAnswers::default(),
    );
    tell(&audit, "tu_2");
    audit.close();
    assert_eq!((ids(&path), health(&audit).lost), (vec!["tu_1".to_owned(), "tu_2".to_owned()], 0));
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["argumentsLeftOut"], true);
    assert!(lines[0]["argumentsSha256"].is_string() && lines[0].get("arguments").is_none());
    assert!(lines[1].get("argumentsLeftOut").is_none());
}
