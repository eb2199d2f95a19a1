//! A server, or the bridge, that ends in the middle of a call: what is called again, and on whose
//! word.

use std::{fs, path::Path};

use tempfile::TempDir;

use crate::{
    frames::Script,
    harness::{Harness, ledger_in},
    peers, wait,
};

/// Starts the ledger server as the backend `one`, with `more` keys in its entry, and calls `tool`,
/// in whose first call the server ends; the answer, and how often the tool was called.
async fn call_that_ends_the_server(more: &str, tool: &str) -> (serde_json::Value, usize) {
    let dir = TempDir::new().expect("the temporary directory is writable");
    let ledger = ledger_in(&dir);
    let entry = peers::ledger(&ledger, &["--dies-in", tool]);
    let entry = if more.is_empty() { entry } else { peers::with(&entry, more) };
    let rig = Harness::bare(&format!("mcp:\n  one: {entry}\n")).await;
    rig.bridge.wait_backend("one", "ready").await;
    let answer = rig.call("one", &format!("one_{tool}"), "{}").await;
    // Whoever would call it again has had the time to.
    wait::soon("the server should be back", async || {
        let note = r#"{"toolUseId":"tu_2","name":"one_note","args":{"text":"x"}}"#;
        let answer = rig.bridge.api("POST", "/v1/tool-calls", Some(note)).await.expect(200);
        (answer["result"] == "noted: x").then_some(())
    })
    .await;
    (answer, executions(&ledger, tool))
}

fn executions(ledger: &Path, tool: &str) -> usize {
    let text = fs::read_to_string(ledger).expect("the server has written its ledger");
    let mark = format!("{{\"tool\": \"{tool}\"");
    text.lines().filter(|line| line.starts_with(&mark)).count()
}

const TRUSTED: &str = "trust_annotations: true";

#[tokio::test]
async fn a_call_that_reads_is_made_again_where_the_server_is_trusted() {
    let (answer, executions) = call_that_ends_the_server(TRUSTED, "reread").await;
    assert_eq!((&answer["result"], executions), (&"read again".into(), 2), "{answer}");
}

#[tokio::test]
async fn idempotent_call_is_made_again_where_the_server_is_trusted() {
    let (answer, executions) = call_that_ends_the_server(TRUSTED, "pid").await;
    assert!(answer["result"].is_string(), "{answer}");
    assert_eq!(executions, 2);
}

#[tokio::test]
async fn no_other_call_is_made_again() {
    struct Case {
        more: &'static str,
        tool: &'static str,
        why: &'static str,
    }
    for Case { more, tool, why } in [
        Case { more: "", tool: "reread", why: "nobody trusts the server" },
        Case { more: "trust_annotations: false", tool: "pid", why: "nobody trusts the server" },
        Case { more: TRUSTED, tool: "fail", why: "the tool says that it destroys" },
        Case { more: TRUSTED, tool: "args", why: "the tool says nothing" },
    ] {
        let (answer, executions) = call_that_ends_the_server(more, tool).await;
        let error = answer["error"].as_str().unwrap_or_default();
        assert!(error.contains("OUTCOME_UNKNOWN"), "{why}: {answer}");
        assert_eq!(executions, 1, "{why}, so {tool} runs once");
    }
}

#[tokio::test]
async fn a_call_that_only_reads_runs_again_where_the_server_is_trusted() {
    let dir = TempDir::new().expect("the temporary directory is writable");
    let ledger = ledger_in(&dir);
    let trusted = peers::with(&peers::ledger(&ledger, &[]), "trust_annotations: true");
    let mut rig = Harness::with(&format!("  sure: {trusted}\n"), &[], "").await;
    rig.bridge.wait_backend("sure", "ready").await;
    let both = Script::new().mcp("tu_sure", "sure", "sure_reread", "{}").mcp(
        "tu_plain",
        "plain",
        "plain_reread",
        "{}",
    );
    rig.run(both.answered("tu_sure").answered("tu_plain").done()).await;
    rig.wait_executions(1).await;
    // The file is there before its line is.
    let is_written = || fs::read(&ledger).is_ok_and(|told| told.ends_with(b"\n"));
    wait::soon("the call should reach the trusted server", async || is_written().then_some(()))
        .await;
    rig.bridge.kill9();
    rig.bridge.restart().await;
    assert_eq!(rig.mantyx.answer("tu_sure").await["result"], "read again");
    let error = rig.mantyx.answer("tu_plain").await["error"].to_string();
    assert!(error.contains("OUTCOME_UNKNOWN"), "a hint of an untrusted server counts not: {error}");
    assert_eq!(rig.executions().len(), 1, "so it is not called again");
}
