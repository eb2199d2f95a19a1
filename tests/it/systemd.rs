//! The service: what the daemon tells systemd, and that the unit of the repository is valid and
//! shut tight. systemd itself is not run.

use std::{fs, process::Command, time::Duration};

use tempfile::TempDir;
use tokio::{net::UnixDatagram, time::timeout};

use crate::{bridge::Bridge, mantyx::Mantyx, peers, rig::ledger_in};

const UNIT: &str = "systemd/mantyx-bridge.service";

/// Reads messages until one holds the line `wanted`; that message.
async fn told(socket: &UnixDatagram, wanted: &str) -> String {
    let mut seen = Vec::new();
    let read = async {
        let mut buffer = vec![0; 4096];
        loop {
            let size = socket.recv(&mut buffer).await.expect("the socket is ours");
            let bytes = buffer.get(..size).unwrap_or_default();
            let text = String::from_utf8_lossy(bytes).into_owned();
            let found = text.lines().any(|line| line == wanted);
            seen.push(text.clone());
            if found {
                return text;
            }
        }
    };
    let found = timeout(Duration::from_secs(20), read).await;
    found.unwrap_or_else(|_elapsed| panic!("systemd should be told {wanted}; it was told {seen:?}"))
}

#[tokio::test]
async fn systemd_is_told_of_start_life_and_end() {
    let dir = TempDir::new().expect("the temporary directory is writable");
    let path = dir.path().join("notify");
    let socket = UnixDatagram::bind(&path).expect("a new path");
    let mantyx = Mantyx::start().await;
    // A peer that never answers must not keep the service from being ready.
    let deaf = peers::ledger(&ledger_in(&dir), &["--deaf"]);
    let config = format!("{}mcp:\n  deaf: {deaf}\n", mantyx.upstream());
    let notify = path.to_str().expect("a path of the tests is UTF-8");
    let env = [("NOTIFY_SOCKET", notify), ("WATCHDOG_USEC", "2000000")];
    let mut bridge = Bridge::start_with(&config, &env).await;
    told(&socket, "READY=1").await;
    bridge.wait_ready().await;
    told(&socket, "WATCHDOG=1").await;
    told(&socket, "WATCHDOG=1").await;
    bridge.stop().await;
    told(&socket, "STOPPING=1").await;
}

#[tokio::test]
async fn systemd_is_told_of_a_reload() {
    let dir = TempDir::new().expect("the temporary directory is writable");
    let path = dir.path().join("notify");
    let socket = UnixDatagram::bind(&path).expect("a new path");
    let mantyx = Mantyx::start().await;
    let notify = path.to_str().expect("a path of the tests is UTF-8");
    let mut bridge = Bridge::start_with(&mantyx.upstream(), &[("NOTIFY_SOCKET", notify)]).await;
    told(&socket, "READY=1").await;
    let bad = "nonsense: 1\n";
    for config in [&mantyx.upstream(), bad] {
        bridge.set_config(config);
        bridge.process().signal(rustix::process::Signal::HUP);
        let message = told(&socket, "RELOADING=1").await;
        let at = message.lines().find_map(|line| line.strip_prefix("MONOTONIC_USEC="));
        let at = at.and_then(|at| at.parse::<u64>().ok());
        assert!(at.is_some_and(|at| at > 0), "systemd wants to know when: {message}");
        // Of a file that is not taken, too: else it would wait for ever.
        let status = told(&socket, "READY=1").await;
        let not_taken = status.contains("STATUS=0 of 0 backends resolved; configuration not taken");
        assert_eq!(not_taken, config == bad, "{status}");
    }
}

#[tokio::test]
async fn children_are_not_told_of_systemd() {
    let dir = TempDir::new().expect("the temporary directory is writable");
    let path = dir.path().join("notify");
    let _socket = UnixDatagram::bind(&path).expect("a new path");
    let notify = path.to_str().expect("a path of the tests is UTF-8");
    let mantyx = Mantyx::start().await;
    let plain = peers::ledger(&ledger_in(&dir), &[]);
    let config = format!("{}mcp:\n  plain: {plain}\n", mantyx.upstream());
    let bridge = Bridge::start_with(&config, &[("NOTIFY_SOCKET", notify)]).await;
    bridge.wait_backend("plain", "ready").await;
    let children = bridge.children();
    assert!(!children.is_empty(), "the server runs");
    for pid in children {
        let path = format!("/proc/{}/environ", pid.as_raw_nonzero());
        let environment = fs::read(path).unwrap_or_default();
        let text = String::from_utf8_lossy(&environment);
        assert!(!text.contains("NOTIFY_SOCKET"), "a child could declare the service ready");
    }
}

/// Runs systemd-analyze over the unit, with the binary under test in the place of the installed one.
/// `None` where the tests are told to do without systemd.
#[track_caller]
fn analyze(args: &[&str]) -> Option<(bool, String)> {
    let unit = fs::read_to_string(peers::repository(UNIT)).expect("the unit");
    let installed = "/usr/bin/mantyx-bridge ";
    assert!(unit.contains(installed), "the unit starts the installed binary");
    let unit = unit.replace(installed, concat!(env!("CARGO_BIN_EXE_mantyx-bridge"), " "));
    let dir = TempDir::new().expect("the temporary directory is writable");
    let path = dir.path().join("mantyx-bridge.service");
    fs::write(&path, unit).expect("the test's directory is writable");
    match Command::new("systemd-analyze").args(args).arg(&path).output() {
        Ok(output) => {
            let text = [output.stdout, output.stderr].concat();
            Some((output.status.success(), String::from_utf8_lossy(&text).into_owned()))
        }
        Err(_) if std::env::var_os("MANTYX_BRIDGE_SKIP_SYSTEMD").is_some_and(|v| v == "1") => None,
        Err(error) => panic!(
            "The tests of the systemd unit need systemd-analyze ({error}). On Debian: apt-get \
             install systemd. Without systemd: set MANTYX_BRIDGE_SKIP_SYSTEMD=1."
        ),
    }
}

#[test]
fn the_unit_is_valid() {
    let Some((ok, said)) = analyze(&["verify"]) else { return };
    assert!(ok && !said.contains("mantyx-bridge.service"), "systemd-analyze verify: {said}");
}

#[test]
fn the_unit_is_shut_tight() {
    let threshold = ["security", "--offline=true", "--no-pager", "--threshold=13"];
    let Some((ok, said)) = analyze(&threshold) else { return };
    let last = said.lines().last().unwrap_or_default();
    assert!(ok, "exposure is above 1.3: {last}");
}
