//! The log: one line an event, whatever peers and MANTYX say, in both formats.

use std::collections::BTreeSet;

use serde_json::Value;
use tempfile::TempDir;

use crate::{
    bridge::{Bridge, command},
    frames::Script,
    mantyx::Mantyx,
    peers, wait,
};

/// What a terminal obeys, what ends a line, and what cannot be seen or turns text around.
fn is_odd(c: char) -> bool {
    c != '\t' && (c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{200b}'))
}

/// Has a server and MANTYX say what no log should repeat, and reads what the log has then.
async fn insulted(start: impl AsyncFnOnce(&str) -> Bridge) -> (Bridge, String) {
    let mantyx = Mantyx::start().await;
    let bad = peers::hostile_mcp(&[]);
    let bridge = start(&format!("{}mcp:\n  bad: {bad}\n", mantyx.upstream())).await;
    bridge.wait_backend("bad", "ready").await;
    let call = async |script: Script, id: &str| {
        mantyx.script(script);
        bridge.post_run("{}").await;
        mantyx.answer(id).await
    };
    let answer = call(Script::one_call("tu_1", "bad", "bad_insult", "{}"), "tu_1").await;
    assert!(answer["error"].is_string(), "{answer}");
    call(Script::one_call("tu_2", "bad", "bad_garbage", "{}"), "tu_2").await;
    // An id that MANTYX made up.
    let id = r"tu\u001b[31m\n\u009b3";
    let said = "tu\u{1b}[31m\n\u{9b}3";
    call(Script::new().mcp(id, "bad", "bad_fail", "{}").until("never"), said).await;
    wait::soon("all should be in the log", async || {
        let log = bridge.log();
        let all = ["insult on stderr", "insult in a log", "tu_2", "[31m\\n", "answered"];
        all.iter().all(|part| log.contains(part)).then_some(())
    })
    .await;
    let log = bridge.log();
    (bridge, log)
}

#[tokio::test]
async fn every_line_is_one_object_whatever_peers_say() {
    let (mut bridge, _) =
        insulted(async |config: &str| Bridge::start_with(config, &[("RUST_LOG", "debug")]).await)
            .await;
    bridge.stop().await;
    let log = bridge.log();
    let mut said = BTreeSet::new();
    for line in log.split_terminator('\n') {
        assert!(!line.contains(is_odd), "{line:?}");
        let event: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("JSON: {line:?}"));
        let text = |key: &str| event[key].as_str().unwrap_or_else(|| panic!("{key} in {line}"));
        let time = text("timestamp");
        assert!(time.len() == 27 && time.ends_with('Z') && time.contains('T'), "RFC 3339: {time}");
        let level = text("level");
        assert!(["ERROR", "WARN", "INFO", "DEBUG"].contains(&level), "{line}");
        assert!(!text("target").is_empty() && !text("message").is_empty(), "{line}");
        assert_ne!(event["message"], "forged");
        if event["message"] == "answered" {
            for key in ["run", "toolUseId", "backend", "app", "tool"] {
                said.insert(format!("{key}={}", text(key)));
            }
            assert!(event["ms"].is_u64() && event["ok"].is_boolean(), "{line}");
        }
    }
    for field in ["backend=bad", "app=default", "toolUseId=tu_1", "tool=bad_insult"] {
        assert!(said.contains(field), "{field} in {said:?}");
    }
    assert!(said.contains("toolUseId=tu\u{1b}[31m\n\u{9b}3"), "whole, once it is read: {said:?}");
}

#[tokio::test]
async fn every_line_for_people_is_one_event_whatever_peers_say() {
    let (mut bridge, _) = insulted(Bridge::start_pretty).await;
    bridge.stop().await;
    let log = bridge.log();
    for line in log.split_terminator('\n') {
        assert!(!line.contains(is_odd), "{line:?}");
        let (time, rest) = line.split_at_checked(27).unwrap_or_else(|| panic!("short: {line}"));
        assert!(time.ends_with('Z') && time.contains('T'), "it begins with its time: {line}");
        let level = rest.trim_start().split(' ').next().unwrap_or_default();
        assert!(["ERROR", "WARN", "INFO", "DEBUG"].contains(&level), "then its level: {line}");
    }
    assert!(log.contains(r"toolUseId=tu\u{1b}[31m\n\u{9b}3"), "written out: {log}");
}

#[tokio::test]
async fn error_that_stops_a_start_is_a_line_of_the_log() {
    let dir = TempDir::new().expect("the temporary directory is writable");
    let path = dir.path().join("bridge.yaml");
    std::fs::write(&path, "upstream: {sandbox: true}\nnonsense: 1\n").expect("writable");
    let output = command()
        .args(["serve", "--log-format", "json", "-c"])
        .arg(&path)
        .output()
        .expect("the binary runs");
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).expect("UTF-8");
    let lines: Vec<&str> = text.split_terminator('\n').collect();
    let [line] = lines[..] else { panic!("one line: {text}") };
    let event: Value = serde_json::from_str(line).expect("JSON");
    assert_eq!(event["level"], "ERROR");
    let message = event["message"].as_str().expect("a message");
    assert!(message.contains("nonsense") && message.contains('\n'), "with its place: {message}");
}
