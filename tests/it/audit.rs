//! The audit log: a line for each call, whatever came of it, and none that a call waits for.

use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::{frames::Script, harness::Harness, peers::repository, wait};

const AUDIT: &str = "audit: {file: state/audit.jsonl}\n";

fn file(rig: &Harness) -> PathBuf {
    rig.bridge.state("audit.jsonl")
}

fn lines(rig: &Harness) -> Vec<Value> {
    let text = fs::read_to_string(file(rig)).unwrap_or_default();
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    whole.map(|line| serde_json::from_str(line).expect("JSON lines")).collect()
}

/// Waits for so many lines; what they say of these calls.
async fn outcomes(rig: &Harness, count: usize) -> Vec<(String, String)> {
    let lines = wait::soon("the lines should be written", async || {
        Some(lines(rig)).filter(|lines| lines.len() >= count)
    })
    .await;
    assert_eq!(lines.len(), count, "{lines:#?}");
    let text = |line: &Value, key: &str| line[key].as_str().unwrap_or_default().to_owned();
    lines.iter().map(|line| (text(line, "toolUseId"), text(line, "outcome"))).collect()
}

fn said(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(id, outcome)| ((*id).to_owned(), (*outcome).to_owned())).collect()
}

#[tokio::test]
async fn a_line_says_who_called_what_and_what_came_of_it() {
    let mut rig = Harness::with("", &[], AUDIT).await;
    let arguments = r#"{"text": "a secret of the user's"}"#;
    let run = rig.run(Script::one_call("tu_1", "plain", "plain_note", arguments)).await;
    rig.mantyx.answer("tu_1").await;
    rig.call_again("tu_2", "plain_fail", "{}").await;
    rig.call_again("tu_3", "plain_note", r#"{"text":7}"#).await;
    let by_hand = r#"{"toolUseId":"tu_4","name":"plain_note","args":{"text":"b"}}"#;
    rig.bridge.api("POST", "/v1/tool-calls", Some(by_hand)).await.expect(200);
    let expected =
        [("tu_1", "result"), ("tu_2", "tool_error"), ("tu_3", "input_invalid"), ("tu_4", "result")];
    assert_eq!(outcomes(&rig, 4).await, said(&expected));
    let all = lines(&rig);
    let mut first = all[0].clone();
    let taken = first["ms"].take();
    assert!(taken.as_u64().is_some_and(|ms| ms < 20_000), "{taken}");
    let time = first["time"].take();
    let time = time.as_str().expect("a time");
    assert!(time.len() == 24 && time.ends_with('Z'), "RFC 3339: {time}");
    let digest: String =
        Sha256::digest(arguments).iter().map(|byte| format!("{byte:02x}")).collect();
    let expected = serde_json::json!({
        "time": null, "app": "default", "run": run.run_id, "session": null, "workspace": "acme",
        "toolUseId": "tu_1", "name": "plain_note", "backend": "plain", "tool": "note",
        "argumentsSha256": digest, "outcome": "result", "ms": null,
    });
    assert_eq!(first, expected);
    let page = fs::read_to_string(repository("docs/audit.md")).expect("the page of the audit log");
    for key in expected.as_object().expect("an object").keys() {
        assert!(page.contains(&format!("`{key}`")), "docs/audit.md has {key}");
    }
    assert_eq!((&all[3]["run"], &all[3]["workspace"]), (&Value::Null, &Value::Null));
    let text = fs::read_to_string(file(&rig)).expect("the file is there");
    assert!(!text.contains("a secret"), "no arguments: {text}");
    let mode = fs::metadata(file(&rig)).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // Another life appends.
    rig.bridge.stop().await;
    rig.bridge.restart().await;
    rig.bridge.wait_backend("plain", "ready").await;
    rig.call_again("tu_5", "plain_note", arguments).await;
    assert_eq!(outcomes(&rig, 5).await.pop(), said(&[("tu_5", "result")]).pop());
}

#[tokio::test]
async fn arguments_only_where_that_is_wanted() {
    let audit = "audit: {file: state/audit.jsonl, arguments: true}\n";
    let rig = Harness::with("", &[], audit).await;
    rig.call_again("tu_1", "plain_args", r#"{"b":1.10,"a":[ 1e400 ]}"#).await;
    outcomes_of_text(&rig, r#""arguments":{"b":1.10,"a":[ 1e400 ]},"outcome":"result""#).await;
}

async fn outcomes_of_text(rig: &Harness, part: &str) {
    wait::soon(&format!("the log should have {part}"), async || {
        fs::read_to_string(file(rig)).unwrap_or_default().contains(part).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_call_that_goes_on_has_two_lines_and_a_cancelled_one_says_so() {
    let rig = Harness::with_keys("pending_after: 1s,", "", &[], AUDIT).await;
    let script = Script::new().mcp("tu_1", "plain", "plain_hang", "{}").until("never");
    let run = rig.run(script).await;
    rig.mantyx.answer("tu_1").await;
    assert_eq!(outcomes(&rig, 1).await, said(&[("tu_1", "pending")]));
    let cancel = format!("{}/agent-runs/{}/cancel", crate::bridge::API, run.run_id);
    rig.bridge.api("POST", &cancel, Some("{}")).await.expect(200);
    assert_eq!(outcomes(&rig, 2).await, said(&[("tu_1", "pending"), ("tu_1", "cancelled")]));
}

#[tokio::test]
async fn a_call_that_a_crash_interrupted_is_unknown() {
    let mut rig = Harness::with("", &[], AUDIT).await;
    rig.run(Script::new().mcp("tu_1", "plain", "plain_hang", "{}").until("never")).await;
    rig.wait_executions(1).await;
    rig.bridge.kill9();
    rig.bridge.restart().await;
    let answer = rig.mantyx.answer("tu_1").await;
    assert!(answer["error"].as_str().is_some_and(|e| e.contains("OUTCOME_UNKNOWN")), "{answer}");
    assert_eq!(outcomes(&rig, 1).await, said(&[("tu_1", "unknown")]));
    assert_eq!(lines(&rig)[0]["backend"], "plain");
}

#[tokio::test]
async fn a_call_that_is_not_what_the_run_was_given_is_denied() {
    let rig = Harness::with("", &[], AUDIT).await;
    let call = r#"{"toolUseId":"tu_1","name":"plain_note","args":{"text":"x"},"kind":"a2a_local"}"#;
    rig.run(Script::new().event("local_tool_call", call).answered("tu_1").done()).await;
    let answer = rig.mantyx.answer("tu_1").await;
    assert!(answer["error"].is_string(), "{answer}");
    assert_eq!(outcomes(&rig, 1).await, said(&[("tu_1", "denied")]));
}

#[tokio::test]
async fn a_rotated_file_is_made_anew() {
    let rig = Harness::with("", &[], AUDIT).await;
    rig.call_again("tu_1", "plain_note", r#"{"text":"a"}"#).await;
    assert_eq!(outcomes(&rig, 1).await, said(&[("tu_1", "result")]));
    fs::rename(file(&rig), rig.bridge.state("audit.jsonl.1")).expect("renamed");
    rig.call_again("tu_2", "plain_note", r#"{"text":"b"}"#).await;
    assert_eq!(outcomes(&rig, 1).await, said(&[("tu_2", "result")]));
}

#[tokio::test]
async fn a_full_disk_holds_up_no_call_and_is_told() {
    let rig = Harness::with("", &[], "audit: {file: /dev/full}\n").await;
    for id in ["tu_1", "tu_2", "tu_3"] {
        assert_eq!(rig.call_again(id, "plain_note", r#"{"text":"a"}"#).await["result"], "noted: a");
    }
    wait::soon("the status should tell", async || {
        let status = rig.bridge.status().await;
        let problems = status["problems"].as_array().expect("problems");
        let of_audit = problems.iter().find(|problem| problem["subject"] == "audit");
        of_audit?["message"].as_str().filter(|message| message.contains("No space")).map(drop)
    })
    .await;
    let metrics = rig.bridge.api("GET", "/metrics", None).await.text();
    assert!(metrics.contains("mantyx_bridge_audit_writable 0.0"), "{metrics}");
    let log = rig.bridge.log();
    let told = log.lines().filter(|line| line.contains("ERROR") && line.contains("audit"));
    assert_eq!(told.count(), 1, "told once: {log}");
}
