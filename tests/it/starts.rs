//! What stands in the way of a start: files that a crash has damaged, a pipe in the place of a
//! file, a signal that comes too early, and an address that the machine does not have.

use std::{fs, path::Path, process::Command};

use rustix::{
    fs::{CWD, FileType, Mode, mknodat},
    process::{Pid, Signal, kill_process},
};
use serde_json::Value;

use crate::{
    bridge::{BINARY, Bridge},
    cli, peers, wait,
};

const SANDBOX: &str = "upstream: {sandbox: true}\n";

/// The problems with the state directory: their messages and cures.
async fn state_problems(bridge: &Bridge) -> Vec<String> {
    let status = bridge.status().await;
    let problems = status["problems"].as_array().expect("the status lists problems").iter();
    let of_state = problems.filter(|problem| problem["subject"] == "state");
    of_state.map(|problem| format!("{} {}", problem["message"], problem["cure"])).collect()
}

/// After a crash, a file may be empty, or have zero bytes in the place of its text. Zero bytes
/// would be a token that anyone knows.
#[tokio::test]
async fn damaged_tokens_are_replaced_and_told() {
    let mut bridge = Bridge::start(SANDBOX).await;
    let old = [bridge.token().to_owned(), bridge.operator()];
    assert_eq!(state_problems(&bridge).await, [""; 0]);
    for damage in ["", "\0\0\0\0\0\0\0\0"] {
        bridge.stop().await;
        for name in ["token", "operator"] {
            fs::write(bridge.state(name), damage).expect("writable");
        }
        bridge.restart().await;
        let new = [bridge.token().to_owned(), bridge.operator()];
        for (new, old) in new.iter().zip(&old) {
            assert_eq!(new.len(), old.len(), "{damage:?}: {new}");
            assert_ne!(new, old, "{damage:?}");
        }
        let told = state_problems(&bridge).await;
        assert!(told.len() == 2 && told[0].contains("operator"), "{damage:?}: {told:?}");
        assert!(told[1].contains("mantyx-bridge token"), "{damage:?}: {told:?}");
        assert!(bridge.log().contains("was empty, too short or damaged"), "{damage:?}");
    }
    bridge.stop().await;
    bridge.restart().await;
    assert_eq!(state_problems(&bridge).await, [""; 0], "it was told once");
}

/// Nothing writes to the pipe, so that a start that reads it would never end.
#[tokio::test]
async fn pipe_in_the_place_of_a_state_file_ends_the_start_with_its_cure() {
    for name in ["token", "operator", "journal", "journal.lock"] {
        let dir = tempfile::tempdir().expect("the temporary directory is writable");
        let state = dir.path().join("state");
        fs::create_dir(&state).expect("writable");
        mknodat(CWD, state.join(name), FileType::Fifo, Mode::RWXU, 0).expect("writable");
        let yaml = dir.path().join("bridge.yaml");
        let config = format!("{SANDBOX}state_dir: {}\nlisten: 127.0.0.1:0\n", state.display());
        fs::write(&yaml, config).expect("writable");
        let ran = cli::run(&["serve", "-c", yaml.to_str().expect("UTF-8")]).await;
        let ran = ran.expect(cli::FAILED);
        assert!(
            ran.err.contains("a pipe") && ran.err.contains("move it away"),
            "{name}: {}",
            ran.err
        );
    }
}

/// How many threads a process has.
fn threads(pid: Pid) -> Option<usize> {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Threads:"))?.trim().parse().ok()
}

/// Who changes bridge.yaml sends SIGHUP, and does not know whether the daemon has read it yet.
#[tokio::test]
async fn hangup_right_at_the_start_does_not_end_the_daemon() {
    let mut bridge = Bridge::start(SANDBOX).await;
    bridge.stop().await;
    bridge.spawn();
    let pid = bridge.process().pid();
    // Its first thread comes before anything else that it does.
    wait::soon("it should begin", async || threads(pid).filter(|threads| *threads > 1)).await;
    kill_process(pid, Signal::STOP).expect("it lives");
    kill_process(pid, Signal::HUP).expect("it lives");
    kill_process(pid, Signal::CONT).expect("it lives");
    bridge.wait_listening().await;
    bridge.stop().await;
}

/// The network of a machine without IPv6, as many containers have it.
const WITHOUT_IPV6: &[&str] =
    &["python3", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/peers/without_ipv6.py"), "--"];

#[tokio::test]
async fn host_without_ipv6_has_the_other_addresses_served() {
    let config = format!("{SANDBOX}listen: ['[::1]:7717', '127.0.0.1:7717']\n");
    let mut bridge = Bridge::start_under(WITHOUT_IPV6, &config).await;
    let served = fs::read_to_string(bridge.state("listen")).expect("the daemon has written it");
    assert_eq!(served.trim(), "http://127.0.0.1:7717");
    assert!(bridge.log().contains("has no IPv6"), "{}", bridge.log());
    bridge.stop().await;

    // `check` says so before, and only there.
    let warnings = |under: &[&str], file: &Path| {
        let mut line = under.iter().copied().chain([BINARY, "check", "--json", "-c"]);
        let mut command = Command::new(line.next().expect("a program"));
        let output = command.args(line).arg(file).output().expect("it should start");
        let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
        report["warnings"].to_string()
    };
    let path = bridge.config_path();
    let told = warnings(WITHOUT_IPV6, &path);
    assert!(told.contains("listen[0]") && told.contains("no IPv6"), "{told}");
    if fs::read_to_string("/proc/net/if_inet6").is_ok_and(|addresses| addresses.contains(" lo\n")) {
        assert!(!warnings(&[], &path).contains("no IPv6"));
    }

    // Without another address, there is nothing to serve.
    fs::write(
        &path,
        format!("{SANDBOX}state_dir: {}\nlisten: '[::1]:7717'\n", bridge.state("").display()),
    )
    .expect("writable");
    let output = Command::new(WITHOUT_IPV6[0])
        .args(&WITHOUT_IPV6[1..])
        .args([BINARY, "serve", "-c"])
        .arg(&path)
        .output()
        .expect("it should start");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("cannot listen on [::1]:7717"), "{said}");
}

/// Files of other products come from machines with Windows.
#[tokio::test]
async fn command_of_windows_is_told_by_check_doctor_and_status() {
    let config = format!("{SANDBOX}mcp:\n  win: {{command: cmd, args: [/c, npx, -y, pkg]}}\n");
    let bridge = Bridge::start(&config).await;
    let problem = wait::soon("the backend should say why", async || {
        let problems = bridge.status().await["problems"].take();
        let problem = problems.as_array()?.iter().find(|problem| problem["subject"] == "win");
        problem.map(ToString::to_string)
    })
    .await;
    assert!(problem.contains("Windows") && problem.contains("rite npx -y pkg"), "{problem}");
    let path = bridge.config_path();
    let path = path.to_str().expect("UTF-8");
    let checked = cli::run(&["check", "-c", path]).await.expect(cli::OK);
    assert!(checked.out.contains("write npx -y pkg"), "{}", checked.out);
    let examined = cli::run(&["doctor", "win", "-c", path]).await.expect(cli::FAILED);
    assert!(examined.out.contains("write npx -y pkg"), "{}", examined.out);
}

/// mcp-remote's README has this form. Its value shows nowhere but in the program's arguments.
#[tokio::test]
async fn variable_of_an_entry_in_its_arguments_shows_nowhere() {
    let secret = "hunter22-of-the-entry";
    let entry = peers::hostile_mcp(&["--die", "Authorization:${AUTH_HEADER}"]);
    let entry = peers::with(&entry, &format!("env: {{AUTH_HEADER: 'Bearer {secret}'}}"));
    let bridge = Bridge::start(&format!("{SANDBOX}mcp:\n  bad: {entry}\n")).await;
    let error = wait::soon("the backend should say why", async || {
        bridge.backend("bad").await["lastError"].as_str().map(str::to_owned)
    })
    .await;
    // The server has repeated it.
    assert!(error.contains("[hidden]"), "{error}");
    let path = bridge.config_path();
    let path = path.to_str().expect("UTF-8");
    let checked = cli::run(&["check", "-c", path]).await;
    let examined = cli::run(&["doctor", "bad", "-c", path]).await;
    let status = bridge.status().await.to_string();
    for said in [&bridge.log(), &status, &checked.out, &checked.err, &examined.out, &examined.err] {
        assert!(!said.contains(secret), "{said}");
    }
    assert!(checked.out.contains("$${AUTH_HEADER}"), "{}", checked.out);
}
