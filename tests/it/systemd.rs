//! The service: what the daemon tells systemd, and that the units of the repository are valid and
//! shut tight. systemd itself is not run.

use std::{fs, path::PathBuf, process::Command, time::Duration};

use tempfile::TempDir;
use tokio::{net::UnixDatagram, time::timeout};

use crate::{
    bridge::Bridge,
    harness::ledger_in,
    mantyx::Mantyx,
    peers::{self, debian},
};

const SERVICE: &str = "mantyx-bridge.service";
const SOCKET: &str = "mantyx-bridge.socket";
const NODE: &str = "mantyx-bridge.service.d/node.conf";
const PROGRAMS: &str = "mantyx-bridge.service.d/programs.conf";

/// Reads messages until one holds the line `wanted`; that message.
pub(crate) async fn told(socket: &UnixDatagram, wanted: &str) -> String {
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
        let not_taken = status.contains("configuration not taken");
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

/// A program of systemd's.
#[track_caller]
pub(crate) fn program(name: &str) -> PathBuf {
    debian::program(name, "systemd")
}

/// Runs systemd-analyze over these units, with the binary under test in the place of the installed
/// one, and with these drop-ins.
#[track_caller]
fn analyze(args: &[&str], units: &[&str], drop_ins: &[&str]) -> (bool, String) {
    let dir = TempDir::new().expect("the temporary directory is writable");
    fs::create_dir(dir.path().join("mantyx-bridge.service.d")).expect("a new directory is empty");
    for file in [SERVICE, SOCKET].iter().chain(drop_ins).copied() {
        let text = fs::read_to_string(peers::repository("systemd").join(file)).expect("a unit");
        let installed = "/usr/bin/mantyx-bridge ";
        assert!(file != SERVICE || text.contains(installed), "it starts the installed binary");
        let text = text.replace(installed, concat!(env!("CARGO_BIN_EXE_mantyx-bridge"), " "));
        let kill = debian::program("kill", "procps").display().to_string();
        let text = text.replace("/bin/kill", &kill);
        fs::write(dir.path().join(file), text).expect("the test's directory is writable");
    }
    let paths = units.iter().map(|unit| dir.path().join(unit));
    let output = Command::new(program("systemd-analyze")).args(args).args(paths).output();
    let output = output.expect("it is there");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn the_units_are_valid() {
    for drop_ins in [&[][..], &[NODE, PROGRAMS]] {
        let (ok, said) = analyze(&["verify"], &[SERVICE, SOCKET], drop_ins);
        assert!(ok && !said.contains("mantyx-bridge"), "systemd-analyze verify: {said}");
    }
}

#[test]
fn the_service_is_shut_tight() {
    // Namespaces cost what they are worth to a program that is after the kernel.
    for (drop_ins, threshold) in [(&[][..], "13"), (&[NODE], "13"), (&[PROGRAMS], "18")] {
        let threshold = format!("--threshold={threshold}");
        let args = ["security", "--offline=true", "--no-pager", &threshold];
        let (ok, said) = analyze(&args, &[SERVICE], drop_ins);
        let last = said.lines().last().unwrap_or_default();
        assert!(ok, "exposure is above {threshold}: {last}");
        let node = drop_ins.contains(&NODE);
        let open = said.lines().any(|line| line.contains("MemoryDenyWrite") && line.contains('✗'));
        assert_eq!(open, node, "the drop-in counts: {said}");
    }
}
