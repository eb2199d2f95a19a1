//! What stays of bridge.yaml, byte for byte, and what is refused.

use serde_json::json;

use super::*;

fn entry() -> Map<String, Value> {
    let entry = json!({
        "command": "npx",
        "args": ["-y", "@scope/pkg", "a b", "1.5", "on"],
        "env": {"TOKEN": "${secret:TOKEN}", "LEVEL": "7"},
    });
    entry.as_object().cloned().unwrap()
}

/// The text before and after the place of the entry is that of the file.
#[track_caller]
fn check_added(text: &str) -> String {
    let edit = with_server(text, "new", &entry()).unwrap_or_else(|why| panic!("{why}: {text}"));
    let (front, back) = text.split_at(edit.splice.at);
    let back = back.strip_prefix(edit.splice.old.as_str()).unwrap();
    assert_eq!(edit.text, format!("{front}{}{back}", edit.splice.new));
    assert!(is_nothing_of_a_person(&edit.splice.old), "{:?}", edit.splice);
    let removed = without_backend(&edit.text, "new").unwrap().unwrap();
    assert_eq!(tree(&removed.text).unwrap().get("mcp").map_or(0, size), size_before(text));
    edit.text
}

fn is_nothing_of_a_person(old: &str) -> bool {
    old.chars().all(|c| c.is_whitespace() || "{}".contains(c))
}

fn size(section: &Value) -> usize {
    section.as_object().map_or(0, Map::len)
}

fn size_before(text: &str) -> usize {
    tree(text).unwrap().get("mcp").map_or(0, size)
}

const FILE: &str = "\
# mine
x-common: &common {command: cat}   # an anchor
upstream: {sandbox: true}

mcp:
  # the first
  a: *common            # an alias

  b:
    command: cat
    args: [x]   # why
  # about what comes

a2a: {desk: {bundled: true}}
";

#[test]
fn entry_is_added_and_every_other_byte_stays() {
    for text in [
        FILE,
        "mcp: {a: {command: cat}} # one line\na2a: {}\n",
        "mcp: {\n  a: {command: cat}, # x\n  b: {command: cat},\n}\n",
        "mcp:\n    a:\n        command: cat\nlisten: 127.0.0.1:1\n",
        "mcp:\n  a: {command: cat}",
        "mcp: {}   # none yet\nlisten: 127.0.0.1:1\n",
        "mcp:\n# none yet\nlisten: 127.0.0.1:1\n",
        "upstream: {sandbox: true}",
        "# nothing but a comment\n",
        "",
        "mcpServers:\n  a: {command: cat}\n",
        include_str!("../../../../bridge.yaml"),
    ] {
        check_added(text);
        let crlf = check_added(&text.replace('\n', "\r\n"));
        let is_mixed = text.contains('\n') && crlf.replace("\r\n", "").contains('\n');
        assert!(!is_mixed, "line ends: {crlf:?}");
    }
}

#[test]
fn added_entry_reads_as_a_person_would_write_it() {
    let text = check_added("mcp:\n  a: {command: cat}\n");
    let expected = "\
mcp:
  a: {command: cat}
  new:
    command: npx
    args: [-y, \"@scope/pkg\", \"a b\", \"1.5\", \"on\"]
    env: {LEVEL: \"7\", TOKEN: \"${secret:TOKEN}\"}
";
    assert_eq!(text, expected);
    let text = check_added("upstream: {sandbox: true}\n");
    assert!(
        text.starts_with("upstream: {sandbox: true}\nmcp:\n  new:\n    command: npx\n"),
        "{text}"
    );
}

#[test]
fn removal_takes_the_entry_and_no_other_byte() {
    let removed = without_backend(FILE, "b").unwrap().unwrap();
    let expected = FILE.replace("  b:\n    command: cat\n    args: [x]   # why\n", "");
    assert_eq!(removed.text, expected);
    let removed = without_backend(FILE, "desk").unwrap().unwrap();
    assert_eq!(removed.text, FILE.replace("{desk: {bundled: true}}", "{}"));
    assert!(without_backend(FILE, "absent").unwrap().is_none());
}

#[test]
fn entry_with_an_anchor_that_others_need_is_not_removed() {
    let text = "mcp:\n  a: &a {command: cat}\n  b: *a\n";
    let why = without_backend(text, "a").unwrap_err();
    assert!(why.contains("anchor"), "{why}");
    let removed = without_backend(text, "b").unwrap().unwrap();
    assert_eq!(removed.text, "mcp:\n  a: &a {command: cat}\n");
}

#[test]
fn file_that_cannot_be_read_or_has_another_shape_is_refused() {
    for text in ["mcp: [a, b]\n", "mcp: word\n", "- a\n", "mcp: {\n", "a: 1\n---\nb: 2\n", "\tmcp:"]
    {
        assert!(with_server(text, "new", &entry()).is_err(), "{text:?}");
    }
    let merged = "x-all: &all {a: {command: cat}}\nmcp: *all\n";
    assert!(with_server(merged, "new", &entry()).is_err(), "the section is an alias");
}

#[test]
fn texts_keep_their_meaning() {
    for text in [
        "plain",
        "-y",
        "--",
        "---",
        "-1",
        "1",
        "0x1f",
        "1e5",
        "true",
        "No",
        "~",
        "null",
        "",
        " a",
        "a: b",
        "a #b",
        "*a",
        "&a",
        "!a",
        "%a",
        "@a",
        "`a",
        "{a}",
        "[a]",
        "a,b",
        "'a'",
        "\"a\"",
        "\\",
        "line\nline",
        "\u{202e}x",
        "\u{1f600}",
        "ä",
        "/srv/docs",
        "2026-01-01",
        "on",
        "=",
    ] {
        let entry = json!({ "command": "cat", "args": [text], "env": {"K": text} });
        let entry = entry.as_object().unwrap();
        for file in ["mcp:\n  a: {command: cat}\n", "mcp: {a: {command: cat}}\n", ""] {
            let edit = with_server(file, "new", entry);
            let edit = edit.unwrap_or_else(|why| panic!("{text:?} in {file:?}: {why}"));
            assert!(!edit.text.chars().any(|c| c != '\n' && visible::hides(c)), "{text:?}");
        }
    }
}
