//! `status --watch`, and what clients of the daemon have in common.

use std::fs;

use rustix::process::Signal;
use serde_json::Value;

use super::{FAILED, OK, USAGE, desk::Desk, run, with};
use crate::{harness::Harness, wait};

const CLEAR: &str = "\x1b[H\x1b[J";

#[tokio::test]
async fn a_terminal_is_drawn_anew_in_place() {
    let mut rig = Harness::start().await;
    let config = rig.client_config();
    let mut desk = Desk::on_terminal(34, 9, &["status", "--watch", "-c", &config]);
    desk.becomes("two frames", |out| out.matches(CLEAR).count() >= 2).await;
    rig.bridge.kill9();
    desk.says("nothing listens").await;
    rig.bridge.restart().await;
    let drawn = desk.out().matches(CLEAR).count();
    desk.becomes("it is there again", |out| out.matches(CLEAR).count() > drawn + 1).await;
    desk.type_in("\x03");
    let ran = desk.ended().await.expect(OK);
    assert!(ran.out.contains("\x1b[32mready"), "in colours: {:?}", ran.out);
}

#[tokio::test]
async fn status_without_a_terminal_prints_one_block_after_the_other() {
    let rig = Harness::start().await;
    let config = rig.client_config();
    let mut desk = Desk::start(&["status", "--watch", "-c", &config]);
    desk.becomes("two blocks", |out| out.matches("mantyx-bridge ").count() >= 2).await;
    desk.signal(Signal::INT);
    let ran = desk.ended().await.expect(OK);
    assert!(!ran.out.contains('\x1b') && ran.out.contains("plain"), "{}", ran.out);

    let mut desk = Desk::start(&["status", "--watch", "--json", "-c", &config]);
    desk.becomes("two lines", |out| out.lines().count() >= 2).await;
    desk.signal(Signal::TERM);
    let ran = desk.ended().await.expect(OK);
    for line in ran.out.lines() {
        let status: Value = serde_json::from_str(line).expect("each line is an answer");
        assert_eq!(status["backends"][0]["name"], "plain", "{status}");
    }
}

#[tokio::test]
async fn a_daemon_that_is_not_there_is_no_beginning() {
    let mut rig = Harness::start().await;
    let config = rig.client_config();
    rig.bridge.stop().await;
    for command in [
        &["status", "--watch"][..],
        &["tools"],
        &["call", "plain_note"],
        &["run", "hi"],
        &["refresh"],
    ] {
        let ran = run(&[command, &["-c", &config]].concat()).await.expect(FAILED);
        let expected = "http://127.0.0.1";
        assert!(ran.err.contains(expected), "{command:?}: {}", ran.err);
        assert!(ran.err.contains("mantyx-bridge serve"), "{command:?}: {}", ran.err);
        assert_eq!(ran.out, "", "{command:?}");
    }
}

#[tokio::test]
async fn status_needs_no_secrets_of_backends() {
    let rig = Harness::start().await;
    let config = rig.client_config();
    let text = fs::read_to_string(&config).expect("it was written");
    let secret = "  jira: {url: 'http://127.0.0.1:1/mcp', headers: {X: '${env:NOT_SET_HERE}'}}";
    fs::write(&config, text.replace("mcp:\n", &format!("mcp:\n{secret}\n"))).expect("ours");
    run(&["check", "-c", &config]).await.expect(USAGE);
    let status = run(&["status", "-c", &config]).await.expect(OK);
    assert!(status.out.contains("plain"), "{}", status.out);

    fs::write(rig.bridge.state("token"), format!("mbt_{}", "a".repeat(64))).expect("ours");
    let wrong = with(&rig, &["status"]).await.expect(FAILED);
    assert!(wrong.err.contains("another configuration"), "{}", wrong.err);
    assert!(!wrong.err.contains("mbt_"), "{}", wrong.err);
}

#[tokio::test]
async fn a_reader_that_has_seen_enough_is_no_failure() {
    let rig = Harness::start().await;
    let config = rig.client_config();
    for args in [
        &["man"][..],
        &["completions", "bash"],
        &["check", "-c", &config],
        &["tools", "-c", &config],
        &["status", "--watch", "-c", &config],
        &["doctor", "-c", &config],
    ] {
        let (reader, writer) = std::io::pipe().expect("pipes can be made");
        drop(reader);
        let mut command = tokio::process::Command::from(crate::bridge::command());
        command.args(args).stdout(writer).stderr(std::process::Stdio::piped()).kill_on_drop(true);
        let limit = std::time::Duration::from_secs(60);
        let ran =
            tokio::time::timeout(limit, command.spawn().expect("it starts").wait_with_output());
        let ran = ran.await.expect("it ends").expect("it was waited for");
        let err = String::from_utf8_lossy(&ran.stderr);
        assert_eq!((ran.status.code(), err.as_ref()), (OK, ""), "{args:?}");
    }
    wait::soon("the bridge goes on", async || Some(rig.bridge.status().await)).await;
}
