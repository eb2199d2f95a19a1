//! What an entry refers to is missing: that backend alone is down, and says what to do.

use std::fs;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::{
    approvals::{approve, id, waiting},
    bridge::Bridge,
    frames::Script,
    harness::{Harness, ledger_in},
    peers, wait,
};

/// Two servers; one of them wants a secret out of a file.
fn config(dir: &TempDir) -> String {
    let plain = peers::ledger(&ledger_in(dir), &[]);
    let secret = dir.path().join("secret");
    let shy = peers::with(&plain, &format!("env: {{SECRET: '${{file:{}}}'}}", secret.display()));
    format!("mcp:\n  plain: {plain}\n  shy: {shy}\n")
}

async fn problem(bridge: &Bridge, subject: &str) -> Option<(String, String)> {
    let status = bridge.status().await;
    let problems = status["problems"].as_array().cloned().unwrap_or_default();
    let found = problems.iter().find(|problem| problem["subject"] == subject)?;
    let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
    Some((text("message"), text("cure")))
}

#[tokio::test]
async fn a_missing_secret_takes_down_one_backend_until_it_is_there() {
    let dir = TempDir::new().expect("the temporary directory is writable");
    let mut rig = Harness::bare(&config(&dir)).await;
    rig.bridge.wait_backend("plain", "ready").await;
    rig.bridge.wait_backend("shy", "down").await;
    let (message, cure) = problem(&rig.bridge, "shy").await.expect("it is told");
    assert!(
        message.contains("mcp.shy.env.SECRET") && message.contains("no such file"),
        "{message}"
    );
    assert!(cure.contains("Create it") && cure.contains("30 s"), "{cure}");

    // The other one works, and a call of this one is answered.
    let script = Script::new().mcp("tu_1", "plain", "plain_note", r#"{"text":"x"}"#);
    rig.run(script.answered("tu_1").done()).await;
    assert_eq!(rig.mantyx.answer("tu_1").await["result"], "noted: x");

    let secret = dir.path().join("secret");
    fs::write(&secret, "hunter22").expect("writable");
    rig.bridge.process().signal(Signal::HUP);
    rig.bridge.wait_backend("shy", "ready").await;
    assert!(problem(&rig.bridge, "shy").await.is_none());

    // What is in it cannot be used any more: the server that runs stays, under its new rules.
    fs::write(&secret, "hunter\0").expect("writable");
    let path = rig.bridge.config_path();
    let text = fs::read_to_string(&path).expect("it is there");
    let rules = text.replace("  shy: {", "  shy: {approve: ['*'], ");
    fs::write(&path, &rules).expect("writable");
    rig.bridge.process().signal(Signal::HUP);
    let (message, cure) =
        wait::soon("the reload should be told", async || problem(&rig.bridge, "config").await)
            .await;
    assert!(message.contains("`shy` is reached as before"), "{message}");
    assert!(cure.contains("keep their earlier connections"), "{cure}");
    assert_eq!(rig.bridge.backend("shy").await["state"], "ready");
    let script = Script::new().mcp("tu_2", "shy", "shy_note", r#"{"text":"y"}"#);
    rig.run(script.answered("tu_2").done()).await;
    let asked = waiting(&rig.bridge, 1).await;
    approve(&rig.bridge, &id(&asked[0])).await;
    assert_eq!(rig.mantyx.answer("tu_2").await["result"], "noted: y");
}

#[tokio::test]
async fn mistake_that_is_no_missing_secret_stays_an_error() {
    let dir = TempDir::new().expect("the temporary directory is writable");
    let file = dir.path().join("bridge.yaml");
    let none = dir.path().join("none").display().to_string();
    for text in [
        format!("upstream: {{workspace: a, credential: '${{file:{none}}}'}}\n"),
        format!("upstream: {{sandbox: true}}\napps: {{a: {{token: '${{file:{none}}}'}}}}\n"),
        format!("upstream: {{sandbox: true}}\nmcp: {{a: {{command: '${{file:{none}}}', x: 1}}}}\n"),
        // A mistake counts although something is missing, and is told first.
        format!(
            "upstream: {{sandbox: true}}\nmcp: {{a: {{command: a, envFile: {none}, env: {{'A=B': x}}}}}}\n"
        ),
    ] {
        fs::write(&file, format!("{text}state_dir: {}\n", dir.path().display())).expect("writable");
        let mut command = crate::bridge::command();
        command.args(["serve", "-c"]).arg(&file);
        let done = tokio::task::spawn_blocking(move || command.output()).await;
        let done = done.expect("it does not panic").expect("the binary is there");
        assert_eq!(done.status.code(), Some(2), "{}", String::from_utf8_lossy(&done.stderr));
    }
}
